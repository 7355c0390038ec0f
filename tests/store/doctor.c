/* SPDX-License-Identifier: MIT */
/* The doctor: one finding for each setting, and refusals of settings that would break a promise. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "fixture.h"
#include "store/doctor.h"
#include "store/open.h"
#include "testkit.h"

static const struct doctor_finding *finding_of(const struct doctor_report *report, const char *check)
{
    for (size_t i = 0; i < report->count; i++)
        if (strcmp(report->findings[i].check, check) == 0)
            return &report->findings[i];
    cr_assert_fail("no finding %s", check);
    return NULL;
}

Test(doctor, safe_server_passes)
{
    struct doctor_report report;
    struct session *session = connected(fresh_database(), STORE_READER);
    cr_assert_eq(doctor_check(session, NULL, &report), PERMIT_OK);
    cr_assert_eq(report.refusals, 0);
    cr_assert_eq(report.warnings, 0);
    cr_assert_gt(report.count, 8);
    session_free(session);
}

/* Statements that make the server unsafe and safe again, and the expected finding; its sentence contains `mend`. */
struct unsafe {
    const char *set, *back, *check;
    enum doctor_verdict verdict;
    const char *mend;
};

static void must_find(const struct doctor_report *report, const struct unsafe *row)
{
    const struct doctor_finding *finding = finding_of(report, row->check);
    cr_assert_eq(finding->verdict, row->verdict, "%s: %s", row->set, finding->sentence);
    cr_assert(strstr(finding->sentence, row->mend), "%s: %s", row->set, finding->sentence);
}

static void must_examine(struct session *session, struct doctor_report *ret_report)
{
    cr_assert_eq(doctor_check(session, NULL, ret_report), PERMIT_OK, "%s", session_message(session));
}

/* Makes the server unsafe in each of these ways, and safe again. Asserts that nothing else is found. */
static void find_each(struct session *session, const struct unsafe *rows, size_t count)
{
    struct doctor_report report;
    for (size_t i = 0; i < count; i++) {
        must_run(session, rows[i].set);
        must_examine(session, &report);
        must_find(&report, &rows[i]);
        bool both = strcmp(rows[i].check, "super_read_only") == 0; /* implies read_only */
        cr_assert_eq(report.refusals, (rows[i].verdict == DOCTOR_REFUSE) + both, "%s", rows[i].set);
        must_run(session, rows[i].back);
        must_examine(session, &report);
        cr_assert_eq(report.refusals + report.warnings, 0, "%s", rows[i].back);
    }
}

