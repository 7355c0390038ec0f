/* SPDX-License-Identifier: MIT */
/*
 * permitctl run: acquire, run the command, renew meanwhile, release. One thread waits for signals, the end of the
 * command, and the renewer's report that the permit is lost. The renewer has its own thread in libpermit.
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/acquire_cmd.h"
#include "cli/cli.h"
#include "cli/descriptors.h"
#include "cli/environment.h"
#include "cli/job.h"
#include "cli/json_print.h"
#include "cli/report.h"
#include "cli/signals.h"

enum {
    RUN_TTL_MS = 120000,
    RENEW_MS = 10000, /* at most so late the end of the permit is noticed, whatever its ttl */
    KILL_AFTER_MS = 5000,
    END_AFTER_KILL_MS = 5000, /* a process that waits for a disk may end late */
    LEFTOVER_POLL_US = 50000,
    RELEASE_MS = 60000, /* how long a release is tried if nothing else ends the permit soon */
    LINE_MAX_BYTES = 64 * 1024,
    EXIT_NOT_FOUND = 127,
    EXIT_NOT_EXECUTABLE = 126
};

/* Passed on to the command; before the grant they end the wait. */
static const int passed_signals[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGALRM};
/* Taken only while the command runs. */
static const int job_signals[] = {SIGCHLD, SIGTSTP, SIGCONT, SIGWINCH};

struct command_run {
    struct cli *cli;
    struct permit_request *request;
    struct permit_renewer *renewer;
    struct job job;
    struct job_signals signals_before;
    struct environment environment;
    int signal_fd;
    int lost_fd; /* eventfd; written by the renewer's thread */
    bool lost;
    mono_us kill_at; /* time of the KILL; NEVER: none is due */
    bool ended;
    utc_us waiting_since, granted_at, ended_at; /* by this machine's clock, for --report and -v */
};

/* ---- While the command runs ---- */

/* Runs on the renewer's thread, so it only prints a message and notifies the main thread. */
static void on_lost(void *context, enum permit_status status, const char *message)
{
    const struct command_run *run = context;
    (void)cli_error(CLI_LOST, "the permit is lost: %s%s%s", permit_status_word(status), *message ? ": " : "", message);
    (void)eventfd_write(run->lost_fd, 1);
}

static bool continues_when_lost(const struct command_run *run)
{
    return strcmp(run->cli->options.on_lost, "continue") == 0;
}

static bool kills_immediately(const struct command_run *run)
{
    return strcmp(run->cli->options.on_lost, "kill") == 0;
}

static void check_lost(struct command_run *run)
{
    eventfd_t count;
    if (run->lost || eventfd_read(run->lost_fd, &count) != 0)
        return;
    run->lost = true;
    if (continues_when_lost(run) || run->ended)
        return;
    /*
     * End the command: TERM (with CONT, for stopped processes) and 5 s later KILL, or KILL immediately. Both go to
     * every process that the command has started, in any process group.
     */
    pid_t refused;
    (void)!job_signal_all(&run->job, kills_immediately(run) ? SIGKILL : SIGTERM, &refused);
    (void)!job_signal_all(&run->job, SIGCONT, &refused);
    run->kill_at = kills_immediately(run) ? NEVER : clock_mono() + (mono_us)KILL_AFTER_MS * US_PER_MS;
}

/*
 * Continues the command, unless the permit was lost while permitctl was stopped. Then the command must not run before
 * it is told to end.
 */
static void continue_command(struct command_run *run)
{
    if (permit_renewer_holds(run->renewer) || continues_when_lost(run))
        job_continue(&run->job);
    else if (!run->lost)
        (void)eventfd_write(run->lost_fd, 1);
}

