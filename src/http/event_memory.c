/* SPDX-License-Identifier: MIT */
#include "http/event_memory.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PIECE = 16, REGION = 16 << 20 /* for a million file descriptors; resident is only what is used */ };

/* A free piece. */
struct free_piece {
    struct free_piece *next;
};

static char *region; /* NULL: not mapped yet, or it cannot be */
static size_t used;  /* bytes from its beginning; behind them nothing was ever given out */
static struct free_piece *free_pieces;

bool event_memory_is_piece(const void *memory)
{
    return region && (uintptr_t)memory - (uintptr_t)region < REGION;
}

static void *take_piece(void)
{
    struct free_piece *piece = free_pieces;
    if (piece) {
        free_pieces = piece->next;
        return piece;
    }
    if (!region) {
        void *mapped = mmap(NULL, REGION, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        region = mapped == MAP_FAILED ? NULL : mapped;
    }
    if (!region || used == REGION)
        return NULL;
    used += PIECE;
    return region + used - PIECE;
}

void *event_memory_alloc(size_t size)
{
    void *piece = size <= PIECE ? take_piece() : NULL;
    return piece ? piece : malloc(size);
}

void *event_memory_realloc(void *memory, size_t size)
{
    if (!event_memory_is_piece(memory))
        return realloc(memory, size);
    if (size <= PIECE)
        return memory;
    void *larger = malloc(size);
    if (larger) {
        memcpy(larger, memory, PIECE);
        event_memory_free(memory);
    }
    return larger;
}

void event_memory_free(void *memory)
{
    if (!event_memory_is_piece(memory)) {
        free(memory);
        return;
    }
    struct free_piece *piece = memory;
    piece->next = free_pieces;
    free_pieces = piece;
}
