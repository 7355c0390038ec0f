/* SPDX-License-Identifier: MIT */
/*
 * A fencing guard for what a C program writes itself: a file, or a store that it embeds. It refuses writers whose
 * permit has passed on to somebody else (docs/fencing.md). Header only; needs no libpermit, and of the C library
 * POSIX.1-2008: with -std=c17 say -D_POSIX_C_SOURCE=200809L too. SQL databases and Redis have guards of their own
 * beside it (share/permit/guards).
 *
 *     struct permit_fence_file fence;
 *     struct permit_fence_refusal refusal;
 *     if (permit_fence_open("/srv/report.fence", &fence))                                  // once
 *         ...
 *     const struct permit_held *permit = &held->permits[0];                                // of permit.h
 *     switch (permit_fence_enter(&fence, permit->slots, permit->slot_count, permit->token, &refusal)) {
 *     case PERMIT_FENCE_PASSED: ... write the report ...; permit_fence_leave(&fence); break;
 *     case PERMIT_FENCE_STALE:  ... somebody has written with refusal.newer: write no more ...
 *
 * A fence file is beside the file or directory that it guards, one for each semaphore. It has a mark for each slot, the
 * largest token that has passed there, and one for the floor. Who has entered holds locks on the marks of his slots
 * until he leaves or dies: nobody newer can pass before he has written, and other slots do not wait. So keep what is
 * between short; a process that is stopped in there stops its successor too. A mark that rises is on disk before the
 * call returns, also where an earlier call had written it and could not flush it, or was killed; a token that passes
 * again costs two locks and a read.
 *
 * Counted semaphores have no slots. Either give each resource that is written a fence file of its own and use slot 1
 * (right only where one holder at a time writes it), or use the floor.
 *
 * Locks belong to the open file (Linux: F_OFD_SETLKW): every thread that enters opens its own. Local file systems, and
 * NFS where it supports locks.
 */
