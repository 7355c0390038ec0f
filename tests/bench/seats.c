/* SPDX-License-Identifier: MIT */
/*
 * Seats: groups of 1 to 6 that take the best seats together in two halls of 40,000, beside as many groups that name their
 * seats in two others, by turns; and many clicks on one seat. Prints Markdown on standard output and progress on standard
 * error.
 *
 *     bench_seats [--rounds N] [--groups N] [--clients N] [--clicks N] [--clickers N]
 *
 * --clickers: the connections of the clicks.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "load_client.h"
#include "measure.h"
#include "table.h"

enum {
    HALLS = 2,
    SECTIONS = 8,
    ROWS = 100,
    ROW_SEATS = 50,
    SEATS = SECTIONS * ROWS * ROW_SEATS, /* of a hall */
    GROUP_MAX = 6,
    BODY_SIZE = 512,
    WAIT_MS = 120000,
};

enum kind { BEST, NAMED, CLICK };
static const char *const kinds[] = {"best", "named", "click"};

struct bench {
    struct instance instance;
    struct load_pool *pool;
    struct measure measure;
    enum kind kind;
    unsigned round, groups, clients, clicks, clickers;
    unsigned next, end, waiting; /* calls: the next one, one past the last, those that are not answered */
    unsigned seats[HALLS];       /* of the groups so far, in each hall */
    struct series best, named, click;
};

/* ---- halls ---- */

/* Describes a hall: the best seats are at the front centre, and aisles at the ends of the rows. */
static void describe_hall(struct bench *bench, const char *name)
{
    struct kit_sql *sql = kit_sql_open(bench->instance.socket, "permitd");
    kit_sql_run(sql, "SET @row = 0, @at = 0");
    kit_sql_run(
        sql,
        "UPDATE slot SET section = CHAR(65 + (number - 1) DIV %d), seat_row = 1 + (@row := (number - 1) DIV %d MOD %d),"
        " seat = 1 + (@at := (number - 1) MOD %d),"
        " seat_rank = 1000 * ((number - 1) DIV %d) + 10 * @row + 8 * ABS(CAST(@at AS SIGNED) - %d),"
        " tags = IF(@at IN (0, %d), 'aisle', NULL), label = CONCAT(section, '-', seat_row, '-', seat)"
        " WHERE semaphore_id = (SELECT id FROM semaphore WHERE name = '%s')",
        ROWS * ROW_SEATS, ROW_SEATS, ROWS, ROW_SEATS, ROWS * ROW_SEATS, ROW_SEATS / 2, ROW_SEATS - 1, name);
    kit_sql_close(sql);
}

static void hall_name(const struct bench *bench, unsigned hall, char *name)
{
    sprintf(name, "%s-%u-%u", kinds[bench->kind], bench->round, hall);
}

static void make_halls(struct bench *bench)
{
    char name[32];
    for (unsigned i = 0; i < HALLS; i++) {
        hall_name(bench, i, name);
        instance_semaphore(&bench->instance, name, "slotted", SEATS);
        describe_hall(bench, name);
        bench->seats[i] = 0;
    }
    instance_flush(&bench->instance);
}

/* ---- calls ---- */

/* The seats of a group: half of the groups want fewer than 4. */
static unsigned group_size(unsigned group)
{
    return 1 + (group * 2654435761u >> 8) % GROUP_MAX;
}

/* A group takes the best seats, or the next ones that are free: both leave the rows filled from one end. */
static void write_body(struct bench *bench, unsigned number, char *body)
{
    unsigned hall = bench->kind == CLICK ? 0 : number % HALLS, size = bench->kind == CLICK ? 1 : group_size(number);
    char name[32];
    hall_name(bench, hall, name);
    body += sprintf(body, "{\"external_id\":\"%s-%u-%u\",\"ttl\":\"1h\",\"permits\":[{\"semaphore\":\"%s\",",
                    kinds[bench->kind], bench->round, number, name);
    if (bench->kind == BEST)
        body += sprintf(body, "\"count\":%u,\"best\":{\"together\":true}", size);
    else
        body += sprintf(body, "\"slots\":[");
    for (unsigned i = 0; bench->kind != BEST && i < size; i++)
        body += sprintf(body, "%s%u", i ? "," : "", (bench->kind == CLICK ? SEATS / 2 : bench->seats[hall] + i) + 1);
    if (bench->kind != CLICK)
        bench->seats[hall] += size;
    strcpy(body, bench->kind == BEST ? "}]}" : "]}]}");
}

