/* SPDX-License-Identifier: MIT */
#include "base/utf8.h"

size_t utf8_length(const unsigned char *at, size_t left)
{
    static const struct {
        unsigned char first, last, second_first, second_last, length;
    } forms[] = {
        {0xC2, 0xDF, 0x80, 0xBF, 2}, {0xE0, 0xE0, 0xA0, 0xBF, 3}, {0xE1, 0xEC, 0x80, 0xBF, 3},
        {0xED, 0xED, 0x80, 0x9F, 3}, {0xEE, 0xEF, 0x80, 0xBF, 3}, {0xF0, 0xF0, 0x90, 0xBF, 4},
        {0xF1, 0xF3, 0x80, 0xBF, 4}, {0xF4, 0xF4, 0x80, 0x8F, 4},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(forms); i++) {
        if (at[0] < forms[i].first || at[0] > forms[i].last)
            continue;
        if (left < forms[i].length || at[1] < forms[i].second_first || at[1] > forms[i].second_last)
            return 0;
        for (size_t k = 2; k < forms[i].length; k++)
            if ((at[k] & 0xC0) != 0x80)
                return 0;
        return forms[i].length;
    }
    return 0;
}

uint32_t utf8_code_point(const unsigned char *at, size_t length)
{
    uint32_t point = length > 1 ? at[0] & (0x7FU >> length) : at[0];
    for (size_t i = 1; i < length; i++)
        point = point << 6 | (at[i] & 0x3FU);
    return point;
}

bool utf8_valid(struct bytes text)
{
    const unsigned char *at = (const unsigned char *)text.data;
    for (size_t done = 0; done < text.length;) {
        size_t length = at[done] < 0x80 ? 1 : utf8_length(at + done, text.length - done);
        if (!length)
            return false;
        done += length;
    }
    return true;
}
