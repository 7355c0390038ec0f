/* SPDX-License-Identifier: MIT */
/*
 * Three Galera nodes on loopback, three permitd, each behind its own proxy, and clients like those of the storm, with
 * fewer kinds of calls. Each mode has a new cluster:
 *
 *     one        all permitd write to one node; permitd are killed (N1)
 *     failover   all permitd write to one node; they are moved to another node and back, one after the other, while
 *                both nodes live; then that node is killed and they move to the next; then that one is killed: the last
 *                node has no quorum and refuses, is bootstrapped by hand, and serves
 *     all        each permitd writes to its own node
 *
 * The last mode shows first that a lagging node does not answer with old data. At the end of each mode the history and
 * the rows of one node are checked, all nodes have the same rows, and the full capacity can be acquired after all
 * leases have ended.
 *
 * galera [--seed N] [--minutes N] [--mode one|failover|all] [--clients N]
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#include "fixture.h"
#include "galera_cluster.h"
#include "proxy.h"

enum {
    CLIENTS_MAX = 32,
    SERVED_MS = 60000, /* anything later counts as lost; generous for slow machines */
    TAKEN_MS = 5000,   /* P8: a failover or an outage may shorten a lease by this */
    LEASE_MAX_MS = TAKEN_MS + 3000,
    LEASES_OVER_MS = 30000,
    KEPT = 40,
    LAG_MS = 400,
    PERMITD = 3,
    HEALTHY_MS = 2000, /* longest load before and between faults */
    SHORT_S = 4,       /* without --minutes */
};

static const struct semaphore_facts semaphores[] = {
    {"one-a", 1, true}, {"two-a", 2, true}, {"seven-a", 7, true}, {"nine-b", 9, false}, {"wide", 1000, false},
};
enum { SEMAPHORES = sizeof(semaphores) / sizeof(semaphores[0]), ONE_A = 0, TWO_A = 1, WIDE = 4 };

struct run;

struct mode {
    const char *name;
    const char *told; /* which permitd write to which node */
    bool spread;      /* the first permitd on the first node, the second on the second, ... */
    void (*work)(struct run *run, int64_t end_us);
};

struct run {
    const struct mode *mode;
    struct world world;
    struct galera cluster;
    unsigned first; /* first node that is alive */
    struct proxy *proxies[PERMITD];
    struct kit_permitd *permitd[PERMITD];
    struct caller dice;
    struct job kept[KEPT]; /* held during a failover */
    atomic_uint granted[PERMITD];
    atomic_bool stopping;
    unsigned clients;
    unsigned seconds;
    unsigned outages;
    unsigned checks;    /* passed */
    int64_t slowest_us; /* from a kill or a bootstrap until every permitd grants again */
};

struct client {
    pthread_t thread;
    struct run *run;
    struct caller caller;
};

/* ---- clients ---- */

static bool chance(struct caller *caller, unsigned percent)
{
    return caller_random(caller, 100) < percent;
}

/* Repeats the call at any permitd, up to six times, until it has an answer that is not SAYS_NOTHING. */
static enum call_says call_retrying(struct run *run, struct caller *caller, const struct job *job,
                                    enum call_says (*call)(struct caller *, unsigned, const struct job *))
{
    for (int tries = 0; tries < 6 && !atomic_load(&run->stopping); tries++) {
        unsigned at = caller_random(caller, PERMITD);
        if (!atomic_load(&caller->world->ports[at])) {
            kit_sleep_ms(10);
            continue;
        }
        enum call_says says = call(caller, at, job);
        if (caller->history.calls[caller->history.count - 1].status == 201)
            atomic_fetch_add(&run->granted[at], 1);
        if (says != SAYS_NOTHING)
            return says;
        kit_sleep_ms(5 + (int)caller_random(caller, 60));
    }
    return SAYS_NOTHING;
}

