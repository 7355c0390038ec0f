/* SPDX-License-Identifier: MIT */
/*
 * Servers that are killed while somebody waits, holders whose time is over, semaphores that change: who waits is
 * served, or told, and nothing is granted twice or to nobody.
 */
#include "waiting.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

/* TOLD_MS: less than "100s", so that it is not the last look that serves. */
enum { NAME_SIZE = 64, TTL_MS = 1500, TOLD_MS = 60000 };

static struct kit_http connect_to(const struct site *site, size_t at)
{
    struct kit_http http = kit_http(site->permitd[at]->port);
    http.timeout_ms = WAITS_LOST_MS;
    return http;
}

static void expect_acquired(struct kit_http *http, const char *key, const char *semaphore, unsigned count,
                            const char *ttl)
{
    struct reply reply;
    if (site_acquire(http, key, semaphore, count, ttl, &reply) != 201)
        kit_fail("%s: %d %s", key, reply.status, reply.body);
    reply_release(&reply);
}

static void expect_released(struct kit_http *http, const char *key)
{
    int status = site_release(http, key);
    if (status != 200)
        kit_fail("the release of %s: %d", key, status);
}

/* The answer to what was sent on this connection. */
static void expect_answer(struct kit_http *http, int status, const char *word, const char *what)
{
    struct reply reply;
    char type[NAME_SIZE] = "";
    int64_t start_us = kit_now_us();
    kit_http_receive(http, "POST", &reply);
    if (kit_now_us() - start_us > (int64_t)TOLD_MS * 1000)
        kit_fail("%s: answered after %.1f s, perhaps only because the wait was over", what,
                 (double)(kit_now_us() - start_us) / 1e6);
    if (word)
        snprintf(type, sizeof(type), "\"/problems/%s\"", word);
    if (reply.status != status || !strstr(reply.body, type))
        kit_fail("%s: answered %d %s, not %d %s", what, reply.status, reply.status ? reply.body : reply.error, status,
                 word ? word : "");
    reply_release(&reply);
}

/* A call that an operator makes; ends the process unless it is answered with 2xx. */
static void operate(struct kit_http *http, const char *method, const char *path, const char *body)
{
    struct reply reply;
    kit_http_call(http, method, path, NULL, body, &reply);
    if (reply.status / 100 != 2)
        kit_fail("%s %s: %d %s", method, path, reply.status, reply.body);
    reply_release(&reply);
}

static void check_rows(struct site *site)
{
    char message[MESSAGE_SIZE];
    if (!rows_check(site->sql, message))
        kit_fail("%s", message);
}

/* ---- SIGKILL of permitd ---- */

enum { KILLED_WAITERS = 500, KILLED_CAPACITY = 20 };

static void set_waiting(struct throng *throng, const char *wait, unsigned hold_ms, unsigned rounds)
{
    for (unsigned i = 0; i < throng->count; i++) {
        throng->clients[i].semaphore = "hot";
        throng->clients[i].wait = wait;
        throng->clients[i].hold_ms = hold_ms;
        throng->clients[i].rounds = rounds;
    }
}

/* What is held belongs to keys whose grant nobody read, or nobody released: a retry finds it. */
static void settle_all(struct site *site, const struct throng *throng, size_t at)
{
    struct kit_http http = connect_to(site, at);
    for (size_t i = 0; i < throng->turn_count; i++) {
        const struct turn *turn = &throng->turns[i];
        char key[NAME_SIZE];
        if (turn->released_us)
            continue;
        snprintf(key, sizeof(key), "%s-%u-%u", throng->name, turn->client, turn->round);
        expect_released(&http, key);
    }
    kit_http_close(&http);
    if (site_held(site))
        kit_fail("%lld requests are held that nobody has asked for", (long long)site_held(site));
}

