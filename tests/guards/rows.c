/* SPDX-License-Identifier: MIT */
/* Tests the guard in a row: updates, one after the other, and the row after each. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "guards.h"
#include "testkit.h"

static const struct step {
    const char *update; /* of `fenced`, whose rows are 1 and 2; after an '=' at its end, `written` is appended */
    enum verdict expected;
    const char *says;
    int64_t number, token; /* of row 1 afterwards */
    int64_t written;
} steps[] = {
    {"number = 1 WHERE id = 1", PASSED, "", 1, 0, 0},
    {"number = 2, permit_token = 57 WHERE id = 1", PASSED, "", 2, 57, 0},
    {"number = 3, permit_token = 57 WHERE id = 1", PASSED, "", 3, 57, 0},
    {"number = 4, permit_token = 61 WHERE id = 1", PASSED, "", 4, 61, 0},
    {"number = 9, permit_token = 57 WHERE id = 1", STALE, "stale token 57: a row of fenced has seen 61", 4, 61, 0},
    {"number = 9, permit_token = 60 WHERE id = 1", STALE, "stale token 60: ", 4, 61, 0},
    {"number = 9, permit_token = 0 WHERE id = 1", STALE, "stale token 0: ", 4, 61, 0},
    {"number = 9, permit_token = -1 WHERE id = 1", STALE, "stale token -1: ", 4, 61, 0},
    {"number = 9, permit_token = NULL WHERE id = 1", INVALID, "permit", 4, 61, 0},
    {"number = 9, permit_token = 9007199254740992 WHERE id = 1", INVALID, "permit", 4, 61, 0},
    {"number = 9, permit_token = 9223372036854775807 WHERE id = 1", INVALID, "permit", 4, 61, 0},
    {"number = 5, permit_token = 61 WHERE id = 1", PASSED, "", 5, 61, 0},
    /* an update without a token is not guarded */
    {"number = 6 WHERE id = 1", PASSED, "", 6, 61, 0},
    /* a statement changes all rows or none */
    {"number = 9, permit_token = 60 WHERE id IN (1, 2)", STALE, "has seen 61", 6, 61, 0},
    {"number = 7, permit_token = 62 WHERE id IN (1, 2)", PASSED, "", 7, 62, 0},
    /* tokens that may exist by now, and one that cannot */
    {"number = 9, permit_token =", INVALID, "permit", 7, 62, BEYOND},
    {"number = 8, permit_token =", PASSED, "", 8, NEWEST, NEWEST},
};
enum { STEPS = sizeof(steps) / sizeof(steps[0]) };

static void take(struct session *session, const struct step *step)
{
    char text[200], written[64] = "";
    if (step->written)
        snprintf(written, sizeof(written), " %" PRIi64 " WHERE id = 1", token_of(step->written));
    snprintf(text, sizeof(text), "UPDATE fenced SET %s%s", step->update, written);
    session->message[0] = 0;
    enum verdict verdict = session->store->kind->run(session, text);
    int64_t number = session->store->kind->number(session, "SELECT number FROM fenced WHERE id = 1");
    int64_t token = session->store->kind->number(session, "SELECT permit_token FROM fenced WHERE id = 1");
    if (verdict != step->expected || !strstr(session->message, step->says))
        kit_fail("%s: %s: verdict %d instead of %d: %s", session->store->name, text, verdict, step->expected,
                 session->message);
    if (number != step->number || token != token_of(step->token))
        kit_fail("%s: after %s the row has %" PRIi64 " and token %" PRIi64, session->store->name, text, number, token);
}

/* A new row may have any token that can exist by now. The row of the number that was refused can be written. */
static void check_inserts(struct session *session)
{
    char text[200];
    const struct {
        const char *token;
        int64_t written; /* instead of `token`, if it is not 0 */
        enum verdict expected;
    } rows[] = {{"9223372036854775807", 0, INVALID},
                {NULL, BEYOND, INVALID},
                {"-1", 0, INVALID},
                {NULL, NEWEST, PASSED},
                {"57", 0, PASSED},
                {"0", 0, PASSED}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char written[32];
        snprintf(written, sizeof(written), "%" PRIi64, token_of(rows[i].written));
        snprintf(text, sizeof(text), "INSERT INTO fenced (id, number, permit_token) VALUES (%zu, 0, %s)", 100 + i,
                 rows[i].token ? rows[i].token : written);
        enum verdict verdict = session->store->kind->run(session, text);
        if (verdict != rows[i].expected)
            kit_fail("%s: %s: verdict %d instead of %d", session->store->name, text, verdict, rows[i].expected);
    }
    session_run(session, "INSERT INTO fenced (id, number) VALUES (200, 0)");
}

/* A column as in the head of the script. Without strict mode MariaDB would store an impossible value as 0. */
static void check_mariadb(struct session *session)
{
    session_run(session, "ALTER TABLE fenced MODIFY permit_token BIGINT UNSIGNED NOT NULL DEFAULT 0");
    take(session, &(struct step){"permit_token = 18446744073709551615 WHERE id = 1", INVALID, "permit", 8, NEWEST, 0});
    session_run(session, "SET SESSION sql_mode = ''");
    for (size_t i = 0; i < STEPS; i++)
        if (steps[i].expected == INVALID)
            take(session, &(struct step){steps[i].update, INVALID, "permit", 8, NEWEST, steps[i].written});
    take(session, &(struct step){"permit_token = 'x' WHERE id = 1", STALE, "", 8, NEWEST, 0});
}

void guard_rows(struct store *store)
{
    struct session session;
    session_open(&session, store);
    session_run(&session, "INSERT INTO fenced VALUES (1, 0, 0), (2, 0, 0)");
    for (size_t i = 0; i < STEPS; i++)
        take(&session, &steps[i]);
    KIT_CHECK(store->kind->number(&session, "SELECT permit_token FROM fenced WHERE id = 2") == 62);
    check_inserts(&session);
    if (store->kind == &store_mariadb)
        check_mariadb(&session);
    session_close(&session);
    printf("%-10s %d updates of guarded rows decided as they must be\n", store->name, (int)STEPS);
}
