/* SPDX-License-Identifier: MIT */
/* The audit's comparisons: matching rows give no finding, and each kind of mismatch is found and named. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "fixture.h"
#include "store/audit.h"

static const struct database_address *address;
static struct store *store;
static struct session *session; /* the store's */
static struct arena arena;
static uint64_t id_found;

/*
 * `many` (1): counted, 5,000 permits of 2 units; `seats` (2): slotted, 6 seats, 1 to 3 held by permit 7, 5 by permit 8,
 * 9 and 10 out of service, 9 still held by permit 6; `empty` (3): slotted.
 */
static void rows_make(void)
{
    address = fresh_database();
    store = opened(address, STORE_READER);
    session = session_of(store);
    arena_init(&arena, 1 << 16, 1 << 26);
    must_run_long(address,
                  "INSERT INTO semaphore (id, name, kind, capacity, in_use, next_permit_id, default_ttl_ms,"
                  " max_hold_ms) VALUES (1, 'many', 2, 20000, 10000, 6000, 1, 1), (2, 'seats', 1, 8, 5, 9, 1, 1),"
                  " (30, 'empty', 1, 2, 0, 1, 1, 1);"
                  "INSERT INTO permit_request (id, external_id, state, due_at) SELECT seq, CONCAT('key', seq), 1,"
                  " IF(seq < 1500, NULL, '2030-01-01') FROM numbers.upto WHERE seq <= 5000;"
                  "INSERT INTO permit (semaphore_id, id, permit_request_id, count)"
                  " SELECT 1, seq, seq, 2 FROM numbers.upto WHERE seq <= 5000;"
                  "INSERT INTO permit_request (id, external_id, state, end_reason, due_at, ended_at)"
                  " SELECT 10000 + seq, CONCAT('old', seq), 2, 1, '2030-01-01', '2026-01-01'"
                  " FROM numbers.upto WHERE seq <= 500;"
                  "INSERT INTO permit (semaphore_id, id, permit_request_id, count)"
                  " SELECT 1, 5000 + seq, 10000 + seq, 1 FROM numbers.upto WHERE seq <= 500;"
                  "INSERT INTO permit (semaphore_id, id, permit_request_id, count, slots) VALUES (2, 6, 6, 1, '9'),"
                  " (2, 7, 7, 3, '1-3'), (2, 8, 8, 1, '5');"
                  "INSERT INTO slot (semaphore_id, number, permit_id, retired)"
                  " SELECT 2, seq, IF(seq < 4, 7, IF(seq = 5, 8, IF(seq = 9, 6, 0))), seq > 8"
                  " FROM numbers.upto WHERE seq <= 10"
                  " UNION ALL SELECT 30, seq, 0, 0 FROM numbers.upto WHERE seq <= 2");
    held_rewrite(address);
}

static void rows_forget(void)
{
    arena_release(&arena);
    store_free(store);
}

TestSuite(audit, .init = rows_make, .fini = rows_forget);

/* Audits the semaphore with the next id above `after`. */
static struct audit_result semaphore_after(uint64_t after)
{
    struct audit_result result = {0};
    struct audit audit;
    enum permit_status status = store->audit->begin(&audit, store, after, &arena);
    while (status == PERMIT_OK && audit.step != AUDIT_DONE)
        status = store->audit->step(&audit);
    status = store->audit->end(&audit, status, &result);
    cr_assert_eq(status, PERMIT_OK, "%s: %s", permit_status_word(status), session_message(session));
    id_found = audit.semaphore.id;
    return result;
}

static void finds(uint64_t after, const char *subject, const char *sentence)
{
    struct audit_result result = semaphore_after(after);
    cr_assert_eq(result.drift_count, 1, "nothing found");
    cr_assert_str_eq(result.drifts->subject, subject);
    cr_assert_str_eq(result.drifts->sentence, sentence);
}

