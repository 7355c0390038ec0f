/* SPDX-License-Identifier: MIT */
/*
 * The private MariaDB. embedded_start takes the directory and starts the supervisor, a thread that does all the rest:
 * it ends an orphan, makes the database, starts mariadbd, waits until it answers, and starts it again when it dies. The
 * same thread forks all children, because they end with it.
 *
 *     STARTING --> SERVING <--> RESTARTING        any --> STOPPED (embedded_stop)
 *         \--> FAILED
 */
#include "store/embedded.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "store/data_dir.h"
#include "store/process.h"

enum {
    READY_WAIT_MS = 60000,
    READY_LOOK_MS = 20,
    INSTALL_WAIT_MS = 120000,
    STOP_GRACE_MS = 30000,
    BACK_OFF_MIN_MS = 100, /* before the second attempt; the first comes at once */
    BACK_OFF_MAX_MS = 5000,
    HEALTHY_AFTER_MS = 30000, /* who lived so long is started again at once */
    LOG_READ = 32 * 1024,     /* bytes of mariadbd's log in which the cause of a failure is looked for */
    LOG_SHOWN = 1200,         /* and about so many of them are shown */
    MESSAGE_MAX = 4000,
};

#define DATABASE_NAME "permitd"
#define NO_SERVER                                                                                                      \
    "there is no %s on this machine: apt-get install mariadb-server-core, or name a database of your own with "        \
    "--database"

enum state { STATE_STARTING, STATE_SERVING, STATE_RESTARTING, STATE_FAILED, STATE_STOPPED };

struct embedded {
    char *directory; /* absolute, without links */
    char *data;
    char *fresh;     /* where a new database is made before it becomes `data` */
    char *temporary; /* a server that starts deletes the temporary tables it finds, so none may share them with us */
    char *socket;
    char *pid_file;
    char *log_file;
    int lock_fd;
    int log_fd;
    int stop_fd; /* readable: embedded_stop was called */
    bool as_user;
    uid_t uid;
    gid_t gid;
    char *program;
    char *install_program;
    struct database_address address;

    pthread_t supervisor;
    bool supervised; /* the thread exists */
    struct process process;
    atomic_uint restarts;
    atomic_int pid; /* 0 while there is none */

    pthread_mutex_t mutex; /* guards state and message */
    pthread_cond_t changed;
    enum state state;
    struct buf message; /* why it failed */
};

/* --- the directory --- */

static bool say_errno(struct buf *message, const char *doing, const char *path)
{
    buf_printf(message, "cannot %s %s: %s", doing, path, strerrordesc_np(errno));
    return false;
}

/* Whether it may become, or is, the home of a private MariaDB; changes nothing. */
static bool directory_is_fit(const char *directory, const struct stat *info, struct buf *message)
{
    if (!S_ISDIR(info->st_mode)) {
        buf_printf(message, "%s is not a directory", directory);
        return false;
    }
    if (geteuid() != 0 && info->st_uid != geteuid()) {
        buf_printf(message, "%s belongs to user %u, not to the one permitd runs as (%u)", directory, info->st_uid,
                   geteuid());
        return false;
    }
    return data_dir_is_free(directory, message);
}

/* Root over the socket needs no password, so nobody else may reach it. */
static bool directory_close_to_others(const char *directory, const struct stat *info, struct buf *message)
{
    return (info->st_mode & 077) == 0 || chmod(directory, 0700) == 0 ||
           say_errno(message, "close to others", directory);
}

static bool directory_take(struct embedded *embedded, const char *directory, struct buf *message)
{
    struct stat info;
    if (mkdir(directory, 0700) != 0 && errno != EEXIST)
        return say_errno(message, "make the directory", directory);
    embedded->directory = realpath(directory, NULL);
    if (!embedded->directory || stat(directory, &info) != 0)
        return say_errno(message, "look at", directory);
    embedded->as_user = geteuid() == 0 && info.st_uid != 0;
    embedded->uid = info.st_uid;
    embedded->gid = info.st_gid;
    return directory_is_fit(embedded->directory, &info, message) &&
           directory_close_to_others(embedded->directory, &info, message);
}

