/* SPDX-License-Identifier: MIT */
/*
 * P22: the answer agrees with the rows. Another transaction locks a row for longer than a call may take, and the call
 * is answered 503. After the row is free, permitd must not write anything of that call.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "fixture.h"

enum { LONG_MS = 120000 };
#define WITH_SHORT_PATH    "--short-path=on"
#define WITHOUT_SHORT_PATH "--short-path=off"

/* A permitd with a short request timeout on its own database, and the session that locks rows. */
struct scene {
    struct kit_permitd *permitd;
    struct kit_sql *locker;
    struct talk talk;
};

/* One worker, so that a later batch runs only after the blocked one. */
static struct scene scene_set(const char *request_timeout, const char *short_path)
{
    const char *const flags[] = {"--request-timeout", request_timeout, "--workers", "1", short_path, NULL};
    struct scene scene = {.permitd = own_permitd(flags), .locker = own_sql("own0")};
    scene.talk = talk_to(scene.permitd->port);
    say_until(&scene.talk, 200, "PUT", "/v1/semaphores/s", "{\"capacity\":100}");
    return scene;
}

static void scene_end(struct scene *scene)
{
    talk_end(&scene->talk);
    kit_sql_close(scene->locker);
    kit_permitd_stop(scene->permitd);
}

/* Returns true if a statement of permitd waits for a locked row. */
static bool statement_waits(void *locker)
{
    return kit_sql_lock_waits(locker, own_database("own0")) > 0;
}

static void lock_row(struct scene *scene, const char *query)
{
    kit_sql_run(scene->locker, "BEGIN");
    (void)kit_sql_number(scene->locker, "%s", query);
}

static const char lock_semaphore[] = "SELECT id FROM semaphore WHERE name = 's' FOR UPDATE";

/* Sends a call that is answered 503 while the row is locked. Returns true if the problem is busy. */
static bool is_busy_while_locked(struct scene *scene, const char *method, const char *path, const char *body)
{
    tell(&scene->talk, method, path, body);
    cr_assert(kit_wait_until(statement_waits, scene->locker, LONG_MS));
    hear(&scene->talk, 503, NULL);
    return kit_json_text_is(scene->talk.reply.body, "type", "/problems/busy");
}

/* Unlocks the row, and waits until a later batch on the same semaphore is decided; then the blocked batch is over. */
static void unlock_row(struct scene *scene)
{
    kit_sql_run(scene->locker, "ROLLBACK");
    say_until(&scene->talk, 200, "POST", "/v1/requests",
              "{\"external_id\":\"later\",\"permits\":[{\"semaphore\":\"s\"}]}");
}

Test(refusals, busy_acquire_is_never_granted, .timeout = 300)
{
    struct scene scene = scene_set("1s", WITH_SHORT_PATH);
    lock_row(&scene, lock_semaphore);
    cr_assert(is_busy_while_locked(&scene, "POST", "/v1/requests",
                                   "{\"external_id\":\"k\",\"permits\":[{\"semaphore\":\"s\"}]}"),
              "%s", scene.talk.reply.body);
    unlock_row(&scene);
    refused(&scene.talk, 404, "unknown_request", "GET", "/v1/requests/k", NULL);
    scene_end(&scene);
}

enum { ROUNDS = 20 };

/*
 * Its one packet has been sent, and might have been committed. Its guard of the time stops it when it gets the lock. A batch
 * without fresh copies, as after a late tick, locks first: that release is busy, and the next one finds copies.
 */
Test(refusals, release_whose_packet_waits_too_long_is_unknown_and_never_done, .timeout = 300)
{
    struct scene scene = scene_set("1s", WITH_SHORT_PATH);
    say_until(&scene.talk, 200, "POST", "/v1/requests",
              "{\"external_id\":\"k\",\"ttl\":\"1h\",\"permits\":[{\"semaphore\":\"s\"}]}");
    bool unknown = false;
    for (int round = 0; round < ROUNDS && !unknown; round++) {
        lock_row(&scene, lock_semaphore);
        unknown = !is_busy_while_locked(&scene, "DELETE", "/v1/requests/k", NULL);
        cr_assert(!unknown || kit_json_text_is(scene.talk.reply.body, "type", "/problems/outcome_unknown"), "%s",
                  scene.talk.reply.body);
        unlock_row(&scene);
        say_until(&scene.talk, 200, "GET", "/v1/requests/k", NULL);
        text_is(&scene.talk, "state", "ACQUIRED");
    }
    cr_assert(unknown, "no release was sent in one packet");
    scene_end(&scene);
}