#ifndef PERMIT_FENCE_H
#define PERMIT_FENCE_H

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#ifdef __cplusplus
extern "C" {
#endif

enum permit_fence_result {
    PERMIT_FENCE_PASSED,  /* 0: write now */
    PERMIT_FENCE_STALE,   /* somebody has passed with a newer token; nothing was changed */
    PERMIT_FENCE_INVALID, /* the arguments make no sense; nothing was changed */
    PERMIT_FENCE_ERROR,   /* errno says why; nothing may be written, whether marks have risen is not known */
};

/* Where a stale token was refused, and by which. */
struct permit_fence_refusal {
    uint32_t slot; /* 0: the floor */
    uint64_t newer;
};

#define PERMIT_FENCE_SLOT_MAX UINT32_C(999999999)

/*
 * The largest token that any semaphore can have given out by now, and a day more for clocks that are wrong: a token of
 * epoch e is e * 1024 or a little more, and epochs are milliseconds since 2026. A larger one is refused: it would shut
 * out all writers for good. (One that passes by mistake shuts them out until a `permitctl fence bump` a day later.)
 */
static inline uint64_t permit_fence_token_limit(void)
{
    const int64_t origin = INT64_C(1767225600), day = 86400;
    int64_t now = (int64_t)time(NULL);
    return (uint64_t)((now > origin ? now - origin : 0) + day) * 1024000;
}

/* ---- The rule alone, for a store of your own ---- */

/*
 * marks[i]: the largest token that has passed at the i-th place of a permit, 0 if none has, just read in the
 * transaction that is going to write. True: `token` passes at all of them, they have become `token`, and are to be
 * stored in the same transaction. False: none has changed; *ret_at is the first place that is ahead.
 */
static inline bool permit_fence_pass(uint64_t token, uint64_t *marks, size_t count, size_t *ret_at)
{
    for (size_t i = 0; i < count; i++)
        if (marks[i] > token) {
            *ret_at = i;
            return false;
        }
    for (size_t i = 0; i < count; i++)
        marks[i] = token;
    return true;
}

/* ---- A file of marks ---- */

struct permit_fence_file {
    int fd; /* -1: not open */
};

/*
 * The file: 8 bytes that say what it is, then the floor, then slot 1, slot 2 ...: little-endian, 8 bytes each; what
 * lies behind its end is 0. 8 aligned bytes are written whole or not at all. A mark that is not known to be on disk has
 * its top bit set: after a flush that failed, the next one may succeed without writing anything.
 */
#define PERMIT_FENCE_MAGIC   "permfnc1"
#define PERMIT_FENCE_UNSAVED (UINT64_C(1) << 63)

static inline off_t permit_fence_place(uint32_t slot)
{
    return (off_t)8 + (off_t)slot * 8;
}

/* A lock on one mark: F_RDLCK, F_WRLCK; or on everything: F_UNLCK. Waits. */
static inline int permit_fence_lock(int fd, short type, uint32_t slot)
{
#ifdef F_OFD_SETLKW
    const int command = F_OFD_SETLKW;
#else
    const int command = 38; /* of Linux; shown by its headers only with _GNU_SOURCE */
#endif
    struct flock lock;
    int status;
    memset(&lock, 0, sizeof(lock));
    lock.l_type = type;
    lock.l_whence = SEEK_SET;
    lock.l_start = type == F_UNLCK ? 0 : permit_fence_place(slot);
    lock.l_len = type == F_UNLCK ? 0 : 8;
    do
        status = fcntl(fd, command, &lock);
    while (status < 0 && errno == EINTR);
    return status;
}

/* *ret_saved: it is on disk. */
static inline int permit_fence_read(int fd, uint32_t slot, uint64_t *ret_mark, bool *ret_saved)
{
    unsigned char bytes[8] = {0};
    uint64_t mark = 0;
    if (pread(fd, bytes, sizeof(bytes), permit_fence_place(slot)) < 0)
        return -1;
    for (int i = 7; i >= 0; i--)
        mark = mark << 8 | bytes[i];
    *ret_mark = mark & ~PERMIT_FENCE_UNSAVED;
    *ret_saved = mark == *ret_mark;
    return 0;
}

static inline int permit_fence_write(int fd, uint32_t slot, uint64_t mark)
{
    unsigned char bytes[8];
    for (int i = 0; i < 8; i++)
        bytes[i] = (unsigned char)(mark >> 8 * i);
    ssize_t written = pwrite(fd, bytes, sizeof(bytes), permit_fence_place(slot));
    if (written == (ssize_t)sizeof(bytes))
        return 0;
    if (written >= 0)
        errno = ENOSPC;
    return -1;
}

/* Writes a mark at each of these places and has it on disk. If it returns -1 they stay unsaved. */
static inline int permit_fence_save(int fd, const uint32_t *slots, size_t count, uint64_t mark)
{
    for (size_t i = 0; i < count; i++)
        if (permit_fence_write(fd, slots[i], mark | PERMIT_FENCE_UNSAVED))
            return -1;
    if (fdatasync(fd))
        return -1;
    for (size_t i = 0; i < count; i++) /* if this fails, or never comes to disk, the next call saves it once more */
        (void)permit_fence_write(fd, slots[i], mark);
    return 0;
}

/* Accepts one that is not open. */
static inline void permit_fence_close(struct permit_fence_file *file)
{
    if (file->fd >= 0)
        close(file->fd); /* and with it all locks */
    file->fd = -1;
}

/* Makes it if it is not there. PERMIT_FENCE_INVALID: that file is something else. Closed by permit_fence_close. */
static inline enum permit_fence_result permit_fence_open(const char *path, struct permit_fence_file *ret_file)
{
    char magic[8];
    struct permit_fence_file file = {open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666)};
    if (file.fd < 0)
        return PERMIT_FENCE_ERROR;
    ssize_t length = pread(file.fd, magic, sizeof(magic), 0);
    if (!length) /* several may do this at once: they write the same */
        length = pwrite(file.fd, PERMIT_FENCE_MAGIC, sizeof(magic), 0) == (ssize_t)sizeof(magic) && !fsync(file.fd)
                     ? pread(file.fd, magic, sizeof(magic), 0)
                     : -1;
    if (length == (ssize_t)sizeof(magic) && !memcmp(magic, PERMIT_FENCE_MAGIC, sizeof(magic))) {
        *ret_file = file;
        return PERMIT_FENCE_PASSED;
    }
    int error = errno;
    permit_fence_close(&file);
    errno = error;
    return length < 0 ? PERMIT_FENCE_ERROR : PERMIT_FENCE_INVALID;
}

/* After what was to be written has been written (and is on disk, if that matters). */
static inline void permit_fence_leave(struct permit_fence_file *file)
{
    (void)permit_fence_lock(file->fd, F_UNLCK, 0);
}

