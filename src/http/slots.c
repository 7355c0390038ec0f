/* SPDX-License-Identifier: MIT */
/* GET /v1/semaphores/{name}/slots: each slot and who holds it, for a seat map that is looked at again and again. */
#include <inttypes.h>
#include <stdio.h>

#include "http/look.h"
#include "http/operations.h"
#include "http/problem.h"
#include "http/routes.h"
#include "http/service.h"
#include "http/write.h"
#include "store/slot_list.h"

struct slots_question {
    struct slot_filter filter; /* asks for one more than a page has */
    struct bytes known;        /* If-None-Match; data NULL: absent */
};

enum { DETAIL_SIZE = 320, DIGEST_DIGITS = 16 };

/* ---- ETag ---- */

/*
 * "version-epoch-digest". A slot that changes hands, and what an operator changes, raises the version; where versions
 * may go back the epoch rises. Renewals and confirmations raise neither, so while something is held the page has to be
 * read to know whether it is the same: that is what its digest is for.
 */
static void print_stem(const struct slot_list_head *head, char ret_stem[ETAG_SIZE])
{
    snprintf(ret_stem, ETAG_SIZE, "\"%" PRIu64 "-%" PRIu64 "-", head->version, head->epoch);
}

/* FNV-1a: pages differ by chance, not by intent. */
static uint64_t digest_of(const struct buf *body)
{
    uint64_t digest = 0xcbf29ce484222325;
    for (size_t i = 0; i < body->length; i++)
        digest = (digest ^ (unsigned char)body->data[i]) * 0x100000001b3;
    return digest;
}

/* The next of the entity tags of If-None-Match, without its W/; length 0: there is none. */
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

/* `stem`, 16 digits and a quote. What is another's never comes back in a header of ours. */
static bool is_ours(struct bytes tag, struct bytes stem)
{
    size_t digits = 0;
    if (tag.length != stem.length + DIGEST_DIGITS + 1 || memcmp(tag.data, stem.data, stem.length) != 0)
        return false;
    while (digits < DIGEST_DIGITS && strchr("0123456789abcdef", tag.data[stem.length + digits]))
        digits++;
    return digits == DIGEST_DIGITS;
}

/* One of them that begins with `stem`; length 0: there is none. */
static struct bytes find_tag(struct bytes list, struct bytes stem)
{
    struct bytes tag;
    do
        tag = next_tag(&list);
    while (tag.length && !is_ours(tag, stem));
    return tag;
}

static void answer_not_modified(struct answer *answer, struct bytes tag)
{
    snprintf(answer->etag, sizeof answer->etag, "%.*s", (int)tag.length, tag.data);
    buf_clear(&answer->body);
    answer->http_status = 304;
}

/* Nothing that it shows can have changed but with the version. */
static bool version_tells_all(const struct slot_list_head *head, const struct slot_filter *filter)
{
    return filter->state == SLOT_FREE || head->in_use == 0;
}

/* ---- the page ---- */

static void write_page(struct exchange *exchange, const struct slots_question *question,
                       const struct slot_list_row *rows, size_t count, const struct query_time *time)
{
    size_t limit = question->filter.limit - 1;
    list_begin(exchange, "slots");
    for (size_t i = 0; i < count && i < limit; i++) {
        if (i)
            buf_append_char(&exchange->answer.body, ',');
        write_slot(&exchange->answer.body, &rows[i], time);
    }
    if (count > limit)
        list_next_number(exchange, rows[limit - 1].number);
    else
        list_end(exchange);
}

static enum permit_status show(struct exchange *exchange, struct session *session, const struct slot_list_head *head)
{
    const struct slots_question *question = exchange->context;
    struct answer *answer = &exchange->answer;
    struct slot_list_row *rows;
    struct query_time time;
    size_t count;
    char stem[ETAG_SIZE];
    print_stem(head, stem);
    struct bytes known = find_tag(question->known, bytes_of(stem));
    if (known.length && version_tells_all(head, &question->filter)) {
        answer_not_modified(answer, known);
        return PERMIT_OK;
    }
    enum permit_status status =
        query_slots(session, head->semaphore_id, &question->filter, &exchange->arena, &rows, &count, &time);
    if (status != PERMIT_OK)
        return status;
    write_page(exchange, question, rows, count, &time);
    snprintf(answer->etag, sizeof answer->etag, "%s%016" PRIx64 "\"", stem, digest_of(&answer->body));
    if (bytes_equal(known, bytes_of(answer->etag)))
        answer_not_modified(answer, known);
    return PERMIT_OK;
}

static void refuse_counted(struct exchange *exchange)
{
    char detail[DETAIL_SIZE];
    snprintf(detail, sizeof detail, "%.*s is counted: it has no slots", (int)exchange->parts[0].length,
             exchange->parts[0].data);
    problem_answer(exchange, PERMIT_INVALID, detail);
}

/* The version is read first: what changes while the slots are read is then news to whoever asks again. */
static void slots_work(struct look *look, struct session *session, enum permit_status status)
{
    struct exchange *exchange = look_exchange(look);
    struct slot_list_head head;
    if (status == PERMIT_OK)
        status = query_slot_list_head(session, exchange->parts[0], &head);
    bool counted = status == PERMIT_OK && head.kind == KIND_COUNTED;
    if (status == PERMIT_OK && !counted)
        status = show(exchange, session, &head);
    if (counted)
        refuse_counted(exchange);
    else if (status != PERMIT_OK)
        look_refuse(exchange, session, status);
    exchange_finish(exchange);
}

/* ---- the question ---- */

static bool take_state(struct exchange *exchange, struct bytes word, enum slot_state *ret_state)
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
    struct slots_question *question = arena_alloc(&exchange->arena, sizeof *question);
    uint64_t after, limit;
    if (!question)
        return problem_answer(exchange, PERMIT_BUSY, NULL);
    if (!take_state(exchange, exchange->values[0], &question->filter.state) ||
        !query_number(exchange, 2, "after", 0, UINT32_MAX, 0, &after) ||
        !query_number(exchange, 3, "limit", 1, LIST_MAX_LIMIT, LIST_DEFAULT_LIMIT, &limit))
        return true;
    question->filter.prefix = exchange->values[1];
    question->filter.after = (uint32_t)after;
    question->filter.limit = (unsigned)limit + 1;
    const char *known = exchange_header(exchange, "If-None-Match", NULL);
    if (known)
        question->known = arena_copy(&exchange->arena, bytes_of(known));
    return look_submit(exchange, LOOK_LIST, slots_work, question);
}
