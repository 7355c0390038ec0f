/* SPDX-License-Identifier: MIT */
/*
 * A command in a process group of its own: started, signalled and waited for as a shell does with a job. Knows nothing
 * of permits. The caller has blocked the signals that it wants to hand on (and SIGTTOU, SIGTSTP, SIGCONT), and leaves
 * SIGCHLD at its default.
 */
#ifndef CLI_JOB_H
#define CLI_JOB_H

#include <signal.h>
#include <sys/types.h>

#include "base/base.h"

struct job {
    pid_t pid;    /* and of its group */
    int terminal; /* our controlling terminal; -1: none */
    bool ended;
    int wait_status; /* once it has ended: as waitpid gave it */
};

enum job_state { JOB_RUNS, JOB_STOPPED, JOB_ENDED };

/* How the command finds its signals: as we found them. */
struct job_signals {
    sigset_t mask;      /* blocked */
    bool child_ignored; /* SIGCHLD; other dispositions are inherited */
    int death_signal;   /* what the kernel sends it if we die; 0: none */
};

/*
 * Runs argv[0], found by PATH. It gets the terminal's foreground if we have it. Returns 0, or the errno with which it
 * could not be started.
 */
int job_start(struct job *job, char **argv, const struct job_signals *signals) MUST_CHECK;
/*
 * Call after SIGCHLD, until it says JOB_RUNS or JOB_ENDED. Waits for orphans, too, that have become children of ours.
 */
enum job_state job_look(struct job *job, int *ret_stop_signal);
/* To the whole group. */
void job_signal(const struct job *job, int signal);
/*
 * The command was stopped by `signal`. One that asked for the terminal gets it, if it is ours to give; one that was
 * stopped from the terminal stops us too, and the rest of our process group (a pipeline), so that the shell sees it,
 * until the shell continues us. True: the command may go on (job_continue). False: somebody stopped it on purpose, and
 * will continue it.
 */
bool job_stopped(struct job *job, int signal) MUST_CHECK;
void job_continue(const struct job *job);
/*
 * To the whole group, and to each other process that the command has left behind (descendants.h). False: nothing of it
 * is left. *ret_refused: a process that we may not signal; untouched if there is none.
 */
bool job_signal_all(const struct job *job, int signal, pid_t *ret_refused) MUST_CHECK;
/* After its end: the terminal is ours again. */
void job_release(struct job *job);
/* The status for our own exit: its own, or 128 + n. */
int job_exit_status(const struct job *job);
#endif
