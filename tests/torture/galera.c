/* SPDX-License-Identifier: MIT */
/*
 * Three Galera nodes on loopback, three permitd, each behind a proxy of its own, and clients as in the storm, but fewer
 * kinds of them. Each mode has a fresh cluster:
 *
 *     one        all permitd write to one node, and are killed (N1)
 *     failover   all write to one node; they are led to another one and back while both live, one after the other;
 *                then the node is killed and they are led to the next one; then that one: the last node has no
 *                quorum and refuses, is made the group by hand, and serves
 *     all        each permitd writes to a node of its own
 *
 * In the last one it is shown before the clients begin that a node that lags answers nothing old. At the end of each
 * the history is judged, and the rows of a node; all nodes have the same rows, and everything can be had when all
 * leases are over.
 *
 * galera [--seed N] [--minutes N] [--mode one|failover|all] [--clients N]
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#include "galera_cluster.h"
#include "proxy.h"
#include "site.h"

enum {
    CLIENTS_MAX = 32,
    SERVED_MS = 60000, /* what has not come by then does not come; a slow machine is no fault */
    TAKEN_MS = 5000,   /* P8: what a failover or an outage may take from a lease */
    LEASE_MAX_MS = TAKEN_MS + 3000,
    LEASES_OVER_MS = 30000,
    KEPT = 40,
    LAG_MS = 400,
    PERMITD = 3,
    HEALTHY_MS = 2000, /* of load before and between faults, at most */
    SHORT_S = 4,       /* without --minutes */
};

static const struct semaphore_facts semaphores[] = {
    {"one-a", 1, true}, {"two-a", 2, true}, {"seven-a", 7, true}, {"nine-b", 9, false}, {"wide", 1000, false},
};
enum { SEMAPHORES = sizeof(semaphores) / sizeof(semaphores[0]), ONE_A = 0, TWO_A = 1, WIDE = 4 };

struct run;

struct mode {
    const char *name;
    const char *told; /* who writes where */
    bool spread;      /* the first permitd on the first node, the second on the second, ... */
    void (*work)(struct run *run, int64_t end_us);
};

