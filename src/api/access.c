/* SPDX-License-Identifier: MIT */
#include "api/access.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "api/call.h"
#include "api/namespaces.h"
#include "api/problem.h"
#include "api/service.h"
#include "base/list.h"
#include "base/log.h"
#include "base/map.h"
#include "base/metric.h"
#include "core/name.h"
#include "http/router.h"
#include "http/server.h"

enum {
    METRICS_PRINCIPALS = 1000, /* principals with metrics of their own */
    SESSION_TEXT_MAX = 128,    /* longer values of Authorization are not valid, or have much white space: not cached */
};

/* Kept until the process ends, so that counters never decrease. */
struct caller_counts {
    struct map_node by_name;
    struct list node; /* of access->listed */
    struct quota_state quotas;
    uint64_t requests;
    uint64_t refused; /* answered 403 */
    char name[];
};

struct access {
    uint64_t results[AUTH_RESULTS];
    struct map counts;
    struct list listed; /* all of `counts`, oldest first */
};

/*
 * The last credential of a connection that was accepted. The next request with the same bytes costs one comparison. The
 * principal is valid while `generation` is that of the table in use.
 */
struct accepted {
    uint64_t generation;
    int64_t until; /* seconds since 1970 at which the credential ends; INT64_MAX: never */
    const struct principal *principal;
    struct caller_counts *counts;
    struct caller_counts *counted; /* the connection counts for this principal; NULL: for none */
    size_t length;                 /* of the value of Authorization; 0: the request had none */
    char text[SESSION_TEXT_MAX];
};

/* ---- counters ---- */

struct access *access_new(void)
{
    struct access *access = calloc(1, sizeof *access);
    if (access)
        list_init(&access->listed);
    return access;
}

void access_free(struct access *access)
{
    if (!access)
        return;
    map_release(&access->counts);
    list_for_each (node, following, &access->listed) {
        struct caller_counts *counts = LIST_ENTRY(node, struct caller_counts, node);
        quota_state_release(&counts->quotas);
        free(counts);
    }
    free(access);
}

/* Returns the counters of a principal. NULL: no memory. */
static struct caller_counts *counts_of(const struct exchange *exchange, const char *name)
{
    struct access *access = exchange->service->access;
    struct bytes key = bytes_of(name);
    struct map_node *node = map_find(&access->counts, key);
    if (node)
        return MAP_ENTRY(node, struct caller_counts, by_name);
    struct caller_counts *counts = calloc(1, sizeof *counts + key.length + 1);
    if (!counts)
        return NULL;
    memcpy(counts->name, name, key.length);
    if (!map_insert(&access->counts, &counts->by_name, (struct bytes){counts->name, key.length})) {
        free(counts);
        return NULL;
    }
    quota_state_init(&counts->quotas, exchange->server);
    list_append(&access->listed, &counts->node);
    return counts;
}

/* ---- authentication ---- */

enum auth_result access_identify(const struct principals *table, const struct client *client, const char *value,
                                 unsigned times, int64_t now, struct identity *ret_identity)
{
    const struct principal *certified = NULL;
    enum auth_result result =
        principals_of_certificate(table, client->certificate_names, client->certificate_name_count, &certified);
    if (result == AUTH_CONFLICT)
        return result;
    if (times == 0) {
        const struct principal *ambient =
            client->transport == CLIENT_UNIX ? principals_of_user(table, client->uid) : certified;
        if (!ambient)
            return result;
        *ret_identity = (struct identity){ambient, INT64_MAX};
        return AUTH_OK;
    }
    struct bytes token = times == 1 ? principals_token_of_header(value) : (struct bytes){0};
    if (!token.data)
        return AUTH_MALFORMED;
    int64_t until;
    const struct principal *principal = principals_of_token(table, token, now, &until, &result);
    if (!principal)
        return result;
    if (certified && certified != principal)
        return AUTH_CONFLICT;
    *ret_identity = (struct identity){principal, until};
    return AUTH_OK;
}

/*
 * As bytes_equal, in a time that depends only on the lengths: the clients of a proxy share connections, and one must
 * not measure the token of another.
 */