static void use_key(struct run *run, struct caller *caller)
{
    struct job job = caller_new_job(caller);
    job_want_some(caller, &job);
    job.ttl_ms = TAKEN_MS + 500 + caller_random(caller, LEASE_MAX_MS - TAKEN_MS - 500);
    job.wait_ms = chance(caller, 20) ? 1 + caller_random(caller, 200) : 0;
    world_remember(caller->world, &job);
    if (chance(caller, 2)) /* the release arrives before the acquire */
        call_retrying(run, caller, &job, caller_release);
    enum call_says says = chance(caller, 10) ? caller_acquire_everywhere(caller, &job) : SAYS_NOTHING;
    if (says != SAYS_HELD)
        says = call_retrying(run, caller, &job, caller_acquire);
    if (says == SAYS_HELD && chance(caller, 20))
        call_retrying(run, caller, &job, caller_renew);
    if (says == SAYS_HELD && chance(caller, 20))
        call_retrying(run, caller, &job, caller_query);
    if (says == SAYS_HELD ? chance(caller, 98) : chance(caller, 50))
        call_retrying(run, caller, &job, caller_release);
    if (chance(caller, 10)) /* a late copy of the acquire */
        call_retrying(run, caller, &job, caller_acquire);
}

/* Repeats another client's key, mostly through another permitd. */
static void use_other_key(struct run *run, struct caller *caller)
{
    struct job job;
    if (!world_recall(caller, &job))
        return;
    unsigned what = caller_random(caller, 10);
    call_retrying(run, caller, &job, what < 5 ? caller_acquire : what < 9 ? caller_query : caller_release);
}

static void *client_run(void *context)
{
    struct client *client = context;
    while (!atomic_load(&client->run->stopping)) {
        if (chance(&client->caller, 85))
            use_key(client->run, &client->caller);
        else
            use_other_key(client->run, &client->caller);
    }
    caller_close(&client->caller);
    return NULL;
}

/* ---- servers ---- */

static const char *const permitd_flags[] = {"--unsafe-multi-writer", NULL};

static void start_permitd(struct run *run, unsigned at)
{
    struct kit_permitd_options options = {.database = proxy_url(run->proxies[at]), .flags = permitd_flags};
    run->permitd[at] = kit_permitd_start(&options);
    atomic_store(&run->world.ports[at], run->permitd[at]->port);
}

/* P14: permitd does not serve with unsafe settings. */
static void check_refused_without_flag(struct run *run)
{
    struct kit_permitd *permitd =
        kit_permitd_spawn(&(struct kit_permitd_options){.database = run->cluster.nodes[0].database->url});
    int status = kit_permitd_wait_end(permitd, SERVED_MS);
    if (status == -1 || !WIFEXITED(status) || WEXITSTATUS(status) != 1)
        kit_fail("galera: permitd serves on a cluster without --unsafe-multi-writer (0x%x)", (unsigned)status);
    kit_permitd_kill(permitd);
    run->checks++;
}

static void start_servers(struct run *run)
{
    galera_start(&run->cluster);
    check_refused_without_flag(run);
    for (unsigned i = 0; i < PERMITD; i++) {
        unsigned node = run->mode->spread ? i : 0;
        run->proxies[i] = proxy_start(run->cluster.nodes[node].database->socket, run->world.seed + i);
        start_permitd(run, i); /* one after the other, because the schema lock exists on one node only */
    }
    make_semaphores(&run->world.facts, run->permitd[0]->port);
}

struct goal {
    struct run *run;
    unsigned granted[PERMITD];
};

static bool all_grant_again(void *context)
{
    struct goal *goal = context;
    for (unsigned i = 0; i < PERMITD; i++)
        if (atomic_load(&goal->run->granted[i]) < goal->granted[i])
            return false;
    return true;
}

static void await_service(struct run *run, const char *after)
{
    struct goal goal = {.run = run};
    for (unsigned i = 0; i < PERMITD; i++)
        goal.granted[i] = atomic_load(&run->granted[i]) + 3;
    if (!kit_wait_until(all_grant_again, &goal, SERVED_MS))
        kit_fail("galera: not every permitd grants again %d s after %s", SERVED_MS / 1000, after);
}

static void record_outage(struct run *run, int64_t since_us)
{
    int64_t took = kit_now_us() - since_us;
    run->slowest_us = took > run->slowest_us ? took : run->slowest_us;
    run->outages++;
    run->checks++;
}

static struct job want_one(struct caller *caller, unsigned semaphore)
{
    struct job job = caller_new_job(caller);
    job.want_count = 1;
    job.wants[0] = (struct want){semaphore, 1};
    return job;
}

