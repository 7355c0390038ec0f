/* SPDX-License-Identifier: MIT */
/* GET /v1/semaphores/{name}/report: what a semaphore was used for. tenants.c: owners of other namespaces are hidden. */
#include <criterion/criterion.h>
#include <string.h>

#include "fixture.h"

enum { LONG_MS = 120000, OLD_PERMITS = 200500 };

static const char *report_path(const char *name, const char *query)
{
    return text("%s/report%s", semaphore_path(name), query);
}

static bool one_waits(void *context)
{
    struct talk talk = talk_to(shared_port());
    say(&talk, 200, "GET", semaphore_path(context), NULL);
    bool waits = number_of(&talk, "waiting") == 1;
    talk_end(&talk);
    return waits;
}

static const char *hold(struct talk *talk, const char *semaphore, int count, const char *more)
{
    const char *key = fresh_name("k");
    say(talk, 201, "POST", "/v1/requests", acquire_body(key, semaphore, count, more));
    return key;
}

Test(report, grants_waits_and_holds_are_summed_up_from_rows)
{
    struct talk talk = talk_to(shared_port()), waiter = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":3}");
    const char *first = hold(&talk, name, 3, ",\"owner\":\"first\"");
    const char *second = fresh_name("k");
    tell(&waiter, "POST", "/v1/requests",
         acquire_body(second, name, 1, ",\"owner\":\"second\",\"ttl\":\"1h\",\"wait\":\"2m\""));
    cr_assert(kit_wait_until(one_waits, (void *)name, LONG_MS));
    release(&talk, first);
    hear(&waiter, 201, NULL);
    say(&talk, 200, "POST", text("%s/confirm", request_path(second)), NULL);
    hold(&talk, name, 1, "");

    say(&talk, 200, "GET", report_path(name, ""), NULL);
    const char *body = talk.reply.body;
    text_is(&talk, "semaphore", name);
    cr_expect(kit_json_true(body, "complete"), "%s", body);
    cr_expect_eq(number_of(&talk, "grants"), 3, "%s", body);
    cr_expect_eq(number_of(&talk, "units"), 5, "%s", body);
    cr_expect_eq(number_of(&talk, "waited"), 1, "the row of a granted request keeps its wait: %s", body);
    cr_expect_eq(number_of(&talk, "wait_median_ms"), 0, "%s", body);
    cr_expect_eq(number_of(&talk, "wait_p95_ms"), number_of(&talk, "wait_longest_ms"), "%s", body);
    cr_expect_eq(number_of(&talk, "confirmed"), 1, "%s", body);
    cr_expect_eq(number_of(&talk, "in_use"), 2, "%s", body);
    cr_expect_eq(kit_json_length(body, "ended"), 1, "%s", body);
    text_is(&talk, "ended.0.end_reason", "released");
    cr_expect(kit_json_has(body, "hold_longest_ms"), "%s", body);
    cr_expect_eq(kit_json_length(body, "use"), 24, "%s", body);
    cr_expect_eq(kit_json_length(body, "owners"), 3, "%s", body);
    cr_expect_not_null(strstr(body, "{\"owner\":\"first\",\"grants\":1,\"units\":3,"), "%s", body);
    cr_expect_not_null(strstr(body, "{\"owner\":null,\"grants\":1,\"units\":1,"), "%s", body);
    cr_expect_eq(number_of(&talk, "others.grants"), 0, "%s", body);
    cr_expect_not_null(strstr(body, "\"not_recorded\":[\"refusals\",\"abandoned_waits\"]"), "%s", body);
    talk_end(&talk);
    talk_end(&waiter);
}

Test(report, exchanges_count_the_units_that_were_held_before)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":9}");
    const char *path = request_path(hold(&talk, name, 3, ""));
    const char *body = "{\"permits\":[{\"semaphore\":\"%s\",\"count\":2}],\"nonce\":\"n%d\",\"changes\":%d}";
    say(&talk, 200, "POST", text("%s/shrink", path), text(body, name, 0, 0));
    say(&talk, 200, "POST", text("%s/grow", path), text(body, name, 1, 1));
    say(&talk, 200, "GET", report_path(name, ""), NULL);
    const char *answer = talk.reply.body;
    cr_expect_eq(number_of(&talk, "grants"), 2, "%s", answer);
    cr_expect_eq(number_of(&talk, "units"), 6, "%s", answer);
    cr_expect_eq(number_of(&talk, "in_use"), 3, "%s", answer);
    cr_expect_not_null(strstr(answer, "\"ended\":[{\"end_reason\":\"released\",\"count\":1},"
                                      "{\"end_reason\":\"replaced\",\"count\":1}]"),
                       "%s", answer);
    talk_end(&talk);
}

