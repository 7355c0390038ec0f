/* SPDX-License-Identifier: MIT */
/*
 * Many clients that wait long: the memory of each, and the effect on other clients. One process cannot open files for
 * all of them, so each permitd has its own process of clients, which gets its orders through a pipe.
 */
#include "measure.h"
#include "waits.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* SPARE_FILES: the part of permitd's limit that is not for clients. */
enum { SPARE_FILES = 600, PERMITDS_MAX = PERMITD_MAX };

/* Orders to a process of clients; it answers with one byte when it is done. */
enum park_order { ORDER_OPEN = 'o', ORDER_ASK = 'a', ORDER_CLOSE = 'c', ORDER_END = 'e' };

struct client_process {
    pid_t pid;
    unsigned port;
    unsigned count;
    int orders, done; /* pipes */
    size_t at;        /* number of its permitd */
};

/* ---- in the process of the clients ---- */

static struct client_pool *client_process_open(const struct client_process *process, unsigned turn)
{
    char name[16];
    snprintf(name, sizeof(name), "p%zu-%u", process->at, turn);
    return client_pool_open(name, process->port, process->count);
}

static void client_process_ask(struct client_pool *client_pool)
{
    for (unsigned i = 0; i < client_pool->count; i++) {
        client_pool->clients[i].semaphore = "full";
        client_pool->clients[i].wait = "10m";
    }
    client_pool_ask_all(client_pool);
}

_Noreturn static void client_process_run(const struct client_process *process, int orders, int done)
{
    struct client_pool *client_pool = NULL;
    char order;
    for (unsigned turn = 0; read(orders, &order, 1) == 1 && order != ORDER_END;) {
        if (order == ORDER_OPEN)
            client_pool = client_process_open(process, turn++);
        else if (order == ORDER_ASK)
            client_process_ask(client_pool);
        else {
            if (client_pool && client_pool->turn_count &&
                client_pool_count(client_pool, 0, NULL) != client_pool->turn_count)
                kit_fail("parked: some were answered");
            client_pool_close(client_pool);
            client_pool = NULL;
        }
        KIT_CHECK(write(done, &order, 1) == 1);
    }
    _exit(0);
}

/* ---- in the main process ---- */

static void client_process_start(struct client_process *process)
{
    int orders[2], done[2];
    KIT_CHECK(!pipe(orders) && !pipe(done));
    fflush(stdout);
    process->pid = fork();
    KIT_CHECK(process->pid >= 0);
    if (!process->pid) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(orders[1]);
        close(done[0]);
        client_process_run(process, orders[0], done[1]);
    }
    close(orders[0]);
    close(done[1]);
    process->orders = orders[1];
    process->done = done[0];
}

static void client_process_stop(struct client_process *process)
{
    int status;
    char order = ORDER_END;
    KIT_CHECK(write(process->orders, &order, 1) == 1);
    close(process->orders);
    close(process->done);
    KIT_CHECK(waitpid(process->pid, &status, 0) == process->pid && status == 0);
}

struct park {
    const struct parked_numbers *numbers;
    struct fixture fixture;
    struct client_process processes[PERMITDS_MAX];
    struct kit_http http; /* of the client that does not wait */
    unsigned pair;
};

static void order_all(struct park *park, enum park_order order)
{
    char byte = (char)order;
    for (size_t i = 0; i < park->fixture.count; i++)
        KIT_CHECK(write(park->processes[i].orders, &byte, 1) == 1);
    for (size_t i = 0; i < park->fixture.count; i++)
        if (read(park->processes[i].done, &byte, 1) != 1)
            kit_fail("parked: the clients of permitd %zu have ended", i);
}

static int64_t rss_of_all(const struct park *park)
{
    int64_t sum = 0;
    for (size_t i = 0; i < park->fixture.count; i++)
        sum += process_rss_kib(park->fixture.permitd[i]->pid) * 1024;
    return sum;
}

