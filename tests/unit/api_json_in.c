/* SPDX-License-Identifier: MIT */
/* Bodies: valid JSON, how far a text is read, and how members are read. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/json_in.h"

enum { MIB = 1024 * 1024, MESSAGE_MAX = 1000 };

static const struct wire_limit at_most_1000 = {1000, PERMIT_TOO_LARGE, "at most 1000"};

/* *ret_read is the number of bytes read. */
static enum permit_status check(const char *text, struct bytes *ret_object, size_t *ret_read,
                                char message[MESSAGE_MAX + 1])
{
    struct buf sentence;
    buf_init(&sentence, MESSAGE_MAX);
    enum permit_status status = wire_check(bytes_of(text), &at_most_1000, ret_read, ret_object, &sentence);
    strcpy(message, buf_text(&sentence));
    buf_release(&sentence);
    return status;
}

static void judge(enum permit_status expected, const char *text)
{
    struct bytes object;
    size_t read;
    char message[MESSAGE_MAX + 1];
    enum permit_status status = check(text, &object, &read, message);
    cr_expect_eq(status, expected, "%s: %s (%s)", text, permit_status_word(status), message);
    cr_expect((status == PERMIT_OK) == (message[0] == '\0'), "%s: %s", text, message);
    if (status == PERMIT_OK)
        cr_expect(object.data[0] == '{' && object.data[object.length - 1] == '}' && read == strlen(text), "%s", text);
}

Test(wire, objects_are_json)
{
    static const char *const texts[] = {
        "{}",
        " \t\r\n{ } \n",
        "{\"a\":1}",
        "{\"a\":[]}",
        "{ \"a\" : [ 1 , -2.5e+3 , 0 , 0.5 , 1E9 ] , \"b\" : { } }",
        "{\"a\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0041\\ud83d\\ude00\"}",
        "{\"a\":true,\"b\":false,\"c\":null}",
        "{\"\":\"\"}",
        "{\"a\":\"\xc3\xa4\xf0\x9f\x98\x80\x7f\"}",
        "{\"a\":\"\\u0000\"}",
        "{\"a\":[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]}", /* 16 deep */
        "{\"a\":\"\\\\\",\"b\":\"\\\\\\\"\"}",
    };
    for (size_t i = 0; i < ARRAY_LENGTH(texts); i++)
        judge(PERMIT_OK, texts[i]);
}

Test(wire, other_texts_are_malformed)
{
    static const char *const texts[] = {
        "",
        " ",
        "[]",
        "1",
        "\"a\"",
        "null",
        "{",
        "}",
        "{]",
        "{\"a\"",
        "{\"a\":",
        "{\"a\":1",
        "{\"a\":1,",
        "{\"a\":1,}",
        "{,}",
        "{\"a\":1]",
        "{\"a\":[1}",
        "{\"a\":[1,]}",
        "{\"a\":[,1]}",
        "{\"a\" 1}",
        "{\"a\":1 \"b\":2}",
        "{\"a\":[1 2]}",
        "{a:1}",
        "{'a':1}",
        "{1:1}",
        "{\"a\"::1}",
        "{\"a\":1}}",
        "{\"a\":1} x",
        "{}{}",
        "{\"a\":01}",
        "{\"a\":+1}",
        "{\"a\":1.}",
        "{\"a\":.5}",
        "{\"a\":-}",
        "{\"a\":1e}",
        "{\"a\":1e+}",
        "{\"a\":0x1}",
        "{\"a\":NaN}",
        "{\"a\":True}",
        "{\"a\":nul}",
        "{\"a\":nulls}",
        "{\"a\":\"}",
        "{\"a\":\"\\\"}",
        "{\"a\":\"\\x41\"}",
        "{\"a\":\"\\u12g4\"}",
        "{\"a\":\"\\u12\"}",
        "{\"a\":\"\\ud83d\"}",
        "{\"a\":\"\\ud83d\\u0041\"}",
        "{\"a\":\"\\ude00\"}",
        "{\"a\":\"\\ud83d\\",
        "{\"a\":\"\\u",
        "{\"a\":\"\\",
        "{\"a\\u0000\":1}",
        "{\"a\":\"\t\"}",
        "{\"a\":\"\x1f\"}",
        "{\"a\":\"\xff\"}",
        "{\"a\":\"\xc3\"}",
        "{\"a\":\"\xc0\xaf\"}",
        "{\"a\":\"\xed\xa0\x80\"}",
        "{\xc3\xa4:1}",
        "{/**/}",
        "{\"a\":1;}",
        "\xef\xbb\xbf{}",
        "{\"a\":[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]}",
    };
    for (size_t i = 0; i < ARRAY_LENGTH(texts); i++)
        judge(PERMIT_MALFORMED, texts[i]);
}

/* Returns {"operations":[UNIT,UNIT,...]}, of about a MiB. */
static char *long_text(const char *unit)
{
    size_t length = strlen(unit);
    char *text = malloc(MIB + length + 100);
    char *at = text + sprintf(text, "{\"operations\":[%s", unit);
    while (at < text + MIB) {
        *at++ = ',';
        at = (char *)memcpy(at, unit, length) + length;
    }
    strcpy(at, "]}");
    return text;
}

