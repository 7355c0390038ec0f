/* SPDX-License-Identifier: MIT */
/* Asking for permits, as run and acquire do: what is asked, the wait and what is said meanwhile, and its end. */
#ifndef CLI_ASK_H
#define CLI_ASK_H

#include "cli/cli.h"

/* What the command line leaves to the verb. */
struct ask {
    int64_t ttl_ms;  /* unless --ttl */
    int64_t wait_ms; /* unless --wait or --no-wait */
    int signal_fd;   /* the wait ends when a signal comes through it */
};

/*
 * Acquires. False: no permit; why has been said, nothing is left behind or it has been said what may be, and *ret_code
 * is the exit status, 128 + n after a signal. The caller frees the request.
 */
bool ask_acquire(struct cli *cli, const struct ask *ask, struct permit_request **ret_request, int *ret_code) MUST_CHECK;
/*
 * Tries to release what is of no use any more: three times if nobody answers, four seconds in all. A signal cuts it
 * short (signal_fd; 0: none).
 * False: it may be held until its ttl is over.
 */
bool ask_give_back(const struct cli *cli, const char *key, int signal_fd);
#endif
