/* SPDX-License-Identifier: MIT */
/* Specific slots and labels in plan_batch: one small batch a test, on one semaphore "hall". */
#include <criterion/criterion.h>
#include <stdio.h>

#include "wait_mode.h"

enum { SLOTS_MAX = 9, HOLDERS_MAX = 8, LINES_MAX = 6, NAMES_MAX = 8, HALL = 1, ELSEWHERE = 2 };
#define NOW   (1000 * US_PER_SECOND)
#define LATER (NOW + 60 * US_PER_SECOND)

/*
 * Slotted, backfill, capacity 6, slots 1 to 6 free and without labels; all slots are named. A test sets the
 * differences.
 */
static struct {
    struct semaphore hall;
    struct slot_row rows[SLOTS_MAX];
    size_t row_count;
    size_t read_max; /* number of free slots that are read */
    struct request holders[HOLDERS_MAX];
    struct permit permits[HOLDERS_MAX][2];
    uint32_t numbers[HOLDERS_MAX][SLOTS_MAX];
    struct bytes labels[HOLDERS_MAX][SLOTS_MAX];
    size_t holder_count;
    bool due_unread;  /* due holders were not read */
    bool has_holders; /* as in struct named_slots */
    size_t max_packet;
    struct arena arena;
    struct plan plan;
} scene;

static void set_capacity(int64_t capacity, size_t row_count)
{
    scene.hall.capacity = capacity;
    scene.row_count = row_count;
    for (size_t i = 0; i < row_count; i++) {
        scene.rows[i].number = (uint32_t)i + 1;
        scene.rows[i].retired = (int64_t)i >= capacity;
        scene.rows[i].due_at = NEVER;
    }
}

static void scene_init(void)
{
    memset(&scene, 0, sizeof scene);
    arena_init(&scene.arena, 4096, 1 << 20);
    scene.hall = (struct semaphore){.id = HALL,
                                    .name = BYTES("hall"),
                                    .kind = KIND_SLOTTED,
                                    .queue = QUEUE_BACKFILL,
                                    .next_permit_id = 57,
                                    .version = 1,
                                    .config_version = 1,
                                    .first_free = 1,
                                    .default_ttl_ms = 60000,
                                    .max_ttl_ms = -1,
                                    .max_hold_ms = 60000,
                                    .max_waiters = SETTING_NONE,
                                    .max_priority = 9,
                                    .priority_step_ms = PRIORITY_STEP_MS,
                                    .retired_at = NEVER,
                                    .next_due_at = NEVER};
    scene.read_max = SLOTS_MAX;
    set_capacity(6, 6);
}

static void scene_release(void)
{
    arena_release(&scene.arena);
}

TestSuite(plan_slots, .init = scene_init, .fini = scene_release);

/* Labels the slots A1, A2, ... from slot 1; call it before anything is held. */
static void label_all(void)
{
    static const char labels[] = "A1A2A3A4A5A6A7A8A9";
    for (size_t i = 0; i < scene.row_count; i++)
        scene.rows[i].label = (struct bytes){&labels[2 * i], 2};
}

/* Adds a holder; `numbers` ends with 0. */
static struct request *hold(const char *key, utc_us due_at, const uint32_t *numbers)
{
    size_t at = scene.holder_count++;
    struct request *holder = &scene.holders[at];
    struct permit *permit = scene.permits[at];
    *permit = (struct permit){.semaphore_id = HALL, .token = at + 1};
    permit->slots.numbers = scene.numbers[at];
    for (; *numbers; numbers++) {
        struct slot_row *row = &scene.rows[*numbers - 1];
        row->permit_id = permit->token;
        row->holder = bytes_of(key);
        row->due_at = due_at;
        row->grace_ms = 5000;
        if (row->label.length) {
            permit->labels = scene.labels[at];
            permit->labels[permit->slots.count] = row->label;
        }
        permit->slots.numbers[permit->slots.count++] = *numbers;
        permit->count++;
    }
    *holder = (struct request){.id = at + 1,
                               .external_id = bytes_of(key),
                               .state = REQUEST_ACQUIRED,
                               .ttl_ms = 60000,
                               .due_at = due_at,
                               .grace_ms = 5000,
                               .permits = permit,
                               .permit_count = 1,
                               .confirmed_at = NEVER,
                               .ended_at = NEVER};
    scene.hall.in_use += permit->count;
    scene.hall.next_due_at = min_i64(scene.hall.next_due_at, due_at);
    return holder;
}
#define HOLD(key, due_at, ...) hold(key, due_at, (const uint32_t[]){__VA_ARGS__, 0})

struct line {
    enum operation_kind kind;
    const char *key;
    const char *want; /* "2", "named 1 A2", "2 of 1 2 A3", "2 adjacent", "2 adjacent of 1 2 3" */
    const char *expected;
    enum wait_mode wait;
};

static struct bytes next_word(const char **at)
{
    *at += strspn(*at, " ");
    struct bytes word = {*at, strcspn(*at, " ")};
    *at += word.length;
    return word;
}

static void read_want(const char *text, struct slot_name *names, struct want *want)
{
    *want = (struct want){.semaphore = BYTES("hall"), .semaphore_id = HALL, .named = names};
    struct bytes word = next_word(&text);
    if (bytes_equal(word, BYTES("named")))
        want->choice = CHOOSE_NAMED;
    else
        want->count = strtoll(word.data, NULL, 10);
    for (word = next_word(&text); word.length; word = next_word(&text))
        if (bytes_equal(word, BYTES("adjacent")))
            want->adjacent = true;
        else if (bytes_equal(word, BYTES("of")))
            want->choice = CHOOSE_ANY_OF;
        else if (word.data[0] >= '0' && word.data[0] <= '9')
            names[want->named_count++].number = (uint32_t)strtoul(word.data, NULL, 10);
        else
            names[want->named_count++].label = word;
    if (want->choice == CHOOSE_NAMED)
        want->count = (int64_t)want->named_count;
    cr_assert_eq(want_sort_named(want), PERMIT_OK);
}

static void print_slots(const struct permit *permit, struct buf *out)
{
    for (uint32_t i = 0; i < permit->slots.count; i++) {
        buf_append_char(out, ' ');
        buf_append_u64(out, permit->slots.numbers[i]);
        if (permit->labels)
            buf_printf(out, "=%.*s", (int)permit->labels[i].length,
                       permit->labels[i].length ? permit->labels[i].data : "");
    }
}

