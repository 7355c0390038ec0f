/* SPDX-License-Identifier: MIT */
/* The measured system: permitd with its database, and the load programs that run against them. */
#ifndef INSTANCE_H
#define INSTANCE_H

#include "testkit.h"

enum { MORE_MAX = 2 };

struct instance {
    struct kit_permitd *permitd;
    struct kit_permitd *more[MORE_MAX]; /* on the same database; they share the load; NULL: none */
    pid_t database_pid;
    char *socket;      /* of the database; the naive design uses it too */
    const char *token; /* sent with each request; NULL: none */
};

/* The output of a load program. */
struct result {
    double operations, refused, failed, unanswered;
    double seconds, rate;
    double p50_us, p99_us, max_us;                         /* acquires */
    double permitd_cpu_us, database_cpu_us, client_cpu_us; /* per operation; permitd: the sum of all */
};

/* A run of loadgen or naive. */
struct load {
    unsigned clients;
    double seconds;
    unsigned batch;        /* 0: one operation per request */
    unsigned burst;        /* 0: acquire and release for `seconds` */
    const char *semaphore; /* loadgen only */
    unsigned spread;       /* loadgen only: over so many semaphores of that name (loadgen.c); 0: one */
    unsigned units;        /* loadgen only: of each acquire; 0: one */
    bool keep;             /* loadgen only: nothing is released */
    unsigned repeat;       /* loadgen only: every so many acquires use a key again (loadgen.c); 0: none */
    const char *get;       /* loadgen only: a path to GET; NULL: acquires */
    const char *known;     /* with `get`: the ETag that the client knows, without its quotes; NULL: none */
    double rate;           /* loadgen only: requests a second; 0: as many as are answered */
};

struct instance instance_start(void);
/* The same for another permitd, which may know fewer settings. */
struct instance instance_start_of(const char *binary);
struct instance instance_start_with(const struct kit_permitd_options *options);
/* permitd on a database that the caller stops afterwards. */
struct instance instance_start_on(struct kit_database *database);
void instance_stop(struct instance *instance);
void instance_semaphore(struct instance *instance, const char *name, const char *kind, long capacity);
/* Creates the `count` semaphores of a spread load. */
void instance_semaphores(struct instance *instance, const char *name, const char *kind, long capacity, unsigned count);
/* Inserts `count` permits of one unit each, as permitd would write them. */
void instance_fill(struct instance *instance, const char *semaphore, long count);
/*
 * Inserts `count` requests that ended a week ago, with a permit of one unit each, and calls instance_flush. due_at is an
 * SQL expression: when retention may delete the request `n`, from 0 on.
 */
void instance_fill_ended(struct instance *instance, const char *semaphore, long count, const char *due_at);
/* Waits until the database has written what a fill has changed, so that its cost does not count. */
void instance_flush(struct instance *instance);
/* Creates the tables of the naive design with `held` permits. */
void instance_naive_tables(struct instance *instance, long held, long capacity);
/* Runs a load program of the benchmarks; "NAME --option ...". kit_fail if it fails. */
__attribute__((format(printf, 1, 2))) struct result load_program(const char *format, ...);
struct result instance_loadgen(struct instance *instance, const struct load *load);
struct result instance_naive(struct instance *instance, const struct load *load);
/* A status counter of the server. */
double instance_counter(struct instance *instance, const char *name);
/* A variable of the server. The caller frees it. */
char *instance_variable(struct instance *instance, const char *name);
#endif
