/* SPDX-License-Identifier: MIT */
/*
 * The private MariaDB. private_server_open takes the directory. private_server_begin starts the supervisor, a thread
 * that does the rest: it ends an orphan, creates the database, starts mariadbd, waits until it answers, and restarts it
 * when it exits. The same thread forks all children, because they end with the thread that forked them.
 *
 *     STARTING --> SERVING <--> RESTARTING        any --> STOPPED (private_server_stop)
 *         \--> FAILED
 */
#include "mariadb/private_server.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/escape.h"
#include "base/log.h"
#include "base/mutex.h"
#include "mariadb/data_dir.h"
#include "mariadb/process.h"

enum {
    READY_POLL_MS = 20,
    REPORT_EVERY_MS = 10000, /* between two progress reports of a wait */
    STOP_GRACE_MS = 30000,   /* between SIGTERM and SIGKILL */
    BACK_OFF_MIN_MS = 100,   /* before the second restart; the first is immediate */
    BACK_OFF_MAX_MS = 5000,
    HEALTHY_AFTER_MS = 30000, /* uptime after which the back-off starts from 0 again */
    LOG_READ = 32 * 1024,     /* bytes of mariadbd's log that are searched for the cause of a failure */
    LOG_SHOWN = 1200,         /* about the number of these bytes that are shown */
    LOG_LINE = 1000,          /* maximum length of the log's last line in permitd's log */
    FAILURE_SIZE = 256,       /* of a sentence that follows a progress report in STORE_MESSAGE_SIZE */
    MESSAGE_MAX = 4000,
};

#define DATABASE_NAME "permitd"
#define DATA          "data"
#define FRESH         "data.new" /* a new database is created here, then renamed to DATA */
#define TEMPORARY     "tmp"      /* of its own: at its start mariadbd deletes all temporary tables in its tmpdir */
#define PID_FILE      "mariadb.pid"
#define SOCKET        "mariadb.sock"
#define LOG_FILE      "mariadb.log"
#define NO_SERVER                                                                                                      \
    "there is no %s on this machine: apt-get install mariadb-server-core, or name a database of your own with "        \
    "--database"

enum state { STATE_STARTING, STATE_SERVING, STATE_RESTARTING, STATE_FAILED, STATE_STOPPED };

struct private_server {
    struct data_dir dir;
    char *log_file;
    int lock_fd;
    int log_fd;
    int stop_fd;  /* readable: private_server_stop was called */
    int begun_fd; /* readable: the state is no longer STATE_STARTING */
    char *program;
    char *install_program;
    struct database_address address;
    int64_t buffer_pool;

    pthread_t supervisor;
    bool supervised; /* the thread exists */
    struct process process;
    char failure[FAILURE_SIZE]; /* cause of the last failed restart; "": none since the last answer */
    atomic_uint restarts;
    atomic_int pid;     /* of mariadbd; 0 while it does not run */
    atomic_bool absent; /* result of private_server_is_unavailable */

    struct mutex mutex;     /* guards state, absence and message */
    pthread_cond_t changed; /* signals changes of state */
    enum state state;
    char absence[STORE_MESSAGE_SIZE]; /* sentence of private_server_is_unavailable */
    struct buf message;               /* cause of STATE_FAILED */
};

/* ---- the files ---- */

static bool append_errno(struct buf *message, const char *doing, const char *path)
{
    buf_printf(message, "cannot %s %s: %s", doing, path, strerrordesc_np(errno));
    return false;
}

static bool address_make(struct private_server *server, struct buf *message)
{
    struct database_address *address = &server->address;
    struct sockaddr_un limit;
    address->user = strdup("root");
    address->database = strdup(DATABASE_NAME);
    if (asprintf(&address->socket, "%s/%s", server->dir.path, SOCKET) < 0 ||
        asprintf(&server->log_file, "%s/%s", server->dir.path, LOG_FILE) < 0 || !address->user || !address->database) {
        buf_append_text(message, "no memory");
        return false;
    }
    if (strlen(address->socket) < sizeof limit.sun_path)
        return true;
    buf_printf(message, "the path %s is too long for a socket (%zu characters at most): name a shorter directory",
               address->socket, sizeof limit.sun_path - 1);
    return false;
}

