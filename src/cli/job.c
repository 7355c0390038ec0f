/* SPDX-License-Identifier: MIT */
#include "cli/job.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

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
 * In a pipeline the terminal belongs to all of its programs (a pager at the end, say): there the command gets it only
 * if it asks (job_stopped).
 */
static bool wants_foreground(const struct job *job)
{
    return have_foreground(job) && !is_pipe(STDIN_FILENO) && !is_pipe(STDOUT_FILENO);
}

/* What the child needs to become the command. */
struct start {
    char **argv;
    const sigset_t *mask;
    int death_signal;
    bool foreground;
    pid_t parent;
    int tell; /* takes the errno if the command cannot be executed */
};

/* In the child; only calls that are safe after fork. */
_Noreturn static void become(const struct job *job, const struct start *start)
{
    (void)setpgid(0, 0);
    if (start->foreground)
        (void)tcsetpgrp(job->terminal, getpid());
    if (start->death_signal)
        (void)prctl(PR_SET_PDEATHSIG, start->death_signal);
    if (getppid() != start->parent)
        _exit(127);
    (void)sigprocmask(SIG_SETMASK, start->mask, NULL);
    (void)execvp(start->argv[0], start->argv);
    int error = errno;
    (void)!write(start->tell, &error, sizeof(error));
    _exit(127);
}

/* What the child tells over the pipe: nothing if exec has closed it. */
static int told_error(int fd)
{
    int error = 0;
    ssize_t length;
    do
        length = read(fd, &error, sizeof(error));
    while (length < 0 && errno == EINTR);
    return length == (ssize_t)sizeof(error) ? error : 0;
}

int job_start(struct job *job, char **argv, const sigset_t *mask, int death_signal)
{
    int tell[2];
    if (pipe2(tell, O_CLOEXEC) != 0)
        return errno;
    job->terminal = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);
    struct start start = {.argv = argv,
                          .mask = mask,
                          .death_signal = death_signal,
                          .foreground = wants_foreground(job),
                          .parent = getpid(),
                          .tell = tell[1]};
    job->pid = fork();
    int error = job->pid < 0 ? errno : 0;
    if (job->pid == 0)
        become(job, &start);
    (void)close(tell[1]);
    if (!error) {
        /* Both do it: whoever comes first, the group is there when it is needed. */
        (void)setpgid(job->pid, job->pid);
        if (start.foreground)
            (void)tcsetpgrp(job->terminal, job->pid);
        error = told_error(tell[0]);
        if (error)
            (void)waitpid(job->pid, &job->wait_status, 0);
    }
    (void)close(tell[0]);
    if (error)
        job_release(job);
    return error;
}

enum job_state job_look(struct job *job, int *ret_stop_signal)
{
    int status;
    if (waitpid(job->pid, &status, WNOHANG | WUNTRACED) != job->pid)
        return JOB_RUNS;
    if (WIFSTOPPED(status)) {
        *ret_stop_signal = WSTOPSIG(status);
        return JOB_STOPPED;
    }
    job->wait_status = status;
    return JOB_ENDED;
}

void job_signal(const struct job *job, int signal)
{
    (void)kill(-job->pid, signal);
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
    bool its = tcgetpgrp(job->terminal) == job->pid;
    if (its)
        (void)tcsetpgrp(job->terminal, getpgrp());
    (void)kill(getpid(), SIGSTOP);
    /* Here the shell has continued us, with the terminal (fg) or without (bg). */
    if (its && have_foreground(job))
        (void)tcsetpgrp(job->terminal, job->pid);
    return true;
}

void job_continue(const struct job *job)
{
    job_signal(job, SIGCONT);
}

bool job_group_exists(const struct job *job)
{
    return kill(-job->pid, 0) == 0;
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
