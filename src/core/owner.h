/* SPDX-License-Identifier: MIT */
/*
 * Owners and their heartbeats (docs/design.md, "Owners"). A row of `owner` has the deadline of the last heartbeat, and
 * the time at which the owner was declared dead (the lapse). Pure: decides the effect of one call on one locked row.
 */
#ifndef CORE_OWNER_H
#define CORE_OWNER_H

#include "core/lease_clock.h"
#include "core/request.h"

/* A row of `owner`. Times are lease clock. */
struct owner {
    struct bytes name;
    int64_t ttl_ms;    /* ttl of a heartbeat; 0: no heartbeat yet, the probe found the owner dead */
    utc_us due_at;     /* last heartbeat + ttl */
    utc_us lapsed_at;  /* NEVER: not declared dead */
    utc_us settled_at; /* when all requests that end with the lapse had ended; NEVER: some may still be held */
    uint32_t replays;
};

enum owner_life {
    OWNER_ALIVE,
    OWNER_LATE, /* due, but the lapse is not written yet: a heartbeat keeps it alive */
    OWNER_LAPSED,
    OWNER_LIFE_COUNT
};

/* Returns "alive", "late" or "lapsed". */
const char *owner_life_word(enum owner_life life);
/* Deadlines until `due` have passed. */
enum owner_life owner_life(const struct owner *owner, utc_us due);
/*
 * Returns true while the requests that end with the lapse are being ended. A settled lapse ends no more requests: a
 * batch that read its clock before the lapse, and commits after it was settled, grants a request that only looks older
 * than the lapse.
 */
bool owner_is_ending(const struct owner *owner);
/*
 * Returns true if the request ends with the lapse: held, not confirmed, and with ttl "owner" or acquired before the
 * lapse. A request acquired later with its own ttl ends only by that ttl.
 */
bool owner_lapse_ends(const struct owner *owner, const struct request *request);

enum owner_call_kind {
    OWNER_BEAT,   /* PUT: a heartbeat */
    OWNER_GONE,   /* DELETE: the owner reports its own end */
    OWNER_LAPSE,  /* internal: the heartbeat has expired */
    OWNER_DEAD,   /* internal: the probe found it dead; `at`: time before the first probe */
    OWNER_SETTLE, /* internal: no request of the lapse at `at` is held any more */
    OWNER_FORGET, /* internal: delete the row if it was settled before `at` */
    OWNER_CALL_KIND_COUNT
};

/* Returns "beat", "gone", ... as in metrics. */
const char *owner_call_word(enum owner_call_kind kind);

/* A call on an owner. `name` belongs to the caller. */
struct owner_call {
    enum owner_call_kind kind;
    struct bytes name;
    int64_t ttl_ms; /* OWNER_BEAT */
    utc_us at;      /* OWNER_DEAD, OWNER_SETTLE, OWNER_FORGET */
};

/* A locked row and its new state. */
struct owner_image {
    struct owner owner; /* `name` is set even without a row */
    bool existed;       /* the row existed before the call */
    bool exists;        /* the row exists after it; neither: no write; only `existed`: delete */
    bool changed;
    bool holding; /* the lapse is not settled, and a request that ends with it is held or may be */
};

struct owner_outcome {
    enum permit_status status; /* PERMIT_OK, PERMIT_ENDED, PERMIT_UNKNOWN_OWNER */
    bool created;
    struct owner owner; /* the row after the call, if it exists; the name is the call's, which lives longer than
                           other calls */
};

/*
 * Decides a call, with a judged clock that was read at `now`. An internal call does nothing if the row has changed
 * since it was scheduled. Every answer about a row also changes the row (`replays`), so that no answer comes from a
 * bare read.
 */
void owner_decide(const struct owner_call *call, const struct lease_clock *clock, utc_us now, struct owner_image *image,
                  struct owner_outcome *ret_outcome);
#endif
