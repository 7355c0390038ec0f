/* SPDX-License-Identifier: MIT */
/* Signals read from a descriptor instead of interrupting. */
#ifndef CLI_SIGNALS_H
#define CLI_SIGNALS_H

#include <signal.h>
#include <stddef.h>

/* The signals that ask a program to end. */
enum { SIGNALS_ENDING_COUNT = 4 };
extern const int signals_ending[SIGNALS_ENDING_COUNT];

/*
 * Adds these signals to the set and blocks them. From now on they arrive on the descriptor that is returned: `fd`, or a
 * new one if that is -1. A signal that is ignored (nohup) stays ignored and is left out. Returns -1 if there is no
 * descriptor left.
 */
int signals_take(int fd, const int *signals, size_t count, sigset_t *set);
/* Returns the next signal that has arrived; 0: none. */
int signals_next(int fd);
#endif
