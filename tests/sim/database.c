/* SPDX-License-Identifier: MIT */
#include "database.h"

#include <stdio.h>

#include "base/map.h"
#include "dice.h"
#include "oracle.h"
#include "run.h"

enum { BUCKETS = 1 << 16, LOCK_WAIT_US = 2 * US_PER_SECOND };

/* How far a failover may go back. */
#define JOURNAL_US (10LL * US_PER_SECOND)

struct database database;

static struct db_key *buckets[BUCKETS];

/* ---- undo ---- */

enum undo_kind { UNDO_KEY, UNDO_SEMAPHORE, UNDO_TEMPLATE, UNDO_SERVER, UNDO_MAIL, UNDO_EVENT, UNDO_GLOBALS };

/* A row as it was before a commit. */
struct undo {
    struct list node; /* in the journal, in order of commit */
    uint64_t lsn;
    mono_us at;
    enum undo_kind kind;
    void *object;
    union {
        struct request_row request;
        struct db_semaphore_row semaphore;
        struct template_row template;
        struct db_server_row server;
        struct db_mail mail;
        struct db_event event;
        struct globals globals;
    } before;
};

static struct list journal;
static struct list unused;

static void journal_row(enum undo_kind kind, void *object)
{
    struct undo *undo;
    if (list_empty(&unused)) {
        undo = malloc(sizeof *undo);
        if (!undo)
            abort();
    } else {
        undo = LIST_ENTRY(unused.next, struct undo, node);
        list_remove(&undo->node);
    }
    undo->lsn = database.lsn;
    undo->at = sim_now();
    undo->kind = kind;
    undo->object = object;
    switch (kind) {
    case UNDO_KEY: undo->before.request = ((struct db_key *)object)->row; break;
    case UNDO_SEMAPHORE: undo->before.semaphore = ((struct db_semaphore *)object)->row; break;
    case UNDO_TEMPLATE: undo->before.template = ((struct db_template *)object)->row; break;
    case UNDO_SERVER: undo->before.server = ((struct db_server *)object)->row; break;
    case UNDO_MAIL: undo->before.mail = *(struct db_mail *)object; break;
    case UNDO_EVENT: undo->before.event = *(struct db_event *)object; break;
    default: undo->before.globals = database.globals; break;
    }
    list_append(&journal, &undo->node);
}

static void trim_journal(void)
{
    while (!list_empty(&journal)) {
        struct undo *oldest = LIST_ENTRY(journal.next, struct undo, node);
        if (oldest->lsn > database.durable_lsn || oldest->at > sim_now() - JOURNAL_US)
            return;
        list_remove(&oldest->node);
        list_append(&unused, &oldest->node);
    }
}

/* ---- rows ---- */

void database_begin(void)
{
    list_init(&journal);
    list_init(&unused);
    list_init(&database.open);
    list_init(&database.feed_head.waiting.fibers);
    database.server = 1;
    database.start = 1; /* a session that was cut has start 0 */
    database.globals.next_id = database.globals.next_server_id = 1;
    database.globals.clock.tick_at = database_now();
}

utc_us database_now(void)
{
    if (sim_now() < database.frozen_until)
        return database.frozen_at;
    int64_t slewed_us = (sim_now() - database.slewed_at) * database.per_million / 1000000;
    return SIM_WALL_BASE + sim_now() + database.skew_us + slewed_us;
}

void database_step(int64_t by_us)
{
    database.skew_us += by_us;
}

void database_freeze(int64_t for_us)
{
    database.frozen_at = database_now();
    database.frozen_until = sim_now() + for_us;
}

void database_slew(int64_t per_million)
{
    database.skew_us += (sim_now() - database.slewed_at) * database.per_million / 1000000;
    database.slewed_at = sim_now();
    database.per_million = per_million;
}

struct db_semaphore *database_add_name(const char *name)
{
    struct db_semaphore *semaphore = &database.semaphores[database.semaphore_count++];
    snprintf(semaphore->name, sizeof semaphore->name, "%s", name);
    list_init(&semaphore->lock.waiting.fibers);
    semaphore->row.semaphore.name = bytes_of(semaphore->name);
    semaphore->left_at = -1;
    semaphore->uncovered_at = NEVER;
    return semaphore;
}

/* Every second slotted semaphore has labels. */
struct db_semaphore *database_add_semaphore(const char *name, const struct semaphore *like)
{
    struct db_semaphore *semaphore = database_add_name(name);
    struct semaphore *row = &semaphore->row.semaphore;
    *row = *like;
    semaphore->row.exists = true;
    semaphore->uncovered_at = -1;
    row->id = database.globals.next_id++;
    row->name = bytes_of(semaphore->name);
    for (uint8_t number = 1; row->id % 2 == 0 && row->kind == KIND_SLOTTED && number <= row->capacity; number++)
        semaphore->row.labels[number] = number;
    row->next_token = row->version = row->config_version = 1;
    row->next_due_at = row->retired_at = NEVER;
    if (row->kind == KIND_SLOTTED) {
        row->first_free = 1;
        semaphore->row.slot_rows = semaphore->row.in_service = (uint32_t)row->capacity;
    }
    return semaphore;
}

void database_add_template(const char *prefix)
{
    struct db_template *template = &database.templates[database.template_count++];
    template->prefix = bytes_of(prefix);
    list_init(&template->lock.waiting.fibers);
}

struct db_template *database_template_for(struct bytes name)
{
    struct db_template *longest = NULL;
    for (size_t i = 0; i < database.template_count; i++) {
        struct db_template *template = &database.templates[i];
        if (template->row.exists && bytes_begin_with(name, template->prefix) &&
            (!longest || template->prefix.length > longest->prefix.length))
            longest = template;
    }
    return longest;
}

size_t database_count_semaphores(void)
{
    size_t count = 0;
    for (size_t i = 0; i < database.semaphore_count; i++)
        count += database.semaphores[i].row.exists;
    return count;
}

uint64_t database_count_slots(void)
{
    uint64_t count = 0;
    for (size_t i = 0; i < database.semaphore_count; i++)
        count += database.semaphores[i].row.exists ? database.semaphores[i].row.slot_rows : 0;
    return count;
}

struct bytes label_text(uint8_t label)
{
    static char texts[SLOTS_MAX + 1][4];
    if (label == 0 || label > SLOTS_MAX)
        return (struct bytes){0};
    snprintf(texts[label], sizeof texts[label], "S%u", label % 100U);
    return bytes_of(texts[label]);
}