/* Passes the signals on. */
static void handle_signals(struct command_run *run)
{
    enum job_state state;
    int stop = 0;
    for (int signal; (signal = signals_next(run->signal_fd));) {
        if (signal == SIGCONT)
            continue_command(run);
        else if (signal != SIGCHLD)
            job_signal(&run->job, signal);
        for (size_t i = 0; i < SIGNALS_ENDING_COUNT; i++)
            if (signals_ending[i] == signal)
                job_continue(&run->job); /* a stopped command would not receive it */
    }
    while ((state = job_poll(&run->job, &stop)) == JOB_STOPPED)
        if (job_stopped(&run->job, stop))
            continue_command(run);
    run->ended = state == JOB_ENDED;
}

static void wait_for_command(struct command_run *run)
{
    struct pollfd events[] = {{.fd = run->signal_fd, .events = POLLIN}, {.fd = run->lost_fd, .events = POLLIN}};
    while (!run->ended) {
        int timeout_ms = -1;
        if (run->kill_at != NEVER)
            timeout_ms = (int)max_i64(0, (run->kill_at - clock_mono() + US_PER_MS - 1) / US_PER_MS);
        (void)poll(events, ARRAY_LENGTH(events), timeout_ms);
        handle_signals(run);
        check_lost(run);
        if (!run->ended && clock_mono() >= run->kill_at) {
            pid_t refused;
            (void)!job_signal_all(&run->job, SIGKILL, &refused);
            run->kill_at = NEVER;
        }
    }
    run->ended_at = clock_wall();
}

/* Signals the processes of the command until all have ended. Returns false if one is left at `end`. */
static bool all_ended_by(const struct command_run *run, int signal, mono_us end, pid_t *ret_refused)
{
    while (job_signal_all(&run->job, signal, ret_refused)) {
        if (clock_mono() >= end)
            return false;
        (void)usleep(LEFTOVER_POLL_US);
    }
    return true;
}

/* Ends every process that the command has left behind, after the permit was lost. */
static void end_leftovers(const struct command_run *run)
{
    pid_t refused = 0;
    if (run->kill_at != NEVER && all_ended_by(run, 0, run->kill_at, &refused))
        return;
    if (all_ended_by(run, SIGKILL, clock_mono() + (mono_us)END_AFTER_KILL_MS * US_PER_MS, &refused))
        return;
    if (refused)
        (void)cli_error(0, "cannot end process %d of the command; it continues without a permit: %s", (int)refused,
                        strerror(EPERM));
    else
        (void)cli_error(0, "a process of the command has not ended; it continues without a permit");
}

/* ---- Afterwards ---- */

/* Returns true if nothing ends the request soon: it has no ttl, or its owner's heartbeat may continue. */
static bool has_no_expiry(const struct permit_request *request)
{
    return request->ttl_ms == PERMIT_TTL_NONE || request->ttl_ms == PERMIT_TTL_OWNER;
}

/*
 * Releases the permit. A signal ends the wait for a server that does not answer; then a last, short try follows. A
 * permit that nothing else ends soon is tried for RELEASE_MS.
 */
static enum permit_status release_permit(const struct command_run *run, struct permit_request **ret_after)
{
    struct permit_client *client = run->cli->client;
    const char *key = run->request->external_id;
    mono_us end = clock_mono() + (has_no_expiry(run->request) ? (mono_us)RELEASE_MS * US_PER_MS : 0);
    sigset_t set;
    sigemptyset(&set);
    permit_client_set_cancel_fd(client, signals_take(run->signal_fd, signals_ending, SIGNALS_ENDING_COUNT, &set));
    for (;;) {
        enum permit_status status = permit_release(client, key, ret_after);
        if (!status)
            return PERMIT_OK;
        if (signals_next(run->signal_fd))
            return acquire_cmd_release(run->cli, key, 0) ? PERMIT_OK : status;
        if (permit_status_retry(status) == PERMIT_RETRY_NEVER || clock_mono() >= end)
            return status;
    }
}

/*
 * Releases the permit and reports failures. Returns the exit status for a command that ended with 0: an error if the
 * permit may still be held and nothing ends it soon.
 */
