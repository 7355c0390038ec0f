/* SPDX-License-Identifier: MIT */
#include "store/migration_text.h"

#include <ctype.h>
#include <limits.h>
#include <strings.h>

/* ---- statements ---- */

/* Returns true if the text has more than blanks and comments, which a server rejects as an empty query. */
static bool statement_has_sql(struct bytes text)
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
        if (statement_has_sql(*ret_statement))
            return true;
    }
    return false;
}

/* ---- tokens ---- */

/* A tokenizer of one statement. */
struct tokenizer {
    struct bytes rest;  /* text after the token */
    struct bytes token; /* a word without its backticks, a string with its quotes, or one other byte; length 0: end */
    int depth;          /* of parentheses, after the token */
};

static bool is_word_byte(char byte)
{
    return isalnum((unsigned char)byte) || byte == '_' || byte == '$';
}

static void tokenizer_skip(struct tokenizer *tokenizer, size_t length)
{
    tokenizer->rest = (struct bytes){tokenizer->rest.data + length, tokenizer->rest.length - length};
}

/* Skips blanks and line comments. */
static void tokenizer_skip_blanks(struct tokenizer *tokenizer)
{
    for (;;) {
        struct bytes rest = tokenizer->rest;
        if (rest.length > 0 && isspace((unsigned char)rest.data[0])) {
            tokenizer_skip(tokenizer, 1);
        } else if (rest.length > 1 && rest.data[0] == '-' && rest.data[1] == '-') {
            const char *end = memchr(rest.data, '\n', rest.length);
            tokenizer_skip(tokenizer, end ? (size_t)(end - rest.data) : rest.length);
        } else {
            return;
        }
    }
}

/* Returns the length of the token at the start of `rest`. A string with a doubled quote reads as two strings. */
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

static void tokenizer_next(struct tokenizer *tokenizer)
{
    tokenizer_skip_blanks(tokenizer);
    struct bytes rest = tokenizer->rest;
    size_t length = rest.length ? token_length(rest) : 0;
    tokenizer->token = (struct bytes){rest.data, length};
    if (length == 0)
        return;
    tokenizer_skip(tokenizer, length);
    if (rest.data[0] == '(')
        tokenizer->depth++;
    else if (rest.data[0] == ')')
        tokenizer->depth--;
    else if (rest.data[0] == '`' && length > 1)
        tokenizer->token = (struct bytes){rest.data + 1, length - 2};
}

static bool tokenizer_is(const struct tokenizer *tokenizer, const char *word)
{
    return bytes_equal(tokenizer->token, bytes_of(word));
}

/* Steps over the token if it is this word; returns whether it was. */
static bool tokenizer_accept(struct tokenizer *tokenizer, const char *word)
{
    bool taken = tokenizer_is(tokenizer, word);
    if (taken)
        tokenizer_next(tokenizer);
    return taken;
}

/* Steps past the next ',' at this depth of parentheses. Returns false if the depth ends before one. */
static bool tokenizer_next_item(struct tokenizer *tokenizer, int depth)
{
    while (tokenizer->token.length && tokenizer->depth >= depth) {
        bool separated = tokenizer->depth == depth && tokenizer_is(tokenizer, ",");
        tokenizer_next(tokenizer);
        if (separated)
            return true;
    }
    return false;
}

/* ---- tables ---- */

/* Compares names without case: servers ignore the case of column names, some of them also that of table names. */
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

/* Finds a table or adds it. NULL: there are TABLES_MAX tables already. */
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

/* Returns true if the definition in CREATE TABLE, ADD or DROP is of an index, a constraint, or another non-column. */
static bool is_not_a_column(const struct tokenizer *tokenizer)
{
    static const char *const words[] = {"PRIMARY", "UNIQUE", "KEY",      "INDEX",     "CONSTRAINT", "FOREIGN",
                                        "CHECK",   "PERIOD", "FULLTEXT", "PARTITION", "SPATIAL"};
    for (size_t i = 0; i < ARRAY_LENGTH(words); i++)
        if (tokenizer_is(tokenizer, words[i]))
            return true;
    return false;
}

/* Applies the part of a statement after CREATE TABLE. */
static bool apply_create(struct tables *tables, struct tokenizer *tokenizer)
{
    if (tokenizer_accept(tokenizer, "IF")) {
        tokenizer_next(tokenizer); /* NOT */
        tokenizer_next(tokenizer); /* EXISTS */
    }
    struct table *table = tables_add(tables, tokenizer->token);
    if (!table)
        return false;
    table->expected = true;
    table->column_count = 0;
    tokenizer_next(tokenizer); /* ( */
    tokenizer_next(tokenizer);
    do
        if (!is_not_a_column(tokenizer) && !table_add_column(table, tokenizer->token))
            return false;
    while (tokenizer_next_item(tokenizer, 1));
    return true;
}

/* Applies the part of a statement after ALTER TABLE. */
static bool apply_alter(struct tables *tables, struct tokenizer *tokenizer)
{
    struct table *table = tables_add(tables, tokenizer->token);
    if (!table)
        return false;
    tokenizer_next(tokenizer);
    do {
        bool adds = tokenizer_accept(tokenizer, "ADD");
        bool drops = !adds && tokenizer_accept(tokenizer, "DROP");
        (void)tokenizer_accept(tokenizer, "COLUMN");
        if (is_not_a_column(tokenizer))
            continue;
        if (adds && !table_add_column(table, tokenizer->token))
            return false;
        if (drops)
            table_drop_column(table, tokenizer->token);
    } while (tokenizer_next_item(tokenizer, 0));
    return true;
}

/* Applies the part of a statement after DROP TABLE. */
static bool apply_drop(struct tables *tables, struct tokenizer *tokenizer)
{
    do {
        struct table *table = tables_add(tables, tokenizer->token);
        if (!table)
            return false;
        table->expected = false;
        table->column_count = 0;
    } while (tokenizer_next_item(tokenizer, 0));
    return true;
}

bool tables_apply(struct tables *tables, struct bytes statement)
{
    static const struct {
        const char *verb;
        bool (*apply)(struct tables *tables, struct tokenizer *tokenizer);
    } verbs[] = {{"CREATE", apply_create}, {"ALTER", apply_alter}, {"DROP", apply_drop}};
    struct tokenizer tokenizer = {.rest = statement};
    tokenizer_next(&tokenizer);
    for (size_t i = 0; i < ARRAY_LENGTH(verbs); i++)
        if (tokenizer_accept(&tokenizer, verbs[i].verb))
            return !tokenizer_accept(&tokenizer, "TABLE") || verbs[i].apply(tables, &tokenizer);
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
    for (size_t i = 0; i < ret_tables->count; i++) /* keep the names of all tables; forget their columns */
        ret_tables->list[i] = (struct table){.name = ret_tables->list[i].name};
    return good && tables_apply_until(ret_tables, migrations, version, statements);
}

/* ---- comparison with a database ---- */

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
