/* SPDX-License-Identifier: MIT */
/* One database with several permitd, and the small calls that the parts of `ends` make to them. */
#ifndef SITE_H
#define SITE_H

#include <pthread.h>

#include "rows.h"

struct site {
    struct kit_database *database;
    struct kit_permitd *permitd[PERMITD_MAX];
    size_t count;
    struct kit_sql *sql;      /* in UTC; of the thread that started the site */
    const char *const *flags; /* for each permitd, NULL-terminated; may be NULL */
};

/* Ends the process if something does not start. shifted: with a clock that can be stepped. */
struct site site_start(size_t permitd_count, bool shifted);
/* The same with these flags for each permitd, also later; they must stay valid. */
struct site site_start_with(size_t permitd_count, const char *const *flags);
void site_start_permitd(struct site *site);
/* SIGTERM to all permitd; the database goes on. */
void site_stop_permitd(struct site *site);
void site_stop(struct site *site);

/* A connection for a thread of its own, in UTC. */
struct kit_sql *site_sql(const struct kit_database *database);

/* A semaphore with this body (`{"capacity":1}`). */
void site_semaphore(struct site *site, const char *name, const char *body);
/* Points a world at these permitd. */
void site_world(const struct site *site, struct world *world);
/* Sum over all permitd of a metric, named with its labels. */
double site_metric(const struct site *site, const char *name);
/* Microseconds of the database's wall clock. */
int64_t site_clock_us(struct site *site);
/* How often InnoDB chose a victim since the server was started. */
int64_t site_deadlocks(struct site *site);
/* Acquires that wait now for the semaphore, at all permitd. */
size_t site_waiting(const struct site *site, const char *semaphore);
/* Waits until so many do; ends the process after `ms`. */
void site_await_waiting(const struct site *site, const char *semaphore, size_t count, int ms);
/* Requests that hold now, by the rows. */
int64_t site_held(struct site *site);
/* Waits until no request holds; false after `ms`. */
bool site_wait_empty(struct site *site, int ms);

/* The history by all checkers, the rows by rows_check and rows_check_past; ends the process if one objects. */
void judge(const char *part, struct site *site, const struct history *history, const struct facts *facts);

/* POST of an acquire of `count` units of one semaphore; the status. ttl such as "2s". */
int site_acquire(struct kit_http *http, const char *key, const char *semaphore, unsigned count, const char *ttl,
                 struct reply *ret_reply);
/* The same, waiting for so long at most ("30s"). */
int site_acquire_waiting(struct kit_http *http, const char *key, const char *semaphore, unsigned count,
                         const char *wait, struct reply *ret_reply);
/* Only sends it: kit_http_receive gets the answer. */
void site_send_waiting(struct kit_http *http, const char *key, const char *semaphore, unsigned count, const char *wait);
int site_renew(struct kit_http *http, const char *key, struct reply *ret_reply);
int site_release(struct kit_http *http, const char *key);

/* Looks at the rows all the time from a thread of its own: nothing is ever half done. */
struct inspector {
    pthread_t thread;
    struct kit_database *database;
    atomic_bool stopping;
    unsigned rounds;
};

void inspector_start(struct inspector *inspector, const struct site *site);
/* Ends the process if a rule was broken at any time. */
void inspector_stop(struct inspector *inspector);
#endif
