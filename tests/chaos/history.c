/* SPDX-License-Identifier: MIT */
/* Grows, joins and writes histories. */
#include "history.h"

#include <stdio.h>
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

static const char *const kind_words[] = {
    [CALL_ACQUIRE] = "acquire", [CALL_RELEASE] = "release", [CALL_QUERY] = "look",
    [CALL_RENEW] = "renew",     [CALL_CONFIRM] = "confirm", [CALL_WRITE] = "write"};
static const char *const says_words[] = {
    [SAYS_NOTHING] = "nothing",         [SAYS_HELD] = "held",       [SAYS_ENDED] = "ended",
    [SAYS_NO_CAPACITY] = "no_capacity", [SAYS_UNKNOWN] = "unknown", [SAYS_ACCEPTED] = "accepted",
    [SAYS_REFUSED] = "refused"};

static void write_share(FILE *file, const struct share *share, const struct semaphore_facts *semaphores)
{
    fprintf(file, "{\"semaphore\":\"%s\",\"count\":%u,\"token\":%llu,\"slots\":[", semaphores[share->semaphore].name,
            share->count, (unsigned long long)share->token);
    for (size_t i = 0; i < SLOTS_MAX && share->slots[i]; i++)
        fprintf(file, "%s%u", i ? "," : "", share->slots[i]);
    fputs("]}", file);
}

void history_write(const struct history *history, const struct semaphore_facts *semaphores, const char *path)
{
    FILE *file = fopen(path, "w");
    for (size_t i = 0; file && i < history->count; i++) {
        const struct call *call = &history->calls[i];
        fprintf(file,
                "{\"call\":\"%s\",\"key\":%u,\"sent_us\":%lld,\"answered_us\":%lld,\"status\":%d,\"says\":\"%s\","
                "\"lease_us\":%lld,\"permits\":[",
                kind_words[call->kind], call->key, (long long)call->sent_us, (long long)call->answered_us, call->status,
                says_words[call->says], (long long)call->lease_us);
        for (size_t j = 0; j < call->share_count; j++) {
            if (j)
                fputc(',', file);
            write_share(file, &call->shares[j], semaphores);
        }
        fputs("]}\n", file);
    }
    if (!file || fclose(file) != 0) {
        perror(path);
        exit(1);
    }
}
