/* SPDX-License-Identifier: MIT */
/* Tests permit/fence.h in a program that requests only POSIX, together with permit.h; and its rule alone. */
#include "strict.h"
#include "permit/fence.h"
#include "permit/permit.h"

bool strict_rule_holds(void)
{
    uint64_t marks[] = {5, 0, 7};
    size_t at = 99;
    const uint64_t beyond = permit_fence_token_limit() + 100 * UINT64_C(1024000); /* the clock goes on meanwhile */
    if (permit_fence_pass(beyond, marks, 3, &at) || at != 0 || marks[0] != 5 || marks[1] != 0)
        return false;
    if (permit_fence_pass(0, marks + 1, 1, &at) || at != 0 || marks[1] != 0)
        return false;
    at = 99;
    if (permit_fence_pass(6, marks, 3, &at) || at != 2 || marks[0] != 5 || marks[1] != 0)
        return false;
    return permit_fence_pass(7, marks, 3, &at) && marks[0] == 7 && marks[1] == 7 && marks[2] == 7;
}

bool strict_file_holds(const char *path)
{
    struct permit_fence_file file, other;
    struct permit_fence_refusal refusal;
    const uint32_t descending[] = {4, 3}, twice[] = {3, 3}, slots[] = {3, 4};
    if (permit_fence_open(path, &file) || permit_fence_open(path, &other))
        return false;
    bool holds = permit_fence_enter(&file, descending, 2, 57, &refusal) == PERMIT_FENCE_INVALID &&
                 permit_fence_enter(&file, twice, 2, 57, &refusal) == PERMIT_FENCE_INVALID &&
                 permit_fence_enter(&file, slots, 0, 57, &refusal) == PERMIT_FENCE_INVALID &&
                 permit_fence_enter(&file, slots, 2, 57, &refusal) == PERMIT_FENCE_PASSED;
    permit_fence_leave(&file);
    holds = holds && permit_fence_enter(&other, slots + 1, 1, 56, &refusal) == PERMIT_FENCE_STALE &&
            refusal.slot == 4 && refusal.newer == 57;
    permit_fence_close(&file);
    permit_fence_close(&other);
    permit_fence_close(&other); /* a closed file is accepted */
    return holds && other.fd == -1;
}

bool strict_foreign_file_is_refused(const char *path)
{
    struct permit_fence_file file;
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    bool written = fd >= 0 && write(fd, "this is a report", 16) == 16;
    close(fd);
    return written && permit_fence_open(path, &file) == PERMIT_FENCE_INVALID &&
           permit_fence_open("/no/such/directory", &file) == PERMIT_FENCE_ERROR && errno == ENOENT;
}