/* Adds a request that waits at another server for slots; `seconds`: its place before now. */
static struct request *wait_elsewhere(const char *key, int64_t seconds, const char *wanted)
{
    static struct slot_name names[HOLDERS_MAX][NAMES_MAX];
    static struct want wants[HOLDERS_MAX][2];
    size_t at = scene.holder_count++;
    memset(names[at], 0, sizeof names[at]);
    read_want(wanted, names[at], &wants[at][0]);
    wants[at][0].semaphore = (struct bytes){0};
    scene.holders[at] = (struct request){.id = at + 1,
                                         .external_id = bytes_of(key),
                                         .owner = BYTES(""),
                                         .nonce = BYTES(""),
                                         .state = REQUEST_WAITING,
                                         .has_digest = true,
                                         .server_id = 2,
                                         .place = NOW - seconds * US_PER_SECOND,
                                         .waiting_since = NOW - US_PER_SECOND,
                                         .wanted = wants_encode((struct ttl){0}, wants[at], 1, &scene.arena),
                                         .wants = wants[at],
                                         .want_count = 1,
                                         .confirmed_at = NEVER,
                                         .acquired_at = NEVER,
                                         .ended_at = NEVER};
    scene.hall.waiting++;
    return &scene.holders[at];
}

/* The same, for a waiter that also wants a unit of a semaphore that is not locked. */
static void wait_for_two(const char *key, int64_t seconds, const char *wanted)
{
    struct request *request = wait_elsewhere(key, seconds, wanted);
    request->wants[1] = (struct want){.semaphore_id = ELSEWHERE, .count = 1};
    request->want_count = 2;
}

/* Prints "granted 1 2" for each grant to a waiter, and "mail 3" for each mail, by request id. */
static void expect_waiters(const char *expected)
{
    const struct changes *changes = &scene.plan.changes;
    struct buf got;
    buf_init(&got, 1000);
    for (size_t i = 0; i < changes->request_count; i++)
        if (changes->requests[i].grants) {
            buf_printf(&got, "%.*s:", (int)changes->requests[i].request->external_id.length,
                       changes->requests[i].request->external_id.data);
            print_slots(&changes->requests[i].request->permits[0], &got);
            buf_append_text(&got, "; ");
        }
    for (size_t i = 0; i < changes->mail_count; i++)
        buf_printf(&got, "mail %llu; ", (unsigned long long)changes->mail[i].request_id);
    cr_expect_str_eq(buf_text(&got), expected, "expected %s, got %s", expected, buf_text(&got));
    buf_release(&got);
}
/*
 * Prints "granted 1 2", with labels "granted 1=A1 2="; "no_capacity 1=A1 of k1 until 60", in seconds from now. NULL: the
 * batch is to be planned again.
 */
static void print_outcome(const struct outcome *outcome, struct buf *out)
{
    buf_clear(out);
    if (!outcome) {
        buf_append_text(out, "reads more");
        return;
    }
    buf_append_text(out, outcome->put_back  ? "put_back"
                         : outcome->created ? "granted"
                                            : permit_status_word(outcome->status));
    if (outcome->created)
        print_slots(&outcome->request->permits[0], out);
    for (size_t i = 0; i < outcome->shortage_count; i++) {
        const struct shortage *shortage = &outcome->shortages[i];
        buf_append_text(out, shortage->behind ? " behind" : "");
        for (size_t j = 0; j < shortage->taken_count; j++) {
            const struct taken_slot *taken = &shortage->taken[j];
            buf_printf(out, "%s %u%s%.*s of %.*s/%llu", j ? "," : "", taken->number, taken->label.length ? "=" : "",
                       (int)taken->label.length, taken->label.length ? taken->label.data : "",
                       (int)taken->holder.length, taken->holder.data, (unsigned long long)taken->token);
            if (taken->expires_at != NEVER)
                buf_printf(out, " until %lld", (long long)((taken->expires_at - NOW) / US_PER_SECOND));
        }
    }
}

/* Returns the rows as a batch reads them, with a look at the semaphore of wait_for_two, which has free units. */
static struct view scene_view(utc_us *next_due, struct free_slots *free_slots, struct named_slots *named)
{
    static uint32_t numbers[SLOTS_MAX];
    static struct bytes labels[SLOTS_MAX];
    static struct glimpse other = {.semaphore = {.id = ELSEWHERE, .capacity = 3, .retired_at = NEVER}};
    *free_slots = (struct free_slots){.numbers = numbers, .labels = labels};
    for (size_t i = 0; i < scene.row_count && free_slots->count < scene.read_max; i++) {
        const struct slot_row *row = &scene.rows[i];
        if (row->permit_id || row->retired || row->number < scene.hall.first_free)
            continue;
        labels[free_slots->count] = row->label;
        numbers[free_slots->count++] = row->number;
    }
    free_slots->complete = free_slots->count < scene.read_max;
    *named = (struct named_slots){.rows = scene.rows, .count = scene.row_count, .has_holders = scene.has_holders};
    *next_due = scene.hall.next_due_at;
    return (struct view){.semaphores = &scene.hall,
                         .free_slots = free_slots,
                         .named_slots = named,
                         .next_due = next_due,
                         .semaphore_count = 1,
                         .requests = scene.holders,
                         .request_count = scene.due_unread ? 0 : scene.holder_count,
                         .clock = {.tick_at = NOW, .due = NOW, .from = NOW},
                         .now = NOW,
                         .glimpses = &other,
                         .glimpse_count = 1,
                         .same_server = true};
}

static void plan(const struct operation *operations, size_t count)
{
    const struct operation *pointers[LINES_MAX];
    utc_us next_due;
    struct free_slots free_slots;
    struct named_slots named;
    struct view view = scene_view(&next_due, &free_slots, &named);
    struct plan_settings settings = {.retention_us = 1,
                                     .tombstone_us = 1,
                                     .default_ttl_ms = 1,
                                     .backfill_bound_us = 30 * US_PER_SECOND,
                                     .max_semaphore_waiters = 100,
                                     .max_packet = scene.max_packet,
                                     .server_id = 1};
    for (size_t i = 0; i < count; i++)
        pointers[i] = &operations[i];
    cr_assert_eq(plan_batch(&view, pointers, count, (struct id_range){100, 200}, &settings, &scene.arena, &scene.plan),
                 PERMIT_OK);
}

