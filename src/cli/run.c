/* SPDX-License-Identifier: MIT */
/*
 * permitctl run: acquire, run the command, renew meanwhile, release. One thread waits for signals, the command's end
 * and the renewer's word that the permit is lost; the renewer has a thread of its own in libpermit.
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/ask.h"
#include "cli/cli.h"
#include "cli/descriptors.h"
#include "cli/environment.h"
#include "cli/job.h"
#include "cli/json.h"
#include "cli/report.h"
#include "cli/signals.h"

enum {
    RUN_TTL_MS = 30000,
    KILL_AFTER_MS = 5000,
    GROUP_POLL_US = 20000,
    EXIT_NOT_FOUND = 127,
    EXIT_NOT_EXECUTABLE = 126
};

/* Handed on to the command; while we wait for a permit they end the wait. */
static const int passed_signals[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGALRM};
/* Only while the command runs. */
static const int job_signals[] = {SIGCHLD, SIGTSTP, SIGWINCH};

struct run {
    struct cli *cli;
    struct permit_request *request;
    struct permit_renewer *renewer;
    struct job job;
    sigset_t mask_before;
    int signal_fd;
    int lost_fd; /* an eventfd, written by the renewer's thread */
    bool lost;
    mono_us kill_at; /* NEVER: no KILL is due */
    bool ended;
    utc_us waiting_since, granted_at, ended_at; /* by this machine's clock, for --report and -v */
};

/* ---- Signals ---- */

/* A command must find SIGTTOU and SIGPIPE as we found them; we ourselves must not stop or die by them. */
static void block_own_dangers(struct run *run)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTTOU);
    sigaddset(&set, SIGPIPE);
    (void)sigprocmask(SIG_BLOCK, &set, &run->mask_before);
    /* waitpid finds nothing while SIGCHLD is ignored, which may have been inherited. */
    (void)signal(SIGCHLD, SIG_DFL);
}

/* ---- Acquire ---- */

/* A replay although no answer was lost: the permit is that of another permitctl, which will release it. */
static bool is_of_another(const struct permit_request *request)
{
    return request->replayed && !request->answer_lost;
}

/* False: no permit; *ret_code is the exit status. */
static bool acquire(struct run *run, int *ret_code)
{
    struct ask ask = {.ttl_ms = RUN_TTL_MS, .wait_ms = PERMIT_FOREVER, .signal_fd = run->signal_fd};
    run->waiting_since = clock_wall();
    bool granted = ask_acquire(run->cli, &ask, &run->request, ret_code);
    run->granted_at = clock_wall();
    if (granted && is_of_another(run->request)) {
        *ret_code = cli_complain((int)run->cli->options.exit_code, "somebody else already runs under the key %s",
                                 run->request->external_id);
        return false;
    }
    return granted;
}

/* ---- While the command runs ---- */

/* On the renewer's thread: only a word to the other one. */
static void on_lost(void *context, enum permit_status status, const char *message)
{
    const struct run *run = context;
    (void)cli_complain(CLI_LOST, "the permit is lost: %s%s%s", permit_status_word(status), *message ? ": " : "",
                       message);
    (void)eventfd_write(run->lost_fd, 1);
}

static bool goes_on_when_lost(const struct run *run)
{
    return strcmp(run->cli->options.on_lost, "continue") == 0;
}

/* TERM (with CONT, for one that is stopped) and 5 s later KILL, or KILL at once. */
static void end_command(struct run *run)
{
    bool at_once = strcmp(run->cli->options.on_lost, "kill") == 0;
    job_signal(&run->job, at_once ? SIGKILL : SIGTERM);
    job_continue(&run->job);
    run->kill_at = at_once ? NEVER : clock_mono() + (mono_us)KILL_AFTER_MS * US_PER_MS;
}

static void look_for_loss(struct run *run)
{
    eventfd_t count;
    if (run->lost || eventfd_read(run->lost_fd, &count) != 0)
        return;
    run->lost = true;
    if (!goes_on_when_lost(run) && !run->ended)
        end_command(run);
}

