/* SPDX-License-Identifier: MIT */
/*
 * Test kit for the whole service: a temporary directory, real permitd processes, a real MariaDB for several of them, a
 * plain HTTP/1.1 client, a small JSON reader, and waits for conditions. It assumes no test framework: if the kit itself
 * fails (a server does not start), it ends the process with a message on stderr, the logs of the servers, and exit
 * status 1. It never judges the answers of the service under test; it only returns them.
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
 * All processes that the kit starts die with the process that started them, however that process ends. The temporary
 * directory is removed too (unless the environment has PERMIT_KEEP=1).
 */
#ifndef TESTKIT_H
#define TESTKIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define KIT_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))

/* Prints the message and the end of every server's log, and ends the process with status 1. */
_Noreturn void kit_fail(const char *format, ...) KIT_PRINTF(1, 2);
/* Prints the end of every server's log, for suites that report failures themselves. */
void kit_show_logs(void);
/* Fails through kit_fail, with the condition as text, the file and the line. */
#define KIT_CHECK(condition) ((condition) ? (void)0 : kit_fail("%s:%d: not true: %s", __FILE__, __LINE__, #condition))

/*
 * Returns the temporary directory of this process, mode 0700, created by the first call. Valid until the process ends.
 */
const char *kit_directory(void);
/*
 * Returns an unused path in that directory, "<directory>/<name>-<n>", without creating it. The caller frees it with
 * free().
 */
char *kit_path(const char *name);
/* Returns the whole file, zero-terminated; NULL if it cannot be read. The caller frees it with free(). */
char *kit_read_file(const char *path);

/* Microseconds of the monotonic clock. */
int64_t kit_now_us(void);
void kit_sleep_ms(int ms);
/* Checks the condition every 5 ms until it is true or `ms` have passed. Returns its last result. */
bool kit_wait_until(bool (*condition)(void *context), void *context, int ms);

/*
 * Sends SIGSTOP and waits until every thread has stopped: the signal alone leaves them running for some milliseconds.
 */
void kit_freeze(pid_t pid);

/* ---- permitd ---- */

struct kit_permitd {
    pid_t pid;      /* 0: it has ended and has been waited for */
    unsigned port;  /* on 127.0.0.1 */
    char url[64];   /* http://127.0.0.1:PORT */
    char *data_dir; /* NULL if a database was given */
    char *log_path; /* log file, its stderr */
    int stdout_fd;
    int end_status; /* from waitpid; set once pid is 0 */
};

struct kit_permitd_options {
    const char *binary;       /* NULL: $PERMIT_PERMITD, or permitd of this build */
    const char *data_dir;     /* NULL and no database: a new directory in the temporary one */
    const char *database;     /* for --database, such as the url of a kit_database */
    const char *listen;       /* NULL: 127.0.0.1:0 */
    const char *const *flags; /* further arguments, NULL-terminated; may be NULL */
    const char *memory_path;  /* file of a kit_memory_plan; NULL: no allocation fails */
};

/* Plan of failing allocations, read by a permitd that was started with its memory_path. */
struct kit_memory_plan {
    _Atomic int64_t until;    /* n > 0: the n-th allocation from now fails, in any thread; counts down */
    _Atomic int64_t own_only; /* not 0: counts only allocations by code of permitd, not of its libraries */
};
/* Creates and maps a new file for memory_path. The caller frees the file's name; the mapping stays. */
struct kit_memory_plan *kit_memory_plan(char **ret_path);

/* Starts permitd and waits up to 180 s for its line `permitd: listening on ...`. options NULL: all defaults. */
struct kit_permitd *kit_permitd_start(const struct kit_permitd_options *options);
/* Starts permitd without waiting; kit_permitd_wait_served waits. */
struct kit_permitd *kit_permitd_spawn(const struct kit_permitd_options *options);
/* Waits until it serves. Returns false if it has ended or `ms` have passed. */
bool kit_permitd_wait_served(struct kit_permitd *permitd, int ms);
/*
 * Waits for its end. Returns the status of waitpid, or -1 if it still runs after `ms`. The caller still has to free it.
 */
int kit_permitd_wait_end(struct kit_permitd *permitd, int ms);
/* Sends SIGTERM, checks that it exits with 0 within 60 s, and frees it. */
void kit_permitd_stop(struct kit_permitd *permitd);
/*
 * Sends SIGKILL, waits for the end, and frees it. Its data directory stays; copy data_dir before. Accepts one that has
 * ended.
 */
