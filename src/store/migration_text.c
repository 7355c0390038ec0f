/* SPDX-License-Identifier: MIT */
#include "store/migration_text.h"

#include <ctype.h>
#include <limits.h>
#include <strings.h>

/* ---- statements ---- */

/* True if there is SQL in it, and not only blanks and comments, which a server calls an empty query. */
static bool statement_says_something(struct bytes text)
{
    bool comment = false;
    for (size_t i = 0; i < text.length; i++) {
        char byte = text.data[i];
        if (byte == '\n')
            comment = false;
        else if (!comment && byte == '-' && i + 1 < text.length && text.data[i + 1] == '-')
            comment = true;
        else if (!comment && byte != ' ' && byte != '\t' && byte != '\r')
            return true;
    }
    return false;
}

bool statement_next(const char **text, struct bytes *ret_statement)
{
    while (**text) {
        const char *start = *text;
        const char *end = strstr(start, ";\n");
        size_t length = end ? (size_t)(end - start) : strlen(start);
        *text = end ? end + 2 : start + length;
        *ret_statement = (struct bytes){start, length};
        if (statement_says_something(*ret_statement))
            return true;
    }
    return false;
}

/* ---- words ---- */

/* The words and signs of a statement, one after the other. */
struct reading {
    struct bytes rest;
    struct bytes token; /* a word without its backticks, a string with its quotes, one other byte; length 0: the end */
    int depth;          /* of parentheses, behind the token */
};

static bool is_word_byte(char byte)
{
    return isalnum((unsigned char)byte) || byte == '_' || byte == '$';
}

static void reading_skip(struct reading *reading, size_t length)
{
    reading->rest = (struct bytes){reading->rest.data + length, reading->rest.length - length};
}

/* Blanks, and comments to the end of their line. */
static void reading_skip_blanks(struct reading *reading)
{
    for (;;) {
        struct bytes rest = reading->rest;
        if (rest.length > 0 && isspace((unsigned char)rest.data[0])) {
            reading_skip(reading, 1);
        } else if (rest.length > 1 && rest.data[0] == '-' && rest.data[1] == '-') {
            const char *end = memchr(rest.data, '\n', rest.length);
            reading_skip(reading, end ? (size_t)(end - rest.data) : rest.length);
        } else {
            return;
        }
    }
}

/* How long the token at the beginning of `rest` is. Quotes within a string are doubled: it reads as two strings. */
static size_t token_length(struct bytes rest)
{
    size_t length = 1;
    if (rest.data[0] == '\'' || rest.data[0] == '`') {
        const char *end = memchr(rest.data + 1, rest.data[0], rest.length - 1);
        return end ? (size_t)(end - rest.data) + 1 : rest.length;
    }
    while (is_word_byte(rest.data[0]) && length < rest.length && is_word_byte(rest.data[length]))
        length++;
    return length;
}

static void reading_next(struct reading *reading)
{
    reading_skip_blanks(reading);
    struct bytes rest = reading->rest;
    size_t length = rest.length ? token_length(rest) : 0;
    reading->token = (struct bytes){rest.data, length};
    if (length == 0)
        return;
    reading_skip(reading, length);
    if (rest.data[0] == '(')
        reading->depth++;
    else if (rest.data[0] == ')')
        reading->depth--;
    else if (rest.data[0] == '`' && length > 1)
        reading->token = (struct bytes){rest.data + 1, length - 2};
}

static bool reading_is(const struct reading *reading, const char *word)
{
    return bytes_equal(reading->token, bytes_of(word));
}

/* Goes on if this is the next word. */
static bool reading_take(struct reading *reading, const char *word)
{
    bool taken = reading_is(reading, word);
    if (taken)
        reading_next(reading);
    return taken;
}

/* Behind the next ',' at this depth of parentheses; false: what is at this depth ends before one comes. */
static bool reading_next_item(struct reading *reading, int depth)
{
    while (reading->token.length && reading->depth >= depth) {
        bool separated = reading->depth == depth && reading_is(reading, ",");
        reading_next(reading);
        if (separated)
            return true;
    }
    return false;
}

/* ---- tables ---- */

/* Upper and lower case are the same for a server, in names of columns always, in those of tables on some systems. */
static bool same_name(struct bytes a, struct bytes b)
{
    return a.length == b.length && strncasecmp(a.data, b.data, a.length) == 0;
}

struct table *tables_find(struct tables *tables, struct bytes name)
{
    for (size_t i = 0; i < tables->count; i++)
        if (same_name(tables->list[i].name, name))
            return &tables->list[i];
    return NULL;
}

/* Finds or adds it; NULL: there is no room. */
static struct table *tables_add(struct tables *tables, struct bytes name)
{
    struct table *table = tables_find(tables, name);
    if (table || tables->count == TABLES_MAX)
        return table;
    table = &tables->list[tables->count++];
    *table = (struct table){.name = name};
    return table;
}

