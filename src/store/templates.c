/* SPDX-License-Identifier: MIT */
#include "store/mysql_methods.h"

#include "core/name.h"
#include "store/row_sql.h"
#include "store/rows.h"

enum {
    SQL_MAX = 64 * 1024,
    TRIES = 3,            /* of a transaction that ends with PERMIT_CONFLICT */
    BEGINNINGS_MAX = 500, /* prefixes in one statement; at least NAME_MAX_BYTES */
};

#define TEMPLATE_SETTING(name, c_type, member, ...) SELECT_NEXT("t.", member, )
#define TEMPLATE_SELECT                             TEMPLATE_COLUMNS(SELECT_FIRST, SELECT_NEXT, "t.") SEMAPHORE_SETTINGS(TEMPLATE_SETTING)
#define ALL_OF_TEMPLATE                             "SELECT " TEMPLATE_SELECT " FROM template t FORCE INDEX (PRIMARY) WHERE "

/* ---- rows ---- */

static enum permit_status read_templates(struct session *session, struct arena *arena, struct template **ret_templates,
                                         size_t *ret_count)
{
    size_t count = (size_t)session_affected(session);
    struct template *templates = arena_array(arena, count, sizeof *templates);
    struct row_reader reader = {.arena = arena, .broken = count && !templates};
    for (size_t i = 0; i < count && row_step(&reader, session); i++) {
        templates[i] = (struct template){.settings = {.retired_at = NEVER, .next_due_at = NEVER}};
        row_read(&reader, &template_table, &templates[i]);
    }
    if (reader.broken)
        return PERMIT_NO_MEMORY;
    *ret_templates = templates;
    *ret_count = count;
    return PERMIT_OK;
}

/* Runs one SELECT of TEMPLATE_SELECT. Releases `sql`. */
static enum permit_status run_templates(struct session *session, struct buf *sql, struct arena *arena,
                                        struct template **ret_templates, size_t *ret_count)
{
    enum permit_status status = session_send_buf(session, sql);
    if (status == PERMIT_OK)
        status = read_templates(session, arena, ret_templates, ret_count);
    buf_release(sql);
    return session_end(session, status);
}

static enum permit_status templates_get(struct store *store, struct bytes prefix, struct arena *arena,
                                        struct template *ret_template)
{
    struct session *session = session_of(store);
    struct buf sql;
    struct template *found = NULL;
    size_t count = 0;
    buf_init(&sql, SQL_MAX);
    buf_append_text(&sql, ALL_OF_TEMPLATE "t.prefix=");
    sql_bytes(&sql, prefix);
    enum permit_status status = run_templates(session, &sql, arena, &found, &count);
    if (status == PERMIT_OK && count == 0)
        status = PERMIT_UNKNOWN_TEMPLATE;
    if (status == PERMIT_OK)
        *ret_template = found[0];
    return status;
}

/* Walks the primary key from the larger of `begins` and `after` on; the list ends at the first other beginning. */
static enum permit_status templates_list(struct store *store, struct bytes begins, struct page *page)
{
    struct session *session = session_of(store);
    struct buf sql;
    size_t count = 0, found = 0;
    buf_init(&sql, SQL_MAX);
    buf_append_text(&sql, ALL_OF_TEMPLATE "t.prefix>");
    sql_bytes(&sql, page->after.name);
    buf_append_text(&sql, " AND t.prefix>=");
    sql_bytes(&sql, begins);
    buf_printf(&sql, " ORDER BY t.prefix LIMIT %u", page->limit + 1);
    enum permit_status status = run_templates(session, &sql, page->arena, &page->templates, &count);
    if (status != PERMIT_OK)
        return status;
    while (found < count && bytes_begin_with(page->templates[found].prefix, begins))
        found++;
    page_end(page, found);
    if (page->count)
        page->next.name = page->templates[page->count - 1].prefix;
    return PERMIT_OK;
}

static enum permit_status templates_count_semaphores(struct store *store, uint64_t max, uint64_t *ret_count)
{
    struct session *session = session_of(store);
    struct buf sql;
    struct session_row row;
    buf_init(&sql, SQL_MAX);
    buf_printf(&sql, "SELECT COUNT(*) FROM (SELECT 1 FROM semaphore FORCE INDEX (semaphore_name) LIMIT %llu) s",
               (unsigned long long)max);
    enum permit_status status = session_send_buf(session, &sql);
    if (status == PERMIT_OK && session_row(session, &row))
        *ret_count = column_u64(row.columns[0]);
    buf_release(&sql);
    return session_end(session, status);
}

