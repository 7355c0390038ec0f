/* SPDX-License-Identifier: MIT */
/*
 * P22: what was answered is what the rows say. A stranger's transaction keeps a row for longer than a call may take;
 * the call is answered 503; then the row is free, and nothing of the call may be written any more.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "support.h"

enum { LONG_MS = 120000 };

/* A permitd whose calls end soon, on a database of its own, and the stranger. */
struct scene {
    struct kit_permitd *permitd;
    struct kit_sql *stranger;
    struct talk talk;
};

/* One worker, so that a later batch has its turn only after the one that was held up. */
static struct scene scene_set(const char *request_timeout)
{
    const char *const flags[] = {"--request-timeout", request_timeout, "--workers", "1", NULL};
    struct scene scene = {.permitd = own_permitd(flags), .stranger = own_sql("own0")};
    scene.talk = talk_to(scene.permitd->port);
    say_until(&scene.talk, 200, "PUT", "/v1/semaphores/s", "{\"capacity\":100}");
    return scene;
}

static void scene_end(struct scene *scene)
{
    talk_end(&scene->talk);
    kit_sql_close(scene->stranger);
    kit_permitd_stop(scene->permitd);
}

/* A statement of permitd waits for what the stranger keeps. */
static bool statement_waits(void *stranger)
{
    return kit_sql_lock_waits(stranger, own_database("own0")) > 0;
}

static void keep(struct scene *scene, const char *query)
{
    kit_sql_run(scene->stranger, "BEGIN");
    (void)kit_sql_number(scene->stranger, "%s", query);
}

static const char keep_semaphore[] = "SELECT id FROM semaphore WHERE name = 's' FOR UPDATE";

/* A call that is answered 503 while the row is kept; which 503 it was. */
static bool is_busy_while_kept(struct scene *scene, const char *method, const char *path, const char *body)
{
    tell(&scene->talk, method, path, body);
    cr_assert(kit_wait_until(statement_waits, scene->stranger, LONG_MS));
    hear(&scene->talk, 503, NULL);
    return kit_json_text_is(scene->talk.reply.body, "type", "/problems/busy");
}

/* The row is free, and the batch that waited for it is over: a later one on the same semaphore was decided. */
static void let_go(struct scene *scene)
{
    kit_sql_run(scene->stranger, "ROLLBACK");
    say_until(&scene->talk, 200, "POST", "/v1/requests",
              "{\"external_id\":\"later\",\"permits\":[{\"semaphore\":\"s\"}]}");
}

Test(refusals, busy_acquire_is_never_granted, .timeout = 300)
{
    struct scene scene = scene_set("1s");
    keep(&scene, keep_semaphore);
    cr_assert(is_busy_while_kept(&scene, "POST", "/v1/requests",
                                 "{\"external_id\":\"k\",\"permits\":[{\"semaphore\":\"s\"}]}"),
              "%s", scene.talk.reply.body);
    let_go(&scene);
    refused(&scene.talk, 404, "unknown_request", "GET", "/v1/requests/k", NULL);
    scene_end(&scene);
}

Test(refusals, busy_release_is_never_done, .timeout = 300)
{
    struct scene scene = scene_set("1s");
    say_until(&scene.talk, 200, "POST", "/v1/requests",
              "{\"external_id\":\"k\",\"ttl\":\"1h\",\"permits\":[{\"semaphore\":\"s\"}]}");
    keep(&scene, keep_semaphore);
    cr_assert(is_busy_while_kept(&scene, "DELETE", "/v1/requests/k", NULL), "%s", scene.talk.reply.body);
    let_go(&scene);
    say_until(&scene.talk, 200, "GET", "/v1/requests/k", NULL);
    text_is(&scene.talk, "state", "ACQUIRED");
    scene_end(&scene);
}

/* One part may have been in a transaction that was sent; the parts that were not are never sent. */
Test(refusals, parts_of_an_unanswered_batch_are_never_granted, .timeout = 300)
{
    struct scene scene = scene_set("1s");
    say_until(&scene.talk, 200, "PUT", "/v1/semaphores/free", "{\"capacity\":100}");
    keep(&scene, keep_semaphore);
    bool busy = is_busy_while_kept(
        &scene, "POST", "/v1/batch",
        "{\"operations\":[{\"op\":\"acquire\",\"external_id\":\"f\",\"permits\":[{\"semaphore\":\"free\"}]},"
        "{\"op\":\"acquire\",\"external_id\":\"k\",\"permits\":[{\"semaphore\":\"s\"}]}]}");
    let_go(&scene);
    refused(&scene.talk, 404, "unknown_request", "GET", "/v1/requests/k", NULL);
    if (busy)
        refused(&scene.talk, 404, "unknown_request", "GET", "/v1/requests/f", NULL);
    scene_end(&scene);
}

Test(refusals, busy_heartbeat_is_never_written, .timeout = 300)
{
    struct scene scene = scene_set("500ms"); /* permitd waits 1 s for the row of an owner */
    say_until(&scene.talk, 200, "PUT", "/v1/owners/o", "{\"ttl\":\"1h\"}");
    keep(&scene, "SELECT ttl_ms FROM owner WHERE name = 'o' FOR UPDATE");
    cr_assert(is_busy_while_kept(&scene, "PUT", "/v1/owners/o", "{\"ttl\":\"2h\"}"), "%s", scene.talk.reply.body);
    kit_sql_run(scene.stranger, "ROLLBACK");
    say_until(&scene.talk, 201, "PUT", "/v1/owners/later", "{\"ttl\":\"1h\"}");
    cr_assert_eq(kit_sql_number(scene.stranger, "SELECT ttl_ms FROM owner WHERE name = 'o'"), 3600000);
    scene_end(&scene);
}

static struct talk second_put(const struct scene *scene)
{
    struct talk talk = talk_to(scene->permitd->port);
    tell(&talk, "PUT", "/v1/templates/t:", "{\"capacity\":3}");
    return talk;
}

/* Templates are written by a look: one that has not begun at its deadline never begins. */
Test(refusals, busy_template_is_never_written, .timeout = 300)
{
    struct scene scene = scene_set("1s");
    say_until(&scene.talk, 200, "PUT", "/v1/templates/t:", "{\"capacity\":1}");
    keep(&scene, "SELECT capacity FROM template WHERE prefix = 't:' FOR UPDATE");
    tell(&scene.talk, "PUT", "/v1/templates/t:", "{\"capacity\":2}");
    cr_assert(kit_wait_until(statement_waits, scene.stranger, LONG_MS));
    struct talk second = second_put(&scene);
    hear(&scene.talk, 503, "outcome_unknown");
    hear(&second, 503, NULL);
    bool busy = kit_json_text_is(second.reply.body, "type", "/problems/busy");
    kit_sql_run(scene.stranger, "ROLLBACK");
    say_until(&scene.talk, 200, "GET", "/v1/templates/t:", NULL);
    say_until(&scene.talk, 201, "PUT", "/v1/templates/later:", "{\"capacity\":1}");
    int64_t capacity = kit_sql_number(scene.stranger, "SELECT capacity FROM template WHERE prefix = 't:'");
    cr_assert(!busy || capacity != 3, "the second PUT was answered busy and was written");
    talk_end(&second);
    scene_end(&scene);
}
