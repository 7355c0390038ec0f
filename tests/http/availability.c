/* SPDX-License-Identifier: MIT */
/* GET /v1/availability: many semaphores from memory that is at most a second old. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fixture.h"

enum { PATIENCE_MS = 120000, PAGE = 1000 };

#define PATH "/v1/availability"

static const char *of_names(const char *names)
{
    return text(PATH "?semaphore=%s", names);
}

static const char *of_prefix(const char *prefix, const char *more)
{
    return text(PATH "?prefix=%s%s", prefix, more);
}

/* {"name":NAME,"available":AVAILABLE,"waiting":WAITING */
static const char *entry(const char *name, int available, int waiting)
{
    return text("{\"name\":\"%s\",\"available\":%d,\"waiting\":%d,\"version\":", name, available, waiting);
}

/* A question that is repeated until its answer has a part. */
struct question {
    struct talk *talk;
    const char *path;
    const char *part;
};

static bool has_part(void *context)
{
    const struct question *question = context;
    say(question->talk, 200, "GET", question->path, NULL);
    return strstr(question->talk->reply.body, question->part);
}

static void becomes(struct talk *talk, const char *path, const char *part)
{
    struct question question = {talk, path, part};
    cr_assert(kit_wait_until(has_part, &question, PATIENCE_MS), "no %s in %s", part, talk->reply.body);
}

static void acquire(struct talk *talk, const char *key, const char *semaphore, int count)
{
    say(talk, 201, "POST", "/v1/requests", acquire_body(key, semaphore, count, ""));
}

static long shown(const struct talk *talk)
{
    return kit_json_length(talk->reply.body, "semaphores");
}

static const char *header_of(const struct talk *talk, const char *name)
{
    char *value = reply_header(&talk->reply, name);
    cr_assert_not_null(value, "no %s: %s", name, talk->reply.headers);
    return kept(value);
}

/* ---- what is shown ---- */

Test(availability, shows_free_units_waiters_and_version)
{
    struct talk talk = talk_to(shared_port()), waiter = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":3}"), *key = fresh_name("k");
    acquire(&talk, key, name, 2);
    say(&talk, 200, "GET", of_names(name), NULL);
    cr_assert_eq(shown(&talk), 1);
    text_is(&talk, "semaphores.0.name", name);
    cr_assert_eq(number_of(&talk, "semaphores.0.available"), 1);
    cr_assert_eq(number_of(&talk, "semaphores.0.waiting"), 0);
    int64_t version = number_of(&talk, "semaphores.0.version");
    cr_assert_not(kit_json_has(talk.reply.body, "next"));
    say(&talk, 200, "GET", semaphore_path(name), NULL);
    cr_assert_eq(number_of(&talk, "version"), version);
    tell(&waiter, "POST", "/v1/requests", acquire_body(fresh_name("k"), name, 2, ",\"wait\":\"1m\""));
    becomes(&talk, of_names(name), entry(name, 1, 1));
    release(&talk, key);
    hear(&waiter, 201, NULL);
    becomes(&talk, of_names(name), entry(name, 1, 0));
    say(&talk, 200, "PUT", semaphore_path(name), "{\"capacity\":1}"); /* below what is held */
    becomes(&talk, of_names(name), entry(name, 0, 0));
    talk_end(&waiter);
    talk_end(&talk);
}

