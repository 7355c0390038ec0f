/* SPDX-License-Identifier: MIT */
/* Several listeners, and Unix sockets. */
#include <criterion/criterion.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fixture.h"

static unsigned port_of(const char *url)
{
    return (unsigned)strtoul(strrchr(url, ':') + 1, NULL, 10);
}

static void fill_address(struct sockaddr_un *address, const char *path)
{
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    cr_assert_lt(snprintf(address->sun_path, sizeof address->sun_path, "%s", path), (int)sizeof address->sun_path);
}

/* Returns a listening Unix socket. */
static int listen_at_path(const char *path)
{
    struct sockaddr_un address;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    fill_address(&address, path);
    cr_assert(fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0 && listen(fd, 1) == 0);
    return fd;
}

/* Returns -1 if that fails. */
static int try_path(const char *path)
{
    struct sockaddr_un address;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    fill_address(&address, path);
    return fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0 ? fd : -1;
}

static int connect_to_path(const char *path)
{
    int fd = try_path(path);
    cr_assert(fd >= 0, "%s", path);
    return fd;
}

Test(listeners, more_than_sixteen_are_refused, .timeout = 300)
{
    enum { COUNT = 17 };
    const char *list = "127.0.0.1:0";
    for (int i = 1; i < COUNT; i++)
        list = text("%s,127.0.0.1:0", list);
    refuses_flags("--listen", list, "listen has more than 16 addresses");
}

Test(listeners, every_listener_is_printed_in_order_and_served, .timeout = 300)
{
    char *path = kit_path("socket");
    const char *flags[] = {"--listen", "http://[::1]:0", "--listen", text("unix:%s,127.0.0.2:0", path), NULL};
    struct kit_permitd *permitd = own_permitd(flags);
    const char *six = next_url(permitd);
    cr_assert(strncmp(six, "http://[::1]:", 13) == 0, "%s", six);
    cr_assert_str_eq(next_url(permitd), text("unix:%s", path));
    const char *last = next_url(permitd);
    cr_assert(strncmp(last, "http://127.0.0.2:", 17) == 0, "%s", last);
    cr_assert(port_of(six) != port_of(last) && port_of(last) != permitd->port);
    int status;
    const char *said = run_shell(&status, "curl -sS --fail --globoff --noproxy '*' %s/healthz %s/healthz %s/healthz",
                                 permitd->url, six, last);
    cr_assert_eq(status, 0, "%s", said);
    said = run_shell(&status, "curl -sS --fail --unix-socket '%s' http://localhost/healthz", path);
    cr_assert(status == 0 && strstr(said, "\"status\":"), "%s", said);
    kit_permitd_stop(permitd);
    cr_assert_neq(access(path, F_OK), 0, "the socket is still there");
    free(path);
}

Test(listeners, only_user_and_group_may_connect_to_a_unix_socket, .timeout = 300)
{
    char *path = kit_path("socket");
    const char *flags[] = {"--listen", text("unix:%s", path), NULL};
    struct stat info;
    struct kit_permitd *permitd = own_permitd(flags);
    cr_assert_eq(lstat(path, &info), 0);
    cr_assert(S_ISSOCK(info.st_mode));
    cr_assert_eq(info.st_mode & 07777, 0660, "%o", info.st_mode);
    kit_permitd_stop(permitd);
    free(path);
}

Test(listeners, socket_of_a_permitd_that_was_killed_is_replaced, .timeout = 300)
{
    char *path = kit_path("socket");
    const char *flags[] = {"--listen", text("unix:%s", path), NULL};
    kit_permitd_kill(own_permitd(flags));
    cr_assert_eq(access(path, F_OK), 0, "a killed permitd cannot remove it");
    struct kit_permitd *permitd = own_permitd(flags);
    close(connect_to_path(path));
    kit_permitd_stop(permitd);
    cr_assert_neq(access(path, F_OK), 0);
    free(path);
}

Test(listeners, socket_that_is_served_and_other_files_are_left_alone, .timeout = 300)
{
    char *path = kit_path("socket");
    const char *url = text("unix:%s", path);
    int fd = listen_at_path(path);
    refuses_flags("--listen", url, "another program serves it");
    close(connect_to_path(path));
    close(fd);
    cr_assert_eq(unlink(path), 0);
    FILE *file = fopen(path, "w");
    cr_assert(file && fclose(file) == 0);
    refuses_flags("--listen", url, "it is not a socket");
    cr_assert_eq(access(path, F_OK), 0);
    free(path);
}

Test(listeners, socket_that_another_program_has_replaced_is_not_removed, .timeout = 300)
{
    char *path = kit_path("socket");
    const char *flags[] = {"--listen", text("unix:%s", path), NULL};
    struct kit_permitd *permitd = own_permitd(flags);
    cr_assert_eq(unlink(path), 0);
    int fd = listen_at_path(path);
    kit_permitd_stop(permitd);
    cr_assert_eq(access(path, F_OK), 0);
    close(fd);
    free(path);
}

/* Sends a request and waits for the beginning of the answer. An answer is one piece, so the rest is there too. */
static bool is_served_on(int fd)
{
    static const char request[] = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    char rest[4096];
    char answer[12];
    while (recv(fd, rest, sizeof rest, MSG_DONTWAIT) > 0) /* of the answer before */
        ;
    return send(fd, request, strlen(request), MSG_NOSIGNAL) == (ssize_t)strlen(request) &&
           recv(fd, answer, sizeof answer, MSG_WAITALL) == sizeof answer && memcmp(answer + 9, "200", 3) == 0;
}

