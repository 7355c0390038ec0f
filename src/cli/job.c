/* SPDX-License-Identifier: MIT */
#include "cli/job.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/descendants.h"

static bool is_pipe(int fd)
{
    struct stat about;
    return fstat(fd, &about) == 0 && S_ISFIFO(about.st_mode);
}

static bool have_foreground(const struct job *job)
{
    return job->terminal >= 0 && tcgetpgrp(job->terminal) == getpgrp();
}

/*
 * Returns true if the command gets the foreground at its start. In a pipeline the terminal belongs to all programs (a
 * pager at the end, say): there the command gets it only when it asks (job_stopped).
 */
static bool wants_foreground(const struct job *job)
{
    return have_foreground(job) && !is_pipe(STDIN_FILENO) && !is_pipe(STDOUT_FILENO);
}

/* Data that the child needs to become the command. */
struct start {
    char **argv;
    const struct job_signals *signals;
    bool foreground;
    pid_t parent;
    int error_pipe; /* write end of a pipe; carries the errno if exec fails */
};

/* Runs in the child. Uses only calls that are safe after fork. */
_Noreturn static void exec_command(const struct job *job, const struct start *start)
{
    (void)setpgid(0, 0);
    if (start->foreground)
        (void)tcsetpgrp(job->terminal, getpid());
    if (start->signals->death_signal)
        (void)prctl(PR_SET_PDEATHSIG, start->signals->death_signal);
    if (getppid() != start->parent)
        _exit(127);
    if (start->signals->child_ignored)
        (void)signal(SIGCHLD, SIG_IGN);
    (void)sigprocmask(SIG_SETMASK, &start->signals->mask, NULL);
    (void)execvp(start->argv[0], start->argv);
    int error = errno;
    (void)!write(start->error_pipe, &error, sizeof(error));
    _exit(127);
}

/* Returns the errno that the child sent over the pipe; 0: exec has closed the pipe. */
static int read_child_error(int fd)
{
    int error = 0;
    ssize_t length;
    do
        length = read(fd, &error, sizeof(error));
    while (length < 0 && errno == EINTR);
    return length == (ssize_t)sizeof(error) ? error : 0;
}

int job_start(struct job *job, char **argv, const struct job_signals *signals)
{
    int error_pipe[2];
    if (pipe2(error_pipe, O_CLOEXEC) != 0)
        return errno;
    descendants_keep();
    job->terminal = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);
    struct start start = {.argv = argv,
                          .signals = signals,
                          .foreground = wants_foreground(job),
                          .parent = getpid(),
                          .error_pipe = error_pipe[1]};
    job->pid = fork();
    int error = job->pid < 0 ? errno : 0;
    if (job->pid == 0)
        exec_command(job, &start);
    (void)close(error_pipe[1]);
    if (!error) {
        /* Parent and child both call setpgid: the group exists when either needs it. */
        (void)setpgid(job->pid, job->pid);
        if (start.foreground)
            (void)tcsetpgrp(job->terminal, job->pid);
        error = read_child_error(error_pipe[0]);
        if (error)
            (void)waitpid(job->pid, &job->wait_status, 0);
    }
    (void)close(error_pipe[0]);
    if (error)
        job_release(job);
    return error;
}

enum job_state job_poll(struct job *job, int *ret_stop_signal)
{
    int status;
    pid_t pid;
    do
        pid = waitpid(-1, &status, WNOHANG | WUNTRACED);
    while (pid > 0 && pid != job->pid);
    if (pid != job->pid)
        return JOB_RUNS;
    if (WIFSTOPPED(status)) {
        *ret_stop_signal = WSTOPSIG(status);
        return JOB_STOPPED;
    }
    job->wait_status = status;
    job->ended = true;
    return JOB_ENDED;
}

void job_signal(const struct job *job, int signal)
{
    (void)kill(-job->pid, signal);
}

/*
 * Stops permitctl as the signal does by itself; `group`: and the rest of its process group. Returns false if nothing
 * was stopped, because the signal is ignored or no shell could continue it (an orphaned process group, by setsid or ssh
 * -t, say).
 */
static bool stop_self(int signal, bool group)
{
    sigset_t set, before, pending;
    sigemptyset(&set);
    sigaddset(&set, signal);
    (void)kill(group ? 0 : getpid(), signal);
    (void)sigprocmask(SIG_UNBLOCK, &set, &before);
    /* permitctl is stopped here. */
    (void)sigprocmask(SIG_SETMASK, &before, NULL);
    return sigpending(&pending) == 0 && sigismember(&pending, SIGCONT) == 1;
}

bool job_stopped(struct job *job, int signal)
{
    bool asked = signal == SIGTTIN || signal == SIGTTOU;
    if (job->terminal < 0 || !(asked || signal == SIGTSTP))
        return false;
    if (asked && have_foreground(job)) {
        (void)tcsetpgrp(job->terminal, job->pid);
        return true;
    }
    bool had_terminal = tcgetpgrp(job->terminal) == job->pid;
    if (had_terminal)
        (void)tcsetpgrp(job->terminal, getpgrp());
    /* If the command had the terminal, the rest of the pipeline has not got the signal. */
    bool continued = stop_self(signal, had_terminal);
    /* The shell has continued permitctl, with the terminal (fg) or without it (bg). */
    if (had_terminal && have_foreground(job))
        (void)tcsetpgrp(job->terminal, job->pid);
    return continued || signal == SIGTSTP;
}

void job_continue(const struct job *job)
{
    job_signal(job, SIGCONT);
}

bool job_signal_all(const struct job *job, int signal, pid_t *ret_refused)
{
    if (job->ended) /* its process group id may have been reused */
        return descendants_signal(signal, 0, ret_refused);
    job_signal(job, signal);
    return descendants_signal(signal, job->pid, ret_refused);
}

void job_release(struct job *job)
{
    if (job->terminal < 0)
        return;
    if (tcgetpgrp(job->terminal) == job->pid)
        (void)tcsetpgrp(job->terminal, getpgrp());
    (void)close(job->terminal);
    job->terminal = -1;
}

int job_exit_status(const struct job *job)
{
    return WIFSIGNALED(job->wait_status) ? 128 + WTERMSIG(job->wait_status) : WEXITSTATUS(job->wait_status);
}
