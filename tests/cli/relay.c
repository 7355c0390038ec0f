/* SPDX-License-Identifier: MIT */
/*
 * A proxy in front of permitd that loses requests and answers: relay PORT ACT... prints its url, and applies the n-th
 * act to the n-th request (the last act to all further ones):
 *
 *     pass     passes on the request, and the answer
 *     drop     passes on the request, and closes the connection when the answer arrives
 *     swallow  passes on the request, and sends nothing
 *     hang     sends nothing
 *
 * Runs until it is killed, or until its parent has ended.
 */
#include <arpa/inet.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MESSAGE_MAX = 1 << 20 };

static char **acts;
static unsigned act_count;
static atomic_uint requests;
static uint16_t server_port;

static const char *next_act(void)
{
    unsigned request = atomic_fetch_add(&requests, 1);
    return acts[request < act_count ? request : act_count - 1];
}

/* Reads one message with a Content-Length, or without a body. Returns its length; 0: the connection is closed. */
static size_t read_message(int fd, char *message)
{
    size_t length = 0;
    while (length < MESSAGE_MAX - 1) {
        ssize_t got = recv(fd, message + length, MESSAGE_MAX - 1 - length, 0);
        if (got <= 0)
            return 0;
        length += (size_t)got;
        message[length] = '\0';
        const char *end = strstr(message, "\r\n\r\n");
        const char *said = strcasestr(message, "\r\ncontent-length:");
        if (end && length >= (size_t)(end + 4 - message) + (said && said < end ? strtoul(said + 17, NULL, 10) : 0))
            return length;
    }
    return 0;
}

static int connect_to_server(void)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(server_port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0)
        return fd;
    close(fd);
    return -1;
}

static void wait_until_closed(int fd)
{
    char byte;
    while (recv(fd, &byte, 1, 0) > 0)
        ;
}

/* Returns false if the connection can no longer be used. */
static bool relay(int client, int server, const char *act, char *message, size_t length)
{
    if (strcmp(act, "hang") == 0) {
        wait_until_closed(client);
        return false;
    }
    bool sent = send(server, message, length, MSG_NOSIGNAL) == (ssize_t)length;
    length = sent ? read_message(server, message) : 0;
    if (strcmp(act, "swallow") == 0)
        wait_until_closed(client);
    return length && strcmp(act, "pass") == 0 && send(client, message, length, MSG_NOSIGNAL) == (ssize_t)length;
}

static void *serve(void *context)
{
    int client = (int)(intptr_t)context;
    int server = connect_to_server();
    char *message = malloc(MESSAGE_MAX);
    size_t length;
    while (server >= 0 && message && (length = read_message(client, message)) > 0)
        if (!relay(client, server, next_act(), message, length))
            break;
    free(message);
    close(server);
    close(client);
    return NULL;
}

int main(int argc, char **argv)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    pthread_t thread;
    if (argc < 3)
        return 64;
    server_port = (uint16_t)atoi(argv[1]);
    acts = argv + 2;
    act_count = (unsigned)argc - 2;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(listener, (struct sockaddr *)&address, sizeof(address)) != 0 || listen(listener, 64) != 0 ||
        getsockname(listener, (struct sockaddr *)&address, &size) != 0)
        return 71;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    printf("http://127.0.0.1:%u\n", (unsigned)ntohs(address.sin_port));
    fflush(stdout);
    for (;;) {
        int client = accept(listener, NULL, NULL);
        if (client < 0 || pthread_create(&thread, NULL, serve, (void *)(intptr_t)client) != 0)
            return 71;
        pthread_detach(thread);
    }
}
