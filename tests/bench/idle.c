/* SPDX-License-Identifier: MIT */
/* Starts a database that logs every statement with the rows it read, and parses that log. */
#include "idle.h"
#include "instance.h"
#include "measure.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SETTLE_MS = 3000 };

/* ---- the log ---- */

/* Replaces numbers and literals by ?, so that similar statements become equal. */
static void simplify(const char *statement, char text[QUERY_SIZE])
{
    size_t length = 0;
    for (const char *at = statement; *at && length < QUERY_SIZE - 1; at++) {
        bool number =
            isdigit((unsigned char)*at) && (at == statement || !(isalpha((unsigned char)at[-1]) || at[-1] == '_'));
        if (number)
            while (isdigit((unsigned char)at[1]))
                at++;
        text[length++] = number ? '?' : strchr("\n\t", *at) ? ' ' : strchr("|`", *at) ? '\'' : *at;
    }
    text[length] = 0;
}

static void idle_add(struct idle *idle, const char *statement, int64_t rows)
{
    char text[QUERY_SIZE];
    simplify(statement, text);
    size_t i = 0;
    while (i < idle->count && strcmp(idle->queries[i].text, text))
        i++;
    if (i == QUERIES_MAX)
        i--;
    struct idle_query *query = &idle->queries[i];
    if (i == idle->count) {
        idle->count++;
        memcpy(query->text, text, sizeof(text));
    }
    query->times++;
    query->rows += rows;
    query->most = rows > query->most ? rows : query->most;
    bool walks = strstr(statement, "/* audit */") || strstr(statement, "/* retention */");
    int64_t *most = walks ? &idle->walks_most : &idle->most;
    *most = rows > *most ? rows : *most;
}

/* Parses an entry: a line with the figures, more lines that begin with #, SET timestamp, the statement. */
static char *read_entry(char *entry, struct idle *idle)
{
    char *figures = strstr(entry, "Rows_examined: ");
    char *statement = figures ? strstr(figures, "\nSET timestamp=") : NULL;
    statement = statement ? strchr(statement + 1, '\n') : NULL;
    if (!statement)
        return NULL;
    char *end = strstr(statement, ";\n# ");
    if (end)
        *end = 0;
    idle_add(idle, statement + 1, strtoll(figures + strlen("Rows_examined: "), NULL, 10));
    return end ? end + 1 : NULL;
}

static int compare_queries(const void *a, const void *b)
{
    const struct idle_query *x = a, *y = b;
    return x->most != y->most ? (x->most < y->most ? 1 : -1) : (x->rows < y->rows) - (x->rows > y->rows);
}

static void read_log(const char *text, size_t from, size_t to, double seconds, struct idle *idle)
{
    int64_t times = 0, rows = 0;
    char *part = strndup(text + from, to - from);
    KIT_CHECK(part);
    for (char *entry = part; entry;)
        entry = read_entry(entry, idle);
    for (size_t i = 0; i < idle->count; i++) {
        times += idle->queries[i].times;
        rows += idle->queries[i].rows;
    }
    idle->queries_rate = (double)times / seconds;
    idle->rows_rate = (double)rows / seconds;
    qsort(idle->queries, idle->count, sizeof(idle->queries[0]), compare_queries);
    free(part);
}

static size_t log_length(const char *path)
{
    char *text = kit_read_file(path);
    size_t length = text ? strlen(text) : 0;
    free(text);
    return length;
}

/* ---- the counters ---- */

static void add_value(void *context, char **columns)
{
    *(int64_t *)context += strtoll(columns[1], NULL, 10);
}

/* Rows read since the server started. */
static int64_t handler_reads(struct kit_sql *sql)
{
    int64_t sum = 0;
    kit_sql_each(sql, "SHOW GLOBAL STATUS LIKE 'Handler_read%'", add_value, &sum);
    return sum;
}

/* ---- the measurement ---- */

static void watch_idle(const struct instance *instance, const char *log_path, int ms, struct idle *idle)
{
    struct kit_sql *sql = kit_sql_open(instance->socket, "permitd");
    handler_reads(sql);
    /* The rows read by this query itself. */
    int64_t first = handler_reads(sql), own = handler_reads(sql) - first;
    int64_t before = handler_reads(sql);
    kit_sleep_ms(200); /* until it is in the log */
    size_t from = log_length(log_path);
    int64_t cpu_us = process_cpu_us(instance->permitd->pid) + process_cpu_us(instance->database_pid);
    int64_t start_us = kit_now_us();
    kit_sleep_ms(ms);
    double seconds = (double)(kit_now_us() - start_us) / 1e6;
    cpu_us = process_cpu_us(instance->permitd->pid) + process_cpu_us(instance->database_pid) - cpu_us;
    char *text = kit_read_file(log_path);
    KIT_CHECK(text);
    idle->handler_rate = (double)(handler_reads(sql) - before - own) / seconds;
    idle->cores = (double)cpu_us / 1e6 / seconds;
    read_log(text, from, strlen(text), seconds, idle);
    free(text);
    kit_sql_close(sql);
}

void idle_measure(long held, int ms, struct idle *ret_idle)
{
    char *log_path = kit_path("statements.log"), file[512];
    snprintf(file, sizeof(file), "--slow-query-log-file=%s", log_path);
    const char *const flags[] = {"--slow-query-log=1", "--long-query-time=0", file, "--innodb-buffer-pool-size=1G",
                                 NULL};
    struct kit_database *database = kit_database_start(flags);
    struct instance instance = {.permitd = kit_permitd_start(&(struct kit_permitd_options){.database = database->url}),
                                .database_pid = database->pid,
                                .socket = database->socket};
    *ret_idle = (struct idle){.most = 0};
    instance_semaphore(&instance, "held", "counted", 2 * held);
    instance_fill(&instance, "held", held);
    kit_sleep_ms(SETTLE_MS);
    watch_idle(&instance, log_path, ms, ret_idle);
    kit_permitd_stop(instance.permitd);
    kit_database_stop(database);
    free(log_path);
}
