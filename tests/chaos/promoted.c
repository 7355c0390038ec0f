/* SPDX-License-Identifier: MIT */
/*
 * P9 when a lagging replica is promoted (N14), twice in a row. Three MariaDB (or MySQL: testkit.h) servers: the second
 * and the third replicate the first asynchronously and are stopped while grants continue. The first is killed and the
 * second takes over; then the same happens with the third. The last grants are lost, as always with asynchronous
 * replication. But no token may be issued again, nor a lower one: a store that has seen a lost grant must accept the
 * new ones. A reader of the feed that has seen a lost event is told so, and where to go on.
 *
 * promoted [--seed N]
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "proxy.h"
#include "rows.h"

/* AGAIN_MS, CAUGHT_UP_MS: anything later counts as lost; generous for slow machines. */
enum { SERVERS = 3, CLIENTS = 6, GATHER = 60, AGAIN_MS = 180000, CAUGHT_UP_MS = 180000, TEXT_SIZE = 256 };

static const struct semaphore_facts semaphores[] = {{"one", 1, true}, {"seven", 7, true}, {"many", 100, false}};
enum { SEMAPHORES = sizeof(semaphores) / sizeof(semaphores[0]) };

struct server {
    struct kit_database *database;
    int port_fd; /* reserves the port */
    unsigned port;
    char id_flag[32], port_flag[32];
    const char *flags[20];
};

struct run {
    struct world world;
    struct server servers[SERVERS];
    struct proxy *proxies[PERMITD_MAX];
    struct kit_permitd *permitd[PERMITD_MAX];
    atomic_bool stopping;
    atomic_uint granted;
    int64_t longest_us; /* from the death of a server to the next grants */
    uint64_t lost;      /* grants that have no row any more */
};

struct client {
    pthread_t thread;
    struct run *run;
    struct caller caller;
};

/* ---- servers ---- */

/* Statements of the two kinds of server. */
struct dialect {
    const char *flags[14];
    const char *follow; /* printf format with the port of the primary */
    const char *start, *stop, *forget_primary, *forget_log;
    const char *position;
    const char *await_position; /* printf format with the position and seconds */
};

static const struct dialect mariadb = {
    .flags = {"--skip-networking=0", "--bind-address=127.0.0.1", "--log-bin=binlog", "--log-slave-updates",
              "--sync-binlog=1", "--skip-slave-start", "--gtid-strict-mode=1", "--binlog-format=ROW"},
    .follow = "CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT=%u, MASTER_USER='copy', MASTER_PASSWORD='copy', "
              "MASTER_CONNECT_RETRY=1, MASTER_USE_GTID=slave_pos",
    .start = "START SLAVE",
    .stop = "STOP SLAVE",
    .forget_primary = "RESET SLAVE ALL",
    .forget_log = "RESET MASTER",
    .position = "SELECT @@GLOBAL.gtid_slave_pos",
    .await_position = "SELECT MASTER_GTID_WAIT('%s', %d)",
};

/* Semi-synchronous while a replica answers within 200 ms; a stopped replica does not. */
static const struct dialect mysql = {
    .flags = {"--skip-networking=0", "--bind-address=127.0.0.1", "--log-bin=binlog", "--sync-binlog=1",
              "--skip-replica-start", "--gtid-mode=ON", "--enforce-gtid-consistency=ON",
              "--plugin-load-add=semisync_source.so", "--plugin-load-add=semisync_replica.so",
              "--rpl-semi-sync-source-enabled=1", "--rpl-semi-sync-replica-enabled=1",
              "--rpl-semi-sync-source-timeout=200"},
    .follow = "CHANGE REPLICATION SOURCE TO SOURCE_HOST='127.0.0.1', SOURCE_PORT=%u, SOURCE_USER='copy', "
              "SOURCE_PASSWORD='copy', SOURCE_CONNECT_RETRY=1, SOURCE_AUTO_POSITION=1, GET_SOURCE_PUBLIC_KEY=1",
    .start = "START REPLICA",
    .stop = "STOP REPLICA",
    .forget_primary = "RESET REPLICA ALL",
    .forget_log = "RESET BINARY LOGS AND GTIDS",
    .position = "SELECT @@GLOBAL.gtid_executed",
    .await_position = "SELECT WAIT_FOR_EXECUTED_GTID_SET('%s', %d)",
};

