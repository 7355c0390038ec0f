/* SPDX-License-Identifier: MIT */
/*
 * reconcile: compares the orders of a file with the requests of the server. It walks all held requests, then asks for
 * each paid order that the walk has not met. A finding is printed, and mended with --apply, as soon as it is known.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/escape.h"
#include "cli/cli.h"
#include "cli/json_print.h"
#include "cli/list_pages.h"
#include "cli/text_file.h"
#include "core/name.h"

enum { ORDERS_MAX_BYTES = 256 << 20, PAGE_ROWS = 1000, BATCH_OPERATIONS = 64, LINE_MAX_BYTES = 2048 };

enum order_state { ORDER_PAID, ORDER_PENDING, ORDER_CANCELLED, ORDER_NONE, ORDER_STATE_COUNT };
static const char *const order_words[] = {"paid", "pending", "cancelled"};

enum request_class { CLASS_UNKNOWN, CLASS_WAITS, CLASS_HELD, CLASS_SOLD, CLASS_OVER, CLASS_COUNT };

struct order {
    const char *key; /* in the file */
    size_t line;
    enum order_state state;
    bool met; /* the walk has met its request */
};

enum mend { MEND_NONE, MEND_CONFIRM, MEND_RELEASE, MEND_FORCE };

struct rule {
    const char *word;
    enum mend mend;
};

/* The states of an order and its request together. Those without a word agree. */
static const struct rule rules[ORDER_STATE_COUNT][CLASS_COUNT] = {
    [ORDER_PAID] = {[CLASS_UNKNOWN] = {"unknown_request", MEND_NONE},
                    [CLASS_WAITS] = {"paid_not_held", MEND_NONE},
                    [CLASS_HELD] = {"paid_not_confirmed", MEND_CONFIRM},
                    [CLASS_OVER] = {"paid_not_held", MEND_NONE}},
    [ORDER_PENDING] = {[CLASS_SOLD] = {"confirmed_not_paid", MEND_NONE}},
    [ORDER_CANCELLED] =
        {[CLASS_HELD] = {"held_and_cancelled", MEND_RELEASE}, [CLASS_SOLD] = {"confirmed_and_cancelled", MEND_FORCE}},
    [ORDER_NONE] = {[CLASS_SOLD] = {"confirmed_without_order", MEND_FORCE}},
};

struct finding {
    const struct rule *rule;
    char key[NAME_MAX_BYTES + 1];
    char since[RFC3339_SIZE]; /* "": unknown */
    size_t line;              /* 0: no order */
};

struct reconcile {
    struct cli *cli;
    struct text_file file;
    struct order *orders; /* in order of keys */
    size_t order_count;
    utc_us newest; /* later requests are in flight */
    struct finding found[BATCH_OPERATIONS];
    size_t found_count; /* not yet printed */
    int64_t requests, findings, mended, in_flight;
};

/* ---- the file ---- */

static int compare_orders(const void *left, const void *right)
{
    const struct order *a = left, *b = right;
    int order = strcmp(a->key, b->key);
    return order ? order : (a->line > b->line) - (a->line < b->line);
}

/* Reads "KEY STATE", and ends the key by a zero. */
static bool order_parse(char *line, size_t number, struct order *ret_order)
{
    size_t key = strcspn(line, " \t");
    size_t gap = strspn(line + key, " \t");
    const char *word = line + key + gap;
    if (!gap || !name_is_key((struct bytes){line, key}))
        return false;
    for (size_t i = 0; i < ARRAY_LENGTH(order_words); i++) {
        if (strcmp(word, order_words[i]) != 0)
            continue;
        line[key] = '\0';
        *ret_order = (struct order){line, number, (enum order_state)i, false};
        return true;
    }
    return false;
}

static int orders_read(struct reconcile *run, const char *path)
{
    int code = text_file_read(path, ORDERS_MAX_BYTES, &run->file);
    if (code)
        return code;
    if (!(run->orders = calloc(run->file.count + 1, sizeof(*run->orders))))
        return cli_error(CLI_NO_START, "out of memory");
    for (size_t i = 0; i < run->file.count; i++, run->order_count++)
        if (!order_parse(run->file.lines[i], i + 1, &run->orders[i]))
            return cli_error(CLI_USAGE, "%s:%zu: expected a key, a blank, and paid, pending or cancelled", path, i + 1);
    qsort(run->orders, run->order_count, sizeof(*run->orders), compare_orders);
    for (size_t i = 1; i < run->order_count; i++)
        if (strcmp(run->orders[i - 1].key, run->orders[i].key) == 0)
            return cli_error(CLI_USAGE, "%s:%zu: the key %s has a state already, in line %zu", path,
                             run->orders[i].line, run->orders[i].key, run->orders[i - 1].line);
    return CLI_OK;
}

