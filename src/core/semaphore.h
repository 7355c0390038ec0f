/* SPDX-License-Identifier: MIT */
/*
 * A semaphore: its row, the table of its settings, and the change that a PUT asks for. Row, SQL columns, JSON in and
 * out, options of permitctl, events and templates follow from the table.
 */
#ifndef CORE_SEMAPHORE_H
#define CORE_SEMAPHORE_H

#include <stddef.h>

#include "base/base.h"
#include "base/duration.h"

/* The largest capacity of a counted semaphore: every JSON parser represents it exactly. */
#define COUNTED_MAX_CAPACITY 9007199254740991LL
/* Defaults of a semaphore. */
#define DEFAULT_TTL_MS       (10 * 60 * 1000LL)
#define DEFAULT_MAX_HOLD_MS  (24 * 3600 * 1000LL)
#define PRIORITY_STEP_MS     (30 * 1000LL)
#define PRIORITY_STEP_MAX_MS (24 * 3600 * 1000LL)

/* The numbers below are stored in rows: never change one. They count the words from 1. */
enum semaphore_kind { KIND_SLOTTED = 1, KIND_COUNTED = 2 };
enum semaphore_queue { QUEUE_BACKFILL = 1, QUEUE_FIFO = 2 };
/* Which events of its requests the feed has: none; confirmed, and ended after that; all (core/feed.h). */
enum semaphore_feed { FEED_NONE = 1, FEED_SALES = 2, FEED_ALL = 3 };

/* The words of a choice, the first is that of value 1; NULL at the end. */
extern const char *const semaphore_kind_words[];
extern const char *const semaphore_queue_words[];
extern const char *const semaphore_feed_words[];
/* Return the word of a value, such as "slotted" and "backfill". */
const char *semaphore_kind_word(enum semaphore_kind kind);
const char *semaphore_queue_word(enum semaphore_queue queue);

/* ---- The table of settings ---- */

enum setting_type {
    SETTING_INTEGER,            /* int64_t */
    SETTING_INTEGER_OR_NONE,    /* int64_t, or SETTING_NONE; "none" in requests, absent from answers, NULL in rows */
    SETTING_DURATION,           /* int64_t, in milliseconds */
    SETTING_DURATION_OR_NONE,   /* the same, or SETTING_NONE */
    SETTING_DURATION_OR_STRICT, /* the same; SETTING_NONE is "strict" in requests and in answers */
    SETTING_CHOICE,             /* an enum: the number of its word, from 1 */
    SETTING_TEXT,               /* struct bytes, data NULL: none; its maximum is in bytes */
};

#define SETTING_NONE (-1)

enum {
    SETTING_FIXED = 1 << 0,   /* given when the semaphore is created; never changes */
    SETTING_EVENT = 1 << 1,   /* a change is an event */
    SETTING_OPERATE = 1 << 2, /* shown to the right operate only; a text with a namespace, as a stored key */
};

#define DURATION_EXPECTED "a duration such as \"10m\" or a number of seconds"

/*
 * One row per setting, in the order of requests, answers, events and --help:
 *
 *   name            member of a PUT, and has_NAME in struct semaphore_change
 *   C type, member  in struct semaphore and struct semaphore_change; `member` is also the column of `semaphore` and
 *                   `template`, the member of answers, and the `what` of events
 *   type, flags     SETTING_...
 *   min, max        range
 *   initial         value of a new semaphore; default_ttl: the setting of permitd
 *   words           of a choice, else NULL
 *   expected        end of the message that refuses another value
 *   letter, option, placeholder, help  of permitctl; letter 0: none
 */
