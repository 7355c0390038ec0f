/* SPDX-License-Identifier: MIT */
/* Reads the transcripts of single batches, plans them and prints the results. */
#include "core_plan_scene.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/buf.h"

enum { FIRST_ID = 11, NEW_ID = 1000 };

struct scene scene;

/* The times of a row, by their words. */
static const struct {
    const char *word;
    size_t offset;
} times[] = {{"place", offsetof(struct request, place)},
             {"since", offsetof(struct request, waiting_since)},
             {"until", offsetof(struct request, waiting_until)},
             {"due", offsetof(struct request, due_at)},
             {"acquired", offsetof(struct request, acquired_at)}};

/* ---- the scenes ---- */

static void init(const char *const *names, size_t locked, int64_t holder_ttl_ms, int64_t holder_grace_ms)
{
    memset(&scene, 0, sizeof scene);
    arena_init(&scene.arena, 4096, 4 << 20);
    scene.locked = locked;
    scene.free_read = SCENE_SLOTS;
    scene.ttl_ms = holder_ttl_ms;
    scene.grace_ms = holder_grace_ms;
    scene.settings = (struct plan_settings){.retention_us = 1,
                                            .tombstone_us = 1,
                                            .default_ttl_ms = 1,
                                            .backfill_bound_us = 30 * US_PER_SECOND,
                                            .max_semaphore_waiters = 100,
                                            .server_id = HERE};
    for (size_t i = 0; i <= locked; i++) {
        struct semaphore *semaphore = &scene.semaphores[i];
        semaphore_reset(semaphore, holder_ttl_ms);
        semaphore->id = i + 1;
        semaphore->name = bytes_of(names[i]);
        semaphore->kind = KIND_COUNTED;
        semaphore->capacity = 1;
        semaphore->max_hold_ms = holder_ttl_ms;
        semaphore->next_token = 1;
        semaphore->retired_at = semaphore->next_due_at = NEVER;
        scene.queues[i].limit = QUEUE_PROTECTED_MAX; /* all waiters were read */
    }
}

void scene_queue(void)
{
    init((const char *const[]){"a", "b", "c"}, 2, 1000, 0);
}

void scene_hall(void)
{
    init((const char *const[]){"hall", "other"}, 1, 60000, 5000);
    struct semaphore *hall = &scene.semaphores[0];
    hall->kind = KIND_SLOTTED;
    hall->next_token = 57;
    hall->version = hall->config_version = 1;
    hall->first_free = 1;
    scene.semaphores[1].capacity = 3;
    scene.no_queues = true;
    scene_set_capacity(6, 6);
}

void scene_release(void)
{
    arena_release(&scene.arena);
}

void scene_set_capacity(int64_t capacity, size_t slot_count)
{
    scene.semaphores[0].capacity = capacity;
    scene.slot_count = slot_count;
    for (size_t i = 0; i < slot_count; i++) {
        scene.slots[i].number = (uint32_t)i + 1;
        scene.slots[i].retired = (int64_t)i >= capacity;
        if (!scene.slots[i].token)
            scene.slots[i].due_at = NEVER;
    }
}

void scene_label_all(void)
{
    static const char labels[] = "A1A2A3A4A5A6A7A8A9";
    for (size_t i = 0; i < scene.slot_count; i++)
        scene.slots[i].label = (struct bytes){&labels[2 * i], 2};
}

static struct request *find_row(struct bytes key)
{
    struct request *request = scene.requests;
    while (request < scene.requests + scene.row_count && !bytes_equal(request->external_id, key))
        request++;
    cr_assert_lt(request, scene.requests + scene.row_count, "no row of %.*s", (int)key.length, key.data);
    return request;
}

struct request *row(const char *key)
{
    return find_row(bytes_of(key));
}

/* Reads the slots of the hall. */
static void read_slots(struct free_slots *free_slots, struct named_slots *named)
{
    static uint32_t numbers[SCENE_SLOTS];
    static struct bytes labels[SCENE_SLOTS];
    *free_slots = (struct free_slots){.numbers = numbers, .labels = labels};
    for (size_t i = 0; i < scene.slot_count && free_slots->count < scene.free_read; i++) {
        const struct slot_row *slot = &scene.slots[i];
        if (slot->token || slot->retired || slot->number < scene.semaphores[0].first_free)
            continue;
        labels[free_slots->count] = slot->label;
        numbers[free_slots->count++] = slot->number;
    }
    free_slots->complete = free_slots->count < scene.free_read;
    named->rows = scene.slots;
    named->count = scene.slot_count;
}

