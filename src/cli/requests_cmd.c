/* SPDX-License-Identifier: MIT */
/* The verbs about requests: acquire, release, renew, confirm, grow, shrink, exchange, show, force-release, requests. */
#include "cli/requests_cmd.h"

#include <unistd.h>

#include "cli/acquire_cmd.h"
#include "cli/list_pages.h"
#include "cli/signals.h"
#include "cli/time_parse.h"

void request_print(struct json_object *answer)
{
    static const struct json_column lines[] = {
        {"key", "external_id"},
        {"namespace", "namespace"},
        {"state", "state"},
        {"ended as", "end_reason"},
        {"owner", "owner"},
        {"replayed", "replayed"},
        {"yours", "yours"},
        {"ttl", "ttl_ms"},
        {"max hold", "max_hold_ms"},
        {"acquired", "acquired_at"},
        {"expires", "expires_at"},
        {"overdue", "overdue"},
        {"suspect", "suspect"},
        {"confirmed", "confirmed_at"},
        {"ended", "ended_at"},
        {"ended before", "already_released"},
        {"unclaimed", "unclaimed"},
        {"priority", "priority"},
        {"since", "since"},
        {"waiting for", "waited_ms"},
        {"until", "until"},
        {"server", "server"},
        {"kept", "kept"},
        {"changes", "changes"},
        {"metadata", "metadata"},
    };
    static const struct json_column permits[] = {
        {"SEMAPHORE", "semaphore"}, {"COUNT", "count"}, {"TOKEN", "token"}, {"SLOTS", "slots"}, {"LABELS", "labels"}};
    static const struct json_column wants[] = {
        {"SEMAPHORE", "semaphore"}, {"COUNT", "count"}, {"PLACE", "place"}, {"AHEAD", "ahead_count"}};
    const char *state = json_text_of(answer, "state");
    json_print_lines(answer, lines, ARRAY_LENGTH(lines));
    if (state && strcmp(state, "WAITING") == 0)
        json_print_table(answer, "permits", wants, ARRAY_LENGTH(wants), 0);
    else
        json_print_table(answer, "permits", permits, ARRAY_LENGTH(permits), 0);
}

int verb_acquire(struct cli *cli)
{
    sigset_t set;
    sigemptyset(&set);
    struct acquire_cmd cmd = {.signal_fd = signals_take(-1, signals_ending, SIGNALS_ENDING_COUNT, &set)};
    if (cmd.signal_fd < 0)
        return cli_error(CLI_NO_START, "no file descriptors left: raise the limit (ulimit -n)");
    struct permit_request *request = NULL;
    int code;
    if (acquire_cmd_run(cli, &cmd, &request, &code)) {
        code = cli_finish(cli, PERMIT_OK, request_print);
        if (!request->yours && !cli->options.flags[FLAG_ALLOW_REPLAY])
            code = acquire_cmd_refuse_replay(cli, request);
    }
    permit_request_free(request);
    (void)close(cmd.signal_fd);
    return code;
}

int verb_release(struct cli *cli)
{
    enum permit_status status = cli->options.flags[FLAG_CONFIRMED]
                                    ? permit_release_confirmed(cli->client, cli->words[0], NULL)
                                    : permit_release(cli->client, cli->words[0], NULL);
    return cli_finish(cli, status, request_print);
}

/* With --namespace the calls go by their path, as libpermit's calls are about the namespace of the client. */

int verb_force_release(struct cli *cli)
{
    if (!reason_is_given(cli))
        return CLI_USAGE;
    if (cli->options.namespace)
        return resource_send(cli, &resource_request, "POST", "/force-release", reason_new(cli), request_print);
    return cli_finish(cli, permit_force_release(cli->client, cli->words[0], cli->options.reason, NULL), request_print);
}

static void print_confirmed(struct json_object *answer)
{
    static const struct json_column columns[] = {
        {"CONFIRMED", "confirmed_at"}, {"NAMESPACE", "namespace"}, {"KEY", "external_id"}};
    json_print_table(answer, "confirmed", columns, ARRAY_LENGTH(columns), 0);
}

/* Confirms several requests, all or none. */
static int confirm_all(struct cli *cli)
{
    const char *namespace = cli->options.namespace;
    char path[CLI_PATH_MAX];
    (void)snprintf(path, sizeof(path), "/v1/confirm%s%s", namespace ? "?namespace=" : "", namespace ? namespace : "");
    struct json_writer *body = json_writer_new();
    json_add_texts(body, "external_ids", (const char *const *)cli->words, (size_t)cli->word_count);
    const char *text = json_text(body);
    enum permit_status status = text ? permit_call(cli->client, "POST", path, text) : PERMIT_NO_MEMORY;
    json_writer_free(body);
    return cli_finish(cli, status, print_confirmed);
}

int verb_confirm(struct cli *cli)
{
    if (cli->word_count > 1)
        return confirm_all(cli);
    if (cli->options.namespace)
        return resource_call(cli, &resource_request, "POST", "/confirm", request_print);
    return cli_finish(cli, permit_confirm(cli->client, cli->words[0], NULL), request_print);
}

