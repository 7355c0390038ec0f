/* SPDX-License-Identifier: MIT */
/* Servers and small calls. */
#include "site.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_SIZE = 512, BODY_SIZE = 512, INSPECT_EVERY_MS = 200 };

struct kit_sql *site_sql(const struct kit_database *database)
{
    struct kit_sql *sql = kit_sql_open(database->socket, "permitd");
    kit_sql_run(sql, "SET time_zone = '+00:00'");
    kit_sql_run(sql, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED");
    return sql;
}

void site_start_permitd(struct site *site)
{
    struct kit_permitd_options options = {.database = site->database->url, .flags = site->flags};
    for (size_t i = 0; i < site->count; i++)
        site->permitd[i] = kit_permitd_start(&options);
}

void site_stop_permitd(struct site *site)
{
    for (size_t i = 0; i < site->count; i++)
        kit_permitd_stop(site->permitd[i]);
}

static void site_begin(struct site *site, struct kit_database *database)
{
    site->database = database;
    site_start_permitd(site);
    site->sql = site_sql(database);
}

struct site site_start(size_t permitd_count, bool shifted)
{
    /* All clients of a test come from one address. */
    static const char *const flags[] = {"--max-connections-per-address", "16384", NULL};
    struct site site = {.count = permitd_count, .flags = flags};
    site_begin(&site, shifted ? kit_database_start_shifted(NULL) : kit_database_start(NULL));
    return site;
}

struct site site_start_with(size_t permitd_count, const char *const *flags)
{
    struct site site = {.count = permitd_count, .flags = flags};
    site_begin(&site, kit_database_start(NULL));
    return site;
}

void site_stop(struct site *site)
{
    site_stop_permitd(site);
    kit_sql_close(site->sql);
    kit_database_stop(site->database);
}

void site_semaphore(struct site *site, const char *name, const char *body)
{
    struct kit_http http = kit_http(site->permitd[0]->port);
    struct reply reply;
    char path[PATH_SIZE];
    snprintf(path, sizeof(path), "/v1/semaphores/%s", name);
    if (!kit_http_put(&http, path, body, &reply) || reply.status != 201)
        kit_fail("PUT %s: %d %s", path, reply.status, reply.body);
    reply_release(&reply);
    kit_http_close(&http);
}

void site_world(const struct site *site, struct world *world)
{
    world->permitd_count = site->count;
    for (size_t i = 0; i < site->count; i++)
        atomic_store(&world->ports[i], site->permitd[i]->port);
}

/* The value on the line that begins with the name and a space; 0 if there is none. */
static double metric_of(const char *text, const char *name)
{
    size_t length = strlen(name);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (!strncmp(line, name, length) && line[length] == ' ')
            return atof(line + length);
    }
    return 0;
}

double site_metric(const struct site *site, const char *name)
{
    double sum = 0;
    for (size_t i = 0; i < site->count; i++) {
        struct kit_http http = kit_http(site->permitd[i]->port);
        struct reply reply;
        if (!kit_http_get(&http, "/metrics", &reply) || reply.status != 200)
            kit_fail("GET /metrics: %d", reply.status);
        sum += metric_of(reply.body, name);
        reply_release(&reply);
        kit_http_close(&http);
    }
    return sum;
}

size_t site_waiting(const struct site *site, const char *semaphore)
{
    int64_t sum = 0;
    char path[PATH_SIZE];
    snprintf(path, sizeof(path), "/v1/semaphores/%s", semaphore);
    for (size_t i = 0; i < site->count; i++) {
        struct kit_http http = kit_http(site->permitd[i]->port);
        struct reply reply;
        if (!kit_http_get(&http, path, &reply) || reply.status != 200)
            kit_fail("GET %s: %d %s", path, reply.status, reply.body);
        sum += kit_json_int(reply.body, "waiting");
        reply_release(&reply);
        kit_http_close(&http);
    }
    return (size_t)sum;
}

void site_await_waiting(const struct site *site, const char *semaphore, size_t count, int ms)
{
    int64_t end = kit_now_us() + (int64_t)ms * 1000;
    size_t waiting;
    while ((waiting = site_waiting(site, semaphore)) != count) {
        if (kit_now_us() > end)
            kit_fail("%zu wait for %s, not %zu, after %d ms", waiting, semaphore, count, ms);
        kit_sleep_ms(count > 1000 ? 50 : 2);
    }
}

