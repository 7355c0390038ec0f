/* SPDX-License-Identifier: MIT */
/*
 * Namespaces: tenants that use the same keys and owners on the same semaphores, through two permitd and a restart. None
 * sees, blocks or harms a key of another one.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "../unit/random.h"
#include "fixture.h"

enum { LONG_MS = 120000, BOTH = 2 };

/*
 * The tenants come first. PLAIN has no namespace, CLERK shares that of SHOP. The scope of FOREMAN is that of SHOP alone, those
 * of LEFT and RIGHT are everything.
 */
enum { SHOP, BANK, PLAIN, TENANTS, CLERK = TENANTS, OPERATOR, FOREMAN, SCRAPER, LEFT, RIGHT, PEOPLE };

static const struct person {
    const char *name;
    const char *role;
    const char *namespace; /* "": none */
    const char *token;
    const char *digest;     /* SHA-256 of the token */
    const char *semaphores; /* NULL: all of the test */
} people[PEOPLE] = {
    [SHOP] = {"shop", "use", "shop", "pmt_shop-token-of-the-tenants-tests-xxxxxxxxxxx",
              "4c9e42bd7d972e5aa29e86acb99928bb94ca9413a7f91d00f5f4bd778d6c8001"},
    [BANK] = {"bank", "use", "bank-0123456789-0123456789-01234", "pmt_bank-token-of-the-tenants-tests-xxxxxxxxxxx",
              "c80d3d3a38e003bb0fd5a915dc03e5d274bb1908f0fc1647cc206dc4883d61f3"},
    [PLAIN] = {"plain", "use", "", "pmt_plain-token-of-the-tenants-tests-xxxxxxxxxx",
               "9a8dd102c33b0669bd50148ee19a05f938c37e724bfa23f098cd079cbcffd304"},
    [CLERK] = {"clerk", "use", "shop", "pmt_clerk-token-of-the-tenants-tests-xxxxxxxxxx",
               "2459ba5db756e775d1aaef3e6cb88e7aaaf103b4e7a6b64a1a58874ff7c6414e"},
    [OPERATOR] = {"operator", "operate", "", "pmt_operator-token-of-the-tenants-tests-xxxxxxx",
                  "940391a4d5b022f418618b921f36e09c10a6cb97a45d504af953fd276a0a6c86", "*"},
    [FOREMAN] = {"foreman", "operate", "shop", "pmt_foreman-token-of-the-tenants-tests-xxxxxxxx",
                 "e6aa87bdb549553b4e6cd4ef6cec9a0a3d7c6bbc38d70cb59e9070ab0a62c339", "t:shop:*"},
    [SCRAPER] = {"scraper", "metrics", "", "pmt_scraper-token-of-the-tenants-tests-xxxxxxxx",
                 "5423c8cb28dc0b3144d620f714056b7be5bf5c27b60c50d06d1ebb87b9b6d657"},
    [LEFT] = {"left", "use", "left", "pmt_left-token-of-the-tenants-tests-xxxxxxxxxxx",
              "561955e4fccb0937c801086b9ab3188e911dcec2a867f0e85f430a780294cca0", "*"},
    [RIGHT] = {"right", "use", "right", "pmt_right-token-of-the-tenants-tests-xxxxxxxxxx",
               "db4799500fe6504e1c708381a9e31c78fd6ce957d5445df273342163c98cba4b", "*"},
};

/* ---- two permitd on one database ---- */

struct scene {
    char *credentials;
    const char *backfill_bound; /* NULL: the default */
    struct kit_permitd *permitd[BOTH];
    struct talk talks[BOTH];
};

static const char *credentials_file(void)
{
    char *path = kit_path("credentials");
    const char *content = "";
    for (unsigned i = 0; i < PEOPLE; i++) {
        content =
            text("%s[%s]\ntoken = sha256:%s\nrole = %s\n", content, people[i].name, people[i].digest, people[i].role);
        if (i != SCRAPER)
            content = text("%ssemaphores = %s\n", content, people[i].semaphores ? people[i].semaphores : "t:*");
        if (people[i].namespace[0])
            content = text("%snamespace = %s\n", content, people[i].namespace);
    }
    write_file(path, content, 0600);
    return kept(path);
}

static void start_both(struct scene *scene)
{
    const char *flags[] = {"--credentials", scene->credentials, "--request-timeout", "2m", NULL, NULL, NULL};
    if (scene->backfill_bound) {
        flags[4] = "--backfill-bound";
        flags[5] = scene->backfill_bound;
    }
    struct kit_permitd_options options = {.database = own_url("tenants"), .flags = flags};
    for (int i = 0; i < BOTH; i++) {
        scene->permitd[i] = kit_permitd_start(&options);
        scene->talks[i] = talk_to(scene->permitd[i]->port);
    }
}

static void stop_both(struct scene *scene)
{
    for (int i = 0; i < BOTH; i++) {
        talk_end(&scene->talks[i]);
        kit_permitd_stop(scene->permitd[i]);
    }
}

static const char *bearer(unsigned person)
{
    return text("Authorization: Bearer %s\r\n", people[person].token);
}

/* No answer has the mark with which keys are stored, as a byte or as JSON writes it. */
static void shows_no_mark(const struct reply *reply)
{
    cr_assert_null(strchr(reply->body, '\001'), "%s", reply->body);
    cr_assert_null(strstr(reply->body, "\\u0001"), "%s", reply->body);
}

/* Sends a request of this person to the first permitd. type NULL: not a problem. */
static const char *by(struct scene *scene, unsigned person, int status, const char *type, const char *method,
                      const char *path, const char *body)
{
    struct talk *talk = &scene->talks[0];
    say_with(talk, status, type, method, path, bearer(person), body);
    shows_no_mark(&talk->reply);
    return talk->reply.body;
}

static struct scene scene_begin(void)
{
    struct scene scene = {.credentials = (char *)credentials_file()};
    start_both(&scene);
    return scene;
}

static const char *owned_body(const char *key, const char *owner, const char *more)
{
    return acquire_body(key, "t:a", 1, text(",\"owner\":\"%s\"%s", owner, more));
}

/* ---- generated: each tenant is answered as if it were alone ---- */

enum { KEYS = 6, OWNERS = 3, STEPS = 600 };

enum key_state { NEW, HELD, CONFIRMED, ENDED };

/* What a tenant must find. It knows only its own calls. */
struct tenant {
    enum key_state keys[KEYS];
    const char *end_reasons[KEYS];
    bool beats[OWNERS];
};

struct world {
    struct scene scene;
    uint64_t random;
    struct tenant tenants[TENANTS];
    unsigned person; /* of this step */
    unsigned key;
    const char *what; /* for messages */
};

static unsigned pick(struct world *world, unsigned below)
{
    return (unsigned)random_below(&world->random, below);
}

/* Each tenant asks for another number of units with the same key: another one's row would be 422 key_reused. */
static const char *generated_body(const struct world *world, const char *before)
{
    return text("{%s\"external_id\":\"k%u\",\"owner\":\"o%u\",\"ttl\":\"1h\","
                "\"permits\":[{\"semaphore\":\"t:a\",\"count\":%u}]}",
                before, world->key, world->key % OWNERS, world->person + 1);
}

