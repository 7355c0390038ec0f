/* SPDX-License-Identifier: MIT */
#include "engine/key_cache.h"

#include <stdlib.h>

void key_cache_init(struct key_cache *directory, size_t max_entries, size_t max_row_bytes)
{
    *directory = (struct key_cache){.max = max_entries, .max_row_bytes = max_row_bytes};
    list_init(&directory->recent);
}

static void replace_row(struct key_cache *directory, struct key_entry *entry, struct cached_request *row)
{
    directory->row_bytes -= entry->cached ? entry->cached->size : 0;
    directory->row_bytes += row ? row->size : 0;
    free(entry->cached);
    entry->cached = row;
}

static void entry_free(struct key_cache *directory, struct key_entry *entry)
{
    replace_row(directory, entry, NULL);
    map_remove(&directory->entries, &entry->node);
    list_remove(&entry->recent);
    free(entry);
}

void key_cache_release(struct key_cache *directory)
{
    list_for_each (node, next, &directory->recent)
        entry_free(directory, LIST_ENTRY(node, struct key_entry, recent));
    map_release(&directory->entries);
}

static struct key_entry *find(const struct key_cache *directory, struct bytes external_id)
{
    struct map_node *node = map_find(&directory->entries, external_id);
    return node ? MAP_ENTRY(node, struct key_entry, node) : NULL;
}

void key_cache_put(struct key_cache *directory, struct bytes external_id, const struct share *shares, size_t count)
{
    key_cache_remove(directory, external_id);
    if (directory->entries.count >= directory->max && !list_empty(&directory->recent))
        entry_free(directory, LIST_ENTRY(directory->recent.next, struct key_entry, recent));
    size_t shares_size = count * sizeof *shares;
    struct key_entry *entry = malloc(sizeof *entry + shares_size + external_id.length);
    if (!entry)
        return;
    entry->cached = NULL;
    entry->count = count;
    memcpy(entry->shares, shares, shares_size);
    char *key = (char *)entry->shares + shares_size;
    memcpy(key, external_id.data, external_id.length);
    if (map_insert(&directory->entries, &entry->node, (struct bytes){key, external_id.length}))
        list_append(&directory->recent, &entry->recent);
    else
        free(entry);
}

const struct key_entry *key_cache_find(const struct key_cache *directory, struct bytes external_id)
{
    return find(directory, external_id);
}

void key_cache_set_row(struct key_cache *directory, struct bytes external_id, struct cached_request *row)
{
    struct key_entry *entry = find(directory, external_id);
    if (!entry) {
        free(row);
        return;
    }
    replace_row(directory, entry, row);
    while (directory->row_bytes > directory->max_row_bytes && !list_empty(&directory->recent))
        entry_free(directory, LIST_ENTRY(directory->recent.next, struct key_entry, recent));
}

void key_cache_remove(struct key_cache *directory, struct bytes external_id)
{
    struct key_entry *entry = find(directory, external_id);
    if (entry)
        entry_free(directory, entry);
}
