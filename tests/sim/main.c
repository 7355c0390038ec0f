/* SPDX-License-Identifier: MIT */
/*
 * The simulation: several permitd, their database and their clients in one thread and in simulated time, from a seed.
 *
 *     sim [--seeds A-B | --seed N] [--operations N (of each seed)] [--minutes N] [--until-violated] [--each [--stride N]]
 *         [--tenants] [--feed]
 *
 * With --each (P18) one database call at a time fails, each in turn and in every way, and nothing else; then one
 * allocation of permitd, each in turn (--stride N: each Nth). --contract runs the cases of tests/contract.
 * --tenants: three tenants use the same keys. --feed: semaphores have events in the feed (P26).
 *
 * Each seed runs in its own process, so no memory is shared. A seed that fails is run again with fewer operations, to
 * find the shortest prefix that still fails, and then once more with its last steps recorded. The first seed runs twice,
 * which must be alike. With --until-violated there is none of this: the first seed that fails ends the run, with a line
 * `caught: ...`. The last line is "N passed, N failed".
 */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "fake_store.h"
#include "run.h"

enum { SEED_SECONDS = 120 };

static struct options {
    uint64_t first, last, operations;
    int64_t minutes;
    bool each;
    bool contract;
    bool until_violated;
    uint64_t stride;
} options = {.first = 1, .last = 20, .operations = 10000, .stride = 1};

static struct result *result; /* shared with the child */

/* SIGINT, SIGTERM: the running seed is the last. */
static volatile sig_atomic_t stopped;

static void stop(int signal)
{
    (void)signal;
    stopped = 1;
}

/* Sum over all seeds. */
static struct result sum;

/* Real time, from a function that the linker does not wrap. */
static int64_t seconds_now(void)
{
    return (int64_t)time(NULL);
}

static void run_child(uint64_t seed, uint64_t operations, bool with_steps)
{
    fflush(stdout);
    *result = (struct result){0};
    pid_t child = fork();
    if (child == 0) {
        signal(SIGINT, SIG_IGN);
        signal(SIGTERM, SIG_IGN);
        alarm(SEED_SECONDS);
        steps_wanted = with_steps;
        run_seed(seed, operations, result);
        _exit(0);
    }
    int status = 0;
    while (child < 0 || waitpid(child, &status, 0) != child) {
        if (child > 0 && errno == EINTR)
            continue;
        perror("sim");
        exit(1);
    }
    if (result->violated || (WIFEXITED(status) && WEXITSTATUS(status) == 0))
        return;
    result->violated = true;
    snprintf(result->promise, sizeof result->promise, "crash");
    snprintf(result->text, sizeof result->text, "the simulation ended with status %d%s", status,
             WIFSIGNALED(status) && WTERMSIG(status) == 14 ? ": it took too long" : "");
}

/* The smallest number of operations with faults for which the seed still fails. */
static uint64_t shortest(uint64_t seed, uint64_t failing)
{
    uint64_t good = 0;
    while (failing - good > 1 + failing / 64) {
        uint64_t middle = good + (failing - good) / 2;
        run_child(seed, middle, false);
        if (result->violated)
            failing = middle;
        else
            good = middle;
    }
    return failing;
}

static void report(uint64_t seed)
{
    printf("seed %llu: %s is broken at operation %llu: %s\n", (unsigned long long)seed, result->promise,
           (unsigned long long)result->at_operation, result->text);
    uint64_t operations = result->at_operation ? result->at_operation : options.operations;
    operations = shortest(seed, operations < options.operations ? operations + 1 : options.operations);
    run_child(seed, operations, true);
    printf("seed %llu, again with --operations %llu%s: %s: %s\n", (unsigned long long)seed,
           (unsigned long long)operations,
           run_with_tenants ? " --tenants"
           : run_with_feed  ? " --feed"
                            : "",
           result->violated ? result->promise : "nothing is broken", result->text);
}

