/* SPDX-License-Identifier: MIT */
/*
 * The rows of `template`: put and deleted in one transaction each; read without locks for lists, and by
 * resolve for names without a semaphore.
 */
#ifndef STORE_TEMPLATES_H
#define STORE_TEMPLATES_H

#include "base/arena.h"
#include "core/template.h"
#include "permit/status.h"
#include "store/query.h"

struct store;

/* A PUT of a template. */
struct template_change {
    struct bytes prefix;
    struct semaphore_change change;
    int64_t default_ttl_ms;       /* of a new template whose change has none */
    struct template ret_template; /* its strings are in the arena, or those of the change */
    bool ret_created;
    const char *ret_refusal; /* the reason of PERMIT_VERSION_MISMATCH and PERMIT_INVALID; else NULL */
};

/* The methods; store->templates. */
struct store_templates {
    /*
     * Creates or changes a template by the rules of core/template.h. PERMIT_VERSION_MISMATCH and PERMIT_INVALID change
     * nothing. PERMIT_DATABASE_LOST: the outcome is unknown.
     */
    enum permit_status (*put)(struct store *store, struct template_change *change, struct arena *arena);
    /*
     * Deletes a template; *ret_template is the deleted row. PERMIT_UNKNOWN_TEMPLATE: it does not exist.
     * PERMIT_DATABASE_LOST: the outcome is unknown.
     */
    enum permit_status (*delete)(struct store *store, struct bytes prefix, struct arena *arena,
                                 struct template *ret_template);
    /* Reads one template. PERMIT_UNKNOWN_TEMPLATE: it does not exist. */
    enum permit_status (*get)(struct store *store, struct bytes prefix, struct arena *arena,
                              struct template *ret_template);
    /* Lists templates whose prefix begins with `begins`, in order of prefix. */
    enum permit_status (*list)(struct store *store, struct bytes begins, struct page *page);
    /* Counts the semaphores, retired ones included, up to `max`. Reads that many index entries. */
    enum permit_status (*count_semaphores)(struct store *store, uint64_t max, uint64_t *ret_count);
    /* Counts the slots, those above a capacity included. One seek for each slotted semaphore. */
    enum permit_status (*count_slots)(struct store *store, uint64_t *ret_count);
};
#endif
