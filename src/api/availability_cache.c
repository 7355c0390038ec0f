/* SPDX-License-Identifier: MIT */
#include "api/availability_cache.h"

#include <stdlib.h>

#include "api/etag.h"
#include "api/json_out.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/map.h"
#include "store/store.h"

enum {
    CACHE_BYTES = 16 << 20, /* approximate maximum memory of all entries; the rows of one read need less */
    READ_ROWS = 10000,      /* the same of the rows of one read */
    READ_RANGES = 256,
    LATELY_US = 10 * US_PER_SECOND,
    READ_CHUNK = 64 << 10,
    READ_BYTES = 32 << 20,
    RANGE_MARK = '*',                   /* begins the key of a range, and no name */
    KEY_BYTES = 2 + 2 * NAME_MAX_BYTES, /* of a range: mark, length of the prefix, prefix, `after` */
};

/* A semaphore as it is shown. */
struct shown {
    struct bytes name;
    struct bytes json;
    uint64_t digest; /* of `json` */
};

/* A name, or the first names with a prefix that come after a name. */
struct entry {
    struct map_node by_key;
    struct list node;   /* in cache->recent */
    mono_us asked_at;   /* `since` of the last client that asked for it; 0: it is new */
    mono_us read_at;    /* when its read began; 0: it was not read */
    struct shown *rows; /* in order of names; none: there is no such semaphore */
    size_t count;
    char *text;        /* of the rows, and of `next` */
    struct bytes next; /* of a range: more names follow this one; length 0: none do */
    size_t bytes;      /* memory of all this */
    char key[];
};

struct availability_cache {
    struct mutex mutex; /* guards all of it */
    struct map entries;
    struct list recent; /* all entries; that for which a client has asked last is the last */
    size_t bytes;       /* of all entries */
};

struct availability_cache *availability_cache_new(void)
{
    struct availability_cache *cache = calloc(1, sizeof *cache);
    if (!cache)
        return NULL;
    mutex_init(&cache->mutex);
    list_init(&cache->recent);
    return cache;
}

/* ---- entries ---- */

/* Returns the key of a part: a name itself, or a range in the buffer. */
static struct bytes key_of(const struct scope_entry *part, struct bytes after, char buffer[KEY_BYTES])
{
    char *at = buffer + 2;
    if (!part->is_prefix)
        return part->text;
    buffer[0] = RANGE_MARK;
    buffer[1] = (char)part->text.length;
    (void)bytes_copy_to(&at, part->text);
    if (bytes_begin_with(after, part->text)) /* else all names with the prefix come after it: scope_walk_next */
        (void)bytes_copy_to(&at, after);
    return (struct bytes){buffer, (size_t)(at - buffer)};
}

static bool key_is_range(struct bytes key)
{
    return key.data[0] == RANGE_MARK;
}

static struct availability_range range_of(struct bytes key)
{
    size_t length = (unsigned char)key.data[1];
    return (struct availability_range){.prefix = {key.data + 2, length},
                                       .after = {key.data + 2 + length, key.length - 2 - length}};
}

/* Sets how much memory the rows have. */
static void entry_set_bytes(struct availability_cache *cache, struct entry *entry, size_t bytes) REQUIRES(cache->mutex)
{
    cache->bytes -= entry->bytes;
    entry->bytes = sizeof *entry + entry->by_key.key.length + bytes;
    cache->bytes += entry->bytes;
}

/* Removes the rows. */
static void entry_clear(struct availability_cache *cache, struct entry *entry) REQUIRES(cache->mutex)
{
    free(entry->rows);
    free(entry->text);
    entry->rows = NULL;
    entry->text = NULL;
    entry->count = 0;
    entry->next = (struct bytes){0};
    entry->read_at = 0;
    entry_set_bytes(cache, entry, 0);
}

static void entry_drop(struct availability_cache *cache, struct entry *entry) REQUIRES(cache->mutex)
{
    entry_clear(cache, entry);
    cache->bytes -= entry->bytes;
    map_remove(&cache->entries, &entry->by_key);
    list_remove(&entry->node);
    free(entry);
}

void availability_cache_free(struct availability_cache *cache)
{
    if (!cache)
        return;
    list_for_each (node, following, &cache->recent)
        entry_drop(cache, LIST_ENTRY(node, struct entry, node));
    map_release(&cache->entries);
    mutex_destroy(&cache->mutex);
    free(cache);
}

/* Returns the entry, without rows. NULL: out of memory. */
static struct entry *entry_make(struct availability_cache *cache, struct bytes key) REQUIRES(cache->mutex)
{
    struct map_node *node = map_find(&cache->entries, key);
    struct entry *entry = node ? MAP_ENTRY(node, struct entry, by_key) : calloc(1, sizeof *entry + key.length);
    if (!entry)
        return NULL;
    if (!node) {
        memcpy(entry->key, key.data, key.length);
        if (!map_insert(&cache->entries, &entry->by_key, (struct bytes){entry->key, key.length})) {
            free(entry);
            return NULL;
        }
        list_append(&cache->recent, &entry->node);
    }
    entry_clear(cache, entry);
    return entry;
}

