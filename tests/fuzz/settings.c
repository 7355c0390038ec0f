/* SPDX-License-Identifier: MIT */
/*
 * Settings from a file, the environment and the command line. The input has three parts, separated by zero bytes: the
 * INI file, the variables and the arguments, one a line. Accepted values are in range; refusals give a reason.
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/config.h"
#include "fuzz.h"

struct settings {
    char *listen;
    char *data_dir;
    char *database_password;
    int64_t password_age;
    bool insecure;
    int64_t workers;
    int64_t least; /* smallest of all whole numbers */
    int64_t request_timeout_ms;
    const char *log_level;
};

#define AT(member) offsetof(struct settings, member)

static const char *const log_levels[] = {"debug", "info", "warn", "error", NULL};

/* One row for each type and flag. */
static const struct config_row rows[] = {
    {.name = "listen", .type = CONFIG_TEXT, .offset = AT(listen), .default_text = "127.0.0.1:7070", .help = "Text."},
    {.name = "data_dir", .type = CONFIG_TEXT, .offset = AT(data_dir), .help = "Text that may be unset."},
    {.name = "database_password",
     .type = CONFIG_TEXT,
     .offset = AT(database_password),
     .flags = CONFIG_SECRET,
     .help = "Never printed."},
    {.name = "database_password_age",
     .type = CONFIG_NUMBER,
     .offset = AT(password_age),
     .default_text = "1",
     .min = 1,
     .max = 9,
     .flags = CONFIG_SECRET,
     .help = "Never printed, and not everything is one."},
    {.name = "insecure", .type = CONFIG_BOOL, .offset = AT(insecure), .default_text = "false", .help = "Switch."},
    {.name = "workers",
     .type = CONFIG_NUMBER,
     .offset = AT(workers),
     .default_text = "2",
     .min = 1,
     .max = 64,
     .help = "Number."},
    {.name = "least",
     .type = CONFIG_NUMBER,
     .offset = AT(least),
     .default_text = "0",
     .min = INT64_MIN,
     .max = INT64_MAX,
     .help = "Any number."},
    {.name = "request_timeout",
     .type = CONFIG_DURATION,
     .offset = AT(request_timeout_ms),
     .default_text = "10s",
     .min = 100,
     .max = 3600 * 1000,
     .flags = CONFIG_RELOADABLE,
     .help = "Duration."},
    {.name = "log_level",
     .type = CONFIG_CHOICE,
     .offset = AT(log_level),
     .default_text = "info",
     .choices = log_levels,
     .flags = CONFIG_RELOADABLE,
     .help = "Choice."},
};
static const char *const ignored[] = {"URL", NULL};
static const struct config_table table = {rows, ARRAY_LENGTH(rows), "PERMITD_", ignored};

enum { MESSAGE_MAX = 64 * 1024, LINES_MAX = 32 };

#define SECRET "hunter2hunter2"

static bool is_choice(const char *word)
{
    for (const char *const *choice = log_levels; *choice; choice++)
        if (word == *choice)
            return true;
    return false;
}

static void check_settings(const struct settings *settings)
{
    MUST(settings->listen && *settings->listen);
    MUST(!settings->data_dir || *settings->data_dir);
    MUST(settings->workers >= 1 && settings->workers <= 64);
    MUST(settings->request_timeout_ms >= 100 && settings->request_timeout_ms <= 3600 * 1000);
    MUST(is_choice(settings->log_level));
}

/* Returns true if the line sets database_password to the secret, also misspelt, in any form. */
static bool is_secret_line(const char *line, const char *secret)
{
    static const char *const names[] = {"PERMITD_DATABASE_PASSWOR", "--database-passwor", "database-passwor",
                                        "database_passwor"};
    for (size_t i = 0; i < ARRAY_LENGTH(names); i++) {
        size_t length = strlen(names[i]);
        if (strncmp(line, names[i], length) != 0 || line + length >= secret)
            continue;
        const char *behind = line + length + strspn(line + length, "dtDT_-ageAGE");
        const char *equals = behind + strspn(behind, " ");
        return *equals == '=' && equals + 1 + strspn(equals + 1, " ") == secret;
    }
    return false;
}

