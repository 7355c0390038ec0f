/* SPDX-License-Identifier: MIT */
/*
 * P17 with real servers: who waits is served in order and as soon as it fits, and who leaves is not served; also when
 * permitd or the database is killed meanwhile. Figures are printed, and judged only so far as a slow machine that does
 * much else can keep them; tests/bench/run.sh waiting compares them with what was asked for.
 *
 * waiting [--long] [--seed N] [PART ...]: all parts in their short form; --long: with the numbers that were asked for.
 */
#include "waiting.h"

#include <stdio.h>

/* A loaded machine, and a permitd under a sanitizer, are slow: only what never comes is wrong in the short form. */
enum { SLOW_MS = 30000, STOP_MS = 10000 };

static void print_spread(const char *what, struct spread *spread)
{
    printf("  %s: median %.2f ms, 99 %% %.2f, most %.2f (%zu)\n", what, spread_ms(spread, 0.5), spread_ms(spread, 0.99),
           spread_ms(spread, 1), spread->count);
}

void waiting_crowd(const struct form *form)
{
    struct crowd_numbers numbers = {.clients = form->full ? 10000 : 1000, .capacity = 10, .hold_ms = 5, .rounds = 2};
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
    printf("  steady: who passed somebody had asked at most %.2f ms later\n", (double)figures.passed_us / 1e3);
    printf("  CPU of permitd and mariadbd: %.0f + %.0f us; steady %.0f + %.0f; without waiting %.0f + %.0f\n",
           figures.permitd_us, figures.database_us, figures.steady_permitd_us, figures.steady_database_us,
           figures.plain_permitd_us, figures.plain_database_us);
    crowd_release(&figures);
}

void waiting_latency(const struct form *form)
{
    struct latency_figures figures;
    latency_measure(form->full ? 1000 : 60, &figures);
    printf("waiting: latency: from sending a release to the grant\n");
    print_spread("one permitd", &figures.own);
    print_spread("through another one", &figures.other);
    if (spread_ms(&figures.own, 1) > (double)SLOW_MS || spread_ms(&figures.other, 1) > (double)SLOW_MS)
        kit_fail("latency: a waiter was not told that there is room");
    latency_release(&figures);
}

static void run_wide(const struct form *form, bool fifo)
{
    struct wide_numbers numbers = {.capacity = 8,
                                   .count = 5,
                                   .clients = form->full ? 64 : 32,
                                   .hold_ms = form->full ? 200 : 50,
                                   .bound_ms = form->full ? 30000 : 2000,
                                   .seconds = form->full ? 95 : 6,
                                   .fifo = fifo};
    struct wide_figures figures;
    if (fifo && form->full)
        numbers.seconds = 30;
    wide_measure(&numbers, &figures);
    printf("waiting: %s: %u of %u units among %u clients who want one for %u ms, bound %u ms, %d s\n",
           fifo ? "fifo" : "wide", numbers.count, numbers.capacity, numbers.clients, numbers.hold_ms, numbers.bound_ms,
           numbers.seconds);
    print_spread("its wait", &figures.waited);
    print_spread("behind its turn, by the rows", &figures.late);
    printf("  %zu passed it; used %.2f %% by the rows, %.2f %% as seen; who passed had asked at most %.2f ms later\n",
           figures.passed, 100 * figures.used_rows, 100 * figures.used_seen, (double)figures.passed_us / 1e3);
    if (!figures.waited.count)
        kit_fail("%s: it was never served", fifo ? "fifo" : "wide");
    if (spread_ms(&figures.waited, 1) > numbers.bound_ms + SLOW_MS)
        kit_fail("%s: it waited for %.0f ms", fifo ? "fifo" : "wide", spread_ms(&figures.waited, 1));
    wide_release(&figures);
}

void waiting_wide(const struct form *form)
{
    run_wide(form, false);
}

void waiting_fifo(const struct form *form)
{
    run_wide(form, true);
}

void waiting_leave(const struct form *form)
{
    struct leave_numbers numbers = {.leavers = form->full ? 1000 : 300,
                                    .stayers = form->full ? 200 : 60,
                                    .over_ms = form->full ? 5000 : 1500,
                                    .seed = form->seed};
    struct leave_figures figures;
    leave_measure(&numbers, &figures);
    printf("waiting: leave: %zu of %u left without an answer while %zu grants were answered; %zu of them held, all "
           "found by "
           "their keys\n",
           figures.left_waiting, numbers.leavers, figures.served, figures.granted);
}

void waiting_parked(const struct form *form)
{
    struct parked_numbers numbers = {
        .waiters = form->full ? 50000 : 2000, .turns = form->full ? 3 : 1, .pairs = form->full ? 2000 : 100};
    struct parked_figures figures;
    parked_measure(&numbers, &figures);
    printf("waiting: parked: %u waiters in %u permitd after %.2f s: %.0f bytes each beside the connection (%.0f)\n",
           numbers.waiters, figures.permitds, figures.seconds, figures.bytes, figures.connection_bytes);
    printf("  acquire and release of another semaphore: %.2f ms alone, %.2f ms beside them: %.2f times\n",
           spread_ms(&figures.alone_us, 0.5), spread_ms(&figures.beside_us, 0.5), figures.ratio);
    parked_release(&figures);
}

void waiting_stop(const struct form *form)
{
    struct stop_figures figures;
    unsigned waiters = form->full ? 10000 : 2000;
    stop_measure(waiters, &figures);
    printf("waiting: stop: %zu of %u told 503 shutting_down, end after %.2f s\n", figures.told, waiters,
           (double)figures.exit_ms / 1e3);
    if (figures.exit_ms > STOP_MS + (form->full ? 0 : SLOW_MS))
        kit_fail("stop: too late");
}

/* Alone: what is sensitive to others, or takes much of the machine itself. */
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
};

int main(int argc, char **argv)
{
    return parts_main("waiting", parts, sizeof(parts) / sizeof(parts[0]), argc, argv);
}