/* Sends a request of the step's tenant, or of `other`, to one of the permitd. Returns the body of the answer. */
static const char *ask(struct world *world, unsigned person, int status, const char *method, const char *path,
                       const char *body)
{
    struct talk *talk = &world->scene.talks[pick(world, BOTH)];
    reply_release(&talk->reply);
    cr_assert(kit_http_call(&talk->http, method, path, bearer(person), body, &talk->reply));
    world->what = text("%s of %s: %s %s %s: %d instead of %d: %s", people[person].name, people[world->person].name,
                       method, path, body ? body : "", talk->reply.status, status, talk->reply.body);
    cr_assert_eq(talk->reply.status, status, "%s", world->what);
    shows_no_mark(&talk->reply);
    return talk->reply.body;
}

static const char *key_path(const struct world *world, const char *suffix)
{
    return text("/v1/requests/k%u%s", world->key, suffix);
}

/* Asserts that the answer is about the request of this tenant. */
static void is_own(const struct world *world, const char *body, bool has_permits)
{
    cr_assert(kit_json_text_is(body, "external_id", text("k%u", world->key)), "%s", world->what);
    if (!has_permits)
        return;
    cr_assert(kit_json_text_is(body, "owner", text("o%u", world->key % OWNERS)), "%s", world->what);
    cr_assert_eq(kit_json_int(body, "permits.0.count"), world->person + 1, "%s", world->what);
    cr_assert_not(kit_json_has(body, "namespace"), "%s", world->what);
}

static enum key_state *state_of(struct world *world)
{
    return &world->tenants[world->person].keys[world->key];
}

static void end_key(struct world *world, const char *reason)
{
    *state_of(world) = ENDED;
    world->tenants[world->person].end_reasons[world->key] = reason;
}

static void step_acquire(struct world *world)
{
    static const int statuses[] = {[NEW] = 201, [HELD] = 200, [CONFIRMED] = 200, [ENDED] = 410};
    enum key_state state = *state_of(world);
    bool never_held = state == ENDED && !strcmp(world->tenants[world->person].end_reasons[world->key], "never_held");
    const char *body = ask(world, world->person, statuses[state], "POST", "/v1/requests", generated_body(world, ""));
    if (state == ENDED) {
        cr_assert(kit_json_text_is(body, "end_reason", world->tenants[world->person].end_reasons[world->key]), "%s",
                  world->what);
        cr_assert(never_held || !strstr(body, "never_held"), "%s", world->what);
        return;
    }
    is_own(world, body, true);
    cr_assert_eq(kit_json_true(body, "replayed"), state != NEW, "%s", world->what);
    if (state == NEW)
        *state_of(world) = HELD;
}

static void step_batched_acquire(struct world *world)
{
    static const int statuses[] = {[NEW] = 201, [HELD] = 200, [CONFIRMED] = 200, [ENDED] = 410};
    enum key_state state = *state_of(world);
    const char *body = ask(world, world->person, 200, "POST", "/v1/batch",
                           text("{\"operations\":[%s]}", generated_body(world, "\"op\":\"acquire\",")));
    cr_assert_eq(kit_json_int(body, "results.0.status"), statuses[state], "%s", world->what);
    if (state == NEW)
        *state_of(world) = HELD;
}

static void step_release(struct world *world)
{
    enum key_state state = *state_of(world);
    const char *body = ask(world, world->person, state == CONFIRMED ? 409 : 200, "DELETE", key_path(world, ""), NULL);
    if (state == CONFIRMED)
        return;
    is_own(world, body, state == HELD);
    if (state == ENDED)
        cr_assert(kit_json_true(body, "already_released"), "%s", world->what);
    if (state != ENDED)
        end_key(world, state == NEW ? "never_held" : "released");
}

static void step_batched_release(struct world *world)
{
    enum key_state state = *state_of(world);
    const char *body = ask(world, world->person, 200, "POST", "/v1/batch",
                           text("{\"operations\":[{\"op\":\"release\",\"external_id\":\"k%u\"}]}", world->key));
    cr_assert_eq(kit_json_int(body, "results.0.status"), state == CONFIRMED ? 409 : 200, "%s", world->what);
    if (state == NEW || state == HELD)
        end_key(world, state == NEW ? "never_held" : "released");
}

static void step_renew(struct world *world)
{
    static const int statuses[] = {[NEW] = 404, [HELD] = 200, [CONFIRMED] = 200, [ENDED] = 410};
    const char *body = ask(world, world->person, statuses[*state_of(world)], "POST", key_path(world, "/renew"), NULL);
    if (*state_of(world) == HELD || *state_of(world) == CONFIRMED)
        is_own(world, body, true);
}

static void step_confirm(struct world *world)
{
    static const int statuses[] = {[NEW] = 404, [HELD] = 200, [CONFIRMED] = 200, [ENDED] = 410};
    (void)ask(world, world->person, statuses[*state_of(world)], "POST", key_path(world, "/confirm"), NULL);
    if (*state_of(world) == HELD)
        *state_of(world) = CONFIRMED;
}

static void step_get(struct world *world)
{
    enum key_state state = *state_of(world);
    const char *body =
        ask(world, world->person, state == NEW ? 404 : 200, "GET", key_path(world, pick(world, 2) ? "" : "/why"), NULL);
    if (state == NEW)
        return;
    bool ended = state == ENDED;
    const char *reason = world->tenants[world->person].end_reasons[world->key];
    is_own(world, body, !ended || strcmp(reason, "never_held") != 0);
    cr_assert(kit_json_text_is(body, "state", ended ? "RELEASED" : "ACQUIRED"), "%s", world->what);
    if (ended)
        cr_assert(kit_json_text_is(body, "end_reason", reason), "%s", world->what);
    if (!ended)
        cr_assert_eq(kit_json_has(body, "confirmed_at"), state == CONFIRMED, "%s", world->what);
}

/* Only the operator may name another namespace; a tenant may not force a release, not even of its own key. */
static void step_force(struct world *world)
{
    enum key_state state = *state_of(world);
    const char *path = key_path(world, text("/force-release?namespace=%s", people[world->person].namespace));
    (void)ask(world, world->person, 403, "POST", path, "{\"reason\":\"test\"}");
    const char *body = ask(world, OPERATOR, state == NEW ? 404 : 200, "POST", path, "{\"reason\":\"test\"}");
    if (state == NEW)
        return;
    const char *namespace = people[world->person].namespace;
    cr_assert_eq(kit_json_has(body, "namespace"), namespace[0] != 0, "%s", world->what);
    cr_assert(!namespace[0] || kit_json_text_is(body, "namespace", namespace), "%s", world->what);
    cr_assert_eq(kit_json_true(body, "already_released"), state == ENDED, "%s", world->what);
    if (state != ENDED)
        end_key(world, "forced");
}

/* The operator has no namespace: without the parameter he sees the key of PLAIN, and nobody else's. */
static void step_operator_looks(struct world *world)
{
    enum key_state state = world->tenants[PLAIN].keys[world->key];
    const char *body = ask(world, OPERATOR, state == NEW ? 404 : 200, "GET", key_path(world, ""), NULL);
    cr_assert_not(kit_json_has(body, "namespace"), "%s", world->what);
}