static int release(struct command_run *run)
{
    struct permit_request *after = NULL;
    enum permit_status status = release_permit(run, &after);
    const char *why = permit_client_message(run->cli->client);
    int code = CLI_OK;
    if (status && has_no_expiry(run->request))
        code = cli_error(cli_exit_of(run->cli, status),
                         "cannot release the permit; it is held until permitctl release %s: %s",
                         run->request->external_id, why);
    else if (status)
        (void)cli_error(0, "cannot release the permit, it will expire: %s", why);
    /* If the server ended the request before this release, the command ran without a permit, if only at its end. */
    if (after && after->already_released && after->end_reason && strcmp(after->end_reason, "released") != 0) {
        (void)cli_error(0, "the permit was lost before the command ended: %s", after->end_reason);
        run->lost = true;
    }
    permit_request_free(after);
    return code;
}

static void add_time(struct json_writer *writer, const char *name, utc_us time)
{
    char text[RFC3339_SIZE];
    (void)clock_format_rfc3339(time, text);
    json_add_text(writer, name, text);
}

static void write_report(const struct command_run *run, int code)
{
    struct json_writer *writer = json_writer_new();
    json_add_text(writer, "external_id", run->request->external_id);
    add_time(writer, "waiting_since", run->waiting_since);
    add_time(writer, "granted_at", run->granted_at);
    add_time(writer, "ended_at", run->ended_at);
    json_add_number(writer, "waited_ms", (run->granted_at - run->waiting_since) / US_PER_MS);
    json_add_number(writer, "ran_ms", (run->ended_at - run->granted_at) / US_PER_MS);
    json_add_permits(writer, "permits", run->request);
    json_add_bool(writer, "lost", run->lost);
    json_add_number(writer, "exit_status", code);
    const char *text = json_text(writer);
    if (!text)
        (void)cli_error(0, "cannot write %s: out of memory", run->cli->options.report);
    else if (!report_write(run->cli->options.report, text))
        (void)cli_error(0, "cannot write %s: %s", run->cli->options.report,
                        errno == ETIMEDOUT ? "no reader" : strerror(errno));
    json_writer_free(writer);
}

/* ---- The whole ---- */

static int exit_code_of_errno(int error)
{
    switch (error) {
    case ENOENT: return EXIT_NOT_FOUND;
    case EAGAIN:
    case ENOMEM:
    case EMFILE:
    case ENFILE: return CLI_NO_START;
    default: return EXIT_NOT_EXECUTABLE;
    }
}

/* Runs the command to its end. Returns the exit status, before it is known whether the permit was lost. */
static int run_command(struct command_run *run)
{
    run->signals_before.death_signal = continues_when_lost(run) ? 0 : kills_immediately(run) ? SIGKILL : SIGTERM;
    descriptors_hide(&run->cli->inherited);
    int error = job_start(&run->job, run->cli->words, &run->signals_before);
    if (error) {
        run->ended = true;
        run->ended_at = clock_wall();
        return cli_error(exit_code_of_errno(error), "%s: %s", run->cli->words[0], strerror(error));
    }
    wait_for_command(run);
    if (run->lost && !continues_when_lost(run))
        end_leftovers(run);
    job_release(&run->job);
    return job_exit_status(&run->job);
}

/* Releases the permit after the command has ended with `code`. Returns the exit status. */
static int release_after_command(struct command_run *run, int code)
{
    int release_code = CLI_OK;
    check_lost(run);
    /* A lost permit has most likely ended, so its release must not delay the caller. */
    if (run->lost)
        (void)acquire_cmd_release(run->cli, run->request->external_id, 0);
    else
        release_code = release(run);
    if (run->lost && !continues_when_lost(run))
        return CLI_LOST;
    return code == CLI_OK ? release_code : code;
}