/* ---- the modes ---- */

static void work_one(struct run *run, int64_t end_us)
{
    while (kit_now_us() < end_us) {
        kit_sleep_ms((int)caller_random(&run->dice, HEALTHY_MS));
        unsigned victim = caller_random(&run->dice, PERMITD);
        int64_t killed = kit_now_us();
        atomic_store(&run->world.ports[victim], 0);
        kit_permitd_kill(run->permitd[victim]);
        start_permitd(run, victim);
        await_service(run, "the death of a permitd");
        record_outage(run, killed);
    }
}

static int64_t epoch(const struct run *run)
{
    struct kit_sql *sql = galera_sql(&run->cluster, run->first);
    int64_t epoch = kit_sql_number(sql, "SELECT epoch FROM cluster");
    kit_sql_close(sql);
    return epoch;
}

/*
 * Repeats the call until it has an answer that is not SAYS_NOTHING; ends the process after SERVED_MS or if it is not
 * held.
 */
static void expect_held(struct run *run, const struct job *job, const char *when,
                        enum call_says (*call)(struct caller *, unsigned, const struct job *))
{
    enum call_says says;
    int64_t end = kit_now_us() + SERVED_MS * 1000LL;
    do
        says = call_retrying(run, &run->dice, job, call);
    while (says == SAYS_NOTHING && kit_now_us() < end);
    if (says != SAYS_HELD)
        kit_fail("galera: key %u is not held %s", job->key, when);
}

/* The last of these grants is acknowledged just before the node dies. */
static void acquire_kept(struct run *run)
{
    for (unsigned i = 0; i < KEPT; i++) {
        run->kept[i] = want_one(&run->dice, WIDE);
        run->kept[i].ttl_ms = 3600000;
        expect_held(run, &run->kept[i], "when asked for", caller_acquire);
    }
}

/* P4: each acknowledged grant is found, and a repetition gets the same tokens (check_keys). */
static void check_kept_grants(struct run *run, int64_t epoch_before)
{
    if (epoch(run) != epoch_before) /* the identity of the database is the UUID of the cluster */
        kit_fail("galera: another node of the cluster was taken for another server");
    for (unsigned i = 0; i < KEPT; i++) {
        expect_held(run, &run->kept[i], "after the node that granted it died", caller_query);
        expect_held(run, &run->kept[i], "after the node that granted it died", caller_acquire);
    }
    for (unsigned i = 0; i < KEPT; i++)
        call_retrying(run, &run->dice, &run->kept[i], caller_release);
    run->checks++;
}

static void redirect(struct run *run, unsigned at, unsigned node)
{
    proxy_point(run->proxies[at], run->cluster.nodes[node].database->socket);
    proxy_cut(run->proxies[at]);
}

/*
 * Moves all permitd to another node, as before maintenance. For a moment two nodes get writes while COMMITs are in
 * flight.
 */
static void hand_over(struct run *run, unsigned node)
{
    for (unsigned i = 0; i < PERMITD; i++) {
        redirect(run, i, node);
        kit_sleep_ms((int)caller_random(&run->dice, 200));
    }
    await_service(run, "a node handed over");
    run->checks++;
}

struct group {
    struct kit_sql *sql;
    const char *status;
};

static void take_status(void *context, char **columns)
{
    struct group *group = context;
    if (columns[1] && !strcmp(columns[1], group->status))
        group->status = NULL;
}

static bool has_status(void *context)
{
    struct group group = *(struct group *)context;
    kit_sql_each(group.sql, "SHOW GLOBAL STATUS LIKE 'wsrep_cluster_status'", take_status, &group);
    return !group.status;
}

static void await_status(struct kit_sql *sql, const char *status)
{
    struct group group = {sql, status};
    if (!kit_wait_until(has_status, &group, SERVED_MS))
        kit_fail("galera: the node that is left is not %s", status);
}

/*
 * P5: a node without quorum cannot answer: its permitd answer neither no_capacity nor held. Each tries as long as its
 * time limit allows, so all are asked in parallel.
 */
