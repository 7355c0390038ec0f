/* SPDX-License-Identifier: MIT */
#include "core/request.h"

#include <assert.h>
#include <stdlib.h>

#include "core/best.h"
#include "core/name.h"

const char *request_state_word(enum request_state state)
{
    switch (state) {
    case REQUEST_ACQUIRED: return "ACQUIRED";
    case REQUEST_WAITING: return "WAITING";
    case REQUEST_RELEASED: break;
    }
    return "RELEASED";
}

const char *end_reason_word(enum end_reason reason)
{
    static const char *const words[] = {
        [END_RELEASED] = "released", [END_EXPIRED] = "expired", [END_OWNER_DEAD] = "owner_dead",
        [END_STALE] = "stale",       [END_FORCED] = "forced",   [END_NEVER_HELD] = "never_held",
        [END_REPLACED] = "replaced",
    };
    return (size_t)reason < ARRAY_LENGTH(words) ? words[reason] : NULL;
}

/*
 * The canonical form for the digest. Every part has a fixed size or is preceded by its length, so that different
 * requests have different forms.
 */
enum {
    WANT_MAX = 2 + NAME_MAX_BYTES + 8 + 3 + DIGEST_SIZE,
    CANONICAL_MAX = 2 + NAME_MAX_BYTES + 16 + REQUEST_MAX_SEMAPHORES * WANT_MAX,
    SPECIFIC_MARK = 0xFF, /* never the first byte of a name's length */
};

static char *put_number(char *at, uint64_t number, unsigned size)
{
    for (unsigned i = size; i > 0; i--)
        *at++ = (char)(number >> (8 * (i - 1)));
    return at;
}

static char *put_name(char *at, struct bytes name)
{
    at = put_number(at, name.length, 2);
    if (name.length)
        memcpy(at, name.data, name.length);
    return at + name.length;
}

/*
 * Computes the digest of a wish for best seats, or of a list that may be long: hashes each name together with the hash
 * of the names before it.
 */
static bool named_digest(const struct want *want, unsigned char ret_digest[DIGEST_SIZE])
{
    char link[DIGEST_SIZE + 8 + 2 + LABEL_MAX_BYTES];
    if (want->choice == CHOOSE_BEST)
        return digest_sha256(want->best, ret_digest);
    memset(ret_digest, 0, DIGEST_SIZE);
    for (size_t i = 0; i < want->named_count; i++) {
        memcpy(link, ret_digest, DIGEST_SIZE);
        char *at = put_number(link + DIGEST_SIZE, want->named[i].number, 8);
        at = put_name(at, want->named[i].label);
        if (!digest_sha256((struct bytes){link, (size_t)(at - link)}, ret_digest))
            return false;
    }
    return true;
}

/* Appends the choice of slots, if the want is for specific slots. NULL: out of memory. */
static char *put_choice(char *at, const struct want *want)
{
    unsigned char digest[DIGEST_SIZE];
    if (!want_is_specific(want))
        return at;
    if (!named_digest(want, digest))
        return NULL;
    *at++ = (char)SPECIFIC_MARK;
    *at++ = (char)want->choice;
    *at++ = (char)want->adjacent;
    memcpy(at, digest, DIGEST_SIZE);
    return at + DIGEST_SIZE;
}

bool request_digest(struct bytes owner, struct ttl ttl, const struct want *wants, size_t want_count,
                    unsigned char ret_digest[DIGEST_SIZE])
{
    char canonical[CANONICAL_MAX];
    char *at = put_name(canonical, owner);
    at = put_number(at, ttl.kind, 8);
    at = put_number(at, ttl.kind == TTL_DURATION ? (uint64_t)ttl.ms : 0, 8);
    for (size_t i = 0; i < want_count; i++) {
        at = put_name(at, wants[i].semaphore);
        at = put_choice(put_number(at, (uint64_t)wants[i].count, 8), &wants[i]);
        if (!at)
            return false;
    }
    return digest_sha256((struct bytes){canonical, (size_t)(at - canonical)}, ret_digest);
}

