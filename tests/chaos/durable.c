/* SPDX-License-Identifier: MIT */
/*
 * Kills permitd and mariadbd with SIGKILL under load, alternately: first with two permitd on one database, then with
 * one permitd and its private MariaDB. A client that loses an answer repeats the request with the same key until it is
 * answered. After each kill the rows are read with SQL, and at the end also with GET: every acknowledged grant is
 * there, and every acknowledged release has stayed.
 *
 * durable [--seed N] [--kills N] [--clients N]
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "rows.h"

enum { CLIENTS_MAX = 128, RECOVER_MS = 120000, LOOKS_MAX = 2000 };

enum { WIDE, SEATS, PAIR, SEMAPHORES };
static const struct semaphore_facts semaphores[] = {
    [WIDE] = {"wide", 1000000, false}, [SEATS] = {"seats", 2000, true}, [PAIR] = {"pair", 2, true}};

struct run {
    struct world world;
    unsigned clients;
    unsigned kills;
    struct history history; /* of the main thread, and of the clients that have ended */
    atomic_bool stopping;
    atomic_uint granted; /* acknowledged so far: shows that the service works again */
};

/* One of the two setups; either database or data_dir is set. */
struct servers {
    struct run *run;
    struct kit_database *database;
    char *data_dir;
    struct kit_permitd *permitd[PERMITD_MAX];
};

struct client {
    pthread_t thread;
    struct run *run;
    struct caller caller;
};

/* ---- clients ---- */

/* Repeats the call until it has an answer that is not SAYS_NOTHING, or the run ends. */
static enum call_says call_until_answered(struct client *client, const struct job *job,
                                          enum call_says (*call)(struct caller *, unsigned, const struct job *))
{
    struct caller *caller = &client->caller;
    enum call_says says;
    do {
        says = call(caller, caller_random(caller, (unsigned)caller->world->permitd_count), job);
        if (says == SAYS_NOTHING)
            kit_sleep_ms(5 + (int)caller_random(caller, 30));
    } while (says == SAYS_NOTHING && !atomic_load(&client->run->stopping));
    return says;
}

static struct job random_job(struct caller *caller)
{
    struct job job = caller_new_job(caller);
    unsigned what = caller_random(caller, 10);
    if (what < 8)
        job.wants[job.want_count++] = (struct want){WIDE, 1 + caller_random(caller, 5)};
    if (what >= 4)
        job.wants[job.want_count++] = (struct want){SEATS, 1 + caller_random(caller, 2)};
    if (what >= 6)
        job.wants[job.want_count++] = (struct want){PAIR, 1};
    return job;
}

/* Grants of the small semaphore are always released, the others mostly. */
static bool is_kept(struct caller *caller, const struct job *job)
{
    return job->wants[job->want_count - 1].semaphore != PAIR && caller_random(caller, 10) < 3;
}

static void *client_run(void *context)
{
    struct client *client = context;
    struct caller *caller = &client->caller;
    while (!atomic_load(&client->run->stopping)) {
        struct job job = random_job(caller);
        if (call_until_answered(client, &job, caller_acquire) == SAYS_HELD) {
            atomic_fetch_add(&client->run->granted, 1);
            if (!is_kept(caller, &job))
                call_until_answered(client, &job, caller_release);
        }
        kit_sleep_ms(2 + (int)caller_random(caller, 10));
    }
    caller_close(caller);
    return NULL;
}

/* ---- servers ---- */

static void start_permitd(struct servers *servers, size_t i)
{
    struct kit_permitd_options options = {.database = servers->database ? servers->database->url : NULL,
                                          .data_dir = servers->data_dir};
    servers->permitd[i] = kit_permitd_start(&options);
    atomic_store(&servers->run->world.ports[i], servers->permitd[i]->port);
}

static void crash_permitd(struct servers *servers, size_t i)
{
    kit_permitd_kill(servers->permitd[i]);
    atomic_store(&servers->run->world.ports[i], 0);
    start_permitd(servers, i);
}

static bool is_gone(void *context)
{
    return kill(*(const pid_t *)context, 0) != 0 && errno == ESRCH;
}

