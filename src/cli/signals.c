/* SPDX-License-Identifier: MIT */
#include "cli/signals.h"

#include <stdbool.h>
#include <sys/signalfd.h>
#include <unistd.h>

const int signals_ending[SIGNALS_ENDING_COUNT] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM};

int signals_take(int fd, const int *signals, size_t count, sigset_t *set)
{
    struct sigaction action;
    for (size_t i = 0; i < count; i++)
        if (sigaction(signals[i], NULL, &action) != 0 || action.sa_handler != SIG_IGN)
            (void)sigaddset(set, signals[i]);
    (void)sigprocmask(SIG_BLOCK, set, NULL);
    return signalfd(fd, set, SFD_CLOEXEC | SFD_NONBLOCK);
}

int signals_next(int fd)
{
    struct signalfd_siginfo info;
    return read(fd, &info, sizeof(info)) == (ssize_t)sizeof(info) ? (int)info.ssi_signo : 0;
}
