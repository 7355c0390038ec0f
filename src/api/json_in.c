/* SPDX-License-Identifier: MIT */
#include "api/json_in.h"

#include <string.h>

#include "base/duration.h"
#include "base/utf8.h"
#include "core/name.h"

/* ---- wire_check: one pass over the text ---- */

/* Tokens that may come next. */
enum expect { EXPECT_VALUE, EXPECT_VALUE_OR_END, EXPECT_NAME, EXPECT_NAME_OR_END, EXPECT_COMMA_OR_END };

static const char unexpected_end[] = "unexpected end";
static const char no_value[] = "invalid value";

static bool is_space(char byte)
{
    return byte == ' ' || byte == '\t' || byte == '\r' || byte == '\n';
}

static bool is_digit(char byte)
{
    return byte >= '0' && byte <= '9';
}

/* Returns true if the byte needs no check in a string. */
static bool is_plain(char byte)
{
    return (unsigned char)(byte - 0x20) < 0x60 && byte != '"' && byte != '\\';
}

struct json_check {
    struct bytes text;
    const struct wire_limit *limit;
    size_t at;        /* bytes read */
    size_t depth;     /* open arrays and objects */
    uint32_t objects; /* bit n: the container at depth n is an object */
    enum expect expect;
    size_t elements; /* elements of the lists in the outermost object */
};

static char peek(const struct json_check *check)
{
    return check->at < check->text.length ? check->text.data[check->at] : '\0';
}

static bool skip(struct json_check *check, char byte)
{
    bool there = check->at < check->text.length && check->text.data[check->at] == byte;
    check->at += there;
    return there;
}

enum { NO_UNIT = -1 };

/* Returns the UTF-16 unit of the four hexadecimal digits at `at`, or NO_UNIT. */
static int32_t hex_unit(struct bytes text, size_t at)
{
    int32_t unit = 0;
    if (text.length < 4 || at > text.length - 4)
        return NO_UNIT;
    for (size_t i = at; i < at + 4; i++) {
        int value = hex_value(text.data[i]);
        if (value < 0)
            return NO_UNIT;
        unit = unit << 4 | value;
    }
    return unit;
}

static bool is_surrogate(int32_t unit)
{
    return unit >= 0xD800 && unit <= 0xDFFF;
}

/*
 * Checks an escape after its backslash. An unpaired surrogate is refused (RFC 8259, 8.2), and so is an escaped NUL in a
 * name, which would end the name early.
 */
static const char *check_escape(struct json_check *check, bool in_name)
{
    char byte = peek(check);
    if (check->at == check->text.length)
        return unexpected_end;
    check->at++;
    if (byte && strchr("\"\\/bfnrt", byte))
        return NULL;
    int32_t unit = byte == 'u' ? hex_unit(check->text, check->at) : NO_UNIT;
    if (unit == NO_UNIT)
        return "invalid escape in a string";
    check->at += 4;
    if (unit == 0 && in_name)
        return "control character in a string";
    if (!is_surrogate(unit))
        return NULL;
    bool paired = unit < 0xDC00 && skip(check, '\\') && skip(check, 'u');
    int32_t low = paired ? hex_unit(check->text, check->at) : NO_UNIT;
    if (low < 0xDC00 || low > 0xDFFF)
        return "unpaired surrogate escape in a string";
    check->at += 4;
    return NULL;
}

/* Checks a string from its opening quote. */
static const char *check_string(struct json_check *check, bool is_name)
{
    const char *data = check->text.data;
    size_t length = check->text.length;
    check->at++;
    while (check->at < length) {
        const char *fault = NULL;
        char byte = data[check->at];
        if (is_plain(byte)) {
            check->at++;
        } else if (byte == '"') {
            check->at++;
            return NULL;
        } else if (byte == '\\') {
            check->at++;
            fault = check_escape(check, is_name);
        } else if ((unsigned char)byte < 0x20) {
            fault = "control character in a string";
        } else {
            size_t bytes = utf8_length((const unsigned char *)data + check->at, length - check->at);
            check->at += bytes;
            fault = bytes ? NULL : "invalid UTF-8";
        }
        if (fault)
            return fault;
    }
    return unexpected_end;
}

static bool skip_digits(struct json_check *check)
{
    size_t first = check->at;
    while (is_digit(peek(check)))
        check->at++;
    return check->at > first;
}