/*
 * permitd restarts its private MariaDB itself. A killed process may still accept a connection and then lose the request
 * in the middle of the answer, so this waits for the end of the process.
 */
static void crash_database(struct servers *servers)
{
    if (servers->database) {
        kit_database_kill(servers->database);
        kit_database_restart(servers->database);
        return;
    }
    char path[512];
    snprintf(path, sizeof(path), "%s/mariadb.pid", servers->data_dir);
    char *text = kit_read_file(path);
    if (!text || atoi(text) <= 1)
        kit_fail("%s names no process", path);
    pid_t pid = (pid_t)atoi(text);
    free(text);
    kill(pid, SIGKILL);
    if (!kit_wait_until(is_gone, &pid, RECOVER_MS))
        kit_fail("mariadbd survives SIGKILL");
}

static struct kit_sql *open_sql(struct servers *servers)
{
    char path[512];
    if (servers->database)
        snprintf(path, sizeof(path), "%s", servers->database->socket);
    else
        snprintf(path, sizeof(path), "%s/mariadb.sock", servers->data_dir);
    return kit_sql_open(path, "permitd");
}

/* ---- the run ---- */

struct goal {
    struct run *run;
    unsigned granted;
};

static bool is_reached(void *context)
{
    struct goal *goal = context;
    return atomic_load(&goal->run->granted) >= goal->granted;
}

/* Waits until `more` further grants are acknowledged. */
static void await_grants(struct run *run, unsigned more, const char *after)
{
    struct goal goal = {run, atomic_load(&run->granted) + more};
    if (!kit_wait_until(is_reached, &goal, RECOVER_MS))
        kit_fail("durable: no grants within %d s after %s", RECOVER_MS / 1000, after);
}

/* Reads the rows of all keys from `from` on, while the clients run. */
static void read_rows(struct servers *servers, unsigned from)
{
    struct run *run = servers->run;
    struct kit_sql *sql = open_sql(servers);
    rows_record(sql, &run->world, from, atomic_load(&run->world.next_key), &run->history);
    kit_sql_close(sql);
}

static void crash_often(struct servers *servers, unsigned from, unsigned kills, unsigned ret_counts[2])
{
    struct caller dice;
    caller_init(&dice, &servers->run->world, 7777 + from);
    unsigned looked = from;
    for (unsigned i = 0; i < kills; i++) {
        bool database = i % 2;
        kit_sleep_ms(100 + (int)caller_random(&dice, 600));
        unsigned next = atomic_load(&servers->run->world.next_key);
        if (database)
            crash_database(servers);
        else
            crash_permitd(servers, caller_random(&dice, (unsigned)servers->run->world.permitd_count));
        ret_counts[database]++;
        await_grants(servers->run, 50, database ? "SIGKILL of mariadbd" : "SIGKILL of permitd");
        read_rows(servers, looked);
        looked = next;
    }
}

static void run_clients(struct run *run, struct client *clients)
{
    atomic_store(&run->stopping, false);
    for (unsigned i = 0; i < run->clients; i++) {
        clients[i] = (struct client){.run = run};
        caller_init(&clients[i].caller, &run->world, i + atomic_load(&run->world.next_key));
        KIT_CHECK(!pthread_create(&clients[i].thread, NULL, client_run, &clients[i]));
    }
}

static void join_clients(struct run *run, struct client *clients)
{
    atomic_store(&run->stopping, true);
    for (unsigned i = 0; i < run->clients; i++) {
        pthread_join(clients[i].thread, NULL);
        history_join(&run->history, &clients[i].caller.history);
    }
}

/* The final check: all rows with SQL, and up to LOOKS_MAX of the keys with GET. */
static void check_at_end(struct servers *servers, unsigned from)
{
    struct run *run = servers->run;
    char message[MESSAGE_SIZE];
    struct kit_sql *sql = open_sql(servers);
    if (!rows_check(sql, message))
        kit_fail("durable: %s", message);
    kit_sql_close(sql);
    read_rows(servers, from);
    struct caller caller;
    caller_init(&caller, &run->world, 8888);
    unsigned end = atomic_load(&run->world.next_key), step = (end - from) / LOOKS_MAX + 1;
    for (unsigned key = from; key < end; key += step)
        caller_query(&caller, 0, &(struct job){.key = key});
    caller_close(&caller);
    history_join(&run->history, &caller.history);
}

