/* SPDX-License-Identifier: MIT */
#include "cli/nested.h"

#include <inttypes.h>
#include <stdlib.h>

#include "cli/json_print.h"
#include "cli/list_pages.h"

enum { OUTER_MAX = 64, SENTENCE_MAX = 2048 };

/* The part of a wanted semaphore that the outer runs hold. */
struct outer {
    int64_t units;
    size_t slots;    /* some of the slots that the want names */
    const char *key; /* of one that holds units; NULL: none does */
};

const char *nested_keys(void)
{
    const char *keys = getenv("PERMIT_REQUESTS");
    if (!keys || !*keys)
        keys = getenv("PERMIT_REQUEST");
    return keys && *keys ? keys : NULL;
}

/* Returns true if the permit has the slot: "#12" is its number, any other text its label, with ## for a leading #. */
static bool has_slot(const struct permit_held *held, const char *slot)
{
    size_t digits = slot[0] == '#' ? strspn(slot + 1, "0123456789") : 0;
    bool is_number = digits && !slot[1 + digits];
    const char *label = slot[0] == '#' && slot[1] == '#' ? slot + 1 : slot;
    for (size_t i = 0; i < held->slot_count; i++)
        if (is_number ? held->slots[i] == strtoull(slot + 1, NULL, 10)
                      : held->labels && held->labels[i] && strcmp(held->labels[i], label) == 0)
            return true;
    return false;
}

/* Adds the part of each wanted semaphore that the request holds. */
static void add_held(const struct cli_options *given, const struct permit_request *request, const char *key,
                     struct outer *outers)
{
    for (size_t i = 0; i < request->permit_count; i++)
        for (size_t j = 0; j < given->taken.count; j++) {
            const struct permit_held *held = &request->permits[i];
            const struct permit_want *want = &given->taken.wants[j];
            if (strcmp(held->semaphore, want->semaphore) != 0)
                continue;
            outers[j].key = key;
            outers[j].units += held->count;
            for (size_t k = 0; k < want->slot_count; k++)
                outers[j].slots += has_slot(held, want->slots[k]);
        }
}

/* Asks for each of the keys, which are cut out of the list. Stops if there is no answer: the acquire reports it. */
static void query_outer_runs(struct cli *cli, char *keys, struct outer *outers)
{
    size_t count = 0;
    for (char *key; count < OUTER_MAX && (key = strsep(&keys, " "));) {
        struct permit_request *request = NULL;
        if (!*key)
            continue;
        enum permit_status status = permit_show(cli->client, key, &request);
        if (!status && request->held)
            add_held(&cli->options, request, key, outers);
        permit_request_free(request);
        if (permit_status_retry(status) != PERMIT_RETRY_NEVER)
            return;
        count++;
    }
}

/* Writes why the want cannot be granted before its outer runs end; nothing if it can, or never can. */
static void explain(struct cli *cli, const struct permit_want *want, const struct outer *outer, struct buf *out)
{
    int64_t units = want->count ? want->count : want->choice == PERMIT_THESE ? (int64_t)want->slot_count : 1;
    int64_t capacity = 0; /* also if there is no answer */
    char path[CLI_PATH_MAX];
    if (path_write("/v1/semaphores/", want->semaphore, "", path) && !permit_call(cli->client, "GET", path, NULL))
        capacity = json_number(permit_client_answer(cli->client), "capacity");
    if (outer->slots && (int64_t)(want->slot_count - outer->slots) < units)
        buf_printf(out, "%s: the outer runs of this command (%s) hold %zu of the named slots, and end only after it",
                   want->semaphore, outer->key, outer->slots);
    else if (units <= capacity && units > capacity - outer->units)
        buf_printf(out,
                   "%s: %" PRId64 " asked, but the outer runs of this command (%s) hold %" PRId64 " of %" PRId64
                   ", and end only after it",
                   want->semaphore, units, outer->key, outer->units, capacity);
}

bool nested_waits_for_itself(struct cli *cli, int signal_fd)
{
    const struct cli_options *given = &cli->options;
    const char *inherited = nested_keys();
    char *keys = inherited ? strdup(inherited) : NULL;
    struct outer outers[CLI_MAX_WANTS] = {{0}};
    struct buf reason;
    if (!keys)
        return false;
    buf_init(&reason, SENTENCE_MAX);
    permit_client_set_cancel_fd(cli->client, signal_fd);
    query_outer_runs(cli, keys, outers);
    for (size_t i = 0; i < given->taken.count && !reason.length; i++)
        if (outers[i].key)
            explain(cli, &given->taken.wants[i], &outers[i], &reason);
    permit_client_set_cancel_fd(cli->client, 0);
    bool waits = reason.length > 0;
    if (waits && given->flags[FLAG_JSON])
        json_print_problem(PERMIT_NO_CAPACITY, buf_text(&reason));
    if (waits)
        (void)cli_error(0, "%s: %s", permit_status_word(PERMIT_NO_CAPACITY), buf_text(&reason));
    buf_release(&reason);
    free(keys);
    return waits;
}
