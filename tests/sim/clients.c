/* SPDX-License-Identifier: MIT */
/* Clients: their next calls, the servers they call, and when they give up. */
#include <stdio.h>

#include "base/clock.h"
#include "dice.h"
#include "exchange.h"
#include "world.h"

enum { NAMES_AT_ONCE = 6, NAMES_CHANGE_US = 2 * US_PER_SECOND };

/* ---- calls ---- */

static void client_next(struct client *client)
{
    if (world.quiet)
        return;
    int64_t think = dice_once_in(50) ? dice_between(0, 50000) : dice_between(0, 800);
    if (profile.low_load)
        think = dice_between(0, 400000);
    timer_set(&client->timer, sim_now() + think);
}

/* Ends a call, whatever its result. */
void call_free(struct call *call)
{
    struct client *client = call->client;
    list_remove(&call->node);
    world.result->operations++;
    if (client && client->call == call) {
        client->call = NULL;
        client_next(client);
    }
    free(call);
}

static void on_decided(struct op *op, const struct decision *decision)
{
    struct call *call = CONTAINER_OF(op, struct call, op);
    if (call->story)
        call->story->done++;
    if (!call->answered_late)
        oracle_answered(call, decision);
    call_free(call);
}

/* ---- incidents of a pending call ---- */

struct incident {
    struct timer timer;
    uint64_t number; /* of the call, which may have ended by then */
    void (*happens)(struct call *call);
};

static void incident_later(const struct call *call, int64_t after_us, void (*happens)(struct call *call));

static void incident_fire(struct timer *timer)
{
    struct incident *incident = CONTAINER_OF(timer, struct incident, timer);
    for (int i = 0; i < profile.engines; i++)
        list_for_each (node, next, &world.servers[i].calls) {
            struct call *call = LIST_ENTRY(node, struct call, node);
            if (call->number != incident->number)
                continue;
            if (world.servers[i].paused) /* its loop notices when it continues */
                incident_later(call, US_PER_MS, incident->happens);
            else
                incident->happens(call);
        }
    free(incident);
}

static void incident_later(const struct call *call, int64_t after_us, void (*happens)(struct call *call))
{
    struct incident *incident = calloc(1, sizeof *incident);
    if (!incident)
        abort();
    incident->timer.fire = incident_fire;
    incident->number = call->number;
    incident->happens = happens;
    timer_set(&incident->timer, sim_now() + after_us);
}

/* The client has disconnected, or gives up and comes back. */
static void leave(struct call *call)
{
    if (engine_abandon(world.servers[call->process].engine, &call->op)) {
        oracle_client_left(call);
        if (call->client)
            call->client->lost = call->story;
        call_free(call);
    } else {
        call->wait_until = 0; /* the running batch decides it, so it does not wait any longer */
        call->left = true;
    }
}

/* The HTTP loop answers at the deadline, even if the engine has not decided. */
static void answer_late(struct call *call)
{
    bool nothing_done = stage_answer(&call->op.stage);
    if (call->answered_late)
        return;
    call->answered_late = true;
    oracle_answered(call, &(struct decision){.status = nothing_done ? PERMIT_BUSY : PERMIT_OUTCOME_UNKNOWN});
    if (call->client) {
        call->client->call = NULL;
        client_next(call->client);
        call->client = NULL;
    }
}

/* No dice: every third acquire or renewal has metadata. */
static void choose_metadata(struct call *call)
{
    if (call->number % 3)
        return;
    int length = snprintf(call->metadata, sizeof call->metadata, "{\"n\":%llu}", (unsigned long long)call->number);
    call->operation.metadata = (struct bytes){call->metadata, (size_t)length};
}

struct call *call_new(int process, struct story *story, enum operation_kind kind)
{
    struct call *call = calloc(1, sizeof *call);
    if (!call)
        abort();
    call->process = process;
    call->story = story;
    call->number = ++world.calls;
    call->sent_at = sim_now();
    call->operation.kind = kind;
    call->operation.change = &call->change;
    if (!story)
        return call;
    story->calls++;
    call->operation.external_id = story->key->external_id;
    if (kind == OP_ACQUIRE || kind == OP_RENEW)
        choose_metadata(call);
    if (kind != OP_ACQUIRE)
        return call;
    int length = snprintf(call->principal, sizeof call->principal, "%lld", (long long)call->sent_at);
    call->operation.principal = (struct bytes){call->principal, (size_t)length};
    memcpy(call->wants, story->wants, sizeof call->wants);
    call->operation.wants = call->wants;
    call->operation.want_count = story->want_count;
    call->operation.ttl = story->ttl;
    call->operation.priority = dice_once_in(3) ? (int)dice_between(0, dice_once_in(3) ? PRIORITY_MAX : 2) : 0;
    memcpy(call->operation.digest, story->digest, DIGEST_SIZE);
    length = snprintf(call->nonce, sizeof call->nonce, "%llu", (unsigned long long)call->number);
    call->operation.nonce = (struct bytes){call->nonce, (size_t)length};
    return call;
}