static void step_beat(struct world *world)
{
    unsigned owner = pick(world, OWNERS);
    bool *beats = &world->tenants[world->person].beats[owner];
    const char *body =
        ask(world, world->person, *beats ? 200 : 201, "PUT", text("/v1/owners/o%u", owner), "{\"ttl\":\"2h\"}");
    cr_assert(kit_json_text_is(body, "owner", text("o%u", owner)), "%s", world->what);
    *beats = true;
}

static void step_owner(struct world *world)
{
    unsigned owner = pick(world, OWNERS);
    const struct tenant *tenant = &world->tenants[world->person];
    const char *body =
        ask(world, world->person, tenant->beats[owner] ? 200 : 404, "GET", text("/v1/owners/o%u", owner), NULL);
    int held = 0;
    for (unsigned key = 0; key < KEYS; key++)
        held += key % OWNERS == owner && (tenant->keys[key] == HELD || tenant->keys[key] == CONFIRMED);
    if (tenant->beats[owner])
        cr_assert_eq(kit_json_int(body, "held"), held, "%s", world->what);
}

/* The list of requests has all keys of the tenant, and nothing else. */
static void step_list(struct world *world)
{
    const struct tenant *tenant = &world->tenants[world->person];
    const char *body = ask(world, world->person, 200, "GET", "/v1/requests", NULL);
    long listed = 0;
    for (unsigned key = 0; key < KEYS; key++) {
        listed += tenant->keys[key] != NEW;
        cr_assert_eq(strstr(body, text("\"external_id\":\"k%u\"", key)) != NULL, tenant->keys[key] != NEW, "%s",
                     world->what);
    }
    cr_assert_eq(kit_json_length(body, "requests"), listed, "%s", world->what);
    unsigned owner = pick(world, OWNERS);
    body = ask(world, world->person, 200, "GET", text("/v1/requests?state=ACQUIRED&owner=o%u", owner), NULL);
    listed = 0;
    for (unsigned key = owner; key < KEYS; key += OWNERS)
        listed += tenant->keys[key] == HELD || tenant->keys[key] == CONFIRMED;
    cr_assert_eq(kit_json_length(body, "requests"), listed, "%s", world->what);
}

/* The holders of all tenants are listed, those of others without their names. */
static void step_holders(struct world *world)
{
    const char *body = ask(world, world->person, 200, "GET", "/v1/semaphores/t:a/holders", NULL);
    long listed = 0, own = 0, named = 0;
    for (unsigned i = 0; i < TENANTS; i++)
        for (unsigned key = 0; key < KEYS; key++) {
            bool is_held = world->tenants[i].keys[key] == HELD || world->tenants[i].keys[key] == CONFIRMED;
            listed += is_held;
            own += is_held && i == world->person;
        }
    cr_assert_eq(kit_json_length(body, "holders"), listed, "%s", world->what);
    for (long i = 0; i < listed; i++) {
        bool hidden = kit_json_true(body, text("holders.%ld.hidden", i));
        cr_assert_eq(kit_json_has(body, text("holders.%ld.external_id", i)), !hidden, "%s", world->what);
        cr_assert_eq(kit_json_has(body, text("holders.%ld.owner", i)), !hidden, "%s", world->what);
        cr_assert(kit_json_has(body, text("holders.%ld.count", i)), "%s", world->what);
        named += !hidden;
    }
    cr_assert_eq(named, own, "%s", world->what);
}

static void run_step(struct world *world)
{
    static void (*const steps[])(struct world * world) = {
        step_acquire, step_acquire,
        step_acquire, step_batched_acquire,
        step_release, step_batched_release,
        step_renew,   step_confirm,
        step_get,     step_get,
        step_force,   step_operator_looks,
        step_beat,    step_owner,
        step_list,    step_holders,
    };
    world->person = pick(world, TENANTS);
    world->key = pick(world, KEYS);
    steps[pick(world, sizeof steps / sizeof *steps)](world);
}

/* Ended keys are never free again, so each seed begins with fresh rows. */
static void forget_rows(void)
{
    struct kit_sql *sql = own_sql("tenants");
    static const char *const tables[] = {"held", "waiting_due", "permit", "permit_request", "owner", "semaphore"};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        kit_sql_run(sql, "DELETE FROM %s", tables[i]);
    kit_sql_close(sql);
}

Test(tenants, each_is_answered_as_if_it_were_alone, .timeout = 600)
{
    for (uint64_t seed = 1; seed <= 4; seed++) {
        struct world world = {.scene = scene_begin(), .random = seed};
        by(&world.scene, OPERATOR, 201, NULL, "PUT", "/v1/semaphores/t:a", "{\"capacity\":1000,\"kind\":\"counted\"}");
        for (int step = 0; step < STEPS; step++) {
            if (step == STEPS / 2) {
                stop_both(&world.scene);
                start_both(&world.scene);
            }
            run_step(&world);
        }
        for (world.person = 0; world.person < TENANTS; world.person++)
            for (world.key = 0; world.key < KEYS; world.key++)
                step_get(&world);
        stop_both(&world.scene);
        forget_rows();
    }
}

/* ---- what is shown of others ---- */

/* Sends a request that is answered later, on a connection of its own. */
static struct talk acquire_as(struct scene *scene, int at, unsigned person, const char *body)
{
    struct talk talk = talk_to(scene->permitd[at]->port);
    talk.http.timeout_ms = LONG_MS;
    cr_assert(kit_http_send(&talk.http, "POST", "/v1/requests", bearer(person), body));
    return talk;
}

static struct talk wait_as(struct scene *scene, int at, unsigned person, const char *key, const char *owner)
{
    return acquire_as(scene, at, person, owned_body(key, owner, ",\"wait\":\"2m\""));
}

struct queue {
    struct scene *scene;
    int64_t length;
};

static bool waits(void *context)
{
    const struct queue *queue = context;
    return kit_json_int(by(queue->scene, OPERATOR, 200, NULL, "GET", "/v1/semaphores/t:a", NULL), "waiting") ==
           queue->length;
}

static void wait_for_queue(struct scene *scene, int64_t length)
{
    struct queue queue = {scene, length};
    cr_assert(kit_wait_until(waits, &queue, LONG_MS), "%s", scene->talks[0].reply.body);
}

/* Asserts that the body has none of the words. */
static void hides(const char *body, const char *first, const char *second)
{
    cr_expect_null(strstr(body, first), "%s in %s", first, body);
    cr_expect_null(strstr(body, second), "%s in %s", second, body);
}

/* Asserts that the 404 suggests this name. */
static void suggests(struct scene *scene, unsigned person, const char *path, const char *nearest)
{
    const char *detail = kit_json_part(by(scene, person, 404, NULL, "GET", path, NULL), "detail");
    const char *end = text("; the nearest name is \\\"%s\\\"\"", nearest);
    cr_expect(strlen(detail) > strlen(end) && strcmp(detail + strlen(detail) - strlen(end), end) == 0, "%s: %s", path,
              detail);
    free((char *)detail);
}

/*
 * The nearest name is chosen among those that the client may see. A nearer one that it may not see, and a crowd of them
 * beside its own, would tell by its absence that they are there.
 */
