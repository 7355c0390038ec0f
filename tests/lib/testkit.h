/* SPDX-License-Identifier: MIT */
/*
 * What tests of the whole service need: a temporary directory, real permitd processes, a real MariaDB for several of
 * them, a plain HTTP/1.1 client, a small JSON reader, and waiting for conditions. No framework is assumed: whatever the
 * kit itself cannot do (a server that does not start) ends the process with a message on stderr, the servers' logs, and
 * exit status 1. What the service under test answers is never judged here, only handed over.
 *
 *     struct kit_permitd *permitd = kit_permitd_start(NULL);
 *     struct kit_http http = kit_http(permitd->port);
 *     struct reply reply;
 *     kit_http_put(&http, "/v1/semaphores/s", "{\"capacity\":2}", &reply);
 *     ... reply.status == 201, kit_json_int(reply.body, "capacity") == 2 ...
 *     reply_release(&reply);
 *     kit_http_close(&http);
 *     kit_permitd_stop(permitd);
 *
 * Everything that was started dies with the process that started it, however that ends, and the temporary directory
 * goes too (unless the environment has PERMIT_KEEP=1).
 */
#ifndef TESTKIT_H
#define TESTKIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define KIT_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))

/* Says what is wrong, shows the end of every server's log, ends the process with status 1. */
_Noreturn void kit_fail(const char *format, ...) KIT_PRINTF(1, 2);
/* What kit_fail shows of the logs, for suites that fail in their own way. */
void kit_show_logs(void);
/* "condition" as text, with file and line, through kit_fail. */
#define KIT_CHECK(condition) ((condition) ? (void)0 : kit_fail("%s:%d: not true: %s", __FILE__, __LINE__, #condition))

/* This process's temporary directory, mode 0700; made at the first call. Valid for ever. */
const char *kit_directory(void);
/* A path in it that nobody has used yet, "<directory>/<name>-<n>"; nothing is made. The caller frees it with free(). */
char *kit_path(const char *name);
/* The whole file, zero-terminated; NULL if it cannot be read. The caller frees it with free(). */
char *kit_read_file(const char *path);

/* Microseconds of the monotonic clock. */
int64_t kit_now_us(void);
void kit_sleep_ms(int ms);
/* Asks every 5 ms until it is true or `ms` have passed; the last answer. */
bool kit_wait_until(bool (*condition)(void *context), void *context, int ms);

/* SIGSTOP, and waits until every thread of it has stopped: the signal alone leaves them some milliseconds. */
void kit_freeze(pid_t pid);

/* ---- permitd ---- */

struct kit_permitd {
    pid_t pid;      /* 0: it has ended and was waited for */
    unsigned port;  /* on 127.0.0.1 */
    char url[64];   /* http://127.0.0.1:PORT */
    char *data_dir; /* NULL with a database given */
    char *log_path; /* its stderr */
    int stdout_fd;
    int end_status; /* of waitpid, once pid is 0 */
};

struct kit_permitd_options {
    const char *binary;       /* NULL: $PERMIT_PERMITD, or permitd of this build */
    const char *data_dir;     /* NULL and no database: a new one in the temporary directory */
    const char *database;     /* --database: a kit_database's url, for example */
    const char *listen;       /* NULL: 127.0.0.1:0 */
    const char *const *flags; /* NULL-terminated, appended; may be NULL */
    const char
        *memory_path; /* a file of 8 bytes: allocations can be made to fail (kit_memory_plan); NULL: they cannot */
};

/* What a permitd that was started with a memory_path looks at. */
struct kit_memory_plan {
    _Atomic int64_t until;    /* n above 0: the n-th allocation from now fails, in any thread; counts down */
    _Atomic int64_t own_only; /* not 0: only those of permitd's own code are counted, not those of its libraries */
};
/* A new file for memory_path, mapped. The file's name is the caller's to free, the mapping stays. */
struct kit_memory_plan *kit_memory_plan(char **ret_path);

