/* SPDX-License-Identifier: MIT */
/*
 * The rows of `template`, on a session: put and deleted in one transaction each; read without locks for lists, and by
 * resolve for names without a semaphore.
 */
#ifndef STORE_TEMPLATES_H
#define STORE_TEMPLATES_H

#include "core/template.h"
#include "store/mysql_session.h"
#include "store/store.h"

/*
 * Creates or changes a template by the rules of core/template.h. PERMIT_VERSION_MISMATCH and PERMIT_INVALID change
 * nothing; *ret_refusal is the reason. PERMIT_DATABASE_LOST: the outcome is unknown. Strings of *ret_template are in
 * the arena, or are those of the arguments.
 */
enum permit_status templates_put(struct session *session, struct bytes prefix, const struct semaphore_change *change,
                                 int64_t default_ttl_ms, struct arena *arena, struct template *ret_template,
                                 bool *ret_created, const char **ret_refusal) MUST_CHECK;
/*
 * Deletes a template; *ret_template is the deleted row. PERMIT_UNKNOWN_TEMPLATE: it does not exist.
 * PERMIT_DATABASE_LOST: the outcome is unknown.
 */
enum permit_status templates_delete(struct session *session, struct bytes prefix, struct arena *arena,
                                    struct template *ret_template) MUST_CHECK;
/* Reads one template. PERMIT_UNKNOWN_TEMPLATE: it does not exist. */
enum permit_status templates_get(struct session *session, struct bytes prefix, struct arena *arena,
                                 struct template *ret_template) MUST_CHECK;
/* Lists templates whose prefix begins with `begins` and comes after `after`, in order of prefix; at most `limit`. */
enum permit_status templates_list(struct session *session, struct bytes begins, struct bytes after, unsigned limit,
                                  struct arena *arena, struct template **ret_templates, size_t *ret_count) MUST_CHECK;
/* Counts the semaphores, retired ones included, up to `max`. Reads that many index entries. */
enum permit_status templates_count_semaphores(struct session *session, uint64_t max, uint64_t *ret_count) MUST_CHECK;
/*
 * Resolve: sets ret_template of each name without a semaphore, or with a retired one, to the template with the longest
 * matching prefix. Sends nothing if there is no such name. `sql` is scratch.
 */
enum permit_status templates_match(struct session *session, struct resolve_name *names, size_t count, struct buf *sql,
                                   struct arena *arena) MUST_CHECK;
#endif