Test(doctor, each_unsafe_setting_is_found, .timeout = 300)
{
    static const struct unsafe rows[] = {
        {"SET GLOBAL innodb_flush_log_at_trx_commit = 2", "SET GLOBAL innodb_flush_log_at_trx_commit = 1",
         "flush_at_commit", DOCTOR_REFUSE, "SET GLOBAL innodb_flush_log_at_trx_commit = 1"},
        {"SET GLOBAL innodb_flush_log_at_trx_commit = 0", "SET GLOBAL innodb_flush_log_at_trx_commit = 1",
         "flush_at_commit", DOCTOR_REFUSE, "SET GLOBAL innodb_flush_log_at_trx_commit = 1"},
        {"SET GLOBAL read_only = 1", "SET GLOBAL read_only = 0", "read_only", DOCTOR_REFUSE,
         "SET GLOBAL read_only = OFF"},
        {"SET GLOBAL sql_mode = ''", "SET GLOBAL sql_mode = 'STRICT_ALL_TABLES'", "global_sql_mode", DOCTOR_WARN,
         "SET GLOBAL sql_mode = 'STRICT_TRANS_TABLES'"},
        {"SET GLOBAL TRANSACTION ISOLATION LEVEL READ UNCOMMITTED",
         "SET GLOBAL TRANSACTION ISOLATION LEVEL SERIALIZABLE", "global_isolation", DOCTOR_WARN,
         "SET GLOBAL TRANSACTION ISOLATION LEVEL READ COMMITTED"},
        {"SET GLOBAL max_allowed_packet = 1048576", "SET GLOBAL max_allowed_packet = 16777216", "max_packet",
         DOCTOR_WARN, "SET GLOBAL max_allowed_packet"},
        {"CREATE DATABASE d; USE d; CREATE TABLE permit (a INT) ENGINE=MyISAM", "DROP DATABASE d", "engine",
         DOCTOR_REFUSE, "ENGINE=InnoDB"},
        {"CREATE DATABASE d; USE d; CREATE TABLE template (a INT) ENGINE=MyISAM", "DROP DATABASE d", "engine",
         DOCTOR_REFUSE, "ENGINE=InnoDB"},
        {"CREATE DATABASE d; USE d; CREATE TABLE Permit (a INT) ENGINE=MyISAM", "DROP DATABASE d", "engine", DOCTOR_OK,
         "are InnoDB"},
    };
    /* MariaDB has only binlog_format and sync_binlog of these, and no binary log by default. */
    static const struct unsafe mysql_rows[] = {
        {"SET GLOBAL super_read_only = 1", "SET GLOBAL super_read_only = 0, GLOBAL read_only = 0", "super_read_only",
         DOCTOR_REFUSE, "SET GLOBAL super_read_only = OFF"},
        {"SET GLOBAL sync_binlog = 100", "SET GLOBAL sync_binlog = 1", "sync_binlog", DOCTOR_REFUSE,
         "SET GLOBAL sync_binlog = 1"},
        {"SET GLOBAL binlog_format = STATEMENT", "SET GLOBAL binlog_format = ROW", "binlog_format", DOCTOR_REFUSE,
         "SET GLOBAL binlog_format = ROW"},
        {"ALTER INSTANCE DISABLE INNODB REDO_LOG", "ALTER INSTANCE ENABLE INNODB REDO_LOG", "redo_log", DOCTOR_REFUSE,
         "ALTER INSTANCE ENABLE INNODB REDO_LOG"},
        {"SET GLOBAL innodb_doublewrite = DETECT_ONLY", "SET GLOBAL innodb_doublewrite = DETECT_AND_RECOVER",
         "doublewrite", DOCTOR_REFUSE, "innodb_doublewrite = ON"},
    };
    struct buf message;
    struct doctor_report report;
    struct kit_database *database = kit_database_start(NULL);
    struct database_address address = {.socket = database->socket, .user = (char[]){"root"}};
    struct session *session = connected(&address, STORE_ADMIN);
    find_each(session, rows, ARRAY_LENGTH(rows));
    if (kit_database_is_mysql())
        find_each(session, mysql_rows, ARRAY_LENGTH(mysql_rows));
    must_examine(session, &report);
    buf_init(&message, 8000);
    doctor_print(&report, DOCTOR_WARN, &message);
    cr_assert_str_eq(buf_text(&message), "");
    buf_release(&message);
    session_free(session);
    kit_database_stop(database);
}

/*
 * Stops the server cleanly, as force_recovery and read-only engines require, and restarts it with `flags`. Returns a
 * connected session.
 */
static struct session *restarted_with(struct kit_database *database, const char *const *flags,
                                      const struct database_address *address)
{
    struct session *session = connected(address, STORE_ADMIN);
    must_run(session, "SET GLOBAL innodb_fast_shutdown = 0; SHUTDOWN");
    session_free(session);
    kit_database_await_end(database);
    database->flags = flags;
    kit_database_restart(database);
    return connected(address, STORE_ADMIN);
}

