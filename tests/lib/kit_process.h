/* SPDX-License-Identifier: MIT */
/* Between the files of the kit: children, and the logs that are shown when something fails. */
#ifndef KIT_PROCESS_H
#define KIT_PROCESS_H

#include "testkit.h"

/*
 * Starts argv[0] (searched in PATH) with standard output to stdout_fd and standard error appended to stderr_path; it
 * gets SIGKILL when the calling thread ends.
 */
pid_t kit_spawn(const char *const *argv, int stdout_fd, const char *stderr_path);
/* The status of waitpid, or -1 if it still runs after `ms`. */
int kit_wait_pid(pid_t pid, int ms);
/* strdup and asprintf that cannot fail. */
char *kit_copy(const char *text);
char *kit_text(const char *format, ...) KIT_PRINTF(1, 2);
/* From now on kit_fail shows the end of this file. Copies the path. */
void kit_watch_log(const char *path);
#endif
