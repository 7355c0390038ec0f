/* SPDX-License-Identifier: MIT */
/*
 * Owners: is whoever holds a permit still alive (docs/design.md, "Owners")? A row says until when the last heartbeat
 * counts, and since when the owner is judged dead (the lapse). Pure: what one call does to one row, which is locked.
 */
#ifndef CORE_OWNER_H
#define CORE_OWNER_H

#include "core/request.h"

/* A row of `owner`. Times are served time. */
struct owner {
    struct bytes name;
    int64_t ttl_ms;    /* of a heartbeat; 0: there never was one, the probe found it dead */
    utc_us due_at;     /* last heartbeat + ttl */
    utc_us lapsed_at;  /* NEVER: not judged dead */
    utc_us settled_at; /* NEVER: something that ends with the lapse may still be held */
    uint32_t replays;
};

enum owner_life {
    OWNER_ALIVE,
    OWNER_LATE, /* due, and nobody has written the lapse yet: a heartbeat saves it */
    OWNER_LAPSED,
    OWNER_LIFE_COUNT
};

/* "alive", "late", "lapsed". */
const char *owner_life_word(enum owner_life life);
enum owner_life owner_life(const struct owner *owner, utc_us now);
/*
 * True while permitd ends what the lapse ends. A settled lapse ends nothing more: a batch that read its clock before
 * the lapse and commits after it was settled grants a request that looks older than the lapse, and is not.
 */
bool owner_is_ending(const struct owner *owner);
/*
 * Whether the request ends with the lapse: held, not confirmed, and with ttl "owner" or acquired before. What was
 * acquired later with a ttl of its own is judged by that alone.
 */
bool owner_lapse_ends(const struct owner *owner, const struct request *request);

enum owner_call_kind {
    OWNER_BEAT,   /* PUT: a heartbeat */
    OWNER_GONE,   /* DELETE: "I am gone" */
    OWNER_LAPSE,  /* permitd's own: its heartbeat is over */
    OWNER_DEAD,   /* permitd's own: the probe says so; `at`: before it was first asked */
    OWNER_SETTLE, /* permitd's own: nothing of the lapse of `at` is held any more */
    OWNER_FORGET, /* permitd's own: remove it if it was settled before `at` */
    OWNER_CALL_KIND_COUNT
};

/* "beat", "gone", ... as in metrics. */
const char *owner_call_word(enum owner_call_kind kind);

/* What is asked. `name` belongs to whoever made it. */
struct owner_call {
    enum owner_call_kind kind;
    struct bytes name;
    int64_t ttl_ms; /* OWNER_BEAT */
    utc_us at;      /* OWNER_DEAD, OWNER_SETTLE, OWNER_FORGET */
};

/* A locked row and what has become of it. */
struct owner_image {
    struct owner owner; /* `name` is set also if there is no row */
    bool was;           /* there was a row */
    bool is;            /* there is one now; !is && !was: nothing to write; was && !is: delete */
    bool changed;
    bool holding; /* the lapse is not settled, and something that ends with it is held, or may be */
};

struct owner_outcome {
    enum permit_status status; /* PERMIT_OK, PERMIT_ENDED, PERMIT_UNKNOWN_OWNER */
    bool created;
    struct owner owner; /* the row after the call, if it exists; its name is the call's, which outlives other calls */
};

/*
 * Decides a call. Calls of permitd's own that find things changed since somebody looked do nothing. Everything that is
 * answered of a row comes with a change of it (`replays`), so that no answer is from a bare read.
 */
void owner_decide(const struct owner_call *call, utc_us now, struct owner_image *image,
                  struct owner_outcome *ret_outcome);
#endif
