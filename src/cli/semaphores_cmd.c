/* SPDX-License-Identifier: MIT */
/*
 * The verbs about semaphores: put, get, pause, resume, delete, fence check, fence bump. Their lists are in lists_cmd.c.
 */
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include "cli/labels_cmd.h"
#include "cli/list_pages.h"
#include "cli/semaphore_settings.h"

#define FORCED_MAX (1LL << 53)
enum { REASON_MAX = 1000, MAX_FUTILE_CALLS = 5, PAUSE_MS = 500, MAX_PAUSE_MS = 5000 };

static void print_semaphore(struct json_object *answer)
{
    static const struct json_column lines[] = {
        {"semaphore", "name"},
        {"kind", "kind"},
        {"capacity", "capacity"},
        {"in use", "in_use"},
        {"available", "available"},
        {"waiting", "waiting"},
        {"oldest wait", "oldest_wait_ms"},
        {"next token", "next_token"},
        {"floor", "floor"},
    };
    static const struct json_column paused[] = {{"paused", "paused_reason"}};
    json_print_lines(answer, lines, ARRAY_LENGTH(lines));
    settings_print(answer);
    json_print_lines(answer, paused, ARRAY_LENGTH(paused));
}

int verb_semaphore_put(struct cli *cli)
{
    char path[CLI_PATH_MAX];
    struct labels labels;
    int code = labels_read(&cli->options, &labels);
    if (code == CLI_OK && !resource_path(cli, &resource_semaphore, "", path))
        code = CLI_USAGE;
    if (code == CLI_OK) {
        /* The settings go with the first page of labels; seats have a body of their own. */
        size_t done = labels.are_seats ? 0 : labels_page(&labels, 0);
        struct json_writer *writer = settings_new(&cli->options);
        json_add_texts(writer, "labels", labels.texts, done);
        const char *body = json_text(writer);
        enum permit_status status = body ? permit_call(cli->client, "PUT", path, body) : PERMIT_NO_MEMORY;
        json_writer_free(writer);
        while (!status && done < labels.count) {
            size_t count = labels_page(&labels, done);
            status = labels_put(cli, path, &labels, done, count);
            if (status)
                (void)cli_error(0, "the %s from slot %zu on have not been written",
                                labels.are_seats ? "seats" : "labels", done + 1);
            done += count;
        }
        code = cli_finish(cli, status, print_semaphore);
    }
    labels_release(&labels);
    return code;
}

int verb_semaphore_get(struct cli *cli)
{
    return resource_call(cli, &resource_semaphore, "GET", "", print_semaphore);
}

/* ---- Retiring ---- */

/* Prints the last answer with the number of requests ended by all calls; `forced` CLI_UNSET: without --force. */
static int print_retired(const struct cli *cli, const char *answer, int64_t forced)
{
    static const struct json_column lines[] = {
        {"semaphore", "name"}, {"retired", "retired"}, {"requests ended", "forced"}};
    struct json_writer *writer = json_writer_from(answer);
    json_add_text(writer, "name", cli->words[0]);
    json_add_bool(writer, "retired", true);
    json_add_number(writer, "forced", forced);
    if (!cli->options.flags[FLAG_JSON])
        json_print_lines(json_written(writer), lines, ARRAY_LENGTH(lines));
    else if (json_text(writer))
        json_print_text(json_text(writer));
    json_writer_free(writer);
    return CLI_OK;
}

/*
 * Repeats the call until the semaphore is retired. With many holders one call does not end them all: it is repeated for
 * as long as it ends more, and up to MAX_FUTILE_CALLS times without progress (another client ends them, say, or the
 * database is unavailable). Each call is one try, because each answer reports what that call has ended. After a call
 * that may have been carried out, an unknown semaphore means success. *ret_forced: number of requests known to be
 * ended.
 */
static enum permit_status call_until_retired(struct cli *cli, const char *path, const char **ret_answer,
                                             int64_t *ret_forced)
{
    bool begun = false;
    int futile_calls = 0;
    *ret_forced = 0;
    for (;;) {
        enum permit_status status = permit_call(cli->client, "DELETE", path, NULL);
        *ret_answer = permit_client_answer(cli->client);
        int64_t forced = json_number(*ret_answer, "forced");
        *ret_forced = min_i64(*ret_forced + forced, FORCED_MAX);
        futile_calls = forced > 0 ? 0 : futile_calls + 1;
        if (begun && status == PERMIT_UNKNOWN_SEMAPHORE) {
            *ret_answer = "{}";
            return PERMIT_OK;
        }
        if (permit_status_retry(status) == PERMIT_RETRY_NEVER || futile_calls == MAX_FUTILE_CALLS)
            return status;
        begun = begun || permit_client_in_doubt(cli->client);
        int64_t pause_ms = permit_client_retry_after_ms(cli->client);
        (void)poll(NULL, 0, (int)min_i64(pause_ms > 0 ? pause_ms : PAUSE_MS, MAX_PAUSE_MS));
    }
}

