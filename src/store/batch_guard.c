/* SPDX-License-Identifier: MIT */
#include "store/batch_guard.h"

void batch_guarded_sql(struct batch_guard *guard, const char *column, const char *condition, const char *value,
                       struct buf *sql)
{
    buf_append_text(sql, column);
    buf_append_char(sql, '=');
    if (!condition && !guard->pending) {
        buf_append_text(sql, value);
        return;
    }
    buf_append_text(sql, "IF(");
    buf_append_text(sql, condition ? condition : "1");
    if (guard->pending)
        buf_printf(sql, " AND ROW_COUNT()=%zu", guard->rows);
    buf_append_char(sql, ',');
    buf_append_text(sql, value);
    buf_append_text(sql, ",NULL)");
}

void batch_guarded_value_sql(struct batch_guard *guard, uint64_t value, struct buf *sql)
{
    if (guard->pending)
        buf_printf(sql, "IF(ROW_COUNT()=%zu,%llu,NULL)", guard->rows, (unsigned long long)value);
    else
        buf_append_u64(sql, value);
    guard->pending = false;
}

void batch_check_guard_sql(struct batch_guard *guard, struct buf *sql)
{
    if (guard->pending)
        buf_printf(sql, "SET @guard=9223372036854775807+(ROW_COUNT()<>%zu);", guard->rows);
    guard->pending = false;
}