/* JSON allows neither 007 nor 1. nor .5 nor +1. */
static bool check_number(struct json_check *check)
{
    (void)skip(check, '-');
    if (!skip(check, '0') && !skip_digits(check))
        return false;
    if (skip(check, '.') && !skip_digits(check))
        return false;
    if (!skip(check, 'e') && !skip(check, 'E'))
        return true;
    (void)(skip(check, '+') || skip(check, '-'));
    return skip_digits(check);
}

static bool check_word(struct json_check *check)
{
    static const char *const words[] = {"true", "false", "null"};
    struct bytes rest = {check->text.data + check->at, check->text.length - check->at};
    for (size_t i = 0; i < ARRAY_LENGTH(words); i++)
        if (bytes_begin_with(rest, bytes_of(words[i]))) {
            check->at += strlen(words[i]);
            return true;
        }
    return false;
}

static bool in_object(const struct json_check *check)
{
    return check->objects >> check->depth & 1;
}

static const char *check_open(struct json_check *check, bool object)
{
    if (++check->depth > WIRE_MAX_DEPTH)
        return "nested too deeply";
    check->objects = (check->objects & ~(1u << check->depth)) | (uint32_t)object << check->depth;
    check->expect = object ? EXPECT_NAME_OR_END : EXPECT_VALUE_OR_END;
    check->at++;
    return NULL;
}

static const char *check_value(struct json_check *check)
{
    char byte = peek(check);
    if (check->depth == 2 && !in_object(check) && check->elements++ == check->limit->elements)
        return check->limit->sentence;
    if (byte == '{' || byte == '[')
        return check_open(check, byte == '{');
    check->expect = EXPECT_COMMA_OR_END;
    if (byte == '"')
        return check_string(check, false);
    return (byte == '-' || is_digit(byte) ? check_number(check) : check_word(check)) ? NULL : no_value;
}

static void skip_space(struct json_check *check)
{
    while (check->at < check->text.length && is_space(check->text.data[check->at]))
        check->at++;
}

static const char *check_name(struct json_check *check)
{
    const char *fault = peek(check) == '"' ? check_string(check, true) : "a member has no name";
    skip_space(check);
    check->expect = EXPECT_VALUE;
    return fault ? fault : skip(check, ':') ? NULL : "member without a value";
}

static bool skip_end(struct json_check *check)
{
    bool may_end = check->expect != EXPECT_VALUE && check->expect != EXPECT_NAME;
    if (!may_end || !skip(check, in_object(check) ? '}' : ']'))
        return false;
    check->depth--;
    check->expect = EXPECT_COMMA_OR_END;
    return true;
}

/* Checks one token: a value, a name, a comma, or an end. */
static const char *check_step(struct json_check *check)
{
    skip_space(check);
    if (check->at >= check->text.length)
        return unexpected_end;
    if (skip_end(check))
        return NULL;
    switch (check->expect) {
    case EXPECT_VALUE:
    case EXPECT_VALUE_OR_END: return check_value(check);
    case EXPECT_NAME:
    case EXPECT_NAME_OR_END: return check_name(check);
    case EXPECT_COMMA_OR_END: break;
    }
    check->expect = in_object(check) ? EXPECT_NAME : EXPECT_VALUE;
    return skip(check, ',') ? NULL : "missing comma between two values";
}

/* Moves past one object and the white space around it. *ret_object is the object alone. */
static const char *check_all(struct json_check *check, struct bytes *ret_object)
{
    skip_space(check);
    size_t first = check->at;
    const char *fault = first == check->text.length ? "empty"
                        : peek(check) == '{'        ? check_open(check, true)
                                                    : "another JSON value";
    while (!fault && check->depth)
        fault = check_step(check);
    *ret_object = (struct bytes){check->text.data + first, check->at - first};
    skip_space(check);
    if (!fault && check->at < check->text.length)
        fault = "trailing data after the JSON object";
    return fault;
}

enum permit_status wire_check(struct bytes text, const struct wire_limit *limit, size_t *ret_read,
                              struct bytes *ret_object, struct buf *message)
{
    struct json_check check = {.text = text, .limit = limit};
    const char *fault = check_all(&check, ret_object);
    *ret_read = check.at;
    buf_clear(message);
    if (fault == limit->sentence) {
        buf_append_text(message, fault);
        return limit->status;
    }
    if (fault)
        buf_printf(message, "the body is not one JSON object: %s", fault);
    return fault ? PERMIT_MALFORMED : PERMIT_OK;
}

/* ---- walking a checked text ---- */

