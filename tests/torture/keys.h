/* SPDX-License-Identifier: MIT */
/* What a whole history says about each of its keys: where the checkers begin. */
#ifndef KEYS_H
#define KEYS_H

#include "checkers.h"

/* Moments by the clients' clock; one that never came is INT64_MAX, INT64_MIN where the last one is meant. */
struct key_facts {
    int64_t first_asked;      /* an acquire was sent */
    int64_t first_known;      /* an answer said that it is held */
    int64_t last_held_sent;   /* the last call whose answer said so */
    int64_t last_absent_sent; /* the last call whose answer said that it holds nothing and has not ended */
    int64_t release_sent;     /* the first one that may have done it */
    int64_t confirm_sent;     /* the first one */
    int64_t end_known;        /* the first answer that said so */
    int64_t lease_end;        /* it does not expire before */
    int64_t lease_us;         /* 0: until released */
    int64_t ended_unheard;    /* the first acquire that was told so was answered */
    int64_t held_until;       /* surely held from first_known to here */
    bool open;                /* an acquire may have been granted that nobody heard of */
    const struct call *held;  /* the answer of first_known */
    const struct call *asked; /* an acquire */
};

/* One per key; the caller frees them. */
struct key_facts *keys_of(const struct history *history, const struct facts *facts, size_t *ret_count);
#endif
