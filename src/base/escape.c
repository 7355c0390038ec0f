/* SPDX-License-Identifier: MIT */
#include "base/escape.h"

#include "base/utf8.h"

size_t escape_plain_character(const char *at, size_t left)
{
    const unsigned char *bytes = (const unsigned char *)at;
    if (*bytes < 0x80)
        return *bytes >= ' ' && *bytes != 0x7f;
    bool upper_control = bytes[0] == 0xc2 && left > 1 && bytes[1] < 0xa0; /* U+0080 to U+009F */
    return upper_control ? 0 : utf8_length(bytes, left);
}

static bool is_format_character(uint32_t point)
{
    static const struct {
        uint32_t first, last;
    } ranges[] = {{0xAD, 0xAD},     {0x61C, 0x61C},   {0x180E, 0x180E}, {0x200B, 0x200B}, {0x200E, 0x200F},
                  {0x2028, 0x202E}, {0x2060, 0x206F}, {0xFEFF, 0xFEFF}, {0xFFF9, 0xFFFB}, {0xE0000, 0xE007F}};
    for (size_t i = 0; i < ARRAY_LENGTH(ranges); i++)
        if (point >= ranges[i].first && point <= ranges[i].last)
            return true;
    return false;
}

size_t escape_shown_character(const char *at, size_t left)
{
    size_t length = escape_plain_character(at, left);
    bool is_format = length > 1 && is_format_character(utf8_code_point((const unsigned char *)at, length));
    return is_format ? 0 : length;
}

static size_t length_of(const char *at, size_t left, size_t (*character)(const char *at, size_t left))
{
    size_t length = 0;
    while (length < left) {
        size_t next = character(at + length, left - length);
        if (!next)
            break;
        length += next;
    }
    return length;
}

size_t escape_plain_length(const char *at, size_t left)
{
    return length_of(at, left, escape_plain_character);
}

size_t escape_shown_length(const char *at, size_t left)
{
    return length_of(at, left, escape_shown_character);
}

void escape_control_chars(char *text, size_t length)
{
    size_t at = escape_shown_length(text, length);
    while (at < length) {
        size_t character = escape_plain_character(text + at, length - at); /* 0: replaces one byte */
        memset(text + at, '?', character ? character : 1);
        at += character ? character : 1;
        at += escape_shown_length(text + at, length - at);
    }
}