void kit_permitd_kill(struct kit_permitd *permitd);
/* SIGSTOP and SIGCONT. */
void kit_permitd_freeze(struct kit_permitd *permitd);
void kit_permitd_thaw(struct kit_permitd *permitd);

/*
 * ---- A MariaDB of the test, for several permitd or for direct SQL, as durable as permitd requires. With
 * ---- PERMIT_MYSQL_ROOT in the environment (tests/mysql/root.sh) a MySQL, with its binary log ----
 */

bool kit_database_is_mysql(void);

struct kit_database {
    pid_t pid;
    char *directory;
    char *socket;
    char *url; /* for --database; its database `permitd` exists and is empty */
    char *log_path;
    const char *const *flags;
    /* With shims, else NULL: files that both sides have mapped, and their contents. */
    char *clock_path;
    _Atomic int64_t *clock_shift_us; /* offset of its wall clock */
    char *disk_path;
    _Atomic int64_t *disk; /* enum kit_disk */
};

/* Faults of the disk of a server with shims. */
enum kit_disk {
    KIT_DISK_FINE,
    KIT_DISK_FULL, /* no file can grow: ENOSPC */
    KIT_DISK_DEAD, /* every write to a file fails */
};

/*
 * Creates and starts a server, and waits until it answers. flags: further arguments, NULL-terminated; may be NULL; must
 * stay valid.
 */
struct kit_database *kit_database_start(const char *const *flags);
/* Like kit_database_start, with a wall clock that kit_database_step_clock moves; it starts without an offset. */
struct kit_database *kit_database_start_shifted(const char *const *flags);
/* Creates a server on a copy of the files of one that has ended. kit_database_restart starts it. */
struct kit_database *kit_database_copy(const struct kit_database *of, const char *const *flags);
/* Moves its clock at once, forward or back. The offset stays over restarts. */
void kit_database_step_clock(struct kit_database *database, int64_t us);
/* Like kit_database_start_shifted, also with a disk that kit_database_set_disk breaks; it starts without a fault. */
struct kit_database *kit_database_start_shimmed(const char *const *flags);
void kit_database_set_disk(struct kit_database *database, enum kit_disk disk);
/* SIGSTOP and SIGCONT. */
void kit_database_freeze(struct kit_database *database);
void kit_database_thaw(struct kit_database *database);
/*
 * Sends SIGKILL and waits for the end. kit_database_restart starts it again on the same files and waits until it
 * answers.
 */
void kit_database_kill(struct kit_database *database);
void kit_database_restart(struct kit_database *database);
/* Waits until it answers. If it has ended by itself, starts it again and returns true. */
bool kit_database_revive(struct kit_database *database);
/* Returns true if it has ended by itself; kit_database_restart starts it again. */
bool kit_database_has_ended(struct kit_database *database);
/* Kills it and starts it as another server on the same files, like a promoted replica. */
void kit_database_become_another(struct kit_database *database);
/* Waits for the end of a server that was told to end in another way; kit_database_restart starts it again. */
void kit_database_await_end(struct kit_database *database);
/* Sends SIGTERM, waits for the end, and frees it. */
void kit_database_stop(struct kit_database *database);

/* Direct SQL over a Unix socket as root, on one connection. A failure ends the process, except in kit_sql_try and kit_sql_try_each. */
struct kit_sql;
struct kit_sql *kit_sql_open(const char *socket, const char *database);
/* Returns NULL if it cannot connect. */
struct kit_sql *kit_sql_try_open(const char *socket, const char *database);
void kit_sql_close(struct kit_sql *sql);
void kit_sql_run(struct kit_sql *sql, const char *format, ...) KIT_PRINTF(2, 3);
/* Returns the mysql_errno of one statement; 0: success. */
unsigned kit_sql_try(struct kit_sql *sql, const char *format, ...) KIT_PRINTF(2, 3);
/* The two halves of kit_sql_try, for faults between them. If the first returns false, kit_sql_message says why. */
bool kit_sql_send(struct kit_sql *sql, const char *statement);
unsigned kit_sql_receive(struct kit_sql *sql);
/* What the server, or the connection, says of the last failure. Valid until the next statement. */
const char *kit_sql_message(struct kit_sql *sql);
/* Returns the first column of the first row; INT64_MIN if there is no row or it is NULL. */
int64_t kit_sql_number(struct kit_sql *sql, const char *format, ...) KIT_PRINTF(2, 3);
/* Creates a table numbers.upto with the numbers `seq` from 1 to 50,000, because MySQL has no seq_1_to_50000. */
void kit_sql_make_numbers(struct kit_sql *sql);
/* Returns the number of statements in this database that wait for a row lock of another transaction. */
int64_t kit_sql_lock_waits(struct kit_sql *sql, const char *database);
/* Calls visit for each row; columns are text, NULL for NULL. Returns the number of rows. */
size_t kit_sql_each(struct kit_sql *sql, const char *statement, void (*visit)(void *context, char **columns),
                    void *context);
