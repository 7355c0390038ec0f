/* SPDX-License-Identifier: MIT */
/* Replaces server.c and the engine. */
#include "world.h"

#include <strings.h>

#include "api/openapi.h"
#include "base/clock.h"
#include "base/duration.h"
#include "base/log.h"
#include "base/uuid.h"
#include "engine/feed.h"
#include "engine/webhooks.h"
#include "fuzz.h"
#include "http/server.h"
#include "reference.h"
#include "store/doctor.h"

struct world world;

const struct lease_clock world_clock = {.tick_at = 1795252400 * (utc_us)US_PER_SECOND,
                                        .offset_us = 1234567,
                                        .due = 1795252400 * (utc_us)US_PER_SECOND - 234567,
                                        .from = 1795252400 * (utc_us)US_PER_SECOND + 265433};
const utc_us world_now = 1795252401 * (utc_us)US_PER_SECOND;

struct bytes world_text(size_t max)
{
    return (struct bytes){world.text.data, world.text.length < max ? world.text.length : max};
}

/* ---- server.c ---- */

const char *exchange_header(const struct exchange *exchange, const char *name, unsigned *ret_times)
{
    const char *value = NULL;
    unsigned times = 0;
    (void)exchange;
    for (size_t i = 0; i < world.header_count; i++)
        if (strcasecmp(world.headers[i].name, name) == 0 && times++ == 0)
            value = world.headers[i].value;
    if (ret_times)
        *ret_times = times;
    return value;
}

struct bytes exchange_host(const struct exchange *exchange)
{
    const char *host = exchange_header(exchange, "Host", NULL);
    return host ? bytes_of(host) : (struct bytes){0};
}

bool exchange_body_length(const struct exchange *exchange, uint64_t *ret_length)
{
    (void)exchange, (void)ret_length;
    return false;
}

void exchange_finish(struct exchange *exchange)
{
    (void)exchange;
    world.finished++;
}

void server_count_failure(struct exchange *exchange)
{
    (void)exchange;
}

void server_share_init(struct server *server, struct memory_share *share)
{
    static struct memory_share memory = {.receiving = {.limit = SIZE_MAX}, .handling = {.limit = SIZE_MAX}};
    (void)server;
    share_init(share, &memory, PRINCIPAL_PART);
}

void server_counts(const struct server *server, struct server_counts *ret_counts)
{
    (void)server;
    *ret_counts = (struct server_counts){.connections = 1};
}

const char *handshake_result_word(enum handshake_result result)
{
    (void)result;
    return "ok";
}

const char openapi_text[] = "{\"openapi\":\"3.1.0\"}";
const size_t openapi_length = sizeof openapi_text - 1;

void log_write(enum log_level level, const char *message, ...)
{
    (void)level, (void)message;
}

static const struct engine_settings engine_settings = {
    .plan = {.retention_us = 7 * 86400LL * US_PER_SECOND, .tombstone_us = 3600LL * US_PER_SECOND},
    .retention_rows = 1000000,
    .failover_hold_ms = 5000,
};

struct engine_settings engine_settings_now(struct engine *engine)
{
    (void)engine;
    return engine_settings;
}

void world_open(struct service *service)
{
    static const struct doctor_options doctor;
    static char hosts[] = "permit.example, other.example:7070";
    static const struct service_settings settings = {
        .max_wait_ms = MAX_WAIT_MS, .metrics_semaphores = 1000, .allowed_hosts = hosts};
    *service = (struct service){
        .settings = &settings,
        .engine_settings = &engine_settings,
        .doctor = &doctor,
        .database = "private",
    };
    buf_init(&service->message, 16 * 1024);
}

/* ---- checks of an operation ---- */

/* Checks for UTF-8 without control characters. */
static void check_text(struct bytes text)
{
    MUST(reference_utf8(text));
    for (size_t at = 0; at < text.length;) {
        uint32_t character = 0;
        at += reference_character(text, at, &character);
        MUST(character >= 0x20 && (character < 0x7f || character > 0x9f));
    }
}

