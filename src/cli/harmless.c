/* SPDX-License-Identifier: MIT */
#include "cli/harmless.h"

void harmless_make(char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        unsigned char byte = (unsigned char)text[i];
        if (byte < ' ' || byte == 0x7f) {
            text[i] = '?';
        } else if (byte == 0xc2 && i + 1 < length && (unsigned char)text[i + 1] < 0xa0) { /* U+0080 to U+009F */
            text[i++] = '?';
            text[i] = '?';
        }
    }
}