struct view scene_view(void)
{
    static const uint64_t servers[] = {HERE, ELSEWHERE};
    for (size_t i = 0; i < scene.locked; i++)
        scene.next_due[i] = scene.semaphores[i].next_due_at;
    if (scene.slot_count)
        read_slots(&scene.free_slots[0], &scene.named[0]);
    memcpy(scene.sorted, scene.requests, sizeof scene.sorted);
    qsort(scene.sorted, scene.row_count, sizeof *scene.sorted, request_compare_keys);
    scene.glimpse.semaphore = scene.semaphores[scene.locked];
    return (struct view){.semaphores = scene.semaphores,
                         .free_slots = scene.free_slots,
                         .named_slots = scene.named,
                         .next_due = scene.next_due,
                         .semaphore_count = scene.locked,
                         .requests = scene.sorted,
                         .request_count = scene.no_requests ? 0 : scene.row_count,
                         .owners = &scene.owner,
                         .owner_count = scene.owner.name.length > 0,
                         .queues = scene.no_queues ? NULL : scene.queues,
                         .glimpses = &scene.glimpse,
                         .glimpse_count = !scene.unknown,
                         .reads_end = scene.reads_end,
                         .servers = servers,
                         .server_count = 2,
                         .subscribers = scene.subscribers,
                         .subscriber_count = scene.subscriber_count,
                         .has_servers = true,
                         .clock = {.tick_at = NOW, .due = NOW, .from = NOW},
                         .now = NOW,
                         .grants_from = scene.grants_from,
                         .feed_full = scene.feed_full,
                         .same_server = true};
}

/* ---- reading ---- */

/* Goes to the next item of a list. False: there is none. */
static bool next_item(const char **at)
{
    *at += strspn(*at, "; ");
    return **at;
}

/* Returns the next word of the item; length 0: none. */
static struct bytes next_word(const char **at)
{
    *at += strspn(*at, " ");
    struct bytes word = {*at, strcspn(*at, " ;")};
    *at += word.length;
    return word;
}

/* Returns the next name of "A1,-,3"; length 0: none. */
static struct bytes next_name(const char **at)
{
    struct bytes name = {*at, strcspn(*at, ", ;")};
    *at += name.length + ((*at)[name.length] == ',');
    return name;
}

static bool word_is(struct bytes word, const char *text)
{
    return bytes_equal(word, bytes_of(text));
}

/* Returns true if the word is NAME=VALUE. */
static bool value_of(struct bytes word, const char *name, struct bytes *ret_value)
{
    size_t length = strlen(name);
    if (word.length <= length || memcmp(word.data, name, length) != 0 || word.data[length] != '=')
        return false;
    *ret_value = (struct bytes){word.data + length + 1, word.length - length - 1};
    return true;
}

static bool number_of(struct bytes word, const char *name, int64_t *ret_number)
{
    struct bytes value;
    if (!value_of(word, name, &value))
        return false;
    *ret_number = strtoll(value.data, NULL, 10);
    return true;
}

/* Reads "5s", "-1us", "3001ms"; "never". */
static int64_t us_of(struct bytes value)
{
    char *unit;
    int64_t number = strtoll(value.data, &unit, 10);
    if (word_is(value, "never"))
        return NEVER - NOW;
    cr_assert(*unit == 's' || *unit == 'm' || *unit == 'u', "no time: %s", value.data);
    return number * (*unit == 's' ? US_PER_SECOND : *unit == 'm' ? US_PER_MS : 1);
}

static struct ttl ttl_of(struct bytes value)
{
    if (word_is(value, "none"))
        return (struct ttl){.kind = TTL_UNLIMITED};
    if (word_is(value, "owner"))
        return (struct ttl){.kind = TTL_OWNER};
    return (struct ttl){.kind = TTL_DURATION, .ms = us_of(value) / US_PER_MS};
}

static struct semaphore *find_semaphore(struct bytes name)
{
    for (size_t i = 0; i <= scene.locked; i++)
        if (bytes_equal(scene.semaphores[i].name, name))
            return &scene.semaphores[i];
    return NULL;
}

/* Reads "a", "a:2", "hall@1,A2", "hall:2~@1,2". False: the word names no semaphore. */
static bool read_want(struct bytes word, struct slot_name *names, struct want *ret_want)
{
    const char *at = word.data + strcspn(word.data, " ;:@~");
    const struct semaphore *semaphore = find_semaphore((struct bytes){word.data, (size_t)(at - word.data)});
    if (!semaphore)
        return false;
    struct want want = {.semaphore = semaphore->name, .semaphore_id = semaphore->id, .count = 1, .named = names};
    bool counted = *at == ':';
    if (counted)
        want.count = strtoll(at + 1, (char **)&at, 10);
    want.adjacent = *at == '~';
    at += want.adjacent;
    if (*at == '@') {
        at++;
        for (struct bytes name = next_name(&at); name.length; name = next_name(&at))
            if (name.data[0] >= '0' && name.data[0] <= '9')
                names[want.named_count++].number = (uint32_t)strtoul(name.data, NULL, 10);
            else
                names[want.named_count++].label = name;
        want.choice = counted ? CHOOSE_ANY_OF : CHOOSE_NAMED;
        want.count = counted ? want.count : (int64_t)want.named_count;
    }
    cr_assert_eq(want_sort_named(&want), PERMIT_OK);
    *ret_want = want;
    return true;
}

static void *zeroed(size_t size)
{
    void *memory = arena_alloc(&scene.arena, size);
    cr_assert(memory);
    return memset(memory, 0, size);
}