Test(refusals, busy_release_is_never_done, .timeout = 300)
{
    struct scene scene = scene_set("1s", WITHOUT_SHORT_PATH);
    say_until(&scene.talk, 200, "POST", "/v1/requests",
              "{\"external_id\":\"k\",\"ttl\":\"1h\",\"permits\":[{\"semaphore\":\"s\"}]}");
    lock_row(&scene, lock_semaphore);
    cr_assert(is_busy_while_locked(&scene, "DELETE", "/v1/requests/k", NULL), "%s", scene.talk.reply.body);
    unlock_row(&scene);
    say_until(&scene.talk, 200, "GET", "/v1/requests/k", NULL);
    text_is(&scene.talk, "state", "ACQUIRED");
    scene_end(&scene);
}

/* One operation may have been in a transaction that was sent; the others are never sent. */
Test(refusals, operations_of_a_timed_out_batch_are_never_granted, .timeout = 300)
{
    struct scene scene = scene_set("1s", WITH_SHORT_PATH);
    say_until(&scene.talk, 200, "PUT", "/v1/semaphores/free", "{\"capacity\":100}");
    lock_row(&scene, lock_semaphore);
    bool busy = is_busy_while_locked(
        &scene, "POST", "/v1/batch",
        "{\"operations\":[{\"op\":\"acquire\",\"external_id\":\"f\",\"permits\":[{\"semaphore\":\"free\"}]},"
        "{\"op\":\"acquire\",\"external_id\":\"k\",\"permits\":[{\"semaphore\":\"s\"}]}]}");
    unlock_row(&scene);
    refused(&scene.talk, 404, "unknown_request", "GET", "/v1/requests/k", NULL);
    if (busy)
        refused(&scene.talk, 404, "unknown_request", "GET", "/v1/requests/f", NULL);
    scene_end(&scene);
}

static bool is_held(struct talk *talk, int number)
{
    tell(talk, "GET", text("/v1/requests/t%d", number), NULL);
    reply_release(&talk->reply);
    return kit_http_receive(&talk->http, "GET", &talk->reply) && talk->reply.status == 200;
}

/* A batch whose acquires want the locked semaphores s and u, and free. */
struct mixed {
    struct talk *talk;
    double timed_out; /* row locks that permitd had not got before */
    int number;       /* of the call; tN is the key of its acquire of free alone */
    bool held;
};

static double locks_timed_out(struct talk *talk)
{
    return metric_of(talk, "permitd_batch_retries_total{reason=\"lock_timeout\"}");
}

/*
 * True if the last acquire is granted, or if it is not though each part of a whole batch has waited for its row: first all
 * together, then those of s, then those of u.
 */
static bool is_held_or_came_apart(void *context)
{
    enum { WAITS = 3 };
    struct mixed *mixed = context;
    double timed_out = locks_timed_out(mixed->talk);
    mixed->held = is_held(mixed->talk, mixed->number);
    return mixed->held || timed_out > mixed->timed_out + WAITS;
}

/*
 * P23: a locked row delays the operations of its semaphore only, also those that came together with others. The worker may
 * take the first ones of the call before the others have come, and waits with them then: the call is made again.
 */
