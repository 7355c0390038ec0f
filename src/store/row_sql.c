/* SPDX-License-Identifier: MIT */
#include "store/row_sql.h"

#include <assert.h>

#include "store/sql_text.h"

/* Appends the name of a column. */
static void name_sql(const struct row_column *column, struct buf *sql)
{
    struct bytes name = row_column_name(column);
    buf_append(sql, name.data, name.length);
}

/* ---- values ---- */

/* Returns true if the value is a number, which `number` returns; else it is bytes, or slots or labels. */
static bool is_number(const struct row_column *column)
{
    return column->type <= COLUMN_ENDED;
}

static int64_t number(const struct row_column *column, const void *row)
{
    const void *member = (const char *)row + column->offset;
    if (column->type == COLUMN_U32 || column->type == COLUMN_ENUM)
        return *(const uint32_t *)member;
    if (column->type == COLUMN_INT)
        return *(const int *)member;
    int64_t value = *(const int64_t *)member;
    return column->type == COLUMN_TIME_OR_ZERO && value == 0 ? NEVER : value;
}

/* data NULL is NULL, if the column may be NULL. */
static struct bytes bytes(const struct row_column *column, const void *row)
{
    const struct request *request = row;
    if (column->type == COLUMN_DIGEST)
        return request->has_digest ? (struct bytes){(const char *)request->digest, DIGEST_SIZE} : (struct bytes){0};
    if (column->type == COLUMN_WANTED && request->state != REQUEST_WAITING)
        return (struct bytes){0};
    return *(const struct bytes *)((const char *)row + column->offset);
}

static void number_sql(const struct row_column *column, int64_t value, struct buf *sql)
{
    switch (column->type) {
    case COLUMN_U64: buf_append_u64(sql, (uint64_t)value); break;
    case COLUMN_ID_OR_NULL:
        if (value)
            buf_append_u64(sql, (uint64_t)value);
        else
            buf_append(sql, "NULL", 4);
        break;
    case COLUMN_MS_OR_NULL: sql_ms_or_null(sql, value); break;
    case COLUMN_TIME:
    case COLUMN_TIME_OR_ZERO: sql_time(sql, value); break;
    case COLUMN_ENDED: sql_ended(sql, value); break;
    default: buf_append_i64(sql, value); break;
    }
}

static void labels_sql(const struct permit *permit, struct buf *sql)
{
    struct buf text;
    buf_init(&text, LABELS_TEXT_MAX);
    labels_format(permit->labels, permit->slots.count, &text);
    sql_bytes(sql, (struct bytes){text.data, text.length});
    sql->broken |= text.broken;
    buf_release(&text);
}

static void value_sql(const struct row_column *column, const void *row, struct buf *sql)
{
    switch (column->type) {
    case COLUMN_BYTES: sql_bytes(sql, bytes(column, row)); break;
    case COLUMN_DIGEST:
    case COLUMN_WANTED: sql_bytes_or_null(sql, bytes(column, row)); break;
    case COLUMN_TEXT_OR_NULL: sql_text_or_null(sql, bytes(column, row)); break;
    case COLUMN_LENGTH: buf_append_u64(sql, bytes(column, row).length); break;
    case COLUMN_SLOTS:
        buf_append_char(sql, '\'');
        slots_format(&((const struct permit *)row)->slots, sql);
        buf_append_char(sql, '\'');
        break;
    case COLUMN_LABELS:
        if (((const struct permit *)row)->labels)
            labels_sql(row, sql);
        else
            buf_append(sql, "NULL", 4);
        break;
    case COLUMN_WATCH: {
        const struct place_change *place = row;
        buf_append_u64(sql, place->watch && place->count > 1 ? place->watch | WATCHES_ONE_OF_MANY : place->watch);
        break;
    }
    default: number_sql(column, number(column, row), sql); break;
    }
}

/* ---- INSERT ---- */

static void insert_begin_sql(const struct row_insert *insert, struct buf *sql)
{
    const struct row_table *table = insert->table;
    bool first = !insert->more_columns;
    buf_append(sql, "INSERT INTO ", 12);
    buf_append_text(sql, table->name);
    buf_append(sql, " (", 2);
    buf_append_text(sql, first ? "" : insert->more_columns);
    for (const struct row_column *column = table->columns; column < table->columns + table->count; column++) {
        if (!(column->flags & insert->columns))
            continue;
        buf_append(sql, column->set.data + first, column->set.length - 1 - first);
        first = false;
    }
    buf_append(sql, ") VALUES ", 9);
}

void row_insert_sql(struct row_insert *insert, const void *row, struct buf *sql)
{
    const struct row_table *table = insert->table;
    char separator = '(';
    if (insert->rows == BATCH_ROWS_A_STATEMENT)
        row_insert_end_sql(insert, sql);
    if (insert->rows == 0)
        insert_begin_sql(insert, sql);
    else
        buf_append_char(sql, ',');
    insert->rows++;
    if (insert->more_values) {
        buf_append_char(sql, separator);
        buf_append_text(sql, insert->more_values);
        separator = ',';
    }
    for (const struct row_column *column = table->columns; column < table->columns + table->count; column++) {
        if (!(column->flags & insert->columns))
            continue;
        buf_append_char(sql, separator);
        separator = ',';
        if (insert->guard && insert->guard->pending && (column->type == COLUMN_U64 || column->type == COLUMN_U32))
            batch_guarded_value_sql(insert->guard, (uint64_t)number(column, row), sql);
        else
            value_sql(column, row, sql);
    }
    buf_append_char(sql, ')');
}

