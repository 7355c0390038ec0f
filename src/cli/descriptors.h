/* SPDX-License-Identifier: MIT */
/*
 * The descriptors that were open when permitctl started. A command that it runs inherits these, and none opened later.
 * (permitctl opens its own close-on-exec; libcurl opens some that are not.)
 */
#ifndef CLI_DESCRIPTORS_H
#define CLI_DESCRIPTORS_H

#include <sys/select.h>

/* Records the open descriptors. */
void descriptors_note(fd_set *ret_open);
/* Sets close-on-exec on all descriptors opened since. */
void descriptors_hide(const fd_set *noted);
#endif