static const struct dialect *dialect(void)
{
    return kit_database_is_mysql() ? &mysql : &mariadb;
}

static void server_start(struct server *server, unsigned number)
{
    size_t count = 0;
    server->port = kit_keep_port(&server->port_fd);
    snprintf(server->id_flag, sizeof(server->id_flag), "--server-id=%u", number + 1);
    snprintf(server->port_flag, sizeof(server->port_flag), "--port=%u", server->port);
    for (; dialect()->flags[count]; count++)
        server->flags[count] = dialect()->flags[count];
    server->flags[count++] = server->id_flag;
    server->flags[count++] = server->port_flag;
    server->database = kit_database_start(server->flags);
}

static void server_run(const struct server *server, const char *statement)
{
    struct kit_sql *sql = kit_sql_open(server->database->socket, NULL);
    kit_sql_run(sql, "%s", statement);
    kit_sql_close(sql);
}

/* Starts replication at the beginning or at the current position. */
static void start_replication(const struct server *replica, const struct server *primary)
{
    struct kit_sql *sql = kit_sql_open(replica->database->socket, NULL);
    char *statement = NULL;
    KIT_CHECK(asprintf(&statement, dialect()->follow, primary->port) > 0);
    kit_sql_run(sql, "%s", statement);
    kit_sql_run(sql, "%s", dialect()->start);
    kit_sql_close(sql);
    free(statement);
}

static void make_replica(const struct server *replica, const struct server *primary)
{
    server_run(replica, "DROP DATABASE permitd");
    server_run(replica, dialect()->forget_log);
    start_replication(replica, primary);
}

struct replica_wait {
    struct kit_sql *sql;
};

static bool has_semaphores(void *context)
{
    struct replica_wait *wait = context;
    return kit_sql_try(wait->sql, "SELECT 1 FROM permitd.semaphore LIMIT 1") == 0 &&
           kit_sql_number(wait->sql, "SELECT COUNT(*) FROM permitd.semaphore") == SEMAPHORES;
}

static void await_replica(const struct server *replica)
{
    struct replica_wait wait = {kit_sql_open(replica->database->socket, NULL)};
    if (!kit_wait_until(has_semaphores, &wait, CAUGHT_UP_MS))
        kit_fail("promoted: a replica does not follow");
    kit_sql_close(wait.sql);
}

static void take_text(void *context, char **columns)
{
    snprintf(context, TEXT_SIZE, "%s", columns[0] ? columns[0] : "");
}

/*
 * Stops the replicas, the last to be promoted first. It must not be ahead of the next one, so that one first has to
 * receive everything in its tables.
 */
static void stop_replicas(struct run *run, unsigned primary)
{
    struct kit_sql *next = kit_sql_open(run->servers[primary + 1].database->socket, NULL);
    for (unsigned i = SERVERS - 1; i > primary + 1; i--) {
        char position[TEXT_SIZE] = "";
        struct kit_sql *sql = kit_sql_open(run->servers[i].database->socket, NULL);
        kit_sql_run(sql, "%s", dialect()->stop);
        kit_sql_each(sql, dialect()->position, take_text, position);
        kit_sql_close(sql);
        char *wait = NULL;
        KIT_CHECK(asprintf(&wait, dialect()->await_position, position, CAUGHT_UP_MS / 1000) > 0);
        if (kit_sql_number(next, "%s", wait) != 0)
            kit_fail("promoted: a replica does not come to %s", position);
        free(wait);
    }
    kit_sql_run(next, "%s", dialect()->stop);
    kit_sql_close(next);
}

static void start_servers(struct run *run)
{
    for (unsigned i = 0; i < SERVERS; i++)
        server_start(&run->servers[i], i);
    server_run(&run->servers[0], "CREATE USER copy@'127.0.0.1' IDENTIFIED BY 'copy'");
    server_run(&run->servers[0], "GRANT REPLICATION SLAVE ON *.* TO copy@'127.0.0.1'");
    for (unsigned i = 1; i < SERVERS; i++)
        make_replica(&run->servers[i], &run->servers[0]);
}

/* ---- clients ---- */

