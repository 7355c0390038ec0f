/* SPDX-License-Identifier: MIT */
/* Data directories: the entries that permitd accepts in a directory that it takes, and links in it. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fixture.h"
#include "mariadb/data_dir.h"

enum { ENTRIES_MAX = 8 };

/* Creates an entry: a directory if its name ends with '/'. */
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

Test(data_dir, only_an_empty_or_permitds_directory_is_usable)
{
    static const struct {
        const char *strange; /* the entry that the refusal names; NULL: usable */
        const char *entries[ENTRIES_MAX];
    } rows[] = {
        {NULL, {NULL}},
        {NULL, {"lost+found/"}},
        /* permitd was killed while it started, or a copy of `data` was put here */
        {NULL, {"lock"}},
        {NULL, {"lock", "mariadb.log", "tmp/", "data.new/", "data.new/ibdata1", "lost+found/"}},
        {NULL, {"data/", "data/permitd/", "data/permitd/db.opt"}},
        /* in use for long: its owner keeps other files here too, and has moved the database away */
        {NULL, {"lock", "mariadb.log", "mariadb.log.1.gz", "mariadb.pid", "data/", "tmp/"}},
        {NULL, {"lock", "mariadb.log", "permitd.sql", "data.old/"}},
        {NULL, {"data/", "data/permitd/", "data/permitd/db.opt", "permitd.sql"}},
        /* foreign */
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
        int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        cr_expect_eq(data_dir_is_usable(fd, directory, &message), expected, "row %zu: %s", i, buf_text(&message));
        char quoted[64];
        snprintf(quoted, sizeof quoted, "contains '%s'", expected ? "" : rows[i].strange);
        cr_expect(expected || strstr(buf_text(&message), quoted), "row %zu: %s", i, buf_text(&message));
        close(fd);
        buf_release(&message);
        free(directory);
    }
}

enum { NOBODY = 65534 };

/* If other users could once write to the directory, they may have created entries with permitd's names. */
Test(data_dir, entries_of_another_user_are_refused)
{
    static const char *const rows[][ENTRIES_MAX] = {
        {"lock"},
        {"lock", "mariadb.log"},
        {"lock", "tmp/"},
        {"lock", "data.new/"},
        {"data/", "data/permitd/", "data/permitd/db.opt"},
    };
    if (geteuid() != 0)
        cr_skip_test("only root can make an entry of another user");
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        struct buf message;
        char path[4096];
        char *directory = temporary_directory();
        buf_init(&message, 8000);
        for (const char *const *entry = rows[i]; *entry; entry++) {
            entry_make(directory, *entry);
            snprintf(path, sizeof path, "%s/%s", directory, *entry);
        }
        cr_assert_eq(chown(path, NOBODY, NOBODY), 0); /* the last one */
        int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        cr_expect_not(data_dir_is_usable(fd, directory, &message), "row %zu", i);
        close(fd);
        buf_release(&message);
        free(directory);
    }
}

static struct data_dir taken(const char *directory)
{
    struct data_dir dir;
    struct buf message;
    buf_init(&message, 8000);
    cr_assert(data_dir_take(directory, &root_is_allowed, &dir, &message), "%s", buf_text(&message));
    buf_release(&message);
    return dir;
}

static void refuses_to_take(const char *directory, const char *part)
{
    struct data_dir dir;
    struct buf message;
    buf_init(&message, 8000);
    cr_assert_not(data_dir_take(directory, &root_is_allowed, &dir, &message));
    cr_assert(strstr(buf_text(&message), part), "%s", buf_text(&message));
    buf_release(&message);
}