Test(tenants, nearest_name_of_a_404_does_not_depend_on_names_of_others, .timeout = 600)
{
    enum { CROWD = 40 };
    struct scene scene = scene_begin();
    by(&scene, OPERATOR, 201, NULL, "PUT", "/v1/semaphores/t:a", "{\"capacity\":1000,\"kind\":\"counted\"}");
    by(&scene, LEFT, 201, NULL, "POST", "/v1/requests", owned_body("order-4711-xy", "o", ""));
    by(&scene, LEFT, 201, NULL, "PUT", "/v1/owners/worker-17-xy", "{\"ttl\":\"1h\"}");
    by(&scene, OPERATOR, 201, NULL, "PUT", "/v1/semaphores/t:shop:alpha-xy", "{\"capacity\":1}");
    by(&scene, OPERATOR, 201, NULL, "PUT", "/v1/templates/t:shop:eu:xy", "{\"capacity\":1}");
    for (int others = 0; others < 2; others++) {
        suggests(&scene, LEFT, "/v1/requests/order-4711", "order-4711-xy");
        suggests(&scene, LEFT, "/v1/owners/worker-17", "worker-17-xy");
        suggests(&scene, FOREMAN, "/v1/semaphores/t:shop:alpha", "t:shop:alpha-xy");
        suggests(&scene, FOREMAN, "/v1/templates/t:shop:eu:", "t:shop:eu:xy");
        if (others)
            break;
        by(&scene, RIGHT, 201, NULL, "POST", "/v1/requests", owned_body("order-4711", "o", ""));
        by(&scene, RIGHT, 201, NULL, "PUT", "/v1/owners/worker-17", "{\"ttl\":\"1h\"}");
        by(&scene, OPERATOR, 201, NULL, "PUT", "/v1/semaphores/t:shop-alpha", "{\"capacity\":1}");
        by(&scene, OPERATOR, 201, NULL, "PUT", "/v1/templates/t:shop-eu:", "{\"capacity\":1}");
        for (int i = 0; i < CROWD; i++) {
            by(&scene, OPERATOR, 201, NULL, "POST", "/v1/requests", owned_body(text("order-%d", i), "o", ""));
            by(&scene, RIGHT, 201, NULL, "PUT", text("/v1/owners/a-%d", i), "{\"ttl\":\"1h\"}");
            by(&scene, OPERATOR, 201, NULL, "PUT", text("/v1/semaphores/t:shop.%d", i), "{\"capacity\":1}");
        }
    }
    suggests(&scene, OPERATOR, "/v1/requests/order-471?namespace=right", "order-4711");
    by(&scene, SHOP, 201, NULL, "POST", "/v1/requests", owned_body("order-4711", "o", ""));
    const char *detail = by(&scene, SHOP, 404, NULL, "GET", "/v1/requests/order-4712", NULL);
    cr_expect_null(strstr(detail, "nearest"), "%s", detail); /* its scope does not cover all requests */
    stop_both(&scene);
}

static bool is_protected(void *context)
{
    struct scene *scene = context;
    return kit_json_int(by(scene, OPERATOR, 200, NULL, "GET", "/v1/semaphores/t:a/waiters", NULL),
                        "waiters.0.waited_ms") >= 100;
}

/* The unit of t:a is reserved for LEFT, which lacks u:db. PLAIN, which waits for it, may see neither. */
Test(tenants, reservation_of_another_is_shown_without_its_key_and_semaphores, .timeout = 600)
{
    struct scene scene = {.credentials = (char *)credentials_file(), .backfill_bound = "100ms"};
    start_both(&scene);
    by(&scene, OPERATOR, 201, NULL, "PUT", "/v1/semaphores/t:a", "{\"capacity\":1}");
    by(&scene, OPERATOR, 201, NULL, "PUT", "/v1/semaphores/u:db", "{\"capacity\":1}");
    by(&scene, LEFT, 201, NULL, "POST", "/v1/requests",
       "{\"external_id\":\"holds\",\"permits\":[{\"semaphore\":\"u:db\"}]}");
    struct talk left = acquire_as(&scene, 0, LEFT,
                                  "{\"external_id\":\"left-key\",\"permits\":[{\"semaphore\":\"t:a\"},"
                                  "{\"semaphore\":\"u:db\"}],\"wait\":\"2m\"}");
    wait_for_queue(&scene, 1);
    cr_assert(kit_wait_until(is_protected, &scene, LONG_MS));
    struct talk plain = wait_as(&scene, 1, PLAIN, "plain-key", "plain-owner");
    wait_for_queue(&scene, 2);
    const char *body = by(&scene, PLAIN, 200, NULL, "GET", "/v1/requests/plain-key/why", NULL);
    hides(body, "left", "u:db");
    cr_expect(kit_json_true(body, "waiting_for.0.reserved_for.hidden"), "%s", body);
    cr_expect_eq(kit_json_length(body, "waiting_for.0.reserved_for.lacks"), 0, "%s", body);
    body = by(&scene, OPERATOR, 200, NULL, "GET", "/v1/requests/plain-key/why", NULL);
    cr_expect(kit_json_text_is(body, "waiting_for.0.reserved_for.external_id", "left-key"), "%s", body);
    cr_expect(kit_json_text_is(body, "waiting_for.0.reserved_for.namespace", "left"), "%s", body);
    cr_expect_eq(kit_json_length(body, "waiting_for.0.reserved_for.lacks"), 1, "%s", body);
    cr_expect(kit_json_text_is(body, "waiting_for.0.reserved_for.lacks.0", "u:db"), "%s", body);
    talk_end(&left);
    talk_end(&plain);
    stop_both(&scene);
}

