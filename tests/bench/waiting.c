/* SPDX-License-Identifier: MIT */
/*
 * Measures the figures of docs/performance.md on waiting: idle time of units, CPU cost, order of grants. Prints
 * Markdown on standard output and progress on standard error. The exit status reports only broken promises: a client
 * that is not granted, or out of order, or twice.
 *
 * bench_waiting [--quick] [PART ...]: crowd, latency, wide, fifo, leave, parked, hall, deep, stop; without names all of them
 */
#include "choice.h"
#include "table.h"
#include "waits.h"

#include <stdio.h>
#include <string.h>

struct figures {
    struct crowd_figures crowd;
    struct latency_figures latency;
    struct wide_figures wide, fifo;
    struct leave_figures leave;
    struct parked_figures parked;
    struct hall_figures hall;
    struct deep_figures deep[DEEP_KINDS][2]; /* young, aged */
    struct stop_figures stop;
};

static const struct numbers {
    struct crowd_numbers crowd;
    unsigned latency_rounds;
    struct wide_numbers wide, fifo;
    struct leave_numbers leave;
    struct parked_numbers parked;
    struct hall_numbers hall;
    struct deep_numbers deep;
    unsigned stop_waiters;
} full = {.crowd = {10000, 10, 5, 3},
          .latency_rounds = 1000,
          .wide = {8, 5, 64, 200, 30000, 95, false},
          .fifo = {8, 5, 64, 200, 30000, 30, true},
          .leave = {1000, 200, 5000, 1},
          .parked = {50000, 3, 3000},
          .hall = {3000, 8, 5},
          .deep = {.permitds = 1, .waiters = 10000, .passers = 4, .others = 2, .seconds = 5},
          .stop_waiters = 10000},
  quick = {.crowd = {1000, 10, 5, 1},
           .latency_rounds = 50,
           .wide = {8, 5, 32, 50, 2000, 5, false},
           .fifo = {8, 5, 32, 50, 2000, 5, true},
           .leave = {200, 50, 1000, 1},
           .parked = {2000, 1, 100},
           .hall = {300, 8, 0.5},
           .deep = {.permitds = 1, .waiters = 300, .passers = 4, .others = 2, .seconds = 0.5},
           .stop_waiters = 1000};

/* ---- measuring ---- */

static void measure_crowd(const struct numbers *numbers, struct figures *figures)
{
    crowd_measure(&numbers->crowd, &figures->crowd);
}

static void measure_latency(const struct numbers *numbers, struct figures *figures)
{
    latency_measure(numbers->latency_rounds, &figures->latency);
}

static void measure_wide(const struct numbers *numbers, struct figures *figures)
{
    wide_measure(&numbers->wide, &figures->wide);
}

static void measure_fifo(const struct numbers *numbers, struct figures *figures)
{
    wide_measure(&numbers->fifo, &figures->fifo);
}

static void measure_leave(const struct numbers *numbers, struct figures *figures)
{
    leave_measure(&numbers->leave, &figures->leave);
}

static void measure_parked(const struct numbers *numbers, struct figures *figures)
{
    parked_measure(&numbers->parked, &figures->parked);
}

static void measure_hall(const struct numbers *numbers, struct figures *figures)
{
    hall_measure(&numbers->hall, &figures->hall);
}

static void measure_deep(const struct numbers *numbers, struct figures *figures)
{
    for (unsigned kind = 0; kind < DEEP_KINDS; kind++)
        for (unsigned aged = 0; aged < 2; aged++) {
            struct deep_numbers deep = numbers->deep;
            deep.kind = kind;
            deep.aged = aged;
            deep_measure(&deep, &figures->deep[kind][aged]);
        }
}

static void measure_stop(const struct numbers *numbers, struct figures *figures)
{
    stop_measure(numbers->stop_waiters, &figures->stop);
}

/* ---- printing ---- */