Test(data_dir, only_regular_files_are_opened)
{
    struct buf message;
    char *directory = temporary_directory();
    struct data_dir dir = taken(directory);
    buf_init(&message, 8000);
    entry_make(directory, "plain");
    entry_make(directory, "directory/");
    cr_assert_eq(symlinkat("plain", dir.fd, "link"), 0);
    cr_assert_eq(symlinkat("nothing", dir.fd, "dangling"), 0);
    cr_assert_eq(mkfifoat(dir.fd, "fifo", 0600), 0);
    static const struct {
        const char *name, *refused;
    } rows[] = {
        {"plain", NULL},
        {"new", NULL},
        {"link", "link: it is a symbolic link"},
        {"dangling", "dangling: it is a symbolic link"},
        {"fifo", "fifo: it is not a plain file"},
        {"directory", "Is a directory"},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        buf_clear(&message);
        int fd = data_dir_open(&dir, rows[i].name, O_RDWR | O_CREAT, &message);
        cr_expect_eq(fd >= 0, !rows[i].refused, "%s: %s", rows[i].name, buf_text(&message));
        cr_expect(!rows[i].refused || strstr(buf_text(&message), rows[i].refused), "%s", buf_text(&message));
        if (fd >= 0)
            close(fd);
    }
    cr_expect_neq(faccessat(dir.fd, "nothing", F_OK, 0), 0, "a link was followed");
    buf_release(&message);
    data_dir_release(&dir);
    free(directory);
}

Test(data_dir, link_target_is_neither_removed_nor_used_as_a_directory)
{
    struct buf message;
    char *directory = temporary_directory();
    struct data_dir dir = taken(directory);
    buf_init(&message, 8000);
    entry_make(directory, "kept/");
    entry_make(directory, "kept/file");
    entry_make(directory, "data.new/");
    entry_make(directory, "data.new/deep/");
    entry_make(directory, "data.new/deep/file");
    cr_assert_eq(symlinkat("../kept", dir.fd, "data.new/link"), 0);
    cr_assert_eq(symlinkat("kept", dir.fd, "tmp"), 0);
    cr_expect(data_dir_remove(&dir, "data.new", &message), "%s", buf_text(&message));
    cr_expect_neq(faccessat(dir.fd, "data.new", F_OK, 0), 0);
    cr_expect_not(data_dir_make(&dir, "tmp", &message));
    cr_expect(strstr(buf_text(&message), "tmp: it is a symbolic link"), "%s", buf_text(&message));
    cr_expect(data_dir_remove(&dir, "tmp", &message));
    cr_expect(data_dir_remove(&dir, "tmp", &message), "it is missing");
    cr_expect(data_dir_make(&dir, "tmp", &message));
    cr_expect(data_dir_make(&dir, "tmp", &message), "it is there");
    cr_expect_eq(faccessat(dir.fd, "kept/file", F_OK, 0), 0);
    buf_release(&message);
    data_dir_release(&dir);
    free(directory);
}

Test(data_dir, root_follows_no_link_of_another_user_to_the_directory)
{
    if (geteuid() != 0)
        cr_skip_test("only root may enter the directories of all users");
    char link[4096];
    char *directory = temporary_directory();
    snprintf(link, sizeof link, "%s.link", directory);
    cr_assert_eq(symlink(directory, link), 0);
    struct data_dir dir = taken(link);
    cr_assert_str_eq(dir.path, directory);
    data_dir_release(&dir);
    cr_assert_eq(lchown(link, NOBODY, NOBODY), 0);
    refuses_to_take(link, "is a symbolic link of user 65534");
    free(directory);
}

Test(data_dir, root_switches_to_the_owner_permanently)
{
    if (geteuid() != 0)
        cr_skip_test("only root can become another user");
    uid_t real, effective, saved;
    char *directory = temporary_directory();
    cr_assert_eq(chmod(getenv("PERMIT_STORE_TEST_DIRECTORY"), 0711), 0);
    cr_assert_eq(chown(directory, NOBODY, NOBODY), 0);
    cr_assert_eq(chmod(directory, 0755), 0);
    struct data_dir dir = taken(directory);
    struct stat info;
    cr_assert_eq(getresuid(&real, &effective, &saved), 0);
    cr_assert(real == NOBODY && effective == NOBODY && saved == NOBODY);
    cr_assert_neq(setuid(0), 0);
    gid_t groups[64];
    int count = getgroups(64, groups);
    for (int i = 0; i < count; i++)
        cr_expect_neq(groups[i], 0, "it still has root's group");
    cr_assert_neq(getegid(), 0);
    cr_assert_eq(fstat(dir.fd, &info), 0);
    cr_assert_eq(info.st_mode & 0777U, 0700);
    data_dir_release(&dir);
    free(directory);
}