/* Gives an entry without rows these. False: out of memory; it has none then. */
static bool entry_fill(struct availability_cache *cache, struct entry *entry, const struct availability *rows,
                       size_t count, struct bytes next) REQUIRES(cache->mutex)
{
    struct buf text;
    buf_init(&text, READ_BYTES);
    entry->rows = count ? calloc(count, sizeof *entry->rows) : NULL;
    for (size_t i = 0; i < count && entry->rows; i++) {
        buf_append(&text, rows[i].name.data, rows[i].name.length);
        entry->rows[i].name.length = rows[i].name.length;
        size_t before = text.length;
        write_availability(&text, &rows[i]);
        entry->rows[i].json.length = text.length - before;
    }
    buf_append(&text, next.data, next.length);
    buf_fit(&text);
    entry_set_bytes(cache, entry, count * sizeof *entry->rows + text.capacity);
    entry->text = buf_steal(&text);
    buf_release(&text);
    if ((count && !entry->rows) || !entry->text) {
        entry_clear(cache, entry);
        return false;
    }
    char *at = entry->text;
    for (size_t i = 0; i < count; i++) {
        struct shown *row = &entry->rows[i];
        row->name.data = at;
        row->json.data = at + row->name.length;
        row->digest = etag_digest(row->json);
        at += row->name.length + row->json.length;
    }
    entry->next = (struct bytes){at, next.length};
    entry->count = count;
    return true;
}

/* ---- pages ---- */

/* Returns the entry of a part, for which a client asks now. NULL: there is none. */
static struct entry *entry_ask(struct availability_cache *cache, const struct availability_ask *ask,
                               const struct scope_entry *part) REQUIRES(cache->mutex)
{
    char buffer[KEY_BYTES];
    struct map_node *node = map_find(&cache->entries, key_of(part, ask->after, buffer));
    struct entry *entry = node ? MAP_ENTRY(node, struct entry, by_key) : NULL;
    if (entry) {
        entry->asked_at = ask->since;
        list_remove(&entry->node);
        list_append(&cache->recent, &entry->node);
    }
    return entry;
}

static void page_cut(struct availability_page *page, struct bytes next)
{
    page->digest = etag_digest_add(page->digest, etag_digest(next));
    page->next_length = next.length;
    memcpy(page->next, next.data, next.length);
}

static bool get_page(struct availability_cache *cache, const struct availability_ask *ask, struct buf *out,
                     struct availability_page *page) REQUIRES(cache->mutex)
{
    size_t shown = 0;
    struct bytes last = {0};
    page->digest = ETAG_DIGEST_BEGIN;
    page->next_length = 0;
    for (size_t i = 0; i < ask->part_count; i++) {
        const struct entry *entry = entry_ask(cache, ask, &ask->parts[i]);
        size_t row = 0;
        if (!entry || entry->read_at < ask->since)
            return false;
        for (; row < entry->count && shown < ask->limit; row++, shown++) {
            if (shown)
                buf_append_char(out, ',');
            buf_append(out, entry->rows[row].json.data, entry->rows[row].json.length);
            page->digest = etag_digest_add(page->digest, entry->rows[row].digest);
            last = entry->rows[row].name;
        }
        if (row == entry->count && entry->next.length) {
            page_cut(page, entry->next);
            return true;
        }
        if (shown == ask->limit && (row < entry->count || i + 1 < ask->part_count)) {
            page_cut(page, last);
            return true;
        }
    }
    return true;
}

bool availability_cache_get(struct availability_cache *cache, const struct availability_ask *ask, struct buf *out,
                            struct availability_page *ret_page)
{
    size_t before = out->length;
    mutex_lock(&cache->mutex);
    bool found = get_page(cache, ask, out, ret_page);
    mutex_unlock(&cache->mutex);
    if (!found)
        out->length = before;
    return found;
}

/* ---- reads ---- */

/* A read of the database, in its arena. */
struct reading {
    struct arena *arena;
    mono_us began_at;
    mono_us asked_at; /* of new entries */
    struct availability_read read;
    struct bytes *names; /* those of `read` */
    struct bytes *keys;  /* of its ranges */
    size_t rows;         /* that it probably has */
};

/* False: out of memory. */
static bool reading_begin(struct reading *reading, struct arena *arena)
{
    *reading = (struct reading){.arena = arena, .began_at = clock_mono()};
    reading->names = arena_array(arena, READ_ROWS, sizeof *reading->names);
    reading->keys = arena_array(arena, READ_RANGES, sizeof *reading->keys);
    reading->read.names = reading->names;
    reading->read.ranges = arena_array(arena, READ_RANGES, sizeof *reading->read.ranges);
    return reading->names && reading->keys && reading->read.ranges;
}