/* The slots of a semaphore are numbered from 1 without gaps. The highest of each is one seek in the primary key. */
static enum permit_status templates_count_slots(struct store *store, uint64_t *ret_count)
{
    struct session *session = session_of(store);
    struct session_row row;
    enum permit_status status = session_send(
        session,
        BYTES(
            "SELECT COALESCE(SUM(highest), 0) FROM (SELECT MAX(number) AS highest FROM slot GROUP BY semaphore_id) s"));
    if (status == PERMIT_OK && session_row(session, &row))
        *ret_count = column_u64(row.columns[0]);
    return session_end(session, status);
}

/* ---- transactions ---- */

/* Begins a transaction, locks the row and reads it. */
static enum permit_status lock_row(struct session *session, struct bytes prefix, struct buf *sql, struct arena *arena,
                                   struct template *ret_template, bool *ret_exists)
{
    struct template *found = NULL;
    size_t count = 0;
    buf_clear(sql);
    buf_append_text(sql, "BEGIN;" ALL_OF_TEMPLATE "t.prefix=");
    sql_bytes(sql, prefix);
    buf_append_text(sql, " FOR UPDATE");
    enum permit_status status = session_send_buf(session, sql);
    if (status == PERMIT_OK)
        status = session_next(session);
    if (status == PERMIT_OK)
        status = read_templates(session, arena, &found, &count);
    status = session_end(session, status);
    *ret_exists = status == PERMIT_OK && count > 0;
    if (*ret_exists)
        *ret_template = found[0];
    return status;
}

/* Appends the write and COMMIT. If two transactions insert a prefix, the second gets PERMIT_CONFLICT and retries. */
static void write_sql(const struct template *template, bool exists, struct buf *sql)
{
    struct row_insert insert = {.table = &template_table, .columns = COLUMN_INSERT | COLUMN_SETTING};
    buf_clear(sql);
    if (exists) {
        buf_append_text(sql, "UPDATE template SET ");
        row_set_sql(&template_table, COLUMN_SETTING, template, true, sql);
        buf_append_text(sql, " WHERE prefix=");
        sql_bytes(sql, template->prefix);
        buf_append_char(sql, ';');
    } else {
        row_insert_sql(&insert, template, sql);
        row_insert_end_sql(&insert, sql);
    }
    buf_append_text(sql, "COMMIT");
}

/* Ends the transaction. Returns `status`. */
static enum permit_status roll_back(struct session *session, enum permit_status status)
{
    (void)session_rollback(session);
    return status;
}

static enum permit_status put_once(struct session *session, const struct semaphore_change *change,
                                   int64_t default_ttl_ms, struct buf *sql, struct arena *arena,
                                   struct template *template, bool *ret_created, const char **ret_refusal)
{
    bool exists;
    struct bytes prefix = template->prefix;
    enum permit_status status = lock_row(session, prefix, sql, arena, template, &exists);
    template->prefix = prefix;
    if (status == PERMIT_OK)
        status = template_apply(template, exists, change, default_ttl_ms, ret_refusal);
    if (status != PERMIT_OK)
        return roll_back(session, status);
    write_sql(template, exists, sql);
    status = session_end(session, session_send_buf(session, sql));
    *ret_created = !exists;
    return status == PERMIT_OK ? status : roll_back(session, status);
}

static enum permit_status templates_put(struct store *store, struct bytes prefix, const struct semaphore_change *change,
                                        int64_t default_ttl_ms, struct arena *arena, struct template *ret_template,
                                        bool *ret_created, const char **ret_refusal)
{
    struct session *session = session_of(store);
    struct buf sql;
    struct template template;
    enum permit_status status = PERMIT_CONFLICT;
    buf_init(&sql, SQL_MAX);
    for (int tries = 0; status == PERMIT_CONFLICT && tries < TRIES; tries++) {
        template = (struct template){.prefix = prefix};
        status = put_once(session, change, default_ttl_ms, &sql, arena, &template, ret_created, ret_refusal);
    }
    buf_release(&sql);
    if (status == PERMIT_OK)
        *ret_template = template;
    return status;
}

static enum permit_status delete_once(struct session *session, struct bytes prefix, struct buf *sql,
                                      struct arena *arena, struct template *ret_template)
{
    bool exists;
    enum permit_status status = lock_row(session, prefix, sql, arena, ret_template, &exists);
    if (status == PERMIT_OK && !exists)
        status = PERMIT_UNKNOWN_TEMPLATE;
    if (status != PERMIT_OK)
        return roll_back(session, status);
    buf_clear(sql);
    buf_append_text(sql, "DELETE FROM template WHERE prefix=");
    sql_bytes(sql, prefix);
    buf_append_text(sql, ";COMMIT");
    status = session_end(session, session_send_buf(session, sql));
    return status == PERMIT_OK ? status : roll_back(session, status);
}

