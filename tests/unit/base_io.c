/* SPDX-License-Identifier: MIT */
#include "base/io.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <unistd.h>

/* More than a pipe holds, and more than one piece of io_read_all. */
enum { MANY = 200000 };

static void *write_many(void *context)
{
    static char text[MANY];
    int fd = *(int *)context;
    memset(text, 'x', sizeof text);
    bool written = io_write(fd, text, sizeof text);
    close(fd);
    return written ? context : NULL;
}

/* Returns the reading end of a pipe into which a thread writes. */
static int begin(int ends[2], pthread_t *thread)
{
    cr_assert_eq(pipe(ends), 0);
    cr_assert_eq(pthread_create(thread, NULL, write_many, &ends[1]), 0);
    return ends[0];
}

Test(io, short_writes_and_reads_go_on_to_the_end)
{
    int ends[2];
    pthread_t thread;
    void *written;
    struct buf content;
    buf_init(&content, MANY);
    cr_assert(io_read_all(begin(ends, &thread), &content));
    cr_assert_eq(content.length, MANY);
    cr_assert_eq(strspn(buf_text(&content), "x"), MANY);
    pthread_join(thread, &written);
    cr_assert(written);
    close(ends[0]);
    buf_release(&content);
}

Test(io, text_that_is_full_ends_the_reading)
{
    char text[10];
    int ends[2];
    cr_assert_eq(pipe(ends), 0);
    cr_assert(io_write(ends[1], "0123456789ab", 12));
    cr_assert_eq(io_read(ends[0], text, sizeof text), 10);
    cr_assert_eq(memcmp(text, "0123456789", 10), 0);
    close(ends[1]);
    cr_assert_eq(io_read(ends[0], text, sizeof text), 2);
    cr_assert_eq(io_read(ends[0], text, sizeof text), 0);
    close(ends[0]);
}

Test(io, content_that_is_too_long_is_refused)
{
    int ends[2];
    struct buf content;
    buf_init(&content, 11);
    cr_assert_eq(pipe(ends), 0);
    cr_assert(io_write(ends[1], "0123456789ab", 12));
    close(ends[1]);
    cr_assert_not(io_read_all(ends[0], &content));
    cr_assert_eq(content.broken, BUF_TOO_LONG);
    close(ends[0]);
    buf_release(&content);
}

Test(io, failure_leaves_the_cause_in_errno)
{
    char text[1];
    struct buf content;
    buf_init(&content, 10);
    errno = 0;
    cr_assert_not(io_read_all(-1, &content));
    cr_assert_eq(errno, EBADF);
    cr_assert_eq(content.broken, 0);
    cr_assert_eq(io_read(-1, text, 1), -1);
    cr_assert_not(io_write(-1, "x", 1));
    cr_assert_eq(errno, EBADF);
    buf_release(&content);
}
