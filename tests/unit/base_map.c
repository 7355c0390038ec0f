/* SPDX-License-Identifier: MIT */
/* The hash table, against a plain array. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "base/map.h"
#include "random.h"

struct entry {
    struct map_node node;
    char name[16];
    bool present;
};

enum { ENTRIES = 1000 };

static struct entry entries[ENTRIES];

static void name_entries(void)
{
    for (size_t i = 0; i < ENTRIES; i++)
        snprintf(entries[i].name, sizeof entries[i].name, "key-%zu", i);
}

Test(map, empty_map_finds_nothing)
{
    struct map map = {0};
    cr_expect_null(map_find(&map, BYTES("a")));
    map_release(&map);
}

Test(map, map_behaves_like_a_plain_array)
{
    struct map map = {0};
    uint64_t state = 4;
    size_t present = 0;
    name_entries();
    for (int step = 0; step < 50000; step++) {
        struct entry *entry = &entries[random_below(&state, ENTRIES)];
        struct map_node *found = map_find(&map, bytes_of(entry->name));
        cr_assert_eq(found, entry->present ? &entry->node : NULL, "step %d", step);
        if (entry->present)
            map_remove(&map, &entry->node);
        else
            cr_assert(map_insert(&map, &entry->node, bytes_of(entry->name)));
        entry->present = !entry->present;
        present = entry->present ? present + 1 : present - 1;
        cr_assert_eq(map.count, present);
    }
    for (size_t i = 0; i < ENTRIES; i++)
        cr_expect_eq(map_find(&map, bytes_of(entries[i].name)), entries[i].present ? &entries[i].node : NULL);
    map_release(&map);
}

/* P16: keys are compared byte by byte. */
Test(map, keys_are_equal_only_if_all_bytes_are)
{
    const struct bytes keys[] = {
        BYTES("a"),        BYTES("A"),         BYTES("a "),         BYTES(""),         BYTES("\0"),        BYTES("a\0"),
        BYTES("12345678"), BYTES("123456789"), BYTES("12345678\0"), BYTES("\xc3\xa9"), BYTES("e\xcc\x81"),
    };
    struct map map = {0};
    struct map_node nodes[ARRAY_LENGTH(keys)];
    for (size_t i = 0; i < ARRAY_LENGTH(keys); i++) {
        cr_expect_null(map_find(&map, keys[i]), "key %zu", i);
        cr_assert(map_insert(&map, &nodes[i], keys[i]));
    }
    for (size_t i = 0; i < ARRAY_LENGTH(keys); i++)
        cr_expect_eq(map_find(&map, keys[i]), &nodes[i], "key %zu", i);
    map_release(&map);
}

/* Vectors of another implementation of SipHash-1-3, with key zero. */
Test(map, hash_is_siphash_1_3)
{
    map_seed(0, 0);
    cr_expect_eq(map_hash(BYTES("a")), 0x407448d2b89b1813);
    cr_expect_eq(map_hash(BYTES("1234567")), 0xa33d651594fdae81);
    cr_expect_eq(map_hash(BYTES("12345678")), 0x3489982430560a87);
    cr_expect_eq(map_hash(BYTES("semaphore:backups@db7")), 0x98979645454f0545);
}

Test(map, seed_changes_the_hash)
{
    uint64_t before = map_hash(BYTES("name"));
    map_seed(1, 2);
    cr_expect_neq(map_hash(BYTES("name")), before);
    cr_expect_eq(map_hash(BYTES("name")), map_hash(BYTES("name")));
}
