/* SPDX-License-Identifier: MIT */
#include "client/endpoints.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/escape.h"
#include "base/uuid.h"

static const char form[] = "must be http://HOST:PORT, https://HOST:PORT or unix:/PATH, without ? or #";
static const char separators[] = "separate urls by commas, without space";

/*
 * Describes an invalid entry. Its text may be a part of a password that contains a comma, so it is shown only if the
 * list has no @.
 */
static enum permit_status refuse_entry(const char *urls, size_t number, const char *entry, struct buf *message)
{
    size_t start = message->length;
    if (!*entry)
        buf_printf(message, "has an empty entry %zu", number);
    else if (strpbrk(entry, " \t\r\n"))
        buf_printf(message, "has white space in entry %zu: %s", number, separators);
    else if (strchr(urls, '@'))
        buf_printf(message, "has an invalid entry %zu: it %s", number, form);
    else
        buf_printf(message, "has an invalid entry %zu, %.200s: it %s", number, entry, form);
    if (!message->broken)
        escape_control_chars(message->data + start, message->length - start);
    return PERMIT_INVALID;
}

static enum permit_status add_entry(struct endpoints *endpoints, const struct http_options *options, const char *entry,
                                    struct buf *message)
{
    struct http *http = NULL;
    struct http_options of_entry = *options;
    of_entry.url = entry;
    enum permit_status status = http_new(&of_entry, &http);
    if (status == PERMIT_INVALID)
        return refuse_entry(options->url, endpoints->count + 1, entry, message);
    if (status)
        return status;
    for (size_t i = 0; i < endpoints->count; i++)
        if (http_same_server(endpoints->list[i].http, http)) {
            buf_printf(message, "has the same server in entries %zu and %zu: %.200s", i + 1, endpoints->count + 1,
                       http_url(http));
            http_free(http);
            return PERMIT_INVALID;
        }
    endpoints->list[endpoints->count++].http = http;
    return PERMIT_OK;
}

enum permit_status endpoints_open(struct endpoints *endpoints, const struct http_options *options, struct buf *message)
{
    *endpoints = (struct endpoints){.count = 0};
    size_t entries = 1;
    for (const char *at = options->url; (at = strchr(at, ',')); at++)
        entries++;
    if (entries > PERMIT_SERVERS_MAX) {
        buf_printf(message, "has %zu entries, more than %d", entries, PERMIT_SERVERS_MAX);
        return PERMIT_INVALID;
    }
    if (entries == 1) {
        enum permit_status status = http_new(options, &endpoints->list[0].http);
        endpoints->count = status ? 0 : 1;
        if (status == PERMIT_INVALID)
            buf_printf(message, strpbrk(options->url, " \t\r\n;") ? "%s; %s" : "%s", form, separators);
        return status;
    }
    char *copy = strdup(options->url);
    enum permit_status status = copy ? PERMIT_OK : PERMIT_NO_MEMORY;
    char *rest = copy;
    for (char *entry; !status && (entry = strsep(&rest, ","));)
        status = add_entry(endpoints, options, entry, message);
    free(copy);
    for (size_t left = endpoints->count; !status && left > 1; left--) { /* spreads the clients over the servers */
        size_t pick = (size_t)(random_u64() % left);
        struct http *last = endpoints->list[left - 1].http;
        endpoints->list[left - 1].http = endpoints->list[pick].http;
        endpoints->list[pick].http = last;
    }
    return status;
}

void endpoints_release(struct endpoints *endpoints)
{
    for (size_t i = 0; i < endpoints->count; i++)
        http_free(endpoints->list[i].http);
    *endpoints = (struct endpoints){.count = 0};
}

const struct http *endpoints_find_exposed(const struct endpoints *endpoints)
{
    for (size_t i = 0; i < endpoints->count; i++)
        if (http_exposes_credential(endpoints->list[i].http))
            return endpoints->list[i].http;
    return NULL;
}

void endpoints_set_token(struct endpoints *endpoints, const char *token)
{
    for (size_t i = 0; i < endpoints->count; i++)
        (void)!http_set_token(endpoints->list[i].http, token);
}

struct endpoint *endpoints_current(struct endpoints *endpoints)
{
    return &endpoints->list[endpoints->current];
}

void endpoints_next(struct endpoints *endpoints)
{
    endpoints->current = (endpoints->current + 1) % endpoints->count;
}

void endpoints_start_at(struct endpoints *endpoints, const struct http *http)
{
    for (size_t i = 0; i < endpoints->count; i++)
        if (http_same_server(endpoints->list[i].http, http))
            endpoints->current = i;
}

void endpoints_clear_failures(struct endpoints *endpoints)
{
    for (size_t i = 0; i < endpoints->count; i++)
        endpoints->list[i].failure[0] = '\0';
}

void endpoints_write_failures(const struct endpoints *endpoints, const char *before, struct buf *out)
{
    const char *separator = before;
    for (size_t i = 0; i < endpoints->count; i++) {
        const struct endpoint *endpoint = &endpoints->list[i];
        if (!endpoint->failure[0])
            continue;
        buf_printf(out, "%s%.100s (%s)", separator, http_url(endpoint->http), endpoint->failure);
        separator = ", ";
    }
}

enum permit_status permit_urls_check(const char *urls, char *message, size_t size)
{
    struct endpoints endpoints;
    struct buf sentence;
    buf_init(&sentence, 1024);
    const struct http_options options = {.url = urls ? urls : PERMIT_DEFAULT_URL};
    enum permit_status status = endpoints_open(&endpoints, &options, &sentence);
    (void)snprintf(message, size, "%s", buf_text(&sentence));
    buf_release(&sentence);
    endpoints_release(&endpoints);
    return status;
}
