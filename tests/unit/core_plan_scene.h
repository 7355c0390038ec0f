/* SPDX-License-Identifier: MIT */
/*
 * Single batches of plan_batch(), as transcripts: the rows that a batch reads, its operations with their outcomes, and
 * what it writes. Rows are given as they are, so a scene may have what no history leads to. Texts are lists, separated
 * by "; ", and live until the end of the test.
 *
 * scene_queue() has the semaphores a and b, which are locked, and c, which was read plainly; counted, backfill, capacity 1.
 * scene_hall() has the slotted semaphore hall with six free slots, all named, and other, which was read plainly.
 * Servers 1 (this one) and 2 are alive. Times are relative to now: "place=-3s", "due=0s", "until=20s", "due=-1us".
 *
 * given:
 *     "a capacity=3 fifo sales"       settings and counts of a semaphore
 *     "k1 holds a b:2 due=0s"         a holder; due=never unless said. "k1 holds hall@2,3": slots 2 and 3. "confirmed";
 *                                     "errand=1": confirmed in SQL, "errand=2": to be released; "mine": its row is locked
 *                                     by this batch, "locked": by another session; "changes=1 nonce=n": its exchanges
 *                                     so far, and the nonce of the last one
 *     "k2 waits a b server=2 place=-3s since=-60s"
 *                                     a waiter, whose client waits at that server. Unless said, that is server 1, and
 *                                     place and since are -1s. "kept": at none; "dead": at server 3, which is dead; "left":
 *                                     its client has left, and its row does not say so yet; "subscribed" last: a client
 *                                     waits here whatever its row says
 *     wants: "a", "a:2", "hall@1,A2" exactly these slots, "hall:2@1,2,A3" any two of these, "hall:2~" adjacent ones,
 *     "hall:2~@1,2,3" adjacent ones of these
 *
 * operations:
 *     "acquire k1 a wait priority=3"  wait: for 20 s; "last": the wait of its place ends with this decision
 *     "look k1 a", "look k1 a last"   of a subscriber with a place since 100 s, that waits since 50 s
 *     "leave k1 a", "release k1", "renew k1 ttl=5s", "confirm k1", "expire k1 never_held", "force_release k1"
 *     "exchange k1 -a:2 b changes=1 nonce=n"
 *                                     gives back two units of a, and takes one of b
 *     further words: "ttl=none", "other" (content), "widened", "mailed" (mail of this key led to it), "scope=a"
 *     "semaphore_put hall capacity=6 labels=A1,-,A3", "semaphore_labels hall from=3 labels=A3", "semaphore_retire hall"
 *
 * outcomes: "granted", with slots "granted 1 2=A2"; "replayed"; "put_back ab" with the semaphores to lock; or the status
 *     with each shortage "a", or of the hall "3=A3 of k1/1 until 55s" for each named slot that is held, by this key
 *     and token; "behind": other requests are before it; "waits"; "max_ttl 3000", "max_hold 3000". "reads more": all
 *     is to be planned again.
 *
 * changes:
 *     "+k1 WAITING server=1"          a row that is inserted, with its state; "k1 ACQUIRED": changed; "-k1": deleted
 *     "k1 granted server=2"           a waiter that is granted, and its server if it is unclaimed; of the hall with slots
 *     "k1 exchanged a:2/7 hall:1/8@3 3=A3", "past k1 released a:3/7"
 *                                     a holder with its permits after an exchange; one of them as it was
 *     "k1 enters a", "k1 leaves a"    places; "k1 enters hall watch=3": it watches slot 3
 *     "clears hall 3"                 slot 3 is watched by none any more
 *     "mail 2 k1"                     mail to server 2 about a request; "-mail 1 k1": deleted
 *     "feed ended k1 expired a:2/7"   an event of the feed, with count, token and slots of its permits; "feed omitted"
 *     "labels 1=A1 3=-", "drops labels of hall", "event capacity>8"
 *     "semaphores"                    nothing but rows of semaphores
 *     "call k1", "tell k1"            a call; a grant to a client of this process that no operation names
 */
#ifndef UNIT_CORE_PLAN_SCENE_H
#define UNIT_CORE_PLAN_SCENE_H

#include "core/plan.h"

enum {
    SCENE_SEMAPHORES = 3,
    SCENE_ROWS = 80,
    SCENE_NAMES = 8,
    SCENE_SLOTS = 9,
    SCENE_LINES = 8,
    HERE = 1,
    ELSEWHERE = 2,
    DEAD = 3,
};
#define NOW (1000 * US_PER_SECOND)

struct scene_row {
    struct permit permits[SCENE_SEMAPHORES];
    struct want wants[SCENE_SEMAPHORES];
    struct slot_name names[SCENE_NAMES];
    uint32_t numbers[SCENE_SLOTS];
    struct bytes labels[SCENE_SLOTS];
};

struct scene {
    struct semaphore semaphores[SCENE_SEMAPHORES];
    size_t locked; /* the first semaphores are locked, the next one is not */
    struct request requests[SCENE_ROWS];
    struct scene_row rows[SCENE_ROWS];
    size_t row_count;
    struct request sorted[SCENE_ROWS];
    struct subscriber subscribers[SCENE_ROWS];
    size_t subscriber_count;
    struct slot_row slots[SCENE_SLOTS]; /* of the hall */
    size_t slot_count;
    size_t free_read; /* number of free slots that are read */
    struct named_slots named[SCENE_SEMAPHORES];
    struct free_slots free_slots[SCENE_SEMAPHORES];
    struct queue_view queues[SCENE_SEMAPHORES];
    utc_us next_due[SCENE_SEMAPHORES];
    bool no_queues;   /* no queue was read */
    bool unknown;     /* the semaphore without a lock was not read */
    bool reads_end;   /* and will not be */
    bool no_requests; /* no request was read */
    bool feed_full;
    struct glimpse glimpse;
    struct owner_state owner;
    utc_us grants_from;
    int64_t ttl_ms, grace_ms; /* of holders */
    struct plan_settings settings;
    struct arena arena;
    struct plan plan; /* of the last batch */
};

extern struct scene scene;

void scene_queue(void);
void scene_hall(void);
void scene_release(void);
/* Sets the number of slots in service of the hall, and of its slot rows. */
void scene_set_capacity(int64_t capacity, size_t slot_count);
/* Labels the slots of the hall A1, A2, ...; called before anything is held. */
void scene_label_all(void);
/* Returns the row of a key. */
struct request *row(const char *key);
/* Returns the rows as a batch reads them. */
struct view scene_view(void);
/* Reads one operation; the memory is in the arena of the scene. */
const struct operation *scene_operation(const char *text);
/* Plans these operations. */
void scene_plan(const struct operation *const *operations, size_t count);

void given(const char *rows);
/* Plans a batch, and compares its outcomes and changes; `changes` NULL: any. */
void batch(const char *operations, const char *outcomes, const char *changes);
/*
 * Compares facts of the last batch, word by word: "k1 place=-9s due=30s token=3" of a row that is written, "a waiting=0" of
 * a semaphore, "#1 may_wait" of the first outcome, "plan expired=1 overdue=k1" of all: see row_print and those below it.
 */
void then(const char *facts);
/* Compares the detail of an outcome, from 1. */
void detail(size_t number, const char *expected);
/*
 * Compares what must be read before a batch with this operation: parts of queues, "a free=3 limit=5", and "servers", if the
 * living servers must be read; and due holders, "a units=3". All of them are listed, each with the words that matter.
 */
void reads_queues(const char *operation, const char *expected);
void reads_due(const char *operation, const char *expected);
#endif
