/* SPDX-License-Identifier: MIT */
/* The private MariaDB: creation, start, supervision, stop. Each test has its own directory. */
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
#include "fixture.h"
#include "mariadb/private_server.h"
#include "mariadb/process.h"
#include "store/doctor.h"

static void pause_ms(long ms)
{
    const struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}

static struct private_server *started(const char *directory)
{
    struct private_server *server = NULL;
    struct buf message;
    buf_init(&message, 8000);
    bool good = server_start(directory, &server, &message);
    cr_assert(good, "%s", buf_text(&message));
    buf_release(&message);
    return server;
}

static void refused(const char *directory, const char *expected)
{
    struct private_server *server = NULL;
    struct buf message;
    buf_init(&message, 8000);
    cr_assert_not(server_start(directory, &server, &message));
    cr_assert(strstr(buf_text(&message), expected), "%s", buf_text(&message));
    buf_release(&message);
}

/* Returns a session connected to the server, within a minute. */
static struct session *served(const struct private_server *server)
{
    struct session *session = session_new(private_server_address(server), STORE_ADMIN);
    mono_us deadline = clock_mono() + 60 * US_PER_SECOND;
    while (session_connect(session) != PERMIT_OK && clock_mono() < deadline)
        pause_ms(20);
    cr_assert(session_is_connected(session), "%s", session_message(session));
    return session;
}

static void kill_and_wait(const struct private_server *server)
{
    unsigned restarts = private_server_restarts(server);
    cr_assert_eq(kill(private_server_pid(server), SIGKILL), 0);
    while (private_server_restarts(server) == restarts)
        pause_ms(5);
    session_free(served(server));
}

