/* SPDX-License-Identifier: MIT */
/*
 * The doctor's findings about sales in SQL: the procedures, the accounts that may call them, and open transactions. They
 * are warnings: permitd serves without procedures. Some need rights that permitd's user may lack; what it cannot see is
 * said, and no finding.
 */
#include "store/doctor.h"

#include <stdio.h>

#include "store/packet.h"
#include "store/procedures.h"

enum { TEXT_SIZE = 200, LONG_S = 600, LONG_HISTORY = 1000000 };

/* An examination; a failure to read is one of `status`, a missing right is not. */
struct examination {
    struct session *session;
    struct doctor_report *report;
    enum permit_status status;
    struct procedure_found found[PROCEDURE_COUNT];
};

/*
 * Selects one value as text. False: this user has no right to read it, there is no row, or the value is NULL; or the
 * examination fails.
 */
static bool ask(struct examination *examination, const char *sql, char ret_text[TEXT_SIZE])
{
    struct packet packet = packet_begin(examination->session, NULL);
    bool known = false;
    if (examination->status != PERMIT_OK)
        return false;
    buf_append_text(&packet.sql, sql);
    packet_send(&packet);
    if (packet_row(&packet)) {
        struct bytes value = row_column(&packet.row);
        known = value.data != NULL;
        snprintf(ret_text, TEXT_SIZE, "%.*s", (int)value.length, known ? value.data : "");
    }
    enum permit_status status = packet_end(&packet);
    if (status != PERMIT_OK && session_lacks_right(examination->session))
        return false;
    examination->status = status;
    return known && status == PERMIT_OK;
}

/* The user of the session as information_schema has it: 'permitd'@'10.0.0.%'. */
#define GRANTEE "CONCAT(''''," SQL_USER_OF("CURRENT_USER()") ",'''@'''," SQL_HOST_OF("CURRENT_USER()") ",'''')"
#define MAY_CREATE                                                                                                     \
    "SELECT (SELECT COUNT(*) FROM information_schema.USER_PRIVILEGES WHERE PRIVILEGE_TYPE='CREATE ROUTINE' AND"        \
    " GRANTEE=" GRANTEE ")+(SELECT COUNT(*) FROM information_schema.SCHEMA_PRIVILEGES WHERE"                           \
    " PRIVILEGE_TYPE='CREATE ROUTINE' AND DATABASE() LIKE TABLE_SCHEMA AND GRANTEE=" GRANTEE ")"
#define SCHEMA_IS_NEW "SELECT MAX(applied_at)>UTC_TIMESTAMP(6)-INTERVAL 60 SECOND FROM schema_version"

static void examine_texts(struct examination *examination)
{
    const char *missing = NULL, *other = NULL;
    char may[TEXT_SIZE] = "", is_new[TEXT_SIZE] = "", database[TEXT_SIZE] = "", user[TEXT_SIZE] = "";
    for (size_t i = 0; i < PROCEDURE_COUNT; i++) {
        if (!examination->found[i].exists)
            missing = procedures_all[i].name;
        else if (!examination->found[i].same)
            other = procedures_all[i].name;
    }
    (void)ask(examination, MAY_CREATE, may);
    (void)ask(examination, SCHEMA_IS_NEW, is_new);
    (void)ask(examination, "SELECT DATABASE()", database);
    (void)ask(examination, "SELECT " SQL_QUOTED_ACCOUNT("CURRENT_USER()"), user);
    bool comes = missing && may[0] != '0';
    if (missing && !comes)
        doctor_add(examination->report, "procedures", DOCTOR_WARN,
                   "%s is missing, and permitd's user has no right to create it, so there are no sales in SQL; GRANT "
                   "CREATE ROUTINE, ALTER ROUTINE, EXECUTE ON `%.64s`.* TO %.100s; permitd then installs it within "
                   "seconds",
                   missing, database, user);
    else if (comes)
        doctor_add(examination->report, "procedures", is_new[0] == '1' ? DOCTOR_OK : DOCTOR_WARN,
                   "%s is missing; permitd installs it within seconds, or its log says why not", missing);
    else if (other && session_is_mariadb(examination->session))
        doctor_add(examination->report, "procedures", DOCTOR_WARN,
                   "%s has another text than permitd's, which replaces it within seconds, or its log says why not",
                   other);
    else if (other)
        doctor_add(examination->report, "procedures", DOCTOR_WARN,
                   "%s has another text than permitd's; DROP PROCEDURE `%.64s`.%s; permitd then creates it within "
                   "seconds; then GRANT EXECUTE ON PROCEDURE `%.64s`.%s TO each account that had it",
                   other, database, other, database, other);
    else
        doctor_add(examination->report, "procedures", DOCTOR_OK, "the procedures for sales in SQL are installed");
}

