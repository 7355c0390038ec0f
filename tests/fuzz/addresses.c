/* SPDX-License-Identifier: MIT */
/* Addresses in settings: the database's URL, the listen address, the liveness URL; and webhooks. The first byte selects one. */
#include <curl/curl.h>
#include <netinet/in.h>
#include <strings.h>

#include "core/webhook.h"

#include "fuzz.h"
#include "http/listen_address.h"
#include "store/mysql_session.h"
#include "tasks/liveness_probe.h"

enum { MESSAGE_MAX = 16 * 1024 };

static bool has(const char *part, const char *secret)
{
    return part && strstr(part, secret);
}

static const char secret[] = "hunter2hunter2"; /* part of some inputs of the corpus */

/* The printed address must not contain the password: it is logged. */
static void check_printed(struct database_address *address)
{
    struct buf out;
    free(address->password);
    address->password = strdup(secret);
    buf_init(&out, MESSAGE_MAX);
    database_address_print(address, &out);
    MUST(strncmp(buf_text(&out), "mysql://", 8) == 0);
    MUST(!strstr(buf_text(&out), secret) || has(address->host, secret) || has(address->user, secret) ||
         has(address->socket, secret) || has(address->database, secret));
    buf_release(&out);
}

static void feed_database(const char *text, struct buf *message)
{
    struct database_address address = {.port = 4711};
    if (!database_address_parse(text, &address, message)) {
        MUST(message->length && address.port == 4711 && !address.host && !address.database);
        MUST(!strstr(buf_text(message), secret));
        return;
    }
    MUST(!message->length);
    MUST(address.database && *address.database && strlen(address.database) <= 64 && !strchr(address.database, '`'));
    MUST(address.port <= 65535);
    MUST(!address.host || *address.host);
    MUST(!address.user || *address.user);
    check_printed(&address);
    database_address_release(&address);
    MUST(!address.host && !address.socket && !address.user && !address.password && !address.database);
}

static void feed_listen(const char *text, struct buf *message)
{
    struct listen_address address;
    char url[ADDRESS_URL_SIZE];
    bool taken = address_parse(text, &address, message);
    MUST(taken == (message->length == 0));
    if (!taken)
        return;
    const struct sockaddr_in *in = (const void *)&address.socket;
    const struct sockaddr_in6 *in6 = (const void *)&address.socket;
    if (address.transport == CLIENT_UNIX) {
        MUST(address.socket.ss_family == AF_UNIX && address_is_local(&address) && address_path(&address)[0] == '/');
        address_url(-1, &address, url);
        MUST(strcmp(url, text) == 0);
        return;
    }
    MUST((address.transport == CLIENT_TLS) == (strncmp(text, "https://", 8) == 0));
    bool is_in = address.socket.ss_family == AF_INET && address.length == sizeof *in;
    MUST(is_in || (address.socket.ss_family == AF_INET6 && address.length == sizeof *in6));
    MUST(address_is_local(&address) ==
         (is_in ? (ntohl(in->sin_addr.s_addr) & 0xff000000) == 0x7f000000 : IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr)));
}

static void feed_probe(const char *text, struct buf *message)
{
    struct probe *probe = probe_new(text, NULL, message);
    MUST((probe == NULL) == (message->length > 0));
    if (probe)
        MUST(strstr(text, "{owner}") && strncasecmp(text, "http", 4) == 0);
    probe_free(probe);
}

/* libcurl, which makes the call, finds the host that was judged; of an address of IPv4 it may write another form. */
static void feed_webhook(const char *text)
{
    struct bytes host;
    char *found = NULL, *user = NULL;
    CURLU *parts = curl_url();
    if (webhook_url_fault(bytes_of(text), &host) == NULL && curl_url_set(parts, CURLUPART_URL, text, 0) == CURLUE_OK) {
        MUST(curl_url_get(parts, CURLUPART_HOST, &found, 0) == CURLUE_OK && found);
        MUST(curl_url_get(parts, CURLUPART_USER, &user, 0) == CURLUE_NO_USER);
        size_t bracket = found[0] == '[';
        bool same =
            strlen(found) == host.length + 2 * bracket && strncasecmp(found + bracket, host.data, host.length) == 0;
        MUST(same || bracket || strspn(found, "0123456789.") == strlen(found));
    }
    curl_free(found);
    curl_free(user);
    curl_url_cleanup(parts);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned choice = fuzz_choice(&data, &size);
    char *text = fuzz_text(data, size);
    struct buf message;
    buf_init(&message, MESSAGE_MAX);
    switch (choice) {
    case 'l':
    case 'a': feed_listen(text, &message); break;
    case 'p': feed_probe(text, &message); break;
    case 'w': feed_webhook(text); break;
    default: feed_database(text, &message);
    }
    buf_release(&message);
    free(text);
    return 0;
}
