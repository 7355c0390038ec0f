/* SPDX-License-Identifier: MIT */
#include "fake_servers.h"

#include "fake_session.h"
#include "oracle.h"

static utc_us served_now(void)
{
    return lease_time(&database.globals.clock, database_now());
}

static struct db_server *find(const struct server_self *self)
{
    struct db_server *server = database_server(self->id);
    return server && server->row.since == self->since ? server : NULL;
}

static enum permit_status join(struct store *store, struct bytes address, struct bytes version,
                               struct server_self *ret_self)
{
    struct fake_store *fake = fake_of(store);
    enum permit_status status = call_enter(fake);
    (void)address, (void)version;
    if (status != PERMIT_OK)
        return status;
    bool hold_is_over = database.globals.grants_from <= served_now();
    if (database.globals.identity != database.server || !hold_is_over) {
        *ret_self = (struct server_self){0};
        return call_leave(fake);
    }
    struct globals globals = database.globals;
    uint64_t least = globals.clock.epoch * 1024;
    uint64_t id = globals.next_server_id > least ? globals.next_server_id : least;
    globals.next_server_id = id + 1;
    (void)database_commit_globals(&globals);
    const struct db_server_row row = {
        .exists = true, .id = id, .since = database_now(), .ticks = globals.ticks, .dead_at = NEVER};
    status = call_flush(fake, database_commit_server(database_new_server(), &row));
    if (status != PERMIT_OK)
        return status;
    oracle_server_joined(id);
    *ret_self = (struct server_self){row.id, row.since};
    return PERMIT_OK;
}

static enum permit_status heartbeat(struct store *store, const struct server_self *self,
                                    struct server_heartbeat *heartbeat)
{
    struct fake_store *fake = fake_of(store);
    enum permit_status status = call_enter(fake);
    heartbeat->ret_alive = false;
    heartbeat->ret_other_count = 0;
    if (status != PERMIT_OK)
        return status;
    struct db_server *server = find(self);
    uint64_t lsn = 0;
    if (server && server->row.dead_at == NEVER) {
        struct db_server_row row = server->row;
        row.ticks = database.globals.ticks;
        lsn = database_commit_server(server, &row);
        heartbeat->ret_alive = true;
    }
    heartbeat->ret_ticks = database.globals.ticks;
    heartbeat->ret_time = (struct query_time){.clock = database.globals.clock, .now = database_now()};
    heartbeat->ret_oldest_death = NEVER;
    for (size_t i = 0; i < SERVERS_MAX; i++) {
        const struct db_server_row *row = &database.servers[i].row;
        if (!row->exists)
            continue;
        heartbeat->ret_oldest_death = min_i64(heartbeat->ret_oldest_death, row->dead_at);
        if (row->dead_at == NEVER && row->id != self->id && heartbeat->ret_other_count < SERVERS_OTHERS_MAX)
            heartbeat->ret_others[heartbeat->ret_other_count++] = (struct server_other){row->id, row->ticks};
    }
    status = lsn ? call_flush(fake, lsn) : call_leave(fake);
    if (status == PERMIT_OK && heartbeat->ret_alive)
        oracle_server_seen(self->id);
    return status;
}

static enum permit_status declare_dead(struct store *store, const struct server_other *other, utc_us at,
                                       bool *ret_declared)
{
    struct fake_store *fake = fake_of(store);
    enum permit_status status = call_enter(fake);
    if (status != PERMIT_OK)
        return status;
    struct db_server *server = database_server(other->id);
    bool declares = server && server->row.dead_at == NEVER && server->row.ticks == other->ticks;
    if (!declares) {
        status = call_leave(fake);
    } else {
        struct db_server_row row = server->row;
        row.dead_at = at;
        oracle_server_dies(&row);
        step("server %llu is declared dead", (unsigned long long)row.id);
        status = call_flush(fake, database_commit_server(server, &row));
    }
    if (status == PERMIT_OK)
        *ret_declared = declares;
    return status;
}

static enum permit_status remove_dead(struct store *store, utc_us until)
{
    struct fake_store *fake = fake_of(store);
    enum permit_status status = call_enter(fake);
    uint64_t lsn = 0;
    for (size_t i = 0; i < SERVERS_MAX && status == PERMIT_OK; i++)
        if (database.servers[i].row.exists && database.servers[i].row.dead_at <= until) {
            (void)database_drop_mail(database.servers[i].row.id, NULL, 0);
            lsn = database_commit_server(&database.servers[i], &(struct db_server_row){0});
        }
    for (size_t i = 0; i < MAIL_MAX && status == PERMIT_OK; i++)
        if (database.mail[i].exists && !database_server(database.mail[i].server_id))
            lsn = database_drop_mail(database.mail[i].server_id, NULL, 0);
    if (status != PERMIT_OK)
        return status;
    return lsn ? call_flush(fake, lsn) : call_leave(fake);
}