static bool same_secret(struct bytes a, struct bytes b)
{
    unsigned difference = 0;
    if (a.length != b.length)
        return false;
    for (size_t i = 0; i < a.length; i++)
        difference |= (unsigned char)(a.data[i] ^ b.data[i]);
    return difference == 0;
}

static bool session_knows(const struct accepted *session, const struct principals *table, struct bytes value,
                          unsigned times)
{
    bool valid = session && session->generation == principals_generation(table) &&
                 (session->until == INT64_MAX || time(NULL) < session->until);
    return valid && times == (session->length > 0) &&
           same_secret(value, (struct bytes){session->text, session->length});
}

/* Stores the accepted credential in the connection's session, unless its value is too long or there is no memory. */
static void session_keep(struct client *client, const struct principals *table, struct bytes value, int64_t until,
                         const struct caller *caller)
{
    if (!client->session)
        client->session = calloc(1, sizeof(struct accepted));
    struct accepted *session = client->session;
    if (!session)
        return;
    session->generation = value.length <= SESSION_TEXT_MAX ? principals_generation(table) : 0;
    session->until = until;
    session->principal = caller->principal;
    session->counts = caller->counts;
    session->length = session->generation ? value.length : 0;
    if (session->length)
        memcpy(session->text, value.data, value.length);
}

static void give_back_connection(struct accepted *session)
{
    if (session->counted)
        quota_give_back(&session->counted->quotas, QUOTA_CONNECTIONS, 1);
    session->counted = NULL;
}

/*
 * Counts the connection, and from now on its memory, for the caller instead of for its last one. False: the exchange's
 * answer is the refusal.
 */
static bool take_connection(struct exchange *exchange)
{
    struct caller_counts *counts = call_of(exchange)->caller.counts;
    struct accepted *session = exchange->client->session;
    if (!session || session->counted == counts)
        return true;
    give_back_connection(session);
    if (!quota_take(exchange, QUOTA_CONNECTIONS, 1))
        return false;
    session->counted = counts;
    exchange->client->share = &counts->quotas.share;
    return true;
}

void access_end_session(void *session)
{
    give_back_connection(session);
    free(session);
}

/* Sets principal and counts of the caller, from the session or from the credentials. */
static enum auth_result authenticate(const struct exchange *exchange, const char *text, unsigned times,
                                     struct caller *caller)
{
    const struct principals *table = exchange->service->principals;
    struct client *client = exchange->client;
    const struct accepted *session = client->session;
    struct bytes value = bytes_of(text);
    struct identity identity;
    if (session_knows(session, table, value, times)) {
        caller->principal = session->principal;
        caller->counts = session->counts;
        return AUTH_OK;
    }
    enum auth_result result = access_identify(table, client, text, times, time(NULL), &identity);
    if (result == AUTH_OK) {
        caller->principal = identity.principal;
        caller->counts = counts_of(exchange, caller->principal->name);
        if (caller->counts)
            quota_limit_answers(&caller->counts->quotas, &caller->principal->quotas);
        session_keep(client, table, value, identity.until, caller);
    }
    return result;
}

/* Keeps the client's address for the log, if the request is a change of an operator. */
static void keep_address(struct exchange *exchange)
{
    if (exchange->method != METHOD_GET && access_has(exchange, RIGHT_OPERATE | RIGHT_ADMIN))
        call_of(exchange)->caller.address = arena_copy(&exchange->arena, bytes_of(exchange->client->address)).data;
}

bool access_admit(struct exchange *exchange, bool open)
{
    struct access *access = exchange->service->access;
    struct caller *caller = &call_of(exchange)->caller;
    unsigned times;
    if (!exchange->service->principals)
        return true;
    const char *value = exchange_header(exchange, "Authorization", &times);
    enum auth_result result = authenticate(exchange, value, times, caller);
    if (result == AUTH_MISSING && open)
        return true;
    access->results[result]++;
    if (result != AUTH_OK) {
        if (result != AUTH_MISSING) { /* without a credential a request is no guess: a proxy's health check is one */
            server_count_failure(exchange);
            exchange->answer.close = true; /* on an open route, too: no connection makes two guesses */
        }
        return open || !problem_answer(exchange, PERMIT_UNAUTHENTICATED, NULL);
    }
    caller->table = principals_ref(exchange->service->principals);
    if (caller->counts) {
        caller->counts->requests++;
        caller->quotas = &caller->counts->quotas;
        if (!take_connection(exchange))
            return false;
    }
    keep_address(exchange);
    return true;
}

