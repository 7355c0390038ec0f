/* SPDX-License-Identifier: MIT */
/*
 * Load on a Redis (peer.h), over its Unix socket: a counted semaphore as a sorted set of its holders. An acquire is a
 * script, called by its digest: it refuses if the set has as many members as the capacity, and otherwise adds one whose
 * score is the token that it returns, from INCR. A release removes the member. There is no expiry.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "peer.h"

enum { DIGEST_SIZE = 41, REPLY_SIZE = 256 };

/* KEYS: holders, tokens. ARGV: the member; for an acquire also the capacity. Both return 0 for "no". */
static const char acquire_script[] = "if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[2]) then return 0 end "
                                     "local token = redis.call('INCR', KEYS[2]) "
                                     "redis.call('ZADD', KEYS[1], token, ARGV[1]) return token";
static const char release_script[] = "return redis.call('ZREM', KEYS[1], ARGV[1])";

static struct client {
    int fd;
    unsigned serial; /* of its last member */
    char reply[REPLY_SIZE];
    size_t length;
} clients[PEER_CLIENTS_MAX];

static char acquire_digest[DIGEST_SIZE], release_digest[DIGEST_SIZE];

static void send_text(int fd, const char *text, size_t length)
{
    if (send(fd, text, length, MSG_NOSIGNAL) != (ssize_t)length) /* far less than the buffer of a socket */
        peer_fail("peer_redis: the server takes no request");
}

/* Sends a script to be kept, and reads its digest: "$40\r\nDIGEST\r\n". */
static void load_script(int fd, const char *script, char *ret_digest)
{
    char text[1024], reply[REPLY_SIZE] = "";
    int length =
        snprintf(text, sizeof text, "*3\r\n$6\r\nSCRIPT\r\n$4\r\nLOAD\r\n$%zu\r\n%s\r\n", strlen(script), script);
    send_text(fd, text, (size_t)length);
    ssize_t got = recv(fd, reply, sizeof reply - 1, 0);
    if (got <= 0 || sscanf(reply, "$40 %40s", ret_digest) != 1)
        peer_fail("peer_redis: SCRIPT LOAD: %s", reply);
}

static int open_client(unsigned number, const char *server)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", server);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address))
        peer_fail("peer_redis: cannot connect to %s", server);
    if (number == 0) {
        load_script(fd, acquire_script, acquire_digest);
        load_script(fd, release_script, release_digest);
    }
    clients[number].fd = fd;
    return fd;
}

/* Sends EVALSHA with the keys, and the member of this client and the capacity as arguments. */
static void send_call(unsigned number, const char *digest)
{
    char text[512];
    int length = snprintf(text, sizeof text,
                          "*7\r\n$7\r\nEVALSHA\r\n$40\r\n%s\r\n$1\r\n2\r\n$7\r\nholders\r\n$6\r\ntokens\r\n"
                          "$13\r\n%04x-%08x\r\n$7\r\n1000000\r\n",
                          digest, number, clients[number].serial);
    send_text(clients[number].fd, text, (size_t)length);
}

static void acquire(unsigned number)
{
    clients[number].serial++;
    send_call(number, acquire_digest);
}

static void release(unsigned number)
{
    send_call(number, release_digest);
}

/* A reply is one line: ":57\r\n", or "-ERR ...\r\n". */
static void readable(unsigned number)
{
    struct client *client = &clients[number];
    ssize_t got = recv(client->fd, client->reply + client->length, sizeof client->reply - 1 - client->length, 0);
    if (got <= 0)
        peer_fail("peer_redis: the server closed a connection");
    client->length += (size_t)got;
    client->reply[client->length] = 0;
    if (client->reply[client->length - 1] != '\n')
        return;
    client->length = 0;
    if (client->reply[0] != ':')
        peer_fail("peer_redis: %s", client->reply);
    peer_answered(number, atol(client->reply + 1) > 0);
}

int main(int argc, char **argv)
{
    return peer_main(
        argc, argv,
        &(struct peer_calls){.open = open_client, .acquire = acquire, .release = release, .readable = readable});
}
