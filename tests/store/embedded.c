/* SPDX-License-Identifier: MIT */
/* The private MariaDB: made, started, supervised, stopped; each test has its own directory. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "store/doctor.h"
#include "store/embedded.h"
#include "support.h"

static void pause_ms(long ms)
{
    const struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}

static struct embedded *started(const char *directory)
{
    struct embedded *embedded = NULL;
    struct buf message;
    buf_init(&message, 8000);
    bool good = embedded_start(directory, &embedded, &message);
    cr_assert(good, "%s", buf_text(&message));
    buf_release(&message);
    return embedded;
}

static void refused(const char *directory, const char *expected)
{
    struct embedded *embedded = NULL;
    struct buf message;
    buf_init(&message, 8000);
    cr_assert_not(embedded_start(directory, &embedded, &message));
    cr_assert(strstr(buf_text(&message), expected), "%s", buf_text(&message));
    buf_release(&message);
}

/* Connected to the server itself within a minute. */
static struct session *served(const struct embedded *embedded)
{
    struct session *session = session_new(embedded_address(embedded), SESSION_ADMIN);
    mono_us deadline = clock_mono() + 60 * US_PER_SECOND;
    while (session_connect(session) != PERMIT_OK && clock_mono() < deadline)
        pause_ms(20);
    cr_assert(session_is_connected(session), "%s", session_message(session));
    return session;
}

static void kill_and_wait(const struct embedded *embedded)
{
    unsigned restarts = embedded_restarts(embedded);
    cr_assert_eq(kill(embedded_pid(embedded), SIGKILL), 0);
    while (embedded_restarts(embedded) == restarts)
        pause_ms(5);
    session_free(served(embedded));
}

/* A connection with this id, or NULL: somebody else has it, such as the one that looks whether the server lives. */
static struct session *connect_as(const struct embedded *embedded, int64_t id)
{
    for (;;) {
        struct session *session = connected(embedded_address(embedded), SESSION_WORKER);
        int64_t connection_id = number_of(session, "SELECT CONNECTION_ID()");
        if (connection_id == id)
            return session;
        session_free(session);
        if (connection_id > id)
            return NULL;
    }
}

static bool is_gone(pid_t pid)
{
    char path[64], line[64];
    snprintf(path, sizeof path, "/proc/%d/cmdline", (int)pid); /* empty for one that nobody has reaped */
    FILE *file = fopen(path, "re");
    size_t length = file ? fread(line, 1, sizeof line, file) : 0;
    if (file)
        fclose(file);
    return length == 0;
}

Test(embedded, it_is_safe_private_and_keeps_its_rows)
{
    struct stat info;
    char *directory = temporary_directory();
    char *path = NULL;
    struct doctor_report report;
    cr_assert(asprintf(&path, "%s/new", directory) > 0);
    struct embedded *embedded = started(path);
    cr_assert_eq(stat(path, &info), 0);
    cr_assert_eq(info.st_mode & 07777U, 0700);
    struct session *session = served(embedded);
    cr_assert_eq(doctor_examine(session, NULL, &report), PERMIT_OK);
    cr_assert_eq(report.refusals + report.warnings, 0);
    cr_assert_eq(number_of(session, "SELECT @@skip_networking"), 1);
    must_run(session, "CREATE DATABASE permitd; CREATE TABLE permitd.t (a INT); INSERT INTO permitd.t VALUES (42)");
    session_free(session);
    embedded_stop(embedded);
    embedded = started(path);
    session = served(embedded);
    cr_assert_eq(number_of(session, "SELECT a FROM permitd.t"), 42);
    session_free(session);
    embedded_stop(embedded);
    free(path);
    free(directory);
}