static int compare_key(const void *key, const void *order)
{
    return strcmp(key, ((const struct order *)order)->key);
}

static struct order *order_find(const struct reconcile *run, const char *key)
{
    return run->order_count ? bsearch(key, run->orders, run->order_count, sizeof(*run->orders), compare_key) : NULL;
}

/* ---- findings ---- */

static void finding_print(struct reconcile *run, const struct finding *finding, const char *done)
{
    if (run->cli->options.flags[FLAG_JSON]) {
        struct json_writer *writer = json_writer_new();
        json_add_text(writer, "finding", finding->rule->word);
        json_add_text(writer, "external_id", finding->key);
        json_add_number(writer, "line", finding->line ? (int64_t)finding->line : JSON_ABSENT);
        json_add_text(writer, "since", *finding->since ? finding->since : NULL);
        json_add_text(writer, "done", done);
        if (json_text(writer))
            json_print_text(json_text(writer));
        json_writer_free(writer);
    } else {
        char text[LINE_MAX_BYTES], line[32] = "";
        if (finding->line)
            (void)snprintf(line, sizeof(line), "  line %zu", finding->line);
        (void)snprintf(text, sizeof(text), "%-23s  %s%s%s%s%s%s", finding->rule->word, finding->key, line,
                       *finding->since ? "  since " : "", finding->since, done ? "  " : "", done ? done : "");
        escape_control_chars(text, strlen(text));
        (void)puts(text);
    }
    (void)fflush(stdout); /* an interrupted run has said what it did */
}

/* Prints what became of a finding: of a refusal its type and detail. */
static void finding_done(struct reconcile *run, const struct finding *finding, int64_t http_status,
                         struct json_object *body)
{
    char done[LINE_MAX_BYTES / 2];
    if (http_status == 200) {
        run->mended++;
        finding_print(run, finding, finding->rule->mend == MEND_CONFIRM ? "confirmed" : "released");
        return;
    }
    const char *type = json_text_of(body, "type"), *detail = json_text_of(body, "detail");
    const char *word = type ? strrchr(type, '/') : NULL;
    (void)snprintf(done, sizeof(done), "refused: %s%s%s", word ? word + 1 : "internal", detail ? ": " : "",
                   detail ? detail : "");
    finding_print(run, finding, done);
}

/* Confirms and releases, in one batch. A release refuses a request that has become a sale. */
static int mend_batch(struct reconcile *run)
{
    struct json_writer *body = json_writer_new();
    size_t count = 0;
    json_add_items(body, "operations");
    for (size_t i = 0; i < run->found_count; i++) {
        enum mend mend = run->found[i].rule->mend;
        if (mend != MEND_CONFIRM && mend != MEND_RELEASE)
            continue;
        struct json_writer *operation = json_writer_new();
        json_add_text(operation, "op", mend == MEND_CONFIRM ? "confirm" : "release");
        json_add_text(operation, "external_id", run->found[i].key);
        json_add_item(body, "operations", operation);
        json_writer_free(operation);
        count++;
    }
    const char *text = json_text(body);
    enum permit_status status = !text   ? PERMIT_NO_MEMORY
                                : count ? permit_call(run->cli->client, "POST", "/v1/batch", text)
                                        : PERMIT_OK;
    json_writer_free(body);
    if (status)
        return cli_fail(run->cli, status);
    struct json_object *answer = count ? json_read(permit_client_answer(run->cli->client)) : NULL;
    int code = json_length_of(answer, "results") == count
                   ? CLI_OK
                   : cli_error(CLI_NO_SERVER, "internal: the server's answer to the batch cannot be read");
    for (size_t i = 0, result = 0; i < run->found_count && code == CLI_OK; i++) {
        const struct finding *finding = &run->found[i];
        if (finding->rule->mend != MEND_CONFIRM && finding->rule->mend != MEND_RELEASE)
            continue;
        struct json_object *item = json_item_of(answer, "results", result++);
        finding_done(run, finding, json_number_of(item, "status"), json_object_of(item, "body"));
    }
    json_free(answer);
    return code;
}