/* Not passed: no locks are kept, and errno is that of the failure. */
static inline enum permit_fence_result permit_fence_refuse(struct permit_fence_file *file,
                                                           enum permit_fence_result result)
{
    int error = errno;
    permit_fence_leave(file);
    errno = error;
    return result;
}

/* Locks one mark after the other, and looks at it. *ret_behind: some of them is lower, or not on disk. */
static inline enum permit_fence_result permit_fence_look(struct permit_fence_file *file, const uint32_t *slots,
                                                         size_t count, uint64_t token, bool *ret_behind,
                                                         struct permit_fence_refusal *ret_refusal)
{
    *ret_behind = false;
    for (size_t i = 0; i < count; i++) {
        uint64_t mark;
        bool saved;
        if (permit_fence_lock(file->fd, F_WRLCK, slots[i]) || permit_fence_read(file->fd, slots[i], &mark, &saved))
            return PERMIT_FENCE_ERROR;
        if (mark > token) {
            ret_refusal->slot = slots[i];
            ret_refusal->newer = mark;
            return PERMIT_FENCE_STALE;
        }
        *ret_behind = *ret_behind || mark < token || !saved;
    }
    return PERMIT_FENCE_PASSED;
}

/*
 * The slots of a permit, ascending as grants name them, and its token. PERMIT_FENCE_PASSED: the caller is in, and must
 * leave. Anything else: he is not. *ret_refusal is zeros but for PERMIT_FENCE_STALE.
 */
static inline enum permit_fence_result permit_fence_enter(struct permit_fence_file *file, const uint32_t *slots,
                                                          size_t count, uint64_t token,
                                                          struct permit_fence_refusal *ret_refusal)
{
    bool behind;
    memset(ret_refusal, 0, sizeof(*ret_refusal));
    if (!count || !token || token > permit_fence_token_limit())
        return PERMIT_FENCE_INVALID;
    for (size_t i = 0; i < count; i++)
        if (slots[i] < 1 || slots[i] > PERMIT_FENCE_SLOT_MAX || (i && slots[i] <= slots[i - 1]))
            return PERMIT_FENCE_INVALID;
    enum permit_fence_result result = permit_fence_look(file, slots, count, token, &behind, ret_refusal);
    if (result)
        return permit_fence_refuse(file, result);
    if (behind && permit_fence_save(file->fd, slots, count, token))
        return permit_fence_refuse(file, PERMIT_FENCE_ERROR);
    return PERMIT_FENCE_PASSED;
}

/*
 * For counted semaphores: passes if `token` is not below the highest floor that was told. PERMIT_FENCE_INVALID: none
 * was. Any number of holders may be in at once; telling a floor waits until all of them have left.
 */
static inline enum permit_fence_result permit_fence_enter_floor(struct permit_fence_file *file, uint64_t token,
                                                                struct permit_fence_refusal *ret_refusal)
{
    uint64_t floor;
    bool saved; /* only permit_fence_raise_floor must know */
    memset(ret_refusal, 0, sizeof(*ret_refusal));
    if (!token || token > permit_fence_token_limit())
        return PERMIT_FENCE_INVALID;
    if (permit_fence_lock(file->fd, F_RDLCK, 0) || permit_fence_read(file->fd, 0, &floor, &saved))
        return permit_fence_refuse(file, PERMIT_FENCE_ERROR);
    if (!floor)
        return permit_fence_refuse(file, PERMIT_FENCE_INVALID);
    if (token >= floor)
        return PERMIT_FENCE_PASSED;
    ret_refusal->newer = floor;
    return permit_fence_refuse(file, PERMIT_FENCE_STALE);
}

/* What a holder tells first: the floor that its grant names. Not while the caller is in. A floor never falls. */
static inline enum permit_fence_result permit_fence_raise_floor(struct permit_fence_file *file, uint64_t floor)
{
    const uint32_t place = 0;
    uint64_t highest;
    bool saved;
    if (!floor || floor > permit_fence_token_limit())
        return PERMIT_FENCE_INVALID;
    if (permit_fence_lock(file->fd, F_WRLCK, place) || permit_fence_read(file->fd, place, &highest, &saved))
        return permit_fence_refuse(file, PERMIT_FENCE_ERROR);
    if ((highest < floor || !saved) && permit_fence_save(file->fd, &place, 1, highest < floor ? floor : highest))
        return permit_fence_refuse(file, PERMIT_FENCE_ERROR);
    return permit_fence_refuse(file, PERMIT_FENCE_PASSED);
}

#ifdef __cplusplus
}
#endif
#endif
