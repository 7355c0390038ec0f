/* SPDX-License-Identifier: MIT */
/* Shared by the files of the kit: child processes, and the logs to show after a failure. */
#ifndef KIT_PROCESS_H
#define KIT_PROCESS_H

#include "testkit.h"

/*
 * Starts argv[0] (searched in PATH) with standard output to stdout_fd and standard error appended to stderr_path. The
 * child gets SIGKILL when the calling thread ends.
 */
pid_t kit_spawn(const char *const *argv, int stdout_fd, const char *stderr_path);
/* Returns the status of waitpid, or -1 if the process still runs after `ms`. */
int kit_wait_pid(pid_t pid, int ms);
/* strdup and asprintf that end the process on failure. */
char *kit_copy(const char *text);
char *kit_text(const char *format, ...) KIT_PRINTF(1, 2);
/* Adds a file to the logs whose end kit_fail shows. Copies the path. */
void kit_watch_log(const char *path);
#endif