/*
 * Authenticates again with the credential of the connection's session. False: it is not the same principal's any more.
 */
static bool authenticate_again(const struct exchange *exchange, struct caller *ret_caller)
{
    const struct accepted *session = exchange->client->session;
    char value[SESSION_TEXT_MAX + 1] = "";
    if (session)
        memcpy(value, session->text, session->length);
    return authenticate(exchange, value, value[0] != 0, ret_caller) == AUTH_OK &&
           strcmp(ret_caller->principal->name, access_principal(exchange)->name) == 0;
}

bool access_readmit(struct exchange *exchange)
{
    struct caller *caller = &call_of(exchange)->caller;
    struct caller now = {0};
    if (!caller->principal)
        return true;
    if (!authenticate_again(exchange, &now))
        return false;
    principals_unref(caller->table);
    caller->table = principals_ref(exchange->service->principals);
    caller->principal = now.principal;
    keep_address(exchange);
    return true;
}

bool access_may_wait(struct exchange *exchange)
{
    const struct call *call = call_of(exchange);
    struct caller now = {0};
    if (!call->caller.principal)
        return true;
    if (!authenticate_again(exchange, &now) || !(now.principal->rights & call->route->right) ||
        !bytes_equal(now.principal->namespace, call->caller.principal->namespace))
        return false;
    if (!call->item_count) /* a reader of the feed, whose pages have what its scope covered */
        return scope_covers_scope(&now.principal->scope, &call->caller.principal->scope);
    for (size_t i = 0; i < call->first.operation.want_count; i++)
        if (!scope_covers(&now.principal->scope, call->first.operation.wants[i].semaphore))
            return false;
    return true;
}

/* ---- what a caller may do ---- */

const struct principal *access_principal(const struct exchange *exchange)
{
    return CONTAINER_OF(exchange, const struct call, exchange)->caller.principal;
}

struct bytes access_name(const struct exchange *exchange)
{
    const struct principal *principal = access_principal(exchange);
    return principal ? bytes_of(principal->name) : (struct bytes){0};
}

int64_t access_until(const struct exchange *exchange)
{
    const struct accepted *session = exchange->client->session;
    return exchange->service->principals && session ? session->until : INT64_MAX;
}

bool access_is_known(const struct exchange *exchange)
{
    return !exchange->service->principals || access_principal(exchange);
}

bool access_has(const struct exchange *exchange, unsigned rights)
{
    const struct principal *principal = access_principal(exchange);
    return !exchange->service->principals || (principal && principal->rights & rights);
}

/* A scope of everything becomes NULL, which costs nothing. */
const struct scope *access_scope(const struct exchange *exchange)
{
    const struct principal *principal = access_principal(exchange);
    if (!principal)
        return exchange->service->principals ? &scope_of_nothing : NULL;
    return scope_covers_prefix(&principal->scope, (struct bytes){"", 0}) ? NULL : &principal->scope;
}

void access_mark(const struct exchange *exchange, struct operation *operation)
{
    operation->principal = access_name(exchange);
    operation->scope = access_scope(exchange);
    operation->needs_permits = !namespaces_reach(exchange, operation->external_id);
}

const char *right_word(unsigned right)
{
    switch (right) {
    case RIGHT_LOOK: return "look";
    case RIGHT_USE: return "use";
    case RIGHT_OPERATE: return "operate";
    case RIGHT_ADMIN: return "admin";
    case RIGHT_FENCE: return "fence";
    case RIGHT_METRICS: return "metrics";
    default: return "";
    }
}