static void print_crowd(const struct numbers *numbers, struct figures *figures)
{
    const struct crowd_numbers *asked = &numbers->crowd;
    struct crowd_figures *crowd = &figures->crowd;
    double plain = crowd->plain_permitd_us + crowd->plain_database_us;
    double once = (crowd->permitd_us + crowd->database_us) / plain;
    double steady = (crowd->steady_permitd_us + crowd->steady_database_us) / plain;
    double idle = duration_set_quantile_ms(&crowd->idle_seen, 0.5),
           steady_idle = duration_set_quantile_ms(&crowd->steady_seen, 0.5);
    print_target(
        text("%u clients wait for %u units, each holds one for %u ms", asked->clients, asked->capacity, asked->hold_ms),
        "order kept, every client served, none twice",
        text("all granted in the order of the queue, once each, in %.1f s", crowd->seconds), true, 0);
    print_target(
        "the same: a unit lies idle, from the answer to a release to the answer to the next holder",
        "at most 5 ms (median)",
        text("%.2f ms (median), %.2f (99 %%): one transaction ends and grants, by the rows %.2f; %.2f and %.2f when "
             "each asks %u more times. From *sending* the release: %.2f (median), %.2f (99 %%); %.2f and %.2f",
             idle, duration_set_quantile_ms(&crowd->idle_seen, 0.99), duration_set_quantile_ms(&crowd->idle_rows, 0.5),
             steady_idle, duration_set_quantile_ms(&crowd->steady_seen, 0.99), asked->rounds,
             duration_set_quantile_ms(&crowd->handed, 0.5), duration_set_quantile_ms(&crowd->handed, 0.99),
             duration_set_quantile_ms(&crowd->steady_handed, 0.5),
             duration_set_quantile_ms(&crowd->steady_handed, 0.99)),
        idle <= 5 && steady_idle <= 5, 0);
    print_target(
        "the same: CPU of permitd and mariadbd for an acquire with its release",
        "at most 1.5 times that without waiting",
        text("%.2f times (%.0f + %.0f us), %.2f times when they ask again (%.0f + %.0f); without waiting %.0f + "
             "%.0f",
             once, crowd->permitd_us, crowd->database_us, steady, crowd->steady_permitd_us, crowd->steady_database_us,
             crowd->plain_permitd_us, crowd->plain_database_us),
        once <= 1.5 && steady <= 1.5, 0);
}

static void print_latency(const struct numbers *numbers, struct figures *figures)
{
    struct duration_set *own = &figures->latency.own, *other = &figures->latency.other;
    (void)numbers;
    print_target(text("from sending a release to the grant, in one permitd (%zu times)", own->count),
                 "median under 3 ms, 99 % under 50 ms",
                 text("median %.2f ms, 99 %% %.2f, most %.2f", duration_set_quantile_ms(own, 0.5),
                      duration_set_quantile_ms(own, 0.99), duration_set_quantile_ms(own, 1)),
                 duration_set_quantile_ms(own, 0.5) < 3 && duration_set_quantile_ms(own, 0.99) < 50, 0);
    print_target(text("the same, released through another permitd (%zu times)", other->count), "99 % under 250 ms",
                 text("median %.2f ms, 99 %% %.2f, most %.2f", duration_set_quantile_ms(other, 0.5),
                      duration_set_quantile_ms(other, 0.99), duration_set_quantile_ms(other, 1)),
                 duration_set_quantile_ms(other, 0.99) < 250, 0);
}

static void print_wide(const struct numbers *numbers, struct figures *figures)
{
    const struct wide_numbers *asked = &numbers->wide;
    struct wide_figures *wide = &figures->wide;
    double bound_ms = asked->bound_ms + 2.0 * asked->hold_ms;
    print_target(text("`backfill`: one client wants %u of %u units repeatedly, among %u that want one for %u ms",
                      asked->count, asked->capacity, asked->clients, asked->hold_ms),
                 text("granted within backfill_bound (%g s)", asked->bound_ms / 1e3),
                 text("%zu times, after %.1f s (median), %.2f at most: at the bound it waits for the holders",
                      wide->waited.count, duration_set_quantile_ms(&wide->waited, 0.5) / 1e3,
                      duration_set_quantile_ms(&wide->waited, 1) / 1e3),
                 wide->waited.count && duration_set_quantile_ms(&wide->waited, 1) <= bound_ms, 0);
    print_target(text("the same for %d s: units held", asked->seconds), "over 95 %",
                 text("%.2f %% (by the rows, from grant to release); as the clients see it, "
                      "including the time of answers, %.2f %%",
                      100 * wide->used_rows, 100 * wide->used_seen),
                 wide->used_rows > 0.95, 0);
}

static void print_fifo(const struct numbers *numbers, struct figures *figures)
{
    struct wide_figures *fifo = &figures->fifo;
    (void)numbers;
    print_target("`fifo`: the same", "granted as soon as it is first and fits",
                 text("%zu times, %.2f ms (most %.2f) after it was first and fitted, by the rows; %zu passed it; units "
                      "held: %.1f %%",
                      fifo->waited.count, duration_set_quantile_ms(&fifo->late, 0.5),
                      duration_set_quantile_ms(&fifo->late, 1), fifo->passed, 100 * fifo->used_rows),
                 fifo->waited.count && duration_set_quantile_ms(&fifo->late, 1) < 50 && fifo->passed == 0, 0);
}

static void print_leave(const struct numbers *numbers, struct figures *figures)
{
    const struct leave_figures *leave = &figures->leave;
    print_target(text("%u waiters disconnect at random moments of a storm", numbers->leave.leavers),
                 "nothing is held that no one acknowledged, except by keys that a retry then finds",
                 text("%zu disconnected without an answer; %zu of them held, all found by their keys; no client waits",
                      leave->left_waiting, leave->granted),
                 true, 0);
}

