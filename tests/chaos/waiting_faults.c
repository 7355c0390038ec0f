/* SPDX-License-Identifier: MIT */
/*
 * Servers that are killed while clients wait, holders that expire, semaphores that change: each waiter is granted or
 * answered, and nothing is granted twice or without a client.
 */
#include "waiting.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

/* TOLD_MS: less than the wait of "100s", so that the last batch of the wait is not the one that grants. */
enum { NAME_SIZE = 64, TTL_MS = 1500, TOLD_MS = 60000 };

static struct kit_http connect_to(const struct fixture *fixture, size_t at)
{
    struct kit_http http = kit_http(fixture->permitd[at]->port);
    http.timeout_ms = WAITS_LOST_MS;
    return http;
}

static void expect_acquired(struct kit_http *http, const char *key, const char *semaphore, unsigned count,
                            const char *ttl)
{
    struct reply reply;
    if (fixture_acquire(http, key, semaphore, count, ttl, &reply) != 201)
        kit_fail("%s: %d %s", key, reply.status, reply.body);
    reply_release(&reply);
}

static void expect_released(struct kit_http *http, const char *key)
{
    int status = fixture_release(http, key);
    if (status != 200)
        kit_fail("the release of %s: %d", key, status);
}

/* Receives the answer to the request sent on this connection, and checks it. */
static void expect_answer(struct kit_http *http, int status, const char *word, const char *what)
{
    struct reply reply;
    char type[NAME_SIZE] = "";
    int64_t start_us = kit_now_us();
    kit_http_receive(http, "POST", &reply);
    if (kit_now_us() - start_us > (int64_t)TOLD_MS * 1000)
        kit_fail("%s: answered after %.1f s, perhaps only because the wait had ended", what,
                 (double)(kit_now_us() - start_us) / 1e6);
    if (word)
        snprintf(type, sizeof(type), "\"/problems/%s\"", word);
    if (reply.status != status || !strstr(reply.body, type))
        kit_fail("%s: answered %d %s, not %d %s", what, reply.status, reply.status ? reply.body : reply.error, status,
                 word ? word : "");
    reply_release(&reply);
}

/* A call of an operator. Ends the process unless it is answered with 2xx. */
static void operator_call(struct kit_http *http, const char *method, const char *path, const char *body)
{
    struct reply reply;
    kit_http_call(http, method, path, NULL, body, &reply);
    if (reply.status / 100 != 2)
        kit_fail("%s %s: %d %s", method, path, reply.status, reply.body);
    reply_release(&reply);
}

static void check_rows(struct fixture *fixture)
{
    char message[MESSAGE_SIZE];
    if (!rows_check(fixture->sql, message))
        kit_fail("%s", message);
}

/* ---- SIGKILL of permitd ---- */

enum { KILLED_WAITERS = 500, KILLED_CAPACITY = 20 };

static void set_waiting(struct client_pool *client_pool, const char *wait, unsigned hold_ms, unsigned rounds)
{
    for (unsigned i = 0; i < client_pool->count; i++) {
        client_pool->clients[i].semaphore = "hot";
        client_pool->clients[i].wait = wait;
        client_pool->clients[i].hold_ms = hold_ms;
        client_pool->clients[i].rounds = rounds;
    }
}

/* Releases every turn that is not released: its grant may exist although the client did not read it. */
static void settle_all(struct fixture *fixture, const struct client_pool *client_pool, size_t at)
{
    struct kit_http http = connect_to(fixture, at);
    for (size_t i = 0; i < client_pool->turn_count; i++) {
        const struct turn *turn = &client_pool->turns[i];
        char key[NAME_SIZE];
        if (turn->released_us)
            continue;
        snprintf(key, sizeof(key), "%s-%u-%u", client_pool->name, turn->client, turn->round);
        expect_released(&http, key);
    }
    kit_http_close(&http);
    if (fixture_held(fixture))
        kit_fail("%lld unrequested keys are held", (long long)fixture_held(fixture));
}