/* Writes an option with a path in the directory: "--datadir=/var/lib/permitd/data". */
static char *path_option(char ret_option[PATH_MAX], const struct private_server *server, const char *option,
                         const char *name)
{
    snprintf(ret_option, PATH_MAX, "--%s=%s/%s", option, server->dir.path, name);
    return ret_option;
}

static long read_pid(int fd)
{
    char text[32];
    ssize_t length = pread(fd, text, sizeof text - 1, 0);
    text[length > 0 ? length : 0] = '\0';
    return strtol(text, NULL, 10);
}

/* Takes the lock. The kernel releases it when the process ends; the pid in the file is only for messages. */
static bool lock_take(struct private_server *server, struct buf *message)
{
    server->lock_fd = data_dir_open(&server->dir, "lock", O_RDWR | O_CREAT, message);
    if (server->lock_fd < 0)
        return false;
    if (flock(server->lock_fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK)
            return append_errno(message, "lock", server->dir.path);
        buf_printf(message, "%s is in use by another permitd, pid %ld: stop it, or query it (permitctl doctor)",
                   server->dir.path, read_pid(server->lock_fd));
        return false;
    }
    if (ftruncate(server->lock_fd, 0) != 0 || dprintf(server->lock_fd, "%d\n", (int)getpid()) < 0)
        return append_errno(message, "write the lock of", server->dir.path);
    return true;
}

/* Reads whole lines of the log from `from` on, the last LOG_READ bytes at most. Returns them, zero-terminated. */
static char *log_read(const struct private_server *server, off_t from, char ret_text[LOG_READ + 1])
{
    off_t end = lseek(server->log_fd, 0, SEEK_END);
    off_t start = end - from > LOG_READ ? end - LOG_READ : from;
    ssize_t length = pread(server->log_fd, ret_text, LOG_READ, start);
    ret_text[length > 0 ? length : 0] = '\0';
    char *line_end = start > from ? strchr(ret_text, '\n') : NULL;
    return line_end ? line_end + 1 : ret_text;
}

/* Appends the lines with an error, first ones first: later errors usually follow from them. False: there are none. */
static bool log_show_errors(const char *text, struct buf *message)
{
    size_t shown = 0;
    for (const char *line = text; *line && shown < LOG_SHOWN;) {
        size_t length = strcspn(line, "\n");
        length += line[length] == '\n';
        if (memmem(line, length, "ERROR", 5)) {
            buf_append(message, line, length);
            shown += length;
        }
        line += length;
    }
    return shown > 0;
}

/* Appends the errors in the log since `from`; without errors, the last LOG_SHOWN bytes. */
static void log_show(const struct private_server *server, off_t from, struct buf *message)
{
    char text[LOG_READ + 1];
    char *lines = log_read(server, from, text);
    char *advice = strstr(lines, "Installation of system tables failed!"); /* starts a page of general advice */
    if (advice)
        *advice = '\0';
    buf_printf(message, "; from %s:\n", server->log_file);
    if (log_show_errors(lines, message))
        return;
    size_t length = strlen(lines);
    buf_append_text(message, length > LOG_SHOWN ? lines + length - LOG_SHOWN : lines);
}

/* ---- progress reports ---- */

/* Waits at most wait_ms for private_server_stop. Returns true if it was called. */
static bool stop_requested(const struct private_server *server, int wait_ms)
{
    struct pollfd polled = {.fd = server->stop_fd, .events = POLLIN};
    return poll(&polled, 1, wait_ms) > 0;
}

/* A wait without a limit. Every REPORT_EVERY_MS it reports to the log and to clients whether the process progresses. */
struct wait_report {
    const char *doing;            /* "starting" */
    mono_us since;                /* start of the wait */
    mono_us active_at;            /* last report that found progress */
    mono_us reported_at;          /* last report */
    struct process_activity seen; /* activity at the last report */
};

static struct wait_report wait_report_begin(const char *doing)
{
    mono_us now = clock_mono();
    return (struct wait_report){.doing = doing, .since = now, .active_at = now, .reported_at = now};
}

static const char *state_hint(char state)
{
    switch (state) {
    case 'T':
    case 't': return "the process is stopped: send it SIGCONT";
    case 'D': return "it waits in the kernel, usually for a disk: check the disk";
    default: return "it waits: check its log and the disk";
    }
}