static void add(const struct result *one)
{
    sum.operations += one->operations;
    sum.waits += one->waits;
    sum.served_after_wait += one->served_after_wait;
    sum.abandoned += one->abandoned;
    sum.grants += one->grants;
    sum.refusals += one->refusals;
    sum.commits += one->commits;
    sum.made += one->made;
    sum.labelled += one->labelled;
    sum.templates_changed += one->templates_changed;
    sum.exchanges += one->exchanges;
    sum.exchanges_refused += one->exchanges_refused;
    sum.exchanges_repeated += one->exchanges_repeated;
    sum.cached += one->cached;
    sum.cached_grants += one->cached_grants;
    sum.mismatches += one->mismatches;
    sum.too_large += one->too_large;
    sum.deadlocks += one->deadlocks;
    sum.duplicates += one->duplicates;
    sum.kills += one->kills;
    sum.stops += one->stops;
    sum.pauses += one->pauses;
    sum.crashes += one->crashes;
    sum.failovers += one->failovers;
    sum.steps_of_clock += one->steps_of_clock;
    sum.cuts += one->cuts;
    sum.faults += one->faults;
    sum.simulated += one->simulated;
    sum.order_judged += one->order_judged;
    sum.seats_judged += one->seats_judged;
    sum.refusals_judged += one->refusals_judged;
    sum.events += one->events;
    sum.omitted += one->omitted;
    sum.longest_servable = max_i64(sum.longest_servable, one->longest_servable);
}

/* Runs the first seed twice: everything random must follow from the seed. */
static bool replays(uint64_t seed)
{
    static struct result first;
    run_child(seed, options.operations, false);
    first = *result;
    run_child(seed, options.operations, false);
    bool same = memcmp(&first, result, sizeof first) == 0;
    if (!same)
        printf("seed %llu runs in another way the second time: %s %s, %s %s\n", (unsigned long long)seed, first.promise,
               first.text, result->promise, result->text);
    return same;
}

#define COUNT(field) (unsigned long long)sum.field

static void print_sum(uint64_t seeds, int64_t seconds)
{
    printf("%llu seeds, %llu operations in %lld s (%lld s simulated), %llu commits; %llu grants, %llu without room; "
           "%llu waited, %llu of them were served, %llu left\n",
           (unsigned long long)seeds, COUNT(operations), (long long)seconds, (long long)(sum.simulated / US_PER_SECOND),
           COUNT(commits), COUNT(grants), COUNT(refusals), COUNT(waits), COUNT(served_after_wait), COUNT(abandoned));
    printf("%llu batches in one packet, with %llu grants to waiters; %llu more that found other rows than cached; %llu "
           "that "
           "were too large\n",
           COUNT(cached), COUNT(cached_grants), COUNT(mismatches), COUNT(too_large));
    printf("%llu semaphores made by templates, %llu changes of templates, %llu of labels\n", COUNT(made),
           COUNT(templates_changed), COUNT(labelled));
    printf("%llu exchanges, %llu that were refused, %llu that were made before\n", COUNT(exchanges),
           COUNT(exchanges_refused), COUNT(exchanges_repeated));
    if (run_with_feed)
        printf("%llu events in the feed, %llu more were left out while it was full\n", COUNT(events), COUNT(omitted));
    printf(
        "%llu kills, %llu stops and %llu pauses of permitd; %llu crashes, %llu failovers and %llu clock steps of the "
        "database; %llu cuts, %llu calls that failed, %llu "
        "deadlocks, %llu duplicate keys; %llu grants and %llu refusals judged by the all-knowing walk, %llu grants of "
        "best seats; longest wait of "
        "a fitting waiter: "
        "%lld ms\n",
        COUNT(kills), COUNT(stops), COUNT(pauses), COUNT(crashes), COUNT(failovers), COUNT(steps_of_clock), COUNT(cuts),
        COUNT(faults), COUNT(deadlocks), COUNT(duplicates), COUNT(order_judged), COUNT(refusals_judged),
        COUNT(seats_judged), (long long)(sum.longest_servable / US_PER_MS));
}

static int usage(void)
{
    fprintf(stderr, "usage: sim [--seeds A-B | --seed N] [--operations N] [--minutes N] [--until-violated] [--each "
                    "[--stride N]] [--tenants] [--feed] | --contract\n");
    return 64;
}

