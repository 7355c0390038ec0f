/* SPDX-License-Identifier: MIT */
/* Guarded writes of the two SQL stores. */
#include "store_sql.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME = 30000, ROWS_MAX = 16 };

static int compare_slots(const void *a, const void *b)
{
    const uint32_t *left = a, *right = b;
    return (*left > *right) - (*left < *right);
}

/* "('s',3,0,57),('s',4,0,57) ON DUPLICATE KEY UPDATE permit_token = 57": in ascending order, to avoid deadlocks. */
static void upsert_rows(const struct sql_words *words, const struct write *write, char *to, size_t size)
{
    uint32_t slots[ROWS_MAX];
    size_t count = slots_of(write->where, slots, ROWS_MAX);
    size_t at = (size_t)snprintf(to, size, "INSERT INTO last (semaphore, slot, number, permit_token) VALUES ");
    qsort(slots, count, sizeof(slots[0]), compare_slots);
    for (size_t i = 0; i < count; i++)
        at += (size_t)snprintf(to + at, size - at, "%s('%s', %u, 0, %lld)", i ? ", " : "", write->semaphore, slots[i],
                               (long long)write->token);
    snprintf(to + at, size - at, " %s %lld", words->row, (long long)write->token);
}

/* "CALL permit_fence('s','3',57)", or an upsert of rows of `last`. */
static void guard_text(const struct sql_words *words, bool in_rows, const struct write *write, char *to, size_t size)
{
    char semaphore[NAME], where[NAME];
    const char *const call[] = {words->slots, words->resource, words->floor, words->raise};
    if (in_rows && write->place == PLACE_SLOTS) {
        upsert_rows(words, write, to, size);
        return;
    }
    words->quote(semaphore, sizeof(semaphore), write->semaphore);
    words->quote(where, sizeof(where), write->where ? write->where : "");
    if (write->place == PLACE_SLOTS || write->place == PLACE_RESOURCE)
        snprintf(to, size, "%s(%s, %s, %lld)", call[write->place], semaphore, write->where ? where : "NULL",
                 (long long)write->token);
    else
        snprintf(to, size, "%s(%s, %lld)", call[write->place], semaphore, (long long)write->token);
}

/*
 * Locks the rows of a write of several rows if the statement could meet others in another order. After a call of the
 * guard this is not needed, because the call waits.
 */
static void lock_text(const struct store *store, const struct write *write, char *to, size_t size)
{
    *to = 0;
    if (store->in_rows && store->kind->words->locks_as_found)
        snprintf(to, size, "SELECT slot FROM last WHERE semaphore = '%s' AND slot IN (%s) ORDER BY slot FOR UPDATE; ",
                 write->semaphore, write->where);
}

/* Needs the rows of `last` (prepare_history). If slots are guarded in rows, the write itself has the token. */
static void write_text(const struct session *session, const struct write *write, char *to, size_t size)
{
    char guard[SQL_GUARD], lock[SQL_LOCK], token[64];
    bool in_rows = session->store->in_rows;
    guard_text(session->store->kind->words, in_rows, write, guard, sizeof(guard));
    lock_text(session->store, write, lock, sizeof(lock));
    snprintf(token, sizeof(token), ", permit_token = %lld", (long long)write->token);
    snprintf(to, size,
             "BEGIN; %s%s%sUPDATE last SET number = number + 1%s WHERE semaphore = '%s' AND slot IN (%s); "
             "INSERT INTO line (semaphore, slot, number, token) SELECT semaphore, slot, number, %lld FROM last "
             "WHERE semaphore = '%s' AND slot IN (%s); COMMIT",
             in_rows ? "" : guard, in_rows ? "" : "; ", lock, in_rows ? token : "", write->semaphore, write->where,
             (long long)write->token, write->semaphore, write->where);
}

/* Rolls back unless it has passed. */
static enum verdict ended(struct session *session, enum verdict verdict)
{
    if (verdict != PASSED && verdict != LOST && session->store->kind->run(session, "ROLLBACK") != PASSED)
        return LOST;
    return verdict;
}

enum verdict sql_guard(struct session *session, const struct write *write)
{
    char text[SQL_TEXT];
    guard_text(session->store->kind->words, session->store->in_rows, write, text, sizeof(text));
    return session->store->kind->run(session, text);
}

enum verdict sql_write(struct session *session, const struct write *write)
{
    char text[SQL_TEXT];
    write_text(session, write, text, sizeof(text));
    return ended(session, session->store->kind->run(session, text));
}

enum verdict sql_write_in_steps(struct session *session, const struct write *write)
{
    char text[SQL_TEXT], *rest = text;
    enum verdict verdict = PASSED;
    write_text(session, write, text, sizeof(text));
    while (verdict == PASSED && rest) {
        char *statement = rest, *end = strstr(rest, "; ");
        rest = end ? end + 2 : NULL;
        if (end)
            *end = 0;
        verdict = session->store->kind->run(session, statement);
    }
    return ended(session, verdict);
}

enum verdict sql_update(struct session *session, const struct write *write_or_null, unsigned row)
{
    const struct sql_words *words = session->store->kind->words;
    char text[SQL_TEXT], guard[SQL_GUARD];
    if (!write_or_null) {
        snprintf(text, sizeof(text), "UPDATE stock SET number = number + 1 WHERE id = %u", row);
    } else if (session->store->in_rows) {
        snprintf(text, sizeof(text), "UPDATE fenced SET number = number + 1, permit_token = %lld WHERE id = %u",
                 (long long)write_or_null->token, row);
    } else {
        guard_text(words, false, write_or_null, guard, sizeof(guard));
        snprintf(text, sizeof(text), "%s%s; UPDATE stock SET number = number + 1 WHERE id = %u%s", words->begin, guard,
                 row, words->commit);
    }
    return ended(session, session->store->kind->run(session, text));
}

uint64_t sql_mark(struct session *session, const struct write *write)
{
    const struct sql_words *words = session->store->kind->words;
    char semaphore[NAME], resource[NAME], text[SQL_TEXT];
    words->quote(semaphore, sizeof(semaphore), write->semaphore);
    words->quote(resource, sizeof(resource), write->place == PLACE_RESOURCE ? write->where : "");
    if (session->store->in_rows && write->place == PLACE_SLOTS)
        snprintf(text, sizeof(text), "SELECT permit_token FROM last WHERE semaphore = %s AND slot = %s", semaphore,
                 write->where);
    else
        snprintf(text, sizeof(text), "SELECT token FROM %s WHERE semaphore = %s AND slot = %s AND resource = %s",
                 words->table, semaphore, write->place == PLACE_SLOTS ? write->where : "0", resource);
    return (uint64_t)session->store->kind->number(session, text);
}
