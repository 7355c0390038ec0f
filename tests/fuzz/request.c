/* SPDX-License-Identifier: MIT */
/*
 * From the bytes of a request to an operation, and from the decision to an answer: all of src/http and src/api that does
 * not use libevent. The input:
 *
 *     A00job-42?confirmed=true     one byte each: the route (the table below), the decision, the engine's acceptance;
 *                                  then the variable part of the path and the query, percent-encoded
 *     Kjob-42                      headers, one a line: a letter and the value
 *     {"permits":[...]}            the body, after an empty line
 *
 * Each input runs twice: the second time on the exchange of the first, and an acquire with its members reversed.
 * world.c checks the operations that reach the engine.
 */
#include <json-c/json.h>
#include <strings.h>

#include "api/availability_cache.h"
#include "api/json_in.h"
#include "api/problem.h"
#include "api/readiness.h"
#include "api/refusal.h"
#include "api/routes.h"
#include "base/clock.h"
#include "fuzz.h"
#include "json.h"
#include "world.h"

/* ---- the input ---- */

/* The first row has letter A. Method and path, to which the input adds the end or the middle. */
static const struct {
    enum http_method method;
    const char *before;
    const char *behind;
} routes[] = {
    {METHOD_POST, "/v1/requests", ""},                /* A */
    {METHOD_DELETE, "/v1/requests/", ""},             /* B */
    {METHOD_POST, "/v1/requests/", "/renew"},         /* C */
    {METHOD_POST, "/v1/requests/", "/confirm"},       /* D */
    {METHOD_POST, "/v1/batch", ""},                   /* E */
    {METHOD_GET, "/v1/requests/", ""},                /* F */
    {METHOD_GET, "/v1/requests/", "/why"},            /* G */
    {METHOD_GET, "/v1/requests", ""},                 /* H */
    {METHOD_POST, "/v1/requests/", "/force-release"}, /* I */
    {METHOD_GET, "/v1/semaphores/", ""},              /* J */
    {METHOD_GET, "/v1/semaphores/", "/fence"},        /* K */
    {METHOD_GET, "/v1/semaphores/", "/holders"},      /* L */
    {METHOD_GET, "/v1/semaphores/", "/waiters"},      /* M */
    {METHOD_GET, "/v1/semaphores/", "/events"},       /* N */
    {METHOD_GET, "/v1/semaphores", ""},               /* O */
    {METHOD_PUT, "/v1/semaphores/", ""},              /* P */
    {METHOD_DELETE, "/v1/semaphores/", ""},           /* Q */
    {METHOD_POST, "/v1/semaphores/", "/pause"},       /* R */
    {METHOD_POST, "/v1/semaphores/", "/resume"},      /* S */
    {METHOD_POST, "/v1/fence/bump", ""},              /* T */
    {METHOD_PUT, "/v1/owners/", ""},                  /* U */
    {METHOD_GET, "/v1/owners/", ""},                  /* V */
    {METHOD_DELETE, "/v1/owners/", ""},               /* W */
    {METHOD_GET, "/", ""},                            /* X */
    {METHOD_PUT, "/", ""},                            /* Y */
    {METHOD_POST, "/", ""},                           /* Z */
    {METHOD_DELETE, "/", ""},                         /* [ */
    {METHOD_OTHER, "/", ""},                          /* \ */
    {METHOD_GET, "", ""},                             /* ] */
    {METHOD_PUT, "/v1/semaphores/", "/slots"},        /* ^ */
    {METHOD_GET, "/v1/semaphores/", "/slots"},        /* _ */
    {METHOD_PUT, "/v1/templates/", ""},               /* ` */
    {METHOD_GET, "/v1/templates/", ""},               /* a */
    {METHOD_DELETE, "/v1/templates/", ""},            /* b */
    {METHOD_GET, "/v1/templates", ""},                /* c */
    {METHOD_OPTIONS, "", ""},                         /* d */
    {METHOD_GET, "/v1/availability", ""},             /* e */
    {METHOD_POST, "/v1/confirm", ""},                 /* f */
};

/* Without C: the usual type of a body. */
static const struct {
    char letter;
    const char *name;
} headers[] = {{'K', "Idempotency-Key"}, {'C', "Content-Type"}, {'M', "If-Match"},
               {'N', "If-None-Match"},   {'H', "Host"},         {'O', "Origin"},
               {'F', "Sec-Fetch-Site"}};

struct input {
    unsigned char route, decided, taken;
    struct bytes part;
    struct bytes query;
    struct bytes headers;
    struct bytes body;
};

static struct bytes cut(struct bytes *text, char end)
{
    const char *at = text->length ? memchr(text->data, end, text->length) : NULL;
    struct bytes first = {text->data, at ? (size_t)(at - text->data) : text->length};
    size_t used = first.length + (at != NULL);
    *text = (struct bytes){text->data + used, text->length - used};
    return first;
}

