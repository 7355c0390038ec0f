/* SPDX-License-Identifier: MIT */
/* Ends of permits, operators' commands, and the record of both, as transcripts. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fixture.h"
#include "held_rows.h"

static const char *hold(struct talk *talk, const char *semaphore, const char *ttl)
{
    const char *key = fresh_name("k");
    say(talk, 201, "POST", "/v1/requests", acquire_body(key, semaphore, 1, ttl ? text(",\"ttl\":\"%s\"", ttl) : ""));
    return key;
}

static const char *request_part(const char *key, const char *what)
{
    return text("/v1/requests/%s%s", key, what);
}

static const char *semaphore_part(const char *name, const char *what)
{
    return text("/v1/semaphores/%s%s", name, what);
}

static const char *member(const struct talk *talk, const char *path)
{
    char *value = kit_json_text(talk->reply.body, path);
    cr_assert_not_null(value, "no %s in %s", path, talk->reply.body);
    return kept(value);
}

/* ---- confirm ---- */

Test(confirm, makes_a_hold_permanent)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":1}");
    const char *key = hold(&talk, name, "1h");
    cr_assert(kit_json_has(talk.reply.body, "expires_in_ms"));
    say(&talk, 200, "POST", request_part(key, "/confirm"), NULL);
    const char *confirmed_at = member(&talk, "confirmed_at");
    cr_assert_not(kit_json_has(talk.reply.body, "expires_in_ms"));
    cr_assert(strstr(talk.reply.body, "\"expires_at\":null"), "%s", talk.reply.body);
    say(&talk, 200, "POST", request_part(key, "/confirm"), " {} ");
    text_is(&talk, "confirmed_at", confirmed_at);
    say(&talk, 200, "POST", request_part(key, "/renew"), "{\"ttl\":\"1s\"}");
    cr_assert_not(kit_json_has(talk.reply.body, "expires_in_ms"), "a renewal has given it a deadline");
    say(&talk, 200, "GET", request_path(key), NULL);
    text_is(&talk, "confirmed_at", confirmed_at);
    say(&talk, 200, "GET", semaphore_part(name, "/holders"), NULL);
    text_is(&talk, "holders.0.confirmed_at", confirmed_at);
    talk_end(&talk);
}

Test(confirm, is_refused_unless_the_request_is_held)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":1}");
    const char *key = hold(&talk, name, NULL);
    refused(&talk, 404, "unknown_request", "POST", request_part(fresh_name("k"), "/confirm"), NULL);
    refused(&talk, 422, "invalid", "POST", request_part(key, "/confirm"), "{\"ttl\":\"1m\"}");
    release(&talk, key);
    refused(&talk, 410, "ended", "POST", request_part(key, "/confirm"), NULL);
    text_is(&talk, "end_reason", "released");
    talk_end(&talk);
}

Test(confirm, confirmed_request_is_released_only_with_confirmed_true)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":1}");
    const char *key = hold(&talk, name, NULL);
    say(&talk, 200, "POST", request_part(key, "/confirm"), NULL);
    refused(&talk, 409, "confirmed", "DELETE", request_path(key), NULL);
    refused(&talk, 409, "confirmed", "DELETE", request_part(key, "?confirmed=false"), NULL);
    refused(&talk, 422, "invalid", "DELETE", request_part(key, "?confirmed=yes"), NULL);
    refused(&talk, 422, "invalid", "DELETE", request_part(key, "?force=true"), NULL);
    say(&talk, 200, "DELETE", request_part(key, "?confirmed=true"), NULL);
    text_is(&talk, "end_reason", "released");
    cr_assert(kit_json_has(talk.reply.body, "confirmed_at"));
    release(&talk, key);
    cr_assert(kit_json_true(talk.reply.body, "already_released"));
    talk_end(&talk);
}

Test(confirm, is_a_batch_operation)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":1}");
    const char *key = hold(&talk, name, NULL);
    say(&talk, 200, "POST", "/v1/batch",
        text("{\"operations\":[{\"op\":\"confirm\",\"external_id\":\"%s\"},{\"op\":\"release\",\"external_id\":\"%s\"},"
             "{\"op\":\"confirm\",\"external_id\":\"%s\",\"ttl\":1},{\"op\":\"confirm\"},"
             "{\"op\":\"release\",\"external_id\":\"%s\",\"confirmed\":1}]}",
             key, key, key, key));
    static const int expected[] = {200, 409, 422, 422, 422};
    for (int i = 0; i < 5; i++)
        cr_assert_eq(number_of(&talk, text("results.%d.status", i)), expected[i], "%d: %s", i, talk.reply.body);
    say(&talk, 200, "POST", "/v1/batch",
        text("{\"operations\":[{\"op\":\"release\",\"external_id\":\"%s\",\"confirmed\":true}]}", key));
    text_is(&talk, "results.0.body.state", "RELEASED");
    talk_end(&talk);
}