/* Progress is 0.1 s of CPU time, or any input or output: a process that hangs may still use a little CPU time. */
static void wait_report_describe(struct wait_report *wait_report, const struct process_activity *now, mono_us at,
                                 char ret_sentence[STORE_MESSAGE_SIZE])
{
    enum { CPU_OF_PROGRESS_MS = 100 };
    const struct process_activity *before = &wait_report->seen;
    int waited_s = (int)((at - wait_report->since) / US_PER_SECOND);
    if (now->io != before->io || now->cpu_ms >= before->cpu_ms + CPU_OF_PROGRESS_MS) {
        uint64_t disk = now->disk_bytes > before->disk_bytes ? now->disk_bytes - before->disk_bytes : 0;
        uint64_t cpu_ms = now->cpu_ms > before->cpu_ms ? now->cpu_ms - before->cpu_ms : 0;
        wait_report->active_at = at;
        snprintf(ret_sentence, STORE_MESSAGE_SIZE,
                 "the private MariaDB has been %s for %d s and makes progress: %.1f s of CPU time and %.1f MB of disk "
                 "input and output in the last %d s; after a crash it recovers before it answers",
                 wait_report->doing, waited_s, (double)cpu_ms / (double)MS_PER_SECOND, (double)disk / 1e6,
                 (int)((at - wait_report->reported_at) / US_PER_SECOND));
    } else {
        snprintf(ret_sentence, STORE_MESSAGE_SIZE,
                 "the private MariaDB has been %s for %d s and has done nothing for %d s, without CPU time, input or "
                 "output; %s; permitd waits until it goes on or ends",
                 wait_report->doing, waited_s, (int)((at - wait_report->active_at) / US_PER_SECOND),
                 state_hint(now->state));
    }
}

/* Ends the text after its last line that is not empty, and returns that line. */
static const char *last_line(char *lines)
{
    size_t length = strlen(lines);
    while (length > 0 && lines[length - 1] == '\n')
        lines[--length] = '\0';
    char *last = strrchr(lines, '\n');
    return last ? last + 1 : lines;
}

/* Sets the sentence of private_server_is_unavailable. */
static void absence_set(struct private_server *server, const char sentence[STORE_MESSAGE_SIZE])
{
    mutex_lock(&server->mutex);
    memcpy(server->absence, sentence, STORE_MESSAGE_SIZE);
    mutex_unlock(&server->mutex);
    atomic_store(&server->absent, true);
}

static void wait_report_update(struct private_server *server, struct wait_report *wait_report,
                               const struct process *process)
{
    struct process_activity activity;
    char sentence[STORE_MESSAGE_SIZE];
    char text[LOG_READ + 1];
    off_t end;
    mono_us now = clock_mono();
    if (now - wait_report->reported_at < (mono_us)REPORT_EVERY_MS * US_PER_MS)
        return;
    process_read_activity(process, &activity);
    wait_report_describe(wait_report, &activity, now, sentence);
    wait_report->reported_at = now;
    wait_report->seen = activity;
    if (*server->failure) {
        size_t length = strlen(sentence);
        snprintf(sentence + length, sizeof sentence - length, "; before, %s", server->failure);
    }
    end = lseek(server->log_fd, 0, SEEK_END);
    log_write(wait_report->active_at == now ? LOG_INFO : LOG_WARN, "the private MariaDB does not answer yet", "why",
              sentence, "log", server->log_file, "last_line",
              last_line(log_read(server, end > LOG_LINE ? end - LOG_LINE : 0, text)), NULL);
    absence_set(server, sentence);
}

/* ---- creating the database ---- */

/* Runs a program to its end. Returns false if it cannot be started, or if permitd stops (errno EINTR). */
static bool run_child(struct private_server *server, char *const *arguments, struct wait_report *wait_report,
                      int *ret_exit)
{
    struct process_start start = {
        .path = arguments[0],
        .arguments = arguments,
        .output_fd = server->log_fd,
    };
    struct process child;
    if (!process_spawn(&start, &child))
        return false;
    while (!process_wait(&child, server->stop_fd, REPORT_EVERY_MS, ret_exit)) {
        if (stop_requested(server, 0)) {
            process_stop(&child, 0);
            errno = EINTR;
            return false;
        }
        wait_report_update(server, wait_report, &child);
    }
    return true;
}