/*
 * Whoever was stopped together with the command may have lost the permit meanwhile: then the command does not get to do
 * anything before it is told to end.
 */
static void handle_stop(struct run *run, int signal)
{
    if (!job_stopped(&run->job, signal))
        return;
    if (permit_renewer_holds(run->renewer) || goes_on_when_lost(run))
        job_continue(&run->job);
    else if (!run->lost)
        (void)eventfd_write(run->lost_fd, 1);
}

static void look_at_job(struct run *run)
{
    int signal = 0;
    enum job_state state;
    while ((state = job_look(&run->job, &signal)) == JOB_STOPPED)
        handle_stop(run, signal);
    run->ended = state == JOB_ENDED;
}

static void handle_signals(struct run *run)
{
    for (int signal = signals_next(run->signal_fd); signal; signal = signals_next(run->signal_fd))
        if (signal != SIGCHLD)
            job_signal(&run->job, signal);
    look_at_job(run);
}

static int poll_timeout(const struct run *run)
{
    if (run->kill_at == NEVER)
        return -1;
    return (int)max_i64(0, (run->kill_at - clock_mono() + US_PER_MS - 1) / US_PER_MS);
}

static void wait_for_command(struct run *run)
{
    struct pollfd events[] = {{.fd = run->signal_fd, .events = POLLIN}, {.fd = run->lost_fd, .events = POLLIN}};
    while (!run->ended) {
        (void)poll(events, ARRAY_LENGTH(events), poll_timeout(run));
        handle_signals(run);
        look_for_loss(run);
        if (!run->ended && clock_mono() >= run->kill_at) {
            job_signal(&run->job, SIGKILL);
            run->kill_at = NEVER;
        }
    }
    run->ended_at = clock_wall();
}

/* The permit is lost and the command has ended: nothing that it started may go on either. */
static void end_group(const struct run *run)
{
    mono_us end = run->kill_at == NEVER ? 0 : run->kill_at;
    while (job_group_exists(&run->job) && clock_mono() < end)
        (void)usleep(GROUP_POLL_US);
    job_signal(&run->job, SIGKILL);
}

/* ---- Afterwards ---- */

/* True if the server ended it before we did: then the command ran without a permit, if only at its end. */
static bool ended_by_server(const struct permit_request *request)
{
    return request->already_released && request->end_reason && strcmp(request->end_reason, "released") != 0;
}

/* Whoever does not want to wait for a server that does not answer sends a signal: then one more try, a short one. */
static enum permit_status give_back(const struct run *run, struct permit_request **ret_after)
{
    struct permit_client *client = run->cli->client;
    sigset_t set;
    sigemptyset(&set);
    permit_client_set_cancel_fd(client, signals_take(run->signal_fd, signals_ending, SIGNALS_ENDING_COUNT, &set));
    enum permit_status status = permit_release(client, run->request->external_id, ret_after);
    bool hurried = status && signals_next(run->signal_fd);
    return hurried && ask_give_back(run->cli, run->request->external_id, 0) ? PERMIT_OK : status;
}

static void release(struct run *run)
{
    struct permit_request *after = NULL;
    if (give_back(run, &after)) {
        (void)cli_complain(0, "the permit could not be given back, and ends with its ttl: %s",
                           permit_client_message(run->cli->client));
    } else if (after && ended_by_server(after)) {
        (void)cli_complain(0, "the permit was lost before the command ended: %s", after->end_reason);
        run->lost = true;
    }
    permit_request_free(after);
}

static void add_time(struct json_writer *writer, const char *name, utc_us time)
{
    char text[RFC3339_SIZE];
    (void)clock_format_rfc3339(time, text);
    json_add_text(writer, name, text);
}

static void report(const struct run *run, int code)
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
        (void)cli_complain(0, "%s cannot be written: no memory", run->cli->options.report);
    else if (!report_write(run->cli->options.report, text))
        (void)cli_complain(0, "%s cannot be written: %s", run->cli->options.report,
                           errno == ETIMEDOUT ? "nobody reads it" : strerror(errno));
    json_writer_free(writer);
}