static bool read_setting(struct semaphore *semaphore, struct bytes word)
{
    for (const struct semaphore_setting *setting = semaphore_settings; setting < semaphore_settings + SETTING_COUNT;
         setting++) {
        struct bytes value;
        for (int64_t i = 0; setting->words && setting->words[i]; i++)
            if (word_is(word, setting->words[i])) {
                setting_set_number(setting, semaphore, i + 1);
                return true;
            }
        if (!value_of(word, setting->name, &value))
            continue;
        bool is_duration = setting->type >= SETTING_DURATION;
        setting_set_number(setting, semaphore,
                           word_is(value, "strict") ? SETTING_NONE
                           : is_duration            ? us_of(value) / US_PER_MS
                                                    : strtoll(value.data, NULL, 10));
        return true;
    }
    return false;
}

static bool read_semaphore(struct semaphore *semaphore, struct bytes word)
{
    int64_t first_free;
    if (number_of(word, "in_use", &semaphore->in_use) || number_of(word, "confirmed", &semaphore->confirmed) ||
        number_of(word, "waiting", &semaphore->waiting))
        return true;
    if (number_of(word, "first_free", &first_free))
        semaphore->first_free = (uint32_t)first_free;
    else if (word_is(word, "paused"))
        semaphore->paused_reason = BYTES("repair");
    else if (word_is(word, "retired"))
        semaphore->retired_at = 1;
    else
        return read_setting(semaphore, word);
    return true;
}

static bool read_row(struct request *request, struct bytes word, bool *subscribed)
{
    struct bytes value;
    int64_t server = 0, changes;
    for (size_t i = 0; i < ARRAY_LENGTH(times); i++)
        if (value_of(word, times[i].word, &value)) {
            *(utc_us *)((char *)request + times[i].offset) = NOW + us_of(value);
            return true;
        }
    if (number_of(word, "server", &server) || word_is(word, "kept") || word_is(word, "dead")) {
        request->server_id = word_is(word, "dead") ? DEAD : (uint64_t)server;
        *subscribed = false;
    } else if (word_is(word, "left") || word_is(word, "subscribed"))
        *subscribed = word_is(word, "subscribed");
    else if (value_of(word, "ttl", &value))
        request->ttl = ttl_of(value);
    else if (value_of(word, "owner", &value))
        request->owner = value;
    else if (number_of(word, "changes", &changes))
        request->changes = (uint32_t)changes;
    else if (value_of(word, "nonce", &value))
        request->change_nonce = value;
    else if (word_is(word, "confirmed"))
        request->confirmed_at = NOW;
    else if (word_is(word, "locked"))
        request->lock = ROW_LOCKED_ELSEWHERE;
    else if (word_is(word, "mine"))
        request->lock = ROW_LOCKED;
    else if (value_of(word, "errand", &value))
        request->errand = (uint32_t)(value.data[0] - '0');
    else
        return false;
    return true;
}

/* Takes the slots of a want of the hall. */
static void take_slots(const struct request *request, const struct want *want, struct scene_row *memory,
                       struct permit *permit)
{
    permit->slots.numbers = memory->numbers;
    for (size_t i = 0; i < want->named_count; i++) {
        struct slot_row *slot = &scene.slots[want->named[i].number - 1];
        slot->token = permit->token;
        slot->holder = request->external_id;
        slot->due_at = request->due_at;
        slot->grace_ms = request->grace_ms;
        slot->confirmed = request->confirmed_at != NEVER;
        if (slot->label.length) {
            permit->labels = memory->labels;
            permit->labels[permit->slots.count] = slot->label;
        }
        permit->slots.numbers[permit->slots.count++] = slot->number;
    }
}

static void add_holder(struct request *request, struct scene_row *memory)
{
    request->state = REQUEST_ACQUIRED;
    request->ttl_ms = scene.ttl_ms;
    request->grace_ms = scene.grace_ms;
    request->permits = memory->permits;
    for (size_t i = 0; i < request->want_count; i++) {
        const struct want *want = &memory->wants[i];
        struct semaphore *semaphore = &scene.semaphores[want->semaphore_id - 1];
        struct permit *permit = &request->permits[request->permit_count++];
        uint64_t token = scene.slot_count ? scene.row_count + 1 : 1;
        *permit = (struct permit){.semaphore_id = semaphore->id, .token = token, .count = want->count};
        take_slots(request, want, memory, permit);
        semaphore->in_use += want->count;
        bool sold = request->confirmed_at != NEVER && !(request->errand & ERRAND_CONFIRM);
        semaphore->confirmed += sold ? want->count : 0;
        semaphore->next_due_at = min_i64(semaphore->next_due_at, request->due_at);
    }
    request->wants = NULL;
    request->want_count = 0;
}

static void add_waiter(struct request *request, struct scene_row *memory, bool subscribed)
{
    request->state = REQUEST_WAITING;
    request->ttl_ms = TTL_NONE;
    if (request->due_at == NEVER)
        request->due_at = NOW + (request->server_id ? 15 : 5) * US_PER_SECOND;
    for (size_t i = 0; i < request->want_count; i++) {
        memory->wants[i].semaphore = (struct bytes){0};
        scene.semaphores[memory->wants[i].semaphore_id - 1].waiting += request->server_id > 0;
    }
    request->wanted = wants_encode((struct ttl){0}, request->wants, request->want_count, &scene.arena);
    if (subscribed)
        scene.subscribers[scene.subscriber_count++] =
            (struct subscriber){.external_id = request->external_id, .nonce = BYTES(""), .subscribed = true};
}