static struct input input_read(const uint8_t *data, size_t size)
{
    struct input input = {0};
    input.route = (unsigned char)((fuzz_choice(&data, &size) - 'A') & 0xff) % ARRAY_LENGTH(routes);
    input.decided = (unsigned char)((fuzz_choice(&data, &size) - '0') & 0xff);
    input.taken = (unsigned char)((fuzz_choice(&data, &size) - '0') & 0xff);
    struct bytes rest = {(const char *)data, size};
    struct bytes uri = cut(&rest, '\n');
    input.part = cut(&uri, '?');
    input.query = uri;
    input.headers.data = rest.data;
    while (rest.length && rest.data[0] != '\n') {
        struct bytes line = cut(&rest, '\n');
        input.headers.length = (size_t)(line.data + line.length - input.headers.data);
    }
    (void)cut(&rest, '\n');
    input.body = rest;
    return input;
}

static void set_header(const char *name, struct bytes value)
{
    if (world.header_count < WORLD_HEADERS_MAX)
        world.headers[world.header_count++] =
            (struct world_header){name, fuzz_text((const uint8_t *)value.data, value.length)};
}

static void set_headers(const struct input *input)
{
    bool typed = false;
    struct bytes left = input->headers;
    while (left.length) {
        struct bytes line = cut(&left, '\n');
        for (size_t i = 0; line.length && i < ARRAY_LENGTH(headers); i++) {
            if (line.data[0] != headers[i].letter)
                continue;
            set_header(headers[i].name, (struct bytes){line.data + 1, line.length - 1});
            typed |= headers[i].letter == 'C';
        }
    }
    if (!typed)
        set_header("Content-Type", BYTES("application/json"));
}

/* Decisions of the engine and the database; the first has the character 0. */
static const enum permit_status decisions[] = {
    PERMIT_OK,                   /* 0 */
    PERMIT_UNKNOWN_SEMAPHORE,    /* 1 */
    PERMIT_UNKNOWN_REQUEST,      /* 2 */
    PERMIT_UNKNOWN_OWNER,        /* 3 */
    PERMIT_IN_USE,               /* 4 */
    PERMIT_CONFIRMED,            /* 5 */
    PERMIT_ENDED,                /* 6 */
    PERMIT_VERSION_MISMATCH,     /* 7 */
    PERMIT_KEY_REUSED,           /* 8 */
    PERMIT_NEVER_SATISFIABLE,    /* 9 */
    PERMIT_INVALID,              /* : */
    PERMIT_NO_CAPACITY,          /* ; */
    PERMIT_PAUSED,               /* < */
    PERMIT_TOO_MANY,             /* = */
    PERMIT_INTERNAL,             /* > */
    PERMIT_BUSY,                 /* ? */
    PERMIT_OUTCOME_UNKNOWN,      /* @ */
    PERMIT_DATABASE_UNAVAILABLE, /* A */
    PERMIT_SHUTTING_DOWN,        /* B */
    PERMIT_CONFLICT,             /* C */
    PERMIT_LOCK_TIMEOUT,         /* D */
    PERMIT_DATABASE_LOST,        /* E */
    PERMIT_DATABASE_FULL,        /* F */
    PERMIT_NO_MEMORY,            /* G */
    PERMIT_UNKNOWN_TEMPLATE,     /* H */
    PERMIT_UNFINISHED,           /* I */
};

static void set_world(const struct input *input)
{
    static const enum permit_status refusals[] = {
        PERMIT_OK,        PERMIT_OK, /* the second: decided immediately */
        PERMIT_TOO_MANY,  PERMIT_SHUTTING_DOWN,
        PERMIT_NO_MEMORY, PERMIT_DATABASE_UNAVAILABLE,
    };
    world = (struct world){
        .decided = decisions[input->decided % ARRAY_LENGTH(decisions)],
        .taken = refusals[input->taken % ARRAY_LENGTH(refusals)],
        .at_once = input->taken % ARRAY_LENGTH(refusals) == 1,
        .text = input->body,
    };
    set_headers(input);
}

/* ---- a run ---- */

static struct bytes make_path(const struct input *input)
{
    struct buf path;
    buf_init(&path, 1 << 20);
    buf_append_text(&path, routes[input->route].before);
    buf_append(&path, input->part.data, input->part.length);
    buf_append_text(&path, routes[input->route].behind);
    struct bytes exact = fuzz_bytes(path.data, path.length);
    buf_release(&path);
    return exact;
}

/* Frees path, query and body, which are valid only until the handler returns. */
static void forget_request(struct exchange *exchange)
{
    free((void *)exchange->path.data);
    free((void *)exchange->query.data);
    free((void *)exchange->body.data);
    for (size_t i = 0; i < world.header_count; i++)
        free(world.headers[i].value);
    world.header_count = 0;
}

