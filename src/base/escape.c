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

size_t escape_plain_length(const char *at, size_t left)
{
    size_t length = 0;
    while (length < left) {
        size_t character = escape_plain_character(at + length, left - length);
        if (!character)
            break;
        length += character;
    }
    return length;
}

void escape_control_chars(char *text, size_t length)
{
    for (size_t at = escape_plain_length(text, length); at < length; at += escape_plain_length(text + at, length - at))
        text[at++] = '?';
}
