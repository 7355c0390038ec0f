/* SPDX-License-Identifier: MIT */
/*
 * The tables of the model test: plain arrays. rows_view reads the rows that a batch locks and reads; rows_apply writes
 * the changes column by column, with the checks of the SQL (compare-and-set, unique keys, row counts, one-way states),
 * and checks afterwards that all rows agree.
 */
#include <stdlib.h>

#include "plan_model.h"

struct bytes semaphore_name(unsigned semaphore)
{
    static const char names[] = "abcde";
    return (struct bytes){&names[semaphore], 1};
}

struct bytes key_name(unsigned key)
{
    static const char names[] = "k0\0k1\0k2\0k3\0k4\0k5\0k6\0k7\0k8\0k9\0ka\0kb\0kc\0kd\0ke\0kf\0"
                                "kg\0kh\0ki\0kj\0kk\0kl\0km\0kn\0ko\0kp\0kq\0kr\0ks\0kt\0ku\0kv";
    return bytes_of(&names[3 * key]);
}

struct bytes owner_name(unsigned owner)
{
    static const char *const names[MODEL_OWNERS] = {"", "o1", "o2", "o3"};
    return bytes_of(names[owner]);
}

struct bytes nonce_text(unsigned nonce)
{
    static const char *const nonces[MODEL_NONCES] = {"", "n1", "n2", "n3"};
    return bytes_of(nonces[nonce]);
}

struct bytes reason_text(unsigned reason)
{
    static const struct bytes reasons[MODEL_REASONS] = {{NULL, 0}, {"repair", 6}, {"night", 5}};
    return reasons[reason];
}

struct bytes label_text(unsigned label)
{
    static const char texts[] = "L1L2L3L4L5L6L7L8L9";
    return label ? (struct bytes){&texts[2 * (label - 1)], 2} : (struct bytes){NULL, 0};
}

unsigned label_index(struct bytes label)
{
    for (unsigned i = 1; i < MODEL_LABELS; i++)
        if (bytes_equal(label_text(i), label))
            return i;
    return 0;
}

int key_index(struct bytes external_id)
{
    for (unsigned i = 0; i < MODEL_KEYS; i++)
        if (bytes_equal(key_name(i), external_id))
            return (int)i;
    return -1;
}

static int owner_index(struct bytes owner)
{
    for (unsigned i = 0; i < MODEL_OWNERS; i++)
        if (bytes_equal(owner_name(i), owner))
            return (int)i;
    return -1;
}

static int nonce_index(struct bytes nonce)
{
    for (unsigned i = 0; i < MODEL_NONCES; i++)
        if (bytes_equal(nonce_text(i), nonce))
            return (int)i;
    return -1;
}

static int semaphore_index(struct bytes name)
{
    for (unsigned i = 0; i < MODEL_SEMAPHORES; i++)
        if (bytes_equal(semaphore_name(i), name))
            return (int)i;
    return -1;
}

void rows_init(struct rows *rows)
{
    memset(rows, 0, sizeof *rows);
    rows->next_id = 1;
    memset(rows->key_of_id, MODEL_KEYS, sizeof rows->key_of_id);
    arena_init(&rows->arena, 16384, 1 << 24);
    buf_init(&rows->problem, 1 << 20);
}

void rows_clear(struct rows *rows)
{
    for (unsigned i = 0; i < MODEL_SEMAPHORES; i++)
        memset(rows->slots[i], 0, rows->slot_rows[i] * sizeof rows->slots[i][0]);
    memset(rows->slot_rows, 0, sizeof rows->slot_rows);
    memset(rows->semaphores, 0, sizeof rows->semaphores);
    memset(rows->requests, 0, sizeof rows->requests);
    memset(rows->last_tokens, 0, sizeof rows->last_tokens);
    memset(rows->key_of_id, MODEL_KEYS, sizeof rows->key_of_id);
    rows->place_count = rows->mail_count = 0;
    rows->next_id = 1;
    arena_clear(&rows->arena);
    buf_clear(&rows->problem);
}

void rows_release(struct rows *rows)
{
    arena_release(&rows->arena);
    buf_release(&rows->problem);
}

int rows_semaphore(const struct rows *rows, uint64_t id)
{
    for (unsigned i = 0; id != 0 && i < MODEL_SEMAPHORES; i++)
        if (rows->semaphores[i].id == id)
            return (int)i;
    return -1;
}

unsigned rows_semaphores_of_key(const struct rows *rows, unsigned key)
{
    unsigned semaphores = 0;
    for (size_t i = 0; i < rows->requests[key].permit_count; i++)
        semaphores |= 1U << rows_semaphore(rows, rows->permits[key][i].semaphore_id);
    for (size_t i = 0; i < rows->requests[key].want_count; i++)
        semaphores |= 1U << rows_semaphore(rows, rows->requests[key].wants[i].semaphore_id);
    return semaphores;
}

/* ---- reading ---- */

/* SELECT number ... WHERE permit_id = 0 AND retired = 0 AND number >= first_free ORDER BY number LIMIT wanted */
static bool read_slots(const struct rows *rows, unsigned index, int64_t wanted, struct arena *arena,
                       struct free_slots *ret_slots)
{
    struct free_slots slots = {.numbers = arena_array(arena, (size_t)wanted + 1, sizeof *slots.numbers)};
    for (uint32_t number = rows->semaphores[index].first_free; number < rows->slot_rows[index]; number++) {
        const struct model_slot *row = &rows->slots[index][number];
        if (!slots.numbers || (int64_t)slots.count >= wanted || !row->exists || row->retired || row->token)
            continue;
        if (row->label && !slots.labels)
            slots.labels = arena_array(arena, (size_t)wanted + 1, sizeof *slots.labels);
        if (row->label && !slots.labels)
            return false;
        if (row->label)
            slots.labels[slots.count] = label_text(row->label);
        slots.numbers[slots.count++] = number;
    }
    slots.complete = (int64_t)slots.count < wanted;
    *ret_slots = slots;
    return slots.numbers != NULL;
}

