/* SPDX-License-Identifier: MIT */
/*
 * Load on a ZooKeeper (peer.h), through its client library for programs with their own loop; a client is a session. An
 * acquire creates an ephemeral node with a sequence number below /hot, a release deletes it. This is the least that a
 * semaphore can cost there: the usual recipe also reads the children of /hot, and grants only if the new node is among
 * the first.
 */
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <zookeeper/zookeeper.h>

#include "load_client.h"
#include "peer.h"

enum { SESSION_MS = 30000, CONNECT_MS = 60000, PATH_SIZE = 64 };

static struct client {
    zhandle_t *session;
    char path[PATH_SIZE]; /* of its node */
} clients[PEER_CLIENTS_MAX];

static void check(int status, const char *what)
{
    if (status != ZOK)
        peer_fail("peer_zookeeper: %s: %s", what, zerror(status));
}

static void *context_of(unsigned number)
{
    return (void *)(uintptr_t)number;
}

static unsigned number_of(const void *context)
{
    return (unsigned)(uintptr_t)context;
}

/* ---- connecting ---- */

static void ignore_event(zhandle_t *session, int type, int state, const char *path, void *context)
{
    (void)session, (void)type, (void)state, (void)path, (void)context;
}

/*
 * Waits for the socket once, and lets the library do what is due. Returns the socket, or -1 if there is none now: a server
 * that has just started closes connections or leaves them without an answer, and the library connects again.
 */
static int session_step(zhandle_t *session)
{
    int fd, interest;
    struct timeval timeout;
    if (zookeeper_interest(session, &fd, &interest, &timeout) != ZOK)
        return -1;
    struct pollfd wait = {
        .fd = fd,
        .events = (short)((interest & ZOOKEEPER_READ ? POLLIN : 0) | (interest & ZOOKEEPER_WRITE ? POLLOUT : 0))};
    poll(&wait, 1, (int)(timeout.tv_sec * 1000 + timeout.tv_usec / 1000));
    int status = zookeeper_process(session, (wait.revents & (POLLIN | POLLERR | POLLHUP) ? ZOOKEEPER_READ : 0) |
                                                (wait.revents & POLLOUT ? ZOOKEEPER_WRITE : 0));
    return status == ZOK || status == ZNOTHING ? fd : -1;
}

static bool has_root;

static void root_created(int status, const char *path, const void *context)
{
    (void)path, (void)context;
    if (status != ZNODEEXISTS)
        check(status, "create /hot");
    has_root = true;
}

/* Connects within CONNECT_MS. */
static int open_client(unsigned number, const char *server)
{
    int fd = -1;
    int64_t end = load_now_us() + CONNECT_MS * 1000;
    zhandle_t *session = zookeeper_init(server, ignore_event, SESSION_MS, NULL, NULL, 0);
    if (!session)
        peer_fail("peer_zookeeper: no session");
    clients[number].session = session;
    while (fd < 0 || zoo_state(session) != ZOO_CONNECTED_STATE) {
        if (load_now_us() > end)
            peer_fail("peer_zookeeper: %s does not answer", server);
        fd = session_step(session);
    }
    if (!has_root)
        check(zoo_acreate(session, "/hot", NULL, -1, &ZOO_OPEN_ACL_UNSAFE, 0, root_created, NULL), "create /hot");
    while (!has_root)
        session_step(session);
    return fd;
}

/* ---- operations ---- */

static void created(int status, const char *path, const void *context)
{
    unsigned number = number_of(context);
    if (status == ZOK)
        snprintf(clients[number].path, PATH_SIZE, "%s", path);
    peer_answered(number, status == ZOK);
}

static void acquire(unsigned number)
{
    check(zoo_acreate(clients[number].session, "/hot/holder-", NULL, -1, &ZOO_OPEN_ACL_UNSAFE,
                      ZOO_EPHEMERAL | ZOO_SEQUENCE, created, context_of(number)),
          "create");
}

static void deleted(int status, const void *context)
{
    peer_answered(number_of(context), status == ZOK);
}

static void release(unsigned number)
{
    check(zoo_adelete(clients[number].session, clients[number].path, -1, deleted, context_of(number)), "delete");
}

/*
 * A session is never idle in a run, so it needs no ping, and zookeeper_interest, which sends them, is not called. The
 * library sends a small request at once.
 */
static void readable(unsigned number)
{
    check(zookeeper_process(clients[number].session, ZOOKEEPER_READ), "read");
}

int main(int argc, char **argv)
{
    zoo_set_debug_level(ZOO_LOG_LEVEL_ERROR);
    int status = peer_main(
        argc, argv,
        &(struct peer_calls){.open = open_client, .acquire = acquire, .release = release, .readable = readable});
    for (unsigned i = 0; i < PEER_CLIENTS_MAX && clients[i].session; i++)
        zookeeper_close(clients[i].session);
    return status;
}