/* Settings that only the server's command line can change. */
Test(doctor, each_unsafe_flag_is_found, .timeout = 180)
{
    static const char *const flags[] = {"--log-bin",
                                        "--server-id=1",
                                        "--sync-binlog=0",
                                        "--binlog-format=STATEMENT",
                                        "--skip-innodb-doublewrite",
                                        "--innodb-flush-method=nosync",
                                        "--innodb-force-recovery=1",
                                        NULL};
    static const struct unsafe rows[] = {
        {"log-bin", NULL, "sync_binlog", DOCTOR_REFUSE, "SET GLOBAL sync_binlog = 1"},
        {"binlog-format", NULL, "binlog_format", DOCTOR_REFUSE, "SET GLOBAL binlog_format = ROW"},
        {"doublewrite", NULL, "doublewrite", DOCTOR_REFUSE, "innodb_doublewrite = ON"},
        {"flush-method", NULL, "flush_method", DOCTOR_REFUSE, "innodb_flush_method = O_DIRECT"},
        {"force-recovery", NULL, "force_recovery", DOCTOR_REFUSE, "innodb_force_recovery = 0"},
    };
    struct doctor_report report;
    struct kit_database *database = kit_database_start(NULL);
    struct database_address address = {.socket = database->socket, .user = (char[]){"root"}};
    struct session *session = restarted_with(database, flags, &address);
    must_examine(session, &report);
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++)
        must_find(&report, &rows[i]);
    cr_assert_eq(report.refusals, ARRAY_LENGTH(rows));
    must_run(session, "SET GLOBAL sync_binlog = 1; SET GLOBAL binlog_format = ROW");
    must_examine(session, &report);
    cr_assert_eq(report.refusals, ARRAY_LENGTH(rows) - 2);
    session_free(session);
    kit_database_stop(database);
}

Test(doctor, read_only_engine_is_found, .timeout = 180)
{
    static const char *const flags[] = {"--innodb-read-only", NULL};
    static const struct unsafe row = {"innodb-read-only", NULL, "innodb_read_only", DOCTOR_REFUSE,
                                      "start the server without innodb_read_only"};
    struct doctor_report report;
    struct kit_database *database = kit_database_start(NULL);
    struct database_address address = {.socket = database->socket, .user = (char[]){"root"}};
    struct session *session = restarted_with(database, flags, &address);
    must_examine(session, &report);
    must_find(&report, &row);
    session_free(session);
    kit_database_stop(database);
}

