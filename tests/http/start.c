/* SPDX-License-Identifier: MIT */
/* Start of permitd, refusals to start, and reload of settings. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fixture.h"

Test(start, invalid_settings_end_it_with_a_message, .timeout = 300)
{
    refuses_flags("--no-such-setting", "1", "is not a setting");
    refuses_flags("--workers", "none", "--workers");
    refuses_flags("--workers", "0", "from 1 to 64");
    refuses_flags("--request-timeout", "5y", "--request-timeout");
    refuses_flags("--log-level", "loud", "--log-level");
    refuses_flags("--log-level",
                  "a\x1b[31m\xe2\x80\xae"
                  "b",
                  "--log-level: invalid value 'a?[31m???b'");
    refuses_flags("--database", "mysql://root@/x", "exclude each other");
    refuses_flags("--config", "/no/such/file", "cannot be opened");
    refuses_flags("--advertise", "http://a b", "advertise: 1 to 255 bytes");
    refuses_flags("--listen", "0.0.0.0:0", "--insecure");
    refuses_flags("--listen", "[::]:0", "--insecure");
    refuses_flags("--listen", "http://0.0.0.0:0", "requires https:// and credentials");
    refuses_flags("--listen", "https://0.0.0.0:0", "requires https:// and credentials");
    refuses_flags("--listen", "localhost", "listen must be");
    refuses_flags("--listen", "ftp://127.0.0.1:0", "listen must be");
    refuses_flags("--listen", "unix:relative", "must be absolute");
    refuses_flags("--listen", "127.0.0.1:0,,127.0.0.1:0", "--listen: invalid value");
    refuses_flags("--listen", "127.0.0.1:70000", "listen must be");
    refuses_flags("--user", "no-such-user", "there is no user no-such-user");
    refuses_flags("--user", "root", geteuid() ? "only root can become" : "user must not be root");
    refuses_to_start(&(struct kit_permitd_options){.database = "nonsense"}, "mysql://");
    refuses_to_start(&(struct kit_permitd_options){.database = "mysql://root@127.0.0.1:1/x"}, "cannot be used");
    refuses_to_start(&(struct kit_permitd_options){.listen = text("127.0.0.1:%u", shared_port())},
                     "another program uses the port");
}

Test(start, data_directory_in_use_is_refused, .timeout = 300)
{
    refuses_to_start(&(struct kit_permitd_options){.data_dir = shared_directory()}, "in use by another permitd");
}

/* Starts permitd twice, as a supervisor would: the second start must refuse as the first did. */
Test(start, foreign_table_ends_it_and_is_left_unchanged, .timeout = 300)
{
    static const char *const tables[] = {"permit", "semaphore"};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        struct kit_sql *server = kit_sql_open(shared_socket(), NULL);
        kit_sql_run(server, "CREATE DATABASE %s", own_database(tables[i]));
        kit_sql_close(server);
        struct kit_sql *sql = own_sql(tables[i]);
        kit_sql_run(sql, "CREATE TABLE %s (id INT)", tables[i]);
        for (int times = 0; times < 2; times++)
            refuses_to_start(&(struct kit_permitd_options){.database = own_url(tables[i])},
                             text("has a table `%s` that is not permitd's", tables[i]));
        cr_assert_eq(kit_sql_number(sql, "SELECT COUNT(*) FROM information_schema.COLUMNS"
                                         " WHERE TABLE_SCHEMA = DATABASE()"),
                     1, "something was made or altered");
        kit_sql_close(sql);
    }
}

/* ---- as root on the directory of another user ---- */

enum { NOBODY = 65534 };

/* Creates a file or a directory of root that the other user cannot access. */
static char *victim_make(bool directory)
{
    char *path = kit_path("victim");
    if (directory)
        cr_assert_eq(mkdir(path, 0700), 0);
    else
        write_file(path, "of root\n", 0644);
    return path;
}

static void victim_is_untouched(const char *path, bool directory, const char *entry)
{
    struct stat info;
    cr_assert_eq(stat(path, &info), 0);
    cr_expect_eq(info.st_uid, 0, "%s led to a change of its owner", entry);
    if (directory)
        return;
    char *content = kit_read_file(path);
    cr_expect_str_eq(content, "of root\n", "%s led to a change of its content", entry);
    free(content);
}