static void expect(const struct line *lines, size_t count)
{
    struct slot_name names[LINES_MAX][NAMES_MAX] = {0};
    struct want wants[LINES_MAX];
    struct operation operations[LINES_MAX];
    struct buf got;
    buf_init(&got, 1000);
    for (size_t i = 0; i < count; i++) {
        operations[i] = (struct operation){.kind = lines[i].kind,
                                           .external_id = bytes_of(lines[i].key),
                                           .owner = BYTES(""),
                                           .principal = BYTES(""),
                                           .wants = &wants[i]};
        operation_set_wait(&operations[i], lines[i].wait, 1, false);
        if (lines[i].want)
            read_want(lines[i].want, names[i], &wants[i]);
        operations[i].want_count = lines[i].want != NULL;
    }
    plan(operations, count);
    for (size_t i = 0; i < count; i++) {
        print_outcome(plan_reads_more(&scene.plan) ? NULL : &scene.plan.outcomes[i], &got);
        cr_expect_str_eq(buf_text(&got), lines[i].expected, "%s: expected %s, got %s (%s)", lines[i].key,
                         lines[i].expected, buf_text(&got),
                         scene.plan.outcomes[i].detail ? scene.plan.outcomes[i].detail : "");
    }
    buf_release(&got);
}

#define EXPECT(...)                                                                                                    \
    do {                                                                                                               \
        static const struct line lines[] = {__VA_ARGS__};                                                              \
        expect(lines, ARRAY_LENGTH(lines));                                                                            \
    } while (0)

static void expect_detail(size_t index, const char *detail)
{
    cr_expect_str_eq(scene.plan.outcomes[index].detail, detail);
}

/* ---- named slots ---- */

Test(plan_slots, named_slots_are_granted_by_number_and_by_label)
{
    label_all();
    EXPECT({OP_ACQUIRE, "k1", "named 5 A2", "granted 2=A2 5=A5", 0}, {OP_ACQUIRE, "k2", "2", "granted 1=A1 3=A3", 0});
    cr_expect_eq(scene.plan.changes.slot_count, 4);
    cr_expect_eq(scene.plan.changes.semaphores[0].semaphore->in_use, 4);
    cr_expect_eq(scene.plan.changes.semaphores[0].semaphore->first_free, 4);
}

Test(plan_slots, named_slots_are_granted_together_or_refused_with_their_holders)
{
    label_all();
    HOLD("k1", LATER, 1, 3);
    hold("k2", NEVER, (const uint32_t[]){4, 0})->confirmed_at = NOW;
    EXPECT({OP_ACQUIRE, "k3", "named 2 3 4 A1",
            "no_capacity 1=A1 of k1/1 until 55, 3=A3 of k1/1 until 55, 4=A4 of k2/2", 0},
           {OP_ACQUIRE, "k4", "named 2", "granted 2=A2", 0});
    cr_expect_eq(scene.plan.outcomes[0].shortages[0].requested, 4);
    cr_expect(scene.plan.outcomes[0].may_wait);
}

Test(plan_slots, holders_outside_the_batch_are_known_from_the_slots)
{
    HOLD("k1", LATER, 1);
    HOLD("k2", NEVER, 2);
    HOLD("k3", LATER, 3);
    scene.rows[2].without_ttl = true;
    scene.due_unread = true;
    EXPECT({OP_ACQUIRE, "k4", "named 1 2 3", "no_capacity 1 of k1/1 until 55, 2 of k2/2, 3 of k3/3", 0});
}

Test(plan_slots, one_request_of_a_batch_gets_a_named_slot_and_others_see_it)
{
    EXPECT({OP_ACQUIRE, "k1", "named 2", "granted 2", 0},
           {OP_ACQUIRE, "k2", "named 2", "no_capacity 2 of k1/57 until 60", 0},
           {OP_ACQUIRE, "k3", "named 1 2", "no_capacity 2 of k1/57 until 60", 0},
           {OP_ACQUIRE, "k4", "1", "granted 1", 0});
}

Test(plan_slots, named_slot_freed_in_the_batch_is_granted_with_its_label)
{
    label_all();
    HOLD("k1", LATER, 2, 6);
    scene.rows[5].label = (struct bytes){0}; /* only the permit has its label */
    EXPECT({OP_ACQUIRE, "k2", "named 2", "granted 2=A2", 0}, {OP_ACQUIRE, "k3", "named 6", "granted 6=A6", 0},
           {OP_RELEASE, "k1", NULL, "ok", 0});
}

Test(plan_slots, named_slot_beyond_the_read_slots_keeps_first_free_a_lower_bound)
{
    scene.read_max = 1;
    EXPECT({OP_ACQUIRE, "k1", "named 1", "granted 1", 0});
    cr_expect_eq(scene.plan.changes.semaphores[0].semaphore->first_free, 2);
    scene.hall.first_free = 1;
    EXPECT({OP_ACQUIRE, "k1", "named 6", "granted 6", 0});
    cr_expect_eq(scene.plan.changes.semaphores[0].semaphore->first_free, 1);
}

Test(plan_slots, missing_slots_are_never_satisfiable)
{
    label_all();
    set_capacity(6, 7);
    scene.rows[6].label = BYTES("A7");
    EXPECT({OP_ACQUIRE, "k1", "named 1 7", "never_satisfiable", 0},
           {OP_ACQUIRE, "k2", "named A7", "never_satisfiable", 0},
           {OP_ACQUIRE, "k3", "named A8", "never_satisfiable", 0},
           {OP_ACQUIRE, "k4", "1 of A1 A8", "never_satisfiable", 0},
           {OP_ACQUIRE, "k5", "3 of 1 2", "never_satisfiable", 0},
           {OP_ACQUIRE, "k6", "2 adjacent of 1 3 5", "never_satisfiable", 0});
    expect_detail(0, "hall: no slot 7; the capacity is 6");
    expect_detail(1, "hall: A7 is out of service");
    expect_detail(2, "hall: no slot with label A8");
    expect_detail(4, "hall: 3 asked of 2");
    expect_detail(5, "hall: 2 asked, at most 1 of the named slots are adjacent");
    cr_expect(scene.plan.changes.empty);
}

Test(plan_slots, slot_named_twice_is_invalid)
{
    label_all();
    EXPECT({OP_ACQUIRE, "k1", "named 2 A2", "invalid", 0}, {OP_ACQUIRE, "k2", "1 of 2 A2", "invalid", 0});
    expect_detail(0, "hall: slot 2 is named twice, by its number and by its label");
}

Test(plan_slots, counted_semaphore_has_no_slots)
{
    scene.hall.kind = KIND_COUNTED;
    EXPECT({OP_ACQUIRE, "k1", "named 2", "invalid", 0}, {OP_ACQUIRE, "k2", "1 of 1 2", "invalid", 0},
           {OP_ACQUIRE, "k3", "2 adjacent", "invalid", 0});
    expect_detail(0, "hall is counted: it has no slots");
}