static void *client_run(void *context)
{
    struct client *client = context;
    struct caller *caller = &client->caller;
    while (!atomic_load(&client->run->stopping)) {
        struct job job = caller_new_job(caller);
        job.want_count = 1;
        job.wants[0] = (struct want){caller_random(caller, SEMAPHORES), 1};
        unsigned at = caller_random(caller, (unsigned)caller->world->permitd_count);
        if (caller_acquire(caller, at, &job) != SAYS_HELD) {
            kit_sleep_ms(2 + (int)caller_random(caller, 10));
            continue;
        }
        atomic_fetch_add(&client->run->granted, 1);
        kit_sleep_ms((int)caller_random(caller, 4));
        caller_release(caller, at, &job);
    }
    caller_close(caller);
    return NULL;
}

struct goal {
    struct run *run;
    unsigned granted;
};

static bool is_reached(void *context)
{
    struct goal *goal = context;
    return atomic_load(&goal->run->granted) >= goal->granted;
}

static void await_grants(struct run *run, const char *after)
{
    struct goal goal = {run, atomic_load(&run->granted) + GATHER};
    if (!kit_wait_until(is_reached, &goal, AGAIN_MS))
        kit_fail("promoted: no grants within %d s after %s", AGAIN_MS / 1000, after);
}

/* ---- the feed ---- */

enum { CURSOR_SIZE = 64 };

static void put_into_feed(struct run *run)
{
    struct reply reply;
    struct kit_http http = kit_http(run->permitd[0]->port);
    KIT_CHECK(kit_http_put(&http, "/v1/semaphores/many", "{\"feed\":\"all\"}", &reply) && reply.status == 200);
    reply_release(&reply);
    kit_http_close(&http);
}

/* Reads a page behind a cursor ("": the oldest), at the first permitd. The caller releases it. */
static struct reply read_feed(struct run *run, const char *after)
{
    char path[TEXT_SIZE];
    struct reply reply;
    struct kit_http http = kit_http(run->permitd[0]->port);
    snprintf(path, sizeof path, "/v1/feed?limit=1000%s%s", *after ? "&after=" : "", after);
    (void)kit_http_get(&http, path, &reply);
    kit_http_close(&http);
    return reply;
}

static void take_cursor(const char *body, const char *member, char cursor[CURSOR_SIZE])
{
    char *text = kit_json_text(body, member);
    KIT_CHECK(text && strchr(text, '-') && strlen(text) < CURSOR_SIZE);
    strcpy(cursor, text);
    free(text);
}

static int64_t number_of(const char *cursor)
{
    return strtoll(strchr(cursor, '-') + 1, NULL, 10);
}

struct feed_goal {
    struct run *run;
    int64_t number;
    char cursor[CURSOR_SIZE]; /* of the reader; behind the number in the end */
};

static bool is_read(void *context)
{
    struct feed_goal *goal = context;
    struct reply reply = read_feed(goal->run, goal->cursor);
    KIT_CHECK(reply.status == 200);
    take_cursor(reply.body, "next", goal->cursor);
    reply_release(&reply);
    return number_of(goal->cursor) > goal->number;
}

/* Returns a reader that has seen events which the replica lacks. */
static struct feed_goal read_beyond(struct run *run, const struct server *replica)
{
    struct kit_sql *sql = kit_sql_open(replica->database->socket, "permitd");
    struct feed_goal goal = {.run = run, .number = kit_sql_number(sql, "SELECT seq FROM feed_head")};
    kit_sql_close(sql);
    if (!kit_wait_until(is_read, &goal, AGAIN_MS))
        kit_fail("promoted: the feed does not go on beyond %lld", (long long)goal.number);
    return goal;
}

/* The reader is told that events are lost, and goes on with those that followed on the new server. */
static void expect_lost(const struct feed_goal *reader)
{
    char oldest[CURSOR_SIZE], next[CURSOR_SIZE];
    struct reply reply = read_feed(reader->run, reader->cursor);
    if (reply.status != 410 || !kit_json_true(reply.body, "lost"))
        kit_fail("promoted: a reader at %s is answered %d %s", reader->cursor, reply.status, reply.body);
    take_cursor(reply.body, "oldest", oldest);
    reply_release(&reply);
    if (number_of(oldest) != reader->number || strtoull(oldest, NULL, 10) <= strtoull(reader->cursor, NULL, 10))
        kit_fail("promoted: it is to go on from %s, and the replica had %lld events", oldest,
                 (long long)reader->number);
    reply = read_feed(reader->run, oldest);
    if (reply.status != 200 || kit_json_length(reply.body, "events") < 1)
        kit_fail("promoted: from there it is answered %d %s", reply.status, reply.body);
    take_cursor(reply.body, "events.0.cursor", next);
    reply_release(&reply);
    if (number_of(next) != reader->number + 1)
        kit_fail("promoted: the event behind %s is %s", oldest, next);
}

