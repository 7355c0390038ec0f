/* SPDX-License-Identifier: MIT */
/* Warnings about addresses that other machines reach. Standard error is a socket, which keeps each line separate. */
#include <criterion/criterion.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "http/loop.h"

static const mono_us hour = 3600 * (mono_us)US_PER_SECOND;

static int reader;
static struct server server;

static void listen_at(const char *url)
{
    struct listener *listener = &server.listeners[server.listener_count++];
    struct buf message = {0};
    cr_assert(address_parse(url, &listener->address, &message), "%s", message.data);
    (void)snprintf(listener->url, sizeof listener->url, "%s", url);
    buf_release(&message);
}

static void begin(void)
{
    int ends[2];
    cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
    cr_assert(dup2(ends[1], STDERR_FILENO) >= 0);
    close(ends[1]);
    reader = ends[0];
    server = (struct server){.settings.insecure = true};
    listen_at("http://127.0.0.1:7070");
    listen_at("unix:/run/permitd.sock");
    listen_at("https://192.0.2.1:7443");
    listen_at("http://192.0.2.1:7071");
}

TestSuite(listen, .init = begin);

/* Returns the addresses of which a warning says this, in order; other lines fail. */
static const char *warned_at(mono_us now, const char *warning)
{
    static char urls[500];
    char line[1000];
    ssize_t length;
    server.now = now;
    listeners_warn(&server);
    urls[0] = '\0';
    while ((length = recv(reader, line, sizeof line - 1, MSG_DONTWAIT)) > 0) {
        line[length - 1] = '\0'; /* the line feed */
        cr_assert(strstr(line, " warn ") && strstr(line, warning), "%s", line);
        const char *url = strstr(line, "listen=");
        cr_assert_not_null(url, "%s", line);
        (void)snprintf(urls + strlen(urls), sizeof urls - strlen(urls), "%s ", url + strlen("listen="));
    }
    return urls;
}

Test(listen, insecure_is_warned_of_each_hour)
{
    static const char both[] = "https://192.0.2.1:7443 http://192.0.2.1:7071 ";
    static const char warning[] = "insecure: every client that reaches this address may do everything";
    cr_expect_str_eq(warned_at(1, warning), both);
    cr_expect_str_eq(warned_at(hour, warning), "");
    cr_expect_str_eq(warned_at(hour + 1, warning), both);
    cr_expect_str_eq(warned_at(hour + 2, warning), "");
}

Test(listen, insecure_with_credentials_warns_of_addresses_without_tls)
{
    server.settings.has_credentials = true;
    cr_expect_str_eq(warned_at(1, "insecure: credentials and answers cross the network without encryption"),
                     "http://192.0.2.1:7071 ");
}

Test(listen, without_insecure_there_is_nothing_to_warn_of)
{
    server.settings.insecure = false;
    cr_expect_str_eq(warned_at(1, "no warning"), "");
}
