/* SPDX-License-Identifier: MIT */
/* Starts and fills permitd and its database, and runs the load programs on them. */
#include "instance.h"

#include "held_rows.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COMMAND_SIZE = 9 * 1024, OPTIONS_SIZE = 8 * 1024, FILL_STEP = 100000, FLUSH_STEP_MS = 3000 };

struct instance instance_start(void)
{
    return instance_start_of(NULL);
}

struct instance instance_start_of(const char *binary)
{
    return instance_start_with(&(struct kit_permitd_options){.binary = binary});
}

struct instance instance_start_with(const struct kit_permitd_options *options)
{
    struct instance instance = {.permitd = kit_permitd_start(options)};
    char path[512];
    snprintf(path, sizeof(path), "%s/mariadb.pid", instance.permitd->data_dir);
    char *pid = kit_read_file(path);
    if (!pid)
        kit_fail("no %s", path);
    instance.database_pid = (pid_t)atoi(pid);
    free(pid);
    snprintf(path, sizeof(path), "%s/mariadb.sock", instance.permitd->data_dir);
    instance.socket = strdup(path);
    struct kit_sql *sql = kit_sql_open(instance.socket, NULL);
    /* The naive design needs a connection per client. */
    kit_sql_run(sql, "SET GLOBAL max_connections = 500");
    kit_sql_close(sql);
    return instance;
}

struct instance instance_start_on(struct kit_database *database)
{
    return (struct instance){.permitd = kit_permitd_start(&(struct kit_permitd_options){.database = database->url}),
                             .database_pid = database->pid,
                             .socket = strdup(database->socket)};
}

void instance_stop(struct instance *instance)
{
    kit_permitd_stop(instance->permitd);
    free(instance->socket);
}

void instance_semaphore(struct instance *instance, const char *name, const char *kind, long capacity)
{
    struct kit_http http = kit_http(instance->permitd->port);
    struct reply reply;
    char path[256], body[256], headers[128] = "";
    snprintf(path, sizeof(path), "/v1/semaphores/%s", name);
    snprintf(body, sizeof(body), "{\"capacity\":%ld,\"kind\":\"%s\"}", capacity, kind);
    if (instance->token)
        snprintf(headers, sizeof headers, "Authorization: Bearer %s\r\n", instance->token);
    if (!kit_http_call(&http, "PUT", path, headers, body, &reply) || reply.status / 100 != 2)
        kit_fail("PUT %s: %d %s", path, reply.status, reply.body);
    reply_release(&reply);
    kit_http_close(&http);
}

void instance_semaphores(struct instance *instance, const char *name, const char *kind, long capacity, unsigned count)
{
    char full[128];
    for (unsigned i = 0; i < count; i++) {
        snprintf(full, sizeof full, "%s-%04x", name, i);
        instance_semaphore(instance, full, kind, capacity);
    }
}

/*
 * One transaction per step, with the row lock of the semaphore, ids from id_block, tokens from next_permit_id, and
 * in_use and the bits of `held` with the rows they count: only states that permitd itself could have written.
 */
static void fill_step(struct kit_sql *sql, const char *semaphore, long count)
{
    kit_sql_run(sql, "BEGIN");
    long long id = kit_sql_number(sql, "SELECT id FROM semaphore WHERE name = '%s' FOR UPDATE", semaphore);
    long long token = kit_sql_number(sql, "SELECT next_permit_id FROM semaphore WHERE id = %lld", id);
    long long request = kit_sql_number(sql, "SELECT next_id FROM id_block WHERE id = 1 FOR UPDATE");
    kit_sql_run(sql, "UPDATE id_block SET next_id = next_id + %ld WHERE id = 1", count);
    kit_sql_run(sql,
                "UPDATE semaphore SET in_use = in_use + %ld, next_permit_id = next_permit_id + %ld, "
                "version = version + 1, next_due_at = LEAST(COALESCE(next_due_at, '9999-01-01'), "
                "UTC_TIMESTAMP(6) + INTERVAL 20 HOUR) WHERE id = %lld",
                count, count, id);
    kit_sql_run(sql,
                "INSERT INTO permit_request (id, external_id, digest, owner, state, ttl_ms, due_at, acquired_at) "
                "SELECT %lld + seq, CONCAT('fill-', %lld + seq), UNHEX(SHA2(seq, 256)), 'fill', 1, 86400000, "
                "UTC_TIMESTAMP(6) + INTERVAL 24 HOUR, UTC_TIMESTAMP(6) FROM seq_0_to_%ld",
                request, request, count - 1);
    kit_sql_run(sql,
                "INSERT INTO permit (semaphore_id, id, permit_request_id, count, slots) "
                "SELECT %lld, %lld + seq, %lld + seq, 1, '' FROM seq_0_to_%ld",
                id, token, request, count - 1);
    kit_sql_run(sql, HELD_ROWS_ADD("p.semaphore_id = %lld AND p.id >= %lld"), id, token);
    kit_sql_run(sql, "COMMIT");
}

