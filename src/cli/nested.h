/* SPDX-License-Identifier: MIT */
/*
 * Runs inside runs. A command under permitctl run may call permitctl run again. PERMIT_REQUESTS has the keys of all its
 * outer runs, outermost first, with blanks between them. These release their permits only after the inner command has
 * ended, so an inner run must not wait for them.
 */
#ifndef CLI_NESTED_H
#define CLI_NESTED_H

#include "cli/cli.h"

/* Returns PERMIT_REQUESTS, or PERMIT_REQUEST of a program that sets no list; NULL: this is no inner run. */
const char *nested_keys(void);
/*
 * Returns true if a wait for these units cannot end while the outer runs hold theirs: more units are wanted than the
 * capacity less those, or a named slot is among them. Prints the reason. An outer run that the server does not show as
 * held counts nothing. `signal_fd`: a signal on it ends the calls.
 */
bool nested_waits_for_itself(struct cli *cli, int signal_fd) MUST_CHECK;
#endif