static void add_row(struct bytes key, const char **at)
{
    struct request *request = &scene.requests[scene.row_count];
    struct scene_row *memory = &scene.rows[scene.row_count];
    struct bytes verb = next_word(at);
    bool waits = word_is(verb, "waits"), subscribed = true;
    cr_assert(scene.row_count < SCENE_ROWS && (waits || word_is(verb, "holds")), "not understood: %s", key.data);
    *request = (struct request){.id = FIRST_ID + scene.row_count,
                                .external_id = key,
                                .owner = BYTES(""),
                                .nonce = BYTES(""),
                                .change_nonce = BYTES(""),
                                .has_digest = true,
                                .due_at = NEVER,
                                .wants = memory->wants,
                                .confirmed_at = NEVER,
                                .acquired_at = NEVER,
                                .ended_at = NEVER};
    if (waits) {
        request->server_id = HERE;
        request->place = request->waiting_since = NOW - US_PER_SECOND;
        request->waiting_until = NOW + 5 * US_PER_SECOND;
    }
    for (struct bytes word = next_word(at); word.length; word = next_word(at))
        if (read_want(word, memory->names, &memory->wants[request->want_count]))
            request->want_count++;
        else
            cr_assert(read_row(request, word, &subscribed), "not understood: %s", word.data);
    if (waits)
        add_waiter(request, memory, subscribed);
    else
        add_holder(request, memory);
    scene.row_count++;
}

void given(const char *rows)
{
    while (next_item(&rows)) {
        struct bytes name = next_word(&rows);
        struct semaphore *semaphore = find_semaphore(name);
        if (!semaphore)
            add_row(name, &rows);
        else
            for (struct bytes word = next_word(&rows); word.length; word = next_word(&rows))
                cr_assert(read_semaphore(semaphore, word), "not understood: %s", word.data);
    }
}

/* Reads a word of an administrative operation. */
static bool read_change(struct semaphore_change *change, struct bytes word)
{
    struct bytes value, *labels = zeroed(SCENE_NAMES * sizeof *labels);
    int64_t from;
    if (number_of(word, "capacity", &change->capacity))
        change->has_capacity = true;
    else if (number_of(word, "from", &from))
        change->labels_from = (uint32_t)from;
    else if (value_of(word, "labels", &value) || word_is(word, "labels=")) {
        change->has_labels = true;
        change->labels = labels;
        for (const char *at = word.data + strlen("labels="); at < word.data + word.length;) {
            struct bytes label = next_name(&at);
            labels[change->label_count++] = word_is(label, "-") ? (struct bytes){0} : label;
        }
    } else
        return false;
    return true;
}

static bool read_option(struct operation *operation, struct bytes word)
{
    struct bytes value;
    int64_t priority, changes;
    if (word_is(word, "wait"))
        operation->wait_us = 20 * US_PER_SECOND;
    else if (word_is(word, "last")) {
        operation->wait_us = 0;
        operation->may_have_place = true;
    } else if (number_of(word, "priority", &priority))
        operation->priority = (int)priority;
    else if (number_of(word, "changes", &changes))
        operation->changes = (uint32_t)changes;
    else if (value_of(word, "nonce", &value))
        operation->nonce = value;
    else if (value_of(word, "ttl", &value))
        operation->ttl = ttl_of(value);
    else if (value_of(word, "scope", &value)) {
        struct scope_entry *entry = zeroed(sizeof *entry);
        struct scope *scope = zeroed(sizeof *scope);
        *entry = (struct scope_entry){value, false};
        *scope = (struct scope){entry, 1};
        operation->scope = scope;
    } else if (word_is(word, "other"))
        operation->digest[0] = 1;
    else if (word_is(word, "widened"))
        operation->widened = WIDENED_MAX;
    else if (word_is(word, "mailed"))
        operation->mailed = find_row(operation->external_id)->id;
    else if (word_is(word, "owner_dead") || word_is(word, "never_held"))
        operation->expire_as = word_is(word, "owner_dead") ? END_OWNER_DEAD : END_NEVER_HELD;
    else
        return false;
    return true;
}

/* Reads "-a:2" of an exchange: what it gives back. */
static bool read_given(struct operation *operation, struct bytes word)
{
    if (operation->kind != OP_EXCHANGE || word.data[0] != '-')
        return false;
    struct want *given = operation->given ? (struct want *)operation->given : zeroed(SCENE_SEMAPHORES * sizeof *given);
    operation->given = given;
    return read_want((struct bytes){word.data + 1, word.length - 1}, zeroed(SCENE_NAMES * sizeof(struct slot_name)),
                     &given[operation->given_count++]);
}

