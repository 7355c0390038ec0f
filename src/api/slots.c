/* SPDX-License-Identifier: MIT */
/* GET /v1/semaphores/{name}/slots: lists slots and their holders, for a seat map that is polled. */
#include <inttypes.h>
#include <stdio.h>

#include "api/json_out.h"
#include "api/operations.h"
#include "api/problem.h"
#include "api/queries.h"
#include "api/routes.h"
#include "api/service.h"
#include "store/query.h"

struct slots_params {
    struct slot_filter filter; /* its limit is one more than the page, to see whether more follow */
    struct bytes known;        /* If-None-Match; data NULL: absent */
};

enum { DETAIL_SIZE = 320, DIGEST_DIGITS = 16 };

/* ---- ETag ---- */

/*
 * The ETag is "version-epoch-digest"; its stem is the part before the digest. The version rises when a slot changes
 * hands and when an operator changes the semaphore. The epoch rises where versions may go back. Renewals and
 * confirmations change neither, so while a slot is held the page must be read to know whether it has changed: the
 * digest shows it.
 */

/* FNV-1a: no client chooses pages that collide. */
static uint64_t digest_of(const struct buf *body)
{
    uint64_t digest = 0xcbf29ce484222325;
    for (size_t i = 0; i < body->length; i++)
        digest = (digest ^ (unsigned char)body->data[i]) * 0x100000001b3;
    return digest;
}

/* Returns the next entity tag of If-None-Match, without its W/; length 0: the end. */
static struct bytes next_tag(struct bytes *list)
{
    struct bytes rest = *list;
    while (rest.length && *rest.data != '"')
        rest = (struct bytes){rest.data + 1, rest.length - 1};
    const char *end = rest.length > 1 ? memchr(rest.data + 1, '"', rest.length - 1) : NULL;
    struct bytes tag = {rest.data, end ? (size_t)(end + 1 - rest.data) : 0};
    *list = (struct bytes){tag.data + tag.length, end ? rest.length - tag.length : 0};
    return tag;
}

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
        tag = next_tag(&list);
    while (tag.length && !is_own_tag(tag, stem));
    return tag;
}

static void answer_not_modified(struct answer *answer, struct bytes tag)
{
    snprintf(answer->etag, sizeof answer->etag, "%.*s", (int)tag.length, tag.data);
    buf_clear(&answer->body);
    answer->http_status = 304;
}

/* ---- the page ---- */

static void write_page(struct exchange *exchange, const struct slots_params *question, const struct slot_list_row *rows,
                       size_t count, const struct query_time *time)
{
    const struct viewer viewer = viewer_of(exchange);
    size_t limit = question->filter.limit - 1;
    list_begin(exchange, "slots");
    for (size_t i = 0; i < count && i < limit; i++) {
        if (i)
            buf_append_char(&exchange->answer.body, ',');
        write_slot(&exchange->answer.body, &viewer, &rows[i], time);
    }
    if (count > limit)
        list_end_with_next_number(exchange, rows[limit - 1].number);
    else
        list_end(exchange);
}

static enum permit_status write_unless_known(struct exchange *exchange, struct store *store,
                                             const struct slot_list_head *head)
{
    const struct slots_params *question = exchange->context;
    struct answer *answer = &exchange->answer;
    struct slot_list_row *rows;
    struct query_time time;
    size_t count;
    char stem[ETAG_SIZE];
    snprintf(stem, sizeof stem, "\"%" PRIu64 "-%" PRIu64 "-", head->version, head->epoch);
    struct bytes known = find_tag(question->known, bytes_of(stem));
    bool version_covers_page = question->filter.state == SLOT_FREE || head->in_use == 0;
    if (known.length && version_covers_page) {
        answer_not_modified(answer, known);
        return PERMIT_OK;
    }
    enum permit_status status =
        store->queries->slots(store, head->semaphore_id, &question->filter, &exchange->arena, &rows, &count, &time);
    if (status != PERMIT_OK)
        return status;
    write_page(exchange, question, rows, count, &time);
    snprintf(answer->etag, sizeof answer->etag, "%s%016" PRIx64 "\"", stem, digest_of(&answer->body));
    if (bytes_equal(known, bytes_of(answer->etag)))
        answer_not_modified(answer, known);
    return PERMIT_OK;
}

/*
 * Reads the version before the slots: a change between the two then shows as a new version at the client's next query.
 */
static enum permit_status answer_slots(struct exchange *exchange, struct store *store)
{
    struct bytes name = exchange->path_values[0];
    struct slot_list_head head;
    char detail[DETAIL_SIZE];
    enum permit_status status = store->queries->slot_list_head(store, name, &head);
    if (status != PERMIT_OK)
        return status;
    if (head.kind != KIND_COUNTED)
        return write_unless_known(exchange, store, &head);
    snprintf(detail, sizeof detail, "%.*s is counted: it has no slots", (int)name.length, name.data);
    problem_answer(exchange, PERMIT_INVALID, detail);
    return PERMIT_OK;
}

/* ---- the parameters ---- */

static bool read_state(struct exchange *exchange, struct bytes word, enum slot_state *ret_state)
{
    if (!word.data)
        *ret_state = SLOT_ANY;
    else if (bytes_equal(word, BYTES("free")))
        *ret_state = SLOT_FREE;
    else if (bytes_equal(word, BYTES("held")))
        *ret_state = SLOT_HELD;
    else
        return !problem_answer(exchange, PERMIT_INVALID, "state must be free or held");
    return true;
}

bool semaphore_slots(struct exchange *exchange)
{
    struct slots_params *question = arena_alloc(&exchange->arena, sizeof *question);
    uint64_t after, limit;
    if (!question)
        return problem_answer(exchange, PERMIT_BUSY, NULL);
    if (!read_state(exchange, exchange->query_values[0], &question->filter.state) ||
        !param_number(exchange, 2, "after", 0, UINT32_MAX, 0, &after) ||
        !param_number(exchange, 3, "limit", 1, LIST_MAX_LIMIT, LIST_DEFAULT_LIMIT, &limit))
        return true;
    question->filter.prefix = exchange->query_values[1];
    question->filter.after = (uint32_t)after;
    question->filter.limit = (unsigned)limit + 1;
    const char *known = exchange_header(exchange, "If-None-Match", NULL);
    if (known)
        question->known = arena_copy(&exchange->arena, bytes_of(known));
    return query_submit(exchange, QUERY_LIST, answer_slots, question);
}
