/* SPDX-License-Identifier: MIT */
/*
 * A thread that renews one request in time, and knows until when the request is proven to be held. That time counts
 * from just before the last successful call was sent: the server's clock started later, so the local deadline passes
 * first. It counts while the machine is suspended (clock_boot), as the server's does.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "client/client.h"
#include "client/wire.h"

/* The longest time until the end of a request without a ttl is noticed. */
enum { LOOK_MS = 10000 };

/*
 * Pause after a refused credential. After ten in a second permitd closes all new connections of the address for a
 * while.
 */
enum { REFUSED_PAUSE_MS = 1000 };

struct permit_renewer {
    struct permit_client *client;
    struct permit_renewer_options options;
    const char *method;
    char path[PATH_MAX_BYTES];
    int64_t every_ms;           /* time between two renewals */
    _Atomic int64_t held_until; /* 0: the request is lost */
    int stop_fd;                /* eventfd; readable once permit_renewer_stop is called */
    pid_t process;              /* that has the thread; a child of fork has not */
    pthread_t thread;
};

int64_t permit_renewer_held_until_us(const struct permit_renewer *renewer)
{
    return atomic_load(&renewer->held_until);
}

bool permit_renewer_holds(const struct permit_renewer *renewer)
{
    return clock_boot() < permit_renewer_held_until_us(renewer);
}

static void report_loss(struct permit_renewer *renewer, enum permit_status status, const char *message)
{
    atomic_store(&renewer->held_until, 0);
    if (renewer->options.lost)
        renewer->options.lost(renewer->options.context, status, message);
}

/* Returns the time limit of one try with its pause: a third of the time left, so that at least three tries fit. */
static int64_t try_limit_ms(const struct permit_renewer *renewer)
{
    boot_us held_until = permit_renewer_held_until_us(renewer);
    return held_until == NEVER ? NEVER : max_i64(1, (held_until - clock_boot()) / US_PER_MS / MIN_TRIES);
}

/*
 * Returns the time between two renewals of the request as its last answer shows it: its ttl may have been changed, or
 * the max_hold of its semaphores.
 */
static int64_t interval_of(const struct permit_renewer_options *options, const struct permit_request *request)
{
    int64_t lasts_ms = request->ttl_ms > 0 ? request->ttl_ms : request->max_hold_ms;
    int64_t every_ms = options->every_ms > 0 ? options->every_ms : INT64_MAX;
    if (request->ttl_ms <= 0)
        every_ms = min_i64(every_ms, LOOK_MS);
    return lasts_ms ? min_i64(every_ms, max_i64(1, lasts_ms / MIN_TRIES)) : every_ms;
}

/* Renews once, or queries a request that its owner's heartbeat holds. Updates held_until on success. */
static enum permit_status renew_once(struct permit_renewer *renewer, struct call_state *state, int64_t limit_ms)
{
    struct permit_client *client = renewer->client;
    struct http_call call = {.method = renewer->method,
                             .path = renewer->path,
                             .timeout_ms = min_i64(limit_ms, client_try_ms(client, state)),
                             .cancel_fd = renewer->stop_fd};
    enum permit_status status = client_try(client, &call, state);
    if (status)
        return status;
    struct permit_request *request = wire_read_request(permit_client_answer(client), state->sent);
    if (!request)
        return client_fail(client, PERMIT_INTERNAL, "cannot parse the server's answer");
    if (request->held) {
        atomic_store(&renewer->held_until, request->held_until_us);
        renewer->every_ms = interval_of(&renewer->options, request);
    } else {
        buf_printf(&client->message, "%s has ended (%s)", request->external_id,
                   request->end_reason ? request->end_reason : "it is not held");
        status = PERMIT_ENDED;
    }
    permit_request_free(request);
    return status;
}

/*
 * Returns the time of the next try. It counts from before the last try was sent, so a slow try uses up its pause. After
 * a failure the next try goes to the next server, without a pause if this one is gone. The pauses become shorter before
 * the end of the hold, but not after a refused credential.
 */
