/* SPDX-License-Identifier: MIT */
/*
 * The columns of permitd's tables, and the structs that have their rows. SELECT lists, readers (row_reader.h) and writers
 * (row_sql.h) follow from these lists: a new column is a line here, a line in sql/ and a member of the struct.
 *
 *   column   its name in sql/
 *   member   of the struct
 *   type     enum column_type: how the member is written and read; the compiler compares it with the member's type
 *   flags    the statements that write it; 0: none of row_sql.h does
 *
 * Each list is a macro with F for the first column, X for the others, and c, which it passes to both.
 */
#ifndef STORE_TABLES_H
#define STORE_TABLES_H

#include "core/owner.h"
#include "core/template.h"
#include "store/query.h"
#include "store/servers.h"
#include "store/webhooks.h"

/* The types of columns and of their members. A column is NOT NULL unless it says NULL. */
enum column_type {
    COLUMN_U64,
    COLUMN_U32,
    COLUMN_I64,
    COLUMN_INT,
    COLUMN_ENUM,
    COLUMN_ID_OR_NULL,   /* uint64_t; 0 is NULL */
    COLUMN_MS_OR_NULL,   /* int64_t; below 0 (-1 when read) is NULL */
    COLUMN_TIME,         /* utc_us; NEVER is NULL */
    COLUMN_TIME_OR_ZERO, /* utc_us; NEVER and 0 are NULL, which is read as NEVER */
    COLUMN_ENDED,        /* utc_us; NEVER is SQL_HELD */
    COLUMN_BYTES,        /* struct bytes, and so are those below */
    COLUMN_TEXT_OR_NULL, /* in UTF-8; data NULL is NULL */
    COLUMN_LENGTH,       /* the length of a struct bytes; never read */
    COLUMN_DIGEST,       /* of struct request: NULL unless it has_digest */
    COLUMN_WANTED,       /* of struct request: NULL unless it waits */
    COLUMN_SLOTS,        /* of struct permit: text such as 1-3,7 */
    COLUMN_LABELS,       /* of struct permit: one per line, NULL if no slot has one */
    COLUMN_WATCH,        /* of struct place_change: WATCHES_ONE_OF_MANY is added if it wants more slots */
};

/* The statements that write a column. */
enum column_flag {
    COLUMN_INSERT = 1 << 0, /* every INSERT */
    COLUMN_MORE =
        1 << 1, /* the INSERT of a request that is not a plain grant; of permits with labels; of slots that move */
    COLUMN_QUEUE = 1 << 2,   /* the INSERT of a request that waits or has waited; of a semaphore whose queue changes */
    COLUMN_UPDATE = 1 << 3,  /* the UPDATE of a row, if its value has changed */
    COLUMN_COUNT = 1 << 4,   /* the same; the UPDATE adds the difference, modulo 2^32 */
    COLUMN_USAGE = 1 << 5,   /* of a semaphore: each batch */
    COLUMN_SETTING = 1 << 6, /* of a semaphore or template: a change by an operator */
    COLUMN_KEY = 1 << 7,     /* DELETE finds the row by it: the primary key; the compare-and-set of a semaphore */
};

/*
 * Added to waiter.watch of a waiter that wants more slots than the one that it watches: the index finds those, because
 * they reserve the others.
 */
#define WATCHES_ONE_OF_MANY UINT32_C(0x80000000)

/* A row of `permit` to insert. */
struct permit_row {
    struct permit permit;
    uint64_t request_id;
};

/* A row of `held`, with the bits that change in it. */
struct held_row {
    uint64_t semaphore_id;
    uint64_t block;
    uint32_t due_s;
    struct bytes owner;
    uint64_t bits;
    bool clears; /* no bit of it is set */
};

/* A row of `waiting_due`. */
struct waiting_row {
    uint32_t due_s;
    uint64_t request_id;
};

/* A row of `feed`: some events of one batch. */
struct feed_record {
    uint64_t id;
    uint64_t seq;        /* the number of its first event; 0: not numbered yet */
    utc_us at;           /* the database's clock at the batch */
    uint32_t count;      /* of its events */
    struct bytes events; /* feed_event_format, one behind the other */
};

/* clang-format off */

