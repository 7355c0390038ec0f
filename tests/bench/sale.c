/* SPDX-License-Identifier: MIT */
/*
 * Sales in SQL (docs/protocol.md): the cost of a call in the transaction of an order, and what open transactions of
 * shops cost all others. All ratios are of one run, by turns. Prints Markdown on standard output and progress on
 * standard error.
 *
 *     bench_sale [--rounds N] [--seconds S] [--clients N] [--open S]
 *
 * --open: how long the transactions of shops stay open after their holds are due.
 */
#include <getopt.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "measure.h"
#include "table.h"

enum {
    SHOPS = 64,
    CLIENTS_MAX = 64,
    FILL = 400000,
    PROCEDURES = 8,
    INSTALLED_MS = 120000,
    DUE_TTL_MS = 1000,
    GRANT_LATE_MS = 500
};

/* What the transaction of an order does besides its INSERT. */
enum extra { ALONE, UPDATE, CALL, CALL_FROZEN, EXTRAS };
static const char *const extras[EXTRAS] = {"order alone", "with UPDATE", "with CALL", "CALL, frozen"};

struct bench {
    struct instance instance;
    double seconds, open_s;
    unsigned rounds, clients;
    atomic_uint next_order;
    atomic_uint next_hold; /* of those that instance_fill has inserted */
    long long first_hold;  /* its id */
    double rates[EXTRAS][ROUNDS_MAX], ratio_update[ROUNDS_MAX], ratio_frozen[ROUNDS_MAX], ratio_alone[ROUNDS_MAX];
    struct series hot, beside;
    double waits_alone, waits_open, retries_alone, retries_open;
    struct samples stranger_alone, stranger_open;
};

/* ---- orders ---- */

struct seller {
    pthread_t thread;
    struct bench *bench;
    enum extra extra;
    struct kit_sql *sql;
    atomic_bool *counting, *over;
    unsigned orders;
};

static void open_order(struct bench *bench, struct kit_sql *sql)
{
    kit_sql_run(sql, "START TRANSACTION");
    kit_sql_run(sql, "INSERT INTO shop.orders (id, hold, amount) VALUES (%u, 'cart', 1)",
                atomic_fetch_add(&bench->next_order, 1));
}

static long long next_hold(struct bench *bench)
{
    unsigned at = atomic_fetch_add(&bench->next_hold, 1);
    KIT_CHECK(at < FILL);
    return bench->first_hold + at;
}

static void sell(struct bench *bench, struct kit_sql *sql, enum extra extra)
{
    open_order(bench, sql);
    if (extra == UPDATE) /* a copy of the table, so that permitd's rows stay consistent */
        kit_sql_run(sql, "UPDATE shop.bare SET confirmed_at = UTC_TIMESTAMP(6), errand = 1 WHERE id = %lld",
                    next_hold(bench));
    else if (extra != ALONE)
        kit_sql_run(sql, "CALL permitd.permit_confirm('fill-%lld')", next_hold(bench));
    kit_sql_run(sql, "COMMIT");
}

static void *seller_run(void *context)
{
    struct seller *seller = context;
    while (!atomic_load(seller->over)) {
        sell(seller->bench, seller->sql, seller->extra);
        seller->orders += atomic_load(seller->counting);
    }
    return NULL;
}

/* Orders a second. */
static double sell_for(struct bench *bench, enum extra extra)
{
    enum { WARM_MS = 300 };
    struct seller sellers[CLIENTS_MAX];
    atomic_bool counting = false, over = false;
    unsigned orders = 0;
    for (unsigned i = 0; i < bench->clients; i++) {
        sellers[i] = (struct seller){.bench = bench, .extra = extra, .counting = &counting, .over = &over};
        sellers[i].sql = kit_sql_open(bench->instance.socket, "shop");
        KIT_CHECK(!pthread_create(&sellers[i].thread, NULL, seller_run, &sellers[i]));
    }
    kit_sleep_ms(WARM_MS);
    int64_t began = kit_now_us();
    atomic_store(&counting, true);
    kit_sleep_ms((int)(bench->seconds * 1000));
    atomic_store(&counting, false);
    int64_t ended = kit_now_us();
    atomic_store(&over, true);
    for (unsigned i = 0; i < bench->clients; i++) {
        pthread_join(sellers[i].thread, NULL);
        kit_sql_close(sellers[i].sql);
        orders += sellers[i].orders;
    }
    double rate = orders * 1e6 / (double)(ended - began);
    fprintf(stderr, "bench: %-12s %7.0f orders/s of %u clients\n", extras[extra], rate, bench->clients);
    return rate;
}

