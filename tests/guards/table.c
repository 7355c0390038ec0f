/* SPDX-License-Identifier: MIT */
/* Tests which calls each guard lets pass, with a table that runs from top to bottom, and the messages of refusals. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "guards.h"
#include "strict.h"
#include "testkit.h"
#include "unflushed.h"

#define LIMIT (INT64_C(1) << 53)
#define LETTERS                                                                                                        \
    "abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ.-"                                                 \
    "abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ.-"                                                 \
    "abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ.-"                                                 \
    "abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ." /* 255 */
#define ODD "o'hara\\ \"%s\" --; \xc3\xa9"

/* Which stores run the row: fence.h has numbers instead of text, and a file instead of a name. */
enum { ALL, NOT_FILE, SQL };

static const struct row {
    const char *semaphore;
    enum queue_rank place;
    const char *where;
    int64_t token;
    enum verdict expected;
    const char *says; /* a part of the message; NULL: not checked */
    const char *slot; /* slot whose mark is checked afterwards; NULL: that of the call */
    int64_t mark;
    int whom;
} rows[] = {
    /* one slot: equal and higher pass, lower does not */
    {"backups", PLACE_SLOTS, "3", 57, PASSED, NULL, NULL, 57, ALL},
    {"backups", PLACE_SLOTS, "3", 57, PASSED, NULL, NULL, 57, ALL},
    {"backups", PLACE_SLOTS, "3", 61, PASSED, NULL, NULL, 61, ALL},
    {"backups", PLACE_SLOTS, "3", 57, STALE, "token 57: ", NULL, 61, ALL},
    {"backups", PLACE_SLOTS, "3", 60, STALE, "has seen 61", NULL, 61, ALL},
    {"backups", PLACE_SLOTS, "3", 1, STALE, "backups", NULL, 61, ALL},
    {"backups", PLACE_SLOTS, "3", 61, PASSED, NULL, NULL, 61, ALL},
    /* slots are independent: an older holder of another slot is live */
    {"backups", PLACE_SLOTS, "4", 58, PASSED, NULL, NULL, 58, ALL},
    {"backups", PLACE_SLOTS, "40", 2, PASSED, NULL, NULL, 2, ALL},
    /* several slots: all or none */
    {"backups", PLACE_SLOTS, "3,4", 60, STALE, "slot 3", "4", 58, ALL},
    {"backups", PLACE_SLOTS, "4,3", 60, STALE, "slot 3", "4", 58, ALL},
    {"backups", PLACE_SLOTS, "3,4", 62, PASSED, NULL, "3", 62, ALL},
    {"backups", PLACE_SLOTS, "3,4", 62, PASSED, NULL, "4", 62, ALL},
    {"backups", PLACE_SLOTS, "4,5", 61, STALE, "slot 4", "5", 0, ALL},
    {"backups", PLACE_SLOTS, "2,3,5,6", 61, STALE, "slot 3", "2", 0, ALL},
    {"backups", PLACE_SLOTS, "6", 1, PASSED, NULL, "6", 1, ALL},
    {"backups", PLACE_SLOTS, "10,9,8,7,6,5,4,3,2,1", 63, PASSED, NULL, "10", 63, ALL},
    {"backups", PLACE_SLOTS, "1", 62, STALE, "has seen 63", "1", 63, ALL},
    {"backups", PLACE_SLOTS, "7,7,7", 64, PASSED, NULL, "7", 64, NOT_FILE},
    /* names are bytes */
    {"Backups", PLACE_SLOTS, "3", 5, PASSED, NULL, NULL, 5, ALL},
    {"backups2", PLACE_SLOTS, "3", 6, PASSED, NULL, NULL, 6, ALL},
    {"backups ", PLACE_SLOTS, "3", 7, PASSED, NULL, NULL, 7, ALL},
    {"backups", PLACE_SLOTS, "3", 63, PASSED, NULL, NULL, 63, ALL},
    {ODD, PLACE_SLOTS, "3", 8, PASSED, NULL, NULL, 8, ALL},
    {ODD, PLACE_SLOTS, "3", 7, STALE, "o'hara", NULL, 8, ALL},
    /* tokens that may exist by now, and one that cannot */
    {LETTERS, PLACE_SLOTS, "3", NEWEST, PASSED, NULL, NULL, NEWEST, ALL},
    {LETTERS, PLACE_SLOTS, "3", OLDER_THAN_NEWEST, STALE, NULL, NULL, NEWEST, ALL},
    {LETTERS, PLACE_SLOTS, "3", BEYOND, INVALID, NULL, NULL, NEWEST, ALL},
    {LETTERS, PLACE_SLOTS, "4", BEYOND, INVALID, NULL, NULL, 0, ALL},
    {LETTERS, PLACE_SLOTS, "3,4", BEYOND, INVALID, NULL, "4", 0, ALL},
    {LETTERS, PLACE_SLOTS, "3,4", NEWEST, PASSED, NULL, "4", NEWEST, ALL},
    {LETTERS, PLACE_RESOURCE, "file", BEYOND, INVALID, NULL, NULL, 0, ALL},
    {LETTERS, PLACE_RESOURCE, "file", NEWEST, PASSED, NULL, NULL, NEWEST, ALL},
    {LETTERS, PLACE_RAISE, NULL, BEYOND, INVALID, NULL, NULL, 0, ALL},
    {LETTERS, PLACE_RAISE, NULL, NEWEST, PASSED, NULL, NULL, NEWEST, ALL},
    {LETTERS, PLACE_FLOOR, NULL, BEYOND, INVALID, NULL, NULL, NEWEST, ALL},
    {LETTERS, PLACE_FLOOR, NULL, OLDER_THAN_NEWEST, STALE, NULL, NULL, NEWEST, ALL},
    {LETTERS "x", PLACE_SLOTS, "3", 1, INVALID, NULL, "", 0, SQL},
    {"", PLACE_SLOTS, "3", 1, INVALID, NULL, "", 0, SQL},
    /* impossible values */
    {"backups", PLACE_SLOTS, "3", 0, INVALID, NULL, NULL, 63, ALL},
    {"backups", PLACE_SLOTS, "3", -1, INVALID, NULL, NULL, 63, ALL},
    {"backups", PLACE_SLOTS, "3", LIMIT, INVALID, NULL, NULL, 63, ALL},
    {"backups", PLACE_SLOTS, "3", INT64_MAX, INVALID, NULL, NULL, 63, ALL},
    {"backups", PLACE_SLOTS, "0", 99, INVALID, NULL, "3", 63, ALL},
    {"backups", PLACE_SLOTS, "3,0", 99, INVALID, NULL, "3", 63, ALL},
    {"backups", PLACE_SLOTS, "", 99, INVALID, NULL, "3", 63, ALL},
    {"backups", PLACE_SLOTS, NULL, 99, INVALID, NULL, "3", 63, ALL},
    {"backups", PLACE_SLOTS, "x", 99, INVALID, NULL, "3", 63, ALL},
    {"backups", PLACE_SLOTS, "3,x", 99, INVALID, NULL, "3", 63, ALL},
    {"backups", PLACE_SLOTS, "3,,4", 99, INVALID, NULL, "3", 63, ALL},
    {"backups", PLACE_SLOTS, "3,", 99, INVALID, NULL, "3", 63, NOT_FILE},
    {"backups", PLACE_SLOTS, "3.5", 99, INVALID, NULL, "3", 63, NOT_FILE},
    {"backups", PLACE_SLOTS, "3 ", 99, INVALID, NULL, "3", 63, NOT_FILE},
    {"backups", PLACE_SLOTS, "03", 99, INVALID, NULL, "3", 63, NOT_FILE},
    {"backups", PLACE_SLOTS, "1e3", 99, INVALID, NULL, "3", 63, NOT_FILE},
    {"backups", PLACE_SLOTS, "3\n", 99, INVALID, NULL, "3", 63, NOT_FILE},
    {"backups", PLACE_SLOTS, "3,4]", 99, INVALID, NULL, "3", 63, NOT_FILE},
    {"backups", PLACE_SLOTS, "-3", 99, INVALID, NULL, "3", 63, ALL},
    /* counted, a maximum per resource */
    {"pool", PLACE_RESOURCE, "file 7", 20, PASSED, NULL, NULL, 20, ALL},
    {"pool", PLACE_RESOURCE, "file 8", 19, PASSED, NULL, NULL, 19, ALL},
    {"pool", PLACE_RESOURCE, "file 7", 20, PASSED, NULL, NULL, 20, ALL},
    {"pool", PLACE_RESOURCE, "file 7", 19, STALE, "has seen 20", NULL, 20, ALL},
    {"pool", PLACE_RESOURCE, "File 7", 1, PASSED, NULL, NULL, 1, ALL},
    {"pool", PLACE_RESOURCE, ODD, 30, PASSED, NULL, NULL, 30, ALL},
    {"pool", PLACE_RESOURCE, ODD, 29, STALE, "has seen 30", NULL, 30, ALL},
    {"pool", PLACE_RESOURCE, "3", 5, PASSED, NULL, NULL, 5, ALL},
    {"pool", PLACE_SLOTS, "3", 4, PASSED, NULL, NULL, 4, ALL},
    {"pool", PLACE_RESOURCE, "file 7", 0, INVALID, NULL, NULL, 20, ALL},
    {"pool", PLACE_RESOURCE, "", 1, INVALID, NULL, "", 0, SQL},
    {"pool", PLACE_RESOURCE, LETTERS "x", 1, INVALID, NULL, "", 0, SQL},
    /* counted, the floor */
    {"pool", PLACE_FLOOR, NULL, 50, INVALID, NULL, NULL, 0, ALL},
    {"pool", PLACE_RAISE, NULL, 0, INVALID, NULL, NULL, 0, ALL},
    {"pool", PLACE_RAISE, NULL, 50, PASSED, NULL, NULL, 50, ALL},
    {"pool", PLACE_FLOOR, NULL, 50, PASSED, NULL, NULL, 50, ALL},
    {"pool", PLACE_FLOOR, NULL, 70, PASSED, NULL, NULL, 50, ALL},
    {"pool", PLACE_FLOOR, NULL, 49, STALE, "token 49: ", NULL, 50, ALL},
    {"pool", PLACE_RAISE, NULL, 40, PASSED, NULL, NULL, 50, ALL},
    {"pool", PLACE_FLOOR, NULL, 49, STALE, "50", NULL, 50, ALL},
    {"pool", PLACE_RAISE, NULL, LIMIT, INVALID, NULL, NULL, 50, ALL},
    {"pool", PLACE_FLOOR, NULL, 0, INVALID, NULL, NULL, 50, ALL},
    {"pool", PLACE_FLOOR, NULL, LIMIT, INVALID, NULL, NULL, 50, ALL},
    {"pool", PLACE_RESOURCE, "floor", 1, PASSED, NULL, NULL, 1, ALL},
    {"pool", PLACE_SLOTS, "1", 1, PASSED, NULL, NULL, 1, ALL},
};