bool embedded_look(const char *directory, bool *ret_database, struct buf *message)
{
    struct stat info;
    bool there = stat(directory, &info) == 0;
    if (!there && errno != ENOENT)
        return say_errno(message, "look at", directory);
    if (there && !directory_is_fit(directory, &info, message))
        return false;
    *ret_database = there && data_dir_has_database(directory);
    return true;
}

static bool path_make(char **ret_path, const struct embedded *embedded, const char *name)
{
    return asprintf(ret_path, "%s/%s", embedded->directory, name) >= 0;
}

static bool paths_make(struct embedded *embedded, struct buf *message)
{
    if (!path_make(&embedded->data, embedded, "data") || !path_make(&embedded->fresh, embedded, "data.new") ||
        !path_make(&embedded->temporary, embedded, "tmp") || !path_make(&embedded->socket, embedded, "mariadb.sock") ||
        !path_make(&embedded->pid_file, embedded, "mariadb.pid") ||
        !path_make(&embedded->log_file, embedded, "mariadb.log"))
        return say_errno(message, "name the files of", embedded->directory);
    struct sockaddr_un limit;
    if (strlen(embedded->socket) >= sizeof limit.sun_path) {
        buf_printf(message, "the path %s is too long for a socket (%zu characters at most): name a shorter directory",
                   embedded->socket, sizeof limit.sun_path - 1);
        return false;
    }
    return true;
}

/* As root in somebody's directory, what we make there is his: he may run permitd on it himself tomorrow. */
static bool file_give_away(const struct embedded *embedded, int fd)
{
    return !embedded->as_user || fchown(fd, embedded->uid, embedded->gid) == 0;
}

static long number_in_file(int fd)
{
    char text[32];
    ssize_t length = pread(fd, text, sizeof text - 1, 0);
    text[length > 0 ? length : 0] = '\0';
    return strtol(text, NULL, 10);
}

/* The lock is the kernel's and ends with the process; the number in the file only tells people who has it. */
static bool lock_take(struct embedded *embedded, struct buf *message)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/lock", embedded->directory);
    embedded->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (embedded->lock_fd < 0)
        return say_errno(message, "open", path);
    if (flock(embedded->lock_fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK)
            return say_errno(message, "lock", path);
        buf_printf(message, "%s is in use by another permitd, pid %ld: stop it, or ask it (permitctl doctor)",
                   embedded->directory, number_in_file(embedded->lock_fd));
        return false;
    }
    if (!file_give_away(embedded, embedded->lock_fd) || ftruncate(embedded->lock_fd, 0) != 0 ||
        dprintf(embedded->lock_fd, "%d\n", (int)getpid()) < 0)
        return say_errno(message, "write", path);
    return true;
}

static bool log_open(struct embedded *embedded, struct buf *message)
{
    embedded->log_fd = open(embedded->log_file, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (embedded->log_fd < 0)
        return say_errno(message, "open", embedded->log_file);
    if (!file_give_away(embedded, embedded->log_fd))
        return say_errno(message, "give away", embedded->log_file);
    return true;
}

static bool temporary_make(const struct embedded *embedded, struct buf *message)
{
    if (mkdir(embedded->temporary, 0700) != 0 && errno != EEXIST)
        return say_errno(message, "make the directory", embedded->temporary);
    if (embedded->as_user && chown(embedded->temporary, embedded->uid, embedded->gid) != 0)
        return say_errno(message, "give away", embedded->temporary);
    return true;
}

/* What the log has got since `from`, or the end of that: zero-terminated, in whole lines. */
static char *log_read(const struct embedded *embedded, off_t from, char ret_text[LOG_READ + 1])
{
    off_t end = lseek(embedded->log_fd, 0, SEEK_END);
    off_t start = end - from > LOG_READ ? end - LOG_READ : from;
    ssize_t length = pread(embedded->log_fd, ret_text, LOG_READ, start);
    ret_text[length > 0 ? length : 0] = '\0';
    char *line_end = start > from ? strchr(ret_text, '\n') : NULL;
    return line_end ? line_end + 1 : ret_text;
}

/* Appends the lines that name an error, from the first one on: the others follow from it. False: there are none. */
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

/* Appends why something has failed, as far as the log tells what it has got since `from`. */
static void log_show(const struct embedded *embedded, off_t from, struct buf *message)
{
    char text[LOG_READ + 1];
    char *lines = log_read(embedded, from, text);
    char *advice = strstr(lines, "Installation of system tables failed!"); /* a page of it, the same for all faults */
    if (advice)
        *advice = '\0';
    buf_printf(message, "; from %s:\n", embedded->log_file);
    if (log_show_errors(lines, message))
        return;
    size_t length = strlen(lines);
    buf_append_text(message, length > LOG_SHOWN ? lines + length - LOG_SHOWN : lines);
}

/* --- making the database --- */

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *walk)
{
    (void)info;
    (void)type;
    (void)walk;
    return remove(path);
}

