/* SPDX-License-Identifier: MIT */
#include "core/name.h"

#include "base/utf8.h"

static bool every_byte(struct bytes name, size_t max, bool (*allowed)(unsigned char))
{
    if (name.length < 1 || name.length > max)
        return false;
    for (size_t i = 0; i < name.length; i++)
        if (!allowed((unsigned char)name.data[i]))
            return false;
    return true;
}

static bool semaphore_byte(unsigned char byte)
{
    return (byte >= 'A' && byte <= 'Z') || (byte >= 'a' && byte <= 'z') || (byte >= '0' && byte <= '9') ||
           byte == '.' || byte == '_' || byte == ':' || byte == '@' || byte == '-';
}

static bool key_byte(unsigned char byte)
{
    return byte > ' ' && byte < 0x7f;
}

static bool nonce_byte(unsigned char byte)
{
    return byte >= ' ' && byte < 0x7f;
}

static bool is_dots(struct bytes name)
{
    return bytes_equal(name, BYTES(".")) || bytes_equal(name, BYTES(".."));
}

bool name_is_semaphore(struct bytes name)
{
    return every_byte(name, NAME_MAX_BYTES, semaphore_byte) && !is_dots(name);
}

bool name_is_key(struct bytes name)
{
    return every_byte(name, NAME_MAX_BYTES, key_byte) && !is_dots(name);
}

bool name_is_nonce(struct bytes nonce)
{
    return every_byte(nonce, NONCE_MAX_BYTES, nonce_byte);
}

bool name_is_label(struct bytes name)
{
    const unsigned char *data = (const unsigned char *)name.data;
    if (name.length < 1 || name.length > NAME_MAX_BYTES)
        return false;
    for (size_t at = 0; at < name.length;) {
        size_t length = data[at] < 0x80 ? 1 : utf8_length(data + at, name.length - at);
        bool upper_control = length == 2 && data[at] == 0xC2 && data[at + 1] < 0xA0;
        if (!length || data[at] < ' ' || data[at] == 0x7F || upper_control)
            return false;
        at += length;
    }
    return true;
}

static unsigned min_of(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

enum { DIFFERENCE_MAX = 12 };

/* Of texts that are not longer than DIFFERENCE_MAX: row by row, a cell being the distance of two beginnings. */
static unsigned difference(struct bytes a, struct bytes b)
{
    unsigned cells[DIFFERENCE_MAX + 1][DIFFERENCE_MAX + 1];
    for (size_t i = 0; i <= a.length; i++)
        for (size_t j = 0; j <= b.length; j++) {
            if (i == 0 || j == 0) {
                cells[i][j] = (unsigned)(i + j);
                continue;
            }
            unsigned least = cells[i - 1][j - 1] + (a.data[i - 1] != b.data[j - 1]);
            least = min_of(least, min_of(cells[i - 1][j], cells[i][j - 1]) + 1);
            if (i > 1 && j > 1 && a.data[i - 1] == b.data[j - 2] && a.data[i - 2] == b.data[j - 1])
                least = min_of(least, cells[i - 2][j - 2] + 1);
            cells[i][j] = least;
        }
    return cells[a.length][b.length];
}

unsigned name_distance(struct bytes a, struct bytes b)
{
    size_t longer = a.length > b.length ? a.length : b.length;
    while (a.length && b.length && a.data[0] == b.data[0]) {
        a = (struct bytes){a.data + 1, a.length - 1};
        b = (struct bytes){b.data + 1, b.length - 1};
    }
    while (a.length && b.length && a.data[a.length - 1] == b.data[b.length - 1]) {
        a.length--;
        b.length--;
    }
    if (a.length > DIFFERENCE_MAX || b.length > DIFFERENCE_MAX)
        return NAME_FAR;
    unsigned distance = difference(a, b);
    return distance < NAME_FAR && 3 * distance <= longer ? distance : NAME_FAR;
}
