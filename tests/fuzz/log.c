/* SPDX-License-Identifier: MIT */
/*
 * Log lines with any texts in them: each is one line, and neither a terminal nor a JSON reader mistakes it. The first
 * byte selects format and level; the texts are separated by zero bytes.
 */
#include "base/log.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz.h"
#include "json.h"
#include "reference.h"

enum { TEXTS = 3, LINE_MAX_BYTES = 64 * 1024 };

/* Writes a log line while standard error is a file in memory. Returns the line. */
static struct bytes written_line(enum log_level level, char *const texts[TEXTS])
{
    static int memory = -1, terminal = -1;
    static char line[LINE_MAX_BYTES];
    if (memory < 0) {
        memory = memfd_create("log", MFD_CLOEXEC);
        terminal = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
    }
    MUST(ftruncate(memory, 0) == 0 && lseek(memory, 0, SEEK_SET) == 0 && dup2(memory, STDERR_FILENO) >= 0);
    log_write(level, texts[0], "request_id", texts[1], "semaphore", texts[2], "nothing", NULL, NULL);
    MUST(dup2(terminal, STDERR_FILENO) >= 0);
    ssize_t length = pread(memory, line, sizeof line, 0);
    MUST(length > 0);
    return (struct bytes){line, (size_t)length};
}

/* Control characters (C0, DEL and C1, which terminals obey) and bytes that are not shortest-form UTF-8 are escaped. */
static void check_line(struct bytes line)
{
    MUST(line.data[line.length - 1] == '\n');
    line.length--;
    MUST(reference_utf8(line));
    for (size_t at = 0; at < line.length;) {
        uint32_t character = 0;
        at += reference_character(line, at, &character);
        MUST(character >= 0x20 && (character < 0x7f || character > 0x9f));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned choice = fuzz_choice(&data, &size);
    enum log_format format = choice & 1 ? LOG_JSON : LOG_TEXT;
    char *texts[TEXTS];
    for (size_t i = 0; i < TEXTS; i++) {
        const uint8_t *end = size ? memchr(data, 0, size) : NULL;
        size_t length = end ? (size_t)(end - data) : size;
        texts[i] = fuzz_text(data, length);
        size -= length + (end != NULL);
        data += length + (end != NULL);
    }
    log_configure(LOG_DEBUG, format);
    struct bytes line = written_line((enum log_level)(choice >> 1 & 3), texts);
    check_line(line);
    if (format == LOG_JSON) {
        struct json_facts facts;
        json_judge(line, &facts);
        MUST(facts.is_json && facts.is_object && !facts.twice);
    }
    for (size_t i = 0; i < TEXTS; i++)
        free(texts[i]);
    return 0;
}