/* permit_request: struct request. `state` is not COLUMN_UPDATE: each UPDATE checks it and sets it. */
#define REQUEST_COLUMNS(F, X, c)                                                                                       \
    F(c, id,                id,             U64,            COLUMN_INSERT)                                             \
    X(c, external_id,       external_id,    BYTES,          COLUMN_INSERT)                                             \
    X(c, digest,            digest,         DIGEST,         COLUMN_INSERT | COLUMN_UPDATE)                             \
    X(c, owner,             owner,          BYTES,          COLUMN_INSERT | COLUMN_UPDATE)                             \
    X(c, principal,         principal,      BYTES,          COLUMN_INSERT | COLUMN_UPDATE)                             \
    X(c, state,             state,          ENUM,           COLUMN_MORE)                                               \
    X(c, end_reason,        end_reason,     ENUM,           COLUMN_MORE | COLUMN_UPDATE)                               \
    X(c, ttl_ms,            ttl_ms,         MS_OR_NULL,     COLUMN_INSERT | COLUMN_UPDATE)                             \
    X(c, due_at,            due_at,         TIME,           COLUMN_INSERT | COLUMN_UPDATE)                             \
    X(c, grace_ms,          grace_ms,       I64,            COLUMN_INSERT | COLUMN_UPDATE)                             \
    X(c, confirmed_at,      confirmed_at,   TIME,           COLUMN_MORE | COLUMN_UPDATE)                               \
    X(c, renewals,          renewals,       U32,            COLUMN_MORE | COLUMN_COUNT)                                \
    X(c, replays,           replays,        U32,            COLUMN_MORE | COLUMN_COUNT)                                \
    X(c, acquired_at,       acquired_at,    TIME,           COLUMN_INSERT | COLUMN_UPDATE)                             \
    X(c, ended_at,          ended_at,       ENDED,          COLUMN_MORE | COLUMN_UPDATE)                               \
    X(c, nonce,             nonce,          BYTES,          COLUMN_INSERT | COLUMN_UPDATE)                             \
    X(c, priority,          priority,       INT,            COLUMN_QUEUE | COLUMN_UPDATE)                              \
    X(c, place,             place,          TIME_OR_ZERO,   COLUMN_QUEUE | COLUMN_UPDATE)                              \
    X(c, waiting_since,     waiting_since,  TIME_OR_ZERO,   COLUMN_QUEUE | COLUMN_UPDATE)                              \
    X(c, waiting_until,     waiting_until,  TIME_OR_ZERO,   COLUMN_QUEUE | COLUMN_UPDATE)                              \
    X(c, server_id,         server_id,      ID_OR_NULL,     COLUMN_QUEUE | COLUMN_UPDATE)                              \
    X(c, wanted,            wanted,         WANTED,         COLUMN_QUEUE | COLUMN_UPDATE)                              \
    X(c, errand,            errand,         U32,            COLUMN_UPDATE)                                             \
    X(c, changes,           changes,        U32,            COLUMN_UPDATE)                                             \
    X(c, change_nonce,      change_nonce,   BYTES,          COLUMN_UPDATE)                                             \
    X(c, has_metadata,      has_metadata,   U32,            COLUMN_INSERT | COLUMN_UPDATE)

/* permit: struct permit, and at the end the column of struct permit_row that is never read. */
#define PERMIT_COLUMNS(F, X, c)                                                                                        \
    F(c, semaphore_id,      permit.semaphore_id, U64,       COLUMN_INSERT | COLUMN_KEY)                                \
    X(c, id,                permit.token,   U64,            COLUMN_INSERT | COLUMN_KEY)                                \
    X(c, count,             permit.count,   I64,            COLUMN_INSERT)                                             \
    X(c, slots,             permit.slots,   SLOTS,          COLUMN_INSERT)                                             \
    X(c, labels,            permit.labels,  LABELS,         COLUMN_MORE)                                               \
    X(c, granted_at,        permit.granted_at, TIME_OR_ZERO, COLUMN_MORE)
#define PERMIT_COLUMNS_WRITTEN(X, c)                                                                                   \
    X(c, permit_request_id, request_id,     U64,            COLUMN_INSERT)

/* past_permit: struct past_permit. */
#define PAST_COLUMNS(F, X, c)                                                                                          \
    F(c, semaphore_id,      permit.semaphore_id, U64,       COLUMN_INSERT)                                             \
    X(c, id,                permit.token,   U64,            COLUMN_INSERT)                                             \
    X(c, count,             permit.count,   I64,            COLUMN_INSERT)                                             \
    X(c, slots,             permit.slots,   SLOTS,          COLUMN_INSERT)                                             \
    X(c, labels,            permit.labels,  LABELS,         COLUMN_INSERT)                                             \
    X(c, granted_at,        permit.granted_at, TIME_OR_ZERO, COLUMN_INSERT)                                            \
    X(c, permit_request_id, request_id,     U64,            COLUMN_INSERT)                                             \
    X(c, changes,           changes,        U32,            COLUMN_INSERT)                                             \
    X(c, ended_at,          ended_at,       TIME,           COLUMN_INSERT)                                             \
    X(c, end_reason,        end_reason,     ENUM,           COLUMN_INSERT)

/*
 * semaphore: struct semaphore; then the settings, in the order of SEMAPHORE_SETTINGS. `version` is a compare-and-set.
 */