/* Some operators set a request_timeout that the database does not always meet. */
static int64_t request_timeout_us(void)
{
    return !profile.calm && dice_once_in(20) ? dice_between(500, 100000) : 10 * US_PER_SECOND;
}

/* Returns true if it was sent. */
bool call_send(struct call *call, int64_t wait_us)
{
    struct server *server = &world.servers[call->process];
    int64_t timeout_us = world.quiet ? 10 * US_PER_SECOND : request_timeout_us();
    op_init(&call->op, &call->operation, clock_mono() + wait_us + timeout_us, on_decided);
    if (wait_us) {
        call->op.wait_until = clock_mono() + wait_us;
        call->wait_until = sim_now() + wait_us;
        call->waited = true;
    }
    list_append(&server->calls, &call->node);
    oracle_sent(call);
    incident_later(call, wait_us + timeout_us, answer_late);
    enum permit_status status = engine_submit(server->engine, &call->op);
    if (status == PERMIT_OK)
        return true;
    call->waited = false; /* refused at the door: whether the key waits is not said */
    on_decided(&call->op, &(struct decision){.status = status});
    return false;
}

/* ---- clients ---- */

/* A slot by number or by label: its own label or, if labels change, one of those in use. */
static struct slot_name any_name(const struct db_semaphore_row *row, uint32_t number)
{
    struct bytes label = dice_once_in(3) ? slot_label(row, number) : (struct bytes){0};
    if (label.data && profile.label_changes && dice_once_in(3))
        label = label_text((uint8_t)dice_between(1, 8));
    return (struct slot_name){label.data ? 0 : number, label};
}

static bool is_named(const struct want *want, const struct slot_name *name)
{
    for (size_t i = 0; i < want->named_count; i++)
        if (!want->named[i].number && !name->number && bytes_equal(want->named[i].label, name->label))
            return true;
    return false;
}

/* Sometimes specific slots: among the first few, so that many requests name the same. */
void want_choose_slots(struct want *want, struct slot_name *names, const struct db_semaphore_row *row)
{
    uint32_t most = (uint32_t)max_i64(1, min_i64(row->semaphore.capacity, 6));
    if (!row->exists || row->semaphore.kind == KIND_COUNTED || !dice_once_in(profile.label_changes ? 3 : 5))
        return;
    want->choice = (enum slot_choice)dice_between(CHOOSE_LOWEST, CHOOSE_ANY_OF);
    want->adjacent = want->choice == CHOOSE_LOWEST || (want->choice == CHOOSE_ANY_OF && dice_once_in(3));
    want->named = names;
    for (uint32_t number = 1; want->choice != CHOOSE_LOWEST && number <= most && want->named_count < ROW_SLOTS_MAX;
         number++)
        if (number == most || dice_once_in(2)) {
            struct slot_name name = any_name(row, number);
            if (!is_named(want, &name))
                names[want->named_count++] = name;
        }
    if (want_sort_named(want) != PERMIT_OK)
        abort();
    if (want->choice == CHOOSE_NAMED)
        want->count = (int64_t)want->named_count;
    if (want->choice == CHOOSE_ANY_OF)
        want->count = min_i64(want->count, (int64_t)want->named_count);
}

/* In a hall, often the best seats: together or not, of a section, with or without a tag. */
static void choose_best(struct want *want, char *form, const struct db_semaphore_row *row)
{
    struct bytes section = dice_once_in(2) ? BYTES("A") : BYTES("B"), tag = dice_once_in(2) ? BYTES("a") : BYTES("b");
    struct best wish = {.count = (uint32_t)want->count, .sections = &section, .tags = &tag, .not_tags = &tag};
    if (!row->exists || row->semaphore.kind == KIND_COUNTED || !dice_once_in(2))
        return;
    wish.together = !dice_once_in(3);
    wish.section_count = dice_once_in(4);
    wish.tag_count = dice_once_in(8);
    wish.not_tag_count = !wish.tag_count && dice_once_in(4);
    *want = (struct want){.semaphore = want->semaphore, .count = want->count, .choice = CHOOSE_BEST};
    want->best = best_encode(&wish, form);
    if (want->best.length > WISH_SIZE)
        abort();
}

