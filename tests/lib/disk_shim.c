/* SPDX-License-Identifier: MIT */
/*
 * Preloaded into a mariadbd: breaks its disk while a test demands it. The test writes an enum kit_disk into a small
 * file that the environment variable PERMIT_DISK_FILE names and that both sides have mapped. On a full disk a write
 * that would make a file longer fails with ENOSPC, as on a real one; a write over existing contents succeeds. On a dead
 * disk every write to a file fails. Sockets, pipes, and writes of the C library itself (the log) are not affected.
 * Native asynchronous I/O bypasses the shim, so the server must be started without it. Uses no code of permitd or of
 * the kit, because it runs in another process.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { DISK_FINE, DISK_FULL, DISK_DEAD }; /* values of enum kit_disk */

static _Atomic int64_t fine = DISK_FINE;
static _Atomic int64_t *state = &fine;

__attribute__((constructor)) static void shim_init(void)
{
    const char *path = getenv("PERMIT_DISK_FILE");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    void *map = mmap(NULL, sizeof(*state), PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (map != MAP_FAILED)
        state = map;
}

/*
 * Returns true if the disk accepts the write, else sets errno. end: where the write ends in the file; -1: it extends
 * the file.
 */
static bool has_room(int fd, int64_t end)
{
    int64_t disk = atomic_load(state);
    struct stat status;
    if (disk == DISK_FINE || fstat(fd, &status) || !S_ISREG(status.st_mode))
        return true;
    if (disk == DISK_FULL && end >= 0 && end <= status.st_size)
        return true;
    errno = ENOSPC;
    return false;
}

/* Returns where a write without an offset would end. */
static int64_t end_of_write(int fd, size_t count)
{
    int flags = fcntl(fd, F_GETFL);
    off_t at = lseek(fd, 0, SEEK_CUR);
    return at < 0 || (flags & O_APPEND) ? -1 : (int64_t)at + (int64_t)count;
}

ssize_t write(int fd, const void *data, size_t count)
{
    if (atomic_load(state) != DISK_FINE && !has_room(fd, end_of_write(fd, count)))
        return -1;
    return syscall(SYS_write, fd, data, count);
}

ssize_t pwrite(int fd, const void *data, size_t count, off_t offset)
{
    return has_room(fd, (int64_t)offset + (int64_t)count) ? syscall(SYS_pwrite64, fd, data, count, offset) : -1;
}

ssize_t pwrite64(int fd, const void *data, size_t count, off64_t offset)
{
    return pwrite(fd, data, count, offset);
}

int fallocate(int fd, int mode, off_t offset, off_t length)
{
    return has_room(fd, offset + length) ? (int)syscall(SYS_fallocate, fd, mode, offset, length) : -1;
}

int fallocate64(int fd, int mode, off64_t offset, off64_t length)
{
    return fallocate(fd, mode, offset, length);
}

int posix_fallocate(int fd, off_t offset, off_t length)
{
    int before = errno, status = fallocate(fd, 0, offset, length) ? errno : 0;
    errno = before;
    return status;
}

int posix_fallocate64(int fd, off64_t offset, off64_t length)
{
    return posix_fallocate(fd, offset, length);
}

int ftruncate(int fd, off_t length)
{
    return has_room(fd, length) ? (int)syscall(SYS_ftruncate, fd, length) : -1;
}

int ftruncate64(int fd, off64_t length)
{
    return ftruncate(fd, length);
}
