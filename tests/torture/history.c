/* SPDX-License-Identifier: MIT */
/* Growing and joining histories. */
#include "history.h"

#include <stdlib.h>
#include <string.h>

static int compare_shares(const void *a, const void *b)
{
    const struct share *x = a, *y = b;
    return (x->semaphore > y->semaphore) - (x->semaphore < y->semaphore);
}

static void make_room(struct history *history, size_t more)
{
    if (history->count + more <= history->capacity)
        return;
    history->capacity = history->count + more + history->capacity / 2 + 1024;
    history->calls = realloc(history->calls, history->capacity * sizeof(history->calls[0]));
    if (!history->calls)
        abort();
}

void history_add(struct history *history, const struct call *call)
{
    make_room(history, 1);
    struct call *copy = &history->calls[history->count++];
    *copy = *call;
    qsort(copy->shares, copy->share_count, sizeof(copy->shares[0]), compare_shares);
}

void history_join(struct history *history, struct history *from)
{
    make_room(history, from->count);
    if (from->count)
        memcpy(history->calls + history->count, from->calls, from->count * sizeof(from->calls[0]));
    history->count += from->count;
    history_release(from);
}

void history_release(struct history *history)
{
    free(history->calls);
    *history = (struct history){NULL, 0, 0};
}

size_t history_key_end(const struct history *history)
{
    size_t end = 0;
    for (size_t i = 0; i < history->count; i++)
        if (history->calls[i].key >= end)
            end = history->calls[i].key + 1;
    return end;
}
