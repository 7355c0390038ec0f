/* SPDX-License-Identifier: MIT */
#include "cli/acquire_cmd.h"

#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/default_owner.h"
#include "cli/json_print.h"
#include "cli/nested.h"
#include "cli/signals.h"

enum { SENTENCE_SIZE = 1024, RELEASE_TIMEOUT_MS = 2000 };

/* Reads all signals that have arrived. Returns the first; 0: none. */
static int drain_signals(int fd)
{
    int first = signals_next(fd);
    for (int more = first; more;)
        more = signals_next(fd);
    return first;
}

bool acquire_cmd_release(const struct cli *cli, const char *key, int signal_fd)
{
    struct permit_client_options options = cli->found.client;
    struct permit_client *client;
    options.timeout_ms = RELEASE_TIMEOUT_MS;
    options.retry_ms = 1; /* only a try without an answer is repeated */
    options.cancel_fd = signal_fd;
    if (permit_client_new(&options, &client))
        return false;
    enum permit_status status = permit_release(client, key, NULL);
    permit_client_free(client);
    return status == PERMIT_OK;
}

/*
 * Adds a hint in terms of permitctl, because the server's message speaks of its HTTP interface. `owner`: the owner that
 * was sent, or NULL.
 */
static void print_hint(const struct cli_options *given, const char *owner, enum permit_status status)
{
    for (size_t i = 0; status == PERMIT_UNKNOWN_SEMAPHORE && i < given->taken.count; i++) {
        const char *name = given->taken.wants[i].semaphore;
        long long count = given->taken.wants[i].count;
        if (count > 0)
            (void)cli_error(0, "-s %s:%lld asks for %lld of %s; one unit of \"%s:%lld\" is -s %s:%lld:1", name, count,
                            count, name, name, count, name, count);
    }
    for (size_t i = 0; status == PERMIT_NEVER_SATISFIABLE && i < given->name_count; i++) {
        const char *slot = given->names[i];
        if (*slot && strspn(slot, "0123456789") == strlen(slot))
            (void)cli_error(0, "%s is a label here; the slot with the number %s is '#%s'", slot, slot, slot);
    }
    if (status == PERMIT_UNKNOWN_OWNER && owner)
        (void)cli_error(0, "permitctl owner beat %s sends a heartbeat%s", owner,
                        given->owner ? "" : "; --owner names another owner");
}

/* Reports a failed acquire and cleans up. Returns the exit status. */
static int fail_acquire(struct cli *cli, int signal_fd, const char *owner, enum permit_status status)
{
    int signal = drain_signals(signal_fd);
    int code = signal ? 128 + signal : cli_fail(cli, status);
    print_hint(&cli->options, owner, status);
    /*
     * A request in doubt may have been granted. Under a random key it is released, so that nothing is left behind. A
     * key that the user chose may name another client's permit, so it is only reported and left to its ttl. A request
     * that was refused holds nothing; its place in the queue is kept for 10 seconds.
     */
    const char *key = permit_client_key(cli->client);
    if (permit_client_in_doubt(cli->client) && cli->options.id)
        (void)cli_error(0,
                        "%s may have been granted; if so, it is held until its ttl expires. Another client may hold "
                        "this key: look with permitctl show %s, before you release it with permitctl release %s",
                        key, key, key);
    else if (permit_client_in_doubt(cli->client) && !acquire_cmd_release(cli, key, signal_fd))
        (void)cli_error(
            0, "%s may have been granted; if so, it is held until its ttl expires. To release it: permitctl release %s",
            key, key);
    int late = signal ? 0 : drain_signals(signal_fd);
    return late ? 128 + late : code;
}

/* The reports of a wait. */
struct wait_reports {
    bool all;      /* false: only that the request has no place in the queue */
    bool no_place; /* that has been reported */
    char last[SENTENCE_SIZE];
};

