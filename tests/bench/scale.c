/* SPDX-License-Identifier: MIT */
/*
 * Measures what a large database costs a client that needs little of it: by turns beside a small one, in the same run.
 * Prints Markdown on standard output and progress on standard error. The exit status judges nothing.
 *
 * bench_scale [--quick] [PART ...]: slots, due, semaphores, ended; without names all of them
 */
#include "choice.h"
#include "held_rows.h"
#include "measure.h"
#include "table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Sides of a comparison. */
enum { SMALL, LARGE, SIDES };

static const struct numbers {
    long slots, held;    /* slots of a semaphore, and how many of them are held */
    unsigned due_rounds; /* units that are due, and requested then */
    long due;            /* requests that are due elsewhere */
    long semaphores, ended;
    const char *buffer_pool; /* of both servers, for the large one's rows */
    size_t rounds;
    double seconds;
} full = {65536, 60000, 40, 500000, 1000000, 50000000, "12GiB", 5, 3},
  quick = {2000, 1800, 5, 20000, 5000, 100000, "512MiB", 1, 1};

struct figures {
    struct series slots[SIDES];
    struct samples due[SIDES];
    long due_left; /* of the due requests elsewhere, after the last acquire that counts */
    struct series semaphores_hot[SIDES], semaphores_spread[SIDES], ended[SIDES];
};

static const char *const side_names[SIDES] = {"small", "large"};

static struct instance start(const struct numbers *numbers)
{
    const char *const flags[] = {"--buffer-pool", numbers->buffer_pool, NULL};
    return instance_start_with(&(struct kit_permitd_options){.flags = flags});
}

static void run(const char *part, size_t side, struct instance *instance, const struct load *load,
                struct series *series)
{
    struct result result = instance_loadgen(instance, load);
    series_add(series, result);
    fprintf(stderr, "bench: %-10s %s %7.0f/s, acquire %6.0f us, MariaDB %5.1f us\n", part, side_names[side],
            result.rate, result.p50_us, result.database_cpu_us);
}

/* Runs the load on both sides in each round; the side that begins alternates. */
static void by_turns(const char *part, const struct numbers *numbers, struct instance *instances[SIDES],
                     struct load loads[SIDES], struct series series[SIDES])
{
    for (size_t round = 0; round < numbers->rounds; round++)
        for (size_t turn = 0; turn < SIDES; turn++) {
            size_t side = (round + turn) % SIDES;
            loads[side].seconds = numbers->seconds;
            run(part, side, instances[side], &loads[side], &series[side]);
        }
}

static void acquire(struct kit_http *http, const char *key, const char *semaphore, long count, const char *ttl)
{
    struct reply reply;
    char body[300];
    snprintf(body, sizeof body,
             "{\"external_id\":\"%s\",\"permits\":[{\"semaphore\":\"%s\",\"count\":%ld}],\"ttl\":\"%s\"}", key,
             semaphore, count, ttl);
    if (!kit_http_call(http, "POST", "/v1/requests", "", body, &reply) || reply.status != 201)
        kit_fail("acquire %s: %d %s", key, reply.status, reply.body);
    reply_release(&reply);
}

/* ---- slots ---- */

/* All the lowest slots are held but one, so that whoever takes that one makes the next acquire look for another. */
static void hold_slots(struct instance *instance, const char *semaphore, long count)
{
    enum { STEP = 1000 };
    struct kit_http http = kit_http(instance->permitd->port);
    struct reply reply;
    acquire(&http, "hole", semaphore, 1, "1h");
    for (long held = 0; held < count; held += STEP) {
        char key[32];
        snprintf(key, sizeof key, "held-%ld", held);
        acquire(&http, key, semaphore, count - held < STEP ? count - held : STEP, "1h");
    }
    KIT_CHECK(kit_http_call(&http, "DELETE", "/v1/requests/hole", "", "", &reply) && reply.status == 200);
    reply_release(&reply);
    kit_http_close(&http);
}

static void measure_slots(const struct numbers *numbers, struct figures *figures)
{
    struct instance instance = start(&quick);
    struct instance *instances[SIDES] = {&instance, &instance};
    struct load loads[SIDES] = {{.clients = 16, .semaphore = "empty"}, {.clients = 16, .semaphore = "full"}};
    instance_semaphore(&instance, "empty", "slotted", numbers->slots);
    instance_semaphore(&instance, "full", "slotted", numbers->slots);
    hold_slots(&instance, "full", numbers->held);
    by_turns("slots", numbers, instances, loads, figures->slots);
    instance_stop(&instance);
}

/* ---- due ---- */