static const struct operation *read_operation(const char **at)
{
    struct operation *operation = zeroed(sizeof *operation);
    struct semaphore_change *change = zeroed(sizeof *change);
    struct slot_name *names = zeroed(SCENE_NAMES * sizeof *names);
    struct bytes verb = next_word(at), name = next_word(at);
    *operation = (struct operation){.external_id = name,
                                    .owner = BYTES(""),
                                    .principal = BYTES("who"),
                                    .nonce = BYTES(""),
                                    .why = BYTES("why"),
                                    .expire_as = END_EXPIRED,
                                    .wants = zeroed(SCENE_SEMAPHORES * sizeof(struct want)),
                                    .semaphore = name,
                                    .change = change};
    change->labels_from = 1;
    while (operation->kind < OP_KIND_COUNT && !word_is(verb, operation_kind_word(operation->kind)))
        operation->kind++;
    cr_assert(operation->kind < OP_KIND_COUNT, "not understood: %s", verb.data);
    if (operation->kind == OP_LOOK) {
        operation->wait_us = 20 * US_PER_SECOND;
        operation->place = NOW - 100 * US_PER_SECOND;
        operation->since = NOW - 50 * US_PER_SECOND;
    }
    for (struct bytes word = next_word(at); word.length; word = next_word(at))
        if (operation_is_administrative(operation->kind))
            cr_assert(read_change(change, word), "not understood: %s", word.data);
        else if (read_given(operation, word))
            continue;
        else if (read_want(word, names, &operation->wants[operation->want_count]))
            operation->want_count++;
        else
            cr_assert(read_option(operation, word), "not understood: %s", word.data);
    return operation;
}

const struct operation *scene_operation(const char *text)
{
    return read_operation(&text);
}

/* ---- printing ---- */

static void print_bytes(const char *before, struct bytes bytes, struct buf *out)
{
    buf_append_text(out, before);
    buf_append(out, bytes.data, bytes.length);
}

static struct bytes semaphore_name(uint64_t id)
{
    return id <= scene.locked + 1 ? scene.semaphores[id - 1].name : BYTES("?");
}

/* Returns the key of a row that was given, or that the batch inserts. */
static struct bytes key_of(uint64_t request_id)
{
    const struct changes *changes = &scene.plan.changes;
    for (size_t i = 0; i < scene.row_count; i++)
        if (scene.requests[i].id == request_id)
            return scene.requests[i].external_id;
    for (size_t i = 0; i < changes->request_count; i++)
        if (changes->requests[i].request->id == request_id)
            return changes->requests[i].request->external_id;
    return BYTES("?");
}

static void print_slots(const struct request *request, struct buf *out)
{
    const struct permit *permit = request->permits;
    for (uint32_t i = 0; i < permit->slots.count; i++) {
        buf_printf(out, " %u", permit->slots.numbers[i]);
        if (permit->labels)
            print_bytes("=", permit->labels[i], out);
    }
}

static void print_taken(const struct shortage *shortage, struct buf *out)
{
    for (size_t i = 0; i < shortage->taken_count; i++) {
        const struct taken_slot *taken = &shortage->taken[i];
        buf_printf(out, "%s %u", i ? "," : "", taken->number);
        print_bytes(taken->label.length ? "=" : "", taken->label, out);
        print_bytes(" of ", taken->holder, out);
        buf_printf(out, "/%llu", (unsigned long long)taken->token);
        if (taken->expires_at != NEVER)
            buf_printf(out, " until %llds", (long long)((taken->expires_at - NOW) / US_PER_SECOND));
    }
}

static void outcome_print(const struct outcome *outcome, struct buf *out)
{
    if (outcome->semaphore) {
        buf_printf(out, "%s%s config=%llu", permit_status_word(outcome->status), outcome->created ? " created" : "",
                   (unsigned long long)outcome->semaphore->config_version);
        return;
    }
    buf_append_text(out, outcome->put_back   ? "put_back"
                         : outcome->created  ? "granted"
                         : outcome->replayed ? "replayed"
                                             : permit_status_word(outcome->status));
    if (outcome->created)
        print_slots(outcome->request, out);
    for (size_t i = 0; i < outcome->shortage_count; i++) {
        const struct shortage *shortage = &outcome->shortages[i];
        if (!scene.slot_count)
            print_bytes(" ", shortage->semaphore, out);
        buf_append_text(out, shortage->behind ? " behind" : "");
        print_taken(shortage, out);
    }
    for (size_t i = 0; outcome->put_back && i < outcome->need_count; i++)
        print_bytes(i && !scene.slot_count ? "" : " ", semaphore_name(outcome->needs[i]), out);
    buf_append_text(out, outcome->waits ? " waits" : "");
    if (outcome->max_ttl_ms)
        buf_printf(out, " max_ttl %lld", (long long)outcome->max_ttl_ms);
    if (outcome->max_hold_ms)
        buf_printf(out, " max_hold %lld", (long long)outcome->max_hold_ms);
}

/* " hall:2/7@1,2 1=A1" */
static void permit_print(const struct permit *permit, struct buf *out)
{
    print_bytes(" ", semaphore_name(permit->semaphore_id), out);
    buf_printf(out, ":%lld/%llu", (long long)permit->count, (unsigned long long)permit->token);
    buf_append_text(out, permit->slots.count ? "@" : "");
    slots_format(&permit->slots, out);
    for (uint32_t i = 0; permit->labels && i < permit->slots.count; i++) {
        buf_printf(out, " %u", permit->slots.numbers[i]);
        print_bytes("=", permit->labels[i], out);
    }
}