void waiting_killed(const struct part_options *options)
{
    struct fixture fixture = fixture_start(1, false);
    char body[NAME_SIZE], message[MESSAGE_SIZE];
    (void)options;
    snprintf(body, sizeof(body), "{\"capacity\":%d}", KILLED_CAPACITY);
    fixture_semaphore(&fixture, "hot", body);
    struct client_pool *client_pool = client_pool_open("killed", fixture.permitd[0]->port, KILLED_WAITERS);
    set_waiting(client_pool, "10m", 2, 1000000);
    client_pool_ask_all(client_pool);
    client_pool_run(client_pool, kit_now_us() + 700000);
    kit_permitd_kill(fixture.permitd[0]);
    if (!client_pool_run(client_pool, kit_now_us() + (int64_t)WAITS_LOST_MS * 1000) ||
        client_pool->gone != client_pool->count)
        kit_fail("killed: %u of %u connections are not closed", client_pool->count - client_pool->gone,
                 client_pool->count);
    size_t granted = client_pool_count(client_pool, 201, NULL);

    fixture_start_permitd(&fixture);
    int64_t held = fixture_held(&fixture);
    if (held > KILLED_CAPACITY)
        kit_fail("killed: %lld are held, of %d", (long long)held, KILLED_CAPACITY);
    settle_all(&fixture, client_pool, 0);
    if (!rows_check(fixture.sql, message) || !rows_check_past(fixture.sql, message))
        kit_fail("killed: %s", message);
    printf("waiting: killed: permitd with %u waiters after %zu grants: %lld held, all found by their keys\n",
           client_pool->count, granted, (long long)held);
    client_pool_close(client_pool);
    fixture_stop(&fixture);
}

/* ---- SIGKILL of mariadbd ---- */

enum { DATABASE_WAITERS = 100, DATABASE_CAPACITY = 4, DATABASE_KILLS = 3 };

void waiting_database(const struct part_options *options)
{
    struct fixture fixture = fixture_start(2, false);
    char body[NAME_SIZE], message[MESSAGE_SIZE];
    snprintf(body, sizeof(body), "{\"capacity\":%d}", DATABASE_CAPACITY);
    fixture_semaphore(&fixture, "hot", body);
    struct client_pool *client_pool = client_pool_open("database", fixture.permitd[0]->port, DATABASE_WAITERS);
    set_waiting(client_pool, "10m", 3, 1000000);
    client_pool_ask_all(client_pool);
    for (int i = 0; i < (options->full ? 5 * DATABASE_KILLS : DATABASE_KILLS); i++) {
        client_pool_run(client_pool, kit_now_us() + 400000);
        kit_sql_close(fixture.sql);
        kit_database_kill(fixture.database);
        client_pool_run(client_pool, kit_now_us() + 300000);
        kit_database_restart(fixture.database);
        fixture.sql = fixture_sql(fixture.database);
        size_t before = client_pool_count(client_pool, 201, NULL);
        int64_t end_us = kit_now_us() + (int64_t)WAITS_LOST_MS * 1000;
        while (client_pool_count(client_pool, 201, NULL) < before + DATABASE_WAITERS && kit_now_us() < end_us)
            client_pool_run(client_pool, kit_now_us() + 20000);
        if (client_pool_count(client_pool, 201, NULL) < before + DATABASE_WAITERS)
            kit_fail("database: %zu are granted in %d s after a restart; %zu wait",
                     client_pool_count(client_pool, 201, NULL) - before, WAITS_LOST_MS / 1000,
                     fixture_waiting(&fixture, "hot"));
    }
    for (unsigned i = 0; i < client_pool->count; i++)
        client_pool->clients[i].rounds = 0;
    if (!client_pool_run(client_pool, kit_now_us() + (int64_t)WAITS_LOST_MS * 1000))
        kit_fail("database: %u clients have no answer", client_pool->busy);
    size_t granted = client_pool_count(client_pool, 201, NULL), refused = client_pool_count(client_pool, 503, NULL);
    if (client_pool->gone || granted + refused + client_pool_count(client_pool, 200, NULL) != client_pool->turn_count)
        kit_fail("database: of %zu turns %zu were granted and %zu answered 503; %u connections were closed",
                 client_pool->turn_count, granted, refused, client_pool->gone);
    settle_all(&fixture, client_pool, 1);
    if (!rows_check(fixture.sql, message) || !rows_check_past(fixture.sql, message))
        kit_fail("database: %s", message);
    printf("waiting: database: killed repeatedly among %u waiters: %zu grants, %zu answered 503\n", client_pool->count,
           granted, refused);
    client_pool_close(client_pool);
    fixture_stop(&fixture);
}

