/* SPDX-License-Identifier: MIT */
/*
 * Memory of libevent. It keeps a small piece for each file descriptor that it has ever seen. In the heap these pieces
 * lie between those of the connections, and after a crowd of connections each of them keeps a page resident. So small
 * pieces come from a region of their own.
 */
#ifndef HTTP_EVENT_MEMORY_H
#define HTTP_EVENT_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

/* As malloc, realloc and free, for the thread of the server only. A piece of up to 16 bytes comes from the region. */
void *event_memory_alloc(size_t size);
void *event_memory_realloc(void *memory, size_t size);
void event_memory_free(void *memory);
/* Returns true if the piece is in the region. */
bool event_memory_is_piece(const void *memory);
#endif
