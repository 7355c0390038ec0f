/* SPDX-License-Identifier: MIT */

#include "core/name.h"
#include "store/packet.h"
#include "store/row_sql.h"

enum {
    TRIES = 3,            /* of a transaction that ends with PERMIT_CONFLICT */
    BEGINNINGS_MAX = 500, /* prefixes in one statement; at least NAME_MAX_BYTES */
};

#define TEMPLATE_SETTING(name, c_type, member, ...) SELECT_NEXT("t.", member, )
#define TEMPLATE_SELECT                             TEMPLATE_COLUMNS(SELECT_FIRST, SELECT_NEXT, "t.") SEMAPHORE_SETTINGS(TEMPLATE_SETTING)
#define ALL_OF_TEMPLATE                             "SELECT " TEMPLATE_SELECT " FROM template t FORCE INDEX (PRIMARY) WHERE "

/* ---- rows ---- */

/* Sends a packet whose last statement is ALL_OF_TEMPLATE, with `before` statements before it, and reads its rows. */
static void run_templates(struct packet *packet, unsigned before, struct template **ret_templates, size_t *ret_count)
{
    packet_send(packet);
    while (before--)
        packet_next(packet);
    struct template *templates = packet_rows(packet, sizeof *templates, ret_count);
    for (size_t i = 0; i < *ret_count && packet_row(packet); i++) {
        templates[i] = (struct template){.settings = {.retired_at = NEVER, .next_due_at = NEVER}};
        row_read(&packet->row, &template_table, &templates[i]);
    }
    *ret_templates = templates;
}

static enum permit_status templates_get(struct store *store, struct bytes prefix, struct arena *arena,
                                        struct template *ret_template)
{
    struct packet packet = packet_begin(session_of(store), arena);
    struct template *found;
    size_t count;
    buf_append_text(&packet.sql, ALL_OF_TEMPLATE "t.prefix=");
    sql_bytes(&packet.sql, prefix);
    run_templates(&packet, 0, &found, &count);
    enum permit_status status = packet_end(&packet);
    if (status != PERMIT_OK)
        return status;
    if (count == 0)
        return PERMIT_UNKNOWN_TEMPLATE;
    *ret_template = found[0];
    return PERMIT_OK;
}

/* Walks the primary key from the larger of `begins` and `after` on; the list ends at the first other beginning. */
static enum permit_status templates_list(struct store *store, struct bytes begins, struct page *page)
{
    struct packet packet = packet_begin(session_of(store), page->arena);
    size_t count, found = 0;
    buf_append_text(&packet.sql, ALL_OF_TEMPLATE "t.prefix>");
    sql_bytes(&packet.sql, page->after.name);
    buf_append_text(&packet.sql, " AND t.prefix>=");
    sql_bytes(&packet.sql, begins);
    buf_printf(&packet.sql, " ORDER BY t.prefix LIMIT %u", page->limit + 1);
    run_templates(&packet, 0, &page->templates, &count);
    while (found < count && bytes_begin_with(page->templates[found].prefix, begins))
        found++;
    page_end(page, found);
    if (page->count)
        page->next.name = page->templates[page->count - 1].prefix;
    return packet_end(&packet);
}

/* Sends a packet that selects a number, and ends it. */
static enum permit_status run_count(struct packet *packet, uint64_t *ret_count)
{
    packet_send(packet);
    if (packet_row(packet))
        *ret_count = row_u64(&packet->row);
    return packet_end(packet);
}

static enum permit_status templates_count_semaphores(struct store *store, uint64_t max, uint64_t *ret_count)
{
    struct packet packet = packet_begin(session_of(store), NULL);
    buf_printf(&packet.sql, "SELECT COUNT(*) FROM (SELECT 1 FROM semaphore FORCE INDEX (semaphore_name) LIMIT %llu) s",
               (unsigned long long)max);
    return run_count(&packet, ret_count);
}

/* The slots of a semaphore are numbered from 1 without gaps. The highest of each is one seek in the primary key. */
static enum permit_status templates_count_slots(struct store *store, uint64_t *ret_count)
{
    struct packet packet = packet_begin(session_of(store), NULL);
    buf_append_text(
        &packet.sql,
        "SELECT COALESCE(SUM(highest), 0) FROM (SELECT MAX(number) AS highest FROM slot GROUP BY semaphore_id) s");
    return run_count(&packet, ret_count);
}

/* ---- transactions ---- */

/* Begins a transaction, locks the row and reads it. Returns true if it exists. */
static bool lock_row(struct packet *packet, struct bytes prefix, struct template *ret_template)
{
    struct template *found;
    size_t count;
    buf_append_text(&packet->sql, "BEGIN;" ALL_OF_TEMPLATE "t.prefix=");
    sql_bytes(&packet->sql, prefix);
    buf_append_text(&packet->sql, " FOR UPDATE");
    run_templates(packet, 1, &found, &count);
    if (!packet_works(packet) || count == 0)
        return false;
    *ret_template = found[0];
    return true;
}

