/* SPDX-License-Identifier: MIT */
/*
 * A Galera cluster of three MariaDB servers on loopback. Each start creates a new cluster; all nodes begin with copies
 * of the same files.
 */
#ifndef GALERA_CLUSTER_H
#define GALERA_CLUSTER_H

#include "testkit.h"

enum { GALERA_NODES = 3, GALERA_FLAGS = 20, GALERA_TEXT = 640 };

struct galera_node {
    struct kit_database *database;
    unsigned port; /* for replication; the next port is for the state transfer when a node joins */
    char texts[GALERA_FLAGS][GALERA_TEXT];
    const char *flags[GALERA_FLAGS + 1];
};

struct galera {
    struct galera_node nodes[GALERA_NODES];
};

/* Ends the process if the cluster does not start, or if the library of the package galera-4 is not installed. */
void galera_start(struct galera *cluster);
void galera_stop(struct galera *cluster);
/* Sends SIGKILL. */
void galera_kill(struct galera *cluster, unsigned node);
/* A session in UTC. Its reads see everything committed on any node before. */
struct kit_sql *galera_sql(const struct galera *cluster, unsigned node);
/* The value of SHOW GLOBAL STATUS; 0 if it is not a number. */
double galera_status(struct kit_sql *sql, const char *name);
#endif