static boot_us next_try(struct permit_renewer *renewer, struct call_state *state, enum permit_status status,
                        int64_t limit_ms)
{
    int64_t pause_ms = renewer->every_ms;
    bool is_refused = status == PERMIT_UNAUTHENTICATED || status == PERMIT_FORBIDDEN;
    state->failures = status ? state->failures + 1 : 0;
    if (status && client_next_server(renewer->client, state, status))
        pause_ms = 0;
    else if (is_refused)
        pause_ms = REFUSED_PAUSE_MS;
    else if (status)
        pause_ms = min_i64(pause_ms, min_i64(limit_ms, client_pause_ms(renewer->client, state->failures)));
    return moment_after(state->sent, pause_ms);
}

static void *renewer_run(void *context)
{
    struct permit_renewer *renewer = context;
    enum permit_status status = PERMIT_NO_SERVER;
    struct call_state state = {.sent = clock_boot()};
    /* A replayed request may have little time left. */
    boot_us next = moment_after(state.sent, min_i64(renewer->every_ms, try_limit_ms(renewer)));
    for (;;) {
        boot_us wake = min_i64(next, permit_renewer_held_until_us(renewer));
        if (!client_sleep(max_i64(0, (wake - clock_boot() + US_PER_MS - 1) / US_PER_MS), renewer->stop_fd))
            break;
        if (!permit_renewer_holds(renewer)) {
            const char *message = permit_client_message(renewer->client);
            if (!*message)
                message = "the ttl expired before it could be renewed: it is too short, or this process was suspended";
            report_loss(renewer, state.failures ? status : PERMIT_OUTCOME_UNKNOWN, message);
            break;
        }
        int64_t limit_ms = try_limit_ms(renewer);
        status = renew_once(renewer, &state, limit_ms);
        if (renewer->client->reply.end == HTTP_CANCELLED)
            break;
        /* 404 counts as ended: the server has forgotten the request, or never knew it. */
        if (status == PERMIT_ENDED || status == PERMIT_UNKNOWN_REQUEST) {
            report_loss(renewer, status, permit_client_message(renewer->client));
            break;
        }
        next = next_try(renewer, &state, status, limit_ms);
    }
    return NULL;
}

static void renewer_free(struct permit_renewer *renewer)
{
    permit_client_free(renewer->client);
    if (renewer->stop_fd >= 0)
        (void)close(renewer->stop_fd);
    free(renewer);
}

enum permit_status permit_renewer_start(const struct permit_client *client, const struct permit_request *request,
                                        const struct permit_renewer_options *options,
                                        struct permit_renewer **ret_renewer)
{
    struct permit_renewer *renewer = calloc(1, sizeof(*renewer));
    if (!renewer)
        return PERMIT_NO_MEMORY;
    bool by_owner = request->ttl_ms == PERMIT_TTL_OWNER; /* a renewal would extend nothing */
    renewer->options = *options;
    renewer->method = by_owner ? "GET" : "POST";
    renewer->every_ms = interval_of(options, request);
    renewer->process = getpid();
    atomic_init(&renewer->held_until, request->held_until_us);
    renewer->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    enum permit_status status = renewer->stop_fd < 0 ? PERMIT_NO_MEMORY : client_copy(client, &renewer->client);
    if (!status)
        endpoints_start_at(&renewer->client->endpoints, client->endpoints.list[client->endpoints.current].http);
    if (!status && !client_request_path(request->external_id, by_owner ? "" : "/renew", renewer->path))
        status = PERMIT_INVALID;
    int error = errno;
    if (!status) { /* with all signals blocked, so that the caller's threads get them */
        sigset_t all, before;
        sigfillset(&all);
        (void)pthread_sigmask(SIG_SETMASK, &all, &before);
        error = pthread_create(&renewer->thread, NULL, renewer_run, renewer);
        (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
        status = error ? PERMIT_NO_MEMORY : PERMIT_OK;
    }
    if (status)
        renewer_free(renewer);
    else
        *ret_renewer = renewer;
    errno = error;
    return status;
}

void permit_renewer_stop(struct permit_renewer *renewer)
{
    if (!renewer)
        return;
    if (renewer->process == getpid()) {
        (void)eventfd_write(renewer->stop_fd, 1);
        (void)pthread_join(renewer->thread, NULL);
    }
    renewer_free(renewer);
}
