/* SPDX-License-Identifier: MIT */
/* See peer_servers.h. */
#include "peer_servers.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kit_process.h"
#include "stores.h"

#define ZOOKEEPER_JAR "/usr/share/java/zookeeper.jar"

enum { READY_MS = 60000, STOP_MS = 30000 };

/* ---- ZooKeeper ---- */

static const char *zookeeper_missing(void)
{
#ifdef PERMIT_PEER_ZOOKEEPER
    return access(ZOOKEEPER_JAR, R_OK) ? "ZooKeeper is not installed" : NULL;
#else
    return "ZooKeeper's client library was not there when this was built";
#endif
}

struct zookeeper_wait {
    unsigned port;
    char version[256];
};

/*
 * Asks for the state of the server: "Zookeeper version: 3.8.0-..., built on ...". It listens before it serves, and the
 * sessions of that time are answered late.
 */
static bool serves(void *context)
{
    struct zookeeper_wait *wait = context;
    char answer[512] = "";
    int fd = kit_connect(wait->port);
    if (fd < 0)
        return false;
    ssize_t length = send(fd, "srvr", 4, MSG_NOSIGNAL) == 4 ? recv(fd, answer, sizeof answer - 1, 0) : 0;
    close(fd);
    return length > 0 && sscanf(answer, "Zookeeper version: %255[^-,]", wait->version) == 1;
}

struct peer_server zookeeper_start(void)
{
    if (zookeeper_missing())
        return (struct peer_server){.missing = zookeeper_missing()};
    char *directory = kit_path("zookeeper"), *log = kit_text("%s/log", directory);
    char *config = kit_text("%s/zoo.cfg", directory);
    KIT_CHECK(!mkdir(directory, 0700));
    int kept;
    struct zookeeper_wait wait = {.port = kit_keep_port(&kept)};
    FILE *file = fopen(config, "we");
    KIT_CHECK(file);
    fprintf(file,
            "dataDir=%s\nclientPortAddress=127.0.0.1\nclientPort=%u\nmaxClientCnxns=0\ntickTime=2000\n"
            "admin.enableServer=false\n",
            directory, wait.port);
    fclose(file);
    const char *const argv[] = {"java", "-cp", ZOOKEEPER_JAR, "org.apache.zookeeper.server.quorum.QuorumPeerMain",
                                config, NULL};
    struct peer_server server = {.pid = kit_spawn(argv, -1, log), .where = kit_text("127.0.0.1:%u", wait.port)};
    close(kept);
    if (!kit_wait_until(serves, &wait, READY_MS))
        kit_fail("ZooKeeper does not serve");
    server.version = kit_text("ZooKeeper %s", wait.version);
    free(directory);
    free(config);
    free(log);
    return server;
}

void zookeeper_stop(struct peer_server *server)
{
    if (server->missing)
        return;
    kill(server->pid, SIGTERM);
    if (kit_wait_pid(server->pid, STOP_MS) == -1)
        kit_fail("ZooKeeper does not stop");
    free(server->where);
    free(server->version);
}

/* ---- Redis ---- */

/* "Redis 7.0.15", by its client, which is of the same package. The caller frees it. */
static char *redis_version(void)
{
    char program[32] = "", version[32] = "";
    FILE *output = popen("redis-cli --version 2>/dev/null || valkey-cli --version", "re");
    KIT_CHECK(output);
    if (fscanf(output, "%31[^-]-cli %31s", program, version) != 2)
        kit_fail("no version of Redis");
    pclose(output);
    return kit_text("%s %s", strcmp(program, "redis") ? "Valkey" : "Redis", version);
}

struct peer_server redis_start(void)
{
    if (!store_redis_installed())
        return (struct peer_server){.missing = "Redis is not installed"};
    struct store *store = store_redis.start(true);
    return (struct peer_server){
        .pid = store->pid, .where = kit_copy(store->socket), .version = redis_version(), .own = store};
}

void redis_stop(struct peer_server *server)
{
    if (server->missing)
        return;
    store_redis.stop(server->own);
    free(server->where);
    free(server->version);
}