Test(refusals, locked_row_delays_only_its_part_of_a_batch, .timeout = 300)
{
    enum { TRIES = 6 };
    struct scene scene = scene_set("2m", WITH_SHORT_PATH);
    struct talk other = talk_to(scene.permitd->port);
    struct mixed mixed = {.talk = &other};
    say_until(&scene.talk, 200, "PUT", "/v1/semaphores/free", "{\"capacity\":100}");
    say_until(&scene.talk, 200, "PUT", "/v1/semaphores/u", "{\"capacity\":100}");
    for (int i = 0; i < TRIES && !mixed.held; i++) {
        lock_row(&scene, lock_semaphore);
        (void)kit_sql_number(scene.locker, "SELECT id FROM semaphore WHERE name = 'u' FOR UPDATE");
        mixed.timed_out = locks_timed_out(&other);
        mixed.number = i;
        tell(&scene.talk, "POST", "/v1/batch",
             text("{\"operations\":[{\"op\":\"acquire\",\"external_id\":\"k%d\",\"permits\":[{\"semaphore\":\"s\"}]},"
                  "{\"op\":\"acquire\",\"external_id\":\"l%d\",\"permits\":[{\"semaphore\":\"s\"},{\"semaphore\":"
                  "\"free\"}]},"
                  "{\"op\":\"acquire\",\"external_id\":\"m%d\",\"permits\":[{\"semaphore\":\"u\"}]},"
                  "{\"op\":\"acquire\",\"external_id\":\"t%d\",\"permits\":[{\"semaphore\":\"free\"}]}]}",
                  i, i, i, i));
        cr_assert(kit_wait_until(is_held_or_came_apart, &mixed, LONG_MS));
        if (mixed.held) /* each part waits for its own row now */
            cr_assert(kit_wait_until(statement_waits, scene.locker, LONG_MS));
        kit_sql_run(scene.locker, "ROLLBACK");
        hear(&scene.talk, 200, NULL);
        for (int j = 0; j < 4; j++)
            cr_expect_eq(number_of(&scene.talk, text("results.%d.status", j)), 201, "%s", scene.talk.reply.body);
    }
    cr_expect(mixed.held);
    talk_end(&other);
    scene_end(&scene);
}

Test(refusals, busy_heartbeat_is_never_written, .timeout = 300)
{
    struct scene scene = scene_set("500ms", WITH_SHORT_PATH); /* permitd waits 1 s for the row of an owner */
    say_until(&scene.talk, 200, "PUT", "/v1/owners/o", "{\"ttl\":\"1h\"}");
    lock_row(&scene, "SELECT ttl_ms FROM owner WHERE name = 'o' FOR UPDATE");
    cr_assert(is_busy_while_locked(&scene, "PUT", "/v1/owners/o", "{\"ttl\":\"2h\"}"), "%s", scene.talk.reply.body);
    kit_sql_run(scene.locker, "ROLLBACK");
    say_until(&scene.talk, 201, "PUT", "/v1/owners/later", "{\"ttl\":\"1h\"}");
    cr_assert_eq(kit_sql_number(scene.locker, "SELECT ttl_ms FROM owner WHERE name = 'o'"), 3600000);
    scene_end(&scene);
}

static struct talk second_put(const struct scene *scene)
{
    struct talk talk = talk_to(scene->permitd->port);
    tell(&talk, "PUT", "/v1/templates/t:", "{\"capacity\":3}");
    return talk;
}

/* Templates are written by a query of the engine: a call that has not begun at its deadline never begins. */
Test(refusals, busy_template_is_never_written, .timeout = 300)
{
    struct scene scene = scene_set("1s", WITH_SHORT_PATH);
    say_until(&scene.talk, 200, "PUT", "/v1/templates/t:", "{\"capacity\":1}");
    lock_row(&scene, "SELECT capacity FROM template WHERE prefix = 't:' FOR UPDATE");
    tell(&scene.talk, "PUT", "/v1/templates/t:", "{\"capacity\":2}");
    cr_assert(kit_wait_until(statement_waits, scene.locker, LONG_MS));
    struct talk second = second_put(&scene);
    hear(&scene.talk, 503, "outcome_unknown");
    hear(&second, 503, NULL);
    bool busy = kit_json_text_is(second.reply.body, "type", "/problems/busy");
    kit_sql_run(scene.locker, "ROLLBACK");
    say_until(&scene.talk, 200, "GET", "/v1/templates/t:", NULL);
    say_until(&scene.talk, 201, "PUT", "/v1/templates/later:", "{\"capacity\":1}");
    int64_t capacity = kit_sql_number(scene.locker, "SELECT capacity FROM template WHERE prefix = 't:'");
    cr_assert(!busy || capacity != 3, "the second PUT was answered busy and was written");
    talk_end(&second);
    scene_end(&scene);
}
