/* SPDX-License-Identifier: MIT */
/*
 * The naive design, for comparison: every client has its own thread and connection, and runs one transaction per
 * operation. Acquire: BEGIN, SELECT ... FOR UPDATE of the semaphore, SUM of the units held, INSERT of the request,
 * INSERT of the permit, COMMIT. Release: BEGIN, two UPDATEs by primary key, COMMIT. Its tables are in a database
 * `naive` of the server that permitd uses. The SUM walks a covering index, the best case for it.
 *
 * --fill N: creates the tables with N permits held, and exits.
 */
#include "load_client.h"
#include "measure.h"

#include <getopt.h>
#include <mysql.h>
#include <mysqld_error.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SQL_SIZE = 512, THREAD_STACK = 256 * 1024, FILL_STEP = 100000 };

struct settings {
    const char *socket;
    unsigned clients;
    double seconds;
    double warmup;
    unsigned long burst;
    const char *watch;
    long fill; /* -1: no fill */
    long capacity;
};

static struct settings settings = {.clients = 64, .seconds = 3, .warmup = 0.5, .fill = -1, .capacity = 100000000};

enum phase { PHASE_WARM, PHASE_COUNT, PHASE_STOP };

static atomic_int phase;
static atomic_long burst_left;

struct client {
    pthread_t thread;
    MYSQL *mysql;
    unsigned number;
    unsigned long serial;
    struct measure measure; /* only its counters are used */
};

_Noreturn static void fail(MYSQL *mysql, const char *what)
{
    fprintf(stderr, "naive: %s: %s\n", what, mysql_error(mysql));
    exit(1);
}

static MYSQL *open_connection(const char *database)
{
    MYSQL *mysql = mysql_init(NULL);
    if (!mysql || !mysql_real_connect(mysql, NULL, "root", NULL, database, 0, settings.socket, 0))
        fail(mysql, "connect");
    return mysql;
}

/* Returns 0, or the errno of a transaction to be retried. Any other error ends the program. */
static unsigned run(MYSQL *mysql, const char *sql)
{
    if (!mysql_real_query(mysql, sql, strlen(sql)))
        return 0;
    unsigned error = mysql_errno(mysql);
    if (error != ER_LOCK_DEADLOCK && error != ER_LOCK_WAIT_TIMEOUT)
        fail(mysql, sql);
    if (mysql_query(mysql, "ROLLBACK"))
        fail(mysql, "ROLLBACK");
    return error;
}

static unsigned run_number(MYSQL *mysql, const char *sql, long *ret_number)
{
    unsigned error = run(mysql, sql);
    if (error)
        return error;
    MYSQL_RES *result = mysql_store_result(mysql);
    MYSQL_ROW row = result ? mysql_fetch_row(result) : NULL;
    *ret_number = row && row[0] ? atol(row[0]) : 0;
    mysql_free_result(result);
    return 0;
}

struct held {
    unsigned long long request_id;
    unsigned long long permit_id;
};

/* Inserts the two rows; the caller commits. */
static unsigned insert_permit(struct client *client, struct held *ret_held)
{
    char sql[SQL_SIZE];
    snprintf(
        sql, sizeof(sql),
        "INSERT INTO permit_request (external_id, owner, state, acquired_at) VALUES ('n%d-%u-%lu', 'bench', 1, NOW(6))",
        (int)getpid(), client->number, client->serial++);
    unsigned error = run(client->mysql, sql);
    if (error)
        return error;
    ret_held->request_id = mysql_insert_id(client->mysql);
    snprintf(sql, sizeof(sql),
             "INSERT INTO permit (permit_request_id, semaphore_id, count, state) VALUES (%llu, 1, 1, 1)",
             ret_held->request_id);
    error = run(client->mysql, sql);
    ret_held->permit_id = mysql_insert_id(client->mysql);
    return error;
}