/* Servers that are not available here, represented by their variables. */
Test(doctor, variables_of_other_servers_are_understood)
{
    static const struct {
        const char *version;
        struct doctor_fact facts[2];
        const char *check;
        enum doctor_verdict verdict;
        const char *mend;
        enum doctor_verdict forgiven; /* with unsafe_multi_writer */
    } rows[] = {
        {"10.5.29-MariaDB", {{0}}, "version", DOCTOR_REFUSE, "needs MariaDB 10.6 or MySQL 8.0", DOCTOR_REFUSE},
        {"5.5.68-MariaDB", {{0}}, "version", DOCTOR_REFUSE, "needs MariaDB 10.6 or MySQL 8.0", DOCTOR_REFUSE},
        {"10.6.0-MariaDB-log", {{0}}, "version", DOCTOR_OK, "", DOCTOR_OK},
        {"11.8.2-MariaDB", {{0}}, "version", DOCTOR_OK, "", DOCTOR_OK},
        {"5.7.44-log", {{0}}, "version", DOCTOR_REFUSE, "needs MariaDB 10.6 or MySQL 8.0", DOCTOR_REFUSE},
        {"8.0.36", {{0}}, "version", DOCTOR_OK, "", DOCTOR_OK},
        {"9.1.0", {{0}}, "version", DOCTOR_OK, "", DOCTOR_OK},
        {"nonsense", {{0}}, "version", DOCTOR_REFUSE, "needs", DOCTOR_REFUSE},
        {"10.11.6-MariaDB",
         {{"wsrep_on", "ON"}, {"wsrep_cluster_size", "3"}},
         "galera",
         DOCTOR_REFUSE,
         "unsafe_multi_writer",
         DOCTOR_WARN},
        {"10.11.6-MariaDB", {{"wsrep_on", "ON"}}, "galera", DOCTOR_REFUSE, "several nodes accept writes", DOCTOR_WARN},
        {"10.11.6-MariaDB",
         {{"wsrep_on", "ON"}, {"wsrep_cluster_size", "1"}},
         "galera",
         DOCTOR_OK,
         "wsrep_on is ON",
         DOCTOR_OK},
        {"10.11.6-MariaDB",
         {{"wsrep_on", "OFF"}, {"wsrep_cluster_size", "0"}},
         "galera",
         DOCTOR_OK,
         "wsrep_on is OFF",
         DOCTOR_OK},
        {"8.0.36",
         {{"group_replication_single_primary_mode", "OFF"}},
         "group_replication",
         DOCTOR_REFUSE,
         "group_replication_switch_to_single_primary_mode()",
         DOCTOR_WARN},
        {"8.0.36", {{"group_replication_single_primary_mode", "ON"}}, "group_replication", DOCTOR_OK, "", DOCTOR_OK},
        {"8.0.36",
         {{"super_read_only", "ON"}},
         "super_read_only",
         DOCTOR_REFUSE,
         "SET GLOBAL super_read_only = OFF",
         DOCTOR_REFUSE},
        {"8.0.36",
         {{"log_bin", "ON"}, {"sync_binlog", "100"}},
         "sync_binlog",
         DOCTOR_REFUSE,
         "SET GLOBAL sync_binlog = 1",
         DOCTOR_REFUSE},
        {"8.0.36", {{"log_bin", "OFF"}, {"sync_binlog", "0"}}, "sync_binlog", DOCTOR_OK, "", DOCTOR_OK},
        {"8.0.36",
         {{"innodb_doublewrite", "DETECT_ONLY"}},
         "doublewrite",
         DOCTOR_REFUSE,
         "innodb_doublewrite = ON",
         DOCTOR_REFUSE},
        {"8.0.36", {{"innodb_doublewrite", "DETECT_AND_RECOVER"}}, "doublewrite", DOCTOR_OK, "", DOCTOR_OK},
        {"8.0.36",
         {{"Innodb_redo_log_enabled", "OFF"}},
         "redo_log",
         DOCTOR_REFUSE,
         "ALTER INSTANCE ENABLE INNODB REDO_LOG",
         DOCTOR_REFUSE},
        {"10.6.12-MariaDB",
         {{"innodb_flush_method", "littlesync"}},
         "flush_method",
         DOCTOR_REFUSE,
         "innodb_flush_method = O_DIRECT",
         DOCTOR_REFUSE},
    };
    const struct doctor_options forgiving = {.unsafe_multi_writer = true};
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        struct doctor_fact facts[3] = {{"version", rows[i].version}};
        struct doctor_report report;
        size_t count = 1;
        for (size_t f = 0; f < ARRAY_LENGTH(rows[i].facts) && rows[i].facts[f].name; f++)
            facts[count++] = rows[i].facts[f];
        doctor_judge(facts, count, NULL, &report);
        must_find(&report, &(struct unsafe){rows[i].version, NULL, rows[i].check, rows[i].verdict, rows[i].mend});
        doctor_judge(facts, count, &forgiving, &report);
        cr_assert_eq(finding_of(&report, rows[i].check)->verdict, rows[i].forgiven, "row %zu", i);
    }
}

