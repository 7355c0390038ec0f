/* SPDX-License-Identifier: MIT */
/*
 * P18: one database call or one allocation at a time fails during an acquire, a wait, a release, a renewal, a confirm,
 * an exchange, an expiry, and the settlement of what a shop has done in SQL. The connection is closed, or an error answered, before or after the packet ran; or an allocation of
 * permitd, or of a library that it uses, returns NULL. Each time the answer must be true: a second call gets the same
 * answer, the rows agree, and permitd stays up and works. permitd may die only of an allocation of libevent or the
 * connector.
 *
 * each [calls | memory | libraries]: without an argument all three.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proxy.h"
#include "rows.h"

enum { PACKETS_MAX = 12, ALLOCATIONS_MAX = 4000, TIMEOUT_MS = 90000, TRIES_MAX = 3, DEATH_MS = 2000 };

struct stage {
    struct kit_database *database;
    struct proxy *proxy;
    struct kit_permitd *permitd;
    struct kit_http http;
    struct kit_sql *sql;
    struct kit_memory_plan *memory;
    char *memory_path;
    unsigned deaths; /* of permitd */
    unsigned keys;
    unsigned faults;  /* faults that occurred */
    unsigned unclear; /* answers 5xx or 429, or no answer */
    char key[32];     /* of the request under test */
    char other[32];   /* of the holder of the only unit, if the step needs one */
    char what[128];   /* for failure messages */
};

/* An operation that is made to fail, and the expected answers. */
struct step {
    const char *name;
    void (*prepare)(struct stage *stage); /* without faults */
    int (*run)(struct stage *stage);      /* returns the status; 0: no answer */
    int good[2];                          /* statuses of the call without faults, and of its repetition */
    bool held;                            /* the key holds its unit afterwards */
    bool own_only;                        /* allocations of libraries are those of the other steps */
    int changes;                          /* exchanges that the request has made afterwards */
};

/* ---- calls ---- */

static int call(struct stage *stage, const char *method, const char *key, const char *suffix, const char *body)
{
    struct reply reply;
    char path[128];
    snprintf(path, sizeof(path), "/v1/requests%s%s%s", key ? "/" : "", key ? key : "", suffix);
    (void)kit_http_call(&stage->http, method, path, NULL, body, &reply);
    int status = reply.status;
    if (status && !kit_json_valid(reply.body)) /* an answer is complete JSON */
        kit_fail("each: %s: answered %d with \"%s\"", stage->what, status, reply.body);
    reply_release(&reply);
    return status;
}

static int acquire(struct stage *stage, const char *key, const char *more)
{
    char body[256];
    snprintf(body, sizeof(body),
             "{\"external_id\":\"%s\",\"permits\":[{\"semaphore\":\"one\"},{\"semaphore\":\"many\"}]%s}", key, more);
    return call(stage, "POST", NULL, "", body);
}

static void expect_status(struct stage *stage, int status, int expected)
{
    if (status != expected)
        kit_fail("each: %s: a call without faults was answered %d, not %d", stage->what, status, expected);
}

static void new_keys(struct stage *stage)
{
    snprintf(stage->key, sizeof(stage->key), "k%u", ++stage->keys);
    snprintf(stage->other, sizeof(stage->other), "o%u", stage->keys);
}

static void prepare_held(struct stage *stage)
{
    expect_status(stage, acquire(stage, stage->key, ""), 201);
}

/* Does what a procedure does, in a transaction: 1 confirms, 2 is to be released. */
static void mark(struct stage *stage, int errand)
{
    kit_sql_run(stage->sql, "BEGIN");
    kit_sql_run(stage->sql,
                "UPDATE permit_request SET errand = %d, confirmed_at = IF(%d = 1, UTC_TIMESTAMP(6), NULL)"
                " WHERE external_id = '%s' AND state = 1",
                errand, errand, stage->key);
    kit_sql_run(stage->sql,
                "INSERT INTO errand (bucket, permit_request_id) SELECT 0, id FROM permit_request"
                " WHERE external_id = '%s'",
                stage->key);
    kit_sql_run(stage->sql, "COMMIT");
}

static void prepare_sold(struct stage *stage)
{
    prepare_held(stage);
    mark(stage, 1);
}

static void prepare_given_back(struct stage *stage)
{
    prepare_held(stage);
    mark(stage, 2);
}

/* Another key holds the unit and is due. */
static void prepare_due(struct stage *stage)
{
    expect_status(stage, acquire(stage, stage->other, ",\"ttl\":\"1ms\""), 201);
}

static int run_acquire(struct stage *stage)
{
    return acquire(stage, stage->key, "");
}

static int run_wait(struct stage *stage)
{
    return acquire(stage, stage->key, ",\"wait\":\"60s\"");
}

static int run_release(struct stage *stage)
{
    return call(stage, "DELETE", stage->key, "", NULL);
}

static int run_renew(struct stage *stage)
{
    return call(stage, "POST", stage->key, "/renew", NULL);
}

static int run_confirm(struct stage *stage)
{
    return call(stage, "POST", stage->key, "/confirm", NULL);
}

