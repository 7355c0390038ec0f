/* SPDX-License-Identifier: MIT */
#include "cli/descriptors.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>

/* Calls `visit` for each open descriptor that fits into a set. Ignores higher ones. */
static void each_open(void (*visit)(int fd, fd_set *set), fd_set *set)
{
    DIR *directory = opendir("/proc/self/fd");
    if (!directory)
        return;
    for (struct dirent *entry = readdir(directory); entry; entry = readdir(directory)) {
        int fd = atoi(entry->d_name);
        if (entry->d_name[0] != '.' && fd != dirfd(directory) && fd < FD_SETSIZE)
            visit(fd, set);
    }
    (void)closedir(directory);
}

static void note(int fd, fd_set *set)
{
    FD_SET(fd, set);
}

static void hide(int fd, fd_set *noted)
{
    if (!FD_ISSET(fd, noted))
        (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
}

void descriptors_note(fd_set *ret_open)
{
    FD_ZERO(ret_open);
    each_open(note, ret_open);
}

void descriptors_hide(const fd_set *noted)
{
    fd_set copy = *noted;
    each_open(hide, &copy);
}
