/* SPDX-License-Identifier: MIT */
/*
 * The rows of requests and permits as structs, and the contents of a client's request. A request holds permits of one
 * or more semaphores, all or none; its key is the external_id.
 */
#ifndef CORE_REQUEST_H
#define CORE_REQUEST_H

#include "base/arena.h"
#include "base/base.h"
#include "base/digest.h"
#include "core/semaphore.h"
#include "core/slots.h"
#include "permit/status.h"

enum {
    REQUEST_MAX_SEMAPHORES = 64,
    METADATA_MAX_BYTES = 2048,
};

/* The numbers below are stored in rows: never change one. */
enum request_state {
    REQUEST_ACQUIRED = 1,
    REQUEST_RELEASED = 2, /* one way: neither of the others follows it */
    REQUEST_WAITING = 3,  /* becomes ACQUIRED, or RELEASED as never_held, or its row is deleted */
};
enum end_reason {
    END_NONE = 0, /* still held */
    END_RELEASED = 1,
    END_EXPIRED = 2,
    END_OWNER_DEAD = 3,
    END_STALE = 4,
    END_FORCED = 5,
    END_NEVER_HELD = 6, /* a tombstone: the release came before the acquire, or before the grant */
    END_REASON_COUNT,   /* of the reasons above, of requests */
    END_REPLACED = 7,   /* of a permit alone: its request was held on under another token */
    PERMIT_END_COUNT,   /* of all reasons */
};

/* Return the word of a value, such as "ACQUIRED", "expired" (NULL for END_NONE). */
const char *request_state_word(enum request_state state);
const char *end_reason_word(enum end_reason reason);

/* A row of `permit`. */
struct permit {
    uint64_t semaphore_id;
    uint64_t token; /* the row's id; strictly increasing within the semaphore */
    int64_t count;
    struct slots slots;   /* empty if counted */
    struct bytes *labels; /* one per slot, as of the grant; length 0: none. NULL: no slot had one */
    utc_us granted_at;    /* when an exchange made the token, lease clock; NEVER or 0: with its request */
};

/* Special values of ttl_ms. TTL_BY_OWNER is stored in rows: never change it. */
#define TTL_NONE     (-1LL) /* until released, or stale */
#define TTL_BY_OWNER 0LL    /* as long as the owner's heartbeat; has no deadline of its own */

struct want;

/* The ttl of a request, as sent. */
enum ttl_kind {
    TTL_ABSENT,    /* absent: the smallest default of the semaphores; in a renew: as before */
    TTL_DURATION,  /* `ms` */
    TTL_UNLIMITED, /* "none" */
    TTL_OWNER      /* "owner": as long as the heartbeat of the named owner */
};

struct ttl {
    enum ttl_kind kind;
    int64_t ms;
};

enum { PRIORITY_MAX = 9 };
/*
 * How long a place is kept that no client asks for, and how long a grant lasts that its client has not claimed. Lease
 * clock.
 */
#define PLACE_KEPT_US (10LL * US_PER_SECOND)

/*
 * Marks that procedures set in a row, in a transaction of their caller, as bits (docs/design.md, "Errands"). A batch
 * settles them under the locks of all semaphores, before it decides anything about the row.
 */
enum errand {
    ERRAND_CONFIRM = 1 << 0,
    ERRAND_RELEASE = 1 << 1,
};
enum { ERRAND_BUCKETS = 64 };

/*
 * A batch waits for no row of a request: a shop's transaction may hold it for long. It locks each row that it writes
 * before it reads it, or else in the packet that writes it.
 */
enum lock_state {
    ROW_NOT_LOCKED,
    ROW_LOCKED,           /* by this batch */
    ROW_LOCKED_ELSEWHERE, /* by another session: this batch does not write it */
};

/*
 * A row of `permit_request` with its permits. Times are lease clock.
 *
 * A WAITING request has no permits. It has a place in the queue of each semaphore that it wants: a row of `waiter`.
 * `server_id` is the permitd at which its client waits; 0: no client asks for it. Then it is in nobody's way, and after
 * due_at its rows are deleted. A request whose server is dead counts as one without a server.
 *
 * An ACQUIRED request with a server_id is unclaimed: a batch granted it on behalf of a client that waits at that
 * server, and no client has been told. It is due PLACE_KEPT_US after the grant. The answer to its client claims it:
 * server_id becomes 0, and the ttl counts from then.
 */
struct request {
    uint64_t id;
    struct bytes external_id;
    struct bytes owner;     /* length 0: none */
    struct bytes principal; /* the authenticated client, if credentials are configured; length 0: unknown */
    struct bytes nonce;     /* nonce of the granted acquire; length 0: none. Never shown */
    bool has_digest;        /* a tombstone has none */
    unsigned char digest[DIGEST_SIZE];
    enum request_state state;
    enum end_reason end_reason;
    int64_t ttl_ms; /* or TTL_NONE, TTL_BY_OWNER */
    utc_us due_at;  /* held: when permitd may end it; ended or waiting: when it may be deleted; NEVER: neither */
    int64_t grace_ms;
    utc_us confirmed_at; /* NEVER: not confirmed. With ERRAND_CONFIRM: by the database's clock */
    uint32_t renewals;
    uint32_t replays;
    utc_us acquired_at; /* NEVER: never held */
    utc_us ended_at;    /* NEVER: still held */
    struct permit *permits;
    size_t permit_count;
    uint32_t changes;          /* exchanges of its permits so far */
    struct bytes change_nonce; /* nonce of the last one; length 0: none. Never shown */

