/* SPDX-License-Identifier: MIT */
/* Operations on templates on a session of the database in memory: the contract of src/store/templates.h. */
#ifndef SIM_FAKE_TEMPLATES_H
#define SIM_FAKE_TEMPLATES_H

#include "database.h"
#include "store/store.h"

/* PUT by the rules of core/template.h. PERMIT_DATABASE_LOST: the outcome is unknown. */
enum permit_status fake_templates_put(struct store *store, struct db_template *template,
                                      const struct semaphore_change *change);
/* PERMIT_UNKNOWN_TEMPLATE: there is none. PERMIT_DATABASE_LOST as above. */
enum permit_status fake_templates_delete(struct store *store, struct db_template *template);
#endif
