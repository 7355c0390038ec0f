/* SPDX-License-Identifier: MIT */
/* GET /v1/webhooks: the URLs to which events are sent, how far each is, and its keys. */
#include "engine/webhooks.h"

#include "api/access.h"
#include "api/json_out.h"
#include "api/problem.h"
#include "api/queries.h"
#include "api/routes.h"
#include "api/service.h"
#include "api/webhooks.h"
#include "base/metric.h"
#include "store/doctor.h"

/* ---- the setting ---- */

static bool refuse_url(struct exchange *exchange, enum permit_status status, const char *why)
{
    struct buf detail;
    buf_init(&detail, 256);
    buf_printf(&detail, "feed_url: %s", why);
    bool refused = problem_answer(exchange, status, buf_text(&detail));
    buf_release(&detail);
    return !refused;
}

bool webhook_enter(struct exchange *exchange, struct semaphore_change *change)
{
    struct webhook_policy policy;
    struct bytes host;
    if (!change->has_feed_url || change->feed_url.length == 0) {
        change->feed_url = (struct bytes){0};
        return true;
    }
    const char *fault = webhook_url_fault(change->feed_url, &host);
    engine_webhook_policy(exchange->service->engine, &policy);
    if (!fault && policy.secret_count == 0)
        fault = "this permitd sends nothing: it has no setting webhook_secret";
    if (!fault && !webhook_allows_host(&policy, host))
        fault = "the host is not in the setting webhook_hosts";
    if (fault)
        return refuse_url(exchange, PERMIT_INVALID, fault);
    change->feed_url = namespace_store(exchange, change->feed_url);
    if (!change->feed_url.data)
        return !problem_answer(exchange, PERMIT_BUSY, NULL);
    return engine_may_name_webhook(exchange->service->engine, change->feed_url) ||
           refuse_url(exchange, PERMIT_TOO_MANY, "semaphores and templates name 100 other URLs");
}

/* ---- events ---- */

void webhook_write_event(struct buf *out, struct bytes stored_url, const struct feed_row *event, uint64_t epoch,
                         const struct feed_permit *permits, size_t count)
{
    const struct viewer viewer = {.namespace = key_split(stored_url).namespace, .sees_all = true};
    write_feed_event(out, &viewer, event, epoch, permits, count);
}

/* ---- the list ---- */

static uint64_t events_behind(const struct webhook_row *row, const struct webhook_list *list)
{
    return list->ret_head > row->position.seq ? list->ret_head - row->position.seq : 0;
}

static void write_time_or_null(struct buf *out, const char *name, utc_us time)
{
    buf_printf(out, ",\"%s\":", name);
    if (time == NEVER)
        buf_append_text(out, "null");
    else
        write_time(out, time);
}

/* Writes the keys, in the order of the secrets, for those that may verify calls of this namespace. */
static enum permit_status write_keys(struct exchange *exchange, const struct webhook_policy *policy, struct bytes url)
{
    struct buf *out = &exchange->answer.body;
    buf_append_text(out, ",\"keys\":[");
    for (size_t i = 0; i < policy->secret_count; i++) {
        unsigned char key[DIGEST_SIZE];
        if (!webhook_key(policy->secrets[i], url, key))
            return PERMIT_NO_MEMORY;
        buf_append_text(out, i ? ",\"" : "\"");
        buf_append_hex(out, key, sizeof key);
        buf_append_char(out, '"');
    }
    buf_append_char(out, ']');
    return PERMIT_OK;
}

static enum permit_status write_webhook(struct exchange *exchange, const struct webhook_policy *policy,
                                        const struct webhook_list *list, const struct webhook_row *row)
{
    struct buf *out = &exchange->answer.body;
    const struct viewer viewer = viewer_of(exchange);
    const struct lease_clock *clock = &list->ret_time.clock;
    char id[WEBHOOK_ID_SIZE];
    webhook_id(row->url, id);
    buf_append_text(out, "{\"webhook\":");
    write_text(out, bytes_of(id));
    write_member_key(out, &viewer, "url", row->url);
    buf_append_text(out, ",\"position\":\"");
    feed_position_format(row->position, out);
    buf_append_char(out, '"');
    write_member_u64(out, "behind", events_behind(row, list));
    write_time_or_null(out, "behind_since", row->behind_since);
    write_member_u64(out, "failures", row->failures);
    write_time_or_null(out, "failing_since", row->failing_since);
    write_time_or_null(out, "called_at", row->called_at);
    write_member_u64(out, "http_status", row->status);
    write_member_text(out, "error", row->error);
    write_time_or_null(out, "retry_at", lease_to_wall(clock, row->retry_at));
    enum permit_status status =
        namespaces_reach(exchange, row->url) ? write_keys(exchange, policy, row->url) : PERMIT_OK;
    buf_append_char(out, '}');
    return status;
}