/* Creates the database under another name and renames it when it is complete and on the disk; safe against kills. */
static bool database_make(struct private_server *server, struct buf *message)
{
    char data[PATH_MAX], temporary[PATH_MAX];
    int exit_status = 0;
    off_t log_start = lseek(server->log_fd, 0, SEEK_END);
    if (!data_dir_remove(&server->dir, FRESH, message))
        return false;
    char *arguments[] = {server->install_program,
                         (char[]){"--no-defaults"},
                         path_option(data, server, "datadir", FRESH),
                         path_option(temporary, server, "tmpdir", TEMPORARY),
                         (char[]){"--auth-root-authentication-method=normal"},
                         (char[]){"--skip-test-db"},
                         (char[]){"--skip-name-resolve"},
                         (char[]){"--force"},
                         geteuid() == 0 ? (char[]){"--user=root"} : NULL,
                         NULL};
    struct wait_report wait_report = wait_report_begin("creating its files");
    if (!run_child(server, arguments, &wait_report, &exit_status))
        return append_errno(message, "run", server->install_program);
    if (exit_status != 0) {
        buf_printf(message, "%s could not create a database", server->install_program);
        log_show(server, log_start, message);
        return false;
    }
    return data_dir_commit_rename(&server->dir, FRESH, DATA, message);
}

/* ---- mariadbd ---- */

/* The options that are always the same: durability, session defaults, small memory, no unneeded features. */
static const char *const server_options[] = {
    "--innodb-flush-log-at-trx-commit=1",
    "--innodb-doublewrite=1",
    "--skip-log-bin",
    "--transaction-isolation=READ-COMMITTED",
    "--sql-mode=STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION",
    "--default-time-zone=+00:00",
    "--character-set-server=utf8mb4",
    "--innodb-lock-wait-timeout=5",
    "--innodb-log-file-size=512M",
    "--innodb-fast-shutdown=1",
    "--innodb-buffer-pool-dump-at-shutdown=0",
    "--innodb-buffer-pool-load-at-startup=0",
    "--max-connections=200",
    "--open-files-limit=2048",
    "--table-open-cache=400",
    "--max-allowed-packet=16M",
    "--performance-schema=0",
    "--query-cache-type=0",
    "--query-cache-size=0",
    "--key-buffer-size=1M",
    "--aria-pagecache-buffer-size=8M",
    "--skip-networking",
    "--skip-name-resolve",
    "--skip-symbolic-links",
    "--local-infile=0",
    "--event-scheduler=OFF",
    "--loose-feedback=OFF",
};

static bool server_spawn(struct private_server *server)
{
    char data[PATH_MAX], temporary[PATH_MAX], socket[PATH_MAX], pid_file[PATH_MAX], buffer_pool[64];
    char user[] = "--user=root"; /* mariadbd demands it of root */
    char *arguments[ARRAY_LENGTH(server_options) + 9] = {server->program,
                                                         (char[]){"--no-defaults"},
                                                         path_option(data, server, "datadir", DATA),
                                                         path_option(temporary, server, "tmpdir", TEMPORARY),
                                                         path_option(socket, server, "socket", SOCKET),
                                                         path_option(pid_file, server, "pid-file", PID_FILE),
                                                         buffer_pool};
    size_t count = 7;
    snprintf(buffer_pool, sizeof buffer_pool, "--innodb-buffer-pool-size=%lld", (long long)server->buffer_pool);
    if (geteuid() == 0)
        arguments[count++] = user;
    for (size_t i = 0; i < ARRAY_LENGTH(server_options); i++)
        arguments[count++] = (char *)(uintptr_t)server_options[i]; /* execv promises not to change them */
    struct process_start start = {
        .path = server->program,
        .arguments = arguments,
        .output_fd = server->log_fd,
    };
    if (!process_spawn(&start, &server->process))
        return false;
    atomic_store(&server->pid, (int)server->process.pid);
    return true;
}

/*
 * Writes the pid of mariadbd, which itself writes it only when it serves; so an orphan that was still starting is found
 * too. Removes the old file first, and writes only to a new one.
 */
static void pid_file_write(const struct private_server *server)
{
    (void)unlinkat(server->dir.fd, PID_FILE, 0);
    int fd = data_dir_open(&server->dir, PID_FILE, O_WRONLY | O_CREAT | O_EXCL, NULL);
    if (fd < 0)
        return;
    dprintf(fd, "%d\n", (int)server->process.pid);
    close(fd);
}

