/* SPDX-License-Identifier: MIT */
/*
 * The simulation: several permitd, their database and their clients in one thread and in simulated time, from a seed.
 *
 *     sim [--seeds A-B | --seed N] [--operations N (of each seed)] [--minutes N] [--until-violated] [--each [--stride N]]
 *         [--tenants] [--feed]
 *
 * With --each (P18) one database call at a time fails, each in turn and in every way, and nothing else; or one
 * allocation of permitd, each in turn (--stride N: each Nth). The process is copied where one can fail, so that what
 * comes before runs once. --contract runs the cases of tests/contract.
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
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "fake_store.h"
#include "memory.h"
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

enum { FAILURES_MAX = 50 };

/* The failures of --each: each broke a promise. */
struct failure {
    const char *what;
    uint64_t number;
    int kind;
};

/* Shared by all processes. */
static struct shared {
    struct result result; /* of the run that ended last */
    struct result sum;    /* over all runs */
    struct each {
        uint64_t calls, allocations, failed;
        struct failure failures[FAILURES_MAX]; /* of the seed that runs */
        size_t failure_count;
    } each;
} * shared;
static struct result *result;

/* SIGINT, SIGTERM: the running seed is the last. */
static volatile sig_atomic_t stopped;

static void stop(int signal)
{
    (void)signal;
    stopped = 1;
}

/* Real time, from a function that the linker does not wrap. */
static int64_t seconds_now(void)
{
    return (int64_t)time(NULL);
}