unsigned rows_holder_of(const struct rows *rows, unsigned index, uint64_t token)
{
    for (unsigned key = 0; key < MODEL_KEYS; key++)
        for (size_t i = 0; token && rows->requests[key].id && i < rows->requests[key].permit_count; i++)
            if (rows->permits[key][i].semaphore_id == rows->semaphores[index].id &&
                rows->permits[key][i].token == token)
                return key;
    return MODEL_KEYS;
}

static bool is_named(const struct rows_read *read, unsigned index, uint32_t number, unsigned label)
{
    for (unsigned i = 0; i < read->name_count[index]; i++) {
        const struct model_name *name = &read->names[index][i];
        if (name->number ? name->number == number : name->label == label)
            return true;
    }
    return read->all_slots || (read->with_holders >> index & 1);
}

/* Reads the named slots in any state, with their holders. */
static bool read_named(const struct rows *rows, const struct rows_read *read, unsigned index, struct arena *arena,
                       struct named_slots *ret_named)
{
    struct named_slots named = {.rows = arena_array(arena, rows->slot_rows[index] + 1U, sizeof *named.rows),
                                .has_holders = read->with_holders >> index & 1};
    for (uint32_t number = 1; named.rows && number < rows->slot_rows[index]; number++) {
        const struct model_slot *row = &rows->slots[index][number];
        if (!row->exists || !is_named(read, index, number, row->label))
            continue;
        unsigned key = rows_holder_of(rows, index, row->token);
        const struct request *holder = key < MODEL_KEYS ? &rows->requests[key] : NULL;
        named.rows[named.count++] =
            (struct slot_row){.number = number,
                              .label = label_text(row->label),
                              .token = row->token,
                              .retired = row->retired,
                              .holder = holder ? holder->external_id : (struct bytes){0},
                              .due_at = holder ? holder->due_at : NEVER,
                              .grace_ms = holder && !holder->server_id ? holder->grace_ms : 0,
                              .without_ttl = holder && !holder->server_id && holder->ttl_ms == TTL_NONE,
                              .confirmed = holder && holder->confirmed_at != NEVER};
    }
    *ret_named = named;
    return named.rows != NULL;
}

static int compare_semaphores(const void *a, const void *b)
{
    uint64_t left = (*(const struct semaphore *const *)a)->id;
    uint64_t right = (*(const struct semaphore *const *)b)->id;
    return (left > right) - (left < right);
}

bool rows_read_slots(const struct rows *rows, const struct rows_read *read, unsigned index, struct arena *arena,
                     struct view *view, size_t at)
{
    if (rows->semaphores[index].kind == KIND_SLOTTED && read->slots_wanted[index] > 0 &&
        !read_slots(rows, index, read->slots_wanted[index], arena, &view->free_slots[at]))
        return false;
    return !(read->name_count[index] || read->all_slots || (read->with_holders >> index & 1)) ||
           read_named(rows, read, index, arena, &view->named_slots[at]);
}

static bool view_semaphores(const struct rows *rows, const struct rows_read *read, struct arena *arena,
                            struct view *view)
{
    const struct semaphore *locked[MODEL_SEMAPHORES];
    for (unsigned i = 0; i < MODEL_SEMAPHORES; i++)
        if ((read->locks >> i & 1) && rows->semaphores[i].id)
            locked[view->semaphore_count++] = &rows->semaphores[i];
    qsort(locked, view->semaphore_count, sizeof locked[0], compare_semaphores);
    view->semaphores = arena_array(arena, view->semaphore_count + 1, sizeof *view->semaphores);
    view->free_slots = arena_array(arena, view->semaphore_count + 1, sizeof *view->free_slots);
    view->named_slots = arena_array(arena, view->semaphore_count + 1, sizeof *view->named_slots);
    view->next_due = arena_array(arena, view->semaphore_count + 1, sizeof *view->next_due);
    view->seat_maps = arena_array(arena, view->semaphore_count + 1, sizeof *view->seat_maps);
    if (!view->seat_maps || !view->semaphores || !view->free_slots || !view->named_slots || !view->next_due)
        return false;
    for (size_t i = 0; i < view->semaphore_count; i++) {
        unsigned index = (unsigned)(locked[i] - rows->semaphores);
        view->semaphores[i] = *locked[i];
        view->seat_maps[i] = model_seat_map();
        view->next_due[i] = locked[i]->next_due_at;
        if (!rows_read_slots(rows, read, index, arena, view, i))
            return false;
    }
    return true;
}

/* Reads the requests in ascending order of their keys, with copies of their permits. `keys`: a bit per key. */
bool rows_read_requests(const struct rows *rows, const struct rows_read *read, unsigned keys, struct arena *arena,
                        struct view *view)
{
    struct subscriber *subscribers = arena_array(arena, MODEL_KEYS, sizeof *subscribers);
    view->requests = arena_array(arena, MODEL_KEYS, sizeof *view->requests);
    view->request_count = view->subscriber_count = 0;
    view->subscribers = subscribers;
    if (!view->requests || !subscribers)
        return false;
    for (unsigned key = 0; key < MODEL_KEYS; key++) {
        if (!(keys >> key & 1) || !rows->requests[key].id)
            continue;
        struct request *request = &view->requests[view->request_count++];
        *request = rows->requests[key];
        request->permits = arena_array(arena, request->permit_count + 1, sizeof *request->permits);
        if (!request->permits)
            return false;
        for (size_t j = 0; j < request->permit_count; j++) /* a read has them in the database's order */
            request->permits[j] = rows->permits[key][request->permit_count - 1 - j];
        request->wants = NULL;
        request->want_count = 0;
        request->lock = read->locked_rows >> key & 1 ? ROW_LOCKED_ELSEWHERE : ROW_LOCKED;
        struct subscriber subscriber = {.external_id = request->external_id,
                                        .nonce = nonce_text(read->here_nonce[key]),
                                        .subscribed = read->here >> key & 1,
                                        .busy = read->later >> key & 1};
        if (request->state == REQUEST_WAITING && (subscriber.subscribed || subscriber.busy))
            subscribers[view->subscriber_count++] = subscriber;
        if (request->wanted.data &&
            wants_decode(request->wanted, arena, &request->ttl, &request->wants, &request->want_count) != PERMIT_OK)
            return false;
    }
    return true;
}

