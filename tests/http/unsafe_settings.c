/* SPDX-License-Identifier: MIT */
/* P14 at run time: a setting of the database becomes unsafe, and safe again. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "fixture.h"

enum { NOTICE_MS = 60000 }; /* permitd checks every 5 s; a slow machine takes longer */

static const char acquire_format[] = "{\"external_id\":\"%s\",\"permits\":[{\"semaphore\":\"s\"}]}";

/* A server with a binary log, and a permitd on it. */
struct scene {
    struct kit_database *database;
    struct kit_permitd *permitd;
    struct kit_sql *sql;
    struct talk talk;
};

static struct scene scene_set(void)
{
    static const char *const flags[] = {"--log-bin", "--server-id=1", "--sync-binlog=1", "--binlog-format=ROW", NULL};
    struct scene scene = {.database = kit_database_start(flags)};
    scene.permitd = kit_permitd_start(&(struct kit_permitd_options){.database = scene.database->url});
    scene.sql = kit_sql_open(scene.database->socket, "permitd");
    scene.talk = talk_to(scene.permitd->port);
    say(&scene.talk, 201, "PUT", "/v1/semaphores/s", "{\"capacity\":100}");
    return scene;
}

static void scene_end(struct scene *scene)
{
    talk_end(&scene->talk);
    kit_sql_close(scene->sql);
    kit_permitd_stop(scene->permitd);
    kit_database_stop(scene->database);
}

static bool answers_ready(struct talk *talk)
{
    reply_release(&talk->reply);
    cr_assert(kit_http_get(&talk->http, "/readyz", &talk->reply), "%s", talk->reply.error);
    return talk->reply.status == 200;
}

static bool is_ready(void *talk)
{
    return answers_ready(talk);
}

static bool is_not_ready(void *talk)
{
    return !answers_ready(talk);
}

static void metric_is(struct talk *talk, const char *line)
{
    reply_release(&talk->reply);
    cr_assert(kit_http_get(&talk->http, "/metrics", &talk->reply));
    cr_assert_eq(talk->reply.status, 200);
    cr_assert(strstr(talk->reply.body, line), "no %s in %s", line, talk->reply.body);
}

/* Asserts that no answer states a fact, and that each refusal names the fix. */
static void refuses_all(struct talk *talk, const char *fix)
{
    static const struct {
        const char *method, *path, *body;
    } calls[] = {
        {"POST", "/v1/requests", "{\"permits\":[{\"semaphore\":\"s\"}]}"},
        {"DELETE", "/v1/requests/held", NULL},
        {"POST", "/v1/requests/held/renew", NULL},
        {"PUT", "/v1/semaphores/s", "{\"capacity\":5}"},
        {"GET", "/v1/requests/held", NULL},
        {"GET", "/v1/semaphores/s", NULL},
        {"GET", "/v1/semaphores/s/fence?token=1", NULL},
    };
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        refused(talk, 503, "database_unavailable", calls[i].method, calls[i].path, calls[i].body);
        detail_has(talk, fix);
    }
    say(talk, 200, "POST", "/v1/batch", "{\"operations\":[{\"op\":\"release\",\"external_id\":\"held\"}]}");
    cr_assert_eq(number_of(talk, "results.0.status"), 503);
    cr_assert(strstr(talk->reply.body, fix), "%s", talk->reply.body);
    metric_is(talk, "permitd_database_up 0");
    say(talk, 200, "GET", "/healthz", NULL);
}

static void doctor_refuses(struct talk *talk, const char *fix)
{
    say(talk, 200, "GET", "/v1/doctor", NULL);
    cr_assert_eq(number_of(talk, "refusals"), 1, "%s", talk->reply.body);
    long count = kit_json_length(talk->reply.body, "findings"), refusals = 0;
    for (long i = 0; i < count; i++) {
        char *sentence = kit_json_text(talk->reply.body, text("findings.%ld.sentence", i));
        if (kit_json_text_is(talk->reply.body, text("findings.%ld.verdict", i), "refuse")) {
            refusals++;
            cr_assert(strstr(sentence, fix), "%s", sentence);
        }
        free(sentence);
    }
    cr_assert_eq(refusals, 1);
}