Test(report, semaphore_that_nobody_used_has_no_times)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":1}");
    say(&talk, 200, "GET", report_path(name, "?since=90s"), NULL);
    cr_expect_eq(number_of(&talk, "grants"), 0);
    cr_expect_not(kit_json_has(talk.reply.body, "wait_median_ms"), "%s", talk.reply.body);
    cr_expect_not(kit_json_has(talk.reply.body, "hold_median_ms"), "%s", talk.reply.body);
    refused(&talk, 404, "unknown_semaphore", "GET", report_path(fresh_name("s"), ""), NULL);
    refused(&talk, 422, "invalid", "GET", report_path(name, "?since=yesterday"), NULL);
    refused(&talk, 422, "invalid", "GET", report_path(name, "?since=0s"), NULL);
    refused(&talk, 422, "invalid", "GET", report_path(name, "?since=367d"), NULL);
    refused(&talk, 422, "invalid", "GET", report_path(name, "?until=7d"), NULL);
    refused(&talk, 405, "method_not_allowed", "POST", report_path(name, ""), NULL);
    talk_end(&talk);
}

Test(report, one_that_has_too_much_to_read_says_from_when_it_is_whole, .timeout = 600)
{
    struct kit_permitd *permitd = own_permitd(NULL);
    struct talk talk = talk_to(permitd->port);
    struct kit_sql *sql = own_sql("own0");
    say(&talk, 201, "PUT", "/v1/semaphores/busy", "{\"capacity\":1000000,\"kind\":\"counted\"}");
    kit_sql_run(sql, "CREATE TABLE digits (n INT PRIMARY KEY)");
    kit_sql_run(sql, "INSERT INTO digits VALUES (0),(1),(2),(3),(4),(5),(6),(7),(8),(9)");
    int64_t id = kit_sql_number(sql, "SELECT id FROM semaphore WHERE name='busy'");
    kit_sql_run(sql,
                "INSERT INTO permit_request (id,external_id,state,end_reason,acquired_at,ended_at,due_at)"
                " SELECT 1000000000+n,CONCAT('old-',n),2,1,tick_at-INTERVAL offset_us MICROSECOND-INTERVAL 2 HOUR,"
                " tick_at-INTERVAL offset_us MICROSECOND-INTERVAL 1 HOUR,tick_at+INTERVAL 1 DAY"
                " FROM (SELECT a.n*100000+b.n*10000+c.n*1000+d.n*100+e.n*10+f.n AS n FROM digits a JOIN digits b"
                " JOIN digits c JOIN digits d JOIN digits e JOIN digits f WHERE a.n<3) m JOIN cluster WHERE n<%d",
                OLD_PERMITS);
    kit_sql_run(sql,
                "INSERT INTO permit (semaphore_id,id,permit_request_id,count)"
                " SELECT %lld,r.id-1000000000+1,r.id,1 FROM permit_request r WHERE r.id>=1000000000",
                (long long)id);
    say(&talk, 200, "GET", "/v1/semaphores/busy/report?since=1d", NULL);
    cr_expect_not(kit_json_true(talk.reply.body, "complete"), "%s", talk.reply.body);
    cr_expect(kit_json_has(talk.reply.body, "read_from"), "%s", talk.reply.body);
    cr_expect_leq(number_of(&talk, "grants"), 200000);
    cr_expect_geq(number_of(&talk, "grants"), 1000);
    kit_sql_run(sql, "DELETE FROM permit WHERE id>500");
    say(&talk, 200, "GET", "/v1/semaphores/busy/report?since=1d", NULL);
    cr_expect(kit_json_true(talk.reply.body, "complete"), "%s", talk.reply.body);
    cr_expect_eq(number_of(&talk, "grants"), 500);
    cr_expect_eq(number_of(&talk, "hold_median_ms"), 3600000, "%s", talk.reply.body);
    kit_sql_close(sql);
    talk_end(&talk);
    kit_permitd_stop(permitd);
}
