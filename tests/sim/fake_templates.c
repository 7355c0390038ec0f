/* SPDX-License-Identifier: MIT */
/* Templates on the database in memory, call by call as src/store/templates.c in SQL. */
#include "fake_templates.h"

#include "fake_session.h"
#include "oracle.h"

enum { TRIES = 3 }; /* of a transaction that met another one */

/* ---- one transaction ---- */

/* BEGIN, and the row with its lock. */
static enum permit_status lock_row(struct fake_store *fake, struct db_template *template)
{
    enum permit_status status = call_enter(fake);
    if (status != PERMIT_OK)
        return status;
    fake_batch_begin(fake);
    status = transaction_lock_template(fake->transaction, template);
    if (status == PERMIT_DATABASE_LOST)
        return call_lose(fake, false);
    if (status == PERMIT_OK)
        status = call_random_error(fake);
    return status == PERMIT_OK ? call_leave(fake) : call_report(fake, status, "locks");
}

/* `inserts`: the row was missing when it was to be locked. */
static enum permit_status write_row(struct fake_store *fake, struct db_template *template,
                                    const struct template_row *row, bool inserts)
{
    enum permit_status status = call_enter(fake);
    if (status != PERMIT_OK)
        return status;
    if (!fake->transaction || fake->transaction->state == TRANSACTION_ENDED)
        return call_report(fake, PERMIT_INTERNAL, "no transaction");
    status = transaction_write_template(fake->transaction, template, row, inserts);
    if (status == PERMIT_DATABASE_LOST)
        return call_lose(fake, false);
    if (status == PERMIT_OK)
        status = call_random_error(fake);
    if (status == PERMIT_OK)
        return fake_batch_commit(fake);
    fake->transaction->template = NULL; /* the packet stopped before its COMMIT */
    return call_report(fake, status, "write");
}

/* Rolls the transaction back and returns `status`. */
static enum permit_status undo(struct fake_store *fake, enum permit_status status)
{
    (void)fake_session_rollback(&fake->store);
    return status;
}

static enum permit_status put_once(struct fake_store *fake, struct db_template *template,
                                   const struct semaphore_change *change)
{
    const char *refusal;
    enum permit_status status = lock_row(fake, template);
    bool exists = template->row.exists;
    struct template next = {.prefix = template->prefix, .settings = template->row.settings};
    if (status == PERMIT_OK)
        status = template_apply(&next, exists, change, DEFAULT_TTL_MS, &refusal);
    if (status == PERMIT_OK)
        status = write_row(fake, template, &(struct template_row){.exists = true, .settings = next.settings}, !exists);
    return status == PERMIT_OK ? status : undo(fake, status);
}

enum permit_status fake_templates_put(struct store *store, struct db_template *template,
                                      const struct semaphore_change *change)
{
    enum permit_status status = PERMIT_CONFLICT;
    for (int tries = 0; status == PERMIT_CONFLICT && tries < TRIES; tries++)
        status = put_once(fake_of(store), template, change);
    return status;
}

static enum permit_status delete_once(struct fake_store *fake, struct db_template *template)
{
    enum permit_status status = lock_row(fake, template);
    if (status == PERMIT_OK && !template->row.exists)
        status = PERMIT_UNKNOWN_TEMPLATE;
    if (status == PERMIT_OK)
        status = write_row(fake, template, &(struct template_row){.exists = false}, false);
    return status == PERMIT_OK ? status : undo(fake, status);
}

enum permit_status fake_templates_delete(struct store *store, struct db_template *template)
{
    enum permit_status status = PERMIT_CONFLICT;
    for (int tries = 0; status == PERMIT_CONFLICT && tries < TRIES; tries++)
        status = delete_once(fake_of(store), template);
    return status;
}

/* ---- resolve ---- */

static bool wants_template(const struct resolve_name *name)
{
    return name->ret_id == 0 || name->ret_retired;
}

/* The prefix lengths in use, a bit each. */
static enum permit_status read_lengths(struct fake_store *fake, uint32_t *ret_lengths)
{
    enum permit_status status = call_enter(fake);
    *ret_lengths = 0;
    for (size_t i = 0; i < database.template_count; i++)
        if (database.templates[i].row.exists)
            *ret_lengths |= 1U << database.templates[i].prefix.length;
    return status == PERMIT_OK ? call_leave(fake) : status;
}

/* A copy of the template with the longest prefix of the name, among these lengths. */
static const struct template *read_longest(struct bytes name, uint32_t lengths, struct arena *arena)
{
    const struct db_template *longest = NULL;
    for (size_t i = 0; i < database.template_count; i++) {
        const struct db_template *template = &database.templates[i];
        if (template->row.exists && lengths & 1U << template->prefix.length &&
            bytes_begin_with(name, template->prefix) && (!longest || template->prefix.length > longest->prefix.length))
            longest = template;
    }
    if (!longest)
        return NULL;
    struct template *copy = arena_alloc(arena, sizeof *copy);
    *copy = (struct template){.prefix = longest->prefix, .settings = longest->row.settings};
    return copy;
}

enum permit_status fake_templates_match(struct fake_store *fake, struct resolve_name *names, size_t count,
                                        struct arena *arena)
{
    uint32_t lengths = 0;
    bool wanted = false;
    for (size_t i = 0; i < count; i++)
        wanted |= wants_template(&names[i]);
    if (!wanted)
        return PERMIT_OK;
    enum permit_status status = read_lengths(fake, &lengths);
    if (status != PERMIT_OK || !lengths)
        return status;
    status = call_enter(fake);
    if (status != PERMIT_OK)
        return status;
    for (size_t i = 0; i < count; i++)
        if (wants_template(&names[i]))
            names[i].ret_template = read_longest(names[i].name, lengths, arena);
    return call_leave(fake);
}