/* Expects that this user gets a directory of root, by --user and allow_root. The test process becomes that user. */
static void expect_owner(const struct data_dir_user *user, const char *entry, uid_t expected)
{
    struct data_dir dir;
    struct buf message;
    struct stat info;
    char *directory = temporary_directory();
    cr_assert_eq(chmod(getenv("PERMIT_STORE_TEST_DIRECTORY"), 0711), 0);
    if (entry)
        entry_make(directory, entry);
    buf_init(&message, 8000);
    cr_assert(data_dir_take(directory, user, &dir, &message), "%s", buf_text(&message));
    cr_assert_eq(fstat(dir.fd, &info), 0);
    cr_assert_eq(info.st_uid, expected);
    cr_assert_eq(geteuid(), expected);
    cr_assert(data_dir_make(&dir, "tmp", &message), "%s", buf_text(&message));
    data_dir_release(&dir);
    buf_release(&message);
    free(directory);
}

Test(data_dir, new_directory_of_root_is_given_to_the_named_user)
{
    if (geteuid() != 0)
        cr_skip_test("only root can become another user");
    expect_owner(&(struct data_dir_user){.name = "nobody"}, NULL, NOBODY);
}

Test(data_dir, named_user_is_taken_even_if_root_is_allowed)
{
    if (geteuid() != 0)
        cr_skip_test("only root can become another user");
    expect_owner(&(struct data_dir_user){.name = "nobody", .allow_root = true}, "lost+found/", NOBODY);
}

Test(data_dir, root_stays_root_only_if_it_is_allowed)
{
    if (geteuid() != 0)
        cr_skip_test("not root");
    expect_owner(&root_is_allowed, NULL, 0);
    expect_owner(&root_is_allowed, "lock", 0);
}

/* Refused, and nothing in it is changed: what root's mariadbd has written belongs to root. */
Test(data_dir, used_directory_of_root_is_refused_with_the_remedy)
{
    const struct {
        struct data_dir_user user;
        const char *part;
    } rows[] = {
        {{.name = NULL}, "belongs to root, and MariaDB does not run as root: give it to a user (chown -R NAME "},
        {{.name = "nobody"}, "(chown -R nobody "},
        {{.name = "nobody", .allow_root = true}, "(chown -R nobody "},
        {{.name = "root"}, "user must not be root"},
        {{.name = "no-such-user"}, "there is no user no-such-user"},
    };
    if (geteuid() != 0)
        cr_skip_test("not root");
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        bool has_database = true;
        struct data_dir dir;
        struct stat info;
        struct buf message;
        char *directory = temporary_directory();
        entry_make(directory, "lock");
        buf_init(&message, 8000);
        cr_expect_not(data_dir_take(directory, &rows[i].user, &dir, &message));
        cr_expect(strstr(buf_text(&message), rows[i].part), "%s", buf_text(&message));
        buf_clear(&message);
        cr_expect_not(data_dir_check(directory, &rows[i].user, &has_database, &message));
        cr_expect(strstr(buf_text(&message), rows[i].part), "%s", buf_text(&message));
        cr_expect(stat(directory, &info) == 0 && info.st_uid == 0);
        cr_expect_eq(geteuid(), 0);
        buf_release(&message);
        free(directory);
    }
}