/* Audits all pages of requests. Returns the number of mismatches; *ret_last is the last one. */
static size_t requests_found(struct audit_drift *ret_last)
{
    uint64_t last = 0;
    size_t count = 0;
    size_t pages = 0;
    do {
        struct audit_result result;
        enum permit_status status = store->audit->requests(store, last, &arena, &result, &last);
        cr_assert_eq(status, PERMIT_OK, "%s", session_message(session));
        count += result.drift_count;
        if (result.drift_count)
            *ret_last = result.drifts[result.drift_count - 1];
        pages++;
    } while (last && pages < 100);
    cr_assert_eq(pages, 6, "5,500 requests on %zu pages of %d", pages, AUDIT_PAGE);
    return count;
}

/* Sets or clears the bit of a permit of `many`, in the rows of its deadline. */
static void change_bit(int token, bool set)
{
    char sql[512];
    snprintf(sql, sizeof sql,
             "INSERT INTO held (semaphore_id, block, due_s, owner, bits)"
             " VALUES (1, %d DIV 64, IF(%d < 1500, 4294967295, 1893456000), '', 1 << (%d %% 64))"
             " ON DUPLICATE KEY UPDATE bits = %s VALUES(bits)",
             token, token, token, set ? "bits |" : "bits & ~");
    must_run(session, sql);
}

Test(audit, matching_rows_give_no_finding)
{
    static const uint64_t ids[] = {0, 1, 2, 30};
    struct audit_drift last;
    for (size_t i = 0; i < ARRAY_LENGTH(ids); i++) {
        struct audit_result result = semaphore_after(ids[i]);
        cr_assert_eq(result.drift_count, 0, "%s", result.drifts ? result.drifts->sentence : "");
        cr_assert_eq(id_found, i + 1 < ARRAY_LENGTH(ids) ? ids[i + 1] : 0);
    }
    cr_assert_eq(requests_found(&last), 0);
}

Test(audit, in_use_other_than_the_sum_is_found)
{
    must_run(session, "UPDATE semaphore SET in_use = in_use + 1 WHERE id IN (1, 2)");
    finds(0, "many", "in_use is 10001, its held permits have 10000 units");
    finds(1, "seats", "in_use is 6, its held permits have 5 units");
    cr_assert_eq(semaphore_after(2).drift_count, 0);
    cr_assert_eq(semaphore_after(0).drifts->differences[0], 1);
}

/* A place that no client asks for is not counted. */
Test(audit, waiting_other_than_the_places_is_found)
{
    must_run(session, "INSERT INTO permit_request (id, external_id, state, place, server_id) VALUES"
                      " (20001, 'w1', 3, '2026-11-21', 4), (20002, 'w2', 3, '2026-11-21', 4),"
                      " (20003, 'w3', 3, '2026-11-21', NULL);"
                      "INSERT INTO waiter (semaphore_id, place, permit_request_id, count) VALUES (2, '2026-11-21', "
                      "20001, 1), (2, '2026-11-21', 20002, 1),"
                      " (2, '2026-11-21', 20003, 1), (30, '2026-11-21', 20001, 1);"
                      "UPDATE semaphore SET waiting = 2 WHERE id = 2; UPDATE semaphore SET waiting = 1 WHERE id = 30");
    cr_assert_eq(semaphore_after(1).drift_count, 0);
    cr_assert_eq(semaphore_after(2).drift_count, 0);
    must_run(session, "UPDATE semaphore SET waiting = 3 WHERE id = 2; UPDATE semaphore SET waiting = 0 WHERE id = 30");
    finds(1, "seats",
          "in_use is 5, its held permits have 5 units; waiting is 3, clients ask for 2 places in its queue");
    finds(2, "empty",
          "in_use is 0, its held permits have 0 units; waiting is 0, clients ask for 1 places in its queue");
}

