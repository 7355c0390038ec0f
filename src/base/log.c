/* SPDX-License-Identifier: MIT */
#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/escape.h"

static const char *const level_words[] = {
    [LOG_DEBUG] = "debug", [LOG_INFO] = "info", [LOG_WARN] = "warn", [LOG_ERROR] = "error"};
static const char *const format_words[] = {[LOG_TEXT] = "text", [LOG_JSON] = "json"};

static atomic_int least_level = LOG_INFO;
static atomic_int line_format = LOG_TEXT;

/*
 * A line under construction, on the stack: logging must work without free memory. A line that is too long is cut inside
 * a value. LINE_RESERVED bytes at the end are for closing characters, so that a cut line is still valid JSON.
 */
enum { LINE_SIZE = 8192, LINE_RESERVED = 16 };

struct line {
    size_t length;
    bool cut;
    char data[LINE_SIZE];
};

void log_configure(enum log_level level, enum log_format format)
{
    atomic_store(&least_level, (int)level);
    atomic_store(&line_format, (int)format);
}

static int find_word(const char *const *words, size_t count, const char *word)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(words[i], word) == 0)
            return (int)i;
    return -1;
}

bool log_level_from_word(const char *word, enum log_level *ret_level)
{
    int level = find_word(level_words, ARRAY_LENGTH(level_words), word);
    if (level >= 0)
        *ret_level = (enum log_level)level;
    return level >= 0;
}

bool log_format_from_word(const char *word, enum log_format *ret_format)
{
    int format = find_word(format_words, ARRAY_LENGTH(format_words), word);
    if (format >= 0)
        *ret_format = (enum log_format)format;
    return format >= 0;
}

/* Returns the free bytes before the reserved ones; 0 if closing characters have already used some of those. */
static size_t line_free(const struct line *line)
{
    const size_t limit = LINE_SIZE - LINE_RESERVED;
    return line->cut || line->length > limit ? 0 : limit - line->length;
}

/* Appends all of the data or, if it does not fit, marks the line as cut and appends nothing more. */
static void line_put(struct line *line, const char *data, size_t length)
{
    if (line->cut || length > line_free(line)) {
        line->cut = true;
        return;
    }
    memcpy(line->data + line->length, data, length);
    line->length += length;
}

static void line_put_text(struct line *line, const char *text)
{
    line_put(line, text, strlen(text));
}

/* Appends closing characters; may use the reserved bytes. */
static void line_close(struct line *line, const char *text)
{
    size_t length = strlen(text);
    memcpy(line->data + line->length, text, length);
    line->length += length;
}

static void put_escaped_byte(struct line *line, char byte, enum log_format format)
{
    char escape[8];
    unsigned value = (unsigned char)byte;
    if (byte == '\n' || byte == '\r' || byte == '\t')
        snprintf(escape, sizeof escape, "\\%c", byte == '\n' ? 'n' : byte == '\r' ? 'r' : 't');
    else if (format == LOG_TEXT)
        snprintf(escape, sizeof escape, "\\x%02x", value);
    else /* an invalid byte has no code point in JSON */
        snprintf(escape, sizeof escape, "\\u%04x", value < 0x80 ? value : 0xfffdU);
    line_put_text(line, escape);
}

/* Appends text with escapes. `quoted`: the text is between quotation marks, so " and \ are escaped too. */
static void put_escaped(struct line *line, const char *text, enum log_format format, bool quoted)
{
    while (*text && !line->cut) {
        /* Both read no further than the terminating zero. */
        size_t length = format == LOG_TEXT ? escape_shown_character(text, 4) : escape_plain_character(text, 4);
        if (length == 0)
            put_escaped_byte(line, *text, format);
        else if (quoted && (*text == '"' || *text == '\\'))
            line_put(line, (char[]){'\\', *text}, 2);
        else
            line_put(line, text, length);
        text += length ? length : 1;
    }
    if (line->cut)
        line_close(line, "...");
}

static bool needs_quotes(const char *value)
{
    if (*value == '\0')
        return true;
    for (; *value; value++) {
        unsigned char byte = (unsigned char)*value;
        if (byte <= ' ' || byte >= 0x7f || byte == '"' || byte == '=' || byte == '\\')
            return true;
    }
    return false;
}

static void put_quoted(struct line *line, const char *text, enum log_format format)
{
    line_put(line, "\"", 1);
    put_escaped(line, text, format, true);
    line_close(line, "\"");
}

static void put_head(struct line *line, enum log_level level, const char *message, enum log_format format)
{
    char now[RFC3339_SIZE];
    size_t length = clock_format_rfc3339(clock_wall(), now);
    /* Cut microseconds to milliseconds: the last three digits make room for the Z. */
    length -= 4;
    now[length++] = 'Z';
    now[length] = '\0';
    if (format == LOG_TEXT) {
        line_put(line, now, length);
        line_put(line, " ", 1);
        line_put_text(line, level_words[level]);
        line_put(line, " ", 1);
        put_escaped(line, message, format, false);
        return;
    }
    line_put_text(line, "{\"time\":\"");
    line_put(line, now, length);
    line_put_text(line, "\",\"level\":\"");
    line_put_text(line, level_words[level]);
    line_put_text(line, "\",\"message\":");
    put_quoted(line, message, format);
}

static void put_fields(struct line *line, enum log_format format, va_list fields)
{
    const char *name;
    while ((name = va_arg(fields, const char *))) {
        const char *value = va_arg(fields, const char *);
        /* Start a field only if its name and the beginning of its value fit. */
        if (strlen(name) + LINE_RESERVED > line_free(line))
            line->cut = true;
        if (line->cut)
            return;
        line_put_text(line, format == LOG_JSON ? ",\"" : " ");
        line_put_text(line, name);
        line_put_text(line, format == LOG_JSON ? "\":" : "=");
        if (!value)
            line_put_text(line, format == LOG_JSON ? "null" : "");
        else if (format == LOG_JSON || needs_quotes(value))
            put_quoted(line, value, format);
        else
            put_escaped(line, value, format, false);
    }
}

void log_write(enum log_level level, const char *message, ...)
{
    if ((int)level < atomic_load(&least_level))
        return;
    int saved_errno = errno;
    enum log_format format = (enum log_format)atomic_load(&line_format);
    struct line line;
    line.length = 0;
    line.cut = false;
    put_head(&line, level, message, format);
    va_list fields;
    va_start(fields, message);
    put_fields(&line, format, fields);
    va_end(fields);
    line_close(&line, format == LOG_JSON ? "}\n" : "\n");
    /*
     * One write(2), so that lines of several threads or processes do not mix. Errors are ignored: there is no other
     * place to report them.
     */
    while (write(STDERR_FILENO, line.data, line.length) < 0 && errno == EINTR)
        ;
    errno = saved_errno;
}
