/* SPDX-License-Identifier: MIT */
/* Tests of unflushed.c. */
#ifndef UNFLUSHED_H
#define UNFLUSHED_H

/* A mark that was written but not flushed is flushed by the next call with its token. kit_fail otherwise. */
void unflushed_marks_are_flushed_again(const char *path);
#endif
