/* SPDX-License-Identifier: MIT */
/*
 * A body of a megabyte takes its handler some milliseconds to read, which nobody else should wait for: handlers of
 * large bodies run here, one after the other, on a thread of their own. What the exchange's `stage` says:
 *
 *     ON_LOOP --bodies_handle--> OFF_LOOP_QUEUED --the thread--> OFF_LOOP_TAKEN
 *                                       +--the loop's deadline--> OFF_LOOP_CANCELLED: the handler is not called
 *
 * In either case it comes back to the loop through `returned`. The engine may have finished it before that: then it is
 * answered when it has returned.
 */
#include "http/loop.h"

#include <errno.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"

static bool take_stage(struct exchange *exchange, int stage)
{
    int queued = OFF_LOOP_QUEUED;
    return atomic_compare_exchange_strong(&exchange->off_loop.stage, &queued, stage);
}

bool bodies_cancel(struct exchange *exchange)
{
    return take_stage(exchange, OFF_LOOP_CANCELLED);
}

static void give_back(struct server *server, struct exchange *exchange)
{
    uint64_t one = 1;
    pthread_mutex_lock(&server->outbox_mutex);
    exchange->off_loop.next = server->returned;
    server->returned = exchange;
    pthread_mutex_unlock(&server->outbox_mutex);
    if (write(server->wake_fd, &one, sizeof one) < 0)
        log_write(LOG_ERROR, "cannot wake the event loop", "error", strerror(errno), NULL);
}

/* The next exchange; NULL: the server stops. Memory is given back to the system meanwhile, if that is wanted. */
static struct exchange *take_next(struct bodies *bodies)
{
    pthread_mutex_lock(&bodies->mutex);
    while (!bodies->first && !bodies->stopping) {
        if (!bodies->trims) {
            pthread_cond_wait(&bodies->changed, &bodies->mutex);
            continue;
        }
        bodies->trims = false;
        pthread_mutex_unlock(&bodies->mutex);
        memory_trim();
        pthread_mutex_lock(&bodies->mutex);
    }
    struct exchange *exchange = bodies->first;
    if (exchange) {
        bodies->first = exchange->next;
        if (!bodies->first)
            bodies->last = &bodies->first;
    }
    pthread_mutex_unlock(&bodies->mutex);
    return exchange;
}

static void *run(void *context)
{
    struct server *server = context;
    struct exchange *exchange;
    while ((exchange = take_next(&server->bodies))) {
        if (take_stage(exchange, OFF_LOOP_TAKEN)) {
            exchange->service = server->settings.body_service;
            exchange->off_loop.answered = server->settings.handle(exchange);
        }
        give_back(server, exchange);
    }
    return NULL;
}

void bodies_trim(struct server *server)
{
    struct bodies *bodies = &server->bodies;
    pthread_mutex_lock(&bodies->mutex);
    bodies->trims = true;
    pthread_cond_signal(&bodies->changed);
    pthread_mutex_unlock(&bodies->mutex);
}

void bodies_handle(struct server *server, struct exchange *exchange)
{
    struct bodies *bodies = &server->bodies;
    exchange->next = NULL;
    atomic_store(&exchange->off_loop.stage, OFF_LOOP_QUEUED);
    pthread_mutex_lock(&bodies->mutex);
    *bodies->last = exchange;
    bodies->last = &exchange->next;
    pthread_cond_signal(&bodies->changed);
    pthread_mutex_unlock(&bodies->mutex);
}

/* The handler has returned, or was not called. */
static void take_back(struct server *server, struct exchange *exchange)
{
    struct off_loop *off_loop = &exchange->off_loop;
    off_loop->returned = true;
    if (off_loop->answered || off_loop->finished) {
        exchange_answer_later(server, exchange);
    } else if (atomic_load(&off_loop->stage) == OFF_LOOP_CANCELLED) {
        server->counts.exchanges--;
        exchange_recycle(server, exchange);
    } else {
        exchange_settle(server, exchange);
    }
}

void bodies_drain(struct server *server)
{
    pthread_mutex_lock(&server->outbox_mutex);
    struct exchange *exchange = server->returned;
    server->returned = NULL;
    pthread_mutex_unlock(&server->outbox_mutex);
    while (exchange) {
        struct exchange *next = exchange->off_loop.next;
        take_back(server, exchange);
        exchange = next;
    }
}

bool bodies_start(struct server *server)
{
    struct bodies *bodies = &server->bodies;
    bodies->last = &bodies->first;
    pthread_mutex_init(&bodies->mutex, NULL);
    pthread_cond_init(&bodies->changed, NULL);
    bodies->started = pthread_create(&bodies->thread, NULL, run, server) == 0;
    return bodies->started;
}

void bodies_stop(struct server *server)
{
    struct bodies *bodies = &server->bodies;
    if (!bodies->started)
        return;
    pthread_mutex_lock(&bodies->mutex);
    bodies->stopping = true;
    pthread_cond_signal(&bodies->changed);
    pthread_mutex_unlock(&bodies->mutex);
    pthread_join(bodies->thread, NULL);
    bodies->started = false;
    pthread_mutex_destroy(&bodies->mutex);
    pthread_cond_destroy(&bodies->changed);
}
