/* SPDX-License-Identifier: MIT */
/*
 * Runs the handlers of large bodies, one after the other, on a thread of their own: a handler takes some milliseconds
 * to read a body of a megabyte, and the loop must not stop for so long. The exchange's `stage`:
 *
 *     ON_LOOP --bodies_handle--> OFF_LOOP_QUEUED --the thread--> OFF_LOOP_TAKEN
 *                                       +--the loop's deadline--> OFF_LOOP_CANCELLED: the handler is not called
 *
 * In both cases the exchange returns to the loop through `returned`. If the engine finishes the exchange before that,
 * the exchange is answered after it has returned.
 */
#include "http/loop.h"

#include "base/memory.h"

static bool claim_stage(struct exchange *exchange, int stage)
{
    int queued = OFF_LOOP_QUEUED;
    return atomic_compare_exchange_strong(&exchange->off_loop.stage, &queued, stage);
}

bool bodies_cancel(struct exchange *exchange)
{
    return claim_stage(exchange, OFF_LOOP_CANCELLED);
}

static void return_exchange(struct server *server, struct exchange *exchange)
{
    mutex_lock(&server->outbox_mutex);
    exchange->off_loop.next = server->returned;
    server->returned = exchange;
    mutex_unlock(&server->outbox_mutex);
    server_wake(server);
}

/*
 * Waits for the next exchange and returns it; NULL: the server stops. While it waits it returns freed memory to the
 * system on request.
 */
static struct exchange *take_next(struct bodies *bodies)
{
    mutex_lock(&bodies->mutex);
    while (!bodies->first && !bodies->stopping) {
        if (!bodies->trim_requested) {
            mutex_wait(&bodies->mutex, &bodies->changed);
            continue;
        }
        bodies->trim_requested = false;
        mutex_unlock(&bodies->mutex);
        memory_trim();
        mutex_lock(&bodies->mutex);
    }
    struct exchange *exchange = bodies->first;
    if (exchange) {
        bodies->first = exchange->next;
        if (!bodies->first)
            bodies->last = &bodies->first;
    }
    mutex_unlock(&bodies->mutex);
    return exchange;
}

static void *run(void *context)
{
    struct server *server = context;
    struct exchange *exchange;
    while ((exchange = take_next(&server->bodies))) {
        if (claim_stage(exchange, OFF_LOOP_TAKEN)) {
            exchange->service = server->settings.body_service;
            exchange->off_loop.answered = server->settings.hooks->handle(exchange);
        }
        return_exchange(server, exchange);
    }
    return NULL;
}

void bodies_trim(struct server *server)
{
    struct bodies *bodies = &server->bodies;
    mutex_lock(&bodies->mutex);
    bodies->trim_requested = true;
    pthread_cond_signal(&bodies->changed);
    mutex_unlock(&bodies->mutex);
}

void bodies_handle(struct server *server, struct exchange *exchange)
{
    struct bodies *bodies = &server->bodies;
    exchange->next = NULL;
    atomic_store(&exchange->off_loop.stage, OFF_LOOP_QUEUED);
    mutex_lock(&bodies->mutex);
    *bodies->last = exchange;
    bodies->last = &exchange->next;
    pthread_cond_signal(&bodies->changed);
    mutex_unlock(&bodies->mutex);
}

/* Takes an exchange back after its handler has returned or was cancelled. */
static void finish_returned(struct server *server, struct exchange *exchange)
{
    struct off_loop *off_loop = &exchange->off_loop;
    off_loop->returned = true;
    if (off_loop->answered || off_loop->finished) {
        exchange_answer_decided(server, exchange);
    } else if (atomic_load(&off_loop->stage) == OFF_LOOP_CANCELLED) {
        server->counts.exchanges--;
        exchange_recycle(server, exchange);
    } else {
        exchange_handed_over(server, exchange);
    }
}

void bodies_drain(struct server *server)
{
    mutex_lock(&server->outbox_mutex);
    struct exchange *exchange = server->returned;
    server->returned = NULL;
    mutex_unlock(&server->outbox_mutex);
    while (exchange) {
        struct exchange *next = exchange->off_loop.next;
        finish_returned(server, exchange);
        exchange = next;
    }
}

bool bodies_start(struct server *server)
{
    struct bodies *bodies = &server->bodies;
    bodies->last = &bodies->first;
    mutex_init(&bodies->mutex);
    pthread_cond_init(&bodies->changed, NULL);
    bodies->started = pthread_create(&bodies->thread, NULL, run, server) == 0;
    return bodies->started;
}

void bodies_stop(struct server *server)
{
    struct bodies *bodies = &server->bodies;
    if (!bodies->started)
        return;
    mutex_lock(&bodies->mutex);
    bodies->stopping = true;
    pthread_cond_signal(&bodies->changed);
    mutex_unlock(&bodies->mutex);
    pthread_join(bodies->thread, NULL);
    bodies->started = false;
    mutex_destroy(&bodies->mutex);
    pthread_cond_destroy(&bodies->changed);
}
