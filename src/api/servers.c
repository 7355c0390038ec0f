/* SPDX-License-Identifier: MIT */
/* GET /v1/servers: the permitd that run on the database. */
#include "store/servers.h"

#include "api/json_out.h"
#include "api/queries.h"
#include "api/routes.h"
#include "api/service.h"

static void write_server(struct buf *out, const struct server_row *row, uint64_t own_id)
{
    buf_append_text(out, "{\"id\":");
    buf_append_u64(out, row->id);
    write_member_text(out, "address", row->address);
    write_member_text(out, "version", row->version);
    buf_append_text(out, ",\"since\":");
    write_time(out, row->since);
    buf_append_text(out, ",\"seen_at\":");
    write_time(out, row->seen_at);
    write_member_i64(out, "waiting", (int64_t)row->waiting);
    write_member_bool(out, "alive", row->alive);
    write_member_bool(out, "this", row->id == own_id);
    buf_append_char(out, '}');
}

static enum permit_status answer_list(struct exchange *exchange, struct store *store)
{
    uint64_t own_id = engine_server_id(exchange->service->engine);
    struct server_row *rows;
    size_t count;
    enum permit_status status = store->servers->list(store, &exchange->arena, &rows, &count);
    if (status == PERMIT_OK) {
        list_begin(exchange, "servers");
        for (size_t i = 0; i < count; i++) {
            if (i)
                buf_append_char(&exchange->answer.body, ',');
            write_server(&exchange->answer.body, &rows[i], own_id);
        }
        list_end(exchange);
    }
    return status;
}

bool servers_list(struct exchange *exchange)
{
    return query_submit(exchange, QUERY_LIST, answer_list, NULL);
}
