/* SPDX-License-Identifier: MIT */
/* The rows of templates on a real MariaDB: single changes, lists, and the templates that resolve finds for names. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>

#include "batch_fixture.h"
#include "fixture.h"
#include "store/templates.h"

enum { TTL_MS = 60000 };

static const struct database_address *address;
static struct store *store;
static struct session *session; /* the store's */
static struct arena arena;

static void templates_begin(void)
{
    address = fresh_database();
    store = opened(address, STORE_READER);
    session = session_of(store);
    arena_init(&arena, 1 << 16, 1 << 26);
}

static void templates_end(void)
{
    arena_release(&arena);
    store_free(store);
}

TestSuite(templates, .init = templates_begin, .fini = templates_end, .timeout = 300);

static enum permit_status put(const char *prefix, const struct semaphore_change *change, struct template *ret_template)
{
    struct template_change put = {.prefix = bytes_of(prefix), .change = *change, .default_ttl_ms = TTL_MS};
    enum permit_status status = store->templates->put(store, &put, &arena);
    *ret_template = put.ret_template;
    return status;
}

/* Creates a template with this capacity. */
static void make(const char *prefix, int64_t capacity)
{
    struct template template;
    const struct semaphore_change change = {.has_capacity = true, .capacity = capacity};
    cr_assert_eq(put(prefix, &change, &template), PERMIT_OK, "%s", session_message(session));
}

Test(templates, are_read_as_they_were_put)
{
    struct template was, is;
    const struct semaphore_change change = {
        .has_capacity = true,
        .has_kind = true,
        .has_queue = true,
        .has_max_ttl = true,
        .has_grace = true,
        .has_max_hold = true,
        .has_note = true,
        .capacity = 70000,
        .kind = KIND_COUNTED,
        .queue = QUEUE_FIFO,
        .max_ttl_ms = 90000,
        .grace_ms = 7,
        .max_hold_ms = 8,
        .note = BYTES("it's \xc3\xa4 note"),
    };
    cr_assert_eq(put("a:", &change, &was), PERMIT_OK, "%s", session_message(session));
    cr_assert_eq(store->templates->get(store, BYTES("a:"), &arena, &is), PERMIT_OK);
    cr_assert(bytes_equal(is.prefix, BYTES("a:")) && bytes_equal(is.settings.note, change.note));
    cr_assert(is.settings.kind == KIND_COUNTED && is.settings.queue == QUEUE_FIFO && is.settings.capacity == 70000);
    cr_assert(is.settings.default_ttl_ms == TTL_MS && is.settings.max_ttl_ms == 90000);
    cr_assert(is.settings.grace_ms == 7 && is.settings.max_hold_ms == 8 && is.settings.config_version == 1);
    const struct semaphore_change none = {.has_max_ttl = true, .max_ttl_ms = -1};
    cr_assert_eq(put("a:", &none, &was), PERMIT_OK);
    cr_assert_eq(store->templates->get(store, BYTES("a:"), &arena, &is), PERMIT_OK);
    cr_assert(is.settings.max_ttl_ms == -1 && is.settings.grace_ms == 7 && is.settings.config_version == 2);
    cr_assert_eq(store->templates->get(store, BYTES("A:"), &arena, &is), PERMIT_UNKNOWN_TEMPLATE);
}

Test(templates, are_deleted_once)
{
    struct template template;
    make("a:", 3);
    cr_assert_eq(store->templates->delete (store, BYTES("a"), &arena, &template), PERMIT_UNKNOWN_TEMPLATE);
    cr_assert_eq(store->templates->delete (store, BYTES("a:"), &arena, &template), PERMIT_OK);
    cr_assert(bytes_equal(template.prefix, BYTES("a:")) && template.settings.capacity == 3);
    cr_assert_eq(store->templates->delete (store, BYTES("a:"), &arena, &template), PERMIT_UNKNOWN_TEMPLATE);
    cr_assert_eq(number_of(session, "SELECT COUNT(*) FROM template"), 0);
    cr_assert_not(in_transaction(session));
}

