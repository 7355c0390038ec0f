/* SPDX-License-Identifier: MIT */
/* Files guarded by include/permit/fence.h. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kit_process.h"
#include "permit/fence.h"
#include "stores.h"
#include "testkit.h"

enum { SLOTS_MAX = 16, PATH = 4096 };

struct link {
    char path[PATH]; /* of the open fence file */
    struct permit_fence_file fence;
    int stock_fd;
};

/* Names may have any bytes; file names may not. */
static char *file_of(const struct store *store, const char *semaphore, const char *resource, const char *suffix)
{
    char name[256] = "";
    size_t at = 0;
    const char *const parts[] = {semaphore, "/", resource};
    for (size_t i = 0; i < 3; i++)
        for (const char *byte = parts[i]; *byte && at + 3 < 200; byte++)
            at += (size_t)snprintf(name + at, sizeof(name) - at, "%02x", (unsigned)(unsigned char)*byte);
    return kit_text("%s/%s%s", store->directory, name, suffix);
}

static struct permit_fence_file *fence_of(struct session *session, const struct write *write)
{
    struct link *link = session->link;
    char *path =
        file_of(session->store, write->semaphore, write->place == PLACE_RESOURCE ? write->where : "", ".fence");
    if (strcmp(path, link->path)) {
        permit_fence_close(&link->fence);
        if (permit_fence_open(path, &link->fence))
            kit_fail("%s: cannot be opened", path);
        snprintf(link->path, sizeof(link->path), "%s", path);
    }
    free(path);
    return &link->fence;
}

static int by_number(const void *left, const void *right)
{
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    return (a > b) - (a < b);
}

static enum verdict judge(struct session *session, enum permit_fence_result result, const struct write *write,
                          const struct permit_fence_refusal *refusal)
{
    switch (result) {
    case PERMIT_FENCE_PASSED: return PASSED;
    case PERMIT_FENCE_INVALID: return INVALID;
    case PERMIT_FENCE_ERROR: kit_fail("fence.h: %s", strerror(errno));
    case PERMIT_FENCE_STALE: break;
    }
    snprintf(session->message, sizeof(session->message), "stale token %lld: slot %u of %s has seen %llu",
             (long long)write->token, refusal->slot, write->semaphore, (unsigned long long)refusal->newer);
    return STALE;
}

static enum verdict enter(struct session *session, const struct write *write)
{
    struct permit_fence_refusal refusal = {0, 0};
    struct permit_fence_file *fence = fence_of(session, write);
    uint32_t slots[SLOTS_MAX] = {1};
    size_t count = 1;
    if (write->place == PLACE_FLOOR)
        return judge(session, permit_fence_enter_floor(fence, (uint64_t)write->token, &refusal), write, &refusal);
    if (write->place == PLACE_RAISE)
        return judge(session, permit_fence_raise_floor(fence, (uint64_t)write->token), write, &refusal);
    if (write->place == PLACE_SLOTS) {
        count = slots_of(write->where ? write->where : "", slots, SLOTS_MAX);
        qsort(slots, count, sizeof(slots[0]), by_number);
    }
    return judge(session, permit_fence_enter(fence, slots, count, (uint64_t)write->token, &refusal), write, &refusal);
}

static enum verdict guard(struct session *session, const struct write *write)
{
    enum verdict verdict = enter(session, write);
    if (verdict == PASSED)
        permit_fence_leave(fence_of(session, write));
    return verdict;
}

static void append_line(struct session *session, const char *semaphore, uint32_t slot, uint64_t token)
{
    char suffix[32];
    snprintf(suffix, sizeof(suffix), ".%u.lines", slot);
    char *path = file_of(session->store, semaphore, "", suffix);
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    KIT_CHECK(fd >= 0 && write(fd, &token, sizeof(token)) == sizeof(token));
    close(fd);
    free(path);
}

