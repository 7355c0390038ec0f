/* SPDX-License-Identifier: MIT */
/* Statements of the two SQL stores. */
#include "store_sql.h"

#include <stdio.h>
#include <string.h>

enum { NAME = 30000 };

void sql_guard(const struct sql_words *words, const struct write *write, char *to, size_t size)
{
    char semaphore[NAME], where[NAME];
    const char *const call[] = {words->slots, words->resource, words->floor, words->raise};
    words->quote(semaphore, sizeof(semaphore), write->semaphore);
    words->quote(where, sizeof(where), write->where ? write->where : "");
    if (write->place == PLACE_SLOTS || write->place == PLACE_RESOURCE)
        snprintf(to, size, "%s(%s, %s, %lld)", call[write->place], semaphore, write->where ? where : "NULL",
                 (long long)write->token);
    else
        snprintf(to, size, "%s(%s, %lld)", call[write->place], semaphore, (long long)write->token);
}

void sql_write(const struct sql_words *words, const struct write *write, char *to, size_t size)
{
    char guard[SQL_GUARD];
    sql_guard(words, write, guard, sizeof(guard));
    snprintf(to, size,
             "BEGIN; %s; UPDATE last SET number = number + 1 WHERE semaphore = '%s' AND slot IN (%s); "
             "INSERT INTO line (semaphore, slot, number, token) SELECT semaphore, slot, number, %lld FROM last "
             "WHERE semaphore = '%s' AND slot IN (%s); COMMIT",
             guard, write->semaphore, write->where, (long long)write->token, write->semaphore, write->where);
}

enum verdict sql_write_in_steps(const struct sql_words *words, struct session *session, const struct write *write,
                                enum verdict (*run)(struct session *session, const char *text))
{
    char text[SQL_TEXT], *rest = text;
    enum verdict verdict = PASSED;
    sql_write(words, write, text, sizeof(text));
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

void sql_update(const struct sql_words *words, const struct write *write_or_null, unsigned row, char *to, size_t size)
{
    char guard[SQL_GUARD];
    if (!write_or_null) {
        snprintf(to, size, "UPDATE stock SET number = number + 1 WHERE id = %u", row);
        return;
    }
    sql_guard(words, write_or_null, guard, sizeof(guard));
    snprintf(to, size, "%s%s; UPDATE stock SET number = number + 1 WHERE id = %u%s", words->begin, guard, row,
             words->commit);
}

void sql_mark(const struct sql_words *words, const struct write *write, char *to, size_t size)
{
    char semaphore[NAME], resource[NAME];
    words->quote(semaphore, sizeof(semaphore), write->semaphore);
    words->quote(resource, sizeof(resource), write->place == PLACE_RESOURCE ? write->where : "");
    snprintf(to, size, "WHERE semaphore = %s AND slot = %s AND resource = %s", semaphore,
             write->place == PLACE_SLOTS ? write->where : "0", resource);
}