static void check_ttl(const struct operation *operation)
{
    switch (operation->ttl.kind) {
    case TTL_DURATION: MUST(operation->ttl.ms >= 1 && operation->ttl.ms <= DURATION_MAX_MS); break;
    case TTL_OWNER: MUST(operation->kind != OP_ACQUIRE || reference_key(operation->owner)); break;
    case TTL_ABSENT:
    case TTL_UNLIMITED: break;
    default: MUST(!"a ttl of another kind");
    }
}

/* A label has 1 to 255 bytes of UTF-8 without control characters. */
static void check_label(struct bytes label)
{
    MUST(label.length >= 1 && label.length <= LABEL_MAX_BYTES);
    check_text(label);
}

/* Numbers come first, ascending, followed by labels in byte order; no duplicates. */
static void check_named(const struct want *want)
{
    MUST(want->named_count >= 1 && want->named_count <= SLOTS_MAX_COUNT);
    for (size_t i = 0; i < want->named_count; i++) {
        const struct slot_name *slot = &want->named[i];
        const struct slot_name *before = i ? slot - 1 : NULL;
        MUST((slot->number >= 1) != (slot->label.data != NULL));
        if (slot->label.data)
            check_label(slot->label);
        if (before && slot->number)
            MUST(before->number && before->number < slot->number);
        else if (before)
            MUST(before->number || bytes_compare(before->label, slot->label) < 0);
    }
}

static void check_choice(const struct want *want)
{
    MUST(want->choice == CHOOSE_LOWEST || want->choice == CHOOSE_NAMED || want->choice == CHOOSE_ANY_OF);
    if (want->choice == CHOOSE_LOWEST)
        MUST(!want->named && !want->named_count);
    else
        check_named(want);
    MUST(want->choice != CHOOSE_NAMED || (!want->adjacent && want->count == (int64_t)want->named_count));
}

static void check_acquire(const struct operation *operation)
{
    unsigned char digest[DIGEST_SIZE];
    MUST(operation->want_count >= 1 && operation->want_count <= REQUEST_MAX_SEMAPHORES);
    for (size_t i = 0; i < operation->want_count; i++) {
        const struct want *want = &operation->wants[i];
        MUST(reference_semaphore(want->semaphore));
        MUST(want->count >= 1 && want->count <= COUNTED_MAX_CAPACITY);
        check_choice(want);
        MUST(i == 0 || bytes_compare(operation->wants[i - 1].semaphore, want->semaphore) < 0);
    }
    MUST(!operation->owner.data || reference_key(operation->owner));
    MUST(operation->priority >= 0 && operation->priority <= PRIORITY_MAX);
    MUST(!operation->may_have_place && !operation->wait_us && !operation->place); /* set by the engine */
    MUST(request_digest(operation->owner, operation->ttl, operation->wants, operation->want_count, digest));
    MUST(memcmp(digest, operation->digest, sizeof digest) == 0);
}

static void check_labels(const struct semaphore_change *change)
{
    MUST(change->labels_from >= 1 && change->labels_from <= SLOTS_MAX_CAPACITY);
    MUST(change->label_count >= 1 && change->label_count <= SLOTS_MAX_CAPACITY);
    for (size_t i = 0; i < change->label_count; i++)
        if (change->labels[i].data)
            check_label(change->labels[i]);
}

static void check_change(const struct semaphore_change *change)
{
    MUST(change);
    MUST(!change->has_capacity || (change->capacity >= 0 && change->capacity <= COUNTED_MAX_CAPACITY));
    MUST(!change->has_kind || change->kind == KIND_SLOTTED || change->kind == KIND_COUNTED);
    MUST(!change->has_queue || change->queue == QUEUE_BACKFILL || change->queue == QUEUE_FIFO);
    MUST(!change->has_default_ttl || (change->default_ttl_ms >= 1 && change->default_ttl_ms <= DURATION_MAX_MS));
    MUST(!change->has_max_ttl || change->max_ttl_ms == -1 ||
         (change->max_ttl_ms >= 1 && change->max_ttl_ms <= DURATION_MAX_MS));
    MUST(!change->has_grace || (change->grace_ms >= 0 && change->grace_ms <= DURATION_MAX_MS));
    MUST(!change->has_max_hold || (change->max_hold_ms >= 1 && change->max_hold_ms <= DURATION_MAX_MS));
    MUST(!change->has_feed_url || !change->feed_url.data || change->feed_url.length <= WEBHOOK_STORED_URL_MAX);
    MUST(!change->has_note || (change->note.length <= 1000 && reference_utf8(change->note)));
    MUST(change->match_count <= MATCH_MAX &&
         (change->match_count > 0) + change->if_exists + change->if_none_match <= 1);
    if (change->has_labels)
        check_labels(change);
}

