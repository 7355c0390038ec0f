/* SPDX-License-Identifier: MIT */
/*
 * The part of the lock packet for specific slots: their rows, or the rows of all slots if labels change, with the
 * requests that hold them. The statements come after the locks, so no other transaction changes these rows.
 */
#include <stdlib.h>

#include "store/batch.h"
#include "store/row_reader.h"

enum { KEYS_A_STATEMENT = 500 };

/* Walks the given index, then the primary keys of the permit and the request that hold the slot. */
static const char select_slots[] = "SELECT l.number,l.label,l.permit_id,l.retired,r.external_id,r.due_at,"
                                   "IF(r.server_id IS NULL,r.grace_ms,0),IF(r.server_id IS NULL,r.ttl_ms,0),"
                                   "r.confirmed_at IS NOT NULL"
                                   " FROM slot l FORCE INDEX (%s) LEFT JOIN permit p FORCE INDEX (PRIMARY)"
                                   " ON p.semaphore_id=l.semaphore_id AND p.id=l.permit_id"
                                   " LEFT JOIN permit_request r FORCE INDEX (PRIMARY) ON r.id=p.permit_request_id"
                                   " WHERE l.semaphore_id=";

/* ---- names without duplicates ---- */

static bool is_number(const struct slot_name *name)
{
    return name->label.data == NULL;
}

/* Numbers sort before labels. */
static int compare_names(const void *a, const void *b)
{
    const struct slot_name *left = a;
    const struct slot_name *right = b;
    if (is_number(left) != is_number(right))
        return is_number(left) ? -1 : 1;
    if (is_number(left))
        return (left->number > right->number) - (left->number < right->number);
    return bytes_compare(left->label, right->label);
}

/* Sorts a copy of the names and removes duplicates: many operations of a batch may name the same slot. */
static bool sort_names(struct slots_wanted *wanted, struct arena *arena)
{
    struct slot_name *names = arena_array(arena, wanted->named_count, sizeof *names);
    size_t count = 0;
    if (!names)
        return false;
    memcpy(names, wanted->named, wanted->named_count * sizeof *names);
    qsort(names, wanted->named_count, sizeof *names, compare_names);
    for (size_t i = 0; i < wanted->named_count; i++)
        if (i == 0 || compare_names(&names[i], &names[count - 1]) != 0)
            names[count++] = names[i];
    wanted->named = names;
    wanted->named_count = count;
    return true;
}

bool batch_sort_named(struct lock_set *set, struct arena *arena)
{
    struct slots_wanted *wanted = NULL;
    for (size_t i = 0; i < set->semaphore_count; i++) {
        if (set->slots_wanted[i].named_count == 0)
            continue;
        if (!wanted) {
            wanted = arena_array(arena, set->semaphore_count, sizeof *wanted);
            if (!wanted)
                return false;
            memcpy(wanted, set->slots_wanted, set->semaphore_count * sizeof *wanted);
        }
        if (!sort_names(&wanted[i], arena))
            return false;
    }
    if (wanted)
        set->slots_wanted = wanted;
    return true;
}

/* Returns the end of the names that the statement starting at `first` has: only numbers or only labels. */
static size_t statement_end(const struct slots_wanted *wanted, size_t first)
{
    size_t end = first + 1;
    while (end < wanted->named_count && end - first < KEYS_A_STATEMENT &&
           is_number(&wanted->named[end]) == is_number(&wanted->named[first]))
        end++;
    return end;
}

/* ---- the statements ---- */

static void keys_sql(const struct slots_wanted *wanted, size_t first, size_t end, struct buf *sql)
{
    for (size_t i = first; i < end; i++) {
        if (i > first)
            buf_append_char(sql, ',');
        if (is_number(&wanted->named[i]))
            buf_append_u64(sql, wanted->named[i].number);
        else
            sql_bytes(sql, wanted->named[i].label);
    }
}

void batch_named_sql(const struct lock_set *set, struct buf *sql)
{
    for (size_t i = 0; i < set->semaphore_count; i++) {
        const struct slots_wanted *wanted = &set->slots_wanted[i];
        for (size_t first = 0, end; first < wanted->named_count; first = end) {
            bool numbers = is_number(&wanted->named[first]);
            end = statement_end(wanted, first);
            buf_printf(sql, select_slots, numbers ? "PRIMARY" : "slot_label");
            buf_append_u64(sql, set->semaphore_ids[i]);
            buf_append_text(sql, numbers ? " AND l.number IN (" : " AND l.label IN (");
            keys_sql(wanted, first, end, sql);
            buf_append_text(sql, ");");
        }
    }
    if (!set->all_slots)
        return;
    buf_printf(sql, select_slots, "PRIMARY");
    buf_append_text(sql, "(SELECT id FROM semaphore WHERE name=");
    sql_bytes(sql, set->semaphore_name);
    buf_append_text(sql, ");");
}