static bool view_owners(const struct rows_read *read, struct arena *arena, struct view *view)
{
    view->owners = arena_array(arena, MODEL_OWNERS, sizeof *view->owners);
    for (unsigned i = 0; view->owners && i < MODEL_OWNERS; i++)
        if ((read->owners & read->moment.owners_known) >> i & 1)
            view->owners[view->owner_count++] = (struct owner_state){owner_name(i), read->moment.owners_alive >> i & 1};
    return view->owners != NULL;
}

bool rows_view(const struct rows *rows, const struct rows_read *read, struct arena *arena, struct view *ret_view)
{
    struct view view = {.clock = read->moment.clock,
                        .now = read->moment.now,
                        .grants_from = read->moment.grants_from,
                        .same_server = true};
    view.clock.epoch = read->moment.epoch;
    view.clock.due = model_due(&read->moment);
    view.clock.from = model_from(&read->moment);
    if (!view_semaphores(rows, read, arena, &view) || !rows_read_requests(rows, read, read->keys, arena, &view) ||
        !view_owners(read, arena, &view))
        return false;
    *ret_view = view;
    return true;
}

static bool has_permit(const struct rows *rows, unsigned key, uint64_t semaphore_id)
{
    for (size_t i = 0; i < rows->requests[key].permit_count; i++)
        if (rows->permits[key][i].semaphore_id == semaphore_id)
            return true;
    return false;
}

/* Returns the next holder of the semaphore in order of (due_at, id) that is not in `taken`; MODEL_KEYS: none. */
static unsigned next_holder(const struct rows *rows, uint64_t semaphore_id, unsigned taken)
{
    unsigned next = MODEL_KEYS;
    for (unsigned key = 0; key < MODEL_KEYS; key++) {
        const struct request *row = &rows->requests[key];
        if ((taken >> key & 1) || row->state != REQUEST_ACQUIRED || row->due_at == NEVER ||
            !has_permit(rows, key, semaphore_id))
            continue;
        const struct request *best = next < MODEL_KEYS ? &rows->requests[next] : NULL;
        if (!best || row->due_at < best->due_at || (row->due_at == best->due_at && row->id < best->id))
            next = key;
    }
    return next;
}

/*
 * SELECT ... WHERE semaphore_id = ... AND due_at IS NOT NULL [AND due_at <= now] ORDER BY due_at, id LIMIT units + 1:
 * returns the due holders; the first one left out is the bound.
 */
static unsigned due_holders(const struct rows *rows, const struct rows_read *read, const struct semaphore *semaphore,
                            int64_t units, utc_us *ret_bound)
{
    utc_us now = model_due(&read->moment);
    unsigned keys = 0;
    int64_t room = read->due_cut ? min_i64(units, read->due_cut) : units;
    unsigned key;
    while ((key = next_holder(rows, semaphore->id, keys)) < MODEL_KEYS && rows->requests[key].due_at <= now &&
           room-- > 0)
        keys |= 1U << key;
    *ret_bound = key == MODEL_KEYS ? NEVER : rows->requests[key].due_at;
    if (read->walks_due && *ret_bound > now)
        *ret_bound = now + 1;
    return keys;
}

/* Returns the due holders of named slots. */
static unsigned due_named(const struct rows *rows, const struct rows_read *read, const struct view *view, size_t index)
{
    unsigned keys = 0;
    for (size_t i = 0; i < view->named_slots[index].count; i++) {
        const struct slot_row *row = &view->named_slots[index].rows[i];
        if (row->token && row->due_at <= model_due(&read->moment))
            keys |= 1U << key_index(row->holder);
    }
    (void)rows;
    return keys;
}

bool rows_read_due(const struct rows *rows, const struct rows_read *read, const struct shortfall *shortfalls,
                   size_t count, struct arena *arena, struct view *view)
{
    unsigned keys = read->keys;
    for (size_t i = 0; i < count; i++) {
        keys |= due_holders(rows, read, &view->semaphores[shortfalls[i].semaphore], shortfalls[i].units,
                            &view->next_due[shortfalls[i].semaphore]);
        if (shortfalls[i].named)
            keys |= due_named(rows, read, view, shortfalls[i].semaphore);
    }
    return rows_read_requests(rows, read, keys, arena, view);
}

static uint64_t mix(uint64_t sum, const void *data, size_t length)
{
    const unsigned char *bytes = data;
    for (; length >= sizeof(uint64_t); bytes += sizeof(uint64_t), length -= sizeof(uint64_t)) {
        uint64_t word;
        memcpy(&word, bytes, sizeof word);
        sum = (sum ^ word) * 0x9e3779b97f4a7c15;
        sum ^= sum >> 32;
    }
    for (size_t i = 0; i < length; i++)
        sum = (sum ^ bytes[i]) * 0x100000001b3;
    return sum;
}

