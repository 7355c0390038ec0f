/* SPDX-License-Identifier: MIT */
#include "json.h"

#include "fuzz.h"
#include "reference.h"

enum { DEPTH_MAX = 200, NAMES_MAX = 65536 };

/* A name, identified by its length and its hash. */
struct name {
    uint64_t hash;
    size_t length;
    size_t object; /* its object, numbered in order of beginning */
};

struct reader {
    struct bytes text;
    size_t at;
    struct json_facts facts;
    size_t objects;
    struct name names[NAMES_MAX];
    size_t name_count;
};

static bool value(struct reader *reader, size_t depth);

static int peek(const struct reader *reader)
{
    return reader->at < reader->text.length ? (unsigned char)reader->text.data[reader->at] : -1;
}

static bool skip(struct reader *reader, char byte)
{
    bool there = peek(reader) == byte;
    reader->at += there;
    return there;
}

static void space(struct reader *reader)
{
    while (skip(reader, ' ') || skip(reader, '\t') || skip(reader, '\n') || skip(reader, '\r'))
        ;
}

static bool word(struct reader *reader, const char *expected)
{
    for (; *expected; expected++)
        if (!skip(reader, *expected))
            return false;
    return true;
}

static size_t digits(struct reader *reader)
{
    size_t first = reader->at;
    while (peek(reader) >= '0' && peek(reader) <= '9')
        reader->at++;
    return reader->at - first;
}

static bool number(struct reader *reader)
{
    (void)skip(reader, '-');
    bool zero = skip(reader, '0');
    if (!zero && digits(reader) == 0)
        return false;
    if (skip(reader, '.') && digits(reader) == 0)
        return false;
    if (!skip(reader, 'e') && !skip(reader, 'E'))
        return true;
    (void)(skip(reader, '+') || skip(reader, '-'));
    return digits(reader) > 0;
}

static bool four_hex(struct reader *reader, uint32_t *ret_unit)
{
    uint32_t unit = 0;
    for (size_t i = 0; i < 4; i++, reader->at++) {
        static const char hex[] = "0123456789abcdef0123456789ABCDEF";
        const char *digit = peek(reader) > 0 ? strchr(hex, peek(reader)) : NULL;
        if (!digit)
            return false;
        unit = unit * 16 + (uint32_t)(digit - hex) % 16;
    }
    *ret_unit = unit;
    return true;
}

/* Reads one character after "\u", which may need two escapes. */
static bool escaped_unit(struct reader *reader, uint32_t *ret_character)
{
    uint32_t high, low;
    if (!four_hex(reader, &high))
        return false;
    *ret_character = high;
    if (high < 0xd800 || high > 0xdfff)
        return true;
    size_t before = reader->at;
    if (high < 0xdc00 && word(reader, "\\u") && four_hex(reader, &low) && low >= 0xdc00 && low <= 0xdfff) {
        *ret_character = 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
        return true;
    }
    reader->at = before;
    reader->facts.surrogate = true;
    return true;
}

static bool escape(struct reader *reader, uint32_t *ret_character)
{
    static const char letters[] = "\"\\/bfnrt";
    static const char meanings[] = "\"\\/\b\f\n\r\t";
    if (skip(reader, 'u'))
        return escaped_unit(reader, ret_character);
    const char *letter = peek(reader) > 0 ? strchr(letters, peek(reader)) : NULL;
    if (!letter)
        return false;
    *ret_character = (unsigned char)meanings[letter - letters];
    reader->at++;
    return true;
}

/* The hash is that of the decoded string. */
static bool string(struct reader *reader, struct name *ret_name, bool *ret_nul)
{
    *ret_name = (struct name){.hash = 14695981039346656037u};
    *ret_nul = false;
    if (!skip(reader, '"'))
        return false;
    while (!skip(reader, '"')) {
        uint32_t character = 0;
        if (peek(reader) < 0x20)
            return false;
        if (skip(reader, '\\')) {
            if (!escape(reader, &character))
                return false;
        } else {
            size_t length = reference_character(reader->text, reader->at, &character);
            if (length == 0)
                return false;
            reader->at += length;
        }
        *ret_nul |= character == 0;
        ret_name->hash = (ret_name->hash ^ character) * 1099511628211u;
        ret_name->length++;
    }
    return true;
}

static void note_name(struct reader *reader, struct name name)
{
    for (size_t i = 0; i < reader->name_count; i++)
        if (reader->names[i].object == name.object && reader->names[i].hash == name.hash &&
            reader->names[i].length == name.length)
            reader->facts.twice = true;
    MUST(reader->name_count < NAMES_MAX);
    reader->names[reader->name_count++] = name;
}

static bool member(struct reader *reader, size_t object, size_t depth)
{
    struct name name;
    bool nul;
    space(reader);
    if (!string(reader, &name, &nul))
        return false;
    reader->facts.nul_name |= nul;
    name.object = object;
    note_name(reader, name);
    space(reader);
    return skip(reader, ':') && value(reader, depth);
}

static bool list(struct reader *reader, char end, size_t depth)
{
    size_t object = reader->objects++;
    if (depth > reader->facts.depth)
        reader->facts.depth = depth;
    if (depth > DEPTH_MAX)
        return false; /* deeper than any reader accepts */
    space(reader);
    if (skip(reader, end))
        return true;
    do
        if (!(end == '}' ? member(reader, object, depth) : value(reader, depth)))
            return false;
    while (skip(reader, ','));
    return skip(reader, end);
}

/* Reads a value with the white space around it. */
static bool value(struct reader *reader, size_t depth)
{
    struct name unused;
    bool nul, good;
    space(reader);
    switch (peek(reader)) {
    case '{': reader->at++, good = list(reader, '}', depth + 1); break;
    case '[': reader->at++, good = list(reader, ']', depth + 1); break;
    case '"': good = string(reader, &unused, &nul); break;
    case 't': good = word(reader, "true"); break;
    case 'f': good = word(reader, "false"); break;
    case 'n': good = word(reader, "null"); break;
    default: good = number(reader);
    }
    space(reader);
    return good;
}

void json_judge(struct bytes text, struct json_facts *ret_facts)
{
    static struct reader reader;
    reader.text = text;
    reader.at = reader.objects = reader.name_count = 0;
    reader.facts = (struct json_facts){0};
    space(&reader);
    reader.facts.is_object = peek(&reader) == '{';
    reader.facts.is_json = reference_utf8(text) && value(&reader, 0) && reader.at == text.length;
    *ret_facts = reader.facts;
}