Test(templates, are_listed_in_order_by_prefix_and_position)
{
    static const struct {
        const char *begins, *after;
        unsigned limit;
        const char *expected;
    } cases[] = {
        {"", "", 9, "B a a: a:b b"}, {"", "", 2, "B a"},  {"", "a", 9, "a: a:b b"}, {"a", "", 9, "a a: a:b"},
        {"a", "a", 1, "a:"},         {"a", "a:b", 9, ""}, {"a:", "", 9, "a: a:b"},  {"c", "", 9, ""},
        {"B", "", 9, "B"},           {"", "b", 9, ""},    {"a:", "Z", 9, "a: a:b"},
    };
    static const char *const prefixes[] = {"b", "a:b", "a", "a:", "B"};
    for (size_t i = 0; i < ARRAY_LENGTH(prefixes); i++)
        make(prefixes[i], 1);
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct page page = {.arena = &arena, .limit = cases[i].limit, .after.name = bytes_of(cases[i].after)};
        char text[64] = "";
        cr_assert_eq(store->templates->list(store, bytes_of(cases[i].begins), &page), PERMIT_OK);
        for (size_t j = 0; j < page.count; j++)
            snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", j ? " " : "",
                     page.templates[j].prefix.data);
        cr_assert_str_eq(text, cases[i].expected, "%zu", i);
    }
}

/* ---- concurrency ---- */

static void *make_once(void *result)
{
    struct arena own;
    const struct semaphore_change change = {.has_capacity = true, .capacity = 1, .if_none_match = true};
    struct store *mine = store_open(address, STORE_READER, NULL);
    arena_init(&own, 1 << 12, 1 << 20);
    enum permit_status status = mine->session->reconnect(mine);
    for (int i = 0; i < 20 && status == PERMIT_OK; i++) {
        char prefix[8];
        snprintf(prefix, sizeof prefix, "at%d", i);
        struct template_change put = {.prefix = bytes_of(prefix), .change = change, .default_ttl_ms = TTL_MS};
        status = mine->templates->put(mine, &put, &own);
        *(int *)result += status == PERMIT_OK;
        status = status == PERMIT_VERSION_MISMATCH ? PERMIT_OK : status;
    }
    arena_release(&own);
    store_free(mine);
    return status == PERMIT_OK ? result : NULL;
}

Test(templates, one_of_concurrent_puts_creates_the_template)
{
    enum { AT_ONCE = 4 };
    pthread_t threads[AT_ONCE];
    int made[AT_ONCE] = {0};
    int sum = 0;
    for (int i = 0; i < AT_ONCE; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, make_once, &made[i]), 0);
    for (int i = 0; i < AT_ONCE; i++) {
        void *good;
        pthread_join(threads[i], &good);
        cr_assert_not_null(good);
        sum += made[i];
    }
    cr_assert_eq(sum, 20);
    cr_assert_eq(number_of(session, "SELECT COUNT(*) FROM template WHERE config_version = 1"), 20);
}

/* ---- resolve ---- */

static void match(struct resolve_name *names, size_t count)
{
    cr_assert_eq(templates_match(session, names, count, &arena), PERMIT_OK, "%s", session_message(session));
}

/* Returns the prefix of the template found for a name; "-": none. */
static const char *found_by(const struct resolve_name *name)
{
    return name->ret_template ? name->ret_template->prefix.data : "-";
}

Test(templates, longest_prefix_is_used)
{
    static const char *const cases[][2] = {
        {"user:1", "user:"},
        {"user:vip:1", "user:vip"},
        {"user:vip", "user:vip"},
        {"user:vi", "user:"},
        {"user:", "user:"},
        {"user", "u"},
        {"u", "u"},
        {"User:1", "-"},
        {"v", "-"},
        {"x.user:1", "-"},
        {"use:r", "u"},
        {"user:vix", "user:"},
    };
    struct resolve_name names[ARRAY_LENGTH(cases)] = {0};
    make("u", 1);
    make("user:", 2);
    make("user:vip", 3);
    make("w", 4);
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++)
        names[i].name = bytes_of(cases[i][0]);
    match(names, ARRAY_LENGTH(cases));
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++)
        cr_assert_str_eq(found_by(&names[i]), cases[i][1], "%s", cases[i][0]);
    cr_assert_eq(names[1].ret_template->settings.capacity, 3);
}

Test(templates, existing_semaphore_needs_no_template)
{
    struct resolve_name names[] = {
        {.name = BYTES("u1"), .ret_id = 7},
        {.name = BYTES("u2"), .ret_id = 8, .ret_retired = true},
        {.name = BYTES("u3")},
    };
    match(names, ARRAY_LENGTH(names));
    for (size_t i = 0; i < ARRAY_LENGTH(names); i++)
        cr_assert_null(names[i].ret_template);
    make("u", 1);
    match(names, ARRAY_LENGTH(names));
    cr_assert_null(names[0].ret_template);
    cr_assert_str_eq(found_by(&names[1]), "u");
    cr_assert_str_eq(found_by(&names[2]), "u");
}