/* Requests of another semaphore that are due at the same moment, `seconds` from now. */
static void fill_due(struct instance *instance, long count, int seconds)
{
    struct kit_sql *sql = kit_sql_open(instance->socket, "permitd");
    instance_semaphore(instance, "elsewhere", "counted", 2 * count);
    instance_fill(instance, "elsewhere", count);
    kit_sql_run(sql, "BEGIN");
    long long id = kit_sql_number(sql, "SELECT id FROM semaphore WHERE name = 'elsewhere' FOR UPDATE");
    kit_sql_run(sql, "SET @due = SYSDATE(6) + INTERVAL %d SECOND", seconds);
    kit_sql_run(sql, "UPDATE permit_request SET due_at = @due WHERE owner = 'fill'");
    kit_sql_run(sql, "DELETE FROM held WHERE semaphore_id = %lld", id);
    kit_sql_run(sql, HELD_ROWS_ADD("p.semaphore_id = %lld"), id);
    kit_sql_run(sql, "UPDATE semaphore SET next_due_at = @due, version = version + 1 WHERE id = %lld", id);
    kit_sql_run(sql, "COMMIT");
    kit_sql_close(sql);
    instance_flush(instance);
}

static long due_left(struct instance *instance)
{
    struct kit_sql *sql = kit_sql_open(instance->socket, "permitd");
    long left = (long)kit_sql_number(sql, "SELECT in_use FROM semaphore WHERE name = 'elsewhere'");
    kit_sql_close(sql);
    return left;
}

/* Holds units for a second and then acquires each of them again, one after the other. */
static void take_due_units(struct instance *instance, unsigned count, struct samples *samples)
{
    struct kit_http http = kit_http(instance->permitd->port);
    char key[32], semaphore[32];
    for (unsigned i = 0; i < count; i++) {
        snprintf(semaphore, sizeof semaphore, "unit-%u", i);
        snprintf(key, sizeof key, "holder-%u", i);
        acquire(&http, key, semaphore, 1, "1s");
    }
    kit_sleep_ms(1300); /* longer than the ttl, and than what a deadline may be later */
    for (unsigned i = 0; i < count; i++) {
        snprintf(semaphore, sizeof semaphore, "unit-%u", i);
        snprintf(key, sizeof key, "next-%u", i);
        int64_t sent_us = kit_now_us();
        acquire(&http, key, semaphore, 1, "1h");
        samples_add(samples, kit_now_us() - sent_us);
    }
    kit_http_close(&http);
}

static void measure_due(const struct numbers *numbers, struct figures *figures)
{
    for (size_t side = 0; side < SIDES; side++) {
        struct instance instance = start(&quick);
        for (unsigned i = 0; i < numbers->due_rounds; i++) {
            char name[32];
            snprintf(name, sizeof name, "unit-%u", i);
            instance_semaphore(&instance, name, "counted", 1);
        }
        fill_due(&instance, side == LARGE ? numbers->due : 1, side == LARGE ? 60 : 1);
        while (due_left(&instance) == (side == LARGE ? numbers->due : 1)) /* until expiry has begun with them */
            kit_sleep_ms(20);
        figures->due[side] =
            (struct samples){.us = calloc(numbers->due_rounds, sizeof(uint32_t)), .capacity = numbers->due_rounds};
        take_due_units(&instance, numbers->due_rounds, &figures->due[side]);
        figures->due_left = due_left(&instance);
        instance_stop(&instance);
    }
}

/* ---- semaphores and ended requests ---- */

enum { SPREAD = 1000, PLENTY = 1000000 };

/* Semaphores that no client of the load uses. */
static void add_semaphores(struct instance *instance, long count)
{
    struct kit_sql *sql = kit_sql_open(instance->socket, "permitd");
    kit_sql_run(sql,
                "INSERT INTO semaphore (id, name, kind, capacity, default_ttl_ms, max_hold_ms)"
                " SELECT 1000000000 + seq, CONCAT('other-', seq), 2, 10, 60000, 3600000 FROM seq_1_to_%ld",
                count);
    kit_sql_close(sql);
    instance_flush(instance);
}

static void measure_semaphores(const struct numbers *numbers, struct figures *figures)
{
    struct instance small = start(numbers), large = start(numbers);
    struct instance *instances[SIDES] = {&small, &large};
    struct load hot[SIDES] = {{.clients = 64, .semaphore = "hot"}, {.clients = 64, .semaphore = "hot"}};
    struct load spread[SIDES] = {{.clients = 64, .semaphore = "counted", .spread = SPREAD},
                                 {.clients = 64, .semaphore = "counted", .spread = SPREAD}};
    add_semaphores(&large, numbers->semaphores);
    for (size_t side = 0; side < SIDES; side++) {
        instance_semaphore(instances[side], "hot", "counted", PLENTY);
        instance_semaphores(instances[side], "counted", "counted", PLENTY, SPREAD);
    }
    by_turns("hot", numbers, instances, hot, figures->semaphores_hot);
    by_turns("spread", numbers, instances, spread, figures->semaphores_spread);
    instance_stop(&small);
    instance_stop(&large);
}