static void send_next(struct bench *bench, unsigned client)
{
    char body[BODY_SIZE];
    if (bench->next == bench->end)
        return;
    write_body(bench, bench->next++, body);
    char *text = load_request("127.0.0.1", "POST", "/v1/requests", "", body);
    load_send(bench->pool, client, text, strlen(text));
    bench->waiting++;
    free(text);
}

static void take_answer(void *context, unsigned client, const struct load_answer *answer)
{
    struct bench *bench = context;
    if (!answer)
        kit_fail("permitd has closed a connection");
    bench->waiting--;
    samples_add(&bench->measure.acquires, answer->arrived_us - answer->sent_us);
    if (answer->status == 201)
        bench->measure.operations++;
    else if (bench->kind == CLICK && answer->status == 423)
        bench->measure.refused++;
    else if (bench->measure.failed++ == 0)
        fprintf(stderr, "bench: %.300s\n", answer->text);
    send_next(bench, client);
}

/* Makes these calls, each client the next one when it is answered. */
static void run(struct bench *bench, enum kind kind, unsigned calls, unsigned clients, struct series *series)
{
    char watch[64];
    bench->kind = kind;
    make_halls(bench);
    snprintf(watch, sizeof watch, "%d,%d", (int)bench->instance.permitd->pid, (int)bench->instance.database_pid);
    bench->measure = (struct measure){.failed = 0};
    bench->next = bench->waiting = 0;
    bench->end = calls;
    bench->pool = load_pool_open(&(struct load_settings){.host = "127.0.0.1",
                                                         .port = bench->instance.permitd->port,
                                                         .count = clients,
                                                         .answered = take_answer,
                                                         .context = bench});
    KIT_CHECK(load_pool_connect(bench->pool));
    measure_watch(&bench->measure, watch);
    measure_begin(&bench->measure);
    for (unsigned i = 0; i < clients; i++)
        send_next(bench, i);
    for (int64_t end = load_now_us() + WAIT_MS * 1000LL; bench->waiting && load_now_us() < end;)
        load_pool_step(bench->pool, 1000);
    measure_end(&bench->measure);
    load_pool_close(bench->pool);
    struct measure *measure = &bench->measure;
    double seconds = (double)(measure->end_us - measure->start_us) / 1e6;
    struct result result = {.operations = (double)measure->operations,
                            .refused = (double)measure->refused,
                            .failed = (double)measure->failed,
                            .unanswered = bench->waiting,
                            .seconds = seconds,
                            .rate = calls / seconds,
                            .p50_us = samples_percentile(&measure->acquires, 0.5),
                            .p99_us = samples_percentile(&measure->acquires, 0.99),
                            .max_us = samples_percentile(&measure->acquires, 1),
                            .permitd_cpu_us = (double)measure->watched[0].cpu_us / calls,
                            .database_cpu_us = (double)measure->watched[1].cpu_us / calls};
    samples_release(&measure->acquires);
    fprintf(
        stderr,
        "bench: %-6s %7.0f/s, %5.2f s, CPU %5.1f and %5.1f us, median %6.0f us, 99 %% %6.0f, most %7.0f, %.0f failed\n",
        kinds[kind], result.rate, seconds, result.permitd_cpu_us, result.database_cpu_us, result.p50_us, result.p99_us,
        result.max_us, result.failed + result.unanswered);
    series_add(series, result);
}