static void expect_refusal(struct run *run)
{
    struct history *history = &run->dice.history;
    (void)caller_acquire_everywhere(&run->dice, &run->kept[0]);
    for (size_t i = history->count - PERMITD; i < history->count; i++)
        if (history->calls[i].says != SAYS_NOTHING)
            kit_fail("galera: a node without a quorum answered %d", history->calls[i].status);
    run->checks++;
}

/* The node has one vote of two, so an administrator has to bootstrap it. */
static void bootstrap_node(struct run *run)
{
    struct kit_sql *sql = galera_sql(&run->cluster, run->first);
    await_status(sql, "non-Primary");
    expect_refusal(run);
    /* MariaDB 11.8 has one variable per option and refuses wsrep_provider_options; 10.11 has only the latter. */
    if (kit_sql_try(sql, "SET GLOBAL wsrep_provider_pc_bootstrap = ON"))
        kit_sql_run(sql, "SET GLOBAL wsrep_provider_options = 'pc.bootstrap=1'");
    await_status(sql, "Primary");
    kit_sql_close(sql);
}

static void fail_over(struct run *run)
{
    int64_t before = epoch(run);
    acquire_kept(run);
    int64_t since = kit_now_us();
    galera_kill(&run->cluster, run->first++);
    for (unsigned i = 0; i < PERMITD; i++)
        redirect(run, i, run->first);
    if (run->first + 1 == GALERA_NODES) {
        bootstrap_node(run);
        since = kit_now_us();
    }
    await_service(run, "the death of a node");
    record_outage(run, since);
    check_kept_grants(run, before);
}

static void work_failover(struct run *run, int64_t end_us)
{
    for (unsigned i = 0; i < 4; i++)
        hand_over(run, (i + 1) % 2);
    while (run->first + 1 < GALERA_NODES) {
        int64_t left = end_us - kit_now_us();
        unsigned kills = GALERA_NODES - run->first;
        if (left > 0)
            kit_sleep_ms((int)(left / 1000 / kills));
        fail_over(run);
    }
    while (kit_now_us() < end_us)
        kit_sleep_ms(50);
}

static void work_all(struct run *run, int64_t end_us)
{
    (void)run;
    while (kit_now_us() < end_us)
        kit_sleep_ms(50);
}

static const struct mode modes[] = {
    {"one", "3 permitd on one node", false, work_one},
    {"failover", "3 permitd on a node that is handed over and dies, and on the next that dies", false, work_failover},
    {"all", "3 permitd, each on a node of its own", true, work_all},
};
enum { MODES = sizeof(modes) / sizeof(modes[0]) };

/* ---- a node that lags ---- */

struct question {
    pthread_t thread;
    struct caller caller;
    enum call_says (*call)(struct caller *caller, unsigned at, const struct job *job);
    struct job job;
    enum call_says says;
};

/*
 * Repeats the call until it has an answer that is not SAYS_NOTHING. On a slow machine the wait may exceed the limit of
 * one call.
 */
static enum call_says call_until_answered(struct caller *caller, unsigned at, const struct job *job,
                                          enum call_says (*call)(struct caller *, unsigned, const struct job *))
{
    int64_t end = kit_now_us() + SERVED_MS * 1000LL;
    enum call_says says;
    do
        says = call(caller, at, job);
    while (says == SAYS_NOTHING && kit_now_us() < end);
    return says;
}

static void *ask(void *context)
{
    struct question *question = context;
    question->says = call_until_answered(&question->caller, 1, &question->job, question->call);
    caller_close(&question->caller);
    return NULL;
}

/*
 * P5, P6 across nodes: the second node receives the transactions of the first but does not apply them. A permitd there
 * is asked for a grant and for a unit that it cannot see yet. It must wait (wsrep_sync_wait) whatever its rows say.
 * (Statements that lock rows wait here in any case; the query does not.)
 */