/* ---- deadlines ---- */

Test(expiry, due_permit_is_ended_for_a_new_request_as_expired)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":1}");
    const char *key = hold(&talk, name, "1ms");
    cr_assert_geq(number_of(&talk, "expires_in_ms"), 0);
    const char *next = fresh_name("k");
    int64_t until = kit_now_us() + 60000000; /* a permitd that starts adds 5 s to deadlines */
    do {
        reply_release(&talk.reply);
        cr_assert(kit_http_post(&talk.http, "/v1/requests", acquire_body(next, name, 1, ""), &talk.reply));
    } while (talk.reply.status == 423 && kit_now_us() < until);
    cr_assert_eq(talk.reply.status, 201, "%s", talk.reply.body);
    say(&talk, 200, "GET", request_path(key), NULL);
    text_is(&talk, "end_reason", "expired");
    refused(&talk, 410, "ended", "POST", request_part(key, "/renew"), NULL);
    text_is(&talk, "end_reason", "expired");
    refused(&talk, 410, "ended", "POST", request_part(key, "/confirm"), NULL);
    talk_end(&talk);
}

/*
 * Moves the deadline of a held request to before its start, in one transaction under the lock of its semaphore. The own
 * clock of permitd is less than 10 s behind the times in the rows.
 */
static void end_lease(struct kit_sql *sql, const char *key)
{
    int64_t semaphore = kit_sql_number(sql,
                                       "SELECT p.semaphore_id FROM permit p JOIN permit_request r"
                                       " ON r.id=p.permit_request_id WHERE r.external_id='%s'",
                                       key);
    kit_sql_run(sql, "BEGIN");
    (void)kit_sql_number(sql, "SELECT id FROM semaphore WHERE id=%lld FOR UPDATE", (long long)semaphore);
    kit_sql_run(sql, "DELETE FROM held WHERE semaphore_id=%lld", (long long)semaphore);
    kit_sql_run(sql, "UPDATE permit_request SET due_at=acquired_at-INTERVAL 10 SECOND WHERE external_id='%s'", key);
    kit_sql_run(sql, HELD_ROWS_ADD("p.semaphore_id=%lld"), (long long)semaphore);
    kit_sql_run(sql, "COMMIT");
}

/* Ends the lease of a new hold; permitd ends it within 2 s. Returns false if permitd was faster than the queries. */
static bool seen_overdue(struct talk *talk, struct kit_sql *sql, const char *name)
{
    const char *key = hold(talk, name, "1h");
    end_lease(sql, key);
    say(talk, 200, "GET", semaphore_part(name, "/holders"), NULL);
    bool listed = kit_json_true(talk->reply.body, "holders.0.overdue");
    if (listed)
        cr_assert_eq(number_of(talk, "holders.0.expires_in_ms"), 0);
    say(talk, 200, "GET", text("/v1/requests?semaphore=%s&state=ACQUIRED", name), NULL);
    listed &= kit_json_true(talk->reply.body, "requests.0.overdue");
    say(talk, 200, "GET", request_path(key), NULL);
    if (!listed || !kit_json_true(talk->reply.body, "overdue"))
        return false;
    cr_assert_eq(number_of(talk, "expires_in_ms"), 0);
    return true;
}

/* On its own database, because the test changes rows directly. */
Test(expiry, due_request_is_shown_as_overdue_until_it_ends)
{
    struct kit_permitd *permitd = own_permitd(NULL);
    struct kit_sql *sql = own_sql("own0");
    struct talk talk = talk_to(permitd->port);
    bool seen = false;
    for (int tries = 0; tries < 50 && !seen; tries++)
        seen = seen_overdue(&talk, sql, fresh_semaphore(&talk, "{\"capacity\":1}"));
    cr_assert(seen);
    talk_end(&talk);
    kit_sql_close(sql);
    kit_permitd_stop(permitd);
}

/* ---- force-release ---- */

