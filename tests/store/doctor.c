/* SPDX-License-Identifier: MIT */
/* The doctor: one finding per setting, refusals for what would break a promise. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "store/doctor.h"
#include "store/embedded.h"
#include "support.h"

static const struct doctor_finding *finding_of(const struct doctor_report *report, const char *check)
{
    for (size_t i = 0; i < report->count; i++)
        if (strcmp(report->findings[i].check, check) == 0)
            return &report->findings[i];
    cr_assert_fail("no finding %s", check);
    return NULL;
}

Test(doctor, a_safe_server_passes)
{
    struct doctor_report report;
    struct session *session = connected(fresh_database(), SESSION_READER);
    cr_assert_eq(doctor_examine(session, NULL, &report), PERMIT_OK);
    cr_assert_eq(report.refusals, 0);
    cr_assert_eq(report.warnings, 0);
    cr_assert_gt(report.count, 8);
    session_free(session);
}

Test(doctor, each_unsafe_setting_is_found)
{
    static const struct {
        const char *set, *back, *check;
        enum doctor_verdict verdict;
    } rows[] = {
        {"SET GLOBAL innodb_flush_log_at_trx_commit = 2", "SET GLOBAL innodb_flush_log_at_trx_commit = 1",
         "flush_at_commit", DOCTOR_REFUSE},
        {"SET GLOBAL innodb_flush_log_at_trx_commit = 0", "SET GLOBAL innodb_flush_log_at_trx_commit = 1",
         "flush_at_commit", DOCTOR_REFUSE},
        {"SET GLOBAL read_only = 1", "SET GLOBAL read_only = 0", "read_only", DOCTOR_REFUSE},
        {"SET GLOBAL sql_mode = ''", "SET GLOBAL sql_mode = 'STRICT_ALL_TABLES'", "global_sql_mode", DOCTOR_WARN},
        {"SET GLOBAL TRANSACTION ISOLATION LEVEL READ UNCOMMITTED",
         "SET GLOBAL TRANSACTION ISOLATION LEVEL SERIALIZABLE", "global_isolation", DOCTOR_WARN},
        {"SET GLOBAL max_allowed_packet = 1048576", "SET GLOBAL max_allowed_packet = 16777216", "max_packet",
         DOCTOR_WARN},
        {"CREATE DATABASE d; USE d; CREATE TABLE permit (a INT) ENGINE=MyISAM", "DROP DATABASE d", "engine",
         DOCTOR_REFUSE},
    };
    struct buf message;
    struct doctor_report report;
    struct embedded *embedded = NULL;
    char *directory = temporary_directory();
    buf_init(&message, 8000);
    cr_assert(embedded_start(directory, &embedded, &message), "%s", buf_text(&message));
    struct session *session = connected(embedded_address(embedded), SESSION_ADMIN);
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        must_run(session, rows[i].set);
        cr_assert_eq(doctor_examine(session, NULL, &report), PERMIT_OK);
        cr_assert_eq(finding_of(&report, rows[i].check)->verdict, rows[i].verdict, "%s", rows[i].set);
        cr_assert_eq(report.refusals, rows[i].verdict == DOCTOR_REFUSE, "%s", rows[i].set);
        must_run(session, rows[i].back);
        cr_assert_eq(doctor_examine(session, NULL, &report), PERMIT_OK);
        cr_assert_eq(report.refusals + report.warnings, 0, "%s", rows[i].back);
    }
    buf_clear(&message);
    doctor_print(&report, DOCTOR_WARN, &message);
    cr_assert_str_eq(buf_text(&message), "");
    session_free(session);
    embedded_stop(embedded);
    buf_release(&message);
    free(directory);
}