void instance_fill(struct instance *instance, const char *semaphore, long count)
{
    struct kit_sql *sql = kit_sql_open(instance->socket, "permitd");
    for (long done = 0; done < count; done += FILL_STEP)
        fill_step(sql, semaphore, count - done < FILL_STEP ? count - done : FILL_STEP);
    KIT_CHECK(kit_sql_number(sql, "SELECT in_use FROM semaphore WHERE name = '%s'", semaphore) == count);
    kit_sql_close(sql);
}

static long long dirty_pages(struct kit_sql *sql)
{
    return kit_sql_number(sql, "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE"
                               " VARIABLE_NAME = 'INNODB_BUFFER_POOL_PAGES_DIRTY'");
}

void instance_flush(struct instance *instance)
{
    struct kit_sql *sql = kit_sql_open(instance->socket, "permitd");
    long long capacity = kit_sql_number(sql, "SELECT @@GLOBAL.innodb_io_capacity");
    long long percent = kit_sql_number(sql, "SELECT CAST(@@GLOBAL.innodb_max_dirty_pages_pct AS INT)");
    kit_sql_run(sql, "SET GLOBAL innodb_io_capacity_max = 40000, GLOBAL innodb_io_capacity = 20000,"
                     " GLOBAL innodb_max_dirty_pages_pct = 0");
    /* Pages of temporary tables stay, so the number does not fall to 0. */
    for (long long before = INT64_MAX, dirty; (dirty = dirty_pages(sql)) < before; before = dirty)
        kit_sleep_ms(FLUSH_STEP_MS);
    kit_sql_run(sql, "SET GLOBAL innodb_io_capacity = %lld, GLOBAL innodb_max_dirty_pages_pct = %lld", capacity,
                percent);
    kit_sql_close(sql);
}

/* Their ids and tokens are larger than those that permitd has issued, and its next tokens are larger than these. */
void instance_fill_ended(struct instance *instance, const char *semaphore, long count, const char *due_at)
{
    struct kit_sql *sql = kit_sql_open(instance->socket, "permitd");
    long long id = kit_sql_number(sql, "SELECT id FROM semaphore WHERE name = '%s'", semaphore);
    for (long done = 0; done < count; done += FILL_STEP) {
        long step = count - done < FILL_STEP ? count - done : FILL_STEP;
        kit_sql_run(sql, "BEGIN");
        kit_sql_run(
            sql,
            "INSERT INTO permit_request (id, external_id, digest, state, end_reason, ttl_ms, due_at,"
            " acquired_at, ended_at) SELECT 1000000000 + n, CONCAT('fill0000-', LPAD(HEX(n %% 64), 4, '0'), '-',"
            " LPAD(HEX(n), 8, '0')), UNHEX(SHA2(n, 256)), 2, 1, 600000, %s, SYSDATE(6) - INTERVAL 8 DAY,"
            " SYSDATE(6) - INTERVAL 7 DAY FROM (SELECT %ld + seq AS n FROM seq_0_to_%ld) s",
            due_at, done, step - 1);
        kit_sql_run(sql,
                    "INSERT INTO permit (semaphore_id, id, permit_request_id, count, slots)"
                    " SELECT %lld, 100000000 + %ld + seq, 1000000000 + %ld + seq, 1, '' FROM seq_0_to_%ld",
                    id, done, done, step - 1);
        kit_sql_run(sql, "COMMIT");
        fprintf(stderr, "bench: %ld of %ld ended requests inserted\r", done + step, count);
    }
    fprintf(stderr, "\n");
    kit_sql_run(sql, "UPDATE semaphore SET next_permit_id = 1000000000, version = version + 1 WHERE id = %lld", id);
    kit_sql_close(sql);
    instance_flush(instance);
}

