/* SPDX-License-Identifier: MIT */
#include "base/distance.h"

#include <assert.h>

static unsigned min_of(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

/* cells[i][j] is the distance of the first i bytes of a and the first j bytes of b. */
unsigned edit_distance(struct bytes a, struct bytes b)
{
    unsigned cells[EDIT_DISTANCE_MAX + 1][EDIT_DISTANCE_MAX + 1];
    assert(a.length <= EDIT_DISTANCE_MAX && b.length <= EDIT_DISTANCE_MAX);
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
    enum { DIFFERENCE_MAX = 12 };
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
    unsigned distance = edit_distance(a, b);
    return distance < NAME_FAR && 3 * distance <= longer ? distance : NAME_FAR;
}