static int retire(struct cli *cli, const char *suffix)
{
    char path[CLI_PATH_MAX];
    int64_t forced;
    const char *answer;
    if (!resource_path(cli, &resource_semaphore, suffix, path))
        return CLI_USAGE;
    enum permit_status status = call_until_retired(cli, path, &answer, &forced);
    if (!status)
        return print_retired(cli, answer, cli->options.flags[FLAG_FORCE] ? forced : CLI_UNSET);
    int code = cli_fail(cli, status);
    if (forced > 0)
        (void)cli_error(0, "%" PRId64 " requests have been ended in all", forced);
    return code;
}

int verb_semaphore_delete(struct cli *cli)
{
    const struct cli_options *given = &cli->options;
    char encoded[3 * REASON_MAX + 1];
    char suffix[sizeof(encoded) + 64];
    if (!given->flags[FLAG_FORCE] && given->reason)
        return cli_error(CLI_USAGE, "--reason requires --force");
    if (!given->flags[FLAG_FORCE])
        return retire(cli, "");
    if (!reason_is_given(cli))
        return CLI_USAGE;
    if (strlen(given->reason) > REASON_MAX || !permit_path_encode(given->reason, encoded, sizeof(encoded)))
        return cli_error(CLI_USAGE, "--reason: at most %d bytes", REASON_MAX);
    (void)snprintf(suffix, sizeof(suffix), "?force=true&reason=%s", encoded);
    return retire(cli, suffix);
}

/* ---- Pause, resume, bump ---- */

int verb_semaphore_pause(struct cli *cli)
{
    if (!reason_is_given(cli))
        return CLI_USAGE;
    return resource_send(cli, &resource_semaphore, "POST", "/pause", reason_new(cli), print_semaphore);
}

int verb_semaphore_resume(struct cli *cli)
{
    return resource_call(cli, &resource_semaphore, "POST", "/resume", print_semaphore);
}

static void print_epoch(struct json_object *answer)
{
    static const struct json_column lines[] = {
        {"epoch", "epoch"}, {"tokens from", "tokens_from"}, {"no grants for", "hold_ms"}};
    json_print_lines(answer, lines, ARRAY_LENGTH(lines));
}

int verb_fence_bump(struct cli *cli)
{
    char line[16] = "";
    if (!reason_is_given(cli))
        return CLI_USAGE;
    if (!cli->options.flags[FLAG_YES] && isatty(STDIN_FILENO)) {
        (void)fprintf(stderr,
                      "This raises the tokens of all semaphores and stops grants for a few seconds. Continue? [y/N] ");
        if (!fgets(line, sizeof(line), stdin) || (line[0] != 'y' && line[0] != 'Y'))
            return cli_error(CLI_DECLINED, "nothing was done");
    }
    struct json_writer *body = reason_new(cli);
    const char *text = json_text(body);
    int code = text ? cli_finish(cli, permit_call(cli->client, "POST", "/v1/fence/bump", text), print_epoch)
                    : cli_error(CLI_NO_START, "out of memory");
    json_writer_free(body);
    return code;
}

static void print_fence(struct json_object *answer)
{
    static const struct json_column lines[] = {
        {"token", "token"}, {"live", "live"}, {"state", "state"}, {"ended as", "end_reason"}, {"floor", "floor"}};
    json_print_lines(answer, lines, ARRAY_LENGTH(lines));
}

int verb_fence_check(struct cli *cli)
{
    char *end;
    uint64_t token = strtoull(cli->words[1], &end, 10);
    struct permit_fence fence = {.live = false};
    if (cli->words[1][0] < '0' || cli->words[1][0] > '9' || *end)
        return cli_error(CLI_USAGE, "%s: expected a token, which is a number", cli->words[1]);
    enum permit_status status =
        permit_fence_check(cli->client, cli->words[0], token, (uint32_t)cli->options.slot, &fence);
    int code = cli_finish(cli, status, print_fence);
    return code == CLI_OK && !fence.live ? CLI_LOST : code;
}
