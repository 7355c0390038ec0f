/* SPDX-License-Identifier: MIT */
/*
 * P8: a jump of the database's clock, or an outage of all permitd or of the database, shortens a permit by at most 5 s
 * and lengthens it by at most the outage plus some seconds. Tokens rise all the time.
 */
#include "ends.h"
#include "watch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HOUR_US 3600000000LL

/*
 * LEAP_MS: a jump may shorten a permit by this. LATE_MS: a permit may last longer by this: 5 s of expiry and 5 s of an
 * outage. SUITE_LATE_MS: the same for a slow and busy machine.
 */
enum { LEAP_MS = 5000, LATE_MS = 10000, SUITE_LATE_MS = 45000, WAIT_MS = 120000, WATCHED = 8, EDGE_MS = 250 };

static int late_ms(const struct part_options *options)
{
    return options->full ? LATE_MS : SUITE_LATE_MS;
}

/* ---- the shim ---- */

void ends_shim(const struct part_options *options)
{
    (void)options;
    struct fixture fixture = fixture_start(1, true);
    int64_t before = fixture_clock_us(&fixture);
    kit_database_step_clock(fixture.database, HOUR_US);
    int64_t forward = fixture_clock_us(&fixture) - before;
    int64_t start = kit_now_us();
    kit_sql_run(fixture.sql, "DO SLEEP(0.2)");
    int64_t slept = kit_now_us() - start;
    kit_database_step_clock(fixture.database, -HOUR_US);
    int64_t back = fixture_clock_us(&fixture) - before;
    if (forward < HOUR_US || forward > HOUR_US + 60000000 || back < 0 || back > 60000000)
        kit_fail("the clock of the database was moved by %lld and by %lld us", (long long)forward, (long long)back);
    if (slept < 190000 || slept > 30000000)
        kit_fail("a sleep of 0.2 s took %lld us when the clock was wrong", (long long)slept);
    fixture_stop(&fixture);
}

/* ---- an hour forward and back ---- */

struct renewer {
    pthread_t thread;
    struct fixture *fixture;
    unsigned ttl_ms;
    atomic_bool stopping;
    unsigned renewals;
    int64_t least_ms, most_ms; /* smallest and largest expires_in_ms of the answers */
};

enum { RENEWED = 8, LOAD = 4 };

static void take_expiry(struct renewer *renewer, int64_t ms, const char *body)
{
    renewer->least_ms = renewer->renewals == 0 || ms < renewer->least_ms ? ms : renewer->least_ms;
    renewer->most_ms = renewer->renewals == 0 || ms > renewer->most_ms ? ms : renewer->most_ms;
    renewer->renewals++;
    /* The lease clock may gain or lose some seconds in a jump, but deadlines stay near it. */
    if (ms <= 0 || ms < (int64_t)renewer->ttl_ms - LEAP_MS - 1000 || ms > (int64_t)renewer->ttl_ms + LEAP_MS + 1000)
        kit_fail("steps: a ttl of %u ms and an answer with expires_in_ms %lld: %s", renewer->ttl_ms, (long long)ms,
                 body);
}

static void *renewer_run(void *context)
{
    struct renewer *renewer = context;
    struct fixture *fixture = renewer->fixture;
    struct kit_http http = kit_http(fixture->permitd[fixture->count - 1]->port);
    for (unsigned i = 0; !atomic_load(&renewer->stopping); i = (i + 1) % RENEWED) {
        char key[32];
        struct reply reply;
        snprintf(key, sizeof(key), "renewed-%u", i);
        if (fixture_renew(&http, key, &reply) != 200)
            kit_fail("steps: a regular renewal of %s: %d %s", key, reply.status, reply.body);
        take_expiry(renewer, kit_json_int(reply.body, "expires_in_ms"), reply.body);
        reply_release(&reply);
        kit_sleep_ms(EDGE_MS);
    }
    kit_http_close(&http);
    return NULL;
}

static void acquire_renewed(struct renewer *renewer)
{
    struct kit_http http = kit_http(renewer->fixture->permitd[0]->port);
    for (unsigned i = 0; i < RENEWED; i++) {
        char key[32], ttl[32];
        struct reply reply;
        snprintf(key, sizeof(key), "renewed-%u", i);
        snprintf(ttl, sizeof(ttl), "%ums", renewer->ttl_ms);
        if (fixture_acquire(&http, key, "many", 1, ttl, &reply) != 201)
            kit_fail("steps: %d %s", reply.status, reply.body);
        reply_release(&reply);
    }
    kit_http_close(&http);
}