/* Ends the mariadbd of a killed permitd, if the kernel did not. */
static void orphan_stop(const struct private_server *server)
{
    char argument[PATH_MAX];
    int fd = data_dir_open(&server->dir, PID_FILE, O_RDONLY, NULL);
    if (fd < 0)
        return;
    long pid = read_pid(fd);
    close(fd);
    if (pid > 1 && pid <= INT32_MAX)
        process_stop_foreign((pid_t)pid, path_option(argument, server, "datadir", DATA), STOP_GRACE_MS);
}

/* Result of the wait for mariadbd's first answer. */
enum ready {
    READY_YES,
    READY_DIED,
    READY_STOPPED, /* permitd stops */
};

/* Waits without a limit, because a kill during recovery would restart recovery. Sets *ret_exit for READY_DIED. */
static enum ready server_wait_ready(struct private_server *server, int *ret_exit)
{
    struct wait_report wait_report = wait_report_begin("starting");
    for (;;) {
        if (process_wait(&server->process, server->stop_fd, READY_POLL_MS, ret_exit))
            return READY_DIED;
        if (stop_requested(server, 0))
            return READY_STOPPED;
        struct store *store = store_open(&server->address, STORE_ADMIN, NULL); /* the database may not exist yet */
        bool answers = store && store->session->reconnect(store) == PERMIT_OK;
        store_free(store);
        if (answers)
            return READY_YES;
        wait_report_update(server, &wait_report, &server->process);
    }
}

/* ---- failed restarts ---- */

enum { HOW_SIZE = 64 };

static void describe_exit(int exit_status, char ret_how[HOW_SIZE])
{
    if (WIFSIGNALED(exit_status))
        snprintf(ret_how, HOW_SIZE, "signal %d", WTERMSIG(exit_status));
    else
        snprintf(ret_how, HOW_SIZE, "exit status %d", WEXITSTATUS(exit_status));
}

/* The restarts that failed since mariadbd exited. */
struct failures {
    mono_us since;     /* when it exited */
    mono_us logged_at; /* 0: not yet */
    unsigned count;
};

/*
 * Copies the first error in the log since `from`: later errors usually follow from it. If that is the error that ends
 * every failed start, copies the line before it, which names the cause without the word.
 */
static void log_first_error(const struct private_server *server, off_t from, char ret_line[LOG_LINE])
{
    char text[LOG_READ + 1];
    struct buf errors;
    buf_init(&errors, LOG_SHOWN + LOG_READ);
    char *lines = log_read(server, from, text);
    char *end = strstr(lines, "[ERROR] Aborting");
    while (end && end > lines && end[-1] != '\n')
        end--;
    if (end)
        *end = '\0';
    if (log_show_errors(lines, &errors)) {
        const char *line = buf_text(&errors);
        snprintf(ret_line, LOG_LINE, "%.*s", (int)strcspn(line, "\n"), line);
    } else if (end && end > lines) {
        snprintf(ret_line, LOG_LINE, "%s", last_line(lines));
    } else {
        snprintf(ret_line, LOG_LINE, "%s has no error of this start, as when the disk is full", LOG_FILE);
    }
    buf_release(&errors);
}

/*
 * Reports a failed restart: to the log immediately, then at most every REPORT_EVERY_MS; to clients when mariadbd has
 * not answered for REPORT_EVERY_MS.
 */
static void failures_add(struct private_server *server, struct failures *failures, const char *how, const char *why)
{
    enum { REPORT_EVERY_US = REPORT_EVERY_MS * US_PER_MS };
    char sentence[STORE_MESSAGE_SIZE], count[16];
    mono_us now = clock_mono();
    failures->count++;
    snprintf(count, sizeof count, "%u", failures->count);
    snprintf(server->failure, sizeof server->failure, "%s start(s) failed in %d s, the last with %s: %s", count,
             (int)((now - failures->since) / US_PER_SECOND), how, why);
    escape_control_chars(server->failure, strlen(server->failure)); /* also a character that was cut */
    snprintf(sentence, sizeof sentence, "the private MariaDB fails to start: %s", server->failure);
    if (now - failures->since >= REPORT_EVERY_US)
        absence_set(server, sentence);
    if (failures->logged_at && now - failures->logged_at < REPORT_EVERY_US)
        return;
    failures->logged_at = now;
    log_write(LOG_ERROR, "private MariaDB fails to start, trying again", "failed_starts", count, "how", how, "why", why,
              "log", server->log_file, NULL);
}

