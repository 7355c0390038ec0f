/* SPDX-License-Identifier: MIT */
#include "base/memory.h"

#include <fcntl.h>
#include <malloc.h>
#include <stdio.h>
#include <unistd.h>

enum {
    MAPPED_FROM = 128 * 1024, /* glibc's initial value; if not set, glibc raises it up to 32 MiB and keeps it there */
    TRIMMED_FROM = 512 * 1024,
};

void memory_configure(void)
{
    (void)mallopt(M_MMAP_THRESHOLD, MAPPED_FROM);
    (void)mallopt(M_TRIM_THRESHOLD, TRIMMED_FROM);
}

size_t memory_resident(void)
{
    char text[128];
    unsigned long long pages;
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    ssize_t length = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (fd >= 0)
        close(fd);
    if (length <= 0)
        return 0;
    text[length] = '\0';
    return sscanf(text, "%*u %llu", &pages) == 1 ? (size_t)pages * (size_t)sysconf(_SC_PAGESIZE) : 0;
}

void memory_trim(void)
{
    (void)malloc_trim(0);
}