static bool is_for(const struct row *row, const struct store *store)
{
    return row->whom == ALL || (row->whom == NOT_FILE && store->kind != &store_file) ||
           (row->whom == SQL && store->kind->transactions);
}

static void row_check(struct session *session, const struct row *row)
{
    static const char *const words[] = {"passed", "stale", "invalid", "again", "lost"};
    const char *store = session->store->name, *where = row->where ? row->where : "";
    const struct write write = {row->semaphore, row->place, row->where, token_of(row->token)};
    session->message[0] = 0;
    enum verdict verdict = session_guard(session, &write);
    if (verdict != row->expected)
        kit_fail("%s: %s '%s' token %" PRIi64 ": %s instead of %s (%s)", store, row->semaphore, where, row->token,
                 words[verdict], words[row->expected], session->message);
    if (row->says && !strstr(session->message, row->says))
        kit_fail("%s: %s '%s' token %" PRIi64 ": no '%s' in '%s'", store, row->semaphore, where, row->token, row->says,
                 session->message);
    if (row->slot && !*row->slot)
        return;
    const struct write asked = {row->semaphore, row->place, row->slot ? row->slot : row->where, 0};
    uint64_t mark = session->store->kind->mark(session, &asked);
    if (mark != (uint64_t)token_of(row->mark))
        kit_fail("%s: after %s '%s' token %" PRIi64 " the mark of '%s' is %" PRIu64 " instead of %" PRIi64, store,
                 row->semaphore, where, row->token, asked.where ? asked.where : "", mark, token_of(row->mark));
}

