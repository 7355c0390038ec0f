/* SPDX-License-Identifier: MIT */
/* Tests permit/fence.h on a disk that cannot flush, and in a process that is killed while it flushes. */
#include "unflushed.h"

#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

#include "testkit.h"

static enum { FLUSHES, FAILS, DIES } disk;
static unsigned flushes;

static int flush(int fd)
{
    flushes++;
    if (disk == DIES)
        _exit(0);
    errno = EIO;
    return disk == FAILS ? -1 : (fdatasync)(fd);
}

#define fdatasync(fd) flush(fd)
#include "permit/fence.h"

static const uint32_t slots[] = {1, 2};

static enum permit_fence_result enter(struct permit_fence_file *file, uint64_t token)
{
    struct permit_fence_refusal refusal;
    enum permit_fence_result result = permit_fence_enter(file, slots, 2, token, &refusal);
    if (result == PERMIT_FENCE_PASSED)
        permit_fence_leave(file);
    return result;
}

static void check_slots(struct permit_fence_file *file, struct permit_fence_file *other)
{
    disk = FAILS;
    for (int i = 0; i < 2; i++)
        KIT_CHECK(enter(file, 57) == PERMIT_FENCE_ERROR && errno == EIO);
    KIT_CHECK(enter(other, 57) == PERMIT_FENCE_ERROR);
    KIT_CHECK(enter(other, 56) == PERMIT_FENCE_STALE);
    disk = FLUSHES;
    flushes = 0;
    KIT_CHECK(enter(file, 57) == PERMIT_FENCE_PASSED && flushes == 1);
    KIT_CHECK(enter(file, 57) == PERMIT_FENCE_PASSED && enter(other, 57) == PERMIT_FENCE_PASSED && flushes == 1);
}

static void check_kill(struct permit_fence_file *file)
{
    int status;
    disk = DIES;
    pid_t child = fork();
    KIT_CHECK(child >= 0);
    if (child == 0)
        _exit(enter(file, 60) == PERMIT_FENCE_PASSED ? 1 : 2);
    KIT_CHECK(waitpid(child, &status, 0) == child && status == 0);
    permit_fence_leave(file); /* the child shared this open file and its locks */
    disk = FLUSHES;
    flushes = 0;
    KIT_CHECK(enter(file, 59) == PERMIT_FENCE_STALE);
    KIT_CHECK(enter(file, 60) == PERMIT_FENCE_PASSED && flushes == 1);
}

static void check_floor(struct permit_fence_file *file)
{
    struct permit_fence_refusal refusal;
    disk = FAILS;
    for (int i = 0; i < 2; i++)
        KIT_CHECK(permit_fence_raise_floor(file, 70) == PERMIT_FENCE_ERROR);
    KIT_CHECK(permit_fence_raise_floor(file, 65) == PERMIT_FENCE_ERROR);
    KIT_CHECK(permit_fence_enter_floor(file, 69, &refusal) == PERMIT_FENCE_STALE && refusal.newer == 70);
    disk = FLUSHES;
    flushes = 0;
    KIT_CHECK(permit_fence_raise_floor(file, 65) == PERMIT_FENCE_PASSED && flushes == 1);
    KIT_CHECK(permit_fence_raise_floor(file, 70) == PERMIT_FENCE_PASSED && flushes == 1);
    KIT_CHECK(permit_fence_enter_floor(file, 69, &refusal) == PERMIT_FENCE_STALE);
    KIT_CHECK(permit_fence_enter_floor(file, 70, &refusal) == PERMIT_FENCE_PASSED);
    permit_fence_leave(file);
}

void unflushed_marks_are_flushed_again(const char *path)
{
    struct permit_fence_file file, other;
    KIT_CHECK(!permit_fence_open(path, &file) && !permit_fence_open(path, &other));
    check_slots(&file, &other);
    check_kill(&file);
    check_floor(&file);
    permit_fence_close(&file);
    permit_fence_close(&other);
}
