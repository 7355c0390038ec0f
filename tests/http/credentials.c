/* SPDX-License-Identifier: MIT */
/* The credentials file of permitd: start, --check and reload. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fixture.h"

#define HEADER "Authorization: Bearer pmt_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n"
#define DIGEST "e1c916ae4371667c38818061fc77fb9694196ffa0b1d9a8de531951a3df79d7c"
#define ADMIN  "[admin]\nrole = admin\ntoken = sha256:" DIGEST "\n"

/* Runs permitd on this file to its end. As permitd_output. */
static const char *output_of(const char *path, const char *more_flag, int expected_exit)
{
    const char *flags[] = {"--credentials", path, more_flag, NULL};
    return permitd_output(&(struct kit_permitd_options){.flags = flags}, expected_exit);
}

static void refuses_file(const char *path, const char *sentence)
{
    const char *said = output_of(path, NULL, 1);
    cr_expect(strstr(said, text("permitd: %s%s", path, sentence)), "%s", said);
    said = output_of(path, "--check", 1);
    cr_expect(strstr(said, text("permitd: %s%s", path, sentence)), "--check: %s", said);
}

Test(credentials, mistake_in_the_file_ends_the_start_and_the_check, .timeout = 300)
{
    char *path = kit_path("credentials");
    refuses_file(path, ": cannot be opened");
    write_file(path, ADMIN, 0644);
    refuses_file(path, ": users other than its owner have access (mode 0644)");
    write_file(path, ADMIN "rate = no\n", 0600);
    refuses_file(path, ", line 4: rate is a whole number from 1 to 1000000000");
    write_file(path, ADMIN, 0400);
    const char *said = output_of(path, "--check", 0);
    cr_expect(strstr(said, text("credentials: 1 principals in %s\n", path)), "%s", said);
    free(path);
}

/* Returns the value of a metric; -1: it is not shown. */
static double gauge(struct talk *talk, const char *name)
{
    reply_release(&talk->reply);
    cr_assert(kit_http_call(&talk->http, "GET", "/metrics", HEADER, NULL, &talk->reply), "%s", talk->reply.error);
    cr_assert_eq(talk->reply.status, 200);
    const char *line = strstr(talk->reply.body, text("\n%s ", name));
    return line ? atof(line + strlen(name) + 2) : -1;
}

static int64_t now(void)
{
    return (int64_t)time(NULL);
}

struct expected {
    struct talk *talk;
    double principals;
    double failed;
};

static bool is_reached(void *context)
{
    const struct expected *expected = context;
    return gauge(expected->talk, "permitd_principals") == expected->principals &&
           gauge(expected->talk, "permitd_credentials_reload_failed") == expected->failed;
}

static void reload(struct kit_permitd *permitd, struct talk *talk, double principals, double failed)
{
    struct expected expected = {talk, principals, failed};
    kill(permitd->pid, SIGHUP);
    cr_assert(kit_wait_until(is_reached, &expected, 60000), "%g principals, failed %g",
              gauge(talk, "permitd_principals"), gauge(talk, "permitd_credentials_reload_failed"));
}

Test(credentials, reload_takes_the_whole_file_or_nothing, .timeout = 300)
{
    char *path = kit_path("credentials");
    const char *flags[] = {"--credentials", path, NULL};
    write_file(path, ADMIN, 0600);
    struct kit_permitd *permitd = own_permitd(flags);
    struct talk talk = talk_to(permitd->port);
    cr_assert_eq(gauge(&talk, "permitd_principals"), 1);
    cr_assert_eq(gauge(&talk, "permitd_credential_until_seconds"), -1, "no token ends");
    const char *two = ADMIN "[shop]\nrole = use\nsemaphores = shop:*\n"
                            "token = sha256:0000000000000000000000000000000000000000000000000000000000000000 "
                            "until 9999-12-31\n";
    write_file(path, two, 0600);
    reload(permitd, &talk, 2, 0);
    double left = gauge(&talk, "permitd_credential_until_seconds");
    cr_expect_float_eq(left, 253402300800.0 - (double)now(), 60.0);
    write_file(path, ADMIN "[shop]\nrole = use\n", 0600);
    reload(permitd, &talk, 2, 1);
    cr_expect_eq(log_count(permitd, "credentials reload failed, the earlier ones stay"), 1);
    cr_expect_eq(log_count(permitd, ", line 4: [shop] has no semaphores"), 1);
    write_file(path, ADMIN, 0604);
    reload(permitd, &talk, 2, 1);
    cr_assert_eq(unlink(path), 0);
    reload(permitd, &talk, 2, 1);
    write_file(path, ADMIN, 0600);
    reload(permitd, &talk, 1, 0);
    cr_expect_eq(log_count(permitd, DIGEST), 0);
    talk_end(&talk);
    kit_permitd_stop(permitd);
    free(path);
}

