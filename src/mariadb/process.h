/* SPDX-License-Identifier: MIT */
/*
 * Child processes that must not outlive permitd. The kernel sends the signal of PR_SET_PDEATHSIG when the *thread* that
 * forked ends. So call process_spawn from a thread that lives as long as the child.
 */
#ifndef MARIADB_PROCESS_H
#define MARIADB_PROCESS_H

#include <sys/types.h>

#include "base/base.h"

struct process {
    pid_t pid; /* 0: no process */
    int pidfd; /* -1: the kernel has no pidfd; then process_wait polls every 50 ms */
};

struct process_start {
    const char *path;
    char *const *arguments; /* for execv, ends with NULL */
    int output_fd;          /* its standard output and error; its standard input is /dev/null */
};

/*
 * Returns the absolute path of a program in PATH, or in the directories of system programs. NULL: not found. The caller
 * frees it.
 */
char *process_find(const char *name) MUST_CHECK;
/* Starts a child in a session of its own, so that terminal signals do not reach it. False: errno has the cause. */
bool process_spawn(const struct process_start *start, struct process *ret_process) MUST_CHECK;
/*
 * Waits for the end of the process. Returns true when it has ended: *process is empty, *ret_exit is the status of
 * waitpid. Returns false when wake_fd is readable or timeout_ms have passed. wake_fd -1: none; timeout_ms -1: no limit.
 */
bool process_wait(struct process *process, int wake_fd, int timeout_ms, int *ret_exit) MUST_CHECK;
/* CPU time and input and output of a process and its descendants since their start, as far as /proc shows them. */
struct process_activity {
    uint64_t cpu_ms;
    uint64_t disk_bytes; /* bytes read from and written to disks */
    uint64_t io;         /* a sum without unit: changes with any read or write, and when a descendant ends */
    char state;          /* state of the process, as in ps: 'D' waits in the kernel, 'T' is stopped; 0: it has ended */
};
/* Reads the activity. Descendants are the processes in the session of `process`. */
void process_read_activity(const struct process *process, struct process_activity *ret_activity);

/*
 * Ends the process and its group: SIGTERM, which reaches stopped processes too, and SIGKILL after grace_ms. Returns
 * when the process has ended. Accepts an empty one.
 */
void process_stop(struct process *process, int grace_ms);
/*
 * Ends a process that is not a child, by SIGTERM, and SIGKILL after grace_ms. Does nothing unless one of its arguments
 * is `argument`, because the pid may belong to another process now.
 */
void process_stop_foreign(pid_t pid, const char *argument, int grace_ms);
/* Returns true if the pid is a living process and one of its arguments is `argument`. */
bool process_has_argument(pid_t pid, const char *argument);
#endif