/* Returns a data directory of the user nobody, on which a permitd has run once. */
static char *directory_of_nobody(void)
{
    char *directory = kit_path("nobody");
    cr_assert_eq(mkdir(directory, 0700), 0);
    cr_assert_eq(chown(directory, NOBODY, NOBODY), 0);
    cr_assert_eq(chmod(kit_directory(), 0711), 0); /* so that the other user can reach it */
    kit_permitd_stop(kit_permitd_start(&(struct kit_permitd_options){.data_dir = directory}));
    return directory;
}

Test(start, permitd_as_root_follows_no_symlink_of_another_user, .timeout = 600)
{
    static const struct {
        const char *entry;
        bool directory;
        bool refused; /* permitd needs the entry; else it creates its own */
    } rows[] = {
        {"lock", false, true}, {"mariadb.log", false, true}, {"tmp", true, true}, {"mariadb.pid", false, false}};
    if (geteuid() != 0)
        cr_skip_test("only root can start on the directory of another user");
    setenv("ASAN_OPTIONS", "detect_leaks=0", 1); /* LeakSanitizer cannot check a process that changed its user */
    char *directory = directory_of_nobody();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *victim = victim_make(rows[i].directory);
        const char *link = text("%s/%s", directory, rows[i].entry);
        const char *kept_aside = text("%s/kept", directory);
        bool there = rename(link, kept_aside) == 0; /* no pid file while stopped */
        cr_assert(there || !rows[i].refused);
        cr_assert_eq(symlink(victim, link), 0);
        cr_assert_eq(lchown(link, NOBODY, NOBODY), 0);
        if (rows[i].refused)
            refuses_to_start(&(struct kit_permitd_options){.data_dir = directory},
                             text("%s: it is a symbolic link", link));
        else
            kit_permitd_stop(kit_permitd_start(&(struct kit_permitd_options){.data_dir = directory}));
        victim_is_untouched(victim, rows[i].directory, rows[i].entry);
        cr_assert(unlink(link) == 0 || !rows[i].refused);
        cr_assert(!there || rename(kept_aside, link) == 0);
        free(victim);
    }
    free(directory);
}

/* Returns the user of a process. */
static uid_t user_of(pid_t pid)
{
    struct stat info;
    cr_assert_eq(stat(text("/proc/%d", (int)pid), &info), 0);
    return info.st_uid;
}

Test(start, mariadbd_runs_as_the_named_user_and_not_as_root, .timeout = 600)
{
    static const char *const as_nobody[] = {"--user=nobody", "--allow-root=false", NULL};
    static const char *const as_root[] = {"--allow-root=false", NULL};
    if (geteuid() != 0)
        cr_skip_test("only root can become another user");
    setenv("ASAN_OPTIONS", "detect_leaks=0", 1); /* LeakSanitizer cannot check a process that changed its user */
    cr_assert_eq(chmod(kit_directory(), 0711), 0);
    struct kit_permitd *permitd = kit_permitd_start(&(struct kit_permitd_options){.flags = as_nobody});
    char *directory = strdup(permitd->data_dir);
    cr_expect_eq(user_of(permitd->pid), NOBODY);
    cr_expect_eq(user_of(mariadbd_of(permitd->data_dir)), NOBODY);
    kit_permitd_stop(permitd);
    /* Without the name, and without permission for root: the directory has an owner now. */
    permitd = kit_permitd_start(&(struct kit_permitd_options){.data_dir = directory, .flags = as_root});
    cr_expect_eq(user_of(mariadbd_of(permitd->data_dir)), NOBODY);
    kit_permitd_stop(permitd);
    /* A directory that an earlier version used as root. */
    cr_assert_eq(chown(directory, 0, 0), 0);
    refuses_to_start(&(struct kit_permitd_options){.data_dir = directory, .flags = as_root},
                     "belongs to root, and MariaDB does not run as root");
    refuses_to_start(&(struct kit_permitd_options){.data_dir = directory, .flags = as_nobody}, "chown -R nobody");
    free(directory);
}

Test(start, permission_for_root_is_logged, .timeout = 600)
{
    static const char *const flags[] = {"--allow-root", NULL};
    if (geteuid() != 0)
        cr_skip_test("not root");
    struct kit_permitd *permitd = kit_permitd_start(&(struct kit_permitd_options){.flags = flags});
    cr_expect_eq(user_of(mariadbd_of(permitd->data_dir)), 0);
    char *log = kit_read_file(permitd->log_path);
    cr_expect(strstr(log, "the private MariaDB runs as root"), "%s", log);
    free(log);
    kit_permitd_stop(permitd);
}