/* Prints the reason of the wait, and prints it again when it changes. */
static void print_wait_reason(void *context, enum permit_status status, const char *message)
{
    struct wait_reports *reports = context;
    if (status == PERMIT_TOO_MANY && !reports->no_place)
        (void)cli_error(0, "waiting, but without a place in the queue: %s", message);
    reports->no_place |= status == PERMIT_TOO_MANY;
    if (status == PERMIT_TOO_MANY || !reports->all || strncmp(reports->last, message, SENTENCE_SIZE - 1) == 0)
        return;
    (void)snprintf(reports->last, SENTENCE_SIZE, "%s", message);
    (void)cli_error(0, "waiting%s %s", status == PERMIT_NO_CAPACITY ? " for" : ":", message);
}

/*
 * Acquires. A server that refuses the ttl of the verb as too long says how long it may be, and is asked for that; an
 * older server, which does not say it, is asked without a ttl.
 */
static enum permit_status acquire(struct cli *cli, struct permit_acquire_options *options,
                                  struct permit_request **ret_request)
{
    struct permit_client *client = cli->client;
    boot_us since = clock_boot();
    int64_t wait_ms = options->wait_ms;
    bool may_change = cli->options.ttl_ms == CLI_UNSET;
    enum permit_status status = permit_acquire(client, options, ret_request);
    while (may_change && options->ttl_ms && (status == PERMIT_INVALID || status == PERMIT_KEY_REUSED)) {
        int64_t max_ttl_ms = json_number(permit_client_answer(client), "max_ttl_ms");
        bool is_shorter = max_ttl_ms > 0 && max_ttl_ms < options->ttl_ms;
        if (status == PERMIT_KEY_REUSED && !is_shorter)
            break;
        options->ttl_ms = is_shorter ? max_ttl_ms : 0;
        if (wait_ms != PERMIT_FOREVER)
            options->wait_ms = max_i64(0, wait_ms - (clock_boot() - since) / US_PER_MS);
        status = permit_acquire(client, options, ret_request);
    }
    return status;
}

bool acquire_cmd_run(struct cli *cli, const struct acquire_cmd *cmd, struct permit_request **ret_request, int *ret_code)
{
    const struct cli_options *given = &cli->options;
    char owner[OWNER_SIZE];
    struct wait_reports reports = {.all = given->flags[FLAG_VERBOSE] || isatty(STDERR_FILENO)};
    struct permit_acquire_options options = {
        .external_id = given->id,
        .owner = given->owner || given->id ? given->owner : owner_default(owner),
        .permits = given->taken.wants,
        .permit_count = given->taken.count,
        .ttl_ms = given->ttl_ms == CLI_UNSET ? cmd->ttl_ms : given->ttl_ms,
        .wait_ms = given->flags[FLAG_NO_WAIT]    ? 0
                   : given->wait_ms == CLI_UNSET ? cmd->wait_ms
                                                 : given->wait_ms,
        .wait_piece_ms = given->wait_piece_ms == CLI_UNSET ? 0 : given->wait_piece_ms,
        .priority = (int)given->priority,
        .metadata = json_text(given->metadata),
        .cancel_fd = cmd->signal_fd,
        .retry_ms = given->flags[FLAG_NO_RETRY]   ? -1
                    : given->wait_ms == CLI_UNSET ? 0
                                                  : given->wait_ms,
        .waiting = print_wait_reason,
        .waiting_context = &reports,
        .waiting_late = !reports.all,
    };
    if (options.wait_ms && nested_waits_for_itself(cli, cmd->signal_fd)) {
        *ret_code = (int)given->exit_code;
        return false;
    }
    enum permit_status status = acquire(cli, &options, ret_request);
    if (status)
        *ret_code = fail_acquire(cli, cmd->signal_fd, options.owner, status);
    return status == PERMIT_OK;
}

int acquire_cmd_refuse_replay(const struct cli *cli, const struct permit_request *request)
{
    return cli_error((int)cli->options.exit_code, "key %s is already held by another client", request->external_id);
}