Test(unsafe_settings, unsafe_settings_and_their_fixes_are_detected, .timeout = 600)
{
    static const struct {
        const char *set, *back, *fix;
    } rows[] = {
        {"SET GLOBAL innodb_flush_log_at_trx_commit = 2", "SET GLOBAL innodb_flush_log_at_trx_commit = 1",
         "SET GLOBAL innodb_flush_log_at_trx_commit = 1"},
        {"SET GLOBAL sync_binlog = 0", "SET GLOBAL sync_binlog = 1", "SET GLOBAL sync_binlog = 1"},
        {"SET GLOBAL read_only = ON", "SET GLOBAL read_only = OFF", "SET GLOBAL read_only = OFF"},
        {"ALTER TABLE slot ENGINE=MyISAM", "ALTER TABLE slot ENGINE=InnoDB", "ENGINE=InnoDB"},
        {"INSERT INTO schema_version (version, name) VALUES (900, 'of tomorrow')",
         "DELETE FROM schema_version WHERE version = 900", "run the newer permitd"},
    };
    struct scene scene = scene_set();
    struct talk *talk = &scene.talk;
    say(talk, 201, "POST", "/v1/requests", text(acquire_format, "held"));
    int64_t token = number_of(talk, "permits.0.token");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        kit_sql_run(scene.sql, "%s", rows[i].set);
        cr_assert(kit_wait_until(is_not_ready, talk, NOTICE_MS), "%s is not noticed", rows[i].set);
        refused(talk, 503, "database_unavailable", "GET", "/readyz", NULL);
        detail_has(talk, rows[i].fix);
        refuses_all(talk, rows[i].fix);
        doctor_refuses(talk, rows[i].fix);
        cr_assert_eq(log_count(scene.permitd, "unsafe database settings"), i + 1, "logged once on each change");
        kit_sql_run(scene.sql, "%s", rows[i].back);
        cr_assert(kit_wait_until(is_ready, talk, NOTICE_MS), "%s is not noticed", rows[i].back);
        say(talk, 201, "POST", "/v1/requests", text(acquire_format, fresh_name("k")));
        metric_is(talk, "permitd_database_up 1");
        cr_assert_eq(log_count(scene.permitd, "database settings are safe again"), i + 1, "logged once on each change");
    }
    say(talk, 200, "POST", "/v1/requests", text(acquire_format, "held"));
    cr_assert_eq(number_of(talk, "permits.0.token"), token, "what was held is held");
    scene_end(&scene);
}

/* P14: an unsafe database ends the start with status 1 and the list of faults. */
Test(unsafe_settings, permitd_does_not_start_and_lists_all_faults, .timeout = 180)
{
    static const char *const flags[] = {"--unsafe-multi-writer", NULL}; /* does not cover these settings */
    struct scene scene = scene_set();
    kit_sql_run(scene.sql, "SET GLOBAL innodb_flush_log_at_trx_commit = 0");
    kit_sql_run(scene.sql, "SET GLOBAL sync_binlog = 0");
    struct kit_permitd *second =
        kit_permitd_spawn(&(struct kit_permitd_options){.database = scene.database->url, .flags = flags});
    int status = kit_permitd_wait_end(second, NOTICE_MS);
    char *log = kit_read_file(second->log_path);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 1, "status %d: %s", status, log);
    cr_assert(strstr(log, "SET GLOBAL innodb_flush_log_at_trx_commit = 1"), "%s", log);
    cr_assert(strstr(log, "SET GLOBAL sync_binlog = 1"), "%s", log);
    free(log);
    kit_permitd_kill(second);
    scene_end(&scene);
}

/* A worker checks a new connection itself, before the next safety check, so an unsafe server gets no grant. */
Test(unsafe_settings, new_connection_to_an_unsafe_server_grants_nothing, .timeout = 180)
{
    struct scene scene = scene_set();
    struct talk *talk = &scene.talk;
    kit_database_kill(scene.database);
    kit_sql_close(scene.sql);
    static const char *const flags[] = {"--log-bin", "--server-id=1", "--sync-binlog=0", "--binlog-format=ROW", NULL};
    scene.database->flags = flags;
    kit_database_restart(scene.database);
    scene.sql = kit_sql_open(scene.database->socket, "permitd");
    int64_t end = kit_now_us() + NOTICE_MS * 1000LL;
    do
        refused(talk, 503, "database_unavailable", "POST", "/v1/requests", text(acquire_format, fresh_name("k")));
    while (!strstr(talk->reply.body, "SET GLOBAL sync_binlog = 1") && kit_now_us() < end);
    detail_has(talk, "SET GLOBAL sync_binlog = 1");
    cr_assert_eq(kit_sql_number(scene.sql, "SELECT COUNT(*) FROM permit_request"), 0);
    kit_sql_run(scene.sql, "SET GLOBAL sync_binlog = 1");
    cr_assert(kit_wait_until(is_ready, talk, NOTICE_MS));
    say(talk, 201, "POST", "/v1/requests", text(acquire_format, "k"));
    scene_end(&scene);
}
