/* SPDX-License-Identifier: MIT */
/*
 * The contract of store.h in terms of store.h: cases that hold for every implementation. The suite `store` runs them on
 * a real database, the suite `contract` on the fake store of the simulation, so that the simulation can be believed.
 * Cases that need SQL are in tests/store/contract.c.
 */
#ifndef CONTRACT_H
#define CONTRACT_H

#include "batch_fixture.h"

/* Reports a failed condition and ends the case. The runner implements it. */
_Noreturn void contract_fail(const char *file, int line, const char *condition, const char *message);
#define MUST(condition) ((condition) ? (void)0 : contract_fail(__FILE__, __LINE__, #condition, ""))
#define MUST_OK(store, call)                                                                                           \
    ((call) == PERMIT_OK ? (void)0 : contract_fail(__FILE__, __LINE__, #call, (store)->message))

/*
 * A case. The database has "alpha", slotted with capacity 3, and "beta", counted with capacity 10. `one` and `two` are
 * two stores on it.
 */
struct contract_case {
    const char *name;
    void (*run)(struct fixture *one, struct fixture *two);
};
/* Locks the row of the request with this key for a session that is not permitd's: `fixture` holds alpha, too. */
void lock_as_stranger(struct fixture *fixture, const char *key);
/* Does what a procedure does to a held request (bits of enum errand), in a transaction of its own. The runner implements it. */
void mark_as_shop(const char *key, uint32_t errand);
/* contract_cached.c: batches in one packet. */
void cached_batch_commits(struct fixture *one, struct fixture *two);
void cached_refusal_is_proved(struct fixture *one, struct fixture *two);
void cached_batch_with_an_older_version_changes_nothing(struct fixture *one, struct fixture *two);
void cached_batch_of_two_semaphores_needs_both_versions(struct fixture *one, struct fixture *two);
void cached_batch_with_a_used_key_changes_nothing(struct fixture *one, struct fixture *two);
void cached_batch_proves_that_keys_are_absent(struct fixture *one, struct fixture *two);
void cached_batch_proves_the_time_and_the_epoch(struct fixture *one, struct fixture *two);
void cached_batch_is_not_stopped_by_a_tick(struct fixture *one, struct fixture *two);
void cached_batch_proves_that_its_permitd_lives(struct fixture *one, struct fixture *two);
void cached_batch_does_not_wait_for_a_request_that_it_expires(struct fixture *one, struct fixture *two);
/* contract_feed.c: the feed. */
void event_is_read_when_it_has_a_number(struct fixture *one, struct fixture *two);
void event_has_the_metadata_of_its_request(struct fixture *one, struct fixture *two);
void events_of_a_key_are_in_order(struct fixture *one, struct fixture *two);
void event_of_a_rolled_back_batch_takes_no_number(struct fixture *one, struct fixture *two);
void numbers_go_on_through_another_store(struct fixture *one, struct fixture *two);
void oldest_events_are_deleted_and_their_readers_told(struct fixture *one, struct fixture *two);
void full_feed_has_an_event_gap_and_reopens(struct fixture *one, struct fixture *two);
void events_are_left_out_only_while_the_feed_is_full(struct fixture *one, struct fixture *two);
void reader_of_lost_events_is_told(struct fixture *one, struct fixture *two);

extern const struct contract_case contract_cases[];
extern const size_t contract_case_count;
#endif