/* Reading stops at the 1,001st operation. */
Test(wire, reading_stops_at_the_first_element_too_many)
{
    static const char *const units[] = {"{}", "[]", "1", "null", "\"\"", "{\"op\":[[[[{}]]]]}"};
    for (size_t i = 0; i < ARRAY_LENGTH(units); i++) {
        struct bytes object;
        size_t read;
        char message[MESSAGE_MAX + 1];
        char *text = long_text(units[i]);
        cr_expect_eq(check(text, &object, &read, message), PERMIT_TOO_LARGE);
        cr_expect_str_eq(message, "at most 1000");
        size_t by_then = strlen("{\"operations\":[") + 1000 * (strlen(units[i]) + 1);
        cr_expect_eq(read, by_then, "%s: %zu bytes are read instead of %zu", units[i], read, by_then);
        free(text);
    }
}

Test(wire, elements_of_inner_lists_are_not_counted)
{
    char text[20000] = "{\"operations\":[[1";
    for (int i = 0; i < 3000; i++)
        strcat(text, ",1");
    judge(PERMIT_OK, strcat(text, "],{\"a\":[1,2]}]}"));
}

/* ---- reading ---- */

struct form {
    struct bytes text;
    struct bytes key;
    int64_t number;
    int64_t duration;
    enum semaphore_kind choice;
    struct ttl ttl;
    struct wire_list list;
    bool flag;
    bool has_number;
};

static const struct wire_member members[] = {
    {"text", WIRE_LINE, true, offsetof(struct form, text), 0, 1, 10, NULL, "a text"},
    {"key", WIRE_KEY, false, offsetof(struct form, key), 0, 0, 0, NULL, "a key"},
    {"number", WIRE_INTEGER, false, offsetof(struct form, number), offsetof(struct form, has_number), -5, INT64_MAX,
     NULL, "a number"},
    {"duration", WIRE_DURATION, false, offsetof(struct form, duration), 0, 1, 100000000, NULL, "a duration"},
    {"choice", WIRE_CHOICE, false, offsetof(struct form, choice), 0, 0, 0, semaphore_kind_words, "a word"},
    {"ttl", WIRE_HOLD, false, offsetof(struct form, ttl), 0, 1, 100000000, NULL, "a ttl"},
    {"list", WIRE_LIST, false, offsetof(struct form, list), 0, 1, 3, NULL, "a list of 1 to 3"},
    {"flag", WIRE_BOOLEAN, false, offsetof(struct form, flag), 0, 0, 0, NULL, "true or false"},
};
static const struct wire_table table = {members, ARRAY_LENGTH(members)};

static enum permit_status read_body(const char *text, const struct wire_table *members_known, void *form,
                                    struct arena *arena, char message[MESSAGE_MAX + 1])
{
    struct buf sentence;
    buf_init(&sentence, MESSAGE_MAX);
    arena_init(arena, 100, 10000);
    const struct wire_reading reading = {arena, &sentence};
    enum permit_status status = wire_read_body(&reading, bytes_of(text), &at_most_1000, members_known, form);
    strcpy(message, buf_text(&sentence));
    buf_release(&sentence);
    return status;
}

static enum permit_status read_form(const char *text, struct form *form, struct arena *arena,
                                    char message[MESSAGE_MAX + 1])
{
    *form = (struct form){0};
    return read_body(text, &table, form, arena, message);
}

Test(wire, members_are_read_in_any_order)
{
    struct form form;
    struct arena arena;
    char message[MESSAGE_MAX + 1];
    cr_assert_eq(
        read_form(
            " { \"flag\" : true , \"list\":[1,[2,\"]\"],{\"a\":3}], \"ttl\":\"owner\",\"choice\":\"count\\u0065d\","
            "\"duration\":1.5,\"number\":-5,\"key\":\"a\\/b\",\"te\\u0078t\":\"\\u00e4\\ud83d\\ude00\\\\\"}",
            &form, &arena, message),
        PERMIT_OK, "%s", message);
    cr_expect(bytes_equal(form.text, BYTES("\xc3\xa4\xf0\x9f\x98\x80\\")));
    cr_expect(bytes_equal(form.key, BYTES("a/b")) && form.key.data[3] == '\0');
    cr_expect(form.flag && form.has_number && form.number == -5 && form.duration == 1500 &&
              form.choice == KIND_COUNTED);
    cr_expect(form.ttl.kind == TTL_OWNER && form.list.count == 3);
    static const char *const elements[] = {"1", "[2,\"]\"]", "{\"a\":3}"};
    for (size_t i = 0; i < ARRAY_LENGTH(elements); i++)
        cr_expect(bytes_equal(wire_next(&form.list), bytes_of(elements[i])), "%s", elements[i]);
    cr_expect_eq(wire_next(&form.list).length, 0);
    arena_release(&arena);
}

