/* SPDX-License-Identifier: MIT */
/*
 * P8: a jump of the database's clock, and an outage of all permitd or of the database, takes at most 5 s from a permit,
 * and adds at most the outage and some seconds. Tokens rise through all of it.
 */
#include "ends.h"
#include "watch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HOUR_US 3600000000LL

/*
 * LEAP_MS: what a jump may take from a permit. LATE_MS: what may be added: 5 s of sweeping and 5 s of an outage; the
 * suite must also pass on a slow machine that does much else.
 */
enum { LEAP_MS = 5000, LATE_MS = 10000, SUITE_LATE_MS = 45000, WAIT_MS = 120000, WATCHED = 8, EDGE_MS = 250 };

static int late_ms(const struct form *form)
{
    return form->full ? LATE_MS : SUITE_LATE_MS;
}

/* ---- the shim ---- */

void ends_shim(const struct form *form)
{
    (void)form;
    struct site site = site_start(1, true);
    int64_t before = site_clock_us(&site);
    kit_database_step_clock(site.database, HOUR_US);
    int64_t forward = site_clock_us(&site) - before;
    int64_t start = kit_now_us();
    kit_sql_run(site.sql, "DO SLEEP(0.2)");
    int64_t slept = kit_now_us() - start;
    kit_database_step_clock(site.database, -HOUR_US);
    int64_t back = site_clock_us(&site) - before;
    if (forward < HOUR_US || forward > HOUR_US + 60000000 || back < 0 || back > 60000000)
        kit_fail("the clock of the database was moved by %lld and by %lld us", (long long)forward, (long long)back);
    if (slept < 190000 || slept > 30000000)
        kit_fail("a sleep of 0.2 s took %lld us when the clock was wrong", (long long)slept);
    site_stop(&site);
}

/* ---- an hour forward and back ---- */

struct renewer {
    pthread_t thread;
    struct site *site;
    unsigned ttl_ms;
    atomic_bool stopping;
    unsigned renewals;
    int64_t least_ms, most_ms; /* expires_in_ms of the answers */
};

enum { RENEWED = 8, LOAD = 4 };

static void take_expiry(struct renewer *renewer, int64_t ms, const char *body)
{
    renewer->least_ms = renewer->renewals == 0 || ms < renewer->least_ms ? ms : renewer->least_ms;
    renewer->most_ms = renewer->renewals == 0 || ms > renewer->most_ms ? ms : renewer->most_ms;
    renewer->renewals++;
    /* The clock goes on or stands still for some seconds within a jump, but deadlines never leave it far behind. */
    if (ms <= 0 || ms < (int64_t)renewer->ttl_ms - LEAP_MS - 1000 || ms > (int64_t)renewer->ttl_ms + LEAP_MS + 1000)
        kit_fail("steps: a ttl of %u ms and an answer with expires_in_ms %lld: %s", renewer->ttl_ms, (long long)ms,
                 body);
}

static void *renewer_run(void *context)
{
    struct renewer *renewer = context;
    struct site *site = renewer->site;
    struct kit_http http = kit_http(site->permitd[site->count - 1]->port);
    for (unsigned i = 0; !atomic_load(&renewer->stopping); i = (i + 1) % RENEWED) {
        char key[32];
        struct reply reply;
        snprintf(key, sizeof(key), "renewed-%u", i);
        if (site_renew(&http, key, &reply) != 200)
            kit_fail("steps: a renewal of %s, renewed all the time: %d %s", key, reply.status, reply.body);
        take_expiry(renewer, kit_json_int(reply.body, "expires_in_ms"), reply.body);
        reply_release(&reply);
        kit_sleep_ms(EDGE_MS);
    }
    kit_http_close(&http);
    return NULL;
}

static void acquire_renewed(struct renewer *renewer)
{
    struct kit_http http = kit_http(renewer->site->permitd[0]->port);
    for (unsigned i = 0; i < RENEWED; i++) {
        char key[32], ttl[32];
        struct reply reply;
        snprintf(key, sizeof(key), "renewed-%u", i);
        snprintf(ttl, sizeof(ttl), "%ums", renewer->ttl_ms);
        if (site_acquire(&http, key, "many", 1, ttl, &reply) != 201)
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

/* Acquires and releases: tokens are to rise, and nobody is to notice anything. */
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

static void load_start(struct load *load, struct site *site, uint64_t seed)
{
    load->world.facts = (struct facts){.semaphores = hot, .count = 2};
    load->world.seed = seed;
    site_world(site, &load->world);
    make_semaphores(&load->world.facts, site->permitd[0]->port);
    for (unsigned i = 0; i < LOAD; i++) {
        load->loaders[i].stopping = &load->stopping;
        caller_init(&load->loaders[i].caller, &load->world, i);
        KIT_CHECK(!pthread_create(&load->loaders[i].thread, NULL, loader_run, &load->loaders[i]));
    }
}

/* The rows are not asked about the past: while the clock stood still, later ones may have smaller times. */
static void load_judge(struct load *load, struct site *site)
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
        !check_ends(&history, &load->world.facts, message) || !rows_check(site->sql, message))
        kit_fail("steps: %s", message);
    printf("ends: steps: %zu calls of %d clients meanwhile: tokens rise, no error\n", history.count, LOAD);
    history_release(&history);
}