static void past_print(const struct changes *changes, struct buf *out)
{
    for (size_t i = 0; i < changes->past_count; i++) {
        print_bytes("; past ", key_of(changes->past[i].request_id), out);
        buf_printf(out, " %s", end_reason_word(changes->past[i].end_reason));
        permit_print(&changes->past[i].permit, out);
    }
}

static void change_print(const struct request_change *change, struct buf *out)
{
    const struct request *request = change->request;
    print_bytes(change->insert ? "; +" : change->remove ? "; -" : "; ", request->external_id, out);
    if (change->remove)
        return;
    buf_append_text(out, change->grants ? " granted" : change->exchanges ? " exchanged" : "");
    for (size_t i = 0; change->exchanges && i < request->permit_count; i++)
        permit_print(&request->permits[i], out);
    if (change->exchanges)
        return;
    if (change->grants && request->state == REQUEST_ACQUIRED)
        print_slots(request, out);
    else
        buf_printf(out, " %s", request_state_word(request->state));
    if (request->server_id)
        buf_printf(out, " server=%llu", (unsigned long long)request->server_id);
}

static void places_print(const struct changes *changes, struct buf *out)
{
    for (size_t i = 0; i < changes->place_count; i++) {
        const struct place_change *place = &changes->places[i];
        print_bytes("; ", key_of(place->request_id), out);
        print_bytes(place->remove ? " leaves " : " enters ", semaphore_name(place->semaphore_id), out);
        if (place->watch)
            buf_printf(out, " watch=%u", place->watch);
    }
    for (size_t i = 0; i < changes->slot_count; i++)
        if (changes_clear_watch(changes, &changes->slots[i]))
            buf_printf(out, "; clears hall %u", changes->slots[i].number);
}

static void administration_print(const struct changes *changes, struct buf *out)
{
    for (size_t i = 0; i < changes->semaphore_count; i++)
        if (changes->semaphores[i].drop_labels)
            print_bytes("; drops labels of ", scene.semaphores[i].name, out);
    for (size_t i = 0; i < changes->label_count; i++) {
        buf_printf(out, "%s %u", i ? "" : "; labels", changes->labels[i].number);
        print_bytes("=", changes->labels[i].label.data ? changes->labels[i].label : BYTES("-"), out);
    }
    for (size_t i = 0; i < changes->event_count; i++) {
        buf_printf(out, "; event %s", changes->events[i].what);
        print_bytes(">", changes->events[i].to, out);
    }
}

/* "; feed ended k1 expired a:2/7 hall:1/8@3" */
static void feed_print(const struct changes *changes, struct buf *out)
{
    for (size_t i = 0; i < changes->feed_count; i++) {
        const struct feed_event *event = &changes->feed[i];
        buf_printf(out, "; feed %s", feed_what_word(event->what));
        print_bytes(" ", event->external_id, out);
        if (event->end_reason)
            buf_printf(out, " %s", end_reason_word(event->end_reason));
        for (size_t j = 0; j < event->permit_count; j++) {
            const struct feed_permit *permit = &event->permits[j];
            print_bytes(" ", permit->semaphore, out);
            buf_printf(out, ":%lld/%llu", (long long)permit->count, (unsigned long long)permit->token);
            buf_append_text(out, permit->slots.count ? "@" : "");
            slots_format(&permit->slots, out);
        }
    }
    buf_append_text(out, changes->feed_omitted ? "; feed omitted" : "");
}

static void changes_print(struct buf *out)
{
    const struct changes *changes = &scene.plan.changes;
    for (size_t i = 0; i < changes->request_count; i++)
        change_print(&changes->requests[i], out);
    past_print(changes, out);
    places_print(changes, out);
    administration_print(changes, out);
    feed_print(changes, out);
    for (size_t i = 0; i < changes->mail_count; i++) {
        buf_printf(out, "; %smail %llu", changes->mail[i].remove ? "-" : "",
                   (unsigned long long)changes->mail[i].server_id);
        print_bytes(" ", key_of(changes->mail[i].request_id), out);
    }
    cr_expect(!changes->empty || !out->length);
    if (!changes->empty && !out->length)
        buf_append_text(out, "; semaphores");
    for (size_t i = 0; i < scene.plan.call_count; i++)
        print_bytes("; call ", key_of(scene.plan.calls[i]), out);
    for (size_t i = 0; i < scene.plan.notice_count; i++) {
        const struct notice *notice = &scene.plan.notices[i];
        cr_expect(notice->outcome.created && bytes_equal(notice->outcome.request->external_id, notice->external_id));
        if (notice->unasked)
            print_bytes("; tell ", notice->external_id, out);
    }
}

