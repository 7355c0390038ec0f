/* SPDX-License-Identifier: MIT */
/* Fixture: one database with several permitd, and short calls to them. */
#ifndef FIXTURE_H
#define FIXTURE_H

#include <pthread.h>

#include "rows.h"

struct fixture {
    struct kit_database *database;
    struct kit_permitd *permitd[PERMITD_MAX];
    size_t count;
    struct kit_sql *sql;      /* in UTC; used by the thread that started the fixture */
    bool one_queue;           /* its database has the queue in rows; false: a build from before */
    const char *const *flags; /* flags of each permitd, NULL-terminated; may be NULL */
};

/* Ends the process if a server does not start. shifted: the database's clock can be stepped. */
struct fixture fixture_start(size_t permitd_count, bool shifted);
/* The same with these flags for each permitd, including those started later. The flags must stay valid. */
struct fixture fixture_start_with(size_t permitd_count, const char *const *flags);
void fixture_start_permitd(struct fixture *fixture);
/* Sends SIGTERM to all permitd; the database keeps running. */
void fixture_stop_permitd(struct fixture *fixture);
void fixture_stop(struct fixture *fixture);

/* A session in UTC for another thread. */
struct kit_sql *fixture_sql(const struct kit_database *database);

/* Creates a semaphore with this body (`{"capacity":1}`). */
void fixture_semaphore(struct fixture *fixture, const char *name, const char *body);
/* Sets the ports of the world to these permitd. */
void fixture_world(const struct fixture *fixture, struct world *world);
/* A metric of a permitd; 0: it is missing. The name includes the labels. */
double permitd_metric(unsigned port, const char *name);
/* Waits for two rounds of the audit of each permitd, of which one has begun after the call. Returns the number of drifts. */
double permitd_audit(const unsigned *ports, size_t count);
/* Sum of a metric over all permitd. */
double fixture_metric(const struct fixture *fixture, const char *name);
/* The database's wall clock, in microseconds. */
int64_t fixture_clock_us(struct fixture *fixture);
/* Number of deadlocks since the server started; -1 if the server does not count them. */
int64_t fixture_deadlocks(struct fixture *fixture);
/* Number of requests that wait for the semaphore now and that a client asks for, at all permitd. */
size_t fixture_waiting(const struct fixture *fixture, const char *semaphore);
/* Waits until `count` requests wait; ends the process after `ms`. */
void fixture_await_waiting(const struct fixture *fixture, const char *semaphore, size_t count, int ms);
/* Number of requests held now, by the rows. */
int64_t fixture_held(struct fixture *fixture);
/* Waits until no request is held; returns false after `ms`. */
bool fixture_wait_empty(struct fixture *fixture, int ms);

/* Runs all checkers on the history, and rows_check and rows_check_past on the rows. Ends the process if one fails. */
void judge(const char *part, struct fixture *fixture, const struct history *history, const struct facts *facts);

/* POSTs an acquire of `count` units of one semaphore and returns the status. ttl is such as "2s". */
int fixture_acquire(struct kit_http *http, const char *key, const char *semaphore, unsigned count, const char *ttl,
                    struct reply *ret_reply);
/* The same with the longest wait ("30s"). */
int fixture_acquire_waiting(struct kit_http *http, const char *key, const char *semaphore, unsigned count,
                            const char *wait, struct reply *ret_reply);
/* Only sends the request; kit_http_receive reads the answer. */
void fixture_send_waiting(struct kit_http *http, const char *key, const char *semaphore, unsigned count,
                          const char *wait);
int fixture_renew(struct kit_http *http, const char *key, struct reply *ret_reply);
int fixture_release(struct kit_http *http, const char *key);

/* A thread that checks all the time that the rows are consistent. */
struct inspector {
    pthread_t thread;
    struct kit_database *database;
    atomic_bool stopping;
    unsigned rounds;
};

void inspector_start(struct inspector *inspector, const struct fixture *fixture);
/* Ends the process if a check failed at any time. */
void inspector_stop(struct inspector *inspector);
#endif