static void print_parked(const struct numbers *numbers, struct figures *figures)
{
    struct parked_figures *parked = &figures->parked;
    print_target(
        text("%u waiters, in %u permitd: memory beside the connection", numbers->parked.waiters, parked->permitds),
        "under 2 KiB each", text("%.0f bytes (the connection: %.0f)", parked->bytes, parked->connection_bytes),
        parked->bytes < 2048, 0);
    print_target("the same: acquire and release of another semaphore", "unchanged (10 %)",
                 text("%.2f times (%.2f ms beside them, %.2f without, medians of %zu turns)", parked->ratio,
                      duration_set_quantile_ms(&parked->beside_us, 0.5),
                      duration_set_quantile_ms(&parked->alone_us, 0.5), parked->beside_us.count),
                 parked->ratio <= 1.1, 0);
}

static void print_hall(const struct numbers *numbers, struct figures *figures)
{
    const struct hall_figures *hall = &figures->hall;
    print_target(text("%u wait for one taken seat of a hall each; %u clients take any free seat and return it",
                      numbers->hall.waiters, numbers->hall.passers),
                 "half the rate without the waiters",
                 text("%.2f times (%.0f pairs/s beside them, %.0f without)", hall->beside / hall->alone, hall->beside,
                      hall->alone),
                 hall->beside >= hall->alone / 2, 0);
}

static void print_deep(const struct numbers *numbers, struct figures *figures)
{
    static const char *const wants[DEEP_KINDS] = {
        [DEEP_ADJACENT] = "6 adjacent slots of 65,536, of which every second one is held",
        [DEEP_ANY_OF] = "2 of 3 slots, of which two are held",
        [DEEP_NAMED] = "a held slot and the free one beside it",
        [DEEP_COUNT] = "5 units where 4 are free",
    };
    for (unsigned kind = 0; kind < DEEP_KINDS; kind++)
        for (unsigned aged = 0; aged < 2; aged++) {
            struct deep_figures *deep = &figures->deep[kind][aged];
            double longest = duration_set_quantile_ms(&deep->passed, 1);
            print_target(text("%u wait for %s%s; %u clients take any unit and return it", numbers->deep.waiters,
                              wants[kind], aged ? ", for longer than backfill_bound" : "", numbers->deep.passers),
                         "no call over 200 ms",
                         text("longest %.0f ms, median %.1f (%zu calls, %zu refused)", longest,
                              duration_set_quantile_ms(&deep->passed, 0.5), deep->passed.count, deep->refused),
                         longest <= 200, 0);
            double ratio =
                duration_set_quantile_ms(&deep->other, 0.5) / duration_set_quantile_ms(&deep->other_alone, 0.5);
            print_target("the same: acquire and release of another semaphore", "not slower (10 %)",
                         text("%.2f times (median %.1f ms, longest %.0f)", ratio,
                              duration_set_quantile_ms(&deep->other, 0.5), duration_set_quantile_ms(&deep->other, 1)),
                         ratio <= 1.1, 0);
            deep_release(deep);
        }
}

static void print_stop(const struct numbers *numbers, struct figures *figures)
{
    const struct stop_figures *stop = &figures->stop;
    print_target(text("SIGTERM while %u wait", numbers->stop_waiters), "503 to each, exit within 10 s",
                 text("503 to %zu, exit after %.2f s", stop->told, (double)stop->exit_ms / 1e3),
                 stop->told == numbers->stop_waiters && stop->exit_ms <= 10000, 0);
}

static const struct {
    const char *name;
    void (*measure)(const struct numbers *numbers, struct figures *figures);
    void (*print)(const struct numbers *numbers, struct figures *figures);
} parts[] = {
    {"crowd", measure_crowd, print_crowd}, {"latency", measure_latency, print_latency},
    {"wide", measure_wide, print_wide},    {"fifo", measure_fifo, print_fifo},
    {"leave", measure_leave, print_leave}, {"parked", measure_parked, print_parked},
    {"hall", measure_hall, print_hall},    {"deep", measure_deep, print_deep},
    {"stop", measure_stop, print_stop},
};

enum { PARTS = sizeof(parts) / sizeof(parts[0]) };

int main(int argc, char **argv)
{
    static struct figures figures;
    struct choice choice = choice_read(argc, argv, parts, sizeof(parts[0]), PARTS);
    const struct numbers *numbers = choice.quick ? &quick : &full;
    for (size_t i = 0; i < PARTS; i++) {
        if (!choice.chosen[i])
            continue;
        fprintf(stderr, "bench: %s\n", parts[i].name);
        parts[i].measure(numbers, &figures);
    }
    struct instance instance = instance_start();
    print_machine(&instance);
    instance_stop(&instance);
    printf("- Each part has its own MariaDB, with 128 MiB of buffer pool and the same flushing\n\n");
    print_target_head();
    for (size_t i = 0; i < PARTS; i++)
        if (choice.chosen[i])
            parts[i].print(numbers, &figures);
    return 0;
}
