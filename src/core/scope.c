/* SPDX-License-Identifier: MIT */
#include "core/scope.h"

#include <stdlib.h>

static bool entry_covers(const struct scope_entry *entry, struct bytes name)
{
    if (!entry->is_prefix)
        return bytes_equal(entry->text, name);
    return name.length >= entry->text.length && bytes_equal(entry->text, (struct bytes){name.data, entry->text.length});
}

/* By text; of equal texts the prefix comes first, because it covers the exact name. */
static int compare_entries(const void *a, const void *b)
{
    const struct scope_entry *left = a;
    const struct scope_entry *right = b;
    int order = bytes_compare(left->text, right->text);
    return order ? order : right->is_prefix - left->is_prefix;
}

size_t scope_normalize(struct scope_entry *entries, size_t count)
{
    size_t kept = 0;
    if (count)
        qsort(entries, count, sizeof *entries, compare_entries);
    for (size_t i = 0; i < count; i++)
        if (!kept || !entry_covers(&entries[kept - 1], entries[i].text))
            entries[kept++] = entries[i];
    return kept;
}

const struct scope scope_of_nothing;

/* Returns the only entry that can cover the name: the last one that is not behind it. NULL: none. */
static const struct scope_entry *find_entry(const struct scope *scope, struct bytes name)
{
    size_t low = 0;
    size_t high = scope->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (bytes_compare(scope->entries[middle].text, name) <= 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low > 0 ? &scope->entries[low - 1] : NULL;
}

bool scope_covers(const struct scope *scope, struct bytes name)
{
    const struct scope_entry *entry = scope ? find_entry(scope, name) : NULL;
    return !scope || (entry && entry_covers(entry, name));
}

bool scope_find_prefix(const struct scope *scope, struct bytes name, struct bytes *ret_prefix)
{
    static const struct scope_entry everything = {{"", 0}, true};
    const struct scope_entry *entry = scope ? find_entry(scope, name) : &everything;
    if (!entry || !entry->is_prefix || !entry_covers(entry, name))
        return false;
    *ret_prefix = entry->text;
    return true;
}

bool scope_covers_prefix(const struct scope *scope, struct bytes prefix)
{
    struct bytes covering;
    return scope_find_prefix(scope, prefix, &covering);
}

bool scope_covers_scope(const struct scope *scope, const struct scope *other)
{
    for (size_t i = 0; i < other->count; i++) {
        const struct scope_entry *entry = &other->entries[i];
        if (!(entry->is_prefix ? scope_covers_prefix(scope, entry->text) : scope_covers(scope, entry->text)))
            return false;
    }
    return true;
}

/* The entry without the names that do not begin with the prefix. False: none is left. */
static bool narrow(const struct scope_entry *entry, struct bytes prefix, struct scope_entry *ret_part)
{
    *ret_part = *entry;
    if (bytes_begin_with(entry->text, prefix))
        return true;
    ret_part->text = prefix;
    return entry->is_prefix && bytes_begin_with(prefix, entry->text);
}

/* Returns true if no name of the part comes after this one. */
static bool is_before(const struct scope_entry *part, struct bytes after)
{
    bool goes_on = part->is_prefix && bytes_begin_with(after, part->text);
    return after.length && bytes_compare(part->text, after) <= 0 && !goes_on;
}

bool scope_walk_next(struct scope_walk *walk, struct scope_entry *ret_part)
{
    static const struct scope_entry everything = {{"", 0}, true};
    static const struct scope all = {&everything, 1};
    const struct scope *scope = walk->scope ? walk->scope : &all;
    while (walk->index < scope->count) {
        struct scope_entry part;
        if (!narrow(&scope->entries[walk->index++], walk->prefix, &part) || is_before(&part, walk->after))
            continue;
        *ret_part = part;
        return true;
    }
    return false;
}