/* Ends a sale. Returns the exit status; CLI_OK also after a refusal of this request. */
static int mend_force(struct reconcile *run, const struct finding *finding)
{
    struct permit_client *client = run->cli->client;
    char reason[64];
    (void)snprintf(reason, sizeof(reason), "reconcile: %s", finding->rule->word);
    enum permit_status status =
        permit_force_release(client, finding->key, run->cli->options.reason ? run->cli->options.reason : reason, NULL);
    if (permit_status_http(status) >= 500 || status == PERMIT_UNAUTHENTICATED)
        return cli_fail(run->cli, status);
    struct json_object *answer = json_read(permit_client_answer(client));
    finding_done(run, finding, permit_status_http(status), answer);
    json_free(answer);
    return CLI_OK;
}

/* Prints the findings that are gathered, and mends them with --apply. */
static int findings_flush(struct reconcile *run)
{
    bool apply = run->cli->options.flags[FLAG_APPLY];
    int code = apply ? mend_batch(run) : CLI_OK;
    for (size_t i = 0; i < run->found_count && code == CLI_OK; i++) {
        const struct finding *finding = &run->found[i];
        if (!apply || finding->rule->mend == MEND_NONE)
            finding_print(run, finding, NULL);
        else if (finding->rule->mend == MEND_FORCE)
            code = mend_force(run, finding);
    }
    run->found_count = 0;
    return code;
}

static enum request_class class_of(struct json_object *request, const char **ret_since)
{
    const char *state = json_text_of(request, "state");
    const char *confirmed = json_text_of(request, "confirmed_at");
    bool held = state && strcmp(state, "ACQUIRED") == 0;
    if (!state || (!held && strcmp(state, "RELEASED") != 0))
        return state ? CLASS_WAITS : CLASS_UNKNOWN;
    *ret_since = !held       ? json_text_of(request, "ended_at")
                 : confirmed ? confirmed
                             : json_text_of(request, "acquired_at");
    return !held ? CLASS_OVER : confirmed ? CLASS_SOLD : CLASS_HELD;
}

/* Compares one request (NULL: the server does not know the key) with its order (NULL: there is none). */
static int compare(struct reconcile *run, const char *key, struct json_object *request, const struct order *order)
{
    const char *since = NULL;
    enum request_class class = class_of(request, &since);
    const struct rule *rule = &rules[order ? order->state : ORDER_NONE][class];
    utc_us at = 0;
    if (!rule->word)
        return CLI_OK;
    if (since && clock_parse_rfc3339(bytes_of(since), &at) && at > run->newest) {
        run->in_flight++;
        return CLI_OK;
    }
    struct finding *finding = &run->found[run->found_count++];
    *finding = (struct finding){.rule = rule, .line = order ? order->line : 0};
    (void)snprintf(finding->key, sizeof(finding->key), "%s", key);
    (void)snprintf(finding->since, sizeof(finding->since), "%s", since ? since : "");
    run->findings++;
    return run->found_count == BATCH_OPERATIONS ? findings_flush(run) : CLI_OK;
}

/* ---- requests ---- */

static bool has_prefix(const struct reconcile *run, const char *key)
{
    const char *prefix = run->cli->options.prefix;
    return !prefix || strncmp(key, prefix, strlen(prefix)) == 0;
}

static int compare_page(struct reconcile *run, struct json_object *page)
{
    int code = CLI_OK;
    for (size_t i = 0; i < json_length_of(page, "requests") && code == CLI_OK; i++) {
        struct json_object *request = json_item_of(page, "requests", i);
        const char *key = json_text_of(request, "external_id");
        if (!key || strlen(key) > NAME_MAX_BYTES || json_has(request, "namespace") || !has_prefix(run, key))
            continue;
        struct order *order = order_find(run, key);
        if (order)
            order->met = true;
        run->requests++;
        code = compare(run, key, request, order);
    }
    return code == CLI_OK ? findings_flush(run) : code;
}