static bool all_is_settled(void *context)
{
    return kit_sql_number(context, "SELECT COUNT(*) FROM permitd.errand WHERE permit_request_id > 0") == 0;
}

static void await_settled(struct bench *bench)
{
    struct kit_sql *sql = kit_sql_open(bench->instance.socket, "permitd");
    KIT_CHECK(kit_wait_until(all_is_settled, sql, INSTALLED_MS));
    kit_sql_close(sql);
}

/* permitd settles while the orders with a call are counted, as it does beside a shop. Frozen: it settles afterwards. */
static void measure_orders(struct bench *bench, unsigned round)
{
    for (unsigned i = 0; i < EXTRAS; i++) {
        enum extra extra = (enum extra)((i + round) % EXTRAS);
        if (extra == CALL_FROZEN)
            kit_permitd_freeze(bench->instance.permitd);
        bench->rates[extra][round] = sell_for(bench, extra);
        if (extra == CALL_FROZEN)
            kit_permitd_thaw(bench->instance.permitd);
        await_settled(bench);
    }
    bench->ratio_update[round] = bench->rates[CALL][round] / bench->rates[UPDATE][round];
    bench->ratio_frozen[round] = bench->rates[CALL_FROZEN][round] / bench->rates[UPDATE][round];
    bench->ratio_alone[round] = bench->rates[CALL][round] / bench->rates[ALONE][round];
}

/* ---- open transactions ---- */

struct shops {
    struct kit_sql *sql[SHOPS];
};

static void shops_open(struct bench *bench, struct shops *shops)
{
    for (unsigned i = 0; i < SHOPS; i++) {
        shops->sql[i] = kit_sql_open(bench->instance.socket, "shop");
        open_order(bench, shops->sql[i]);
    }
}

static void shops_close(struct shops *shops)
{
    for (unsigned i = 0; i < SHOPS; i++) {
        kit_sql_run(shops->sql[i], "COMMIT");
        kit_sql_close(shops->sql[i]);
    }
}

/* The hot load, alone and beside open transactions on holds of the same semaphore, in changing order. */
static void measure_hot(struct bench *bench, unsigned round)
{
    const struct load hot = {.clients = 64, .seconds = bench->seconds, .semaphore = "hot"};
    struct shops shops;
    for (unsigned i = 0; i < 2; i++) {
        bool beside = (i + round) % 2;
        if (beside) {
            shops_open(bench, &shops);
            for (unsigned j = 0; j < SHOPS; j++)
                kit_sql_run(shops.sql[j], "CALL permitd.permit_confirm('fill-%lld')", next_hold(bench));
        }
        struct result result = instance_loadgen(&bench->instance, &hot);
        if (beside)
            shops_close(&shops);
        series_add(beside ? &bench->beside : &bench->hot, result);
        fprintf(stderr, "bench: hot %-6s %7.0f operations/s, most %.1f ms\n", beside ? "beside" : "alone", result.rate,
                result.max_us / 1e3);
        await_settled(bench);
    }
}

/* ---- a stranger on the same semaphore ---- */

struct stranger {
    pthread_t thread;
    unsigned port;
    struct samples *samples;
    atomic_bool *over;
};

static void call(struct kit_http *http, const char *method, const char *path, const char *body, struct samples *samples)
{
    struct reply reply;
    int64_t began = kit_now_us();
    KIT_CHECK(kit_http_call(http, method, path, NULL, body, &reply));
    samples_add(samples, kit_now_us() - began);
    if (reply.status / 100 != 2)
        kit_fail("%s %s: %d %s", method, path, reply.status, reply.body);
    reply_release(&reply);
}

/* Acquires and releases one unit, as fast as it is answered. */
static void *stranger_run(void *context)
{
    static unsigned last;
    struct stranger *stranger = context;
    struct kit_http http = kit_http(stranger->port);
    char path[64], body[200];
    while (!atomic_load(stranger->over)) {
        unsigned key = ++last;
        snprintf(body, sizeof body,
                 "{\"external_id\":\"stranger-%u\",\"permits\":[{\"semaphore\":\"hot\",\"count\":1}]}", key);
        snprintf(path, sizeof path, "/v1/requests/stranger-%u", key);
        call(&http, "POST", "/v1/requests", body, stranger->samples);
        call(&http, "DELETE", path, NULL, stranger->samples);
    }
    kit_http_close(&http);
    return NULL;
}

