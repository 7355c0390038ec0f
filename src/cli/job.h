/* SPDX-License-Identifier: MIT */
/*
 * A command in its own process group: started, signalled and waited for as a shell does with a job. Knows nothing of
 * permits. The caller has blocked the signals that it passes on (and SIGTTOU, SIGTSTP, SIGCONT), and leaves SIGCHLD at
 * its default.
 */
#ifndef CLI_JOB_H
#define CLI_JOB_H

#include <signal.h>
#include <sys/types.h>

#include "base/base.h"

struct job {
    pid_t pid;    /* also the id of its process group */
    int terminal; /* the controlling terminal; -1: none */
    bool ended;
    int wait_status; /* from waitpid; set once it has ended */
};

enum job_state { JOB_RUNS, JOB_STOPPED, JOB_ENDED };

/* Signal state of the command: that of permitctl at its start. */
struct job_signals {
    sigset_t mask;      /* blocked signals */
    bool child_ignored; /* SIGCHLD was ignored; other dispositions are inherited */
    int death_signal;   /* the kernel sends it to the command if permitctl dies; 0: none */
};

/*
 * Runs argv[0], searched in PATH. The command gets the terminal's foreground if permitctl has it and no pipe is
 * connected. Returns 0, or the errno of a failed start.
 */
int job_start(struct job *job, char **argv, const struct job_signals *signals) MUST_CHECK;
/*
 * Reads the state of the job. Call it after SIGCHLD until it returns JOB_RUNS or JOB_ENDED. Also waits for orphans that
 * have become children of permitctl.
 */
enum job_state job_poll(struct job *job, int *ret_stop_signal);
/* Sends the signal to the whole group. */
void job_signal(const struct job *job, int signal);
/*
 * Handles a stop of the command by `signal`. A command that asked for the terminal gets it if permitctl has it. A stop
 * from the terminal also stops permitctl and the rest of its process group (a pipeline), so that the shell sees the
 * stop; they run again when the shell continues them. Returns true if the command may continue (job_continue). False:
 * another process stopped the command on purpose, and will continue it.
 */
bool job_stopped(struct job *job, int signal) MUST_CHECK;
void job_continue(const struct job *job);
/*
 * Sends the signal to the whole group and to each other process that the command has left behind (descendants.h).
 * Returns false if no process is left. *ret_refused: a process that permitctl may not signal; untouched if there is
 * none.
 */
bool job_signal_all(const struct job *job, int signal, pid_t *ret_refused) MUST_CHECK;
/* Takes the terminal back after the end of the command. */
void job_release(struct job *job);
/* Returns the exit status for permitctl: that of the command, or 128 + n after signal n. */
int job_exit_status(const struct job *job);
#endif