static void query_lagging_node(struct run *run, struct history *history)
{
    struct kit_sql *sql = galera_sql(&run->cluster, 1);
    struct caller *dice = &run->dice;
    struct job first = want_one(dice, ONE_A), second = want_one(dice, ONE_A), other = want_one(dice, TWO_A);
    struct question questions[] = {{.call = caller_acquire, .job = second},
                                   {.call = caller_query, .job = other},
                                   {.call = caller_acquire, .job = other}};
    enum { QUESTIONS = sizeof(questions) / sizeof(questions[0]) };
    KIT_CHECK(caller_acquire(dice, 0, &first) == SAYS_HELD);
    kit_sql_run(sql, "FLUSH TABLES WITH READ LOCK"); /* the node applies nothing while it is held */
    KIT_CHECK(caller_release(dice, 0, &first) == SAYS_ENDED && caller_acquire(dice, 0, &other) == SAYS_HELD);
    for (unsigned i = 0; i < QUESTIONS; i++) {
        caller_init(&questions[i].caller, &run->world, 7000 + i);
        KIT_CHECK(!pthread_create(&questions[i].thread, NULL, ask, &questions[i]));
    }
    kit_sleep_ms(LAG_MS); /* time for an answer that does not wait */
    kit_sql_run(sql, "UNLOCK TABLES");
    kit_sql_close(sql);
    for (unsigned i = 0; i < QUESTIONS; i++) {
        pthread_join(questions[i].thread, NULL);
        history_join(history, &questions[i].caller.history);
        if (questions[i].says != SAYS_HELD)
            kit_fail("galera: a lagging node answered with old data (question %u)", i + 1);
    }
    KIT_CHECK(caller_release(dice, 1, &second) == SAYS_ENDED && caller_release(dice, 1, &other) == SAYS_ENDED);
    run->checks += QUESTIONS;
}

/* ---- judging ---- */

static void acquire_everything(struct run *run)
{
    for (unsigned i = 0; i < PERMITD; i++)
        run->dice.http[i].timeout_ms = 2 * LEASES_OVER_MS;
    for (unsigned i = 0; i < SEMAPHORES; i++) {
        struct job job = want_one(&run->dice, i);
        job.wants[0].count = semaphores[i].capacity;
        job.wait_ms = LEASES_OVER_MS;
        if (call_until_answered(&run->dice, i % PERMITD, &job, caller_acquire) != SAYS_HELD)
            kit_fail("galera: the full capacity of %s cannot be had when all leases are over (%d)", semaphores[i].name,
                     run->dice.history.calls[run->dice.history.count - 1].status);
    }
}

static void take_checksum(void *context, char **columns)
{
    char *text = context;
    size_t length = strlen(text);
    snprintf(text + length, MESSAGE_SIZE - length, "%s ", columns[1] ? columns[1] : "none");
}

/* Call it after all permitd have ended. */
static void compare_nodes(struct run *run)
{
    char texts[GALERA_NODES][MESSAGE_SIZE] = {""};
    for (unsigned i = run->first; i < GALERA_NODES; i++) {
        struct kit_sql *sql = galera_sql(&run->cluster, i);
        (void)kit_sql_number(sql, "SELECT COUNT(*) FROM semaphore"); /* waits until the node has applied everything;
                                                                      * CHECKSUM does not wait */
        kit_sql_each(sql, "CHECKSUM TABLE semaphore, permit, permit_request, slot, semaphore_event, id_block",
                     take_checksum, texts[i]);
        kit_sql_close(sql);
        if (strcmp(texts[i], texts[run->first]) != 0)
            kit_fail("galera: nodes %u and %u differ: %s, %s", run->first + 1, i + 1, texts[run->first], texts[i]);
    }
    run->checks++;
}

static void print_row(void *context, char **columns)
{
    (void)context;
    for (int i = 0; i < 8; i++)
        fprintf(stderr, " %s", columns[i] ? columns[i] : "NULL");
    fprintf(stderr, "\n");
}

/* Prints all calls of the key in the message, and its row, for the analysis of a failure. */
static void show_key(struct run *run, struct kit_sql *sql, const struct history *history, const char *message)
{
    char name[64], statement[512];
    const char *word = strstr(message, "key ");
    if (!word)
        return;
    unsigned key = (unsigned)strtoul(word + 4, NULL, 10);
    for (size_t i = 0; i < history->count; i++) {
        const struct call *call = &history->calls[i];
        if (call->key == key)
            fprintf(stderr, "  kind %d says %d status %d sent %lld answered %lld lease %lld\n", (int)call->kind,
                    (int)call->says, call->status, (long long)call->sent_us, (long long)call->answered_us,
                    (long long)call->lease_us);
    }
    key_name(&run->world, key, name);
    snprintf(statement, sizeof(statement),
             "SELECT state, end_reason, ttl_ms, due_at, renewals, replays, acquired_at, ended_at FROM permit_request "
             "WHERE external_id = '%s'",
             name);
    kit_sql_each(sql, statement, print_row, NULL);
}

