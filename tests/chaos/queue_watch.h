/* SPDX-License-Identifier: MIT */
/*
 * The input of C8 from the rows: a thread reads again and again which requests wait, in which places and at which living
 * permitd; at the end the grants are read. It goes on when the database has failed.
 *
 *     queue_watch_start(&watch, database, queues, count, 20);
 *     ... clients wait ...
 *     struct order order = queue_watch_stop(&watch);
 *     order_limit(&order, asks, ask_count);
 *     ... check_order(&order, ...) ...
 *     order_release(&order);
 */
#ifndef QUEUE_WATCH_H
#define QUEUE_WATCH_H

#include <pthread.h>
#include <stdatomic.h>

#include "order.h"
#include "testkit.h"

struct watched_waiter;

struct queue_watch {
    pthread_t thread;
    const struct kit_database *database;
    int every_ms;
    atomic_bool stopping;
    struct order order;
    /* The waiters of the last two samples, one entry per place, ascending by request. */
    struct watched_waiter *before, *now;
    size_t before_count, now_count, now_room;
    unsigned sample;   /* number of the sample `now` */
    unsigned failures; /* samples that the database did not answer */
};

/* The queues must stay valid as long as the order. */
void queue_watch_start(struct queue_watch *watch, const struct kit_database *database, const struct queue_facts *queues,
                       size_t queue_count, int every_ms);
/* The grants and the places of those that were granted, without a watch. The caller releases the order. */
struct order order_of_grants(const struct kit_database *database, const struct queue_facts *queues, size_t queue_count);
/* Stops the thread, reads the grants and returns everything. The database must serve. The caller releases the order. */
struct order queue_watch_stop(struct queue_watch *watch);
#endif
