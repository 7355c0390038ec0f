/* SPDX-License-Identifier: MIT */
#include "base/user.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char directory[] = "/tmp/permit-user-XXXXXX";

static void make(const char *name, mode_t mode, uid_t owner)
{
    char path[100];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    cr_assert(mkdir(path, 0700) == 0 && chmod(path, mode) == 0 && chown(path, owner, owner) == 0, "%s", path);
}

static void remove_directory(void)
{
    char command[100];
    snprintf(command, sizeof command, "rm -rf '%s'", directory);
    cr_expect_eq(system(command), 0);
}

Test(user, only_root_changes_its_own_directories, .fini = remove_directory)
{
    static const struct {
        const char *path;
        int error; /* 0: only root can change the directories */
    } rows[] = {
        {"/x", 0},
        {"/tmp/x", 0},
        {"own", 0},
        {"own/x", 0},
        {"own/x/", 0},
        {"his/x", EPERM},
        {"his/roots/x", EPERM},
        {"open/x", EPERM},
        {"sticky/x", 0},
        {"none/x", ENOENT},
        {"link/x", EPERM},
        {"his", 0},
    };
    enum { OTHER = 65533 };
    cr_assert_not_null(mkdtemp(directory));
    if (geteuid() != 0)
        cr_skip_test("only root can make directories of other users");
    make("own", 0755, 0);
    make("his", 0755, OTHER);
    make("his/roots", 0755, 0);
    make("open", 0777, 0);
    make("sticky", 01777, 0);
    char path[100];
    snprintf(path, sizeof path, "%s/link", directory);
    cr_assert_eq(symlink("his", path), 0);
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        snprintf(path, sizeof path, "%s/%s", directory, rows[i].path);
        errno = 0;
        bool only_root = user_only_root_changes(rows[i].path[0] == '/' ? rows[i].path : path);
        cr_expect_eq(only_root ? 0 : errno, rows[i].error, "%s: %d", rows[i].path, errno);
    }
    cr_expect(chdir(directory) == 0 && user_only_root_changes("x"));
    cr_expect(chdir("his") == 0 && !user_only_root_changes("x") && chdir("/") == 0);
}
