/* SPDX-License-Identifier: MIT */
/*
 * A fencing guard for a file that a C program writes, or for a store that it embeds. It refuses writers whose permit
 * has passed to another client (docs/fencing.md). Header only; it does not need libpermit. It needs POSIX.1-2008 of the
 * C library: with -std=c17 also pass -D_POSIX_C_SOURCE=200809L. The guards for SQL databases and Redis are separate
 * (share/permit/guards).
 *
 *     struct permit_fence_file fence;
 *     struct permit_fence_refusal refusal;
 *     if (permit_fence_open("/srv/report.fence", &fence))                                  // once
 *         ...
 *     const struct permit_held *permit = &held->permits[0];                                // of permit.h
 *     switch (permit_fence_enter(&fence, permit->slots, permit->slot_count, permit->token, &refusal)) {
 *     case PERMIT_FENCE_PASSED: ... write the report ...; permit_fence_leave(&fence); break;
 *     case PERMIT_FENCE_STALE:  ... a holder of refusal.newer has written: stop writing ...
 *
 * A fence file lies beside the file or directory that it guards. Each semaphore has its own. The file has one mark for
 * each slot, the largest token that has passed there, and one mark for the floor. A writer that has entered holds locks
 * on the marks of its slots until it leaves or its process ends. Until then no newer token passes at these slots; other
 * slots are not blocked. Keep the work between enter and leave short: a process that is stopped there also stops its
 * successor. A raised mark is on disk before the call returns, even if an earlier call had written it and then failed
 * to flush it or was killed. A token that passes again costs two locks and a read.
 *
 * Counted semaphores have no slots. Either give each resource its own fence file and use slot 1 (correct only if the
 * resource has one holder at a time), or use the floor.
 *
 * Locks belong to the open file (Linux: F_OFD_SETLKW), so every thread that enters opens the file itself. Works on
 * local file systems, and on NFS that supports locks.
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
    PERMIT_FENCE_STALE,   /* a newer token has passed; nothing was changed */
    PERMIT_FENCE_INVALID, /* invalid arguments; nothing was changed */
    PERMIT_FENCE_ERROR,   /* errno has the reason; do not write; marks may or may not have risen */
};

/* The place that refused a stale token, and the newer token. */
struct permit_fence_refusal {
    uint32_t slot; /* 0: the floor */
    uint64_t newer;
};

#define PERMIT_FENCE_SLOT_MAX UINT32_C(999999999)

/*
 * Returns the largest token that any semaphore can have issued by now, plus a day for wrong clocks. A token of epoch e
 * is e * 1024 or slightly more, and epochs are milliseconds since 2026. Larger tokens are refused, because they would
 * lock out all writers permanently. (One that passes by mistake locks them out until a `permitctl fence bump` a day
 * later.)
 */
static inline uint64_t permit_fence_token_limit(void)
{
    const int64_t origin = INT64_C(1767225600), day = 86400;
    int64_t now = (int64_t)time(NULL);
    return (uint64_t)((now > origin ? now - origin : 0) + day) * 1024000;
}

/* ---- The rule alone, for a store of your own ---- */

/*
 * Checks a token against the marks of its places. marks[i] is the largest token that has passed at the i-th place, 0 if
 * none has, read in the transaction that is going to write. True: `token` passes at all places; every mark is now
 * `token`, and the caller stores the marks in the same transaction. False: no mark has changed; *ret_at is the first
 * larger one. It is 0, and that mark is not larger, if no semaphore can have issued the token
 * (permit_fence_token_limit).
 */
