/* SPDX-License-Identifier: MIT */
/*
 * How permits end by themselves, with real servers: expiry with and without demand, races at the deadline, the clock of
 * the database stepped, everything stopped for longer than every ttl, a killed owner.
 *
 * ends [--long] [--seed N] [PART ...]: all parts in their short form; --long: with the numbers that were asked for.
 */
#include "ends.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PARTS_MAX = 16 };

/* Parts of the same group run at once: those that mostly sleep. */
static const struct {
    const char *name;
    ends_part *run;
    int group;
} parts[] = {
    {"shim", ends_shim, 0},     {"expiry", ends_expiry, 1},
    {"demand", ends_demand, 2}, {"race", ends_race, 3},
    {"crowd", ends_crowd, 4},   {"steps", ends_steps, 5},
    {"away", ends_away, 5},     {"frozen", ends_frozen, 5},
    {"leader", ends_leader, 5}, {"owner_kill", ends_owner_kill, 5}, /* the last group */
};

enum { PARTS = sizeof(parts) / sizeof(parts[0]) };

static pid_t part_start(size_t part, const struct ends *ends)
{
    pid_t pid = fork();
    if (pid < 0)
        kit_fail("fork");
    if (pid)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* and its servers with it */
    parts[part].run(ends);
    fflush(stdout);
    _exit(0);
}

static bool part_passed(size_t part, pid_t pid)
{
    int status;
    while (waitpid(pid, &status, 0) != pid)
        ;
    if (!status)
        return true;
    printf("ends: %s: FAILED (status 0x%x)\n", parts[part].name, (unsigned)status);
    fflush(stdout);
    return false;
}

/* The parts of one group; how many of them failed. */
static unsigned run_group(int group, const bool chosen[PARTS], const struct ends *ends, unsigned *ret_passed)
{
    pid_t pids[PARTS];
    unsigned failed = 0;
    for (size_t i = 0; i < PARTS; i++)
        pids[i] = chosen[i] && parts[i].group == group ? part_start(i, ends) : 0;
    for (size_t i = 0; i < PARTS; i++)
        if (pids[i]) {
            bool passed = part_passed(i, pids[i]);
            *ret_passed += passed;
            failed += !passed;
        }
    return failed;
}

static bool choose(const char *name, bool chosen[PARTS])
{
    for (size_t i = 0; i < PARTS; i++)
        if (!strcmp(parts[i].name, name))
            return chosen[i] = true;
    return false;
}

int main(int argc, char **argv)
{
    struct ends ends = {.seed = (uint64_t)time(NULL)};
    bool chosen[PARTS] = {false}, some = false;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--long"))
            ends.full = true;
        else if (!strcmp(argv[i], "--seed") && i + 1 < argc)
            ends.seed = strtoull(argv[++i], NULL, 10);
        else if (choose(argv[i], chosen))
            some = true;
        else
            kit_fail("usage: ends [--long] [--seed N] [PART ...]");
    }
    for (size_t i = 0; i < PARTS && !some; i++)
        chosen[i] = true;
    printf("ends: seed %llu%s\n", (unsigned long long)ends.seed, ends.full ? ", the long form" : "");
    fflush(stdout);
    unsigned passed = 0, failed = 0;
    for (int group = 0; group <= parts[PARTS - 1].group; group++)
        failed += run_group(group, chosen, &ends, &passed);
    printf("ends: %u passed, %u failed%s\n", passed, failed, failed ? "" : ": ok");
    return failed != 0;
}