static enum verdict write_whole(struct session *session, const struct write *write)
{
    uint32_t slots[SLOTS_MAX];
    size_t count = slots_of(write->where, slots, SLOTS_MAX);
    const struct store_kind *kind = session->store->kind;
    const struct write checked = {write->semaphore, PLACE_SLOTS, kind == &store_one_maximum ? "1" : write->where,
                                  write->token};
    enum verdict verdict = kind == &store_unguarded ? PASSED : enter(session, &checked);
    if (verdict != PASSED)
        return verdict;
    for (size_t i = 0; i < count; i++)
        append_line(session, write->semaphore, slots[i], (uint64_t)write->token);
    permit_fence_leave(fence_of(session, write));
    return PASSED;
}

static enum verdict update(struct session *session, const struct write *write, unsigned row)
{
    struct link *link = session->link;
    uint64_t number = 0;
    enum verdict verdict = write ? enter(session, write) : PASSED;
    if (verdict != PASSED)
        return verdict;
    off_t at = (off_t)row * (off_t)sizeof(number);
    KIT_CHECK(pread(link->stock_fd, &number, sizeof(number), at) >= 0);
    number++;
    KIT_CHECK(pwrite(link->stock_fd, &number, sizeof(number), at) == sizeof(number) && !fdatasync(link->stock_fd));
    if (write)
        permit_fence_leave(fence_of(session, write));
    return PASSED;
}

static uint64_t mark(struct session *session, const struct write *write)
{
    uint64_t value = 0;
    uint32_t slot = write->place == PLACE_SLOTS      ? (uint32_t)strtoul(write->where, NULL, 10)
                    : write->place == PLACE_RESOURCE ? 1
                                                     : 0;
    bool saved;
    KIT_CHECK(!permit_fence_read(fence_of(session, write)->fd, slot, &value, &saved) && saved);
    return value;
}

static size_t history(struct session *session, const char *semaphore, unsigned slot, uint64_t **ret_tokens)
{
    char suffix[32];
    snprintf(suffix, sizeof(suffix), ".%u.lines", slot);
    char *path = file_of(session->store, semaphore, "", suffix);
    struct stat info = {0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    KIT_CHECK(fd < 0 || !fstat(fd, &info));
    uint64_t *tokens = calloc(1, (size_t)info.st_size + 1);
    KIT_CHECK(tokens && (fd < 0 || read(fd, tokens, (size_t)info.st_size) == info.st_size));
    if (fd >= 0)
        close(fd);
    free(path);
    *ret_tokens = tokens;
    return (size_t)info.st_size / sizeof(*tokens);
}

static void open_session(struct session *session)
{
    struct link *link = calloc(1, sizeof(*link));
    KIT_CHECK(link);
    link->fence.fd = -1;
    char *path = file_of(session->store, "stock", "", "");
    link->stock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    KIT_CHECK(link->stock_fd >= 0);
    free(path);
    session->link = link;
}

static void close_session(struct session *session)
{
    struct link *link = session->link;
    permit_fence_close(&link->fence);
    close(link->stock_fd);
    free(link);
}

static struct store *start_as(const struct store_kind *kind)
{
    struct store *store = calloc(1, sizeof(*store));
    KIT_CHECK(store);
    store->kind = kind;
    store->name = store->kind->name;
    store->directory = kit_path(kind->name);
    KIT_CHECK(!mkdir(store->directory, 0700));
    return store;
}

static struct store *start(bool durable)
{
    (void)durable;
    return start_as(&store_file);
}

static struct store *start_unguarded(bool durable)
{
    (void)durable;
    return start_as(&store_unguarded);
}

static struct store *start_one_maximum(bool durable)
{
    (void)durable;
    return start_as(&store_one_maximum);
}

static void stop(struct store *store)
{
    free(store->directory);
    free(store);
}

#define FILE_KIND(called, starter)                                                                                     \
    {                                                                                                                  \
        .name = called, .start = starter, .stop = stop, .open = open_session, .close = close_session, .guard = guard,  \
        .write = write_whole, .update = update, .history = history, .mark = mark                                       \
    }

const struct store_kind store_file = FILE_KIND("file", start);
const struct store_kind store_unguarded = FILE_KIND("unguarded", start_unguarded);
const struct store_kind store_one_maximum = FILE_KIND("one-maximum", start_one_maximum);