bool want_is_specific(const struct want *want)
{
    return want->choice != CHOOSE_LOWEST || want->adjacent;
}

/* Orders numbers before labels, whose number is 0. */
static int compare_named(const void *a, const void *b)
{
    const struct slot_name *left = a;
    const struct slot_name *right = b;
    uint32_t left_rank = left->number ? left->number : UINT32_MAX;
    uint32_t right_rank = right->number ? right->number : UINT32_MAX;
    if (left_rank != right_rank)
        return left_rank < right_rank ? -1 : 1;
    return bytes_compare(left->label, right->label);
}

bool wants_are_specific(const struct want *wants, size_t want_count)
{
    for (size_t i = 0; i < want_count; i++)
        if (want_is_specific(&wants[i]))
            return true;
    return false;
}

enum permit_status want_sort_named(struct want *want)
{
    if (want->named_count > 1)
        qsort(want->named, want->named_count, sizeof *want->named, compare_named);
    for (size_t i = 1; i < want->named_count; i++)
        if (compare_named(&want->named[i - 1], &want->named[i]) == 0)
            return PERMIT_INVALID;
    return PERMIT_OK;
}

static int compare_wants(const void *a, const void *b)
{
    return bytes_compare(((const struct want *)a)->semaphore, ((const struct want *)b)->semaphore);
}

enum permit_status wants_sort(struct want *wants, size_t want_count)
{
    if (want_count > 1)
        qsort(wants, want_count, sizeof *wants, compare_wants);
    for (size_t i = 1; i < want_count; i++)
        if (bytes_equal(wants[i - 1].semaphore, wants[i].semaphore))
            return PERMIT_INVALID;
    return PERMIT_OK;
}

/* ---- the form of a waiting request in its row ---- */

/*
 * The form, numbers with the highest byte first:
 *
 *   1   version: WANTS_VERSION
 *   1   kind of the ttl
 *   8   its milliseconds; 0 unless it is a duration
 *   1   number of wants, at least 1; then for each want, ascending by semaphore id:
 *       8   semaphore id
 *       8   count
 *       1   choice
 *       1   1: adjacent
 *       2   number of named slots; then for each of them, in the order of want_sort_named:
 *           4   number; 0: it is named by its label:
 *               1   length of the label, at least 1
 *               n   the label
 *       with the choice CHOOSE_BEST, which names none: 2 length of the form of the wish; n the form (best.h)
 *
 * A request has one form only, so a form that decodes is the one that wants_encode makes.
 */
enum {
    WANTS_VERSION = 1,
    WANTS_HEAD_SIZE = 1 + 1 + 8 + 1,
    WANTS_WANT_SIZE = 8 + 8 + 1 + 1 + 2,
    WANTS_NAME_SIZE = 4,
};

static size_t form_size(const struct want *wants, size_t want_count)
{
    size_t size = WANTS_HEAD_SIZE + want_count * WANTS_WANT_SIZE;
    for (size_t i = 0; i < want_count; i++) {
        size += wants[i].choice == CHOOSE_BEST ? 2 + wants[i].best.length : 0;
        for (size_t j = 0; j < wants[i].named_count; j++)
            size += WANTS_NAME_SIZE + (wants[i].named[j].number ? 0 : 1 + wants[i].named[j].label.length);
    }
    return size;
}

static char *put_want(char *at, const struct want *want)
{
    at = put_number(at, want->semaphore_id, 8);
    at = put_number(at, (uint64_t)want->count, 8);
    at = put_number(at, want->choice, 1);
    at = put_number(at, want->adjacent, 1);
    at = put_number(at, want->named_count, 2);
    for (size_t i = 0; i < want->named_count; i++) {
        const struct slot_name *name = &want->named[i];
        at = put_number(at, name->number, WANTS_NAME_SIZE);
        if (name->number)
            continue;
        assert(name->label.length > 0 && name->label.length <= LABEL_MAX_BYTES);
        at = put_number(at, name->label.length, 1);
        memcpy(at, name->label.data, name->label.length);
        at += name->label.length;
    }
    return want->choice == CHOOSE_BEST ? put_name(at, want->best) : at;
}

