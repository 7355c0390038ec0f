/* SPDX-License-Identifier: MIT */
/* Operators: create, change and delete templates, move labels, and take semaphores out of service. */
#include <stdio.h>

#include "dice.h"
#include "fake_store.h"
#include "fake_templates.h"
#include "world.h"

enum {
    PAUSE_MAX_US = 400000,           /* between two changes of labels and names */
    TEMPLATE_PAUSE_MAX_US = 1500000, /* between two changes of templates by one permitd */
    PAGE_MAX = 8,                    /* labels in one change */
    FAMILY = 8,                      /* names with one prefix; all families together make SEMAPHORES_NAMED */
};

static const char *const prefixes[TEMPLATES_MAX] = {"t", "t1", "t12", "t2", "u"};

static struct timer next_change;

/* ---- templates ---- */

static struct semaphore_change any_settings(void)
{
    struct semaphore_change change = {
        .has_capacity = true,
        .has_default_ttl = true,
        .has_grace = true,
        .has_max_hold = true,
        .has_queue = true,
        .has_max_waiters = dice_once_in(2),
        .capacity = dice_once_in(12) ? 0 : dice_between(1, 6),
        .default_ttl_ms = 1000,
        .grace_ms = dice_between(0, GRACE_MAX_MS),
        .max_hold_ms = TTL_MAX_MS,
        .queue = dice_once_in(2) ? QUEUE_FIFO : QUEUE_BACKFILL,
        .max_waiters = dice_between(1, 20),
    };
    change.has_feed = run_with_feed;
    if (run_with_feed)
        change.feed = (enum semaphore_feed)dice_between(FEED_NONE, FEED_ALL);
    return change;
}

static enum semaphore_kind any_kind(void)
{
    return dice_once_in(4) ? KIND_COUNTED : KIND_SLOTTED;
}

static void change_template(struct store *store)
{
    struct db_template *template = &database.templates[dice_between(0, TEMPLATES_MAX - 1)];
    struct semaphore_change change = any_settings();
    if (dice_once_in(3)) {
        (void)fake_templates_delete(store, template);
        return;
    }
    change.kind = any_kind();
    change.has_kind = !template->row.exists; /* the kind never changes */
    (void)fake_templates_put(store, template, &change);
}

struct operator
{
    struct server *server;
    uint64_t start; /* of the server; after a restart it has another operator */
};

static void *operator_run(void *context)
{
    struct operator* operator= context;
    struct server *server = operator->server;
    struct store *store = fake_store_open(NULL, STORE_WORKER);
    if (!store)
        abort();
    while (server->starts == operator->start && server->engine && !server->stopping && !world.quiet) {
        fiber_sleep(dice_between(0, TEMPLATE_PAUSE_MAX_US));
        if (!world.quiet && store->session->reconnect(store) == PERMIT_OK)
            change_template(store);
    }
    store_free(store);
    free(operator);
    return NULL;
}

void operators_join(struct server *server)
{
    if (!profile.templates)
        return;
    struct operator* operator= calloc(1, sizeof *operator);
    if (!operator)
        abort();
    *operator=(struct operator){server, server->starts};
    process_spawn(server_number(server), operator_run, operator);
}

void operators_cover_all(void)
{
    struct store *store = fake_store_open(NULL, STORE_WORKER);
    struct semaphore_change change = any_settings();
    change.capacity = 2;
    if (!store || store->session->reconnect(store) != PERMIT_OK)
        abort();
    for (size_t i = 0; i < TEMPLATES_MAX; i++)
        if (fake_templates_put(store, &database.templates[i], &change) != PERMIT_OK)
            violation("P19", "a template cannot be put, although nothing fails any more");
    store_free(store);
}

static void begin_templates(void)
{
    static const char *const families[] = {"t1", "t2", "u"}; /* sorted by name */
    for (size_t i = 0; i < SEMAPHORES_NAMED; i++) {
        char name[8];
        size_t family = i * ARRAY_LENGTH(families) / SEMAPHORES_NAMED;
        snprintf(name, sizeof name, "%s%c", families[family], (char)('0' + i % FAMILY));
        (void)database_add_name(name);
    }
    for (size_t i = 0; i < TEMPLATES_MAX; i++) {
        struct db_template *template = &database.templates[i];
        const struct semaphore_change change = any_settings();
        struct template made = {.prefix = bytes_of(prefixes[i])};
        const char *refusal;
        database_add_template(prefixes[i]);
        if (i > 0 && dice_once_in(2))
            continue;
        if (template_apply(&made, false, &change, DEFAULT_TTL_MS, &refusal) != PERMIT_OK)
            abort();
        made.settings.kind = any_kind();
        template->row = (struct template_row){.exists = true, .settings = made.settings};
        oracle_template_changed(template);
    }
}

/* ---- seats ---- */

/* The text of a seat's row is that of the database, which may change: returns the same one that stays. */
static struct bytes lasting(struct bytes text)
{
    static const char *const texts[] = {"A", "B", "a", "b", "a b"};
    for (size_t i = 0; i < ARRAY_LENGTH(texts); i++)
        if (bytes_equal(text, bytes_of(texts[i])))
            return bytes_of(texts[i]);
    return (struct bytes){0};
}