struct bytes slot_label(const struct db_semaphore_row *row, uint32_t number)
{
    return number <= SLOTS_MAX ? label_text(row->labels[number]) : (struct bytes){0};
}

struct seat slot_seat(const struct db_semaphore_row *row, uint32_t number)
{
    const struct db_seat *seat = &row->seats[number];
    return (struct seat){.number = number,
                         .position = seat->position,
                         .rank = seat->rank ? seat->rank - 1 : SEAT_RANK_NONE,
                         .section = {seat->section, strnlen(seat->section, sizeof seat->section)},
                         .row = {seat->row, strnlen(seat->row, sizeof seat->row)},
                         .tags = {seat->tags, strnlen(seat->tags, sizeof seat->tags)}};
}

/* The number of a label in a plan's result; 0: none. */
static uint8_t label_number(struct bytes text)
{
    unsigned number = 0;
    for (size_t i = 1; i < text.length; i++)
        number = number * 10 + (unsigned)(text.data[i] - '0');
    return (uint8_t)number;
}

/* Semaphores created before the run have the first ids. */
struct db_semaphore *database_semaphore(uint64_t id)
{
    if (id >= 1 && id <= SEMAPHORES_CREATED && database.semaphores[id - 1].row.semaphore.id == id)
        return &database.semaphores[id - 1];
    for (size_t i = 0; i < database.semaphore_count; i++)
        if (database.semaphores[i].row.exists && database.semaphores[i].row.semaphore.id == id)
            return &database.semaphores[i];
    return NULL;
}

struct db_semaphore *database_semaphore_named(struct bytes name)
{
    for (size_t i = 0; i < database.semaphore_count; i++)
        if (bytes_equal(database.semaphores[i].row.semaphore.name, name))
            return &database.semaphores[i];
    return NULL;
}

struct db_key *database_key(struct bytes external_id)
{
    uint64_t hash = map_hash(external_id);
    struct db_key **bucket = &buckets[hash % BUCKETS];
    for (struct db_key *key = *bucket; key; key = key->next)
        if (key->hash == hash && bytes_equal(key->external_id, external_id))
            return key;
    struct db_key *key = calloc(1, sizeof *key);
    if (!key || external_id.length >= KEY_SIZE)
        abort();
    memcpy(key->text, external_id.data, external_id.length);
    key->external_id = (struct bytes){key->text, external_id.length};
    key->hash = hash;
    list_init(&key->lock.waiting.fibers);
    key->next = *bucket;
    return *bucket = key;
}

/* Updates a list of keys after a change of the row. `at` is the key's index in it plus 1; 0: it is not in it. */
static void update_list(struct db_key *key, bool listed, struct db_key ***list, size_t *count, size_t *room,
                        size_t offset)
{
    size_t *at = (size_t *)((char *)key + offset);
    if (listed == (*at > 0))
        return;
    if (listed) {
        if (*count == *room) {
            *room = *room ? 2 * *room : 64;
            *list = realloc(*list, *room * sizeof(struct db_key *));
            if (!*list)
                abort();
        }
        (*list)[(*count)++] = key;
        *at = *count;
        return;
    }
    struct db_key *last = (*list)[--*count];
    (*list)[*at - 1] = last;
    *(size_t *)((char *)last + offset) = *at;
    *at = 0;
}

static void update_lists(struct db_key *key)
{
    update_list(key, row_is_held(&key->row), &database.held, &database.held_count, &database.held_room,
                offsetof(struct db_key, held_at));
    update_list(key, row_is_waiting(&key->row) || key->row.place_count > 0, &database.waiting, &database.waiting_count,
                &database.waiting_room, offsetof(struct db_key, waiting_at));
}

struct db_key *database_waiting(uint64_t request_id)
{
    for (size_t i = 0; i < database.waiting_count; i++)
        if (row_is_waiting(&database.waiting[i]->row) && database.waiting[i]->row.request.id == request_id)
            return database.waiting[i];
    return NULL;
}

int compare_places(const struct request *a, const struct request *b)
{
    int order = (a->place > b->place) - (a->place < b->place);
    return order ? order : (a->id > b->id) - (a->id < b->id);
}

void row_decode_wants(struct request *request, struct arena *arena)
{
    bool counted = allocations_count(false); /* the memory of the database */
    request->wanted = arena_copy(arena, request->wanted);
    enum permit_status status =
        wants_decode(request->wanted, arena, &request->ttl, &request->wants, &request->want_count);
    allocations_count(counted);
    if (status != PERMIT_OK)
        violation("P20", "what %.*s wants cannot be read", (int)request->external_id.length, request->external_id.data);
}

/* ---- locks ---- */

static bool would_deadlock(const struct transaction *transaction, const struct row_lock *lock)
{
    while (lock && lock->holder && lock->holder != transaction)
        lock = lock->holder->waits_for;
    return lock && lock->holder == transaction;
}

static enum permit_status take_lock(struct transaction *transaction, struct row_lock *lock)
{
    mono_us until = sim_now() + LOCK_WAIT_US;
    uint64_t start = database.start;
    while (lock->holder) {
        if (would_deadlock(transaction, lock)) {
            database.deadlocks++;
            return PERMIT_CONFLICT;
        }
        transaction->waits_for = lock;
        bool woken = fiber_wait(&lock->waiting, until);
        if (database.start != start || transaction->state == TRANSACTION_ENDED)
            return PERMIT_DATABASE_LOST;
        transaction->waits_for = NULL;
        if (!woken)
            return PERMIT_LOCK_TIMEOUT;
    }
    lock->holder = transaction;
    return PERMIT_OK;
}

static void unlock_row(struct row_lock *lock)
{
    lock->holder = NULL;
    (void)fiber_wake_one(&lock->waiting);
}

struct transaction *transaction_begin(void)
{
    static uint64_t number;
    struct transaction *transaction = calloc(1, sizeof *transaction);
    if (!transaction)
        abort();
    transaction->number = ++number;
    transaction->process = process_current();
    transaction->began_at = sim_now();
    list_append(&database.open, &transaction->node);
    return transaction;
}

enum permit_status transaction_lock_semaphore(struct transaction *transaction, struct db_semaphore *semaphore)
{
    if (semaphore->lock.holder == transaction)
        return PERMIT_OK;
    enum permit_status status = take_lock(transaction, &semaphore->lock);
    if (status == PERMIT_OK)
        transaction->semaphores[transaction->semaphore_count++] = semaphore;
    return status;
}

