/* SPDX-License-Identifier: MIT */
/*
 * C8 (P20, P21): the order in which one queue was served, through whichever permitd its clients came. The input is what
 * the rows say (places, grants) and when a waiter was surely there. A waiter is surely there while its row names a
 * living permitd and its client waits for an answer; at other times it may be passed, and the checker accepts that.
 */
#ifndef ORDER_H
#define ORDER_H

#include "checkers.h"

enum { ORDER_KEY_SIZE = 64 };

/* The default of the setting backfill_bound. */
#define BACKFILL_BOUND_US 30000000LL

struct queue_facts {
    const char *name;
    bool fifo;
    int64_t bound_us; /* backfill_bound */
};

/* A request's share of one semaphore: its place in the queue, its grant, or both. Times are lease clock. */
struct place {
    uint64_t request; /* id of the request: order of equal places */
    char key[ORDER_KEY_SIZE];
    unsigned semaphore; /* index into order.queues */
    int64_t count;
    bool alone;    /* it wants no other semaphore */
    bool is_loose; /* it keeps nothing back from others: specific slots, or never satisfiable */
    bool waited;   /* it was in the queue; since_us may be granted_us all the same, while served time stands still */
    int64_t place_us, since_us;
    uint64_t token;     /* 0: not granted */
    int64_t granted_us; /* decision of the grant */
};

/*
 * The waiter surely stood in this queue when these tokens were granted. Tokens and places change under one lock, so a
 * waiter that two states of the database show was there for every token between the two.
 */
struct presence {
    uint64_t request;
    int64_t place_us;
    unsigned semaphore;
    uint64_t from_token, until_token;   /* until_token is the first that does not count */
    int64_t from_us;                    /* lease clock: grants before do not count */
    int64_t from_clock_us, to_clock_us; /* on the clients' clock, when the two states were read */
    unsigned port;                      /* of the permitd that the row names; 0: not known */
    unsigned sample;                    /* pieces with successive numbers leave no gap */
    char key[ORDER_KEY_SIZE];
};

struct order {
    const struct queue_facts *queues;
    size_t queue_count;
    struct place *places;
    size_t place_count, place_room;
    struct presence *presences;
    size_t presence_count, presence_room;
};

/* An acquire with a wait, as its client saw it. Times are of the clients' clock. */
struct ask {
    char key[ORDER_KEY_SIZE];
    unsigned port; /* of the permitd that was asked; 0: not known */
    int status;    /* 0: no answer */
    bool cut;      /* the connection ended through a fault, or the client left */
    int64_t wait_us;
    int64_t sent_us;
    int64_t answered_us; /* or when the connection ended */
};

struct order_counts {
    size_t judged; /* pairs of a grant and a waiter that was surely there */
    size_t passed; /* of these, younger requests that were rightly granted before the waiter */
};

void order_add_place(struct order *order, const struct place *place);
void order_add_presence(struct order *order, const struct presence *presence);
void order_release(struct order *order);
/*
 * Keeps the presences during which a client waited at that permitd for the answer to one of the asks, and joins
 * successive ones. After some refusals the row waits for a while without a client; an ask with such an answer does not
 * count, because the answer takes time to be read.
 */
void order_limit(struct order *order, const struct ask *asks, size_t count);
/*
 * Adds presences without samples: a waiter whose key was asked for once and granted was there from its entry to its
 * grant. Only for asks at a permitd that lived all that time.
 */
void order_add_whole(struct order *order, const struct ask *asks, size_t count);

/*
 * P20: under fifo, no request is granted before a waiter that stands before it. Under backfill, none passes a waiter
 * that fits or that has waited for the bound. Counts are added to *ret_counts, which may be NULL.
 */
bool check_order(const struct order *order, struct order_counts *ret_counts, char message[MESSAGE_SIZE]);
/*
 * The same where all waiters of the only queue stood there before the first one was granted: tokens rise with places,
 * and each of the `count` waiters is granted once.
 */
bool check_exact(const struct order *order, size_t count, char message[MESSAGE_SIZE]);
/*
 * P21: a key that asks again has the place that it had: all places of a key at a semaphore are equal, and so is the time
 * since which it waits.
 */
bool check_places(const struct order *order, char message[MESSAGE_SIZE]);
/*
 * P17, P22: every ask is answered within its wait and late_us; none is refused for want of capacity before its wait is
 * over; a key whose last ask was refused so is not granted. With `served`, the last ask of every key is granted.
 */
bool check_told(const struct order *order, const struct ask *asks, size_t count, int64_t late_us, bool served,
                char message[MESSAGE_SIZE]);
#endif