/* SHOP holds the only unit under shop-key, BANK waits under bank-key, then PLAIN under plain-key. */
Test(tenants, keys_and_owners_of_others_are_hidden_but_to_operators, .timeout = 600)
{
    struct scene scene = scene_begin();
    by(&scene, OPERATOR, 201, NULL, "PUT", "/v1/semaphores/t:a", "{\"capacity\":1,\"labels\":[\"A1\"]}");
    by(&scene, SHOP, 201, NULL, "POST", "/v1/requests", owned_body("shop-key", "shop-owner", ""));
    struct talk bank = wait_as(&scene, 0, BANK, "bank-key", "bank-owner");
    wait_for_queue(&scene, 1);
    struct talk plain = wait_as(&scene, 1, PLAIN, "plain-key", "plain-owner");
    wait_for_queue(&scene, 2);

    const char *body = by(&scene, BANK, 200, NULL, "GET", "/v1/semaphores/t:a/holders", NULL);
    hides(body, "shop-key", "shop-owner");
    cr_expect(kit_json_true(body, "holders.0.hidden"), "%s", body);
    cr_expect_eq(kit_json_int(body, "holders.0.count"), 1, "%s", body);
    cr_expect(kit_json_has(body, "holders.0.expires_at"), "%s", body);
    body = by(&scene, CLERK, 200, NULL, "GET", "/v1/semaphores/t:a/holders", NULL);
    cr_expect(kit_json_text_is(body, "holders.0.external_id", "shop-key"), "%s", body);
    cr_expect_not(kit_json_has(body, "holders.0.namespace"), "%s", body);
    body = by(&scene, OPERATOR, 200, NULL, "GET", "/v1/semaphores/t:a/holders", NULL);
    cr_expect(kit_json_text_is(body, "holders.0.external_id", "shop-key"), "%s", body);
    cr_expect(kit_json_text_is(body, "holders.0.owner", "shop-owner"), "%s", body);
    cr_expect(kit_json_text_is(body, "holders.0.namespace", "shop"), "%s", body);

    body = by(&scene, PLAIN, 200, NULL, "GET", "/v1/semaphores/t:a/slots", NULL);
    hides(body, "shop-key", "shop-owner");
    cr_expect(kit_json_has(body, "slots.0.token"), "%s", body);
    body = by(&scene, OPERATOR, 200, NULL, "GET", "/v1/semaphores/t:a/slots", NULL);
    cr_expect(kit_json_text_is(body, "slots.0.external_id", "shop-key"), "%s", body);
    cr_expect(kit_json_text_is(body, "slots.0.namespace", "shop"), "%s", body);

    body = by(&scene, PLAIN, 200, NULL, "GET", "/v1/semaphores/t:a/waiters", NULL);
    hides(body, "bank-key", "bank-owner");
    cr_expect(kit_json_true(body, "waiters.0.hidden"), "%s", body);
    cr_expect(kit_json_has(body, "waiters.0.deadline"), "%s", body);
    cr_expect(kit_json_text_is(body, "waiters.1.external_id", "plain-key"), "%s", body);
    cr_expect_not(kit_json_has(body, "waiters.1.behind"), "%s", body);
    cr_expect_eq(kit_json_int(body, "waiters.1.place"), 2, "%s", body);
    body = by(&scene, OPERATOR, 200, NULL, "GET", "/v1/semaphores/t:a/waiters", NULL);
    cr_expect(kit_json_text_is(body, "waiters.0.namespace", people[BANK].namespace), "%s", body);
    cr_expect(kit_json_text_is(body, "waiters.1.behind", "bank-key"), "%s", body);
    cr_expect(kit_json_text_is(body, "waiters.1.behind_namespace", people[BANK].namespace), "%s", body);

    body = by(&scene, PLAIN, 200, NULL, "GET", "/v1/requests/plain-key/why", NULL);
    hides(body, "bank-", "shop-");
    cr_expect_eq(kit_json_int(body, "waiting_for.0.ahead_count"), 1, "%s", body);
    cr_expect_eq(kit_json_length(body, "waiting_for.0.ahead"), 0, "%s", body);
    cr_expect(kit_json_true(body, "waiting_for.0.holders.0.hidden"), "%s", body);
    cr_expect(kit_json_has(body, "waiting_for.0.holders.0.since"), "%s", body);
    body = by(&scene, PLAIN, 200, NULL, "GET", "/v1/requests/plain-key", NULL);
    hides(body, "bank-", "shop-");
    cr_expect_eq(kit_json_int(body, "permits.0.place"), 2, "%s", body);
    body = by(&scene, OPERATOR, 200, NULL, "GET", "/v1/requests/plain-key/why", NULL);
    cr_expect(kit_json_text_is(body, "waiting_for.0.ahead.0", "bank-key"), "%s", body);
    cr_expect(kit_json_text_is(body, "waiting_for.0.ahead_namespaces.0", people[BANK].namespace), "%s", body);
    cr_expect(kit_json_text_is(body, "waiting_for.0.holders.0.namespace", "shop"), "%s", body);

    body = by(&scene, PLAIN, 423, "no_capacity", "POST", "/v1/requests", owned_body("late", "late", ""));
    hides(body, "bank-", "shop-");
    cr_expect_eq(kit_json_int(body, "blocking.0.waiting_ahead"), 2, "%s", body);
    cr_expect_eq(kit_json_length(body, "blocking.0.ahead"), 1, "%s", body);
    cr_expect(kit_json_text_is(body, "blocking.0.ahead.0", "plain-key"), "%s", body);
    cr_expect(kit_json_true(body, "blocking.0.holders.0.hidden"), "%s", body);
    static const char named[] = "{\"external_id\":\"late\",\"permits\":[{\"semaphore\":\"t:a\",\"slots\":[\"A1\"]}]}";
    body = by(&scene, BANK, 423, "no_capacity", "POST", "/v1/requests", named);
    hides(body, "plain-", "shop-");
    cr_expect(kit_json_has(body, "blocking.0.taken.0.expires_at"), "%s", body);
    body = by(&scene, OPERATOR, 423, "no_capacity", "POST", "/v1/requests", named);
    cr_expect(kit_json_text_is(body, "blocking.0.taken.0.external_id", "shop-key"), "%s", body);
    cr_expect(kit_json_text_is(body, "blocking.0.taken.0.namespace", "shop"), "%s", body);

    body = by(&scene, BANK, 200, NULL, "GET", "/v1/semaphores/t:a/report", NULL);
    hides(body, "shop-owner", "plain-owner");
    cr_expect_eq(kit_json_length(body, "owners"), 0, "%s", body);
    cr_expect_eq(kit_json_int(body, "others.grants"), 1, "%s", body);
    body = by(&scene, CLERK, 200, NULL, "GET", "/v1/semaphores/t:a/report", NULL);
    cr_expect(kit_json_text_is(body, "owners.0.owner", "shop-owner"), "%s", body);
    cr_expect_not(kit_json_has(body, "owners.0.namespace"), "%s", body);
    cr_expect_eq(kit_json_int(body, "others.grants"), 0, "%s", body);
    body = by(&scene, OPERATOR, 200, NULL, "GET", "/v1/semaphores/t:a/report", NULL);
    cr_expect(kit_json_text_is(body, "owners.0.owner", "shop-owner"), "%s", body);
    cr_expect(kit_json_text_is(body, "owners.0.namespace", "shop"), "%s", body);
    by(&scene, FOREMAN, 403, "forbidden", "GET", "/v1/semaphores/t:a/report", NULL);

    body = by(&scene, BANK, 404, "unknown_request", "GET", "/v1/requests/shop-kez", NULL);
    hides(body, "shop-key", "nearest");
    body = by(&scene, OPERATOR, 200, NULL, "GET", "/v1/requests", NULL);
    cr_expect_eq(kit_json_length(body, "requests"), 3, "%s", body);
    cr_expect_not_null(strstr(body, "\"external_id\":\"shop-key\",\"namespace\":\"shop\""), "%s", body);
    body = by(&scene, OPERATOR, 200, NULL, "GET", "/v1/requests?namespace=shop", NULL);
    cr_expect_eq(kit_json_length(body, "requests"), 1, "%s", body);
    body = by(&scene, OPERATOR, 200, NULL, "GET", "/v1/requests?namespace=", NULL);
    cr_expect_eq(kit_json_length(body, "requests"), 1, "%s", body);
    cr_expect(kit_json_text_is(body, "requests.0.external_id", "plain-key"), "%s", body);
    body = by(&scene, OPERATOR, 200, NULL, "GET", "/v1/requests?namespace=shop&owner=shop-owner", NULL);
    cr_expect_eq(kit_json_length(body, "requests"), 1, "%s", body);
    body = by(&scene, OPERATOR, 200, NULL, "GET", "/v1/requests?owner=shop-owner", NULL);
    cr_expect_eq(kit_json_length(body, "requests"), 0, "%s", body);
    by(&scene, SHOP, 403, "forbidden", "GET", "/v1/requests?namespace=shop", NULL);
    by(&scene, OPERATOR, 422, "invalid", "GET", "/v1/requests?namespace=Shop", NULL);

    by(&scene, OPERATOR, 200, NULL, "POST", "/v1/requests/shop-key/force-release?namespace=shop",
       "{\"reason\":\"stuck\"}");
    hear(&bank, 201, NULL);
    text_is(&bank, "external_id", "bank-key");
    body = by(&scene, BANK, 200, NULL, "GET", "/v1/semaphores/t:a/events", NULL);
    cr_expect(kit_json_text_is(body, "events.0.what", "forced"), "%s", body);
    hides(body, "shop-key", "\"from\":\"s");
    body = by(&scene, SHOP, 200, NULL, "GET", "/v1/semaphores/t:a/events", NULL);
    cr_expect(kit_json_text_is(body, "events.0.from", "shop-key"), "%s", body);
    body = by(&scene, OPERATOR, 200, NULL, "GET", "/v1/semaphores/t:a/events", NULL);
    cr_expect(kit_json_text_is(body, "events.0.from", "shop-key"), "%s", body);
    cr_expect(kit_json_text_is(body, "events.0.namespace", "shop"), "%s", body);
    by(&scene, BANK, 200, NULL, "DELETE", "/v1/requests/bank-key", NULL);
    hear(&plain, 201, NULL);
    char *log = kit_read_file(scene.permitd[0]->log_path);
    cr_expect_not_null(strstr(log, "name=shop-key"), "%s", log);
    cr_expect_not_null(strstr(log, "namespace=shop"), "%s", log);
    free(log);
    talk_end(&bank);
    talk_end(&plain);
    stop_both(&scene);
}

