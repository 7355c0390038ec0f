/* SPDX-License-Identifier: MIT */
/* Signals that are read from a descriptor instead of interrupting. */
#ifndef CLI_SIGNALS_H
#define CLI_SIGNALS_H

#include <signal.h>
#include <stddef.h>

/* Those that ask a program to end. */
enum { SIGNALS_ENDING_COUNT = 4 };
extern const int signals_ending[SIGNALS_ENDING_COUNT];

/*
 * Adds these signals to the set and blocks them; from now on they come through the descriptor that is returned: `fd`,
 * or a new one if that is -1. A signal that is ignored (nohup) stays so, and is left out. -1: no descriptor can be had.
 */
int signals_take(int fd, const int *signals, size_t count, sigset_t *set);
/* The next one that has come; 0: none. */
int signals_next(int fd);
#endif
