/* SPDX-License-Identifier: MIT */
/*
 * A command in a process group of its own: started, signalled and waited for as a shell does with a job. Knows nothing
 * of permits. The caller has blocked the signals that it wants to hand on (and SIGTTOU), and leaves SIGCHLD at its
 * default.
 */
#ifndef CLI_JOB_H
#define CLI_JOB_H

#include <signal.h>
#include <sys/types.h>

#include "base/base.h"

struct job {
    pid_t pid;       /* and of its group */
    int terminal;    /* our controlling terminal; -1: none */
    int wait_status; /* once it has ended: as waitpid gave it */
};

enum job_state { JOB_RUNS, JOB_STOPPED, JOB_ENDED };

/*
 * Runs argv[0], found by PATH, with `mask` as its blocked signals. It gets the terminal's foreground if we have it.
 * death_signal (0: none) is what the kernel sends it if we die. Returns 0, or the errno with which it could not be
 * started.
 */
int job_start(struct job *job, char **argv, const sigset_t *mask, int death_signal) MUST_CHECK;
/* Call after SIGCHLD, until it says JOB_RUNS or JOB_ENDED. */
enum job_state job_look(struct job *job, int *ret_stop_signal);
/* To the whole group. */
void job_signal(const struct job *job, int signal);
/*
 * The command was stopped by `signal`. One that asked for the terminal gets it, if it is ours to give; one that was
 * stopped from the terminal stops us too, so that the shell sees it, until the shell continues us. True: the command
 * may go on (job_continue). False: somebody stopped it on purpose, and will continue it.
 */
bool job_stopped(struct job *job, int signal) MUST_CHECK;
void job_continue(const struct job *job);
/* True while any process of the group is left. */
bool job_group_exists(const struct job *job);
/* After its end: the terminal is ours again. */
void job_release(struct job *job);
/* The status for our own exit: its own, or 128 + n. */
int job_exit_status(const struct job *job);
#endif