/* Runs permitd --check on the directory. As permitd_output. */
static const char *check_output(const char *data_dir, int expected_exit)
{
    static const char *const flags[] = {"--check", NULL};
    return permitd_output(&(struct kit_permitd_options){.data_dir = data_dir, .flags = flags}, expected_exit);
}

Test(start, check_creates_no_database_and_queries_an_existing_one, .timeout = 300)
{
    char *directory = kit_path("checked");
    const char *said = check_output(directory, 0);
    cr_assert(strstr(said, "there is no database in"), "%s", said);
    cr_assert_neq(access(directory, F_OK), 0, "it was made");
    kit_permitd_stop(kit_permitd_start(&(struct kit_permitd_options){.data_dir = directory}));
    said = check_output(directory, 0);
    cr_assert(strstr(said, "flush_at_commit"), "%s", said);
    said = check_output(shared_directory(), 1);
    cr_assert(strstr(said, "in use by another permitd") && strstr(said, "permitctl doctor"), "%s", said);
    said = check_output("/usr", 1);
    cr_assert(strstr(said, "which permitd did not create") || strstr(said, "belongs to user"), "%s", said);
    free(directory);
}

/* As Kubernetes sets them in every container of a namespace with a service of the name permitd. */
Test(start, variables_of_a_service_named_permitd_are_ignored_with_one_line_of_log, .timeout = 300)
{
    setenv("PERMITD_SERVICE_HOST", "10.43.0.5", 1);
    setenv("PERMITD_SERVICE_PORT", "7070", 1);
    setenv("PERMITD_PORT", "tcp://10.43.0.5:7070", 1);
    setenv("PERMITD_PORT_7070_TCP_ADDR", "10.43.0.5", 1);
    struct kit_permitd *permitd = own_permitd((const char *const[]){NULL});
    cr_expect_eq(log_count(permitd, "variables of a Kubernetes service or a linked container are ignored"), 1);
    char *log = kit_read_file(permitd->log_path);
    cr_expect(strstr(log, "PERMITD_SERVICE_HOST") && strstr(log, "PERMITD_PORT_7070_TCP_ADDR"), "%s", log);
    free(log);
    kit_permitd_stop(permitd);
    setenv("PERMITD_PORT", "7070", 1);
    refuses_to_start(&(struct kit_permitd_options){0}, "PERMITD_PORT is not a setting");
}

Test(start, switch_takes_its_value_as_a_word_of_its_own, .timeout = 300)
{
    static const char *const flags[] = {"--short-path", "off", "--check", NULL};
    char *directory = kit_path("switch");
    const char *said = permitd_output(&(struct kit_permitd_options){.data_dir = directory, .flags = flags}, 0);
    cr_expect(strstr(said, "there is no database in"), "%s", said);
    free(directory);
}

Test(start, other_addresses_are_served_with_insecure, .timeout = 300)
{
    static const char *const flags[] = {"--listen", "0.0.0.0:0", "--insecure", NULL};
    struct kit_permitd *permitd = own_permitd(flags);
    struct talk talk = talk_to(permitd->port);
    say(&talk, 200, "GET", "/healthz", NULL);
    talk_end(&talk);
    kit_permitd_stop(permitd);
}

static bool has_refused_the_file(void *context)
{
    return log_count(context, "settings reload failed") > 0;
}

static bool retention_is_eight_days(void *context)
{
    struct talk *talk = context;
    say(talk, 200, "GET", "/healthz", NULL);
    return number_of(talk, "retention_ms") == 8LL * 86400 * 1000 && number_of(talk, "max_wait_ms") == 60000;
}

Test(start, sighup_reloads_changeable_settings, .timeout = 300)
{
    char *path = kit_path("permitd.ini");
    const char *flags[] = {"--config", path, NULL};
    write_file(path, "retention = 9d\nworkers = 1\n", 0644);
    struct kit_permitd *permitd = own_permitd(flags);
    struct talk talk = talk_to(permitd->port);
    say(&talk, 200, "GET", "/healthz", NULL);
    cr_assert_eq(number_of(&talk, "retention_ms"), 9LL * 86400 * 1000);
    write_file(path, "retention = nonsense\n", 0644);
    kill(permitd->pid, SIGHUP);
    cr_assert(kit_wait_until(has_refused_the_file, permitd, 60000));
    say(&talk, 200, "GET", "/healthz", NULL);
    cr_assert_eq(number_of(&talk, "retention_ms"), 9LL * 86400 * 1000, "a mistake in the file was taken");
    write_file(path, "retention = 8d\nworkers = 3\nmax_wait = 1m\ndefault_ttl = 7m\nmax_slots = 5\n", 0644);
    kill(permitd->pid, SIGHUP);
    cr_assert(kit_wait_until(retention_is_eight_days, &talk, 60000));
    cr_assert_eq(number_of(&talk, "max_wait_ms"), 60000); /* of the handlers; the next two are of the engine */
    say(&talk, 201, "PUT", "/v1/semaphores/plain", "{\"kind\":\"counted\",\"capacity\":1}");
    cr_assert_eq(number_of(&talk, "default_ttl_ms"), 7 * 60 * 1000);
    say(&talk, 429, "PUT", "/v1/semaphores/hall", "{\"capacity\":6}");
    char *log = kit_read_file(permitd->log_path);
    cr_assert(strstr(log, "needs_restart=workers\n"), "nobody is told that workers needs a restart: %s", log);
    free(log);
    talk_end(&talk);
    kit_permitd_stop(permitd);
    free(path);
}

