/* SPDX-License-Identifier: MIT */
/*
 * The descendants of this process, in any process group or session. With PR_SET_CHILD_SUBREAPER, which descendants_keep
 * sets, they include processes whose parent has ended. Needs /proc.
 */
#ifndef CLI_DESCENDANTS_H
#define CLI_DESCENDANTS_H

#include <sys/types.h>

#include "base/base.h"

/* From now on a descendant whose parent ends becomes a child of this process, which then has to wait for it. */
void descendants_keep(void);
/*
 * Sends the signal (0: none) to every descendant that has not ended and is not in the process group `except` (0: no
 * exception). Returns true if there is such a descendant, in that group or not. *ret_refused: a descendant that this
 * process may not signal; untouched if there is none.
 */
bool descendants_signal(int signal, pid_t except, pid_t *ret_refused) MUST_CHECK;
#endif
