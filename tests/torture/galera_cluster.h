/* SPDX-License-Identifier: MIT */
/*
 * A Galera cluster of three MariaDB on loopback: fresh with each start, all nodes on copies of the same files.
 */
#ifndef GALERA_CLUSTER_H
#define GALERA_CLUSTER_H

#include "testkit.h"

enum { GALERA_NODES = 3, GALERA_FLAGS = 20, GALERA_TEXT = 640 };

struct galera_node {
    struct kit_database *database;
    unsigned port; /* of the group's own traffic; the next one is for what a node lacks when it joins */
    char texts[GALERA_FLAGS][GALERA_TEXT];
    const char *flags[GALERA_FLAGS + 1];
};

struct galera {
    struct galera_node nodes[GALERA_NODES];
};

/* Ends the process if the cluster does not come up, or if the library of the package galera-4 is not there. */
void galera_start(struct galera *cluster);
void galera_stop(struct galera *cluster);
/* SIGKILL. */
void galera_kill(struct galera *cluster, unsigned node);
/* In UTC; what is read has all that was committed anywhere before. */
struct kit_sql *galera_sql(const struct galera *cluster, unsigned node);
/* A number of SHOW GLOBAL STATUS; 0 if it is none. */
double galera_status(struct kit_sql *sql, const char *name);
#endif