/* A procedure runs with the rights of its definer. */
static void examine_definers(struct examination *examination)
{
    char current[TEXT_SIZE] = "";
    if (!ask(examination, "SELECT CURRENT_USER()", current))
        return;
    for (size_t i = 0; i < PROCEDURE_COUNT; i++) {
        const char *definer = examination->found[i].definer;
        struct buf sql;
        char count[TEXT_SIZE];
        if (!examination->found[i].exists || strcmp(definer, current) == 0)
            continue;
        buf_init(&sql, 4096);
        buf_append_text(&sql, "SELECT COUNT(*) FROM mysql.user WHERE CONCAT(User,'@',Host)=x'");
        buf_append_hex(&sql, definer, strlen(definer));
        buf_append_char(&sql, '\'');
        bool known = ask(examination, buf_text(&sql), count);
        buf_release(&sql);
        if (known && count[0] != '0')
            continue;
        doctor_add(examination->report, "definer", DOCTOR_WARN,
                   "the definer of %s is %.100s, and not permitd's user %.100s; %s. DROP PROCEDURE %s, and permitd "
                   "creates it anew",
                   procedures_all[i].name, definer, current,
                   known ? "there is no such account, so every call fails (1449)"
                         : "permitd cannot see whether there is such an account",
                   procedures_all[i].name);
        return;
    }
    doctor_add(examination->report, "definer", DOCTOR_OK, "the definers of the procedures exist");
}

#define NOT_SEEN "permitd's user may not read the accounts of the server (SELECT ON mysql.*), so this is not checked"

/* permitd knows an SQL account by its name: in an anonymous account a client has any name that it likes. */
static void examine_anonymous(struct examination *examination)
{
    char count[TEXT_SIZE];
    if (!ask(examination, "SELECT COUNT(*) FROM mysql.user WHERE User=''", count))
        doctor_add(examination->report, "anonymous_accounts", DOCTOR_OK, NOT_SEEN);
    else if (count[0] == '0')
        doctor_add(examination->report, "anonymous_accounts", DOCTOR_OK, "the server has no anonymous accounts");
    else
        doctor_add(
            examination->report, "anonymous_accounts", DOCTOR_WARN,
            "the server has anonymous accounts, in which a client can take the name of an SQL account; DROP USER "
            "''@'HOST' of each");
}

#define WITHOUT_ROW                                                                                                    \
    "SELECT MIN(CONCAT(p.User,'@',p.Host)) FROM mysql.procs_priv p WHERE p.Db=DATABASE() AND p.Routine_name IN"        \
    " ('permit_confirm','permit_release','permit_refund','permit_hold') AND FIND_IN_SET('Execute',p.Proc_priv)"        \
    " AND CONCAT(p.User,'@',p.Host)<>CURRENT_USER()"                                                                   \
    " AND NOT EXISTS (SELECT 1 FROM sql_account a WHERE a.user=CAST(p.User AS BINARY))"