static void time_print(const char *name, utc_us time, struct buf *out)
{
    int64_t us = time - NOW;
    bool seconds = us % US_PER_SECOND == 0;
    if (time == NEVER)
        buf_printf(out, " %s=never", name);
    else
        buf_printf(out, " %s=%lld%s", name, (long long)(seconds ? us / US_PER_SECOND : us), seconds ? "s" : "us");
}

/* " place=-3s since=0s until=20s due=30s acquired=0s server=1 priority=9 ttl=1000 end=expired token=1 errand=1 changes=1 nonce=n wanted " */
static void row_print(const struct request_change *change, struct buf *out)
{
    const struct request *request = change->request;
    for (size_t i = 0; i < ARRAY_LENGTH(times); i++)
        time_print(times[i].word, *(const utc_us *)((const char *)request + times[i].offset), out);
    buf_printf(out, " server=%llu priority=%d ttl=%lld", (unsigned long long)request->server_id, request->priority,
               (long long)request->ttl_ms);
    if (request->end_reason)
        buf_printf(out, " end=%s", end_reason_word(request->end_reason));
    if (request->permit_count)
        buf_printf(out, " token=%llu", (unsigned long long)request->permits[0].token);
    if (request->errand)
        buf_printf(out, " errand=%u", request->errand);
    if (request->changes) {
        buf_printf(out, " changes=%u", request->changes);
        print_bytes(" nonce=", request->change_nonce, out);
    }
    buf_printf(out, " %s ", request->wanted.data ? "wanted" : "unwanted");
}

/* " in_use=1 confirmed=0 waiting=0 version=1 first_free=2 due=30s " */
static void semaphore_print(const struct semaphore *semaphore, struct buf *out)
{
    buf_printf(out, " in_use=%lld confirmed=%lld waiting=%lld version=%llu first_free=%u", (long long)semaphore->in_use,
               (long long)semaphore->confirmed, (long long)semaphore->waiting, (unsigned long long)semaphore->version,
               semaphore->first_free);
    time_print("due", semaphore->next_due_at, out);
    buf_append_char(out, ' ');
}

/* " may_wait row server=1 requested=2 " */
static void answer_print(const struct outcome *outcome, struct buf *out)
{
    buf_append_text(out, outcome->may_wait ? " may_wait" : " may_not_wait");
    buf_append_text(out, outcome->request ? " row" : " no_row");
    if (outcome->request)
        buf_printf(out, " server=%llu", (unsigned long long)outcome->request->server_id);
    if (outcome->shortage_count)
        buf_printf(out, " requested=%lld", (long long)outcome->shortages[0].requested);
    buf_append_char(out, ' ');
}

/* Returns the key of the first waiter with these needs. */
static struct bytes waiter_with(uint64_t needs)
{
    size_t i = 0;
    while (i < scene.row_count && wants_needs(scene.requests[i].wanted) != needs)
        i++;
    return scene.requests[i].external_id;
}

/*
 * " read_more=a read_held= unknown=c overdue=k1 hopeless=k2,k3 for_protected=1 expired=1 never_held=0 events=0 requests=1
 * places=0 mail=0 slots=0 "; "unknown=?": no semaphore of the scene
 */
static void plan_print(struct buf *out)
{
    const struct plan *plan = &scene.plan;
    const struct changes *changes = &plan->changes;
    buf_append_text(out, " read_more=");
    for (size_t i = 0; i < scene.locked; i++)
        print_bytes("", plan->read_more >> i & 1 ? scene.semaphores[i].name : BYTES(""), out);
    buf_append_text(out, " read_held=");
    for (size_t i = 0; i < scene.locked; i++)
        print_bytes("", plan->read_held >> i & 1 ? scene.semaphores[i].name : BYTES(""), out);
    buf_append_text(out, " unknown=");
    for (size_t i = 0; i < plan->unknown_count; i++)
        print_bytes("", semaphore_name(plan->unknown[i]), out);
    buf_append_text(out, " overdue=");
    for (size_t i = 0; i < plan->overdue_count; i++)
        print_bytes("", plan->overdue[i]->external_id, out);
    buf_append_text(out, " hopeless=");
    for (size_t i = 0; i < plan->hopeless_count; i++)
        print_bytes(i ? "," : "", waiter_with(plan->hopeless[i]), out);
    buf_printf(out,
               " for_protected=%zu expired=%u never_held=%u events=%zu requests=%zu places=%zu mail=%zu slots=%zu ",
               plan->hopeless_protected, plan->ended[END_EXPIRED], plan->ended[END_NEVER_HELD], changes->event_count,
               changes->request_count, changes->place_count, changes->mail_count, changes->slot_count);
}

/* " free=3 limit=5 backfill freed_count=2 freed=2,3 all_watches aged=-30s " */
static void read_print(const struct queue_read *read, struct buf *out)
{
    buf_printf(out, " free=%lld limit=%zu %s freed_count=%zu freed=", (long long)read->free, read->limit,
               read->fifo ? "fifo" : "backfill", read->freed_count);
    for (size_t i = 0; i < read->freed_count; i++)
        buf_printf(out, "%s%u", i ? "," : "", read->freed[i]);
    buf_append_text(out, read->all_watches ? " all_watches" : " some_watches");
    time_print("aged", read->aged, out);
    buf_append_char(out, ' ');
}

