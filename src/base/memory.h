/* SPDX-License-Identifier: MIT */
/* The memory of the whole process: how much is resident, and that what was freed goes back to the system. */
#ifndef BASE_MEMORY_H
#define BASE_MEMORY_H

#include "base/base.h"

/* Once, at the start: large pieces are mapped one by one, so that they go back when they are freed. */
void memory_begin(void);
/* Resident bytes; 0 if the system does not tell. */
size_t memory_resident(void);
/* Gives back what lies free between pieces that are used. It takes the longer, the more that is. */
void memory_trim(void);
#endif