/* A reason has 1 to 1000 bytes of UTF-8 without control characters. */
static void check_reason(struct bytes reason)
{
    MUST(reason.length >= 1 && reason.length <= 1000);
    check_text(reason);
}

/* Returns true for a key from a row, which is not checked: a retirement by force ends every holder found. */
static bool is_key_of_row(const struct operation *operation)
{
    return operation->kind == OP_FORCE_RELEASE && world.holders_read &&
           bytes_equal(operation->external_id, world_text(255));
}

static void check_keys(const struct operation *operation)
{
    MUST(operation_key_count(operation) >= 1 && operation_key_count(operation) <= CONFIRM_MAX_KEYS);
    MUST(bytes_equal(operation_key(operation, 0), operation->external_id));
    for (size_t i = 0; operation->keys && i < operation->key_count; i++) {
        MUST(reference_key(operation->keys[i]));
        for (size_t j = 0; j < i; j++)
            MUST(!bytes_equal(operation->keys[i], operation->keys[j]));
    }
}

static void check_operation(const struct operation *operation)
{
    bool administrative = operation_is_administrative(operation->kind);
    MUST(administrative ? reference_semaphore(operation->semaphore)
                        : reference_key(operation->external_id) || is_key_of_row(operation));
    check_ttl(operation);
    switch (operation->kind) {
    case OP_ACQUIRE: check_acquire(operation); break;
    case OP_SEMAPHORE_PUT: check_change(operation->change); break;
    case OP_SEMAPHORE_LABELS:
        MUST(operation->change && operation->change->has_labels);
        check_labels(operation->change);
        break;
    case OP_FORCE_RELEASE:
    case OP_SEMAPHORE_PAUSE: check_reason(operation->why); break;
    case OP_CONFIRM: check_keys(operation); break;
    case OP_RELEASE:
    case OP_RENEW:
    case OP_SEMAPHORE_RESUME: break;
    case OP_SEMAPHORE_RETIRE:
        if (operation->why.data)
            check_reason(operation->why);
        break;
    default: MUST(!"an operation of permitd's own");
    }
}

/*
 * Returns the time limit of an operation. A retirement by force reserves a quarter of its time for the answer: for all
 * that follows the pause.
 */
static mono_us time_for(const struct op *op)
{
    bool follows = world.paused && op->operation->kind != OP_SEMAPHORE_PAUSE;
    return TIMEOUT_MS * (mono_us)US_PER_MS / 4 * (follows ? 3 : 4);
}

static void check_op(const struct op *op)
{
    const struct batch_item *part = CONTAINER_OF(op, struct batch_item, op);
    struct exchange *exchange = part->exchange;
    mono_us wait = op->wait_until ? op->wait_until - exchange->arrived_at : 0;
    MUST(op->decided && exchange && op->operation == &part->operation);
    MUST(wait >= 0 && wait <= MAX_WAIT_MS * (mono_us)US_PER_MS && wait == call_of(exchange)->wait_ms * US_PER_MS);
    MUST(!wait || op->operation->kind == OP_ACQUIRE);
    MUST(op->deadline == exchange->arrived_at + wait + time_for(op));
    MUST(!part->key_generated || op->operation->external_id.length == UUID_TEXT_SIZE - 1);
    check_operation(op->operation);
}

/* ---- decisions ---- */

/* Rows as a plan would return them, for one decision. */
struct made {
    struct permit permits[REQUEST_MAX_SEMAPHORES];
    struct bytes names[REQUEST_MAX_SEMAPHORES];
    uint64_t floors[REQUEST_MAX_SEMAPHORES];
    int64_t available[REQUEST_MAX_SEMAPHORES];
    uint32_t numbers[2];
    struct bytes labels[2];
    struct taken_slot taken[2];
    struct request request;
    struct semaphore semaphore;
    struct outcome outcome;
    struct shortage shortage;
};