static void measure_ended(const struct numbers *numbers, struct figures *figures)
{
    struct instance small = start(numbers), large = start(numbers);
    struct instance *instances[SIDES] = {&small, &large};
    struct load loads[SIDES] = {{.clients = 64, .semaphore = "hot"}, {.clients = 64, .semaphore = "hot"}};
    for (size_t side = 0; side < SIDES; side++)
        instance_semaphore(instances[side], "hot", "counted", PLENTY);
    instance_fill_ended(&large, "hot", numbers->ended, "SYSDATE(6) + INTERVAL 7 DAY");
    by_turns("ended", numbers, instances, loads, figures->ended);
    instance_stop(&small);
    instance_stop(&large);
}

/* ---- the table ---- */

static void print_series(const char *what, struct series series[SIDES])
{
    double ratio = RATIO(&series[LARGE], &series[SMALL], rate);
    print_target(what, "within 5 %",
                 text("%.3f times the rate (%.0f/s, %.0f/s); acquire %.2f ms, %.2f ms; MariaDB %.1f us, %.1f us", ratio,
                      MEDIAN(&series[LARGE], rate), MEDIAN(&series[SMALL], rate), MEDIAN(&series[LARGE], p50_us) / 1e3,
                      MEDIAN(&series[SMALL], p50_us) / 1e3, MEDIAN(&series[LARGE], database_cpu_us),
                      MEDIAN(&series[SMALL], database_cpu_us)),
                 ratio >= 0.95, series_failures(&series[LARGE]) + series_failures(&series[SMALL]));
}

static void print_slots(const struct numbers *numbers, struct figures *figures)
{
    print_series(text("%ld slots of which %ld are held, against none, 16 clients", numbers->slots, numbers->held),
                 figures->slots);
}

static void print_due(const struct numbers *numbers, struct figures *figures)
{
    struct samples *small = &figures->due[SMALL], *large = &figures->due[LARGE];
    print_target(text("%ld requests due elsewhere: an acquire that needs a due unit, %u times", numbers->due,
                      numbers->due_rounds),
                 "bounded by the semaphore's own holders: at most 10 ms (median)",
                 text("median %.2f ms, most %.2f; with one due elsewhere %.2f, %.2f (%ld were left)",
                      samples_percentile(large, 0.5) / 1e3, samples_percentile(large, 1) / 1e3,
                      samples_percentile(small, 0.5) / 1e3, samples_percentile(small, 1) / 1e3, figures->due_left),
                 samples_percentile(large, 0.5) <= 10000 && figures->due_left > 0, 0);
}

static void print_semaphores(const struct numbers *numbers, struct figures *figures)
{
    print_series(text("%ld semaphores more: one hot, 64 clients", numbers->semaphores), figures->semaphores_hot);
    print_series(text("the same: load on %d of them", SPREAD), figures->semaphores_spread);
}

static void print_ended(const struct numbers *numbers, struct figures *figures)
{
    print_series(text("%ld ended requests, against none, 64 clients", numbers->ended), figures->ended);
}

static const struct {
    const char *name;
    void (*measure)(const struct numbers *numbers, struct figures *figures);
    void (*print)(const struct numbers *numbers, struct figures *figures);
} parts[] = {
    {"slots", measure_slots, print_slots},
    {"due", measure_due, print_due},
    {"semaphores", measure_semaphores, print_semaphores},
    {"ended", measure_ended, print_ended},
};

enum { PARTS = sizeof(parts) / sizeof(parts[0]) };

int main(int argc, char **argv)
{
    static struct figures figures;
    struct choice choice = choice_read(argc, argv, parts, sizeof(parts[0]), PARTS);
    const struct numbers *numbers = choice.quick ? &quick : &full;
    for (size_t i = 0; i < PARTS; i++)
        if (choice.chosen[i])
            parts[i].measure(numbers, &figures);
    print_machine_alone();
    printf("- Buffer pool of both servers: %s; the first two parts: %s\n", numbers->buffer_pool, quick.buffer_pool);
    printf("- Medians of %zu rounds of %g s, by turns\n\n", numbers->rounds, numbers->seconds);
    print_target_head();
    for (size_t i = 0; i < PARTS; i++)
        if (choice.chosen[i])
            parts[i].print(numbers, &figures);
    return 0;
}