Test(data_dir, directory_of_another_than_the_named_user_is_refused)
{
    struct data_dir dir;
    struct buf message;
    if (geteuid() != 0)
        cr_skip_test("only root can give a directory away");
    char *directory = temporary_directory();
    buf_init(&message, 8000);
    cr_assert_eq(chown(directory, 4711, 4711), 0);
    cr_expect_not(data_dir_take(directory, &(struct data_dir_user){.name = "nobody"}, &dir, &message));
    cr_expect(strstr(buf_text(&message), "belongs to user 4711, not to nobody"), "%s", buf_text(&message));
    buf_release(&message);
    free(directory);
}

/* Without a name, the users permitd and mysql are tried. A refused directory that is missing is not made. */
Test(data_dir, missing_directory_is_given_to_a_user_or_not_made)
{
    struct data_dir dir;
    struct buf message;
    char path[4096];
    if (geteuid() != 0)
        cr_skip_test("not root");
    char *directory = temporary_directory();
    snprintf(path, sizeof path, "%s/new", directory);
    buf_init(&message, 8000);
    cr_assert_eq(chmod(getenv("PERMIT_STORE_TEST_DIRECTORY"), 0711), 0);
    cr_assert_eq(chmod(directory, 0711), 0);
    if (getpwnam("permitd") || getpwnam("mysql")) {
        cr_assert(data_dir_take(path, &(struct data_dir_user){.name = NULL}, &dir, &message), "%s", buf_text(&message));
        cr_expect_neq(geteuid(), 0);
        data_dir_release(&dir);
    } else {
        cr_expect_not(data_dir_take(path, &(struct data_dir_user){.name = NULL}, &dir, &message));
        cr_expect(strstr(buf_text(&message), "--user NAME"), "%s", buf_text(&message));
        cr_expect_neq(access(path, F_OK), 0);
    }
    buf_release(&message);
    free(directory);
}

/* root makes nothing where another user could lead it to another place; the user then makes it, or cannot. */
Test(data_dir, missing_directory_below_that_of_another_user_is_not_made_by_root)
{
    enum { OTHER = 65533 };
    struct data_dir dir;
    struct buf message;
    char path[4096];
    if (geteuid() != 0)
        cr_skip_test("not root");
    char *directory = temporary_directory();
    snprintf(path, sizeof path, "%s/new", directory);
    buf_init(&message, 8000);
    cr_assert_eq(chmod(getenv("PERMIT_STORE_TEST_DIRECTORY"), 0711), 0);
    cr_assert(chmod(directory, 0711) == 0 && chown(directory, OTHER, OTHER) == 0);
    cr_expect_not(data_dir_take(path, &root_is_allowed, &dir, &message));
    cr_expect(strstr(buf_text(&message), "make it first"), "%s", buf_text(&message));
    buf_clear(&message);
    cr_expect_not(data_dir_take(path, &(struct data_dir_user){.name = "nobody"}, &dir, &message));
    cr_expect(strstr(buf_text(&message), "cannot make the directory"), "%s", buf_text(&message));
    cr_expect_neq(access(path, F_OK), 0);
    buf_release(&message);
    free(directory);
}

Test(data_dir, user_makes_its_directory_in_one_of_its_own)
{
    struct data_dir dir;
    struct buf message;
    char path[4096];
    if (geteuid() != 0)
        cr_skip_test("not root");
    char *directory = temporary_directory();
    snprintf(path, sizeof path, "%s/new/", directory);
    buf_init(&message, 8000);
    cr_assert_eq(chmod(getenv("PERMIT_STORE_TEST_DIRECTORY"), 0711), 0);
    cr_assert_eq(chown(directory, NOBODY, NOBODY), 0);
    cr_assert(data_dir_take(path, &(struct data_dir_user){.name = "nobody"}, &dir, &message), "%s", buf_text(&message));
    cr_expect_eq(geteuid(), NOBODY);
    data_dir_release(&dir);
    buf_release(&message);
    free(directory);
}
