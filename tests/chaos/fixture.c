/* SPDX-License-Identifier: MIT */
/* Starts servers and sends short calls. */
#include "fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * AUDIT_MS: the audit rests thirty times as long as it runs, so it is very slow on a slow machine. AUDIT_LOOK_MS: a metric
 * costs permitd and the database more than a look at a row.
 */
enum { PATH_SIZE = 512, BODY_SIZE = 512, INSPECT_EVERY_MS = 200, AUDIT_MS = 600000, AUDIT_LOOK_MS = 250 };

struct kit_sql *fixture_sql(const struct kit_database *database)
{
    struct kit_sql *sql = kit_sql_open(database->socket, "permitd");
    kit_sql_run(sql, "SET time_zone = '+00:00'");
    kit_sql_run(sql, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED");
    return sql;
}

void fixture_start_permitd(struct fixture *fixture)
{
    struct kit_permitd_options options = {.database = fixture->database->url, .flags = fixture->flags};
    for (size_t i = 0; i < fixture->count; i++)
        fixture->permitd[i] = kit_permitd_start(&options);
}

void fixture_stop_permitd(struct fixture *fixture)
{
    for (size_t i = 0; i < fixture->count; i++)
        kit_permitd_stop(fixture->permitd[i]);
}

static void fixture_start_on(struct fixture *fixture, struct kit_database *database)
{
    fixture->database = database;
    fixture_start_permitd(fixture);
    fixture->sql = fixture_sql(database);
    fixture->one_queue = kit_sql_number(fixture->sql, "SELECT COUNT(*) FROM information_schema.tables WHERE "
                                                      "table_schema = 'permitd' AND table_name = 'waiter'") == 1;
}

struct fixture fixture_start(size_t permitd_count, bool shifted)
{
    /* All clients of a test have one address. */
    static const char *const flags[] = {"--max-connections-per-address", "16384", NULL};
    struct fixture fixture = {.count = permitd_count, .flags = flags};
    fixture_start_on(&fixture, shifted ? kit_database_start_shifted(NULL) : kit_database_start(NULL));
    return fixture;
}

struct fixture fixture_start_with(size_t permitd_count, const char *const *flags)
{
    struct fixture fixture = {.count = permitd_count, .flags = flags};
    fixture_start_on(&fixture, kit_database_start(NULL));
    return fixture;
}

void fixture_stop(struct fixture *fixture)
{
    fixture_stop_permitd(fixture);
    kit_sql_close(fixture->sql);
    kit_database_stop(fixture->database);
}

void fixture_semaphore(struct fixture *fixture, const char *name, const char *body)
{
    struct kit_http http = kit_http(fixture->permitd[0]->port);
    struct reply reply;
    char path[PATH_SIZE];
    snprintf(path, sizeof(path), "/v1/semaphores/%s", name);
    if (!kit_http_put(&http, path, body, &reply) || reply.status != 201)
        kit_fail("PUT %s: %d %s", path, reply.status, reply.body);
    reply_release(&reply);
    kit_http_close(&http);
}

void fixture_world(const struct fixture *fixture, struct world *world)
{
    world->permitd_count = fixture->count;
    for (size_t i = 0; i < fixture->count; i++)
        atomic_store(&world->ports[i], fixture->permitd[i]->port);
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

double permitd_metric(unsigned port, const char *name)
{
    struct kit_http http = kit_http(port);
    struct reply reply;
    if (!kit_http_get(&http, "/metrics", &reply) || reply.status != 200)
        kit_fail("GET /metrics: %d", reply.status);
    double value = metric_of(reply.body, name);
    reply_release(&reply);
    kit_http_close(&http);
    return value;
}

double fixture_metric(const struct fixture *fixture, const char *name)
{
    double sum = 0;
    for (size_t i = 0; i < fixture->count; i++)
        sum += permitd_metric(fixture->permitd[i]->port, name);
    return sum;
}

double permitd_audit(const unsigned *ports, size_t count)
{
    double ends[PERMITD_MAX], drifts = 0;
    int64_t end = kit_now_us() + AUDIT_MS * INT64_C(1000);
    KIT_CHECK(count <= PERMITD_MAX);
    for (size_t i = 0; i < count; i++)
        ends[i] = permitd_metric(ports[i], "permitd_audit_rounds_total") + 2;
    for (size_t i = 0; i < count; i++) {
        while (permitd_metric(ports[i], "permitd_audit_rounds_total") < ends[i]) {
            if (kit_now_us() > end)
                kit_fail("the audit does not complete two rounds");
            kit_sleep_ms(AUDIT_LOOK_MS);
        }
        drifts += permitd_metric(ports[i], "permitd_usage_drift");
    }
    return drifts;
}

size_t fixture_waiting(const struct fixture *fixture, const char *semaphore)
{
    int64_t sum = 0;
    char path[PATH_SIZE];
    if (fixture->one_queue)
        return (size_t)kit_sql_number(fixture->sql, "SELECT waiting FROM semaphore WHERE name = '%s'", semaphore);
    snprintf(path, sizeof(path), "/v1/semaphores/%s", semaphore);
    for (size_t i = 0; i < fixture->count; i++) {
        struct kit_http http = kit_http(fixture->permitd[i]->port);
        struct reply reply;
        if (!kit_http_get(&http, path, &reply) || reply.status != 200)
            kit_fail("GET %s: %d %s", path, reply.status, reply.body);
        sum += kit_json_int(reply.body, "waiting");
        reply_release(&reply);
        kit_http_close(&http);
    }
    return (size_t)sum;
}

void fixture_await_waiting(const struct fixture *fixture, const char *semaphore, size_t count, int ms)
{
    int64_t end = kit_now_us() + (int64_t)ms * 1000;
    size_t waiting;
    while ((waiting = fixture_waiting(fixture, semaphore)) != count) {
        if (kit_now_us() > end)
            kit_fail("%zu wait for %s, not %zu, after %d ms", waiting, semaphore, count, ms);
        kit_sleep_ms(count > 1000 ? 50 : 2);
    }
}

int64_t fixture_clock_us(struct fixture *fixture)
{
    return kit_sql_number(fixture->sql, "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6))");
}

static void take_deadlocks(void *context, char **columns)
{
    *(int64_t *)context = strtoll(columns[1], NULL, 10);
}

int64_t fixture_deadlocks(struct fixture *fixture)
{
    int64_t deadlocks = -1; /* if the server does not count them */
    kit_sql_each(fixture->sql, "SHOW GLOBAL STATUS LIKE 'Innodb_deadlocks'", take_deadlocks, &deadlocks);
    return deadlocks;
}

int64_t fixture_held(struct fixture *fixture)
{
    return kit_sql_number(fixture->sql, "SELECT COUNT(*) FROM permit_request WHERE state = 1");
}

static bool is_empty(void *context)
{
    return fixture_held(context) == 0;
}

bool fixture_wait_empty(struct fixture *fixture, int ms)
{
    return kit_wait_until(is_empty, fixture, ms);
}

int fixture_acquire(struct kit_http *http, const char *key, const char *semaphore, unsigned count, const char *ttl,
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

int fixture_acquire_waiting(struct kit_http *http, const char *key, const char *semaphore, unsigned count,
                            const char *wait, struct reply *ret_reply)
{
    char body[BODY_SIZE];
    write_waiting(body, key, semaphore, count, wait);
    kit_http_post(http, "/v1/requests", body, ret_reply);
    return ret_reply->status;
}

void fixture_send_waiting(struct kit_http *http, const char *key, const char *semaphore, unsigned count,
                          const char *wait)
{
    char body[BODY_SIZE];
    write_waiting(body, key, semaphore, count, wait);
    if (!kit_http_send(http, "POST", "/v1/requests", NULL, body))
        kit_fail("%s cannot ask for %s", key, semaphore);
}

int fixture_renew(struct kit_http *http, const char *key, struct reply *ret_reply)
{
    char path[PATH_SIZE];
    snprintf(path, sizeof(path), "/v1/requests/%s/renew", key);
    kit_http_post(http, path, NULL, ret_reply);
    return ret_reply->status;
}

int fixture_release(struct kit_http *http, const char *key)
{
    char path[PATH_SIZE];
    struct reply reply;
    snprintf(path, sizeof(path), "/v1/requests/%s", key);
    kit_http_delete(http, path, &reply);
    int status = reply.status;
    reply_release(&reply);
    return status;
}

void judge(const char *part, struct fixture *fixture, const struct history *history, const struct facts *facts)
{
    char message[MESSAGE_SIZE] = "";
    if (!check_statuses(history, false, message) || !check_capacity(history, facts, message) ||
        !check_keys(history, facts, message) || !check_tokens(history, facts, message) ||
        !check_ends(history, facts, message) || !rows_check(fixture->sql, message) ||
        !rows_check_past(fixture->sql, message))
        kit_fail("%s: %s", part, message);
}

/* ---- the inspector ---- */

static void *inspector_run(void *context)
{
    struct inspector *inspector = context;
    struct kit_sql *sql = fixture_sql(inspector->database);
    char message[MESSAGE_SIZE];
    for (; !atomic_load(&inspector->stopping); inspector->rounds++) {
        if (!rows_check(sql, message))
            kit_fail("at work: %s", message);
        kit_sleep_ms(INSPECT_EVERY_MS);
    }
    kit_sql_close(sql);
    return NULL;
}

void inspector_start(struct inspector *inspector, const struct fixture *fixture)
{
    *inspector = (struct inspector){.database = fixture->database};
    KIT_CHECK(!pthread_create(&inspector->thread, NULL, inspector_run, inspector));
}

void inspector_stop(struct inspector *inspector)
{
    atomic_store(&inspector->stopping, true);
    pthread_join(inspector->thread, NULL);
}
