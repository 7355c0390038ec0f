/* SPDX-License-Identifier: MIT */
/* A check is one row of a table: the variable, its good values or a function, the verdict otherwise, and the fix. */
#include "store/doctor.h"

#include <stdarg.h>
#include <stdio.h>
#include <strings.h>

#include "store/packet.h"
#include "store/schema.h"

enum { VALUE_SIZE = 512, GOOD_MAX = 5 };

/* The variables that the checks read. A variable that the server does not have passes. */
enum variable {
    V_VERSION,
    V_FLUSH_AT_COMMIT,
    V_LOG_BIN,
    V_SYNC_BINLOG,
    V_BINLOG_FORMAT,
    V_READ_ONLY,
    V_SUPER_READ_ONLY,
    V_INNODB_READ_ONLY,
    V_DOUBLEWRITE,
    V_FLUSH_METHOD,
    V_FORCE_RECOVERY,
    V_WSREP_ON,
    V_WSREP_SIZE,
    V_SINGLE_PRIMARY,
    V_SQL_MODE,
    V_ISOLATION,
    V_TX_ISOLATION,
    V_MAX_PACKET,
    V_REDO_LOG,
    V_COUNT
};

static const char *const variable_names[V_COUNT] = {
    [V_VERSION] = "version",
    [V_FLUSH_AT_COMMIT] = "innodb_flush_log_at_trx_commit",
    [V_LOG_BIN] = "log_bin",
    [V_SYNC_BINLOG] = "sync_binlog",
    [V_BINLOG_FORMAT] = "binlog_format",
    [V_READ_ONLY] = "read_only",
    [V_SUPER_READ_ONLY] = "super_read_only",
    [V_INNODB_READ_ONLY] = "innodb_read_only",
    [V_DOUBLEWRITE] = "innodb_doublewrite",
    [V_FLUSH_METHOD] = "innodb_flush_method",
    [V_FORCE_RECOVERY] = "innodb_force_recovery",
    [V_WSREP_ON] = "wsrep_on",
    [V_WSREP_SIZE] = "wsrep_cluster_size", /* this and Innodb_redo_log_enabled are status values */
    [V_SINGLE_PRIMARY] = "group_replication_single_primary_mode",
    [V_SQL_MODE] = "sql_mode",
    [V_ISOLATION] = "transaction_isolation",
    [V_TX_ISOLATION] = "tx_isolation",
    [V_MAX_PACKET] = "max_allowed_packet",
    [V_REDO_LOG] = "Innodb_redo_log_enabled",
};

/* The facts read from the server. */
struct facts {
    char values[V_COUNT][VALUE_SIZE];
    bool present[V_COUNT];
    char non_innodb_tables[VALUE_SIZE]; /* permitd's tables that are not InnoDB: "permit (MyISAM)" */
    struct schema_progress schema;
};

struct setting_check {
    const char *name;
    enum variable variable;
    const char *good[GOOD_MAX];                 /* good values; not used if there is a function */
    bool (*is_good)(const struct facts *facts); /* NULL: compare with `good` */
    enum doctor_verdict failure_verdict;
    const char *fix; /* consequence and fix; follows "<variable> is <value>: " */
};

static bool value_is(const struct facts *facts, enum variable variable, const char *value)
{
    return strcasecmp(facts->values[variable], value) == 0;
}

static bool binlog_is_written(const struct facts *facts)
{
    return value_is(facts, V_LOG_BIN, "ON") || value_is(facts, V_LOG_BIN, "1");
}

static bool version_is_good(const struct facts *facts)
{
    unsigned major = 0, minor = 0;
    if (sscanf(facts->values[V_VERSION], "%u.%u", &major, &minor) != 2)
        return false;
    bool mariadb = strstr(facts->values[V_VERSION], "MariaDB") != NULL;
    return mariadb ? major > 10 || (major == 10 && minor >= 6) : major >= 8;
}

static bool binlog_is_synced(const struct facts *facts)
{
    return !binlog_is_written(facts) || value_is(facts, V_SYNC_BINLOG, "1");
}

/* In READ COMMITTED, InnoDB refuses to write with a binary log of statements (error 1665). */
static bool binlog_format_is_good(const struct facts *facts)
{
    return !binlog_is_written(facts) || !value_is(facts, V_BINLOG_FORMAT, "STATEMENT");
}