#define SEMAPHORE_COLUMNS(F, X, c)                                                                                     \
    F(c, id,                id,             U64,            COLUMN_INSERT | COLUMN_KEY)                                \
    X(c, name,              name,           BYTES,          COLUMN_INSERT)                                             \
    X(c, version,           version,        U64,            COLUMN_INSERT | COLUMN_KEY)                                \
    X(c, in_use,            in_use,         I64,            COLUMN_USAGE)                                              \
    X(c, confirmed,         confirmed,      I64,            COLUMN_USAGE)                                              \
    X(c, next_permit_id,    next_token,     U64,            COLUMN_USAGE)                                              \
    X(c, next_due_at,       next_due_at,    TIME,           COLUMN_USAGE)                                              \
    X(c, first_free,        first_free,     U32,            COLUMN_USAGE)                                              \
    X(c, waiting,           waiting,        I64,            COLUMN_QUEUE)                                              \
    X(c, config_version,    config_version, U64,            COLUMN_SETTING)                                            \
    X(c, paused_reason,     paused_reason,  TEXT_OR_NULL,   COLUMN_SETTING)                                            \
    X(c, retired_at,        retired_at,     TIME,           COLUMN_SETTING)

/* template: struct template; then the settings; at the end the column that is never read. */
#define TEMPLATE_COLUMNS(F, X, c)                                                                                      \
    F(c, prefix,            prefix,         BYTES,          COLUMN_INSERT)                                             \
    X(c, config_version,    settings.config_version, U64,   COLUMN_SETTING)
#define TEMPLATE_COLUMNS_WRITTEN(X, c)                                                                                 \
    X(c, length,            prefix,         LENGTH,         COLUMN_INSERT)

/* waiter: struct place_change. */
#define WAITER_COLUMNS(F, X, c)                                                                                        \
    F(c, semaphore_id,      semaphore_id,   U64,            COLUMN_INSERT | COLUMN_KEY)                                \
    X(c, place,             place,          TIME,           COLUMN_INSERT | COLUMN_KEY)                                \
    X(c, permit_request_id, request_id,     U64,            COLUMN_INSERT | COLUMN_KEY)                                \
    X(c, count,             count,          I64,            COLUMN_INSERT)                                             \
    X(c, watch,             watch,          WATCH,          COLUMN_INSERT)                                             \
    X(c, needs,             needs,          U64,            COLUMN_INSERT)

/* mail: struct mail. */
#define MAIL_COLUMNS(F, X, c)                                                                                          \
    F(c, server_id,         server_id,      U64,            COLUMN_INSERT)                                             \
    X(c, permit_request_id, request_id,     U64,            COLUMN_INSERT)

/* errand: struct request, of a request with an errand. */
#define ERRAND_COLUMNS(F, X, c)                                                                                        \
    F(c, bucket,            bucket,         U32,            COLUMN_KEY)                                                \
    X(c, permit_request_id, id,             U64,            COLUMN_KEY)

/* request_metadata: struct request. */
#define METADATA_COLUMNS(F, X, c)                                                                                      \
    F(c, permit_request_id, id,             U64,            COLUMN_INSERT | COLUMN_KEY)                                \
    X(c, metadata,          metadata,       BYTES,          COLUMN_INSERT | COLUMN_UPDATE)

/* held: struct held_row. */
#define HELD_COLUMNS(F, X, c)                                                                                          \
    F(c, semaphore_id,      semaphore_id,   U64,            COLUMN_INSERT | COLUMN_KEY)                                \
    X(c, block,             block,          U64,            COLUMN_INSERT | COLUMN_KEY)                                \
    X(c, due_s,             due_s,          U32,            COLUMN_INSERT | COLUMN_KEY)                                \
    X(c, owner,             owner,          BYTES,          COLUMN_INSERT | COLUMN_KEY)                                \
    X(c, bits,              bits,           U64,            COLUMN_INSERT)

/* waiting_due: struct waiting_row. */
#define WAITING_COLUMNS(F, X, c)                                                                                       \
    F(c, due_s,             due_s,          U32,            COLUMN_INSERT | COLUMN_KEY)                                \
    X(c, permit_request_id, request_id,     U64,            COLUMN_INSERT | COLUMN_KEY)

/* slot: struct slot_change. With COLUMN_MORE `last_permit_id` carries the replaced token, for the check. */
#define SLOT_COLUMNS(F, X, c)                                                                                          \
    F(c, semaphore_id,      semaphore_id,   U64,            COLUMN_INSERT)                                             \
    X(c, number,            number,         U32,            COLUMN_INSERT)                                             \
    X(c, permit_id,         token,          U64,            COLUMN_USAGE)                                              \
    X(c, last_permit_id,    replaced,       U64,            COLUMN_MORE)

