/* SPDX-License-Identifier: MIT */
/*
 * A terminal in use for a live display, with plain escape sequences: frames of lines, keys, and the signals of a
 * terminal. Knows nothing of permits. screen_close restores the terminal; it is also restored while permitctl is
 * stopped.
 */
#ifndef CLI_SCREEN_H
#define CLI_SCREEN_H

#include <termios.h>

#include "base/base.h"
#include "base/buf.h"
#include "base/clock.h"

struct screen {
    int events; /* epoll descriptor; readable after a key or a signal, so that a call can be cancelled */
    int signal_fd;
    bool has_keys; /* standard input is a terminal too */
    struct termios before;
    struct buf frame;
};

enum screen_event {
    SCREEN_TIME,   /* the time has passed, or a key asks for a refresh */
    SCREEN_REDRAW, /* the terminal was resized, or permitctl was continued */
    SCREEN_END,    /* q, or a signal */
};

/* Returns true if standard output is a terminal that understands escape sequences. */
bool screen_is_usable(void);
/* Takes the terminal. Returns false if no descriptors are left; then there is nothing to close. */
bool screen_open(struct screen *screen) MUST_CHECK;
void screen_close(struct screen *screen);
void screen_size(int *ret_rows, int *ret_columns);
/*
 * Shows exactly these lines, each ended by a line feed; the caller has cut them to the size. Line number `heading` is
 * highlighted. Returns false if the terminal is gone.
 */
bool screen_show(struct screen *screen, const char *lines, int heading) MUST_CHECK;
/* Sleeps until that time, a key or a signal. After SCREEN_END *ret_code is the exit status: 0, or 128 + n. */
enum screen_event screen_wait(struct screen *screen, mono_us until, int *ret_code);
#endif
