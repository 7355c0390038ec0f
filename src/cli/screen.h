/* SPDX-License-Identifier: MIT */
/*
 * A terminal taken over for a live display, with plain escape sequences: frames of lines, keys, and the signals that a
 * terminal brings. Knows nothing of permits. The terminal is as it was after screen_close, and while we are stopped.
 */
#ifndef CLI_SCREEN_H
#define CLI_SCREEN_H

#include <termios.h>

#include "base/base.h"
#include "base/buf.h"
#include "base/clock.h"

struct screen {
    int events; /* readable when a key was pressed or a signal came: so that a call can be broken off for it */
    int signal_fd;
    bool has_keys; /* standard input is the terminal too */
    struct termios before;
    struct buf frame;
};

enum screen_event {
    SCREEN_TIME,   /* the time is over, or somebody pressed a key and wants news */
    SCREEN_REDRAW, /* the terminal has another size, or is ours again */
    SCREEN_END,    /* q, or a signal */
};

/* True if standard output is a terminal that knows more than lines. */
bool screen_is_there(void);
/* False: no descriptors are left; then there is nothing to close. */
bool screen_open(struct screen *screen) MUST_CHECK;
void screen_close(struct screen *screen);
void screen_size(int *ret_rows, int *ret_columns);
/*
 * Shows these lines, each closed by a line feed, and nothing else; the caller has cut them to the size. Line number
 * `heading` stands out. False: the terminal is gone.
 */
bool screen_show(struct screen *screen, const char *lines, int heading) MUST_CHECK;
/* Sleeps until then, or something comes. After SCREEN_END *ret_code is the exit status: 0, or 128 + n. */
enum screen_event screen_wait(struct screen *screen, mono_us until, int *ret_code);
#endif
