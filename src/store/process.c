/* SPDX-License-Identifier: MIT */
#include "store/process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

enum {
    LOOK_EVERY_MS = 50, /* where nothing tells us that a process has ended */
    KILL_WAIT_MS = 10000,
    PATH_SIZE = 4096,
};

char *process_find(const char *name)
{
    static const char elsewhere[] = "/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin:/usr/libexec";
    const char *path = getenv("PATH");
    const char *const lists[] = {path ? path : "", elsewhere};
    for (size_t i = 0; i < ARRAY_LENGTH(lists); i++) {
        for (const char *entry = lists[i]; *entry;) {
            size_t length = strcspn(entry, ":");
            char *file = NULL;
            if (length > 0 && entry[0] == '/' && asprintf(&file, "%.*s/%s", (int)length, entry, name) < 0)
                return NULL;
            if (file && access(file, X_OK) == 0)
                return file;
            free(file);
            entry += length + (entry[length] == ':');
        }
    }
    return NULL;
}

/*
 * In the child, between fork and exec: only calls that are safe there. The user is changed before the death signal is
 * asked for, because changing it makes the kernel forget the signal; by system call, because glibc's setuid talks to
 * all threads.
 */
static _Noreturn void child_become(const struct process_start *start, pid_t parent)
{
    sigset_t none;
    int input = open("/dev/null", O_RDONLY);
    sigemptyset(&none);
    setsid();
    if (input < 0 || dup2(input, STDIN_FILENO) < 0 || dup2(start->output_fd, STDOUT_FILENO) < 0 ||
        dup2(start->output_fd, STDERR_FILENO) < 0)
        _exit(127);
    (void)syscall(SYS_close_range, 3U, ~0U, 0U);
    if (start->as_user && (syscall(SYS_setgroups, 0, NULL) != 0 || syscall(SYS_setgid, start->gid) != 0 ||
                           syscall(SYS_setuid, start->uid) != 0))
        _exit(127);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) /* it died before we asked to be told */
        _exit(127);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execv(start->path, start->arguments);
    _exit(127);
}

bool process_spawn(const struct process_start *start, struct process *ret_process)
{
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid < 0)
        return false;
    if (pid == 0)
        child_become(start, parent);
    *ret_process = (struct process){.pid = pid, .pidfd = (int)syscall(SYS_pidfd_open, pid, 0)};
    return true;
}

static bool process_reap(struct process *process, int *ret_exit)
{
    pid_t reaped;
    do
        reaped = waitpid(process->pid, ret_exit, WNOHANG);
    while (reaped < 0 && errno == EINTR);
    if (reaped == 0)
        return false;
    if (reaped < 0) /* somebody else has reaped it */
        *ret_exit = 0;
    if (process->pidfd >= 0)
        close(process->pidfd);
    *process = (struct process){.pid = 0, .pidfd = -1};
    return true;
}

/* How long poll may sleep: to the deadline, or to the next look. */
static int wait_step(const struct process *process, mono_us deadline)
{
    int64_t left_ms = deadline == NEVER ? INT32_MAX : max_i64(0, (deadline - clock_mono() + US_PER_MS - 1) / US_PER_MS);
    if (process->pidfd < 0)
        return (int)min_i64(left_ms, LOOK_EVERY_MS);
    return deadline == NEVER ? -1 : (int)min_i64(left_ms, INT32_MAX);
}

bool process_wait(struct process *process, int wake_fd, int timeout_ms, int *ret_exit)
{
    mono_us deadline = timeout_ms < 0 ? NEVER : clock_mono() + (mono_us)timeout_ms * US_PER_MS;
    for (;;) {
        struct pollfd polled[] = {{.fd = process->pidfd, .events = POLLIN}, {.fd = wake_fd, .events = POLLIN}};
        (void)poll(polled, ARRAY_LENGTH(polled), wait_step(process, deadline));
        if (process_reap(process, ret_exit))
            return true;
        if (polled[1].revents || (deadline != NEVER && clock_mono() >= deadline))
            return false;
    }
}

void process_stop(struct process *process, int grace_ms)
{
    int exit_status;
    if (process->pid == 0)
        return;
    kill(process->pid, SIGTERM);
    kill(process->pid, SIGCONT);
    if (process_wait(process, -1, grace_ms, &exit_status))
        return;
    kill(process->pid, SIGKILL);
    while (!process_wait(process, -1, KILL_WAIT_MS, &exit_status))
        ; /* in an uninterruptible system call; it keeps our files open, so we must not go on without it */
}

bool process_has_argument(pid_t pid, const char *argument)
{
    char path[64];
    char line[PATH_SIZE * 4];
    snprintf(path, sizeof path, "/proc/%d/cmdline", (int)pid);
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    size_t length = fread(line, 1, sizeof line - 1, file); /* empty for one that has ended and is not reaped */
    fclose(file);
    line[length] = '\0';
    for (size_t at = 0; at < length; at += strlen(line + at) + 1)
        if (strcmp(line + at, argument) == 0)
            return true;
    return false;
}

static bool stranger_ends(pid_t pid, const char *argument, int wait_ms)
{
    mono_us deadline = clock_mono() + (mono_us)wait_ms * US_PER_MS;
    const struct timespec step = {.tv_nsec = LOOK_EVERY_MS * 1000000L};
    while (process_has_argument(pid, argument)) {
        if (clock_mono() >= deadline)
            return false;
        nanosleep(&step, NULL);
    }
    return true;
}

void process_stop_stranger(pid_t pid, const char *argument, int grace_ms)
{
    if (!process_has_argument(pid, argument))
        return;
    kill(pid, SIGTERM);
    kill(pid, SIGCONT);
    if (stranger_ends(pid, argument, grace_ms))
        return;
    kill(pid, SIGKILL);
    (void)stranger_ends(pid, argument, KILL_WAIT_MS);
}