void waiting_killed(const struct form *form)
{
    struct site site = site_start(1, false);
    char body[NAME_SIZE], message[MESSAGE_SIZE];
    (void)form;
    snprintf(body, sizeof(body), "{\"capacity\":%d}", KILLED_CAPACITY);
    site_semaphore(&site, "hot", body);
    struct throng *throng = throng_open("killed", site.permitd[0]->port, KILLED_WAITERS);
    set_waiting(throng, "10m", 2, 1000000);
    throng_ask_all(throng);
    throng_run(throng, kit_now_us() + 700000);
    kit_permitd_kill(site.permitd[0]);
    if (!throng_run(throng, kit_now_us() + (int64_t)WAITS_LOST_MS * 1000) || throng->gone != throng->count)
        kit_fail("killed: %u of %u connections are not closed", throng->count - throng->gone, throng->count);
    size_t granted = throng_count(throng, 201, NULL);

    site_start_permitd(&site);
    int64_t held = site_held(&site);
    if (held > KILLED_CAPACITY)
        kit_fail("killed: %lld are held, of %d", (long long)held, KILLED_CAPACITY);
    settle_all(&site, throng, 0);
    if (!rows_check(site.sql, message) || !rows_check_past(site.sql, message))
        kit_fail("killed: %s", message);
    printf("waiting: killed: permitd with %u waiters after %zu grants: %lld held, all found by their keys\n",
           throng->count, granted, (long long)held);
    throng_close(throng);
    site_stop(&site);
}

/* ---- SIGKILL of mariadbd ---- */

enum { DATABASE_WAITERS = 100, DATABASE_CAPACITY = 4, DATABASE_KILLS = 3 };

void waiting_database(const struct form *form)
{
    struct site site = site_start(2, false);
    char body[NAME_SIZE], message[MESSAGE_SIZE];
    snprintf(body, sizeof(body), "{\"capacity\":%d}", DATABASE_CAPACITY);
    site_semaphore(&site, "hot", body);
    struct throng *throng = throng_open("database", site.permitd[0]->port, DATABASE_WAITERS);
    set_waiting(throng, "10m", 3, 1000000);
    throng_ask_all(throng);
    for (int i = 0; i < (form->full ? 5 * DATABASE_KILLS : DATABASE_KILLS); i++) {
        throng_run(throng, kit_now_us() + 400000);
        kit_sql_close(site.sql);
        kit_database_kill(site.database);
        throng_run(throng, kit_now_us() + 300000);
        kit_database_restart(site.database);
        site.sql = site_sql(site.database);
        size_t before = throng_count(throng, 201, NULL);
        int64_t end_us = kit_now_us() + (int64_t)WAITS_LOST_MS * 1000;
        while (throng_count(throng, 201, NULL) < before + DATABASE_WAITERS && kit_now_us() < end_us)
            throng_run(throng, kit_now_us() + 20000);
        if (throng_count(throng, 201, NULL) < before + DATABASE_WAITERS)
            kit_fail("database: %zu are granted in %d s after a restart; %zu wait",
                     throng_count(throng, 201, NULL) - before, WAITS_LOST_MS / 1000, site_waiting(&site, "hot"));
    }
    for (unsigned i = 0; i < throng->count; i++)
        throng->clients[i].rounds = 0;
    if (!throng_run(throng, kit_now_us() + (int64_t)WAITS_LOST_MS * 1000))
        kit_fail("database: %u clients have no answer", throng->busy);
    size_t granted = throng_count(throng, 201, NULL), refused = throng_count(throng, 503, NULL);
    if (throng->gone || granted + refused + throng_count(throng, 200, NULL) != throng->turn_count)
        kit_fail("database: of %zu turns %zu were granted and %zu told 503; %u connections were closed",
                 throng->turn_count, granted, refused, throng->gone);
    settle_all(&site, throng, 1);
    if (!rows_check(site.sql, message) || !rows_check_past(site.sql, message))
        kit_fail("database: %s", message);
    printf("waiting: database: killed again and again among %u waiters: %zu grants, %zu told 503\n", throng->count,
           granted, refused);
    throng_close(throng);
    site_stop(&site);
}

/* ---- a holder's time is over ---- */