/* The same for a server that may fail: returns false, without a call of visit, if the statement fails. */
bool kit_sql_try_each(struct kit_sql *sql, const char *statement, void (*visit)(void *context, char **columns),
                      void *context);

/*
 * ---- HTTP/1.1 over a plain socket to 127.0.0.1, kept alive. It connects by itself, also after the server has closed
 * ----
 */

struct kit_http {
    unsigned port;
    int fd; /* -1: not connected */
    int timeout_ms;
};

struct reply {
    int status;    /* 0: no answer, see `error` */
    char *headers; /* all header lines, each ended by "\r\n" */
    char *body;    /* zero-terminated, "" if there is none */
    size_t body_length;
    const char *error;
    bool sent; /* without an answer: all or part of the request may have reached the server */
};

struct kit_http kit_http(unsigned port); /* timeout 60 s */
void kit_http_close(struct kit_http *http);
/*
 * Runs one exchange. `headers`: extra lines, each ended by "\r\n", or NULL. `body` NULL: none; a body without a
 * Content-Type in `headers` is sent as application/json. Returns true if there was an answer. The caller always
 * releases the reply.
 */
bool kit_http_call(struct kit_http *http, const char *method, const char *path, const char *headers, const char *body,
                   struct reply *ret_reply);
/* The two halves of a call: one thread can run several calls on several connections. */
bool kit_http_send(struct kit_http *http, const char *method, const char *path, const char *headers, const char *body);
bool kit_http_receive(struct kit_http *http, const char *method, struct reply *ret_reply);
bool kit_http_get(struct kit_http *http, const char *path, struct reply *ret_reply);
bool kit_http_put(struct kit_http *http, const char *path, const char *body, struct reply *ret_reply);
bool kit_http_post(struct kit_http *http, const char *path, const char *body, struct reply *ret_reply);
bool kit_http_delete(struct kit_http *http, const char *path, struct reply *ret_reply);
/* Sends the bytes unchanged, for bad input, then reads one reply (or none). */
bool kit_http_raw(struct kit_http *http, const void *bytes, size_t length, struct reply *ret_reply);
/*
 * Reserves a port of 127.0.0.1: a socket is bound to it and does not listen. A server that sets SO_REUSEADDR, as
 * mariadbd and mysqld do, can still use it. *ret_fd must stay open.
 */
unsigned kit_keep_port(int *ret_fd);
/* Returns a connected blocking socket, for slow clients and the like; -1 on failure. */
int kit_connect(unsigned port);

/* Returns the value of a header, by name without regard to case; NULL if absent. The caller frees it with free(). */
char *reply_header(const struct reply *reply, const char *name);
void reply_release(struct reply *reply);

/* ---- JSON: members by path, such as "permits.0.token" ---- */

bool kit_json_valid(const char *body);
bool kit_json_has(const char *body, const char *path);
/* Returns INT64_MIN if it is absent or not an integer. */
int64_t kit_json_int(const char *body, const char *path);
/* Returns true only for the value true. */
bool kit_json_true(const char *body, const char *path);
/* Returns NULL if it is absent or not a string. The caller frees it with free(). */
char *kit_json_text(const char *body, const char *path);
bool kit_json_text_is(const char *body, const char *path, const char *expected);
/*
 * Returns the number of elements of an array (or members of an object); -1 if it is absent or neither. path "": the
 * root.
 */
long kit_json_length(const char *body, const char *path);
/* Returns the value as JSON text; NULL if it is absent. The caller frees it with free(). */
char *kit_json_part(const char *body, const char *path);
/* Calls visit with each element of an array as JSON text, in order. Returns the number of elements, or -1 as above. */
long kit_json_each(const char *body, const char *path, void (*visit)(void *context, size_t at, const char *element),
                   void *context);
#endif
