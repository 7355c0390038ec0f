/* SPDX-License-Identifier: MIT */
/* Whose a directory is: what may stand in it when permitd takes it. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/data_dir.h"
#include "support.h"

enum { ENTRIES_MAX = 8 };

/* Makes an entry: a directory if its name ends with '/'. */
static void entry_make(const char *directory, const char *entry)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", directory, entry);
    if (path[strlen(path) - 1] == '/') {
        cr_assert_eq(mkdir(path, 0700), 0, "%s", path);
        return;
    }
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    cr_assert_geq(fd, 0, "%s", path);
    close(fd);
}

Test(data_dir, empty_or_permitds_is_free_and_nothing_else)
{
    static const struct {
        const char *strange; /* the entry that is complained of; NULL: it is free */
        const char *entries[ENTRIES_MAX];
    } rows[] = {
        {NULL, {NULL}},
        {NULL, {"lost+found/"}},
        /* permitd was killed while it began, or a copy of `data` was put here */
        {NULL, {"lock"}},
        {NULL, {"lock", "mariadb.log", "tmp/", "data.new/", "data.new/ibdata1", "lost+found/"}},
        {NULL, {"data/", "data/permitd/", "data/permitd/db.opt"}},
        /* in use since long: its owner keeps other things there too, and has moved the database away */
        {NULL, {"lock", "mariadb.log", "mariadb.log.1.gz", "mariadb.pid", "data/", "tmp/"}},
        {NULL, {"lock", "mariadb.log", "permitd.sql", "data.old/"}},
        {NULL, {"data/", "data/permitd/", "data/permitd/db.opt", "permitd.sql"}},
        /* somebody else's */
        {"letter.txt", {"letter.txt"}},
        {"lock", {"lock/"}},
        {"letter.txt", {"lock", "letter.txt"}},
        {"data", {"lock", "data"}},
        {"data", {"data/", "data/precious"}},
        {"data.new", {"data.new/", "data.new/precious"}},
        {"tmp", {"tmp/"}},
        {"mariadb.log", {"mariadb.log"}},
        {"a?b", {"a\033b"}},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        struct buf message;
        char *directory = temporary_directory();
        buf_init(&message, 8000);
        for (const char *const *entry = rows[i].entries; *entry; entry++)
            entry_make(directory, *entry);
        bool expected = !rows[i].strange;
        cr_expect_eq(data_dir_is_free(directory, &message), expected, "row %zu: %s", i, buf_text(&message));
        char quoted[64];
        snprintf(quoted, sizeof quoted, "holds '%s'", expected ? "" : rows[i].strange);
        cr_expect(expected || strstr(buf_text(&message), quoted), "row %zu: %s", i, buf_text(&message));
        buf_release(&message);
        free(directory);
    }
}
