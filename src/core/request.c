/* SPDX-License-Identifier: MIT */
#include "core/request.h"

#include <stdlib.h>

#include "core/name.h"

const char *request_state_word(enum request_state state)
{
    return state == REQUEST_ACQUIRED ? "ACQUIRED" : "RELEASED";
}

const char *end_reason_word(enum end_reason reason)
{
    static const char *const words[] = {
        [END_RELEASED] = "released", [END_EXPIRED] = "expired", [END_OWNER_DEAD] = "owner_dead",
        [END_STALE] = "stale",       [END_FORCED] = "forced",   [END_NEVER_HELD] = "never_held",
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

static char *put_i64(char *at, int64_t number)
{
    for (int shift = 56; shift >= 0; shift -= 8)
        *at++ = (char)((uint64_t)number >> shift);
    return at;
}

static char *put_name(char *at, struct bytes name)
{
    *at++ = (char)(name.length >> 8);
    *at++ = (char)name.length;
    if (name.length)
        memcpy(at, name.data, name.length);
    return at + name.length;
}

/* Computes the digest of a list that may be long: hashes each name together with the hash of the names before it. */
static bool named_digest(const struct want *want, unsigned char ret_digest[DIGEST_SIZE])
{
    char link[DIGEST_SIZE + 8 + 2 + LABEL_MAX_BYTES];
    memset(ret_digest, 0, DIGEST_SIZE);
    for (size_t i = 0; i < want->named_count; i++) {
        memcpy(link, ret_digest, DIGEST_SIZE);
        char *at = put_i64(link + DIGEST_SIZE, want->named[i].number);
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
    at = put_i64(at, ttl.kind);
    at = put_i64(at, ttl.kind == TTL_DURATION ? ttl.ms : 0);
    for (size_t i = 0; i < want_count; i++) {
        at = put_name(at, wants[i].semaphore);
        at = put_choice(put_i64(at, wants[i].count), &wants[i]);
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

size_t wants_named_size(const struct want *wants, size_t want_count)
{
    size_t size = 0;
    for (size_t i = 0; i < want_count; i++) {
        size += wants[i].named_count * sizeof *wants[i].named;
        for (size_t j = 0; j < wants[i].named_count; j++)
            size += wants[i].named[j].label.length;
    }
    return size;
}

static bool is_named(const struct want *want, struct slot_name name)
{
    return bsearch(&name, want->named, want->named_count, sizeof name, compare_named) != NULL;
}

bool want_names_slot(const struct want *want, uint32_t number, struct bytes label)
{
    if (want->named_count == 0)
        return false;
    return is_named(want, (struct slot_name){.number = number}) ||
           (label.length && is_named(want, (struct slot_name){.label = label}));
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

utc_us request_expires_at(const struct request *request)
{
    bool limited = request->ttl_ms != TTL_NONE && request->ttl_ms != TTL_BY_OWNER;
    if (request->state != REQUEST_ACQUIRED || !limited || request->confirmed_at != NEVER)
        return NEVER;
    return request->due_at - request->grace_ms * US_PER_MS;
}