/* Returns 0 if granted, 1 if refused, else an errno: retry. */
static unsigned acquire(struct client *client, struct held *ret_held)
{
    long capacity, in_use;
    unsigned error;
    if ((error = run(client->mysql, "BEGIN")) ||
        (error = run_number(client->mysql, "SELECT capacity FROM semaphore WHERE id = 1 FOR UPDATE", &capacity)) ||
        (error =
             run_number(client->mysql,
                        "SELECT COALESCE(SUM(count), 0) FROM permit WHERE semaphore_id = 1 AND state = 1", &in_use)))
        return error;
    if (in_use + 1 > capacity) {
        error = run(client->mysql, "ROLLBACK");
        return error ? error : 1;
    }
    if ((error = insert_permit(client, ret_held)))
        return error;
    return run(client->mysql, "COMMIT");
}

static unsigned release(struct client *client, const struct held *held)
{
    char request[SQL_SIZE], permit[SQL_SIZE];
    snprintf(request, sizeof(request), "UPDATE permit_request SET state = 2, ended_at = NOW(6) WHERE id = %llu",
             held->request_id);
    snprintf(permit, sizeof(permit), "UPDATE permit SET state = 2 WHERE id = %llu", held->permit_id);
    unsigned error;
    if ((error = run(client->mysql, "BEGIN")) || (error = run(client->mysql, request)) ||
        (error = run(client->mysql, permit)))
        return error;
    return run(client->mysql, "COMMIT");
}

static void one_pair(struct client *client)
{
    struct held held;
    int64_t start = load_now_us();
    unsigned result;
    while ((result = acquire(client, &held)) > 1)
        client->measure.failed += atomic_load(&phase) == PHASE_COUNT;
    bool counting = atomic_load(&phase) == PHASE_COUNT;
    if (counting) {
        samples_add(&client->measure.acquires, load_now_us() - start);
        client->measure.operations += result == 0;
        client->measure.refused += result == 1;
    }
    if (result == 1 || settings.burst)
        return;
    while (release(client, &held))
        ;
    client->measure.operations += atomic_load(&phase) == PHASE_COUNT;
}

static void *client_run(void *context)
{
    struct client *client = context;
    mysql_thread_init();
    if (settings.burst)
        while (atomic_fetch_sub(&burst_left, 1) > 0)
            one_pair(client);
    else
        while (atomic_load(&phase) != PHASE_STOP)
            one_pair(client);
    mysql_thread_end();
    return NULL;
}

/* ---- tables ---- */

static const char *const tables[] = {
    "DROP DATABASE IF EXISTS naive",
    "CREATE DATABASE naive",
    "USE naive",
    "CREATE TABLE semaphore (id INT NOT NULL PRIMARY KEY, name VARCHAR(255) NOT NULL UNIQUE, capacity BIGINT NOT NULL)",
    "CREATE TABLE permit_request (id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, external_id VARCHAR(255) NOT NULL "
    "UNIQUE, "
    "owner VARCHAR(255) NOT NULL, state TINYINT NOT NULL, acquired_at DATETIME(6) NOT NULL, ended_at DATETIME(6) NULL)",
    "CREATE TABLE permit (id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, permit_request_id BIGINT NOT NULL, "
    "semaphore_id INT NOT NULL, count BIGINT NOT NULL, state TINYINT NOT NULL, KEY (permit_request_id), "
    "KEY (semaphore_id, state, count))",
};

static void fill(void)
{
    char sql[SQL_SIZE];
    MYSQL *mysql = open_connection(NULL);
    for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++)
        run(mysql, tables[i]);
    snprintf(sql, sizeof(sql), "INSERT INTO semaphore VALUES (1, 'hot', %ld)", settings.capacity);
    run(mysql, sql);
    for (long from = 1; from <= settings.fill; from += FILL_STEP) {
        long to = from + FILL_STEP - 1 < settings.fill ? from + FILL_STEP - 1 : settings.fill;
        snprintf(sql, sizeof(sql),
                 "INSERT INTO permit_request (id, external_id, owner, state, acquired_at) "
                 "SELECT seq, CONCAT('fill-', seq), 'fill', 1, NOW(6) FROM seq_%ld_to_%ld",
                 from, to);
        run(mysql, sql);
        snprintf(sql, sizeof(sql),
                 "INSERT INTO permit (id, permit_request_id, semaphore_id, count, state) "
                 "SELECT seq, seq, 1, 1, 1 FROM seq_%ld_to_%ld",
                 from, to);
        run(mysql, sql);
    }
    run(mysql, "ANALYZE TABLE permit");
    mysql_free_result(mysql_store_result(mysql));
    mysql_close(mysql);
}