static inline bool permit_fence_pass(uint64_t token, uint64_t *marks, size_t count, size_t *ret_at)
{
    if (!token || token > permit_fence_token_limit()) {
        *ret_at = 0;
        return false;
    }
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
 * File format: 8 bytes of magic, then the floor, then slot 1, slot 2 ..., each 8 bytes, little-endian. Marks beyond the
 * end of the file are 0. Aligned 8 bytes are written whole or not at all. The top bit of a mark is set while the mark
 * may not be on disk: after a failed flush, the next flush may succeed without writing anything.
 */
#define PERMIT_FENCE_MAGIC   "permfnc1"
#define PERMIT_FENCE_UNSAVED (UINT64_C(1) << 63)

static inline off_t permit_fence_place(uint32_t slot)
{
    return (off_t)8 + (off_t)slot * 8;
}

/* Locks one mark (F_RDLCK, F_WRLCK), or unlocks all (F_UNLCK). Blocks until it has the lock. */
static inline int permit_fence_lock(int fd, short type, uint32_t slot)
{
#ifdef F_OFD_SETLKW
    const int command = F_OFD_SETLKW;
#else
    const int command = 38; /* value on Linux; its headers define it only with _GNU_SOURCE */
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

/* Reads a mark. *ret_saved is true if the mark is on disk. */
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

/* Writes a mark at each of these places and flushes it to disk. If it returns -1 the marks stay unsaved. */
static inline int permit_fence_save(int fd, const uint32_t *slots, size_t count, uint64_t mark)
{
    for (size_t i = 0; i < count; i++)
        if (permit_fence_write(fd, slots[i], mark | PERMIT_FENCE_UNSAVED))
            return -1;
    if (fdatasync(fd))
        return -1;
    for (size_t i = 0; i < count; i++) /* if this fails or does not reach the disk, the next call saves the mark
                                          again */
        (void)permit_fence_write(fd, slots[i], mark);
    return 0;
}

/* Closes the file. Accepts a file that is not open. */
static inline void permit_fence_close(struct permit_fence_file *file)
{
    if (file->fd >= 0)
        close(file->fd); /* also releases all locks */
    file->fd = -1;
}

/* Opens the file; creates it if missing. PERMIT_FENCE_INVALID: it is not a fence file. permit_fence_close closes it. */
static inline enum permit_fence_result permit_fence_open(const char *path, struct permit_fence_file *ret_file)
{
    char magic[8];
    struct permit_fence_file file = {open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666)};
    if (file.fd < 0)
        return PERMIT_FENCE_ERROR;
    ssize_t length = pread(file.fd, magic, sizeof(magic), 0);
    if (!length) /* several processes may do this at once: they write the same bytes */
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

/* Releases the locks. Call it after the guarded write is done (and is on disk, if that matters). */
static inline void permit_fence_leave(struct permit_fence_file *file)
{
    (void)permit_fence_lock(file->fd, F_UNLCK, 0);
}

/* Releases the locks, preserves errno, and returns `result`. */
static inline enum permit_fence_result permit_fence_refuse(struct permit_fence_file *file,
                                                           enum permit_fence_result result)
{
    int error = errno;
    permit_fence_leave(file);
    errno = error;
    return result;
}

/* Locks and checks each mark in turn. *ret_behind: at least one mark is lower than `token` or not on disk. */
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
 * Enters with the token and the slots of a permit; slots are ascending, as in a grant. PERMIT_FENCE_PASSED: the caller
 * has entered and must leave. Otherwise it has not entered. *ret_refusal is zero except with PERMIT_FENCE_STALE.
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
 * Enters with a token of a counted semaphore: passes if `token` is not below the highest floor raised so far.
 * PERMIT_FENCE_INVALID: no floor has been raised. Any number of holders may have entered at once;
 * permit_fence_raise_floor waits until all of them have left.
 */
static inline enum permit_fence_result permit_fence_enter_floor(struct permit_fence_file *file, uint64_t token,
                                                                struct permit_fence_refusal *ret_refusal)
{
    uint64_t floor;
    bool saved; /* used only by permit_fence_raise_floor */
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

/*
 * Raises the floor to that of the caller's grant; a holder does so first. The caller must not have entered. The floor
 * never falls.
 */
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