/* More names than one statement holds, each with its own template, and prefix lengths that exceed most names. */
Test(templates, many_names_find_their_templates)
{
    enum { NAMES = 1300, TEMPLATES = 700 };
    static struct resolve_name names[NAMES];
    static char texts[NAMES][24];
    char longest[256];
    memset(longest, 'z', 255);
    longest[255] = '\0';
    make(longest, 1);
    make("n1", 1);
    must_run(session, "BEGIN");
    for (int i = 0; i < TEMPLATES; i++) {
        char sql[256];
        snprintf(sql, sizeof sql,
                 "INSERT INTO template SET prefix='name%04d:', length=9, kind=1, capacity=%d, default_ttl_ms=1,"
                 " max_hold_ms=1",
                 i, i);
        must_run(session, sql);
    }
    must_run(session, "COMMIT");
    for (int i = 0; i < NAMES; i++) {
        snprintf(texts[i], sizeof texts[i], "name%04d:%d", i, i);
        names[i].name = bytes_of(texts[i]);
    }
    names[1].name = bytes_of(longest);
    match(names, NAMES);
    cr_assert_str_eq(found_by(&names[1]), longest);
    for (int i = 2; i < NAMES; i++)
        if (i < TEMPLATES)
            cr_assert(names[i].ret_template && names[i].ret_template->settings.capacity == i, "%s", texts[i]);
        else
            cr_assert_null(names[i].ret_template, "%s", texts[i]);
}

/* The existing prefix lengths are found by index seeks, however many templates exist. */
Test(templates, lengths_are_read_from_their_index)
{
    must_run(session, "INSERT INTO template (prefix,length,kind,capacity,default_ttl_ms,max_hold_ms)"
                      " SELECT CONCAT('p', seq), LENGTH(CONCAT('p', seq)), 1, 1, 1, 1"
                      " FROM numbers.upto WHERE seq <= 2000;"
                      "ANALYZE TABLE template");
    cr_assert_str_eq(text_of(session, "SELECT GROUP_CONCAT(DISTINCT length) FROM template"), "2,3,4,5");
    struct resolve_name name = {.name = BYTES("p1-and-more")};
    struct explained table;
    sent_record();
    match(&name, 1);
    cr_assert_eq(explain(session, sent_statement("SELECT DISTINCT length"), &table, 1), 1);
    cr_assert(bytes_equal(table.key, BYTES("template_length")));
    cr_assert(bytes_begin_with(table.extra, BYTES("Using index for group-by")), "%.*s", (int)table.extra.length,
              table.extra.data);
}

Test(templates, resolve_finds_existing_retired_and_creatable_names)
{
    struct fixture fixture;
    fixture_open(&fixture, store_open(address, STORE_WORKER, NULL));
    semaphore_make(&fixture, "u-there", KIND_SLOTTED, 1);
    semaphore_make(&fixture, "u-gone", KIND_COUNTED, 1);
    semaphore_make(&fixture, "gone", KIND_COUNTED, 1);
    must_run(session, "UPDATE semaphore SET retired_at = UTC_TIMESTAMP(6) WHERE name LIKE '%gone'");
    make("u-", 1);
    struct resolve_name names[] = {{.name = BYTES("u-there")}, {.name = BYTES("u-gone")}, {.name = BYTES("gone")},
                                   {.name = BYTES("u-new")},   {.name = BYTES("new")},    {.name = BYTES("u-new")}};
    struct resolve resolve = {.names = names, .name_count = ARRAY_LENGTH(names)};
    cr_assert_eq(fixture.store->batch->resolve(fixture.store, &resolve, &arena), PERMIT_OK, "%s",
                 fixture.store->message);
    cr_assert(names[0].ret_id && !names[0].ret_retired && !names[0].ret_template);
    cr_assert(names[1].ret_id && names[1].ret_retired && names[1].ret_template);
    cr_assert(names[2].ret_id && names[2].ret_retired && !names[2].ret_template);
    cr_assert(!names[3].ret_id && names[3].ret_template && names[5].ret_template);
    cr_assert(!names[4].ret_id && !names[4].ret_template);
    fixture_close(&fixture);
}