/* ---- a holder expires ---- */

/* The holder was granted by one permitd; the waiter is at the same one or at another. */
static int64_t expire_for(struct fixture *fixture, size_t at, const char *semaphore)
{
    struct kit_http holder = connect_to(fixture, 0), waiter = connect_to(fixture, at);
    char held[NAME_SIZE], wanted[NAME_SIZE], ttl[NAME_SIZE];
    snprintf(held, sizeof(held), "held-%s", semaphore);
    snprintf(wanted, sizeof(wanted), "wanted-%s", semaphore);
    snprintf(ttl, sizeof(ttl), "%dms", TTL_MS);
    expect_acquired(&holder, held, semaphore, 1, ttl);
    fixture_send_waiting(&waiter, wanted, semaphore, 1, "100s");
    expect_answer(&waiter, 201, NULL, "a waiter for an expiring holder");
    int64_t late_us = kit_sql_number(fixture->sql,
                                     "SELECT TIMESTAMPDIFF(MICROSECOND, h.due_at_was, w.acquired_at) FROM "
                                     "(SELECT acquired_at + INTERVAL ttl_ms * 1000 MICROSECOND AS due_at_was FROM "
                                     "permit_request WHERE external_id = '%s') h, permit_request w "
                                     "WHERE w.external_id = '%s'",
                                     held, wanted);
    if (late_us < 0)
        kit_fail("expiry: granted %lld us before the deadline", (long long)-late_us);
    expect_released(&waiter, wanted);
    kit_http_close(&holder);
    kit_http_close(&waiter);
    return late_us;
}

void waiting_expiry(const struct part_options *options)
{
    struct fixture fixture = fixture_start(2, false);
    (void)options;
    fixture_semaphore(&fixture, "own", "{\"capacity\":1}");
    fixture_semaphore(&fixture, "other", "{\"capacity\":1}");
    int64_t own_us = expire_for(&fixture, 0, "own"), other_us = expire_for(&fixture, 1, "other");
    printf("waiting: expiry: granted %.1f ms after the deadline, %.1f ms at another permitd\n", (double)own_us / 1e3,
           (double)other_us / 1e3);
    check_rows(&fixture);
    fixture_stop(&fixture);
}

/* ---- semaphores that change ---- */

/* Sends an acquire that waits for `semaphore`, and returns when it is in the waitlist. */
static struct kit_http begin_wait(struct fixture *fixture, const char *semaphore, unsigned count, const char *wait)
{
    struct kit_http waiter = connect_to(fixture, 0);
    char key[NAME_SIZE];
    snprintf(key, sizeof(key), "waits-%s", semaphore);
    fixture_send_waiting(&waiter, key, semaphore, count, wait);
    fixture_await_waiting(fixture, semaphore, 1, WAITS_LOST_MS);
    return waiter;
}

static void grown(struct fixture *fixture, struct kit_http *operator_http)
{
    struct kit_http waiter = begin_wait(fixture, "grown", 1, "100s");
    operator_call(operator_http, "PUT", "/v1/semaphores/grown", "{\"capacity\":2}");
    expect_answer(&waiter, 201, NULL, "growth");
    expect_released(&waiter, "waits-grown");
    kit_http_close(&waiter);
}

static void shrunk(struct fixture *fixture, struct kit_http *operator_http)
{
    struct kit_http waiter = begin_wait(fixture, "shrunk", 2, "100s");
    operator_call(operator_http, "PUT", "/v1/semaphores/shrunk", "{\"capacity\":1}");
    expect_answer(&waiter, 422, "never_satisfiable", "shrink");
    kit_http_close(&waiter);
}

