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

/* Returns the number, from 1, of an earlier entry with the same address; 0: none. */
static size_t number_of_same(const struct servers *servers, const struct http *http)
{
    for (size_t i = 0; i < servers->count; i++)
        if (http_same_server(servers->list[i].http, http))
            return i + 1;
    return 0;
}

static enum permit_status add_entry(struct servers *servers, const struct http_options *options, const char *entry,
                                    struct buf *message)
{
    struct http *http = NULL;
    struct http_options of_entry = *options;
    of_entry.url = entry;
    enum permit_status status = http_new(&of_entry, &http);
    if (status == PERMIT_INVALID)
        return refuse_entry(options->url, servers->count + 1, entry, message);
    if (status)
        return status;
    size_t same = number_of_same(servers, http);
    if (!same) {
        servers->list[servers->count++].http = http;
        return PERMIT_OK;
    }
    buf_printf(message, "has the same server in entries %zu and %zu: %.200s", same, servers->count + 1, http_url(http));
    http_free(http);
    return PERMIT_INVALID;
}

/* A random order spreads the clients over the servers. */
static void shuffle(struct servers *servers)
{
    for (size_t left = servers->count; left > 1; left--) {
        size_t pick = (size_t)(random_u64() % left);
        struct http *last = servers->list[left - 1].http;
        servers->list[left - 1].http = servers->list[pick].http;
        servers->list[pick].http = last;
    }
}

enum permit_status servers_open(struct servers *servers, const struct http_options *options, struct buf *message)
{
    *servers = (struct servers){.count = 0};
    size_t entries = 1;
    for (const char *at = options->url; (at = strchr(at, ',')); at++)
        entries++;
    if (entries > PERMIT_SERVERS_MAX) {
        buf_printf(message, "has %zu entries, more than %d", entries, PERMIT_SERVERS_MAX);
        return PERMIT_INVALID;
    }
    if (entries == 1) {
        enum permit_status status = http_new(options, &servers->list[0].http);
        servers->count = status ? 0 : 1;
        if (status == PERMIT_INVALID)
            buf_printf(message, strpbrk(options->url, " \t\r\n;") ? "%s; %s" : "%s", form, separators);
        return status;
    }
    char *copy = strdup(options->url);
    enum permit_status status = copy ? PERMIT_OK : PERMIT_NO_MEMORY;
    char *rest = copy;
    for (char *entry; !status && (entry = strsep(&rest, ","));)
        status = add_entry(servers, options, entry, message);
    free(copy);
    if (!status)
        shuffle(servers);
    return status;
}

void servers_release(struct servers *servers)
{
    for (size_t i = 0; i < servers->count; i++)
        http_free(servers->list[i].http);
    *servers = (struct servers){.count = 0};
}

const struct http *servers_find_exposed(const struct servers *servers)
{
    for (size_t i = 0; i < servers->count; i++)
        if (http_exposes_credential(servers->list[i].http))
            return servers->list[i].http;
    return NULL;
}

void servers_set_token(struct servers *servers, const char *token)
{
    for (size_t i = 0; i < servers->count; i++)
        (void)!http_set_token(servers->list[i].http, token);
}

struct server *servers_current(struct servers *servers)
{
    return &servers->list[servers->current];
}

void servers_next(struct servers *servers)
{
    servers->current = (servers->current + 1) % servers->count;
}

void servers_start_at(struct servers *servers, const struct http *http)
{
    for (size_t i = 0; i < servers->count; i++)
        if (http_same_server(servers->list[i].http, http))
            servers->current = i;
}

void servers_clear_failures(struct servers *servers)
{
    for (size_t i = 0; i < servers->count; i++)
        servers->list[i].failure[0] = '\0';
}

void servers_write_failures(const struct servers *servers, const char *before, struct buf *out)
{
    const char *separator = before;
    for (size_t i = 0; i < servers->count; i++) {
        const struct server *server = &servers->list[i];
        if (!server->failure[0])
            continue;
        buf_printf(out, "%s%.100s (%s)", separator, http_url(server->http), server->failure);
        separator = ", ";
    }
}

enum permit_status permit_urls_check(const char *urls, char *message, size_t size)
{
    struct servers servers;
    struct buf sentence;
    buf_init(&sentence, 1024);
    const struct http_options options = {.url = urls ? urls : PERMIT_DEFAULT_URL};
    enum permit_status status = servers_open(&servers, &options, &sentence);
    (void)snprintf(message, size, "%s", buf_text(&sentence));
    buf_release(&sentence);
    servers_release(&servers);
    return status;
}