/*
 * If the lease clock could not be advanced for more than 5 s and a tick is still in flight, it jumps when that tick
 * arrives. By P8 this may shorten the leases held then by 5 s. It happens in a failover, or on an overloaded machine.
 */
static void shorten_leases(struct history *history)
{
    for (size_t i = 0; i < history->count; i++)
        if (history->calls[i].lease_us)
            history->calls[i].lease_us -= TAKEN_MS * 1000;
}

static bool check_past(struct kit_sql *sql, char message[MESSAGE_SIZE])
{
    static const char early[] = "a request expired before its ttl was over";
    if (rows_check_past(sql, message))
        return true;
    return !strncmp(message, early, sizeof(early) - 1) &&
           !kit_sql_number(sql,
                           "SELECT COUNT(*) FROM permit_request WHERE end_reason = 2 AND renewals = 0 AND "
                           "TIMESTAMPDIFF(MICROSECOND, acquired_at, ended_at) < (ttl_ms - %d) * 1000",
                           TAKEN_MS);
}

static void judge_run(struct run *run, struct history *history)
{
    char message[MESSAGE_SIZE] = "";
    const struct facts *facts = &run->world.facts;
    struct kit_sql *sql = galera_sql(&run->cluster, run->first);
    rows_record(sql, &run->world, 0, atomic_load(&run->world.next_key), history);
    shorten_leases(history);
    bool good = check_statuses(history, true, message) && check_capacity(history, facts, message) &&
                check_keys(history, facts, message) && check_tokens(history, facts, message) &&
                check_ends(history, facts, message) && rows_check(sql, message) && check_past(sql, message);
    if (!good)
        show_key(run, sql, history, message);
    kit_sql_close(sql);
    if (!good)
        kit_fail("galera: %s: %s", run->mode->name, message);
    run->checks += 7;
}

struct counts {
    size_t calls, grants, releases, no_room, silent;
    size_t by_status[600];
    int64_t longest_us;
};

static struct counts count_calls(const struct history *history)
{
    struct counts counts = {.calls = history->count};
    for (size_t i = 0; i < history->count; i++) {
        const struct call *call = &history->calls[i];
        counts.grants += call->status == 201;
        counts.releases += call->kind == CALL_RELEASE && call->says == SAYS_ENDED;
        counts.no_room += call->says == SAYS_NO_CAPACITY;
        counts.silent += call->says == SAYS_NOTHING;
        if (call->status >= 0 && call->status < 600)
            counts.by_status[call->status]++;
        if (call->answered_us - call->sent_us > counts.longest_us)
            counts.longest_us = call->answered_us - call->sent_us;
    }
    return counts;
}

/* Prints counters of the permitd and nodes that are running. */
static void print_inside(struct run *run)
{
    static const char *const names[] = {"wsrep_replicated", "wsrep_local_cert_failures", "wsrep_local_bf_aborts"};
    struct fixture fixture = {.count = PERMITD};
    memcpy(fixture.permitd, run->permitd, sizeof(run->permitd));
    printf("  transactions retried: %.0f conflict, %.0f lost, %.0f unavailable, %.0f lock timeout\n",
           fixture_metric(&fixture, "permitd_batch_retries_total{reason=\"conflict\"}"),
           fixture_metric(&fixture, "permitd_batch_retries_total{reason=\"lost\"}"),
           fixture_metric(&fixture, "permitd_batch_retries_total{reason=\"unavailable\"}"),
           fixture_metric(&fixture, "permitd_batch_retries_total{reason=\"lock_timeout\"}"));
    for (unsigned i = run->first; i < GALERA_NODES; i++) {
        struct kit_sql *sql = galera_sql(&run->cluster, i);
        printf("  node %u:", i + 1);
        for (size_t n = 0; n < sizeof(names) / sizeof(names[0]); n++)
            printf(" %s %.0f", names[n], galera_status(sql, names[n]));
        printf("\n");
        kit_sql_close(sql);
    }
}