/* Each of the waiting connections keeps its client's count at the limit, so that no connection is idle. */
Test(listeners, clients_of_a_unix_socket_are_counted_apart_from_addresses, .timeout = 300)
{
    char *path = kit_path("socket");
    const char *flags[] = {"--listen", text("unix:%s", path), "--max-connections-per-address", "2", NULL};
    struct kit_permitd *permitd = own_permitd(flags);
    int fds[4];
    for (size_t i = 0; i < 4; i++)
        fds[i] = i % 2 ? kit_connect(permitd->port) : connect_to_path(path);
    for (size_t i = 0; i < 4; i++)
        cr_assert(is_served_on(fds[i]), "connection %zu", i);
    int third = connect_to_path(path);
    cr_assert(is_served_on(third));
    cr_assert(!is_served_on(fds[0]), "the longest idle connection of this user is closed for it");
    cr_assert(is_served_on(fds[1]) && is_served_on(fds[2]) && is_served_on(fds[3]));
    for (size_t i = 0; i < 4; i++)
        close(fds[i]);
    close(third);
    kit_permitd_stop(permitd);
    free(path);
}

/* ---- root ---- */

enum { NOBODY = 65534, ANOTHER_USER = 65533 };

/* Returns a directory of the user nobody. Skips the test unless it runs as root. */
static const char *directory_of_nobody(void)
{
    if (geteuid() != 0)
        cr_skip_test("only root can become another user");
    setenv("ASAN_OPTIONS", "detect_leaks=0", 1); /* LeakSanitizer cannot check a process that changed its user */
    const char *directory = kept(kit_path("nobody"));
    cr_assert_eq(mkdir(directory, 0755), 0);
    cr_assert(chmod(directory, 0755) == 0 && chown(directory, NOBODY, NOBODY) == 0);
    cr_assert_eq(chmod(kit_directory(), 0711), 0); /* so that other users can reach it */
    return directory;
}

/* Returns true if a process of another user, which is in the group of nobody, is served on the socket. */
static bool serves_the_group(const char *path)
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        bool is_other = setgroups(0, NULL) == 0 && setgid(NOBODY) == 0 && setuid(ANOTHER_USER) == 0;
        _exit(is_other && is_served_on(try_path(path)) ? 0 : 1);
    }
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

Test(listeners, unix_socket_belongs_to_the_user_that_root_becomes, .timeout = 600)
{
    const char *directory = directory_of_nobody();
    const char *path = text("%s/socket", directory);
    const char *flags[] = {"--user=nobody", "--allow-root=false", "--listen", text("unix:%s", path), NULL};
    struct kit_permitd *permitd = kit_permitd_start(&(struct kit_permitd_options){.flags = flags});
    char *data_dir = strdup(permitd->data_dir);
    struct stat info;
    cr_assert_eq(lstat(path, &info), 0);
    cr_expect(info.st_uid == NOBODY && info.st_gid == NOBODY, "%u:%u", info.st_uid, info.st_gid);
    cr_expect_eq(info.st_mode & 07777, 0660, "%o", info.st_mode);
    cr_expect(serves_the_group(path));
    kit_permitd_kill(permitd);
    permitd = kit_permitd_start(&(struct kit_permitd_options){.data_dir = data_dir, .flags = flags});
    cr_expect(serves_the_group(path), "after a kill");
    kit_permitd_stop(permitd);
    cr_expect_neq(access(path, F_OK), 0, "the socket is still there");
    free(data_dir);
}

/* The user who may write to the directory could lead root to any other one. */
Test(listeners, root_uses_no_directory_that_another_user_can_change, .timeout = 300)
{
    const char *directory = directory_of_nobody();
    const char *path = text("%s/stale", directory), *below = text("%s/below", directory);
    cr_assert_eq(close(listen_at_path(path)), 0);
    refuses_flags("--listen", text("unix:%s", path), "other users than root can change its directory");
    cr_expect_eq(access(path, F_OK), 0, "it was removed");
    refuses_flags("--listen", text("unix:%s/new", directory), "other users than root can change its directory");
    cr_expect_neq(access(text("%s/new", directory), F_OK), 0, "it was made");
    cr_assert_eq(mkdir(below, 0700), 0);
    refuses_flags("--listen", text("unix:%s/new", below), "other users than root can change its directory");
    refuses_flags("--listen", text("unix:%s/none/new", directory), "No such file or directory");
}

/* nobody cannot know whether the socket of another user is served. */
Test(listeners, socket_of_another_user_is_left_alone, .timeout = 300)
{
    const char *directory = directory_of_nobody();
    const char *path = text("%s/socket", directory);
    const char *flags[] = {"--user=nobody", "--allow-root=false", "--listen", text("unix:%s", path), NULL};
    int fd = listen_at_path(path);
    cr_assert_eq(chmod(path, 0660), 0);
    refuses_to_start(&(struct kit_permitd_options){.flags = flags},
                     "Permission denied; user 65534 must be able to write to its directory, and to the socket");
    close(connect_to_path(path));
    close(fd);
}

static bool has_warned(void *context)
{
    return log_count(context, "every client that reaches this address may do everything") == 1;
}

Test(listeners, insecure_listener_is_logged_as_a_warning, .timeout = 300)
{
    static const char *const flags[] = {"--listen", "0.0.0.0:0", "--insecure", NULL};
    struct kit_permitd *permitd = own_permitd(flags);
    const char *url = next_url(permitd);
    struct talk talk = talk_to(port_of(url));
    say(&talk, 200, "GET", "/healthz", NULL);
    talk_end(&talk);
    cr_assert(kit_wait_until(has_warned, permitd, 60000));
    cr_assert_eq(log_count(permitd, text("listen=%s", url)), 1);
    kit_permitd_stop(permitd);
}
