/* SPDX-License-Identifier: MIT */
/*
 * Many who wait for long: what each costs in memory, and whether others notice. A process may not open files for all of
 * them, so each permitd that is needed has a process of clients, which does what it is told through a pipe.
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

/* SPARE_FILES: of permitd's limit, for what are not clients. */
enum { SPARE_FILES = 600, PERMITDS_MAX = PERMITD_MAX };

/* What a process of clients is told; it answers with one byte when it is done. */
enum order { ORDER_OPEN = 'o', ORDER_ASK = 'a', ORDER_CLOSE = 'c', ORDER_END = 'e' };

struct sitters {
    pid_t pid;
    unsigned port;
    unsigned count;
    int orders, done; /* pipes */
    size_t at;        /* number of its permitd */
};

/* ---- in the process of the clients ---- */

static void greet(struct throng *throng)
{
    static const char request[] = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    char answer[8192];
    for (unsigned i = 0; i < throng->count; i++) {
        KIT_CHECK(write(throng->clients[i].fd, request, sizeof(request) - 1) == (ssize_t)sizeof(request) - 1);
        KIT_CHECK(read(throng->clients[i].fd, answer, sizeof(answer)) > 0);
    }
}

static struct throng *sitters_open(const struct sitters *sitters, unsigned turn)
{
    char name[16];
    snprintf(name, sizeof(name), "p%zu-%u", sitters->at, turn);
    struct throng *throng = throng_open(name, sitters->port, sitters->count);
    greet(throng);
    return throng;
}

static void sitters_ask(struct throng *throng)
{
    for (unsigned i = 0; i < throng->count; i++) {
        throng->clients[i].semaphore = "full";
        throng->clients[i].wait = "10m";
    }
    throng_ask_all(throng);
}

_Noreturn static void sitters_run(const struct sitters *sitters, int orders, int done)
{
    struct throng *throng = NULL;
    char order;
    for (unsigned turn = 0; read(orders, &order, 1) == 1 && order != ORDER_END;) {
        if (order == ORDER_OPEN)
            throng = sitters_open(sitters, turn++);
        else if (order == ORDER_ASK)
            sitters_ask(throng);
        else {
            if (throng && throng->turn_count && throng_count(throng, 0, NULL) != throng->turn_count)
                kit_fail("parked: some were answered");
            throng_close(throng);
            throng = NULL;
        }
        KIT_CHECK(write(done, &order, 1) == 1);
    }
    _exit(0);
}

/* ---- in ours ---- */

static void sitters_start(struct sitters *sitters)
{
    int orders[2], done[2];
    KIT_CHECK(!pipe(orders) && !pipe(done));
    fflush(stdout);
    sitters->pid = fork();
    KIT_CHECK(sitters->pid >= 0);
    if (!sitters->pid) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(orders[1]);
        close(done[0]);
        sitters_run(sitters, orders[0], done[1]);
    }
    close(orders[0]);
    close(done[1]);
    sitters->orders = orders[1];
    sitters->done = done[0];
}

static void sitters_stop(struct sitters *sitters)
{
    int status;
    char order = ORDER_END;
    KIT_CHECK(write(sitters->orders, &order, 1) == 1);
    close(sitters->orders);
    close(sitters->done);
    KIT_CHECK(waitpid(sitters->pid, &status, 0) == sitters->pid && status == 0);
}

struct park {
    const struct parked_numbers *numbers;
    struct site site;
    struct sitters sitters[PERMITDS_MAX];
    struct kit_http http; /* the one who does not wait */
    unsigned pair;
};

static void tell_all(struct park *park, enum order order)
{
    char byte = (char)order;
    for (size_t i = 0; i < park->site.count; i++)
        KIT_CHECK(write(park->sitters[i].orders, &byte, 1) == 1);
    for (size_t i = 0; i < park->site.count; i++)
        if (read(park->sitters[i].done, &byte, 1) != 1)
            kit_fail("parked: the clients of permitd %zu have ended", i);
}

