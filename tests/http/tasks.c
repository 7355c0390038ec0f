/* SPDX-License-Identifier: MIT */
/* Tasks: retention deletes requests that ended long ago, the audit compares the rows. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fixture.h"

enum { PATIENCE_MS = 60000 };

/* Two permitd that share one database. */
struct pair {
    struct kit_permitd *permitd[2];
    struct talk talks[2];
    struct kit_sql *sql;
};

static struct pair pair_start(const struct kit_database *database)
{
    struct pair pair;
    for (int i = 0; i < 2; i++) {
        pair.permitd[i] =
            kit_permitd_start(&(struct kit_permitd_options){.database = database->url, .flags = patient_flags});
        pair.talks[i] = talk_to(pair.permitd[i]->port);
    }
    pair.sql = kit_sql_open(database->socket, "permitd");
    kit_sql_make_numbers(pair.sql);
    return pair;
}

static void pair_stop(struct pair *pair)
{
    kit_sql_close(pair->sql);
    for (int i = 0; i < 2; i++) {
        talk_end(&pair->talks[i]);
        int64_t started = kit_now_us();
        kit_permitd_stop(pair->permitd[i]);
        cr_assert_lt(kit_now_us() - started, 10 * 1000000);
    }
}

/* ---- retention ---- */

/*
 * Inserts `count` requests that ended eight days ago, and as many permits, with ids above `after`. One transaction, so
 * that retention sees all of them or none.
 */
static void insert_ended(struct kit_sql *sql, int after, int count)
{
    kit_sql_run(sql, "BEGIN");
    kit_sql_run(sql,
                "INSERT INTO permit_request (id, external_id, state, end_reason, due_at, acquired_at, ended_at)"
                " SELECT %d + seq, CONCAT('old', seq), 2, 1, SYSDATE(6) - INTERVAL 1 DAY, SYSDATE(6) - INTERVAL 8 DAY,"
                " SYSDATE(6) - INTERVAL 8 DAY FROM numbers.upto WHERE seq <= %d",
                after, count);
    kit_sql_run(sql,
                "INSERT INTO permit (semaphore_id, id, permit_request_id, count)"
                " SELECT 999999999, %d + seq, %d + seq, 1 FROM numbers.upto WHERE seq <= %d",
                after, after, count);
    kit_sql_run(sql, "COMMIT");
}

static bool nothing_ended_is_left(void *context)
{
    return kit_sql_number(context, "SELECT COUNT(*) FROM permit_request WHERE external_id LIKE 'old%%'") == 0;
}

/* permitd counts a batch after its COMMIT, so the metric follows the rows. */
static bool five_thousand_are_counted(void *context)
{
    struct pair *pair = context;
    double cleaned = 0;
    for (int i = 0; i < 2; i++)
        cleaned += metric_of(&pair->talks[i], "permitd_cleaned_total{what=\"requests\"}");
    return cleaned == 5000;
}

Test(tasks, old_requests_are_deleted_by_one_of_two_servers, .timeout = 180)
{
    struct kit_database *database = kit_database_start(NULL);
    struct pair pair = pair_start(database);
    say(&pair.talks[0], 201, "PUT", "/v1/semaphores/s", "{\"capacity\":10}");
    say(&pair.talks[0], 201, "POST", "/v1/requests", "{\"external_id\":\"live\",\"permits\":[{\"semaphore\":\"s\"}]}");
    say(&pair.talks[0], 201, "POST", "/v1/requests", "{\"external_id\":\"new\",\"permits\":[{\"semaphore\":\"s\"}]}");
    say(&pair.talks[1], 200, "DELETE", "/v1/requests/new", NULL);
    insert_ended(pair.sql, 1000000000, 5000);
    kit_sql_run(pair.sql, "INSERT INTO semaphore_event (semaphore_id, at, what, next_permit_id) VALUES"
                          " (1, SYSDATE(6) - INTERVAL 31 DAY, 'paused', 1)");
    cr_assert(kit_wait_until(nothing_ended_is_left, pair.sql, PATIENCE_MS));
    cr_assert_eq(kit_sql_number(pair.sql, "SELECT COUNT(*) FROM permit WHERE semaphore_id = 999999999"), 0);
    cr_assert_eq(kit_sql_number(pair.sql, "SELECT COUNT(*) FROM permit_request"), 2);
    cr_assert(kit_wait_until(five_thousand_are_counted, &pair, PATIENCE_MS));
    say(&pair.talks[1], 200, "GET", "/v1/requests/new", NULL);
    text_is(&pair.talks[1], "end_reason", "released");
    pair_stop(&pair);
    kit_database_stop(database);
}

struct logged {
    struct pair *pair;
    const char *retention, *audit; /* a line of each task */
};

static bool both_have_logged(void *context)
{
    const struct logged *logged = context;
    for (int i = 0; i < 2; i++)
        if (!log_count(logged->pair->permitd[i], logged->retention) ||
            !log_count(logged->pair->permitd[i], logged->audit))
            return false;
    return true;
}