/* The halls must have sold as many seats as were asked for. */
static void check_sold(struct bench *bench)
{
    struct kit_sql *sql = kit_sql_open(bench->instance.socket, "permitd");
    char name[32];
    for (unsigned i = 0; i < HALLS; i++) {
        hall_name(bench, i, name);
        KIT_CHECK(kit_sql_number(sql, "SELECT in_use FROM semaphore WHERE name='%s'", name) == bench->seats[i]);
        KIT_CHECK(kit_sql_number(
                      sql,
                      "SELECT COUNT(*) FROM slot JOIN semaphore s ON s.id=semaphore_id WHERE permit_id>0 AND name='%s'",
                      name) == bench->seats[i]);
    }
    kit_sql_close(sql);
}

/* ---- figures ---- */

static void print_figures(struct bench *bench)
{
    double ratio = RATIO(&bench->best, &bench->named, rate), longest = 0, wins = 0;
    for (size_t i = 0; i < bench->click.count; i++) {
        longest = bench->click.results[i].max_us > longest ? bench->click.results[i].max_us : longest;
        wins += bench->click.results[i].operations;
    }
    print_machine(&bench->instance);
    print_target_head();
    print_target(text("%u groups of 1 to %d on %d seats with `best` together, against named seats, %u clients",
                      bench->groups, GROUP_MAX, HALLS * SEATS, bench->clients),
                 "rate at least 1",
                 text("%.2f (%.2f s, %.0f/s; named %.2f s, %.0f/s)", ratio, MEDIAN(&bench->best, seconds),
                      MEDIAN(&bench->best, rate), MEDIAN(&bench->named, seconds), MEDIAN(&bench->named, rate)),
                 ratio >= 1, series_failures(&bench->best) + series_failures(&bench->named));
    print_target(text("%u clicks on one seat by %u connections: the longest answer", bench->clicks, bench->clickers),
                 "under 1 s", text("%.0f ms; 99 %% %.0f ms", longest / 1e3, MEDIAN(&bench->click, p99_us) / 1e3),
                 longest < 1e6, series_failures(&bench->click));
    print_target("winners of each seat", "1", text("%.2f", wins / (double)bench->click.count),
                 wins == (double)bench->click.count, 0);
    print_rates_head();
    print_rates("best together", &bench->best, true);
    print_rates("named seats", &bench->named, true);
    print_rates("clicks on one seat", &bench->click, true);
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"rounds", required_argument, NULL, 'r'},   {"groups", required_argument, NULL, 'g'},
        {"clients", required_argument, NULL, 'c'},  {"clicks", required_argument, NULL, 'k'},
        {"clickers", required_argument, NULL, 'K'}, {NULL, 0, NULL, 0}};
    static struct bench bench = {.groups = 10000, .clients = 64, .clicks = 10000, .clickers = 1000};
    unsigned rounds = 5;
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;)
        switch (option) {
        case 'r': rounds = (unsigned)atoi(optarg); break;
        case 'g': bench.groups = (unsigned)atoi(optarg); break;
        case 'c': bench.clients = (unsigned)atoi(optarg); break;
        case 'k': bench.clicks = (unsigned)atoi(optarg); break;
        case 'K': bench.clickers = (unsigned)atoi(optarg); break;
        default: rounds = 0;
        }
    if (rounds < 1 || rounds > ROUNDS_MAX || bench.clients < 1 || bench.clickers < 1 || bench.clicks < 1 ||
        bench.groups < 1 || bench.groups > HALLS * SEATS / GROUP_MAX) {
        fprintf(stderr, "usage: bench_seats [--rounds N] [--groups N] [--clients N] [--clicks N] [--clickers N]\n");
        return 64;
    }
    bench.instance = instance_start();
    for (bench.round = 0; bench.round < rounds; bench.round++) {
        fprintf(stderr, "bench: round %u of %u\n", bench.round + 1, rounds);
        for (unsigned i = 0; i < 2; i++) {
            enum kind kind = (i + bench.round) % 2 ? NAMED : BEST;
            run(&bench, kind, bench.groups, bench.clients, kind == BEST ? &bench.best : &bench.named);
            check_sold(&bench);
        }
        run(&bench, CLICK, bench.clicks, bench.clickers, &bench.click);
    }
    print_figures(&bench);
    instance_stop(&bench.instance);
    return 0;
}