/* ---- reading ---- */

static void read_slot(struct row_reader *reader, struct slot_row *ret_slot)
{
    ret_slot->number = (uint32_t)row_u64(reader);
    ret_slot->label = row_bytes(reader);
    ret_slot->token = row_u64(reader);
    ret_slot->retired = row_u64(reader) != 0;
    ret_slot->holder = row_bytes(reader);
    ret_slot->due_at = row_time(reader);
    ret_slot->grace_ms = row_i64(reader);
    bool has_ttl = row_column(reader).data != NULL;
    ret_slot->without_ttl = ret_slot->holder.data && !has_ttl;
    ret_slot->confirmed = row_u64(reader) != 0;
}

static int compare_rows(const void *a, const void *b)
{
    const struct slot_row *left = a;
    const struct slot_row *right = b;
    return (left->number > right->number) - (left->number < right->number);
}

/* Removes duplicates: a slot named by number and by label was read twice. */
static void merge_rows(struct named_slots *slots)
{
    size_t count = 0;
    qsort(slots->rows, slots->count, sizeof *slots->rows, compare_rows);
    for (size_t i = 0; i < slots->count; i++)
        if (i == 0 || slots->rows[i].number != slots->rows[count - 1].number)
            slots->rows[count++] = slots->rows[i];
    slots->count = count;
}

static enum permit_status read_wanted(struct session *session, const struct slots_wanted *wanted, struct arena *arena,
                                      struct named_slots *ret_slots)
{
    enum permit_status status = PERMIT_OK;
    struct row_reader reader = {.arena = arena};
    ret_slots->rows = arena_array(arena, wanted->named_count, sizeof *ret_slots->rows);
    if (!ret_slots->rows)
        return PERMIT_NO_MEMORY;
    for (size_t first = 0; first < wanted->named_count && status == PERMIT_OK; first = statement_end(wanted, first)) {
        status = session_next(session);
        while (status == PERMIT_OK && ret_slots->count < wanted->named_count && row_step(&reader, session))
            read_slot(&reader, &ret_slots->rows[ret_slots->count++]);
        if (reader.broken)
            status = PERMIT_NO_MEMORY;
    }
    merge_rows(ret_slots);
    return status;
}

/* Reads all slots of the semaphore that was locked by name. */
static enum permit_status read_all(struct session *session, struct arena *arena, struct named_slots *ret_slots)
{
    enum permit_status status = session_next(session);
    size_t count = status == PERMIT_OK ? session_affected(session) : 0;
    struct row_reader reader = {.arena = arena};
    ret_slots->rows = arena_array(arena, count, sizeof *ret_slots->rows);
    if (!ret_slots->rows)
        return PERMIT_NO_MEMORY;
    while (ret_slots->count < count && row_step(&reader, session))
        read_slot(&reader, &ret_slots->rows[ret_slots->count++]);
    merge_rows(ret_slots);
    return reader.broken ? PERMIT_NO_MEMORY : status;
}

/* Returns the named slots of a semaphore in the view; `if_none` if the semaphore does not exist. */
static struct named_slots *slots_of(struct view *view, uint64_t semaphore_id, struct named_slots *if_none)
{
    for (size_t i = 0; i < view->semaphore_count; i++)
        if (view->semaphores[i].id == semaphore_id)
            return &view->named_slots[i];
    return if_none;
}

enum permit_status batch_read_named(struct session *session, const struct lock_set *set, struct arena *arena,
                                    struct view *view)
{
    enum permit_status status = PERMIT_OK;
    struct named_slots none = {0};
    for (size_t i = 0; i < set->semaphore_count && status == PERMIT_OK; i++)
        if (set->slots_wanted[i].named_count)
            status = read_wanted(session, &set->slots_wanted[i], arena, slots_of(view, set->semaphore_ids[i], &none));
    if (status == PERMIT_OK && set->all_slots)
        status = read_all(session, arena, view->semaphore_count ? &view->named_slots[0] : &none);
    return status;
}