/* expires_at of a new grant, a while after a step, is by the database's clock. */
static void check_expires_at(struct site *site, unsigned number)
{
    struct kit_http http = kit_http(site->permitd[0]->port);
    struct reply reply;
    char key[32];
    snprintf(key, sizeof(key), "shown-%u", number);
    if (site_acquire(&http, key, "many", 1, "600s", &reply) != 201)
        kit_fail("steps: %d %s", reply.status, reply.body);
    char *text = kit_json_text(reply.body, "expires_at");
    KIT_CHECK(text && strlen(text) > 20);
    text[strlen(text) - 1] = 0; /* the Z */
    int64_t left_us = kit_sql_number(site->sql, "SELECT TIMESTAMPDIFF(MICROSECOND, SYSDATE(6), '%s')", text);
    if (left_us > 602000000 || left_us < 540000000)
        kit_fail("steps: a new grant with a ttl of 600 s expires in %.3f s by the database's clock: %s",
                 (double)left_us / 1e6, reply.body);
    free(text);
    reply_release(&reply);
    KIT_CHECK(site_release(&http, key) == 200);
    kit_http_close(&http);
}

/* One half of the watched is granted before the first step, the other between the two. */
static void step_there_and_back(const struct form *form, struct site *site, int64_t first_us, const char *what)
{
    static struct watch watch;
    struct kit_http http = kit_http(site->permitd[0]->port);
    unsigned ttl_ms = form->full ? 30000 : 12000;
    watch = (struct watch){.site = site};
    for (unsigned i = 0; i < WATCHED; i++)
        watch_acquire(&watch, &http, "many", ttl_ms);
    kit_sleep_ms(700);
    kit_database_step_clock(site->database, first_us);
    kit_sleep_ms(2500);
    check_expires_at(site, first_us > 0 ? 1 : 2);
    for (unsigned i = 0; i < WATCHED; i++)
        watch_acquire(&watch, &http, "many", ttl_ms);
    kit_database_step_clock(site->database, -first_us);
    kit_sleep_ms(2500);
    check_expires_at(site, first_us > 0 ? 3 : 4);
    watch_until_ended(&watch, WAIT_MS);
    watch_judge(&watch, 0, LEAP_MS + EDGE_MS, late_ms(form), what);
    kit_http_close(&http);
}

void ends_steps(const struct form *form)
{
    static struct load load;
    struct site site = site_start(2, true);
    struct renewer renewer = {.site = &site, .ttl_ms = 60000};
    site_semaphore(&site, "many", "{\"capacity\":100000,\"kind\":\"counted\"}");
    load_start(&load, &site, form->seed);
    acquire_renewed(&renewer);
    KIT_CHECK(!pthread_create(&renewer.thread, NULL, renewer_run, &renewer));
    step_there_and_back(form, &site, HOUR_US, "steps: an hour forward and back");
    step_there_and_back(form, &site, -HOUR_US, "steps: an hour back and forward");
    atomic_store(&renewer.stopping, true);
    pthread_join(renewer.thread, NULL);
    printf("ends: steps: %u renewals with a ttl of %u ms: expires_in_ms %lld to %lld\n", renewer.renewals,
           renewer.ttl_ms, (long long)renewer.least_ms, (long long)renewer.most_ms);
    load_judge(&load, &site);
    site_stop(&site);
}

/* ---- outages ---- */

enum { OUTAGE_SPARE_MS = 2000, SHORT_TTL_MS = 3000 };

struct outage {
    const char *name;
    void (*begin)(struct site *site);
    void (*end)(struct site *site);
};

/*
 * Renews at once; while the service is not yet back, again and again. Until `due_us` it is surely held; what is asked
 * later may be too late, and says nothing. True: it was renewed.
 */