static int compare_semaphore_ids(const void *a, const void *b)
{
    return compare_u64(&(*(const struct want *const *)a)->semaphore_id,
                       &(*(const struct want *const *)b)->semaphore_id);
}

struct bytes wants_encode(struct ttl ttl, const struct want *wants, size_t want_count, struct arena *arena)
{
    const struct want *sorted[REQUEST_MAX_SEMAPHORES];
    assert(want_count > 0 && want_count <= REQUEST_MAX_SEMAPHORES);
    for (size_t i = 0; i < want_count; i++)
        sorted[i] = &wants[i];
    qsort(sorted, want_count, sizeof *sorted, compare_semaphore_ids);
    size_t size = form_size(wants, want_count);
    char *form = arena_alloc(arena, size);
    if (!form)
        return (struct bytes){0};
    char *at = put_number(form, WANTS_VERSION, 1);
    at = put_number(at, ttl.kind, 1);
    at = put_number(at, ttl.kind == TTL_DURATION ? (uint64_t)ttl.ms : 0, 8);
    at = put_number(at, want_count, 1);
    for (size_t i = 0; i < want_count; i++)
        at = put_want(at, sorted[i]);
    assert(at == form + size);
    return (struct bytes){form, size};
}

/* The part of a form that is not read yet. `broken`: it was too short; all numbers are then 0. */
struct form_reader {
    struct bytes rest;
    bool broken;
};

static struct bytes read_bytes(struct form_reader *reader, size_t length)
{
    struct bytes bytes = {reader->rest.data, length};
    reader->broken = reader->broken || length > reader->rest.length;
    if (reader->broken)
        return (struct bytes){0};
    reader->rest.data += length;
    reader->rest.length -= length;
    return bytes;
}

static uint64_t read_number(struct form_reader *reader, unsigned size)
{
    struct bytes bytes = read_bytes(reader, size);
    uint64_t number = 0;
    for (size_t i = 0; i < bytes.length; i++)
        number = number << 8 | (unsigned char)bytes.data[i];
    return number;
}

static bool read_ttl(struct form_reader *reader, struct ttl *ret_ttl)
{
    uint64_t kind = read_number(reader, 1);
    uint64_t ms = read_number(reader, 8);
    *ret_ttl = (struct ttl){(enum ttl_kind)kind, (int64_t)ms};
    return kind <= TTL_OWNER && (kind == TTL_DURATION ? ms > 0 && ms <= DURATION_MAX_MS : ms == 0);
}

/* Reads the named slots of a want, whose number is known. PERMIT_INTERNAL: they are not in canonical form. */
static enum permit_status read_names(struct form_reader *reader, struct arena *arena, struct want *want)
{
    if (want->named_count > SLOTS_MAX_COUNT || want->named_count * WANTS_NAME_SIZE > reader->rest.length)
        return PERMIT_INTERNAL;
    want->named = arena_array(arena, want->named_count, sizeof *want->named);
    if (!want->named)
        return PERMIT_NO_MEMORY;
    for (size_t i = 0; i < want->named_count; i++) {
        struct slot_name *name = &want->named[i];
        name->number = (uint32_t)read_number(reader, WANTS_NAME_SIZE);
        if (!name->number)
            name->label = read_bytes(reader, read_number(reader, 1));
        bool names = name->number > 0 || name->label.length > 0;
        if (!names || (i > 0 && compare_named(&want->named[i - 1], name) >= 0))
            return PERMIT_INTERNAL;
    }
    return PERMIT_OK;
}