/* Runs a request from the handler to the complete answer. */
static void run(struct exchange *exchange, const struct input *input, struct bytes body)
{
    set_world(input);
    snprintf(exchange->id, sizeof exchange->id, "6f1c09ab-000000000012");
    exchange->method = routes[input->route].method;
    exchange->path = make_path(input);
    exchange->query = fuzz_bytes(input->query.data, input->query.length);
    exchange->body = fuzz_bytes(body.data, body.length);
    exchange->arrived_at = clock_mono(); /* a retirement by force starts nothing when its time is nearly over */
    exchange->deadline = exchange->arrived_at + TIMEOUT_MS * (mono_us)US_PER_MS;
    bool now = routes_handle(exchange);
    forget_request(exchange);
    MUST(!now || (world.op_count == 0 && !world.look && !world.owner && world.finished == 0));
    world_decide();
    MUST(now || world.finished == 1);
}

/* ---- checks of an answer ---- */

static bool is_documented(int http_status)
{
    static const int documented[] = {200, 201, 204, 304, 400, 401, 403, 404, 405, 409,
                                     410, 412, 413, 415, 421, 422, 423, 429, 500, 503};
    for (size_t i = 0; i < ARRAY_LENGTH(documented); i++)
        if (documented[i] == http_status)
            return true;
    return false;
}

static struct json_object *member(struct json_object *object, const char *name, enum json_type type)
{
    struct json_object *value = NULL;
    MUST(json_object_object_get_ex(object, name, &value) && json_object_is_type(value, type));
    return value;
}

static void check_problem(struct json_object *problem, int http_status)
{
    static const char prefix[] = "/problems/";
    const char *type = json_object_get_string(member(problem, "type", json_type_string));
    MUST(strncmp(type, prefix, sizeof prefix - 1) == 0);
    int status = permit_status_from_word(type + sizeof prefix - 1);
    MUST(status > PERMIT_OK && status < PERMIT_CONFLICT); /* the others never leave the server */
    MUST(permit_status_http((enum permit_status)status) == http_status);
    MUST(json_object_get_int(member(problem, "status", json_type_int)) == http_status);
    MUST(json_object_get_string_len(member(problem, "title", json_type_string)) > 0);
    MUST(json_object_get_string_len(member(problem, "detail", json_type_string)) > 0);
    MUST(status != PERMIT_INTERNAL || world.decided == PERMIT_INTERNAL);
}

static void check_results(struct json_object *answer, size_t count)
{
    struct json_object *results = member(answer, "results", json_type_array);
    MUST(json_object_array_length(results) == count);
    for (size_t i = 0; i < count; i++) {
        struct json_object *result = json_object_array_get_idx(results, i);
        int status = json_object_get_int(member(result, "status", json_type_int));
        struct json_object *body = member(result, "body", json_type_object);
        MUST(is_documented(status));
        if (status >= 400)
            check_problem(body, status);
    }
}

/* Checks that texts of the client are returned unchanged. */
static void check_said(struct json_object *answer)
{
    struct json_object *value = member(answer, world.said_member, json_type_string);
    struct bytes text = {json_object_get_string(value), (size_t)json_object_get_string_len(value)};
    MUST(bytes_equal(text, world.said));
}

static void check_body(const struct call *call, struct bytes body)
{
    const struct answer *answer = &call->exchange.answer;
    struct json_facts facts;
    json_judge(body, &facts);
    MUST(facts.is_json && facts.is_object && !facts.twice);
    char *text = fuzz_text((const uint8_t *)body.data, body.length);
    struct json_object *object = json_tokener_parse(text);
    MUST(object);
    if (answer->http_status >= 400)
        check_problem(object, answer->http_status);
    else if (call->batch)
        check_results(object, call->item_count);
    else if (world.said_member)
        check_said(object);
    json_object_put(object);
    free(text);
}

enum { NO_CONTENT = 204, NOT_MODIFIED = 304 };

/* Checks that no bytes of the client are in a header. */
static void check_headers(const struct answer *answer)
{
    int code = answer->http_status;
    bool refused = code >= 400;
    size_t etag = strlen(answer->etag);
    MUST(refused == (strcmp(answer->content_type, PROBLEM_CONTENT_TYPE) == 0));
    MUST((code == 423 || code == 429 || code == 503) == (answer->retry_after_ms > 0));
    MUST((code == 405 || code == NO_CONTENT) == (answer->allow != NULL));
    MUST(!answer->allow || strspn(answer->allow, "GETPUOSDLHAIN, ") == strlen(answer->allow));
    MUST(etag == 0 || (etag > 2 && strspn(answer->etag + 1, "0123456789abcdef-.") == etag - 2 && !refused));
    MUST(etag == 0 || (answer->etag[0] == '"' && answer->etag[etag - 1] == '"'));
}