static void choose_want(struct story *story, struct db_semaphore *semaphore)
{
    const struct semaphore *row = &semaphore->row.semaphore;
    int64_t most = max_i64(1, min_i64(row->capacity, 3));
    size_t index = story->want_count++;
    struct want *want = &story->wants[index];
    *want = (struct want){.semaphore = row->name, .count = dice_once_in(3) ? dice_between(1, most) : 1};
    story->semaphores[index] = semaphore;
    if (!profile.plain_waits)
        want_choose_slots(want, story->names[index], &semaphore->row);
    if (profile.halls && !profile.plain_waits)
        choose_best(want, story->wishes[index], &semaphore->row);
}

/*
 * Candidates for a new story, sorted by name: the semaphores created before the run, and sometimes names for templates.
 * These names change with time, so semaphores are created all the time.
 */
static size_t list_candidates(struct db_semaphore **ret_candidates)
{
    size_t names = database.semaphore_count - world.made_count;
    size_t first = names ? (size_t)(sim_now() / NAMES_CHANGE_US) % names : 0;
    bool named = names && dice_once_in(2);
    bool mixed = !named || dice_once_in(2);
    size_t count = 0;
    for (size_t i = 0; i < database.semaphore_count; i++) {
        bool near = i >= world.made_count && (i - world.made_count + names - first) % names < NAMES_AT_ONCE;
        if (i < world.made_count ? mixed : named && near)
            ret_candidates[count++] = &database.semaphores[i];
    }
    return count;
}

static void write_key(char text[KEY_SIZE], uint64_t number)
{
    static const char *const tenants[] = {"", "\001a\001", "\001b\001"};
    if (run_with_tenants)
        snprintf(text, KEY_SIZE, "%sk%llu", tenants[number % 3], (unsigned long long)number / 3);
    else
        snprintf(text, KEY_SIZE, "k%llu", (unsigned long long)number);
}

struct story *story_begin(void)
{
    char text[KEY_SIZE];
    write_key(text, ++world.keys);
    struct story *story = story_new(database_key(bytes_of(text)));
    struct db_semaphore *candidates[SEMAPHORES_MAX];
    size_t left = list_candidates(candidates);
    size_t wants = !profile.plain_waits && dice_once_in(4) ? (size_t)dice_between(2, ROW_PERMITS_MAX) : 1;
    for (size_t i = 0; left > 0 && story->want_count < wants; i++, left--)
        if ((size_t)dice_between(1, (int64_t)left) <= wants - story->want_count)
            choose_want(story, candidates[i]);
    story->ttl = (struct ttl){dice_once_in(12) ? TTL_UNLIMITED : TTL_DURATION,
                              dice_between(200, dice_once_in(4) ? 2000 : profile.ttl_max_ms)};
    memcpy(story->digest, &world.keys, sizeof world.keys);
    return story;
}

/* The next action of a client and its probability, by what is known of the key. */
enum action { ACQUIRE, ACQUIRE_WAIT, OTHER_PAYLOAD, RELEASE, RENEW, CONFIRM, FORGET, ACTION_COUNT };
static const unsigned chances[3][ACTION_COUNT] = {
    /*                    acquire  wait  other  release  renew  confirm  forget */
    /* not granted  */ {45, 40, 0, 6, 4, 1, 1},
    /* granted      */ {12, 4, 3, 55, 16, 2, 4},
    /* ended        */ {14, 6, 3, 24, 12, 3, 30},
};

static enum action choose_action(const struct story *story)
{
    const unsigned *row = chances[story->end_answered || story->release_sent ? 2 : story->grant_answered ? 1 : 0];
    unsigned sum = 0;
    for (int i = 0; i < ACTION_COUNT; i++)
        sum += row[i];
    unsigned at = (unsigned)(dice_u64() % sum);
    int action = 0;
    while (at >= row[action])
        at -= row[action++];
    if (action == CONFIRM && ((story->confirm_sent && !story->basket) || profile.calm))
        return RENEW;
    if (action == OTHER_PAYLOAD && (!story->key->row.exists || story->lost || !profile.calm))
        return ACQUIRE;
    return (enum action)action;
}

static int64_t choose_wait(void)
{
    if (dice_once_in(profile.low_load || profile.deaths ? 2 : 30))
        return dice_between(1, profile.wait_max_ms) * US_PER_MS;
    return dice_once_in(4) ? dice_between(1000, 300000) : dice_between(1000, 30000);
}

/* The client drops the key; a confirmed request is not dropped. */
static bool may_forget(const struct story *story)
{
    return !story->confirm_sent || story->end_answered || story->lost;
}