/* Appends the write. If two transactions insert a prefix, the second gets PERMIT_CONFLICT and retries. */
static void write_sql(const struct template *template, bool exists, struct buf *sql)
{
    struct row_insert insert = {.table = &template_table, .columns = COLUMN_INSERT | COLUMN_SETTING};
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
    if (template->settings.feed_url.data)
        webhook_name_sql(template->settings.feed_url, sql);
}

static enum permit_status templates_put(struct store *store, struct template_change *change, struct arena *arena)
{
    enum permit_status status = PERMIT_CONFLICT;
    for (int tries = 0; status == PERMIT_CONFLICT && tries < TRIES; tries++) {
        struct packet packet = packet_begin(session_of(store), arena);
        struct template *template = &change->ret_template;
        *template = (struct template){0};
        bool exists = lock_row(&packet, change->prefix, template);
        template->prefix = change->prefix;
        change->ret_refusal = NULL;
        if (packet_works(&packet))
            packet_fail(&packet, template_apply(template, exists, &change->change, change->default_ttl_ms,
                                                &change->ret_refusal));
        write_sql(template, exists, &packet.sql);
        status = packet_commit(&packet);
        change->ret_created = !exists;
    }
    return status;
}

static enum permit_status templates_delete(struct store *store, struct bytes prefix, struct arena *arena,
                                           struct template *ret_template)
{
    enum permit_status status = PERMIT_CONFLICT;
    for (int tries = 0; status == PERMIT_CONFLICT && tries < TRIES; tries++) {
        struct packet packet = packet_begin(session_of(store), arena);
        struct template template;
        if (!lock_row(&packet, prefix, &template))
            packet_fail(&packet, PERMIT_UNKNOWN_TEMPLATE);
        buf_append_text(&packet.sql, "DELETE FROM template WHERE prefix=");
        sql_bytes(&packet.sql, prefix);
        buf_append_text(&packet.sql, ";");
        status = packet_commit(&packet);
        if (status == PERMIT_OK)
            *ret_template = template;
    }
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
static size_t read_lengths(struct packet *packet, size_t ret_lengths[NAME_MAX_BYTES])
{
    size_t count = 0;
    buf_append_text(&packet->sql, "SELECT DISTINCT length FROM template FORCE INDEX (template_length)");
    packet_send(packet);
    while (count < NAME_MAX_BYTES && packet_row(packet))
        ret_lengths[count++] = (size_t)row_u64(&packet->row);
    return count;
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
static void match_beginnings(struct packet *packet, struct beginnings *beginnings, struct resolve_name *names,
                             size_t end)
{
    struct template *templates = NULL;
    size_t count = 0;
    if (beginnings->count) {
        buf_append_text(&packet->sql, ALL_OF_TEMPLATE "t.prefix IN (");
        sql_bytes_list(&packet->sql, beginnings->list, beginnings->count);
        buf_append_char(&packet->sql, ')');
        run_templates(packet, 0, &templates, &count);
    }
    for (size_t i = beginnings->first; packet_works(packet) && i < end; i++)
        if (lacks_semaphore(&names[i]))
            names[i].ret_template = longest(templates, count, names[i].name);
    beginnings->first = end;
    beginnings->count = 0;
}

enum permit_status templates_match(struct session *session, struct resolve_name *names, size_t count,
                                   struct arena *arena)
{
    struct packet packet = packet_begin(session, arena);
    struct beginnings beginnings = {.count = 0};
    size_t lengths[NAME_MAX_BYTES];
    size_t wanted = 0;
    for (size_t i = 0; i < count; i++)
        wanted += lacks_semaphore(&names[i]);
    size_t length_count = wanted ? read_lengths(&packet, lengths) : 0;
    for (size_t i = 0; i < count && length_count; i++) {
        if (!lacks_semaphore(&names[i]))
            continue;
        if (beginnings.count + length_count > BEGINNINGS_MAX)
            match_beginnings(&packet, &beginnings, names, i);
        for (size_t j = 0; j < length_count; j++)
            if (lengths[j] <= names[i].name.length)
                add_beginning(&beginnings, (struct bytes){names[i].name.data, lengths[j]});
    }
    match_beginnings(&packet, &beginnings, names, count);
    return packet_end(&packet);
}

const struct store_templates mysql_templates = {
    .put = templates_put,
    .delete = templates_delete,
    .get = templates_get,
    .list = templates_list,
    .count_semaphores = templates_count_semaphores,
    .count_slots = templates_count_slots,
};
