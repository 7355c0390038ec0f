/* SPDX-License-Identifier: MIT */
/* The feed: the setting of semaphores and templates, and GET /v1/feed. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fixture.h"

Test(feed, setting_is_none_sales_or_all, .timeout = 300)
{
    static const char *const values[] = {"\"some\"", "1", "null", "true"};
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":1}");
    const char *path = semaphore_path(name);
    say(&talk, 200, "GET", path, NULL);
    text_is(&talk, "feed", "none");
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
        refused(&talk, 422, "invalid", "PUT", path, text("{\"feed\":%s}", values[i]));
    say(&talk, 200, "PUT", path, "{\"feed\":\"all\"}");
    text_is(&talk, "feed", "all");
    say(&talk, 200, "GET", text("%s/events?limit=1", path), NULL);
    text_is(&talk, "events.0.what", "feed");
    text_is(&talk, "events.0.from", "none");
    text_is(&talk, "events.0.to", "all");
    say(&talk, 200, "PUT", path, "{\"note\":\"as before\"}");
    text_is(&talk, "feed", "all");
    const char *prefix = text("%s:", fresh_name("t"));
    say(&talk, 201, "PUT", text("/v1/templates/%s", prefix), "{\"capacity\":1,\"feed\":\"sales\"}");
    text_is(&talk, "feed", "sales");
    say(&talk, 201, "POST", "/v1/requests", acquire_body(NULL, text("%sone", prefix), 1, ""));
    say(&talk, 200, "GET", semaphore_path(text("%sone", prefix)), NULL);
    text_is(&talk, "feed", "sales");
    talk_end(&talk);
}

/* ---- with credentials ---- */

static const char operator[] = "Authorization: Bearer pmt_operator-token-of-the-tenants-tests-xxxxxxx\r\n";
static const char admin[] = "Authorization: Bearer pmt_left-token-of-the-tenants-tests-xxxxxxxxxxx\r\n";
static const char credentials[] =
    "[operator]\n"
    "token = sha256:940391a4d5b022f418618b921f36e09c10a6cb97a45d504af953fd276a0a6c86\nrole = operate\n"
    "semaphores = *\n"
    "[admin]\n"
    "token = sha256:561955e4fccb0937c801086b9ab3188e911dcec2a867f0e85f430a780294cca0\nrole = admin\n";

static struct kit_permitd *with_credentials(const char *flag)
{
    char *path = kept(kit_path("credentials"));
    write_file(path, credentials, 0600);
    const char *flags[] = {"--credentials", path, flag, NULL};
    return own_permitd(flags);
}

Test(feed, all_needs_the_right_admin, .timeout = 300)
{
    static const char *const paths[] = {"/v1/semaphores/a", "/v1/templates/a:"};
    struct kit_permitd *permitd = with_credentials(NULL);
    struct talk talk = talk_to(permitd->port);
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        say_with(&talk, 403, "forbidden", "PUT", paths[i], operator, "{\"capacity\":1,\"feed\":\"all\"}");
        detail_has(&talk, "admin");
        say_with(&talk, 201, NULL, "PUT", paths[i], operator, "{\"capacity\":1,\"feed\":\"sales\"}");
        say_with(&talk, 200, NULL, "PUT", paths[i], admin, "{\"feed\":\"all\"}");
        say_with(&talk, 200, NULL, "PUT", paths[i], operator, "{\"capacity\":2}");
        text_is(&talk, "feed", "all");
    }
    talk_end(&talk);
    kit_permitd_stop(permitd);
}

Test(feed, all_needs_no_right_with_feed_tenants, .timeout = 300)
{
    struct kit_permitd *permitd = with_credentials("--feed-tenants");
    struct talk talk = talk_to(permitd->port);
    say_with(&talk, 201, NULL, "PUT", "/v1/semaphores/a", operator, "{\"capacity\":1,\"feed\":\"all\"}");
    talk_end(&talk);
    kit_permitd_stop(permitd);
}
