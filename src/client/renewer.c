/* SPDX-License-Identifier: MIT */
/*
 * A thread that renews one request in time, and knows until when it is proved to be held. Time counts from before the
 * last successful call was sent: the server's clock started later, so ours runs out first. It counts while the machine
 * is suspended (clock_boot), as the server's does.
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

/* By heartbeat it may end at any time: renewing extends nothing, but tells. */
enum { EVERY_WITHOUT_TTL_MS = 600000, EVERY_BY_OWNER_MS = 10000 };

struct permit_renewer {
    struct permit_client *client;
    struct permit_renewer_options options;
    char path[PATH_MAX_BYTES];
    _Atomic int64_t held_until; /* 0: lost */
    int stop_fd;                /* an eventfd: readable once the caller wants us to end */
    pid_t process;              /* that has the thread: a child of fork has not */
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

static void lose(struct permit_renewer *renewer, enum permit_status status, const char *message)
{
    atomic_store(&renewer->held_until, 0);
    if (renewer->options.lost)
        renewer->options.lost(renewer->options.context, status, message);
}

/* Its time is over by our clock; `status`: of the last try, if there was one in time. Else two things may be the
 * reason. */
static void lose_proof(struct permit_renewer *renewer, enum permit_status status)
{
    const char *message = permit_client_message(renewer->client);
    lose(renewer, status,
         *message ? message
                  : "the ttl expired before it could be renewed: it is too short, or this process was suspended");
}

/* What one try, with the pause after it, may take of the time that is left: so that three fit at least. */
static int64_t share_ms(const struct permit_renewer *renewer)
{
    boot_us held_until = permit_renewer_held_until_us(renewer);
    return held_until == NEVER ? NEVER : max_i64(1, (held_until - clock_boot()) / US_PER_MS / TRIES_LEAST);
}

/* One renewal; on success held_until moves on. */
static enum permit_status renew_once(struct permit_renewer *renewer, struct course *course, int64_t share)
{
    struct permit_client *client = renewer->client;
    struct http_call call = {.method = "POST",
                             .path = renewer->path,
                             .timeout_ms = min_i64(share, client_try_ms(client, course)),
                             .cancel_fd = renewer->stop_fd};
    enum permit_status status = client_try(client, &call, course);
    if (status)
        return status;
    struct permit_request *request = wire_read_request(permit_client_answer(client), course->sent);
    if (!request)
        return client_fail(client, PERMIT_INTERNAL, "cannot parse the server's answer");
    if (request->held)
        atomic_store(&renewer->held_until, request->held_until_us);
    status = request->held ? PERMIT_OK : PERMIT_ENDED;
    permit_request_free(request);
    return status;
}

/* Counts from before the last try was sent: a try that took its time was the pause. */
static boot_us next_try(const struct permit_renewer *renewer, struct course *course, enum permit_status status,
                        int64_t share)
{
    int64_t pause_ms = renewer->options.every_ms;
    course->failures = status ? course->failures + 1 : 0;
    if (status)
        pause_ms = min_i64(pause_ms, min_i64(share, client_pause_ms(renewer->client, course->failures)));
    return moment_after(course->sent, pause_ms);
}

/* Sleeps until `next`, or until the proof runs out. False: we are to stop. */
static bool sleep_until(const struct permit_renewer *renewer, boot_us next)
{
    boot_us wake = min_i64(next, permit_renewer_held_until_us(renewer));
    return client_sleep(max_i64(0, (wake - clock_boot() + US_PER_MS - 1) / US_PER_MS), renewer->stop_fd);
}

static void *renewer_run(void *context)
{
    struct permit_renewer *renewer = context;
    enum permit_status status = PERMIT_NO_SERVER;
    struct course course = {.sent = clock_boot()};
    /* A replayed request may have little time left. */
    boot_us next = moment_after(course.sent, min_i64(renewer->options.every_ms, share_ms(renewer)));
    while (sleep_until(renewer, next)) {
        if (!permit_renewer_holds(renewer)) {
            lose_proof(renewer, course.failures ? status : PERMIT_OUTCOME_UNKNOWN);
            break;
        }
        int64_t share = share_ms(renewer);
        status = renew_once(renewer, &course, share);
        if (renewer->client->reply.cancelled)
            break;
        /* 404: the server has forgotten it, or never knew: the same as ended. */
        if (status == PERMIT_ENDED || status == PERMIT_UNKNOWN_REQUEST) {
            lose(renewer, status, permit_client_message(renewer->client));
            break;
        }
        next = next_try(renewer, &course, status, share);
    }
    return NULL;
}

/* Starts it with all signals blocked: they are the caller's. False: errno says why. */
static bool start_thread(struct permit_renewer *renewer)
{
    sigset_t all, before;
    sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&renewer->thread, NULL, renewer_run, renewer);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = error;
    return error == 0;
}

static void renewer_free(struct permit_renewer *renewer)
{
    permit_client_free(renewer->client);
    if (renewer->stop_fd >= 0)
        (void)close(renewer->stop_fd);
    free(renewer);
}

static int64_t usual_interval_ms(const struct permit_request *request)
{
    if (request->ttl_ms == PERMIT_TTL_OWNER)
        return EVERY_BY_OWNER_MS;
    return request->ttl_ms == PERMIT_TTL_NONE ? EVERY_WITHOUT_TTL_MS : max_i64(1, request->ttl_ms / 3);
}

enum permit_status permit_renewer_start(const struct permit_client *client, const struct permit_request *request,
                                        const struct permit_renewer_options *options,
                                        struct permit_renewer **ret_renewer)
{
    struct permit_renewer *renewer = calloc(1, sizeof(*renewer));
    if (!renewer)
        return PERMIT_NO_MEMORY;
    renewer->options = *options;
    if (renewer->options.every_ms <= 0)
        renewer->options.every_ms = usual_interval_ms(request);
    renewer->process = getpid();
    atomic_init(&renewer->held_until, request->held_until_us);
    renewer->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    enum permit_status status =
        renewer->stop_fd < 0 ? PERMIT_NO_MEMORY : permit_client_new(&client->options, &renewer->client);
    if (!status && !client_request_path(request->external_id, "/renew", renewer->path))
        status = PERMIT_INVALID;
    if (!status && !start_thread(renewer))
        status = PERMIT_NO_MEMORY;
    int error = errno;
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