static const struct semaphore_facts hot[] = {{"hot-a", 2, true}, {"hot-b", 3, false}};

struct loader {
    pthread_t thread;
    struct caller caller;
    atomic_bool *stopping;
};

/* Acquires and releases: tokens must rise, and no call may fail. */
static void *loader_run(void *context)
{
    struct loader *loader = context;
    while (!atomic_load(loader->stopping)) {
        struct caller *caller = &loader->caller;
        struct job job = caller_new_job(caller);
        unsigned at = caller_random(caller, (unsigned)caller->world->permitd_count);
        job.want_count = 1;
        job.wants[0] = (struct want){caller_random(caller, 2), 1};
        job.ttl_ms = 600000;
        if (caller_acquire(caller, at, &job) == SAYS_HELD)
            caller_release(caller, at, &job);
        kit_sleep_ms(5);
    }
    caller_close(&loader->caller);
    return NULL;
}

struct load {
    struct world world;
    struct loader loaders[LOAD];
    atomic_bool stopping;
};

static void load_start(struct load *load, struct fixture *fixture, uint64_t seed)
{
    load->world.facts = (struct facts){.semaphores = hot, .count = 2};
    load->world.seed = seed;
    fixture_world(fixture, &load->world);
    make_semaphores(&load->world.facts, fixture->permitd[0]->port);
    for (unsigned i = 0; i < LOAD; i++) {
        load->loaders[i].stopping = &load->stopping;
        caller_init(&load->loaders[i].caller, &load->world, i);
        KIT_CHECK(!pthread_create(&load->loaders[i].thread, NULL, loader_run, &load->loaders[i]));
    }
}

/*
 * Does not run rows_check_past: while the lease clock was ahead of the database's clock, later rows may have earlier
 * times.
 */
static void load_judge(struct load *load, struct fixture *fixture)
{
    struct history history = {NULL, 0, 0};
    char message[MESSAGE_SIZE];
    atomic_store(&load->stopping, true);
    for (unsigned i = 0; i < LOAD; i++) {
        pthread_join(load->loaders[i].thread, NULL);
        history_join(&history, &load->loaders[i].caller.history);
    }
    if (!check_statuses(&history, false, message) || !check_capacity(&history, &load->world.facts, message) ||
        !check_keys(&history, &load->world.facts, message) || !check_tokens(&history, &load->world.facts, message) ||
        !check_ends(&history, &load->world.facts, message) || !rows_check(fixture->sql, message))
        kit_fail("steps: %s", message);
    printf("ends: steps: %zu calls of %d clients during the steps: tokens rise, no error\n", history.count, LOAD);
    history_release(&history);
}

/* A while after a step, expires_at of a new grant is on the database's clock. */
static void check_expires_at(struct fixture *fixture, unsigned number)
{
    struct kit_http http = kit_http(fixture->permitd[0]->port);
    struct reply reply;
    char key[32];
    snprintf(key, sizeof(key), "shown-%u", number);
    if (fixture_acquire(&http, key, "many", 1, "600s", &reply) != 201)
        kit_fail("steps: %d %s", reply.status, reply.body);
    char *text = kit_json_text(reply.body, "expires_at");
    KIT_CHECK(text && strlen(text) > 20);
    text[strlen(text) - 1] = 0; /* the Z */
    int64_t left_us = kit_sql_number(fixture->sql, "SELECT TIMESTAMPDIFF(MICROSECOND, SYSDATE(6), '%s')", text);
    if (left_us > 606500000 || left_us < 540000000) /* the permitd has just started: 5.5 s more */
        kit_fail("steps: a new grant with a ttl of 600 s expires in %.3f s by the database's clock: %s",
                 (double)left_us / 1e6, reply.body);
    free(text);
    reply_release(&reply);
    KIT_CHECK(fixture_release(&http, key) == 200);
    kit_http_close(&http);
}

/* Grants one half of the watched requests before the first step, the other half between the two steps. */
static void step_there_and_back(const struct part_options *options, struct fixture *fixture, int64_t first_us,
                                const char *what)
{
    static struct watch watch;
    struct kit_http http = kit_http(fixture->permitd[0]->port);
    unsigned ttl_ms = options->full ? 30000 : 12000;
    watch = (struct watch){.fixture = fixture};
    for (unsigned i = 0; i < WATCHED; i++)
        watch_acquire(&watch, &http, "many", ttl_ms);
    kit_sleep_ms(700);
    kit_database_step_clock(fixture->database, first_us);
    kit_sleep_ms(2500);
    check_expires_at(fixture, first_us > 0 ? 1 : 2);
    for (unsigned i = 0; i < WATCHED; i++)
        watch_acquire(&watch, &http, "many", ttl_ms);
    kit_database_step_clock(fixture->database, -first_us);
    kit_sleep_ms(2500);
    check_expires_at(fixture, first_us > 0 ? 3 : 4);
    watch_until_ended(&watch, WAIT_MS);
    watch_judge(&watch, 0, LEAP_MS + EDGE_MS, late_ms(options), what);
    kit_http_close(&http);
}

