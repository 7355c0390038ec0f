/* SPDX-License-Identifier: MIT */
/* The groups of methods of the fake store that the tasks call. For fake_store.c. */
#ifndef SIM_FAKE_TASKS_H
#define SIM_FAKE_TASKS_H

extern const struct store_queries fake_queries;
extern const struct store_owners fake_owners;
extern const struct store_retention fake_retention;
extern const struct store_templates fake_templates;
extern const struct store_audit fake_audit;
extern const struct store_feed fake_feed;
#endif
