/* SPDX-License-Identifier: MIT */
/*
 * Fixture of the transcripts: one permitd on a private MariaDB (or on a MySQL: testkit.h), which main starts before the
 * first test and stops after the last, and functions to talk to it. Each test is a process of its own, and uses names
 * of its own.
 */
#ifndef SUPPORT_H
#define SUPPORT_H

#include "testkit.h"

/* The shared permitd. */
unsigned shared_port(void);
/* Data directory of its private MariaDB. On MySQL there is none, and the test is skipped. */
const char *shared_directory(void);
/* Socket of its database. */
const char *shared_socket(void);
/* "PID_TIME", unique among the tests even if a process id is reused. */
const char *process_name(void);
/* A database of this test in the shared server: its name, its URL for --database, and an SQL session on it. */
const char *own_database(const char *name);
const char *own_url(const char *name);
struct kit_sql *own_sql(const char *name);
/* Flags for slow machines: a request_timeout of two minutes. The shared permitd has them. */
extern const char *const patient_flags[];
/*
 * Starts another permitd with patient_flags followed by `flags` (NULL-terminated; NULL: none), on a database of its own
 * in the shared server: "own0" for the first.
 */
struct kit_permitd *own_permitd(const char *const *flags);
/* Runs permitd to its end and asserts its exit status. Returns its standard output and standard error. */
const char *permitd_output(const struct kit_permitd_options *options, int expected_exit);
/* Asserts that permitd exits with status 1 and a message that contains `part`. */
void refuses_to_start(const struct kit_permitd_options *options, const char *part);
/* The same for two arguments. */
void refuses_flags(const char *first, const char *second, const char *part);
/* Returns the URL of the permitd's next listener: the second one at the first call. */
const char *next_url(const struct kit_permitd *permitd);
/* Runs a shell command. Returns its standard output and standard error; *ret_status (may be NULL) is its exit status. */
const char *run_shell(int *ret_status, const char *format, ...) KIT_PRINTF(2, 3);
/* Returns how often `sentence` occurs in the permitd's log. */
size_t log_count(const struct kit_permitd *permitd, const char *sentence);

/* A connection, and the last answer on it. */
struct talk {
    struct kit_http http;
    struct reply reply;
};
struct talk talk_to(unsigned port);
void talk_end(struct talk *talk);
/* Returns a connection with a small receive buffer, so that what the client does not read stays at permitd. */
int connect_small(unsigned port);

void send_text(int fd, const char *bytes);
/* Returns true if the connection has something to read, or has ended, within this time. */
bool comes_within(int fd, int ms);
/* Returns how often `part` occurs. */
int count_of(const char *bytes, const char *part);
/* For kit_wait_until, with an SQL session: the list of events, or a batch, waits for a lock in its database. */
bool list_waits(void *sql);
bool batch_waits(void *sql);

/* Writes a file as an editor does: the new one, with this mode, replaces the old one at once. */
void write_file(const char *path, const char *content, mode_t mode);
/* Returns the private MariaDB of a data directory. */
pid_t mariadbd_of(const char *data_dir);

/* Keeps memory from malloc until the process ends, and returns it. */
char *kept(char *memory);
/* Formatted text, valid until the process ends. */
const char *text(const char *format, ...) KIT_PRINTF(1, 2);
/* Returns "name-PID_TIME-N", a unique name. */
const char *fresh_name(const char *name);
/* "/v1/semaphores/NAME", "/v1/requests/KEY" */
const char *semaphore_path(const char *name);
const char *request_path(const char *key);
/*
 * The body of an acquire for `count` units of a semaphore, with further members, such as ",\"ttl\":\"1h\"". key NULL:
 * permitd makes one.
 */
const char *acquire_body(const char *key, const char *semaphore, int count, const char *more);
/* Releases a request that is held or waits. */
void release(struct talk *talk, const char *key);
/* Creates a semaphore with this body. Returns its name. */
const char *fresh_semaphore(struct talk *talk, const char *body);
/* Asserts that a semaphore which a template with this text as a setting creates has it, too. */
void template_passes_on(struct talk *talk, const char *setting, const char *value);

/*
 * Creates a semaphore of STALLS slots, all of them held, with labels of STALL_LABEL_LENGTH bytes, and returns an acquire that
 * waits so long for one of them and names all: nearly 8 KiB, and as many names as there may be. `headers`: as in say_with.
 */
const char *stalls_waited_for(struct talk *talk, const char *headers, const char *wait, const char **ret_name);
enum { STALLS = 1000, STALL_LABEL_LENGTH = 8 };
/* ["000...0","000...1",...]: `count` labels of HALL_LABEL_LENGTH bytes, beginning with number `from`. */
const char *hall_labels(int from, int count);
/*
 * Creates a semaphore of HALL_SLOTS slots with such labels, so that the list of its slots has 250 KiB. `headers`: as in
 * kit_http_call. Returns its name.
 */
const char *hall(struct talk *talk, const char *headers);
enum { HALL_SLOTS = 1000, HALL_LABEL_LENGTH = 240 };

/*
 * Sends a request and reads the answer. Asserts that the answer has this status, is JSON and has an X-Request-Id. body
 * NULL: none.
 */
void say(struct talk *talk, int status, const char *method, const char *path, const char *body);
/* As say; asserts a problem of this type. */
void refused(struct talk *talk, int status, const char *type, const char *method, const char *path, const char *body);
/* As refused, with additional header lines. type NULL: not a problem. */
void say_with(struct talk *talk, int status, const char *type, const char *method, const char *path,
              const char *headers, const char *body);
/*
 * `tell` sends a request that is answered later; `hear` reads the answer within two minutes, and checks it as say_with.
 */
void tell(struct talk *talk, const char *method, const char *path, const char *body);
void hear(struct talk *talk, int status, const char *type);
/* Returns the value of a metric of the permitd; -1: missing. */
double metric_of(struct talk *talk, const char *name);
/* Repeats the request until the answer has this status, for two minutes. */
void say_until(struct talk *talk, int status, const char *method, const char *path, const char *body);
/* Asks for the metrics until this one has the value, for two minutes. */
void metric_becomes(struct talk *talk, const char *name, double value);
/* Queries the request until it has ended, for two minutes, and asserts its end_reason. */
void ends_as(struct talk *talk, const char *key, const char *reason);
/* Asserts that the last answer has this header with this value. */
void header_is(struct talk *talk, const char *name, const char *value);
/* Return or assert a member of the last answer. */
int64_t number_of(const struct talk *talk, const char *path);
void text_is(const struct talk *talk, const char *path, const char *expected);
/* Asserts that the detail of the last answer has this part. */
void detail_has(const struct talk *talk, const char *part);
#endif