/* Returns true if the secret is only where one is expected: then it must not be printed. */
static bool secret_is_meant(const uint8_t *data, size_t size)
{
    const size_t length = strlen(SECRET);
    char *text = fuzz_text(data, size);
    bool meant = true;
    for (size_t at = 0; at + length <= size; at++) {
        size_t line = at;
        if (memcmp(text + at, SECRET, length) != 0)
            continue;
        while (line > 0 && text[line - 1] != '\n' && text[line - 1] != '\0')
            line--;
        meant = meant && is_secret_line(text + line, text + at);
    }
    free(text);
    return meant;
}

static bool hides; /* this input's secret must not be printed */

/* Checks that the settings are valid in any case, that a refusal has a reason, and that a secret is never printed. */
static bool judge(bool taken, const struct settings *settings, struct buf *message)
{
    check_settings(settings);
    MUST(taken == (message->length == 0));
    MUST(!hides || !strstr(buf_text(message), SECRET));
    buf_clear(message);
    return taken;
}

/* Returns the part before the next zero byte, and moves `data` past it. */
static struct bytes next_part(const uint8_t **data, size_t *size)
{
    const uint8_t *end = *size ? memchr(*data, 0, *size) : NULL;
    struct bytes part = {(const char *)*data, end ? (size_t)(end - *data) : *size};
    size_t used = part.length + (end != NULL);
    *data += used;
    *size -= used;
    return part;
}

/* Splits a text into lines; the caller frees the result. */
static char *lines_of(struct bytes part, char *ret_lines[LINES_MAX + 1])
{
    char *text = fuzz_text((const uint8_t *)part.data, part.length);
    char *rest = text;
    size_t count = 0;
    memset(ret_lines, 0, (LINES_MAX + 1) * sizeof *ret_lines);
    while (rest && count < LINES_MAX) {
        char *line = strsep(&rest, "\n");
        ret_lines[count++] = line;
    }
    return text;
}

/* Loads a file in memory by its path. */
static bool load_file(struct settings *settings, struct bytes content, struct buf *message)
{
    static int fd = -1;
    static char path[64];
    if (fd < 0) {
        fd = memfd_create("settings", 0);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    MUST(fd >= 0 && ftruncate(fd, 0) == 0 && pwrite(fd, content.data, content.length, 0) == (ssize_t)content.length);
    return judge(config_load_file(&table, settings, path, message), settings, message);
}

static bool load_environment(struct settings *settings, struct bytes part, struct buf *message)
{
    char *lines[LINES_MAX + 1];
    char *text = lines_of(part, lines);
    char **kept = environ;
    environ = lines;
    bool taken = config_load_environment(&table, settings, message);
    environ = kept;
    taken = judge(taken, settings, message);
    free(text);
    return taken;
}

static bool load_arguments(struct settings *settings, struct bytes part, struct buf *message)
{
    char *lines[LINES_MAX + 1];
    char *text = lines_of(part, lines);
    int count = 0;
    bool taken = true;
    while (lines[count])
        count++;
    for (int i = 0; i < count && taken; i++) {
        int before = i;
        taken = judge(config_load_argument(&table, settings, count, lines, &i, message), settings, message);
        MUST(i >= before && i <= before + 1 && i < count);
    }
    free(text);
    return taken;
}

/* Reloads with these settings: checks that reloadable settings have changed, and no others. */
static void check_reload(struct settings *settings, struct settings *fresh, struct buf *message)
{
    int64_t timeout_ms = fresh->request_timeout_ms, workers = settings->workers;
    const char *level = fresh->log_level;
    config_reload(&table, settings, fresh, message);
    MUST(settings->request_timeout_ms == timeout_ms && settings->log_level == level && settings->workers == workers);
    MUST(!hides || !strstr(buf_text(message), SECRET));
    check_settings(settings);
    check_settings(fresh);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct settings running = {0}, fresh = {0};
    struct buf message;
    buf_init(&message, MESSAGE_MAX);
    hides = secret_is_meant(data, size);
    MUST(config_init(&table, &running, &message) && config_init(&table, &fresh, &message));
    struct bytes file = next_part(&data, &size);
    struct bytes variables = next_part(&data, &size);
    struct bytes arguments = next_part(&data, &size);
    if (load_file(&fresh, file, &message) && load_environment(&fresh, variables, &message) &&
        load_arguments(&fresh, arguments, &message))
        check_reload(&running, &fresh, &message);
    config_release(&table, &running);
    config_release(&table, &fresh);
    buf_release(&message);
    return 0;
}
