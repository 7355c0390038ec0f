/* SPDX-License-Identifier: MIT */
/* Runs the parts in processes and reads their exit status. */
#include "suite_parts.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PARTS_MAX = 32 };

struct suite {
    const char *name;
    const struct part *parts;
    size_t count;
    struct part_options options;
    bool chosen[PARTS_MAX];
    unsigned passed, failed;
};

static pid_t part_start(const struct suite *suite, size_t part)
{
    pid_t pid = fork();
    if (pid < 0)
        kit_fail("fork");
    if (pid)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a killed suite also ends this part and its servers */
    suite->parts[part].run(&suite->options);
    fflush(stdout);
    _exit(0);
}

static void part_judge(struct suite *suite, size_t part, pid_t pid)
{
    int status;
    while (waitpid(pid, &status, 0) != pid)
        ;
    suite->passed += !status;
    suite->failed += status != 0;
    if (!status)
        return;
    printf("%s: %s: FAILED (status 0x%x)\n", suite->name, suite->parts[part].name, (unsigned)status);
    fflush(stdout);
}

static void run_group(struct suite *suite, int group)
{
    pid_t pids[PARTS_MAX];
    for (size_t i = 0; i < suite->count; i++)
        pids[i] = suite->chosen[i] && suite->parts[i].group == group ? part_start(suite, i) : 0;
    for (size_t i = 0; i < suite->count; i++)
        if (pids[i])
            part_judge(suite, i, pids[i]);
}

static bool choose(struct suite *suite, const char *name)
{
    for (size_t i = 0; i < suite->count; i++)
        if (!strcmp(suite->parts[i].name, name))
            return suite->chosen[i] = true;
    return false;
}

static void read_arguments(struct suite *suite, int argc, char **argv)
{
    bool some = false;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--long"))
            suite->options.full = true;
        else if (!strcmp(argv[i], "--seed") && i + 1 < argc)
            suite->options.seed = strtoull(argv[++i], NULL, 10);
        else if (choose(suite, argv[i]))
            some = true;
        else
            kit_fail("usage: %s [--long] [--seed N] [PART ...]", suite->name);
    }
    for (size_t i = 0; i < suite->count && !some; i++)
        suite->chosen[i] = true;
}

int suite_parts_main(const char *name, const struct part *parts, size_t count, int argc, char **argv)
{
    struct suite suite = {.name = name, .parts = parts, .count = count, .options.seed = (uint64_t)time(NULL)};
    int groups = 0;
    KIT_CHECK(count <= PARTS_MAX);
    read_arguments(&suite, argc, argv);
    printf("%s: seed %llu%s\n", name, (unsigned long long)suite.options.seed,
           suite.options.full ? ", the long options" : "");
    fflush(stdout);
    for (size_t i = 0; i < count; i++)
        groups = parts[i].group >= groups ? parts[i].group + 1 : groups;
    for (int group = 0; group < groups; group++)
        run_group(&suite, group);
    printf("%s: %u passed, %u failed%s\n", name, suite.passed, suite.failed, suite.failed ? "" : ": ok");
    return suite.failed != 0;
}