/* Starts it and waits (180 s) for its line `permitd: listening on ...`. options NULL: all defaults. */
struct kit_permitd *kit_permitd_start(const struct kit_permitd_options *options);
/* Starts it and does not wait; kit_permitd_wait_served waits. */
struct kit_permitd *kit_permitd_spawn(const struct kit_permitd_options *options);
/* False: it ended first, or `ms` have passed. */
bool kit_permitd_wait_served(struct kit_permitd *permitd, int ms);
/* Waits for its end; the status of waitpid, or -1 if it runs after `ms`. It still must be freed. */
int kit_permitd_wait_end(struct kit_permitd *permitd, int ms);
/* SIGTERM; checks that it exits 0 within 60 s; frees it. */
void kit_permitd_stop(struct kit_permitd *permitd);
/*
 * SIGKILL, waits until it is gone, frees it. Its data_dir stays: take it over before by strdup. Accepts an ended one.
 */
void kit_permitd_kill(struct kit_permitd *permitd);
/* SIGSTOP and SIGCONT. */
void kit_permitd_freeze(struct kit_permitd *permitd);
void kit_permitd_thaw(struct kit_permitd *permitd);

/*
 * ---- a MariaDB of the test's own, for several permitd or for direct SQL; durable as permitd demands. With
 * ---- PERMIT_MYSQL_ROOT in the environment (tests/mysql/root.sh) a MySQL, with its binary log ----
 */

bool kit_database_is_mysql(void);

struct kit_database {
    pid_t pid;
    char *directory;
    char *socket;
    char *url; /* for --database: its database is called `permitd` and exists, empty */
    char *log_path;
    const char *const *flags;
    /* Of one with shims, else NULL: the files that both sides have mapped, and what stands in them. */
    char *clock_path;
    _Atomic int64_t *clock_shift_us; /* how far its clock is off */
    char *disk_path;
    _Atomic int64_t *disk; /* enum kit_disk */
};

/* What befalls the disk of a server with shims. */
enum kit_disk {
    KIT_DISK_FINE,
    KIT_DISK_FULL, /* no file becomes longer: ENOSPC */
    KIT_DISK_DEAD, /* no write to a file succeeds */
};

/* Makes and starts it, waits until it answers. flags: NULL-terminated, for the server; may be NULL; must stay valid. */
struct kit_database *kit_database_start(const char *const *flags);
/* The same, with a wall clock that kit_database_step_clock moves; at first it is right. */
struct kit_database *kit_database_start_shifted(const char *const *flags);
/* One on a copy of the files of one that has ended. kit_database_restart starts it. */
struct kit_database *kit_database_copy(const struct kit_database *of, const char *const *flags);
/* Its clock jumps by so much at once, forward or back, for as long as it and its restarts run. */
void kit_database_step_clock(struct kit_database *database, int64_t us);
/* The same, with a disk too that kit_database_set_disk fills; at first it is fine. */
struct kit_database *kit_database_start_shimmed(const char *const *flags);
void kit_database_set_disk(struct kit_database *database, enum kit_disk disk);
/* SIGSTOP and SIGCONT. */
void kit_database_freeze(struct kit_database *database);
void kit_database_thaw(struct kit_database *database);
/* SIGKILL and gone; kit_database_restart starts it again on the same files and waits until it answers. */
void kit_database_kill(struct kit_database *database);
void kit_database_restart(struct kit_database *database);
/* Waits until it answers, or has ended by itself: then it is started again. True: it had to be. */
bool kit_database_revive(struct kit_database *database);
/* Whether it has ended by itself; kit_database_restart as above. */
bool kit_database_has_ended(struct kit_database *database);
/* Ends by SIGKILL and comes back as another server, with the same files: as a replica that is promoted. */
void kit_database_become_another(struct kit_database *database);
/* It was told to end in some other way: waits until it has; kit_database_restart as above. */
void kit_database_await_end(struct kit_database *database);
/* SIGTERM, waits, frees. */
void kit_database_stop(struct kit_database *database);

