/* SPDX-License-Identifier: MIT */
/* The checks of the tables on rows that permitd wrote: they pass, and each planted mismatch is found. */
#include <criterion/criterion.h>
#include <string.h>

#include "fixture.h"
#include "held_rows.h"

static const struct semaphore_facts semaphores[] = {{"units", 10, false}, {"seats", 70, true}};
static const struct facts facts = {.semaphores = semaphores, .count = 2};

static void acquire(struct kit_http *http, const char *body)
{
    struct reply reply;
    cr_assert(kit_http_post(http, "/v1/requests", body, &reply) && reply.status == 201, "%s", reply.body);
    reply_release(&reply);
}

/* Held with an owner after an exchange, held for ever, ended, and waiting. */
static void write_requests(struct fixture *fixture)
{
    struct kit_http http = kit_http(fixture->permitd[0]->port), waiting = kit_http(fixture->permitd[0]->port);
    struct reply reply;
    make_semaphores(&facts, fixture->permitd[0]->port);
    acquire(&http,
            "{\"external_id\":\"t1-0\",\"owner\":\"worker\",\"ttl\":\"1h\",\"permits\":[{\"semaphore\":\"units\"},"
            "{\"semaphore\":\"seats\",\"count\":3}]}");
    cr_assert(kit_http_post(&http, "/v1/requests/t1-0/exchange",
                            "{\"give\":[{\"semaphore\":\"seats\",\"count\":2},{\"semaphore\":\"units\"}],"
                            "\"take\":[{\"semaphore\":\"units\"}],\"nonce\":\"n\",\"changes\":0}",
                            &reply) &&
                  reply.status == 200,
              "%s", reply.body);
    reply_release(&reply);
    acquire(&http, "{\"external_id\":\"t1-1\",\"permits\":[{\"semaphore\":\"units\",\"count\":9}]}");
    cr_assert(kit_http_post(&http, "/v1/requests/t1-1/confirm", NULL, &reply) && reply.status == 200, "%s", reply.body);
    reply_release(&reply);
    acquire(&http, "{\"external_id\":\"t1-2\",\"permits\":[{\"semaphore\":\"seats\",\"count\":2}]}");
    cr_assert_eq(fixture_release(&http, "t1-2"), 200);
    fixture_send_waiting(&waiting, "t1-3", "units", 5, "30s");
    fixture_await_waiting(fixture, "units", 1, 60000);
    fixture_stop_permitd(fixture); /* the waiter keeps its place */
    kit_http_close(&waiting);
    kit_http_close(&http);
}

/* Returns true if the ledger of the tables has no inconsistent entry. */
static bool replays(struct kit_sql *sql)
{
    char message[MESSAGE_SIZE];
    struct world world = {.facts = facts, .seed = 1};
    struct ledger ledger = rows_read(sql, &world);
    cr_assert_eq(ledger.count, 3);
    bool good = check_replay(&ledger, &facts, message);
    ledger_release(&ledger);
    return good;
}

#define PERMITS    "permit p JOIN permit_request r ON r.id = p.permit_request_id"
#define OF_BITS    "a held permit has not one bit"
#define OF_SUM     "`held` has another number of bits"
#define OF_PAST    "a past permit "
#define OF_WAITING "a waiting request has no row of its deadline"