enum permit_status transaction_lock_named(struct transaction *transaction, struct db_semaphore *semaphore)
{
    if (!semaphore->row.exists && !semaphore->lock.holder)
        return PERMIT_OK;
    return transaction_lock_semaphore(transaction, semaphore);
}

static enum permit_status take_template(struct transaction *transaction, struct db_template *template)
{
    if (template->lock.holder == transaction)
        return PERMIT_OK;
    enum permit_status status = take_lock(transaction, &template->lock);
    if (status == PERMIT_OK)
        transaction->locked_template = template;
    return status;
}

enum permit_status transaction_lock_template(struct transaction *transaction, struct db_template *template)
{
    return template->row.exists || template->lock.holder ? take_template(transaction, template) : PERMIT_OK;
}

enum permit_status transaction_lock_key(struct transaction *transaction, struct db_key *key)
{
    if (key->lock.holder == transaction)
        return PERMIT_OK;
    enum permit_status status = take_lock(transaction, &key->lock);
    if (status != PERMIT_OK)
        return status;
    if (transaction->key_count == transaction->key_room) {
        transaction->key_room = transaction->key_room ? 2 * transaction->key_room : 8;
        transaction->keys = realloc(transaction->keys, transaction->key_room * sizeof(struct db_key *));
        if (!transaction->keys)
            abort();
    }
    transaction->keys[transaction->key_count++] = key;
    return PERMIT_OK;
}

bool transaction_try_lock_key(struct transaction *transaction, struct db_key *key)
{
    bool free = !key->lock.holder || key->lock.holder == transaction;
    return free && transaction_lock_key(transaction, key) == PERMIT_OK;
}

static void end(struct transaction *transaction)
{
    transaction->state = TRANSACTION_ENDED;
    list_remove(&transaction->node);
    for (size_t i = 0; i < transaction->semaphore_count; i++)
        if (transaction->semaphores[i]->lock.holder == transaction)
            unlock_row(&transaction->semaphores[i]->lock);
    for (size_t i = 0; i < transaction->key_count; i++)
        unlock_row(&transaction->keys[i]->lock);
    transaction->semaphore_count = transaction->key_count = 0;
    if (transaction->locked_template)
        unlock_row(&transaction->locked_template->lock);
    transaction->locked_template = NULL;
    if (transaction->locked_feed)
        unlock_row(&database.feed_head);
    transaction->locked_feed = false;
    if (transaction->waits_for)
        fiber_wake_all(&transaction->waits_for->waiting); /* the fiber that runs it, if any, is one of them */
    transaction->waits_for = NULL;
    transaction->changes = NULL;
    transaction->template = NULL;
}

void transaction_rollback(struct transaction *transaction)
{
    if (transaction && transaction->state == TRANSACTION_OPEN)
        end(transaction);
}

void transaction_free(struct transaction *transaction)
{
    if (!transaction)
        return;
    transaction_rollback(transaction);
    free(transaction->events);
    free(transaction->numbered);
    free(transaction->keys);
    free(transaction);
}

/* ---- statements ---- */

/* Version and locks exclude a change since the row was read, also of columns that no guard names. */
static bool is_as_read(const struct request_change *change, const struct request_row *row)
{
    const struct request *before = change->before;
    return row->request.state == before->state &&
           (before->state == REQUEST_RELEASED ||
            (row->request.id == before->id && row->request.server_id == before->server_id &&
             row->request.due_at == before->due_at && row->request.waiting_until == before->waiting_until));
}

/*
 * The guards of an UPDATE or DELETE: a request that is no longer in the state it was read in raises an error. An ended
 * request may be deleted meanwhile.
 */
static bool request_guard_holds(const struct request_change *change, const struct request_row *row)
{
    if (!row->exists)
        return false;
    if (!is_as_read(change, row) || row->request.errand != change->before->errand)
        return false;
    if (change->remove || change->grants)
        return row->request.state == REQUEST_WAITING && row->request.permit_count == 0;
    for (size_t i = 0; change->ends && i < change->request->permit_count; i++)
        if (row->permit_states[i] != REQUEST_ACQUIRED)
            return false;
    return true;
}

static size_t find_token(const struct request_row *row, const struct permit *permit)
{
    size_t i = 0;
    while (i < row->request.permit_count &&
           (row->permits[i].semaphore_id != permit->semaphore_id || row->permits[i].token != permit->token))
        i++;
    return i;
}

/* The permits that an exchange deletes are there; none that it inserts is, beside these. */
static bool permits_hold(const struct request_change *change, const struct request_row *row)
{
    for (size_t i = 0; change->exchanges && i < change->before->permit_count; i++)
        if (change_deletes(change, &change->before->permits[i]) &&
            find_token(row, &change->before->permits[i]) == row->request.permit_count)
            return false;
    for (size_t i = 0; change->exchanges && i < change->request->permit_count; i++) {
        const struct permit *permit = &change->request->permits[i];
        size_t at = find_token(row, permit);
        if (change_inserts(change, permit) && at < row->request.permit_count &&
            !change_deletes(change, &row->permits[at]))
            return false;
    }
    return true;
}

static size_t find_place(const struct request_row *row, const struct place_change *change)
{
    size_t i = 0;
    while (i < row->place_count &&
           (row->places[i].semaphore_id != change->semaphore_id || row->places[i].request_id != change->request_id ||
            row->places[i].place != change->place))
        i++;
    return i;
}

/* DELETE counts its rows. */
static bool deleted_places_exist(const struct changes *changes)
{
    for (size_t i = 0; i < changes->place_count; i++) {
        const struct place_change *change = &changes->places[i];
        const struct db_key *key = change->remove ? database_waiting(change->request_id) : NULL;
        if (change->remove && (!key || find_place(&key->row, change) == key->row.place_count))
            return false;
    }
    return true;
}

/*
 * An UPDATE that labels other rows than it names raises an error. So does a duplicate label, which no plan may produce.
 */
static bool labels_hold(const struct changes *changes)
{
    const struct semaphore_image *image = changes->semaphores;
    const struct db_semaphore *semaphore = database_semaphore_named(image->semaphore->name);
    uint32_t rows = image->slots_to > semaphore->row.slot_rows ? image->slots_to : semaphore->row.slot_rows;
    uint8_t labels[SLOTS_MAX + 1];
    bool seen[SLOTS_MAX + 1] = {false};
    memcpy(labels, semaphore->row.labels, sizeof labels);
    for (size_t i = 0; i < changes->label_count; i++) {
        if (changes->labels[i].number == 0 || changes->labels[i].number > rows)
            return false;
        labels[changes->labels[i].number] = label_number(changes->labels[i].label);
    }
    for (uint32_t number = 1; number <= rows; number++) {
        if (labels[number] && seen[labels[number]])
            violation("P10", "two slots of %s are to be called S%u", semaphore->name, labels[number]);
        seen[labels[number]] = true;
    }
    return true;
}