static void print_run(struct run *run, const struct history *history, double seconds)
{
    struct counts counts = count_calls(history);
    printf("galera: %s: %zu calls of %u clients in %.0f s, %s; %zu grants, %zu releases, %zu without capacity, %zu "
           "unanswered or 503; the longest call took %.1f s\n  by status:",
           run->mode->name, counts.calls, run->clients, seconds, run->mode->told, counts.grants, counts.releases,
           counts.no_room, counts.silent, (double)counts.longest_us / 1e6);
    for (int status = 1; status < 600; status++)
        if (counts.by_status[status])
            printf(" %d: %zu,", status, counts.by_status[status]);
    printf(" none: %zu\n", counts.by_status[0]);
    if (run->outages)
        printf("  all permitd granted again %u times, within %.1f s at most\n", run->outages,
               (double)run->slowest_us / 1e6);
    print_inside(run);
    fflush(stdout);
}

/* ---- all of it ---- */

static void run_clients(struct run *run, struct history *history)
{
    static struct client clients[CLIENTS_MAX];
    for (unsigned i = 0; i < run->clients; i++) {
        clients[i] = (struct client){.run = run};
        caller_init(&clients[i].caller, &run->world, i);
        KIT_CHECK(!pthread_create(&clients[i].thread, NULL, client_run, &clients[i]));
    }
    await_service(run, "the start");
    run->mode->work(run, kit_now_us() + run->seconds * 1000000LL);
    atomic_store(&run->stopping, true);
    for (unsigned i = 0; i < run->clients; i++) {
        pthread_join(clients[i].thread, NULL);
        history_join(history, &clients[i].caller.history);
    }
}

static void run_mode(struct run *run)
{
    struct history history = {NULL, 0, 0};
    caller_init(&run->dice, &run->world, 5555);
    start_servers(run);
    if (run->mode->spread)
        query_lagging_node(run, &history);
    int64_t start = kit_now_us();
    run_clients(run, &history);
    double seconds = (double)(kit_now_us() - start) / 1e6;
    acquire_everything(run);
    caller_close(&run->dice);
    history_join(&history, &run->dice.history);
    print_run(run, &history, seconds);
    judge_run(run, &history);
    for (unsigned i = 0; i < PERMITD; i++)
        kit_permitd_stop(run->permitd[i]);
    compare_nodes(run);
    for (unsigned i = 0; i < PERMITD; i++)
        proxy_stop(run->proxies[i]);
    galera_stop(&run->cluster);
    history_release(&history);
}

static _Noreturn void usage(void)
{
    kit_fail("usage: galera [--seed N] [--minutes N] [--mode one|failover|all] [--clients N]");
}

int main(int argc, char **argv)
{
    unsigned long long seed = (unsigned long long)time(NULL);
    unsigned seconds = SHORT_S, clients = 12, checks = 0;
    const char *only = NULL;
    for (int i = 1; i < argc; i += 2) {
        const char *text = i + 1 < argc ? argv[i + 1] : NULL;
        unsigned long long value = text ? strtoull(text, NULL, 10) : 0;
        if (!text)
            usage();
        else if (!strcmp(argv[i], "--seed"))
            seed = value;
        else if (!strcmp(argv[i], "--minutes") && value >= 1)
            seconds = (unsigned)value * 60;
        else if (!strcmp(argv[i], "--clients") && value >= 1 && value <= CLIENTS_MAX)
            clients = (unsigned)value;
        else if (!strcmp(argv[i], "--mode"))
            only = text;
        else
            usage();
    }
    printf("galera: seed %llu\n", seed);
    fflush(stdout);
    for (unsigned i = 0; i < MODES; i++) {
        if (only && strcmp(only, modes[i].name) != 0)
            continue;
        static struct run run;
        memset(&run, 0, sizeof(run));
        run.mode = &modes[i];
        run.world.facts = (struct facts){.semaphores = semaphores, .count = SEMAPHORES};
        run.world.seed = seed;
        run.world.permitd_count = PERMITD;
        run.world.faults = true;
        run.clients = clients;
        run.seconds = seconds;
        run_mode(&run);
        checks += run.checks;
    }
    if (!checks)
        usage();
    printf("galera: %u passed, 0 failed: ok\n", checks);
    return 0;
}
