/* SPDX-License-Identifier: MIT */
/*
 * Requests that web pages make a browser send to a permitd on the same machine, and hosts that permitd does not serve.
 */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fixture.h"

#define FROM_EVIL "Host: localhost\r\nOrigin: http://evil.example\r\n"

/* Sends a request with exactly these header lines. type NULL: no refusal expected. */
static void send_as(struct talk *talk, int status, const char *type, const char *method, const char *path,
                    const char *headers)
{
    const char *bytes = text("%s %s HTTP/1.1\r\n%s\r\n", method, path, headers);
    reply_release(&talk->reply);
    cr_assert(kit_http_raw(&talk->http, bytes, strlen(bytes), &talk->reply), "%s: %s", bytes, talk->reply.error);
    cr_assert_eq(talk->reply.status, status, "%s: %d: %s", bytes, talk->reply.status, talk->reply.body);
    if (type)
        text_is(talk, "type", text("/problems/%s", type));
}

static const char *held_request(struct talk *talk)
{
    const char *key = fresh_name("k");
    const char *semaphore = fresh_semaphore(talk, "{\"capacity\":1}");
    say(talk, 201, "POST", "/v1/requests",
        text("{\"external_id\":\"%s\",\"permits\":[{\"semaphore\":\"%s\"}]}", key, semaphore));
    return key;
}

Test(web_pages, from_another_site_change_nothing)
{
    struct talk talk = talk_to(shared_port());
    const char *key = held_request(&talk);
    const char *path = request_path(key);
    const char *semaphore = fresh_semaphore(&talk, "{\"capacity\":1}");
    say(&talk, 200, "POST", text("/v1/semaphores/%s/pause", semaphore), "{\"reason\":\"a test\"}");
    send_as(&talk, 403, "forbidden", "POST", text("%s/confirm", path), FROM_EVIL);
    send_as(&talk, 403, "forbidden", "POST", text("%s/renew", path), FROM_EVIL);
    send_as(&talk, 403, "forbidden", "DELETE", path, FROM_EVIL);
    send_as(&talk, 403, "forbidden", "POST", text("/v1/semaphores/%s/resume", semaphore), FROM_EVIL);
    send_as(&talk, 403, "forbidden", "POST", text("%s/confirm", path),
            "Host: localhost\r\nSec-Fetch-Site: cross-site\r\n");
    send_as(&talk, 403, "forbidden", "GET", path, "Host: localhost\r\nSec-Fetch-Site: same-site\r\n");
    send_as(&talk, 403, "forbidden", "GET", "/nowhere", FROM_EVIL);
    say(&talk, 200, "GET", path, NULL);
    text_is(&talk, "state", "ACQUIRED");
    cr_assert_not(kit_json_has(talk.reply.body, "confirmed_at"));
    say(&talk, 200, "GET", semaphore_path(semaphore), NULL);
    text_is(&talk, "paused_reason", "a test");
    talk_end(&talk);
}

Test(web_pages, under_a_foreign_host_name_read_nothing)
{
    struct talk talk = talk_to(shared_port());
    const char *path = request_path(held_request(&talk));
    const char *page =
        text("Host: evil.example:%u\r\nOrigin: http://evil.example:%u\r\nSec-Fetch-Site: same-origin\r\n",
             shared_port(), shared_port());
    send_as(&talk, 421, "misdirected", "POST", text("%s/confirm", path), page);
    send_as(&talk, 421, "misdirected", "GET", path, "Host: evil.example\r\n");
    send_as(&talk, 421, "misdirected", "GET", "/healthz", "Host: evil.example\r\n");
    cr_assert(strstr(talk.reply.body, "evil.example") && strstr(talk.reply.body, "allowed_hosts"), "%s",
              talk.reply.body);
    talk_end(&talk);
}

/* RFC 9112, 3.2.2: the host of an absolute target counts, whatever Host says. */
Test(web_pages, host_of_an_absolute_target_counts_instead_of_host)
{
    struct talk talk = talk_to(shared_port());
    const char *path = request_path(held_request(&talk));
    const char *own = text("http://localhost:%u%s", shared_port(), path);
    const char *origin = text("Host: evil.example\r\nOrigin: http://localhost:%u\r\n", shared_port());
    send_as(&talk, 421, "misdirected", "GET", text("http://evil.example%s", path), "Host: localhost\r\n");
    cr_assert(strstr(talk.reply.body, "evil.example"), "%s", talk.reply.body);
    send_as(&talk, 200, NULL, "GET", own, "Host: evil.example\r\n");
    send_as(&talk, 200, NULL, "GET", own, origin);
    send_as(&talk, 403, "forbidden", "GET", own, FROM_EVIL);
    send_as(&talk, 403, "forbidden", "GET", own, "Host: evil.example\r\nOrigin: http://evil.example\r\n");
    talk_end(&talk);
}

/* As the web console will. */
Test(web_pages, from_permitd_itself_are_served)
{
    struct talk talk = talk_to(shared_port());
    const char *path = request_path(held_request(&talk));
    const char *page = text("Host: localhost:%u\r\nSec-Fetch-Site: same-origin\r\n", shared_port());
    send_as(&talk, 200, NULL, "GET", path, page);
    send_as(&talk, 200, NULL, "POST", text("%s/renew", path),
            text("%sOrigin: http://localhost:%u\r\n", page, shared_port()));
    send_as(&talk, 200, NULL, "GET", "/healthz", "Host: localhost\r\nSec-Fetch-Site: none\r\n");
    talk_end(&talk);
}

static bool is_served(void *context)
{
    struct talk *talk = context;
    const char *bytes = "GET /healthz HTTP/1.1\r\nHost: Later.example:7070\r\n\r\n";
    reply_release(&talk->reply);
    cr_assert(kit_http_raw(&talk->http, bytes, strlen(bytes), &talk->reply), "%s", talk->reply.error);
    return talk->reply.status == 200;
}

Test(allowed_hosts, are_served_and_reloaded)
{
    char *file = kit_path("allowed.conf");
    write_file(file, "allowed_hosts = permit.example\n", 0600);
    struct kit_permitd *permitd = own_permitd((const char *const[]){"--config", file, NULL});
    struct talk talk = talk_to(permitd->port);
    send_as(&talk, 200, NULL, "GET", "/healthz", "Host: permit.example:7070\r\n");
    send_as(&talk, 421, "misdirected", "GET", "/healthz", "Host: later.example:7070\r\n");
    write_file(file, "allowed_hosts = permit.example, later.example\n", 0600);
    kill(permitd->pid, SIGHUP);
    cr_assert(kit_wait_until(is_served, &talk, 60000), "%s", talk.reply.body);
    send_as(&talk, 200, NULL, "GET", "/healthz", "Host: permit.example:7070\r\n");
    talk_end(&talk);
    kit_permitd_stop(permitd);
    free(file);
}