/* The sum of a metric over its labels. */
static double metric(unsigned port, const char *name)
{
    struct kit_http http = kit_http(port);
    struct reply reply;
    double sum = 0;
    KIT_CHECK(kit_http_get(&http, "/metrics", &reply));
    for (const char *at = reply.body; (at = strstr(at, name)); at += strlen(name))
        if (at > reply.body && at[-1] == '\n')
            sum += atof(at + strcspn(at, " \n"));
    reply_release(&reply);
    kit_http_close(&http);
    return sum;
}

static void hold(struct bench *bench, unsigned number)
{
    struct kit_http http = kit_http(bench->instance.permitd->port);
    struct samples unused = {0};
    char body[200];
    snprintf(body, sizeof body,
             "{\"external_id\":\"due-%u\",\"ttl\":\"%dms\",\"permits\":[{\"semaphore\":\"hot\",\"count\":1}]}", number,
             DUE_TTL_MS);
    call(&http, "POST", "/v1/requests", body, &unused);
    samples_release(&unused);
    kit_http_close(&http);
}

/*
 * A stranger alone, or beside transactions that stay open after the holds that they sell are due. Adds waits for rows in
 * the server, and transactions that permitd ran again.
 */
static void measure_stranger(struct bench *bench, bool with_shops, struct samples *samples, double *ret_waits,
                             double *ret_retries)
{
    atomic_bool over = false;
    unsigned port = bench->instance.permitd->port;
    struct stranger stranger = {.port = port, .samples = samples, .over = &over};
    struct shops shops;
    double waits = instance_counter(&bench->instance, "Innodb_row_lock_waits");
    double retries = metric(port, "permitd_batch_retries_total");
    KIT_CHECK(!pthread_create(&stranger.thread, NULL, stranger_run, &stranger));
    if (with_shops) {
        for (unsigned i = 0; i < SHOPS; i++)
            hold(bench, i);
        shops_open(bench, &shops);
        for (unsigned i = 0; i < SHOPS; i++)
            kit_sql_run(shops.sql[i], "CALL permitd.permit_confirm('due-%u')", i);
    }
    kit_sleep_ms(DUE_TTL_MS + GRANT_LATE_MS + (int)(bench->open_s * 1000));
    if (with_shops)
        shops_close(&shops);
    await_settled(bench); /* beside the stranger, too */
    atomic_store(&over, true);
    pthread_join(stranger.thread, NULL);
    *ret_waits = instance_counter(&bench->instance, "Innodb_row_lock_waits") - waits;
    *ret_retries = metric(port, "permitd_batch_retries_total") - retries;
    fprintf(stderr, "bench: stranger %-6s %zu calls, longest %.1f ms; %.0f waits for rows, %.0f batches again\n",
            with_shops ? "beside" : "alone", samples->count, samples_percentile(samples, 1) / 1e3, *ret_waits,
            *ret_retries);
}

static void check_sold(struct bench *bench)
{
    struct kit_sql *sql = kit_sql_open(bench->instance.socket, "permitd");
    KIT_CHECK(kit_sql_number(sql, "SELECT COUNT(*) FROM permit_request WHERE external_id LIKE 'due-%%' AND state=1 AND"
                                  " confirmed_at IS NOT NULL") == SHOPS);
    kit_sql_close(sql);
}

/* ---- preparation and figures ---- */

static bool procedures_are_there(void *context)
{
    return kit_sql_number(context, "SELECT COUNT(*) FROM information_schema.ROUTINES WHERE ROUTINE_SCHEMA='permitd'") ==
           PROCEDURES;
}

static void prepare(struct bench *bench)
{
    struct kit_http http = kit_http(bench->instance.permitd->port);
    struct reply reply;
    instance_semaphore(&bench->instance, "hot", "counted", 10000000);
    instance_fill(&bench->instance, "hot", FILL);
    KIT_CHECK(kit_http_put(&http, "/v1/sql-accounts/root", NULL, &reply) && reply.status == 201);
    reply_release(&reply);
    kit_http_close(&http);
    struct kit_sql *sql = kit_sql_open(bench->instance.socket, "permitd");
    bench->first_hold = kit_sql_number(sql, "SELECT MIN(id) FROM permit_request WHERE external_id LIKE 'fill-%%'");
    KIT_CHECK(kit_sql_number(sql, "SELECT MAX(id) FROM permit_request") == bench->first_hold + FILL - 1);
    kit_sql_run(sql, "CREATE DATABASE shop");
    kit_sql_run(sql, "CREATE TABLE shop.orders (id INT UNSIGNED NOT NULL PRIMARY KEY, hold VARBINARY(64) NOT NULL,"
                     " amount INT NOT NULL) ENGINE=InnoDB");
    kit_sql_run(sql, "CREATE TABLE shop.bare LIKE permit_request");
    kit_sql_run(sql, "INSERT INTO shop.bare SELECT * FROM permit_request");
    KIT_CHECK(kit_wait_until(procedures_are_there, sql, INSTALLED_MS));
    kit_sql_close(sql);
    instance_flush(&bench->instance);
}