static bool renew_one(struct site *site, const char *key, int64_t due_us, const char *what)
{
    struct kit_http http = kit_http(site->permitd[site->count - 1]->port);
    struct reply reply;
    int64_t end = kit_now_us() + (int64_t)WAIT_MS * 1000;
    int status;
    while ((status = site_renew(&http, key, &reply)) == 503 || status == 0) {
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

static void run_outage(const struct form *form, const struct outage *outage)
{
    static struct watch watch, brief;
    struct site site = site_start(2, false);
    struct kit_http http = kit_http(site.permitd[0]->port);
    unsigned ttl_ms = form->full ? 60000 : 20000;
    unsigned renewed_count = 0;
    site_semaphore(&site, "many", "{\"capacity\":100000,\"kind\":\"counted\"}");
    watch = (struct watch){.site = &site};
    brief = (struct watch){.site = &site};
    for (unsigned i = 0; i < 2 * WATCHED; i++)
        watch_acquire(&watch, &http, "many", ttl_ms);
    watch_acquire(&brief, &http, "many", SHORT_TTL_MS);
    kit_http_close(&http);

    int64_t begin_us = kit_now_us();
    outage->begin(&site);
    int64_t gone_us = kit_now_us();
    kit_sleep_ms((int)ttl_ms + OUTAGE_SPARE_MS);
    int64_t ending_us = kit_now_us();
    outage->end(&site);
    int64_t back_us = kit_now_us();

    /* The second half of the list is renewed and forgotten by the watch. */
    watch.count = WATCHED;
    for (unsigned i = WATCHED; i < 2 * WATCHED; i++) {
        const struct watched *kept = &watch.list[i];
        int64_t due_us = kept->granted_from_us + kept->ttl_us + (ending_us - gone_us) - LEAP_MS * 1000;
        renewed_count += renew_one(&site, kept->key, due_us, outage->name);
    }
    double renewed = (double)(kit_now_us() - back_us) / 1e6;
    watch_until_ended(&brief, WAIT_MS);
    watch_until_ended(&watch, (int)ttl_ms + WAIT_MS);
    printf("ends: %s for %.1f s with ttl %.1f s: %u of %d renewals went through %.2f s after its end; a ttl of %.1f s "
           "was over %.2f s after it\n",
           outage->name, (double)(ending_us - gone_us) / 1e6, ttl_ms / 1e3, renewed_count, WATCHED, renewed,
           (double)SHORT_TTL_MS / 1e3, (double)(brief.list[0].ended_to_us - back_us) / 1e6);
    /* Early: the outage was at least so long; late: at most so long, and its first 5 s count. */
    watch_judge(&watch, ending_us - gone_us, LEAP_MS + EDGE_MS, INT32_MAX / 1000, outage->name);
    watch_judge(&watch, back_us - begin_us, INT32_MAX / 1000, late_ms(form), outage->name);
    site_stop(&site);
}

void ends_away(const struct form *form)
{
    run_outage(form, &(struct outage){"away: no permitd", site_stop_permitd, site_start_permitd});
}

/* "The sweeper's lateness" is 5 s, also while the permitd that would sweep at once is stopped. */
void ends_leader(const struct form *form)
{
    enum { TTL_MS = 1000 };
    struct site site = site_start(PERMITD_MAX, false);
    site_semaphore(&site, "many", "{\"capacity\":100000,\"kind\":\"counted\"}");
    for (size_t i = 0; i < site.count; i++) {
        static struct watch watch;
        char what[64];
        watch = (struct watch){.site = &site};
        snprintf(what, sizeof(what), "leader: permitd %zu of %zu stopped", i + 1, site.count);
        struct kit_http http = kit_http(site.permitd[(i + 1) % site.count]->port);
        kit_permitd_freeze(site.permitd[i]);
        for (unsigned j = 0; j < WATCHED; j++)
            watch_acquire(&watch, &http, "many", TTL_MS);
        watch_until_ended(&watch, WAIT_MS);
        kit_permitd_thaw(site.permitd[i]);
        watch_judge(&watch, 0, EDGE_MS, form->full ? LEAP_MS : SUITE_LATE_MS, what);
        kit_http_close(&http);
    }
    site_stop(&site);
}

static void freeze(struct site *site)
{
    kit_database_freeze(site->database);
}

static void thaw(struct site *site)
{
    kit_database_thaw(site->database);
}

void ends_frozen(const struct form *form)
{
    run_outage(form, &(struct outage){"frozen: no database", freeze, thaw});
}