Test(plan_slots, closed_semaphore_may_open_again)
{
    set_capacity(0, 6);
    EXPECT({OP_ACQUIRE, "k1", "named 2 A9", "no_capacity", 0}, {OP_ACQUIRE, "k2", "2 adjacent", "no_capacity", 0});
    cr_expect(scene.plan.outcomes[0].may_wait);
}

/* P1: held slots above a lowered capacity count as used. */
Test(plan_slots, free_named_slot_is_not_granted_over_the_capacity)
{
    HOLD("k1", LATER, 4, 5, 6);
    set_capacity(3, 6);
    for (size_t i = 3; i < 6; i++)
        scene.rows[i].due_at = LATER;
    scene.hall.first_free = FIRST_FREE_SHRUNK;
    EXPECT({OP_ACQUIRE, "k2", "named 1", "no_capacity", 0});
}

/* ---- any_of, adjacent ---- */

Test(plan_slots, any_of_takes_the_lowest_free_slots)
{
    label_all();
    HOLD("k1", LATER, 2);
    EXPECT({OP_ACQUIRE, "k2", "2 of A5 2 4 3", "granted 3=A3 4=A4", 0},
           {OP_ACQUIRE, "k3", "2 of 2 3 4 5", "no_capacity", 0}, {OP_ACQUIRE, "k4", "1 of 2 5", "granted 5=A5", 0});
}

Test(plan_slots, adjacent_slots_are_the_lowest_run)
{
    HOLD("k1", LATER, 2);
    EXPECT({OP_ACQUIRE, "k2", "2 adjacent", "granted 3 4", 0}, {OP_ACQUIRE, "k3", "3 adjacent", "no_capacity", 0},
           {OP_ACQUIRE, "k4", "1 adjacent", "granted 1", 0}, {OP_ACQUIRE, "k5", "2 adjacent", "granted 5 6", 0});
}

Test(plan_slots, adjacent_slots_are_found_within_a_list)
{
    HOLD("k1", LATER, 3);
    EXPECT({OP_ACQUIRE, "k2", "2 adjacent of 1 3 4 6 5", "granted 4 5", 0},
           {OP_ACQUIRE, "k3", "2 adjacent of 2 3 6", "no_capacity", 0});
}

Test(plan_slots, labels_are_present_if_any_slot_of_the_permit_has_one)
{
    scene.rows[1].label = BYTES("B");
    EXPECT({OP_ACQUIRE, "k1", "1", "granted 1", 0}, {OP_ACQUIRE, "k2", "2", "granted 2=B 3=", 0});
}

/* ---- due holders ---- */

Test(plan_slots, only_the_due_holder_of_the_named_slot_is_ended)
{
    HOLD("k1", NOW - 2, 1);
    HOLD("k2", NOW - 1, 2, 3);
    EXPECT({OP_ACQUIRE, "k3", "named 3", "granted 3", 0});
    cr_expect_eq(scene.plan.ended[END_EXPIRED], 1);
    cr_expect_eq(scene.plan.changes.request_count, 2);
}

Test(plan_slots, no_holder_is_ended_if_another_named_slot_stays_held)
{
    HOLD("k1", NOW - 2, 1);
    HOLD("k2", LATER, 2);
    EXPECT({OP_ACQUIRE, "k3", "named 1 2", "no_capacity 1 of k1/1 until -5, 2 of k2/2 until 55", 0});
    cr_expect(scene.plan.changes.empty);
}

Test(plan_slots, any_of_ends_only_as_many_due_holders_as_needed)
{
    HOLD("k1", NOW - 1, 1);
    HOLD("k2", NOW - 3, 2);
    HOLD("k3", NOW - 2, 3);
    EXPECT({OP_ACQUIRE, "k4", "2 of 1 3 4", "granted 3 4", 0});
    cr_expect_eq(scene.plan.ended[END_EXPIRED], 1);
}

Test(plan_slots, due_holder_between_adjacent_slots_is_ended)
{
    HOLD("k1", NOW - 9, 1);
    HOLD("k2", LATER, 2);
    HOLD("k3", NOW - 1, 4);
    HOLD("k4", LATER, 6);
    EXPECT({OP_ACQUIRE, "k5", "3 adjacent", "granted 3 4 5", 0}, {OP_ACQUIRE, "k6", "2 adjacent", "no_capacity", 0});
    cr_expect_eq(scene.plan.ended[END_EXPIRED], 1);
}

Test(plan_slots, units_over_a_lowered_capacity_come_from_any_due_holder)
{
    HOLD("k1", NOW - 1, 4, 5, 6);
    set_capacity(3, 6);
    scene.hall.first_free = FIRST_FREE_SHRUNK;
    EXPECT({OP_ACQUIRE, "k2", "named 1", "granted 1", 0});
    cr_expect_eq(scene.plan.ended[END_EXPIRED], 1);
}

Test(plan_slots, due_holder_with_an_unlocked_semaphore_puts_the_request_back)
{
    struct request *holder = HOLD("k1", NOW - 1, 2);
    scene.permits[0][1] = (struct permit){.semaphore_id = ELSEWHERE, .token = 1, .count = 1};
    holder->permit_count = 2;
    EXPECT({OP_ACQUIRE, "k2", "named 2", "put_back", 0}, {OP_ACQUIRE, "k3", "named 1", "granted 1", 0});
    cr_expect_eq(scene.plan.outcomes[0].need_count, 1);
    cr_assert_eq(scene.plan.overdue_count, 1);
    cr_expect(bytes_equal(scene.plan.overdue[0]->external_id, BYTES("k1")));
}

static size_t shortfalls_of(const char *want_text, struct shortfall *ret_shortfalls)
{
    struct slot_name names[NAMES_MAX] = {0};
    struct want want;
    struct operation operation = {.kind = OP_ACQUIRE, .wants = &want, .want_count = 1};
    const struct operation *operations[] = {&operation};
    utc_us next_due;
    struct free_slots free_slots;
    struct named_slots named;
    struct view view = scene_view(&next_due, &free_slots, &named);
    view.request_count = 0;
    read_want(want_text, names, &want);
    return plan_shortfalls(&view, operations, 1, ret_shortfalls);
}