/* Sometimes: puts the story into a basket with others, of which some may not be held. */
static void fill_basket(struct story *story)
{
    if (story->basket || story->confirm_sent || dice_once_in(2))
        return;
    struct basket *basket = calloc(1, sizeof *basket);
    if (!basket)
        abort();
    basket->stories[basket->count++] = story;
    size_t wanted = (size_t)dice_between(1, BASKET_MAX);
    for (int i = 0; i < 4 * BASKET_MAX && basket->count < wanted; i++) {
        struct story *other = world.stories[dice_between(0, world.story_count - 1)];
        bool taken = other->basket || other->confirm_sent || (!other->grant_answered && !dice_once_in(8));
        for (size_t j = 0; j < basket->count; j++)
            taken |= basket->stories[j] == other;
        if (!taken)
            basket->stories[basket->count++] = other;
    }
    for (size_t i = 0; i < basket->count; i++) {
        basket->stories[i]->basket = basket;
        basket->stories[i]->confirm_sent = true;
    }
}

static struct call *make_confirm(struct story *story, int process)
{
    fill_basket(story);
    story->confirm_sent = true;
    if (!story->basket)
        return call_new(process, story, OP_CONFIRM);
    const struct basket *basket = story->basket;
    struct call *call = call_new(process, basket->stories[0], OP_CONFIRM);
    for (size_t i = 0; i < basket->count; i++)
        call->keys[i] = basket->stories[i]->key->external_id;
    call->operation.keys = call->keys;
    call->operation.key_count = basket->count;
    return call;
}

/* *ret_wait_us above 0: it waits. */
static struct call *make_call(struct story *story, int process, int64_t *ret_wait_us)
{
    struct call *call;
    if (!*ret_wait_us && exchange_is_next(story))
        return exchange_call(process, story);
    enum action action = *ret_wait_us ? ACQUIRE_WAIT : choose_action(story);
    if (story->confirm_sent && dice_once_in(3))
        action = RELEASE;
    if (action == ACQUIRE_WAIT && profile.few_waits && !dice_once_in(20))
        action = ACQUIRE;
    *ret_wait_us = 0;
    switch (action) {
    case ACQUIRE_WAIT: *ret_wait_us = choose_wait(); return call_new(process, story, OP_ACQUIRE);
    case ACQUIRE: return call_new(process, story, OP_ACQUIRE);
    case OTHER_PAYLOAD:
        call = call_new(process, story, OP_ACQUIRE);
        call->other_payload = true;
        call->operation.digest[DIGEST_SIZE - 1] = 1;
        return call;
    case RELEASE:
        call = call_new(process, story, dice_once_in(8) ? OP_FORCE_RELEASE : OP_RELEASE);
        call->operation.allow_confirmed = story->confirm_sent;
        call->operation.why = BYTES("an operator wants it");
        return call;
    case RENEW:
        call = call_new(process, story, OP_RENEW);
        if (dice_once_in(2))
            call->operation.ttl = (struct ttl){TTL_DURATION, dice_between(200, profile.ttl_max_ms)};
        return call;
    case CONFIRM: return make_confirm(story, process);
    default: return NULL;
    }
}

static void act(struct timer *timer)
{
    struct client *client = CONTAINER_OF(timer, struct client, timer);
    bool there = profile.lopsided && (client - world.clients) % 4 != 0;
    int process = there ? server_rather(0) : server_any();
    if (world.quiet)
        return;
    if (process < 0) {
        timer_set(&client->timer, sim_now() + 5000);
        return;
    }
    struct story **place = &world.stories[dice_between(0, world.story_count - 1)];
    if ((*place)->calls > 12 && may_forget(*place))
        *place = story_begin();
    struct story *lost = dice_once_in(2) ? client->lost : NULL;
    int64_t wait_us = lost != NULL;
    struct call *call = make_call(lost ? lost : *place, process, &wait_us);
    client->lost = NULL;
    if (!call) {
        if (may_forget(*place))
            *place = story_begin();
        client_next(client);
        return;
    }
    call->client = client;
    client->call = call;
    uint64_t number = call->number;
    if (call_send(call, wait_us) && wait_us && dice_once_in(6) && number == world.calls)
        incident_later(call, dice_between(0, wait_us + 2000), leave);
}

void clients_begin(void)
{
    for (int i = 0; i < world.story_count; i++)
        world.stories[i] = story_begin();
    for (int i = 0; i < world.client_count; i++) {
        world.clients[i].timer.fire = act;
        timer_set(&world.clients[i].timer, dice_between(0, 20000));
    }
}