/* owner: struct owner. */
#define OWNER_COLUMNS(F, X, c)                                                                                         \
    F(c, name,              name,           BYTES,          COLUMN_INSERT)                                             \
    X(c, ttl_ms,            ttl_ms,         I64,            COLUMN_INSERT | COLUMN_UPDATE)                             \
    X(c, due_at,            due_at,         TIME,           COLUMN_INSERT | COLUMN_UPDATE)                             \
    X(c, lapsed_at,         lapsed_at,      TIME,           COLUMN_INSERT | COLUMN_UPDATE)                             \
    X(c, settled_at,        settled_at,     TIME,           COLUMN_INSERT | COLUMN_UPDATE)                             \
    X(c, replays,           replays,        U32,            COLUMN_INSERT | COLUMN_UPDATE)

/* server: struct server_row. */
#define SERVER_COLUMNS(F, X, c)                                                                                        \
    F(c, id,                id,             U64,            COLUMN_INSERT)                                             \
    X(c, address,           address,        BYTES,          COLUMN_INSERT)                                             \
    X(c, version,           version,        BYTES,          COLUMN_INSERT)                                             \
    X(c, since,             since,          TIME,           COLUMN_INSERT)                                             \
    X(c, seen_at,           seen_at,        TIME,           COLUMN_INSERT)                                             \
    X(c, ticks,             ticks,          U64,            COLUMN_INSERT)                                             \
    X(c, waiting,           waiting,        U64,            0)

/* semaphore_event: struct event_row. */
#define EVENT_COLUMNS(F, X, c)                                                                                         \
    F(c, id,                id,             U64,            0)                                                         \
    X(c, semaphore_id,      semaphore_id,   U64,            COLUMN_INSERT)                                             \
    X(c, at,                at,             TIME,           COLUMN_INSERT)                                             \
    X(c, who,               who,            BYTES,          COLUMN_INSERT)                                             \
    X(c, what,              what,           BYTES,          COLUMN_INSERT)                                             \
    X(c, from_value,        from,           TEXT_OR_NULL,   COLUMN_INSERT)                                             \
    X(c, to_value,          to,             TEXT_OR_NULL,   COLUMN_INSERT)                                             \
    X(c, why,               why,            TEXT_OR_NULL,   COLUMN_INSERT)                                             \
    X(c, next_permit_id,    next_token,     U64,            COLUMN_INSERT)

/* feed: struct feed_record. Its writers are in batch_feed.c and feed.c. */
#define FEED_COLUMNS(F, X, c)                                                                                          \
    F(c, id,                id,             U64,            0)                                                         \
    X(c, seq,               seq,            ID_OR_NULL,     0)                                                         \
    X(c, at,                at,             TIME,           0)                                                         \
    X(c, count,             count,          U32,            0)                                                         \
    X(c, events,            events,         BYTES,          0)

/* webhook: struct webhook_row. Its writers are in webhooks.c. */
#define WEBHOOK_COLUMNS(F, X, c)                                                                                       \
    F(c, url,               url,            BYTES,          0)                                                         \
    X(c, namings,           namings,        U64,            0)                                                         \
    X(c, epoch,             position.epoch, U64,            0)                                                         \
    X(c, seq,               position.seq,   U64,            0)                                                         \
    X(c, server_id,         server_id,      U64,            0)                                                         \
    X(c, claimed_until,     claimed_until,  TIME,           0)                                                         \
    X(c, failures,          failures,       U64,            0)                                                         \
    X(c, retry_at,          retry_at,       TIME,           0)                                                         \
    X(c, status,            status,         U32,            0)                                                         \
    X(c, error,             error,          BYTES,          0)                                                         \
    X(c, called_at,         called_at,      TIME,           0)                                                         \
    X(c, failing_since,     failing_since,  TIME,           0)

/* A SELECT list: REQUEST_COLUMNS(SELECT_FIRST, SELECT_NEXT, "r.") is "r.id,r.external_id,...". */
#define SELECT_FIRST(alias, column, ...) alias #column
#define SELECT_NEXT(alias, column, ...)  "," alias #column
/* The number of columns: 0 REQUEST_COLUMNS(COLUMN_ONE, COLUMN_ONE, ). */
#define COLUMN_ONE(...) + 1
/* clang-format on */

/* A column, and its member of the struct. */
struct row_column {
    struct bytes set; /* ",name=" */
    enum column_type type;
    unsigned flags;
    size_t offset;
};

static inline struct bytes row_column_name(const struct row_column *column)
{
    return (struct bytes){column->set.data + 1, column->set.length - 2};
}

struct row_table {
    const char *name;
    const struct row_column *columns;
    size_t count;
    size_t read; /* the first of them are those that row_read reads */
};

extern const struct row_table request_table, errand_table, metadata_table, permit_table, past_table, semaphore_table,
    template_table, waiter_table, mail_table, held_table, waiting_table, slot_table, owner_table, server_table,
    event_table, feed_table, webhook_table;
#endif