/* clang-format off */
#define SEMAPHORE_SETTINGS(X)                                                                                          \
    X(capacity, int64_t, capacity, INTEGER, SETTING_EVENT, 0, COUNTED_MAX_CAPACITY, 0, NULL,                           \
      "a whole number from 0 to 65536 (slotted) or 9007199254740991 (counted)",                                        \
      'c', "capacity", "N", "units; 0: closed; required to create a semaphore")                                        \
    X(kind, enum semaphore_kind, kind, CHOICE, SETTING_FIXED, 0, 0, KIND_SLOTTED, semaphore_kind_words,                \
      "\"slotted\" or \"counted\"",                                                                                    \
      0, "kind", "slotted|counted",                                                                                    \
      "slotted: numbered slots (the default); counted: units without numbers; fixed at creation")                      \
    X(default_ttl, int64_t, default_ttl_ms, DURATION, SETTING_EVENT, 1, DURATION_MAX_MS, DEFAULT_TTL_MS, NULL,         \
      DURATION_EXPECTED " above 0",                                                                                    \
      0, "default-ttl", "TIME", "ttl of requests that set none")                                                       \
    X(max_ttl, int64_t, max_ttl_ms, DURATION_OR_NONE, SETTING_EVENT, 1, DURATION_MAX_MS, SETTING_NONE, NULL,           \
      DURATION_EXPECTED " above 0, or \"none\"",                                                                       \
      0, "max-ttl", "TIME", "longest ttl accepted; none: no limit")                                                    \
    X(grace, int64_t, grace_ms, DURATION, SETTING_EVENT, 0, DURATION_MAX_MS, 0, NULL,                                  \
      DURATION_EXPECTED,                                                                                               \
      0, "grace", "TIME", "extra time before an expired permit is ended")                                              \
    X(max_hold, int64_t, max_hold_ms, DURATION, SETTING_EVENT, 1, DURATION_MAX_MS, DEFAULT_MAX_HOLD_MS, NULL,          \
      DURATION_EXPECTED " above 0",                                                                                    \
      0, "max-hold", "TIME", "longest hold of requests without a ttl")                                                 \
    X(queue, enum semaphore_queue, queue, CHOICE, SETTING_EVENT, 0, 0, QUEUE_BACKFILL, semaphore_queue_words,          \
      "\"backfill\" or \"fifo\"",                                                                                      \
      0, "queue", "backfill|fifo",                                                                                     \
      "waitlist order: fifo, or backfill (a request that fits may pass one that does not)")                            \
    X(max_waiters, int64_t, max_waiters, INTEGER_OR_NONE, SETTING_EVENT, 0, 1000000, SETTING_NONE, NULL,               \
      "a whole number from 0 to 1000000, or \"none\"",                                                                 \
      0, "max-waiters", "N", "maximum number of requests that wait for it; none: no limit")                            \
    X(max_priority, int64_t, max_priority, INTEGER, SETTING_EVENT, 0, 9, 9, NULL,                                      \
      "a whole number from 0 to 9",                                                                                    \
      0, "max-priority", "N", "highest priority that a waiting request may have")                                      \
    X(priority_step, int64_t, priority_step_ms, DURATION_OR_STRICT, SETTING_EVENT, 1, PRIORITY_STEP_MAX_MS,            \
      PRIORITY_STEP_MS, NULL, "a duration above 0, at most \"1d\", or \"strict\"",                                     \
      0, "priority-step", "TIME", "waiting time that one step of priority is worth; strict: a higher one is first")    \
    X(feed, enum semaphore_feed, feed, CHOICE, SETTING_EVENT, 0, 0, FEED_NONE, semaphore_feed_words,                   \
      "\"none\", \"sales\" or \"all\"",                                                                                \
      0, "feed", "none|sales|all",                                                                                     \
      "events in the feed: sales and their ends, or all; all needs the right admin")                                   \
    X(feed_url, struct bytes, feed_url, TEXT, SETTING_OPERATE, 0, 1024, 0, NULL,                                       \
      "an http or https URL of at most 1024 bytes, or \"\" for none",                                                  \
      0, "feed-url", "URL", "URL to which events of the feed are sent; '' for none")                                   \
    X(note, struct bytes, note, TEXT, 0, 0, 1000, 0, NULL,                                                             \
      "a text of at most 1000 bytes",                                                                                  \
      0, "note", "TEXT", "free text")

/* A row becomes a number, a member of a struct, and its has_NAME. */
#define SETTING_INDEX(name, ...)                  SETTING_##name,
#define SETTING_MEMBER(name, c_type, member, ...) c_type member;
#define SETTING_HAS(name, ...)                    bool has_##name;
/* clang-format on */

/* The settings by number: SETTING_capacity, ... */
enum setting_index { SEMAPHORE_SETTINGS(SETTING_INDEX) SETTING_COUNT };

/* ---- The structs ---- */

/* Value of first_free: the capacity has shrunk, and slots above it may still be held. */
enum { FIRST_FREE_SHRUNK = 0 };

/* A row of `semaphore`. */
struct semaphore {
    uint64_t id;
    struct bytes name;
    SEMAPHORE_SETTINGS(SETTING_MEMBER)
    int64_t in_use;
    int64_t confirmed; /* units of in_use whose request is confirmed: only a refund or an operator ends it */
    int64_t waiting;   /* places in its queue that a client asks for: its WAITING requests with a server_id */
    uint64_t next_token;
    uint64_t version;
    uint64_t config_version;
    utc_us next_due_at;  /* lower bound of the earliest deadline among its holders (lease clock); NEVER: no holder
                            has one */
    uint32_t first_free; /* lower bound of the lowest free slot, or FIRST_FREE_SHRUNK; slotted only */
    struct bytes paused_reason; /* data NULL: not paused */
    utc_us retired_at;          /* NEVER: in service */
};

