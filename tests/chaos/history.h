/* SPDX-License-Identifier: MIT */
/*
 * History: the calls of the clients, each with the times just before it was sent and just after it was answered (one
 * monotonic clock), and the meaning of the answer. Each thread writes its own history; they are joined for the
 * checkers.
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
    CALL_QUERY, /* a GET, or a row read with SQL */
    CALL_RENEW,
    CALL_CONFIRM,
    CALL_WRITE, /* to the fenced store of the test, with the tokens of a grant */
};

/* Meaning of an answer for its key. */
enum call_says {
    SAYS_NOTHING,     /* no answer, or one that leaves the outcome open, such as 503 */
    SAYS_HELD,        /* held with these shares */
    SAYS_ENDED,       /* RELEASED, or 410 */
    SAYS_NO_CAPACITY, /* 423: not held */
    SAYS_UNKNOWN,     /* 404: unknown key */
    SAYS_ACCEPTED,    /* the fenced store accepted the write */
    SAYS_REFUSED,     /* the fenced store found the tokens too old */
    SAYS_COUNT
};

/* One permit: a request's share of one semaphore. */
struct share {
    unsigned semaphore; /* index into facts.semaphores */
    unsigned count;
    uint64_t token;
    unsigned slots[SLOTS_MAX]; /* 0: none; always 0 for a counted semaphore */
};

struct call {
    enum call_kind kind;
    enum call_says says;
    unsigned key;
    unsigned port;       /* of the permitd that was called */
    int status;          /* HTTP; 0: no answer */
    int64_t sent_us;     /* before the first byte was sent */
    int64_t answered_us; /* after the last byte came */
    int64_t wait_us;     /* acquires: the longest wait; 0: none */
    int64_t lease_us;    /* lease of a new grant or a renewal, counted from sent_us; 0: held until released */
    size_t share_count;  /* SAYS_HELD: the permits; other acquires: the requested units, without tokens */
    struct share shares[SHARES_MAX]; /* ascending by semaphore */
};

/* A semaphore as created; its capacity is constant in these runs. */
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

/* Copies the call and sorts its shares. */
void history_add(struct history *history, const struct call *call);
/* Appends all calls of `from` to `history` and empties `from`. */
void history_join(struct history *history, struct history *from);
void history_release(struct history *history);
/* Writes one line of JSON per call, in the order of the list. Ends the process if the file cannot be written. */
void history_write(const struct history *history, const struct semaphore_facts *semaphores, const char *path);
/* The greatest key plus one; 0 if there are no calls. */
size_t history_key_end(const struct history *history);
#endif