static bool is_locked(void *context)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/lock", ((const struct kit_permitd *)context)->data_dir);
    return access(path, F_OK) == 0;
}

Test(start, stop_during_startup_leaves_no_database_running, .timeout = 300)
{
    struct kit_permitd *permitd = kit_permitd_spawn(&(struct kit_permitd_options){0});
    cr_assert(kit_wait_until(is_locked, permitd, 60000));
    char pid_file[4096];
    snprintf(pid_file, sizeof pid_file, "%s/mariadb.pid", permitd->data_dir);
    kit_permitd_stop(permitd);
    cr_assert_neq(access(pid_file, F_OK), 0, "mariadbd still has its pid file");
}

/* ---- upgrades ---- */

static bool upgrade_waits(void *permitd)
{
    return log_count(permitd, "waits for an open transaction") > 0;
}

static bool has_procedures(void *sql)
{
    return kit_sql_number(sql, "SELECT COUNT(*) FROM information_schema.ROUTINES WHERE ROUTINE_SCHEMA=DATABASE()") == 8;
}

/* From version 13, whose tables a program reads in an open transaction; and the procedures come without the start. */
Test(start, upgrade_goes_on_when_an_open_transaction_ends, .timeout = 300)
{
    kit_permitd_stop(own_permitd(NULL));
    struct kit_sql *sql = own_sql("own0"), *shop = own_sql("own0");
    kit_sql_run(sql, "DROP TABLE past_permit, webhook, feed, feed_head, feed_full, feed_epoch, request_metadata");
    kit_sql_run(sql, "ALTER TABLE permit DROP COLUMN granted_at");
    kit_sql_run(sql,
                "ALTER TABLE permit_request DROP COLUMN changes, DROP COLUMN change_nonce, DROP COLUMN has_metadata");
    kit_sql_run(sql, "ALTER TABLE semaphore DROP KEY semaphore_feed_url, DROP COLUMN feed_url");
    kit_sql_run(sql, "ALTER TABLE template DROP KEY template_feed_url, DROP COLUMN feed_url");
    kit_sql_run(sql,
                "ALTER TABLE slot DROP COLUMN section, DROP COLUMN seat_row, DROP COLUMN seat, DROP COLUMN seat_rank,"
                " DROP COLUMN tags");
    kit_sql_run(sql, "ALTER TABLE semaphore DROP COLUMN feed");
    kit_sql_run(sql, "ALTER TABLE template DROP COLUMN feed");
    kit_sql_run(sql, "DROP TABLE errand, sql_account, served_offset");
    kit_sql_run(sql, "ALTER TABLE permit_request DROP COLUMN errand");
    kit_sql_run(sql, "DELETE FROM schema_version WHERE version > 13");
    kit_sql_run(shop, "START TRANSACTION");
    (void)kit_sql_number(shop, "SELECT COUNT(*) FROM permit_request");
    struct kit_permitd *permitd = kit_permitd_spawn(&(struct kit_permitd_options){.database = own_url("own0")});
    cr_assert(kit_wait_until(upgrade_waits, permitd, 60000));
    kit_sql_run(shop, "COMMIT");
    cr_assert(kit_permitd_wait_served(permitd, 60000));
    cr_expect_eq(kit_sql_number(sql, "SELECT MAX(version) FROM schema_version WHERE applied_at IS NOT NULL"), 21);
    cr_expect(kit_wait_until(has_procedures, sql, 60000));
    kit_permitd_stop(permitd);
    kit_sql_close(shop);
    kit_sql_close(sql);
}
