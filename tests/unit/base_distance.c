/* SPDX-License-Identifier: MIT */
/* How far two names are from each other. */
#include <criterion/criterion.h>

#include "base/distance.h"

Test(name, distance_counts_the_slips_of_a_hand)
{
    static const struct {
        const char *a, *b;
        unsigned distance;
    } rows[] = {
        {"backups", "backups", 0},
        {"backup", "backups", 1},
        {"bakcups", "backups", 1},
        {"backups", "bckups", 1},
        {"backups", "baxkups", 1},
        {"nackups", "backups", 1},
        {"bakups2", "backups", 2},
        {"network:b", "netwrok:a", 2},
        {"netwrok-bb", "network-aa", 3},
        {"bcakpus", "backups", 2},
        {"abc", "abd", 1},
        {"ab", "ad", NAME_FAR}, /* one in three at most */
        {"", "a", NAME_FAR},
        {"backups", "backups-db7", NAME_FAR},
        {"backups", "restores", NAME_FAR},
        {"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 1},
        {"abcdefghijklmnopqrstuvwxyz", "zyxwvutsrqponmlkjihgfedcba", NAME_FAR},
        {"x", "", NAME_FAR},
        {"", "", 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        unsigned there = name_distance(bytes_of(rows[i].a), bytes_of(rows[i].b));
        unsigned back = name_distance(bytes_of(rows[i].b), bytes_of(rows[i].a));
        cr_expect(there == rows[i].distance && back == there, "%s, %s: %u, %u", rows[i].a, rows[i].b, there, back);
    }
}