/* Adds an entry; a range has had so many rows. False: there is no room. */
static bool reading_add(struct reading *reading, struct bytes key, size_t rows)
{
    struct availability_read *read = &reading->read;
    bool is_range = key_is_range(key);
    struct bytes copy = arena_copy(reading->arena, key);
    reading->rows += is_range ? rows + 1 : 1;
    if (!copy.data || reading->rows > READ_ROWS || (is_range && read->range_count == READ_RANGES))
        return false;
    if (is_range) {
        reading->keys[read->range_count] = copy;
        read->ranges[read->range_count++] = range_of(copy);
    } else {
        reading->names[read->name_count++] = copy;
    }
    return true;
}

/*
 * Adds the parts of the page that are missing, and, if one is too old, all for which clients have asked lately, these
 * parts first. The next read has those for which there is no room.
 */
static void reading_collect(struct reading *reading, struct availability_cache *cache,
                            const struct availability_ask *ask) REQUIRES(cache->mutex)
{
    char buffer[KEY_BYTES];
    bool renews = false, room = true;
    reading->asked_at = ask->since;
    for (size_t i = 0; i < ask->part_count && room; i++) {
        const struct scope_entry *part = &ask->parts[i];
        const struct entry *entry = entry_ask(cache, ask, part);
        renews |= entry && entry->read_at < ask->since;
        if (!entry)
            room = reading_add(reading, key_of(part, ask->after, buffer), AVAILABILITY_ROWS);
    }
    for (struct list *node = cache->recent.prev; renews && room && node != &cache->recent; node = node->prev) {
        const struct entry *entry = LIST_ENTRY(node, struct entry, node);
        room = entry->asked_at >= ask->since - LATELY_US && reading_add(reading, entry->by_key.key, entry->count);
    }
}

/* For qsort and bsearch: struct availability, by name. */
static int compare_rows(const void *a, const void *b)
{
    return bytes_compare(((const struct availability *)a)->name, ((const struct availability *)b)->name);
}

static bool keep_entry(const struct reading *reading, struct availability_cache *cache, struct bytes key,
                       const struct availability *rows, size_t count, struct bytes next) REQUIRES(cache->mutex)
{
    struct entry *entry = entry_make(cache, key);
    if (!entry || ((count || next.length) && !entry_fill(cache, entry, rows, count, next)))
        return false;
    entry->read_at = reading->began_at;
    if (entry->asked_at == 0)
        entry->asked_at = reading->asked_at;
    return true;
}

/*
 * Stores what was read, and drops entries that need too much memory, those first for which no client has asked for the
 * longest time. False: out of memory; then some of it is missing.
 */
static bool reading_keep(const struct reading *reading, struct availability_cache *cache) REQUIRES(cache->mutex)
{
    const struct availability_read *read = &reading->read;
    bool kept = true;
    for (size_t i = 0; i < read->name_count && kept; i++) {
        const struct availability name = {.name = read->names[i]};
        const struct availability *row =
            read->ret_count ? bsearch(&name, read->ret_rows, read->ret_count, sizeof name, compare_rows) : NULL;
        kept = keep_entry(reading, cache, name.name, row, row != NULL, (struct bytes){0});
    }
    for (size_t i = 0; i < read->range_count && kept; i++) {
        const struct availability_range *range = &read->ranges[i];
        kept = keep_entry(reading, cache, reading->keys[i], range->ret_rows, range->ret_count, range->ret_next);
    }
    while (cache->bytes > CACHE_BYTES)
        entry_drop(cache, LIST_ENTRY(cache->recent.next, struct entry, node));
    return kept;
}

/* Reads parts of the page that are missing or too old. */
static enum permit_status read_missing(struct availability_cache *cache, struct store *store,
                                       const struct availability_ask *ask, struct arena *arena)
{
    struct reading reading;
    struct availability_read *read = &reading.read;
    if (!reading_begin(&reading, arena))
        return PERMIT_NO_MEMORY;
    mutex_lock(&cache->mutex);
    reading_collect(&reading, cache, ask);
    mutex_unlock(&cache->mutex);
    if (read->name_count == 0 && read->range_count == 0)
        return PERMIT_NO_MEMORY;
    enum permit_status status = store->queries->availability(store, read, arena);
    if (status != PERMIT_OK)
        return status;
    if (read->ret_count)
        qsort(read->ret_rows, read->ret_count, sizeof *read->ret_rows, compare_rows);
    mutex_lock(&cache->mutex);
    bool kept = reading_keep(&reading, cache);
    mutex_unlock(&cache->mutex);
    return kept ? PERMIT_OK : PERMIT_NO_MEMORY;
}

enum permit_status availability_cache_find(struct availability_cache *cache, struct store *store,
                                           const struct availability_ask *ask, struct buf *out,
                                           struct availability_page *ret_page)
{
    struct arena arena;
    enum permit_status status = PERMIT_OK;
    arena_init(&arena, READ_CHUNK, READ_BYTES);
    while (status == PERMIT_OK && !availability_cache_get(cache, ask, out, ret_page)) {
        arena_clear(&arena);
        status = read_missing(cache, store, ask, &arena);
    }
    arena_release(&arena);
    return status;
}