/* The compare-and-set, which refuses units above the capacity that were not there before. */
static bool semaphore_guard_holds(const struct semaphore_image *image, const struct semaphore *row)
{
    int64_t capacity = image->settings ? image->semaphore->capacity : row->capacity;
    return row->version == image->expected_version &&
           (image->semaphore->in_use <= row->in_use || image->semaphore->in_use <= capacity);
}

/* A slot replaces what it names: another one that is held raises an error. */
static bool slots_hold(const struct changes *changes)
{
    for (size_t i = 0; i < changes->slot_count; i++) {
        const struct slot_change *change = &changes->slots[i];
        const struct db_semaphore_row *row = &database_semaphore(change->semaphore_id)->row;
        bool twice = i > 0 && change[-1].semaphore_id == change->semaphore_id && change[-1].number == change->number;
        if (twice || change->number == 0 || change->number > row->slot_rows ||
            row->slots[change->number] == change->token || row->slots[change->number] != change->replaced)
            return false;
    }
    return true;
}

/* As sql/0018_guards.sql. */
static bool row_is_valid(const struct request *request)
{
    bool confirmed = request->confirmed_at != NEVER;
    if (request->errand && (request->state != REQUEST_ACQUIRED || ((request->errand & ERRAND_CONFIRM) && !confirmed)))
        return false;
    for (size_t i = 0; i < request->permit_count; i++)
        if (request->permits[i].count <= 0)
            return false;
    return !confirmed || request->state == REQUEST_ACQUIRED ||
           (request->state == REQUEST_RELEASED && request->ended_at != NEVER);
}

static bool guards_hold(const struct changes *changes)
{
    for (size_t i = 0; i < changes->semaphore_count; i++) {
        const struct semaphore_image *image = &changes->semaphores[i];
        const struct db_semaphore *semaphore = database_semaphore(image->semaphore->id);
        if (image->changed && !image->insert && !semaphore_guard_holds(image, &semaphore->row.semaphore))
            return false;
    }
    for (size_t i = 0; i < changes->request_count; i++) {
        const struct request_change *change = &changes->requests[i];
        if (!change->remove && !row_is_valid(change->request))
            return false;
        const struct request_row *row = &database_key(change->request->external_id)->row;
        if (!change->insert && (!request_guard_holds(change, row) || !permits_hold(change, row)))
            return false;
    }
    return slots_hold(changes) && deleted_places_exist(changes) && (changes->label_count == 0 || labels_hold(changes));
}

/* True if the row of the key is deleted before it is inserted anew. */
static bool removes(const struct changes *changes, const struct db_key *key)
{
    for (size_t i = 0; i < changes->request_count; i++)
        if (changes->requests[i].remove && bytes_equal(changes->requests[i].request->external_id, key->external_id))
            return true;
    return false;
}

/* The unique index on names: the second insert waits, and then finds the first. The same for an id. */
static enum permit_status insert_names(struct transaction *transaction, const struct changes *changes)
{
    for (size_t i = 0; i < changes->semaphore_count; i++) {
        if (!changes->semaphores[i].insert || !changes->semaphores[i].changed)
            continue;
        struct db_semaphore *semaphore = database_semaphore_named(changes->semaphores[i].semaphore->name);
        enum permit_status status = transaction_lock_semaphore(transaction, semaphore);
        if (status != PERMIT_OK)
            return status;
        if (semaphore->row.exists || database_semaphore(changes->semaphores[i].semaphore->id)) {
            database.duplicates++;
            return PERMIT_CONFLICT;
        }
    }
    return PERMIT_OK;
}

enum permit_status transaction_write_template(struct transaction *transaction, struct db_template *template,
                                              const struct template_row *row, bool inserts)
{
    enum permit_status status = take_template(transaction, template);
    if (status != PERMIT_OK)
        return status;
    if (inserts && template->row.exists) {
        database.duplicates++;
        return PERMIT_CONFLICT;
    }
    transaction->template = template;
    transaction->template_row = *row;
    return PERMIT_OK;
}

/* ---- the feed ---- */

enum permit_status transaction_lock_feed(struct transaction *transaction)
{
    enum permit_status status = take_lock(transaction, &database.feed_head);
    transaction->locked_feed = status == PERMIT_OK;
    return status;
}

struct db_event *database_event(uint64_t id)
{
    struct db_event *event = &database.events[id % EVENTS_MAX];
    return event->exists && event->id == id ? event : NULL;
}

static void copy_permits(const struct feed_event *from, struct db_event *event)
{
    struct buf permits;
    buf_init(&permits, EVENT_PERMITS_SIZE);
    feed_permits_format(from->permits, from->permit_count, &permits);
    if (permits.broken)
        violation("P26", "the permits of an event are too long");
    memcpy(event->permits, permits.data, permits.length);
    event->permits_length = permits.length;
    buf_release(&permits);
    for (size_t i = 0; i < from->permit_count; i++) {
        const struct db_semaphore *semaphore = database_semaphore_named(from->permits[i].semaphore);
        event->semaphores |= 1U << (semaphore - database.semaphores);
    }
}

static void write_metadata(struct db_metadata *metadata, struct bytes text)
{
    if (!text.data)
        return;
    assert(text.length <= sizeof metadata->text);
    metadata->length = text.length;
    memcpy(metadata->text, text.data, text.length);
}

/* Takes the metadata that the batch writes for the request, or else that of its row. */
static void read_metadata(const struct changes *changes, const struct feed_event *from, struct db_event *event)
{
    const struct request_row *row = &event->key->row;
    if (from->metadata_of && row->exists && row->request.id == from->metadata_of)
        event->metadata = row->metadata;
    for (size_t i = 0; i < changes->request_count; i++)
        if (changes->requests[i].request->id == from->metadata_of && !changes->requests[i].remove)
            write_metadata(&event->metadata, changes->requests[i].request->metadata);
}