/* Waits for the end of a run. If the process did not end as it should, that is a violation. */
static void await(pid_t child)
{
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

static void run_child(uint64_t seed, uint64_t operations, bool with_steps)
{
    fflush(stdout);
    *result = (struct result){0};
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        signal(SIGINT, SIG_IGN);
        signal(SIGTERM, SIG_IGN);
        alarm(SEED_SECONDS);
        steps_wanted = with_steps;
        run_seed(seed, operations, result);
        _exit(0);
    }
    await(child);
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
    shared->sum.operations += one->operations;
    shared->sum.waits += one->waits;
    shared->sum.served_after_wait += one->served_after_wait;
    shared->sum.abandoned += one->abandoned;
    shared->sum.grants += one->grants;
    shared->sum.refusals += one->refusals;
    shared->sum.commits += one->commits;
    shared->sum.made += one->made;
    shared->sum.labelled += one->labelled;
    shared->sum.templates_changed += one->templates_changed;
    shared->sum.exchanges += one->exchanges;
    shared->sum.exchanges_refused += one->exchanges_refused;
    shared->sum.exchanges_repeated += one->exchanges_repeated;
    shared->sum.cached += one->cached;
    shared->sum.cached_grants += one->cached_grants;
    shared->sum.mismatches += one->mismatches;
    shared->sum.too_large += one->too_large;
    shared->sum.deadlocks += one->deadlocks;
    shared->sum.duplicates += one->duplicates;
    shared->sum.kills += one->kills;
    shared->sum.stops += one->stops;
    shared->sum.pauses += one->pauses;
    shared->sum.crashes += one->crashes;
    shared->sum.failovers += one->failovers;
    shared->sum.steps_of_clock += one->steps_of_clock;
    shared->sum.cuts += one->cuts;
    shared->sum.faults += one->faults;
    shared->sum.simulated += one->simulated;
    shared->sum.order_judged += one->order_judged;
    shared->sum.seats_judged += one->seats_judged;
    shared->sum.refusals_judged += one->refusals_judged;
    shared->sum.events += one->events;
    shared->sum.omitted += one->omitted;
    shared->sum.longest_servable = max_i64(shared->sum.longest_servable, one->longest_servable);
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

#define COUNT(field) (unsigned long long)shared->sum.field

static void print_sum(uint64_t seeds, int64_t seconds)
{
    printf("%llu seeds, %llu operations in %lld s (%lld s simulated), %llu commits; %llu grants, %llu without room; "
           "%llu waited, %llu of them were served, %llu left\n",
           (unsigned long long)seeds, COUNT(operations), (long long)seconds,
           (long long)(shared->sum.simulated / US_PER_SECOND), COUNT(commits), COUNT(grants), COUNT(refusals),
           COUNT(waits), COUNT(served_after_wait), COUNT(abandoned));
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
        COUNT(seats_judged), (long long)(shared->sum.longest_servable / US_PER_MS));
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

/* Counts the run that has ended, in which the chosen call or allocation failed. */
static void count_failure(const char *what, uint64_t number, int kind)
{
    struct each *each = &shared->each;
    add(result);
    *(kind == FAULT_KIND_COUNT ? &each->allocations : &each->calls) += result->struck > 0;
    each->failed += result->violated;
    if (result->violated && each->failure_count < FAILURES_MAX)
        each->failures[each->failure_count++] = (struct failure){what, number, kind};
}

/*
 * Called where a call can fail in this way, or an allocation (FAULT_KIND_COUNT). A copy of the process returns true and
 * runs to its end; then this one returns false and goes on. So what comes before a failure runs once for all failures.
 */
static bool fail_in_copy(uint64_t number, int kind)
{
    static struct result before;
    before = *result;
    alarm(2 * SEED_SECONDS);
    fflush(stdout);
    pid_t copy = fork();
    if (copy == 0) {
        alarm(SEED_SECONDS);
        fault_branch = NULL;
        faults.only_call = kind == FAULT_KIND_COUNT ? UINT64_MAX : number;
        faults.only_kind = (enum fault_kind)kind;
        return true;
    }
    await(copy);
    count_failure(kind == FAULT_KIND_COUNT ? "allocation" : "call", number, kind);
    *result = before;
    return false;
}

/* Runs the seed once more with the failure, and shows its last steps. */
static void show_failure(uint64_t seed, const struct failure *failure)
{
    bool is_call = failure->kind != FAULT_KIND_COUNT;
    faults.only_call = is_call ? failure->number : UINT64_MAX;
    faults.only_kind = (enum fault_kind)failure->kind;
    allocations.only = is_call ? 0 : failure->number;
    run_child(seed, options.operations, true);
    allocations.only = 0;
    printf("seed %llu, %s %llu fails in way %d: %s: %s\n", (unsigned long long)seed, failure->what,
           (unsigned long long)failure->number, failure->kind, result->promise, result->text);
}

/* Fails each database call in each possible way, and each allocation. */
static void fail_each(uint64_t seed)
{
    shared->each.failure_count = 0;
    fault_branch = fail_in_copy;
    allocations.stride = options.stride;
    faults.only_call = UINT64_MAX; /* none */
    run_child(seed, options.operations, false);
    fault_branch = NULL;
    if (result->violated) {
        shared->each.failed++;
        printf("seed %llu without a failure: %s: %s\n", (unsigned long long)seed, result->promise, result->text);
    }
    for (size_t i = 0; i < shared->each.failure_count; i++)
        show_failure(seed, &shared->each.failures[i]);
}

static int run_each(void)
{
    const struct each *each = &shared->each;
    for (uint64_t seed = options.first; seed <= options.last; seed++)
        fail_each(seed);
    printf("%llu calls and %llu allocations failed, in %llu operations and %llu first uses\n%llu passed, %llu failed\n",
           (unsigned long long)each->calls, (unsigned long long)each->allocations, COUNT(operations), COUNT(made),
           (unsigned long long)(each->calls + each->allocations - each->failed), (unsigned long long)each->failed);
    return each->failed ? 1 : 0;
}

int main(int argc, char **argv)
{
    uint64_t passed = 0;
    uint64_t failed = 0;
    if (!read_options(argc, argv))
        return usage();
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return 1;
    result = &shared->result;
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
                   (unsigned long long)(shared->sum.operations), caught.text);
            break;
        }
    }
    print_sum(passed + failed, seconds_now() - began);
    printf("%llu passed, %llu failed\n", (unsigned long long)passed, (unsigned long long)failed);
    return failed ? 1 : 0;
}