static void make_request(struct made *made, const struct operation *operation)
{
    bool ends = operation->kind == OP_RELEASE || operation->kind == OP_FORCE_RELEASE || world.decided == PERMIT_ENDED;
    made->numbers[0] = 2;
    made->numbers[1] = 3;
    made->labels[0] = world_text(LABEL_MAX_BYTES);
    made->labels[1] = (struct bytes){0};
    for (size_t i = 0; i < operation->want_count; i++) {
        made->names[i] = operation->wants[i].semaphore;
        made->permits[i] = (struct permit){.token = 1 << 10, .count = operation->wants[i].count};
        if (operation->wants[i].count == ARRAY_LENGTH(made->numbers))
            made->permits[i].slots = (struct slots){made->numbers, ARRAY_LENGTH(made->numbers)};
        if (operation->wants[i].choice != CHOOSE_LOWEST)
            made->permits[i].labels = made->labels;
    }
    made->request = (struct request){
        .external_id = operation->external_id,
        .owner = operation->owner,
        .state = ends ? REQUEST_RELEASED : REQUEST_ACQUIRED,
        .end_reason = ends ? END_RELEASED : END_NONE,
        .ttl_ms = operation->ttl.kind == TTL_DURATION ? operation->ttl.ms : TTL_NONE,
        .due_at = operation->ttl.kind == TTL_DURATION ? world_now + operation->ttl.ms * US_PER_MS : NEVER,
        .confirmed_at = operation->kind == OP_CONFIRM ? world_now : NEVER,
        .acquired_at = world_now,
        .ended_at = ends ? world_now : NEVER,
        .permits = made->permits,
        .permit_count = operation->want_count,
    };
}

static void make_semaphore(struct made *made, const struct operation *operation)
{
    static const struct semaphore_change none;
    const struct semaphore_change *change = operation->change ? operation->change : &none;
    made->semaphore = (struct semaphore){
        .name = operation->semaphore,
        .kind = change->has_kind ? change->kind : KIND_SLOTTED,
        .queue = change->has_queue ? change->queue : QUEUE_BACKFILL,
        .capacity = change->capacity,
        .config_version = UINT64_MAX,
        .default_ttl_ms = change->default_ttl_ms,
        .max_ttl_ms = change->has_max_ttl ? change->max_ttl_ms : -1,
        .paused_reason = operation->why,
        .feed_url = change->feed_url,
        .note = change->note,
        .retired_at = operation->kind == OP_SEMAPHORE_RETIRE ? world_now : NEVER,
    };
}

static void make_shortage(struct made *made, const struct operation *operation)
{
    made->shortage = (struct shortage){
        .semaphore_id = 1,
        .semaphore = operation->wants[0].semaphore,
        .capacity = 2,
        .requested = operation->wants[0].count,
        .in_use = operation->want_count % 2 + 1,
        .taken = made->taken,
        .taken_count = operation->wants[0].choice == CHOOSE_NAMED ? (size_t)min_i64(operation->wants[0].count, 2) : 0,
    };
    made->taken[0] = (struct taken_slot){
        .number = 1,
        .label = world_text(LABEL_MAX_BYTES),
        .token = UINT64_MAX,
        .holder = operation->external_id,
        .expires_at = world_now - 7 * (utc_us)US_PER_SECOND,
    };
    made->taken[1] = (struct taken_slot){.number = 2, .token = 9, .holder = BYTES("k"), .expires_at = NEVER};
}

/* Notes the text of the client that the answer must repeat: the key, or the note. */
static void note_said(const struct operation *operation)
{
    bool put = operation->kind == OP_SEMAPHORE_PUT && operation->change->note.data;
    world.said_member = put ? "note" : operation_is_administrative(operation->kind) ? "name" : "external_id";
    if (operation->keys)
        world.said_member = NULL;
    world.said = put                                            ? operation->change->note
                 : operation_is_administrative(operation->kind) ? operation->semaphore
                                                                : operation->external_id;
}