/* Gives the events of a batch their ids, after all other writes. A rollback does not take ids back. */
static void prepare_events(struct transaction *transaction, const struct changes *changes)
{
    free(transaction->events);
    transaction->events = calloc(changes->feed_count + 1, sizeof *transaction->events);
    if (!transaction->events)
        abort();
    transaction->event_count = changes->feed_count;
    for (size_t i = 0; i < changes->feed_count; i++) {
        const struct feed_event *from = &changes->feed[i];
        struct db_event *event = &transaction->events[i];
        *event = (struct db_event){.exists = true,
                                   .id = ++database.next_event_id,
                                   .at = changes->wall_now,
                                   .what = from->what,
                                   .end_reason = from->end_reason,
                                   .key = database_key(from->external_id)};
        copy_permits(from, event);
        read_metadata(changes, from, event);
    }
}

static void insert_event(const struct db_event *event)
{
    struct db_event *row = &database.events[event->id % EVENTS_MAX];
    if (row->exists)
        violation("P26", "%u events are stored: none is deleted any more", EVENTS_MAX);
    journal_row(UNDO_EVENT, row);
    *row = *event;
    row->lsn = database.lsn;
    if (!database.first_event_id || row->id < database.first_event_id)
        database.first_event_id = row->id;
}

static void write_numbers(const struct transaction *transaction)
{
    journal_row(UNDO_GLOBALS, NULL);
    for (size_t i = 0; i < transaction->numbered_count; i++) {
        struct db_event *event = database_event(transaction->numbered[i]);
        if (!event)
            continue;
        journal_row(UNDO_EVENT, event);
        event->seq = ++database.globals.feed_seq;
    }
}

bool database_omits_events(void)
{
    list_for_each (node, next, &database.open)
        if (LIST_ENTRY(node, struct transaction, node)->omits)
            return true;
    return false;
}

uint64_t database_commit_feed(const struct globals *globals, uint64_t first, bool gap)
{
    database.lsn++;
    database.commits++;
    journal_row(UNDO_GLOBALS, NULL);
    database.globals = *globals;
    for (uint64_t id = database.first_event_id; id && id <= database.next_event_id; id++) {
        struct db_event *event = database_event(id);
        if (!event || !event->seq || event->seq >= first)
            continue;
        journal_row(UNDO_EVENT, event);
        event->exists = false;
    }
    if (gap)
        insert_event(&(struct db_event){
            .exists = true, .judged = true, .id = ++database.next_event_id, .at = database_now(), .what = FEED_GAP});
    feed_trimmed();
    trim_journal();
    return database.lsn;
}

uint64_t database_commit_durable(uint64_t seq)
{
    database.lsn++;
    database.commits++;
    journal_row(UNDO_GLOBALS, NULL);
    if (seq > database.globals.feed_durable)
        database.globals.feed_durable = seq;
    feed_shown();
    trim_journal();
    return database.lsn;
}

enum permit_status transaction_write(struct transaction *transaction, const struct changes *changes)
{
    enum permit_status made = insert_names(transaction, changes);
    if (made != PERMIT_OK)
        return made;
    transaction->changes = changes;
    for (size_t i = 0; i < changes->request_count; i++) {
        const struct request_change *change = &changes->requests[i];
        struct db_key *key = database_key(change->request->external_id);
        if (!change->insert && key->lock.holder && key->lock.holder != transaction && !run_is_contract())
            violation("P23", "a batch waits for the row of %s, and has locked its semaphores", key->text);
        enum permit_status status = transaction_lock_key(transaction, key);
        if (status != PERMIT_OK)
            return status;
        if (change->insert && key->row.exists && !removes(changes, key)) {
            database.duplicates++;
            return PERMIT_CONFLICT;
        }
    }
    if (!guards_hold(changes))
        return PERMIT_INTERNAL;
    prepare_events(transaction, changes);
    return PERMIT_OK;
}

/* Writes the columns that an operator changes, and the slot rows. */
static void write_settings(struct db_semaphore *semaphore, const struct semaphore_image *image)
{
    struct semaphore *row = &semaphore->row.semaphore;
    struct semaphore was = *row;
    *row = *image->semaphore;
    row->name = bytes_of(semaphore->name);
    row->note = (struct bytes){0};
    if (!image->insert) {
        row->id = was.id;
        row->kind = was.kind;
        row->version = was.version;
        row->waiting = was.waiting;
    }
    if (row->paused_reason.data)
        row->paused_reason = BYTES("paused");
    if (image->drop_labels) {
        memset(semaphore->row.labels, 0, sizeof semaphore->row.labels);
        memset(semaphore->row.seats, 0, sizeof semaphore->row.seats);
    }
    if (image->slots_to > semaphore->row.slot_rows)
        semaphore->row.slot_rows = image->slots_to;
    if (image->slots_to > semaphore->row.in_service)
        semaphore->row.in_service = image->slots_to;
    if (image->retire_from && image->retire_from <= semaphore->row.in_service)
        semaphore->row.in_service = image->retire_from - 1;
}

/* True if the batch changes a request that waits: otherwise no statement writes `waiting`. */
static bool changes_queues(const struct changes *changes)
{
    bool any = changes->place_count > 0;
    for (size_t i = 0; i < changes->request_count; i++)
        any |= changes->requests[i].request->state == REQUEST_WAITING ||
               (changes->requests[i].before && changes->requests[i].before->state == REQUEST_WAITING);
    return any;
}

static void write_semaphore(const struct semaphore_image *image, bool queue)
{
    struct db_semaphore *semaphore =
        image->insert ? database_semaphore_named(image->semaphore->name) : database_semaphore(image->semaphore->id);
    struct semaphore *row = &semaphore->row.semaphore;
    journal_row(UNDO_SEMAPHORE, semaphore);
    if (image->insert) {
        semaphore->row = (struct db_semaphore_row){.exists = true};
        if (image->semaphore->id > database.globals.last_id)
            database.globals.last_id = image->semaphore->id;
    } else {
        row->version++;
    }
    row->in_use = image->semaphore->in_use;
    row->confirmed = image->semaphore->confirmed;
    if (queue || image->insert)
        row->waiting = image->semaphore->waiting;
    row->next_token = image->semaphore->next_token;
    row->next_due_at = image->semaphore->next_due_at;
    row->first_free = image->semaphore->first_free;
    if (image->settings)
        write_settings(semaphore, image);
}

static void write_permit(struct request_row *row, size_t at, const struct permit *permit, enum request_state state)
{
    if (at >= HELD_PERMITS_MAX || permit->slots.count > HELD_SLOTS_MAX)
        violation("P2", "a request holds %zu permits, and %u slots", at + 1, permit->slots.count);
    row->permits[at] = *permit;
    row->permit_states[at] = state;
    memset(row->labels[at], 0, sizeof row->labels[at]);
    for (uint32_t j = 0; j < permit->slots.count; j++)
        row->numbers[at][j] = permit->slots.numbers[j];
    for (uint32_t j = 0; permit->labels && j < permit->slots.count; j++)
        row->labels[at][j] = label_number(permit->labels[j]);
    row->permits[at].slots.numbers = row->numbers[at];
    row->permits[at].labels = NULL; /* stored in `labels` */
}