/*
 * Returns the offset after the string whose quote is at `at`. A quote after an odd number of backslashes does not end
 * it.
 */
static size_t end_of_string(struct bytes text, size_t at)
{
    size_t slashes;
    do {
        const char *quote = memchr(text.data + at + 1, '"', text.length - at - 1);
        at = (size_t)(quote - text.data);
        for (slashes = 0; quote[-1] == '\\'; quote--)
            slashes++;
    } while (slashes % 2);
    return at + 1;
}

/* Returns the offset after the array or object that begins at `at`. */
static size_t end_of_container(struct bytes text, size_t at)
{
    size_t depth = 0;
    do {
        char byte = text.data[at];
        if (byte == '"') {
            at = end_of_string(text, at);
            continue;
        }
        depth += byte == '{' || byte == '[';
        depth -= byte == '}' || byte == ']';
        at++;
    } while (depth);
    return at;
}

static bool ends_word(char byte)
{
    return byte == ',' || byte == ']' || byte == '}' || is_space(byte);
}

/* Returns the text after its first byte: the inside of an array or object. */
static struct bytes inside(struct bytes text)
{
    return (struct bytes){text.data + 1, text.length - 1};
}

/* Takes the next value or name off the rest of an array or object; length 0: the end. */
static struct bytes take(struct bytes *rest)
{
    size_t end = 0;
    while (rest->length && (is_space(rest->data[0]) || rest->data[0] == ',' || rest->data[0] == ':'))
        *rest = inside(*rest);
    char byte = rest->length ? rest->data[0] : ']';
    if (byte == '"')
        end = end_of_string(*rest, 0);
    else if (byte == '{' || byte == '[')
        end = end_of_container(*rest, 0);
    else
        while (end < rest->length && !ends_word(rest->data[end]))
            end++;
    struct bytes value = {rest->data, end};
    *rest = (struct bytes){rest->data + end, rest->length - end};
    return value;
}

struct bytes wire_next(struct wire_list *list)
{
    return take(&list->rest);
}

/* ---- strings ---- */

static size_t put_character(char *to, uint32_t character)
{
    if (character < 0x80) {
        to[0] = (char)character;
        return 1;
    }
    size_t more = character < 0x800 ? 1 : character < 0x10000 ? 2 : 3;
    static const unsigned char heads[] = {0, 0xC0, 0xE0, 0xF0};
    to[0] = (char)(heads[more] | character >> (6 * more));
    for (size_t i = 1; i <= more; i++)
        to[i] = (char)(0x80 | (character >> (6 * (more - i)) & 0x3F));
    return more + 1;
}

/* Decodes the escape whose backslash is at `*at`, and moves `*at` past it. */
static uint32_t decode_escape(struct bytes text, size_t *at)
{
    static const char letters[] = "\"\\/bfnrt";
    static const char meanings[] = "\"\\/\b\f\n\r\t";
    char letter = text.data[*at + 1];
    *at += 2;
    if (letter != 'u')
        return (unsigned char)meanings[strchr(letters, letter) - letters];
    uint32_t unit = (uint32_t)hex_unit(text, *at);
    *at += 4;
    if (!is_surrogate((int32_t)unit))
        return unit;
    uint32_t low = (uint32_t)hex_unit(text, *at + 2);
    *at += 6;
    return 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00);
}

/*
 * Decodes a string, which has its quotes, to `to`, which has space for as many bytes. Returns the length, which is
 * less.
 */
static size_t decode(struct bytes string, char *to)
{
    char *end = to;
    struct bytes text = {string.data + 1, string.length - 2};
    for (size_t at = 0; at < text.length;) {
        const char *escape = memchr(text.data + at, '\\', text.length - at);
        size_t plain = escape ? (size_t)(escape - text.data) - at : text.length - at;
        memcpy(end, text.data + at, plain);
        end += plain;
        at += plain;
        if (escape)
            end += put_character(end, decode_escape(text, &at));
    }
    return (size_t)(end - to);
}

static bool is_string(struct bytes value)
{
    return value.data[0] == '"';
}

enum { WORD_MAX = 64 };

/* Returns a short string, decoded; data NULL: too long, or not a string. */
static struct bytes short_string(struct bytes value, char buffer[WORD_MAX])
{
    if (!is_string(value) || value.length > WORD_MAX)
        return (struct bytes){0};
    return (struct bytes){buffer, decode(value, buffer)};
}