static void check_answer(struct exchange *exchange)
{
    const struct answer *answer = &exchange->answer;
    MUST(is_documented(answer->http_status));
    bool empty = answer->http_status == NOT_MODIFIED || answer->http_status == NO_CONTENT;
    struct bytes body =
        answer->constant.data ? answer->constant : (struct bytes){answer->body.data, answer->body.length};
    MUST(!answer->body.broken && empty == (body.length == 0));
    check_headers(answer);
    if (empty)
        return;
    if (strncmp(answer->content_type, "text/plain", 10) == 0)
        MUST(body.data[body.length - 1] == '\n');
    else
        check_body(call_of(exchange), body);
}

/*
 * Checks that an accepted body is strictly valid JSON, and that a body refused as malformed is not, or violates
 * docs/protocol.md. (A body refused for its contents may be read only up to the fault. The same holds for an operation
 * of a batch, so that a duplicate member after the fault may be missed.)
 */
static void check_strictness(struct exchange *exchange, const struct input *input)
{
    struct json_facts facts;
    bool malformed = strstr(buf_text(&exchange->answer.body), "the body is not one JSON object: ") != NULL &&
                     exchange->answer.http_status == 400;
    bool passed = world.submits > 0;
    if (!input->body.length || (!passed && !malformed))
        return;
    json_judge(input->body, &facts);
    bool refused = !facts.is_json || !facts.is_object || facts.nul_name || facts.surrogate;
    if (passed)
        MUST(!refused && facts.depth <= WIRE_MAX_DEPTH && (!facts.twice || call_of(exchange)->batch));
    else
        MUST(refused || facts.twice || facts.depth > WIRE_MAX_DEPTH);
}

/* ---- the second time ---- */

/* Returns the same object with its members, and those of its permits, in reverse order. */
static struct json_object *turned(struct json_object *value)
{
    if (json_object_is_type(value, json_type_array)) {
        struct json_object *array = json_object_new_array();
        for (size_t i = json_object_array_length(value); i-- > 0;)
            json_object_array_add(array, turned(json_object_array_get_idx(value, i)));
        return array;
    }
    if (!json_object_is_type(value, json_type_object))
        return json_object_get(value);
    struct json_object *object = json_object_new_object();
    struct lh_table *members = json_object_get_object(value);
    for (struct lh_entry *entry = members->tail; entry; entry = entry->prev)
        json_object_object_add(object, lh_entry_k(entry), turned((struct json_object *)(uintptr_t)lh_entry_v(entry)));
    return object;
}

/* Members may be in any order: the digest of an acquire stays the same. */
static void run_turned(struct exchange *exchange, const struct input *input)
{
    unsigned char digest[DIGEST_SIZE];
    char *text = fuzz_text((const uint8_t *)input->body.data, input->body.length);
    struct json_object *object = json_tokener_parse(text);
    struct json_object *other = turned(object);
    memcpy(digest, world.digest, sizeof digest);
    run(exchange, input, bytes_of(json_object_to_json_string_ext(other, JSON_C_TO_STRING_PLAIN)));
    MUST(world.submits == 1 && memcmp(world.digest, digest, sizeof digest) == 0);
    json_object_put(other);
    json_object_put(object);
    free(text);
}

static void run_again(struct exchange *exchange, const struct input *input)
{
    int http_status = exchange->answer.http_status;
    size_t submits = world.submits;
    bool is_acquire = input->route == 0 && submits == 1;
    call_clear(exchange);
    exchange_clear(exchange);
    availability_cache_free(exchange->service->availability);
    exchange->service->availability = availability_cache_new();
    MUST(exchange->service->availability);
    if (is_acquire)
        run_turned(exchange, input);
    else
        run(exchange, input, input->body);
    MUST(exchange->answer.http_status == http_status && world.submits == submits);
    check_answer(exchange);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct service service;
    if (!service.doctor)
        world_open(&service);
    service.readiness = readiness_new(); /* an input finds no answer of the one before */
    service.refusals = refusals_new();
    service.availability = availability_cache_new();
    MUST(service.readiness && service.refusals && service.availability);
    struct input input = input_read(data, size);
    struct exchange *exchange = exchange_new(sizeof(struct call));
    MUST(exchange);
    exchange->service = &service;
    run(exchange, &input, input.body);
    check_answer(exchange);
    check_strictness(exchange, &input);
    run_again(exchange, &input);
    call_clear(exchange);
    exchange_free(exchange);
    readiness_free(service.readiness);
    refusals_free(service.refusals);
    availability_cache_free(service.availability);
    return 0;
}