void row_insert_end_sql(struct row_insert *insert, struct buf *sql)
{
    const struct row_table *table = insert->table;
    if (insert->rows == 0)
        return;
    if (insert->duplicate) {
        buf_append_text(sql, " ON DUPLICATE KEY UPDATE ");
        buf_append_text(sql, insert->duplicate);
    }
    bool first = insert->duplicate && !*insert->duplicate;
    for (const struct row_column *column = table->columns; column < table->columns + table->count; column++) {
        if (!(column->flags & insert->duplicate_columns))
            continue;
        buf_append(sql, column->set.data + first, column->set.length - first);
        buf_append(sql, "VALUES(", 7);
        name_sql(column, sql);
        buf_append_char(sql, ')');
        first = false;
    }
    buf_append_char(sql, ';');
    if (insert->guard && insert->counts)
        *insert->guard = (struct batch_guard){true, insert->counts * insert->rows};
    insert->rows = 0;
}

/* ---- DELETE ---- */

void row_delete_sql(struct row_delete *deletion, const void *row, struct buf *sql)
{
    const struct row_table *table = deletion->table;
    if (deletion->rows == BATCH_ROWS_A_STATEMENT)
        row_delete_end_sql(deletion, sql);
    if (deletion->rows == 0)
        batch_check_guard_sql(deletion->guard, sql);
    bool first = deletion->rows++ == 0;
    if (first) {
        buf_append(sql, "DELETE ", 7);
        buf_append_text(sql, deletion->alias);
        buf_append(sql, " FROM (SELECT", 13);
    } else {
        buf_append(sql, " UNION ALL SELECT", 17);
    }
    char separator = ' ';
    for (const struct row_column *column = table->columns; column < table->columns + table->count; column++) {
        if (!(column->flags & COLUMN_KEY))
            continue;
        buf_append_char(sql, separator);
        buf_append_text(sql, column->type == COLUMN_TIME ? "TIMESTAMP" : "");
        value_sql(column, row, sql);
        separator = ',';
        if (first) {
            buf_append(sql, " AS ", 4);
            name_sql(column, sql);
        }
    }
}

void row_delete_end_sql(struct row_delete *deletion, struct buf *sql)
{
    const struct row_table *table = deletion->table;
    const char *before = " FORCE INDEX (PRIMARY) ON ";
    if (deletion->rows == 0)
        return;
    buf_append_text(sql, ") t STRAIGHT_JOIN ");
    buf_append_text(sql, table->name);
    buf_append_char(sql, ' ');
    buf_append_text(sql, deletion->alias);
    for (const struct row_column *column = table->columns; column < table->columns + table->count; column++) {
        if (!(column->flags & COLUMN_KEY))
            continue;
        buf_append_text(sql, before);
        buf_append_text(sql, deletion->alias);
        buf_append_char(sql, '.');
        name_sql(column, sql);
        buf_append(sql, "=t.", 3);
        name_sql(column, sql);
        before = " AND ";
    }
    buf_append_text(sql, deletion->condition ? deletion->condition : "");
    buf_append_char(sql, ';');
    if (!deletion->condition)
        *deletion->guard = (struct batch_guard){true, deletion->rows};
    deletion->rows = 0;
}

/* ---- UPDATE ---- */

void row_set_sql(const struct row_table *table, unsigned flags, const void *row, bool first, struct buf *sql)
{
    for (const struct row_column *column = table->columns; column < table->columns + table->count; column++) {
        if (!(column->flags & flags))
            continue;
        buf_append(sql, column->set.data + first, column->set.length - first);
        value_sql(column, row, sql);
        first = false;
    }
}

static int compare_bytes(const struct row_column *column, const void *left, const void *right)
{
    struct bytes a = bytes(column, left), b = bytes(column, right);
    int order = column->type == COLUMN_BYTES ? 0 : !b.data - !a.data;
    return order ? order : bytes_compare(a, b);
}

uint32_t row_changed_columns(const struct row_table *table, struct row_change change)
{
    uint32_t changed = 0;
    assert(table->count <= 32);
    for (size_t i = 0; i < table->count; i++) {
        const struct row_column *column = &table->columns[i];
        if (!(column->flags & (COLUMN_UPDATE | COLUMN_COUNT)))
            continue;
        bool differs = is_number(column) ? number(column, change.before) != number(column, change.after)
                                         : compare_bytes(column, change.before, change.after) != 0;
        changed |= differs ? 1u << i : 0;
    }
    return changed;
}

/* Returns the number to write: the new value, or the increment of a counter. */
static int64_t written(const struct row_column *column, struct row_change change)
{
    int64_t after = number(column, change.after);
    return column->flags & COLUMN_COUNT ? (uint32_t)(after - number(column, change.before)) : after;
}

int row_compare_changes(const struct row_table *table, uint32_t columns, struct row_change left,
                        struct row_change right)
{
    int order = 0;
    for (; columns && order == 0; columns &= columns - 1) {
        const struct row_column *column = &table->columns[__builtin_ctz(columns)];
        if (is_number(column)) {
            int64_t a = written(column, left), b = written(column, right);
            order = (a > b) - (a < b);
        } else {
            order = compare_bytes(column, left.after, right.after);
        }
    }
    return order;
}

void row_changes_sql(const struct row_table *table, uint32_t columns, struct row_change change, struct buf *sql)
{
    for (; columns; columns &= columns - 1) {
        const struct row_column *column = &table->columns[__builtin_ctz(columns)];
        buf_append(sql, column->set.data, column->set.length);
        if (column->flags & COLUMN_COUNT) {
            buf_append_text(sql, "4294967295&");
            name_sql(column, sql);
            buf_append_char(sql, '+');
        }
        if (is_number(column))
            number_sql(column, written(column, change), sql);
        else
            value_sql(column, change.after, sql);
    }
}