/* Prepares, runs the command, and releases. Returns the exit status. */
static int run_with_permit(struct command_run *run)
{
    const struct cli_options *given = &run->cli->options;
    struct permit_renewer_options options = {.every_ms = RENEW_MS, .lost = on_lost, .context = run};
    int code = CLI_NO_START;
    if (given->flags[FLAG_VERBOSE]) {
        struct buf line;
        buf_init(&line, LINE_MAX_BYTES);
        for (size_t i = 0; i < run->request->permit_count; i++)
            buf_printf(&line, " %s token %" PRIu64, run->request->permits[i].semaphore, run->request->permits[i].token);
        (void)cli_error(0, "%s granted after %" PRId64 " ms:%s", run->request->external_id,
                        (run->granted_at - run->waiting_since) / US_PER_MS, buf_text(&line));
        buf_release(&line);
    }
    if (!environment_set(&run->environment, run->request, permit_client_answer(run->cli->client),
                         given->flags[FLAG_KEEP_CREDENTIAL]))
        (void)cli_error(code,
                        "cannot create the environment of the command (a long grant needs a file in TMPDIR, %s): %s",
                        environment_directory(), strerror(errno));
    else if (permit_renewer_start(run->cli->client, run->request, &options, &run->renewer))
        (void)cli_error(code, "cannot renew the permit: %s", strerror(errno));
    else
        code = run_command(run);
    environment_release(&run->environment);
    permit_renewer_stop(run->renewer);
    code = release_after_command(run, code);
    if (given->flags[FLAG_VERBOSE])
        (void)cli_error(0, "%s ran %" PRId64 " ms, exit status %d", run->request->external_id,
                        (run->ended_at - run->granted_at) / US_PER_MS, code);
    if (given->report)
        write_report(run, code);
    return code;
}

static int acquire_and_run(struct command_run *run)
{
    sigset_t set;
    sigemptyset(&set);
    run->signal_fd = signals_take(-1, passed_signals, ARRAY_LENGTH(passed_signals), &set);
    run->lost_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (run->signal_fd < 0 || run->lost_fd < 0)
        return cli_error(CLI_NO_START, "no file descriptors left: raise the limit (ulimit -n)");
    int code = CLI_OK;
    const char *path = run->cli->options.report;
    if (path && !report_is_possible(path))
        return cli_error(CLI_NO_START, "cannot write %s: %s", path, strerror(errno));
    struct acquire_cmd cmd = {.ttl_ms = RUN_TTL_MS, .wait_ms = PERMIT_FOREVER, .signal_fd = run->signal_fd};
    run->waiting_since = clock_wall();
    if (!acquire_cmd_run(run->cli, &cmd, &run->request, &code))
        return code;
    run->granted_at = clock_wall();
    if (!run->request->yours) /* another client holds it, and will release it */
        return acquire_cmd_refuse_replay(run->cli, run->request);
    (void)signals_take(run->signal_fd, job_signals, ARRAY_LENGTH(job_signals), &set);
    return run_with_permit(run);
}

int verb_run(struct cli *cli)
{
    struct command_run run = {.cli = cli, .signal_fd = -1, .lost_fd = -1, .kill_at = NEVER, .job = {.terminal = -1}};
    /* SIGTTOU and SIGPIPE must not stop or end permitctl. The command gets them back unchanged. */
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTTOU);
    sigaddset(&set, SIGPIPE);
    (void)sigprocmask(SIG_BLOCK, &set, &run.signals_before.mask);
    /* An inherited ignored SIGCHLD would hide the end of the command from waitpid. */
    run.signals_before.child_ignored = signal(SIGCHLD, SIG_DFL) == SIG_IGN;
    int code = acquire_and_run(&run);
    permit_request_free(run.request);
    if (run.signal_fd >= 0)
        (void)close(run.signal_fd);
    if (run.lost_fd >= 0)
        (void)close(run.lost_fd);
    return code;
}