uint64_t view_checksum(const struct view *view)
{
    uint64_t sum = mix(0xcbf29ce484222325, view, sizeof *view);
    sum = mix(sum, view->semaphores, view->semaphore_count * sizeof *view->semaphores);
    sum = mix(sum, view->next_due, view->semaphore_count * sizeof *view->next_due);
    sum = mix(sum, view->requests, view->request_count * sizeof *view->requests);
    for (size_t i = 0; i < view->semaphore_count; i++) {
        sum = mix(sum, view->free_slots[i].numbers, view->free_slots[i].count * sizeof(uint32_t));
        sum = mix(sum, view->named_slots[i].rows, view->named_slots[i].count * sizeof(struct slot_row));
    }
    for (size_t i = 0; view->queues && i < view->semaphore_count; i++)
        sum = mix(sum, &view->queues[i], sizeof view->queues[i]);
    for (size_t i = 0; i < view->glimpse_count; i++) {
        const struct glimpse *glimpse = &view->glimpses[i];
        sum = mix(mix(sum, glimpse, sizeof *glimpse), glimpse->watchers,
                  glimpse->watcher_count * sizeof *glimpse->watchers);
    }
    for (size_t i = 0; i < view->request_count; i++)
        sum = mix(sum, view->requests[i].wants, view->requests[i].want_count * sizeof(struct want));
    for (size_t i = 0; i < view->request_count; i++)
        for (size_t j = 0; j < view->requests[i].permit_count; j++) {
            const struct permit *permit = &view->requests[i].permits[j];
            sum = mix(mix(sum, permit, sizeof *permit), permit->slots.numbers, permit->slots.count * sizeof(uint32_t));
        }
    return sum;
}

/* ---- writing semaphores ---- */

#define FAIL(...) return buf_printf(&rows->problem, __VA_ARGS__), false
#define U(number) ((unsigned long long)(number))

/* Writes the columns of a semaphore that every batch writes. */
static void write_usage(struct semaphore *row, const struct semaphore *image)
{
    row->in_use = image->in_use;
    row->confirmed = image->confirmed;
    row->next_token = image->next_token;
    row->next_due_at = image->next_due_at;
    row->first_free = image->first_free;
    row->waiting = image->waiting;
}

/* Writes the columns that are written only with `settings`. */
static void write_settings(struct semaphore *row, const struct semaphore *image)
{
    row->config_version = image->config_version;
    row->queue = image->queue;
    row->capacity = image->capacity;
    row->default_ttl_ms = image->default_ttl_ms;
    row->max_ttl_ms = image->max_ttl_ms;
    row->grace_ms = image->grace_ms;
    row->max_hold_ms = image->max_hold_ms;
    row->max_waiters = image->max_waiters;
    row->max_priority = image->max_priority;
    row->priority_step_ms = image->priority_step_ms;
    row->paused_reason = image->paused_reason;
    row->note = image->note;
    row->retired_at = image->retired_at;
}

static bool semaphores_equal(const struct semaphore *a, const struct semaphore *b)
{
    return a->id == b->id && bytes_equal(a->name, b->name) && a->kind == b->kind && a->queue == b->queue &&
           a->capacity == b->capacity && a->in_use == b->in_use && a->next_token == b->next_token &&
           a->version == b->version && a->config_version == b->config_version && a->next_due_at == b->next_due_at &&
           a->first_free == b->first_free && a->default_ttl_ms == b->default_ttl_ms && a->max_ttl_ms == b->max_ttl_ms &&
           a->grace_ms == b->grace_ms && a->max_hold_ms == b->max_hold_ms && a->max_waiters == b->max_waiters &&
           a->max_priority == b->max_priority && a->priority_step_ms == b->priority_step_ms &&
           a->confirmed == b->confirmed && a->waiting == b->waiting && bytes_equal(a->note, b->note) &&
           bytes_equal(a->paused_reason, b->paused_reason) && !a->paused_reason.data == !b->paused_reason.data &&
           a->retired_at == b->retired_at;
}

static bool insert_semaphore(struct rows *rows, const struct semaphore_image *image, unsigned index)
{
    struct semaphore *row = &rows->semaphores[index];
    if (row->id)
        FAIL("semaphore %c is inserted twice", 'a' + (int)index);
    if (image->semaphore->version != 1 || image->semaphore->config_version != 1 || !image->settings)
        FAIL("a new semaphore has version %llu, config_version %llu", U(image->semaphore->version),
             U(image->semaphore->config_version));
    *row = *image->semaphore;
    return true;
}

/* version = IF(version = expected, version + 1, NULL) */
static bool update_semaphore(struct rows *rows, const struct semaphore_image *image, unsigned index)
{
    struct semaphore *row = &rows->semaphores[index];
    if (row->id != image->semaphore->id || row->version != image->expected_version)
        FAIL("semaphore %c: version %llu is expected, the row has %llu", 'a' + (int)index, U(image->expected_version),
             U(row->version));
    if (image->semaphore->next_token < row->next_token)
        FAIL("semaphore %c: next_permit_id falls", 'a' + (int)index);
    row->version++;
    write_usage(row, image->semaphore);
    if (image->settings)
        write_settings(row, image->semaphore);
    if (!semaphores_equal(row, image->semaphore))
        FAIL("semaphore %c: the image says what is not written", 'a' + (int)index);
    return true;
}

static bool write_slot_rows(struct rows *rows, const struct semaphore_image *image, unsigned index)
{
    if (image->slots_to >= MODEL_SLOT_ROWS)
        FAIL("slot %u is made", image->slots_to);
    for (uint32_t number = image->slots_from; image->slots_to && number <= image->slots_to; number++) {
        rows->slots[index][number].exists = true;
        rows->slots[index][number].retired = false;
    }
    if (image->slots_to >= rows->slot_rows[index])
        rows->slot_rows[index] = image->slots_to + 1;
    for (uint32_t number = image->retire_from; image->retire_from && number < rows->slot_rows[index]; number++)
        rows->slots[index][number].retired = true;
    for (uint32_t number = 1; image->drop_labels && number < rows->slot_rows[index]; number++)
        rows->slots[index][number].label = 0;
    return true;
}