bool wire_is_word(struct bytes value, const char *word)
{
    char buffer[WORD_MAX];
    struct bytes found = short_string(value, buffer);
    return found.data && bytes_equal(found, bytes_of(word));
}

/* ---- values ---- */

static bool is_number(struct bytes value)
{
    return value.data[0] == '-' || is_digit(value.data[0]);
}

/* A duration is a string with units, or a number of seconds. */
static bool read_duration(struct bytes value, const struct wire_member *member, int64_t *ret_ms)
{
    char buffer[WORD_MAX];
    int64_t ms;
    bool good = is_string(value) ? duration_parse(short_string(value, buffer), &ms)
                                 : is_number(value) && duration_parse_seconds(value, &ms);
    if (!good || ms < member->min || ms > member->max)
        return false;
    *ret_ms = ms;
    return true;
}

static bool read_hold(struct bytes value, const struct wire_member *member, struct ttl *ret_ttl)
{
    int64_t ms = 0;
    if (wire_is_word(value, "none"))
        *ret_ttl = (struct ttl){.kind = TTL_UNLIMITED};
    else if (wire_is_word(value, "owner"))
        *ret_ttl = (struct ttl){.kind = TTL_OWNER};
    else if (read_duration(value, member, &ms))
        *ret_ttl = (struct ttl){.kind = TTL_DURATION, .ms = ms};
    else
        return false;
    return true;
}

/* Reads an integer. A number that does not fit into int64_t is outside of every range. */
static bool read_integer(struct bytes value, const struct wire_member *member, int64_t *ret_number)
{
    size_t at = value.data[0] == '-';
    int64_t number = 0;
    if (!is_number(value))
        return false;
    for (; at < value.length; at++)
        if (!is_digit(value.data[at]) || __builtin_mul_overflow(number, 10, &number) ||
            __builtin_add_overflow(number, value.data[at] - '0', &number))
            return false;
    if (value.data[0] == '-')
        number = -number;
    if (number < member->min || number > member->max)
        return false;
    *ret_number = number;
    return true;
}

/* Reads this word as -1. */
static bool read_none(struct bytes value, const char *word, int64_t *ret_number)
{
    bool none = wire_is_word(value, word);
    if (none)
        *ret_number = -1;
    return none;
}

static bool read_choice(struct bytes value, const struct wire_member *member, int *ret_number)
{
    for (int i = 0; member->choices[i]; i++) {
        if (wire_is_word(value, member->choices[i])) {
            *ret_number = i + 1;
            return true;
        }
    }
    return false;
}

/* Returns true if the text, which is UTF-8, has a control character: of ASCII, or U+0080 to U+009F (two bytes). */
static bool has_control(struct bytes text)
{
    for (size_t i = 0; i < text.length; i++) {
        unsigned char byte = (unsigned char)text.data[i];
        if (byte < ' ' || byte == 0x7F)
            return true;
        if (byte == 0xC2 && i + 1 < text.length && (unsigned char)text.data[i + 1] < 0xA0)
            return true;
    }
    return false;
}

bool wire_is_line(struct bytes text, size_t min, size_t max)
{
    return text.length >= min && text.length <= max && utf8_valid(text) && !has_control(text);
}

static bool read_boolean(struct bytes value, bool *ret_flag)
{
    if (value.data[0] != 't' && value.data[0] != 'f')
        return false;
    *ret_flag = value.data[0] == 't';
    return true;
}

static bool is_text_of(struct bytes text, const struct wire_member *member)
{
    switch (member->type) {
    case WIRE_SEMAPHORE: return name_is_semaphore(text);
    case WIRE_KEY: return name_is_key(text);
    case WIRE_NONCE: return name_is_nonce(text);
    default: break;
    }
    return (int64_t)text.length >= member->min && (int64_t)text.length <= member->max &&
           !memchr(text.data, '\0', text.length) && (member->type != WIRE_LINE || !has_control(text));
}

static bool read_text(struct bytes value, const struct wire_member *member, struct arena *arena, struct bytes *ret_text)
{
    char *copy = is_string(value) ? arena_alloc(arena, value.length) : NULL; /* zeroed, so zero-terminated */
    if (!copy)
        return false;
    struct bytes text = {copy, decode(value, copy)};
    if (!is_text_of(text, member))
        return false;
    *ret_text = text;
    return true;
}