/* Refuses a call. The message is "needs the right look or fence", then `where` and the name. */
static enum permit_status forbid(struct buf *message, unsigned rights, const char *where, struct bytes name)
{
    const char *between = "needs the right ";
    buf_clear(message);
    for (unsigned right = 1; right <= RIGHT_METRICS; right <<= 1) {
        if (!(rights & right))
            continue;
        buf_append_text(message, between);
        buf_append_text(message, right_word(right));
        between = " or ";
    }
    buf_append_text(message, where);
    buf_append(message, name.data, name.length);
    return PERMIT_FORBIDDEN;
}

enum permit_status access_check_right(const struct exchange *exchange, unsigned rights, struct buf *message)
{
    if (rights == RIGHT_OPEN || access_has(exchange, rights))
        return PERMIT_OK;
    return forbid(message, rights, "", BYTES(""));
}

enum permit_status access_check_semaphore(const struct exchange *exchange, unsigned rights, struct bytes name,
                                          struct buf *message)
{
    bool may = access_has(exchange, rights) && scope_covers(access_scope(exchange), name);
    return may ? PERMIT_OK : forbid(message, rights, " on ", name);
}

enum permit_status access_check_prefix(const struct exchange *exchange, unsigned rights, struct bytes prefix,
                                       struct buf *message)
{
    bool may = access_has(exchange, rights) && scope_covers_prefix(access_scope(exchange), prefix);
    return may ? PERMIT_OK : forbid(message, rights, " on all semaphores that begin with ", prefix);
}

enum permit_status access_check_wants(const struct exchange *exchange, const struct operation *operation,
                                      struct buf *message)
{
    enum permit_status status = PERMIT_OK;
    for (size_t i = 0; i < operation->want_count && status == PERMIT_OK; i++)
        status = access_check_semaphore(exchange, RIGHT_USE, operation->wants[i].semaphore, message);
    return status;
}

bool access_covers_request(const struct exchange *exchange, const struct request *request, const struct bytes *names)
{
    const struct scope *scope = access_scope(exchange);
    bool waits = request->state == REQUEST_WAITING;
    if (request->permit_count == 0 && !waits)
        return namespaces_reach(exchange, request->external_id);
    for (size_t i = 0; scope && i < request->permit_count; i++)
        if (!scope_covers(scope, names[i]))
            return false;
    for (size_t i = 0; scope && waits && i < request->want_count; i++)
        if (!scope_covers(scope, request->wants[i].semaphore))
            return false;
    return true;
}

/* ---- the record ---- */

void access_audit(struct exchange *exchange, const struct route *route, unsigned rights)
{
    if (route->method != METHOD_GET && rights & (RIGHT_OPERATE | RIGHT_ADMIN) && access_principal(exchange))
        call_of(exchange)->caller.audited = route;
}

/* Logs a change in one line: principal, address, route, name, reason and HTTP status. */
static void log_change(const struct exchange *exchange, const struct call *call)
{
    static const char *const words[] = {[METHOD_PUT] = "PUT", [METHOD_POST] = "POST", [METHOD_DELETE] = "DELETE"};
    enum { TEXT_MAX = 1024 };
    const struct caller *caller = &call->caller;
    struct key_parts parts = key_split(exchange->path_values[0]);
    bool has_operation = call->item_count == 1 && !call->batch;
    struct bytes why = has_operation ? call->first.operation.why : caller->why;
    char what[64];
    char name_text[TEXT_MAX];
    char namespace[NAMESPACE_MAX_BYTES + 1];
    char why_text[TEXT_MAX];
    char status[12];
    snprintf(what, sizeof what, "%s %s", words[caller->audited->method], caller->audited->path);
    snprintf(name_text, sizeof name_text, "%.*s", (int)parts.key.length, parts.key.data ? parts.key.data : "");
    snprintf(namespace, sizeof namespace, "%.*s", (int)parts.namespace.length,
             parts.namespace.data ? parts.namespace.data : "");
    snprintf(why_text, sizeof why_text, "%.*s", (int)why.length, why.data ? why.data : "");
    snprintf(status, sizeof status, "%d", exchange->answer.http_status);
    log_write(LOG_INFO, "change", "principal", caller->principal->name, "peer", caller->address, "what", what, "name",
              name_text, "why", why_text, "outcome", status, "request_id", exchange->id,
              namespace[0] ? "namespace" : NULL, namespace, NULL);
}