/* ---- checking ---- */

void scene_plan(const struct operation *const *operations, size_t count)
{
    struct view view = scene_view();
    cr_assert_eq(plan_batch(&view, operations, count, (struct id_range){NEW_ID, NEW_ID + 100}, &scene.settings,
                            &scene.arena, &scene.plan),
                 PERMIT_OK);
}

void batch(const char *operations, const char *outcomes, const char *changes)
{
    const struct operation *list[SCENE_LINES];
    size_t count = 0;
    struct buf got;
    buf_init(&got, 1 << 14);
    for (const char *at = operations; next_item(&at); count++) {
        cr_assert(count < SCENE_LINES);
        list[count] = read_operation(&at);
    }
    scene_plan(list, count);
    if (plan_reads_more(&scene.plan))
        buf_append_text(&got, "reads more");
    for (size_t i = 0; !plan_reads_more(&scene.plan) && i < count; i++) {
        buf_append_text(&got, i ? "; " : "");
        outcome_print(&scene.plan.outcomes[i], &got);
    }
    cr_expect_str_eq(buf_text(&got), outcomes, "%s\n   expected %s\n   got      %s", operations, outcomes,
                     buf_text(&got));
    buf_clear(&got);
    if (changes) {
        changes_print(&got);
        const char *text = buf_text(&got) + (got.length ? 2 : 0);
        cr_expect_str_eq(text, changes, "%s\n   changes  %s\n   got      %s", operations, changes, text);
    }
    buf_release(&got);
}

/* Checks that each further word of the item is among the printed ones. */
static void expect_words(const char **at, const struct buf *printed)
{
    for (struct bytes word = next_word(at); word.length; word = next_word(at)) {
        char fact[100];
        snprintf(fact, sizeof fact, " %.*s ", (int)word.length, word.data);
        cr_expect(strstr(buf_text(printed), fact), "expected%s\n   got     %s", fact, buf_text(printed));
    }
}

/* Prints the facts of a row that is written, of a semaphore, of an outcome, or of all. */
static void print_subject(struct bytes subject, struct buf *out)
{
    const struct changes *changes = &scene.plan.changes;
    const struct semaphore *semaphore = find_semaphore(subject);
    buf_clear(out);
    if (word_is(subject, "plan"))
        plan_print(out);
    else if (subject.data[0] == '#')
        answer_print(&scene.plan.outcomes[strtoul(subject.data + 1, NULL, 10) - 1], out);
    else if (semaphore)
        semaphore_print(changes->semaphores[semaphore->id - 1].semaphore, out);
    for (size_t i = 0; !out->length && i < changes->request_count; i++)
        if (bytes_equal(changes->requests[i].request->external_id, subject))
            row_print(&changes->requests[i], out);
    cr_assert(out->length, "nothing is written of %s", subject.data);
}

void then(const char *facts)
{
    struct buf got;
    buf_init(&got, 1 << 12);
    while (next_item(&facts)) {
        print_subject(next_word(&facts), &got);
        expect_words(&facts, &got);
    }
    buf_release(&got);
}

void detail(size_t number, const char *expected)
{
    const char *got = scene.plan.outcomes[number - 1].detail;
    cr_expect_str_eq(got ? got : "", expected, "expected %s, got %s", expected, got ? got : "");
}

void reads_queues(const char *operation, const char *expected)
{
    struct queue_read reads[SCENE_SEMAPHORES];
    const struct operation *operations[] = {scene_operation(operation)};
    struct view view = scene_view();
    struct buf got;
    bool servers, servers_expected = false;
    size_t at = 0;
    size_t count = plan_queue_reads(&view, operations, 1, &scene.settings, &scene.arena, reads, &servers);
    buf_init(&got, 1 << 14);
    while (next_item(&expected)) {
        struct bytes name = next_word(&expected);
        if (word_is(name, "servers")) {
            servers_expected = true;
            continue;
        }
        cr_assert(at < count && bytes_equal(scene.semaphores[reads[at].semaphore].name, name), "%s", operation);
        buf_clear(&got);
        read_print(&reads[at++], &got);
        expect_words(&expected, &got);
    }
    cr_expect(at == count && servers == servers_expected, "%s: %zu reads, servers: %d", operation, count, servers);
    buf_release(&got);
}

void reads_due(const char *operation, const char *expected)
{
    struct shortfall shortfalls[SCENE_SEMAPHORES];
    const struct operation *operations[] = {scene_operation(operation)};
    struct view view = scene_view();
    struct buf got;
    view.request_count = 0;
    size_t count = plan_shortfalls(&view, operations, 1, shortfalls);
    buf_init(&got, 1 << 10);
    for (size_t i = 0; i < count; i++) {
        print_bytes(i ? "; " : "", scene.semaphores[shortfalls[i].semaphore].name, &got);
        buf_printf(&got, " units=%lld%s", (long long)shortfalls[i].units, shortfalls[i].named ? " named" : "");
    }
    cr_expect_str_eq(buf_text(&got), expected, "%s: expected %s, got %s", operation, expected, buf_text(&got));
    buf_release(&got);
}