static bool read_list(struct bytes value, const struct wire_member *member, struct wire_list *ret_list)
{
    if (value.data[0] != '[')
        return false;
    struct bytes rest = inside(value);
    int64_t count = 0;
    while (count <= member->max && take(&rest).length)
        count++;
    if (count < member->min || count > member->max)
        return false;
    *ret_list = (struct wire_list){.rest = inside(value), .count = (size_t)count};
    return true;
}

static bool read_object(struct bytes value, const struct wire_member *member, struct arena *arena,
                        struct bytes *ret_object)
{
    if (value.data[0] != '{' || (int64_t)value.length > member->max)
        return false;
    *ret_object = arena_copy(arena, value);
    return ret_object->data != NULL;
}

static bool read_value(struct bytes value, const struct wire_member *member, void *place, struct arena *arena)
{
    switch (member->type) {
    case WIRE_TEXT:
    case WIRE_LINE:
    case WIRE_SEMAPHORE:
    case WIRE_KEY:
    case WIRE_NONCE: return read_text(value, member, arena, place);
    case WIRE_INTEGER: return read_integer(value, member, place);
    case WIRE_DURATION: return read_duration(value, member, place);
    case WIRE_INTEGER_OR_NONE: return read_none(value, "none", place) || read_integer(value, member, place);
    case WIRE_DURATION_OR_NONE: return read_none(value, "none", place) || read_duration(value, member, place);
    case WIRE_DURATION_OR_STRICT: return read_none(value, "strict", place) || read_duration(value, member, place);
    case WIRE_HOLD: return read_hold(value, member, place);
    case WIRE_BOOLEAN: return read_boolean(value, place);
    case WIRE_CHOICE: return read_choice(value, member, place);
    case WIRE_LIST: return read_list(value, member, place);
    case WIRE_OBJECT: return read_object(value, member, arena, place);
    case WIRE_SLOT:
    case WIRE_LABEL:
    case WIRE_SECTION:
    case WIRE_TAG: break; /* elements of lists */
    }
    return false;
}

/* ---- tables ---- */

struct bytes wire_find(struct bytes object, const char *name)
{
    if (object.data[0] != '{')
        return (struct bytes){0};
    struct bytes rest = inside(object);
    for (;;) {
        struct bytes found = take(&rest);
        struct bytes value = found.length ? take(&rest) : found;
        if (!value.length || wire_is_word(found, name))
            return value;
    }
}

bool wire_next_member(struct bytes *rest, struct arena *arena, struct bytes *ret_name, struct bytes *ret_value)
{
    if (rest->length && rest->data[0] == '{')
        *rest = inside(*rest);
    struct bytes name = take(rest);
    char *room = name.length ? arena_alloc(arena, name.length) : NULL;
    if (!room)
        return false;
    *ret_name = (struct bytes){room, decode(name, room)};
    *ret_value = take(rest);
    return true;
}

bool wire_read_integer(struct bytes value, int64_t min, int64_t max, int64_t *ret_number)
{
    const struct wire_member member = {.min = min, .max = max};
    return read_integer(value, &member, ret_number);
}

static const struct wire_member *find_member(const struct wire_table *table, struct bytes name)
{
    for (size_t i = 0; i < table->count; i++)
        if (wire_is_word(name, table->members[i].name))
            return &table->members[i];
    return NULL;
}

static enum permit_status unknown_member(const struct wire_table *table, const char *where, struct bytes name,
                                         struct buf *message)
{
    int shown = (int)(name.length - 2 < WORD_MAX ? name.length - 2 : WORD_MAX);
    buf_printf(message, "unknown member %s%.*s; %s", where, shown, name.data + 1,
               table->count ? "known are" : "there is none");
    for (size_t i = 0; i < table->count; i++)
        buf_printf(message, "%s %s", i ? "," : "", table->members[i].name);
    return PERMIT_INVALID;
}

/* Refuses a value that was not read: out of memory, or not the expected value. */
static enum permit_status refuse_member(const struct wire_reading *reading, const struct wire_member *member,
                                        struct bytes value, const char *where)
{
    struct buf *message = reading->message;
    if (reading->arena->refused)
        return PERMIT_NO_MEMORY;
    buf_printf(message, "%s%s must be %s", where, member->name, member->expected);
    bool is_time = member->type == WIRE_DURATION || member->type == WIRE_DURATION_OR_NONE ||
                   member->type == WIRE_DURATION_OR_STRICT || member->type == WIRE_HOLD;
    bool is_text = value.length > 1 && value.data[0] == '"';
    const char *hint = !is_time  ? NULL
                       : is_text ? duration_text_hint((struct bytes){value.data + 1, value.length - 2})
                                 : duration_hint(value);
    if (hint)
        buf_printf(message, "; %s", hint);
    return PERMIT_INVALID;
}