static bool flush_method_is_good(const struct facts *facts)
{
    return !value_is(facts, V_FLUSH_METHOD, "nosync") && !value_is(facts, V_FLUSH_METHOD, "littlesync");
}

/* Only a cluster of one node has a single writer. */
static bool galera_is_one_node(const struct facts *facts)
{
    bool clustered = value_is(facts, V_WSREP_ON, "ON") || value_is(facts, V_WSREP_ON, "1");
    return !clustered || value_is(facts, V_WSREP_SIZE, "1");
}

static bool sql_mode_is_strict(const struct facts *facts)
{
    return strstr(facts->values[V_SQL_MODE], "STRICT_") != NULL;
}

static bool isolation_is_good(const struct facts *facts)
{
    return !value_is(facts, V_ISOLATION, "READ-UNCOMMITTED");
}

static bool max_packet_is_good(const struct facts *facts)
{
    return column_u64(bytes_of(facts->values[V_MAX_PACKET])) >= 16U * 1024 * 1024;
}

#define SET_GLOBAL(assignment) "; SET GLOBAL " assignment " and write it into the server's configuration file"

/* clang-format off */
static const struct setting_check checks[] = {
    {"version", V_VERSION, {0}, version_is_good, DOCTOR_REFUSE,
     "too old; permitd needs MariaDB 10.6 or MySQL 8.0, or newer"},
    {"flush_at_commit", V_FLUSH_AT_COMMIT, {"1"}, NULL, DOCTOR_REFUSE,
     "a crash could undo an answered grant" SET_GLOBAL("innodb_flush_log_at_trx_commit = 1")},
    {"sync_binlog", V_SYNC_BINLOG, {0}, binlog_is_synced, DOCTOR_REFUSE,
     "with log_bin, a crash could lose transactions that replicas need" SET_GLOBAL("sync_binlog = 1")},
    {"binlog_format", V_BINLOG_FORMAT, {0}, binlog_format_is_good, DOCTOR_REFUSE,
     "InnoDB cannot write in READ COMMITTED to a log of statements" SET_GLOBAL("binlog_format = ROW")},
    {"read_only", V_READ_ONLY, {"OFF", "0"}, NULL, DOCTOR_REFUSE,
     "this is not the primary; connect to the server that takes writes, or SET GLOBAL read_only = OFF"},
    {"super_read_only", V_SUPER_READ_ONLY, {"OFF", "0"}, NULL, DOCTOR_REFUSE,
     "this is not the primary; connect to the server that takes writes, or SET GLOBAL super_read_only = OFF"},
    {"innodb_read_only", V_INNODB_READ_ONLY, {"OFF", "0"}, NULL, DOCTOR_REFUSE,
     "nothing can be written; start the server without innodb_read_only"},
    {"doublewrite", V_DOUBLEWRITE, {"ON", "1", "fast", "DETECT_AND_RECOVER"}, NULL, DOCTOR_REFUSE,
     "a crash in the middle of a page could ruin the tables; start the server with innodb_doublewrite = ON"},
    {"flush_method", V_FLUSH_METHOD, {0}, flush_method_is_good, DOCTOR_REFUSE,
     "nothing is flushed to the disk; start the server with innodb_flush_method = O_DIRECT"},
    {"force_recovery", V_FORCE_RECOVERY, {"0"}, NULL, DOCTOR_REFUSE,
     "the server was started to rescue data, not to serve; start it with innodb_force_recovery = 0"},
    {"redo_log", V_REDO_LOG, {"ON"}, NULL, DOCTOR_REFUSE,
     "a crash would ruin the tables; ALTER INSTANCE ENABLE INNODB REDO_LOG"},
    {"galera", V_WSREP_ON, {0}, galera_is_one_node, DOCTOR_REFUSE,
     "several nodes accept writes, which permitd does not support; use a server with a single writer, or accept the "
     "risk with unsafe_multi_writer"},
    {"group_replication", V_SINGLE_PRIMARY, {"ON", "1"}, NULL, DOCTOR_REFUSE,
     "several members may write, and for that nothing is promised; SELECT "
     "group_replication_switch_to_single_primary_mode(), or accept that with unsafe_multi_writer"},
    {"global_sql_mode", V_SQL_MODE, {0}, sql_mode_is_strict, DOCTOR_WARN,
     "permitd sets its own value, but manual writes could silently store wrong values"
     SET_GLOBAL("sql_mode = 'STRICT_TRANS_TABLES'")},
    {"global_isolation", V_ISOLATION, {0}, isolation_is_good, DOCTOR_WARN,
     "permitd sets its own value, but other readers could see uncommitted data"
     SET_GLOBAL("TRANSACTION ISOLATION LEVEL READ COMMITTED")},
    {"max_packet", V_MAX_PACKET, {0}, max_packet_is_good, DOCTOR_WARN,
     "large batches may not fit and then run one by one" SET_GLOBAL("max_allowed_packet = 16777216")},
};
/* clang-format on */

