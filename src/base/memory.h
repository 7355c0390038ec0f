/* SPDX-License-Identifier: MIT */
/* The memory of the whole process: its resident size, and returning freed memory to the system. */
#ifndef BASE_MEMORY_H
#define BASE_MEMORY_H

#include "base/base.h"

/*
 * Configures malloc to map large pieces one by one, so that freeing them returns them to the system. Call once at
 * startup.
 */
void memory_configure(void);
/* Returns the resident size in bytes; 0: unknown. */
size_t memory_resident(void);
/* Returns free memory between used pieces to the system. The time it takes grows with that amount. */
void memory_trim(void);
#endif