static void decide(struct op *op)
{
    static const utc_us confirmed_at[CONFIRM_MAX_KEYS];
    static struct made made;
    const struct operation *operation = op->operation;
    bool planned = world.decided == PERMIT_OK || world.decided == PERMIT_ENDED || world.decided == PERMIT_NO_CAPACITY;
    bool refused_for_room = world.decided == PERMIT_NO_CAPACITY && operation->kind == OP_ACQUIRE;
    make_request(&made, operation);
    make_semaphore(&made, operation);
    made.outcome = (struct outcome){
        .status = world.decided,
        .created = operation->kind == OP_ACQUIRE,
        .request = operation_is_administrative(operation->kind) ? NULL : &made.request,
        .semaphore = operation_is_administrative(operation->kind) ? &made.semaphore : NULL,
        .shortages = &made.shortage,
        .shortage_count = refused_for_room,
        .confirmed_at = operation->keys ? confirmed_at : NULL,
        .failed = operation->keys ? operation->keys[operation->key_count - 1] : (struct bytes){0},
    };
    const size_t waiting = operation->want_count % 3;
    if (refused_for_room)
        make_shortage(&made, operation);
    const struct decision decision = {
        .outcome = planned ? &made.outcome : NULL,
        .status = world.decided,
        .clock = &world_clock,
        .now = world_now,
        .semaphore_names = made.names,
        .floors = made.floors,
        .available = made.available,
        .waiting = &waiting,
        .has_place = operation->want_count % 4 == 0,
        .retry_after_ms = permit_status_retry(world.decided) == PERMIT_RETRY_LATER ? 1250 : 0,
    };
    if (world.decided == PERMIT_OK)
        note_said(operation);
    world.paused |= operation->kind == OP_SEMAPHORE_PAUSE && world.decided == PERMIT_OK;
    world.deciding = true;
    op->decided(op, &decision);
    world.deciding = false;
}

/* Runs a query with the store of world_rows.c, unless the database is unavailable. */
static void look(struct query *look)
{
    bool away = world.decided == PERMIT_DATABASE_UNAVAILABLE || world.decided == PERMIT_DATABASE_LOST;
    look->work(look, away ? NULL : world_store(), away ? world.decided : PERMIT_OK);
}

static void decide_owner(struct owner_op *op)
{
    const struct owner_outcome outcome = {
        .status = world.decided,
        .created = op->call.kind == OWNER_BEAT,
        .owner =
            {
                .name = op->call.name,
                .ttl_ms = op->call.ttl_ms,
                .due_at = world_now + op->call.ttl_ms * US_PER_MS,
                .lapsed_at = world.decided == PERMIT_ENDED ? world_now : NEVER,
                .settled_at = NEVER,
            },
    };
    const struct owner_decision decision = {
        .status = world.decided,
        .outcome = world.decided == PERMIT_OK || world.decided == PERMIT_ENDED ? &outcome : NULL,
        .clock = &world_clock,
        .now = world_now,
    };
    world.deciding = true;
    op->decided(op, &decision);
    world.deciding = false;
}

/* Operations that end may have submitted another. */
void world_decide(void)
{
    while (world.op_count || world.look) {
        struct query *asked = world.look;
        for (size_t i = 0; i < world.op_count; i++)
            decide(world.ops[i]);
        world.op_count = 0;
        if (!asked)
            continue;
        world.look = NULL;
        look(asked);
    }
    struct owner_op *owner = world.owner;
    world.owner = NULL;
    if (owner)
        decide_owner(owner);
    if (world.look)
        world_decide();
}

/* ---- the engine ---- */

void op_init(struct op *op, struct operation *operation, mono_us deadline,
             void (*decided)(struct op *op, const struct decision *decision))
{
    *op = (struct op){.operation = operation, .decided = decided, .deadline = deadline};
    list_init(&op->node);
}

enum permit_status engine_submit(struct engine *engine, struct op *op)
{
    const struct call *call = call_of(CONTAINER_OF(op, struct batch_item, op)->exchange);
    (void)engine;
    check_op(op);
    memcpy(world.digest, op->operation->digest, DIGEST_SIZE);
    if ((world.submits++ % 2 == 0 || !call->batch) && world.taken != PERMIT_OK)
        return world.taken;
    MUST(world.op_count < WORLD_OPS_MAX);
    if (world.at_once)
        decide(op);
    else
        world.ops[world.op_count++] = op;
    return PERMIT_OK;
}

