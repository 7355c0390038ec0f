/* SPDX-License-Identifier: MIT */
/* The faults of servers and links: N1 to N13 and N16 of the promises, each with its begin and end. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "storm.h"

static void no_action(struct storm *storm)
{
    (void)storm;
}

/* ---- servers ---- */

static void kill_permitd(struct storm *storm)
{
    kit_permitd_kill(storm->permitd[storm->victim]);
    atomic_store(&storm->world.ports[storm->victim], 0);
}

static void revive_permitd(struct storm *storm)
{
    storm_start_permitd(storm, storm->victim);
}

static void freeze_permitd(struct storm *storm)
{
    kit_permitd_freeze(storm->permitd[storm->victim]);
}

static void thaw_permitd(struct storm *storm)
{
    kit_permitd_thaw(storm->permitd[storm->victim]);
}

static void kill_database(struct storm *storm)
{
    kit_database_kill(storm->database);
}

static void revive_database(struct storm *storm)
{
    kit_database_restart(storm->database);
}

static void freeze_database(struct storm *storm)
{
    kit_database_freeze(storm->database);
}

static void thaw_database(struct storm *storm)
{
    kit_database_thaw(storm->database);
}

/* ---- clock and disk ---- */

#define HOUR_US 3600000000LL

/* Records the time of the jump for the checkers: the times in the rows may step there. */
static void step_clock(struct storm *storm, int64_t us)
{
    struct kit_sql *sql = kit_sql_open(storm->database->socket, "permitd");
    kit_sql_run(sql, "SET time_zone = '+00:00'");
    facts_add_leap(&storm->world.facts, kit_now_us(), rows_lease_time(sql));
    kit_database_step_clock(storm->database, us);
    kit_sql_close(sql);
}

static void leap_forward(struct storm *storm)
{
    step_clock(storm, HOUR_US);
}

static void leap_back(struct storm *storm)
{
    step_clock(storm, -HOUR_US);
}

static void fill_disk(struct storm *storm)
{
    kit_database_set_disk(storm->database, KIT_DISK_FULL);
}

static void break_disk(struct storm *storm)
{
    kit_database_set_disk(storm->database, KIT_DISK_DEAD);
}

/*
 * Restarts a server that has died of its disk, as an operator would. A dying server may answer until it has written the
 * reason to its log, so it is watched until all permitd serve again.
 */
static void repair_disk(struct storm *storm)
{
    kit_database_set_disk(storm->database, KIT_DISK_FINE);
    storm->database_deaths += kit_database_revive(storm->database);
    storm->database_may_die = true;
}

/* ---- links ---- */

static void set_rule_all(struct storm *storm, struct proxy_rule rule)
{
    for (size_t i = 0; i < storm->world.permitd_count; i++)
        proxy_set(storm->proxies[i], &rule);
}

static void pass_all(struct storm *storm)
{
    set_rule_all(storm, (struct proxy_rule){.fault = PROXY_PASS});
}

static void cut_before(struct storm *storm)
{
    set_rule_all(storm, (struct proxy_rule){.fault = PROXY_CUT_BEFORE, .one_in = 20});
}

static void cut_after(struct storm *storm)
{
    set_rule_all(storm, (struct proxy_rule){.fault = PROXY_CUT_AFTER, .one_in = 20});
}

static void cut_within(struct storm *storm)
{
    set_rule_all(storm, (struct proxy_rule){.fault = PROXY_CUT_WITHIN, .one_in = 20});
}

static void cut_before_commit(struct storm *storm)
{
    set_rule_all(storm, (struct proxy_rule){.fault = PROXY_CUT_BEFORE, .only_commit = true, .one_in = 4});
}

static void cut_after_commit(struct storm *storm)
{
    set_rule_all(storm, (struct proxy_rule){.fault = PROXY_CUT_AFTER, .only_commit = true, .one_in = 4});
}

static void black_hole_one(struct storm *storm)
{
    proxy_set(storm->proxies[storm->victim], &(struct proxy_rule){.fault = PROXY_BLACK_HOLE});
}

static void delay_all(struct storm *storm)
{
    set_rule_all(storm, (struct proxy_rule){.fault = PROXY_DELAY, .delay_ms = 30, .one_in = 2});
}

/* Errors that a server may return, before or after it ran the packet. */
static const unsigned errors_before[] = {1205, 1213, 1020, 1062, 1040, 1290, 2006, 2013};
static const unsigned errors_after_commit[] = {1205, 1213, 1180, 1053, 2013};

#define ANY_OF(storm, list) list[caller_random(&(storm)->dice, sizeof(list) / sizeof(list[0]))]

static void err_before(struct storm *storm)
{
    set_rule_all(storm,
                 (struct proxy_rule){.fault = PROXY_ERROR_BEFORE, .one_in = 10, .error = ANY_OF(storm, errors_before)});
}

static void err_after_commit(struct storm *storm)
{
    set_rule_all(storm, (struct proxy_rule){.fault = PROXY_ERROR_AFTER,
                                            .only_commit = true,
                                            .one_in = 4,
                                            .error = ANY_OF(storm, errors_after_commit)});
}

/* ---- exhausted resources ---- */

static void limit_victim(struct storm *storm, __rlimit_resource_t what, rlim_t soft)
{
    struct rlimit limit;
    pid_t pid = storm->permitd[storm->victim]->pid;
    KIT_CHECK(!prlimit(pid, what, NULL, &limit));
    limit.rlim_cur = soft < limit.rlim_max ? soft : limit.rlim_max;
    KIT_CHECK(!prlimit(pid, what, &limit, NULL));
}

