/* SPDX-License-Identifier: MIT */
#include "cli/ask.h"

#include <string.h>
#include <unistd.h>

#include "cli/owner.h"
#include "cli/signals.h"

enum { SENTENCE_SIZE = 1024, GIVE_BACK_MS = 2000 };

/* The first signal that has come, and takes those that came with it; 0: none. */
static int take_signals(int fd)
{
    int first = signals_next(fd);
    for (int more = first; more;)
        more = signals_next(fd);
    return first;
}

bool ask_give_back(const struct cli *cli, const char *key, int signal_fd)
{
    struct permit_client_options options = cli->server;
    struct permit_client *client;
    options.timeout_ms = GIVE_BACK_MS;
    options.retry_ms = 1; /* only silence is tried again */
    options.cancel_fd = signal_fd;
    if (permit_client_new(&options, &client))
        return false;
    enum permit_status status = permit_release(client, key, NULL);
    permit_client_free(client);
    return status == PERMIT_OK;
}

/*
 * It may have been granted. Under a key of our own, the release makes sure that nothing is left behind; a key that the
 * user chose may stand for a permit of somebody else, so that one is left to its ttl. What only waited has left the
 * queue together with our connection.
 */
static void abandon(const struct cli *cli, int signal_fd)
{
    const char *key = permit_client_key(cli->client);
    if (cli->options.id || !ask_give_back(cli, key, signal_fd))
        (void)cli_complain(
            0, "%s may have been granted; if so, it is held until its ttl expires. To release it: permitctl release %s",
            key, key);
}

/* "-s user:4711" asks for 4711 units of user, which may not be what was meant. */
static void explain_counts(const struct cli_options *given)
{
    for (size_t i = 0; i < given->want_count; i++) {
        const struct permit_want *want = &given->wants[i];
        if (want->count > 0)
            (void)cli_complain(0, "-s %s:%lld asks for %lld of %s; one unit of \"%s:%lld\" is -s %s:%lld:1",
                               want->semaphore, (long long)want->count, (long long)want->count, want->semaphore,
                               want->semaphore, (long long)want->count, want->semaphore, (long long)want->count);
    }
}

/* "--slot 1" is a label, whatever it looks like. */
static void explain_slots(const struct cli_options *given)
{
    for (size_t i = 0; i < given->name_count; i++)
        if (given->names[i][0] && strspn(given->names[i], "0123456789") == strlen(given->names[i]))
            (void)cli_complain(0, "%s is a label here; the slot with the number %s is '#%s'", given->names[i],
                               given->names[i], given->names[i]);
}

/* The server speaks of its own interface: what that means for who types. `owner`: the one that was sent, or NULL. */
static void explain(const struct cli_options *given, const char *owner, enum permit_status status)
{
    if (status == PERMIT_UNKNOWN_SEMAPHORE)
        explain_counts(given);
    else if (status == PERMIT_NEVER_SATISFIABLE)
        explain_slots(given);
    else if (status == PERMIT_UNKNOWN_OWNER && owner)
        (void)cli_complain(0, "permitctl owner beat %s sends a heartbeat%s", owner,
                           given->owner ? "" : "; --owner names another owner");
}

/* No permit: says why, and cleans up. The exit status. */
static int give_up(struct cli *cli, int signal_fd, const char *owner, enum permit_status status)
{
    int signal = take_signals(signal_fd);
    int code = signal ? 128 + signal : cli_fail(cli, status);
    explain(&cli->options, owner, status);
    if (permit_client_in_doubt(cli->client))
        abandon(cli, signal_fd);
    int late = signal ? 0 : take_signals(signal_fd);
    return late ? 128 + late : code;
}

/* Why we wait: told once, and again when it changes. */
static void tell(void *context, enum permit_status status, const char *message)
{
    char *last = context;
    if (strncmp(last, message, SENTENCE_SIZE - 1) == 0)
        return;
    (void)snprintf(last, SENTENCE_SIZE, "%s", message);
    (void)cli_complain(0, "waiting%s %s", status == PERMIT_NO_CAPACITY ? " for" : ":", message);
}

static int64_t wait_ms(const struct cli_options *given, int64_t otherwise)
{
    if (given->no_wait)
        return 0;
    return given->wait_ms == CLI_UNSET ? otherwise : given->wait_ms;
}

bool ask_acquire(struct cli *cli, const struct ask *ask, struct permit_request **ret_request, int *ret_code)
{
    const struct cli_options *given = &cli->options;
    char owner[OWNER_SIZE];
    char said[SENTENCE_SIZE] = "";
    struct permit_acquire_options options = {
        .external_id = given->id,
        .owner = given->owner || given->id ? given->owner : owner_default(owner),
        .permits = given->wants,
        .permit_count = given->want_count,
        .ttl_ms = given->ttl_ms == CLI_UNSET ? ask->ttl_ms : given->ttl_ms,
        .wait_ms = wait_ms(given, ask->wait_ms),
        .wait_piece_ms = given->wait_piece_ms == CLI_UNSET ? 0 : given->wait_piece_ms,
        .cancel_fd = ask->signal_fd,
        .waiting = given->verbose || isatty(STDERR_FILENO) ? tell : NULL,
        .waiting_context = said,
    };
    enum permit_status status = permit_acquire(cli->client, &options, ret_request);
    if (status)
        *ret_code = give_up(cli, ask->signal_fd, options.owner, status);
    return status == PERMIT_OK;
}