static bool is_abandoned(const struct request *request, utc_us until)
{
    const struct db_server *server = database_server(request->server_id);
    return request->state == REQUEST_WAITING && request->server_id && (!server || server->row.dead_at <= until);
}

static enum permit_status abandoned(struct store *store, utc_us until, size_t limit, struct arena *arena,
                                    struct bytes **ret_external_ids, size_t *ret_count)
{
    struct fake_store *fake = fake_of(store);
    enum permit_status status = call_enter(fake);
    if (status != PERMIT_OK)
        return status;
    struct bytes *keys = arena_array(arena, database.waiting_count, sizeof *keys);
    size_t count = 0;
    for (size_t i = 0; i < database.waiting_count && count < limit; i++)
        if (database.waiting[i]->row.exists && is_abandoned(&database.waiting[i]->row.request, until))
            keys[count++] = arena_copy(arena, database.waiting[i]->external_id);
    status = call_leave(fake);
    if (status != PERMIT_OK)
        return status;
    *ret_external_ids = keys;
    *ret_count = count;
    return PERMIT_OK;
}

static enum permit_status leave(struct store *store, const struct server_self *self)
{
    struct fake_store *fake = fake_of(store);
    enum permit_status status = call_enter(fake);
    if (status != PERMIT_OK)
        return status;
    struct db_server *server = find(self);
    if (!server)
        return call_leave(fake);
    (void)database_drop_mail(self->id, NULL, 0);
    return call_flush(fake, database_commit_server(server, &(struct db_server_row){0}));
}

static int compare_ids(const void *a, const void *b)
{
    const struct server_row *left = a, *right = b;
    return (left->id > right->id) - (left->id < right->id);
}

/* Without addresses and numbers of waiters, which the database in memory does not keep. */
static enum permit_status list(struct store *store, struct page *page)
{
    struct fake_store *fake = fake_of(store);
    enum permit_status status = call_enter(fake);
    if (status != PERMIT_OK)
        return status;
    struct server_row *rows = arena_array(page->arena, SERVERS_MAX, sizeof *rows);
    size_t count = 0;
    if (!rows)
        return PERMIT_NO_MEMORY;
    for (size_t i = 0; i < SERVERS_MAX; i++) {
        const struct db_server_row *row = &database.servers[i].row;
        if (row->exists)
            rows[count++] = (struct server_row){.id = row->id, .since = row->since, .alive = row->dead_at == NEVER};
    }
    qsort(rows, count, sizeof *rows, compare_ids);
    page->servers = rows;
    page_end(page, count);
    return call_leave(fake);
}

static enum permit_status mail(struct store *store, uint64_t server_id, struct page *page)
{
    struct fake_store *fake = fake_of(store);
    enum permit_status status = call_enter(fake);
    if (status != PERMIT_OK)
        return status;
    uint64_t *ids = arena_array(page->arena, MAIL_MAX, sizeof *ids);
    size_t count = 0;
    for (size_t i = 0; i < MAIL_MAX; i++)
        if (database.mail[i].exists && database.mail[i].server_id == server_id &&
            database.mail[i].request_id > page->after.number)
            ids[count++] = database.mail[i].request_id;
    qsort(ids, count, sizeof *ids, compare_u64);
    page->request_ids = ids;
    page->count = count < page->limit ? count : page->limit;
    return call_leave(fake);
}

static enum permit_status drop_mail(struct store *store, uint64_t server_id, const uint64_t *request_ids, size_t count)
{
    struct fake_store *fake = fake_of(store);
    enum permit_status status = call_enter(fake);
    return status == PERMIT_OK ? call_flush(fake, database_drop_mail(server_id, request_ids, count)) : status;
}

const struct store_servers fake_servers = {
    .mail = mail,
    .drop_mail = drop_mail,
    .list = list,
    .join = join,
    .heartbeat = heartbeat,
    .declare_dead = declare_dead,
    .remove_dead = remove_dead,
    .abandoned = abandoned,
    .leave = leave,
};