Test(credentials, mistake_in_the_settings_does_not_keep_a_credential, .timeout = 300)
{
    char *path = kit_path("credentials");
    char *settings = kit_path("permitd.ini");
    const char *flags[] = {"--config", settings, NULL};
    write_file(path, ADMIN "[old]\nrole = metrics\n", 0600);
    write_file(settings, text("credentials = %s\n", path), 0600);
    struct kit_permitd *permitd = own_permitd(flags);
    struct talk talk = talk_to(permitd->port);
    cr_assert_eq(gauge(&talk, "permitd_principals"), 2);
    write_file(settings, "retention = nonsense\n", 0600);
    write_file(path, ADMIN, 0600);
    reload(permitd, &talk, 1, 0);
    cr_expect_eq(log_count(permitd, "settings reload failed"), 1);
    talk_end(&talk);
    kit_permitd_stop(permitd);
    free(settings);
    free(path);
}

/* permitd becomes the owner of its data directory, who must be able to read the file at a reload. */
Test(credentials, permitd_that_changes_its_user_needs_a_file_of_that_user, .timeout = 300)
{
    enum { NOBODY = 65534 };
    if (geteuid() != 0)
        cr_skip_test("only root can change its user");
    setenv("ASAN_OPTIONS", "detect_leaks=0", 1); /* LeakSanitizer cannot check a process that changed its user */
    char *path = kit_path("credentials");
    char *directory = kit_path("nobody");
    const char *flags[] = {"--credentials", path, NULL};
    const struct kit_permitd_options options = {.data_dir = directory, .flags = flags};
    cr_assert(mkdir(directory, 0700) == 0 && chown(directory, NOBODY, NOBODY) == 0);
    cr_assert_eq(chmod(kit_directory(), 0711), 0); /* so that the other user can reach it */
    write_file(path, ADMIN, 0600);
    struct kit_permitd *permitd = kit_permitd_spawn(&options);
    cr_assert_eq(WEXITSTATUS(kit_permitd_wait_end(permitd, 120000)), 1);
    cr_expect_eq(log_count(permitd, text("permitd: %s: cannot be opened by user %d", path, NOBODY)), 1);
    kit_permitd_kill(permitd);
    cr_assert_eq(chown(path, NOBODY, NOBODY), 0);
    permitd = kit_permitd_start(&options);
    struct talk talk = talk_to(permitd->port);
    write_file(path, ADMIN "[other]\nrole = metrics\n", 0600);
    cr_assert_eq(chown(path, NOBODY, NOBODY), 0);
    reload(permitd, &talk, 2, 0);
    talk_end(&talk);
    kit_permitd_stop(permitd);
    free(directory);
    free(path);
}

Test(credentials, without_the_setting_there_are_no_metrics_of_it, .timeout = 300)
{
    struct talk talk = talk_to(shared_port());
    cr_expect_eq(gauge(&talk, "permitd_principals"), -1);
    cr_expect_eq(gauge(&talk, "permitd_credentials_reload_failed"), -1);
    say(&talk, 200, "GET", "/healthz", NULL);
    talk_end(&talk);
}

/* Counts how often the metric has a principal. */
static size_t principals_of(struct talk *talk, const char *metric)
{
    const char *line = text("\n%s{principal=", metric);
    size_t count = 0;
    reply_release(&talk->reply);
    cr_assert(kit_http_call(&talk->http, "GET", "/metrics", HEADER, NULL, &talk->reply));
    for (const char *at = talk->reply.body; (at = strstr(at, line)); at++)
        count++;
    return count;
}

/* A client of each of 1,002 principals, the admin among them. */
Test(credentials, thousand_principals_have_metrics_of_their_own, .timeout = 300)
{
    enum { OTHERS = 1001, SHOWN = 1000 };
    char *path = kit_path("credentials");
    write_file(path, ADMIN, 0600);
    run_shell(
        NULL,
        "python3 -c \"import hashlib\nfor i in range(%d): print('[p%%d]\\nrole = metrics\\ntoken = sha256:' %% i +"
        " hashlib.sha256(b'pmt_%%043d' %% i).hexdigest())\" >>'%s'",
        OTHERS, path);
    struct kit_permitd *permitd = own_permitd((const char *const[]){"--credentials", path, NULL});
    struct talk talk = talk_to(permitd->port);
    for (int i = 0; i < OTHERS; i++)
        say_with(&talk, 200, NULL, "GET", "/v1/whoami", text("Authorization: Bearer pmt_%043d\r\n", i), NULL);
    cr_expect_eq(principals_of(&talk, "permitd_principal_requests_total"), SHOWN);
    cr_expect_eq(principals_of(&talk, "permitd_principal_refused_total"), SHOWN);
    cr_expect_eq(principals_of(&talk, "permitd_principal_connections"), SHOWN);
    cr_expect_eq(principals_of(&talk, "permitd_principal_waiting"), SHOWN);
    talk_end(&talk);
    kit_permitd_stop(permitd);
    free(path);
}
