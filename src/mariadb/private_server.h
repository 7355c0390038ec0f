/* SPDX-License-Identifier: MIT */
/*
 * The private MariaDB: created in a directory of its own, started on a Unix socket only, supervised, stopped last. Its
 * settings are the durable ones that doctor.h requires. One thread supervises it. The calls below may come from any
 * thread.
 */
#ifndef MARIADB_PRIVATE_SERVER_H
#define MARIADB_PRIVATE_SERVER_H

#include <sys/types.h>

#include "mariadb/data_dir.h"
#include "store/open.h"
#include "store/store.h"

struct private_server;

struct private_server_options {
    const char *directory;
    struct data_dir_user user;
    int64_t buffer_pool; /* bytes; mariadbd's memory for rows and indexes */
};

/*
 * Takes the directory (data_dir_take; root becomes its owner or `user`) and locks it: a second permitd on it is refused
 * with the pid of the first. On false `message` names the remedy (missing package, pid of the first).
 */
bool private_server_open(const struct private_server_options *options, struct private_server **ret_server,
                         struct buf *message) MUST_CHECK;
/*
 * Starts the supervisor thread, which
 * - stops an orphaned mariadbd of a killed permitd, found by its pid file;
 * - runs mariadb-install-db if there is no database yet;
 * - starts mariadbd, which the kernel ends with permitd where it can (PR_SET_PDEATHSIG); as root only with allow_root;
 * - waits, without a limit, until it answers: after a crash mariadbd recovers first, and a kill would restart recovery.
 */
bool private_server_begin(struct private_server *server, struct buf *message) MUST_CHECK;
/* A descriptor that is readable once mariadbd has answered or has failed; then private_server_wait does not block. */
int private_server_begun_fd(const struct private_server *server);
/* Waits until mariadbd answers. Returns false if it failed before; `message` quotes mariadbd's log. */
bool private_server_wait(struct private_server *server, struct buf *message) MUST_CHECK;
/*
 * Returns true while mariadbd does not answer: from the start to its first answer, and when it exited and did not
 * answer again within 10 s. ret_sentence says for how long and whether it makes progress, and the cause if restarts
 * failed; the log gets the same every 10 s.
 */
bool private_server_is_unavailable(struct private_server *server, char ret_sentence[STORE_MESSAGE_SIZE]);
/* Returns its address, valid until private_server_stop. The database is `permitd`. */
const struct database_address *private_server_address(const struct private_server *server);
/* Returns the number of restarts after an exit. */
unsigned private_server_restarts(const struct private_server *server);
/* Returns the pid of mariadbd; 0 while it does not run. */
pid_t private_server_pid(const struct private_server *server);
/* Shuts mariadbd down, after 30 s with SIGKILL, which loses no committed data; frees everything. Accepts NULL. */
void private_server_stop(struct private_server *server);
#endif
