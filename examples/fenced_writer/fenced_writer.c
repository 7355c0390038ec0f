/* SPDX-License-Identifier: MIT */
/*
 * A writer that is paused in the middle. examples/fenced_writer/run.sh runs two of them.
 *
 * The writer acquires the only unit of `report` for a second, writes a line, is paused for any time (a suspended
 * machine, a long garbage collection, swapping), and writes a second line. It does not know that its ttl expired long
 * ago, and a check of its clock before the write would only narrow the gap. The file detects it: a fence file
 * (permit/fence.h) beside it refuses a write whose token is older than that of an earlier write.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "permit/fence.h"
#include "permit/permit.h"

enum { WRITTEN = 0, FAILED = 1, REFUSED = 3 };

struct writer {
    const char *name;
    const char *report;
    struct permit_fence_file fence;
    struct permit_request *held;
    bool guarded;
};

static int fail(const char *what)
{
    fprintf(stderr, "fenced_writer: %s\n", what);
    return FAILED;
}

static int append(const struct writer *writer, const char *text)
{
    char line[200];
    int length = snprintf(line, sizeof(line), "%s: %s (token %llu)\n", writer->name, text,
                          (unsigned long long)writer->held->permits[0].token);
    int fd = open(writer->report, O_WRONLY | O_CREAT | O_APPEND, 0644);
    int result = fd >= 0 && write(fd, line, (size_t)length) == length && !fsync(fd) ? WRITTEN : fail(writer->report);

    if (fd >= 0)
        close(fd);
    return result;
}

/* Appends under the guard: enter, write, leave. */
static int append_guarded(struct writer *writer, const char *text)
{
    const struct permit_held *permit = &writer->held->permits[0];
    struct permit_fence_refusal refusal;
    int result;

    switch (permit_fence_enter(&writer->fence, permit->slots, permit->slot_count, permit->token, &refusal)) {
    case PERMIT_FENCE_PASSED: break;
    case PERMIT_FENCE_STALE:
        printf("     %s is refused: its token is %llu, slot %u has seen %llu\n", writer->name,
               (unsigned long long)permit->token, refusal.slot, (unsigned long long)refusal.newer);
        return REFUSED;
    default: return fail("the fence file");
    }
    result = append(writer, text);
    permit_fence_leave(&writer->fence);
    return result;
}

static int write_line(struct writer *writer, const char *text)
{
    return writer->guarded ? append_guarded(writer, text) : append(writer, text);
}

int main(int argc, char **argv)
{
    const struct permit_want want = {.semaphore = "report"};
    const struct permit_acquire_options options = {
        .permits = &want, .permit_count = 1, .ttl_ms = 1000, .wait_ms = PERMIT_FOREVER};
    struct permit_client *client;
    char fence[4096];
    int result;

    if (argc < 5) {
        fprintf(stderr, "usage: fenced_writer URL REPORT NAME guarded|unguarded [pause]\n");
        return 64;
    }
    struct writer writer = {.report = argv[2], .name = argv[3], .guarded = !strcmp(argv[4], "guarded")};
    snprintf(fence, sizeof(fence), "%s.fence", writer.report);
    if (permit_client_new(&(struct permit_client_options){.url = argv[1]}, &client) ||
        permit_fence_open(fence, &writer.fence))
        return fail("cannot start");
    if (permit_acquire(client, &options, &writer.held))
        return fail(permit_client_message(client));
    result = write_line(&writer, "first line");
    if (result == WRITTEN && argc > 5)
        raise(SIGSTOP); /* the pause: this process does nothing until it is continued */
    if (result == WRITTEN)
        result = write_line(&writer, "second line");
    (void)permit_release(client, writer.held->external_id, NULL); /* safe if it has ended */
    permit_request_free(writer.held);
    permit_client_free(client);
    permit_fence_close(&writer.fence);
    return result;
}
