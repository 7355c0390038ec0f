/* SPDX-License-Identifier: MIT */
/* Starts and stops the nodes. */
#include "galera_cluster.h"

#include <netinet/in.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { JOIN_MS = 180000, PORT_FIRST = 20000, PORT_END = 32000 /* below the usual ephemeral ports */ };

static const char *const libraries[] = {"/usr/lib/galera/libgalera_smm.so", "/usr/lib64/galera-4/libgalera_smm.so"};

/* ---- flags ---- */

static bool is_free(unsigned port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    address.sin_port = htons((uint16_t)port);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    KIT_CHECK(fd >= 0);
    bool free = !bind(fd, (struct sockaddr *)&address, sizeof(address));
    close(fd);
    return free;
}

/* Two consecutive free ports. Parallel runs search in different ranges. */
static unsigned two_ports(unsigned number)
{
    unsigned port = PORT_FIRST + ((unsigned)getpid() * 97 + (unsigned)(kit_now_us() / 1000) * 7 + number * 10) %
                                     (PORT_END - PORT_FIRST);
    while (!is_free(port) || !is_free(port + 1))
        port = port + 2 < PORT_END ? port + 2 : PORT_FIRST;
    return port;
}

static KIT_PRINTF(2, 3) void add_flag(struct galera_node *node, const char *format, ...)
{
    va_list arguments;
    size_t count = 0;
    while (node->flags[count])
        count++;
    KIT_CHECK(count < GALERA_FLAGS);
    va_start(arguments, format);
    vsnprintf(node->texts[count], GALERA_TEXT, format, arguments);
    va_end(arguments);
    node->flags[count] = node->texts[count];
}

static const char *library(void)
{
    for (size_t i = 0; i < sizeof(libraries) / sizeof(libraries[0]); i++)
        if (!access(libraries[i], R_OK))
            return libraries[i];
    kit_fail("galera: no libgalera_smm.so; scripts/packages.sh test installs the package galera-4");
}

/*
 * A node is dead after 3 s of silence (Galera's default is 5). It is checked three times in that period, so
 * keep-alive messages must be more frequent.
 */
static void set_flags(struct galera_node *node, unsigned number, const char *others)
{
    memset(node->flags, 0, sizeof(node->flags));
    add_flag(node, "--wsrep-on=ON");
    add_flag(node, "--wsrep-provider=%s", library());
    add_flag(node, "--wsrep-cluster-name=chaos");
    add_flag(node, "--wsrep-node-name=node%u", number + 1);
    add_flag(node, "--wsrep-node-address=127.0.0.1:%u", node->port);
    add_flag(node, "--wsrep-sst-method=position");
    add_flag(node, "--wsrep-sst-receive-address=127.0.0.1:%u", node->port + 1);
    add_flag(node, "--wsrep-cluster-address=gcomm://%s", others);
    add_flag(node,
             "--wsrep-provider-options=base_host=127.0.0.1;base_port=%u;gmcast.listen_addr=tcp://127.0.0.1:%u;"
             "ist.recv_addr=127.0.0.1:%u;gcache.size=16M;evs.keepalive_period=PT0.5S;evs.inactive_check_period=PT0.5S;"
             "evs.suspect_timeout=PT3S;evs.inactive_timeout=PT8S;evs.install_timeout=PT8S;gmcast.peer_timeout=PT2S;"
             "pc.recovery=false",
             node->port, node->port, node->port + 1);
    add_flag(node, "--wsrep-slave-threads=2");
    add_flag(node, "--binlog-format=ROW");
    add_flag(node, "--innodb-autoinc-lock-mode=2");
    add_flag(node, "--server-id=%u", number + 1);
}

/* mariadbd finds wsrep_sst_position in PATH. */
static void install_position_script(void)
{
    static bool done;
    if (done)
        return;
    char *directory = kit_path("galera"), *script = NULL, *path = NULL;
    KIT_CHECK(!mkdir(directory, 0700) && asprintf(&script, "%s/wsrep_sst_position", directory) > 0 &&
              asprintf(&path, "%s:%s", directory, getenv("PATH") ? getenv("PATH") : "/usr/bin:/bin") > 0);
    KIT_CHECK(!symlink(PERMIT_SOURCE_DIR "/tests/chaos/galera_position.sh", script));
    setenv("PERMIT_GALERA_DIR", directory, 1);
    setenv("PATH", path, 1);
    free(directory);
    free(script);
    free(path);
    done = true;
}

/* ---- nodes ---- */

/* A node that is not synced refuses statements that name a table, and may close connections. */
static bool is_synced(void *context)
{
    const struct kit_database *database = context;
    struct kit_sql *sql = kit_sql_try_open(database->socket, NULL);
    bool synced = sql && kit_sql_try(sql, "SELECT COUNT(*) FROM mysql.db") == 0;
    kit_sql_close(sql);
    return synced;
}

static void await_synced(const struct galera_node *node)
{
    if (!kit_wait_until(is_synced, node->database, JOIN_MS))
        kit_fail("galera: a node does not join");
}

/*
 * Creates the files that all nodes are copied from. The server is briefly a cluster of one, so that its position is in
 * the files.
 */
static void create_files(struct galera_node *node)
{
    set_flags(node, 0, "");
    add_flag(node, "--wsrep-new-cluster");
    node->database = kit_database_start(node->flags);
    await_synced(node);
    KIT_CHECK(!kill(node->database->pid, SIGTERM));
    kit_database_await_end(node->database);
}

void galera_start(struct galera *cluster)
{
    char first[64];
    install_position_script();
    for (unsigned i = 0; i < GALERA_NODES; i++)
        cluster->nodes[i].port = two_ports(i);
    create_files(&cluster->nodes[0]);
    snprintf(first, sizeof(first), "127.0.0.1:%u", cluster->nodes[0].port);
    for (unsigned i = 1; i < GALERA_NODES; i++) {
        set_flags(&cluster->nodes[i], i, first);
        cluster->nodes[i].database = kit_database_copy(cluster->nodes[0].database, cluster->nodes[i].flags);
    }
    for (unsigned i = 0; i < GALERA_NODES; i++) {
        kit_database_restart(cluster->nodes[i].database);
        await_synced(&cluster->nodes[i]);
    }
}

void galera_kill(struct galera *cluster, unsigned node)
{
    kit_database_kill(cluster->nodes[node].database);
}

void galera_stop(struct galera *cluster)
{
    for (unsigned i = 0; i < GALERA_NODES; i++) {
        if (cluster->nodes[i].database->pid) /* its files are not needed any more */
            galera_kill(cluster, i);
        kit_database_stop(cluster->nodes[i].database);
    }
}

struct kit_sql *galera_sql(const struct galera *cluster, unsigned node)
{
    struct kit_sql *sql = kit_sql_open(cluster->nodes[node].database->socket, "permitd");
    kit_sql_run(sql, "SET time_zone = '+00:00', wsrep_sync_wait = 1");
    kit_sql_run(sql, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED");
    return sql;
}

static void take_value(void *context, char **columns)
{
    *(double *)context = columns[1] ? atof(columns[1]) : 0;
}

double galera_status(struct kit_sql *sql, const char *name)
{
    char statement[128];
    double value = 0;
    snprintf(statement, sizeof(statement), "SHOW GLOBAL STATUS LIKE '%s'", name);
    kit_sql_each(sql, statement, take_value, &value);
    return value;
}
