/* SPDX-License-Identifier: MIT */
/* The digest, which is equal for two copies of one request, and the order of wants. */
#include <criterion/criterion.h>

#include "core/name.h"
#include "core/request.h"

struct asked {
    struct bytes owner;
    struct ttl ttl;
    struct want wants[3];
    size_t want_count;
};

static void digest_of(const struct asked *asked, unsigned char digest[DIGEST_SIZE])
{
    cr_assert(request_digest(asked->owner, asked->ttl, asked->wants, asked->want_count, digest));
}

#define WANT(name, units)                                                                                              \
    {                                                                                                                  \
        .semaphore = BYTES(name), .count = (units)                                                                     \
    }

/* Each row differs from all others in one relevant part. Some would be equal if the parts were merely concatenated. */
Test(request, relevant_differences_change_the_digest)
{
    const struct asked all[] = {
        {BYTES(""), {TTL_ABSENT, 0}, {WANT("a", 1)}, 1},
        {BYTES(""), {TTL_DURATION, 600000}, {WANT("a", 1)}, 1},
        {BYTES(""), {TTL_UNLIMITED, 0}, {WANT("a", 1)}, 1},
        {BYTES("o"), {TTL_ABSENT, 0}, {WANT("a", 1)}, 1},
        {BYTES("O"), {TTL_ABSENT, 0}, {WANT("a", 1)}, 1},
        {BYTES("oa"), {TTL_ABSENT, 0}, {WANT("", 1)}, 1},
        {BYTES(""), {TTL_ABSENT, 0}, {WANT("A", 1)}, 1},
        {BYTES(""), {TTL_ABSENT, 0}, {WANT("a", 2)}, 1},
        {BYTES(""), {TTL_ABSENT, 0}, {WANT("a", 256)}, 1},
        {BYTES(""), {TTL_ABSENT, 0}, {WANT("a", 1), WANT("b", 1)}, 2},
        {BYTES(""), {TTL_ABSENT, 0}, {WANT("a", 1), WANT("b", 2)}, 2},
        {BYTES(""), {TTL_ABSENT, 0}, {WANT("a", 1), WANT("bc", 1)}, 2},
        {BYTES(""), {TTL_ABSENT, 0}, {WANT("a", 1), WANT("b", 1), WANT("c", 1)}, 3},
        {BYTES(""), {TTL_ABSENT, 0}, {WANT("a", 1)}, 0},
    };
    unsigned char digests[ARRAY_LENGTH(all)][DIGEST_SIZE];
    for (size_t i = 0; i < ARRAY_LENGTH(all); i++) {
        digest_of(&all[i], digests[i]);
        for (size_t j = 0; j < i; j++)
            cr_expect(memcmp(digests[i], digests[j], DIGEST_SIZE) != 0, "%zu and %zu", i, j);
    }
}

Test(request, irrelevant_differences_keep_the_digest)
{
    unsigned char first[DIGEST_SIZE], second[DIGEST_SIZE];
    struct asked asked = {BYTES("o"), {TTL_ABSENT, 0}, {WANT("b", 1), WANT("a", 2)}, 2};
    struct asked other = {BYTES("o"), {TTL_ABSENT, 77}, {WANT("a", 2), WANT("b", 1)}, 2};
    other.wants[0].semaphore_id = 9;
    cr_assert_eq(wants_sort(asked.wants, 2), PERMIT_OK);
    digest_of(&asked, first);
    digest_of(&other, second);
    cr_expect(memcmp(first, second, DIGEST_SIZE) == 0);
}

Test(request, largest_request_has_a_digest)
{
    static char name[NAME_MAX_BYTES];
    static struct want wants[REQUEST_MAX_SEMAPHORES];
    unsigned char digest[DIGEST_SIZE];
    memset(name, 'x', sizeof name);
    for (size_t i = 0; i < REQUEST_MAX_SEMAPHORES; i++)
        wants[i] = (struct want){.semaphore = {name, sizeof name}, .count = COUNTED_MAX_CAPACITY};
    cr_expect(request_digest((struct bytes){name, sizeof name}, (struct ttl){TTL_DURATION, INT64_MAX}, wants,
                             REQUEST_MAX_SEMAPHORES, digest));
}

Test(request, wants_are_sorted_by_the_bytes_of_their_names)
{
    struct want wants[] = {WANT("b", 1), WANT("a.b", 2), WANT("B", 3), WANT("a", 4)};
    static const char order[] = {3, 4, 2, 1};
    cr_assert_eq(wants_sort(wants, 4), PERMIT_OK);
    for (size_t i = 0; i < 4; i++)
        cr_expect_eq(wants[i].count, order[i]);
}

/* M10: a semaphore may be named once. */
Test(request, duplicate_semaphore_is_invalid)
{
    struct want wants[] = {WANT("b", 1), WANT("a", 1), WANT("b", 2)};
    cr_expect_eq(wants_sort(wants, 3), PERMIT_INVALID);
    struct want alone[] = {WANT("b", 1)};
    cr_expect_eq(wants_sort(alone, 1), PERMIT_OK);
    cr_expect_eq(wants_sort(NULL, 0), PERMIT_OK);
}

Test(request, shown_deadline_excludes_the_grace)
{
    struct request request = {.state = REQUEST_ACQUIRED,
                              .ttl_ms = 60000,
                              .due_at = 100 * US_PER_SECOND,
                              .grace_ms = 5000,
                              .confirmed_at = NEVER};
    cr_expect_eq(request_expires_at(&request), 95 * US_PER_SECOND);
    request.confirmed_at = 1;
    cr_expect_eq(request_expires_at(&request), NEVER);
    request.confirmed_at = NEVER;
    request.ttl_ms = TTL_NONE;
    cr_expect_eq(request_expires_at(&request), NEVER);
    request.ttl_ms = 60000;
    request.state = REQUEST_RELEASED;
    cr_expect_eq(request_expires_at(&request), NEVER);
}

Test(request, every_kind_state_and_reason_has_its_word)
{
    cr_expect_str_eq(semaphore_kind_word(KIND_SLOTTED), "slotted");
    cr_expect_str_eq(semaphore_kind_word(KIND_COUNTED), "counted");
    cr_expect_str_eq(semaphore_queue_word(QUEUE_BACKFILL), "backfill");
    cr_expect_str_eq(semaphore_queue_word(QUEUE_FIFO), "fifo");
    cr_expect_str_eq(request_state_word(REQUEST_ACQUIRED), "ACQUIRED");
    cr_expect_str_eq(request_state_word(REQUEST_RELEASED), "RELEASED");
    cr_expect_null(end_reason_word(END_NONE));
    cr_expect_str_eq(end_reason_word(END_RELEASED), "released");
    cr_expect_str_eq(end_reason_word(END_EXPIRED), "expired");
    cr_expect_str_eq(end_reason_word(END_OWNER_DEAD), "owner_dead");
    cr_expect_str_eq(end_reason_word(END_STALE), "stale");
    cr_expect_str_eq(end_reason_word(END_FORCED), "forced");
    cr_expect_str_eq(end_reason_word(END_NEVER_HELD), "never_held");
}
