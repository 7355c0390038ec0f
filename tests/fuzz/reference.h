/* SPDX-License-Identifier: MIT */
/* Valid names and UTF-8 as docs/protocol.md and RFC 3629 define them, each in the most obvious way. */
#ifndef REFERENCE_H
#define REFERENCE_H

#include "base/base.h"

static inline bool reference_consists_of(struct bytes text, const char *allowed)
{
    for (size_t i = 0; i < text.length; i++)
        if (text.data[i] == '\0' || !strchr(allowed, text.data[i]))
            return false;
    return text.length >= 1 && text.length <= 255;
}

static inline bool reference_dots(struct bytes name)
{
    return (name.length == 1 && name.data[0] == '.') || (name.length == 2 && memcmp(name.data, "..", 2) == 0);
}

static inline bool reference_semaphore(struct bytes name)
{
    return !reference_dots(name) &&
           reference_consists_of(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:@-");
}

static inline bool reference_key(struct bytes name)
{
    return !reference_dots(name) &&
           reference_consists_of(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
                                       "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~");
}

/* A key as the rows have it: with its namespace between two bytes 1 before it, or without one. */
static inline bool reference_stored_key(struct bytes name)
{
    if (name.length == 0 || name.data[0] != 1)
        return reference_key(name);
    const char *end = memchr(name.data + 1, 1, name.length - 1);
    if (!end || end == name.data + 1)
        return false;
    size_t prefix = (size_t)(end - name.data) + 1;
    return reference_key((struct bytes){name.data + prefix, name.length - prefix});
}

/* Reads one character at `at`, in any form. Returns its bytes; 0: none. */
static inline size_t reference_character(struct bytes text, size_t at, uint32_t *ret_character)
{
    unsigned char first = (unsigned char)text.data[at];
    size_t length = first < 0x80 ? 1 : first >> 5 == 6 ? 2 : first >> 4 == 14 ? 3 : first >> 3 == 30 ? 4 : 0;
    if (length == 0 || length > text.length - at)
        return 0;
    uint32_t character = length == 1 ? first : first & (0x7fu >> length);
    for (size_t i = 1; i < length; i++) {
        unsigned char next = (unsigned char)text.data[at + i];
        if (next >> 6 != 2)
            return 0;
        character = character << 6 | (next & 0x3fu);
    }
    *ret_character = character;
    return length;
}

static inline bool reference_utf8(struct bytes text)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000}; /* by length: longer forms are invalid */
    for (size_t at = 0; at < text.length;) {
        uint32_t character = 0;
        size_t length = reference_character(text, at, &character);
        if (length == 0 || character < least[length] || character > 0x10ffff || character >> 11 == 0xd800 >> 11)
            return false;
        at += length;
    }
    return true;
}
#endif
