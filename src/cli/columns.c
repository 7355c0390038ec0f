/* SPDX-License-Identifier: MIT */
#include "cli/columns.h"

#include <locale.h>
#include <stdint.h>
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

/* Returns the length of the longest beginning that takes at most `most` columns, and its columns. */
static size_t measure(const char *text, size_t most, size_t *ret_columns)
{
    const char *at = text;
    size_t columns = 0, left = strlen(text);
    while (left) {
        const unsigned char *bytes = (const unsigned char *)at;
        size_t length = *bytes < 0x80 ? 0 : utf8_length(bytes, left);
        size_t width = length ? width_of(utf8_code_point(bytes, length)) : 1;
        if (columns + width > most)
            break;
        columns += width;
        at += length ? length : 1;
        left -= length ? length : 1;
    }
    *ret_columns = columns;
    return (size_t)(at - text);
}

size_t columns_of(const char *text)
{
    size_t columns;
    (void)measure(text, SIZE_MAX, &columns);
    return columns;
}

size_t columns_fit(const char *text, size_t columns)
{
    size_t used;
    return measure(text, columns, &used);
}
