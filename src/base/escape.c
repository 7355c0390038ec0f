/* SPDX-License-Identifier: MIT */
#include "base/escape.h"

#include "base/utf8.h"

/* The length of the character at `at`; 0: it must not be shown as it is. */
static size_t plain_character(const unsigned char *at, size_t left)
{
    if (*at < 0x80)
        return *at >= ' ' && *at != 0x7f;
    bool upper_control = at[0] == 0xc2 && left > 1 && at[1] < 0xa0; /* U+0080 to U+009F */
    return upper_control ? 0 : utf8_length(at, left);
}

size_t escape_plain_length(const char *at, size_t left)
{
    size_t length = 0;
    while (length < left) {
        size_t character = plain_character((const unsigned char *)at + length, left - length);
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