static bool tree_remove(const char *path)
{
    enum { OPEN_DIRECTORIES = 16 };
    return nftw(path, remove_one, OPEN_DIRECTORIES, FTW_DEPTH | FTW_PHYS) == 0 || errno == ENOENT;
}

static bool run_child(struct embedded *embedded, char *const *arguments, int timeout_ms, int *ret_exit)
{
    struct process_start start = {
        .path = arguments[0],
        .arguments = arguments,
        .output_fd = embedded->log_fd,
        .as_user = embedded->as_user,
        .uid = embedded->uid,
        .gid = embedded->gid,
    };
    struct process child;
    if (!process_spawn(&start, &child))
        return false;
    if (process_wait(&child, embedded->stop_fd, timeout_ms, ret_exit))
        return true;
    process_stop(&child, 0);
    errno = ETIMEDOUT;
    return false;
}

static bool directory_sync(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool synced = fd >= 0 && syncfs(fd) == 0;
    if (fd >= 0)
        close(fd);
    return synced;
}

/* Made under another name and renamed when it is whole and on the disk: a kill leaves no half database. */
static bool database_make(struct embedded *embedded, struct buf *message)
{
    char data[PATH_MAX], temporary[PATH_MAX];
    int exit_status = 0;
    off_t log_start = lseek(embedded->log_fd, 0, SEEK_END);
    if (!tree_remove(embedded->fresh))
        return say_errno(message, "remove the half-made", embedded->fresh);
    snprintf(data, sizeof data, "--datadir=%s", embedded->fresh);
    snprintf(temporary, sizeof temporary, "--tmpdir=%s", embedded->temporary);
    char *arguments[] = {embedded->install_program,
                         (char[]){"--no-defaults"},
                         data,
                         temporary,
                         (char[]){"--auth-root-authentication-method=normal"},
                         (char[]){"--skip-test-db"},
                         (char[]){"--skip-name-resolve"},
                         (char[]){"--force"},
                         geteuid() == 0 && !embedded->as_user ? (char[]){"--user=root"} : NULL,
                         NULL};
    if (!run_child(embedded, arguments, INSTALL_WAIT_MS, &exit_status))
        return say_errno(message, "run", embedded->install_program);
    if (exit_status != 0) {
        buf_printf(message, "%s could not make a database", embedded->install_program);
        log_show(embedded, log_start, message);
        return false;
    }
    if (!directory_sync(embedded->fresh) || rename(embedded->fresh, embedded->data) != 0 ||
        !directory_sync(embedded->directory))
        return say_errno(message, "put in place", embedded->data);
    return true;
}

static bool programs_find(struct embedded *embedded, struct buf *message)
{
    embedded->program = process_find("mariadbd");
    embedded->install_program = process_find("mariadb-install-db");
    if (embedded->program && embedded->install_program)
        return true;
    buf_printf(message, NO_SERVER, embedded->program ? "mariadb-install-db" : "mariadbd");
    return false;
}

/* --- mariadbd --- */

