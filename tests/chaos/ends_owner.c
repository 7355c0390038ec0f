/* SPDX-License-Identifier: MIT */
/* Owners that die: `permitctl run` is killed with SIGKILL, so its permit is neither renewed nor released. */
#include "ends.h"
#include "kit_process.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

enum { RUNS = 3, RUN_MS = 60000, FREE_MS = 90000, SWEEP_MS = 5000, SUITE_LATE_MS = 30000 };

struct run {
    char key[32];
    char *mark; /* the command writes its process id here */
    pid_t permitctl, command;
};

static bool has_mark(void *context)
{
    struct run *run = context;
    char *text = kit_read_file(run->mark);
    run->command = text ? (pid_t)atoi(text) : 0;
    free(text);
    return run->command > 1;
}

static void run_start(struct run *run, const struct fixture *fixture, unsigned number, const char *ttl, const char *log)
{
    snprintf(run->key, sizeof(run->key), "killed-%u", number);
    run->mark = kit_path(run->key);
    char *script = kit_text("echo $$ > '%s'; exec sleep 300", run->mark);
    const char *const arguments[] = {PERMIT_BUILD_DIR "/permitctl",
                                     "run",
                                     "--url",
                                     fixture->permitd[0]->url,
                                     "-s",
                                     "owned",
                                     "--ttl",
                                     ttl,
                                     "--id",
                                     run->key,
                                     "--",
                                     "sh",
                                     "-c",
                                     script,
                                     NULL};
    run->permitctl = kit_spawn(arguments, -1, log);
    if (!kit_wait_until(has_mark, run, RUN_MS))
        kit_fail("owner_kill: permitctl run does not start its command");
    free(script);
    free(run->mark);
}

void ends_owner_kill(const struct part_options *options)
{
    unsigned ttl_ms = options->full ? 30000 : 12000; /* tests that run in parallel sleep longer */
    char ttl[16], *log = kit_path("permitctl.log");
    struct fixture fixture = fixture_start(1, false);
    struct run runs[RUNS];
    struct kit_http http = kit_http(fixture.permitd[0]->port);
    fixture_semaphore(&fixture, "owned", "{\"capacity\":3}");
    snprintf(ttl, sizeof(ttl), "%ums", ttl_ms);
    for (unsigned i = 0; i < RUNS; i++)
        run_start(&runs[i], &fixture, i, ttl, log);
    /* Long enough for renewals; the deadline is that of the last one. */
    kit_sleep_ms((int)ttl_ms + 500);
    if (fixture_held(&fixture) != RUNS)
        kit_fail("owner_kill: %lld of %d runs hold after one ttl, though permitctl renews",
                 (long long)fixture_held(&fixture), RUNS);
    int64_t killed_us = kit_now_us();
    for (unsigned i = 0; i < RUNS; i++) {
        kill(runs[i].permitctl, SIGKILL);
        KIT_CHECK(kit_wait_pid(runs[i].permitctl, RUN_MS) != -1);
        kill(runs[i].command, SIGKILL);
    }
    if (!fixture_wait_empty(&fixture, (int)ttl_ms + FREE_MS))
        kit_fail("owner_kill: the permits of killed owners are not free");
    double free_s = (double)(kit_now_us() - killed_us) / 1e6;
    struct reply reply;
    if (fixture_acquire(&http, "next", "owned", 3, "1m", &reply) != 201)
        kit_fail("owner_kill: an acquire of all units: %d %s", reply.status, reply.body);
    reply_release(&reply);
    kit_http_close(&http);
    printf("ends: owner_kill: %d runs with ttl %.1f s, killed: all units free %.2f s later\n", RUNS, ttl_ms / 1e3,
           free_s);
    if (free_s > (double)ttl_ms / 1e3 + (options->full ? SWEEP_MS : SUITE_LATE_MS) / 1e3)
        kit_fail("owner_kill: that is too late");
    free(log);
    fixture_stop(&fixture);
}