int verb_renew(struct cli *cli)
{
    int64_t ttl_ms = cli->options.ttl_ms;
    if (cli->options.namespace) {
        struct json_writer *body = json_writer_new();
        json_add_duration(body, "ttl", ttl_ms);
        return resource_send(cli, &resource_request, "POST", "/renew", body, request_print);
    }
    return cli_finish(cli, permit_renew(cli->client, cli->words[0], ttl_ms == CLI_UNSET ? 0 : ttl_ms, NULL),
                      request_print);
}

/* Reads how often the request has been changed, unless --changes says it, and changes it. */
static int change(struct cli *cli,
                  enum permit_status (*send)(struct permit_client *client, const char *external_id,
                                             const struct permit_change *change, struct permit_request **ret_request))
{
    const struct cli_options *given = &cli->options;
    const char *key = cli->words[0];
    struct permit_change change = {.give = given->given.wants,
                                   .give_count = given->given.count,
                                   .take = given->taken.wants,
                                   .take_count = given->taken.count,
                                   .changes = given->changes};
    if (given->changes == CLI_UNSET) {
        struct permit_request *request = NULL;
        enum permit_status status = permit_show(cli->client, key, &request);
        if (status)
            return cli_fail(cli, status);
        change.changes = request->changes;
        permit_request_free(request);
    }
    int code = cli_finish(cli, send(cli->client, key, &change, NULL), request_print);
    if (permit_client_in_doubt(cli->client))
        (void)cli_error(0,
                        "%s may have been changed: look with permitctl show %s. With --changes %lld this call can be "
                        "repeated: it is then refused if the change was made",
                        key, key, (long long)change.changes);
    return code;
}

int verb_shrink(struct cli *cli)
{
    return change(cli, permit_shrink);
}

int verb_grow(struct cli *cli)
{
    return change(cli, permit_grow);
}

int verb_exchange(struct cli *cli)
{
    return change(cli, permit_exchange);
}

int verb_show(struct cli *cli)
{
    if (cli->options.namespace)
        return resource_call(cli, &resource_request, "GET", "", request_print);
    return cli_finish(cli, permit_show(cli->client, cli->words[0], NULL), request_print);
}

/* Shows, for example, the holders of backups at 02:14: `requests --semaphore backups --at 02:14`. */
int verb_requests(struct cli *cli)
{
    static const struct json_column columns[] = {
        {"STATE", "state"},     {"ENDED AS", "end_reason"}, {"OWNER", "owner"},     {"SINCE", "acquired_at"},
        {"UNTIL", "ended_at"},  {"EXPIRES", "expires_at"},  {"OVERDUE", "overdue"}, {"SUSPECT", "suspect"},
        {"PERMITS", "permits"}, {"NAMESPACE", "namespace"}, {"KEY", "external_id"}};
    static const struct json_column waiting_columns[] = {
        {"STATE", "state"},     {"OWNER", "owner"},         {"PRIORITY", "priority"}, {"WAITED", "waited_ms"},
        {"SINCE", "since"},     {"UNTIL", "until"},         {"SERVER", "server"},     {"KEPT", "kept"},
        {"PERMITS", "permits"}, {"NAMESPACE", "namespace"}, {"KEY", "external_id"}};
    static const struct list_view view = {"requests", columns, ARRAY_LENGTH(columns)};
    static const struct list_view waiting_view = {"requests", waiting_columns, ARRAY_LENGTH(waiting_columns)};
    const struct cli_options *given = &cli->options;
    bool waits = given->state && strcmp(given->state, "waiting") == 0;
    bool held = given->state && strcmp(given->state, "held") == 0;
    const char *state = waits ? "WAITING" : held ? "ACQUIRED" : given->state ? "RELEASED" : NULL;
    char at[TIME_TEXT_SIZE];
    if (given->at && !time_parse(given->at, time(NULL), at))
        return cli_error(CLI_USAGE, "--at %s: expected 02:14, \"2026-11-21 02:14\" or 2026-11-21T02:14:00Z", given->at);
    if (given->at && (!given->semaphore || state))
        return cli_error(CLI_USAGE, "--at requires --semaphore and excludes --state");
    struct buf path;
    buf_init(&path, CLI_PATH_MAX);
    buf_append_text(&path, "/v1/requests?");
    bool whole = list_add_parameter(&path, "semaphore", given->semaphore) &&
                 list_add_parameter(&path, "owner", given->owner) && list_add_parameter(&path, "state", state) &&
                 list_add_parameter(&path, "at", given->at ? at : NULL) &&
                 list_add_parameter(&path, "namespace", given->namespace);
    int code = whole ? list_print(cli, buf_text(&path), waits ? &waiting_view : &view)
                     : cli_error(CLI_USAGE, "--semaphore and --owner: at most 255 bytes");
    buf_release(&path);
    return code;
}