static bool write_semaphores(struct rows *rows, const struct changes *changes)
{
    for (size_t i = 0; i < changes->semaphore_count; i++) {
        const struct semaphore_image *image = &changes->semaphores[i];
        if (!image->changed)
            continue;
        if (i > 0 && image[-1].semaphore->id >= image->semaphore->id)
            FAIL("semaphores are not ascending");
        int index = semaphore_index(image->semaphore->name);
        if (index < 0)
            FAIL("a semaphore of unknown name is written");
        if (!(image->insert ? insert_semaphore : update_semaphore)(rows, image, (unsigned)index) ||
            !write_slot_rows(rows, image, (unsigned)index))
            return false;
    }
    return true;
}

/* ---- writing requests ---- */

static bool copy_permits(struct rows *rows, unsigned key, const struct request *image)
{
    if (image->permit_count > MODEL_PERMITS)
        FAIL("%zu permits", image->permit_count);
    for (size_t i = 0; i < image->permit_count; i++) {
        struct permit *permit = &rows->permits[key][i];
        *permit = image->permits[i];
        permit->slots.numbers = arena_array(&rows->arena, permit->slots.count + 1U, sizeof(uint32_t));
        if (!permit->slots.numbers)
            FAIL("no memory");
        if (permit->slots.count)
            memcpy(permit->slots.numbers, image->permits[i].slots.numbers, permit->slots.count * sizeof(uint32_t));
        if (!permit->labels)
            continue;
        permit->labels = arena_array(&rows->arena, permit->slots.count, sizeof *permit->labels);
        if (!permit->labels)
            FAIL("no memory");
        for (uint32_t j = 0; j < permit->slots.count; j++)
            permit->labels[j] = label_text(label_index(image->permits[i].labels[j]));
    }
    rows->requests[key].permits = rows->permits[key];
    rows->requests[key].permit_count = image->permit_count;
    return true;
}

/* Keeps what a waiting request wants, as the bytes of its column say. */
static bool copy_wanted(struct rows *rows, unsigned key, const struct request *image)
{
    struct request *row = &rows->requests[key];
    row->wanted = (struct bytes){0};
    row->wants = NULL;
    row->want_count = 0;
    if ((image->wanted.data != NULL) != (image->state == REQUEST_WAITING))
        FAIL("%s: state %d, `wanted` has %zu bytes", key_name(key).data, (int)image->state, image->wanted.length);
    if (!image->wanted.data)
        return true;
    row->wanted = arena_copy(&rows->arena, image->wanted);
    if (!row->wanted.data ||
        wants_decode(row->wanted, &rows->arena, &row->ttl, &row->wants, &row->want_count) != PERMIT_OK)
        FAIL("%s: `wanted` cannot be decoded", key_name(key).data);
    return true;
}

/* P9: each token of the batch is above all tokens granted before; `seen` compares the tokens of the batch. */
static bool check_tokens(struct rows *rows, unsigned key, uint64_t *seen)
{
    for (size_t i = 0; i < rows->requests[key].permit_count; i++) {
        const struct permit *permit = &rows->permits[key][i];
        int index = rows_semaphore(rows, permit->semaphore_id);
        if (index < 0)
            FAIL("%s has a permit of no semaphore", key_name(key).data);
        if (permit->token <= rows->last_tokens[index] || permit->token >= rows->semaphores[index].next_token)
            FAIL("token %llu of %c after %llu, next_permit_id %llu", U(permit->token), 'a' + index,
                 U(rows->last_tokens[index]), U(rows->semaphores[index].next_token));
        for (unsigned other = 0; other < MODEL_KEYS; other++)
            for (size_t j = 0; other != key && j < rows->requests[other].permit_count; j++)
                if (rows->permits[other][j].semaphore_id == permit->semaphore_id &&
                    rows->permits[other][j].token == permit->token)
                    FAIL("token %llu of %c is granted twice", U(permit->token), 'a' + index);
        if (seen[index] < permit->token)
            seen[index] = permit->token;
    }
    return true;
}

/*
 * The plan's strings live as long as its arena; a table keeps its own copies. Unknown strings become "?", which
 * check_identity finds.
 */
static void keep_strings(struct request *row)
{
    static const struct bytes nobody = {"?", 1};
    int key = key_index(row->external_id);
    int owner = owner_index(row->owner);
    int nonce = nonce_index(row->nonce);
    row->external_id = key < 0 ? nobody : key_name((unsigned)key);
    row->owner = owner < 0 ? nobody : owner_name((unsigned)owner);
    row->nonce = nonce < 0 ? nobody : nonce_text((unsigned)nonce);
    nonce = nonce_index(row->change_nonce);
    row->change_nonce = nonce < 0 ? nobody : nonce_text((unsigned)nonce);
    row->principal = bytes_equal(row->principal, BYTES("someone")) ? BYTES("someone") : nobody;
}

/* A confirmed request is neither due nor stale; an ended or waiting one has a time of deletion. */
static bool check_deadline(struct rows *rows, unsigned key)
{
    const struct request *row = &rows->requests[key];
    bool forever = (row->confirmed_at != NEVER || row->ttl_ms == TTL_BY_OWNER) && !row->server_id;
    if (row->state == REQUEST_ACQUIRED ? forever != (row->due_at == NEVER) : row->due_at == NEVER)
        FAIL("%s: due_at %lld does not fit its state", key_name(key).data, (long long)row->due_at);
    if (row->state == REQUEST_RELEASED && row->server_id)
        FAIL("%s has ended, and has a server", key_name(key).data);
    return true;
}

static bool insert_request(struct rows *rows, const struct request_change *change, unsigned key, uint64_t *seen)
{
    struct request *row = &rows->requests[key];
    if (row->id)
        FAIL("%s is inserted twice", key_name(key).data);
    for (unsigned i = 0; i < MODEL_KEYS; i++)
        if (rows->requests[i].id == change->request->id)
            FAIL("request id %llu twice", U(change->request->id));
    if (change->request->id >= MODEL_IDS)
        FAIL("request id %llu is too large for the test", U(change->request->id));
    rows->key_of_id[change->request->id] = (unsigned char)key;
    *row = *change->request;
    keep_strings(row);
    return copy_wanted(rows, key, change->request) && copy_permits(rows, key, change->request) &&
           check_tokens(rows, key, seen) && check_deadline(rows, key);
}

