/* SPDX-License-Identifier: MIT */
/*
 * Group Replication: three MySQL servers with a single primary, three permitd that write to it, 64 clients. The group
 * elects another primary first by an administrator's command, then because the primary is killed. Each time all permitd
 * are redirected to the new one, as a router does. Acknowledged grants are there, nothing else is held, tokens rise,
 * and permitd does not take the new primary for another server: no new epoch. Then the group is switched to several
 * primaries, which permitd refuses.
 *
 * election [--seed N]
 */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fixture.h"
#include "proxy.h"
#include "rows.h"

enum {
    MEMBERS = 3,
    PERMITD = 3,
    CLIENTS = 64,
    KEPT = 40,
    GATHER = 300,       /* grants between the elections */
    SERVED_MS = 180000, /* anything later counts as lost; generous for slow machines */
    FLAGS_MAX = 24,
};

#define GROUP_NAME "6f2d1f0e-7a57-4c0b-9d3a-2a9c1f6b5e01"

static const struct semaphore_facts semaphores[] = {
    {"one", 1, true}, {"two", 2, true}, {"seven", 7, true}, {"nine", 9, false}, {"wide", 1000, false},
};
enum { SEMAPHORES = sizeof(semaphores) / sizeof(semaphores[0]), WIDE = 4 };

struct member {
    struct kit_database *database;
    int port_fds[2]; /* reserve its ports: for MySQL and for the group */
    unsigned ports[2];
    char *flags[FLAGS_MAX + 1];
    size_t flag_count;
    bool dead;
};

struct run {
    struct world world;
    struct member members[MEMBERS];
    unsigned primary;
    struct proxy *proxies[PERMITD];
    struct kit_permitd *permitd[PERMITD];
    struct caller dice;
    struct job kept[KEPT]; /* held during an election */
    atomic_uint granted[PERMITD];
    _Atomic int64_t last_us;    /* time of the last grant */
    _Atomic int64_t longest_us; /* longest time between two grants, since the election began */
    atomic_bool stopping;
    unsigned checks; /* passed */
};

struct client {
    pthread_t thread;
    struct run *run;
    struct caller caller;
};

/* ---- the group ---- */

static void add_flag(struct member *member, const char *format, ...) KIT_PRINTF(2, 3);
static void add_flag(struct member *member, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    KIT_CHECK(member->flag_count < FLAGS_MAX && vasprintf(&member->flags[member->flag_count++], format, arguments) > 0);
    va_end(arguments);
}

static void set_flags(struct run *run, unsigned number)
{
    struct member *member = &run->members[number];
    add_flag(member, "--skip-networking=0");
    add_flag(member, "--bind-address=127.0.0.1");
    add_flag(member, "--report-host=127.0.0.1");
    add_flag(member, "--port=%u", member->ports[0]);
    add_flag(member, "--server-id=%u", number + 1);
    add_flag(member, "--gtid-mode=ON");
    add_flag(member, "--enforce-gtid-consistency=ON");
    add_flag(member, "--plugin-load-add=group_replication.so");
    add_flag(member, "--group-replication-group-name=" GROUP_NAME);
    add_flag(member, "--group-replication-local-address=127.0.0.1:%u", member->ports[1]);
    add_flag(member, "--group-replication-group-seeds=127.0.0.1:%u,127.0.0.1:%u,127.0.0.1:%u", run->members[0].ports[1],
             run->members[1].ports[1], run->members[2].ports[1]);
    add_flag(member, "--group-replication-start-on-boot=OFF");
    add_flag(member, "--group-replication-recovery-get-public-key=ON");
    add_flag(member, "--group-replication-consistency=EVENTUAL"); /* permitd's sessions set the level they need */
}

