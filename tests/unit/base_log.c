/* SPDX-License-Identifier: MIT */
/* Log lines. Standard error is a datagram socket, which keeps each write(2) separate. */
#include <criterion/criterion.h>
#include <errno.h>
#include <json-c/json.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"

enum { STAMP_LENGTH = 24 }; /* 2026-11-21T09:14:31.123Z */

static int reader;
static char line[1 << 16];

static void catch_lines(void)
{
    int ends[2];
    cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
    cr_assert(dup2(ends[1], STDERR_FILENO) >= 0);
    close(ends[1]);
    reader = ends[0];
}

/* Returns the next write(2) of the log; NULL: none. */
static char *next_line(void)
{
    ssize_t length = recv(reader, line, sizeof line - 1, MSG_DONTWAIT);
    if (length < 0)
        return NULL;
    line[length] = '\0';
    return line;
}

static void expect_after_stamp(const char *expected)
{
    char *text = next_line();
    cr_assert_not_null(text);
    cr_assert_gt(strlen(text), STAMP_LENGTH);
    cr_expect_eq(strspn(text, "0123456789-:T.Z"), STAMP_LENGTH, "%s", text);
    cr_expect(text[19] == '.' && text[23] == 'Z', "%s", text);
    cr_expect_str_eq(text + STAMP_LENGTH, expected);
}

TestSuite(log, .init = catch_lines);

Test(log, line_is_one_write)
{
    log_write(LOG_INFO, "message", "key", "value", "other", "with space", NULL);
    expect_after_stamp(" info message key=value other=\"with space\"\n");
    cr_expect_null(next_line());
}

Test(log, values_are_quoted_only_if_needed)
{
    log_write(LOG_WARN, "two words", "a", "", "b", "x=y", "c", "say \"no\"", "d", "back\\slash", "e", "job-42:/x",
              NULL);
    expect_after_stamp(" warn two words a=\"\" b=\"x=y\" c=\"say \\\"no\\\"\" d=\"back\\\\slash\" e=job-42:/x\n");
}

Test(log, null_value_is_printed_as_empty)
{
    log_write(LOG_ERROR, "m", "a", NULL, "b", "2", NULL);
    expect_after_stamp(" error m a= b=2\n");
}

Test(log, control_characters_are_escaped)
{
    log_write(LOG_INFO, "a\nb", "key", "1\n2\r3\t4\x1b[31m\x7f", NULL);
    expect_after_stamp(" info a\\nb key=\"1\\n2\\r3\\t4\\x1b[31m\\x7f\"\n");
}

Test(log, utf8_letters_are_kept_and_invalid_bytes_escaped)
{
    log_write(LOG_INFO, "m", "key", "\xc3\xa9 \xe2\x82\xac \xf0\x9f\x90\xa7", NULL);
    expect_after_stamp(" info m key=\"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x90\xa7\"\n");
    /* Invalid: a lone byte, C1, an overlong slash, a surrogate, a code point beyond Unicode, a truncated sequence. */
    log_write(LOG_INFO, "m", "key", "\xff|\xc2\x9b|\xc0\xaf|\xed\xa0\x80|\xf4\x90\x80\x80|\xe2\x82", NULL);
    expect_after_stamp(" info m key=\"\\xff|\\xc2\\x9b|\\xc0\\xaf|\\xed\\xa0\\x80|\\xf4\\x90\\x80\\x80|\\xe2\\x82\"\n");
}

Test(log, format_characters_are_escaped_in_text)
{
    log_write(LOG_INFO, "m", "key", "a\xe2\x80\xae\x62", NULL); /* U+202E turns the direction of what follows */
    expect_after_stamp(" info m key=\"a\\xe2\\x80\\xae\x62\"\n");
    log_configure(LOG_INFO, LOG_JSON);
    log_write(LOG_INFO, "m", "key", "a\xe2\x80\xae\x62", NULL);
    cr_expect(strstr(next_line(), "\"a\xe2\x80\xae\x62\""), "JSON is for programs");
}

Test(log, lower_levels_are_not_logged)
{
    log_write(LOG_DEBUG, "by default", NULL);
    cr_expect_null(next_line());
    log_configure(LOG_ERROR, LOG_TEXT);
    log_write(LOG_WARN, "still not", NULL);
    cr_expect_null(next_line());
    log_write(LOG_ERROR, "this", NULL);
    expect_after_stamp(" error this\n");
    log_configure(LOG_DEBUG, LOG_TEXT);
    log_write(LOG_DEBUG, "now", NULL);
    expect_after_stamp(" debug now\n");
}

static struct json_object *next_json(void)
{
    char *text = next_line();
    cr_assert_not_null(text);
    cr_assert(strchr(text, '\n') == text + strlen(text) - 1, "%s", text);
    struct json_object *object = json_tokener_parse(text);
    cr_assert_not_null(object, "%s", text);
    return object;
}