/* Takes the only unit of `one` again, under a new token, and gives back the other one. */
static int run_exchange(struct stage *stage)
{
    return call(stage, "POST", stage->key, "/exchange",
                "{\"give\":[{\"semaphore\":\"one\"},{\"semaphore\":\"many\"}],"
                "\"take\":[{\"semaphore\":\"one\"}],\"nonce\":\"n\",\"changes\":0}");
}

static const struct step steps[] = {
    {"acquire", NULL, run_acquire, {201, 200}, true, false, 0},
    {"release", prepare_held, run_release, {200, 200}, false, false, 0},
    {"release of an unknown key", NULL, run_release, {200, 200}, false, false, 0},
    {"renew", prepare_held, run_renew, {200, 200}, true, false, 0},
    {"confirm", prepare_held, run_confirm, {200, 200}, true, false, 0},
    {"exchange", prepare_held, run_exchange, {200, 200}, true, true, 1},
    {"confirm of what a shop has sold", prepare_sold, run_confirm, {200, 200}, true, true, 0},
    {"renewal of what a shop has sold", prepare_sold, run_renew, {200, 200}, true, true, 0},
    {"release of what a shop has given back", prepare_given_back, run_release, {200, 200}, false, true, 0},
    {"acquire of a due unit", prepare_due, run_wait, {201, 200}, true, false, 0},
};
enum { STEPS = sizeof(steps) / sizeof(steps[0]) };

/* ---- permitd ---- */

static void start_permitd(struct stage *stage)
{
    static const char *const one_worker[] = {"--workers", "1", NULL};
    const char *url = stage->proxy ? proxy_url(stage->proxy) : stage->database->url;
    stage->permitd = kit_permitd_start(
        &(struct kit_permitd_options){.database = url, .flags = one_worker, .memory_path = stage->memory_path});
    kit_http_close(&stage->http);
    stage->http = kit_http(stage->permitd->port);
    stage->http.timeout_ms = TIMEOUT_MS;
}

/* permitd may die if the allocation was a library's, not if it was its own. */
static void expect_alive(struct stage *stage)
{
    if (kit_permitd_wait_end(stage->permitd, DEATH_MS) == -1)
        return;
    if (!stage->memory || stage->memory->own_only)
        kit_fail("each: %s: permitd has died", stage->what);
    stage->deaths++;
    kit_permitd_kill(stage->permitd);
    start_permitd(stage);
}

/* ---- judging ---- */

static bool is_unclear(int status)
{
    return status == 0 || status == 429 || status >= 500;
}

/* Checks that an answer is true, repeats a call without one, and checks that the rows are consistent. */
static void judge(struct stage *stage, const struct step *step, int status)
{
    char message[MESSAGE_SIZE];
    /* If the answer to a COMMIT was lost, the transaction runs again and is a repetition. */
    if (!is_unclear(status) && status != step->good[0] && status != step->good[1])
        kit_fail("each: %s: answered %d", stage->what, status);
    stage->unclear += is_unclear(status);
    int again = 0;
    for (int tries = 0; tries < TRIES_MAX && is_unclear(again); tries++) {
        kit_http_close(&stage->http); /* the connection may be broken */
        if (tries)
            expect_alive(stage);
        again = step->run(stage);
    }
    bool may_be_new = is_unclear(status) && again == step->good[0];
    if (again != step->good[1] && !may_be_new)
        kit_fail("each: %s: answered %d, and %d when repeated", stage->what, status, again);
    int64_t held = kit_sql_number(
        stage->sql, "SELECT COUNT(*) FROM permit_request WHERE external_id = '%s' AND state = 1 AND changes = %d",
        stage->key, step->changes);
    if (held != step->held)
        kit_fail("each: %s: answered %d, but %s", stage->what, status, held ? "it is held" : "it is not held");
    if (!rows_check(stage->sql, message))
        kit_fail("each: %s: %s", stage->what, message);
}

static void clean_up(struct stage *stage)
{
    expect_status(stage, call(stage, "DELETE", stage->key, "?confirmed=true", NULL), 200);
    expect_status(stage, call(stage, "DELETE", stage->other, "", NULL), 200);
}

static void prepare(struct stage *stage, const struct step *step)
{
    new_keys(stage);
    if (step->prepare)
        step->prepare(stage);
}

/* ---- calls of the database ---- */

static const struct mode {
    const char *name;
    struct proxy_rule rule;
} modes[] = {
    {"the connection is cut before packet", {.fault = PROXY_CUT_BEFORE}},
    {"the connection is cut after packet", {.fault = PROXY_CUT_AFTER}},
    {"the connection is cut within the reply to packet", {.fault = PROXY_CUT_WITHIN}},
    {"a deadlock instead of packet", {.fault = PROXY_ERROR_BEFORE, .error = 1213}},
    {"a lock time-out instead of packet", {.fault = PROXY_ERROR_BEFORE, .error = 1205}},
    {"a duplicate key instead of packet", {.fault = PROXY_ERROR_BEFORE, .error = 1062}},
    {"a read-only server instead of packet", {.fault = PROXY_ERROR_BEFORE, .error = 1290}},
    {"a full disk instead of packet", {.fault = PROXY_ERROR_BEFORE, .error = 1021}},
    {"an unknown error instead of packet", {.fault = PROXY_ERROR_BEFORE, .error = 1105}},
    {"a lost connection after packet", {.fault = PROXY_ERROR_AFTER, .error = 2013}},
    {"an error during COMMIT after packet", {.fault = PROXY_ERROR_AFTER, .error = 1180}},
};