/* Compares the row with `before`, the row as it was read: an UPDATE writes only the differences. */
static bool is_as_read(const struct request *row, const struct request *before)
{
    return before && before->id == row->id && before->state == row->state && before->end_reason == row->end_reason &&
           before->ttl_ms == row->ttl_ms && before->due_at == row->due_at && before->renewals == row->renewals &&
           before->replays == row->replays && before->confirmed_at == row->confirmed_at &&
           before->ended_at == row->ended_at && before->server_id == row->server_id &&
           before->waiting_until == row->waiting_until && before->place == row->place;
}

static const struct permit *same_permit(const struct request *request, const struct permit *permit)
{
    const struct permit *same = request_permit_of(request, permit->semaphore_id);
    return same && same->token == permit->token && same->count == permit->count ? same : NULL;
}

/* The rows that the store neither deletes nor inserts are those that the exchange leaves as they are. */
static bool check_exchange(struct rows *rows, const struct request_change *change, unsigned key)
{
    for (size_t i = 0; i < change->before->permit_count; i++) {
        const struct permit *permit = &change->before->permits[i], *same = same_permit(change->request, permit);
        if (change_deletes(change, permit) == (same != NULL) || (same && change_inserts(change, same)))
            FAIL("%s: a permit is deleted, or not, against the exchange", key_name(key).data);
        if (same && (same->slots.count != permit->slots.count || same->granted_at != permit->granted_at))
            FAIL("%s: a permit that is not written has changed", key_name(key).data);
    }
    if (change->request->changes != change->before->changes + 1)
        FAIL("%s: %u changes after %u", key_name(key).data, change->request->changes, change->before->changes);
    return true;
}

/* P10: what is taken has a token above all, what is only given back keeps its own. */
static bool check_new_tokens(struct rows *rows, unsigned key, const struct request_change *change, uint64_t *seen)
{
    for (size_t i = 0; i < rows->requests[key].permit_count; i++) {
        const struct permit *permit = &rows->permits[key][i];
        const struct permit *before = request_permit_of(change->before, permit->semaphore_id);
        unsigned index = (unsigned)rows_semaphore(rows, permit->semaphore_id);
        bool same = before && before->token == permit->token;
        if (same ? permit->count > before->count : permit->token <= rows->last_tokens[index])
            FAIL("%s has %ld of %c under token %lu", key_name(key).data, permit->count, 'a' + (int)index,
                 permit->token);
        seen[index] = (uint64_t)max_i64((int64_t)seen[index], (int64_t)permit->token);
    }
    return true;
}

/* Writes the columns of an UPDATE; `state` changes one way only. */
static bool update_request(struct rows *rows, const struct request_change *change, unsigned key, uint64_t *seen)
{
    struct request *row = &rows->requests[key];
    const struct request *image = change->request;
    bool leaves_queue = row->state == REQUEST_WAITING && image->state == REQUEST_RELEASED;
    enum request_state before = change->ends     ? REQUEST_ACQUIRED
                                : change->grants ? REQUEST_WAITING
                                : leaves_queue   ? REQUEST_WAITING
                                                 : image->state;
    enum request_state after = change->ends ? REQUEST_RELEASED : image->state;
    if (change->grants && image->state == REQUEST_RELEASED)
        after = REQUEST_RELEASED; /* granted, and released in the same batch */
    if (row->id != image->id || row->state != before || image->state != after ||
        (change->grants && image->state == REQUEST_WAITING))
        FAIL("%s: id %llu in state %d becomes id %llu in state %d, ends %d", key_name(key).data, U(row->id),
             (int)row->state, U(image->id), (int)image->state, change->ends);
    if (!is_as_read(row, change->before))
        FAIL("%s: `before` is not the row as it was read", key_name(key).data);
    row->state = image->state;
    row->end_reason = image->end_reason;
    row->renewals = image->renewals;
    row->replays = image->replays;
    row->ttl_ms = image->ttl_ms;
    row->due_at = image->due_at;
    row->confirmed_at = image->confirmed_at;
    row->ended_at = image->ended_at;
    row->nonce = image->nonce;
    row->server_id = image->server_id;
    row->changes = image->changes;
    row->change_nonce = image->change_nonce;
    keep_strings(row);
    row->waiting_until = image->waiting_until;
    if (change->grants) {
        row->acquired_at = image->acquired_at;
        row->grace_ms = image->grace_ms;
        if (!copy_permits(rows, key, image) || !check_tokens(rows, key, seen))
            return false;
    }
    if (change->exchanges && (!check_exchange(rows, change, key) || !copy_permits(rows, key, image) ||
                              !check_new_tokens(rows, key, change, seen)))
        return false;
    return copy_wanted(rows, key, image) && check_deadline(rows, key);
}

static bool remove_request(struct rows *rows, const struct request_change *change, unsigned key)
{
    struct request *row = &rows->requests[key];
    if (row->id != change->request->id || row->state != REQUEST_WAITING || !is_as_read(row, change->before))
        FAIL("%s: id %llu is deleted, the row is %llu in state %d", key_name(key).data, U(change->request->id),
             U(row->id), (int)row->state);
    *row = (struct request){0};
    return true;
}

/* Inserts come first, ascending by external_id; updates follow, ascending by id. */
static bool in_order(const struct request_change *before, const struct request_change *after)
{
    if (before->insert != after->insert)
        return before->insert;
    if (before->insert)
        return bytes_compare(before->request->external_id, after->request->external_id) < 0;
    return before->request->id < after->request->id;
}

