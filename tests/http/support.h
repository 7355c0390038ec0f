/* SPDX-License-Identifier: MIT */
/*
 * What the transcripts share: one permitd on a private MariaDB (or on a MySQL: testkit.h) for all tests, which main
 * starts before the first and stops after the last, and words to talk to it. Each test is a process of its own with
 * names of its own.
 */
#ifndef SUPPORT_H
#define SUPPORT_H

#include "testkit.h"

/* The shared permitd. */
unsigned shared_port(void);
/* Its private MariaDB's; on MySQL there is none, and the test is skipped. */
const char *shared_directory(void);
/* Of its database. */
const char *shared_socket(void);
/* "PID_TIME": no other test's, also if it gets this one's number again. */
const char *process_name(void);
/* A database of this test's own in the shared server: its name, its url for --database, and SQL on it. */
const char *own_database(const char *name);
const char *own_url(const char *name);
struct kit_sql *own_sql(const char *name);
/* Flags of a permitd that serves a slow machine too: its request_timeout is two minutes. The shared one has them. */
extern const char *const patient_flags[];
/* Another permitd with these flags, and flags of its own (NULL-terminated) behind them, on a database of its own in the
 * shared server: "own0" is that of the first. */
struct kit_permitd *own_permitd(const char *const *flags);
/* How often its log says this. */
size_t log_count(const struct kit_permitd *permitd, const char *sentence);

/* A conversation: a connection, and the last answer. */
struct talk {
    struct kit_http http;
    struct reply reply;
};
struct talk talk_to(unsigned port);
void talk_end(struct talk *talk);

/* Memory from malloc that lives as long as the process; memory. */
char *kept(char *memory);
/* Formatted text, valid until the process ends. */
const char *text(const char *format, ...) KIT_PRINTF(1, 2);
/* "name-PID_TIME-N": nobody else uses it. */
const char *fresh_name(const char *name);
/* Makes a semaphore with this body; its name. */
const char *fresh_semaphore(struct talk *talk, const char *body);

/* One exchange; the test fails unless the answer has this status, is JSON and has an X-Request-Id. body NULL: none. */
void say(struct talk *talk, int status, const char *method, const char *path, const char *body);
/* As say; the answer must be a problem of this type. */
void refused(struct talk *talk, int status, const char *type, const char *method, const char *path, const char *body);
/* As refused, with header lines of one's own. type NULL: not a problem. */
void say_with(struct talk *talk, int status, const char *type, const char *method, const char *path,
              const char *headers, const char *body);
/* Sends what is answered later; `hear` reads that answer, within two minutes, and judges it as say_with does. */
void tell(struct talk *talk, const char *method, const char *path, const char *body);
void hear(struct talk *talk, int status, const char *type);
/* The value of a metric of the permitd that is talked to; -1: it is not there. */
double metric_of(struct talk *talk, const char *name);
/* Says it again and again until the answer has this status, for two minutes. */
void say_until(struct talk *talk, int status, const char *method, const char *path, const char *body);
/* Looks at the request until it has ended, for two minutes; the reason must be this one. */
void ends_as(struct talk *talk, const char *key, const char *reason);
/* The last answer has this header with this value. */
void header_is(struct talk *talk, const char *name, const char *value);
/* Members of the last answer. */
int64_t number_of(const struct talk *talk, const char *path);
void text_is(const struct talk *talk, const char *path, const char *expected);
#endif