static void tell_grant(const struct run *run)
{
    const struct permit_request *request = run->request;
    (void)fprintf(stderr, "permitctl: %s granted after %" PRId64 " ms:", request->external_id,
                  (run->granted_at - run->waiting_since) / US_PER_MS);
    for (size_t i = 0; i < request->permit_count; i++)
        (void)fprintf(stderr, " %s token %" PRIu64, request->permits[i].semaphore, request->permits[i].token);
    (void)fputc('\n', stderr);
}

static void tell_end(const struct run *run, int code)
{
    (void)fprintf(stderr, "permitctl: %s ran %" PRId64 " ms, exit status %d\n", run->request->external_id,
                  (run->ended_at - run->granted_at) / US_PER_MS, code);
}

/* ---- The whole ---- */

static int code_of_error(int error)
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

/* Held: runs the command to its end. The exit status, before it is known whether the permit was lost. */
static int run_command(struct run *run)
{
    int death = goes_on_when_lost(run) ? 0 : strcmp(run->cli->options.on_lost, "kill") == 0 ? SIGKILL : SIGTERM;
    descriptors_hide(&run->cli->inherited);
    int error = job_start(&run->job, run->cli->words, &run->mask_before, death);
    if (error) {
        run->ended_at = clock_wall();
        return cli_complain(code_of_error(error), "%s: %s", run->cli->words[0], strerror(error));
    }
    wait_for_command(run);
    if (run->lost && !goes_on_when_lost(run))
        end_group(run);
    job_release(&run->job);
    return job_exit_status(&run->job);
}

/* Held: prepares, runs, and gives back. The exit status. */
static int hold(struct run *run)
{
    const struct cli_options *given = &run->cli->options;
    struct permit_renewer_options options = {.lost = on_lost, .context = run};
    int code = CLI_NO_START;
    if (given->verbose)
        tell_grant(run);
    if (!environment_set(run->request, permit_client_answer(run->cli->client)))
        (void)cli_complain(code, "no memory for the environment of the command");
    else if (permit_renewer_start(run->cli->client, run->request, &options, &run->renewer))
        (void)cli_complain(code, "the permit cannot be renewed: %s", strerror(errno));
    else
        code = run_command(run);
    permit_renewer_stop(run->renewer);
    look_for_loss(run);
    /* What is lost has most likely ended, and whoever waits for us is not kept waiting for it. */
    if (run->lost)
        (void)ask_give_back(run->cli, run->request->external_id, 0);
    else
        release(run);
    if (run->lost && !goes_on_when_lost(run))
        code = CLI_LOST;
    if (given->verbose)
        tell_end(run, code);
    if (given->report)
        report(run, code);
    return code;
}

static int acquire_and_hold(struct run *run)
{
    sigset_t set;
    sigemptyset(&set);
    run->signal_fd = signals_take(-1, passed_signals, ARRAY_LENGTH(passed_signals), &set);
    run->lost_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (run->signal_fd < 0 || run->lost_fd < 0)
        return cli_complain(CLI_NO_START, "no descriptors left");
    int code = CLI_OK;
    const char *path = run->cli->options.report;
    if (path && !report_is_possible(path))
        return cli_complain(CLI_NO_START, "%s cannot be written: %s", path, strerror(errno));
    if (!acquire(run, &code))
        return code;
    (void)signals_take(run->signal_fd, job_signals, ARRAY_LENGTH(job_signals), &set);
    return hold(run);
}

int verb_run(struct cli *cli)
{
    struct run run = {.cli = cli, .signal_fd = -1, .lost_fd = -1, .kill_at = NEVER, .job = {.terminal = -1}};
    block_own_dangers(&run);
    int code = acquire_and_hold(&run);
    permit_request_free(run.request);
    if (run.signal_fd >= 0)
        (void)close(run.signal_fd);
    if (run.lost_fd >= 0)
        (void)close(run.lost_fd);
    return code;
}