void ends_steps(const struct part_options *options)
{
    static struct load load;
    struct fixture fixture = fixture_start(2, true);
    struct renewer renewer = {.fixture = &fixture, .ttl_ms = 60000};
    fixture_semaphore(&fixture, "many", "{\"capacity\":100000,\"kind\":\"counted\"}");
    load_start(&load, &fixture, options->seed);
    acquire_renewed(&renewer);
    KIT_CHECK(!pthread_create(&renewer.thread, NULL, renewer_run, &renewer));
    step_there_and_back(options, &fixture, HOUR_US, "steps: an hour forward and back");
    step_there_and_back(options, &fixture, -HOUR_US, "steps: an hour back and forward");
    atomic_store(&renewer.stopping, true);
    pthread_join(renewer.thread, NULL);
    printf("ends: steps: %u renewals with a ttl of %u ms: expires_in_ms %lld to %lld\n", renewer.renewals,
           renewer.ttl_ms, (long long)renewer.least_ms, (long long)renewer.most_ms);
    load_judge(&load, &fixture);
    fixture_stop(&fixture);
}

/* ---- steps that would add up ---- */

static void watch_new(struct watch *watch, struct fixture *fixture, unsigned ttl_ms)
{
    struct kit_http http = kit_http(fixture->permitd[0]->port);
    *watch = (struct watch){.fixture = fixture};
    for (unsigned i = 0; i < WATCHED; i++)
        watch_acquire(watch, &http, "many", ttl_ms);
    kit_http_close(&http);
}

/* Each step forward may look like 5 s of an outage. All steps together take at most that from a ttl. */
void ends_many_steps(const struct part_options *options)
{
    enum { STEPS = 4, STEP_EVERY_MS = 1700, TTL_MS = 25000 };
    static struct watch watch;
    struct fixture fixture = fixture_start(2, true);
    fixture_semaphore(&fixture, "many", "{\"capacity\":100000,\"kind\":\"counted\"}");
    watch_new(&watch, &fixture, TTL_MS);
    for (int i = 0; i < STEPS; i++) {
        kit_sleep_ms(STEP_EVERY_MS);
        kit_database_step_clock(fixture.database, HOUR_US);
    }
    watch_until_ended(&watch, WAIT_MS);
    watch_judge(&watch, 0, LEAP_MS, late_ms(options), "many_steps: four hours forward in 7 s");
    watch_new(&watch, &fixture, TTL_MS);
    for (bool ahead = false; watch_query(&watch); ahead = !ahead) {
        kit_database_step_clock(fixture.database, ahead ? -4000000 : 4000000);
        kit_sleep_ms(1000);
    }
    watch_judge(&watch, 0, LEAP_MS, late_ms(options), "many_steps: 4 s forward and back each second");
    fixture_stop(&fixture);
}

/* ---- outages ---- */

enum { OUTAGE_SPARE_MS = 2000, SHORT_TTL_MS = 3000 };

struct outage {
    const char *name;
    void (*begin)(struct fixture *fixture);
    void (*end)(struct fixture *fixture);
};

/*
 * Renews immediately, and repeatedly until the service works again. The request is surely held until `due_us`; a
 * renewal sent later may fail. Returns true if it was renewed.
 */
static bool renew_one(struct fixture *fixture, const char *key, int64_t due_us, const char *what)
{
    struct kit_http http = kit_http(fixture->permitd[fixture->count - 1]->port);
    struct reply reply;
    int64_t end = kit_now_us() + (int64_t)WAIT_MS * 1000;
    int status;
    while ((status = fixture_renew(&http, key, &reply)) == 503 || status == 0) {
        if (kit_now_us() > end)
            kit_fail("%s: no renewal within %d s", what, WAIT_MS / 1000);
        reply_release(&reply);
        kit_sleep_ms(50);
    }
    if (status != 200 && (status != 410 || kit_now_us() < due_us))
        kit_fail("%s: a renewal after the outage: %d %s", what, status, reply.body);
    reply_release(&reply);
    kit_http_close(&http);
    return status == 200;
}