static enum permit_status answer_webhooks(struct exchange *exchange, struct store *store)
{
    struct webhook_policy policy;
    struct webhook_list list = {.ret_count = 0};
    enum permit_status status = store->webhooks->show(store, access_scope(exchange), &exchange->arena, &list);
    engine_webhook_policy(exchange->service->engine, &policy);
    if (status != PERMIT_OK)
        return status;
    buf_append_text(&exchange->answer.body, "{\"webhooks\":[");
    for (size_t i = 0; status == PERMIT_OK && i < list.ret_count; i++) {
        buf_append_text(&exchange->answer.body, i ? "," : "");
        status = write_webhook(exchange, &policy, &list, &list.ret_rows[i]);
    }
    buf_append_text(&exchange->answer.body, "]}");
    return status;
}

bool webhooks_get(struct exchange *exchange)
{
    return query_submit(exchange, QUERY_OPERATOR, answer_webhooks, NULL);
}

/* ---- metrics and doctor ---- */

static double seconds_since(utc_us since, const struct webhook_list *list)
{
    return since == NEVER ? 0 : (double)max_i64(0, list->ret_time.now - since) / (double)US_PER_SECOND;
}

void webhooks_write_metrics(struct buf *out, struct store *store, struct arena *arena)
{
    static const char *const gauges[][2] = {
        {"permitd_webhook_behind_events",
         "Events of the feed behind the position of a webhook, those of other semaphores included."},
        {"permitd_webhook_behind_seconds", "Age of the first of them."},
        {"permitd_webhook_failures", "Calls of it that failed since the last that did not."},
        {"permitd_webhook_http_status", "Status of its last call; 0: no answer."},
    };
    struct webhook_list list = {.ret_count = 0};
    char id[WEBHOOK_ID_SIZE];
    if (store->webhooks->show(store, NULL, arena, &list) != PERMIT_OK)
        return;
    for (size_t g = 0; g < ARRAY_LENGTH(gauges); g++) {
        metric_head(out, gauges[g][0], "gauge", gauges[g][1]);
        for (size_t i = 0; i < list.ret_count; i++) {
            const struct webhook_row *row = &list.ret_rows[i];
            const double values[] = {(double)events_behind(row, &list), seconds_since(row->behind_since, &list),
                                     (double)row->failures, (double)row->status};
            webhook_id(row->url, id);
            buf_printf(out, "%s{webhook=\"%s\"} %.15g\n", gauges[g][0], id, values[g]);
        }
    }
}

enum { BEHIND_S = 60, NAMED = 3 };

enum permit_status webhooks_find(const struct service *service, struct store *store, struct doctor_report *report)
{
    struct webhook_policy policy;
    struct webhook_list list = {.ret_count = 0};
    struct arena arena;
    size_t late = 0;
    arena_init(&arena, 16 * 1024, 1024 * 1024);
    enum permit_status status = store->webhooks->show(store, NULL, &arena, &list);
    engine_webhook_policy(service->engine, &policy);
    for (size_t i = 0; status == PERMIT_OK && i < list.ret_count; i++) {
        const struct webhook_row *row = &list.ret_rows[i];
        char id[WEBHOOK_ID_SIZE];
        if (row->failures == 0 && seconds_since(row->behind_since, &list) < BEHIND_S)
            continue;
        webhook_id(row->url, id);
        if (late++ < NAMED)
            doctor_add(report, "webhooks", DOCTOR_WARN,
                       "webhook %s is %llu events behind, since %.0f s: %llu calls failed, the last with %.*s; see "
                       "permitctl webhooks",
                       id, (unsigned long long)events_behind(row, &list), seconds_since(row->behind_since, &list),
                       (unsigned long long)row->failures, (int)(row->error.length ? row->error.length : 7),
                       row->error.length ? row->error.data : "nothing");
    }
    arena_release(&arena);
    if (status != PERMIT_OK)
        return status;
    if (late > NAMED)
        doctor_add(report, "webhooks", DOCTOR_WARN, "%zu more webhooks are behind", late - NAMED);
    if (list.ret_count && policy.secret_count == 0)
        doctor_add(report, "webhooks", DOCTOR_WARN,
                   "semaphores name %zu URLs, but this permitd has no webhook_secret, and sends nothing",
                   list.ret_count);
    else if (list.ret_more)
        doctor_add(report, "webhooks", DOCTOR_WARN, "more than %d URLs are named; the others get no events",
                   WEBHOOKS_MAX);
    else if (late == 0)
        doctor_add(report, "webhooks", DOCTOR_OK, "%zu webhooks, none is behind", list.ret_count);
    return PERMIT_OK;
}
