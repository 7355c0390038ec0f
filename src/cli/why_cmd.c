/* SPDX-License-Identifier: MIT */
/* The verb why: shows why a request waits: holders, requests ahead of it, and for which of these units are reserved. */
#include "base/escape.h"
#include "cli/list_pages.h"
#include "cli/requests_cmd.h"

enum { LINE_MAX_BYTES = 64 * 1024 };

/* Prints "backups        place 6, behind job-1, job-2 and 3 more". */
static void print_place(struct json_object *entry)
{
    int64_t ahead = json_number_of(entry, "ahead_count");
    size_t named = json_length_of(entry, "ahead");
    const char *name = json_text_of(entry, "semaphore");
    struct buf line;
    buf_init(&line, LINE_MAX_BYTES);
    buf_printf(&line, "%-14s place %lld", name ? name : "?", (long long)json_number_of(entry, "place"));
    for (size_t i = 0; i < named; i++)
        buf_printf(&line, "%s %s", i ? "," : ", behind", json_item_text(entry, "ahead", i));
    if (ahead > (int64_t)named)
        buf_printf(&line, " and %lld%s more", (long long)ahead - (long long)named,
                   json_true_of(entry, "ahead_more") ? " or" : "");
    escape_control_chars(line.data, line.length);
    (void)printf("\n%s\n", buf_text(&line));
    buf_release(&line);
}

/*
 * Prints "               reserved for job-1, which lacks db7 and db8"; a key or names that are not shown are left out.
 */
static void print_reserved(struct json_object *entry)
{
    struct json_object *reserved = json_object_of(entry, "reserved_for");
    struct buf line;
    if (!reserved)
        return;
    const char *key = json_text_of(reserved, "external_id");
    size_t count = json_length_of(reserved, "lacks");
    buf_init(&line, LINE_MAX_BYTES);
    buf_printf(&line, "%-14s reserved for %s", "", key ? key : "a request of another namespace");
    for (size_t i = 0; i < count; i++)
        buf_printf(&line, "%s%s",
                   i == 0          ? ", which lacks "
                   : i + 1 < count ? ", "
                                   : " and ",
                   json_item_text(reserved, "lacks", i));
    escape_control_chars(line.data, line.length);
    (void)printf("%s\n", buf_text(&line));
    buf_release(&line);
}

/* Prints one semaphore that the request waits for. */
static void print_entry(struct json_object *entry)
{
    static const struct json_column columns[] = {{"HELD BY", "external_id"}, {"NAMESPACE", "namespace"},
                                                 {"OWNER", "owner"},         {"SINCE", "since"},
                                                 {"EXPIRES", "expires_at"},  {"IN", "expires_in_ms"}};
    static const struct json_column lines[] = {
        {"  slots", "slots"}, {"  any of", "any_of"}, {"  adjacent", "adjacent"}, {"  paused:", "paused_reason"}};
    print_place(entry);
    if (json_true_of(entry, "retired")) {
        (void)printf("%-14s is retired\n", "");
    } else {
        long long requested = json_number_of(entry, "requested"), in_use = json_number_of(entry, "in_use");
        long long capacity = json_number_of(entry, "capacity");
        /* For specific slots the numbers do not tell. */
        bool is_specific =
            json_length_of(entry, "slots") || json_length_of(entry, "any_of") || json_true_of(entry, "adjacent");
        (void)printf("%-14s %lld asked, %lld of %lld in use%s\n", "", requested, in_use, capacity,
                     !is_specific && requested <= capacity - in_use ? ": room for it" : "");
    }
    print_reserved(entry);
    json_print_lines(entry, lines, ARRAY_LENGTH(lines));
    if (json_length_of(entry, "holders") > 0)
        json_print_table(entry, "holders", columns, ARRAY_LENGTH(columns), 15);
}

static void print_why(struct json_object *answer)
{
    static const struct json_column lines[] = {
        {"key", "external_id"},   {"namespace", "namespace"},   {"state", "state"}, {"owner", "owner"},
        {"priority", "priority"}, {"waiting for", "waited_ms"}, {"since", "since"}, {"until", "deadline"},
        {"in", "deadline_in_ms"}, {"server", "server"},         {"kept", "kept"}};
    if (json_length_of(answer, "waiting_for") == 0) {
        request_print(answer);
        return;
    }
    json_print_lines(answer, lines, ARRAY_LENGTH(lines));
    for (size_t i = 0; i < json_length_of(answer, "waiting_for"); i++)
        print_entry(json_item_of(answer, "waiting_for", i));
}

int verb_why(struct cli *cli)
{
    return resource_call(cli, &resource_request, "GET", "/why", print_why);
}
