/* SPDX-License-Identifier: MIT */
/* Real permitd processes: start, wait for the line with the address, stop, kill, freeze. */
#include "kit_process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SERVE_MS = 180000, STOP_MS = 60000, ARGUMENTS_MAX = 64, LINE_SIZE = 256 };

/* Tests in a container run as root, and so do their servers. The flags of a test override it. */
__attribute__((constructor)) static void allow_root(void)
{
    (void)setenv("PERMITD_ALLOW_ROOT", "true", 0);
}

struct arguments {
    const char *list[ARGUMENTS_MAX + 1];
    size_t count;
};

static void arguments_add(struct arguments *arguments, const char *argument)
{
    KIT_CHECK(arguments->count < ARGUMENTS_MAX);
    arguments->list[arguments->count++] = argument;
}

static void arguments_add_all(struct arguments *arguments, const char *const *flags)
{
    for (; flags && *flags; flags++)
        arguments_add(arguments, *flags);
}

/* PERMIT_PERMITD in the environment names another binary, built with a sanitizer or a planted fault. */
static const char *default_binary(void)
{
    const char *binary = getenv("PERMIT_PERMITD");
    return binary && *binary ? binary : PERMIT_BUILD_DIR "/permitd";
}

struct kit_permitd *kit_permitd_spawn(const struct kit_permitd_options *options)
{
    static const struct kit_permitd_options defaults;
    if (!options)
        options = &defaults;
    struct kit_permitd *permitd = calloc(1, sizeof(*permitd));
    KIT_CHECK(permitd);
    if (options->data_dir)
        permitd->data_dir = kit_copy(options->data_dir);
    else if (!options->database)
        permitd->data_dir = kit_path("data");
    permitd->log_path = kit_path("permitd.log");

    struct arguments arguments = {.count = 0};
    char *plan = kit_text("PERMIT_MEMORY_FILE=%s", options->memory_path ? options->memory_path : "");
    /* env executes permitd in the same process. */
    const char *const failing[] = {"env", "LD_PRELOAD=" PERMIT_MEMORY_SHIM, plan, NULL};
    arguments_add_all(&arguments, options->memory_path ? failing : NULL);
    arguments_add(&arguments, options->binary ? options->binary : default_binary());
    arguments_add(&arguments, "--listen");
    arguments_add(&arguments, options->listen ? options->listen : "127.0.0.1:0");
    arguments_add(&arguments, permitd->data_dir ? "--data-dir" : "--database");
    arguments_add(&arguments, permitd->data_dir ? permitd->data_dir : options->database);
    arguments_add_all(&arguments, options->flags);

    int ends[2];
    KIT_CHECK(!pipe2(ends, O_CLOEXEC));
    permitd->pid = kit_spawn(arguments.list, ends[1], permitd->log_path);
    close(ends[1]);
    permitd->stdout_fd = ends[0];
    free(plan);
    return permitd;
}

/* Reads one line of its standard output, without the line end. */
static bool read_line(int fd, char line[LINE_SIZE], int ms)
{
    int64_t end = kit_now_us() + (int64_t)ms * 1000;
    size_t length = 0;
    while (length < LINE_SIZE - 1) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        int64_t left = (end - kit_now_us()) / 1000;
        if (left <= 0 || poll(&wait, 1, (int)left) <= 0)
            return false;
        if (read(fd, line + length, 1) != 1)
            return false;
        if (line[length] == '\n')
            break;
        length++;
    }
    line[length] = 0;
    return true;
}

bool kit_permitd_wait_served(struct kit_permitd *permitd, int ms)
{
    char line[LINE_SIZE];
    if (!read_line(permitd->stdout_fd, line, ms))
        return false;
    const char *url = strstr(line, "http://");
    const char *colon = url ? strchr(url + strlen("http://"), ':') : NULL;
    if (strncmp(line, "permitd: listening on ", 22) || !colon || sscanf(colon, ":%u", &permitd->port) != 1)
        kit_fail("permitd printed \"%s\" instead of where it listens", line);
    snprintf(permitd->url, sizeof(permitd->url), "http://127.0.0.1:%u", permitd->port);
    return true;
}

struct kit_memory_plan *kit_memory_plan(char **ret_path)
{
    *ret_path = kit_path("memory");
    int fd = open(*ret_path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    KIT_CHECK(fd >= 0 && !ftruncate(fd, sizeof(struct kit_memory_plan)));
    struct kit_memory_plan *plan = mmap(NULL, sizeof(*plan), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    KIT_CHECK(plan != MAP_FAILED);
    close(fd);
    return plan;
}

struct kit_permitd *kit_permitd_start(const struct kit_permitd_options *options)
{
    struct kit_permitd *permitd = kit_permitd_spawn(options);
    if (!kit_permitd_wait_served(permitd, SERVE_MS))
        kit_fail("permitd does not serve");
    return permitd;
}

int kit_permitd_wait_end(struct kit_permitd *permitd, int ms)
{
    if (!permitd->pid)
        return permitd->end_status;
    int status = kit_wait_pid(permitd->pid, ms);
    if (status != -1) {
        permitd->pid = 0;
        permitd->end_status = status;
    }
    return status;
}

/* Checks the log for reports of a sanitizer, however permitd ended: a killed one may have reported a fault before. */
static void check_for_reports(const struct kit_permitd *permitd)
{
    static const char *const reports[] = {"AddressSanitizer", "LeakSanitizer", "ThreadSanitizer", ": runtime error: "};
    char *log = kit_read_file(permitd->log_path);
    for (size_t i = 0; log && i < sizeof(reports) / sizeof(reports[0]); i++)
        if (strstr(log, reports[i]))
            kit_fail("a sanitizer reports on permitd: %s", strstr(log, reports[i]));
    free(log);
}

static void permitd_free(struct kit_permitd *permitd)
{
    check_for_reports(permitd);
    close(permitd->stdout_fd);
    free(permitd->data_dir);
    free(permitd->log_path);
    free(permitd);
}

void kit_permitd_stop(struct kit_permitd *permitd)
{
    if (!permitd)
        return;
    if (permitd->pid)
        kill(permitd->pid, SIGTERM);
    int status = kit_permitd_wait_end(permitd, STOP_MS);
    if (status == -1)
        kit_fail("permitd does not stop within %d s", STOP_MS / 1000);
    if (!WIFEXITED(status) || WEXITSTATUS(status))
        kit_fail("permitd ended with status 0x%x after SIGTERM", (unsigned)status);
    permitd_free(permitd);
}

void kit_permitd_kill(struct kit_permitd *permitd)
{
    if (!permitd)
        return;
    if (permitd->pid)
        kill(permitd->pid, SIGKILL);
    if (kit_permitd_wait_end(permitd, STOP_MS) == -1)
        kit_fail("permitd survives SIGKILL");
    permitd_free(permitd);
}

void kit_permitd_freeze(struct kit_permitd *permitd)
{
    KIT_CHECK(permitd->pid);
    kit_freeze(permitd->pid);
}

void kit_permitd_thaw(struct kit_permitd *permitd)
{
    KIT_CHECK(permitd->pid && !kill(permitd->pid, SIGCONT));
}
