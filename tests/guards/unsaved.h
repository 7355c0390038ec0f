/* SPDX-License-Identifier: MIT */
/* What unsaved.c tries. */
#ifndef UNSAVED_H
#define UNSAVED_H

/* A mark that was written and not flushed is flushed by the next call with its token. kit_fail if not. */
void unsaved_marks_are_saved_again(const char *path);
#endif