enum permit_status engine_query(struct engine *engine, struct query *asked)
{
    (void)engine;
    MUST(asked->work && !world.look);
    world.submits += !world.deciding; /* not for names not found, which are queried afterwards */
    if (world.taken != PERMIT_OK)
        return world.taken;
    if (world.at_once)
        look(asked);
    else
        world.look = asked;
    return PERMIT_OK;
}

enum permit_status engine_submit_owner(struct engine *engine, struct owner_op *op)
{
    (void)engine;
    MUST(op->decided && reference_key(op->call.name));
    MUST(op->call.kind == OWNER_BEAT ? op->call.ttl_ms >= 1 && op->call.ttl_ms <= DURATION_MAX_MS
                                     : op->call.kind == OWNER_GONE);
    world.submits++;
    if (world.taken != PERMIT_OK)
        return world.taken;
    if (world.at_once)
        decide_owner(op);
    else
        world.owner = op;
    return PERMIT_OK;
}

/* Readers of the feed never wait here. */
void feed_wait_init(struct feed_wait *wait, void (*wake)(struct feed_wait *wait), mono_us until)
{
    *wait = (struct feed_wait){.wake = wake, .until = until};
}

bool feed_wait_begin(struct engine *engine, struct feed_wait *wait)
{
    (void)engine;
    MUST(wait->wake);
    return false;
}

bool feed_wait_abandon(struct engine *engine, struct feed_wait *wait)
{
    (void)engine;
    (void)wait;
    return false;
}

size_t feed_waiting(struct engine *engine)
{
    (void)engine;
    return 0;
}

/* Any host. */
void engine_webhook_policy(struct engine *engine, struct webhook_policy *ret_policy)
{
    (void)engine;
    *ret_policy = (struct webhook_policy){.secrets = {"a-secret-of-32-bytes-and-some-more"}, .secret_count = 1};
}

bool engine_may_name_webhook(struct engine *engine, struct bytes stored_url)
{
    (void)engine;
    MUST(stored_url.length >= 8 && stored_url.length <= WEBHOOK_STORED_URL_MAX);
    return stored_url.length % 2;
}

bool engine_refusal(struct engine *engine, char ret_sentence[STORE_MESSAGE_SIZE])
{
    (void)engine;
    bool refused = world.taken == PERMIT_DATABASE_UNAVAILABLE;
    snprintf(ret_sentence, STORE_MESSAGE_SIZE, "unsafe: %.*s", (int)world_text(255).length, world_text(255).data);
    if (!refused)
        ret_sentence[0] = '\0';
    return refused;
}

size_t engine_bound_limit(struct engine *engine, enum engine_bound bound)
{
    (void)engine, (void)bound;
    return 400;
}

struct waiting engine_waiting(struct engine *engine)
{
    (void)engine;
    return (struct waiting){.count = world.text.length, .oldest_ms = 4711};
}

uint64_t engine_server_id(const struct engine *engine)
{
    (void)engine;
    return 1;
}

void engine_judge(struct engine *engine, struct query_time *time)
{
    (void)engine, (void)time; /* world_clock is judged */
}

utc_us engine_protected_since(struct engine *engine, const struct query_time *time)
{
    (void)engine;
    return time->now;
}

bool engine_owner_in_doubt(struct engine *engine, struct bytes owner)
{
    (void)engine;
    return owner.length % 2;
}

void engine_metrics(struct engine *engine, struct buf *out)
{
    (void)engine;
    buf_append_text(out, "permitd_database_up 1\n");
}

size_t engine_drifts(struct engine *engine, struct audit_drift *ret_drifts, size_t max)
{
    (void)engine;
    MUST(max >= 1);
    ret_drifts[0] = (struct audit_drift){.id = 1};
    snprintf(ret_drifts[0].subject, AUDIT_SUBJECT_SIZE, "%.*s", (int)world_text(255).length, world_text(255).data);
    return world.text.length % 7;
}
