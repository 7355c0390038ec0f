/* SPDX-License-Identifier: MIT */
/* GET /v1/semaphores/{name}/slots: lists slots and their holders, for a seat map that is polled. */
#include <inttypes.h>
#include <stdio.h>

#include "api/etag.h"
#include "api/json_out.h"
#include "api/lists.h"
#include "api/operations.h"
#include "api/problem.h"
#include "api/service.h"
#include "store/query.h"

enum { DETAIL_SIZE = 320, DIGEST_DIGITS = SLOTS_DIGEST - 1 };

/* ---- ETag ---- */

/*
 * The ETag is "version-epoch-digest"; its stem is the part before the digest. The version rises when a slot changes
 * hands and when an operator changes the semaphore. The epoch rises where versions may go back. Renewals and
 * confirmations change neither, so while a slot is held the page must be read to know whether it has changed: the
 * digest shows it.
 */

/* Returns true if the tag is `stem`, 16 digits and a quote. Only such a tag is copied into our ETag header. */
static bool is_own_tag(struct bytes tag, struct bytes stem)
{
    size_t digits = 0;
    if (tag.length != stem.length + DIGEST_DIGITS + 1 || memcmp(tag.data, stem.data, stem.length) != 0)
        return false;
    while (digits < DIGEST_DIGITS && strchr("0123456789abcdef", tag.data[stem.length + digits]))
        digits++;
    return digits == DIGEST_DIGITS;
}

/* Returns the first tag that begins with `stem`; length 0: none. */
static struct bytes find_tag(struct bytes list, struct bytes stem)
{
    struct bytes tag;
    do
        tag = etag_next(&list);
    while (tag.length && !is_own_tag(tag, stem));
    return tag;
}

/* ---- the page ---- */

/*
 * Reads the version before the slots: a change between the two then shows as a new version at the client's next query.
 */
enum permit_status slots_read(struct listing *listing, struct store *store)
{
    struct exchange *exchange = listing->exchange;
    struct bytes name = exchange->path_values[0];
    struct slot_list_head head;
    char detail[DETAIL_SIZE];
    enum permit_status status = store->queries->slot_list_head(store, name, &head);
    if (status != PERMIT_OK)
        return status;
    if (head.kind == KIND_COUNTED) {
        snprintf(detail, sizeof detail, "%.*s is counted: it has no slots", (int)name.length, name.data);
        listing->answered = true;
        problem_answer(exchange, PERMIT_INVALID, detail);
        return PERMIT_OK;
    }
    char *stem = listing->slots.stem;
    snprintf(stem, sizeof listing->slots.stem, "\"%" PRIu64 "-%" PRIu64 "-", head.version, head.epoch);
    listing->slots.known = find_tag(listing->slots.known, bytes_of(stem));
    bool version_covers_page = listing->slots.filter.state == SLOT_FREE || head.in_use == 0;
    if (listing->slots.known.length && version_covers_page) {
        listing->answered = true;
        etag_not_modified(&exchange->answer, listing->slots.known);
        return PERMIT_OK;
    }
    return store->queries->slots(store, head.semaphore_id, &listing->slots.filter, &listing->page);
}

void slots_write(struct listing *listing, size_t index)
{
    const struct viewer viewer = viewer_of(listing->exchange);
    write_slot(&listing->exchange->answer.body, &viewer, &listing->page.slots[index], &listing->page.time);
}

void slots_end(struct listing *listing)
{
    struct answer *answer = &listing->exchange->answer;
    uint64_t digest = etag_digest((struct bytes){answer->body.data, answer->body.length});
    snprintf(answer->etag, sizeof answer->etag, "%s%016" PRIx64 "\"", listing->slots.stem, digest);
    if (bytes_equal(listing->slots.known, bytes_of(answer->etag)))
        etag_not_modified(answer, listing->slots.known);
}

bool slots_params(struct listing *listing)
{
    struct exchange *exchange = listing->exchange;
    struct slot_filter *filter = &listing->slots.filter;
    struct bytes state = query_param(exchange, "state");
    if (bytes_equal(state, BYTES("free")))
        filter->state = SLOT_FREE;
    else if (bytes_equal(state, BYTES("held")))
        filter->state = SLOT_HELD;
    else if (state.data)
        return !problem_answer(exchange, PERMIT_INVALID, "state must be free or held");
    filter->prefix = query_param(exchange, "prefix");
    const char *known = exchange_header(exchange, "If-None-Match", NULL);
    if (known)
        listing->slots.known = arena_copy(&exchange->arena, bytes_of(known));
    return true;
}
