/* SPDX-License-Identifier: MIT */
/* The digest, which is equal for two copies of one request, and the order of wants. */
#include <criterion/criterion.h>

#include "core/best.h"
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

Test(request, deadline_of_an_unclaimed_grant_has_no_grace)
{
    struct request request = {.state = REQUEST_ACQUIRED,
                              .server_id = 7,
                              .ttl_ms = TTL_NONE,
                              .due_at = 100 * US_PER_SECOND,
                              .grace_ms = 5000,
                              .confirmed_at = NEVER};
    cr_expect_eq(request_expires_at(&request), 100 * US_PER_SECOND);
    request.state = REQUEST_WAITING;
    cr_expect_eq(request_expires_at(&request), NEVER);
}

/* ---- the form of a waiting request in its row ---- */

static struct arena arena;

static void arena_begin(void)
{
    arena_init(&arena, 4096, 4 << 20);
}

static void arena_end(void)
{
    arena_release(&arena);
}

TestSuite(request_form, .init = arena_begin, .fini = arena_end);

static void expect_same_want(const struct want *got, const struct want *want)
{
    cr_expect_eq(got->semaphore.length, 0);
    cr_expect_eq(got->semaphore_id, want->semaphore_id);
    cr_expect_eq(got->count, want->count);
    cr_expect_eq(got->choice, want->choice);
    cr_expect_eq(got->adjacent, want->adjacent);
    cr_expect(bytes_equal(got->best, want->best));
    cr_assert_eq(got->named_count, want->named_count);
    for (size_t i = 0; i < want->named_count; i++) {
        cr_expect_eq(got->named[i].number, want->named[i].number);
        cr_expect(bytes_equal(got->named[i].label, want->named[i].label));
    }
}

/* Every kind of ttl with every choice of slots; the wants are encoded in the order of names, and read in that of ids. */
Test(request_form, requests_are_read_as_they_were_written)
{
    static char long_label[LABEL_MAX_BYTES];
    memset(long_label, 'x', sizeof long_label);
    struct slot_name numbers[] = {{.number = 1}, {.number = 7}, {.number = SLOTS_MAX_CAPACITY}};
    struct slot_name mixed[] = {
        {.number = 2}, {.label = BYTES("A1")}, {.label = BYTES("A2")}, {.label = {long_label, sizeof long_label}}};
    char best[BEST_FORM_MAX];
    struct bytes sections[] = {BYTES("B"), BYTES("A")};
    struct best_with with[] = {{BYTES("aisle"), 2}};
    struct best wish = {
        .sections = sections, .section_count = 2, .with = with, .with_count = 1, .split = 3, .together = true};
    const struct want wants[] = {
        {BYTES("a"), UINT64_MAX, 3, CHOOSE_NAMED, false, numbers, 3, {0}, 0},
        {BYTES("b"), 4, COUNTED_MAX_CAPACITY, CHOOSE_LOWEST, false, NULL, 0, {0}, 0},
        {BYTES("c"), 5, 2, CHOOSE_LOWEST, true, NULL, 0, {0}, 0},
        {BYTES("d"), 3, 2, CHOOSE_ANY_OF, false, mixed, 4, {0}, 0},
        {BYTES("e"), 2, 2, CHOOSE_ANY_OF, true, numbers, 3, {0}, 0},
        {BYTES("f"), 1, 4, CHOOSE_NAMED, false, mixed, 4, {0}, 0},
        {BYTES("g"), 6, 4, CHOOSE_BEST, false, NULL, 0, best_encode(&wish, best), 0},
    };
    static const size_t by_id[] = {5, 4, 3, 1, 2, 6, 0};
    static const struct ttl ttls[] = {
        {TTL_ABSENT, 0}, {TTL_DURATION, 1}, {TTL_DURATION, DURATION_MAX_MS}, {TTL_UNLIMITED, 0}, {TTL_OWNER, 0}};
    for (size_t i = 0; i < ARRAY_LENGTH(ttls); i++) {
        struct bytes form = wants_encode(ttls[i], wants, ARRAY_LENGTH(wants), &arena);
        struct ttl ttl;
        struct want *got;
        size_t count;
        cr_assert_not_null(form.data);
        cr_assert_eq(wants_decode(form, &arena, &ttl, &got, &count), PERMIT_OK);
        cr_expect_eq(ttl.kind, ttls[i].kind);
        cr_expect_eq(ttl.ms, ttls[i].ms);
        cr_assert_eq(count, ARRAY_LENGTH(wants));
        for (size_t j = 0; j < count; j++)
            expect_same_want(&got[j], &wants[by_id[j]]);
        struct bytes again = wants_encode(ttl, got, count, &arena);
        cr_expect(bytes_equal(again, form));
    }
}

