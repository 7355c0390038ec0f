/* SPDX-License-Identifier: MIT */
/*
 * The temporary directory, child processes that die with the test, failures with a message, and waits.
 *
 * A test may end by exit, _exit, a failed assertion or a signal, so nothing here relies on atexit. A small process, the
 * guard, holds the reading end of a pipe; only the test has its writing end. When the pipe closes, the guard stops the
 * remaining databases and removes the directory.
 */
#include "kit_process.h"
#include "load_client.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LOGS_MAX = 64, LOG_TAIL = 3000, GUARD_TRIES = 100 };

static struct {
    char path[256];
    unsigned names;
    char *logs[LOGS_MAX];
    unsigned log_count;
} kit;

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *ftw)
{
    (void)info, (void)kind, (void)ftw;
    return remove(path) && errno != ENOENT;
}

/*
 * Kills a private MariaDB whose permitd was killed before it could set its death signal; its pid file names the
 * process.
 */
static int stop_orphan(const char *path, const struct stat *info, int kind, struct FTW *ftw)
{
    (void)info;
    if (kind != FTW_F || strcmp(path + ftw->base, "mariadb.pid"))
        return 0;
    FILE *file = fopen(path, "re");
    int pid = 0;
    if (file && fscanf(file, "%d", &pid) == 1 && pid > 1) {
        char exe[64], target[256] = "";
        snprintf(exe, sizeof(exe), "/proc/%d/exe", pid);
        if (readlink(exe, target, sizeof(target) - 1) > 0 && strstr(target, "mariadbd"))
            kill(pid, SIGKILL);
    }
    if (file)
        fclose(file);
    return 0;
}

_Noreturn static void guard_run(int pipe_fd)
{
    char byte;
    setsid();
    signal(SIGPIPE, SIG_IGN);
    while (read(pipe_fd, &byte, 1) < 0 && errno == EINTR)
        ;
    const char *keep = getenv("PERMIT_KEEP");
    for (int i = 0; i < GUARD_TRIES && !access(kit.path, F_OK); i++) {
        nftw(kit.path, stop_orphan, 16, FTW_PHYS);
        if (keep && *keep)
            break;
        nftw(kit.path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
        kit_sleep_ms(i ? 50 : 5);
    }
    _exit(0);
}

/* Closes the output in the guard: otherwise a reader of the test's output would wait for the guard's end. */
static void guard_close_rest(int pipe_fd)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 0; fd <= 2; fd++)
        dup2(null, fd);
    for (int fd = 3; fd < 1024; fd++)
        if (fd != pipe_fd)
            close(fd);
}

static void guard_start(void)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC))
        kit_fail("pipe: %s", strerror(errno));
    pid_t pid = fork();
    if (pid < 0)
        kit_fail("fork: %s", strerror(errno));
    if (pid == 0) {
        guard_close_rest(ends[0]);
        /* Forks twice, so that the test has no unexpected child. */
        if (fork())
            _exit(0);
        guard_run(ends[0]);
    }
    close(ends[0]); /* the writing end stays open until this process has ended */
    waitpid(pid, NULL, 0);
}

const char *kit_directory(void)
{
    if (kit.path[0])
        return kit.path;
    const char *parent = getenv("TMPDIR");
    snprintf(kit.path, sizeof(kit.path), "%s/permit-test-XXXXXX", parent && *parent ? parent : "/tmp");
    if (!mkdtemp(kit.path))
        kit_fail("mkdtemp %s: %s", kit.path, strerror(errno));
    guard_start();
    return kit.path;
}

/*
 * The name is made unique by the process and by a check: processes of one suite share the directory, and may have had
 * the same pid.
 */
char *kit_path(const char *name)
{
    char *path = kit_text("%s/%s-%d-%u", kit_directory(), name, (int)getpid(), ++kit.names);
    while (!access(path, F_OK)) {
        free(path);
        path = kit_text("%s/%s-%d-%u", kit_directory(), name, (int)getpid(), ++kit.names);
    }
    return path;
}

char *kit_copy(const char *text)
{
    return kit_text("%s", text);
}

char *kit_text(const char *format, ...)
{
    char *text = NULL;
    va_list arguments;
    va_start(arguments, format);
    if (vasprintf(&text, format, arguments) < 0)
        abort();
    va_end(arguments);
    return text;
}

char *kit_read_file(const char *path)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return NULL;
    char *data = NULL;
    size_t length = 0, capacity = 0, got;
    do {
        capacity += 65536;
        data = realloc(data, capacity + 1);
        if (!data)
            abort();
        got = fread(data + length, 1, capacity - length, file);
        length += got;
    } while (got && length == capacity);
    data[length] = 0;
    fclose(file);
    return data;
}