Test(force_release, ends_a_request_and_records_the_reason)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":1}");
    const char *key = hold(&talk, name, NULL);
    say(&talk, 200, "POST", request_part(key, "/confirm"), NULL);
    say(&talk, 200, "POST", request_part(key, "/force-release"), "{\"reason\":\"db7 is gone \\u00fc\"}");
    text_is(&talk, "state", "RELEASED");
    text_is(&talk, "end_reason", "forced");
    cr_assert_not(kit_json_true(talk.reply.body, "already_released"));
    say(&talk, 200, "POST", request_part(key, "/force-release"), "{\"reason\":\"again\"}");
    cr_assert(kit_json_true(talk.reply.body, "already_released"));
    refused(&talk, 410, "ended", "POST", request_part(key, "/renew"), NULL);
    text_is(&talk, "end_reason", "forced");
    say(&talk, 200, "GET", semaphore_part(name, "/events"), NULL);
    text_is(&talk, "events.0.what", "forced");
    text_is(&talk, "events.0.from", key);
    text_is(&talk, "events.0.why", "db7 is gone \xc3\xbc");
    talk_end(&talk);
}

Test(force_release, requires_a_reason_and_a_known_request)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":1}");
    const char *path = request_part(hold(&talk, name, NULL), "/force-release");
    char *longest = kept(malloc(1100));
    memset(longest, 'x', 1099);
    longest[1000] = '\0';
    refused(&talk, 404, "unknown_request", "POST", request_part(fresh_name("k"), "/force-release"),
            "{\"reason\":\"why\"}");
    refused(&talk, 422, "invalid", "POST", path, NULL);
    refused(&talk, 422, "invalid", "POST", path, "{}");
    refused(&talk, 422, "invalid", "POST", path, "{\"reason\":\"\"}");
    refused(&talk, 422, "invalid", "POST", path, "{\"reason\":7}");
    refused(&talk, 422, "invalid", "POST", path, "{\"reason\":null}");
    refused(&talk, 422, "invalid", "POST", path, "{\"reason\":\"two\\nlines\"}");
    refused(&talk, 422, "invalid", "POST", path, "{\"reason\":\"\\u0085\"}");
    refused(&talk, 422, "invalid", "POST", path, "{\"reason\":\"why\",\"who\":\"me\"}");
    refused(&talk, 422, "invalid", "POST", path, text("{\"reason\":\"%sx\"}", longest));
    refused(&talk, 400, "malformed", "POST", path, "{\"reason\":");
    say(&talk, 200, "POST", path, text("{\"reason\":\"%s\"}", longest));
    talk_end(&talk);
}

/* ---- pause and resume ---- */

Test(pause, stops_new_grants_and_reports_the_reason)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":2}");
    const char *key = hold(&talk, name, NULL);
    say(&talk, 200, "POST", semaphore_part(name, "/pause"), "{\"reason\":\"disk swap\"}");
    text_is(&talk, "paused_reason", "disk swap");
    say(&talk, 200, "POST", semaphore_part(name, "/pause"), "{\"reason\":\"disk swap\"}");
    refused(&talk, 423, "paused", "POST", "/v1/requests", acquire_body(fresh_name("k"), name, 1, ""));
    text_is(&talk, "detail", text("%s is paused: disk swap", name));
    cr_assert_gt(number_of(&talk, "retry_after_ms"), 0);
    say(&talk, 200, "POST", "/v1/requests", acquire_body(key, name, 1, ""));
    say(&talk, 200, "POST", request_part(key, "/renew"), NULL);
    release(&talk, key);
    say(&talk, 200, "GET", semaphore_path(name), NULL);
    text_is(&talk, "paused_reason", "disk swap");
    say(&talk, 200, "POST", semaphore_part(name, "/resume"), NULL);
    cr_assert_not(kit_json_has(talk.reply.body, "paused_reason"));
    say(&talk, 200, "POST", semaphore_part(name, "/resume"), "{}");
    (void)hold(&talk, name, NULL);
    say(&talk, 200, "GET", semaphore_part(name, "/events"), NULL);
    text_is(&talk, "events.0.what", "resumed");
    text_is(&talk, "events.1.what", "paused");
    text_is(&talk, "events.1.why", "disk swap");
    talk_end(&talk);
}

Test(pause, is_refused_without_reason_or_semaphore)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":2}");
    refused(&talk, 422, "invalid", "POST", semaphore_part(name, "/pause"), NULL);
    refused(&talk, 422, "invalid", "POST", semaphore_part(name, "/pause"), "{\"reason\":\"\"}");
    refused(&talk, 422, "invalid", "POST", semaphore_part(name, "/resume"), "{\"reason\":\"x\"}");
    refused(&talk, 404, "unknown_semaphore", "POST", semaphore_part(fresh_name("s"), "/pause"), "{\"reason\":\"x\"}");
    refused(&talk, 404, "unknown_semaphore", "POST", semaphore_part(fresh_name("s"), "/resume"), NULL);
    refused(&talk, 405, "method_not_allowed", "GET", semaphore_part(name, "/pause"), NULL);
    header_is(&talk, "Allow", "POST, OPTIONS");
    talk_end(&talk);
}

