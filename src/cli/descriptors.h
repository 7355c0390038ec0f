/* SPDX-License-Identifier: MIT */
/*
 * Which descriptors were there when we started: a command that we run inherits those, on purpose, and none of our own.
 * (Ours are close-on-exec where we open them; libcurl opens some that are not.)
 */
#ifndef CLI_DESCRIPTORS_H
#define CLI_DESCRIPTORS_H

#include <sys/select.h>

/* Notes the open ones. */
void descriptors_note(fd_set *ret_open);
/* Makes those close-on-exec that have been opened since. */
void descriptors_hide(const fd_set *noted);
#endif