/* While the semaphore is paused no waiter is granted, even if units are free; afterwards immediately. */
static void paused(struct fixture *fixture, struct kit_http *operator_http)
{
    operator_call(operator_http, "POST", "/v1/semaphores/paused/pause", "{\"reason\":\"work\"}");
    struct kit_http waiter = begin_wait(fixture, "paused", 1, "100s");
    expect_released(operator_http, "held-paused");
    kit_sleep_ms(300);
    if (fixture_waiting(fixture, "paused") != 1)
        kit_fail("a paused semaphore grants to a waiter");
    operator_call(operator_http, "POST", "/v1/semaphores/paused/resume", NULL);
    expect_answer(&waiter, 201, NULL, "resume");
    expect_released(&waiter, "waits-paused");
    kit_http_close(&waiter);
}

static void paused_past_wait(struct fixture *fixture, struct kit_http *operator_http)
{
    operator_call(operator_http, "POST", "/v1/semaphores/closed/pause", "{\"reason\":\"work\"}");
    struct kit_http waiter = connect_to(fixture, 0);
    int64_t sent_us = kit_now_us();
    fixture_send_waiting(&waiter, "waits-closed", "closed", 1, "700ms");
    expect_answer(&waiter, 423, "paused", "a wait that ends in a pause");
    if (kit_now_us() - sent_us < 700000)
        kit_fail("a paused semaphore refuses a new waiter");
    kit_http_close(&waiter);
}

static void retired(struct fixture *fixture, struct kit_http *operator_http)
{
    struct kit_http waiter = connect_to(fixture, 0);
    operator_call(operator_http, "PUT", "/v1/semaphores/retired", "{\"capacity\":0}");
    fixture_send_waiting(&waiter, "waits-retired", "retired", 1, "100s");
    fixture_await_waiting(fixture, "retired", 1, WAITS_LOST_MS);
    operator_call(operator_http, "DELETE", "/v1/semaphores/retired", NULL);
    expect_answer(&waiter, 404, "unknown_semaphore", "retirement");
    kit_http_close(&waiter);
}

/* Another permitd does not know this waiter: it finds the tombstone at the latest when it would be granted. */
static void deleted(struct fixture *fixture, struct kit_http *operator_http)
{
    struct kit_http waiter = begin_wait(fixture, "deleted", 1, "100s");
    expect_released(operator_http, "waits-deleted");
    if (fixture->count > 1)
        expect_released(operator_http, "held-deleted");
    expect_answer(&waiter, 410, "ended", "a DELETE of a waiter");
    kit_http_close(&waiter);
}

static void forced(struct fixture *fixture, struct kit_http *operator_http)
{
    struct kit_http waiter = begin_wait(fixture, "forced", 1, "100s");
    operator_call(operator_http, "POST", "/v1/requests/held-forced/force-release", "{\"reason\":\"test\"}");
    expect_answer(&waiter, 201, NULL, "a forced release");
    expect_released(&waiter, "waits-forced");
    kit_http_close(&waiter);
}

static const struct change {
    const char *name;
    const char *body;
    unsigned held;
    void (*run)(struct fixture *fixture, struct kit_http *operator_http);
} changes[] = {
    {"grown", "{\"capacity\":1}", 1, grown},     {"shrunk", "{\"capacity\":2}", 1, shrunk},
    {"paused", "{\"capacity\":1}", 1, paused},   {"closed", "{\"capacity\":1}", 1, paused_past_wait},
    {"retired", "{\"capacity\":1}", 0, retired}, {"deleted", "{\"capacity\":1}", 1, deleted},
    {"forced", "{\"capacity\":1}", 1, forced},
};

/* Once through the permitd of the waiters, once through another permitd on the same database. */
static void run_changes(size_t operator_at)
{
    struct fixture fixture = fixture_start(operator_at + 1, false);
    struct kit_http operator_http = connect_to(&fixture, operator_at);
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        char key[NAME_SIZE];
        snprintf(key, sizeof(key), "held-%s", changes[i].name);
        fixture_semaphore(&fixture, changes[i].name, changes[i].body);
        if (changes[i].held)
            expect_acquired(&operator_http, key, changes[i].name, changes[i].held, "1h");
        changes[i].run(&fixture, &operator_http);
    }
    check_rows(&fixture);
    kit_http_close(&operator_http);
    fixture_stop(&fixture);
}

