/* SPDX-License-Identifier: MIT */
#include "engine/directory.h"

#include <stdlib.h>

void directory_init(struct directory *directory, size_t max_entries)
{
    *directory = (struct directory){.max = max_entries};
    list_init(&directory->recent);
}

static void entry_free(struct directory *directory, struct directory_entry *entry)
{
    map_remove(&directory->entries, &entry->node);
    list_remove(&entry->recent);
    free(entry);
}

void directory_release(struct directory *directory)
{
    list_for_each (node, next, &directory->recent)
        entry_free(directory, LIST_ENTRY(node, struct directory_entry, recent));
    map_release(&directory->entries);
}

static struct directory_entry *find(const struct directory *directory, struct bytes external_id)
{
    struct map_node *node = map_find(&directory->entries, external_id);
    return node ? MAP_ENTRY(node, struct directory_entry, node) : NULL;
}

void directory_put(struct directory *directory, struct bytes external_id, const struct share *shares, size_t count)
{
    directory_forget(directory, external_id);
    if (directory->entries.count >= directory->max && !list_empty(&directory->recent))
        entry_free(directory, LIST_ENTRY(directory->recent.next, struct directory_entry, recent));
    size_t shares_size = count * sizeof *shares;
    struct directory_entry *entry = malloc(sizeof *entry + shares_size + external_id.length);
    if (!entry)
        return;
    entry->count = count;
    memcpy(entry->shares, shares, shares_size);
    char *key = (char *)entry->shares + shares_size;
    memcpy(key, external_id.data, external_id.length);
    if (map_insert(&directory->entries, &entry->node, (struct bytes){key, external_id.length}))
        list_append(&directory->recent, &entry->recent);
    else
        free(entry);
}

const struct directory_entry *directory_find(const struct directory *directory, struct bytes external_id)
{
    return find(directory, external_id);
}

void directory_forget(struct directory *directory, struct bytes external_id)
{
    struct directory_entry *entry = find(directory, external_id);
    if (entry)
        entry_free(directory, entry);
}