Test(embedded, a_killed_server_serves_again_within_seconds_and_has_lost_nothing)
{
    char *directory = temporary_directory();
    struct embedded *embedded = started(directory);
    struct session *session = served(embedded);
    must_run(session, "CREATE DATABASE permitd; CREATE TABLE permitd.t (a INT PRIMARY KEY)");
    for (unsigned i = 1; i <= 3; i++) {
        char sql[64];
        snprintf(sql, sizeof sql, "INSERT INTO permitd.t VALUES (%u)", i);
        must_run(session, sql);
        pid_t pid = embedded_pid(embedded);
        mono_us began = clock_mono();
        cr_assert_eq(kill(pid, SIGKILL), 0);
        cr_assert_eq(session_run(session, "DO SLEEP(60)"), PERMIT_DATABASE_LOST);
        session_free(session);
        session = served(embedded);
        cr_assert_lt(clock_mono() - began, 15 * US_PER_SECOND, "P13");
        cr_assert_neq(embedded_pid(embedded), pid);
        cr_assert_eq(embedded_restarts(embedded), i);
        cr_assert_eq(number_of(session, "SELECT MAX(a) FROM permitd.t"), i);
    }
    session_free(session);
    embedded_stop(embedded);
    free(directory);
}

/* Connection ids begin anew with the server: the id of the lost connection is somebody else's now. */
Test(embedded, after_quick_restarts_no_stranger_is_killed)
{
    enum { CONNECTION = 40 }; /* later than any that the supervisor needs */
    char *directory = temporary_directory();
    struct embedded *embedded = started(directory);
    struct session *session = served(embedded);
    must_run(session, "CREATE DATABASE permitd");
    session_free(session);
    struct session *lost = NULL;
    for (int64_t id = CONNECTION; !lost; id += CONNECTION)
        lost = connect_as(embedded, id);
    int64_t id = number_of(lost, "SELECT CONNECTION_ID()");
    kill_and_wait(embedded);
    cr_assert_eq(session_run(lost, "DO SLEEP(60)"), PERMIT_DATABASE_LOST);
    struct session *stranger = NULL;
    for (int tries = 0; !stranger && tries < 10; tries++) {
        kill_and_wait(embedded);
        stranger = connect_as(embedded, id);
    }
    cr_assert_not_null(stranger);
    must_run(stranger, "SET SESSION wait_timeout = 600"); /* it says nothing while the other one connects */
    cr_assert_eq(session_connect(lost), PERMIT_OK);
    cr_assert_eq(session_ping(stranger), PERMIT_OK);
    session_free(lost);
    session_free(stranger);
    embedded_stop(embedded);
    free(directory);
}

Test(embedded, a_second_one_on_the_same_directory_is_refused_with_the_pid_of_the_first)
{
    char pid[32];
    char *directory = temporary_directory();
    struct embedded *embedded = started(directory);
    snprintf(pid, sizeof pid, "pid %d", (int)getpid());
    refused(directory, pid);
    session_free(served(embedded));
    embedded_stop(embedded);
    free(directory);
}

/* A process with a private MariaDB of its own, to be killed. Returns when it serves. */
static pid_t keeper_start(const char *directory, pid_t *ret_server)
{
    int ready[2];
    cr_assert_eq(pipe(ready), 0);
    pid_t keeper = fork();
    if (keeper == 0) {
        struct buf message;
        struct embedded *embedded = NULL;
        buf_init(&message, 8000);
        if (!embedded_start(directory, &embedded, &message))
            _exit(1);
        pid_t server = embedded_pid(embedded);
        if (write(ready[1], &server, sizeof server) != sizeof server)
            _exit(1);
        for (;;)
            pause();
    }
    close(ready[1]);
    cr_assert_eq(read(ready[0], ret_server, sizeof *ret_server), sizeof *ret_server);
    close(ready[0]);
    return keeper;
}

Test(embedded, a_killed_permitd_takes_it_along_and_the_next_one_goes_on)
{
    pid_t server;
    char *directory = temporary_directory();
    pid_t keeper = keeper_start(directory, &server);
    kill(keeper, SIGKILL);
    waitpid(keeper, NULL, 0);
    for (int i = 0; i < 6000 && !is_gone(server); i++)
        pause_ms(10);
    cr_assert(is_gone(server));
    struct embedded *embedded = started(directory);
    session_free(served(embedded));
    embedded_stop(embedded);
    free(directory);
}