void waiting_changes(const struct part_options *options)
{
    (void)options;
    run_changes(0);
    printf("waiting: changes: growth, shrink, pause, retirement, DELETE and force while a client waits\n");
}

void waiting_changes_elsewhere(const struct part_options *options)
{
    (void)options;
    run_changes(1);
    printf("waiting: changes_elsewhere: the same by another permitd\n");
}

/* ---- several semaphores, several permitd ---- */

enum { TOGETHER_THREADS = 24, TOGETHER_PERMITD = 3, TOGETHER_ROUNDS = 40, TOGETHER_ROUNDS_FULL = 600 };

static const char *const pool[] = {"pool-a", "pool-b", "pool-c"};

struct worker {
    pthread_t thread;
    const struct fixture *fixture;
    unsigned number;
    unsigned rounds;
    struct duration_set waited;
};

static void write_wants(char *body, size_t size, const char *key, unsigned choice)
{
    static const char *const wants[] = {
        "{\"semaphore\":\"pool-a\"},{\"semaphore\":\"pool-b\",\"count\":2}",
        "{\"semaphore\":\"pool-b\"},{\"semaphore\":\"pool-c\",\"count\":2}",
        "{\"semaphore\":\"pool-c\"},{\"semaphore\":\"pool-a\",\"count\":2}",
        "{\"semaphore\":\"pool-a\"},{\"semaphore\":\"pool-b\"},{\"semaphore\":\"pool-c\"}",
        "{\"semaphore\":\"pool-a\",\"count\":2}",
        "{\"semaphore\":\"pool-b\",\"count\":3}",
    };
    snprintf(body, size, "{\"external_id\":\"%s\",\"wait\":\"100s\",\"permits\":[%s]}", key,
             wants[choice % (sizeof(wants) / sizeof(wants[0]))]);
}

static void *worker_run(void *context)
{
    struct worker *worker = context;
    struct kit_http asking = connect_to(worker->fixture, worker->number % worker->fixture->count);
    struct kit_http releasing = connect_to(worker->fixture, (worker->number + 1) % worker->fixture->count);
    for (unsigned round = 0; round < worker->rounds; round++) {
        char key[NAME_SIZE], body[512];
        struct reply reply;
        snprintf(key, sizeof(key), "together-%u-%u", worker->number, round);
        write_wants(body, sizeof(body), key, worker->number + round * 5);
        int64_t start_us = kit_now_us();
        kit_http_post(&asking, "/v1/requests", body, &reply);
        if (reply.status != 201)
            kit_fail("together: %s: %d %s %s", key, reply.status, reply.body, reply.error ? reply.error : "");
        duration_set_add(&worker->waited, kit_now_us() - start_us);
        reply_release(&reply);
        kit_sleep_ms((int)(worker->number + round) % 4);
        expect_released(round % 2 ? &asking : &releasing, key);
    }
    kit_http_close(&asking);
    kit_http_close(&releasing);
    return NULL;
}

/*
 * All requests are granted although each wants several semaphores, at three permitd, and half of the releases go to
 * another permitd.
 */
void waiting_together(const struct part_options *options)
{
    static struct worker workers[TOGETHER_THREADS];
    struct fixture fixture = fixture_start(TOGETHER_PERMITD, false);
    struct inspector inspector;
    struct duration_set all = {.us = NULL};
    char message[MESSAGE_SIZE];
    for (size_t i = 0; i < sizeof(pool) / sizeof(pool[0]); i++)
        fixture_semaphore(&fixture, pool[i], i == 1 ? "{\"capacity\":4,\"queue\":\"fifo\"}" : "{\"capacity\":4}");
    inspector_start(&inspector, &fixture);
    for (unsigned i = 0; i < TOGETHER_THREADS; i++) {
        workers[i] = (struct worker){
            .fixture = &fixture, .number = i, .rounds = options->full ? TOGETHER_ROUNDS_FULL : TOGETHER_ROUNDS};
        KIT_CHECK(!pthread_create(&workers[i].thread, NULL, worker_run, &workers[i]));
    }
    for (unsigned i = 0; i < TOGETHER_THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        for (size_t k = 0; k < workers[i].waited.count; k++)
            duration_set_add(&all, workers[i].waited.us[k]);
        duration_set_release(&workers[i].waited);
    }
    inspector_stop(&inspector);
    if (!rows_check(fixture.sql, message) || !rows_check_past(fixture.sql, message) || fixture_held(&fixture))
        kit_fail("together: %s", fixture_held(&fixture) ? "a request is still held" : message);
    printf("waiting: together: %zu grants over up to 3 semaphores at %d permitd: waited for %.1f ms (median), %.1f at "
           "most\n",
           all.count, TOGETHER_PERMITD, duration_set_quantile_ms(&all, 0.5), duration_set_quantile_ms(&all, 1));
    duration_set_release(&all);
    fixture_stop(&fixture);
}