static enum permit_status read_want(struct form_reader *reader, struct arena *arena, struct want *ret_want)
{
    struct want want = {.semaphore_id = read_number(reader, 8)};
    uint64_t count = read_number(reader, 8);
    uint64_t choice = read_number(reader, 1);
    uint64_t adjacent = read_number(reader, 1);
    want.named_count = read_number(reader, 2);
    bool valid = want.semaphore_id > 0 && count > 0 && count <= COUNTED_MAX_CAPACITY && choice <= CHOOSE_BEST &&
                 adjacent <= 1 && !(adjacent && (choice == CHOOSE_NAMED || choice == CHOOSE_BEST)) &&
                 (want.named_count > 0) == (choice == CHOOSE_NAMED || choice == CHOOSE_ANY_OF);
    if (!valid)
        return PERMIT_INTERNAL;
    want.count = (int64_t)count;
    want.choice = (enum slot_choice)choice;
    want.adjacent = adjacent;
    enum permit_status status = want.named_count ? read_names(reader, arena, &want) : PERMIT_OK;
    if (want.choice == CHOOSE_BEST) {
        struct best wish;
        want.best = read_bytes(reader, read_number(reader, 2));
        if (!best_decode(want.best, want.count, arena, &wish))
            status = arena->refused ? PERMIT_NO_MEMORY : PERMIT_INTERNAL;
    }
    *ret_want = want;
    return status;
}

enum permit_status wants_decode(struct bytes form, struct arena *arena, struct ttl *ret_ttl, struct want **ret_wants,
                                size_t *ret_want_count)
{
    struct form_reader reader = {.rest = form};
    struct ttl ttl;
    bool valid = read_number(&reader, 1) == WANTS_VERSION && read_ttl(&reader, &ttl);
    size_t want_count = read_number(&reader, 1);
    if (!valid || want_count == 0 || want_count > REQUEST_MAX_SEMAPHORES)
        return PERMIT_INTERNAL;
    struct want *wants = arena_array(arena, want_count, sizeof *wants);
    if (!wants)
        return PERMIT_NO_MEMORY;
    for (size_t i = 0; i < want_count; i++) {
        enum permit_status status = read_want(&reader, arena, &wants[i]);
        if (status != PERMIT_OK)
            return status;
        if (i > 0 && wants[i - 1].semaphore_id >= wants[i].semaphore_id)
            return PERMIT_INTERNAL;
    }
    if (reader.broken || reader.rest.length > 0)
        return PERMIT_INTERNAL;
    *ret_ttl = ttl;
    *ret_wants = wants;
    *ret_want_count = want_count;
    return PERMIT_OK;
}

/* The part of a form behind version and ttl. */
static struct bytes form_needs(struct bytes form)
{
    enum { BEFORE = 1 + 1 + 8 };
    return form.length > BEFORE ? (struct bytes){form.data + BEFORE, form.length - BEFORE} : (struct bytes){0};
}

bool wants_same_needs(struct bytes form, struct bytes other)
{
    return form_needs(form).length > 0 && bytes_equal(form_needs(form), form_needs(other));
}

uint64_t wants_needs(struct bytes form)
{
    unsigned char digest[DIGEST_SIZE];
    uint64_t needs = 0;
    if (form_needs(form).length && digest_sha256(form_needs(form), digest))
        memcpy(&needs, digest, sizeof needs);
    return needs;
}

utc_us request_expires_at(const struct request *request)
{
    bool limited = request->ttl_ms != TTL_NONE && request->ttl_ms != TTL_BY_OWNER;
    bool unclaimed = request->state == REQUEST_ACQUIRED && request->server_id != 0;
    if (unclaimed && request->confirmed_at == NEVER)
        return request->due_at;
    if (request->state != REQUEST_ACQUIRED || !limited || request->confirmed_at != NEVER)
        return NEVER;
    return request->due_at - request->grace_ms * US_PER_MS;
}

const struct permit *request_permit_of(const struct request *request, uint64_t semaphore_id)
{
    for (size_t i = 0; i < request->permit_count; i++)
        if (request->permits[i].semaphore_id == semaphore_id)
            return &request->permits[i];
    return NULL;
}

int place_compare(utc_us place, uint64_t id, utc_us other_place, uint64_t other_id)
{
    int order = (place > other_place) - (place < other_place);
    return order ? order : compare_u64(&id, &other_id);
}

int request_compare_places(const struct request *request, const struct request *other)
{
    return place_compare(request->place, request->id, other->place, other->id);
}

int request_compare_keys(const void *request, const void *other)
{
    return bytes_compare(((const struct request *)request)->external_id, ((const struct request *)other)->external_id);
}