/* Unknown and retired names are left out, as from the list of semaphores; so is what only a template would create. */
Test(availability, leaves_out_what_does_not_exist)
{
    struct talk talk = talk_to(shared_port());
    const char *prefix = fresh_name("p");
    const char *one = text("%s:1", prefix), *two = text("%s:2", prefix), *three = text("%s:3", prefix);
    const char *names = of_names(text("%s,%s,%s", three, two, one));
    say(&talk, 201, "PUT", text("/v1/templates/%s", prefix), "{\"capacity\":5}");
    say(&talk, 201, "PUT", semaphore_path(one), "{\"capacity\":1}");
    say(&talk, 201, "PUT", semaphore_path(three), "{\"capacity\":3}");
    say(&talk, 200, "GET", names, NULL); /* in the order of the names that are given */
    cr_assert_eq(shown(&talk), 2);
    text_is(&talk, "semaphores.0.name", three);
    text_is(&talk, "semaphores.1.name", one);
    say(&talk, 200, "DELETE", semaphore_path(three), NULL);
    say(&talk, 201, "PUT", semaphore_path(two), "{\"capacity\":2}");
    becomes(&talk, names, text("[%s", entry(two, 2, 0)));
    cr_assert_eq(shown(&talk), 2);
    text_is(&talk, "semaphores.1.name", one);
    becomes(&talk, of_prefix(prefix, ""), text("[%s", entry(one, 1, 0)));
    becomes(&talk, of_prefix(prefix, ""), entry(two, 2, 0));
    cr_assert_eq(shown(&talk), 2);
    say(&talk, 201, "PUT", semaphore_path(three), "{\"capacity\":9}");
    becomes(&talk, names, text("[%s", entry(three, 9, 0)));
    say(&talk, 200, "GET", of_names(text("%s,%s,nobody", one, one)), NULL); /* each time that it is named */
    cr_assert_eq(shown(&talk), 2);
    say(&talk, 200, "GET", of_names(fresh_name("none")), NULL);
    cr_assert_eq(shown(&talk), 0);
    say(&talk, 200, "GET", of_prefix(fresh_name("none"), ""), NULL);
    cr_assert_eq(shown(&talk), 0);
    talk_end(&talk);
}

/* ---- pages ---- */

/* All pages together have each name once, in order. */
static int read_pages(struct talk *talk, const char *prefix, const char *limit, int *ret_pages)
{
    const char *after = "", *last = "";
    int count = 0;
    for (*ret_pages = 1;; ++*ret_pages) {
        say(talk, 200, "GET", of_prefix(prefix, text("%s%s", limit, after)), NULL);
        for (long i = 0; i < shown(talk); i++, count++) {
            const char *name = kept(kit_json_text(talk->reply.body, text("semaphores.%ld.name", i)));
            cr_assert_lt(strcmp(last, name), 0, "%s after %s", name, last);
            last = name;
        }
        if (!kit_json_has(talk->reply.body, "next"))
            return count;
        after = text("&after=%s", kept(kit_json_text(talk->reply.body, "next")));
    }
}

Test(availability, prefix_is_answered_in_pages, .timeout = 300)
{
    enum { MADE = PAGE + 5, RETIRED = 10 };
    struct kit_permitd *permitd = own_permitd(NULL);
    struct talk talk = talk_to(permitd->port);
    struct kit_sql *sql = own_sql("own0");
    int pages;
    for (int i = 0; i < 3; i++)
        say(&talk, 201, "PUT", semaphore_path(text("e:z%d", i)), "{\"capacity\":1}");
    for (int from = 0; from < MADE; from += 201)
        kit_sql_run(sql,
                    "INSERT INTO semaphore (id,name,kind,capacity,default_ttl_ms,max_hold_ms,retired_at)"
                    " WITH RECURSIVE n AS (SELECT %d AS i UNION ALL SELECT i+1 FROM n WHERE i<%d) SELECT 1000000+i,"
                    " CONCAT('e:',LPAD(i,4,'0')),2,1,1,1,IF(i%%100=7,SYSDATE(6),NULL) FROM n",
                    from, from + 200);
    say(&talk, 200, "GET", of_prefix("e:", ""), NULL);
    text_is(&talk, "next", "e:0999"); /* the first thousand, of which ten are retired */
    cr_assert_eq(shown(&talk), PAGE - 10);
    cr_assert_eq(read_pages(&talk, "e:", "", &pages), MADE - RETIRED + 3);
    cr_assert_eq(pages, 2);
    cr_assert_eq(read_pages(&talk, "e:", "&limit=300", &pages), MADE - RETIRED + 3);
    cr_assert_geq(pages, 4);
    cr_assert_eq(read_pages(&talk, "e:z", "&limit=1", &pages), 3);
    cr_assert_eq(pages, 3);
    cr_assert_eq(read_pages(&talk, "", "", &pages), MADE - RETIRED + 3);
    say(&talk, 200, "GET", of_prefix("e:", "&after=e:z1"), NULL);
    cr_assert_eq(shown(&talk), 1);
    text_is(&talk, "semaphores.0.name", "e:z2");
    say(&talk, 200, "GET", of_prefix("e:", "&after=zzz"), NULL);
    cr_assert_eq(shown(&talk), 0);
    kit_sql_close(sql);
    talk_end(&talk);
    kit_permitd_stop(permitd);
}