/* Returns a connection with this id. NULL: another connection has it, such as the supervisor's check. */
static struct session *connect_as(const struct private_server *server, int64_t id)
{
    for (;;) {
        struct session *session = connected(private_server_address(server), STORE_WORKER);
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
    snprintf(path, sizeof path, "/proc/%d/cmdline", (int)pid); /* empty for a zombie */
    FILE *file = fopen(path, "re");
    size_t length = file ? fread(line, 1, sizeof line, file) : 0;
    if (file)
        fclose(file);
    return length == 0;
}

Test(private_server, server_is_safe_private_and_keeps_its_rows)
{
    struct stat info;
    char *directory = temporary_directory();
    char *path = NULL;
    struct doctor_report report;
    cr_assert(asprintf(&path, "%s/new", directory) > 0);
    struct private_server *server = started(path);
    cr_assert_eq(stat(path, &info), 0);
    cr_assert_eq(info.st_mode & 07777U, 0700);
    struct session *session = served(server);
    cr_assert_eq(doctor_check(session, NULL, &report), PERMIT_OK);
    cr_assert_eq(report.refusals + report.warnings, 0);
    cr_assert_eq(number_of(session, "SELECT @@skip_networking"), 1);
    cr_expect_eq(number_of(session, "SELECT @@innodb_buffer_pool_size"), BUFFER_POOL);
    must_run(session, "CREATE DATABASE permitd; CREATE TABLE permitd.t (a INT); INSERT INTO permitd.t VALUES (42)");
    session_free(session);
    private_server_stop(server);
    server = started(path);
    session = served(server);
    cr_assert_eq(number_of(session, "SELECT a FROM permitd.t"), 42);
    session_free(session);
    private_server_stop(server);
    free(path);
    free(directory);
}

Test(private_server, killed_server_restarts_within_seconds_without_loss)
{
    char *directory = temporary_directory();
    struct private_server *server = started(directory);
    struct session *session = served(server);
    must_run(session, "CREATE DATABASE permitd; CREATE TABLE permitd.t (a INT PRIMARY KEY)");
    for (unsigned i = 1; i <= 3; i++) {
        char sql[64];
        snprintf(sql, sizeof sql, "INSERT INTO permitd.t VALUES (%u)", i);
        must_run(session, sql);
        pid_t pid = private_server_pid(server);
        mono_us began = clock_mono();
        cr_assert_eq(kill(pid, SIGKILL), 0);
        cr_assert_eq(session_run(session, "DO SLEEP(60)"), PERMIT_DATABASE_LOST);
        session_free(session);
        session = served(server);
        cr_assert_lt(clock_mono() - began, 15 * US_PER_SECOND, "P13");
        cr_assert_neq(private_server_pid(server), pid);
        cr_assert_eq(private_server_restarts(server), i);
        cr_assert_eq(number_of(session, "SELECT MAX(a) FROM permitd.t"), i);
    }
    session_free(session);
    private_server_stop(server);
    free(directory);
}

/* Connection ids restart with the server: the id of the lost connection now belongs to another client. */
Test(private_server, quick_restarts_kill_no_other_connection)
{
    enum { CONNECTION = 40 }; /* above all ids that the supervisor uses */
    char *directory = temporary_directory();
    struct private_server *server = started(directory);
    struct session *session = served(server);
    must_run(session, "CREATE DATABASE permitd");
    session_free(session);
    struct session *lost = NULL;
    for (int64_t id = CONNECTION; !lost; id += CONNECTION)
        lost = connect_as(server, id);
    int64_t id = number_of(lost, "SELECT CONNECTION_ID()");
    kill_and_wait(server);
    cr_assert_eq(session_run(lost, "DO SLEEP(60)"), PERMIT_DATABASE_LOST);
    struct session *other_client = NULL;
    for (int tries = 0; !other_client && tries < 10; tries++) {
        kill_and_wait(server);
        other_client = connect_as(server, id);
    }
    cr_assert_not_null(other_client);
    must_run(other_client, "SET SESSION wait_timeout = 600"); /* it is idle while the other session connects */
    cr_assert_eq(session_connect(lost), PERMIT_OK);
    cr_assert_eq(session_ping(other_client), PERMIT_OK);
    session_free(lost);
    session_free(other_client);
    private_server_stop(server);
    free(directory);
}

Test(private_server, second_start_on_a_directory_is_refused_with_the_first_pid)
{
    char pid[32];
    char *directory = temporary_directory();
    struct private_server *server = started(directory);
    snprintf(pid, sizeof pid, "pid %d", (int)getpid());
    refused(directory, pid);
    session_free(served(server));
    private_server_stop(server);
    free(directory);
}

/* Starts a process with its own private MariaDB, to be killed later. Returns when that serves. */
static pid_t parent_start(const char *directory, pid_t *ret_server)
{
    int ready[2];
    cr_assert_eq(pipe(ready), 0);
    pid_t parent = fork();
    if (parent == 0) {
        struct buf message;
        struct private_server *server = NULL;
        buf_init(&message, 8000);
        if (!server_start(directory, &server, &message))
            _exit(1);
        pid_t pid = private_server_pid(server);
        if (write(ready[1], &pid, sizeof pid) != sizeof server)
            _exit(1);
        for (;;)
            pause();
    }
    close(ready[1]);
    cr_assert_eq(read(ready[0], ret_server, sizeof *ret_server), sizeof *ret_server);
    close(ready[0]);
    return parent;
}

Test(private_server, killed_permitd_ends_its_server_and_the_next_continues)
{
    pid_t orphan;
    char *directory = temporary_directory();
    pid_t parent = parent_start(directory, &orphan);
    kill(parent, SIGKILL);
    waitpid(parent, NULL, 0);
    for (int i = 0; i < 6000 && !is_gone(orphan); i++)
        pause_ms(10);
    cr_assert(is_gone(orphan));
    struct private_server *server = started(directory);
    session_free(served(server));
    private_server_stop(server);
    free(directory);
}

/* If the kernel does not end the server (here because it is stopped), the next permitd does. */
Test(private_server, orphan_is_stopped_by_the_next_permitd)
{
    pid_t orphan;
    char *directory = temporary_directory();
    pid_t parent = parent_start(directory, &orphan);
    kill(orphan, SIGSTOP);
    kill(parent, SIGKILL);
    waitpid(parent, NULL, 0);
    cr_assert_not(is_gone(orphan));
    struct private_server *server = started(directory);
    cr_assert(is_gone(orphan));
    cr_assert_neq(private_server_pid(server), orphan);
    private_server_stop(server);
    free(directory);
}

/* Returns a directory as permitd leaves it when it is killed early. */
static char *begun_directory(void)
{
    char *directory = temporary_directory();
    char *lock = NULL;
    cr_assert(asprintf(&lock, "%s/lock", directory) > 0);
    fclose(fopen(lock, "we"));
    free(lock);
    return directory;
}

Test(private_server, incomplete_database_is_created_again)
{
    char *directory = begun_directory();
    char *path = NULL;
    cr_assert(asprintf(&path, "%s/data.new", directory) > 0);
    cr_assert_eq(mkdir(path, 0700), 0);
    free(path);
    cr_assert(asprintf(&path, "%s/data.new/ibdata1", directory) > 0);
    fclose(fopen(path, "we"));
    struct private_server *server = started(directory);
    session_free(served(server));
    private_server_stop(server);
    free(path);
    free(directory);
}

Test(private_server, foreign_directory_is_left_unchanged)
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

static void ignore_signal(int number)
{
    (void)number;
}

/* The parent has a handler for SIGTERM and has blocked all signals, as the supervisor's thread has. */
Test(private_server, child_is_ended_by_a_signal_that_comes_before_its_program_runs)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    signal(SIGTERM, ignore_signal);
    char *arguments[] = {(char[]){"sleep"}, (char[]){"60"}, NULL};
    for (int i = 0; i < 50; i++) {
        struct process process;
        int status = 0;
        cr_assert(process_spawn(&(struct process_start){"/bin/sleep", arguments, STDERR_FILENO}, &process));
        cr_assert_eq(kill(process.pid, SIGTERM), 0);
        bool ended = process_wait(&process, -1, 20000, &status);
        process_stop(&process, 0);
        cr_assert(ended, "child %d has not ended", i);
        cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM, "status 0x%x", (unsigned)status);
    }
    signal(SIGTERM, SIG_DFL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

Test(private_server, failed_start_is_explained_by_the_log)
{
    char *directory = begun_directory();
    char *path = NULL;
    cr_assert(asprintf(&path, "%s/data", directory) > 0);
    cr_assert_eq(mkdir(path, 0700), 0); /* exists, so it is not created, but empty */
    struct private_server *server = NULL;
    struct buf message;
    buf_init(&message, 8000);
    cr_assert_not(server_start(directory, &server, &message));
    cr_assert(strstr(buf_text(&message), "did not start"), "%s", buf_text(&message));
    cr_assert(strstr(buf_text(&message), "ERROR"), "%s", buf_text(&message));
    buf_release(&message);
    free(path);
    free(directory);
}

/* mariadb-install-db ends its log with a page of advice that is the same for every failure. */
Test(private_server, failed_creation_is_explained_by_its_cause)
{
    const struct rlimit few_files = {.rlim_cur = 40, .rlim_max = 40};
    char *directory = temporary_directory();
    struct private_server *server = NULL;
    struct buf message;
    buf_init(&message, 8000);
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &few_files), 0);
    cr_assert_not(server_start(directory, &server, &message));
    cr_expect(strstr(buf_text(&message), "could not create a database"), "%s", buf_text(&message));
    cr_expect(strstr(buf_text(&message), "ERROR"), "%s", buf_text(&message));
    cr_expect_null(strstr(buf_text(&message), "mariadb.org"), "%s", buf_text(&message));
    buf_release(&message);
    free(directory);
}

Test(private_server, missing_mariadbd_names_its_package)
{
    if (access("/usr/sbin/mariadbd", F_OK) == 0)
        cr_skip_test("mariadbd is where it is always looked for");
    char *directory = temporary_directory();
    refused(directory, "apt-get install mariadb-server-core");
    free(directory);
}
