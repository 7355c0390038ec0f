/* SPDX-License-Identifier: MIT */
#include "database.h"

#include <stdio.h>

#include "base/map.h"
#include "dice.h"
#include "oracle.h"

enum { BUCKETS = 1 << 16, LOCK_WAIT_US = 2 * US_PER_SECOND };

/* How far a failover may go back. */
#define JOURNAL_US (10LL * US_PER_SECOND)

struct database database;

static struct db_key *buckets[BUCKETS];

/* ---- undo ---- */

enum undo_kind { UNDO_KEY, UNDO_SEMAPHORE, UNDO_TEMPLATE, UNDO_SERVER, UNDO_GLOBALS };

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
    database.server = 1;
    database.start = 1; /* a session that was cut has start 0 */
    database.globals.next_id = database.globals.next_server_id = 1;
    database.globals.clock.tick_at = database_now();
}

utc_us database_now(void)
{
    return SIM_WALL_BASE + sim_now() + database.skew_us;
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
    row->next_permit_id = row->version = row->config_version = 1;
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

/* Updates the list of held keys after a change of the row. */
static void update_held(struct db_key *key)
{
    bool held = row_is_held(&key->row);
    if (held == (key->held_at > 0))
        return;
    if (held) {
        if (database.held_count == database.held_room) {
            database.held_room = database.held_room ? 2 * database.held_room : 64;
            database.held = realloc(database.held, database.held_room * sizeof(struct db_key *));
            if (!database.held)
                abort();
        }
        database.held[database.held_count++] = key;
        key->held_at = database.held_count;
        return;
    }
    struct db_key *last = database.held[--database.held_count];
    database.held[key->held_at - 1] = last;
    last->held_at = key->held_at;
    key->held_at = 0;
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
    free(transaction->keys);
    free(transaction);
}

/* ---- statements ---- */

static bool same_state(const struct request_change *change, const struct request_row *row)
{
    return row->request.state == change->before->state;
}

/*
 * The guards of an UPDATE: a request that is no longer in the state it was read in raises an error. An ended request
 * may be deleted meanwhile.
 */
static bool request_guard_holds(const struct request_change *change, const struct request_row *row)
{
    bool held = change->before->state == REQUEST_ACQUIRED;
    if (!row->exists)
        return !held;
    if (!same_state(change, row))
        return false;
    for (size_t i = 0; change->ends && i < change->request->permit_count; i++)
        if (row->permit_states[i] != REQUEST_ACQUIRED)
            return false;
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

static bool guards_hold(const struct changes *changes)
{
    for (size_t i = 0; i < changes->semaphore_count; i++) {
        const struct semaphore_image *image = &changes->semaphores[i];
        const struct db_semaphore *semaphore = database_semaphore(image->semaphore->id);
        if (image->changed && !image->insert && semaphore->row.semaphore.version != image->expected_version)
            return false;
    }
    for (size_t i = 0; i < changes->request_count; i++) {
        const struct request_change *change = &changes->requests[i];
        if (!change->insert && !request_guard_holds(change, &database_key(change->request->external_id)->row))
            return false;
    }
    for (size_t i = 0; i < changes->slot_count; i++) {
        const struct slot_change *change = &changes->slots[i];
        const struct db_semaphore_row *row = &database_semaphore(change->semaphore_id)->row;
        if (change->number == 0 || change->number > row->slot_rows || row->slots[change->number] == change->permit_id)
            return false;
    }
    return changes->label_count == 0 || labels_hold(changes);
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

enum permit_status transaction_write(struct transaction *transaction, const struct changes *changes)
{
    enum permit_status made = insert_names(transaction, changes);
    if (made != PERMIT_OK)
        return made;
    transaction->changes = changes;
    for (size_t i = 0; i < changes->request_count; i++) {
        const struct request_change *change = &changes->requests[i];
        struct db_key *key = database_key(change->request->external_id);
        enum permit_status status = transaction_lock_key(transaction, key);
        if (status != PERMIT_OK)
            return status;
        if (change->insert && key->row.exists) {
            database.duplicates++;
            return PERMIT_CONFLICT;
        }
    }
    return guards_hold(changes) ? PERMIT_OK : PERMIT_INTERNAL;
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
    }
    if (row->paused_reason.data)
        row->paused_reason = BYTES("paused");
    if (image->drop_labels)
        memset(semaphore->row.labels, 0, sizeof semaphore->row.labels);
    if (image->slots_to > semaphore->row.slot_rows)
        semaphore->row.slot_rows = image->slots_to;
    if (image->slots_to > semaphore->row.in_service)
        semaphore->row.in_service = image->slots_to;
    if (image->retire_from && image->retire_from <= semaphore->row.in_service)
        semaphore->row.in_service = image->retire_from - 1;
}

static void write_semaphore(const struct semaphore_image *image)
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
    row->next_permit_id = image->semaphore->next_permit_id;
    row->next_due_at = image->semaphore->next_due_at;
    row->first_free = image->semaphore->first_free;
    if (image->settings)
        write_settings(semaphore, image);
}

static void insert_request(struct db_key *key, const struct request *request)
{
    struct request_row *row = &key->row;
    memset(row, 0, sizeof *row);
    row->exists = true;
    row->request = *request;
    row->request.external_id = key->external_id;
    row->request.owner = row->request.principal = (struct bytes){key->text, 0};
    memcpy(row->nonce, request->nonce.data, request->nonce.length);
    row->request.nonce = (struct bytes){row->nonce, request->nonce.length};
    row->request.permits = row->permits;
    for (size_t i = 0; i < request->permit_count; i++) {
        row->permits[i] = request->permits[i];
        row->permit_states[i] = request->state;
        for (uint32_t j = 0; j < request->permits[i].slots.count; j++)
            row->numbers[i][j] = request->permits[i].slots.numbers[j];
        for (uint32_t j = 0; request->permits[i].labels && j < request->permits[i].slots.count; j++)
            row->labels[i][j] = label_number(request->permits[i].labels[j]);
        row->permits[i].slots.numbers = row->numbers[i];
        row->permits[i].labels = NULL; /* stored in `labels` */
    }
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
    for (size_t i = 0; change->ends && i < row->permit_count; i++)
        key->row.permit_states[i] = REQUEST_RELEASED;
}

static void write_request(const struct request_change *change)
{
    struct db_key *key = database_key(change->request->external_id);
    journal_row(UNDO_KEY, key);
    if (change->insert)
        insert_request(key, change->request);
    else
        update_request(key, change);
    update_held(key);
}

static void write_slots(const struct changes *changes)
{
    for (size_t i = 0; i < changes->slot_count; i++) {
        const struct slot_change *change = &changes->slots[i];
        database_semaphore(change->semaphore_id)->row.slots[change->number] = change->permit_id;
    }
}

static void write_labels(const struct changes *changes)
{
    for (size_t i = 0; i < changes->label_count; i++) {
        const struct label_change *change = &changes->labels[i];
        database_semaphore(change->semaphore_id)->row.labels[change->number] = label_number(change->label);
    }
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

static void write_changes(const struct changes *changes)
{
    for (size_t i = 0; i < changes->semaphore_count; i++)
        if (changes->semaphores[i].changed)
            write_semaphore(&changes->semaphores[i]);
    write_slots(changes);
    write_labels(changes);
    for (size_t i = 0; i < changes->request_count; i++)
        write_request(&changes->requests[i]);
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
    if (transaction->template) {
        write_template(transaction->template, &transaction->template_row);
    } else {
        oracle_commits(transaction);
        write_changes(transaction->changes);
    }
    show_to_oracle(transaction->lsn);
    end(transaction);
    trim_journal();
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
}

static void undo(struct undo *undo, bool failover)
{
    switch (undo->kind) {
    case UNDO_KEY: {
        struct db_key *key = undo->object;
        struct request_row undone = key->row;
        key->row = undo->before.request;
        update_held(key);
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
}

void database_start(void)
{
    database.down = false;
}

void database_fail_over(int64_t tail_us, int64_t skew_us)
{
    database.failovers++;
    database.server++;
    database.skew_us = skew_us;
    undo_since(database.durable_lsn, sim_now() - tail_us, true);
    database.durable_lsn = database.lsn;
    end_sessions();
    oracle_rows_agree();
}