Test(plan_slots, due_holders_of_named_slots_are_read_even_if_units_are_free)
{
    struct shortfall shortfall = {0};
    HOLD("k1", NOW - 1, 2);
    cr_assert_eq(shortfalls_of("named 2", &shortfall), 1);
    cr_expect(shortfall.named);
    cr_expect_eq(shortfall.units, 0);
    scene.rows[1].due_at = LATER;
    cr_expect_eq(shortfalls_of("named 2", &shortfall), 0);
    cr_expect_eq(shortfalls_of("1", &shortfall), 0);
}

Test(plan_slots, all_due_holders_are_read_for_adjacent_slots)
{
    struct shortfall shortfall = {0};
    HOLD("k1", LATER, 1, 2);
    HOLD("k2", NOW, 4);
    cr_assert_eq(shortfalls_of("2 adjacent", &shortfall), 1);
    cr_expect_eq(shortfall.units, 3);
}

/* ---- queue order ---- */

Test(plan_slots, young_waiter_for_specific_slots_blocks_no_free_slots)
{
    HOLD("k1", LATER, 2);
    EXPECT({OP_ACQUIRE, "k2", "named 2", "no_capacity 2 of k1/1 until 55", WAIT_ASK},
           {OP_ACQUIRE, "k3", "5 adjacent", "no_capacity", WAIT_ASK}, {OP_ACQUIRE, "k4", "1", "granted 1", WAIT_NO});
}

Test(plan_slots, no_request_passes_a_waiter_for_specific_slots_under_fifo)
{
    scene.hall.queue = QUEUE_FIFO;
    HOLD("k1", LATER, 2);
    EXPECT({OP_ACQUIRE, "k2", "named 2", "no_capacity 2 of k1/1 until 55", WAIT_ASK},
           {OP_ACQUIRE, "k3", "5 adjacent", "no_capacity behind", WAIT_ASK},
           {OP_ACQUIRE, "k4", "1", "no_capacity behind", WAIT_NO});
}

/* ---- reserved slots ---- */

static void wait_long(const char *key, int64_t seconds, const char *wanted)
{
    wait_elsewhere(key, seconds, wanted)->waiting_since = 0;
}

/* The slots that are reserved go to no others, also free ones; any other slot does. */
Test(plan_slots, protected_waiter_for_named_slots_reserves_these)
{
    HOLD("k1", LATER, 2);
    wait_long("w1", 60, "named 1 2");
    EXPECT({OP_ACQUIRE, "k2", "1", "granted 3", WAIT_NO}, {OP_ACQUIRE, "k3", "named 1", "no_capacity behind", WAIT_NO},
           {OP_ACQUIRE, "k4", "1 of 1 5", "granted 5", WAIT_NO}, {OP_ACQUIRE, "k5", "2", "granted 4 6", WAIT_NO},
           {OP_ACQUIRE, "k6", "1", "no_capacity behind", WAIT_NO});
}

Test(plan_slots, named_slot_that_is_confirmed_reserves_nothing)
{
    hold("k1", NEVER, (const uint32_t[]){2, 0})->confirmed_at = NOW;
    scene.rows[1].confirmed = true;
    scene.hall.confirmed = 1;
    wait_long("w1", 60, "named 1 2");
    EXPECT({OP_ACQUIRE, "k2", "named 1", "granted 1", WAIT_NO});
}

/* Each reserves one slot of its own; the third finds none, so it reserves nothing. */
Test(plan_slots, protected_waiters_for_some_of_the_same_slots_reserve_different_ones)
{
    HOLD("k1", LATER, 1);
    HOLD("k2", LATER, 2);
    wait_long("w1", 60, "2 of 1 2 3");
    wait_long("w2", 59, "2 of 2 3 4");
    EXPECT({OP_ACQUIRE, "k4", "named 3", "no_capacity behind", WAIT_NO},
           {OP_ACQUIRE, "k5", "named 4", "no_capacity behind", WAIT_NO},
           {OP_ACQUIRE, "k6", "named 5", "granted 5", WAIT_NO});
}

/* Trace T8: the run without a confirmed slot, although more of it are held. */
Test(plan_slots, protected_waiter_for_adjacent_slots_reserves_a_run_that_can_come)
{
    HOLD("k1", LATER, 4);
    HOLD("k2", LATER, 5);
    hold("k3", NEVER, (const uint32_t[]){2, 0})->confirmed_at = NOW;
    scene.rows[1].confirmed = true;
    scene.hall.confirmed = 1;
    scene.has_holders = true;
    wait_long("w1", 60, "3 adjacent");
    EXPECT({OP_ACQUIRE, "k4", "named 1", "granted 1", WAIT_NO}, {OP_ACQUIRE, "k5", "named 6", "granted 6", WAIT_NO},
           {OP_ACQUIRE, "k6", "named 3", "no_capacity behind", WAIT_NO});
}

Test(plan_slots, run_with_the_fewest_held_slots_is_reserved_the_lowest_first)
{
    HOLD("k1", LATER, 2);
    HOLD("k2", LATER, 5);
    wait_long("w1", 60, "3 adjacent");
    EXPECT({OP_ACQUIRE, "k4", "3", "no_capacity behind", WAIT_NO}, {OP_ACQUIRE, "k5", "1", "granted 4", WAIT_NO},
           {OP_ACQUIRE, "k6", "named 1", "no_capacity behind", WAIT_NO});
}

Test(plan_slots, holders_are_read_for_a_run_only_if_some_are_confirmed)
{
    HOLD("k1", LATER, 2);
    HOLD("k2", LATER, 5);
    wait_long("w1", 60, "3 adjacent");
    EXPECT({OP_ACQUIRE, "k4", "1", "granted 4", WAIT_NO});
    cr_expect_eq(scene.plan.read_held, 0);
    scene.hall.confirmed = 1;
    EXPECT({OP_ACQUIRE, "k4", "1", "reads more", WAIT_NO});
    cr_expect_eq(scene.plan.read_held, 1);
}

/* Four runs are reserved at most: the search for each looks at all slots. */
Test(plan_slots, first_waiters_for_adjacent_slots_reserve)
{
    HOLD("k1", LATER, 1);
    HOLD("k2", LATER, 3);
    HOLD("k3", LATER, 5);
    wait_long("w1", 60, "2 adjacent");
    wait_long("w2", 59, "2 adjacent");
    EXPECT({OP_ACQUIRE, "k4", "1", "granted 6", WAIT_NO}, {OP_ACQUIRE, "k5", "1", "no_capacity behind", WAIT_NO});
}

Test(plan_slots, waiter_for_specific_slots_is_behind_waiters_for_any)
{
    scene.hall.queue = QUEUE_FIFO;
    HOLD("k1", LATER, 2);
    EXPECT({OP_ACQUIRE, "k2", "6", "no_capacity", WAIT_ASK},
           {OP_ACQUIRE, "k3", "named 1", "no_capacity behind", WAIT_ASK});
}