/* The median time of an acquire and its release. */
static double pairs_us(struct park *park)
{
    struct duration_set spread = {.us = NULL};
    for (unsigned i = 0; i < park->numbers->pairs; i++) {
        char key[64];
        struct reply reply;
        snprintf(key, sizeof(key), "pair-%u", park->pair++);
        int64_t start_us = kit_now_us();
        if (fixture_acquire(&park->http, key, "other", 1, "1h", &reply) != 201)
            kit_fail("parked: %d %s", reply.status, reply.body);
        reply_release(&reply);
        KIT_CHECK(fixture_release(&park->http, key) == 200);
        duration_set_add(&spread, kit_now_us() - start_us);
    }
    double us = (double)duration_set_quantile_us(&spread, 0.5);
    duration_set_release(&spread);
    return us;
}

static void park_all(struct park *park, struct parked_figures *figures)
{
    int64_t start_us = kit_now_us();
    order_all(park, ORDER_ASK);
    fixture_await_waiting(&park->fixture, "full", park->numbers->waiters, WAITS_LOST_MS);
    figures->seconds = (double)(kit_now_us() - start_us) / 1e6;
}

/* Measures with idle connections, with the same connections waiting, and with new idle connections. */
static void turn_run(struct park *park, bool first, struct parked_figures *figures)
{
    int64_t empty = rss_of_all(park);
    order_all(park, ORDER_OPEN);
    int64_t idle = rss_of_all(park);
    double before_us = pairs_us(park);
    park_all(park, figures);
    int64_t waiting = rss_of_all(park);
    double beside_us = pairs_us(park);
    order_all(park, ORDER_CLOSE);
    fixture_await_waiting(&park->fixture, "full", 0, WAITS_LOST_MS);
    order_all(park, ORDER_OPEN);
    double after_us = pairs_us(park);
    order_all(park, ORDER_CLOSE);
    duration_set_add(&figures->alone_us, (int64_t)before_us);
    duration_set_add(&figures->alone_us, (int64_t)after_us);
    duration_set_add(&figures->beside_us, (int64_t)beside_us);
    if (first) { /* later turns reuse memory */
        figures->connection_bytes = (double)(idle - empty) / park->numbers->waiters;
        figures->bytes = (double)(waiting - idle) / park->numbers->waiters;
    }
}

static void park_start(struct park *park, unsigned permitds)
{
    static const char *const flags[] = {"--idle-timeout",
                                        "1h",
                                        "--max-connections",
                                        "100000",
                                        "--max-connections-per-address",
                                        "100000",
                                        "--max-waiters",
                                        "100000",
                                        "--max-semaphore-waiters",
                                        "100000",
                                        NULL};
    struct reply reply;
    unsigned waiters = park->numbers->waiters;
    park->fixture = fixture_start_with(permitds, flags);
    fixture_semaphore(&park->fixture, "full", "{\"capacity\":1}");
    fixture_semaphore(&park->fixture, "other", "{\"capacity\":1}");
    park->http = kit_http(park->fixture.permitd[0]->port);
    if (fixture_acquire(&park->http, "holder", "full", 1, "1h", &reply) != 201)
        kit_fail("parked: %d %s", reply.status, reply.body);
    reply_release(&reply);
    for (unsigned i = 0; i < permitds; i++) {
        unsigned share = waiters / permitds + (i < waiters % permitds);
        park->processes[i] = (struct client_process){.port = park->fixture.permitd[i]->port, .count = share, .at = i};
        client_process_start(&park->processes[i]);
    }
}

void parked_measure(const struct parked_numbers *numbers, struct parked_figures *ret_figures)
{
    struct park park = {.numbers = numbers};
    unsigned each = (unsigned)load_raise_file_limit() - SPARE_FILES, permitds = (numbers->waiters + each - 1) / each;
    KIT_CHECK(permitds <= PERMITDS_MAX);
    *ret_figures = (struct parked_figures){.permitds = permitds};
    park_start(&park, permitds);
    pairs_us(&park); /* so that everything allocated once is there */
    for (unsigned i = 0; i < numbers->turns; i++)
        turn_run(&park, i == 0, ret_figures);
    ret_figures->ratio = (double)duration_set_quantile_us(&ret_figures->beside_us, 0.5) /
                         (double)duration_set_quantile_us(&ret_figures->alone_us, 0.5);
    for (unsigned i = 0; i < permitds; i++)
        client_process_stop(&park.processes[i]);
    kit_http_close(&park.http);
    fixture_stop(&park.fixture);
}

void parked_release(struct parked_figures *figures)
{
    duration_set_release(&figures->alone_us);
    duration_set_release(&figures->beside_us);
}
