/* SPDX-License-Identifier: MIT */
/*
 * P17 with real servers: waiters are granted in order as soon as they fit, and clients that have disconnected are not
 * granted; also when permitd or the database is killed meanwhile. The figures are printed, and checked only with limits
 * that a slow and busy machine can keep; tests/bench/run.sh waiting compares them with the targets.
 *
 * waiting [--long] [--seed N] [PART ...]: all parts with small numbers; --long: with full numbers.
 */
#include "waiting.h"

#include <stdio.h>

/* A loaded machine, or a permitd with a sanitizer, is slow; the short options fails only if something never happens. */
enum { SLOW_MS = 30000, STOP_MS = 10000 };

static void print_spread(const char *what, struct duration_set *spread)
{
    printf("  %s: median %.2f ms, 99 %% %.2f, most %.2f (%zu)\n", what, duration_set_quantile_ms(spread, 0.5),
           duration_set_quantile_ms(spread, 0.99), duration_set_quantile_ms(spread, 1), spread->count);
}

void waiting_crowd(const struct part_options *options)
{
    struct crowd_numbers numbers = {.clients = options->full ? 10000 : 1000, .capacity = 10, .hold_ms = 5, .rounds = 2};
    struct crowd_figures figures;
    crowd_measure(&numbers, &figures);
    printf("waiting: crowd: %u clients on %u units, each for %u ms, once in %.2f s, %u times in %.2f s\n",
           numbers.clients, numbers.capacity, numbers.hold_ms, figures.seconds, numbers.rounds, figures.steady_seconds);
    print_spread("idle by the rows", &figures.idle_rows);
    print_spread("idle as seen", &figures.idle_seen);
    print_spread("release sent to next grant", &figures.handed);
    print_spread("steady: idle by the rows", &figures.steady_rows);
    print_spread("steady: idle as seen", &figures.steady_seen);
    print_spread("steady: release sent to next grant", &figures.steady_handed);
    printf("  steady: a grant was at most %.2f ms younger than one it passed\n", (double)figures.passed_us / 1e3);
    printf("  CPU of permitd and mariadbd: %.0f + %.0f us; steady %.0f + %.0f; without waiting %.0f + %.0f\n",
           figures.permitd_us, figures.database_us, figures.steady_permitd_us, figures.steady_database_us,
           figures.plain_permitd_us, figures.plain_database_us);
    crowd_release(&figures);
}

void waiting_latency(const struct part_options *options)
{
    struct latency_figures figures;
    latency_measure(options->full ? 1000 : 60, &figures);
    printf("waiting: latency: from sending a release to the grant\n");
    print_spread("one permitd", &figures.own);
    print_spread("through another one", &figures.other);
    if (duration_set_quantile_ms(&figures.own, 1) > (double)SLOW_MS ||
        duration_set_quantile_ms(&figures.other, 1) > (double)SLOW_MS)
        kit_fail("latency: a waiter was not granted a free unit");
    latency_release(&figures);
}

static void run_wide(const struct part_options *options, bool fifo)
{
    struct wide_numbers numbers = {.capacity = 8,
                                   .count = 5,
                                   .clients = options->full ? 64 : 32,
                                   .hold_ms = options->full ? 200 : 50,
                                   .bound_ms = options->full ? 30000 : 2000,
                                   .seconds = options->full ? 95 : 6,
                                   .fifo = fifo};
    struct wide_figures figures;
    if (fifo && options->full)
        numbers.seconds = 30;
    wide_measure(&numbers, &figures);
    printf("waiting: %s: %u of %u units among %u clients that want one for %u ms, bound %u ms, %d s\n",
           fifo ? "fifo" : "wide", numbers.count, numbers.capacity, numbers.clients, numbers.hold_ms, numbers.bound_ms,
           numbers.seconds);
    print_spread("its wait", &figures.waited);
    print_spread("from first and fitting to its grant, by the rows", &figures.late);
    printf("  %zu passed it; used %.2f %% by the rows, %.2f %% as seen; a grant was at most %.2f ms younger than one "
           "it passed\n",
           figures.passed, 100 * figures.used_rows, 100 * figures.used_seen, (double)figures.passed_us / 1e3);
    if (!figures.waited.count)
        kit_fail("%s: it was never served", fifo ? "fifo" : "wide");
    if (duration_set_quantile_ms(&figures.waited, 1) > numbers.bound_ms + SLOW_MS)
        kit_fail("%s: it waited for %.0f ms", fifo ? "fifo" : "wide", duration_set_quantile_ms(&figures.waited, 1));
    wide_release(&figures);
}