void kit_watch_log(const char *path)
{
    for (unsigned i = 0; i < kit.log_count; i++)
        if (!strcmp(kit.logs[i], path))
            return;
    if (kit.log_count < LOGS_MAX)
        kit.logs[kit.log_count++] = kit_copy(path);
}

void kit_show_logs(void)
{
    for (unsigned i = 0; i < kit.log_count; i++) {
        char *text = kit_read_file(kit.logs[i]);
        if (!text)
            continue;
        size_t length = strlen(text);
        fprintf(stderr, "---- %s%s\n%s", kit.logs[i], length > LOG_TAIL ? " (its end)" : "",
                length > LOG_TAIL ? text + length - LOG_TAIL : text);
        free(text);
    }
}

void kit_fail(const char *format, ...)
{
    enum { SIZE = 4096 };
    char message[SIZE];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    fprintf(stderr, "%s\n", message);
    kit_show_logs();
    fprintf(stderr, "---- %s\n", message); /* once more, because the logs may be all that is left of a long output */
    exit(1);
}

int64_t kit_now_us(void)
{
    return load_now_us();
}

void kit_sleep_ms(int ms)
{
    struct timespec time = {ms / 1000, (ms % 1000) * 1000000L};
    while (nanosleep(&time, &time) && errno == EINTR)
        ;
}

bool kit_wait_until(bool (*condition)(void *context), void *context, int ms)
{
    int64_t end = kit_now_us() + (int64_t)ms * 1000;
    while (!condition(context)) {
        if (kit_now_us() > end)
            return condition(context);
        kit_sleep_ms(5);
    }
    return true;
}

/* Runs in the child after fork. */
_Noreturn static void child_run(const char *const *argv, int stdout_fd, int stderr_fd, pid_t parent)
{
    sigset_t none;
    sigemptyset(&none);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(127);
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    dup2(null, 0);
    dup2(stderr_fd, 2);
    dup2(stdout_fd >= 0 ? stdout_fd : stderr_fd, 1);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    /* execvp takes char *const * for historical reasons and changes nothing. */
    execvp(argv[0], (char *const *)(uintptr_t)argv);
    dprintf(2, "%s: %s\n", argv[0], strerror(errno));
    _exit(127);
}

pid_t kit_spawn(const char *const *argv, int stdout_fd, const char *stderr_path)
{
    int stderr_fd = open(stderr_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (stderr_fd < 0)
        kit_fail("%s: %s", stderr_path, strerror(errno));
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid < 0)
        kit_fail("fork: %s", strerror(errno));
    if (pid == 0)
        child_run(argv, stdout_fd, stderr_fd, parent);
    close(stderr_fd);
    kit_watch_log(stderr_path);
    return pid;
}

int kit_wait_pid(pid_t pid, int ms)
{
    int64_t end = kit_now_us() + (int64_t)ms * 1000;
    for (;;) {
        int status;
        pid_t ended = waitpid(pid, &status, WNOHANG);
        if (ended == pid)
            return status;
        if (ended < 0 && errno != EINTR)
            kit_fail("waitpid %d: %s", (int)pid, strerror(errno));
        if (kit_now_us() > end)
            return -1;
        kit_sleep_ms(2);
    }
}

/* ---- stopping ---- */

/* Parses "123 (name) T ...", T: stopped. The name may contain parentheses. */
static bool is_stopped(const char *directory, const char *thread)
{
    char path[288], line[256] = "";
    snprintf(path, sizeof(path), "%s/%s/stat", directory, thread);
    FILE *file = fopen(path, "r");
    bool read = file && fgets(line, sizeof(line), file);
    if (file)
        fclose(file);
    const char *name_end = read ? strrchr(line, ')') : NULL;
    return !name_end || strchr("TtZX", name_end[2]); /* no line: the thread has ended */
}

static bool all_stopped(void *context)
{
    const char *path = context;
    DIR *directory = opendir(path);
    bool stopped = directory != NULL;
    for (struct dirent *entry; stopped && (entry = readdir(directory));)
        stopped = entry->d_name[0] == '.' || is_stopped(path, entry->d_name);
    if (directory)
        closedir(directory);
    return stopped;
}

void kit_freeze(pid_t pid)
{
    char path[32];
    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    KIT_CHECK(!kill(pid, SIGSTOP) && kit_wait_until(all_stopped, path, 30000));
}
