/* SPDX-License-Identifier: MIT */
/*
 * Child processes that must not outlive us. Mind: the kernel sends the signal of PR_SET_PDEATHSIG when the *thread*
 * that forked ends, so process_spawn is called from a thread that lives as long as the child should.
 */
#ifndef STORE_PROCESS_H
#define STORE_PROCESS_H

#include <sys/types.h>

#include "base/base.h"

struct process {
    pid_t pid; /* 0: there is none */
    int pidfd; /* -1: the kernel has no such thing; then we look every now and then */
};

struct process_start {
    const char *path;
    char *const *arguments; /* of execv */
    int output_fd;          /* its standard output and error; its input is /dev/null */
};

/* The absolute path of a program, looked for in PATH and where administrators' programs are. NULL: there is none.
 * Caller frees. */
char *process_find(const char *name) MUST_CHECK;
/* In a session of its own: what a terminal sends to us does not reach it. False: errno says why. */
bool process_spawn(const struct process_start *start, struct process *ret_process) MUST_CHECK;
/*
 * Waits until it has ended (true: *process is empty again, *ret_exit is as from waitpid), or until wake_fd is readable
 * or timeout_ms have passed (false). wake_fd -1: nothing else wakes; timeout_ms -1: no limit.
 */
bool process_wait(struct process *process, int wake_fd, int timeout_ms, int *ret_exit) MUST_CHECK;
/* What a process and those that it has started have done since they began, as far as the kernel shows it to us. */
struct process_activity {
    uint64_t cpu_ms;
    uint64_t disk_bytes; /* read from disks and written to them */
    uint64_t io;         /* of no unit: it changes with all that they read or write, and when one of them ends */
    char state;          /* of the process itself, as in ps: 'D' waits in the kernel, 'T' is stopped; 0: it is gone */
};
void process_look(const struct process *process, struct process_activity *ret_activity);

/*
 * SIGTERM to it and to those that it has started, also to stopped ones; SIGKILL after grace_ms; returns when it has
 * ended. Accepts an empty one.
 */
void process_stop(struct process *process, int grace_ms);
/* The same for a process that is not our child, if it runs with this argument (pids are used again). */
void process_stop_stranger(pid_t pid, const char *argument, int grace_ms);
/* True if this pid is a living process and one of its arguments is this one. */
bool process_has_argument(pid_t pid, const char *argument);
#endif