Test(plan_slots, waiters_for_specific_slots_are_granted_what_they_name)
{
    label_all();
    HOLD("k1", LATER, 2, 3);
    wait_elsewhere("w1", 3, "named A2 3");
    wait_elsewhere("w2", 2, "2 adjacent of 1 2 3 4 5");
    wait_elsewhere("w3", 1, "1");
    EXPECT({OP_RELEASE, "k1", NULL, "ok", 0}, {OP_ACQUIRE, "k2", "1", "granted 6=A6", WAIT_NO});
    expect_waiters("w1: 2=A2 3=A3; w2: 4=A4 5=A5; w3: 1=A1; mail 2; mail 3; mail 4; ");
    cr_expect_eq(scene.plan.changes.slot_count, 6);
}

Test(plan_slots, waiter_for_specific_slots_and_an_unlocked_semaphore_is_called_if_a_slot_of_it_is_freed)
{
    label_all();
    HOLD("k1", LATER, 2, 3);
    wait_for_two("w1", 3, "named A2");
    wait_for_two("w2", 2, "1 of 4 5");
    wait_for_two("w3", 1, "2 adjacent");
    EXPECT({OP_RELEASE, "k1", NULL, "ok", 0}, {OP_ACQUIRE, "k2", "6", "put_back", WAIT_NO});
    expect_waiters("mail 2; mail 3; mail 4; ");
}

/* It may fit, so its slot is kept for it until a batch that has its other semaphore decides. */
Test(plan_slots, waiter_for_specific_slots_and_an_unlocked_semaphore_keeps_its_slots)
{
    wait_for_two("w1", 3, "named 1");
    EXPECT({OP_ACQUIRE, "k2", "1", "granted 2", WAIT_NO}, {OP_ACQUIRE, "k3", "named 1", "put_back", WAIT_NO});
    expect_waiters("mail 1; ");
}

/* P17: k2 ends k1 for the one slot that it lacks, and leaves the other one. */
Test(plan_slots, waiter_for_specific_slots_is_called_if_a_due_holder_of_them_is_ended_for_another)
{
    HOLD("k1", NOW, 5, 6);
    wait_for_two("w1", 3, "named 6");
    EXPECT({OP_ACQUIRE, "k2", "5", "granted 1 2 3 4 5", WAIT_NO});
    expect_waiters("mail 2; ");
}

/* k4 lacks a unit, because slot 2 is reserved: k1 ends for it. */
Test(plan_slots, due_holder_is_ended_for_a_request_for_any_slots_beside_reserved_ones)
{
    HOLD("k1", NOW, 1);
    HOLD("k2", LATER, 3, 4, 5, 6);
    wait_long("w1", 60, "named 2 3");
    EXPECT({OP_ACQUIRE, "k4", "1", "granted 1", WAIT_NO});
}

/* The end of k1 would bring k4 nothing: its slot is reserved for w1. */
Test(plan_slots, due_holder_of_a_reserved_slot_is_not_ended_for_others)
{
    HOLD("k1", NOW, 1);
    HOLD("k2", LATER, 2, 3, 4, 5, 6);
    wait_long("w1", 60, "named 1 3");
    EXPECT({OP_ACQUIRE, "k4", "1 of 1 2", "no_capacity", WAIT_NO}, {OP_ACQUIRE, "k5", "1", "no_capacity", WAIT_NO});
    cr_expect_eq(scene.plan.changes.request_count, 0);
}

/* w2 lacks slot 5, whatever is kept for w1, so it is not called. */
Test(plan_slots, waiter_that_lacks_a_slot_is_not_called_beside_one_that_may_fit)
{
    HOLD("k1", NOW, 1);
    HOLD("k2", LATER, 5);
    wait_for_two("w1", 3, "1");
    wait_elsewhere("w2", 2, "named 5");
    EXPECT({OP_ACQUIRE, "k4", "1", "granted 2", WAIT_NO});
    expect_waiters("mail 3; ");
}

Test(plan_slots, waiter_for_a_label_that_is_gone_blocks_no_others)
{
    wait_elsewhere("w1", 3, "named B7");
    EXPECT({OP_ACQUIRE, "k2", "1", "granted 1", WAIT_NO});
    expect_waiters("");
}

/* ---- watched slots ---- */

/* Prints "+101 watches 2" for each new place, "-1" for each removed one, and "cleared 2" for each watch to be cleared. */
static void expect_places(const char *expected)
{
    const struct changes *changes = &scene.plan.changes;
    struct buf got;
    buf_init(&got, 1000);
    for (size_t i = 0; i < changes->place_count; i++)
        if (changes->places[i].remove)
            buf_printf(&got, "-%llu; ", (unsigned long long)changes->places[i].request_id);
        else
            buf_printf(&got, "+%llu watches %u; ", (unsigned long long)changes->places[i].request_id,
                       (unsigned)changes->places[i].watch);
    for (size_t i = 0; i < changes->slot_count; i++)
        if (changes_clear_watch(changes, &changes->slots[i]))
            buf_printf(&got, "cleared %u; ", (unsigned)changes->slots[i].number);
    cr_expect_str_eq(buf_text(&got), expected, "expected %s, got %s", expected, buf_text(&got));
    buf_release(&got);
}

Test(plan_slots, waiter_watches_a_held_slot_that_it_cannot_do_without)
{
    label_all();
    HOLD("k1", LATER, 2, 3);
    HOLD("k2", LATER, 4);
    EXPECT({OP_RELEASE, "k2", NULL, "ok", 0},
           {OP_ACQUIRE, "k3", "named 1 3", "no_capacity 3=A3 of k1/1 until 55", WAIT_ASK},
           {OP_ACQUIRE, "k4", "named A2", "no_capacity 2=A2 of k1/1 until 55", WAIT_ASK},
           {OP_ACQUIRE, "k5", "named 4", "granted 4=A4", WAIT_ASK},
           {OP_ACQUIRE, "k6", "named A4", "no_capacity 4=A4 of k5/57 until 60", WAIT_ASK},
           {OP_ACQUIRE, "k7", "1 of 2 3", "no_capacity", WAIT_ASK});
    expect_places("+100 watches 3; +101 watches 2; +103 watches 4; +104 watches 0; ");
    HOLD("k8", LATER, 1, 4, 5, 6);
    EXPECT({OP_ACQUIRE, "k9", "2 adjacent", "no_capacity", WAIT_ASK}, {OP_ACQUIRE, "ka", "1", "no_capacity", WAIT_ASK});
    expect_places("+100 watches 0; +101 watches 0; ");
}