Test(audit, slots_without_their_permit_are_found)
{
    static const struct {
        const char *plant;
        const char *what;
    } rows[] = {
        {"UPDATE slot SET permit_id = 0 WHERE semaphore_id = 2 AND number = 2",
         "1 slots that are not with the permit that names them"},
        {"UPDATE slot SET permit_id = 8 WHERE semaphore_id = 2 AND number = 6",
         "1 slots that are not with the permit that names them"},
        {"UPDATE slot SET permit_id = 8 WHERE semaphore_id = 2 AND number = 1",
         "1 slots that are not with the permit that names them"},
        {"DELETE FROM slot WHERE semaphore_id = 2 AND number = 9",
         "1 slots that are not with the permit that names them"},
        {"DELETE FROM slot WHERE semaphore_id = 2 AND number = 8",
         "1 slots missing, or in service against the capacity"},
        {"UPDATE slot SET retired = 1 WHERE semaphore_id = 2 AND number = 8",
         "1 slots missing, or in service against the capacity"},
        {"UPDATE slot SET retired = 0 WHERE semaphore_id = 2 AND number = 10",
         "1 slots missing, or in service against the capacity"},
        {"UPDATE permit SET slots = '1-2' WHERE semaphore_id = 2 AND id = 7",
         "1 slots that are not with the permit that names them; 1 permits whose slots are not theirs alone, or not as"
         " many as they count"},
        {"UPDATE permit SET slots = '1-2,5' WHERE semaphore_id = 2 AND id = 7",
         "1 slots that are not with the permit that names them; 1 permits whose slots are not theirs alone, or not as"
         " many as they count"},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        char sentence[AUDIT_SENTENCE_SIZE];
        must_run(session, "BEGIN; CREATE TEMPORARY TABLE kept_slot AS SELECT * FROM slot;"
                          "CREATE TEMPORARY TABLE kept_permit AS SELECT * FROM permit WHERE semaphore_id = 2; COMMIT");
        must_run(session, rows[i].plant);
        snprintf(sentence, sizeof sentence, "in_use is 5, its held permits have 5 units; %s", rows[i].what);
        finds(1, "seats", sentence);
        must_run(session,
                 "BEGIN; DELETE FROM slot; DELETE FROM permit WHERE semaphore_id = 2;"
                 "INSERT INTO slot SELECT * FROM kept_slot; INSERT INTO permit (semaphore_id, id,"
                 " permit_request_id, count, slots) SELECT semaphore_id, id, permit_request_id, count, slots FROM"
                 " kept_permit;"
                 "COMMIT; DROP TEMPORARY TABLE kept_slot, kept_permit");
        cr_assert_eq(semaphore_after(1).drift_count, 0);
    }
}

Test(audit, held_permit_of_an_ended_request_is_found)
{
    change_bit(5007, true);
    finds(0, "many", "in_use is 10000, its held permits have 10001 units; 1 held permits of ended requests");
    must_run(session, "DELETE FROM permit_request WHERE id = 10007");
    finds(0, "many", "in_use is 10000, its held permits have 10001 units; 1 held permits of ended requests");
}

Test(audit, held_request_without_permits_is_found)
{
    struct audit_drift last;
    must_run(session, "DELETE FROM permit WHERE semaphore_id = 1 AND id IN (77, 1777)");
    cr_assert_eq(requests_found(&last), 2);
    cr_assert(last.is_request);
    cr_assert_str_eq(last.subject, "key1777");
    cr_assert_str_eq(last.sentence, "it is held and has no permits");
    must_run(session, "UPDATE held SET bits = bits & ~(1 << 7) WHERE semaphore_id = 2");
    cr_assert_eq(requests_found(&last), 3);
    change_bit(4999, false);
    cr_assert_eq(requests_found(&last), 4);
    cr_assert_str_eq(last.sentence, "it is held, and 1 of its 1 permits are not");
}

Test(audit, missing_bit_is_found)
{
    struct audit_drift last;
    change_bit(4000, false);
    finds(0, "many", "in_use is 10000, its held permits have 9998 units");
    cr_assert_eq(requests_found(&last), 1);
    cr_assert_str_eq(last.subject, "key4000");
    must_run(session, "DELETE FROM held WHERE semaphore_id = 2");
    cr_assert_eq(requests_found(&last), 4);
}

