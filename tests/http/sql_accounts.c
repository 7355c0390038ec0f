/* SPDX-License-Identifier: MIT */
/* /v1/sql-accounts. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "fixture.h"

Test(sql_accounts, are_put_listed_and_deleted_and_each_change_is_an_event, .timeout = 300)
{
    struct kit_permitd *permitd = own_permitd(NULL); /* the events are those of all semaphores */
    struct talk talk = talk_to(permitd->port);
    const char *semaphore = fresh_semaphore(&talk, "{\"capacity\":1}");
    const char *user = text("u.%s", fresh_name("a"));
    const char *path = text("/v1/sql-accounts/%s", user);
    const char *events = text("/v1/semaphores/%s/events?limit=1", semaphore);
    refused(&talk, 404, "unknown_account", "GET", path, NULL);
    refused(&talk, 404, "unknown_account", "DELETE", path, NULL);
    say(&talk, 201, "PUT", path, NULL);
    text_is(&talk, "user", user);
    text_is(&talk, "namespace", "");
    cr_expect_eq(kit_json_length(talk.reply.body, "grants"), 4);
    say(&talk, 200, "GET", events, NULL);
    text_is(&talk, "events.0.what", "sql_account");
    text_is(&talk, "events.0.to", user);
    cr_expect_not(kit_json_has(talk.reply.body, "events.0.from"));
    cr_expect_not(kit_json_has(talk.reply.body, "events.0.next_permit_id"));
    char *first = kit_json_part(talk.reply.body, "events.0");
    say(&talk, 200, "PUT", path, NULL);
    say(&talk, 200, "GET", events, NULL);
    char *second = kit_json_part(talk.reply.body, "events.0");
    cr_expect_str_eq(first, second, "nothing has changed");
    say(&talk, 200, "GET", path, NULL);
    text_is(&talk, "user", user);
    say(&talk, 200, "GET", text("/v1/sql-accounts?limit=1&after=%.*s", (int)strlen(user) - 1, user), NULL);
    text_is(&talk, "sql_accounts.0.user", user);
    say(&talk, 200, "DELETE", path, NULL);
    say(&talk, 200, "GET", events, NULL);
    text_is(&talk, "events.0.from", user);
    cr_expect_not(kit_json_has(talk.reply.body, "events.0.to"));
    refused(&talk, 404, "unknown_account", "DELETE", path, NULL);
    free(first);
    free(second);
    talk_end(&talk);
    kit_permitd_stop(permitd);
}

Test(sql_accounts, names_that_cannot_be_are_refused, .timeout = 300)
{
    static const char *const bad[] = {"%27", "%22", "a%60", "a%5Cb", "a%20b", "%C3%A9", "a%00", "..", "a%0A"};
    struct kit_permitd *permitd = own_permitd(NULL);
    struct talk talk = talk_to(permitd->port);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        refused(&talk, 422, "invalid", "PUT", text("/v1/sql-accounts/%s", bad[i]), NULL);
    refused(&talk, 422, "invalid", "PUT", text("/v1/sql-accounts/%0129d", 1), NULL);
    refused(&talk, 422, "invalid", "PUT", "/v1/sql-accounts/a?namespace=A", NULL);
    refused(&talk, 422, "invalid", "PUT", "/v1/sql-accounts/a?namespace=none", NULL);
    detail_has(&talk, "no principal has this namespace");
    const char *longest = text("/v1/sql-accounts/%0128d", 1);
    say(&talk, 201, "PUT", longest, NULL);
    say(&talk, 200, "DELETE", longest, NULL);
    talk_end(&talk);
    kit_permitd_stop(permitd);
}