static struct kit_sql *member_sql(const struct run *run, unsigned number)
{
    struct kit_sql *sql = kit_sql_open(run->members[number].database->socket, "permitd");
    kit_sql_run(sql, "SET time_zone = '+00:00'");
    kit_sql_run(sql, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED");
    return sql;
}

static bool all_are_online(void *context)
{
    return kit_sql_number(context, "SELECT COUNT(*) FROM performance_schema.replication_group_members"
                                   " WHERE MEMBER_STATE = 'ONLINE'") == MEMBERS;
}

/* Each member has created its database alone and must not have transactions that the others lack. */
static void join_group(struct run *run, unsigned number)
{
    struct kit_sql *sql = member_sql(run, number);
    kit_sql_run(sql, "SET SESSION sql_log_bin = 0");
    kit_sql_run(sql, "CREATE USER copy@'%%' IDENTIFIED BY 'copy'");
    kit_sql_run(
        sql, "GRANT REPLICATION SLAVE, CONNECTION_ADMIN, BACKUP_ADMIN, GROUP_REPLICATION_STREAM ON *.* TO copy@'%%'");
    kit_sql_run(sql, "SET SESSION sql_log_bin = 1");
    kit_sql_run(sql, "CHANGE REPLICATION SOURCE TO SOURCE_USER='copy', SOURCE_PASSWORD='copy'"
                     " FOR CHANNEL 'group_replication_recovery'");
    kit_sql_run(sql, "RESET BINARY LOGS AND GTIDS");
    kit_sql_run(sql, "SET GLOBAL group_replication_bootstrap_group = %s", number == 0 ? "ON" : "OFF");
    kit_sql_run(sql, "START GROUP_REPLICATION");
    kit_sql_run(sql, "SET GLOBAL group_replication_bootstrap_group = OFF");
    kit_sql_close(sql);
}

static void start_group(struct run *run)
{
    for (unsigned i = 0; i < MEMBERS; i++)
        for (unsigned p = 0; p < 2; p++)
            run->members[i].ports[p] = kit_keep_port(&run->members[i].port_fds[p]);
    for (unsigned i = 0; i < MEMBERS; i++) {
        struct member *member = &run->members[i];
        set_flags(run, i);
        member->database = kit_database_start((const char *const *)member->flags);
        join_group(run, i);
    }
    struct kit_sql *sql = member_sql(run, 0);
    if (!kit_wait_until(all_are_online, sql, SERVED_MS))
        kit_fail("election: not all members are online");
    kit_sql_close(sql);
}

/* Finds the living member that says it is the primary and accepts writes. */
static bool find_primary(void *context)
{
    struct run *run = context;
    for (unsigned i = 0; i < MEMBERS; i++) {
        if (run->members[i].dead)
            continue;
        struct kit_sql *sql = member_sql(run, i);
        bool primary =
            kit_sql_number(sql, "SELECT COUNT(*) FROM performance_schema.replication_group_members WHERE"
                                " MEMBER_ROLE = 'PRIMARY' AND MEMBER_STATE = 'ONLINE' AND MEMBER_ID = @@server_uuid"
                                " AND NOT @@super_read_only") == 1;
        kit_sql_close(sql);
        if (primary) {
            run->primary = i;
            return true;
        }
    }
    return false;
}

/* Redirects all permitd to the new primary as soon as there is one, as a router does. */
static void redirect_to_primary(struct run *run)
{
    if (!kit_wait_until(find_primary, run, SERVED_MS))
        kit_fail("election: no primary is elected");
    for (unsigned i = 0; i < PERMITD; i++) {
        proxy_point(run->proxies[i], run->members[run->primary].database->socket);
        proxy_cut(run->proxies[i]);
    }
}

/* ---- clients ---- */

static void record_grant(struct run *run, unsigned at)
{
    int64_t now = kit_now_us();
    int64_t gap = now - atomic_exchange(&run->last_us, now);
    int64_t longest = atomic_load(&run->longest_us);
    while (gap > longest && !atomic_compare_exchange_weak(&run->longest_us, &longest, gap))
        ;
    atomic_fetch_add(&run->granted[at], 1);
}

/* Repeats the call at any permitd until it has an answer that is not SAYS_NOTHING. */
static enum call_says call_until_answered(struct run *run, struct caller *caller, const struct job *job,
                                          caller_call *call)
{
    enum call_says says = SAYS_NOTHING;
    while (says == SAYS_NOTHING && !atomic_load(&run->stopping)) {
        unsigned at = caller_random(caller, PERMITD);
        says = call(caller, at, job);
        if (caller->history.calls[caller->history.count - 1].status == 201)
            record_grant(run, at);
        if (says == SAYS_NOTHING)
            kit_sleep_ms(5 + (int)caller_random(caller, 60));
    }
    return says;
}

static void *client_run(void *context)
{
    struct client *client = context;
    struct caller *caller = &client->caller;
    while (!atomic_load(&client->run->stopping)) {
        struct job job = caller_new_job(caller);
        job_want_some(caller, &job);
        job.ttl_ms = 3600000;
        job.wait_ms = caller_random(caller, 5) ? 0 : 1 + caller_random(caller, 200);
        if (call_until_answered(client->run, caller, &job, caller_acquire) != SAYS_HELD)
            continue;
        if (!caller_random(caller, 5))
            call_until_answered(client->run, caller, &job, caller_query);
        call_until_answered(client->run, caller, &job, caller_release);
    }
    caller_close(caller);
    return NULL;
}

struct goal {
    struct run *run;
    unsigned granted[PERMITD];
};

static bool all_have_granted(void *context)
{
    struct goal *goal = context;
    for (unsigned i = 0; i < PERMITD; i++)
        if (atomic_load(&goal->run->granted[i]) < goal->granted[i])
            return false;
    return true;
}

/* Waits until each permitd has granted `count` more requests. */
static void await_grants(struct run *run, unsigned count, const char *after)
{
    struct goal goal = {.run = run};
    for (unsigned i = 0; i < PERMITD; i++)
        goal.granted[i] = atomic_load(&run->granted[i]) + count;
    if (!kit_wait_until(all_have_granted, &goal, SERVED_MS))
        kit_fail("election: not every permitd grants again after %s", after);
}

/* ---- elections ---- */

static int64_t epoch(const struct run *run)
{
    struct kit_sql *sql = member_sql(run, run->primary);
    int64_t epoch = kit_sql_number(sql, "SELECT epoch FROM cluster");
    kit_sql_close(sql);
    return epoch;
}

static void expect_held(struct run *run, const struct job *job, const char *when, caller_call *call)
{
    if (call_until_answered(run, &run->dice, job, call) != SAYS_HELD)
        kit_fail("election: key %u is not held %s", job->key, when);
}

/* The last of these grants is acknowledged just before the election. */
static void acquire_kept(struct run *run)
{
    for (unsigned i = 0; i < KEPT; i++) {
        run->kept[i] = caller_new_job(&run->dice);
        run->kept[i].want_count = 1;
        run->kept[i].wants[0] = (struct want){WIDE, 1};
        run->kept[i].ttl_ms = 3600000;
        expect_held(run, &run->kept[i], "when asked for", caller_acquire);
    }
}

/* P4: each acknowledged grant is found, and a repetition gets the same tokens (check_keys). */
static void check_kept_grants(struct run *run)
{
    for (unsigned i = 0; i < KEPT; i++) {
        expect_held(run, &run->kept[i], "after the election", caller_query);
        expect_held(run, &run->kept[i], "after the election", caller_acquire);
        call_until_answered(run, &run->dice, &run->kept[i], caller_release);
    }
    run->checks++;
}

/* P6: a new primary may briefly lack transactions that the old one acknowledged; permitd's sessions wait for them. */
static void check_sessions(struct run *run)
{
    struct kit_sql *sql = member_sql(run, run->primary);
    static const char count[] =
        "SELECT COUNT(*) FROM performance_schema.variables_by_thread JOIN performance_schema.threads USING (THREAD_ID)"
        " WHERE VARIABLE_NAME = 'group_replication_consistency' AND PROCESSLIST_ID <> CONNECTION_ID()"
        " AND PROCESSLIST_DB = 'permitd' AND VARIABLE_VALUE %s 'BEFORE_ON_PRIMARY_FAILOVER'";
    if (kit_sql_number(sql, count, "=") < PERMITD || kit_sql_number(sql, count, "<>") != 0)
        kit_fail("election: not every session waits for the backlog of a new primary");
    kit_sql_close(sql);
    run->checks++;
}

static void hand_over(struct run *run)
{
    unsigned next = (run->primary + 1) % MEMBERS;
    struct kit_sql *sql = member_sql(run, next);
    kit_sql_run(sql, "SELECT group_replication_set_as_primary(@@server_uuid)");
    kit_sql_close(sql);
}

static void kill_primary(struct run *run)
{
    struct member *member = &run->members[run->primary];
    member->dead = true;
    kit_database_kill(member->database);
}

static void hold_election(struct run *run, void (*cause)(struct run *run), const char *told)
{
    int64_t before = epoch(run);
    acquire_kept(run);
    atomic_store(&run->longest_us, 0);
    unsigned old = run->primary;
    int64_t start = kit_now_us();
    cause(run);
    redirect_to_primary(run);
    double elected = (double)(kit_now_us() - start) / 1e6;
    if (run->primary == old)
        kit_fail("election: %s: the primary is the same", told);
    await_grants(run, 3, told);
    printf("election: %s: member %u, then %u, writable after %.1f s; no grants for %.1f s\n", told, old + 1,
           run->primary + 1, elected, (double)atomic_load(&run->longest_us) / 1e6);
    fflush(stdout);
    if (epoch(run) != before) /* the identity of the database is that of the group */
        kit_fail("election: another member of the group was taken for another server");
    run->checks++;
    check_kept_grants(run);
    await_grants(run, GATHER / PERMITD, told);
}

/* ---- several primaries ---- */

static bool is_refused(void *context)
{
    struct kit_http http = kit_http(*(unsigned *)context);
    struct reply reply;
    kit_http_get(&http, "/readyz", &reply);
    bool refused = reply.status == 503 && strstr(reply.body, "several members may write");
    reply_release(&reply);
    kit_http_close(&http);
    return refused;
}

/* P14: a running permitd stops serving and a starting one exits, both with that message. */
static void check_multi_primary_refused(struct run *run)
{
    struct member *member = &run->members[run->primary];
    struct kit_sql *sql = member_sql(run, run->primary);
    kit_sql_run(sql, "SELECT group_replication_switch_to_multi_primary_mode()");
    kit_sql_close(sql);
    if (!kit_wait_until(is_refused, &run->permitd[0]->port, SERVED_MS))
        kit_fail("election: permitd serves on a group of several primaries");
    struct kit_permitd *permitd = kit_permitd_spawn(&(struct kit_permitd_options){.database = member->database->url});
    int status = kit_permitd_wait_end(permitd, SERVED_MS);
    char *log = kit_read_file(permitd->log_path);
    if (status == -1 || !WIFEXITED(status) || WEXITSTATUS(status) != 1 || !strstr(log, "several members may write"))
        kit_fail("election: permitd starts on a group of several primaries (0x%x): %s", (unsigned)status, log);
    free(log);
    kit_permitd_kill(permitd);
    run->checks += 2;
}

/* ---- judging ---- */

static void take_text(void *context, char **columns)
{
    char *text = context;
    size_t length = strlen(text);
    snprintf(text + length, MESSAGE_SIZE - length, "%s ", columns[1] ? columns[1] : "none");
}

static void take_position(void *context, char **columns)
{
    *(char **)context = strdup(columns[0]);
}

/* Call it after all permitd have ended. */
static void compare_members(struct run *run)
{
    char texts[MEMBERS][MESSAGE_SIZE] = {""};
    char *position = NULL;
    struct kit_sql *primary = member_sql(run, run->primary);
    kit_sql_each(primary, "SELECT @@GLOBAL.gtid_executed", take_position, &position);
    kit_sql_close(primary);
    for (unsigned i = 0; i < MEMBERS; i++) {
        if (run->members[i].dead)
            continue;
        struct kit_sql *sql = member_sql(run, i);
        if (kit_sql_number(sql, "SELECT WAIT_FOR_EXECUTED_GTID_SET('%s', %d)", position, SERVED_MS / 1000) != 0)
            kit_fail("election: member %u does not come to %s", i + 1, position);
        kit_sql_each(sql, "CHECKSUM TABLE semaphore, permit, permit_request, slot, semaphore_event, id_block",
                     take_text, texts[i]);
        kit_sql_close(sql);
    }
    for (unsigned i = 0; i < MEMBERS; i++)
        if (!run->members[i].dead && strcmp(texts[i], texts[run->primary]) != 0)
            kit_fail("election: members differ: %s, %s", texts[i], texts[run->primary]);
    free(position);
    run->checks++;
}

static void judge_run(struct run *run, struct history *history)
{
    char message[MESSAGE_SIZE] = "";
    const struct facts *facts = &run->world.facts;
    struct kit_sql *sql = member_sql(run, run->primary);
    rows_record(sql, &run->world, 0, atomic_load(&run->world.next_key), history);
    bool good = check_statuses(history, true, message) && check_capacity(history, facts, message) &&
                check_keys(history, facts, message) && check_tokens(history, facts, message) &&
                check_ends(history, facts, message) && rows_check(sql, message) && rows_check_past(sql, message);
    kit_sql_close(sql);
    if (!good)
        kit_fail("election: %s", message);
    run->checks += 7;
}

/* ---- all of it ---- */

static void stop_clients(struct run *run, struct client *clients, struct history *history)
{
    atomic_store(&run->stopping, true);
    for (unsigned i = 0; i < CLIENTS; i++) {
        pthread_join(clients[i].thread, NULL);
        history_join(history, &clients[i].caller.history);
    }
    caller_close(&run->dice);
    history_join(history, &run->dice.history);
}

static void stop_servers(struct run *run)
{
    for (unsigned i = 0; i < PERMITD; i++)
        proxy_stop(run->proxies[i]);
    for (unsigned i = 0; i < MEMBERS; i++) {
        struct member *member = &run->members[i];
        if (member->database->pid) /* its files are not needed any more */
            kit_database_kill(member->database);
        kit_database_stop(member->database);
        for (size_t f = 0; f < member->flag_count; f++)
            free(member->flags[f]);
        for (unsigned p = 0; p < 2; p++)
            close(member->port_fds[p]);
    }
}

static void run_all(struct run *run)
{
    static struct client clients[CLIENTS];
    struct history history = {NULL, 0, 0};
    start_group(run);
    for (unsigned i = 0; i < PERMITD; i++) {
        run->proxies[i] = proxy_start(run->members[0].database->socket, run->world.seed + i);
        run->permitd[i] = kit_permitd_start(&(struct kit_permitd_options){.database = proxy_url(run->proxies[i])});
        atomic_store(&run->world.ports[i], run->permitd[i]->port);
    }
    make_semaphores(&run->world.facts, run->permitd[0]->port);
    caller_init(&run->dice, &run->world, 5555);
    atomic_store(&run->last_us, kit_now_us());
    for (unsigned i = 0; i < CLIENTS; i++) {
        clients[i].run = run;
        caller_init(&clients[i].caller, &run->world, i);
        KIT_CHECK(!pthread_create(&clients[i].thread, NULL, client_run, &clients[i]));
    }
    await_grants(run, GATHER / PERMITD, "the start");
    check_sessions(run);
    hold_election(run, hand_over, "the primary is handed over");
    hold_election(run, kill_primary, "SIGKILL of the primary");
    stop_clients(run, clients, &history);
    judge_run(run, &history);
    check_multi_primary_refused(run);
    for (unsigned i = 0; i < PERMITD; i++)
        kit_permitd_stop(run->permitd[i]);
    compare_members(run);
    printf("election: %zu calls of %u clients through %u permitd; %u passed, 0 failed: ok\n", history.count, CLIENTS,
           PERMITD, run->checks);
    history_release(&history);
    stop_servers(run);
}

int main(int argc, char **argv)
{
    static struct run run = {
        .world = {.facts = {.semaphores = semaphores, .count = SEMAPHORES}, .permitd_count = PERMITD, .faults = true}};
    run.world.seed = (uint64_t)time(NULL);
    if (argc == 3 && !strcmp(argv[1], "--seed"))
        run.world.seed = strtoull(argv[2], NULL, 10);
    else if (argc != 1)
        kit_fail("usage: election [--seed N]");
    if (!kit_database_is_mysql())
        kit_fail("election: set PERMIT_MYSQL_ROOT to the output of tests/mysql/root.sh");
    printf("election: seed %llu\n", (unsigned long long)run.world.seed);
    fflush(stdout);
    run_all(&run);
    return 0;
}