    uint64_t server_id; /* WAITING: where its client waits; ACQUIRED: unclaimed since then; 0: neither */
    int priority;       /* 0 to PRIORITY_MAX */
    utc_us place;       /* order in all its queues, ties by id: lease clock at entry - priority * the smallest
                           priority_step of its semaphores */
    utc_us waiting_since, waiting_until;
    struct bytes wanted; /* WAITING: ttl and wants in canonical form (wants_encode); data NULL: none */
    struct ttl ttl;      /* WAITING: as asked; decoded from `wanted` */
    struct want *wants;  /* WAITING: the same; their semaphore names are empty */
    size_t want_count;

    struct bytes metadata; /* not in the row: a JSON object. In a plan: what the batch writes; data NULL: nothing */
    uint32_t has_metadata; /* 1: it may have metadata; 0: it has none */
    uint32_t errand;       /* of enum errand; 0: none */
    uint32_t bucket;       /* not in the row: of its row of `errand`, if that is there; ERRAND_BUCKETS: it is not */
    enum lock_state lock;  /* not in the row */
};

/* The free slots that a permit takes. Counted semaphores use CHOOSE_LOWEST. */
enum slot_choice {
    CHOOSE_LOWEST, /* `count` of all, the lowest numbers first */
    CHOOSE_NAMED,  /* all the named slots, or none; `count` is their number */
    CHOOSE_ANY_OF, /* `count` of the named slots, the lowest numbers first */
    CHOOSE_BEST,   /* `count` of all, by their seats (best.h) */
};

/* One permit wanted by an acquire. */
struct want {
    struct bytes semaphore;
    uint64_t semaphore_id; /* set by resolve; 0: unknown */
    int64_t count;
    enum slot_choice choice;
    bool adjacent;           /* adjacent numbers, the lowest free run; not with CHOOSE_NAMED */
    struct slot_name *named; /* CHOOSE_NAMED, CHOOSE_ANY_OF: numbers ascending, then labels in byte order; no
                                duplicates */
    size_t named_count;      /* at most SLOTS_MAX_COUNT */
    struct bytes best;       /* CHOOSE_BEST: the form of the wish (best_encode) */
    int64_t own;             /* exchange: units of it that the request itself gives back for this */
};

/* The semaphores of a request: those of which it has permits, or those that it waits for. */
static inline size_t request_semaphore_count(const struct request *request)
{
    return request->state == REQUEST_WAITING ? request->want_count : request->permit_count;
}
static inline uint64_t request_semaphore_id(const struct request *request, size_t index)
{
    return request->state == REQUEST_WAITING ? request->wants[index].semaphore_id
                                             : request->permits[index].semaphore_id;
}
/* Returns the permit of a semaphore; NULL: it has none. */
const struct permit *request_permit_of(const struct request *request, uint64_t semaphore_id);

/* Returns true if any free slot may be among the best choice: all of them are read for the want. */
static inline bool want_searches_all(const struct want *want)
{
    return (want->adjacent && !want->named_count) || want->choice == CHOOSE_BEST;
}
/*
 * Returns true if the want is for specific slots: a free unit may be of no use to it. A waiter with such a want does
 * not block other waiters.
 */
bool want_is_specific(const struct want *want);
bool wants_are_specific(const struct want *wants, size_t want_count);
/* Sorts the named slots. PERMIT_INVALID: duplicate number or label. */
enum permit_status want_sort_named(struct want *want) MUST_CHECK;

/*
 * Computes the digest of an acquire: SHA-256 of owner, ttl as sent (an absent ttl differs from the same default), and
 * the wants, sorted by name, with count, choice and named slots. The key, `wait`, the order of members and white space
 * do not count. False: out of memory.
 */
bool request_digest(struct bytes owner, struct ttl ttl, const struct want *wants, size_t want_count,
                    unsigned char ret_digest[DIGEST_SIZE]) MUST_CHECK;

/*
 * Encodes the ttl and the wants of a waiting request, by semaphore id, in a canonical form, so that any permitd can
 * decide it. The bytes are stored in rows: never change the form. Every want has its semaphore_id. Returns the form in
 * the arena; data NULL: out of memory.
 */
struct bytes wants_encode(struct ttl ttl, const struct want *wants, size_t want_count, struct arena *arena);
/*
 * Decodes it into the arena, wants ascending by semaphore id; their names are empty. PERMIT_INTERNAL: not a canonical
 * form; PERMIT_NO_MEMORY. The outputs are then untouched. The result points into `form`.
 */
enum permit_status wants_decode(struct bytes form, struct arena *arena, struct ttl *ret_ttl, struct want **ret_wants,
                                size_t *ret_want_count) MUST_CHECK;
/* Returns true if two forms want the same, whatever their ttl. */
bool wants_same_needs(struct bytes form, struct bytes other);
/*
 * Returns a hash of what the form wants, without the ttl; never the same for different wants, but by chance. 0: none.
 */
uint64_t wants_needs(struct bytes form);
/* Sorts by name. PERMIT_INVALID: duplicate semaphore. */
enum permit_status wants_sort(struct want *wants, size_t want_count) MUST_CHECK;

/*
 * Returns the client's deadline (lease clock): due_at without the grace, which that of an unclaimed grant does not
 * have; NEVER if there is none, or the request waits or has ended.
 */
utc_us request_expires_at(const struct request *request);
/* Compares two positions in a queue: by place, then by the id of the request. Negative: the first stands before. */
int place_compare(utc_us place, uint64_t id, utc_us other_place, uint64_t other_id);
/* The same of two requests. */
int request_compare_places(const struct request *request, const struct request *other);
/* Compares two requests by key (external_id), for qsort and bsearch. */
int request_compare_keys(const void *request, const void *other);
#endif
