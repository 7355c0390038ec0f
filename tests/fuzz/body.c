/* SPDX-License-Identifier: MIT */
/*
 * Bodies: exactly the texts that our own strict reader accepts as JSON are accepted. A walk finds the same values as
 * json-c. A text with too many elements is not read beyond the first one too many.
 *
 * The first byte of the input is the number of elements allowed, the rest is the text.
 */
#include <json-c/json.h>

#include "api/json_in.h"
#include "fuzz.h"
#include "json.h"

enum { SHORT = 10 }; /* bytes of a text that fits into a word in any notation */

static const struct wire_limit no_limit = {SIZE_MAX, PERMIT_TOO_LARGE, "too many"};

static enum permit_status check(struct bytes text, const struct wire_limit *limit, size_t *ret_read,
                                struct bytes *ret_object)
{
    struct buf message;
    buf_init(&message, 1000);
    enum permit_status status = wire_check(text, limit, ret_read, ret_object, &message);
    MUST((status == PERMIT_OK) == (message.length == 0));
    MUST(*ret_read <= text.length);
    buf_release(&message);
    return status;
}

static void compare(struct json_object *expected, struct bytes value);

static void compare_list(struct json_object *expected, struct bytes value)
{
    struct wire_list list = {.rest = {value.data + 1, value.length - 1}};
    MUST(value.data[0] == '[');
    for (size_t i = 0; i < json_object_array_length(expected); i++) {
        struct bytes element = wire_next(&list);
        MUST(element.length);
        compare(json_object_array_get_idx(expected, i), element);
    }
    MUST(!wire_next(&list).length);
}

/* json-c's tree has no duplicate members: such texts are handled before. */
static void compare_members(struct json_object *expected, struct bytes value)
{
    json_object_object_foreach(expected, name, member)
    {
        if (strlen(name) > SHORT)
            continue;
        struct bytes found = wire_find(value, name);
        MUST(found.length);
        compare(member, found);
    }
}

static void compare(struct json_object *expected, struct bytes value)
{
    const char *text = json_object_get_string(expected);
    switch (json_object_get_type(expected)) {
    case json_type_null: MUST(bytes_equal(value, BYTES("null"))); break;
    case json_type_boolean: MUST(bytes_equal(value, bytes_of(text))); break;
    case json_type_array: compare_list(expected, value); break;
    case json_type_object: compare_members(expected, value); break;
    case json_type_string:
        if (strlen(text) == (size_t)json_object_get_string_len(expected) && strlen(text) <= SHORT)
            MUST(wire_is_word(value, text));
        break;
    case json_type_int:
    case json_type_double: MUST(value.data[0] == '-' || (value.data[0] >= '0' && value.data[0] <= '9')); break;
    }
}

static void compare_whole(struct bytes object)
{
    struct json_tokener *tokener = json_tokener_new_ex(WIRE_MAX_DEPTH + 1);
    MUST(tokener);
    json_tokener_set_flags(tokener, JSON_TOKENER_STRICT);
    struct json_object *expected = json_tokener_parse_ex(tokener, object.data, (int)object.length);
    if (expected)
        compare(expected, object);
    json_object_put(expected);
    json_tokener_free(tokener);
}

/* Bytes after the first element too many must not matter. */
static void check_limit(struct bytes text, size_t elements)
{
    size_t read, again;
    struct bytes object;
    struct wire_limit limit = {elements, PERMIT_TOO_LARGE, "too many"};
    if (check(text, &limit, &read, &object) != PERMIT_TOO_LARGE)
        return;
    struct bytes first = fuzz_bytes(text.data, read + 1);
    MUST(check(first, &limit, &again, &object) == PERMIT_TOO_LARGE && again == read);
    free((void *)first.data);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bytes object;
    struct json_facts facts;
    size_t read;
    size_t elements = fuzz_choice(&data, &size) % 64;
    struct bytes text = fuzz_bytes(data, size);
    enum permit_status status = check(text, &no_limit, &read, &object);
    json_judge(text, &facts);
    bool good = facts.is_json && facts.is_object && !facts.nul_name && !facts.surrogate;
    MUST((status == PERMIT_OK) == (good && facts.depth <= WIRE_MAX_DEPTH));
    check_limit(text, elements);
    if (status == PERMIT_OK && !facts.twice)
        compare_whole(object);
    free((void *)text.data);
    return 0;
}