/* ---- the supervisor ---- */

static void state_set(struct private_server *server, enum state state)
{
    mutex_lock(&server->mutex);
    if (server->state == STATE_STARTING)
        (void)eventfd_write(server->begun_fd, 1);
    server->state = state;
    atomic_store(&server->absent, false);
    pthread_cond_broadcast(&server->changed);
    mutex_unlock(&server->mutex);
}

/* Does all steps up to mariadbd's first answer. On failure sets server->message. */
static bool supervisor_begin(struct private_server *server)
{
    struct buf *message = &server->message;
    orphan_stop(server);
    if (!data_dir_has_database(server->dir.fd) && !database_make(server, message))
        return false;
    char how[HOW_SIZE];
    int exit_status;
    off_t log_start = lseek(server->log_fd, 0, SEEK_END);
    if (!server_spawn(server))
        return append_errno(message, "start", server->program);
    pid_file_write(server);
    switch (server_wait_ready(server, &exit_status)) {
    case READY_YES: return true;
    case READY_DIED:
        describe_exit(exit_status, how);
        buf_printf(message, "%s did not start: it ended with %s", server->program, how);
        break;
    case READY_STOPPED: buf_append_text(message, "it was stopped while it started"); break;
    }
    log_show(server, log_start, message);
    return false;
}

/* Restarts mariadbd until it answers. Returns false if permitd stops. */
static bool supervisor_restart(struct private_server *server, int *back_off_ms)
{
    struct failures failures = {.since = clock_mono()};
    char how[HOW_SIZE], why[LOG_LINE];
    int exit_status;
    for (;;) {
        if (*back_off_ms > 0 && stop_requested(server, *back_off_ms))
            return false;
        *back_off_ms = *back_off_ms ? (int)min_i64(2 * *back_off_ms, BACK_OFF_MAX_MS) : BACK_OFF_MIN_MS;
        off_t log_start = lseek(server->log_fd, 0, SEEK_END);
        if (!server_spawn(server)) {
            failures_add(server, &failures, "no process", strerrordesc_np(errno));
            continue;
        }
        pid_file_write(server);
        atomic_fetch_add(&server->restarts, 1);
        enum ready ready = server_wait_ready(server, &exit_status);
        if (ready != READY_DIED) {
            *server->failure = '\0';
            return ready == READY_YES;
        }
        atomic_store(&server->pid, 0);
        describe_exit(exit_status, how);
        log_first_error(server, log_start, why);
        failures_add(server, &failures, how, why);
    }
}

/* Waits for exits of mariadbd and restarts it. Returns when permitd stops. */
static void supervisor_watch(struct private_server *server)
{
    int back_off_ms = 0;
    int exit_status;
    for (;;) {
        mono_us began = clock_mono();
        if (!process_wait(&server->process, server->stop_fd, -1, &exit_status))
            return;
        atomic_store(&server->pid, 0);
        if (stop_requested(server, 0))
            return;
        state_set(server, STATE_RESTARTING);
        char how[HOW_SIZE];
        describe_exit(exit_status, how);
        log_write(LOG_ERROR, "private MariaDB exited, restarting", "how", how, "log", server->log_file, NULL);
        if (clock_mono() - began > (mono_us)HEALTHY_AFTER_MS * US_PER_MS)
            back_off_ms = 0;
        if (!supervisor_restart(server, &back_off_ms))
            return;
        log_write(LOG_INFO, "private MariaDB restarted", NULL);
        state_set(server, STATE_SERVING);
    }
}

static void *supervisor_main(void *argument)
{
    struct private_server *server = argument;
    bool begun = supervisor_begin(server);
    if (begun) {
        state_set(server, STATE_SERVING);
        supervisor_watch(server);
    }
    process_stop(&server->process, STOP_GRACE_MS);
    (void)unlinkat(server->dir.fd, PID_FILE, 0); /* mariadbd leaves it if it was killed */
    atomic_store(&server->pid, 0);
    state_set(server, begun ? STATE_STOPPED : STATE_FAILED);
    return NULL;
}

