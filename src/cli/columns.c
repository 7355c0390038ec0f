/* SPDX-License-Identifier: MIT */
#include "cli/columns.h"

#include <locale.h>
#include <string.h>
#include <wchar.h>

#include "base/utf8.h"

/*
 * Returns the columns of a character. The C library knows them by its locale: that of the user may not be UTF-8. Where
 * there is no C.UTF-8, each character counts as one.
 */
static size_t width_of(uint32_t point)
{
    static locale_t utf8;
    if (!utf8)
        utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
    if (!utf8)
        return 1;
    locale_t before = uselocale(utf8);
    int width = wcwidth((wchar_t)point);
    (void)uselocale(before);
    return width < 0 ? 1 : (size_t)width;
}

/* Returns the length of the character at `at`, and its columns. */
static size_t next_character(const char *at, size_t left, size_t *ret_columns)
{
    const unsigned char *bytes = (const unsigned char *)at;
    size_t length = *bytes < 0x80 ? 0 : utf8_length(bytes, left);
    *ret_columns = length ? width_of(utf8_code_point(bytes, length)) : 1;
    return length ? length : 1;
}

size_t columns_of(const char *text)
{
    size_t columns = 0, left = strlen(text);
    while (left) {
        size_t width;
        size_t length = next_character(text, left, &width);
        columns += width;
        text += length;
        left -= length;
    }
    return columns;
}

size_t columns_fit(const char *text, size_t columns)
{
    const char *at = text;
    size_t left = strlen(text), used = 0;
    while (left) {
        size_t width;
        size_t length = next_character(at, left, &width);
        used += width;
        if (used > columns)
            break;
        at += length;
        left -= length;
    }
    return (size_t)(at - text);
}
