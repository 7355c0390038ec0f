/* SPDX-License-Identifier: MIT */
/*
 * The processes that descend from this one, in whatever process group or session they are. With
 * PR_SET_CHILD_SUBREAPER, which descendants_keep sets, they include those whose parent has ended. Needs /proc.
 */
#ifndef CLI_DESCENDANTS_H
#define CLI_DESCENDANTS_H

#include <sys/types.h>

#include "base/base.h"

/* From now on a descendant whose parent ends becomes a child of ours, to be waited for. */
void descendants_keep(void);
/*
 * Sends the signal (0: none) to every descendant that has not ended and is not of the process group `except` (0: none
 * is left out). True: there is one, of that group too. *ret_refused: one that we may not signal; untouched if there is
 * none.
 */
bool descendants_signal(int signal, pid_t except, pid_t *ret_refused) MUST_CHECK;
#endif
