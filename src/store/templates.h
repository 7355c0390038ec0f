/* SPDX-License-Identifier: MIT */
/*
 * The rows of `template` on a session: put and removed in one transaction each, read plainly for lists and by step 0
 * for names that no semaphore has.
 */
#ifndef STORE_TEMPLATES_H
#define STORE_TEMPLATES_H

#include "core/template.h"
#include "store/session.h"
#include "store/store.h"

/*
 * PUT, by the rules of core/template.h. PERMIT_VERSION_MISMATCH and PERMIT_INVALID come with a sentence and change
 * nothing. PERMIT_DATABASE_LOST: whether it was done is not known. Strings of *ret_template are in the arena, or the
 * caller's.
 */
enum permit_status templates_put(struct session *session, struct bytes prefix, const struct semaphore_change *change,
                                 int64_t default_ttl_ms, struct arena *arena, struct template *ret_template,
                                 bool *ret_created, const char **ret_refusal) MUST_CHECK;
/* Removes it; *ret_template is what it was. PERMIT_UNKNOWN_TEMPLATE; PERMIT_DATABASE_LOST as above. */
enum permit_status templates_delete(struct session *session, struct bytes prefix, struct arena *arena,
                                    struct template *ret_template) MUST_CHECK;
/* PERMIT_UNKNOWN_TEMPLATE if there is none. */
enum permit_status templates_get(struct session *session, struct bytes prefix, struct arena *arena,
                                 struct template *ret_template) MUST_CHECK;
/* In order of prefix, those that begin with `begins` and come after `after`, at most limit. */
enum permit_status templates_list(struct session *session, struct bytes begins, struct bytes after, unsigned limit,
                                  struct arena *arena, struct template **ret_templates, size_t *ret_count) MUST_CHECK;
/* How many semaphores there are, retired ones too, counted up to `max`. Reads as many rows. */
enum permit_status templates_count_semaphores(struct session *session, uint64_t max, uint64_t *ret_count) MUST_CHECK;
/*
 * Step 0: gives each name that no semaphore in service has its template, if there is one. Without such a name nothing
 * is asked. `sql` is scratch.
 */
enum permit_status templates_match(struct session *session, struct resolve_name *names, size_t count, struct buf *sql,
                                   struct arena *arena) MUST_CHECK;
#endif