static void print_figures(struct bench *bench)
{
    double rates[EXTRAS], ratio = median(bench->ratio_update, bench->rounds);
    double frozen = median(bench->ratio_frozen, bench->rounds);
    double hot = RATIO(&bench->beside, &bench->hot, rate);
    double longest = samples_percentile(&bench->stranger_open, 1);
    for (unsigned i = 0; i < EXTRAS; i++)
        rates[i] = median(bench->rates[i], bench->rounds);
    print_machine(&bench->instance);
    print_target_head();
    print_target(
        text("orders with CALL permit_confirm, against those with an UPDATE by id, %u clients", bench->clients),
        "at least 0.6", text("%.2f (%.0f, %.0f orders/s)", ratio, rates[CALL], rates[UPDATE]), ratio >= 0.6, 0);
    print_target("the same while permitd is stopped, so that it settles afterwards", "at least 0.6",
                 text("%.2f (%.0f orders/s)", frozen, rates[CALL_FROZEN]), frozen >= 0.6, 0);
    print_target(text("hot rate beside %d open transactions of shops, against that alone", SHOPS), "at least 0.95",
                 text("%.2f (%.0f, %.0f operations/s)", hot, MEDIAN(&bench->beside, rate), MEDIAN(&bench->hot, rate)),
                 hot >= 0.95, series_failures(&bench->beside) + series_failures(&bench->hot));
    print_target(text("longest call of a stranger on the same semaphore; %d transactions, open for %.0f s after their "
                      "holds are due",
                      SHOPS, bench->open_s),
                 "under 50 ms",
                 text("%.1f ms (alone %.1f); 99 %% %.1f ms (alone %.1f), %zu calls", longest / 1e3,
                      samples_percentile(&bench->stranger_alone, 1) / 1e3,
                      samples_percentile(&bench->stranger_open, 0.99) / 1e3,
                      samples_percentile(&bench->stranger_alone, 0.99) / 1e3, bench->stranger_open.count),
                 longest < 50000, 0);
    print_target("batches that waited for a row meanwhile", "0",
                 text("%.0f waits for rows in the server, %.0f batches again (alone %.0f, %.0f)", bench->waits_open,
                      bench->retries_open, bench->waits_alone, bench->retries_alone),
                 bench->waits_open == 0 && bench->retries_open == 0, 0);
    printf("\nOrders with the call against orders alone: %.2f (%.0f orders/s alone).\n",
           median(bench->ratio_alone, bench->rounds), rates[ALONE]);
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"rounds", required_argument, NULL, 'r'},
                                            {"seconds", required_argument, NULL, 's'},
                                            {"clients", required_argument, NULL, 'c'},
                                            {"open", required_argument, NULL, 'o'},
                                            {NULL, 0, NULL, 0}};
    static struct bench bench = {.seconds = 3, .open_s = 30, .rounds = 5, .clients = 16};
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;)
        switch (option) {
        case 'r': bench.rounds = (unsigned)atoi(optarg); break;
        case 's': bench.seconds = atof(optarg); break;
        case 'c': bench.clients = (unsigned)atoi(optarg); break;
        case 'o': bench.open_s = atof(optarg); break;
        default: bench.rounds = 0;
        }
    if (bench.rounds < 1 || bench.rounds > ROUNDS_MAX || bench.clients < 1 || bench.clients > CLIENTS_MAX) {
        fprintf(stderr, "usage: bench_sale [--rounds N] [--seconds S] [--clients N] [--open S]\n");
        return 64;
    }
    bench.instance = instance_start();
    prepare(&bench);
    for (unsigned round = 0; round < bench.rounds; round++) {
        fprintf(stderr, "bench: round %u of %u\n", round + 1, bench.rounds);
        measure_orders(&bench, round);
        measure_hot(&bench, round);
    }
    measure_stranger(&bench, false, &bench.stranger_alone, &bench.waits_alone, &bench.retries_alone);
    measure_stranger(&bench, true, &bench.stranger_open, &bench.waits_open, &bench.retries_open);
    check_sold(&bench);
    print_figures(&bench);
    samples_release(&bench.stranger_alone);
    samples_release(&bench.stranger_open);
    instance_stop(&bench.instance);
    return 0;
}