static int64_t rss_of_all(const struct park *park)
{
    int64_t sum = 0;
    for (size_t i = 0; i < park->site.count; i++)
        sum += process_rss_kib(park->site.permitd[i]->pid) * 1024;
    return sum;
}

/* The median of so many acquires with their releases. */
static double pairs_us(struct park *park)
{
    struct spread spread = {.us = NULL};
    for (unsigned i = 0; i < park->numbers->pairs; i++) {
        char key[64];
        struct reply reply;
        snprintf(key, sizeof(key), "pair-%u", park->pair++);
        int64_t start_us = kit_now_us();
        if (site_acquire(&park->http, key, "other", 1, "1h", &reply) != 201)
            kit_fail("parked: %d %s", reply.status, reply.body);
        reply_release(&reply);
        KIT_CHECK(site_release(&park->http, key) == 200);
        spread_add(&spread, kit_now_us() - start_us);
    }
    double us = (double)spread_at(&spread, 0.5);
    spread_release(&spread);
    return us;
}

static void all_wait(struct park *park, struct parked_figures *figures)
{
    int64_t start_us = kit_now_us();
    tell_all(park, ORDER_ASK);
    site_await_waiting(&park->site, "full", park->numbers->waiters, WAITS_LOST_MS);
    figures->seconds = (double)(kit_now_us() - start_us) / 1e6;
}

/* With connections that say nothing, with the same ones waiting, with new ones that say nothing. */
static void turn_run(struct park *park, bool first, struct parked_figures *figures)
{
    int64_t empty = rss_of_all(park);
    tell_all(park, ORDER_OPEN);
    int64_t idle = rss_of_all(park);
    double before_us = pairs_us(park);
    all_wait(park, figures);
    int64_t waiting = rss_of_all(park);
    double beside_us = pairs_us(park);
    tell_all(park, ORDER_CLOSE);
    site_await_waiting(&park->site, "full", 0, WAITS_LOST_MS);
    tell_all(park, ORDER_OPEN);
    double after_us = pairs_us(park);
    tell_all(park, ORDER_CLOSE);
    spread_add(&figures->alone_us, (int64_t)before_us);
    spread_add(&figures->alone_us, (int64_t)after_us);
    spread_add(&figures->beside_us, (int64_t)beside_us);
    if (first) { /* later on memory is used again */
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
    park->site = site_start_with(permitds, flags);
    site_semaphore(&park->site, "full", "{\"capacity\":1}");
    site_semaphore(&park->site, "other", "{\"capacity\":1}");
    park->http = kit_http(park->site.permitd[0]->port);
    if (site_acquire(&park->http, "holder", "full", 1, "1h", &reply) != 201)
        kit_fail("parked: %d %s", reply.status, reply.body);
    reply_release(&reply);
    for (unsigned i = 0; i < permitds; i++) {
        unsigned share = waiters / permitds + (i < waiters % permitds);
        park->sitters[i] = (struct sitters){.port = park->site.permitd[i]->port, .count = share, .at = i};
        sitters_start(&park->sitters[i]);
    }
}

void parked_measure(const struct parked_numbers *numbers, struct parked_figures *ret_figures)
{
    struct park park = {.numbers = numbers};
    unsigned each = (unsigned)throng_files() - SPARE_FILES, permitds = (numbers->waiters + each - 1) / each;
    KIT_CHECK(permitds <= PERMITDS_MAX);
    *ret_figures = (struct parked_figures){.permitds = permitds};
    park_start(&park, permitds);
    pairs_us(&park); /* so that everything that is made once is there */
    for (unsigned i = 0; i < numbers->turns; i++)
        turn_run(&park, i == 0, ret_figures);
    ret_figures->ratio =
        (double)spread_at(&ret_figures->beside_us, 0.5) / (double)spread_at(&ret_figures->alone_us, 0.5);
    for (unsigned i = 0; i < permitds; i++)
        sitters_stop(&park.sitters[i]);
    kit_http_close(&park.http);
    site_stop(&park.site);
}

void parked_release(struct parked_figures *figures)
{
    spread_release(&figures->alone_us);
    spread_release(&figures->beside_us);
}