Test(doctor, schema_of_another_version_is_refused)
{
    static const struct unsafe newer = {"newer", NULL, "schema", DOCTOR_REFUSE, "run the newer permitd"};
    static const struct unsafe older = {"older", NULL, "schema", DOCTOR_REFUSE, "restart permitd"};
    static const struct unsafe oldest = {"oldest", NULL, "schema", DOCTOR_REFUSE, "permitd 0.1.0 built from commit "};
    struct doctor_report report;
    struct session *session = connected(fresh_database(), STORE_READER);
    must_run(session, "INSERT INTO schema_version (version, name) VALUES (900, 'of tomorrow')");
    must_examine(session, &report);
    must_find(&report, &newer);
    must_run(session, "DELETE FROM schema_version WHERE version = 900;"
                      "UPDATE schema_version SET version = version - 1");
    must_examine(session, &report);
    must_find(&report, &older);
    must_run(session, "DELETE FROM schema_version; INSERT INTO schema_version (version, name, applied_at)"
                      " VALUES (11, 'below the one before the baseline', UTC_TIMESTAMP(6))");
    must_examine(session, &report);
    must_find(&report, &oldest);
    must_run(session, "DELETE FROM schema_version");
    must_examine(session, &report);
    must_find(&report, &older);
    session_free(session);
}

Test(doctor, one_sentence_summarizes_several_refusals)
{
    static const struct doctor_fact facts[] = {
        {"version", "8.0.36"}, {"innodb_flush_log_at_trx_commit", "2"}, {"read_only", "ON"}};
    struct doctor_report report;
    char sentence[STORE_MESSAGE_SIZE];
    doctor_judge(facts, 1, NULL, &report);
    doctor_format_refusal(&report, sentence, sizeof sentence);
    cr_assert_str_eq(sentence, "");
    doctor_judge(facts, 2, NULL, &report);
    doctor_format_refusal(&report, sentence, sizeof sentence);
    cr_assert_str_eq(sentence, report.findings[1].sentence);
    doctor_judge(facts, 3, NULL, &report);
    doctor_format_refusal(&report, sentence, sizeof sentence);
    cr_assert(strncmp(sentence, "innodb_flush_log_at_trx_commit is 2: ", 37) == 0, "%s", sentence);
    cr_assert(strstr(sentence, "(and 1 more: permitctl doctor)"), "%s", sentence);
}

Test(doctor, full_report_takes_no_more_findings)
{
    struct doctor_report report = {.count = 0};
    for (int i = 0; i < DOCTOR_MAX_FINDINGS + 3; i++)
        doctor_add(&report, "many", DOCTOR_WARN, "number %d", i);
    cr_assert_eq(report.count, DOCTOR_MAX_FINDINGS);
    cr_assert_eq(report.warnings, DOCTOR_MAX_FINDINGS);
}

/* P14: permitd checks again on each new connection. */
Test(doctor, store_does_not_open_on_an_unsafe_server)
{
    const struct database_address *address = fresh_database();
    struct session *session = connected(address, STORE_ADMIN);
    struct store *store = store_open(address, STORE_WORKER, NULL);
    cr_assert_eq(store->session->reconnect(store), PERMIT_OK, "%s", store->message);
    cr_assert_str_eq(store->refusal, "");
    char sql[200];
    snprintf(sql, sizeof sql, "ALTER TABLE %s.slot ENGINE=MyISAM", address->database);
    must_run(session, sql);
    cr_assert_eq(store->session->reconnect(store), PERMIT_OK, "of an open session nothing is asked");
    cr_assert_eq(store->session->check_safety(store), PERMIT_DATABASE_UNAVAILABLE);
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(store->session->reconnect(store), PERMIT_DATABASE_UNAVAILABLE);
        cr_assert(strstr(store->refusal, "slot (MyISAM)"), "%s", store->refusal);
        cr_assert_str_eq(store->message, store->refusal);
    }
    snprintf(sql, sizeof sql, "ALTER TABLE %s.slot ENGINE=InnoDB", address->database);
    must_run(session, sql);
    cr_assert_eq(store->session->reconnect(store), PERMIT_OK, "%s", store->message);
    cr_assert_eq(store->session->check_safety(store), PERMIT_OK);
    cr_assert_str_eq(store->refusal, "");
    store_free(store);
    session_free(session);
}
