/* SPDX-License-Identifier: MIT */
/*
 * The rows of the data model as the core sees them, and what a client may ask for.
 * A request holds permits of one or more semaphores, all of them or none; its key is the external_id.
 */
#ifndef CORE_REQUEST_H
#define CORE_REQUEST_H

#include "base/arena.h"
#include "base/base.h"
#include "base/digest.h"
#include "core/slots.h"
#include "permit/status.h"

enum {
    REQUEST_MAX_SEMAPHORES = 64,
};
/* The largest capacity of a counted semaphore: exact in a JSON number everywhere. */
#define COUNTED_MAX_CAPACITY 9007199254740991LL
/* What a semaphore has when nobody said otherwise. */
#define DEFAULT_TTL_MS       (10 * 60 * 1000LL)
#define DEFAULT_MAX_HOLD_MS  (24 * 3600 * 1000LL)

/* The numbers below stand in rows: never change one. */
enum semaphore_kind { KIND_SLOTTED = 1, KIND_COUNTED = 2 };
enum semaphore_queue { QUEUE_BACKFILL = 1, QUEUE_FIFO = 2 };
enum request_state { REQUEST_ACQUIRED = 1, REQUEST_RELEASED = 2 }; /* one way */
enum end_reason {
    END_NONE = 0, /* still held */
    END_RELEASED = 1,
    END_EXPIRED = 2,
    END_OWNER_DEAD = 3,
    END_STALE = 4,
    END_FORCED = 5,
    END_NEVER_HELD = 6, /* a tombstone: the release came before the acquire */
    END_REASON_COUNT
};

/* "slotted", "backfill", "ACQUIRED", "expired" (NULL for END_NONE). */
const char *semaphore_kind_word(enum semaphore_kind kind);
const char *semaphore_queue_word(enum semaphore_queue queue);
const char *request_state_word(enum request_state state);
const char *end_reason_word(enum end_reason reason);

/* The capacity has shrunk, and slots above it may still be held. */
enum { FIRST_FREE_SHRUNK = 0 };

/* A row of `semaphore`. */
struct semaphore {
    uint64_t id;
    struct bytes name;
    enum semaphore_kind kind;
    enum semaphore_queue queue;
    int64_t capacity;
    int64_t in_use;
    uint64_t next_permit_id;
    uint64_t version;
    uint64_t config_version;
    utc_us next_due_at;  /* served time; NEVER: no holder has a deadline */
    uint32_t first_free; /* a lower bound of the lowest free slot, or FIRST_FREE_SHRUNK; slotted only */
    int64_t default_ttl_ms;
    int64_t max_ttl_ms; /* -1: no maximum */
    int64_t grace_ms;
    int64_t max_hold_ms;
    struct bytes paused_reason; /* data NULL: not paused */
    struct bytes note;          /* data NULL: none */
    utc_us retired_at;          /* NEVER: in service */
};

/*
 * What its next grant gets at least: "a grant's token is at least epoch << 10", above all that a lost tail handed out.
 */
static inline uint64_t semaphore_next_token(uint64_t next_permit_id, uint64_t epoch)
{
    return next_permit_id > epoch << 10 ? next_permit_id : epoch << 10;
}

/* A row of `permit`. */
struct permit {
    uint64_t semaphore_id;
    uint64_t token; /* its id: rises strictly within the semaphore */
    int64_t count;
    struct slots slots;   /* empty if counted */
    struct bytes *labels; /* one per slot, as they were when it was granted; length 0: none. NULL: none at all */
};

/* Values of ttl_ms that are no duration. The second stands in rows: never change it. */
#define TTL_NONE     (-1LL) /* until released, or stale */
#define TTL_BY_OWNER 0LL    /* as long as the owner's heartbeat; never due by itself */

/* A row of `permit_request` with its permits. Times are served time. */
struct request {
    uint64_t id;
    struct bytes external_id;
    struct bytes owner;     /* length 0: none was named */
    struct bytes principal; /* who asked, once there are credentials; length 0: nobody known */
    struct bytes nonce;     /* of the acquire that was granted; length 0: it had none. Shown to nobody */
    bool has_digest;        /* a tombstone has none */
    unsigned char digest[DIGEST_SIZE];
    enum request_state state;
    enum end_reason end_reason;
    int64_t ttl_ms; /* or TTL_NONE, TTL_BY_OWNER */
    utc_us due_at;  /* while held: when permitd may end it; after the end: when it may be deleted; NEVER: not at all */
    int64_t grace_ms;
    utc_us confirmed_at; /* NEVER: not confirmed */
    uint32_t renewals;
    uint32_t replays;
    utc_us acquired_at; /* NEVER: it never held anything */
    utc_us ended_at;    /* NEVER: still held */
    struct permit *permits;
    size_t permit_count;
};

/* How long a client wants to hold, as it was said. */
enum ttl_kind {
    TTL_ABSENT,    /* not said: the smallest default of the semaphores; in a renew: as before */
    TTL_DURATION,  /* `ms` */
    TTL_UNLIMITED, /* "none" */
    TTL_OWNER      /* "owner": as long as the heartbeat of the owner that is named */
};

struct ttl {
    enum ttl_kind kind;
    int64_t ms;
};

/* Which of the free slots a permit takes. The first for counted semaphores, too. */
enum slot_choice {
    CHOOSE_LOWEST, /* `count` of all, the lowest numbers first */
    CHOOSE_NAMED,  /* exactly those that are named, all or none; `count` is how many they are */
    CHOOSE_ANY_OF, /* `count` of those that are named, the lowest numbers first */
};

/* One permit that an acquire wants. */
struct want {
    struct bytes semaphore;
    uint64_t semaphore_id; /* filled in by step 0; 0: not known */
    int64_t count;
    enum slot_choice choice;
    bool adjacent;           /* numbers that follow each other, the lowest such; not with CHOOSE_NAMED */
    struct slot_name *named; /* CHOOSE_NAMED, CHOOSE_ANY_OF: numbers ascending, then labels in byte order; each once */
    size_t named_count;      /* at most SLOTS_MAX_COUNT */
};

/* True if a free unit may be of no use to it. Who waits so keeps nobody else from what is free. */
bool want_is_certain(const struct want *want);
bool wants_are_certain(const struct want *wants, size_t want_count);
/* The memory that the slots take which they name. */
size_t wants_named_size(const struct want *wants, size_t want_count);
/* True if this slot is among those that are named (sorted by want_sort_named). */
bool want_names_slot(const struct want *want, uint32_t number, struct bytes label);
/* Sorts the named slots; PERMIT_INVALID: the same number or label twice. */
enum permit_status want_sort_named(struct want *want) MUST_CHECK;

/*
 * The digest of an acquire: SHA-256 of owner, ttl as sent (absent is not the same as the default) and the wants, which
 * are sorted by name, with count, choice, named slots. Not of the key, `wait`, the order of members or white space.
 * False: no memory.
 */
bool request_digest(struct bytes owner, struct ttl ttl, const struct want *wants, size_t want_count,
                    unsigned char ret_digest[DIGEST_SIZE]) MUST_CHECK;
/* Sorts by name. The same semaphore twice is PERMIT_INVALID. */
enum permit_status wants_sort(struct want *wants, size_t want_count) MUST_CHECK;

/* The deadline that the client is told, in served time: due_at without the grace; NEVER if it has none or has ended. */
utc_us request_expires_at(const struct request *request);
#endif