/* The slot that was sold stays held the longest, and says that the waiter reserves nothing. */
Test(plan_slots, waiter_watches_a_sold_slot_rather_than_one_that_is_held)
{
    HOLD("k1", LATER, 1);
    hold("k2", NEVER, (const uint32_t[]){4, 0})->confirmed_at = NOW;
    scene.rows[3].confirmed = true;
    EXPECT({OP_ACQUIRE, "k3", "named 1 4", "no_capacity 1 of k1/1 until 55, 4 of k2/2", WAIT_ASK});
    expect_places("+100 watches 4; ");
}

Test(plan_slots, waiter_watches_no_slot_if_it_lacks_other_units)
{
    scene.hall.queue = QUEUE_FIFO;
    HOLD("k1", LATER, 2);
    EXPECT({OP_ACQUIRE, "k2", "6", "no_capacity", WAIT_ASK},
           {OP_ACQUIRE, "k3", "named 1", "no_capacity behind", WAIT_ASK});
    expect_places("+100 watches 0; +101 watches 0; ");
}

Test(plan_slots, slot_that_stays_free_is_watched_by_no_waiter)
{
    HOLD("k1", LATER, 2, 3);
    scene.hall.waiting = 1; /* its row is not read: it watches a slot that is held by another */
    EXPECT({OP_RELEASE, "k1", NULL, "ok", 0}, {OP_ACQUIRE, "k2", "named 3", "granted 3", WAIT_NO});
    expect_places("cleared 2; ");
    scene.hall.waiting = 0;
    EXPECT({OP_RELEASE, "k1", NULL, "ok", 0});
    expect_places("");
}

/* No batch clears the watch of a kept place while it counts for nothing. */
Test(plan_slots, kept_place_that_is_asked_for_again_watches_a_slot_that_is_held_now)
{
    HOLD("k1", LATER, 3);
    wait_elsewhere("w1", 9, "named 2 3")->server_id = 0;
    scene.hall.waiting = 0;
    EXPECT({OP_ACQUIRE, "w1", "named 2 3", "no_capacity 3 of k1/1 until 55", WAIT_ASK});
    expect_places("-2; +2 watches 3; ");
    cr_expect_eq(scene.plan.changes.semaphores[0].semaphore->waiting, 1);
    cr_expect(scene.plan.changes.places[1].place == scene.plan.changes.places[0].place);
}

static struct queue_read queue_read_for(const struct operation *operation)
{
    utc_us next_due;
    struct free_slots free_slots;
    struct named_slots named;
    bool servers;
    struct queue_read read;
    struct view view = scene_view(&next_due, &free_slots, &named);
    const struct plan_settings settings = {.server_id = 1};
    cr_assert_eq(plan_queue_reads(&view, &operation, 1, &settings, &scene.arena, &read, &servers), 1);
    return read;
}

Test(plan_slots, watchers_are_read_of_slots_that_may_be_freed)
{
    const struct operation release = {.kind = OP_RELEASE, .external_id = BYTES("k1")};
    const struct operation renew = {.kind = OP_RENEW, .external_id = BYTES("k1")};
    scene.hall.waiting = 1;
    HOLD("k1", LATER, 2, 3);
    HOLD("k2", LATER, 4);
    struct queue_read read = queue_read_for(&renew);
    cr_expect(read.freed_count == 0 && !read.all_watches);
    read = queue_read_for(&release);
    cr_expect(read.freed_count == 2 && read.freed[0] == 2 && read.freed[1] == 3 && !read.all_watches);
    scene.holders[1].due_at = NOW;
    read = queue_read_for(&renew);
    cr_expect(read.freed_count == 1 && read.freed[0] == 4);
    read = queue_read_for(&release);
    cr_expect_eq(read.freed_count, 3);
    scene.hall.kind = KIND_COUNTED;
    cr_expect(queue_read_for(&release).all_watches);
}

Test(plan_slots, all_waiters_are_read_if_very_many_slots_may_be_freed)
{
    static uint32_t numbers[QUEUE_FREED_MAX + 1];
    const struct operation release = {.kind = OP_RELEASE, .external_id = BYTES("k1")};
    scene.hall.waiting = 1;
    scene.hall.capacity = 1000;
    HOLD("k1", LATER, 1)->permits->slots = (struct slots){numbers, QUEUE_FREED_MAX};
    struct queue_read read = queue_read_for(&release);
    cr_expect(read.freed_count == QUEUE_FREED_MAX && !read.all_watches);
    scene.holders[0].permits->slots.count++;
    read = queue_read_for(&release);
    cr_expect(read.freed_count == 0 && read.all_watches);
}

/* ---- labels ---- */

/*
 * `labels` is "A1 - A3", with - for no label. `expected` is the status, the labels written ("3=A3", "3=-"), and the
 * event.
 */
static void expect_labels(enum operation_kind kind, int64_t capacity, uint32_t from, const char *labels,
                          const char *expected)
{
    struct bytes words[NAMES_MAX];
    struct semaphore_change change = {.has_labels = true, .labels = words, .labels_from = from};
    struct buf got;
    change.has_capacity = kind == OP_SEMAPHORE_PUT;
    change.capacity = capacity;
    for (struct bytes word = next_word(&labels); word.length; word = next_word(&labels))
        words[change.label_count++] = word.data[0] == '-' ? (struct bytes){0} : word;
    struct operation operation = {
        .kind = kind, .principal = BYTES("me"), .semaphore = BYTES("hall"), .change = &change};
    plan(&operation, 1);
    buf_init(&got, 1000);
    buf_append_text(&got, permit_status_word(scene.plan.outcomes[0].status));
    const struct changes *changes = &scene.plan.changes;
    for (size_t i = 0; i < changes->label_count; i++)
        buf_printf(&got, " %u=%.*s", changes->labels[i].number,
                   changes->labels[i].label.data ? (int)changes->labels[i].label.length : 1,
                   changes->labels[i].label.data ? changes->labels[i].label.data : "-");
    for (size_t i = 0; i < changes->event_count; i++)
        buf_printf(&got, " %s>%.*s", changes->events[i].what, (int)changes->events[i].to.length,
                   changes->events[i].to.data);
    cr_expect_str_eq(buf_text(&got), expected, "expected %s, got %s", expected, buf_text(&got));
    buf_release(&got);
    bool done = scene.plan.outcomes[0].status == PERMIT_OK;
    cr_expect_eq(changes->empty, !done);
    bool raised = changes->label_count > 0 && !scene.plan.outcomes[0].created; /* it was 1 */
    cr_expect(!done || scene.plan.outcomes[0].semaphore->config_version == (raised ? 2U : 1U));
}