/* ---- the run ---- */

static struct client *start_clients(void)
{
    struct client *clients = calloc(settings.clients, sizeof(clients[0]));
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, THREAD_STACK);
    if (!clients)
        exit(1);
    for (unsigned i = 0; i < settings.clients; i++) {
        clients[i].number = i;
        clients[i].mysql = open_connection("naive");
    }
    if (settings.burst)
        atomic_store(&phase, PHASE_COUNT);
    for (unsigned i = 0; i < settings.clients; i++)
        if (pthread_create(&clients[i].thread, &attributes, client_run, &clients[i]))
            exit(1);
    pthread_attr_destroy(&attributes);
    return clients;
}

static void join_clients(struct client *clients, struct measure *sum)
{
    for (unsigned i = 0; i < settings.clients; i++)
        pthread_join(clients[i].thread, NULL);
    if (settings.burst)
        measure_end(sum);
    for (unsigned i = 0; i < settings.clients; i++) {
        struct measure *part = &clients[i].measure;
        sum->operations += part->operations;
        sum->refused += part->refused;
        sum->failed += part->failed;
        for (size_t j = 0; j < part->acquires.count; j++)
            samples_add(&sum->acquires, part->acquires.us[j]);
        samples_release(&part->acquires);
        mysql_close(clients[i].mysql);
    }
    free(clients);
}

static void run_clients(void)
{
    struct measure sum = {.start_us = 0};
    measure_watch(&sum, settings.watch);
    atomic_store(&burst_left, (long)settings.burst);
    if (settings.burst)
        measure_begin(&sum);
    struct client *clients = start_clients();
    if (!settings.burst) {
        usleep((useconds_t)(settings.warmup * 1e6));
        measure_begin(&sum);
        atomic_store(&phase, PHASE_COUNT);
        usleep((useconds_t)(settings.seconds * 1e6));
        atomic_store(&phase, PHASE_STOP);
        measure_end(&sum);
    }
    join_clients(clients, &sum);
    measure_print(&sum);
    samples_release(&sum.acquires);
}

static const struct option options[] = {
    {"socket", required_argument, NULL, 'S'},
    {"clients", required_argument, NULL, 'c'},
    {"seconds", required_argument, NULL, 't'},
    {"warmup", required_argument, NULL, 'w'},
    {"burst", required_argument, NULL, 'n'},
    {"watch", required_argument, NULL, 'W'},
    {"fill", required_argument, NULL, 'f'},
    {"capacity", required_argument, NULL, 'C'},
    {NULL, 0, NULL, 0},
};

static void take_option(int option)
{
    switch (option) {
    case 'S': settings.socket = optarg; break;
    case 'c': settings.clients = (unsigned)atoi(optarg); break;
    case 't': settings.seconds = atof(optarg); break;
    case 'w': settings.warmup = atof(optarg); break;
    case 'n': settings.burst = strtoul(optarg, NULL, 10); break;
    case 'W': settings.watch = optarg; break;
    case 'f': settings.fill = atol(optarg); break;
    case 'C': settings.capacity = atol(optarg); break;
    default: exit(2);
    }
}

int main(int argc, char **argv)
{
    int option;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1)
        take_option(option);
    if (!settings.socket || !settings.clients) {
        fprintf(stderr,
                "usage: naive --socket PATH [--clients N] [--seconds S] [--warmup S] [--burst N] [--watch PID,PID] | "
                "--fill N [--capacity N]\n");
        return 2;
    }
    mysql_library_init(0, NULL, NULL);
    if (settings.fill >= 0)
        fill();
    else
        run_clients();
    mysql_library_end();
    return 0;
}