int64_t site_clock_us(struct site *site)
{
    return kit_sql_number(site->sql, "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6))");
}

static void take_deadlocks(void *context, char **columns)
{
    *(int64_t *)context = strtoll(columns[1], NULL, 10);
}

int64_t site_deadlocks(struct site *site)
{
    int64_t deadlocks = -1; /* where the server does not count them */
    kit_sql_each(site->sql, "SHOW GLOBAL STATUS LIKE 'Innodb_deadlocks'", take_deadlocks, &deadlocks);
    return deadlocks;
}

int64_t site_held(struct site *site)
{
    return kit_sql_number(site->sql, "SELECT COUNT(*) FROM permit_request WHERE state = 1");
}

static bool is_empty(void *context)
{
    return site_held(context) == 0;
}

bool site_wait_empty(struct site *site, int ms)
{
    return kit_wait_until(is_empty, site, ms);
}

int site_acquire(struct kit_http *http, const char *key, const char *semaphore, unsigned count, const char *ttl,
                 struct reply *ret_reply)
{
    char body[BODY_SIZE];
    snprintf(body, sizeof(body),
             "{\"external_id\":\"%s\",\"ttl\":\"%s\",\"permits\":[{\"semaphore\":\"%s\",\"count\":%u}]}", key, ttl,
             semaphore, count);
    kit_http_post(http, "/v1/requests", body, ret_reply);
    return ret_reply->status;
}

static void write_waiting(char body[BODY_SIZE], const char *key, const char *semaphore, unsigned count,
                          const char *wait)
{
    snprintf(body, BODY_SIZE,
             "{\"external_id\":\"%s\",\"wait\":\"%s\",\"permits\":[{\"semaphore\":\"%s\",\"count\":%u}]}", key, wait,
             semaphore, count);
}

int site_acquire_waiting(struct kit_http *http, const char *key, const char *semaphore, unsigned count,
                         const char *wait, struct reply *ret_reply)
{
    char body[BODY_SIZE];
    write_waiting(body, key, semaphore, count, wait);
    kit_http_post(http, "/v1/requests", body, ret_reply);
    return ret_reply->status;
}

void site_send_waiting(struct kit_http *http, const char *key, const char *semaphore, unsigned count, const char *wait)
{
    char body[BODY_SIZE];
    write_waiting(body, key, semaphore, count, wait);
    if (!kit_http_send(http, "POST", "/v1/requests", NULL, body))
        kit_fail("%s cannot ask for %s", key, semaphore);
}

int site_renew(struct kit_http *http, const char *key, struct reply *ret_reply)
{
    char path[PATH_SIZE];
    snprintf(path, sizeof(path), "/v1/requests/%s/renew", key);
    kit_http_post(http, path, NULL, ret_reply);
    return ret_reply->status;
}

int site_release(struct kit_http *http, const char *key)
{
    char path[PATH_SIZE];
    struct reply reply;
    snprintf(path, sizeof(path), "/v1/requests/%s", key);
    kit_http_delete(http, path, &reply);
    int status = reply.status;
    reply_release(&reply);
    return status;
}

void judge(const char *part, struct site *site, const struct history *history, const struct facts *facts)
{
    char message[MESSAGE_SIZE] = "";
    if (!check_statuses(history, false, message) || !check_capacity(history, facts, message) ||
        !check_keys(history, facts, message) || !check_tokens(history, facts, message) ||
        !check_ends(history, facts, message) || !rows_check(site->sql, message) || !rows_check_past(site->sql, message))
        kit_fail("%s: %s", part, message);
}

/* ---- the inspector ---- */

static void *inspector_run(void *context)
{
    struct inspector *inspector = context;
    struct kit_sql *sql = site_sql(inspector->database);
    char message[MESSAGE_SIZE];
    for (; !atomic_load(&inspector->stopping); inspector->rounds++) {
        if (!rows_check(sql, message))
            kit_fail("at work: %s", message);
        kit_sleep_ms(INSPECT_EVERY_MS);
    }
    kit_sql_close(sql);
    return NULL;
}

void inspector_start(struct inspector *inspector, const struct site *site)
{
    *inspector = (struct inspector){.database = site->database};
    KIT_CHECK(!pthread_create(&inspector->thread, NULL, inspector_run, inspector));
}

void inspector_stop(struct inspector *inspector)
{
    atomic_store(&inspector->stopping, true);
    pthread_join(inspector->thread, NULL);
}
