/* SPDX-License-Identifier: MIT */
/* The table of the settings of the HTTP server. docs/config.md is printed from such tables. */
#include "base/config.h"
#include "http/server.h"

#define AT(member) offsetof(struct server_settings, member)
#define DAY_MS     (24LL * 3600 * 1000)

static const struct config_row rows[] = {
    {.name = "listen",
     .type = CONFIG_LIST,
     .offset = AT(listen),
     .default_text = "127.0.0.1:7070",
     .placeholder = "ADDRESS",
     .help = "Where the HTTP server listens: ADDRESS:PORT or http://ADDRESS:PORT, https://ADDRESS:PORT for TLS, or "
             "unix:PATH for a Unix socket. May be given several times, or with commas between the addresses. Addresses "
             "other than loopback require https and credentials. Port 0 chooses a free port and prints it."},
    {.name = "insecure",
     .type = CONFIG_BOOL,
     .offset = AT(insecure),
     .default_text = "false",
     .help = "Listen on addresses other than loopback without TLS or without credentials. Every client that can "
             "connect there may do everything, or can be overheard. The log warns of it each hour."},
    {.name = "tls_certificate",
     .type = CONFIG_TEXT,
     .offset = AT(tls.certificate),
     .flags = CONFIG_RELOADABLE,
     .placeholder = "FILE",
     .help = "Certificate (PEM) of the https listeners, followed by the certificates of its authorities. SIGHUP reads "
             "the file again."},
    {.name = "tls_key",
     .type = CONFIG_TEXT,
     .offset = AT(tls.key),
     .flags = CONFIG_RELOADABLE,
     .placeholder = "FILE",
     .help =
         "Private key (PEM) of tls_certificate. Only the user of permitd may read the file; a group may read one of "
         "root. SIGHUP reads the file again."},
    {.name = "tls_client_ca",
     .type = CONFIG_TEXT,
     .offset = AT(tls.client_ca),
     .flags = CONFIG_RELOADABLE,
     .placeholder = "FILE",
     .help = "Certificates (PEM) of the authorities of clients. With it clients may authenticate by a certificate; a "
             "certificate of another authority is refused. SIGHUP reads the file again."},
    {.name = "tls_handshakes",
     .type = CONFIG_NUMBER,
     .offset = AT(tls_handshakes),
     .default_text = "200",
     .min = 1,
     .max = 100000,
     .flags = CONFIG_RELOADABLE,
     .help = "Maximum number of TLS handshakes that begin in a second; the clients beyond it wait. A handshake costs "
             "the time of about ten requests, so that this limit keeps clients that all connect at once from delaying "
             "the others."},
    {.name = "max_connections",
     .type = CONFIG_NUMBER,
     .offset = AT(max_connections),
     .default_text = "16384",
     .min = 1,
     .max = 1000000,
     .flags = CONFIG_RELOADABLE,
     .help = "Maximum number of client connections. A new connection beyond it closes the connection that has been "
             "idle longest; while none is idle, it waits to be accepted."},
    {.name = "max_connections_per_address",
     .type = CONFIG_NUMBER,
     .offset = AT(max_connections_per_address),
     .default_text = "0",
     .min = 0,
     .max = 1000000,
     .flags = CONFIG_RELOADABLE,
     .help = "Maximum number of connections from one address (IPv6: from one /64). While none of them is idle, a new "
             "one is answered 429 and closed. 0: a quarter of max_connections."},
    {.name = "max_memory",
     .type = CONFIG_SIZE,
     .offset = AT(max_memory),
     .default_text = "256MiB",
     .min = 64LL << 20,
     .max = 1LL << 40,
     .flags = CONFIG_RELOADABLE,
     .help = "Limit of permitd's resident memory, without its private MariaDB. Requests and answers share the memory "
             "that the rest of permitd leaves. When it is used up, requests and answers of more than 2 KiB are refused "
             "with 503."},
    {.name = "request_timeout",
     .type = CONFIG_DURATION,
     .offset = AT(request_timeout_ms),
     .default_text = "10s",
     .min = 100,
     .max = 3600 * 1000,
     .flags = CONFIG_RELOADABLE,
     .help = "A request that is not decided within this time plus its wait is answered 503."},
    {.name = "idle_timeout",
     .type = CONFIG_DURATION,
     .offset = AT(idle_timeout_ms),
     .default_text = "60s",
     .min = 100,
     .max = DAY_MS,
     .flags = CONFIG_RELOADABLE,
     .help = "A connection is closed if its request is not complete, or none of its answer is read, within this time."},
};
const struct config_section server_section = {rows, ARRAY_LENGTH(rows)};
