/* SPDX-License-Identifier: MIT */
/*
 * How long the largest bodies would hold the loop: the CPU time of their handler, from the complete body to the operations
 * that the engine has taken, or to the refusal. Without sockets and database: the engine has no workers, so the operations
 * stay queued. Prints Markdown.
 *
 *     bench_bodies [RUNS]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "api/refusal.h"
#include "api/routes.h"
#include "api/service.h"
#include "base/clock.h"
#include "base/log.h"
#include "http/parser.h"
#include "measure.h"

enum { RUNS = 7, LARGEST = 1 << 20, TOO_MANY_RUNS = 1000, OPERATIONS = 1000, WANTS = 64 };

static struct service service;

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "bench_bodies: line %d: %s\n", __LINE__, #condition);                                      \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

/* ---- bodies ---- */

/* Appends elements `","` apart until the body has `size` bytes or `most` elements. */
static void fill(struct buf *body, size_t size, size_t most, void (*element)(struct buf *body, size_t at))
{
    for (size_t i = 0; i < most && body->length < size; i++) {
        buf_append_text(body, i ? "," : "");
        element(body, i);
    }
}

static void release(struct buf *body, size_t at)
{
    buf_printf(body, "{\"op\":\"release\",\"external_id\":\"key-%zu\"}", at);
}

static void long_key(struct buf *body, size_t at)
{
    buf_printf(body, "{\"op\":\"acquire\",\"external_id\":\"%0200zu\",\"owner\":\"%0200zu\",\"ttl\":\"30s\",", at, at);
    buf_printf(body, "\"permits\":[{\"semaphore\":\"%0250zu\"},{\"semaphore\":\"%0249zu-\"}]}", at, at);
}

static void want(struct buf *body, size_t at)
{
    buf_printf(body, "{\"semaphore\":\"%zu\"}", (at * 7919) % 100000);
}

/* As many semaphores as fit into a thousandth of the body. */
static void many_wants(struct buf *body, size_t at)
{
    (void)at;
    buf_append_text(body, "{\"op\":\"acquire\",\"permits\":[");
    fill(body, body->length + 960, WANTS, want);
    buf_append_text(body, "]}");
}

static void label(struct buf *body, size_t at)
{
    buf_printf(body, "\"%zx\"", (at * 7919) % 4096);
}

/* As many labels as fit into a thousandth of the body. */
static void many_labels(struct buf *body, size_t at)
{
    buf_printf(body, "{\"op\":\"acquire\",\"permits\":[{\"semaphore\":\"hall-%zu\",\"any_of\":[", at % 10);
    fill(body, body->length + 960, 1000, label);
    buf_append_text(body, "]}]}");
}

static void escaped_key(struct buf *body, size_t at)
{
    buf_printf(body, "{\"op\":\"acquire\",\"external_id\":\"%zu", at);
    for (int i = 0; i < 145; i++)
        buf_append_text(body, "\\u0061");
    buf_append_text(body, "\",\"permits\":[{\"semaphore\":\"backups\"}]}");
}

static void nothing(struct buf *body, size_t at)
{
    (void)at;
    buf_append_text(body, "{}");
}

static void unknown_member(struct buf *body, size_t at)
{
    buf_printf(body, "\"m%zu\":0", at);
}

static void unknown_members(struct buf *body, size_t at)
{
    (void)at;
    buf_append_text(body, "{");
    fill(body, LARGEST - 100, SIZE_MAX, unknown_member);
    buf_append_text(body, ",\"op\":\"acquire\"}");
}

static void slot_label(struct buf *body, size_t at)
{
    buf_printf(body, "\"row %zu seat\"", at);
}

static void wide_want(struct buf *body, size_t at)
{
    buf_printf(body, "{\"semaphore\":\"hall-%zu\",\"any_of\":[", at);
    fill(body, body->length + 3900, 15, label);
    buf_append_text(body, "]}");
}

static const struct body_case {
    const char *name;
    const char *method, *path;
    const char *begin, *end;
    size_t size, most;
    void (*element)(struct buf *body, size_t at);
} cases[] = {
    {"1,000 releases", "POST", "/v1/batch", "{\"operations\":[", "]}", LARGEST, OPERATIONS, release},
    {"1,000 acquires with long names", "POST", "/v1/batch", "{\"operations\":[", "]}", LARGEST, OPERATIONS, long_key},
    {"1,000 acquires of 48 semaphores", "POST", "/v1/batch", "{\"operations\":[", "]}", LARGEST, OPERATIONS,
     many_wants},
    {"1,000 acquires that name 160 slots", "POST", "/v1/batch", "{\"operations\":[", "]}", LARGEST, OPERATIONS,
     many_labels},
    {"1,000 acquires with escaped keys", "POST", "/v1/batch", "{\"operations\":[", "]}", LARGEST, OPERATIONS,
     escaped_key},
    {"349,000 empty operations", "POST", "/v1/batch", "{\"operations\":[", "]}", LARGEST, SIZE_MAX, nothing},
    {"an operation with 100,000 unknown members", "POST", "/v1/batch", "{\"operations\":[", "]}", LARGEST, 1,
     unknown_members},
    {"65,000 labels", "PUT", "/v1/semaphores/hall/slots", "{\"labels\":[", "]}", LARGEST, 65000, slot_label},
    {"an acquire of 64 semaphores", "POST", "/v1/requests", "{\"permits\":[", "]}", LARGEST / 4, WANTS, wide_want},
};