/* ---- waiting, owners ---- */

Test(tenants, equal_keys_wait_and_are_granted_apart, .timeout = 600)
{
    struct scene scene = scene_begin();
    by(&scene, OPERATOR, 201, NULL, "PUT", "/v1/semaphores/t:a", "{\"capacity\":1}");
    by(&scene, SHOP, 201, NULL, "POST", "/v1/requests", owned_body("first", "o", ""));
    struct talk talks[TENANTS];
    for (unsigned i = 0; i < TENANTS; i++) {
        talks[i] = wait_as(&scene, (int)i % BOTH, i, "same", "o");
        wait_for_queue(&scene, i + 1);
    }
    for (unsigned i = 0; i < TENANTS; i++) {
        const char *body = by(&scene, i, 200, NULL, "GET", "/v1/requests/same", NULL);
        cr_expect(kit_json_text_is(body, "state", "WAITING"), "%s", body);
        cr_expect_eq(kit_json_int(body, "permits.0.place"), i + 1, "%s", body);
    }
    by(&scene, BANK, 200, NULL, "DELETE", "/v1/requests/same", NULL);
    hear(&talks[BANK], 410, "ended");
    by(&scene, SHOP, 200, NULL, "DELETE", "/v1/requests/first", NULL);
    hear(&talks[SHOP], 201, NULL);
    by(&scene, SHOP, 200, NULL, "DELETE", "/v1/requests/same", NULL);
    hear(&talks[PLAIN], 201, NULL);
    by(&scene, PLAIN, 200, NULL, "POST", "/v1/requests/same/renew", NULL);
    for (unsigned i = 0; i < TENANTS; i++)
        talk_end(&talks[i]);
    stop_both(&scene);
}

struct fate {
    struct scene *scene;
    unsigned person;
};

static bool has_ended(void *context)
{
    const struct fate *fate = context;
    return kit_json_text_is(by(fate->scene, fate->person, 200, NULL, "GET", "/v1/requests/same", NULL), "end_reason",
                            "owner_dead");
}

Test(tenants, end_of_an_owner_ends_no_request_of_an_equal_owner_elsewhere, .timeout = 600)
{
    struct scene scene = scene_begin();
    by(&scene, OPERATOR, 201, NULL, "PUT", "/v1/semaphores/t:a", "{\"capacity\":10}");
    by(&scene, BANK, 201, NULL, "PUT", "/v1/owners/same", "{\"ttl\":\"1h\"}");
    by(&scene, SHOP, 404, "unknown_owner", "GET", "/v1/owners/same", NULL);
    by(&scene, SHOP, 404, "unknown_owner", "POST", "/v1/requests", owned_body("same", "same", ",\"ttl\":\"owner\""));
    by(&scene, SHOP, 201, NULL, "PUT", "/v1/owners/same", "{\"ttl\":\"1h\"}");
    by(&scene, PLAIN, 201, NULL, "PUT", "/v1/owners/same", "{\"ttl\":\"1h\"}");
    for (unsigned i = 0; i < TENANTS; i++)
        by(&scene, i, 201, NULL, "POST", "/v1/requests", owned_body("same", "same", ",\"ttl\":\"owner\""));
    by(&scene, SHOP, 200, NULL, "DELETE", "/v1/owners/same", NULL);
    struct fate shop = {&scene, SHOP};
    cr_assert(kit_wait_until(has_ended, &shop, LONG_MS), "%s", scene.talks[0].reply.body);
    by(&scene, OPERATOR, 200, NULL, "DELETE", text("/v1/owners/same?namespace=%s", people[BANK].namespace), NULL);
    text_is(&scene.talks[0], "namespace", people[BANK].namespace);
    struct fate bank = {&scene, BANK};
    cr_assert(kit_wait_until(has_ended, &bank, LONG_MS), "%s", scene.talks[0].reply.body);
    by(&scene, PLAIN, 200, NULL, "GET", "/v1/requests/same", NULL);
    text_is(&scene.talks[0], "state", "ACQUIRED");
    by(&scene, PLAIN, 200, NULL, "GET", "/v1/owners/same", NULL);
    text_is(&scene.talks[0], "state", "alive");
    stop_both(&scene);
}

/* ---- limits ---- */

Test(tenants, longest_key_and_owner_fit_with_the_longest_namespace, .timeout = 600)
{
    struct scene scene = scene_begin();
    char longest[256];
    memset(longest, '~', 255);
    longest[255] = '\0';
    by(&scene, OPERATOR, 201, NULL, "PUT", "/v1/semaphores/t:a", "{\"capacity\":10}");
    by(&scene, BANK, 201, NULL, "PUT", text("/v1/owners/%s", longest), "{\"ttl\":\"1h\"}");
    by(&scene, BANK, 201, NULL, "POST", "/v1/requests", owned_body(longest, longest, ",\"ttl\":\"owner\""));
    text_is(&scene.talks[0], "external_id", longest);
    text_is(&scene.talks[0], "owner", longest);
    by(&scene, BANK, 422, "invalid", "POST", "/v1/requests", owned_body(text("%sx", longest), "o", ""));
    by(&scene, BANK, 422, "invalid", "GET", "/v1/requests/%01shop%01key", NULL);
    by(&scene, BANK, 422, "invalid", "GET", text("/v1/requests/%sx", longest), NULL);
    by(&scene, BANK, 200, NULL, "GET", text("/v1/requests?owner=%s", longest), NULL);
    cr_expect_eq(kit_json_length(scene.talks[0].reply.body, "requests"), 1);
    by(&scene, OPERATOR, 200, NULL, "POST",
       text("/v1/requests/%s/force-release?namespace=%s", longest, people[BANK].namespace), "{\"reason\":\"r\"}");
    by(&scene, BANK, 200, NULL, "GET", "/v1/semaphores/t:a/events", NULL);
    text_is(&scene.talks[0], "events.0.from", longest);
    stop_both(&scene);
}