void waiting_wide(const struct part_options *options)
{
    run_wide(options, false);
}

void waiting_fifo(const struct part_options *options)
{
    run_wide(options, true);
}

void waiting_leave(const struct part_options *options)
{
    struct leave_numbers numbers = {.leavers = options->full ? 1000 : 300,
                                    .stayers = options->full ? 200 : 60,
                                    .over_ms = options->full ? 5000 : 1500,
                                    .seed = options->seed};
    struct leave_figures figures;
    leave_measure(&numbers, &figures);
    printf("waiting: leave: %zu of %u left without an answer while %zu grants were answered; %zu of them held, all "
           "found by "
           "their keys\n",
           figures.left_waiting, numbers.leavers, figures.served, figures.granted);
}

void waiting_parked(const struct part_options *options)
{
    struct parked_numbers numbers = {
        .waiters = options->full ? 50000 : 2000, .turns = options->full ? 3 : 1, .pairs = options->full ? 2000 : 100};
    struct parked_figures figures;
    parked_measure(&numbers, &figures);
    printf("waiting: parked: %u waiters in %u permitd after %.2f s: %.0f bytes each beside the connection (%.0f)\n",
           numbers.waiters, figures.permitds, figures.seconds, figures.bytes, figures.connection_bytes);
    printf("  acquire and release of another semaphore: %.2f ms alone, %.2f ms beside them: %.2f times\n",
           duration_set_quantile_ms(&figures.alone_us, 0.5), duration_set_quantile_ms(&figures.beside_us, 0.5),
           figures.ratio);
    parked_release(&figures);
}

void waiting_stop(const struct part_options *options)
{
    struct stop_figures figures;
    unsigned waiters = options->full ? 10000 : 2000;
    stop_measure(waiters, &figures);
    printf("waiting: stop: %zu of %u answered 503 shutting_down, exit after %.2f s\n", figures.told, waiters,
           (double)figures.exit_ms / 1e3);
    if (figures.exit_ms > STOP_MS + (options->full ? 0 : SLOW_MS))
        kit_fail("stop: too late");
}

/* A part that is sensitive to load, or loads the machine itself, is alone in its group. */
static const struct part parts[] = {
    {"crowd", waiting_crowd, 0},
    {"latency", waiting_latency, 1},
    {"wide", waiting_wide, 1},
    {"fifo", waiting_fifo, 1},
    {"leave", waiting_leave, 2},
    {"stop", waiting_stop, 2},
    {"parked", waiting_parked, 3},
    {"together", waiting_together, 4},
    {"killed", waiting_killed, 5},
    {"database", waiting_database, 5},
    {"expiry", waiting_expiry, 6},
    {"changes", waiting_changes, 6},
    {"changes_elsewhere", waiting_changes_elsewhere, 6},
    {"pieces", waiting_pieces, 6},
    {"turns", waiting_turns, 7},
    {"kept_killed", waiting_kept_killed, 8},
    {"kept_stopped", waiting_kept_stopped, 8},
    {"kept_frozen", waiting_kept_frozen, 9},
    {"kept_thawed", waiting_kept_thawed, 9},
    {"twice", waiting_twice, 10},
    {"priorities", waiting_priorities, 10},
    {"changes_queue", waiting_changes_queue, 10},
};

int main(int argc, char **argv)
{
    return suite_parts_main("waiting", parts, sizeof(parts) / sizeof(parts[0]), argc, argv);
}
