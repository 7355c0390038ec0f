/* SPDX-License-Identifier: MIT */
/*
 * The private MariaDB: made in a directory of its own, started on a Unix socket only, supervised, stopped last.
 * Durable: the settings doctor asks for. One thread of its own supervises; the calls below may come from any thread.
 */
#ifndef STORE_EMBEDDED_H
#define STORE_EMBEDDED_H

#include <sys/types.h>

#include "store/session.h"

struct embedded;

/*
 * Whether there is a database in DIR; false, with a sentence in `message`, if DIR is one that embedded_start refuses
 * for what is in it or whose it is. Changes nothing, and makes nothing.
 */
bool embedded_look(const char *directory, bool *ret_database, struct buf *message) MUST_CHECK;
/*
 * Takes DIR (refused unless it is empty or permitd's already, see data_dir.h; made with mode 0700 if missing; locked, a
 * second permitd on it is refused with the pid of the first), stops an orphaned mariadbd of a killed permitd through
 * its pid file, runs mariadb-install-db if there is no database yet, starts mariadbd (child dies with us where the
 * kernel can do that; --user=root or the owner of DIR as root), and waits until it answers, at most 60 s. On failure:
 * false and a sentence in `message` that says what to do (which package is missing, who has the directory, what
 * mariadbd's log says of it).
 */
bool embedded_start(const char *directory, struct embedded **ret_embedded, struct buf *message) MUST_CHECK;
/* Where it is; valid until embedded_stop. The database is called `permitd`. */
const struct database_address *embedded_address(const struct embedded *embedded);
/* How often it had to be started again since it died; for metrics. */
unsigned embedded_restarts(const struct embedded *embedded);
pid_t embedded_pid(const struct embedded *embedded);
/* Shuts it down cleanly (at most 30 s, then SIGKILL, which loses nothing) and frees everything. Accepts NULL. */
void embedded_stop(struct embedded *embedded);
#endif