/* Generated keys are in the namespace too: only their tenant reaches them. */
Test(tenants, generated_key_is_in_the_namespace, .timeout = 600)
{
    struct scene scene = scene_begin();
    by(&scene, OPERATOR, 201, NULL, "PUT", "/v1/semaphores/t:a", "{\"capacity\":10}");
    by(&scene, SHOP, 201, NULL, "POST", "/v1/requests", "{\"permits\":[{\"semaphore\":\"t:a\"}]}");
    char *key = kept(kit_json_text(scene.talks[0].reply.body, "external_id"));
    by(&scene, BANK, 404, "unknown_request", "GET", request_path(key), NULL);
    by(&scene, PLAIN, 404, "unknown_request", "GET", request_path(key), NULL);
    by(&scene, CLERK, 200, NULL, "GET", request_path(key), NULL);
    stop_both(&scene);
}

/* Returns true if the connection of `scene` is the only one of the first permitd. */
static bool is_alone(void *context)
{
    struct talk *talk = &((struct scene *)context)->talks[0];
    reply_release(&talk->reply);
    return kit_http_call(&talk->http, "GET", "/metrics", bearer(SCRAPER), NULL, &talk->reply) &&
           strstr(talk->reply.body, "\npermitd_http_connections 1\n");
}

static bool one_has_ended(void *context)
{
    const char *body = by(context, SHOP, 200, NULL, "GET", "/v1/requests", NULL);
    return kit_json_length(body, "requests") == 1 && kit_json_text_is(body, "requests.0.end_reason", "released");
}

/* No client knows the key, so permitd releases it: the stored one. */
Test(tenants, abandoned_grant_under_a_generated_key_is_released, .timeout = 600)
{
    struct scene scene = scene_begin();
    by(&scene, OPERATOR, 201, NULL, "PUT", "/v1/semaphores/t:a", "{\"capacity\":1,\"default_ttl\":\"1h\"}");
    struct kit_sql *sql = own_sql("tenants");
    kit_sql_run(sql, "BEGIN");
    (void)kit_sql_number(sql, "SELECT id FROM semaphore WHERE name = 't:a' FOR UPDATE");
    struct talk gone = talk_to(scene.permitd[0]->port);
    cr_assert(kit_http_send(&gone.http, "POST", "/v1/requests", bearer(SHOP),
                            "{\"permits\":[{\"semaphore\":\"t:a\"}],\"wait\":\"2m\"}"));
    cr_assert(kit_wait_until(batch_waits, sql, LONG_MS));
    talk_end(&gone);
    cr_assert(kit_wait_until(is_alone, &scene, LONG_MS), "%s", scene.talks[0].reply.body);
    kit_sql_run(sql, "ROLLBACK");
    kit_sql_close(sql);
    cr_assert(kit_wait_until(one_has_ended, &scene, LONG_MS), "%s", scene.talks[0].reply.body);
    stop_both(&scene);
}

Test(tenants, refusal_of_a_reused_key_names_the_owner_as_its_client_wrote_it, .timeout = 600)
{
    struct scene scene = scene_begin();
    by(&scene, OPERATOR, 201, NULL, "PUT", "/v1/semaphores/t:a", "{\"capacity\":10}");
    for (unsigned i = 0; i < TENANTS; i++) {
        by(&scene, i, 201, NULL, "POST", "/v1/requests", owned_body("same", "first-owner", ""));
        const char *body =
            by(&scene, i, 422, "key_reused", "POST", "/v1/requests", owned_body("same", "second-owner", ""));
        cr_expect_not_null(strstr(body, "1 of t:a, owner first-owner, ttl"), "%s", body);
    }
    stop_both(&scene);
}

/* ---- who may name a namespace ---- */

#define ACQUIRE_OF(semaphore) "{\"permits\":[{\"semaphore\":\"" semaphore "\"}]}"

Test(tenants, creation_by_template_names_nobody_of_a_namespace, .timeout = 600)
{
    struct scene scene = scene_begin();
    by(&scene, OPERATOR, 201, NULL, "PUT", "/v1/templates/t:x:", "{\"capacity\":1}");
    by(&scene, SHOP, 201, NULL, "POST", "/v1/requests", ACQUIRE_OF("t:x:1"));
    by(&scene, PLAIN, 201, NULL, "POST", "/v1/requests", ACQUIRE_OF("t:x:2"));
    const char *body = by(&scene, BANK, 200, NULL, "GET", "/v1/semaphores/t:x:1/events", NULL);
    cr_expect(kit_json_text_is(body, "events.0.what", "created"), "%s", body);
    cr_expect(kit_json_text_is(body, "events.0.why", "template t:x:"), "%s", body);
    hides(body, "\"who\"", people[SHOP].name);
    body = by(&scene, BANK, 200, NULL, "GET", "/v1/semaphores/t:x:2/events", NULL);
    cr_expect(kit_json_text_is(body, "events.0.who", people[PLAIN].name), "%s", body);
    stop_both(&scene);
}

Test(tenants, only_operators_name_a_namespace_and_never_for_a_tombstone_or_heartbeat, .timeout = 600)
{
    static const char *const calls[][3] = {
        {"GET", "/v1/requests/k?namespace=shop", NULL},        {"GET", "/v1/requests/k/why?namespace=shop", NULL},
        {"POST", "/v1/requests/k/renew?namespace=shop", "{}"}, {"POST", "/v1/requests/k/confirm?namespace=shop", "{}"},
        {"GET", "/v1/owners/k?namespace=shop", NULL},          {"DELETE", "/v1/owners/k?namespace=shop", NULL},
    };
    struct scene scene = scene_begin();
    by(&scene, OPERATOR, 201, NULL, "PUT", "/v1/semaphores/t:a", "{\"capacity\":10}");
    by(&scene, SHOP, 201, NULL, "PUT", "/v1/owners/k", "{\"ttl\":\"1h\"}");
    by(&scene, SHOP, 201, NULL, "POST", "/v1/requests", owned_body("k", "k", ""));
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        for (unsigned person = 0; person < OPERATOR; person++)
            by(&scene, person, 403, "forbidden", calls[i][0], calls[i][1], calls[i][2]);
        by(&scene, OPERATOR, 200, NULL, calls[i][0], calls[i][1], calls[i][2]);
        text_is(&scene.talks[0], "namespace", "shop");
    }
    by(&scene, OPERATOR, 422, "invalid", "DELETE", "/v1/requests/new?namespace=shop", NULL);
    by(&scene, OPERATOR, 422, "invalid", "PUT", "/v1/owners/new?namespace=shop", "{\"ttl\":\"1h\"}");
    by(&scene, SHOP, 200, NULL, "GET", "/v1/whoami", NULL);
    text_is(&scene.talks[0], "namespace", "shop");
    by(&scene, PLAIN, 200, NULL, "GET", "/v1/whoami", NULL);
    cr_expect_not(kit_json_has(scene.talks[0].reply.body, "namespace"));
    stop_both(&scene);
}

