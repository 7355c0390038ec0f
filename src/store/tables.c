/* SPDX-License-Identifier: MIT */
#include "store/tables.h"

#include <assert.h>
#include <stddef.h>

/* The member of each type of column. */
typedef unsigned char digest_bytes[DIGEST_SIZE];
#define MEMBER_U64          uint64_t
#define MEMBER_U32          uint32_t
#define MEMBER_I64          int64_t
#define MEMBER_INT          int
#define MEMBER_ENUM         unsigned
#define MEMBER_ID_OR_NULL   uint64_t
#define MEMBER_MS_OR_NULL   int64_t
#define MEMBER_TIME         utc_us
#define MEMBER_TIME_OR_ZERO utc_us
#define MEMBER_ENDED        utc_us
#define MEMBER_BYTES        struct bytes
#define MEMBER_TEXT_OR_NULL struct bytes
#define MEMBER_LENGTH       struct bytes
#define MEMBER_DIGEST       digest_bytes
#define MEMBER_WANTED       struct bytes
#define MEMBER_SLOTS        struct slots
#define MEMBER_LABELS       struct bytes *
#define MEMBER_WATCH        uint32_t

/* The offset of a member that must have the type. NOLINTNEXTLINE(bugprone-macro-parentheses): a type takes none. */
#define OFFSET(row, member, type) (offsetof(row, member) + _Generic(&((row *)0)->member, type * : 0))
/* clang-format off */
#define SET(column) {"," #column "=", sizeof #column + 1}
#define COLUMN(row, column, member, type, flags)                                                                       \
    {SET(column), COLUMN_##type, flags, OFFSET(row, member, MEMBER_##type)},
/* clang-format on */

/* The types of settings as columns (core/semaphore.h). */
#define SETTING_COLUMN_INTEGER            COLUMN_I64
#define SETTING_COLUMN_INTEGER_OR_NONE    COLUMN_MS_OR_NULL
#define SETTING_COLUMN_DURATION           COLUMN_I64
#define SETTING_COLUMN_DURATION_OR_NONE   COLUMN_MS_OR_NULL
#define SETTING_COLUMN_DURATION_OR_STRICT COLUMN_MS_OR_NULL
#define SETTING_COLUMN_CHOICE             COLUMN_ENUM
#define SETTING_COLUMN_TEXT               COLUMN_TEXT_OR_NULL
static_assert(SETTING_NONE + 1 == 0, "NULL of COLUMN_MS_OR_NULL");
#define OF_SEMAPHORE(name, c_type, member, type, ...)                                                                  \
    {SET(member), SETTING_COLUMN_##type, COLUMN_SETTING, offsetof(struct semaphore, member)},
#define OF_TEMPLATE(name, c_type, member, type, ...)                                                                   \
    {SET(member), SETTING_COLUMN_##type, COLUMN_SETTING, offsetof(struct template, settings.member)},

static const struct row_column request_columns[] = {REQUEST_COLUMNS(COLUMN, COLUMN, struct request)};
static const struct row_column errand_columns[] = {ERRAND_COLUMNS(COLUMN, COLUMN, struct request)};
static const struct row_column metadata_columns[] = {METADATA_COLUMNS(COLUMN, COLUMN, struct request)};
/* row_read is given the permit alone. */
static_assert(offsetof(struct permit_row, permit) == 0, "the members of the permit have the same offsets in both");
static const struct row_column permit_columns[] = {PERMIT_COLUMNS(COLUMN, COLUMN, struct permit_row)
                                                       PERMIT_COLUMNS_WRITTEN(COLUMN, struct permit_row)};
static const struct row_column past_columns[] = {PAST_COLUMNS(COLUMN, COLUMN, struct past_permit)};
static const struct row_column semaphore_columns[] = {SEMAPHORE_COLUMNS(COLUMN, COLUMN, struct semaphore)
                                                          SEMAPHORE_SETTINGS(OF_SEMAPHORE)};
static const struct row_column template_columns[] = {TEMPLATE_COLUMNS(
    COLUMN, COLUMN, struct template) SEMAPHORE_SETTINGS(OF_TEMPLATE) TEMPLATE_COLUMNS_WRITTEN(COLUMN, struct template)};
static const struct row_column waiter_columns[] = {WAITER_COLUMNS(COLUMN, COLUMN, struct place_change)};
static const struct row_column mail_columns[] = {MAIL_COLUMNS(COLUMN, COLUMN, struct mail)};
static const struct row_column held_columns[] = {HELD_COLUMNS(COLUMN, COLUMN, struct held_row)};
static const struct row_column waiting_columns[] = {WAITING_COLUMNS(COLUMN, COLUMN, struct waiting_row)};
static const struct row_column slot_columns[] = {SLOT_COLUMNS(COLUMN, COLUMN, struct slot_change)};
static const struct row_column owner_columns[] = {OWNER_COLUMNS(COLUMN, COLUMN, struct owner)};
static const struct row_column server_columns[] = {SERVER_COLUMNS(COLUMN, COLUMN, struct server_row)};
static const struct row_column event_columns[] = {EVENT_COLUMNS(COLUMN, COLUMN, struct event_row)};
static const struct row_column feed_columns[] = {FEED_COLUMNS(COLUMN, COLUMN, struct feed_record)};

static const struct row_column webhook_columns[] = {WEBHOOK_COLUMNS(COLUMN, COLUMN, struct webhook_row)};

#define ROW_TABLE(name, columns, written)                                                                              \
    {                                                                                                                  \
        name, columns, ARRAY_LENGTH(columns), ARRAY_LENGTH(columns) - (written)                                        \
    }

const struct row_table request_table = ROW_TABLE("permit_request", request_columns, 0);
const struct row_table errand_table = ROW_TABLE("errand", errand_columns, 0);
const struct row_table metadata_table = ROW_TABLE("request_metadata", metadata_columns, 0);
const struct row_table permit_table = ROW_TABLE("permit", permit_columns, PERMIT_COLUMNS_WRITTEN(COLUMN_ONE, ));
const struct row_table past_table = ROW_TABLE("past_permit", past_columns, 0);
const struct row_table semaphore_table = ROW_TABLE("semaphore", semaphore_columns, 0);
const struct row_table template_table = ROW_TABLE("template", template_columns, TEMPLATE_COLUMNS_WRITTEN(COLUMN_ONE, ));
const struct row_table waiter_table = ROW_TABLE("waiter", waiter_columns, 0);
const struct row_table mail_table = ROW_TABLE("mail", mail_columns, 0);
const struct row_table held_table = ROW_TABLE("held", held_columns, 0);
const struct row_table waiting_table = ROW_TABLE("waiting_due", waiting_columns, 0);
const struct row_table slot_table = ROW_TABLE("slot", slot_columns, 0);
const struct row_table owner_table = ROW_TABLE("owner", owner_columns, 0);
const struct row_table server_table = ROW_TABLE("server", server_columns, 0);
const struct row_table event_table = ROW_TABLE("semaphore_event", event_columns, 0);
const struct row_table feed_table = ROW_TABLE("feed", feed_columns, 0);
const struct row_table webhook_table = ROW_TABLE("webhook", webhook_columns, 0);