static const char *text_of(struct json_object *object, const char *name)
{
    return json_object_get_string(json_object_object_get(object, name));
}

Test(log, json_lines_parse_to_their_values)
{
    log_configure(LOG_INFO, LOG_JSON);
    log_write(LOG_WARN, "a \"b\"", "key", "1\n\x01\\\"\xc3\xa9\x7f", "none", NULL, "empty", "", NULL);
    struct json_object *object = next_json();
    cr_expect_eq(strlen(text_of(object, "time")), STAMP_LENGTH);
    cr_expect_str_eq(text_of(object, "level"), "warn");
    cr_expect_str_eq(text_of(object, "message"), "a \"b\"");
    cr_expect_str_eq(text_of(object, "key"), "1\n\x01\\\"\xc3\xa9\x7f");
    cr_expect_str_eq(text_of(object, "empty"), "");
    struct json_object *none = object;
    cr_expect(json_object_object_get_ex(object, "none", &none) && none == NULL);
    json_object_put(object);
}

Test(log, invalid_bytes_become_the_replacement_character_in_json)
{
    log_configure(LOG_INFO, LOG_JSON);
    log_write(LOG_INFO, "m", "key", "a\xff\xc0\xaf!", NULL);
    struct json_object *object = next_json();
    cr_expect_str_eq(text_of(object, "key"), "a\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd!");
    json_object_put(object);
}

/* Every length around the limit, with plain letters and with letters that take several bytes or an escape. */
Test(log, too_long_line_is_cut_and_stays_valid_json)
{
    static const char *const letters[] = {"x", "\xe2\x82\xac", "\x01", "\"", "\xf0\x9f\x90\xa7"};
    static char value[40000];
    log_configure(LOG_INFO, LOG_JSON);
    for (size_t i = 0; i < ARRAY_LENGTH(letters); i++) {
        size_t length = strlen(letters[i]);
        for (size_t shift = 0; shift < 8; shift++) {
            memset(value, 'a', shift);
            for (size_t at = shift; at + length < sizeof value; at += length)
                memcpy(value + at, letters[i], length + 1);
            log_write(LOG_INFO, "m", "key", value, "left_out", "x", NULL);
            struct json_object *object = next_json();
            const char *read = text_of(object, "key");
            cr_expect_str_eq(read + strlen(read) - 3, "...");
            cr_expect_eq(memcmp(read, value, strlen(read) - 3), 0);
            cr_expect_null(json_object_object_get(object, "left_out"));
            json_object_put(object);
        }
    }
}

Test(log, fields_of_any_length_do_not_exceed_the_limit)
{
    static char value[9000];
    for (enum log_format format = LOG_TEXT; format <= LOG_JSON; format++) {
        log_configure(LOG_INFO, format);
        for (size_t length = 7900; length < 8250; length++) {
            memset(value, 'v', length);
            value[length] = '\0';
            log_write(LOG_INFO, "m", "key", value, "short", "1", "another_name", "2", NULL);
            if (format == LOG_JSON)
                json_object_put(next_json());
            else
                cr_assert_eq(next_line()[strlen(line) - 1], '\n');
            cr_assert_leq(strlen(line), 8192);
        }
    }
}

Test(log, long_message_is_cut)
{
    static char message[20000];
    memset(message, 'm', sizeof message - 1);
    log_write(LOG_INFO, message, "key", "value", NULL);
    char *text = next_line();
    cr_expect_leq(strlen(text), 8192);
    cr_expect_str_eq(text + strlen(text) - 4, "...\n");
    log_configure(LOG_INFO, LOG_JSON);
    log_write(LOG_INFO, message, "key", "value", NULL);
    json_object_put(next_json());
}

Test(log, errno_is_preserved)
{
    close(reader); /* so that the write fails */
    close(STDERR_FILENO);
    errno = ENOENT;
    log_write(LOG_INFO, "m", NULL);
    cr_expect_eq(errno, ENOENT);
}

Test(log, words_name_levels_and_formats)
{
    static const char *const words[] = {"debug", "info", "warn", "error"};
    for (size_t i = 0; i < ARRAY_LENGTH(words); i++) {
        enum log_level level = LOG_DEBUG;
        cr_expect(log_level_from_word(words[i], &level));
        cr_expect_eq((size_t)level, i);
    }
    enum log_level level = LOG_WARN;
    enum log_format format = LOG_TEXT;
    cr_expect(!log_level_from_word("Info", &level));
    cr_expect(!log_level_from_word("", &level));
    cr_expect_eq(level, LOG_WARN);
    cr_expect(log_format_from_word("json", &format));
    cr_expect_eq(format, LOG_JSON);
    cr_expect(!log_format_from_word("xml", &format));
    cr_expect_eq(format, LOG_JSON);
}