static size_t count_lines(const char *log, const char *what)
{
    size_t count = 0;
    for (const char *at = log; (at = strstr(at, what)); at++)
        count++;
    return count;
}

/* An operator of some semaphores has no right to what nobody can judge by them: owners, and requests without permits. */
Test(tenants, operator_of_some_semaphores_reaches_no_owner_or_tombstone_of_another_namespace, .timeout = 600)
{
    struct scene scene = scene_begin();
    const char *bank = people[BANK].namespace;
    by(&scene, OPERATOR, 201, NULL, "PUT", "/v1/semaphores/t:a", "{\"capacity\":10}");
    by(&scene, BANK, 201, NULL, "PUT", "/v1/owners/worker", "{\"ttl\":\"1h\"}");
    by(&scene, BANK, 201, NULL, "POST", "/v1/requests", owned_body("job", "worker", ",\"ttl\":\"owner\""));
    by(&scene, BANK, 200, NULL, "DELETE", "/v1/requests/secret", NULL);
    const char *methods[] = {"GET", "DELETE"};
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        by(&scene, FOREMAN, 403, "forbidden", methods[i], text("/v1/owners/worker?namespace=%s", bank), NULL);
        by(&scene, FOREMAN, 403, "forbidden", methods[i], text("/v1/owners/nobody?namespace=%s", bank), NULL);
    }
    by(&scene, BANK, 200, NULL, "GET", "/v1/owners/worker", NULL);
    text_is(&scene.talks[0], "state", "alive");
    hides(by(&scene, FOREMAN, 200, NULL, "GET", "/v1/requests", NULL), "secret", "job");
    hides(by(&scene, FOREMAN, 200, NULL, "GET", text("/v1/requests?namespace=%s", bank), NULL), "secret", "job");
    static const char *const calls[][3] = {
        {"GET", "", NULL},
        {"GET", "/why", NULL},
        {"POST", "/renew", "{}"},
        {"POST", "/confirm", "{}"},
        {"POST", "/force-release", "{\"reason\":\"r\"}"},
    };
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        by(&scene, FOREMAN, 404, "unknown_request", calls[i][0],
           text("/v1/requests/secret%s?namespace=%s", calls[i][1], bank), calls[i][2]);
    by(&scene, FOREMAN, 404, "unknown_request", "POST", text("/v1/confirm?namespace=%s", bank),
       "{\"external_ids\":[\"secret\"]}");
    /* Those of its own namespace it sees, as every principal of it does. */
    by(&scene, SHOP, 200, NULL, "DELETE", "/v1/requests/own", NULL);
    by(&scene, FOREMAN, 200, NULL, "GET", "/v1/requests/own", NULL);
    by(&scene, FOREMAN, 410, "ended", "POST", "/v1/requests/own/renew?namespace=shop", "{}");
    by(&scene, SHOP, 201, NULL, "PUT", "/v1/owners/worker", "{\"ttl\":\"1h\"}");
    by(&scene, FOREMAN, 200, NULL, "DELETE", "/v1/owners/worker?namespace=shop", NULL);
    by(&scene, OPERATOR, 200, NULL, "GET", text("/v1/requests/secret?namespace=%s", bank), NULL);
    by(&scene, OPERATOR, 410, "ended", "POST", text("/v1/requests/secret/renew?namespace=%s", bank), "{}");
    by(&scene, OPERATOR, 200, NULL, "DELETE", text("/v1/owners/worker?namespace=%s", bank), NULL);
    stop_both(&scene);
}

/* Renew, confirm and the end of an owner need the right operate where they name a namespace. */
Test(tenants, each_change_in_a_named_namespace_is_a_line_of_the_log, .timeout = 600)
{
    struct scene scene = scene_begin();
    by(&scene, OPERATOR, 201, NULL, "PUT", "/v1/semaphores/t:a", "{\"capacity\":10}");
    by(&scene, SHOP, 201, NULL, "PUT", "/v1/owners/worker", "{\"ttl\":\"1h\"}");
    by(&scene, SHOP, 201, NULL, "POST", "/v1/requests", owned_body("job", "worker", ""));
    by(&scene, OPERATOR, 200, NULL, "POST", "/v1/requests/job/renew?namespace=shop", "{}");
    by(&scene, OPERATOR, 200, NULL, "POST", "/v1/requests/job/confirm?namespace=shop", "{}");
    by(&scene, OPERATOR, 200, NULL, "POST", "/v1/confirm?namespace=shop", "{\"external_ids\":[\"job\"]}");
    text_is(&scene.talks[0], "confirmed.0.namespace", "shop");
    by(&scene, SHOP, 200, NULL, "POST", "/v1/confirm", "{\"external_ids\":[\"job\"]}");
    cr_expect_not(kit_json_has(scene.talks[0].reply.body, "confirmed.0.namespace"));
    by(&scene, OPERATOR, 200, NULL, "DELETE", "/v1/owners/worker?namespace=shop", NULL);
    by(&scene, FOREMAN, 403, "forbidden", "DELETE", text("/v1/owners/worker?namespace=%s", people[BANK].namespace),
       NULL);
    by(&scene, SHOP, 200, NULL, "POST", "/v1/requests/job/renew", "{}");
    by(&scene, OPERATOR, 200, NULL, "GET", "/v1/requests/job?namespace=shop", NULL);
    char *log = kit_read_file(scene.permitd[0]->log_path);
    cr_expect_eq(count_lines(log, " change "), 6, "%s", log); /* with that of the PUT */
    static const char *const lines[] = {
        "what=\"POST /v1/requests/{external_id}/renew\" name=job why=\"\" outcome=200",
        "what=\"POST /v1/requests/{external_id}/confirm\" name=job why=\"\" outcome=200",
        "principal=operator",
        "what=\"DELETE /v1/owners/{owner}\" name=worker why=\"\" outcome=200",
        "what=\"DELETE /v1/owners/{owner}\" name=worker why=\"\" outcome=403",
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        cr_expect_not_null(strstr(log, lines[i]), "%s in %s", lines[i], log);
    free(log);
    stop_both(&scene);
}

/* Without credentials permitd is as before, in the empty namespace. */
Test(tenants, permitd_without_credentials_is_in_the_empty_namespace, .timeout = 600)
{
    struct scene scene = scene_begin();
    by(&scene, OPERATOR, 201, NULL, "PUT", "/v1/semaphores/t:a", "{\"capacity\":10}");
    by(&scene, SHOP, 201, NULL, "POST", "/v1/requests", owned_body("of-shop", "o", ""));
    by(&scene, PLAIN, 201, NULL, "POST", "/v1/requests", owned_body("of-none", "o", ""));
    stop_both(&scene);
    struct kit_permitd *permitd =
        kit_permitd_start(&(struct kit_permitd_options){.database = own_url("tenants"), .flags = patient_flags});
    struct talk talk = talk_to(permitd->port);
    say(&talk, 200, "GET", "/v1/requests/of-none", NULL);
    refused(&talk, 404, "unknown_request", "GET", "/v1/requests/of-shop", NULL);
    say(&talk, 200, "GET", "/v1/requests/of-shop?namespace=shop", NULL);
    say(&talk, 201, "POST", "/v1/requests", owned_body("of-shop", "o", ""));
    talk_end(&talk);
    kit_permitd_stop(permitd);
}
