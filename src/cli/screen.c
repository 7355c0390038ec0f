/* SPDX-License-Identifier: MIT */
#include "cli/screen.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/io.h"
#include "cli/signals.h"

enum { ROWS = 24, COLUMNS = 80, FRAME_MAX_BYTES = 1024 * 1024, KEY_EOT = 4 };

/* Alternate screen, no cursor, long lines cut at the edge. */
static const char enter_codes[] = "\033[?1049h\033[?25l\033[?7l";
static const char leave_codes[] = "\033[?7h\033[?25h\033[?1049l";

bool screen_is_usable(void)
{
    const char *kind = getenv("TERM");
    return isatty(STDOUT_FILENO) && kind && *kind && strcmp(kind, "dumb") != 0;
}

/* ---- Ours, and back ---- */

/* Takes the terminal: keys arrive immediately and are not echoed; Ctrl-C and Ctrl-Z stay signals. */
static void enter(struct screen *screen)
{
    struct termios ours;
    screen->has_keys = tcgetattr(STDIN_FILENO, &screen->before) == 0;
    ours = screen->before;
    ours.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    ours.c_iflag &= ~(tcflag_t)IXON;
    ours.c_cc[VMIN] = 1;
    ours.c_cc[VTIME] = 0;
    if (screen->has_keys)
        (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &ours);
    (void)!io_write(STDOUT_FILENO, enter_codes, sizeof(enter_codes) - 1);
}

static void leave(const struct screen *screen)
{
    (void)!io_write(STDOUT_FILENO, leave_codes, sizeof(leave_codes) - 1);
    if (screen->has_keys)
        (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &screen->before);
}

static bool add_to_epoll(const struct screen *screen, int fd)
{
    struct epoll_event event = {.events = EPOLLIN};
    return epoll_ctl(screen->events, EPOLL_CTL_ADD, fd, &event) == 0;
}

static void close_descriptors(struct screen *screen)
{
    if (screen->signal_fd >= 0)
        (void)close(screen->signal_fd);
    if (screen->events >= 0)
        (void)close(screen->events);
}

bool screen_open(struct screen *screen)
{
    static const int signals[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGWINCH};
    sigset_t set;
    sigemptyset(&set);
    *screen = (struct screen){.events = epoll_create1(EPOLL_CLOEXEC)};
    screen->signal_fd = signals_take(-1, signals, ARRAY_LENGTH(signals), &set);
    if (screen->events < 0 || screen->signal_fd < 0 || !add_to_epoll(screen, screen->signal_fd) ||
        (isatty(STDIN_FILENO) && !add_to_epoll(screen, STDIN_FILENO))) {
        close_descriptors(screen);
        return false;
    }
    buf_init(&screen->frame, FRAME_MAX_BYTES);
    enter(screen);
    return true;
}

void screen_close(struct screen *screen)
{
    leave(screen);
    close_descriptors(screen);
    buf_release(&screen->frame);
}

/* ---- Frames ---- */

void screen_size(int *ret_rows, int *ret_columns)
{
    struct winsize size;
    bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 && size.ws_col > 0;
    *ret_rows = known ? size.ws_row : ROWS;
    *ret_columns = known ? size.ws_col : COLUMNS;
}

/*
 * Writes the frame in one write, from the top left. It overwrites the old lines and clears the rest of each, so nothing
 * flickers. The last line has no line feed, which would scroll.
 */
bool screen_show(struct screen *screen, const char *lines, int heading)
{
    struct buf *frame = &screen->frame;
    buf_clear(frame);
    buf_append_text(frame, "\033[H");
    for (int line = 0; *lines; line++) {
        size_t length = strcspn(lines, "\n");
        buf_append_text(frame, line ? "\r\n" : "");
        buf_append_text(frame, line == heading ? "\033[7m" : "");
        buf_append(frame, lines, length);
        buf_append_text(frame, line == heading ? "\033[K\033[m" : "\033[K");
        lines += length + (lines[length] == '\n');
    }
    buf_append_text(frame, "\033[J");
    return !frame->broken && io_write(STDOUT_FILENO, frame->data, frame->length);
}

/* ---- Events ---- */

static enum screen_event handle_signal(struct screen *screen, int signal, int *ret_code)
{
    if (signal == SIGTSTP) { /* Ctrl-Z: the shell gets the terminal until it continues permitctl */
        leave(screen);
        (void)kill(getpid(), SIGSTOP);
        enter(screen);
    }
    if (signal == SIGTSTP || signal == SIGWINCH)
        return SCREEN_REDRAW;
    *ret_code = 128 + signal;
    return SCREEN_END;
}

/* Reads keys. The end of the input means that the terminal is gone. */
static enum screen_event read_keys(int *ret_code)
{
    char keys[64];
    ssize_t length = read(STDIN_FILENO, keys, sizeof(keys));
    bool end = length <= 0 && errno != EINTR;
    for (ssize_t i = 0; i < length; i++)
        end = end || keys[i] == 'q' || keys[i] == 'Q' || keys[i] == KEY_EOT;
    *ret_code = 0;
    return end ? SCREEN_END : SCREEN_TIME;
}

enum screen_event screen_wait(struct screen *screen, mono_us until, int *ret_code)
{
    struct pollfd events[] = {{.fd = screen->signal_fd, .events = POLLIN},
                              {.fd = screen->has_keys ? STDIN_FILENO : -1, .events = POLLIN}};
    int64_t left_ms = (max_i64(0, until - clock_mono()) + US_PER_MS - 1) / US_PER_MS;
    if (poll(events, ARRAY_LENGTH(events), (int)min_i64(left_ms, INT32_MAX)) <= 0)
        return SCREEN_TIME;
    int signal = events[0].revents ? signals_next(screen->signal_fd) : 0;
    return signal ? handle_signal(screen, signal, ret_code) : read_keys(ret_code);
}