/* Starts the thread with all signals blocked, so that signals reach the thread of permitd that waits for them. */
bool private_server_begin(struct private_server *server, struct buf *message)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    server->supervised = pthread_create(&server->supervisor, NULL, supervisor_main, server) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!server->supervised)
        buf_append_text(message, "cannot start a thread for the private MariaDB");
    return server->supervised;
}

bool private_server_wait(struct private_server *server, struct buf *message)
{
    mutex_lock(&server->mutex);
    while (server->state == STATE_STARTING)
        mutex_wait(&server->mutex, &server->changed);
    bool failed = server->state == STATE_FAILED;
    if (failed)
        buf_append_text(message, buf_text(&server->message));
    mutex_unlock(&server->mutex);
    return !failed;
}

/* ---- life ---- */

static struct private_server *private_server_new(int64_t buffer_pool)
{
    struct private_server *server = calloc(1, sizeof *server);
    if (!server)
        return NULL;
    server->dir.fd = server->lock_fd = server->log_fd = -1;
    server->process.pidfd = -1;
    server->buffer_pool = buffer_pool;
    mutex_init(&server->mutex);
    pthread_cond_init(&server->changed, NULL);
    buf_init(&server->message, MESSAGE_MAX);
    snprintf(server->absence, sizeof server->absence, "the private MariaDB is being started");
    atomic_store(&server->absent, true);
    server->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    server->begun_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return server;
}

static void private_server_free(struct private_server *server)
{
    const int fds[] = {server->stop_fd, server->begun_fd, server->log_fd, server->lock_fd};
    char *const texts[] = {server->log_file, server->program, server->install_program};
    for (size_t i = 0; i < ARRAY_LENGTH(fds); i++)
        if (fds[i] >= 0)
            close(fds[i]);
    for (size_t i = 0; i < ARRAY_LENGTH(texts); i++)
        free(texts[i]);
    data_dir_release(&server->dir);
    database_address_release(&server->address);
    buf_release(&server->message);
    pthread_cond_destroy(&server->changed);
    mutex_destroy(&server->mutex);
    free(server);
}

bool private_server_open(const struct private_server_options *options, struct private_server **ret_server,
                         struct buf *message)
{
    struct private_server *server = private_server_new(options->buffer_pool);
    if (!server || server->stop_fd < 0 || server->begun_fd < 0) {
        buf_append_text(message, "no memory or no file descriptor for the private MariaDB");
        goto failed;
    }
    if (!data_dir_take(options->directory, &options->user, &server->dir, message) || !address_make(server, message) ||
        !lock_take(server, message))
        goto failed;
    server->log_fd = data_dir_open(&server->dir, LOG_FILE, O_RDWR | O_CREAT | O_APPEND, message);
    if (server->log_fd < 0 || !data_dir_make(&server->dir, TEMPORARY, message))
        goto failed;
    server->program = process_find("mariadbd");
    server->install_program = process_find("mariadb-install-db");
    if (!server->program || !server->install_program) {
        buf_printf(message, NO_SERVER, server->program ? "mariadb-install-db" : "mariadbd");
        goto failed;
    }
    *ret_server = server;
    return true;
failed:
    private_server_stop(server);
    return false;
}

int private_server_begun_fd(const struct private_server *server)
{
    return server->begun_fd;
}

bool private_server_is_unavailable(struct private_server *server, char ret_sentence[STORE_MESSAGE_SIZE])
{
    if (!atomic_load(&server->absent))
        return false;
    mutex_lock(&server->mutex);
    memcpy(ret_sentence, server->absence, STORE_MESSAGE_SIZE);
    mutex_unlock(&server->mutex);
    return true;
}

const struct database_address *private_server_address(const struct private_server *server)
{
    return &server->address;
}

unsigned private_server_restarts(const struct private_server *server)
{
    return atomic_load(&server->restarts);
}

pid_t private_server_pid(const struct private_server *server)
{
    return (pid_t)atomic_load(&server->pid);
}

void private_server_stop(struct private_server *server)
{
    if (!server)
        return;
    if (server->supervised) {
        (void)eventfd_write(server->stop_fd, 1);
        pthread_join(server->supervisor, NULL);
    }
    private_server_free(server);
}