static bool read_options(int argc, char **argv)
{
    static const struct option names[] = {
        {"seeds", required_argument, NULL, 's'},
        {"seed", required_argument, NULL, '1'},
        {"operations", required_argument, NULL, 'o'},
        {"minutes", required_argument, NULL, 'm'},
        {"until-violated", no_argument, NULL, 'u'},
        {"each", no_argument, NULL, 'e'},
        {"stride", required_argument, NULL, 'd'},
        {"contract", no_argument, NULL, 'c'},
        {"tenants", no_argument, NULL, 't'},
        {"feed", no_argument, NULL, 'f'},
        {NULL, 0, NULL, 0},
    };
    unsigned long long first, last;
    int option;
    while ((option = getopt_long(argc, argv, "", names, NULL)) != -1) {
        switch (option) {
        case 's':
            if (sscanf(optarg, "%llu-%llu", &first, &last) != 2 || first > last)
                return false;
            options.first = first;
            options.last = last;
            break;
        case '1': options.first = options.last = strtoull(optarg, NULL, 10); break;
        case 'o': options.operations = strtoull(optarg, NULL, 10); break;
        case 'e': options.each = true; break;
        case 'c': options.contract = true; break;
        case 'd': options.stride = strtoull(optarg, NULL, 10); break;
        case 'm': options.minutes = strtoll(optarg, NULL, 10); break;
        case 't': run_with_tenants = true; break;
        case 'f': run_with_feed = true; break;
        case 'u': options.until_violated = true; break;
        default: return false;
        }
    }
    return optind == argc && options.operations > 0 && options.stride > 0;
}

/* Counters of --each. */
struct each {
    uint64_t calls, allocations, failed;
};

/* One run in which the chosen call or allocation fails. Adds to *count if the failure occurred. */
static void fail_one(uint64_t seed, const char *what, uint64_t number, int kind, uint64_t *count, uint64_t *failed)
{
    run_child(seed, options.operations, false);
    add(result);
    *count += result->struck > 0;
    if (!result->violated)
        return;
    ++*failed;
    run_child(seed, options.operations, true);
    printf("seed %llu, %s %llu fails in way %d: %s: %s\n", (unsigned long long)seed, what, (unsigned long long)number,
           kind, result->promise, result->text);
}

/* Fails each database call in turn, in each possible way, and then each allocation. */
static void fail_each(uint64_t seed, struct each *each)
{
    static struct result whole;
    faults.only_call = UINT64_MAX; /* none */
    run_child(seed, options.operations, false);
    whole = *result;
    for (uint64_t call = 1; call <= whole.calls && call < CALLS_MAX; call++)
        for (int kind = 0; kind < FAULT_KIND_COUNT; kind++) {
            if (!(whole.ways[call] & 1 << kind))
                continue;
            faults.only_call = call;
            faults.only_kind = (enum fault_kind)kind;
            fail_one(seed, "call", call, kind, &each->calls, &each->failed);
        }
    faults.only_call = UINT64_MAX;
    for (allocations.only = 1; allocations.only <= whole.allocations; allocations.only += options.stride)
        fail_one(seed, "allocation", allocations.only, 0, &each->allocations, &each->failed);
    allocations.only = 0;
}

static int run_each(void)
{
    struct each each = {0};
    for (uint64_t seed = options.first; seed <= options.last; seed++)
        fail_each(seed, &each);
    printf("%llu calls and %llu allocations failed, in %llu operations and %llu first uses\n%llu passed, %llu failed\n",
           (unsigned long long)each.calls, (unsigned long long)each.allocations, COUNT(operations), COUNT(made),
           (unsigned long long)(each.calls + each.allocations - each.failed), (unsigned long long)each.failed);
    return each.failed ? 1 : 0;
}

int main(int argc, char **argv)
{
    uint64_t passed = 0;
    uint64_t failed = 0;
    if (!read_options(argc, argv))
        return usage();
    result = mmap(NULL, sizeof *result, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (result == MAP_FAILED)
        return 1;
    log_configure((enum log_level)(LOG_ERROR + 1), LOG_TEXT);
    if (options.contract)
        return run_contract();
    if (options.each)
        return run_each();
    failed = !options.until_violated && !replays(options.first);
    int64_t began = seconds_now();
    signal(SIGINT, stop);
    signal(SIGTERM, stop);
    for (uint64_t seed = options.first; !stopped && (options.minutes || seed <= options.last); seed++) {
        if (options.minutes && seconds_now() - began >= options.minutes * 60)
            break;
        run_child(seed, options.operations, false);
        static struct result caught;
        caught = *result;
        add(&caught);
        if (caught.violated && !options.until_violated)
            report(seed);
        failed += caught.violated;
        passed += !caught.violated;
        if (options.until_violated && failed) {
            printf("caught: %s, seed %llu, after %llu operations: %s\n", caught.promise, (unsigned long long)seed,
                   (unsigned long long)(sum.operations), caught.text);
            break;
        }
    }
    print_sum(passed + failed, seconds_now() - began);
    printf("%llu passed, %llu failed\n", (unsigned long long)passed, (unsigned long long)failed);
    return failed ? 1 : 0;
}