static bool write_requests(struct rows *rows, const struct changes *changes)
{
    uint64_t seen[MODEL_SEMAPHORES];
    memcpy(seen, rows->last_tokens, sizeof seen);
    for (size_t i = 0; i < changes->request_count; i++) { /* the store deletes first */
        int key = key_index(changes->requests[i].request->external_id);
        if (changes->requests[i].remove && (key < 0 || !remove_request(rows, &changes->requests[i], (unsigned)key)))
            return false;
    }
    for (size_t i = 0; i < changes->request_count; i++) {
        const struct request_change *change = &changes->requests[i];
        if (i > 0 && !in_order(change - 1, change))
            FAIL("requests are not in order");
        int key = key_index(change->request->external_id);
        if (key < 0)
            FAIL("a request of unknown key is written");
        if (change->remove)
            continue;
        if (!(change->insert ? insert_request : update_request)(rows, change, (unsigned)key, seen))
            return false;
    }
    memcpy(rows->last_tokens, seen, sizeof seen);
    return true;
}

static bool write_slots(struct rows *rows, const struct changes *changes)
{
    for (size_t i = 0; i < changes->slot_count; i++) {
        const struct slot_change *slot = &changes->slots[i];
        if (i > 0 && (slot[-1].semaphore_id > slot->semaphore_id ||
                      (slot[-1].semaphore_id == slot->semaphore_id && slot[-1].number >= slot->number)))
            FAIL("slots are not ascending, each once");
        int index = rows_semaphore(rows, slot->semaphore_id);
        if (index < 0 || slot->number == 0 || slot->number >= rows->slot_rows[index] ||
            !rows->slots[index][slot->number].exists)
            FAIL("slot %u of semaphore id %llu has no row", slot->number, U(slot->semaphore_id));
        if (rows->slots[index][slot->number].token == slot->token) /* the store counts changed rows */
            FAIL("slot %u of semaphore id %llu is as it was", slot->number, U(slot->semaphore_id));
        rows->slots[index][slot->number].token = slot->token;
    }
    return true;
}

/* All labels are of one semaphore, ascending. A label may move between slots; the label of a held slot stays. */
static bool write_labels(struct rows *rows, const struct changes *changes)
{
    unsigned seen = 0;
    int index = changes->label_count ? rows_semaphore(rows, changes->labels[0].semaphore_id) : 0;
    for (size_t i = 0; i < changes->label_count; i++) {
        const struct label_change *change = &changes->labels[i];
        if (rows_semaphore(rows, change->semaphore_id) != index || index < 0 ||
            (i > 0 && change[-1].number >= change->number))
            FAIL("labels are not of one semaphore, ascending");
        if (change->number == 0 || change->number >= rows->slot_rows[index])
            FAIL("slot %u has no row and gets a label", change->number);
        struct model_slot *slot = &rows->slots[index][change->number];
        unsigned label = label_index(change->label);
        if (slot->token || slot->label == label || !label != !change->label.data)
            FAIL("the label of slot %u, %u, becomes %u", change->number, slot->label, label);
        slot->label = label;
    }
    for (uint32_t number = 1; changes->label_count && number < rows->slot_rows[index]; number++) {
        unsigned label = rows->slots[index][number].label;
        if (label && (seen >> label & 1))
            FAIL("duplicate label %u", label);
        seen |= 1U << label;
    }
    return true;
}

/* ---- consistency of all rows ---- */

struct usage {
    int64_t units;
    int64_t confirmed;
    uint32_t slots;
    utc_us due_at;
};

/* Adds a held permit of a semaphore to the sums; each slot of it must have the permit's id. */
static bool add_permit(struct rows *rows, unsigned key, const struct permit *permit, unsigned index,
                       struct usage *usage)
{
    bool slotted = rows->semaphores[index].kind == KIND_SLOTTED;
    if (permit->count < 1 || (int64_t)permit->slots.count != (slotted ? permit->count : 0))
        FAIL("%s: %u slots for count %lld", key_name(key).data, permit->slots.count, (long long)permit->count);
    for (uint32_t i = 0; i < permit->slots.count; i++) {
        uint32_t number = permit->slots.numbers[i];
        if (i > 0 && permit->slots.numbers[i - 1] >= number)
            FAIL("%s: slots are not ascending", key_name(key).data);
        if (rows->slots[index][number].token != permit->token)
            FAIL("slot %u of %c belongs to %llu, not to %llu of %s", number, 'a' + (int)index,
                 U(rows->slots[index][number].token), U(permit->token), key_name(key).data);
    }
    usage->units += permit->count;
    usage->confirmed += rows->requests[key].confirmed_at != NEVER ? permit->count : 0;
    usage->slots += permit->slots.count;
    usage->due_at = min_i64(usage->due_at, rows->requests[key].due_at);
    return true;
}

/* Slots 1 to capacity are in service, none above; first_free is a lower bound of the grantable slots. */
static bool check_slots(struct rows *rows, unsigned index, const struct usage *usage)
{
    const struct semaphore *row = &rows->semaphores[index];
    uint32_t held = 0;
    int64_t free_from = 0;
    for (uint32_t number = 1; number < rows->slot_rows[index]; number++) {
        const struct model_slot *slot = &rows->slots[index][number];
        if (!slot->exists || slot->retired != (number > row->capacity))
            FAIL("slot %u of %c: capacity %lld, retired %d", number, 'a' + (int)index, (long long)row->capacity,
                 slot->retired);
        held += slot->token != 0;
        free_from += !slot->token && !slot->retired && number >= row->first_free;
        if (!slot->token && !slot->retired && number < row->first_free && row->in_use < row->capacity)
            FAIL("slot %u of %c is free below first_free %u", number, 'a' + (int)index, row->first_free);
    }
    if (held != usage->slots || row->capacity >= (int64_t)max_i64(rows->slot_rows[index], 1))
        FAIL("%c: %u slots are held by rows, %u by permits; %u rows", 'a' + (int)index, held, usage->slots,
             rows->slot_rows[index]);
    if (free_from < row->capacity - row->in_use)
        FAIL("%c: %lld free slots from first_free %u, %lld units", 'a' + (int)index, (long long)free_from,
             row->first_free, (long long)(row->capacity - row->in_use));
    return true;
}