/* What does not depend on the directory. Durable first; then small; then nothing that permitd does not need. */
static const char *const server_options[] = {
    "--innodb-flush-log-at-trx-commit=1",
    "--innodb-doublewrite=1",
    "--skip-log-bin",
    "--transaction-isolation=READ-COMMITTED",
    "--sql-mode=STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION",
    "--default-time-zone=+00:00",
    "--character-set-server=utf8mb4",
    "--innodb-lock-wait-timeout=5",
    "--innodb-buffer-pool-size=256M",
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

static bool server_spawn(struct embedded *embedded)
{
    char data[PATH_MAX], temporary[PATH_MAX], socket[PATH_MAX], pid_file[PATH_MAX];
    char user[] = "--user=root";
    char *arguments[ARRAY_LENGTH(server_options) + 8] = {
        embedded->program, (char[]){"--no-defaults"}, data, temporary, socket, pid_file};
    size_t count = 6;
    snprintf(data, sizeof data, "--datadir=%s", embedded->data);
    snprintf(temporary, sizeof temporary, "--tmpdir=%s", embedded->temporary);
    snprintf(socket, sizeof socket, "--socket=%s", embedded->socket);
    snprintf(pid_file, sizeof pid_file, "--pid-file=%s", embedded->pid_file);
    if (geteuid() == 0 && !embedded->as_user)
        arguments[count++] = user;
    for (size_t i = 0; i < ARRAY_LENGTH(server_options); i++)
        arguments[count++] = (char *)(uintptr_t)server_options[i]; /* execv promises not to change them */
    struct process_start start = {
        .path = embedded->program,
        .arguments = arguments,
        .output_fd = embedded->log_fd,
        .as_user = embedded->as_user,
        .uid = embedded->uid,
        .gid = embedded->gid,
    };
    if (!process_spawn(&start, &embedded->process))
        return false;
    atomic_store(&embedded->pid, (int)embedded->process.pid);
    return true;
}

/* mariadbd writes its pid only when it serves; without this an orphan that was just starting would not be found. */
static void pid_file_write(const struct embedded *embedded)
{
    int fd = open(embedded->pid_file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        return;
    if (file_give_away(embedded, fd))
        dprintf(fd, "%d\n", (int)embedded->process.pid);
    close(fd);
}

/* Ends the mariadbd of a permitd that was killed, where the kernel did not. */
static void orphan_stop(const struct embedded *embedded)
{
    char argument[PATH_MAX];
    int fd = open(embedded->pid_file, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    long pid = number_in_file(fd);
    close(fd);
    snprintf(argument, sizeof argument, "--datadir=%s", embedded->data);
    if (pid > 1 && pid <= INT32_MAX)
        process_stop_stranger((pid_t)pid, argument, STOP_GRACE_MS);
}

static bool server_answers(const struct embedded *embedded)
{
    struct session *session = session_new(&embedded->address, SESSION_ADMIN); /* the database may not exist yet */
    bool answers = session && session_connect(session) == PERMIT_OK;
    session_free(session);
    return answers;
}

static bool stop_is_asked(const struct embedded *embedded)
{
    struct pollfd polled = {.fd = embedded->stop_fd, .events = POLLIN};
    return poll(&polled, 1, 0) > 0;
}

/* How the wait for the first answer ended. */
enum ready { READY_YES, READY_DIED, READY_STOP, READY_TIMEOUT };

static enum ready server_wait_ready(struct embedded *embedded, int wait_ms)
{
    mono_us deadline = wait_ms < 0 ? NEVER : clock_mono() + (mono_us)wait_ms * US_PER_MS;
    int exit_status;
    while (clock_mono() < deadline) {
        if (process_wait(&embedded->process, embedded->stop_fd, READY_LOOK_MS, &exit_status))
            return READY_DIED;
        if (stop_is_asked(embedded))
            return READY_STOP;
        if (server_answers(embedded))
            return READY_YES;
    }
    return READY_TIMEOUT;
}

/* --- the supervisor --- */

static void state_set(struct embedded *embedded, enum state state)
{
    pthread_mutex_lock(&embedded->mutex);
    embedded->state = state;
    pthread_cond_broadcast(&embedded->changed);
    pthread_mutex_unlock(&embedded->mutex);
}

/* Everything up to the first answer. False: `message` of the object says why. */
static bool supervisor_begin(struct embedded *embedded)
{
    struct buf *message = &embedded->message;
    orphan_stop(embedded);
    if (!data_dir_has_database(embedded->directory) && !database_make(embedded, message))
        return false;
    off_t log_start = lseek(embedded->log_fd, 0, SEEK_END);
    if (!server_spawn(embedded))
        return say_errno(message, "start", embedded->program);
    pid_file_write(embedded);
    switch (server_wait_ready(embedded, READY_WAIT_MS)) {
    case READY_YES: return true;
    case READY_DIED: buf_printf(message, "%s did not start", embedded->program); break;
    case READY_STOP: buf_append_text(message, "it was stopped while it started"); break;
    case READY_TIMEOUT:
        buf_printf(message, "%s did not answer within %d seconds", embedded->program, READY_WAIT_MS / MS_PER_SECOND);
        break;
    }
    log_show(embedded, log_start, message);
    return false;
}

/* Sleeps, and says whether it was woken to stop. */
static bool supervisor_pause(const struct embedded *embedded, int ms)
{
    struct pollfd polled = {.fd = embedded->stop_fd, .events = POLLIN};
    return poll(&polled, 1, ms) > 0;
}

static void log_death(const struct embedded *embedded, int exit_status)
{
    char how[64];
    if (WIFSIGNALED(exit_status))
        snprintf(how, sizeof how, "signal %d", WTERMSIG(exit_status));
    else
        snprintf(how, sizeof how, "exit status %d", WEXITSTATUS(exit_status));
    log_write(LOG_ERROR, "the private MariaDB has died, starting it again", "how", how, "log", embedded->log_file,
              NULL);
}

/* Starts it again until it answers. False: it was asked to stop instead. */
static bool supervisor_restart(struct embedded *embedded, int *back_off_ms)
{
    for (;;) {
        if (*back_off_ms > 0 && supervisor_pause(embedded, *back_off_ms))
            return false;
        *back_off_ms = *back_off_ms ? (int)min_i64(2 * *back_off_ms, BACK_OFF_MAX_MS) : BACK_OFF_MIN_MS;
        if (!server_spawn(embedded))
            continue;
        pid_file_write(embedded);
        atomic_fetch_add(&embedded->restarts, 1);
        /* No limit: recovery takes the time it takes, and to kill it would only make it begin anew. */
        enum ready ready = server_wait_ready(embedded, -1);
        if (ready != READY_DIED)
            return ready == READY_YES;
        atomic_store(&embedded->pid, 0);
    }
}

/* Returns when it is asked to stop. */
static void supervisor_watch(struct embedded *embedded)
{
    int back_off_ms = 0;
    int exit_status;
    for (;;) {
        mono_us began = clock_mono();
        if (!process_wait(&embedded->process, embedded->stop_fd, -1, &exit_status))
            return;
        atomic_store(&embedded->pid, 0);
        if (stop_is_asked(embedded))
            return;
        state_set(embedded, STATE_RESTARTING);
        log_death(embedded, exit_status);
        if (clock_mono() - began > (mono_us)HEALTHY_AFTER_MS * US_PER_MS)
            back_off_ms = 0;
        if (!supervisor_restart(embedded, &back_off_ms))
            return;
        log_write(LOG_INFO, "the private MariaDB serves again", NULL);
        state_set(embedded, STATE_SERVING);
    }
}

static void *supervisor_main(void *argument)
{
    struct embedded *embedded = argument;
    session_thread_begin();
    bool begun = supervisor_begin(embedded);
    if (begun) {
        state_set(embedded, STATE_SERVING);
        supervisor_watch(embedded);
    }
    process_stop(&embedded->process, STOP_GRACE_MS);
    atomic_store(&embedded->pid, 0);
    state_set(embedded, begun ? STATE_STOPPED : STATE_FAILED);
    session_thread_end();
    return NULL;
}

/* With all signals blocked, so that they reach the thread that waits for them. */
static bool supervisor_start(struct embedded *embedded, struct buf *message)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    embedded->supervised = pthread_create(&embedded->supervisor, NULL, supervisor_main, embedded) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!embedded->supervised)
        buf_append_text(message, "cannot start a thread for the private MariaDB");
    return embedded->supervised;
}

static bool supervisor_wait_begun(struct embedded *embedded, struct buf *message)
{
    pthread_mutex_lock(&embedded->mutex);
    while (embedded->state == STATE_STARTING)
        pthread_cond_wait(&embedded->changed, &embedded->mutex);
    bool failed = embedded->state == STATE_FAILED;
    if (failed)
        buf_append_text(message, buf_text(&embedded->message));
    pthread_mutex_unlock(&embedded->mutex);
    return !failed;
}

/* --- life --- */

static bool address_make(struct embedded *embedded, struct buf *message)
{
    embedded->address.socket = strdup(embedded->socket);
    embedded->address.user = strdup("root");
    embedded->address.database = strdup(DATABASE_NAME);
    if (embedded->address.socket && embedded->address.user && embedded->address.database)
        return true;
    buf_append_text(message, "no memory");
    return false;
}

static struct embedded *embedded_new(void)
{
    struct embedded *embedded = calloc(1, sizeof *embedded);
    if (!embedded)
        return NULL;
    embedded->lock_fd = embedded->log_fd = -1;
    embedded->process.pidfd = -1;
    pthread_mutex_init(&embedded->mutex, NULL);
    pthread_cond_init(&embedded->changed, NULL);
    buf_init(&embedded->message, MESSAGE_MAX);
    embedded->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return embedded;
}

static void embedded_free(struct embedded *embedded)
{
    const int fds[] = {embedded->stop_fd, embedded->log_fd, embedded->lock_fd};
    char *const texts[] = {embedded->directory, embedded->data,    embedded->fresh,
                           embedded->temporary, embedded->socket,  embedded->pid_file,
                           embedded->log_file,  embedded->program, embedded->install_program};
    for (size_t i = 0; i < ARRAY_LENGTH(fds); i++)
        if (fds[i] >= 0)
            close(fds[i]);
    for (size_t i = 0; i < ARRAY_LENGTH(texts); i++)
        free(texts[i]);
    database_address_release(&embedded->address);
    buf_release(&embedded->message);
    pthread_cond_destroy(&embedded->changed);
    pthread_mutex_destroy(&embedded->mutex);
    free(embedded);
}

bool embedded_start(const char *directory, struct embedded **ret_embedded, struct buf *message)
{
    struct embedded *embedded = embedded_new();
    if (!embedded || embedded->stop_fd < 0)
        buf_append_text(message, "no memory or no file descriptor for the private MariaDB");
    else if (directory_take(embedded, directory, message) && paths_make(embedded, message) &&
             lock_take(embedded, message) && log_open(embedded, message) && temporary_make(embedded, message) &&
             programs_find(embedded, message) && address_make(embedded, message) &&
             supervisor_start(embedded, message) && supervisor_wait_begun(embedded, message)) {
        *ret_embedded = embedded;
        return true;
    }
    embedded_stop(embedded);
    return false;
}

const struct database_address *embedded_address(const struct embedded *embedded)
{
    return &embedded->address;
}

unsigned embedded_restarts(const struct embedded *embedded)
{
    return atomic_load(&embedded->restarts);
}

pid_t embedded_pid(const struct embedded *embedded)
{
    return (pid_t)atomic_load(&embedded->pid);
}

void embedded_stop(struct embedded *embedded)
{
    if (!embedded)
        return;
    if (embedded->supervised) {
        (void)eventfd_write(embedded->stop_fd, 1);
        pthread_join(embedded->supervisor, NULL);
    }
    embedded_free(embedded);
}
