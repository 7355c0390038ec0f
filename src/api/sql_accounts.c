/* SPDX-License-Identifier: MIT */
/* /v1/sql-accounts: the SQL users that may call the procedures of shops. All run on readers' sessions. */
#include "store/sql_accounts.h"

#include "api/access.h"
#include "api/call.h"
#include "api/json_out.h"
#include "api/principals.h"
#include "api/problem.h"
#include "api/queries.h"
#include "api/routes.h"
#include "api/service.h"
#include "store/procedures.h"

/* Writes ,"grants":[...], the statements by which an administrator lets the account call the procedures. */
static void write_grants(struct buf *out, struct bytes database, struct bytes user)
{
    struct buf grant;
    buf_init(&grant, 2048);
    buf_append_text(out, ",\"grants\":[");
    for (size_t i = 0; i < ARRAY_LENGTH(procedures_public); i++) {
        buf_clear(&grant);
        buf_printf(&grant, "GRANT EXECUTE ON PROCEDURE `%.*s`.%s TO '%.*s'@'%%'", (int)database.length, database.data,
                   procedures_public[i], (int)user.length, user.data);
        buf_append_text(out, i ? "," : "");
        write_text(out, bytes_of(buf_text(&grant)));
    }
    buf_append_char(out, ']');
    buf_release(&grant);
}

static enum permit_status
answer_change(struct exchange *exchange, struct store *store,
              enum permit_status (*run)(struct store *store, struct sql_account_change *change, struct arena *arena))
{
    struct sql_account_change *change = exchange->context;
    enum permit_status status = query_begin_change(exchange);
    if (status != PERMIT_OK)
        return status;
    status = run(store, change, &exchange->arena);
    if (status == PERMIT_DATABASE_LOST)
        problem_answer(exchange, PERMIT_OUTCOME_UNKNOWN,
                       "the account may or may not have been changed; read it to find out");
    return status == PERMIT_DATABASE_LOST ? PERMIT_OK : status;
}

static bool submit_change(struct exchange *exchange, query_answer *answer, struct bytes namespace)
{
    const struct principal *principal = access_principal(exchange);
    struct sql_account_change *change = arena_alloc(&exchange->arena, sizeof *change);
    if (!change)
        return problem_answer(exchange, PERMIT_BUSY, NULL);
    *change = (struct sql_account_change){.account = {exchange->path_values[0], namespace},
                                          .who = principal ? bytes_of(principal->name) : (struct bytes){0}};
    return query_submit(exchange, QUERY_OPERATOR, answer, change);
}

/* ---- PUT ---- */

static enum permit_status answer_put(struct exchange *exchange, struct store *store)
{
    const struct sql_account_change *change = exchange->context;
    struct buf *out = &exchange->answer.body;
    enum permit_status status = answer_change(exchange, store, store->sql_accounts->put);
    if (status != PERMIT_OK || out->length)
        return status;
    exchange->answer.http_status = change->ret_before.user.data ? 200 : 201;
    write_sql_account_begin(out, &change->account);
    write_grants(out, change->ret_database, change->account.user);
    buf_append_char(out, '}');
    return PERMIT_OK;
}

/* Refuses a namespace that no principal has: its keys cannot be there, so it is a mistake. */
bool sql_account_put(struct exchange *exchange)
{
    struct bytes namespace = call_of(exchange)->namespace;
    const struct principals *principals = exchange->service->principals;
    if (namespace.length && !(principals && principals_have_namespace(principals, namespace)))
        return problem_answer(exchange, PERMIT_INVALID,
                              "no principal has this namespace; add one to the credentials first");
    return submit_change(exchange, answer_put, namespace);
}

/* ---- DELETE ---- */

static enum permit_status answer_delete(struct exchange *exchange, struct store *store)
{
    const struct sql_account_change *change = exchange->context;
    enum permit_status status = answer_change(exchange, store, store->sql_accounts->delete);
    if (status == PERMIT_OK && !exchange->answer.body.length)
        write_sql_account(&exchange->answer.body, &change->ret_before);
    return status;
}

bool sql_account_delete(struct exchange *exchange)
{
    return submit_change(exchange, answer_delete, (struct bytes){0});
}

/* ---- GET ---- */

static enum permit_status answer_get(struct exchange *exchange, struct store *store)
{
    struct sql_account account;
    enum permit_status status = store->sql_accounts->get(store, exchange->path_values[0], &exchange->arena, &account);
    if (status == PERMIT_OK)
        write_sql_account(&exchange->answer.body, &account);
    return status;
}

bool sql_account_get(struct exchange *exchange)
{
    return query_submit(exchange, QUERY_ROW, answer_get, NULL);
}