/* ---- events ---- */

/* Counts the page's events of the semaphore itself. Epoch events concern all semaphores and are left out. */
static int own_events(const struct talk *talk)
{
    int own = 0;
    for (long i = 0; i < kit_json_length(talk->reply.body, "events"); i++)
        own += strcmp(member(talk, text("events.%ld.what", i)), "epoch") != 0;
    return own;
}

Test(events, are_listed_newest_first_in_pages_even_after_retiring)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":1}");
    for (int i = 2; i <= 4; i++)
        say(&talk, 200, "PUT", semaphore_path(name), text("{\"capacity\":%d}", i));
    say(&talk, 200, "DELETE", semaphore_path(name), NULL);
    say(&talk, 200, "GET", semaphore_part(name, "/events"), NULL);
    text_is(&talk, "events.0.what", "retired");
    text_is(&talk, "events.1.what", "capacity");
    text_is(&talk, "events.1.from", "3");
    text_is(&talk, "events.1.to", "4");
    cr_assert(kit_json_has(talk.reply.body, "events.1.at"));
    cr_assert_eq(number_of(&talk, "events.1.next_permit_id"), 1);
    cr_assert_eq(own_events(&talk), 5);
    int own = 0;
    const char *after = "0";
    for (int page = 0; page < 100 && after; page++) {
        say(&talk, 200, "GET", semaphore_part(name, text("/events?limit=2&after=%s", after)), NULL);
        cr_assert_leq(kit_json_length(talk.reply.body, "events"), 2);
        own += own_events(&talk);
        after = kit_json_has(talk.reply.body, "next") ? member(&talk, "next") : NULL;
    }
    cr_assert_eq(own, 5);
    refused(&talk, 404, "unknown_semaphore", "GET", semaphore_part(fresh_name("s"), "/events"), NULL);
    refused(&talk, 422, "invalid", "GET", semaphore_part(name, "/events?limit=0"), NULL);
    refused(&talk, 422, "invalid", "GET", semaphore_part(name, "/events?after=x"), NULL);
    refused(&talk, 405, "method_not_allowed", "POST", semaphore_part(name, "/events"), NULL);
    talk_end(&talk);
}

/* ---- history ---- */

static long held_at(struct talk *talk, const char *name, const char *at)
{
    say(talk, 200, "GET", text("/v1/requests?semaphore=%s&at=%s", name, at), NULL);
    return kit_json_length(talk->reply.body, "requests");
}

Test(history, one_query_lists_the_holders_at_a_time)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":2}");
    const char *first = hold(&talk, name, NULL);
    const char *first_from = member(&talk, "acquired_at");
    const char *second = hold(&talk, name, NULL);
    const char *second_from = member(&talk, "acquired_at");
    release(&talk, first);
    const char *first_to = member(&talk, "ended_at");
    cr_assert_eq(held_at(&talk, name, first_from), 1, "%s", talk.reply.body);
    text_is(&talk, "requests.0.external_id", first);
    text_is(&talk, "requests.0.end_reason", "released");
    cr_assert_eq(held_at(&talk, name, second_from), 2, "%s", talk.reply.body);
    text_is(&talk, "requests.0.external_id", second);
    cr_assert_eq(held_at(&talk, name, first_to), 1, "%s", talk.reply.body);
    text_is(&talk, "requests.0.external_id", second);
    cr_assert_eq(held_at(&talk, name, "2026-01-01T00:00:00Z"), 0);
    cr_assert_eq(held_at(&talk, name, "2999-01-01T00:00:00.5%2B01:00"), 1, "later than now is now");
    say(&talk, 200, "GET", text("/v1/requests?semaphore=%s&at=%s&limit=1", name, second_from), NULL);
    text_is(&talk, "requests.0.external_id", second);
    const char *next = member(&talk, "next");
    say(&talk, 200, "GET", text("/v1/requests?semaphore=%s&at=%s&limit=1&after=%s", name, second_from, next), NULL);
    text_is(&talk, "requests.0.external_id", first);
    cr_assert_not(kit_json_has(talk.reply.body, "next"));
    talk_end(&talk);
}