/* A seat at the place of its number: one row in each section. */
static struct seat any_seat(const struct db_semaphore_row *row, uint32_t number)
{
    static const char *const tags[] = {"", "", "a", "b", "a b"};
    bool front = number <= row->semaphore.capacity / 2;
    return (struct seat){.number = number,
                         .position = number,
                         .rank = dice_once_in(8) ? SEAT_RANK_NONE : (uint32_t)dice_between(0, 9),
                         .section = front ? BYTES("A") : BYTES("B"),
                         .tags = bytes_of(tags[dice_between(0, ARRAY_LENGTH(tags) - 1)])};
}

void operators_make_seat(struct db_semaphore_row *row, uint32_t number)
{
    const struct seat seat = any_seat(row, number);
    row_set_seat(row, &seat);
}

/* The seats of the page: one is described anew, the others stay. */
static void change_seats(struct call *call, const struct db_semaphore_row *row, uint32_t one)
{
    const struct semaphore_change *change = &call->change;
    for (uint32_t i = 0; i < change->label_count; i++) {
        struct seat *seat = &call->seats[i];
        *seat = i == one ? any_seat(row, change->labels_from + i) : slot_seat(row, change->labels_from + i);
        seat->section = lasting(seat->section);
        seat->row = lasting(seat->row);
        seat->tags = lasting(seat->tags);
    }
    call->change.seats = call->seats;
}

/* ---- labels ---- */

static uint32_t any_slot(const struct db_semaphore_row *row, uint32_t from, uint32_t count)
{
    uint32_t number = from;
    for (int tries = 0; tries < 8; tries++) { /* the label of a held slot cannot change */
        number = from + (uint32_t)dice_between(0, count - 1);
        if (!row->slots[number])
            break;
    }
    return number;
}

/* A page of the current labels, with one or two slots changed. */
static void change_page(struct call *call, const struct db_semaphore_row *row)
{
    uint32_t from = dice_once_in(2) ? 1 : (uint32_t)dice_between(1, row->semaphore.capacity);
    uint32_t count = (uint32_t)min_i64(dice_between(1, PAGE_MAX), row->semaphore.capacity + 1 - from);
    uint32_t one = any_slot(row, from, count) - from;
    uint32_t other = any_slot(row, from, count) - from;
    for (uint32_t i = 0; i < count; i++)
        call->labels[i] = slot_label(row, from + i);
    struct bytes label = call->labels[one];
    bool bare = !label.data && !call->labels[other].data;
    switch (bare ? 1 : dice_between(0, 3)) {
    case 0: call->labels[one] = (struct bytes){0}; break;
    case 1: call->labels[one] = label_text((uint8_t)dice_between(1, PAGE_MAX)); break;
    default: /* swaps them */ call->labels[one] = call->labels[other]; call->labels[other] = label;
    }
    call->change.has_labels = true;
    call->change.labels = call->labels;
    call->change.labels_from = from;
    call->change.label_count = count;
    if (profile.halls && dice_once_in(2))
        change_seats(call, row, one);
}

/* Returns NULL if the chosen semaphore has no slots. */
static struct db_semaphore *any_slotted(void)
{
    struct db_semaphore *semaphore = &database.semaphores[dice_between(0, (int64_t)database.semaphore_count - 1)];
    const struct semaphore *row = &semaphore->row.semaphore;
    return row_in_service(&semaphore->row) && row->kind == KIND_SLOTTED && row->capacity > 0 ? semaphore : NULL;
}

static void change_labels(int process)
{
    const struct db_semaphore *semaphore = any_slotted();
    for (int tries = 0; tries < 4 && !semaphore; tries++)
        semaphore = any_slotted();
    if (!semaphore)
        return;
    struct call *call = call_new(process, NULL, dice_once_in(4) ? OP_SEMAPHORE_PUT : OP_SEMAPHORE_LABELS);
    call->operation.semaphore = semaphore->row.semaphore.name;
    change_page(call, &semaphore->row);
    (void)call_send(call, 0);
}

/* ---- names ---- */

/* Takes a semaphore out of service, or creates one without a template. */
static void change_name(int process)
{
    const struct db_semaphore *semaphore =
        &database.semaphores[dice_between((int64_t)world.made_count, (int64_t)database.semaphore_count - 1)];
    bool makes = !row_in_service(&semaphore->row);
    if (makes && !dice_once_in(6))
        return;
    struct call *call = call_new(process, NULL, makes ? OP_SEMAPHORE_PUT : OP_SEMAPHORE_RETIRE);
    call->operation.semaphore = semaphore->row.semaphore.name;
    call->change = any_settings();
    call->change.if_none_match = true;
    (void)call_send(call, 0);
}

static void change_something(struct timer *timer)
{
    int process = server_any();
    if (world.quiet)
        return;
    bool labels = profile.label_changes && (!profile.templates || dice_once_in(2));
    if (process >= 0 && labels)
        change_labels(process);
    else if (process >= 0)
        change_name(process);
    timer_set(timer, sim_now() + dice_between(0, PAUSE_MAX_US));
}

void operators_begin(void)
{
    profile.max_semaphores = dice_once_in(4) ? world.made_count + (uint64_t)dice_between(1, 6) : 1000000;
    if (profile.templates)
        begin_templates();
    next_change.fire = change_something;
    if ((profile.templates || profile.label_changes) && !faults.only_call)
        timer_set(&next_change, dice_between(0, PAUSE_MAX_US));
}