static void judge(struct run *run)
{
    char message[MESSAGE_SIZE] = "";
    const struct facts *facts = &run->world.facts;
    if (!check_statuses(&run->history, true, message) || !check_ends(&run->history, facts, message) ||
        !check_keys(&run->history, facts, message) || !check_tokens(&run->history, facts, message) ||
        !check_capacity(&run->history, facts, message))
        kit_fail("durable: %s", message);
}

static void print_counts(const char *name, const struct run *run, const unsigned kills[2])
{
    unsigned grants = 0, releases = 0, unknown = 0;
    for (size_t i = 0; i < run->history.count; i++) {
        const struct call *call = &run->history.calls[i];
        grants += call->kind == CALL_ACQUIRE && call->says == SAYS_HELD;
        releases += call->kind == CALL_RELEASE && call->says == SAYS_ENDED;
        unknown += call->says == SAYS_NOTHING;
    }
    printf("durable: %s: killed permitd %u times and mariadbd %u times; %u grants and %u releases acknowledged, %u "
           "answers "
           "lost or 503\n",
           name, kills[0], kills[1], grants, releases, unknown);
    fflush(stdout);
}

/*
 * Starts the servers, applies the load and the kills, and judges the history. The servers have no rows of the previous
 * ones, so the history starts empty.
 */
static void run_servers(const char *name, struct servers *servers, unsigned kills, unsigned ret_counts[2])
{
    static struct client clients[CLIENTS_MAX];
    struct run *run = servers->run;
    unsigned from = atomic_load(&run->world.next_key), counts[2] = {0, 0};
    for (size_t i = 0; i < run->world.permitd_count; i++)
        start_permitd(servers, i);
    make_semaphores(&run->world.facts, servers->permitd[0]->port);
    run_clients(run, clients);
    await_grants(run, 50, "the start");
    crash_often(servers, from, kills, counts);
    join_clients(run, clients);
    check_at_end(servers, from);
    judge(run);
    print_counts(name, run, counts);
    for (size_t i = 0; i < run->world.permitd_count; i++)
        kit_permitd_stop(servers->permitd[i]);
    history_release(&run->history);
    ret_counts[0] += counts[0];
    ret_counts[1] += counts[1];
}

static void run_all(struct run *run)
{
    unsigned counts[2] = {0, 0};
    unsigned first = run->kills * 3 / 5;
    struct servers shared = {.run = run, .database = kit_database_start(NULL)};
    run->world.permitd_count = 2;
    run_servers("two permitd on one database", &shared, first, counts);
    kit_database_stop(shared.database);

    struct servers private = {.run = run, .data_dir = kit_path("private")};
    run->world.permitd_count = 1;
    run_servers("permitd with its private MariaDB", &private, run->kills - first, counts);
    free(private.data_dir);
    /* Each kill, and six checks of each setup: statuses, ends, keys, tokens, capacity, rows. */
    printf("durable: %u passed, 0 failed: %u kills: ok\n", counts[0] + counts[1] + 12, counts[0] + counts[1]);
}

int main(int argc, char **argv)
{
    static struct run run = {.world = {.facts = {.semaphores = semaphores, .count = SEMAPHORES}, .faults = true},
                             .clients = 32,
                             .kills = 20};
    run.world.seed = (uint64_t)time(NULL);
    for (int i = 1; i + 1 < argc; i += 2) {
        unsigned long long value = strtoull(argv[i + 1], NULL, 10);
        if (!strcmp(argv[i], "--seed"))
            run.world.seed = value;
        else if (!strcmp(argv[i], "--kills"))
            run.kills = (unsigned)value;
        else if (!strcmp(argv[i], "--clients") && value >= 1 && value <= CLIENTS_MAX)
            run.clients = (unsigned)value;
        else
            kit_fail("usage: durable [--seed N] [--kills N] [--clients N]");
    }
    printf("durable: seed %llu\n", (unsigned long long)run.world.seed);
    fflush(stdout);
    run_all(&run);
    return 0;
}
