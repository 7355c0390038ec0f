/* SPDX-License-Identifier: MIT */
/*
 * What happened, as the clients saw it: every call with the moment before it was sent and the moment after it was
 * answered, by one monotonic clock, and what the answer asserted. Each thread writes a history of its own; they are
 * joined for the checkers.
 */
#ifndef HISTORY_H
#define HISTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SHARES_MAX = 3, SLOTS_MAX = 8 };

enum call_kind {
    CALL_ACQUIRE,
    CALL_RELEASE,
    CALL_LOOK, /* GET, or a row read by SQL */
    CALL_RENEW,
    CALL_CONFIRM,
    CALL_WRITE, /* to the test's own fenced store, with the tokens of a grant */
};

/* What an answer asserts about its key. */
enum call_says {
    SAYS_NOTHING,     /* no answer, or one that leaves it open, as 503 does */
    SAYS_HELD,        /* with these shares */
    SAYS_ENDED,       /* RELEASED, or 410 */
    SAYS_NO_CAPACITY, /* 423: it holds nothing */
    SAYS_UNKNOWN,     /* 404: there is no such key */
    SAYS_ACCEPTED,    /* the fenced store took it */
    SAYS_REFUSED,     /* or found the tokens too old */
    SAYS_COUNT
};

/* One permit: a request's share of one semaphore. */
struct share {
    unsigned semaphore; /* index into the facts */
    unsigned count;
    uint64_t token;
    unsigned slots[SLOTS_MAX]; /* 0: none; a counted semaphore has none */
};

struct call {
    enum call_kind kind;
    enum call_says says;
    unsigned key;
    int status;          /* HTTP; 0: no answer */
    int64_t sent_us;     /* before the first byte was sent */
    int64_t answered_us; /* after the last byte came */
    int64_t lease_us;    /* a new grant or a renewal: held so long from when it was sent; 0: until released */
    size_t share_count;  /* SAYS_HELD; of any other acquire what was asked for, without tokens */
    struct share shares[SHARES_MAX]; /* ascending by semaphore */
};

/* A semaphore as it was made; capacities do not change in these runs. */
struct semaphore_facts {
    const char *name;
    unsigned capacity;
    bool slotted;
};

struct history {
    struct call *calls;
    size_t count;
    size_t capacity;
};

/* Copies the call; its shares are put in order. */
void history_add(struct history *history, const struct call *call);
/* Moves all calls of `from` behind those of `history`. */
void history_join(struct history *history, struct history *from);
void history_release(struct history *history);
/* One line of JSON a call, in the order of the list. Ends the process if the file cannot be written. */
void history_write(const struct history *history, const struct semaphore_facts *semaphores, const char *path);
/* The greatest key and one; 0 if there are no calls. */
size_t history_key_end(const struct history *history);
#endif
