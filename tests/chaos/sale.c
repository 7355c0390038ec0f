/* SPDX-License-Identifier: MIT */
/*
 * Sales in SQL under kills: shops, each a process, hold units through two permitd and sell them in the transaction that
 * writes the order (docs/protocol.md, "Sales in SQL"). A shop, a permitd or the database is killed at each statement in
 * turn, just after it is sent and just after it is answered. At the end each order has its sale and each sale its order,
 * and a reader of the feed was told each sale once.
 *
 *     sale [--orders N] [--kills N] [--shops N] [--seed N]
 *
 * --orders: so many are sold. The whole figure: --orders 1000000 --kills 300.
 */
#include "sale.h"

#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PROCEDURES = 8, INSTALLED_MS = 120000, LOOK_MS = 5, STUCK_MS = 300000, CLOSED_MS = 180000 };

static const char *const points[POINTS] = {"acquire sent", "acquire answered", "BEGIN sent", "BEGIN answered",
                                           "write sent",   "write answered",   "CALL sent",  "CALL answered",
                                           "COMMIT sent",  "COMMIT answered"};
static const char *const victims[VICTIMS] = {"shop", "permitd", "database"};

struct run {
    struct sale sale;
    struct kit_permitd *permitd[PERMITDS];
    pid_t shops[SHOPS_MAX], reader; /* of the feed */
    unsigned shop_count, kills;
    unsigned counts[VICTIMS][POINTS];
    int next_kill, repaired; /* numbers */
    uint64_t started;        /* shops */
};

static void start_permitd(struct run *run, unsigned at)
{
    run->permitd[at] = kit_permitd_start(&(struct kit_permitd_options){.database = run->sale.database->url});
    atomic_store(&run->sale.hall->permitd_pids[at], run->permitd[at]->pid);
    atomic_store(&run->sale.hall->ports[at], run->permitd[at]->port);
}

/* Returns 0 in the child, which ends with its parent. */
static pid_t start_child(void)
{
    pid_t parent = getpid();
    fflush(stdout);
    pid_t pid = fork();
    if (pid < 0)
        kit_fail("fork");
    if (pid)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(0);
    return 0;
}

static void start_shop(struct run *run, unsigned at)
{
    uint64_t random = run->sale.seed * 0x9e3779b97f4a7c15u + ++run->started * 0xd1342543de82ef95u;
    run->shops[at] = start_child();
    if (run->shops[at])
        return;
    shop_run(&run->sale, random);
    _exit(0);
}

static void put(unsigned port, const char *path, const char *body)
{
    struct kit_http http = kit_http(port);
    struct reply reply;
    if (!kit_http_put(&http, path, body, &reply) || reply.status != 201)
        kit_fail("PUT %s: %d %s", path, reply.status, reply.body);
    reply_release(&reply);
    kit_http_close(&http);
}

static bool procedures_are_there(void *context)
{
    return kit_sql_number(context, "SELECT COUNT(*) FROM information_schema.ROUTINES WHERE ROUTINE_SCHEMA='permitd'") ==
           PROCEDURES;
}

/* Semaphores with units for all orders, the table of orders, and the account of the shops. */
static void prepare(struct run *run)
{
    unsigned port = run->permitd[0]->port;
    char path[64], body[128];
    for (unsigned i = 0; i < SEMAPHORES; i++) {
        snprintf(path, sizeof path, "/v1/semaphores/s%u", i);
        snprintf(body, sizeof body, "{\"capacity\":%u,\"kind\":\"%s\",\"feed\":\"sales\"}",
                 60 + run->sale.orders / SEMAPHORES * 4, i % 2 ? "slotted" : "counted");
        put(port, path, body);
    }
    put(port, "/v1/sql-accounts/root", NULL);
    struct kit_sql *sql = kit_sql_open(run->sale.database->socket, "permitd");
    kit_sql_run(sql, "CREATE DATABASE shop");
    kit_sql_run(sql, "CREATE TABLE shop.orders (hold VARBINARY(64) NOT NULL PRIMARY KEY, first INT NOT NULL,"
                     " first_units INT NOT NULL, second INT NOT NULL, second_units INT NOT NULL) ENGINE=InnoDB");
    if (!kit_wait_until(procedures_are_there, sql, INSTALLED_MS))
        kit_fail("sale: permitd does not install the procedures");
    kit_sql_close(sql);
}

/* Starts again what the last kill has ended. Shops are started again by look_after_shops. */
static void repair(struct run *run)
{
    int number = atomic_load(&run->sale.hall->struck);
    if (number <= run->repaired)
        return;
    enum victim victim = kill_victim(number);
    run->counts[victim][kill_point(number)]++;
    if (victim == DATABASE) {
        kit_database_await_end(run->sale.database);
        kit_database_restart(run->sale.database);
        atomic_store(&run->sale.hall->database_pid, run->sale.database->pid);
    } else if (victim == PERMITD) {
        unsigned at = (unsigned)atomic_load(&run->sale.hall->struck_permitd);
        kit_permitd_kill(run->permitd[at]);
        start_permitd(run, at);
    }
    run->repaired = number;
}

/* Returns the number of shops that are open. */
static unsigned look_after_shops(struct run *run, bool again)
{
    unsigned open = 0;
    for (unsigned i = 0; i < run->shop_count; i++) {
        int status;
        if (run->shops[i] && waitpid(run->shops[i], &status, WNOHANG) == run->shops[i]) {
            run->shops[i] = 0;
            if (status && !(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL))
                kit_fail("sale: a shop has ended with status 0x%x", (unsigned)status);
        }
        if (!run->shops[i] && again)
            start_shop(run, i);
        open += run->shops[i] != 0;
    }
    return open;
}