/* Where the kernel does not end it (here because it is stopped), the next permitd does. */
Test(embedded, an_orphan_is_stopped_by_the_next_one)
{
    pid_t server;
    char *directory = temporary_directory();
    pid_t keeper = keeper_start(directory, &server);
    kill(server, SIGSTOP);
    kill(keeper, SIGKILL);
    waitpid(keeper, NULL, 0);
    cr_assert_not(is_gone(server));
    struct embedded *embedded = started(directory);
    cr_assert(is_gone(server));
    cr_assert_neq(embedded_pid(embedded), server);
    embedded_stop(embedded);
    free(directory);
}

/* As permitd leaves it when it is killed early. */
static char *begun_directory(void)
{
    char *directory = temporary_directory();
    char *lock = NULL;
    cr_assert(asprintf(&lock, "%s/lock", directory) > 0);
    fclose(fopen(lock, "we"));
    free(lock);
    return directory;
}

Test(embedded, a_half_made_database_is_made_anew)
{
    char *directory = begun_directory();
    char *path = NULL;
    cr_assert(asprintf(&path, "%s/data.new", directory) > 0);
    cr_assert_eq(mkdir(path, 0700), 0);
    free(path);
    cr_assert(asprintf(&path, "%s/data.new/ibdata1", directory) > 0);
    fclose(fopen(path, "we"));
    struct embedded *embedded = started(directory);
    session_free(served(embedded));
    embedded_stop(embedded);
    free(path);
    free(directory);
}

Test(embedded, a_directory_of_somebody_else_is_left_alone)
{
    static const mode_t modes[] = {0755, 0700};
    struct stat info;
    char *directory = temporary_directory();
    char *half_made = NULL, *letter = NULL;
    cr_assert(asprintf(&half_made, "%s/data.new", directory) > 0);
    cr_assert(asprintf(&letter, "%s/letter.txt", half_made) > 0);
    cr_assert_eq(mkdir(half_made, 0700), 0);
    fclose(fopen(letter, "we"));
    for (size_t i = 0; i < ARRAY_LENGTH(modes); i++) {
        cr_assert_eq(chmod(directory, modes[i]), 0);
        refused(directory, "contains 'data.new', which permitd did not create; use an empty directory");
        cr_assert_eq(stat(directory, &info), 0);
        cr_assert_eq(info.st_mode & 0777U, modes[i]);
        cr_assert_eq(access(letter, F_OK), 0);
    }
    refused(letter, "is not a directory");
    refused("/nonexistent/directory", "No such file");
    free(letter);
    free(half_made);
    free(directory);
}

Test(embedded, a_server_that_cannot_start_is_explained_by_its_log)
{
    char *directory = begun_directory();
    char *path = NULL;
    cr_assert(asprintf(&path, "%s/data", directory) > 0);
    cr_assert_eq(mkdir(path, 0700), 0); /* there, so not made anew, but empty */
    struct embedded *embedded = NULL;
    struct buf message;
    buf_init(&message, 8000);
    cr_assert_not(embedded_start(directory, &embedded, &message));
    cr_assert(strstr(buf_text(&message), "did not start"), "%s", buf_text(&message));
    cr_assert(strstr(buf_text(&message), "ERROR"), "%s", buf_text(&message));
    buf_release(&message);
    free(path);
    free(directory);
}

/* mariadb-install-db ends its log with a page of advice, which is the same whatever has happened. */
Test(embedded, a_database_that_cannot_be_made_is_explained_by_the_cause)
{
    const struct rlimit few_files = {.rlim_cur = 40, .rlim_max = 40};
    char *directory = temporary_directory();
    struct embedded *embedded = NULL;
    struct buf message;
    buf_init(&message, 8000);
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &few_files), 0);
    cr_assert_not(embedded_start(directory, &embedded, &message));
    cr_expect(strstr(buf_text(&message), "could not create a database"), "%s", buf_text(&message));
    cr_expect(strstr(buf_text(&message), "ERROR"), "%s", buf_text(&message));
    cr_expect_null(strstr(buf_text(&message), "mariadb.org"), "%s", buf_text(&message));
    buf_release(&message);
    free(directory);
}

Test(embedded, without_mariadbd_it_says_which_package_is_missing)
{
    if (access("/usr/sbin/mariadbd", F_OK) == 0)
        cr_skip_test("mariadbd is where it is always looked for");
    char *directory = temporary_directory();
    refused(directory, "apt-get install mariadb-server-core");
    free(directory);
}
