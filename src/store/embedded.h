/* SPDX-License-Identifier: MIT */
/*
 * The private MariaDB: made in a directory of its own, started on a Unix socket only, supervised, stopped last.
 * Durable: the settings doctor asks for. One thread of its own supervises; the calls below may come from any thread.
 */
#ifndef STORE_EMBEDDED_H
#define STORE_EMBEDDED_H

#include <sys/types.h>

#include "store/session.h"
#include "store/store.h"

struct embedded;

/*
 * Takes DIR (data_dir_take, by which root becomes its owner; locked, a second permitd on it is refused with the pid of
 * the first) and begins in a thread: stops an orphaned mariadbd of a killed permitd through its pid file, runs
 * mariadb-install-db if there is no database yet, starts mariadbd (child dies with us where the kernel can do that;
 * --user=root for root), and waits until it answers. That takes as long as it takes: after a crash it recovers first,
 * and to end it would only make it begin anew. False: a sentence in `message` says what to do (which package is
 * missing, who has the directory).
 */
bool embedded_open(const char *directory, struct embedded **ret_embedded, struct buf *message) MUST_CHECK;
/* Readable once it has answered, or has ended before: embedded_wait does not block any more. */
int embedded_begun_fd(const struct embedded *embedded);
/* Waits until it answers. False: it has ended; `message` says what mariadbd's log says of it. */
bool embedded_wait(struct embedded *embedded, struct buf *message) MUST_CHECK;
/* Both: frees it on failure. */
bool embedded_start(const char *directory, struct embedded **ret_embedded, struct buf *message) MUST_CHECK;
/*
 * True while it does not answer: from the beginning until it first does, and when it has died and has not come back
 * within 10 s. ret_sentence says for how long, and whether it makes progress; the log says the same every 10 s.
 */
bool embedded_is_absent(struct embedded *embedded, char ret_sentence[STORE_MESSAGE_SIZE]);
/* Where it is; valid until embedded_stop. The database is called `permitd`. */
const struct database_address *embedded_address(const struct embedded *embedded);
/* How often it had to be started again since it died; for metrics. */
unsigned embedded_restarts(const struct embedded *embedded);
pid_t embedded_pid(const struct embedded *embedded);
/* Shuts it down cleanly (at most 30 s, then SIGKILL, which loses nothing) and frees everything. Accepts NULL. */
void embedded_stop(struct embedded *embedded);
#endif