/* ---- a run ---- */

/* Feeds the request as the server does. */
static struct exchange *receive(const struct body_case *one, struct bytes body)
{
    struct exchange *exchange = exchange_new(sizeof(struct call));
    char head[500];
    CHECK(exchange && exchange_make_parser(exchange));
    int length =
        snprintf(head, sizeof head,
                 "%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n",
                 one->method, one->path, body.length);
    struct bytes input = {head, (size_t)length};
    CHECK(parser_feed(exchange->parser, &input) == PARSER_HEAD);
    exchange->parser->body_max = LARGEST;
    CHECK(parser_feed(exchange->parser, &input) == PARSER_NEEDS_INPUT);
    CHECK(parser_feed(exchange->parser, &body) == PARSER_DONE);
    exchange->service = &service;
    exchange->method = one->method[1] == 'O' ? METHOD_POST : METHOD_PUT;
    exchange->has_body = true;
    exchange->path = parser_path(exchange->parser);
    exchange->query = parser_query(exchange->parser);
    exchange->body = (struct bytes){exchange->parser->body.data, exchange->parser->body.length};
    exchange->arrived_at = clock_mono();
    exchange->deadline = exchange->arrived_at + 10 * (mono_us)US_PER_SECOND;
    return exchange;
}

static int64_t own_cpu_us(void)
{
    struct timespec used;
    CHECK(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used) == 0);
    return used.tv_sec * US_PER_SECOND + used.tv_nsec / 1000;
}

static void measure_case(const struct body_case *one, size_t runs)
{
    struct samples samples = {.count = 0};
    struct buf body;
    int http_status = 0;
    buf_init(&body, LARGEST);
    buf_append_text(&body, one->begin);
    fill(&body, one->size - 1200, one->most, one->element);
    buf_append_text(&body, one->end);
    CHECK(!body.broken);
    for (size_t i = 0; i < runs; i++) {
        struct exchange *exchange = receive(one, (struct bytes){body.data, body.length});
        int64_t from = own_cpu_us();
        bool answered = routes_handle(exchange);
        samples_add(&samples, own_cpu_us() - from);
        http_status = answered ? exchange->answer.http_status : 0;
        if (answered) {
            call_clear(exchange);
            exchange_free(exchange);
        } /* else the engine has its operations */
    }
    char answer[16];
    snprintf(answer, sizeof answer, "%d", http_status);
    printf("| %s | %zu | %.2f | %.2f | %s |\n", one->name, body.length / 1024, samples_percentile(&samples, 0.5) / 1000,
           samples_percentile(&samples, 1) / 1000, http_status ? answer : "operations");
    samples_release(&samples);
    buf_release(&body);
}

static struct store *open_store(void *context, enum store_use use)
{
    static struct store none;
    (void)context, (void)use;
    return &none;
}

int main(int argc, char **argv)
{
    static const struct service_settings settings = {.max_wait_ms = 1000, .allowed_hosts = NULL};
    static struct engine_settings engine_settings;
    struct buf message;
    size_t runs = argc > 1 ? strtoul(argv[1], NULL, 10) : RUNS;
    CHECK(runs > 0 && runs < TOO_MANY_RUNS);
    engine_settings = (struct engine_settings){.max_pending = 100 * TOO_MANY_RUNS * OPERATIONS,
                                               .max_pending_ends = 100 * TOO_MANY_RUNS * OPERATIONS,
                                               .row_bytes = 1 << 20,
                                               .open_store = open_store};
    buf_init(&message, 1000);
    service = (struct service){
        .settings = &settings, .engine_settings = &engine_settings, .access = access_new(), .refusals = refusals_new()};
    buf_init(&service.message, 16 * 1024);
    printf("| body | KiB | median ms | longest ms | then |\n|---|--:|--:|--:|---|\n");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK(engine_start(&engine_settings, &service.engine, &message)); /* an empty one */
        measure_case(&cases[i], runs);
    }
    fflush(stdout);
    _exit(0); /* the engines have operations of exchanges that no server answers */
}
