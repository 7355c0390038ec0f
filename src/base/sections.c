/* SPDX-License-Identifier: MIT */
/*
 * inih splits the lines of words. Headings are read here, because inih cuts the name of a section at 50 bytes, ignores
 * what follows it, and does not report a section without words.
 */
#include "base/sections.h"

#include <ini.h>

struct sections_reading {
    struct bytes rest;
    const struct sections_handler *handler;
    int line;    /* number of the last line that was read */
    bool failed; /* at `line`, because of `why` */
    struct buf why;
};

/* Skips the bytes that inih skips as space. */
static struct bytes skip_blanks(struct bytes text)
{
    while (text.length && (*text.data == ' ' || (*text.data >= '\t' && *text.data <= '\r'))) {
        text.data++;
        text.length--;
    }
    return text;
}

static bool read_heading(struct sections_reading *reading, struct bytes line)
{
    const char *end = memchr(line.data, ']', line.length);
    struct bytes name = {line.data + 1, end ? (size_t)(end - line.data) - 1 : 0};
    struct bytes behind = end ? (struct bytes){end + 1, line.length - name.length - 2} : line;
    struct bytes comment = skip_blanks(behind);
    if (!end || (comment.length && (*comment.data != ';' || comment.data == behind.data))) {
        buf_append_text(&reading->why, "expected '[name]'");
        return false;
    }
    if (!reading->handler->section) {
        buf_printf(&reading->why, "[%.*s] is not expected; sections are not supported", (int)name.length, name.data);
        return false;
    }
    return reading->handler->section(reading->handler->context, name, reading->line, &reading->why);
}

/*
 * Reads a line for inih; an empty one instead of a heading. inih takes an indented line for another value of the word
 * before it, even if it is a word of its own.
 */
static char *read_line(char *ret_line, int size, void *context)
{
    struct sections_reading *reading = context;
    if (reading->failed || reading->rest.length == 0)
        return NULL;
    const char *end = memchr(reading->rest.data, '\n', reading->rest.length);
    struct bytes line = {reading->rest.data, end ? (size_t)(end - reading->rest.data) : reading->rest.length};
    size_t used = line.length + (end != NULL);
    reading->rest = (struct bytes){reading->rest.data + used, reading->rest.length - used};
    reading->line++;
    if (reading->line == 1 && bytes_begin_with(line, BYTES("\xEF\xBB\xBF")))
        line = (struct bytes){line.data + 3, line.length - 3};
    struct bytes content = skip_blanks(line);
    bool is_comment = content.length && (*content.data == ';' || *content.data == '#');
    if (memchr(line.data, '\0', line.length)) {
        buf_append_text(&reading->why, "not text");
        reading->failed = true;
    } else if (content.length && content.data != line.data && !is_comment && !reading->handler->values_continue) {
        buf_append_text(&reading->why, "remove the space before this line; a value has one line");
        reading->failed = true;
    } else if (content.length && *content.data == '[') {
        reading->failed = !read_heading(reading, line);
        line = BYTES("");
    } else if (line.length > (size_t)size - 3) {
        buf_printf(&reading->why, "longer than %d bytes", size - 3);
        reading->failed = true;
    }
    if (reading->failed)
        return NULL;
    memcpy(ret_line, line.data, line.length);
    ret_line[line.length] = '\0';
    return ret_line;
}

/* Handles a word for inih. Returns 0 on an error; read_line then ends the reading. */
static int handle_word(void *context, const char *section, const char *word, const char *value)
{
    struct sections_reading *reading = context;
    const struct sections_handler *handler = reading->handler;
    (void)section;
    reading->failed = !handler->word(handler->context, word, value, reading->line, &reading->why);
    return !reading->failed;
}

bool sections_read(struct bytes text, const char *path, const struct sections_handler *handler, struct buf *message)
{
    struct sections_reading reading = {.rest = text, .handler = handler};
    buf_init(&reading.why, 4096);
    int bad_line = ini_parse_stream(read_line, &reading, handle_word, &reading);
    if (bad_line > 0 && (!reading.failed || bad_line < reading.line))
        buf_printf(message, "%s, line %d: expected '%s = value'", path, bad_line, handler->section ? "word" : "name");
    else if (reading.failed)
        buf_printf(message, "%s, line %d: %s", path, reading.line, buf_text(&reading.why));
    else if (bad_line < 0)
        buf_printf(message, "%s: no memory", path);
    buf_release(&reading.why);
    return bad_line == 0 && !reading.failed;
}