/* Walks the held requests, page by page. */
static int walk(struct reconcile *run, const char *list)
{
    char next[256] = "";
    int code;
    do {
        char path[CLI_PATH_MAX + 512], encoded[3 * sizeof(next)] = "";
        if (*next && !permit_path_encode(next, encoded, sizeof(encoded)))
            return CLI_NO_SERVER;
        (void)snprintf(path, sizeof(path), "%slimit=%d%s%s", list, PAGE_ROWS, *next ? "&after=" : "", encoded);
        enum permit_status status = permit_call(run->cli->client, "GET", path, NULL);
        if (status)
            return cli_fail(run->cli, status);
        struct json_object *page = json_read(permit_client_answer(run->cli->client));
        const char *after = json_text_of(page, "next");
        if (!json_array_of(page, "requests") || (after && (strlen(after) >= sizeof(next) || strcmp(after, next) == 0)))
            code = cli_error(CLI_NO_SERVER, "internal: the server's list cannot be read, or does not go on");
        else
            code = compare_page(run, page);
        (void)snprintf(next, sizeof(next), "%s", after ? after : "");
        json_free(page);
    } while (code == CLI_OK && *next);
    return code;
}

/* Asks for the paid orders that the walk has not met: not held, out of the filters, or granted meanwhile. */
static int ask_for_the_rest(struct reconcile *run)
{
    int code = CLI_OK;
    for (size_t i = 0; i < run->order_count && code == CLI_OK; i++) {
        const struct order *order = &run->orders[i];
        char path[CLI_PATH_MAX];
        if (order->met || order->state != ORDER_PAID || !has_prefix(run, order->key))
            continue;
        if (!path_write("/v1/requests/", order->key, "", path))
            return cli_error(CLI_USAGE, "%s: the key is too long", order->key);
        enum permit_status status = permit_call(run->cli->client, "GET", path, NULL);
        if (status && status != PERMIT_UNKNOWN_REQUEST)
            return cli_fail(run->cli, status);
        struct json_object *request = status ? NULL : json_read(permit_client_answer(run->cli->client));
        code = !status && !json_text_of(request, "state")
                   ? cli_error(CLI_NO_SERVER, "internal: the server's answer cannot be read")
                   : compare(run, order->key, request, order);
        json_free(request);
    }
    return code == CLI_OK ? findings_flush(run) : code;
}

static void sums_print(const struct reconcile *run)
{
    if (!run->cli->options.flags[FLAG_JSON]) {
        (void)printf("%zu orders, %" PRId64 " requests held: %" PRId64 " findings, %" PRId64 " mended, %" PRId64
                     " in flight\n",
                     run->order_count, run->requests, run->findings, run->mended, run->in_flight);
        return;
    }
    struct json_writer *writer = json_writer_new();
    json_add_number(writer, "orders", (int64_t)run->order_count);
    json_add_number(writer, "requests", run->requests);
    json_add_number(writer, "findings", run->findings);
    json_add_number(writer, "mended", run->mended);
    json_add_number(writer, "in_flight", run->in_flight);
    if (json_text(writer))
        json_print_text(json_text(writer));
    json_writer_free(writer);
}

int verb_reconcile(struct cli *cli)
{
    const struct cli_options *given = &cli->options;
    if (!given->orders)
        return cli_error(CLI_USAGE, "reconcile needs --orders FILE");
    if (given->reason && (!*given->reason || !given->flags[FLAG_APPLY]))
        return cli_error(CLI_USAGE, "--reason needs a text, and --apply");
    struct reconcile run = {.cli = cli};
    struct buf list;
    buf_init(&list, CLI_PATH_MAX);
    buf_append_text(&list, "/v1/requests?state=ACQUIRED&");
    int code =
        list_add_parameter(&list, "semaphore", given->semaphore) && list_add_parameter(&list, "owner", given->owner)
            ? orders_read(&run, given->orders)
            : cli_error(CLI_USAGE, "--semaphore and --owner: at most 255 bytes");
    run.newest = clock_wall() - given->min_age_ms * US_PER_MS;
    if (code == CLI_OK)
        code = walk(&run, buf_text(&list));
    if (code == CLI_OK)
        code = ask_for_the_rest(&run);
    if (code == CLI_OK) {
        sums_print(&run);
        code = run.findings > run.mended ? CLI_FOUND : CLI_OK;
    }
    buf_release(&list);
    free(run.orders);
    text_file_release(&run.file);
    return code;
}