/* A permit of 1,000 slots, the maximum. */
static void check_thousand(struct session *session)
{
    char slots[5000] = "1";
    size_t at = 1;
    for (int slot = 2; slot <= 1000; slot++)
        at += (size_t)snprintf(slots + at, sizeof(slots) - at, ",%d", slot);
    KIT_CHECK(session_guard(session, ON_SLOTS("thousand", "500", 8)) == PASSED);
    KIT_CHECK(session_guard(session, ON_SLOTS("thousand", slots, 7)) == STALE);
    KIT_CHECK(session->store->kind->mark(session, ON_SLOTS("thousand", "1", 0)) == 0);
    KIT_CHECK(session_guard(session, ON_SLOTS("thousand", slots, 9)) == PASSED);
    KIT_CHECK(session->store->kind->mark(session, ON_SLOTS("thousand", "1000", 0)) == 9);
}

/* Without strict mode MariaDB truncates and converts its input, but never into something that passes. */
static void check_loose(struct session *session)
{
    enum { LONG = 12100 };
    char slots[LONG + 1];
    for (int i = 0; i < LONG; i++)
        slots[i] = i % 2 ? ',' : '1';
    slots[LONG] = 0;
    session_run(session, "SET SESSION sql_mode = ''");
    KIT_CHECK(session_guard(session, ON_SLOTS("loose", slots, 1)) == INVALID);
    KIT_CHECK(session_guard(session, ON_SLOTS(LETTERS LETTERS, "3", 1)) == INVALID);
    KIT_CHECK(session_guard(session, ON_SLOTS("loose", "3x", 1)) == INVALID);
    KIT_CHECK(session->store->kind->run(session, "CALL permit_fence('loose', '3', 18446744073709551615)") == INVALID);
    KIT_CHECK(session->store->kind->run(session, "CALL permit_fence('loose', '3', '')") == INVALID);
    KIT_CHECK(session->store->kind->mark(session, ON_SLOTS("loose", "3", 0)) == 0);
    KIT_CHECK(session->store->kind->mark(session, ON_SLOTS("loose", "1", 0)) == 0);
}

/* Tests that apply to fence.h only. */
static void check_header(void)
{
    char *path = kit_path("strict"), *foreign = kit_path("report"), *unsaved = kit_path("unsaved");
    KIT_CHECK(strict_rule_holds());
    KIT_CHECK(strict_file_holds(path));
    KIT_CHECK(strict_foreign_file_is_refused(foreign));
    unflushed_marks_are_flushed_again(unsaved);
    free(path);
    free(foreign);
    free(unsaved);
}

void guard_table(struct store *store)
{
    struct session session;
    unsigned count = 0;
    session_open(&session, store);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (is_for(&rows[i], store)) {
            row_check(&session, &rows[i]);
            count++;
        }
    if (store->kind != &store_file)
        check_thousand(&session);
    if (store->kind == &store_file)
        check_header();
    if (store->kind == &store_mariadb)
        check_loose(&session);
    session_close(&session);
    printf("%-10s %u calls of the table decided as they must be\n", store->name, count);
}
