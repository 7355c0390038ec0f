/* SPDX-License-Identifier: MIT */
/* Statements of the two SQL stores. */
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

/* "('s',3,0,57),('s',4,0,57) ON DUPLICATE KEY UPDATE permit_token = 57": in ascending order, so that nobody deadlocks.
 */
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

void sql_guard(const struct sql_words *words, bool in_rows, const struct write *write, char *to, size_t size)
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

/* The write carries the token itself where it is guarded in rows. */
void sql_write(const struct sql_words *words, bool in_rows, const struct write *write, char *to, size_t size)
{
    char guard[SQL_GUARD], token[64];
    sql_guard(words, in_rows, write, guard, sizeof(guard));
    snprintf(token, sizeof(token), ", permit_token = %lld", (long long)write->token);
    snprintf(to, size,
             "BEGIN; %s%sUPDATE last SET number = number + 1%s WHERE semaphore = '%s' AND slot IN (%s); "
             "INSERT INTO line (semaphore, slot, number, token) SELECT semaphore, slot, number, %lld FROM last "
             "WHERE semaphore = '%s' AND slot IN (%s); COMMIT",
             in_rows ? "" : guard, in_rows ? "" : "; ", in_rows ? token : "", write->semaphore, write->where,
             (long long)write->token, write->semaphore, write->where);
}

enum verdict sql_write_in_steps(const struct sql_words *words, struct session *session, const struct write *write,
                                enum verdict (*run)(struct session *session, const char *text))
{
    char text[SQL_TEXT], *rest = text;
    enum verdict verdict = PASSED;
    sql_write(words, session->store->in_rows, write, text, sizeof(text));
    while (verdict == PASSED && rest) {
        char *statement = rest, *end = strstr(rest, "; ");
        rest = end ? end + 2 : NULL;
        if (end)
            *end = 0;
        verdict = run(session, statement);
    }
    if (verdict != PASSED && verdict != LOST && run(session, "ROLLBACK") != PASSED)
        return LOST;
    return verdict;
}

void sql_update(const struct sql_words *words, bool in_rows, const struct write *write_or_null, unsigned row, char *to,
                size_t size)
{
    char guard[SQL_GUARD];
    if (!write_or_null) {
        snprintf(to, size, "UPDATE stock SET number = number + 1 WHERE id = %u", row);
        return;
    }
    if (in_rows) {
        snprintf(to, size, "UPDATE fenced SET number = number + 1, permit_token = %lld WHERE id = %u",
                 (long long)write_or_null->token, row);
        return;
    }
    sql_guard(words, in_rows, write_or_null, guard, sizeof(guard));
    snprintf(to, size, "%s%s; UPDATE stock SET number = number + 1 WHERE id = %u%s", words->begin, guard, row,
             words->commit);
}

void sql_mark(const struct sql_words *words, bool in_rows, const char *table, const struct write *write, char *to,
              size_t size)
{
    char semaphore[NAME], resource[NAME];
    words->quote(semaphore, sizeof(semaphore), write->semaphore);
    words->quote(resource, sizeof(resource), write->place == PLACE_RESOURCE ? write->where : "");
    if (in_rows && write->place == PLACE_SLOTS)
        snprintf(to, size, "SELECT permit_token FROM last WHERE semaphore = %s AND slot = %s", semaphore, write->where);
    else
        snprintf(to, size, "SELECT token FROM %s WHERE semaphore = %s AND slot = %s AND resource = %s", table,
                 semaphore, write->place == PLACE_SLOTS ? write->where : "0", resource);
}