static void limit_descriptors(struct storm *storm)
{
    limit_victim(storm, RLIMIT_NOFILE, 24);
    proxy_cut(storm->proxies[storm->victim]);
}

static void restore_descriptors(struct storm *storm)
{
    limit_victim(storm, RLIMIT_NOFILE, RLIM_INFINITY);
}

static void limit_memory(struct storm *storm)
{
    limit_victim(storm, RLIMIT_AS, 1);
}

static void restore_memory(struct storm *storm)
{
    limit_victim(storm, RLIMIT_AS, RLIM_INFINITY);
}

/* A sanitizer maps terabytes of addresses, and ends its process when a mapping fails. */
static bool memory_can_run_out(const struct storm *storm)
{
    unsigned long long pages = 0;
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/statm", (int)storm->permitd[0]->pid);
    FILE *statm = fopen(path, "r");
    KIT_CHECK(statm && fscanf(statm, "%llu", &pages) == 1);
    fclose(statm);
    return pages * (unsigned long long)sysconf(_SC_PAGESIZE) < 1ULL << 40;
}

static void begin_sql(struct storm *storm, const char *statement)
{
    storm->admin = kit_sql_open(storm->database->socket, NULL);
    kit_sql_run(storm->admin, "%s", statement);
}

static void end_sql(struct storm *storm, const char *statement)
{
    kit_sql_run(storm->admin, "%s", statement);
    kit_sql_close(storm->admin);
}

static void limit_connections(struct storm *storm)
{
    begin_sql(storm, "SET GLOBAL max_connections = 10");
    for (size_t i = 0; i < storm->world.permitd_count; i++)
        proxy_cut(storm->proxies[i]);
}

static void restore_connections(struct storm *storm)
{
    end_sql(storm, "SET GLOBAL max_connections = 600");
}

/* ---- settings ---- */

static void make_unsafe(struct storm *storm)
{
    begin_sql(storm, "SET GLOBAL innodb_flush_log_at_trx_commit = 2");
}

static void make_safe(struct storm *storm)
{
    end_sql(storm, "SET GLOBAL innodb_flush_log_at_trx_commit = 1");
}

static void make_read_only(struct storm *storm)
{
    begin_sql(storm, "SET GLOBAL read_only = 1");
}

static void make_writable(struct storm *storm)
{
    end_sql(storm, "SET GLOBAL read_only = 0");
}

/* ---- clients that misbehave ---- */

static const char *const nonsense[] = {
    "GET / HTTP/9.9\r\n\r\n",
    "POST /v1/requests HTTP/1.1\r\nHost: localhost\r\nContent-Length: 18446744073709551616\r\n\r\n{}",
    "POST /v1/requests HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    "POST /v1/requests HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: "
    "400\r\n\r\n{\"permits\":[",
    "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "DELETE /v1/requests/%zz HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "PUT /v1/semaphores/one-a HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: "
    "2\r\n\r\n[]",
};

/* Sends half requests, invalid requests, and requests whose sender resets the connection before the answer. */
static void send_nonsense(struct storm *storm)
{
    enum { PESTS = 40 };
    const struct linger reset = {1, 0};
    for (int i = 0; i < PESTS; i++) {
        int fd = kit_connect(atomic_load(&storm->world.ports[storm->victim]));
        const char *text = ANY_OF(storm, nonsense);
        if (fd < 0)
            continue;
        (void)!send(fd, text, strlen(text), MSG_NOSIGNAL);
        if (caller_random(&storm->dice, 2))
            setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
        kit_sleep_ms((int)caller_random(&storm->dice, 20));
        close(fd);
    }
}

const struct fault faults[] = {
    {"N1 SIGKILL permitd", kill_permitd, revive_permitd, 0, 500},
    {"N2 SIGSTOP permitd", freeze_permitd, thaw_permitd, 50, 6000},
    {"N3 SIGKILL mariadbd", kill_database, revive_database, 0, 1000},
    {"N4 SIGSTOP mariadbd", freeze_database, thaw_database, 50, 6000},
    {"N5 cut before a statement", cut_before, pass_all, 500, 2000},
    {"N5 cut before the reply", cut_after, pass_all, 500, 2000},
    {"N5 cut within the reply", cut_within, pass_all, 500, 2000},
    {"N5 cut before COMMIT", cut_before_commit, pass_all, 500, 2000},
    {"N5 cut after COMMIT", cut_after_commit, pass_all, 500, 2000},
    {"N6 black hole", black_hole_one, pass_all, 200, 8000},
    {"N7 delay", delay_all, pass_all, 500, 2000},
    {"N8 error before a packet", err_before, pass_all, 500, 2000},
    {"N8 error after COMMIT", err_after_commit, pass_all, 500, 2000},
    {"N9 clock an hour forward and back", leap_forward, leap_back, 200, 3000},
    {"N9 clock an hour back and forward", leap_back, leap_forward, 200, 3000},
    {"N10 full disk", fill_disk, repair_disk, 500, 6000},
    {"N10 disk that takes nothing", break_disk, repair_disk, 200, 2000},
    {"N11 no descriptors", limit_descriptors, restore_descriptors, 500, 2000},
    {"N11 no memory", limit_memory, restore_memory, 500, 2000},
    {"N12 too many connections", limit_connections, restore_connections, 500, 2000},
    {"N13 unsafe setting", make_unsafe, make_safe, 500, 8000},
    {"N13 read-only", make_read_only, make_writable, 500, 2000},
    {"N16 malformed and half requests", send_nonsense, no_action, 0, 100},
};
const unsigned fault_count = sizeof(faults) / sizeof(faults[0]);

bool fault_is_possible(const struct fault *fault, const struct storm *storm)
{
    return fault->begin != limit_memory || memory_can_run_out(storm);
}