Test(plan_slots, only_changed_labels_are_written)
{
    scene.rows[1].label = BYTES("A2");
    scene.rows[2].label = BYTES("X");
    expect_labels(OP_SEMAPHORE_LABELS, 0, 1, "A1 A2 - A4", "ok 1=A1 3=- 4=A4 labels>1-4");
    expect_labels(OP_SEMAPHORE_LABELS, 0, 3, "X", "ok");
    expect_labels(OP_SEMAPHORE_LABELS, 0, 1, "", "ok");
    expect_labels(OP_SEMAPHORE_PUT, 6, 1, "X X2 A2", "ok 1=X 2=X2 3=A2 labels>1-3");
}

Test(plan_slots, labels_move_within_a_page_but_not_into_it)
{
    label_all();
    expect_labels(OP_SEMAPHORE_LABELS, 0, 1, "A2 A1", "ok 1=A2 2=A1 labels>1-2");
    expect_labels(OP_SEMAPHORE_LABELS, 0, 1, "A2 A3", "invalid");
    expect_detail(0, "A3 is the label of slot 3");
    expect_labels(OP_SEMAPHORE_LABELS, 0, 1, "B B", "invalid");
    expect_detail(0, "duplicate label B");
}

Test(plan_slots, label_of_a_held_slot_cannot_change)
{
    label_all();
    scene.rows[2].label = (struct bytes){0};
    HOLD("k1", LATER, 2, 3);
    expect_labels(OP_SEMAPHORE_LABELS, 0, 1, "B1 A2 -", "ok 1=B1 labels>1-3");
    expect_labels(OP_SEMAPHORE_LABELS, 0, 1, "A2 A1", "in_use");
    expect_detail(0, "slot 2, A2, is held: its label cannot change");
}

Test(plan_slots, more_labels_than_slots_are_invalid)
{
    expect_labels(OP_SEMAPHORE_LABELS, 0, 5, "A B", "ok 5=A 6=B labels>5-6");
    expect_labels(OP_SEMAPHORE_LABELS, 0, 5, "A B C", "invalid");
    expect_labels(OP_SEMAPHORE_LABELS, 0, 0, "A", "invalid");
    expect_labels(OP_SEMAPHORE_PUT, 2, 1, "A B C", "invalid");
    scene.hall.kind = KIND_COUNTED;
    expect_labels(OP_SEMAPHORE_LABELS, 0, 1, "A", "invalid");
}

Test(plan_slots, labels_of_new_slots_are_written_with_them)
{
    expect_labels(OP_SEMAPHORE_PUT, 8, 1, "- - - - - - - A8", "ok 8=A8 capacity>8 labels>1-8");
    scene.hall.name = BYTES("another");
    expect_labels(OP_SEMAPHORE_PUT, 2, 1, "A1", "ok 1=A1 created>2 labels>1-1");
}

Test(plan_slots, retired_slot_gives_up_its_label_unless_held)
{
    set_capacity(3, 6);
    scene.rows[4].label = BYTES("A5");
    scene.rows[5].label = BYTES("A6");
    hold("k1", LATER, (const uint32_t[]){6, 0});
    expect_labels(OP_SEMAPHORE_LABELS, 0, 1, "B A5", "ok 1=B 2=A5 5=- labels>1-2");
    expect_labels(OP_SEMAPHORE_LABELS, 0, 1, "A6", "in_use");
    expect_detail(0, "slot 6, A6, is held: its label cannot change");
}

Test(plan_slots, retired_semaphore_loses_its_labels_and_accepts_none)
{
    struct operation operation = {.kind = OP_SEMAPHORE_RETIRE, .principal = BYTES("me"), .semaphore = BYTES("hall")};
    plan(&operation, 1);
    cr_expect(scene.plan.changes.semaphores[0].drop_labels);
    scene.hall.retired_at = NOW;
    expect_labels(OP_SEMAPHORE_LABELS, 0, 1, "A", "unknown_semaphore");
}

/* ---- the packet ---- */

/* The bytes of a grant of `slots` slots under a key of two bytes, whose labels have two bytes each. */
#define PACKET_OF(slots)                                                                                               \
    (PACKET_BATCH + PACKET_SEMAPHORE + PACKET_GRANT + 2 * 2 + PACKET_PERMIT + (slots) * (PACKET_SLOT + 2 * 3))

/* P23: it would be refused for ever, and would be tried together with others each time. */
Test(plan_slots, grant_that_no_packet_can_hold_is_refused_beside_others)
{
    label_all();
    scene.max_packet = PACKET_OF(3) - 1;
    EXPECT({OP_ACQUIRE, "k1", "3", "too_large", 0}, {OP_ACQUIRE, "k2", "2", "granted 1=A1 2=A2", 0},
           {OP_ACQUIRE, "k3", "named 3 A4 5", "too_large", 0}, {OP_ACQUIRE, "k4", "3 adjacent", "too_large", 0},
           {OP_ACQUIRE, "k5", "3 of 3 4 5 6", "too_large", 0}, {OP_ACQUIRE, "k6", "2 of 5 6", "granted 5=A5 6=A6", 0});
    char detail[300];
    snprintf(detail, sizeof detail,
             "the grant would have %d bytes with its slots and their labels; a packet to the database has at most %d "
             "(max_allowed_packet): ask for fewer slots in one request",
             PACKET_OF(3), PACKET_OF(3) - 1);
    expect_detail(0, detail);
}

Test(plan_slots, grant_that_fills_a_packet_is_granted)
{
    label_all();
    scene.max_packet = PACKET_OF(3);
    EXPECT({OP_ACQUIRE, "k1", "named 2 A3 4", "granted 2=A2 3=A3 4=A4", 0});
    cr_expect_eq(scene.plan.packet_size, scene.max_packet);
}

/* Only the labels of the slots that it takes count. */
Test(plan_slots, long_labels_of_other_slots_do_not_count)
{
    static char label[LABEL_MAX_BYTES];
    memset(label, 'x', sizeof label);
    scene.rows[2].label = (struct bytes){label, sizeof label};
    scene.max_packet = PACKET_OF(2);
    EXPECT({OP_ACQUIRE, "k1", "named 3 4", "too_large", 0}, {OP_ACQUIRE, "k2", "2", "granted 1 2", 0});
}