enum { MATCH_MAX = 16 };

struct seat; /* best.h */

/* The body and preconditions of PUT /v1/semaphores/{name}: an absent member keeps its value. */
struct semaphore_change {
    bool has_labels;            /* the only member that OP_SEMAPHORE_LABELS uses, besides the preconditions */
    const struct bytes *labels; /* labels of the slots from labels_from on; data NULL: none. Later slots keep theirs */
    size_t label_count;
    uint32_t labels_from;     /* number of the first slot, from 1 */
    const struct seat *seats; /* one per label: the new descriptions, without numbers; NULL: all slots keep theirs */
    SEMAPHORE_SETTINGS(SETTING_HAS)
    SEMAPHORE_SETTINGS(SETTING_MEMBER)
    bool if_none_match; /* If-None-Match: * : create only */
    bool if_exists;     /* If-Match: * : change only */
    size_t match_count; /* above 0: If-Match: change only if config_version is one of these */
    uint64_t config_versions[MATCH_MAX];
};

/*
 * Returns the minimum token of the next grant. Tokens are at least epoch << 10, which is above every token issued by a
 * server whose last commits were lost.
 */
static inline uint64_t semaphore_next_token(uint64_t next_token, uint64_t epoch)
{
    return next_token > epoch << 10 ? next_token : epoch << 10;
}

/*
 * Returns the waiting time that one step of priority is worth in the queue of this semaphore. strict: a year, longer
 * than a request waits.
 */
static inline int64_t semaphore_priority_step_us(const struct semaphore *semaphore)
{
    bool strict = semaphore->priority_step_ms == SETTING_NONE;
    return strict ? 365LL * 86400 * US_PER_SECOND : semaphore->priority_step_ms * US_PER_MS;
}

/* ---- Loops over the settings ---- */

/* A row of the table. The columns that are missing here are for the tables of http and permitctl. */
struct semaphore_setting {
    const char *name;
    const char *column;
    enum setting_type type;
    unsigned flags;
    int64_t initial;
    const char *const *words;
    const char *option;
    size_t size;          /* of the value */
    size_t offset;        /* of the value in struct semaphore */
    size_t change_offset; /* of the value in struct semaphore_change */
    size_t has_offset;    /* of its bool there */
};

extern const struct semaphore_setting semaphore_settings[SETTING_COUNT];

static inline bool setting_is_number(const struct semaphore_setting *setting)
{
    return setting->type <= SETTING_DURATION_OR_STRICT;
}

/* Returns the word for SETTING_NONE. */
static inline const char *setting_none_word(const struct semaphore_setting *setting)
{
    return setting->type == SETTING_DURATION_OR_STRICT ? "strict" : "none";
}

/* Returns the value of a number, or of a choice, as in its column, with SETTING_NONE for NULL. */
static inline int64_t setting_number(const struct semaphore_setting *setting, const struct semaphore *semaphore)
{
    const char *value = (const char *)semaphore + setting->offset;
    return setting_is_number(setting) ? *(const int64_t *)value : *(const int *)value;
}

static inline void setting_set_number(const struct semaphore_setting *setting, struct semaphore *semaphore,
                                      int64_t number)
{
    char *value = (char *)semaphore + setting->offset;
    if (setting_is_number(setting))
        *(int64_t *)value = number;
    else
        *(int *)value = (int)number;
}

/* Returns the value of a text, or the word of a choice. data NULL: none, or a number. */
struct bytes setting_text(const struct semaphore_setting *setting, const struct semaphore *semaphore);
/* Copies no bytes. */
static inline void setting_set_text(const struct semaphore_setting *setting, struct semaphore *semaphore,
                                    struct bytes text)
{
    *(struct bytes *)((char *)semaphore + setting->offset) = text;
}

/* Returns the free units: none while more are held than a lowered capacity allows. */
static inline int64_t semaphore_available(const struct semaphore *semaphore)
{
    return max_i64(0, semaphore->capacity - semaphore->in_use);
}

/* Sets all settings to their initial values, except those that never change. */
void semaphore_reset(struct semaphore *semaphore, int64_t default_ttl_ms);
/* Sets the settings that the change has, except those that never change. */
void semaphore_apply(struct semaphore *semaphore, const struct semaphore_change *change);
bool semaphore_same_settings(const struct semaphore *a, const struct semaphore *b);
/* Sets all settings of the change to those of the semaphore; leaves out a text that is not set. */
void semaphore_change_all(const struct semaphore *semaphore, struct semaphore_change *change);
#endif