static void facts_set(struct facts *facts, struct bytes name, struct bytes value)
{
    for (size_t i = 0; i < V_COUNT; i++) {
        if (!bytes_equal(name, bytes_of(variable_names[i])))
            continue;
        snprintf(facts->values[i], VALUE_SIZE, "%.*s", (int)value.length, value.data ? value.data : "");
        facts->present[i] = true;
    }
}

/* Two statements have all names; each returns the names that it knows, as a variable or as a status value. */
static void facts_read_variables(struct packet *packet, struct facts *facts)
{
    static const char *const shows[] = {"SHOW GLOBAL VARIABLES", ";SHOW GLOBAL STATUS"};
    for (size_t i = 0; i < ARRAY_LENGTH(shows); i++) {
        buf_printf(&packet->sql, "%s WHERE Variable_name IN (''", shows[i]);
        for (size_t v = 0; v < V_COUNT; v++)
            buf_printf(&packet->sql, ",'%s'", variable_names[v]);
        buf_append_char(&packet->sql, ')');
    }
    packet_send(packet);
    for (size_t i = 0; i < ARRAY_LENGTH(shows); i++) {
        if (i)
            packet_next(packet);
        while (packet_row(packet)) {
            struct bytes name = row_column(&packet->row);
            facts_set(facts, name, row_column(&packet->row));
        }
    }
}

/* Reads permitd's tables; none if the session has no current database, or before the first migration. */
static void facts_read_tables(struct packet *packet, struct facts *facts)
{
    size_t length = 0;
    buf_append_text(&packet->sql, "SELECT TABLE_NAME, ENGINE FROM information_schema.TABLES WHERE ");
    schema_append_condition(&packet->sql);
    packet_send(packet);
    while (length < VALUE_SIZE && packet_row(packet)) {
        struct bytes name = row_column(&packet->row), engine = row_column(&packet->row);
        facts->schema.recorded |= bytes_equal(name, BYTES("schema_version"));
        if (!bytes_equal(engine, BYTES("InnoDB")))
            length += (size_t)snprintf(facts->non_innodb_tables + length, VALUE_SIZE - length, "%s%.*s (%.*s)",
                                       length ? ", " : "", (int)name.length, name.data, (int)engine.length,
                                       engine.data ? engine.data : "");
    }
}

static bool check_passes(const struct setting_check *check, const struct facts *facts)
{
    if (check->is_good)
        return check->is_good(facts);
    for (size_t i = 0; i < GOOD_MAX && check->good[i]; i++)
        if (value_is(facts, check->variable, check->good[i]))
            return true;
    return false;
}

void doctor_add(struct doctor_report *report, const char *check, enum doctor_verdict verdict, const char *format, ...)
{
    if (report->count == DOCTOR_MAX_FINDINGS)
        return;
    struct doctor_finding *finding = &report->findings[report->count++];
    finding->check = check;
    finding->verdict = verdict;
    report->refusals += verdict == DOCTOR_REFUSE;
    report->warnings += verdict == DOCTOR_WARN;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(finding->sentence, sizeof finding->sentence, format, arguments);
    va_end(arguments);
}

static void check_run(const struct setting_check *check, const struct facts *facts,
                      const struct doctor_options *options, struct doctor_report *report)
{
    if (!facts->present[check->variable])
        return;
    bool forgiven = options && options->unsafe_multi_writer &&
                    (check->variable == V_WSREP_ON || check->variable == V_SINGLE_PRIMARY);
    bool passes = check_passes(check, facts);
    enum doctor_verdict bad = forgiven ? DOCTOR_WARN : check->failure_verdict;
    const char *value = facts->values[check->variable];
    doctor_add(report, check->name, passes ? DOCTOR_OK : bad, "%s is %.100s%s%s", variable_names[check->variable],
               value[0] ? value : "empty", passes ? "" : ": ", passes ? "" : check->fix);
}