Test(audit, waiting_request_without_its_row_of_waiting_due_is_found)
{
    struct audit_drift last;
    must_run(session, "INSERT INTO permit_request (id, external_id, state, due_at) VALUES (90001, 'waits', 3, "
                      "'2026-11-21 00:00:07.5');"
                      "INSERT INTO waiting_due (due_s, permit_request_id) VALUES (1795219207, 90001)");
    cr_assert_eq(requests_found(&last), 0, "%s", last.sentence);
    must_run(session, "UPDATE waiting_due SET due_s = due_s + 1");
    cr_assert_eq(requests_found(&last), 1);
    cr_assert_str_eq(last.subject, "waits");
    cr_assert_str_eq(last.sentence, "it waits, and has no row of its deadline in waiting_due");
}

Test(audit, bit_without_a_permit_is_found)
{
    change_bit(5999, true);
    finds(0, "many", "in_use is 10000, its held permits have 10000 units; 1 bits of permits that do not exist");
    change_bit(5999, false);
    cr_assert_eq(semaphore_after(0).drift_count, 0);
}

/* 800 of request 8, on two pages, and two of request 3: it has given back 1 unit of its permit, and then 2. */
Test(audit, past_permit_that_no_exchange_has_left_is_found)
{
    static const char *const plants[] = {
        "UPDATE past_permit SET permit_request_id = 999999 WHERE id = 3 AND changes = 1",
        "UPDATE past_permit SET changes = 3 WHERE id = 3 AND changes = 2",
        "UPDATE past_permit SET count = 2 WHERE id = 3 AND changes = 2",
        "UPDATE past_permit SET end_reason = 7 WHERE id = 3 AND changes = 1",
        "UPDATE past_permit SET id = 6000 WHERE id = 5700 AND changes = 1",
        "UPDATE past_permit SET id = 4 WHERE id = 5700 AND changes = 1",
        "UPDATE past_permit SET changes = 0 WHERE id = 5900 AND changes = 1",
    };
    must_run(session,
             "UPDATE permit_request SET changes = 2, change_nonce = 'n' WHERE id IN (3, 8);"
             "INSERT INTO past_permit (semaphore_id, id, changes, permit_request_id, count, ended_at, end_reason)"
             " VALUES (1, 3, 1, 3, 5, '2026-11-21', 1), (1, 3, 2, 3, 4, '2026-11-21', 1);"
             "INSERT INTO past_permit (semaphore_id, id, changes, permit_request_id, count, ended_at, end_reason)"
             " SELECT 1, 5501 + seq DIV 3, 1 + seq % 2, 8, 1, '2026-11-21', 7 FROM numbers.upto"
             " WHERE seq <= 1200 AND seq % 3 < 2");
    cr_assert_eq(semaphore_after(0).drift_count, 0, "%s", semaphore_after(0).drifts->sentence);
    for (size_t i = 0; i < ARRAY_LENGTH(plants); i++) {
        must_run(session, "CREATE TEMPORARY TABLE kept AS SELECT * FROM past_permit");
        must_run(session, plants[i]);
        finds(0, "many",
              "in_use is 10000, its held permits have 10000 units; 1 past permits that no exchange of their request has"
              " left");
        must_run(session, "BEGIN; DELETE FROM past_permit; INSERT INTO past_permit SELECT * FROM kept; COMMIT;"
                          "DROP TEMPORARY TABLE kept");
    }
}

/* The bits of a block move to another second, and those of another block to another owner. */
Test(audit, bit_in_the_row_of_another_deadline_or_owner_is_found)
{
    struct audit_drift last;
    must_run(session, "UPDATE held SET due_s = due_s + 1 WHERE semaphore_id = 1 AND block = 40;"
                      "UPDATE held SET owner = 'other' WHERE semaphore_id = 1 AND block = 3");
    finds(0, "many",
          "in_use is 10000, its held permits have 10000 units; 128 held permits whose bit has another owner or"
          " deadline");
    cr_assert_eq(requests_found(&last), 128);
}

