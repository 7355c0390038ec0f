/* SPDX-License-Identifier: MIT */
/* Acquires permits for run and acquire: the request, the messages during the wait, and the cleanup after a failure. */
#ifndef CLI_ACQUIRE_CMD_H
#define CLI_ACQUIRE_CMD_H

#include "cli/cli.h"

/* Defaults of the verb. */
struct acquire_cmd {
    int64_t ttl_ms;  /* used without --ttl, or the max_ttl of the semaphores if that is shorter; 0: theirs */
    int64_t wait_ms; /* used without --wait and --no-wait */
    int signal_fd;   /* a signal that arrives on it ends the wait */
};

/*
 * Acquires. The caller frees *ret_request. Returns false if there is no permit: the reason has been printed, a grant
 * that may exist has been released or reported, and *ret_code is the exit status, 128 + n after a signal.
 */
bool acquire_cmd_run(struct cli *cli, const struct acquire_cmd *cmd, struct permit_request **ret_request,
                     int *ret_code) MUST_CHECK;
/* Reports that the permits belong to another client, which has used the same key. Returns the exit status. */
int acquire_cmd_refuse_replay(const struct cli *cli, const struct permit_request *request);
/*
 * Tries to release a permit that is no longer needed: three times if there is no answer, four seconds in all. A signal
 * on signal_fd (0: none) cuts it short. Returns false if the permit may be held until its ttl expires.
 */
bool acquire_cmd_release(const struct cli *cli, const char *key, int signal_fd);
#endif