static void check_tables(const struct facts *facts, struct doctor_report *report)
{
    if (!facts->non_innodb_tables[0])
        doctor_add(report, "engine", DOCTOR_OK, "permitd's tables are InnoDB");
    else
        doctor_add(report, "engine", DOCTOR_REFUSE,
                   "not InnoDB: %.200s: neither locks nor transactions work there; ALTER TABLE ... ENGINE=InnoDB",
                   facts->non_innodb_tables);
}

static void check_schema(const struct facts *facts, struct doctor_report *report)
{
    struct buf refusal;
    if (!facts->schema.recorded)
        return;
    buf_init(&refusal, DOCTOR_SENTENCE_SIZE);
    if (schema_is_refused(&facts->schema, &refusal))
        doctor_add(report, "schema", DOCTOR_REFUSE, "%s", buf_text(&refusal));
    else if (facts->schema.version < schema_newest())
        doctor_add(report, "schema", DOCTOR_REFUSE,
                   "the schema has version %u, and this permitd needs %u: restart permitd to upgrade it",
                   facts->schema.version, schema_newest());
    else
        doctor_add(report, "schema", DOCTOR_OK, "the schema has version %u", facts->schema.version);
    buf_release(&refusal);
}

static void run_checks(struct facts *facts, const struct doctor_options *options, struct doctor_report *report)
{
    if (!facts->present[V_ISOLATION] && facts->present[V_TX_ISOLATION]) /* MariaDB before 11.1 */
        facts_set(facts, bytes_of(variable_names[V_ISOLATION]), bytes_of(facts->values[V_TX_ISOLATION]));
    for (size_t i = 0; i < ARRAY_LENGTH(checks); i++)
        check_run(&checks[i], facts, options, report);
}

void doctor_judge(const struct doctor_fact *facts, size_t count, const struct doctor_options *options,
                  struct doctor_report *ret_report)
{
    struct facts taken = {.present = {false}};
    for (size_t i = 0; i < count; i++)
        facts_set(&taken, bytes_of(facts[i].name), bytes_of(facts[i].value));
    *ret_report = (struct doctor_report){.count = 0};
    run_checks(&taken, options, ret_report);
}

enum permit_status doctor_check(struct session *session, const struct doctor_options *options,
                                struct doctor_report *ret_report)
{
    struct packet packet = packet_begin(session, NULL);
    struct facts facts = {.present = {false}};
    facts_read_variables(&packet, &facts);
    facts_read_tables(&packet, &facts);
    enum permit_status status = packet_end(&packet);
    if (status == PERMIT_OK && facts.schema.recorded)
        status = schema_read_progress(session, &facts.schema);
    if (status != PERMIT_OK)
        return status;
    *ret_report = (struct doctor_report){.count = 0};
    run_checks(&facts, options, ret_report);
    check_tables(&facts, ret_report);
    check_schema(&facts, ret_report);
    return PERMIT_OK;
}

void doctor_format_refusal(const struct doctor_report *report, char *ret_sentence, size_t size)
{
    const struct doctor_finding *first = NULL;
    for (size_t i = 0; i < report->count && !first; i++)
        if (report->findings[i].verdict == DOCTOR_REFUSE)
            first = &report->findings[i];
    if (report->refusals > 1)
        snprintf(ret_sentence, size, "%s (and %zu more: permitctl doctor)", first->sentence, report->refusals - 1);
    else
        snprintf(ret_sentence, size, "%s", first ? first->sentence : "");
}

const char *doctor_verdict_word(enum doctor_verdict verdict)
{
    static const char *const words[] = {[DOCTOR_OK] = "ok", [DOCTOR_WARN] = "warn", [DOCTOR_REFUSE] = "refuse"};
    return words[verdict];
}

void doctor_print(const struct doctor_report *report, enum doctor_verdict from, struct buf *out)
{
    for (size_t i = 0; i < report->count; i++)
        if (report->findings[i].verdict >= from)
            buf_printf(out, "%-6s  %-17s  %s\n", doctor_verdict_word(report->findings[i].verdict),
                       report->findings[i].check, report->findings[i].sentence);
}

/* check_tables and check_schema add 2 findings, doctor_examine_sales 5; 15 are left for callers of doctor_add. */
_Static_assert(ARRAY_LENGTH(checks) + 2 + 5 + 15 <= DOCTOR_MAX_FINDINGS, "every check has room in a report");