static const struct {
    const char *plant;
    const char *says; /* the beginning of the message */
    bool torn;        /* the ledger shows it too */
} cases[] = {
    {"UPDATE held SET bits = 0 LIMIT 1", OF_BITS, true},
    {"DELETE FROM held", OF_BITS, true},
    {"UPDATE held SET due_s = due_s - 1 WHERE due_s < 4294967295", OF_BITS, true},
    {"UPDATE held SET due_s = due_s - 1 WHERE due_s = 4294967295", OF_BITS, true},
    {"UPDATE held SET owner = 'another' WHERE owner = 'worker'", OF_BITS, true},
    {"INSERT INTO held SELECT semaphore_id, block, due_s, 'another', bits FROM held WHERE owner = 'worker'", OF_BITS,
     true},
    {"INSERT INTO held SELECT semaphore_id, block, 7, owner, bits FROM held WHERE owner = 'worker'", OF_BITS, true},
    {"INSERT INTO held SELECT p.semaphore_id, p.id DIV 64, 7, r.owner, 1 << (p.id & 63) FROM " PERMITS
     " WHERE r.state = 2",
     OF_BITS, true},
    {"UPDATE permit_request SET due_at = due_at + INTERVAL 1 SECOND WHERE state = 1", OF_BITS, true},
    {"UPDATE held SET bits = bits | 1 << 63 LIMIT 1", OF_SUM, false},
    {"INSERT INTO held VALUES (999, 0, 7, '', 2)", OF_SUM, false},
    {"INSERT INTO held VALUES (1, 0, 7, '', 0)", "a row of `held` has no bits", false},
    {"DELETE FROM held_bit WHERE n = 63", "`held_bit` has not the 64 bits", false},
    {"UPDATE held_bit SET mask = 3 WHERE n = 1", "`held_bit` has not the 64 bits", false},
    {"UPDATE past_permit SET permit_request_id = 999", OF_PAST "has no request", false},
    {"UPDATE past_permit SET changes = 2", OF_PAST "has no request", false},
    {"UPDATE permit_request SET changes = 0, change_nonce = '' WHERE changes = 1", OF_PAST "has no request", false},
    {"UPDATE past_permit SET end_reason = 7", OF_PAST "is held", false},
    {"UPDATE past_permit SET count = 1 WHERE end_reason = 1", OF_PAST "is held", false},
    {"UPDATE past_permit q JOIN permit p ON p.semaphore_id = q.semaphore_id SET q.id = p.id WHERE q.end_reason = 7",
     OF_PAST "is held", false},
    {"UPDATE past_permit SET ended_at = '2000-01-01'", OF_PAST "ended before", false},
    {"UPDATE past_permit SET id = 999", OF_PAST "ended before", false},
    {"UPDATE permit_request SET change_nonce = '' WHERE changes = 1", "a request has exchanges and no nonce", false},
    {"DELETE FROM waiting_due", OF_WAITING, false},
    {"UPDATE waiting_due SET due_s = due_s + 1", OF_WAITING, false},
    {"UPDATE permit_request SET due_at = due_at + INTERVAL 1 SECOND WHERE state = 3", OF_WAITING, false},
    {"INSERT INTO waiting_due SELECT due_s + 1, permit_request_id FROM waiting_due", "a row of `waiting_due` has no",
     false},
    {"INSERT INTO waiting_due SELECT 7, id FROM permit_request WHERE state = 1 LIMIT 1",
     "a row of `waiting_due` has no", false},
    {"UPDATE permit_request SET state = 2 WHERE external_id = 't1-0'", "in_use differs from the permits held", true},
};

Test(rows, mismatches_of_held_and_waiting_due_are_caught, .timeout = 180)
{
    struct fixture fixture = fixture_start(1, false);
    char message[MESSAGE_SIZE] = "";
    write_requests(&fixture);
    cr_assert(rows_check(fixture.sql, message), "%s", message);
    cr_assert(replays(fixture.sql));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        message[0] = '\0';
        kit_sql_run(fixture.sql, "BEGIN");
        kit_sql_run(fixture.sql, "%s", cases[i].plant);
        bool good = rows_check(fixture.sql, message);
        cr_expect(!good && !strncmp(message, cases[i].says, strlen(cases[i].says)), "%s: %s", cases[i].plant, message);
        cr_expect_eq(replays(fixture.sql), !cases[i].torn, "%s", cases[i].plant);
        kit_sql_run(fixture.sql, "ROLLBACK");
    }
    kit_sql_close(fixture.sql);
    kit_database_stop(fixture.database);
}

/* What tests do that write requests themselves. */
Test(rows, bits_are_added_from_the_requests, .timeout = 180)
{
    struct fixture fixture = fixture_start(1, false);
    char message[MESSAGE_SIZE] = "";
    write_requests(&fixture);
    kit_sql_run(fixture.sql, "DELETE FROM held");
    kit_sql_run(fixture.sql, HELD_ROWS_ADD("r.external_id = '%s'"), "t1-0");
    kit_sql_run(fixture.sql, HELD_ROWS_ADD("TRUE"));
    cr_assert(rows_check(fixture.sql, message), "%s", message);
    kit_sql_close(fixture.sql);
    kit_database_stop(fixture.database);
}
