/* SPDX-License-Identifier: MIT */
/* /v1/templates: what semaphores are made with on their first use: put, look, list, remove. On readers' sessions. */
#include "store/templates.h"

#include <inttypes.h>
#include <stdio.h>

#include "http/look.h"
#include "http/operations.h"
#include "http/problem.h"
#include "http/routes.h"
#include "http/service.h"
#include "http/settings.h"
#include "http/write.h"

static void answer_template(struct exchange *exchange, const struct template *template)
{
    struct answer *answer = &exchange->answer;
    write_template(&answer->body, template);
    snprintf(answer->etag, sizeof answer->etag, "\"%" PRIu64 "\"", template->settings.config_version);
}

/* A transaction that ended in nothing, or nobody knows how. */
static void refuse_change(struct exchange *exchange, struct session *session, enum permit_status status, bool begun,
                          const char *refusal)
{
    if (begun && status == PERMIT_DATABASE_LOST)
        problem_answer(exchange, PERMIT_OUTCOME_UNKNOWN,
                       "the template may or may not have been changed; read it to find out");
    else if (refusal)
        problem_answer(exchange, status, refusal);
    else
        look_refuse(exchange, session, status);
}

/* ---- PUT ---- */

struct put {
    struct semaphore_change change;
    int64_t default_ttl_ms;
};

static void put_work(struct look *look, struct session *session, enum permit_status status)
{
    struct exchange *exchange = look_exchange(look);
    const struct put *put = exchange->context;
    struct template template;
    bool created = false;
    const char *refusal = NULL;
    if (status == PERMIT_OK)
        status = look_begin_change(exchange);
    bool begun = status == PERMIT_OK;
    if (begun)
        status = templates_put(session, exchange->parts[0], &put->change, put->default_ttl_ms, &exchange->arena,
                               &template, &created, &refusal);
    if (status == PERMIT_OK) {
        exchange->answer.http_status = created ? 201 : 200;
        answer_template(exchange, &template);
    } else {
        refuse_change(exchange, session, status, begun, refusal);
    }
    exchange_finish(exchange);
}

bool template_put(struct exchange *exchange)
{
    struct put *put = arena_alloc(&exchange->arena, sizeof *put);
    if (!put)
        return problem_answer(exchange, PERMIT_BUSY, NULL);
    enum permit_status status = semaphore_read_settings(exchange, &put->change);
    if (status != PERMIT_OK)
        return problem_answer(exchange, operation_public_status(status), buf_text(&exchange->service->message));
    if (!take_preconditions(exchange, &put->change))
        return true;
    put->default_ttl_ms = exchange->service->default_ttl_ms;
    return look_submit(exchange, LOOK_OPERATOR, put_work, put);
}

/* ---- DELETE ---- */

static void delete_work(struct look *look, struct session *session, enum permit_status status)
{
    struct exchange *exchange = look_exchange(look);
    struct template template;
    if (status == PERMIT_OK)
        status = look_begin_change(exchange);
    bool begun = status == PERMIT_OK;
    if (begun)
        status = templates_delete(session, exchange->parts[0], &exchange->arena, &template);
    if (status == PERMIT_OK)
        write_template(&exchange->answer.body, &template);
    else
        refuse_change(exchange, session, status, begun, NULL);
    exchange_finish(exchange);
}

bool template_delete(struct exchange *exchange)
{
    return look_submit(exchange, LOOK_OPERATOR, delete_work, NULL);
}

/* ---- looks ---- */

static void get_work(struct look *look, struct session *session, enum permit_status status)
{
    struct exchange *exchange = look_exchange(look);
    struct template template;
    if (status == PERMIT_OK)
        status = templates_get(session, exchange->parts[0], &exchange->arena, &template);
    if (status == PERMIT_OK)
        answer_template(exchange, &template);
    else
        look_refuse(exchange, session, status);
    exchange_finish(exchange);
}

bool template_get(struct exchange *exchange)
{
    return look_submit(exchange, LOOK_ROW, get_work, NULL);
}

struct page {
    struct bytes prefix;
    struct bytes after;
    uint64_t limit;
};

static void list_work(struct look *look, struct session *session, enum permit_status status)
{
    struct exchange *exchange = look_exchange(look);
    const struct page *page = exchange->context;
    struct template *templates;
    size_t count;
    if (status == PERMIT_OK)
        status = templates_list(session, page->prefix, page->after, (unsigned)page->limit + 1, &exchange->arena,
                                &templates, &count);
    if (status == PERMIT_OK) {
        list_begin(exchange, "templates");
        for (size_t i = 0; i < count && i < page->limit; i++) {
            if (i)
                buf_append_char(&exchange->answer.body, ',');
            write_template(&exchange->answer.body, &templates[i]);
        }
        if (count > page->limit)
            list_next_text(exchange, templates[page->limit - 1].prefix);
        else
            list_end(exchange);
    } else {
        look_refuse(exchange, session, status);
    }
    exchange_finish(exchange);
}

bool template_list(struct exchange *exchange)
{
    struct page *page = arena_alloc(&exchange->arena, sizeof *page);
    if (!page)
        return problem_answer(exchange, PERMIT_BUSY, NULL);
    page->prefix = exchange->values[0];
    page->after = exchange->values[1];
    if (!query_number(exchange, 2, "limit", 1, LIST_MAX_LIMIT, LIST_DEFAULT_LIMIT, &page->limit))
        return true;
    return look_submit(exchange, LOOK_LIST, list_work, page);
}
