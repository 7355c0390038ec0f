/* SPDX-License-Identifier: MIT */
/* How permitd starts, refuses to start, and takes changed settings. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support.h"

/* permitd must end with status 1 and one sentence that has this part. */
static void refuses(const struct kit_permitd_options *options, const char *part)
{
    struct kit_permitd *permitd = kit_permitd_spawn(options);
    int status = kit_permitd_wait_end(permitd, 120000);
    char *log = kit_read_file(permitd->log_path);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 1, "status %d: %s", status, log);
    cr_assert(strstr(log, "permitd: ") && strstr(log, part), "no \"%s\" in: %s", part, log);
    free(log);
    kit_permitd_kill(permitd);
}

static void refuses_flags(const char *first, const char *second, const char *part)
{
    const char *flags[] = {first, second, NULL};
    refuses(&(struct kit_permitd_options){.flags = flags}, part);
}

Test(start, mistakes_end_it_with_a_sentence, .timeout = 300)
{
    refuses_flags("--no-such-setting", "1", "is not a setting");
    refuses_flags("--workers", "none", "--workers");
    refuses_flags("--workers", "0", "from 1 to 64");
    refuses_flags("--request-timeout", "5y", "--request-timeout");
    refuses_flags("--log-level", "loud", "--log-level");
    refuses_flags("--database", "mysql://root@/x", "exclude each other");
    refuses_flags("--config", "/no/such/file", "cannot be opened");
    refuses_flags("--listen", "0.0.0.0:0", "--insecure");
    refuses_flags("--listen", "[::]:0", "--insecure");
    refuses_flags("--listen", "localhost", "listen must be");
    refuses_flags("--listen", "127.0.0.1:70000", "listen must be");
    refuses(&(struct kit_permitd_options){.database = "nonsense"}, "mysql://");
    refuses(&(struct kit_permitd_options){.database = "mysql://root@127.0.0.1:1/x"}, "cannot be used");
    refuses(&(struct kit_permitd_options){.listen = text("127.0.0.1:%u", shared_port())},
            "another program has the port");
}

Test(start, a_data_directory_serves_one_permitd, .timeout = 300)
{
    refuses(&(struct kit_permitd_options){.data_dir = shared_directory()}, "in use by another permitd");
}

/* What permitd --check says on this directory, on standard output and then on standard error; it must end so. */
static const char *check_says(const char *data_dir, int expected_exit)
{
    static const char *const flags[] = {"--check", NULL};
    char said[16 * 1024];
    size_t length = 0;
    struct kit_permitd *permitd =
        kit_permitd_spawn(&(struct kit_permitd_options){.data_dir = data_dir, .flags = flags});
    int status = kit_permitd_wait_end(permitd, 120000);
    for (ssize_t got; (got = read(permitd->stdout_fd, said + length, sizeof said - 1 - length)) > 0;)
        length += (size_t)got;
    said[length] = '\0';
    char *log = kit_read_file(permitd->log_path);
    const char *all = text("%s%s", said, log);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == expected_exit, "status %d: %s", status, all);
    free(log);
    kit_permitd_kill(permitd);
    return all;
}

Test(start, a_check_makes_no_database_and_asks_the_one_that_is_there, .timeout = 300)
{
    char *directory = kit_path("checked");
    const char *said = check_says(directory, 0);
    cr_assert(strstr(said, "there is no database in"), "%s", said);
    cr_assert_neq(access(directory, F_OK), 0, "it was made");
    kit_permitd_stop(kit_permitd_start(&(struct kit_permitd_options){.data_dir = directory}));
    said = check_says(directory, 0);
    cr_assert(strstr(said, "flush_at_commit"), "%s", said);
    said = check_says(shared_directory(), 1);
    cr_assert(strstr(said, "in use by another permitd") && strstr(said, "permitctl doctor"), "%s", said);
    said = check_says("/usr", 1);
    cr_assert(strstr(said, "is not permitd's") || strstr(said, "belongs to user"), "%s", said);
    free(directory);
}

Test(start, other_addresses_are_served_if_that_is_wanted, .timeout = 300)
{
    static const char *const flags[] = {"--listen", "0.0.0.0:0", "--insecure", NULL};
    struct kit_permitd *permitd = own_permitd(flags);
    struct talk talk = talk_to(permitd->port);
    say(&talk, 200, "GET", "/healthz", NULL);
    talk_end(&talk);
    kit_permitd_stop(permitd);
}

static void write_file(const char *path, const char *content)
{
    FILE *file = fopen(path, "w");
    cr_assert_not_null(file);
    fputs(content, file);
    fclose(file);
}

static bool has_refused_the_file(void *context)
{
    return log_count(context, "not loaded again") > 0;
}

static bool remembers_eight_days(void *context)
{
    struct talk *talk = context;
    say(talk, 200, "GET", "/healthz", NULL);
    return number_of(talk, "retention_ms") == 8LL * 86400 * 1000 && number_of(talk, "max_wait_ms") == 60000;
}

Test(start, sighup_takes_what_may_change, .timeout = 300)
{
    char *path = kit_path("permitd.ini");
    const char *flags[] = {"--config", path, NULL};
    write_file(path, "retention = 9d\nworkers = 1\n");
    struct kit_permitd *permitd = own_permitd(flags);
    struct talk talk = talk_to(permitd->port);
    say(&talk, 200, "GET", "/healthz", NULL);
    cr_assert_eq(number_of(&talk, "retention_ms"), 9LL * 86400 * 1000);
    write_file(path, "retention = nonsense\n");
    kill(permitd->pid, SIGHUP);
    cr_assert(kit_wait_until(has_refused_the_file, permitd, 60000));
    say(&talk, 200, "GET", "/healthz", NULL);
    cr_assert_eq(number_of(&talk, "retention_ms"), 9LL * 86400 * 1000, "a mistake in the file was taken");
    write_file(path, "retention = 8d\nworkers = 3\nmax_wait = 1m\n");
    kill(permitd->pid, SIGHUP);
    cr_assert(kit_wait_until(remembers_eight_days, &talk, 60000));
    char *log = kit_read_file(permitd->log_path);
    cr_assert(strstr(log, "needs_restart=workers\n"), "nobody is told that workers needs a restart: %s", log);
    free(log);
    talk_end(&talk);
    kit_permitd_stop(permitd);
    free(path);
}

static bool is_taken(void *context)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/lock", ((const struct kit_permitd *)context)->data_dir);
    return access(path, F_OK) == 0;
}

Test(start, a_stop_in_the_middle_leaves_no_database_running, .timeout = 300)
{
    struct kit_permitd *permitd = kit_permitd_spawn(&(struct kit_permitd_options){0});
    cr_assert(kit_wait_until(is_taken, permitd, 60000));
    char pid_file[4096];
    snprintf(pid_file, sizeof pid_file, "%s/mariadb.pid", permitd->data_dir);
    kit_permitd_stop(permitd);
    cr_assert_neq(access(pid_file, F_OK), 0, "mariadbd still has its pid file");
}