static bool table_add_column(struct table *table, struct bytes name)
{
    if (table->column_count == COLUMNS_MAX)
        return false;
    table->columns[table->column_count++] = name;
    return true;
}

static void table_drop_column(struct table *table, struct bytes name)
{
    size_t kept = 0;
    for (size_t i = 0; i < table->column_count; i++)
        if (!same_name(table->columns[i], name))
            table->columns[kept++] = table->columns[i];
    table->column_count = kept;
}

/* What a definition within CREATE TABLE, ADD or DROP begins with if it is none of a column. */
static bool is_no_column(const struct reading *reading)
{
    static const char *const words[] = {"PRIMARY", "UNIQUE", "KEY",      "INDEX",     "CONSTRAINT", "FOREIGN",
                                        "CHECK",   "PERIOD", "FULLTEXT", "PARTITION", "SPATIAL"};
    for (size_t i = 0; i < ARRAY_LENGTH(words); i++)
        if (reading_is(reading, words[i]))
            return true;
    return false;
}

/* Behind CREATE TABLE. */
static bool apply_create(struct tables *tables, struct reading *reading)
{
    if (reading_take(reading, "IF")) {
        reading_next(reading); /* NOT */
        reading_next(reading); /* EXISTS */
    }
    struct table *table = tables_add(tables, reading->token);
    if (!table)
        return false;
    table->expected = true;
    table->column_count = 0;
    reading_next(reading); /* ( */
    reading_next(reading);
    do
        if (!is_no_column(reading) && !table_add_column(table, reading->token))
            return false;
    while (reading_next_item(reading, 1));
    return true;
}

/* Behind ALTER TABLE. */
static bool apply_alter(struct tables *tables, struct reading *reading)
{
    struct table *table = tables_add(tables, reading->token);
    if (!table)
        return false;
    reading_next(reading);
    do {
        bool adds = reading_take(reading, "ADD");
        bool drops = !adds && reading_take(reading, "DROP");
        (void)reading_take(reading, "COLUMN");
        if (is_no_column(reading))
            continue;
        if (adds && !table_add_column(table, reading->token))
            return false;
        if (drops)
            table_drop_column(table, reading->token);
    } while (reading_next_item(reading, 0));
    return true;
}

/* Behind DROP TABLE. */
static bool apply_drop(struct tables *tables, struct reading *reading)
{
    do {
        struct table *table = tables_add(tables, reading->token);
        if (!table)
            return false;
        table->expected = false;
        table->column_count = 0;
    } while (reading_next_item(reading, 0));
    return true;
}

bool tables_apply(struct tables *tables, struct bytes statement)
{
    static const struct {
        const char *verb;
        bool (*apply)(struct tables *tables, struct reading *reading);
    } verbs[] = {{"CREATE", apply_create}, {"ALTER", apply_alter}, {"DROP", apply_drop}};
    struct reading reading = {.rest = statement};
    reading_next(&reading);
    for (size_t i = 0; i < ARRAY_LENGTH(verbs); i++)
        if (reading_take(&reading, verbs[i].verb))
            return !reading_take(&reading, "TABLE") || verbs[i].apply(tables, &reading);
    return true;
}

static bool tables_apply_until(struct tables *tables, const struct migration *migrations, unsigned version,
                               unsigned statements)
{
    bool good = true;
    for (const struct migration *migration = migrations; migration->version && migration->version <= version;
         migration++) {
        const char *text = migration->text;
        struct bytes statement;
        for (unsigned number = 0; good && statement_next(&text, &statement); number++)
            if (migration->version < version || number < statements)
                good = tables_apply(tables, statement);
    }
    return good;
}

bool tables_read(const struct migration *migrations, unsigned version, unsigned statements, struct tables *ret_tables)
{
    ret_tables->count = 0;
    bool good = tables_apply_until(ret_tables, migrations, UINT_MAX, 0);
    for (size_t i = 0; i < ret_tables->count; i++) /* the names of all are known; from here on only what is done */
        ret_tables->list[i] = (struct table){.name = ret_tables->list[i].name};
    return good && tables_apply_until(ret_tables, migrations, version, statements);
}

/* ---- what was found ---- */

void tables_note_found(struct tables *tables, struct bytes name, struct bytes column)
{
    struct table *table = tables_find(tables, name);
    if (!table)
        return;
    table->found = true;
    for (size_t i = 0; column.data && i < table->column_count; i++)
        if (same_name(table->columns[i], column))
            table->found_columns |= UINT64_C(1) << i;
}

struct bytes table_missing_column(const struct table *table)
{
    for (size_t i = 0; i < table->column_count; i++)
        if (!(table->found_columns >> i & 1))
            return table->columns[i];
    return (struct bytes){NULL, 0};
}

bool table_is_as_expected(const struct table *table)
{
    return table->found == table->expected && (!table->expected || !table_missing_column(table).data);
}