/* ---- failing over ---- */

/*
 * Stops the replicas while grants continue, kills the primary, promotes the next server, and makes the one after it a
 * replica of that.
 */
static void fail_over(struct run *run, unsigned primary)
{
    struct server *next = &run->servers[primary + 1];
    stop_replicas(run, primary);
    await_grants(run, "the replicas stopped");
    const struct feed_goal reader = read_beyond(run, next);
    kit_database_kill(run->servers[primary].database);
    int64_t died = kit_now_us();
    server_run(next, dialect()->forget_primary);
    struct kit_sql *sql = kit_sql_open(next->database->socket, "permitd");
    int64_t known = kit_sql_number(sql, "SELECT COUNT(*) FROM permit");
    kit_sql_close(sql);
    run->lost += atomic_load(&run->granted) - (uint64_t)known;
    if (primary + 2 < SERVERS)
        start_replication(&run->servers[primary + 2], next);
    for (size_t i = 0; i < run->world.permitd_count; i++) {
        proxy_point(run->proxies[i], next->database->socket);
        proxy_cut(run->proxies[i]);
    }
    await_grants(run, "the failover");
    if (kit_now_us() - died > run->longest_us)
        run->longest_us = kit_now_us() - died;
    expect_lost(&reader);
}

static void run_all(struct run *run)
{
    static struct client clients[CLIENTS];
    struct history history = {NULL, 0, 0};
    char message[MESSAGE_SIZE];
    start_servers(run);
    for (unsigned i = 0; i < run->world.permitd_count; i++) {
        run->proxies[i] = proxy_start(run->servers[0].database->socket, run->world.seed + i);
        run->permitd[i] = kit_permitd_start(&(struct kit_permitd_options){.database = proxy_url(run->proxies[i])});
        atomic_store(&run->world.ports[i], run->permitd[i]->port);
    }
    make_semaphores(&run->world.facts, run->permitd[0]->port);
    put_into_feed(run);
    for (unsigned i = 1; i < SERVERS; i++)
        await_replica(&run->servers[i]);
    for (unsigned i = 0; i < CLIENTS; i++) {
        clients[i].run = run;
        caller_init(&clients[i].caller, &run->world, i);
        KIT_CHECK(!pthread_create(&clients[i].thread, NULL, client_run, &clients[i]));
    }
    await_grants(run, "the start");
    for (unsigned i = 0; i + 1 < SERVERS; i++)
        fail_over(run, i);
    atomic_store(&run->stopping, true);
    for (unsigned i = 0; i < CLIENTS; i++) {
        pthread_join(clients[i].thread, NULL);
        history_join(&history, &clients[i].caller.history);
    }
    if (!run->lost)
        kit_fail("promoted: no grant was lost, so nothing was shown");
    if (!check_tokens(&history, &run->world.facts, message))
        kit_fail("promoted: %s", message);
    printf(
        "promoted: %u failovers; %u grants, of which %llu were lost; granted again within %.1f s, of which 5 are the "
        "hold\n",
        SERVERS - 1, atomic_load(&run->granted), (unsigned long long)run->lost, (double)run->longest_us / 1e6);
    printf("promoted: %u passed, 0 failed: ok\n", SERVERS); /* each failover, and the tokens of the whole run */
    history_release(&history);
    for (unsigned i = 0; i < run->world.permitd_count; i++) {
        kit_permitd_stop(run->permitd[i]);
        proxy_stop(run->proxies[i]);
    }
    for (unsigned i = 0; i < SERVERS; i++) {
        kit_database_stop(run->servers[i].database);
        close(run->servers[i].port_fd);
    }
}

int main(int argc, char **argv)
{
    static struct run run = {
        .world = {.facts = {.semaphores = semaphores, .count = SEMAPHORES}, .permitd_count = 2, .faults = true}};
    run.world.seed = (uint64_t)time(NULL);
    if (argc == 3 && !strcmp(argv[1], "--seed"))
        run.world.seed = strtoull(argv[2], NULL, 10);
    else if (argc != 1)
        kit_fail("usage: promoted [--seed N]");
    printf("promoted: seed %llu\n", (unsigned long long)run.world.seed);
    fflush(stdout);
    run_all(&run);
    return 0;
}