/* The holder was granted by one permitd; the waiter is at the same one, or at another. */
static int64_t expire_for(struct site *site, size_t at, const char *semaphore)
{
    struct kit_http holder = connect_to(site, 0), waiter = connect_to(site, at);
    char held[NAME_SIZE], wanted[NAME_SIZE], ttl[NAME_SIZE];
    snprintf(held, sizeof(held), "held-%s", semaphore);
    snprintf(wanted, sizeof(wanted), "wanted-%s", semaphore);
    snprintf(ttl, sizeof(ttl), "%dms", TTL_MS);
    expect_acquired(&holder, held, semaphore, 1, ttl);
    site_send_waiting(&waiter, wanted, semaphore, 1, "100s");
    expect_answer(&waiter, 201, NULL, "who waits for a holder's time to be over");
    int64_t late_us = kit_sql_number(site->sql,
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

void waiting_expiry(const struct form *form)
{
    struct site site = site_start(2, false);
    (void)form;
    site_semaphore(&site, "own", "{\"capacity\":1}");
    site_semaphore(&site, "other", "{\"capacity\":1}");
    int64_t own_us = expire_for(&site, 0, "own"), other_us = expire_for(&site, 1, "other");
    printf("waiting: expiry: granted %.1f ms after the deadline, %.1f ms at another permitd\n", (double)own_us / 1e3,
           (double)other_us / 1e3);
    check_rows(&site);
    site_stop(&site);
}

/* ---- semaphores that change ---- */

/* One waits for `semaphore`, which one unit short of `capacity` 1 is held. */
static struct kit_http begin_wait(struct site *site, const char *semaphore, unsigned count, const char *wait)
{
    struct kit_http waiter = connect_to(site, 0);
    char key[NAME_SIZE];
    snprintf(key, sizeof(key), "waits-%s", semaphore);
    site_send_waiting(&waiter, key, semaphore, count, wait);
    site_await_waiting(site, semaphore, 1, WAITS_LOST_MS);
    return waiter;
}

static void grown(struct site *site, struct kit_http *operator_http)
{
    struct kit_http waiter = begin_wait(site, "grown", 1, "100s");
    operate(operator_http, "PUT", "/v1/semaphores/grown", "{\"capacity\":2}");
    expect_answer(&waiter, 201, NULL, "growth");
    expect_released(&waiter, "waits-grown");
    kit_http_close(&waiter);
}

static void shrunk(struct site *site, struct kit_http *operator_http)
{
    struct kit_http waiter = begin_wait(site, "shrunk", 2, "100s");
    operate(operator_http, "PUT", "/v1/semaphores/shrunk", "{\"capacity\":1}");
    expect_answer(&waiter, 422, "never_satisfiable", "shrink");
    kit_http_close(&waiter);
}

/* While it is paused nobody is served, whatever is free; then at once. */
static void paused(struct site *site, struct kit_http *operator_http)
{
    operate(operator_http, "POST", "/v1/semaphores/paused/pause", "{\"reason\":\"work\"}");
    struct kit_http waiter = begin_wait(site, "paused", 1, "100s");
    expect_released(operator_http, "held-paused");
    kit_sleep_ms(300);
    if (site_waiting(site, "paused") != 1)
        kit_fail("a paused semaphore serves who waits");
    operate(operator_http, "POST", "/v1/semaphores/paused/resume", NULL);
    expect_answer(&waiter, 201, NULL, "resume");
    expect_released(&waiter, "waits-paused");
    kit_http_close(&waiter);
}

static void paused_to_the_end(struct site *site, struct kit_http *operator_http)
{
    operate(operator_http, "POST", "/v1/semaphores/closed/pause", "{\"reason\":\"work\"}");
    struct kit_http waiter = connect_to(site, 0);
    int64_t sent_us = kit_now_us();
    site_send_waiting(&waiter, "waits-closed", "closed", 1, "700ms");
    expect_answer(&waiter, 423, "paused", "a wait that ends in a pause");
    if (kit_now_us() - sent_us < 700000)
        kit_fail("a paused semaphore refuses who would wait");
    kit_http_close(&waiter);
}

static void retired(struct site *site, struct kit_http *operator_http)
{
    struct kit_http waiter = connect_to(site, 0);
    operate(operator_http, "PUT", "/v1/semaphores/retired", "{\"capacity\":0}");
    site_send_waiting(&waiter, "waits-retired", "retired", 1, "100s");
    site_await_waiting(site, "retired", 1, WAITS_LOST_MS);
    operate(operator_http, "DELETE", "/v1/semaphores/retired", NULL);
    expect_answer(&waiter, 404, "unknown_semaphore", "retirement");
    kit_http_close(&waiter);
}

/* Another permitd cannot know who waits here: then the tombstone is found when it would be served, at the latest. */
static void deleted(struct site *site, struct kit_http *operator_http)
{
    struct kit_http waiter = begin_wait(site, "deleted", 1, "100s");
    expect_released(operator_http, "waits-deleted");
    if (site->count > 1)
        expect_released(operator_http, "held-deleted");
    expect_answer(&waiter, 410, "ended", "a DELETE of who waits");
    kit_http_close(&waiter);
}

static void forced(struct site *site, struct kit_http *operator_http)
{
    struct kit_http waiter = begin_wait(site, "forced", 1, "100s");
    operate(operator_http, "POST", "/v1/requests/held-forced/force-release", "{\"reason\":\"test\"}");
    expect_answer(&waiter, 201, NULL, "a forced release");
    expect_released(&waiter, "waits-forced");
    kit_http_close(&waiter);
}

static const struct change {
    const char *name;
    const char *body;
    unsigned held;
    void (*run)(struct site *site, struct kit_http *operator_http);
} changes[] = {
    {"grown", "{\"capacity\":1}", 1, grown},     {"shrunk", "{\"capacity\":2}", 1, shrunk},
    {"paused", "{\"capacity\":1}", 1, paused},   {"closed", "{\"capacity\":1}", 1, paused_to_the_end},
    {"retired", "{\"capacity\":1}", 0, retired}, {"deleted", "{\"capacity\":1}", 1, deleted},
    {"forced", "{\"capacity\":1}", 1, forced},
};

/* Once by the permitd at which they wait, once by another one on the same database. */
static void run_changes(size_t operator_at)
{
    struct site site = site_start(operator_at + 1, false);
    struct kit_http operator_http = connect_to(&site, operator_at);
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        char key[NAME_SIZE];
        snprintf(key, sizeof(key), "held-%s", changes[i].name);
        site_semaphore(&site, changes[i].name, changes[i].body);
        if (changes[i].held)
            expect_acquired(&operator_http, key, changes[i].name, changes[i].held, "1h");
        changes[i].run(&site, &operator_http);
    }
    check_rows(&site);
    kit_http_close(&operator_http);
    site_stop(&site);
}

void waiting_changes(const struct form *form)
{
    (void)form;
    run_changes(0);
    printf("waiting: changes: growth, shrink, pause, retirement, DELETE and force while somebody waits\n");
}

void waiting_changes_elsewhere(const struct form *form)
{
    (void)form;
    run_changes(1);
    printf("waiting: changes_elsewhere: the same by another permitd\n");
}

/* ---- several semaphores, several permitd ---- */

enum { TOGETHER_THREADS = 24, TOGETHER_PERMITD = 3, TOGETHER_ROUNDS = 40, TOGETHER_ROUNDS_FULL = 600 };

static const char *const pool[] = {"pool-a", "pool-b", "pool-c"};

struct worker {
    pthread_t thread;
    const struct site *site;
    unsigned number;
    unsigned rounds;
    struct spread waited;
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
    struct kit_http asking = connect_to(worker->site, worker->number % worker->site->count);
    struct kit_http releasing = connect_to(worker->site, (worker->number + 1) % worker->site->count);
    for (unsigned round = 0; round < worker->rounds; round++) {
        char key[NAME_SIZE], body[512];
        struct reply reply;
        snprintf(key, sizeof(key), "together-%u-%u", worker->number, round);
        write_wants(body, sizeof(body), key, worker->number + round * 5);
        int64_t start_us = kit_now_us();
        kit_http_post(&asking, "/v1/requests", body, &reply);
        if (reply.status != 201)
            kit_fail("together: %s: %d %s %s", key, reply.status, reply.body, reply.error ? reply.error : "");
        spread_add(&worker->waited, kit_now_us() - start_us);
        reply_release(&reply);
        kit_sleep_ms((int)(worker->number + round) % 4);
        expect_released(round % 2 ? &asking : &releasing, key);
    }
    kit_http_close(&asking);
    kit_http_close(&releasing);
    return NULL;
}

/* Everybody is served although each wants several, at three permitd, and half of the releases go to another one. */
void waiting_together(const struct form *form)
{
    static struct worker workers[TOGETHER_THREADS];
    struct site site = site_start(TOGETHER_PERMITD, false);
    struct inspector inspector;
    struct spread all = {.us = NULL};
    char message[MESSAGE_SIZE];
    for (size_t i = 0; i < sizeof(pool) / sizeof(pool[0]); i++)
        site_semaphore(&site, pool[i], i == 1 ? "{\"capacity\":4,\"queue\":\"fifo\"}" : "{\"capacity\":4}");
    inspector_start(&inspector, &site);
    for (unsigned i = 0; i < TOGETHER_THREADS; i++) {
        workers[i] =
            (struct worker){.site = &site, .number = i, .rounds = form->full ? TOGETHER_ROUNDS_FULL : TOGETHER_ROUNDS};
        KIT_CHECK(!pthread_create(&workers[i].thread, NULL, worker_run, &workers[i]));
    }
    for (unsigned i = 0; i < TOGETHER_THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        for (size_t k = 0; k < workers[i].waited.count; k++)
            spread_add(&all, workers[i].waited.us[k]);
        spread_release(&workers[i].waited);
    }
    inspector_stop(&inspector);
    if (!rows_check(site.sql, message) || !rows_check_past(site.sql, message) || site_held(&site))
        kit_fail("together: %s", site_held(&site) ? "somebody holds" : message);
    printf("waiting: together: %zu grants over up to 3 semaphores at %d permitd: waited for %.1f ms (median), %.1f at "
           "most\n",
           all.count, TOGETHER_PERMITD, spread_ms(&all, 0.5), spread_ms(&all, 1));
    spread_release(&all);
    site_stop(&site);
}

/* ---- in pieces ---- */

/* Whether it is seen in the queue before it is answered. */
static bool is_seen_waiting(struct site *site, const struct kit_http *waiter, const char *semaphore)
{
    struct pollfd look = {.fd = waiter->fd, .events = POLLIN};
    while (poll(&look, 1, 2) == 0)
        if (site_waiting(site, semaphore) == 1)
            return true;
    return false;
}

/* A wait that ends by itself, on a slow machine a longer one: who is late is refused and has had no place. */
static void wait_in_vain(struct site *site, struct kit_http *waiter, const char *key, const char *semaphore)
{
    bool waited = false;
    for (unsigned ms = 500; !waited && ms < TOLD_MS; ms *= 2) {
        char wait[NAME_SIZE];
        snprintf(wait, sizeof(wait), "%ums", ms);
        site_send_waiting(waiter, key, semaphore, 1, wait);
        waited = is_seen_waiting(site, waiter, semaphore);
        expect_answer(waiter, 423, "no_capacity", "a wait in vain");
    }
    if (!waited)
        kit_fail("%s is never seen to wait for %s", key, semaphore);
}

/*
 * The same key at two connections has one place and one grant; a place survives between two pieces, and who comes
 * between them stands behind it.
 */
void waiting_pieces(const struct form *form)
{
    struct site site = site_start(1, false);
    struct kit_http holder = connect_to(&site, 0), first = connect_to(&site, 0), again = connect_to(&site, 0),
                    behind = connect_to(&site, 0);
    struct reply one, two;
    (void)form;
    site_semaphore(&site, "piece", "{\"capacity\":1}");
    expect_acquired(&holder, "held", "piece", 1, "1h");
    wait_in_vain(&site, &first, "early", "piece");
    site_send_waiting(&behind, "late", "piece", 1, "100s");
    site_await_waiting(&site, "piece", 1, WAITS_LOST_MS);
    site_send_waiting(&first, "early", "piece", 1, "100s");
    site_await_waiting(&site, "piece", 2, WAITS_LOST_MS);
    site_send_waiting(&again, "early", "piece", 1, "100s"); /* it joins: nobody more waits */
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
    expect_answer(&behind, 201, NULL, "who came later");
    expect_released(&behind, "late");
    check_rows(&site);
    kit_http_close(&holder);
    kit_http_close(&first);
    kit_http_close(&again);
    kit_http_close(&behind);
    site_stop(&site);
    printf("waiting: pieces: one place, one grant for one key\n");
}