static void examine_accounts(struct examination *examination)
{
    char account[TEXT_SIZE], count[TEXT_SIZE];
    if (!ask(examination, "SELECT COUNT(*) FROM mysql.procs_priv", count))
        doctor_add(examination->report, "sql_accounts", DOCTOR_OK, NOT_SEEN);
    else if (ask(examination, WITHOUT_ROW, account))
        doctor_add(examination->report, "sql_accounts", DOCTOR_WARN,
                   "%.100s has EXECUTE on a procedure, and its calls are refused (permit: forbidden); permitctl "
                   "sql-account put, or REVOKE EXECUTE",
                   account);
    else
        doctor_add(examination->report, "sql_accounts", DOCTOR_OK,
                   "every account with EXECUTE on a procedure is an SQL account");
}

static void read_undo(struct examination *examination, struct doctor_undo *ret_undo)
{
    char text[TEXT_SIZE];
    bool may = ask(
        examination,
        "SELECT 1 FROM information_schema.USER_PRIVILEGES WHERE PRIVILEGE_TYPE='PROCESS' AND GRANTEE=" GRANTEE, text);
    *ret_undo = (struct doctor_undo){.history = -1, .oldest_s = -1};
    if (ask(examination,
            session_is_mariadb(examination->session)
                ? "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE"
                  " VARIABLE_NAME='INNODB_HISTORY_LIST_LENGTH'"
                : "SELECT `COUNT` FROM information_schema.INNODB_METRICS WHERE NAME='trx_rseg_history_len'",
            text))
        ret_undo->history = column_i64(bytes_of(text));
    /* Without the right PROCESS, MariaDB shows no row. */
    if (may &&
        ask(examination,
            "SELECT COALESCE(MAX(TIMESTAMPDIFF(SECOND,trx_started,NOW())),0) FROM information_schema.INNODB_TRX", text))
        ret_undo->oldest_s = column_i64(bytes_of(text));
}

static void examine_undo(struct examination *examination)
{
    struct doctor_undo undo;
    read_undo(examination, &undo);
    bool is_long = undo.oldest_s >= LONG_S || undo.history >= LONG_HISTORY;
    char oldest[TEXT_SIZE] = "permitd's user may not see (GRANT PROCESS ON *.*)";
    char history[TEXT_SIZE] = "is unknown";
    if (undo.oldest_s >= 0)
        snprintf(oldest, sizeof oldest, "is open for %lld s", (long long)undo.oldest_s);
    if (undo.history >= 0)
        snprintf(history, sizeof history, "has %lld entries", (long long)undo.history);
    doctor_add(examination->report, "undo", is_long ? DOCTOR_WARN : DOCTOR_OK,
               "the history list %s; the oldest transaction %s%s", history, oldest,
               is_long ? ": while a transaction is open the undo log grows, and reads become slower; end it (SELECT * "
                         "FROM information_schema.INNODB_TRX)"
                       : "");
}

static void (*const examinations[])(struct examination *examination) = {
    examine_texts, examine_definers, examine_anonymous, examine_accounts, examine_undo,
};

enum permit_status doctor_examine_sales(struct session *session, struct doctor_report *report)
{
    struct examination examination = {.session = session, .report = report};
    char has_tables[TEXT_SIZE];
    if (!ask(&examination,
             "SELECT 1 FROM information_schema.TABLES WHERE TABLE_SCHEMA=DATABASE() AND TABLE_NAME='sql_account'",
             has_tables))
        return examination.status;
    examination.status = procedures_find(session, examination.found);
    for (size_t i = 0; examination.status == PERMIT_OK && i < ARRAY_LENGTH(examinations); i++)
        examinations[i](&examination);
    return examination.status;
}

enum permit_status doctor_read_undo(struct store *store, struct doctor_undo *ret_undo)
{
    struct examination examination = {.session = session_of(store)};
    struct doctor_undo undo;
    read_undo(&examination, &undo);
    if (examination.status == PERMIT_OK)
        *ret_undo = undo;
    return examination.status;
}