static void run_outage(const struct part_options *options, const struct outage *outage)
{
    static struct watch watch, brief;
    struct fixture fixture = fixture_start(2, false);
    struct kit_http http = kit_http(fixture.permitd[0]->port);
    unsigned ttl_ms = options->full ? 60000 : 20000;
    unsigned renewed_count = 0;
    fixture_semaphore(&fixture, "many", "{\"capacity\":100000,\"kind\":\"counted\"}");
    watch = (struct watch){.fixture = &fixture};
    brief = (struct watch){.fixture = &fixture};
    for (unsigned i = 0; i < 2 * WATCHED; i++)
        watch_acquire(&watch, &http, "many", ttl_ms);
    watch_acquire(&brief, &http, "many", SHORT_TTL_MS);
    kit_http_close(&http);

    int64_t begin_us = kit_now_us();
    outage->begin(&fixture);
    int64_t gone_us = kit_now_us();
    kit_sleep_ms((int)ttl_ms + OUTAGE_SPARE_MS);
    int64_t ending_us = kit_now_us();
    outage->end(&fixture);
    int64_t back_us = kit_now_us();

    /* Renew the second half of the list, and watch only the first. */
    watch.count = WATCHED;
    for (unsigned i = WATCHED; i < 2 * WATCHED; i++) {
        const struct watched *kept = &watch.list[i];
        int64_t due_us = kept->granted_from_us + kept->ttl_us + (ending_us - gone_us) - LEAP_MS * 1000;
        renewed_count += renew_one(&fixture, kept->key, due_us, outage->name);
    }
    double renewed = (double)(kit_now_us() - back_us) / 1e6;
    watch_until_ended(&brief, WAIT_MS);
    watch_until_ended(&watch, (int)ttl_ms + WAIT_MS);
    printf("ends: %s for %.1f s with ttl %.1f s: %u of %d renewals succeeded %.2f s after its end; a ttl of %.1f s "
           "ended %.2f s after it\n",
           outage->name, (double)(ending_us - gone_us) / 1e6, ttl_ms / 1e3, renewed_count, WATCHED, renewed,
           (double)SHORT_TTL_MS / 1e3, (double)(brief.list[0].ended_to_us - back_us) / 1e6);
    /* For early ends the outage counts with its minimum; for late ends with its maximum, of which 5 s may count. */
    watch_judge(&watch, ending_us - gone_us, LEAP_MS + EDGE_MS, INT32_MAX / 1000, outage->name);
    watch_judge(&watch, back_us - begin_us, INT32_MAX / 1000, late_ms(options), outage->name);
    fixture_stop(&fixture);
}

void ends_away(const struct part_options *options)
{
    run_outage(options, &(struct outage){"away: no permitd", fixture_stop_permitd, fixture_start_permitd});
}

/*
 * Requests expire within 5 s of their deadline, also while the permitd that would expire them immediately is stopped.
 */
void ends_leader(const struct part_options *options)
{
    enum { TTL_MS = 1000 };
    struct fixture fixture = fixture_start(PERMITD_MAX, false);
    fixture_semaphore(&fixture, "many", "{\"capacity\":100000,\"kind\":\"counted\"}");
    for (size_t i = 0; i < fixture.count; i++) {
        static struct watch watch;
        char what[64];
        watch = (struct watch){.fixture = &fixture};
        snprintf(what, sizeof(what), "leader: permitd %zu of %zu stopped", i + 1, fixture.count);
        struct kit_http http = kit_http(fixture.permitd[(i + 1) % fixture.count]->port);
        kit_permitd_freeze(fixture.permitd[i]);
        for (unsigned j = 0; j < WATCHED; j++)
            watch_acquire(&watch, &http, "many", TTL_MS);
        watch_until_ended(&watch, WAIT_MS);
        kit_permitd_thaw(fixture.permitd[i]);
        watch_judge(&watch, 0, EDGE_MS, options->full ? LEAP_MS : SUITE_LATE_MS, what);
        kit_http_close(&http);
    }
    fixture_stop(&fixture);
}

static void freeze(struct fixture *fixture)
{
    kit_database_freeze(fixture->database);
}

static void thaw(struct fixture *fixture)
{
    kit_database_thaw(fixture->database);
}

void ends_frozen(const struct part_options *options)
{
    run_outage(options, &(struct outage){"frozen: no database", freeze, thaw});
}