/* ---- several shorter waits ---- */

/* Returns true if the request is seen in the waitlist before it is answered. */
static bool is_seen_waiting(struct fixture *fixture, const struct kit_http *waiter, const char *semaphore)
{
    struct pollfd look = {.fd = waiter->fd, .events = POLLIN};
    while (poll(&look, 1, 2) == 0)
        if (fixture_waiting(fixture, semaphore) == 1)
            return true;
    return false;
}

/*
 * Waits until the wait of the request ends. On a slow machine the request can be refused before it was in the waitlist;
 * then it repeats with a longer wait.
 */
static void wait_until_refused(struct fixture *fixture, struct kit_http *waiter, const char *key, const char *semaphore)
{
    bool waited = false;
    for (unsigned ms = 500; !waited && ms < TOLD_MS; ms *= 2) {
        char wait[NAME_SIZE];
        snprintf(wait, sizeof(wait), "%ums", ms);
        fixture_send_waiting(waiter, key, semaphore, 1, wait);
        waited = is_seen_waiting(fixture, waiter, semaphore);
        expect_answer(waiter, 423, "no_capacity", "a wait in vain");
    }
    if (!waited)
        kit_fail("%s is never seen to wait for %s", key, semaphore);
}

/*
 * The same key at two connections has one place and one grant. The place survives between two shorter waits, and a
 * request that comes between them is behind it.
 */
void waiting_pieces(const struct part_options *options)
{
    struct fixture fixture = fixture_start(1, false);
    struct kit_http holder = connect_to(&fixture, 0), first = connect_to(&fixture, 0), again = connect_to(&fixture, 0),
                    behind = connect_to(&fixture, 0);
    struct reply one, two;
    (void)options;
    fixture_semaphore(&fixture, "piece", "{\"capacity\":1}");
    expect_acquired(&holder, "held", "piece", 1, "1h");
    wait_until_refused(&fixture, &first, "early", "piece");
    fixture_send_waiting(&behind, "late", "piece", 1, "100s");
    fixture_await_waiting(&fixture, "piece", 1, WAITS_LOST_MS);
    fixture_send_waiting(&first, "early", "piece", 1, "100s");
    fixture_await_waiting(&fixture, "piece", 2, WAITS_LOST_MS);
    fixture_send_waiting(&again, "early", "piece", 1, "100s"); /* it joins the waiter; the count stays the same */
    kit_sleep_ms(100);
    expect_released(&holder, "held");
    kit_http_receive(&first, "POST", &one);
    kit_http_receive(&again, "POST", &two);
    if (one.status != 201 || two.status / 100 != 2 ||
        kit_json_int(one.body, "permits.0.token") != kit_json_int(two.body, "permits.0.token"))
        kit_fail("pieces: the same key was answered %d %s and %d %s", one.status, one.body, two.status, two.body);
    reply_release(&one);
    reply_release(&two);
    expect_released(&holder, "early");
    expect_answer(&behind, 201, NULL, "a later request");
    expect_released(&behind, "late");
    check_rows(&fixture);
    kit_http_close(&holder);
    kit_http_close(&first);
    kit_http_close(&again);
    kit_http_close(&behind);
    fixture_stop(&fixture);
    printf("waiting: pieces: one place, one grant for one key\n");
}