/* The read view is closed, and the session's own isolation level is restored. */
Test(audit, comparison_leaves_no_transaction_and_no_setting)
{
    semaphore_after(0);
    cr_assert_eq(number_of(session, "SELECT COUNT(*) FROM information_schema.INNODB_TRX WHERE trx_mysql_thread_id ="
                                    " CONNECTION_ID()"),
                 0);
    cr_assert_str_eq(isolation_of(session), "READ-COMMITTED");
}

/* Each comparison runs within one read view, and does not see changes committed between two pages. */
Test(audit, semaphore_changed_between_two_pages_matches)
{
    struct audit_result result;
    struct audit audit;
    struct session *other = connected(address, STORE_READER);
    enum permit_status status = store->audit->begin(&audit, store, 0, &arena);
    cr_assert_eq(status, PERMIT_OK);
    for (int i = 0; i < 100 && status == PERMIT_OK && audit.step != AUDIT_DONE; i++) {
        char sql[512];
        snprintf(sql, sizeof sql,
                 "BEGIN; UPDATE semaphore SET in_use = in_use - 2 WHERE id = 1;"
                 "UPDATE held SET bits = bits & ~(1 << ((5000 - %d) %% 64))"
                 " WHERE semaphore_id = 1 AND block = (5000 - %d) DIV 64;"
                 "UPDATE permit_request SET state = 2 WHERE id = 5000 - %d; COMMIT",
                 i, i, i);
        must_run(other, sql);
        status = store->audit->step(&audit);
    }
    cr_assert_eq(store->audit->end(&audit, status, &result), PERMIT_OK);
    cr_assert_eq(result.drift_count, 0, "%s", result.drifts ? result.drifts->sentence : "");
    cr_assert_eq(audit.held, 10000);
    session_free(other);
}

/* Retention takes COMMITs of other sessions as a sign of a busy database. */
Test(audit, comparisons_do_not_count_as_commits)
{
    int64_t before = counter_of(session, "Com_commit");
    semaphore_after(0);
    cr_assert_eq(counter_of(session, "Com_commit"), before);
}

/* A comparison is abandoned, as when permitd stops. */
Test(audit, abandoned_comparison_leaves_no_transaction)
{
    struct audit_result result;
    struct audit audit;
    cr_assert_eq(store->audit->begin(&audit, store, 0, &arena), PERMIT_OK);
    cr_assert_eq(store->audit->step(&audit), PERMIT_OK);
    cr_assert_eq(store->audit->end(&audit, PERMIT_SHUTTING_DOWN, &result), PERMIT_SHUTTING_DOWN);
    cr_assert_not(in_transaction(session));
    cr_assert_eq(semaphore_after(0).drift_count, 0);
}

Test(audit, failed_step_leaves_its_message)
{
    struct audit_result result;
    struct audit audit;
    cr_assert_eq(store->audit->begin(&audit, store, 0, &arena), PERMIT_OK);
    must_run_long(address, "RENAME TABLE permit TO renamed");
    cr_assert_eq(store->audit->step(&audit), PERMIT_INTERNAL);
    cr_assert_eq(store->audit->end(&audit, PERMIT_INTERNAL, &result), PERMIT_INTERNAL);
    cr_assert(strstr(store->message, "permit"), "%s", store->message);
    cr_assert_not(in_transaction(session));
}

/* Each comparison reads only the rows it compares. */
Test(audit, unrelated_rows_are_not_read)
{
    struct audit_result result;
    uint64_t last;
    (void)rows_read(session);
    semaphore_after(1);
    cr_assert_lt(rows_read(session), 400);
    cr_assert_eq(store->audit->requests(store, 2000, &arena, &result, &last), PERMIT_OK);
    cr_assert_eq(last, 2000 + AUDIT_PAGE);
    cr_assert_lt(rows_read(session), 7 * AUDIT_PAGE);
}