static const struct {
    const char *name;
    size_t offset;
} members[] = {
    {"operations", offsetof(struct result, operations)},
    {"refused", offsetof(struct result, refused)},
    {"failed", offsetof(struct result, failed)},
    {"unanswered", offsetof(struct result, unanswered)},
    {"seconds", offsetof(struct result, seconds)},
    {"rate", offsetof(struct result, rate)},
    {"acquire_p50_us", offsetof(struct result, p50_us)},
    {"acquire_p99_us", offsetof(struct result, p99_us)},
    {"acquire_max_us", offsetof(struct result, max_us)},
    {"cpu_us_0", offsetof(struct result, permitd_cpu_us)},
    {"cpu_us_1", offsetof(struct result, database_cpu_us)},
    {"cpu_us_2", offsetof(struct result, client_cpu_us)},
};

static void take_line(struct result *result, const char *name, double value)
{
    for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++)
        if (!strcmp(members[i].name, name))
            memcpy((char *)result + members[i].offset, &value, sizeof(value));
}

struct result load_program(const char *format, ...)
{
    char command[COMMAND_SIZE];
    int length = snprintf(command, sizeof(command), "%s/", PERMIT_BENCH_DIR);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(command + length, sizeof(command) - (size_t)length, format, arguments);
    va_end(arguments);
    struct result result = {.operations = 0};
    char name[64];
    double value;
    FILE *output = popen(command, "re");
    KIT_CHECK(output);
    while (fscanf(output, "%63s %lf", name, &value) == 2)
        take_line(&result, name, value);
    if (pclose(output))
        kit_fail("%s failed", command);
    return result;
}

/* Appends to the text of an option list, which has OPTIONS_SIZE bytes. */
__attribute__((format(printf, 2, 3))) static void append(char *options, const char *format, ...)
{
    size_t length = strlen(options);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(options + length, OPTIONS_SIZE - length, format, arguments);
    va_end(arguments);
}

static void append_load(char *options, struct instance *instance, const struct load *load)
{
    append(options, " --clients %u --seconds %g --watch %d", load->clients, load->seconds, (int)instance->permitd->pid);
    for (size_t i = 0; i < MORE_MAX && instance->more[i]; i++)
        append(options, "+%d", (int)instance->more[i]->pid);
    append(options, ",%d,0", (int)instance->database_pid);
    if (load->burst)
        append(options, " --burst %u", load->burst);
}

struct result instance_loadgen(struct instance *instance, const struct load *load)
{
    char options[OPTIONS_SIZE] = "";
    append(options, " --port %u", instance->permitd->port);
    for (size_t i = 0; i < MORE_MAX && instance->more[i]; i++)
        append(options, ",%u", instance->more[i]->port);
    append(options, " %s %s", load->get ? "--get" : "--semaphore", load->get ? load->get : load->semaphore);
    append_load(options, instance, load);
    if (load->spread)
        append(options, " --spread %u", load->spread);
    if (load->batch)
        append(options, " --batch %u", load->batch);
    if (load->known)
        append(options, " --known %s", load->known);
    if (load->rate > 0)
        append(options, " --rate %g", load->rate);
    if (load->units)
        append(options, " --units %u", load->units);
    if (load->keep)
        append(options, " --keep");
    if (load->repeat)
        append(options, " --repeat %u", load->repeat);
    if (instance->token)
        append(options, " --token %s", instance->token);
    return load_program("loadgen%s", options);
}

struct result instance_naive(struct instance *instance, const struct load *load)
{
    char options[OPTIONS_SIZE] = "";
    append_load(options, instance, load);
    return load_program("naive --socket %s%s", instance->socket, options);
}

void instance_naive_tables(struct instance *instance, long held, long capacity)
{
    load_program("naive --socket %s --fill %ld --capacity %ld", instance->socket, held, capacity);
}

static void take_variable(void *context, char **columns)
{
    char **value = context;
    free(*value);
    *value = strdup(columns[1] ? columns[1] : "");
}

/* Returns the second column of the statement's last row, NULL if it has none. */
static char *read_value(struct instance *instance, const char *format, const char *name)
{
    char statement[256], *value = NULL;
    snprintf(statement, sizeof(statement), format, name);
    struct kit_sql *sql = kit_sql_open(instance->socket, NULL);
    kit_sql_each(sql, statement, take_variable, &value);
    kit_sql_close(sql);
    return value;
}

double instance_counter(struct instance *instance, const char *name)
{
    char *value = read_value(instance, "SHOW GLOBAL STATUS LIKE '%s'", name);
    double number = value ? atof(value) : 0;
    free(value);
    return number;
}

char *instance_variable(struct instance *instance, const char *name)
{
    char *value = read_value(instance, "SHOW GLOBAL VARIABLES LIKE '%s'", name);
    return value ? value : strdup("?");
}