/* ---- validators ---- */

Test(availability, etag_changes_with_what_is_shown)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":2}"), *other = fresh_semaphore(&talk, "{\"capacity\":2}");
    const char *path = of_names(text("%s,%s", name, other)), *key = fresh_name("k");
    say(&talk, 200, "GET", path, NULL);
    const char *tag = header_of(&talk, "ETag");
    cr_assert_eq(strlen(tag), 18, "%s", tag);
    header_is(&talk, "Cache-Control", "private, max-age=1");
    const char *known[] = {tag, text("W/%s", tag), text("\"x\", %s", tag),
                           text("\"%s\",%s,\"y\"", "0123456789abcdef", tag)};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        say_with(&talk, 304, NULL, "GET", path, text("If-None-Match: %s\r\n", known[i]), NULL);
        cr_assert_eq(talk.reply.body_length, 0);
        header_is(&talk, "ETag", tag);
        header_is(&talk, "Cache-Control", "private, max-age=1");
    }
    say_with(&talk, 200, NULL, "GET", path, "If-None-Match: \"0123456789abcdef\"\r\n", NULL);
    say_with(&talk, 200, NULL, "GET", of_names(text("%s,%s", other, name)), text("If-None-Match: %s\r\n", tag), NULL);
    acquire(&talk, key, other, 1);
    becomes(&talk, path, entry(other, 1, 0));
    cr_assert_str_neq(header_of(&talk, "ETag"), tag);
    say_with(&talk, 200, NULL, "GET", path, text("If-None-Match: %s\r\n", tag), NULL);
    release(&talk, key); /* the same numbers, but another version */
    becomes(&talk, path, entry(other, 2, 0));
    cr_assert_str_neq(header_of(&talk, "ETag"), tag);
    refused(&talk, 422, "invalid", "GET", PATH, NULL);
    cr_assert_null(reply_header(&talk.reply, "Cache-Control"));
    talk_end(&talk);
}

/* ---- rights ---- */

/* Tokens of a looker, a shop and a bank: the digests are SHA-256 of them. */
#define SHOP  "Authorization: Bearer pmt_shop-token-of-the-tenants-tests-xxxxxxxxxxx\r\n"
#define BANK  "Authorization: Bearer pmt_bank-token-of-the-tenants-tests-xxxxxxxxxxx\r\n"
#define ADMIN "Authorization: Bearer pmt_operator-token-of-the-tenants-tests-xxxxxxx\r\n"
#define GUARD "Authorization: Bearer pmt_scraper-token-of-the-tenants-tests-xxxxxxxx\r\n"

static const char credentials[] = "[shop]\nrole = use\nnamespace = shop\nsemaphores = shop:* hall\n"
                                  "token = sha256:4c9e42bd7d972e5aa29e86acb99928bb94ca9413a7f91d00f5f4bd778d6c8001\n"
                                  "[bank]\nrole = look\nsemaphores = bank:*\n"
                                  "token = sha256:c80d3d3a38e003bb0fd5a915dc03e5d274bb1908f0fc1647cc206dc4883d61f3\n"
                                  "[admin]\nrole = admin\n"
                                  "token = sha256:940391a4d5b022f418618b921f36e09c10a6cb97a45d504af953fd276a0a6c86\n"
                                  "[guard]\nrole = fence\nsemaphores = *\n"
                                  "token = sha256:5423c8cb28dc0b3144d620f714056b7be5bf5c27b60c50d06d1ebb87b9b6d657\n";