static void write_permits(struct request_row *row, const struct request *request)
{
    row->request.permits = row->permits;
    row->request.permit_count = request->permit_count;
    for (size_t i = 0; i < request->permit_count; i++)
        write_permit(row, i, &request->permits[i], request->state);
}

/* The permits that the exchange does not delete stay where they are; those that it inserts come after them. */
static void exchange_permits(struct request_row *row, const struct request_change *change)
{
    size_t count = 0;
    for (size_t i = 0; i < row->request.permit_count; i++) {
        if (change_deletes(change, &row->permits[i]))
            continue;
        row->permits[count] = row->permits[i];
        memcpy(row->numbers[count], row->numbers[i], sizeof row->numbers[i]);
        memcpy(row->labels[count], row->labels[i], sizeof row->labels[i]);
        row->permits[count].slots.numbers = row->numbers[count];
        row->permit_states[count++] = row->permit_states[i];
    }
    for (size_t i = 0; i < change->request->permit_count; i++)
        if (change_inserts(change, &change->request->permits[i]))
            write_permit(row, count++, &change->request->permits[i], change->request->state);
    row->request.permit_count = count;
}

/* Copies the texts of the image, which do not outlive its batch. */
static void write_texts(struct request_row *row, const struct request *request)
{
    if (request->wanted.length > WANTED_MAX)
        violation("P20", "a request wants %zu bytes", request->wanted.length);
    row->request.nonce = (struct bytes){row->nonce, request->nonce.length};
    if (request->nonce.length)
        memmove(row->nonce, request->nonce.data, request->nonce.length);
    row->request.change_nonce = (struct bytes){row->change_nonce, request->change_nonce.length};
    if (request->change_nonce.length)
        memmove(row->change_nonce, request->change_nonce.data, request->change_nonce.length);
    row->request.wanted = (struct bytes){0};
    if (request->state == REQUEST_WAITING && request->wanted.data) {
        row->request.wanted = (struct bytes){row->wanted, request->wanted.length};
        memmove(row->wanted, request->wanted.data, request->wanted.length);
    }
}

static utc_us time_or_never(utc_us time)
{
    return time ? time : NEVER;
}

/* NULL in the columns of a request that has never waited. */
static void write_place_times(struct request *row, const struct request *request)
{
    row->place = time_or_never(request->place);
    row->waiting_since = time_or_never(request->waiting_since);
    row->waiting_until = time_or_never(request->waiting_until);
}

static void insert_request(struct db_key *key, const struct request *request)
{
    struct request_row *row = &key->row;
    memset(row, 0, sizeof *row);
    row->exists = true;
    row->request = *request;
    row->request.external_id = key->external_id;
    row->request.owner = row->request.principal = (struct bytes){key->text, 0};
    row->request.wants = NULL;
    row->request.want_count = 0;
    write_place_times(&row->request, request);
    write_texts(row, request);
    write_metadata(&row->metadata, request->metadata);
    row->request.metadata = (struct bytes){0};
    write_permits(row, request);
    if (request->id > database.globals.last_id)
        database.globals.last_id = request->id; /* as an index it is not undone, which only makes it larger */
}

/* Writes the columns that differ from the row as read, and adds to the counters. */
static void update_request(struct db_key *key, const struct request_change *change)
{
    struct request *row = &key->row.request;
    const struct request *after = change->request;
    const struct request *before = change->before;
    if (!key->row.exists)
        return;
    row->state = after->state;
    row->end_reason = after->end_reason != before->end_reason ? after->end_reason : row->end_reason;
    row->ttl_ms = after->ttl_ms != before->ttl_ms ? after->ttl_ms : row->ttl_ms;
    row->due_at = after->due_at != before->due_at ? after->due_at : row->due_at;
    row->confirmed_at = after->confirmed_at != before->confirmed_at ? after->confirmed_at : row->confirmed_at;
    row->renewals += after->renewals - before->renewals;
    row->replays += after->replays - before->replays;
    row->ended_at = after->ended_at != before->ended_at ? after->ended_at : row->ended_at;
    row->server_id = after->server_id != before->server_id ? after->server_id : row->server_id;
    row->errand = after->errand;
    row->changes = after->changes;
    row->has_metadata = after->has_metadata;
    write_metadata(&key->row.metadata, after->metadata);
    if (before->state == REQUEST_WAITING) {
        row->priority = after->priority;
        write_place_times(row, after);
        row->acquired_at = after->acquired_at;
        row->grace_ms = after->grace_ms;
        row->has_digest = after->has_digest;
        memcpy(row->digest, after->digest, DIGEST_SIZE);
    }
    write_texts(&key->row, after);
    if (change->grants)
        write_permits(&key->row, after);
    if (change->exchanges)
        exchange_permits(&key->row, change);
    for (size_t i = 0; change->ends && i < row->permit_count; i++)
        key->row.permit_states[i] = REQUEST_RELEASED;
}

/* Records the row before the first change of this commit. */
static void touch_key(struct db_key *key)
{
    for (struct list *node = journal.prev; node != &journal; node = node->prev) {
        const struct undo *undo = LIST_ENTRY(node, struct undo, node);
        if (undo->lsn != database.lsn)
            break;
        if (undo->object == key)
            return;
    }
    journal_row(UNDO_KEY, key);
}

static void write_request(const struct request_change *change)
{
    struct db_key *key = database_key(change->request->external_id);
    touch_key(key);
    if (change->insert)
        insert_request(key, change->request);
    else
        update_request(key, change);
    update_lists(key);
}

static void remove_request(const struct request_change *change)
{
    struct db_key *key = database_key(change->request->external_id);
    touch_key(key);
    if (key->row.place_count > 0)
        violation("P20", "the row of %s is deleted, its places are not", key->text);
    memset(&key->row, 0, sizeof key->row);
    update_lists(key);
}

static void delete_place(const struct place_change *change)
{
    struct db_key *key = database_waiting(change->request_id);
    struct request_row *row = &key->row;
    touch_key(key);
    row->places[find_place(row, change)] = row->places[row->place_count - 1];
    row->place_count--;
}