static enum permit_status templates_delete(struct store *store, struct bytes prefix, struct arena *arena,
                                           struct template *ret_template)
{
    struct session *session = session_of(store);
    struct buf sql;
    struct template template;
    enum permit_status status = PERMIT_CONFLICT;
    buf_init(&sql, SQL_MAX);
    for (int tries = 0; status == PERMIT_CONFLICT && tries < TRIES; tries++)
        status = delete_once(session, prefix, &sql, arena, &template);
    buf_release(&sql);
    if (status == PERMIT_OK)
        *ret_template = template;
    return status;
}

/* ---- resolve ---- */

/* The beginnings of names that one statement looks up as prefixes. */
struct beginnings {
    struct bytes list[BEGINNINGS_MAX]; /* no duplicates: names of one template begin alike */
    size_t count;
    size_t first; /* index of the first name that is not matched yet */
};

static bool lacks_semaphore(const struct resolve_name *name)
{
    return name->ret_id == 0 || name->ret_retired;
}

/*
 * Reads the lengths of all prefixes: walks template_length, one seek per length. Names shorter than all prefixes need
 * no further statement.
 */
static enum permit_status read_lengths(struct session *session, size_t ret_lengths[NAME_MAX_BYTES], size_t *ret_count)
{
    struct session_row row;
    size_t count = 0;
    enum permit_status status =
        session_send(session, BYTES("SELECT DISTINCT length FROM template FORCE INDEX (template_length)"));
    while (status == PERMIT_OK && count < NAME_MAX_BYTES && session_row(session, &row))
        ret_lengths[count++] = (size_t)column_u64(row.columns[0]);
    *ret_count = count;
    return session_end(session, status);
}

static void add_beginning(struct beginnings *beginnings, struct bytes beginning)
{
    for (size_t i = 0; i < beginnings->count; i++)
        if (bytes_equal(beginnings->list[i], beginning))
            return;
    beginnings->list[beginnings->count++] = beginning;
}

/* Returns the template with the longest prefix of the name; NULL: none. */
static const struct template *longest(const struct template *templates, size_t count, struct bytes name)
{
    const struct template *best = NULL;
    for (size_t i = 0; i < count; i++)
        if (bytes_begin_with(name, templates[i].prefix) && (!best || templates[i].prefix.length > best->prefix.length))
            best = &templates[i];
    return best;
}

/* Looks up the collected beginnings and sets the templates of the names before `end`. */
static enum permit_status match_beginnings(struct session *session, struct beginnings *beginnings,
                                           struct resolve_name *names, size_t end, struct buf *sql, struct arena *arena)
{
    struct template *templates = NULL;
    size_t count = 0;
    buf_clear(sql);
    buf_append_text(sql, ALL_OF_TEMPLATE "t.prefix IN (");
    sql_bytes_list(sql, beginnings->list, beginnings->count);
    buf_append_char(sql, ')');
    enum permit_status status = PERMIT_OK;
    if (beginnings->count) {
        status = session_send_buf(session, sql);
        if (status == PERMIT_OK)
            status = read_templates(session, arena, &templates, &count);
        status = session_end(session, status);
    }
    for (size_t i = beginnings->first; status == PERMIT_OK && i < end; i++)
        if (lacks_semaphore(&names[i]))
            names[i].ret_template = longest(templates, count, names[i].name);
    beginnings->first = end;
    beginnings->count = 0;
    return status;
}

enum permit_status templates_match(struct session *session, struct resolve_name *names, size_t count, struct buf *sql,
                                   struct arena *arena)
{
    struct beginnings beginnings = {.count = 0};
    size_t lengths[NAME_MAX_BYTES];
    size_t length_count = 0;
    size_t wanted = 0;
    for (size_t i = 0; i < count; i++)
        wanted += lacks_semaphore(&names[i]);
    if (wanted == 0)
        return PERMIT_OK;
    enum permit_status status = read_lengths(session, lengths, &length_count);
    for (size_t i = 0; i < count && status == PERMIT_OK && length_count; i++) {
        if (!lacks_semaphore(&names[i]))
            continue;
        if (beginnings.count + length_count > BEGINNINGS_MAX)
            status = match_beginnings(session, &beginnings, names, i, sql, arena);
        for (size_t j = 0; j < length_count; j++)
            if (lengths[j] <= names[i].name.length)
                add_beginning(&beginnings, (struct bytes){names[i].name.data, lengths[j]});
    }
    return status == PERMIT_OK ? match_beginnings(session, &beginnings, names, count, sql, arena) : status;
}

const struct store_templates mysql_templates = {
    .put = templates_put,
    .delete = templates_delete,
    .get = templates_get,
    .list = templates_list,
    .count_semaphores = templates_count_semaphores,
    .count_slots = templates_count_slots,
};