/* Names out of scope are as names that do not exist, whoever else has them in memory; no answer and no `next` tells. */
Test(availability, shows_what_is_in_scope)
{
    char *file = kit_path("credentials");
    write_file(file, credentials, 0600);
    struct kit_permitd *permitd = own_permitd((const char *const[]){"--credentials", file, NULL});
    struct talk talk = talk_to(permitd->port);
    static const char *const names[] = {"bank:a", "bank:b", "hall", "hall2", "shop:a", "shop:b", "shop:c"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        say_with(&talk, 201, NULL, "PUT", semaphore_path(names[i]), ADMIN, "{\"capacity\":1}");
    static const struct {
        const char *credential, *query, *shown;
    } cases[] = {
        {ADMIN, "prefix=", "bank:a bank:b hall hall2 shop:a shop:b shop:c "},
        {ADMIN, "semaphore=bank:a,shop:a", "bank:a shop:a "},
        {SHOP, "prefix=", "hall shop:a shop:b shop:c "},
        {SHOP, "prefix=sh", "shop:a shop:b shop:c "},
        {SHOP, "prefix=shop:b", "shop:b "},
        {SHOP, "prefix=h", "hall "},
        {SHOP, "prefix=bank:", ""},
        {SHOP, "semaphore=bank:a,shop:b,hall2,hall", "shop:b hall "},
        {SHOP, "semaphore=bank:a", ""},
        {SHOP, "prefix=&limit=1", "hall >hall"},
        {SHOP, "prefix=&limit=1&after=hall", "shop:a >shop:a"},
        {SHOP, "prefix=&limit=3", "hall shop:a shop:b >shop:b"},
        {SHOP, "prefix=&limit=3&after=shop:b", "shop:c "},
        {BANK, "prefix=", "bank:a bank:b "},
        {BANK, "prefix=shop:", ""},
        {BANK, "semaphore=shop:a,bank:b", "bank:b "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *seen = "";
        say_with(&talk, 200, NULL, "GET", text(PATH "?%s", cases[i].query), cases[i].credential, NULL);
        for (long j = 0; j < shown(&talk); j++)
            seen = text("%s%s ", seen, kept(kit_json_text(talk.reply.body, text("semaphores.%ld.name", j))));
        if (kit_json_has(talk.reply.body, "next"))
            seen = text("%s>%s", seen, kept(kit_json_text(talk.reply.body, "next")));
        cr_expect_str_eq(seen, cases[i].shown, "%s: %s", cases[i].query, seen);
    }
    say_with(&talk, 200, NULL, "GET", PATH "?semaphore=bank:a", SHOP, NULL);
    const char *hidden = header_of(&talk, "ETag");
    say_with(&talk, 200, NULL, "GET", PATH "?semaphore=nobody", SHOP, NULL);
    cr_assert_str_eq(header_of(&talk, "ETag"), hidden);
    say_with(&talk, 403, "forbidden", "GET", PATH "?semaphore=shop:a", GUARD, NULL);
    detail_has(&talk, "needs the right look");
    talk_end(&talk);
    kit_permitd_stop(permitd);
    free(file);
}

/* ---- bad input ---- */

/* `count` names of so many bytes. */
static const char *many_names(int count, int length)
{
    char *list = kept(malloc((size_t)count * ((size_t)length + 1) + 1));
    char *end = list;
    for (int i = 0; i < count; i++)
        end += sprintf(end, "%s%0*d", i ? "," : "", length, i);
    return list;
}

Test(availability, refuses_bad_input)
{
    struct talk talk = talk_to(shared_port());
    const char *long_name = many_names(1, 256);
    const struct {
        const char *query, *part;
    } cases[] = {
        {"", "either semaphore, or prefix"},
        {"?semaphore=a&prefix=b", "either semaphore, or prefix"},
        {"?semaphore=a&limit=1", "either semaphore, or prefix"},
        {"?semaphore=a&after=b", "either semaphore, or prefix"},
        {"?after=b", "either semaphore, or prefix"},
        {"?semaphore=", "names with commas"},
        {"?semaphore=a,,b", "names with commas"},
        {"?semaphore=a,", "names with commas"},
        {"?semaphore=,a", "names with commas"},
        {"?semaphore=a%20b", "names with commas"},
        {"?semaphore=a,..", "names with commas"},
        {"?semaphore=a%00b", "names with commas"},
        {text("?semaphore=a,%s", long_name), "1 to 255 bytes"},
        {text("?semaphore=%s", many_names(PAGE + 1, 4)), "at most 1000 names"},
        {text("?prefix=%s", long_name), "at most 255 bytes"},
        {text("?prefix=a&after=%s", long_name), "at most 255 bytes"},
        {"?prefix=a&limit=0", "limit must be"},
        {"?prefix=a&limit=1001", "limit must be"},
        {"?prefix=a&prefix=b", "duplicate"},
        {"?semaphores=a", "not a query parameter"},
        {"?prefix=a&wait=1s", "not a query parameter"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        refused(&talk, 422, "invalid", "GET", text(PATH "%s", cases[i].query), NULL);
        detail_has(&talk, cases[i].part);
    }
    refused(&talk, 422, "invalid", "GET", text(PATH "?prefix=a"), "{}");
    refused(&talk, 400, "malformed", "GET", PATH "?prefix=%zz", NULL);
    refused(&talk, 405, "method_not_allowed", "PUT", PATH, "{}");
    say(&talk, 200, "GET", of_names(many_names(PAGE, 15)), NULL); /* the most, within 16 KiB */
    cr_assert_eq(shown(&talk), 0);
    refused(&talk, 400, "malformed", "GET", of_names(many_names(PAGE, 17)), NULL);
    detail_has(&talk, "16384 bytes");
    talk_end(&talk);
    talk = talk_to(shared_port());
    say(&talk, 200, "GET", of_prefix(many_names(1, 255), ""), NULL);
    say(&talk, 200, "GET", of_prefix("%ff%00%2a", "&after=%ff"), NULL); /* begins no name */
    cr_assert_eq(shown(&talk), 0);
    talk_end(&talk);
}

/* ---- the database ---- */

/* Two permitd on one database, which logs its statements. */
struct pair {
    struct kit_database *database;
    struct kit_permitd *permitd[2];
    struct talk talks[2];
    struct kit_sql *sql;
};

/* `flags` of the first one. */
static struct pair pair_start(const char *const *flags)
{
    struct pair pair = {.database = kit_database_start(NULL)};
    for (int i = 0; i < 2; i++) {
        const struct kit_permitd_options options = {.database = pair.database->url, .flags = i ? patient_flags : flags};
        pair.permitd[i] = kit_permitd_start(&options);
        pair.talks[i] = talk_to(pair.permitd[i]->port);
    }
    pair.sql = kit_sql_open(pair.database->socket, "permitd");
    kit_sql_run(pair.sql, "SET GLOBAL log_output = 'TABLE', GLOBAL general_log = ON");
    return pair;
}

static void pair_stop(struct pair *pair)
{
    kit_sql_close(pair->sql);
    for (int i = 0; i < 2; i++) {
        talk_end(&pair->talks[i]);
        kit_permitd_stop(pair->permitd[i]);
    }
    kit_database_stop(pair->database);
}

/* Returns how many statements have read availability. */
static int64_t reads(const struct pair *pair)
{
    return kit_sql_number(pair->sql, "SELECT COUNT(*) FROM mysql.general_log WHERE command_type = 'Query'"
                                     " AND argument LIKE '%%s.waiting,s.version,s.retired_at IS NOT NULL%%'"
                                     " AND argument NOT LIKE '%%general_log%%'");
}

/*
 * A change by another permitd is seen in a read that begins at most a second before the question: not before its COMMIT,
 * and at the latest at a question one second after it.
 */
Test(availability, sees_changes_by_another_permitd_within_a_second, .timeout = 300)
{
    struct pair pair = pair_start(patient_flags);
    say(&pair.talks[0], 201, "PUT", semaphore_path("a"), "{\"capacity\":100}");
    say(&pair.talks[1], 200, "GET", of_names("a"), NULL);
    for (int i = 1; i <= 5; i++) {
        acquire(&pair.talks[0], fresh_name("k"), "a", 1);
        int64_t committed = kit_now_us();
        for (bool seen = false; !seen;) {
            int64_t asked = kit_now_us();
            say(&pair.talks[1], 200, "GET", i % 2 ? of_names("a") : of_prefix("a", ""), NULL);
            seen = number_of(&pair.talks[1], "semaphores.0.available") == 100 - i;
            cr_assert(seen || asked - committed <= 1000000, "%lld us later: %s", (long long)(asked - committed),
                      pair.talks[1].reply.body);
        }
    }
    pair_stop(&pair);
}

/* Clients that ask for different names, at different times, are served by one read a second together. */
Test(availability, one_read_a_second_serves_all, .timeout = 300)
{
    enum { NAMES = 20, SECONDS = 5 };
    struct pair pair = pair_start(patient_flags);
    struct talk *talk = &pair.talks[0];
    for (int i = 0; i < NAMES; i++)
        say(talk, 201, "PUT", semaphore_path(text("e:%d", i)), "{\"capacity\":1}");
    cr_assert_eq(reads(&pair), 0);
    for (int i = 0; i < NAMES; i++)
        say(talk, 200, "GET", of_names(text("e:%d,e:%d", i, (i + 1) % NAMES)), NULL);
    say(talk, 200, "GET", of_prefix("e:", ""), NULL);
    int64_t began = kit_now_us(), before = reads(&pair), asked = 0;
    for (; kit_now_us() < began + SECONDS * INT64_C(1000000); asked++) {
        say(talk, 200, "GET", of_names(text("e:%lld,e:%lld", (long long)asked % NAMES, (long long)(asked + 1) % NAMES)),
            NULL);
        cr_assert_eq(shown(talk), 2);
        say(talk, 200, "GET", of_prefix("e:", ""), NULL);
        cr_assert_eq(shown(talk), NAMES);
    }
    int64_t seconds = (kit_now_us() - began) / 1000000 + 1;
    int64_t statements = reads(&pair) - before; /* a read has one for the names, and one for the prefix */
    cr_assert_leq(statements, 2 * seconds, "%lld statements in %lld s, for %lld questions", (long long)statements,
                  (long long)seconds, (long long)asked);
    cr_assert_gt(statements, 0);
    before = reads(&pair);
    kit_sleep_ms(2500); /* nobody asks */
    cr_assert_eq(reads(&pair), before);
    pair_stop(&pair);
}

struct last {
    struct talk *talk;
    int64_t answered_at; /* the last 200 */
};

static bool is_unavailable(void *context)
{
    struct last *last = context;
    int64_t asked = kit_now_us();
    reply_release(&last->talk->reply);
    cr_assert(kit_http_get(&last->talk->http, of_names("a"), &last->talk->reply), "%s", last->talk->reply.error);
    if (last->talk->reply.status == 200)
        last->answered_at = asked;
    return last->talk->reply.status != 200;
}

/* `type` of the problem; NULL: any. */
static void goes_down(struct pair *pair, struct talk *talk, void (*down)(struct kit_database *database),
                      void (*up)(struct kit_database *database), const char *type)
{
    struct last last = {.talk = talk};
    say_until(talk, 200, "GET", of_names("a"), NULL);
    down(pair->database);
    int64_t down_at = kit_now_us();
    cr_assert(kit_wait_until(is_unavailable, &last, PATIENCE_MS));
    cr_assert_leq(last.answered_at, down_at + 1000000, "a number that is older than a second");
    cr_assert_eq(talk->reply.status, 503, "%s", talk->reply.body);
    if (type)
        text_is(talk, "type", type);
    up(pair->database);
    say_until(talk, 200, "GET", of_names("a"), NULL);
    cr_assert_eq(number_of(talk, "semaphores.0.available"), 7);
}

/* Without a database the numbers are shown for at most a second. So they are if it hangs: then 503 comes later. */
Test(availability, database_that_is_down_is_503_after_a_second, .timeout = 300)
{
    struct pair pair = pair_start((const char *const[]){"--request-timeout", "2s", NULL});
    say(&pair.talks[1], 201, "PUT", semaphore_path("a"), "{\"capacity\":7}");
    kit_sql_close(pair.sql);
    goes_down(&pair, &pair.talks[1], kit_database_kill, kit_database_restart, "/problems/database_unavailable");
    goes_down(&pair, &pair.talks[0], kit_database_freeze, kit_database_thaw, NULL);
    pair.sql = kit_sql_open(pair.database->socket, "permitd");
    pair_stop(&pair);
}