/* Direct SQL over a Unix socket as root; one connection; a failure ends the process, except in kit_sql_try. */
struct kit_sql;
struct kit_sql *kit_sql_open(const char *socket, const char *database);
/* NULL: it cannot be had. */
struct kit_sql *kit_sql_try_open(const char *socket, const char *database);
void kit_sql_close(struct kit_sql *sql);
void kit_sql_run(struct kit_sql *sql, const char *format, ...) KIT_PRINTF(2, 3);
/* The mysql_errno of one statement, 0 if it worked. */
unsigned kit_sql_try(struct kit_sql *sql, const char *format, ...) KIT_PRINTF(2, 3);
/* First column of the first row; INT64_MIN if there is no row or it is NULL. */
int64_t kit_sql_number(struct kit_sql *sql, const char *format, ...) KIT_PRINTF(2, 3);
/* Makes a table numbers.upto of the numbers `seq` from 1 to 50,000. (MariaDB's seq_1_to_50000 is not MySQL's.) */
void kit_sql_make_numbers(struct kit_sql *sql);
/* Statements in this database that wait for a row which another transaction has locked. */
int64_t kit_sql_lock_waits(struct kit_sql *sql, const char *database);
/* Calls visit for each row; columns are text, NULL for NULL. The number of rows. */
size_t kit_sql_each(struct kit_sql *sql, const char *statement, void (*visit)(void *context, char **columns),
                    void *context);

/* ---- HTTP/1.1 over a plain socket to 127.0.0.1, kept alive; connects by itself, again after the server has closed
 * ---- */

struct kit_http {
    unsigned port;
    int fd; /* -1: not connected */
    int timeout_ms;
};

struct reply {
    int status;    /* 0: no answer; `error` says why */
    char *headers; /* all header lines, each ended by "\r\n" */
    char *body;    /* zero-terminated, "" if there is none */
    size_t body_length;
    const char *error;
    bool sent; /* without an answer: the request, or a part of it, may have reached the server */
};

struct kit_http kit_http(unsigned port); /* time-out 60 s */
void kit_http_close(struct kit_http *http);
/*
 * One exchange. `headers`: extra lines, each ended by "\r\n", or NULL; `body` NULL: none; with a body and no
 * Content-Type among the headers it is application/json. True if there was an answer. The reply is always to be
 * released.
 */
bool kit_http_call(struct kit_http *http, const char *method, const char *path, const char *headers, const char *body,
                   struct reply *ret_reply);
/* The two halves of a call, so that one thread can have several under way on several connections. */
bool kit_http_send(struct kit_http *http, const char *method, const char *path, const char *headers, const char *body);
bool kit_http_receive(struct kit_http *http, const char *method, struct reply *ret_reply);
bool kit_http_get(struct kit_http *http, const char *path, struct reply *ret_reply);
bool kit_http_put(struct kit_http *http, const char *path, const char *body, struct reply *ret_reply);
bool kit_http_post(struct kit_http *http, const char *path, const char *body, struct reply *ret_reply);
bool kit_http_delete(struct kit_http *http, const char *path, struct reply *ret_reply);
/* For bad input: the bytes as they are, then one reply (or none). */
bool kit_http_raw(struct kit_http *http, const void *bytes, size_t length, struct reply *ret_reply);
/*
 * A port of 127.0.0.1 that nobody else is given from now on: a socket is bound to it and does not listen, and a server
 * that sets SO_REUSEADDR, as mariadbd and mysqld do, may still have it. *ret_fd has to stay open.
 */
unsigned kit_keep_port(int *ret_fd);
/* A connected blocking socket, for slow clients and the like; -1 on failure. */
int kit_connect(unsigned port);

/* The value of a header, by name without regard to case; NULL if absent. The caller frees it with free(). */
char *reply_header(const struct reply *reply, const char *name);
void reply_release(struct reply *reply);

/* ---- JSON: members by path, such as "permits.0.token" ---- */

bool kit_json_valid(const char *body);
bool kit_json_has(const char *body, const char *path);
/* INT64_MIN if it is absent or not an integer. */
int64_t kit_json_int(const char *body, const char *path);
/* True only for true. */
bool kit_json_true(const char *body, const char *path);
/* NULL if it is absent or not a string. The caller frees it with free(). */
char *kit_json_text(const char *body, const char *path);
bool kit_json_text_is(const char *body, const char *path, const char *expected);
/* Elements of an array (members of an object); -1 if it is absent or neither. path "": the whole. */
long kit_json_length(const char *body, const char *path);
/* The value as a text of JSON; NULL if it is absent. The caller frees it with free(). */
char *kit_json_part(const char *body, const char *path);
/* Calls visit with each element of an array, as a text of JSON, in order; the number of elements, -1 as above. */
long kit_json_each(const char *body, const char *path, void (*visit)(void *context, size_t at, const char *element),
                   void *context);
#endif