/* Fails packet number `nth` of the step. Returns false if the step has fewer packets. */
static bool fail_packet(struct stage *stage, const struct step *step, const struct mode *mode, unsigned nth)
{
    struct proxy_rule rule = mode->rule;
    rule.only_batches = true;
    rule.nth = nth;
    snprintf(stage->what, sizeof(stage->what), "%s, %s %u", step->name, mode->name, nth);
    prepare(stage, step);
    unsigned before = proxy_strikes(stage->proxy, rule.fault);
    proxy_set(stage->proxy, &rule);
    int status = step->run(stage);
    proxy_set(stage->proxy, &(struct proxy_rule){.fault = PROXY_PASS});
    bool met = proxy_strikes(stage->proxy, rule.fault) > before;
    stage->faults += met;
    judge(stage, step, status);
    clean_up(stage);
    return met;
}

static unsigned fail_packets(struct stage *stage)
{
    for (size_t i = 0; i < STEPS; i++)
        for (size_t j = 0; j < sizeof(modes) / sizeof(modes[0]); j++)
            for (unsigned nth = 1; nth <= PACKETS_MAX && fail_packet(stage, &steps[i], &modes[j], nth); nth++)
                ;
    return stage->faults;
}

/* ---- allocations ---- */

static bool fail_allocation(struct stage *stage, const struct step *step, int64_t nth)
{
    snprintf(stage->what, sizeof(stage->what), "%s, allocation %lld fails", step->name, (long long)nth);
    prepare(stage, step);
    stage->memory->until = nth;
    int status = step->run(stage);
    bool met = stage->memory->until <= 0;
    stage->memory->until = 0;
    stage->faults += met;
    if (status == 0)
        expect_alive(stage);
    judge(stage, step, status);
    clean_up(stage);
    return met;
}

static unsigned fail_allocations(struct stage *stage)
{
    for (size_t i = 0; i < STEPS; i++)
        for (int64_t nth = 1; (stage->memory->own_only || !steps[i].own_only) && nth <= ALLOCATIONS_MAX &&
                              fail_allocation(stage, &steps[i], nth);
             nth++)
            ;
    return stage->faults;
}

static unsigned fail_own_allocations(struct stage *stage)
{
    stage->memory->own_only = 1;
    return fail_allocations(stage);
}

/* ---- all of it ---- */

static void make_semaphores_of(struct stage *stage)
{
    struct reply reply;
    KIT_CHECK(kit_http_put(&stage->http, "/v1/semaphores/one", "{\"capacity\":1}", &reply) && reply.status == 201);
    reply_release(&reply);
    KIT_CHECK(kit_http_put(&stage->http, "/v1/semaphores/many", "{\"capacity\":9,\"kind\":\"counted\"}", &reply) &&
              reply.status == 201);
    reply_release(&reply);
}

static struct stage begin(bool memory)
{
    struct stage stage = {.database = kit_database_start(NULL), .http = kit_http(0)};
    if (memory)
        stage.memory = kit_memory_plan(&stage.memory_path);
    else
        stage.proxy = proxy_start(stage.database->socket, 1);
    start_permitd(&stage);
    stage.sql = kit_sql_open(stage.database->socket, "permitd");
    make_semaphores_of(&stage);
    return stage;
}

static void end(struct stage *stage)
{
    kit_http_close(&stage->http);
    kit_sql_close(stage->sql);
    kit_permitd_stop(stage->permitd);
    proxy_stop(stage->proxy);
    kit_database_stop(stage->database);
    free(stage->memory_path);
}

static unsigned run_part(const char *name, bool memory, unsigned (*part)(struct stage *))
{
    struct stage stage = begin(memory);
    unsigned met = part(&stage);
    printf(
        "each: %s: %u made to fail, one at a time; %u answers were not clear, and each was when asked again; permitd "
        "died %u times\n",
        name, met, stage.unclear, stage.deaths);
    fflush(stdout);
    end(&stage);
    return met;
}

int main(int argc, char **argv)
{
    unsigned passed = 0;
    if (argc < 2 || !strcmp(argv[1], "calls"))
        passed += run_part("calls of the database", false, fail_packets);
    if (argc < 2 || !strcmp(argv[1], "memory"))
        passed += run_part("allocations of permitd", true, fail_own_allocations);
    if (argc < 2 || !strcmp(argv[1], "libraries"))
        passed += run_part("all allocations", true, fail_allocations);
    if (!passed)
        kit_fail("usage: each [calls | memory | libraries]");
    printf("each: %u passed, 0 failed: ok\n", passed);
    return 0;
}