struct run {
    const struct mode *mode;
    struct world world;
    struct galera cluster;
    unsigned first; /* of the nodes that live */
    struct proxy *proxies[PERMITD];
    struct kit_permitd *permitd[PERMITD];
    struct caller dice;
    struct job kept[KEPT]; /* held over a failover */
    atomic_uint granted[PERMITD];
    atomic_bool stopping;
    unsigned clients;
    unsigned seconds;
    unsigned outages;
    unsigned checks;    /* passed */
    int64_t slowest_us; /* from a kill, or a group made anew, until every permitd grants again */
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

/* The same call at any permitd, some times if its answer says nothing. */
static enum call_says insist(struct run *run, struct caller *caller, const struct job *job,
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

static void live(struct run *run, struct caller *caller)
{
    struct job job = caller_new_job(caller);
    job_want_some(caller, &job);
    job.ttl_ms = TAKEN_MS + 500 + caller_random(caller, LEASE_MAX_MS - TAKEN_MS - 500);
    job.wait_ms = chance(caller, 20) ? 1 + caller_random(caller, 200) : 0;
    world_remember(caller->world, &job);
    if (chance(caller, 2)) /* the release overtakes the acquire */
        insist(run, caller, &job, caller_release);
    enum call_says says = chance(caller, 10) ? caller_acquire_everywhere(caller, &job) : SAYS_NOTHING;
    if (says != SAYS_HELD)
        says = insist(run, caller, &job, caller_acquire);
    if (says == SAYS_HELD && chance(caller, 20))
        insist(run, caller, &job, caller_renew);
    if (says == SAYS_HELD && chance(caller, 20))
        insist(run, caller, &job, caller_look);
    if (says == SAYS_HELD ? chance(caller, 98) : chance(caller, 50))
        insist(run, caller, &job, caller_release);
    if (chance(caller, 10)) /* a late copy of the acquire */
        insist(run, caller, &job, caller_acquire);
}

/* A stranger with the same key, mostly through another permitd. */
static void meddle(struct run *run, struct caller *caller)
{
    struct job job;
    if (!world_recall(caller, &job))
        return;
    unsigned what = caller_random(caller, 10);
    insist(run, caller, &job, what < 5 ? caller_acquire : what < 9 ? caller_look : caller_release);
}

static void *client_run(void *context)
{
    struct client *client = context;
    while (!atomic_load(&client->run->stopping)) {
        if (chance(&client->caller, 85))
            live(client->run, &client->caller);
        else
            meddle(client->run, &client->caller);
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

/* P14: "permitd does not serve on unsafe settings". */
static void refuse_unless_told(struct run *run)
{
    struct kit_permitd *permitd =
        kit_permitd_spawn(&(struct kit_permitd_options){.database = run->cluster.nodes[0].database->url});
    int status = kit_permitd_wait_end(permitd, SERVED_MS);
    if (status == -1 || !WIFEXITED(status) || WEXITSTATUS(status) != 1)
        kit_fail("galera: permitd serves on a cluster without having been told to (0x%x)", (unsigned)status);
    kit_permitd_kill(permitd);
    run->checks++;
}

static void start_servers(struct run *run)
{
    galera_start(&run->cluster);
    refuse_unless_told(run);
    for (unsigned i = 0; i < PERMITD; i++) {
        unsigned node = run->mode->spread ? i : 0;
        run->proxies[i] = proxy_start(run->cluster.nodes[node].database->socket, run->world.seed + i);
        start_permitd(run, i); /* one after the other: the lock around the schema is one node's */
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
        kit_fail("galera: not everything is served again %d s after %s", SERVED_MS / 1000, after);
}

static void note_outage(struct run *run, int64_t since_us)
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
        note_outage(run, killed);
    }
}

static int64_t epoch(const struct run *run)
{
    struct kit_sql *sql = galera_sql(&run->cluster, run->first);
    int64_t epoch = kit_sql_number(sql, "SELECT epoch FROM cluster");
    kit_sql_close(sql);
    return epoch;
}

/* Until one says something, as long as it takes. */
static void must_hold(struct run *run, const struct job *job, const char *when,
                      enum call_says (*call)(struct caller *, unsigned, const struct job *))
{
    enum call_says says;
    int64_t end = kit_now_us() + SERVED_MS * 1000LL;
    do
        says = insist(run, &run->dice, job, call);
    while (says == SAYS_NOTHING && kit_now_us() < end);
    if (says != SAYS_HELD)
        kit_fail("galera: key %u is not held %s", job->key, when);
}

/* The last of these is acknowledged just before the node dies. */
static void keep_some(struct run *run)
{
    for (unsigned i = 0; i < KEPT; i++) {
        run->kept[i] = want_one(&run->dice, WIDE);
        run->kept[i].ttl_ms = 3600000;
        must_hold(run, &run->kept[i], "when asked for", caller_acquire);
    }
}

/* P4: "an answered grant survives": found, and answered again with the same tokens (check_keys). */
static void find_kept(struct run *run, int64_t epoch_before)
{
    if (epoch(run) != epoch_before) /* "with Galera the cluster's UUID" is the identity */
        kit_fail("galera: another node of the cluster was taken for another server");
    for (unsigned i = 0; i < KEPT; i++) {
        must_hold(run, &run->kept[i], "after the node that granted it died", caller_look);
        must_hold(run, &run->kept[i], "after the node that granted it died", caller_acquire);
    }
    for (unsigned i = 0; i < KEPT; i++)
        insist(run, &run->dice, &run->kept[i], caller_release);
    run->checks++;
}

static void lead_to(struct run *run, unsigned at, unsigned node)
{
    proxy_point(run->proxies[at], run->cluster.nodes[node].database->socket);
    proxy_cut(run->proxies[at]);
}

/* As somebody does who wants to work on a node. For a moment two nodes are written to, and COMMITs are under way. */
static void hand_over(struct run *run, unsigned node)
{
    for (unsigned i = 0; i < PERMITD; i++) {
        lead_to(run, i, node);
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
 * P5: without the group a node knows nothing, and its permitd neither say "no capacity" nor that somebody holds. Each
 * tries for as long as it may, so all are asked at once.
 */
static void must_refuse(struct run *run)
{
    struct history *history = &run->dice.history;
    (void)caller_acquire_everywhere(&run->dice, &run->kept[0]);
    for (size_t i = history->count - PERMITD; i < history->count; i++)
        if (history->calls[i].says != SAYS_NOTHING)
            kit_fail("galera: a node without a quorum was believed (%d)", history->calls[i].status);
    run->checks++;
}

/* One vote of two: an administrator has to say that the others are dead. */
static void make_group(struct run *run)
{
    struct kit_sql *sql = galera_sql(&run->cluster, run->first);
    await_status(sql, "non-Primary");
    must_refuse(run);
    kit_sql_run(sql, "SET GLOBAL wsrep_provider_options = 'pc.bootstrap=1'");
    await_status(sql, "Primary");
    kit_sql_close(sql);
}

static void fail_over(struct run *run)
{
    int64_t before = epoch(run);
    keep_some(run);
    int64_t since = kit_now_us();
    galera_kill(&run->cluster, run->first++);
    for (unsigned i = 0; i < PERMITD; i++)
        lead_to(run, i, run->first);
    if (run->first + 1 == GALERA_NODES) {
        make_group(run);
        since = kit_now_us();
    }
    await_service(run, "the death of a node");
    note_outage(run, since);
    find_kept(run, before);
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

/* Again while it is told nothing: it may wait for longer than a call may take, on a slow machine. */
static enum call_says until_told(struct caller *caller, unsigned at, const struct job *job,
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
    question->says = until_told(&question->caller, 1, &question->job, question->call);
    caller_close(&question->caller);
    return NULL;
}

/*
 * P5, P6 across nodes: the second node takes what the first has committed, but does not apply it; a permitd there is
 * asked for a grant and a unit that it cannot see yet. It has to wait (wsrep_sync_wait), whatever its rows say. (What
 * locks rows waits here in any case; the look does not.)
 */
static void ask_while_lagging(struct run *run, struct history *history)
{
    struct kit_sql *sql = galera_sql(&run->cluster, 1);
    struct caller *dice = &run->dice;
    struct job first = want_one(dice, ONE_A), second = want_one(dice, ONE_A), other = want_one(dice, TWO_A);
    struct question questions[] = {{.call = caller_acquire, .job = second},
                                   {.call = caller_look, .job = other},
                                   {.call = caller_acquire, .job = other}};
    enum { QUESTIONS = sizeof(questions) / sizeof(questions[0]) };
    KIT_CHECK(caller_acquire(dice, 0, &first) == SAYS_HELD);
    kit_sql_run(sql, "FLUSH TABLES WITH READ LOCK"); /* nothing is applied while it is held */
    KIT_CHECK(caller_release(dice, 0, &first) == SAYS_ENDED && caller_acquire(dice, 0, &other) == SAYS_HELD);
    for (unsigned i = 0; i < QUESTIONS; i++) {
        caller_init(&questions[i].caller, &run->world, 7000 + i);
        KIT_CHECK(!pthread_create(&questions[i].thread, NULL, ask, &questions[i]));
    }
    kit_sleep_ms(LAG_MS); /* for those who do not wait */
    kit_sql_run(sql, "UNLOCK TABLES");
    kit_sql_close(sql);
    for (unsigned i = 0; i < QUESTIONS; i++) {
        pthread_join(questions[i].thread, NULL);
        history_join(history, &questions[i].caller.history);
        if (questions[i].says != SAYS_HELD)
            kit_fail("galera: a node that lags answered what was old (question %u)", i + 1);
    }
    KIT_CHECK(caller_release(dice, 1, &second) == SAYS_ENDED && caller_release(dice, 1, &other) == SAYS_ENDED);
    run->checks += QUESTIONS;
}

/* ---- the verdict ---- */

static void acquire_everything(struct run *run)
{
    for (unsigned i = 0; i < PERMITD; i++)
        run->dice.http[i].timeout_ms = 2 * LEASES_OVER_MS;
    for (unsigned i = 0; i < SEMAPHORES; i++) {
        struct job job = want_one(&run->dice, i);
        job.wants[0].count = semaphores[i].capacity;
        job.wait_ms = LEASES_OVER_MS;
        if (until_told(&run->dice, i % PERMITD, &job, caller_acquire) != SAYS_HELD)
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

/* For when no permitd runs any more. */
static void compare_nodes(struct run *run)
{
    char texts[GALERA_NODES][MESSAGE_SIZE] = {""};
    for (unsigned i = run->first; i < GALERA_NODES; i++) {
        struct kit_sql *sql = galera_sql(&run->cluster, i);
        (void)kit_sql_number(sql, "SELECT COUNT(*) FROM semaphore"); /* which waits; CHECKSUM does not */
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

/* For whoever has to find out: all calls of the key that the message names, and its row. */
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
 * When nobody could tick for more than 5 s, and a tick is long under way, served time leaps when it arrives: by P8 that
 * may take 5 s from what is held then. A failover is such a time, or a machine that has no time for us.
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
    rows_look(sql, &run->world, 0, atomic_load(&run->world.next_key), history);
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

/* What the permitd and nodes that still run say of themselves. */
static void print_inside(struct run *run)
{
    static const char *const names[] = {"wsrep_replicated", "wsrep_local_cert_failures", "wsrep_local_bf_aborts"};
    struct site site = {.count = PERMITD};
    memcpy(site.permitd, run->permitd, sizeof(run->permitd));
    printf("  transactions run again: %.0f for a conflict, %.0f lost, %.0f without a server, %.0f for a lock\n",
           site_metric(&site, "permitd_batch_retries_total{reason=\"conflict\"}"),
           site_metric(&site, "permitd_batch_retries_total{reason=\"lost\"}"),
           site_metric(&site, "permitd_batch_retries_total{reason=\"unavailable\"}"),
           site_metric(&site, "permitd_batch_retries_total{reason=\"lock_timeout\"}"));
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
    printf("galera: %s: %zu calls of %u clients in %.0f s, %s; %zu grants, %zu releases, %zu without room, %zu "
           "unanswered or 503; the longest call took %.1f s\n  by status:",
           run->mode->name, counts.calls, run->clients, seconds, run->mode->told, counts.grants, counts.releases,
           counts.no_room, counts.silent, (double)counts.longest_us / 1e6);
    for (int status = 1; status < 600; status++)
        if (counts.by_status[status])
            printf(" %d: %zu,", status, counts.by_status[status]);
    printf(" none: %zu\n", counts.by_status[0]);
    if (run->outages)
        printf("  %u times all granted again, within %.1f s at most\n", run->outages, (double)run->slowest_us / 1e6);
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
        ask_while_lagging(run, &history);
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