Test(history, invalid_time_is_refused)
{
    struct talk talk = talk_to(shared_port());
    static const char *const bad[] = {
        "yesterday", "2026-11-21",           "2026-02-30T00:00:00Z",         "2026-11-21T02:14:00",
        "",          "2026-11-21T24:00:00Z", "2026-11-21T02:14:00.1234567Z", "2026-11-21T02:14:00%2B1:00",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        refused(&talk, 422, "invalid", "GET", text("/v1/requests?semaphore=a&at=%s", bad[i]), NULL);
    refused(&talk, 422, "invalid", "GET", "/v1/requests?at=2026-11-21T02:14:00Z", NULL);
    refused(&talk, 422, "invalid", "GET", "/v1/requests?semaphore=a&state=ACQUIRED&at=2026-11-21T02:14:00Z", NULL);
    talk_end(&talk);
}

/* ---- the epoch ---- */

/* On its own permitd, because grants stop for a while. */
Test(fence, bump_raises_tokens_above_every_issued_one)
{
    struct kit_permitd *permitd = own_permitd((const char *const[]){"--failover-hold", "1s", NULL});
    struct talk talk = talk_to(permitd->port);
    const char *name = fresh_semaphore(&talk, "{\"capacity\":2}");
    const char *key = hold(&talk, name, NULL);
    refused(&talk, 422, "invalid", "POST", "/v1/fence/bump", NULL);
    refused(&talk, 422, "invalid", "POST", "/v1/fence/bump", "{\"reason\":\"\"}");
    refused(&talk, 405, "method_not_allowed", "GET", "/v1/fence/bump", NULL);
    refused(&talk, 404, "unknown_path", "POST", "/v1/fence", NULL);
    say(&talk, 200, "POST", "/v1/fence/bump", "{\"reason\":\"restored from Friday\"}");
    int64_t tokens_from = number_of(&talk, "tokens_from");
    cr_assert_eq(tokens_from, number_of(&talk, "epoch") * 1024);
    cr_assert_eq(number_of(&talk, "hold_ms"), 1000);
    say(&talk, 200, "POST", request_part(key, "/renew"), NULL);
    const char *next = fresh_name("k");
    for (int tries = 0; tries < 100000; tries++) {
        reply_release(&talk.reply);
        cr_assert(kit_http_post(&talk.http, "/v1/requests", acquire_body(next, name, 1, ""), &talk.reply));
        if (talk.reply.status != 503)
            break;
    }
    cr_assert_eq(talk.reply.status, 201, "%s", talk.reply.body);
    cr_assert_geq(number_of(&talk, "permits.0.token"), tokens_from);
    say(&talk, 200, "GET", semaphore_part(name, "/events"), NULL);
    text_is(&talk, "events.0.what", "epoch");
    text_is(&talk, "events.0.why", "restored from Friday");
    cr_assert_eq(number_of(&talk, "events.0.next_permit_id"), tokens_from);
    talk_end(&talk);
    kit_permitd_stop(permitd);
}

/* Two permitd on one database: each sees the other's bump. */
Test(fence, repeated_bumps_are_refused)
{
    static const char reason[] = "{\"reason\":\"a test\"}";
    struct kit_permitd_options options = {.database = own_url("bumped"),
                                          .flags = (const char *const[]){"--failover-hold", "30s", NULL}};
    struct kit_permitd *permitd[2] = {kit_permitd_start(&options), kit_permitd_start(&options)};
    struct talk talk = talk_to(permitd[0]->port);
    struct talk other = talk_to(permitd[1]->port);
    say(&talk, 200, "POST", "/v1/fence/bump", reason);
    int64_t epoch = number_of(&talk, "epoch");
    refused(&talk, 429, "too_many", "POST", "/v1/fence/bump", reason);
    refused(&other, 429, "too_many", "POST", "/v1/fence/bump", reason);
    cr_assert_eq(number_of(&other, "epoch"), epoch);
    cr_assert_eq(number_of(&other, "tokens_from"), epoch * 1024);
    cr_assert(number_of(&other, "retry_after_ms") > 0 && number_of(&other, "retry_after_ms") <= 60000);
    struct kit_sql *sql = own_sql("bumped");
    kit_sql_run(sql, "UPDATE cluster SET grants_from = grants_from - INTERVAL 1 HOUR");
    say(&other, 200, "POST", "/v1/fence/bump", reason);
    cr_assert_gt(number_of(&other, "epoch"), epoch);
    refused(&talk, 429, "too_many", "POST", "/v1/fence/bump", reason);
    kit_sql_close(sql);
    talk_end(&talk);
    talk_end(&other);
    kit_permitd_stop(permitd[0]);
    kit_permitd_stop(permitd[1]);
}