Test(tasks, tasks_continue_after_a_database_outage, .timeout = 180)
{
    struct kit_database *database = kit_database_start(NULL);
    struct pair pair = pair_start(database);
    struct logged failures = {&pair, "task failed, retrying task=retention", "task failed, retrying task=audit"};
    struct logged recoveries = {&pair, "task recovered task=retention", "task recovered task=audit"};
    kit_sql_close(pair.sql);
    kit_database_kill(database);
    cr_assert(kit_wait_until(both_have_logged, &failures, PATIENCE_MS));
    kit_database_restart(database);
    pair.sql = kit_sql_open(database->socket, "permitd");
    insert_ended(pair.sql, 1000000000, 100);
    cr_assert(kit_wait_until(nothing_ended_is_left, pair.sql, PATIENCE_MS));
    cr_assert(kit_wait_until(both_have_logged, &recoveries, PATIENCE_MS));
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(log_count(pair.permitd[i], "error=\"\""), 0, "a failure without a cause");
        cr_assert_leq(log_count(pair.permitd[i], "task=retention"), 4, "it floods the log");
        cr_assert_leq(log_count(pair.permitd[i], "task=audit"), 4, "it floods the log");
    }
    pair_stop(&pair);
    kit_database_stop(database);
}

/* ---- audit ---- */

struct expected {
    struct talk *talk;
    const char *name;
    double value;
};

static bool is_at_least(void *context)
{
    const struct expected *expected = context;
    return metric_of(expected->talk, expected->name) >= expected->value;
}

static bool is_exactly(void *context)
{
    const struct expected *expected = context;
    return metric_of(expected->talk, expected->name) == expected->value;
}

static void wait_for_drifts(struct talk *talk, double drifts)
{
    cr_assert(kit_wait_until(is_exactly, &(struct expected){talk, "permitd_usage_drift", drifts}, PATIENCE_MS),
              "%g drifts expected, %g seen", drifts, metric_of(talk, "permitd_usage_drift"));
}

static void wait_for_rounds(struct talk *talk, double rounds)
{
    double before = metric_of(talk, "permitd_audit_rounds_total");
    cr_assert(kit_wait_until(is_at_least, &(struct expected){talk, "permitd_audit_rounds_total", before + rounds},
                             PATIENCE_MS));
}

Test(tasks, audit_logs_each_mismatch_once_and_its_resolution, .timeout = 180)
{
    struct kit_database *database = kit_database_start(NULL);
    struct pair pair = pair_start(database);
    struct talk *talk = &pair.talks[0];
    say(talk, 201, "PUT", "/v1/semaphores/seats", "{\"capacity\":10}");
    say(talk, 201, "PUT", "/v1/semaphores/units", "{\"capacity\":10,\"kind\":\"counted\"}");
    say(talk, 201, "POST", "/v1/requests",
        "{\"external_id\":\"k\",\"permits\":[{\"semaphore\":\"seats\",\"count\":3},{\"semaphore\":\"units\"}]}");
    wait_for_rounds(talk, 2);
    cr_assert_eq(metric_of(talk, "permitd_usage_drift"), 0);
    kit_sql_run(pair.sql, "UPDATE semaphore SET in_use = in_use + 1 WHERE name = 'units'");
    wait_for_drifts(talk, 1);
    kit_sql_run(pair.sql, "UPDATE slot SET permit_id = 0 WHERE number = 2");
    wait_for_drifts(talk, 2);
    kit_sql_run(pair.sql, "INSERT INTO permit_request (id, external_id, state) VALUES (999999999, 'bare', 1)");
    wait_for_drifts(talk, 3);
    say(talk, 200, "GET", "/v1/doctor", NULL);
    cr_assert(strstr(talk->reply.body, "semaphore units does not match its rows: in_use is 2"), "%s", talk->reply.body);
    cr_assert_eq(number_of(talk, "warnings"), 3, "%s", talk->reply.body);
    wait_for_rounds(talk, 2);
    cr_assert_eq(log_count(pair.permitd[0], "usage mismatch"), 3, "once each, not each round");
    cr_assert_eq(log_count(pair.permitd[0], "semaphore=units finding=\"in_use is 2, its held permits have 1 units"), 1);
    cr_assert_eq(log_count(pair.permitd[0], "semaphore=seats"), 1);
    cr_assert_eq(log_count(pair.permitd[0], "request=bare"), 1);
    kit_sql_run(pair.sql, "UPDATE slot SET permit_id = last_permit_id WHERE number = 2");
    kit_sql_run(pair.sql, "UPDATE semaphore SET in_use = in_use - 1 WHERE name = 'units'");
    kit_sql_run(pair.sql, "DELETE FROM permit_request WHERE external_id = 'bare'");
    wait_for_drifts(talk, 0);
    wait_for_drifts(&pair.talks[1], 0);
    cr_assert_eq(log_count(pair.permitd[0], "usage mismatch resolved"), 3);
    kit_sql_run(pair.sql, "UPDATE held SET owner = 'another'");
    wait_for_drifts(talk, 3); /* both semaphores, and the request, whose permits have no bits of its owner */
    kit_sql_run(pair.sql, "UPDATE held SET owner = ''");
    wait_for_drifts(talk, 0);
    pair_stop(&pair);
    kit_database_stop(database);
}