void access_end_call(struct exchange *exchange)
{
    enum { FORBIDDEN = 403 };
    struct call *call = call_of(exchange);
    struct caller *caller = &call->caller;
    if (!caller->table)
        return;
    if (caller->counts && exchange->answer.http_status == FORBIDDEN)
        caller->counts->refused++;
    if (caller->audited)
        log_change(exchange, call);
    if (caller->bytes)
        quota_give_back(caller->quotas, QUOTA_BYTES, caller->bytes);
    if (caller->waits)
        quota_give_back(caller->quotas, QUOTA_WAITING, 1);
    principals_unref(caller->table);
    *caller = (struct caller){0};
}

/* ---- metrics ---- */

/* One row for each metric with the label `principal` only; write_principals has the values in the same order. */
static const struct {
    const char *name;
    const char *type;
    const char *help;
} principal_metrics[] = {
    {"permitd_principal_requests_total", "counter", "Requests of a principal."},
    {"permitd_principal_refused_total", "counter", "Requests of a principal that were answered 403."},
    {"permitd_principal_connections", "gauge", "Open connections of a principal."},
    {"permitd_principal_waiting", "gauge", "Acquires of a principal that wait."},
    {"permitd_principal_bytes", "gauge", "Bytes of bodies of a principal's requests under way."},
    {"permitd_principal_answers", "gauge", "Bytes of a principal's answers that are made or not read."},
};

/* Labels need no escaping: names of principals have neither quote, backslash nor line end. */
static void write_principals(const struct access *access, size_t metric, struct buf *out)
{
    size_t written = 0;
    metric_head(out, principal_metrics[metric].name, principal_metrics[metric].type, principal_metrics[metric].help);
    list_for_each (node, following, &access->listed) {
        struct caller_counts *counts = LIST_ENTRY(node, struct caller_counts, node);
        if (written++ == METRICS_PRINCIPALS)
            return;
        const int64_t *under_way = counts->quotas.usage.under_way;
        mutex_lock(&counts->quotas.mutex);
        const int64_t values[ARRAY_LENGTH(principal_metrics)] = {
            (int64_t)counts->requests,    (int64_t)counts->refused,
            under_way[QUOTA_CONNECTIONS], under_way[QUOTA_WAITING],
            under_way[QUOTA_BYTES],       (int64_t)atomic_load(&counts->quotas.share.answering.used),
        };
        mutex_unlock(&counts->quotas.mutex);
        buf_printf(out, "%s{principal=\"%s\"} %lld\n", principal_metrics[metric].name, counts->name,
                   (long long)values[metric]);
    }
}

static void write_quotas(const struct access *access, struct buf *out)
{
    static const char name[] = "permitd_principal_quota_refused_total";
    size_t written = 0;
    metric_head(out, name, "counter",
                "Requests of a principal that were answered 429, because they were beyond a quota.");
    list_for_each (node, following, &access->listed) {
        struct caller_counts *counts = LIST_ENTRY(node, struct caller_counts, node);
        struct quota_state *state = &counts->quotas;
        if (written++ == METRICS_PRINCIPALS)
            return;
        mutex_lock(&state->mutex);
        for (enum quota quota = 0; quota < QUOTA_COUNT; quota++)
            if (state->limited[quota])
                buf_printf(out, "%s{principal=\"%s\",quota=\"%s\"} %llu\n", name, counts->name, quota_word(quota),
                           (unsigned long long)state->refused[quota]);
        mutex_unlock(&state->mutex);
    }
}

void access_write_metrics(const struct access *access, struct buf *out)
{
    metric_head(out, "permitd_auth_total", "counter", "Requests by the result of their authentication.");
    for (enum auth_result result = 0; result < AUTH_RESULTS; result++)
        buf_printf(out, "permitd_auth_total{result=\"%s\"} %llu\n", auth_result_word(result),
                   (unsigned long long)access->results[result]);
    for (size_t i = 0; i < ARRAY_LENGTH(principal_metrics); i++)
        write_principals(access, i, out);
    write_quotas(access, out);
}
