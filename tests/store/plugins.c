/* SPDX-License-Identifier: MIT */
/*
 * A hostile server that asks for the password in clear text. It speaks just enough of the protocol to name a plugin, in
 * its greeting or in a switch request after the client's answer, and records every byte that the client sends.
 */
#include <criterion/criterion.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fixture.h"

#define PASSWORD "hunter2hunter2"

enum {
    HEARD_MAX = 4096,
    SILENCE_MS = 200,   /* silence after which the client is done */
    CLIENT_MS = 120000, /* limit for its connect and its answer */
};

struct hostile {
    const char *greeted;  /* plugin named in the greeting */
    const char *switched; /* plugin named in the switch request; NULL: no request */
    struct bytes data;    /* data of the switch request */
    int listener;
    unsigned port;
    pthread_t thread;
    char heard[HEARD_MAX];
    size_t heard_length;
};

static void send_packet(int fd, unsigned char number, const char *data, size_t length)
{
    unsigned char head[] = {(unsigned char)length, (unsigned char)(length >> 8), 0, number};
    (void)!write(fd, head, sizeof head);
    (void)!write(fd, data, length);
}

/* Sends a HandshakeV10 with CLIENT_PLUGIN_AUTH and the capabilities it needs. */
static void greet(int fd, const char *plugin)
{
    static const char before[] = "\x0a"
                                 "10.11.0-MariaDB\0"
                                 "\1\0\0\0"
                                 "abcdefgh\0"
                                 "\x0f\xa2\x2d\x02\x00\x0b\x00\x15"
                                 "\0\0\0\0\0\0\0\0\0\0"
                                 "abcdefghijkl";
    char packet[200];
    memcpy(packet, before, sizeof before);
    size_t length = sizeof before + strlen(plugin) + 1;
    memcpy(packet + sizeof before, plugin, strlen(plugin) + 1);
    send_packet(fd, 0, packet, length);
}

/* Sends a switch request; an empty name sends the one-byte packet of servers before 4.1. */
static void ask_to_switch(const struct hostile *hostile, int fd)
{
    char packet[200] = "\xfe";
    size_t length = 1;
    if (hostile->switched[0] == '\0') {
        send_packet(fd, 2, packet, length);
        return;
    }
    memcpy(packet + length, hostile->switched, strlen(hostile->switched) + 1);
    length += strlen(hostile->switched) + 1;
    memcpy(packet + length, hostile->data.data, hostile->data.length);
    send_packet(fd, 2, packet, length + hostile->data.length);
}

/* Records the client's bytes until it is silent or disconnects. */
static void hear(struct hostile *hostile, int fd)
{
    struct pollfd polled = {.fd = fd, .events = POLLIN};
    int ms = CLIENT_MS;
    while (hostile->heard_length < HEARD_MAX && poll(&polled, 1, ms) > 0) {
        ssize_t got = read(fd, hostile->heard + hostile->heard_length, HEARD_MAX - hostile->heard_length);
        if (got <= 0)
            return;
        hostile->heard_length += (size_t)got;
        ms = SILENCE_MS;
    }
}

static void *hostile_thread(void *argument)
{
    struct hostile *hostile = argument;
    struct pollfd polled = {.fd = hostile->listener, .events = POLLIN};
    int fd = poll(&polled, 1, CLIENT_MS) > 0 ? accept(hostile->listener, NULL, NULL) : -1;
    if (fd < 0)
        return NULL;
    greet(fd, hostile->greeted);
    hear(hostile, fd);
    if (hostile->switched) {
        ask_to_switch(hostile, fd);
        hear(hostile, fd);
    }
    close(fd);
    return NULL;
}

static void hostile_start(struct hostile *hostile)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    hostile->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_eq(bind(hostile->listener, (struct sockaddr *)&address, sizeof address), 0);
    cr_assert_eq(listen(hostile->listener, 1), 0);
    cr_assert_eq(getsockname(hostile->listener, (struct sockaddr *)&address, &length), 0);
    hostile->port = ntohs(address.sin_port);
    cr_assert_eq(pthread_create(&hostile->thread, NULL, hostile_thread, hostile), 0);
}

Test(plugins, password_is_never_sent_in_clear_text_without_an_authority, .timeout = 300)
{
    static const struct {
        const char *greeted, *switched;
        struct bytes data;
        unsigned other_errno; /* errno of libmysqlclient if it names no plugin */
    } rows[] = {
        {"mysql_clear_password", NULL, {NULL, 0}, 0},
        {"dialog", NULL, {NULL, 0}, 2013}, /* it answers with its own plugin */
        {"mysql_native_password", "mysql_clear_password", {"", 1}, 0},
        {"mysql_native_password", "dialog", {"\4Password: ", 11}, 0},
        {"mysql_native_password", "mysql_old_password", {"abcdefgh", 9}, 0},
        {"mysql_native_password", "", {NULL, 0}, 2027}, /* malformed packet */
    };
    (void)setenv("LIBMYSQL_ENABLE_CLEARTEXT_PLUGIN", "1", 1); /* for libmysqlclient: must have no effect */
    cr_assert(store_library_begin());
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        struct hostile hostile = {.greeted = rows[i].greeted, .switched = rows[i].switched, .data = rows[i].data};
        hostile_start(&hostile);
        struct database_address address = {
            .host = (char[]){"127.0.0.1"},
            .port = hostile.port,
            .user = (char[]){"permitd"},
            .password = (char[]){PASSWORD},
            .database = (char[]){"permitd"},
        };
        struct session *session = session_new(&address, STORE_WORKER);
        cr_expect_eq(session_connect(session), PERMIT_DATABASE_UNAVAILABLE, "row %zu: %s", i, session_message(session));
        bool told = strstr(session_message(session), "plugin") != NULL;
        cr_expect(told || (rows[i].other_errno && session_errno(session) == rows[i].other_errno), "row %zu: %s", i,
                  session_message(session));
        pthread_join(hostile.thread, NULL);
        close(hostile.listener);
        cr_expect_null(memmem(hostile.heard, hostile.heard_length, PASSWORD, strlen(PASSWORD)), "row %zu: it was sent",
                       i);
        session_free(session);
    }
}