Test(wire, refusals_say_what_a_member_must_be)
{
    static const struct {
        enum permit_status status;
        const char *text;
        const char *said;
    } rows[] = {
        {PERMIT_INVALID, "{}", "text is missing; it must be a text"},
        {PERMIT_INVALID, "{\"text\":1}", "text must be a text"},
        {PERMIT_INVALID, "{\"text\":null}", "text must be a text"},
        {PERMIT_INVALID, "{\"text\":\"\"}", "text must be a text"},
        {PERMIT_INVALID, "{\"text\":\"12345678901\"}", "text must be a text"},
        {PERMIT_INVALID, "{\"text\":\"a\\u0000\"}", "text must be a text"},
        {PERMIT_INVALID, "{\"text\":\"a\\u0085\"}", "text must be a text"},
        {PERMIT_INVALID, "{\"text\":\"a\",\"key\":\"a b\"}", "key must be a key"},
        {PERMIT_INVALID, "{\"number\":-6}", "number must be a number"},
        {PERMIT_INVALID, "{\"number\":1.0}", "number must be a number"},
        {PERMIT_INVALID, "{\"number\":1e3}", "number must be a number"},
        {PERMIT_INVALID, "{\"number\":9223372036854775808}", "number must be a number"},
        {PERMIT_INVALID, "{\"number\":99999999999999999999999}", "number must be a number"},
        {PERMIT_INVALID, "{\"number\":\"1\"}", "number must be a number"},
        {PERMIT_INVALID, "{\"duration\":30000000}", "duration must be a duration; numbers are seconds"},
        {PERMIT_INVALID, "{\"ttl\":100000}", "ttl must be a ttl; numbers are seconds"},
        {PERMIT_INVALID, "{\"ttl\":90.0001}", "ttl must be a ttl; a number of seconds has at most three decimals"},
        {PERMIT_INVALID, "{\"ttl\":1e3}", "ttl must be a ttl; a number of seconds has no exponent"},
        {PERMIT_INVALID, "{\"ttl\":\"99999999d\"}", "ttl must be a ttl; the maximum is 100 years, 36600d"},
        {PERMIT_INVALID, "{\"duration\":\"30\"}", "duration must be a duration"},
        {PERMIT_INVALID, "{\"choice\":\"Slotted\"}", "choice must be a word"},
        {PERMIT_INVALID, "{\"list\":[]}", "list must be a list"},
        {PERMIT_INVALID, "{\"list\":[1,2,3,4]}", "list must be a list"},
        {PERMIT_INVALID, "{\"list\":{}}", "list must be a list"},
        {PERMIT_INVALID, "{\"flag\":1}", "flag must be true or false"},
        {PERMIT_INVALID, "{\"other\":1}", "unknown member other; known are text, key,"},
        {PERMIT_MALFORMED, "{\"text\":\"a\",\"text\":\"b\"}", "duplicate member text"},
        {PERMIT_MALFORMED, "{\"text\":\"a\",\"t\\u0065xt\":\"b\"}", "duplicate member text"},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        struct form form;
        struct arena arena;
        char message[MESSAGE_MAX + 1];
        cr_expect_eq(read_form(rows[i].text, &form, &arena, message), rows[i].status, "%s", rows[i].text);
        cr_expect(strstr(message, rows[i].said), "%s: %s", rows[i].text, message);
        arena_release(&arena);
    }
}

Test(wire, largest_numbers_are_read)
{
    struct form form;
    struct arena arena;
    char message[MESSAGE_MAX + 1];
    cr_assert_eq(read_form("{\"text\":\"a\",\"number\":9223372036854775807}", &form, &arena, message), PERMIT_OK);
    cr_expect_eq(form.number, INT64_MAX);
    arena_release(&arena);
}

Test(wire, body_of_one_list_has_no_other_member)
{
    static const struct wire_member operations = {"operations", WIRE_LIST, true, 0, 0, 1, 1000, NULL, "a list"};
    static const struct wire_table one_list = {&operations, 1};
    static const struct {
        enum permit_status status;
        const char *text;
    } rows[] = {
        {PERMIT_OK, "{\"operations\":[1]}"},
        {PERMIT_OK, " { \"operat\\u0069ons\" : [ {} , \"]\" ] } "},
        {PERMIT_INVALID, "{}"},
        {PERMIT_INVALID, "{\"operations\":[]}"},
        {PERMIT_INVALID, "{\"operations\":[ ]}"},
        {PERMIT_INVALID, "{\"operations\":1}"},
        {PERMIT_INVALID, "{\"operations\":{\"a\":[1]}}"},
        {PERMIT_INVALID, "{\"operations\":null}"},
        {PERMIT_INVALID, "{\"other\":[1],\"operations\":[1]}"},
        {PERMIT_INVALID, "{\"operations\":[1],\"other\":[1]}"},
        {PERMIT_MALFORMED, "{\"operations\":[1],\"operations\":[1]}"},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        struct wire_list list = {.count = 0};
        struct arena arena;
        char message[MESSAGE_MAX + 1];
        enum permit_status status = read_body(rows[i].text, &one_list, &list, &arena, message);
        cr_expect_eq(status, rows[i].status, "%s: %s", rows[i].text, message);
        cr_expect((status == PERMIT_OK) == (message[0] == '\0'), "%s: %s", rows[i].text, message);
        arena_release(&arena);
    }
}
