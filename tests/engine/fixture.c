/* SPDX-License-Identifier: MIT */
#include "fixture.h"

#include <stdlib.h>
#include <string.h>

struct queue queue;
struct batch first, second;
static struct asked asked[OPS];
static size_t asked_count;

void fixture_begin(void)
{
    queue_init(&queue, ROW_BYTES);
    semaphore_cache_put(&queue.semaphores, 1, BYTES("a"), KIND_SLOTTED, 1);
    semaphore_cache_put(&queue.semaphores, 2, BYTES("b"), KIND_SLOTTED, 1);
    semaphore_cache_put(&queue.semaphores, 3, BYTES("c"), KIND_COUNTED, 1);
}

void fixture_end(void)
{
    struct list left;
    list_init(&left);
    queue_finish(&first);
    queue_finish(&second);
    queue_take_expired(&queue, NEVER, &left);
    for (size_t i = 0; i < asked_count; i++) {
        queue_forget_key(&queue, &asked[i].op);
        op_drop_entries(&asked[i].op);
    }
    queue_release(&queue);
}

void fixture_decided(struct op *op, const struct decision *decision)
{
    (void)op;
    (void)decision;
}

struct asked *fixture_op(void)
{
    return &asked[asked_count++];
}

struct op *add(enum operation_kind kind, const char *key, const char *semaphores, bool *ret_wake)
{
    struct asked *one = fixture_op();
    one->operation = (struct operation){.kind = kind, .external_id = bytes_of(key), .wants = one->wants};
    for (; *semaphores; semaphores++)
        one->wants[one->operation.want_count++] = (struct want){.semaphore = {semaphores, 1}, .count = 1};
    op_init(&one->op, &one->operation, NEVER, fixture_decided);
    bool wake = queue_add(&queue, &one->op);
    if (ret_wake)
        *ret_wake = wake;
    return &one->op;
}

struct op *acquire(const char *key, const char *semaphores)
{
    return add(OP_ACQUIRE, key, semaphores, NULL);
}

struct op *release(const char *key)
{
    return add(OP_RELEASE, key, "", NULL);
}

const char *fixture_keys(const struct batch *batch)
{
    static char text[256];
    text[0] = '\0';
    for (size_t i = 0; i < batch->op_count; i++) {
        struct bytes key = batch->ops[i]->operation->external_id;
        if (i > 0)
            strcat(text, " ");
        strncat(text, key.data, key.length);
    }
    return text;
}

const char *take(struct batch *batch)
{
    (void)!queue_take(&queue, batch, 0);
    return fixture_keys(batch);
}

void holds(struct rows *rows, const char *key, struct permit *permits, size_t count)
{
    rows_put_key(
        rows, NULL,
        &(struct request){
            .external_id = {key, strlen(key)}, .state = REQUEST_ACQUIRED, .permits = permits, .permit_count = count});
}