static bool check_semaphore(struct rows *rows, unsigned index)
{
    const struct semaphore *row = &rows->semaphores[index];
    struct usage usage = {.due_at = NEVER};
    for (unsigned key = 0; key < MODEL_KEYS; key++)
        for (size_t i = 0; i < rows->requests[key].permit_count; i++)
            if (rows->requests[key].state == REQUEST_ACQUIRED && rows->permits[key][i].semaphore_id == row->id &&
                !add_permit(rows, key, &rows->permits[key][i], index, &usage))
                return false;
    if (usage.units != row->in_use)
        FAIL("%c: in_use %lld, held %lld", 'a' + (int)index, (long long)row->in_use, (long long)usage.units);
    if (usage.confirmed != row->confirmed)
        FAIL("%c: confirmed %lld, held for ever %lld", 'a' + (int)index, (long long)row->confirmed,
             (long long)usage.confirmed);
    if (row->next_due_at > usage.due_at)
        FAIL("%c: next_due_at %lld is after %lld", 'a' + (int)index, (long long)row->next_due_at,
             (long long)usage.due_at);
    return row->kind == KIND_COUNTED || check_slots(rows, index, &usage);
}

static bool check_empty(struct rows *rows, const struct changes *changes)
{
    bool changed = changes->request_count > 0 || changes->slot_count > 0 || changes->label_count > 0 ||
                   changes->place_count > 0 || changes->mail_count > 0;
    for (size_t i = 0; i < changes->semaphore_count; i++)
        changed |= changes->semaphores[i].changed;
    if (changes->empty == changed)
        FAIL("changes are marked %s", changes->empty ? "empty and are not" : "as some and are none");
    return true;
}

static bool is_written(const struct changes *changes, uint64_t semaphore_id)
{
    for (size_t i = 0; i < changes->semaphore_count; i++)
        if (changes->semaphores[i].semaphore->id == semaphore_id)
            return changes->semaphores[i].changed;
    return false;
}

/* A change of a place, or from or to no server, raises the version of all semaphores of the request. */
static bool check_versions(struct rows *rows, const struct changes *changes)
{
    for (size_t i = 0; i < changes->place_count; i++)
        if (!is_written(changes, changes->places[i].semaphore_id))
            FAIL("a place of %c changes, and not its version",
                 'a' + rows_semaphore(rows, changes->places[i].semaphore_id));
    for (size_t i = 0; i < changes->request_count; i++) {
        const struct request *before = changes->requests[i].before;
        const struct request *after = changes->requests[i].request;
        bool changes_server = before && !before->server_id != !after->server_id;
        for (size_t j = 0; changes_server && j < before->want_count; j++)
            if (!is_written(changes, before->wants[j].semaphore_id))
                FAIL("%.*s gets or loses its server, and no version rises", (int)after->external_id.length,
                     after->external_id.data);
    }
    return true;
}

bool rows_apply(struct rows *rows, const struct plan *plan)
{
    const struct changes *changes = &plan->changes;
    uint64_t end = rows->next_id + plan->ids_used;
    if (!check_empty(rows, changes))
        return false;
    for (size_t i = 0; i < changes->request_count; i++)
        if (changes->requests[i].insert &&
            (changes->requests[i].request->id < rows->next_id || changes->requests[i].request->id >= end))
            FAIL("request id %llu is not of [%llu, %llu)", U(changes->requests[i].request->id), U(rows->next_id),
                 U(end));
    if (!check_versions(rows, changes) || !write_semaphores(rows, changes) || !write_requests(rows, changes) ||
        !write_slots(rows, changes) || !write_labels(rows, changes) || !rows_write_places(rows, changes) ||
        !rows_write_mail(rows, changes) || !rows_check_places(rows))
        return false;
    rows->next_id = end;
    for (unsigned i = 0; i < MODEL_SEMAPHORES; i++)
        if (rows->semaphores[i].id && !check_semaphore(rows, i))
            return false;
    return true;
}

/* ---- in the model's terms ---- */

static void rows_permit(const struct rows *rows, const struct permit *permit, struct model_permit *ret_permit)
{
    *ret_permit = (struct model_permit){.semaphore = (unsigned)rows_semaphore(rows, permit->semaphore_id),
                                        .token = permit->token,
                                        .count = permit->count,
                                        .slot_count = permit->slots.count};
    for (uint32_t i = 0; i < permit->slots.count && i < MODEL_SLOTS; i++)
        ret_permit->slots[i] = permit->slots.numbers[i];
    for (uint32_t i = 0; permit->labels && i < permit->slots.count && i < MODEL_SLOTS; i++)
        ret_permit->labels[i] = label_index(permit->labels[i]);
}

void rows_request(const struct rows *rows, const struct request *request, struct model_request *ret_request)
{
    *ret_request = (struct model_request){
        .exists = true,
        .state = request->state,
        .end_reason = request->end_reason,
        .ttl_ms = request->ttl_ms,
        .due_at = request->due_at,
        .grace_ms = request->grace_ms,
        .confirmed_at = request->confirmed_at,
        .renewals = request->renewals,
        .replays = request->replays,
        .acquired_at = request->acquired_at,
        .ended_at = request->ended_at,
        .owner = (unsigned)owner_index(request->owner),
        .nonce = (unsigned)nonce_index(request->nonce),
        .changes = request->changes,
        .change_nonce = (unsigned)nonce_index(request->change_nonce),
        .permit_count = (unsigned)min_i64((int64_t)request->permit_count, MODEL_PERMITS),
        .server = (unsigned)request->server_id,
        .priority = request->priority,
        .place = request->place,
        .since = request->waiting_since,
        .until = request->waiting_until,
    };
    for (unsigned i = 0; i < ret_request->permit_count; i++)
        rows_permit(rows, &request->permits[i], &ret_request->permits[i]);
}
