/* SPDX-License-Identifier: MIT */
/* A table of principals from the text of a credentials file. */
#ifndef PRINCIPALS_FIXTURE_H
#define PRINCIPALS_FIXTURE_H

#include <criterion/criterion.h>
#include <stdlib.h>
#include <unistd.h>

#include "api/principals.h"

/* The caller drops the reference. */
static inline struct principals *principals_from(struct bytes text)
{
    char path[] = "/tmp/permit-principals-XXXXXX";
    struct buf message;
    buf_init(&message, 4096);
    int fd = mkstemp(path);
    cr_assert(fd >= 0 && write(fd, text.data, text.length) == (ssize_t)text.length);
    close(fd);
    struct principals *principals = principals_load(path, &message);
    unlink(path);
    cr_assert(principals, "%s", buf_text(&message));
    buf_release(&message);
    return principals;
}
#endif