enum permit_status wire_read(const struct wire_reading *reading, struct bytes object, const struct wire_table *table,
                             const char *where, void *form)
{
    uint32_t seen = 0; /* bit n: the n-th member of the table is present */
    struct buf *message = reading->message;
    buf_clear(message);
    if (object.data[0] != '{') {
        buf_printf(message, "%.*s must be an object", where[0] ? (int)strlen(where) - 1 : 0, where);
        return PERMIT_INVALID;
    }
    struct bytes rest = inside(object);
    for (struct bytes name = take(&rest); name.length; name = take(&rest)) {
        struct bytes value = take(&rest);
        const struct wire_member *member = find_member(table, name);
        if (!member)
            return unknown_member(table, where, name, message);
        uint32_t bit = 1u << (member - table->members);
        if (seen & bit) {
            buf_printf(message, "the body is not one JSON object: duplicate member %s%s", where, member->name);
            return PERMIT_MALFORMED;
        }
        seen |= bit;
        if (!read_value(value, member, (char *)form + member->offset, reading->arena))
            return refuse_member(reading, member, value, where);
        if (member->given_offset)
            *(bool *)((char *)form + member->given_offset) = true;
    }
    for (size_t i = 0; i < table->count; i++) {
        const struct wire_member *member = &table->members[i];
        if (member->required && !(seen >> i & 1)) {
            buf_printf(message, "%s%s is missing; it must be %s", where, member->name, member->expected);
            return PERMIT_INVALID;
        }
    }
    return PERMIT_OK;
}

const struct wire_limit wire_no_lists = {0, PERMIT_INVALID, "this body has no list members"};

enum permit_status wire_read_body(const struct wire_reading *reading, struct bytes text, const struct wire_limit *limit,
                                  const struct wire_table *table, void *form)
{
    struct bytes object;
    size_t read;
    enum permit_status status = wire_check(text, limit, &read, &object, reading->message);
    return status == PERMIT_OK ? wire_read(reading, object, table, "", form) : status;
}

/* ---- elements ---- */

/* Returns the total size of the elements that are strings. */
static size_t strings_size(struct wire_list list)
{
    size_t size = 0;
    for (size_t i = 0; i < list.count; i++) {
        struct bytes value = wire_next(&list);
        size += is_string(value) ? value.length : 0;
    }
    return size;
}

static bool is_name_of(enum wire_type type, struct bytes text)
{
    switch (type) {
    case WIRE_KEY: return name_is_key(text);
    case WIRE_SECTION: return name_is_seat_name(text);
    case WIRE_TAG: return name_is_tag(text);
    default: return name_is_label(text);
    }
}

/*
 * Reads an element. Of a slot a number is its number, a string always its label. The string is decoded to *room, which
 * moves past it.
 */
static bool read_element(struct bytes value, const struct wire_member *element, char **room, void *place)
{
    struct slot_name *slot = element->type == WIRE_SLOT ? place : NULL;
    struct bytes *label = slot ? &slot->label : place;
    int64_t number;
    if (is_string(value)) {
        *label = (struct bytes){*room, decode(value, *room)};
        *room += label->length + 1;
        return is_name_of(element->type, *label);
    }
    *label = (struct bytes){0};
    if (!slot)
        return element->type == WIRE_LABEL && bytes_equal(value, BYTES("null"));
    if (!read_integer(value, element, &number))
        return false;
    slot->number = (uint32_t)number;
    return true;
}

enum permit_status wire_read_elements(const struct wire_reading *reading, struct wire_list *list,
                                      const struct wire_member *element, const char *where, void *places)
{
    size_t step = element->type == WIRE_SLOT ? sizeof(struct slot_name) : sizeof(struct bytes);
    size_t size = strings_size(*list);
    char *room = size ? arena_alloc(reading->arena, size) : NULL;
    if (size && !room)
        return PERMIT_NO_MEMORY;
    for (size_t i = 0; i < list->count; i++) {
        if (read_element(wire_next(list), element, &room, (char *)places + i * step))
            continue;
        buf_clear(reading->message);
        buf_printf(reading->message, "%s[%zu] must be %s", where, i, element->expected);
        return PERMIT_INVALID;
    }
    return PERMIT_OK;
}