/* The form is stored in rows, so its bytes never change. */
Test(request_form, bytes_are_fixed)
{
    struct slot_name names[] = {{.number = 258}, {.label = BYTES("A1")}};
    const struct want want = {BYTES("a"), 7, 2, CHOOSE_NAMED, false, names, 2, {0}, 0};
    static const char expected[] = "\1\1"
                                   "\0\0\0\0\0\0\3\350"
                                   "\1"
                                   "\0\0\0\0\0\0\0\7"
                                   "\0\0\0\0\0\0\0\2"
                                   "\1\0"
                                   "\0\2"
                                   "\0\0\1\2"
                                   "\0\0\0\0"
                                   "\2A1";
    struct bytes form = wants_encode((struct ttl){TTL_DURATION, 1000}, &want, 1, &arena);
    cr_expect(bytes_equal(form, (struct bytes){expected, sizeof expected - 1}));
}

/* A form that decodes is the only one of its request: so no byte of it is without a meaning. */
static void expect_canonical_or_refused(struct bytes form)
{
    struct ttl ttl = {TTL_OWNER, 77};
    struct want *wants = NULL;
    size_t count = 99;
    enum permit_status status = wants_decode(form, &arena, &ttl, &wants, &count);
    if (status == PERMIT_OK) {
        struct bytes again = wants_encode(ttl, wants, count, &arena);
        cr_assert(bytes_equal(again, form));
        return;
    }
    cr_assert_eq(status, PERMIT_INTERNAL);
    cr_assert(ttl.kind == TTL_OWNER && ttl.ms == 77 && !wants && count == 99);
}

Test(request_form, damaged_bytes_are_refused_or_the_form_of_another_request)
{
    struct slot_name names[] = {{.number = 2}, {.number = 9}, {.label = BYTES("A1")}, {.label = BYTES("B")}};
    char best[BEST_FORM_MAX];
    struct bytes tags[] = {BYTES("a"), BYTES("b")};
    struct best wish = {.tags = tags, .tag_count = 2, .not_tags = tags, .not_tag_count = 1, .no_orphans = true};
    const struct want wants[] = {{BYTES("a"), 7, 2, CHOOSE_ANY_OF, true, names, 4, {0}, 0},
                                 {BYTES("b"), 9, 5, CHOOSE_LOWEST, false, NULL, 0, {0}, 0},
                                 {BYTES("c"), 11, 3, CHOOSE_BEST, false, NULL, 0, best_encode(&wish, best), 0}};
    struct bytes form = wants_encode((struct ttl){TTL_DURATION, 1000}, wants, 3, &arena);
    char copy[256];
    for (size_t length = 0; length < form.length; length++) {
        struct bytes part = {form.data, length};
        struct ttl ttl;
        struct want *got;
        size_t count;
        cr_assert_eq(wants_decode(part, &arena, &ttl, &got, &count), PERMIT_INTERNAL);
    }
    for (size_t i = 0; i < form.length; i++)
        for (int byte = 0; byte < 256; byte++) {
            memcpy(copy, form.data, form.length);
            copy[i] = (char)byte;
            expect_canonical_or_refused((struct bytes){copy, form.length});
            arena_clear(&arena);
            form = wants_encode((struct ttl){TTL_DURATION, 1000}, wants, 3, &arena);
        }
    memcpy(copy, form.data, form.length);
    copy[form.length] = 0;
    expect_canonical_or_refused((struct bytes){copy, form.length + 1});
    expect_canonical_or_refused((struct bytes){NULL, 0});
}

Test(request_form, no_memory_is_no_damage)
{
    const struct want want = {BYTES("a"), 7, 2, CHOOSE_LOWEST, false, NULL, 0, {0}, 0};
    struct bytes form = wants_encode((struct ttl){TTL_ABSENT, 0}, &want, 1, &arena);
    struct arena empty;
    struct ttl ttl;
    struct want *wants;
    size_t count;
    arena_init(&empty, 16, 16);
    cr_expect_null(wants_encode((struct ttl){TTL_ABSENT, 0}, &want, 1, &empty).data);
    cr_expect_eq(wants_decode(form, &empty, &ttl, &wants, &count), PERMIT_NO_MEMORY);
    arena_release(&empty);
}

Test(request, every_kind_state_and_reason_has_its_word)
{
    cr_expect_str_eq(semaphore_kind_word(KIND_SLOTTED), "slotted");
    cr_expect_str_eq(semaphore_kind_word(KIND_COUNTED), "counted");
    cr_expect_str_eq(semaphore_queue_word(QUEUE_BACKFILL), "backfill");
    cr_expect_str_eq(semaphore_queue_word(QUEUE_FIFO), "fifo");
    cr_expect_str_eq(request_state_word(REQUEST_ACQUIRED), "ACQUIRED");
    cr_expect_str_eq(request_state_word(REQUEST_RELEASED), "RELEASED");
    cr_expect_str_eq(request_state_word(REQUEST_WAITING), "WAITING");
    cr_expect_null(end_reason_word(END_NONE));
    cr_expect_str_eq(end_reason_word(END_RELEASED), "released");
    cr_expect_str_eq(end_reason_word(END_EXPIRED), "expired");
    cr_expect_str_eq(end_reason_word(END_OWNER_DEAD), "owner_dead");
    cr_expect_str_eq(end_reason_word(END_STALE), "stale");
    cr_expect_str_eq(end_reason_word(END_FORCED), "forced");
    cr_expect_str_eq(end_reason_word(END_NEVER_HELD), "never_held");
}