/* Arms the next kill when the one before is repaired and its share of the orders is sold. */
static void arm(struct run *run, unsigned sold)
{
    if (run->next_kill < (int)run->kills && run->repaired == run->next_kill - 1 &&
        sold >= (uint64_t)run->sale.orders * (unsigned)run->next_kill / (run->kills + 1))
        atomic_store(&run->sale.hall->armed, run->next_kill++);
}

static void trade(struct run *run)
{
    struct hall *hall = run->sale.hall;
    unsigned last = 0;
    int64_t moved_us = kit_now_us();
    for (unsigned sold = 0; sold < run->sale.orders || run->repaired < (int)run->kills - 1;) {
        repair(run);
        look_after_shops(run, true);
        arm(run, sold);
        kit_sleep_ms(LOOK_MS);
        sold = atomic_load(&hall->tallies[SALES]);
        if (sold / 1000 != last / 1000)
            fprintf(stderr, "sale: %u sold, %d kills\n", sold, run->repaired + 1);
        if (sold != last)
            moved_us = kit_now_us();
        last = sold;
        if (kit_now_us() - moved_us > STUCK_MS * 1000LL)
            kit_fail("sale: nothing was sold for %d s, at %u", STUCK_MS / 1000, sold);
    }
    atomic_store(&hall->closing, true);
    int64_t end = kit_now_us() + CLOSED_MS * 1000LL;
    while (look_after_shops(run, false)) {
        if (kit_now_us() > end)
            kit_fail("sale: a shop does not close");
        kit_sleep_ms(LOOK_MS);
    }
}

static void print_counts(const struct run *run, double seconds)
{
    static const char *const names[TALLIES] = {"grants",
                                               "without capacity",
                                               "sold",
                                               "refunded",
                                               "released",
                                               "rolled back",
                                               "refused as expired",
                                               "sold past the ttl",
                                               "raced over HTTP",
                                               "of these 409",
                                               "conflicts",
                                               "lost connections"};
    printf("sale: %u purchases by %u shops in %.0f s", atomic_load(&run->sale.hall->claimed), run->shop_count, seconds);
    for (unsigned i = 0; i < TALLIES; i++)
        printf("%s %u %s", i ? "," : ":", atomic_load(&run->sale.hall->tallies[i]), names[i]);
    printf("\nsale: %d kills", run->repaired + 1);
    for (unsigned point = 0; point < POINTS; point++) {
        printf("%s %s", point ? "," : ":", points[point]);
        for (unsigned victim = 0; victim < VICTIMS; victim++)
            printf(" %u", run->counts[victim][point]);
    }
    printf(" (%s, %s, %s)\n", victims[SHOP], victims[PERMITD], victims[DATABASE]);
    fflush(stdout);
}

static _Noreturn void usage(void)
{
    fprintf(stderr, "usage: sale [--orders N] [--kills N] [--shops N] [--seed N]\n");
    exit(64);
}

static void read_arguments(struct run *run, int argc, char **argv)
{
    static const struct option options[] = {{"orders", required_argument, NULL, 'o'},
                                            {"kills", required_argument, NULL, 'k'},
                                            {"shops", required_argument, NULL, 's'},
                                            {"seed", required_argument, NULL, 'r'},
                                            {NULL, 0, NULL, 0}};
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;)
        switch (option) {
        case 'o': run->sale.orders = (unsigned)strtoul(optarg, NULL, 10); break;
        case 'k': run->kills = (unsigned)strtoul(optarg, NULL, 10); break;
        case 's': run->shop_count = (unsigned)strtoul(optarg, NULL, 10); break;
        case 'r': run->sale.seed = strtoull(optarg, NULL, 10); break;
        default: usage();
        }
    if (optind < argc || !run->shop_count || run->shop_count > SHOPS_MAX || !run->sale.orders ||
        run->sale.orders > RECORDS_MAX / 4)
        usage();
}

int main(int argc, char **argv)
{
    static struct run run = {.sale.orders = 3000, .kills = 30, .shop_count = 64, .repaired = -1};
    run.sale.seed = (uint64_t)time(NULL);
    read_arguments(&run, argc, argv);
    printf("sale: seed %llu\n", (unsigned long long)run.sale.seed);
    struct hall *hall =
        mmap(NULL, sizeof *hall, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    KIT_CHECK(hall != MAP_FAILED);
    atomic_store(&hall->armed, -1);
    atomic_store(&hall->struck, -1);
    run.sale.hall = hall;
    run.sale.database = kit_database_start(NULL);
    atomic_store(&hall->database_pid, run.sale.database->pid);
    for (unsigned i = 0; i < PERMITDS; i++)
        start_permitd(&run, i);
    prepare(&run);
    run.reader = start_child();
    if (!run.reader)
        feed_run(&run.sale);
    int64_t began = kit_now_us();
    trade(&run);
    print_counts(&run, (double)(kit_now_us() - began) / 1e6);
    unsigned violations = sale_judge(&run.sale);
    kill(run.reader, SIGKILL);
    waitpid(run.reader, NULL, 0);
    violations += atomic_load(&hall->complaints);
    for (unsigned i = 0; i < PERMITDS; i++)
        kit_permitd_stop(run.permitd[i]);
    kit_database_stop(run.sale.database);
    printf("sale: %u violations\nsale: %d passed, %d failed\n", violations, !violations, violations != 0);
    return violations != 0;
}
