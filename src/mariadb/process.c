/* SPDX-License-Identifier: MIT */
#include "mariadb/process.h"

#include <dirent.h>
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
#include "base/io.h"

enum {
    POLL_EVERY_MS = 50, /* between checks, if no descriptor signals the end of the process */
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

/* Runs in the child between fork and exec, so it makes only async-signal-safe calls. */
static _Noreturn void child_become(const struct process_start *start, pid_t parent)
{
    int input = open("/dev/null", O_RDONLY);
    setsid();
    if (input < 0 || dup2(input, STDIN_FILENO) < 0 || dup2(start->output_fd, STDOUT_FILENO) < 0 ||
        dup2(start->output_fd, STDERR_FILENO) < 0)
        _exit(127);
    (void)syscall(SYS_close_range, 3U, ~0U, 0U);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) /* the parent ended before the prctl */
        _exit(127);
    /*
     * With the parent's handlers, a signal between the unmasking and exec would be lost in the child: a SIGTERM would
     * not end it.
     */
    sigset_t none;
    sigemptyset(&none);
    for (int number = 1; number < NSIG; number++)
        (void)signal(number, SIG_DFL); /* fails for SIGKILL and SIGSTOP, which have no handlers */
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
    if (reaped < 0) /* already reaped elsewhere: the status is lost */
        *ret_exit = 0;
    if (process->pidfd >= 0)
        close(process->pidfd);
    *process = (struct process){.pid = 0, .pidfd = -1};
    return true;
}

bool process_wait(struct process *process, int wake_fd, int timeout_ms, int *ret_exit)
{
    mono_us deadline = timeout_ms < 0 ? NEVER : clock_mono() + (mono_us)timeout_ms * US_PER_MS;
    for (;;) {
        struct pollfd polled[] = {{.fd = process->pidfd, .events = POLLIN}, {.fd = wake_fd, .events = POLLIN}};
        int64_t left_ms = deadline == NEVER ? -1 : max_i64(0, (deadline - clock_mono() + US_PER_MS - 1) / US_PER_MS);
        if (process->pidfd < 0) /* nothing signals the end of the process */
            left_ms = left_ms < 0 ? POLL_EVERY_MS : min_i64(left_ms, POLL_EVERY_MS);
        (void)poll(polled, ARRAY_LENGTH(polled), (int)min_i64(left_ms, INT32_MAX));
        if (process_reap(process, ret_exit))
            return true;
        if (polled[1].revents || (deadline != NEVER && clock_mono() >= deadline))
            return false;
    }
}

/* ---- activity ---- */

/* Reads /proc/PID/NAME as text. Returns its length; 0: the process has ended, or the file is not readable. */
static size_t read_proc_file(pid_t pid, const char *name, char *ret_text, size_t size)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd >= 0 ? io_read(fd, ret_text, size - 1) : -1;
    if (fd >= 0)
        close(fd);
    ret_text[length > 0 ? length : 0] = '\0';
    return length > 0 ? (size_t)length : 0;
}

/* Adds the numbers of /proc/PID/io. Its lines are "name: number": bytes and calls, and bytes of disks. */
static void activity_add_io(pid_t pid, struct process_activity *activity)
{
    char text[1024];
    if (!read_proc_file(pid, "io", text, sizeof text))
        return;
    for (const char *at = text; (at = strstr(at, ": ")); at += 2) {
        uint64_t number = strtoull(at + 2, NULL, 10);
        activity->io += number;
        if (at - text > 11 && (memcmp(at - 11, "\nread_bytes", 11) == 0 || memcmp(at - 12, "\nwrite_bytes", 12) == 0))
            activity->disk_bytes += number;
    }
}

/* Adds the activity of `pid` if it is in the session of `leader`, which only `leader` and its descendants are in. */
static void activity_add(pid_t pid, pid_t leader, struct process_activity *activity)
{
    char text[1024];
    char state;
    int session;
    unsigned long user, system;
    long ended_user, ended_system;
    const char *rest = read_proc_file(pid, "stat", text, sizeof text) ? strrchr(text, ')') : NULL;
    if (!rest || sscanf(rest, ") %c %*d %*d %d %*d %*d %*u %*u %*u %*u %*u %lu %lu %ld %ld", &state, &session, &user,
                        &system, &ended_user, &ended_system) != 6)
        return;
    if (session != leader)
        return;
    uint64_t ticks = user + system + (unsigned long)ended_user + (unsigned long)ended_system;
    activity->cpu_ms += ticks * MS_PER_SECOND / (uint64_t)sysconf(_SC_CLK_TCK);
    activity_add_io(pid, activity);
    if (pid == leader)
        activity->state = state;
}

void process_read_activity(const struct process *process, struct process_activity *ret_activity)
{
    struct process_activity activity = {.state = 0};
    DIR *processes = opendir("/proc");
    for (struct dirent *entry; processes && (entry = readdir(processes));) {
        long pid = strtol(entry->d_name, NULL, 10);
        if (pid > 0)
            activity_add((pid_t)pid, process->pid, &activity);
    }
    if (processes)
        closedir(processes);
    *ret_activity = activity;
}

/* ---- stopping ---- */

/* Signals the process group of the child, which it leads after setsid. */
static void signal_all(const struct process *process, int number)
{
    if (kill(-process->pid, number) != 0) /* the child has not called setsid yet */
        kill(process->pid, number);
}

void process_stop(struct process *process, int grace_ms)
{
    int exit_status;
    if (process->pid == 0)
        return;
    signal_all(process, SIGTERM);
    signal_all(process, SIGCONT);
    if (process_wait(process, -1, grace_ms, &exit_status))
        return;
    signal_all(process, SIGKILL);
    while (!process_wait(process, -1, KILL_WAIT_MS, &exit_status))
        ; /* in an uninterruptible system call: it keeps the database files open, so permitd must not continue */
}

bool process_has_argument(pid_t pid, const char *argument)
{
    char line[PATH_SIZE * 4];
    size_t length = read_proc_file(pid, "cmdline", line, sizeof line); /* 0 for a process that is not reaped */
    for (size_t at = 0; at < length; at += strlen(line + at) + 1)
        if (strcmp(line + at, argument) == 0)
            return true;
    return false;
}

static bool foreign_ends(pid_t pid, const char *argument, int wait_ms)
{
    mono_us deadline = clock_mono() + (mono_us)wait_ms * US_PER_MS;
    const struct timespec step = {.tv_nsec = POLL_EVERY_MS * 1000000L};
    while (process_has_argument(pid, argument)) {
        if (clock_mono() >= deadline)
            return false;
        nanosleep(&step, NULL);
    }
    return true;
}

void process_stop_foreign(pid_t pid, const char *argument, int grace_ms)
{
    if (!process_has_argument(pid, argument))
        return;
    kill(pid, SIGTERM);
    kill(pid, SIGCONT);
    if (foreign_ends(pid, argument, grace_ms))
        return;
    kill(pid, SIGKILL);
    (void)foreign_ends(pid, argument, KILL_WAIT_MS);
}