static void insert_place(const struct place_change *change)
{
    struct db_key *key = database_waiting(change->request_id);
    if (!key)
        violation("P20", "a place is written for request %llu, which does not wait",
                  (unsigned long long)change->request_id);
    touch_key(key);
    struct request_row *row = &key->row;
    for (size_t i = 0; i < row->place_count; i++)
        if (row->places[i].semaphore_id == change->semaphore_id)
            violation("P20", "%s gets two places at one semaphore", key->text);
    if (row->place_count == ROW_PERMITS_MAX)
        violation("P20", "%s gets too many places", key->text);
    row->places[row->place_count++] = (struct place_row){.semaphore_id = change->semaphore_id,
                                                         .place = change->place,
                                                         .request_id = change->request_id,
                                                         .count = change->count,
                                                         .watch = change->watch,
                                                         .needs = change->needs};
    if (change->watch && database_semaphore(change->semaphore_id)->row.slots[change->watch] == 0)
        violation("P17", "%s watches slot %u, which is free", key->text, change->watch);
}

/* A waiter watches no slot that is free: nothing would make a batch read it. */
static void clear_watch(const struct slot_change *slot)
{
    for (size_t i = 0; i < database.waiting_count; i++) {
        struct db_key *key = database.waiting[i];
        for (size_t j = 0; j < key->row.place_count; j++) {
            struct place_row *place = &key->row.places[j];
            if (place->semaphore_id != slot->semaphore_id || place->watch != slot->number)
                continue;
            touch_key(key);
            place->watch = 0;
        }
    }
}

static void clear_watches(const struct changes *changes)
{
    for (size_t i = 0; i < changes->slot_count; i++)
        if (changes_clear_watch(changes, &changes->slots[i]))
            clear_watch(&changes->slots[i]);
}

static void write_places(const struct changes *changes, bool removed)
{
    for (size_t i = 0; i < changes->place_count; i++) {
        const struct place_change *change = &changes->places[i];
        if (change->remove != removed)
            continue;
        if (removed)
            delete_place(change);
        else
            insert_place(change);
    }
}

static struct db_mail *find_mail(uint64_t server_id, uint64_t request_id)
{
    for (size_t i = 0; i < MAIL_MAX; i++) {
        struct db_mail *mail = &database.mail[i];
        if (mail->exists && mail->server_id == server_id && mail->request_id == request_id)
            return mail;
    }
    return NULL;
}

static struct db_mail *new_mail(void)
{
    for (size_t i = 0; i < MAIL_MAX; i++)
        if (!database.mail[i].exists)
            return &database.mail[i];
    violation("P17", "there are %d rows of mail, which nobody deletes", MAIL_MAX);
}

static void write_mail_row(struct db_mail *mail, struct db_mail row)
{
    journal_row(UNDO_MAIL, mail);
    *mail = row;
}

/* Mail that is gone already is no failure, and neither is mail that is there already. */
static void write_mail(const struct changes *changes)
{
    for (size_t i = 0; i < changes->mail_count; i++) {
        const struct mail *change = &changes->mail[i];
        struct db_mail *mail = find_mail(change->server_id, change->request_id);
        if (change->remove && mail)
            write_mail_row(mail, (struct db_mail){0});
        else if (!change->remove && !mail)
            write_mail_row(new_mail(), (struct db_mail){true, change->server_id, change->request_id});
    }
}

static void write_slots(const struct changes *changes)
{
    for (size_t i = 0; i < changes->slot_count; i++) {
        const struct slot_change *change = &changes->slots[i];
        database_semaphore(change->semaphore_id)->row.slots[change->number] = change->token;
    }
}

static void write_labels(const struct changes *changes)
{
    for (size_t i = 0; i < changes->label_count; i++) {
        const struct label_change *change = &changes->labels[i];
        database_semaphore(change->semaphore_id)->row.labels[change->number] = label_number(change->label);
    }
}

static void write_text(char *to, size_t size, struct bytes text)
{
    assert(text.length <= size);
    memset(to, 0, size);
    if (text.length)
        memcpy(to, text.data, text.length);
}

void row_set_seat(struct db_semaphore_row *row, const struct seat *seat)
{
    struct db_seat *to = &row->seats[seat->number];
    write_text(to->section, sizeof to->section, seat->section);
    write_text(to->row, sizeof to->row, seat->row);
    write_text(to->tags, sizeof to->tags, seat->tags);
    to->position = seat->position;
    to->rank = seat->rank == SEAT_RANK_NONE ? 0 : seat->rank + 1;
}

static void write_seats(const struct changes *changes)
{
    for (size_t i = 0; i < changes->seat_count; i++)
        row_set_seat(&database_semaphore(changes->seats[i].semaphore_id)->row, &changes->seats[i].seat);
}

/* Shows the changes of this commit to the oracle, after all of them are made. */
static void show_to_oracle(uint64_t lsn)
{
    struct list *first = &journal;
    while (first->prev != &journal && LIST_ENTRY(first->prev, struct undo, node)->lsn == lsn)
        first = first->prev;
    for (int kind = UNDO_KEY; kind <= UNDO_TEMPLATE; kind++)
        for (struct list *node = first; node != &journal; node = node->next) {
            struct undo *undo = LIST_ENTRY(node, struct undo, node);
            if ((int)undo->kind != kind)
                continue;
            if (kind == UNDO_KEY)
                oracle_changed(undo->object, &undo->before.request);
            else if (kind == UNDO_TEMPLATE)
                oracle_template_changed(undo->object);
            else
                oracle_semaphore_changed(undo->object, &undo->before.semaphore);
        }
}

const struct request_row *database_before(const struct db_key *key)
{
    for (struct list *node = journal.prev; node != &journal; node = node->prev) {
        const struct undo *undo = LIST_ENTRY(node, struct undo, node);
        if (undo->lsn != database.lsn)
            break;
        if (undo->object == key)
            return &undo->before.request;
    }
    return NULL;
}

const struct db_semaphore_row *database_semaphore_before(const struct db_semaphore *semaphore)
{
    for (struct list *node = journal.prev; node != &journal; node = node->prev) {
        const struct undo *undo = LIST_ENTRY(node, struct undo, node);
        if (undo->lsn != database.lsn)
            break;
        if (undo->object == semaphore)
            return &undo->before.semaphore;
    }
    return NULL;
}

static void write_changes(const struct changes *changes)
{
    for (size_t i = 0; i < changes->semaphore_count; i++)
        if (changes->semaphores[i].changed)
            write_semaphore(&changes->semaphores[i], changes_queues(changes));
    write_slots(changes);
    write_labels(changes);
    write_seats(changes);
    write_places(changes, true);
    clear_watches(changes);
    for (size_t i = 0; i < changes->request_count; i++)
        if (changes->requests[i].remove)
            remove_request(&changes->requests[i]);
    for (size_t i = 0; i < changes->request_count; i++)
        if (!changes->requests[i].remove)
            write_request(&changes->requests[i]);
    write_places(changes, false);
    write_mail(changes);
}

static void write_template(struct db_template *template, const struct template_row *row)
{
    journal_row(UNDO_TEMPLATE, template);
    template->row = *row;
}

void transaction_commit(struct transaction *transaction)
{
    transaction->lsn = ++database.lsn;
    database.commits++;
    database.committed_at = sim_now();
    if (transaction->template) {
        write_template(transaction->template, &transaction->template_row);
    } else if (transaction->numbers) {
        write_numbers(transaction);
        feed_numbered(transaction);
    } else {
        oracle_commits(transaction);
        write_changes(transaction->changes);
        for (size_t i = 0; i < transaction->event_count; i++)
            insert_event(&transaction->events[i]);
    }
    show_to_oracle(transaction->lsn);
    feed_committed(transaction);
    if (transaction->changes)
        queue_committed(transaction);
    end(transaction);
    trim_journal();
}

uint64_t database_commit_errand(struct transaction *transaction, struct db_key *key, uint32_t errand)
{
    struct request *request = &key->row.request;
    transaction->lsn = ++database.lsn;
    database.commits++;
    journal_row(UNDO_KEY, key);
    if (errand & ERRAND_CONFIRM && request->confirmed_at == NEVER)
        request->confirmed_at = database_now();
    request->errand |= errand;
    key->row.ordered = (errand & ERRAND_CONFIRM) != 0;
    show_to_oracle(transaction->lsn);
    feed_committed(transaction);
    end(transaction);
    trim_journal();
    return database.lsn;
}

uint64_t database_commit_globals(const struct globals *globals)
{
    database.lsn++;
    database.commits++;
    journal_row(UNDO_GLOBALS, NULL);
    if (!database.globals.identity && globals->identity)
        database.served_since = sim_now();
    uint64_t last_id = database.globals.last_id;
    database.globals = *globals;
    database.globals.last_id = last_id;
    trim_journal();
    return database.lsn;
}

struct db_server *database_server(uint64_t id)
{
    for (size_t i = 0; i < SERVERS_MAX; i++)
        if (database.servers[i].row.exists && database.servers[i].row.id == id)
            return &database.servers[i];
    return NULL;
}

struct db_server *database_new_server(void)
{
    for (size_t i = 0; i < SERVERS_MAX; i++)
        if (!database.servers[i].row.exists)
            return &database.servers[i];
    violation("P20", "there are %d rows of permitd, which nobody removes", SERVERS_MAX);
}

uint64_t database_commit_server(struct db_server *server, const struct db_server_row *row)
{
    database.lsn++;
    database.commits++;
    journal_row(UNDO_SERVER, server);
    server->row = *row;
    trim_journal();
    return database.lsn;
}

uint64_t database_drop_mail(uint64_t server_id, const uint64_t *request_ids, size_t count)
{
    database.lsn++;
    database.commits++;
    for (size_t i = 0; i < count; i++)
        if (find_mail(server_id, request_ids[i]))
            write_mail_row(find_mail(server_id, request_ids[i]), (struct db_mail){0});
    for (size_t i = 0; !request_ids && i < MAIL_MAX; i++)
        if (database.mail[i].exists && database.mail[i].server_id == server_id)
            write_mail_row(&database.mail[i], (struct db_mail){0});
    trim_journal();
    return database.lsn;
}

void database_flushed(uint64_t lsn)
{
    if (lsn > database.durable_lsn)
        database.durable_lsn = lsn;
}

/* ---- crashes ---- */

static void end_sessions(void)
{
    database.start++;
    list_for_each (node, next, &database.open)
        transaction_rollback(LIST_ENTRY(node, struct transaction, node));
    for (size_t i = 0; i < database.semaphore_count; i++)
        fiber_wake_all(&database.semaphores[i].lock.waiting);
    for (size_t i = 0; i < database.template_count; i++)
        fiber_wake_all(&database.templates[i].lock.waiting);
    fiber_wake_all(&database.feed_head.waiting);
}

static void undo(struct undo *undo, bool failover)
{
    switch (undo->kind) {
    case UNDO_KEY: {
        struct db_key *key = undo->object;
        struct request_row undone = key->row;
        key->row = undo->before.request;
        update_lists(key);
        oracle_undone(key, &undone, failover);
        break;
    }
    case UNDO_SEMAPHORE:
        ((struct db_semaphore *)undo->object)->row = undo->before.semaphore;
        oracle_semaphore_undone(undo->object);
        break;
    case UNDO_TEMPLATE:
        ((struct db_template *)undo->object)->row = undo->before.template;
        oracle_template_changed(undo->object);
        break;
    case UNDO_SERVER: ((struct db_server *)undo->object)->row = undo->before.server; break;
    case UNDO_MAIL: *(struct db_mail *)undo->object = undo->before.mail; break;
    case UNDO_EVENT: *(struct db_event *)undo->object = undo->before.event; break;
    default: {
        uint64_t last_id = database.globals.last_id;
        database.globals = undo->before.globals;
        database.globals.last_id = last_id;
    }
    }
    database.undone++;
}

/* Newest first. */
static void undo_since(uint64_t lsn, mono_us at, bool failover)
{
    while (!list_empty(&journal)) {
        struct undo *newest = LIST_ENTRY(journal.prev, struct undo, node);
        if (newest->lsn <= lsn && newest->at <= at)
            return;
        undo(newest, failover);
        list_remove(&newest->node);
        list_append(&unused, &newest->node);
    }
}

void database_crash(void)
{
    database.crashes++;
    database.down = true;
    undo_since(database.durable_lsn, NEVER, false);
    database.durable_lsn = database.lsn;
    end_sessions();
    oracle_rows_agree();
    feed_undone(false);
}

void database_start(void)
{
    database.down = false;
}

void database_fail_over(int64_t tail_us, int64_t skew_us)
{
    database.failovers++;
    database.server++;
    database_slew(0);
    database.skew_us = skew_us;
    database.frozen_until = 0;
    undo_since(database.durable_lsn, sim_now() - tail_us, true);
    database.durable_lsn = database.lsn;
    end_sessions();
    oracle_rows_agree();
    feed_undone(true);
}
