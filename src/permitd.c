/* SPDX-License-Identifier: MIT */
/*
 * permitd: reads the settings (settings.c), listens, starts the database (its own, or connects to yours) and the
 * engine, and serves. While its own database starts, requests are answered 503 with the reason. Each folder has its own
 * task.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "api/access.h"
#include "api/availability_cache.h"
#include "api/hooks.h"
#include "api/principals.h"
#include "api/readiness.h"
#include "api/refusal.h"
#include "api/routes.h"
#include "api/service.h"
#include "api/webhooks.h"
#include "base/clock.h"
#include "base/escape.h"
#include "base/log.h"
#include "base/map.h"
#include "base/memory.h"
#include "base/private_file.h"
#include "base/user.h"
#include "base/uuid.h"
#include "engine/engine.h"
#include "engine/webhooks.h"
#include "http/server.h"
#include "mariadb/data_dir.h"
#include "mariadb/private_server.h"
#include "settings.h"
#include "store/doctor.h"
#include "store/epoch.h"
#include "store/open.h"
#include "store/schema.h"
#include "tasks/liveness_probe.h"
#include "tasks/tasks.h"

enum {
    STOP_GRACE_MS = 5000,          /* for running requests, when permitd stops */
    OWN_DESCRIPTORS = 128,         /* descriptors beside client connections */
    ROW_BYTES = 128 * 1024 * 1024, /* about 200,000 requests */
    SHARED_PAUSE_MS = 1000,
    WEBHOOK_FILE_MAX = 4096,
    SCHEMA_TRIES = 12, /* of an upgrade of the schema that other programs hold up */
    SCHEMA_PAUSE_S = 4,
};
#define TOMBSTONE_US (3600LL * US_PER_SECOND)

struct permitd {
    struct command_line line;
    struct settings settings;
    struct buf message;
    struct private_server *private_server;
    struct database_address own_address; /* of the setting `database` */
    const struct database_address *address;
    struct doctor_options doctor;
    struct probe *probe; /* NULL: no liveness probe */
    struct webhook_policy webhooks;
    struct engine *engine; /* NULL until it has started */
    struct server *server;
    struct service service;      /* for handlers on the loop */
    struct service body_service; /* for handlers on the thread of large bodies */
    bool stopping;               /* a signal asked permitd to stop */
    atomic_bool engine_ready;    /* both services have the engine; atomic, because the thread of large bodies may run
                                    before */
};

static void configure_log(const struct settings *settings)
{
    enum log_level level = LOG_INFO;
    enum log_format format = LOG_TEXT;
    (void)!log_level_from_word(settings->log_level, &level);
    (void)!log_format_from_word(settings->log_format, &format);
    log_configure(level, format);
}

/* Raises the open file limit for max_connections; uses fewer connections if the limit cannot be raised. */
static void raise_file_limit(struct permitd *permitd)
{
    int64_t *max_connections = &permitd->settings.server.max_connections;
    rlim_t wanted = (rlim_t)*max_connections + OWN_DESCRIPTORS;
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted)
        return;
    struct rlimit raised = {.rlim_cur = wanted, .rlim_max = wanted > limit.rlim_max ? wanted : limit.rlim_max};
    if (setrlimit(RLIMIT_NOFILE, &raised) == 0)
        return; /* root may also raise the hard limit */
    raised = (struct rlimit){.rlim_cur = limit.rlim_max, .rlim_max = limit.rlim_max};
    if (setrlimit(RLIMIT_NOFILE, &raised) == 0)
        limit = raised;
    *max_connections = max_i64(1, (int64_t)limit.rlim_cur - OWN_DESCRIPTORS);
    char allowed[24];
    snprintf(allowed, sizeof allowed, "%lld", (long long)*max_connections);
    log_write(LOG_WARN, "the open file limit allows fewer connections than max_connections", "allowed", allowed, NULL);
}

static void signals_fill(sigset_t *ret_signals)
{
    sigemptyset(ret_signals);
    sigaddset(ret_signals, SIGTERM);
    sigaddset(ret_signals, SIGINT);
    sigaddset(ret_signals, SIGHUP);
}

/*
 * Waits without the loop until the private MariaDB has started or failed, or until a signal. The signals stay blocked;
 * SIGHUP is ignored.
 */
static void wait_for_private_server_or_signal(struct permitd *permitd)
{
    sigset_t held;
    signals_fill(&held);
    sigdelset(&held, SIGHUP);
    struct pollfd polled[] = {{.fd = private_server_begun_fd(permitd->private_server), .events = POLLIN},
                              {.fd = signalfd(-1, &held, SFD_CLOEXEC), .events = POLLIN}};
    while (poll(polled, ARRAY_LENGTH(polled), -1) < 0 && errno == EINTR)
        ;
    permitd->stopping = polled[1].revents & POLLIN;
    if (polled[1].fd >= 0)
        close(polled[1].fd);
}

/*
 * Waits without limit until the private MariaDB has started or failed. Meanwhile requests are answered 503 with the
 * reason, and a signal ends the wait.
 */
static bool wait_for_private_server(struct permitd *permitd)
{
    if (permitd->line.action == ACTION_CHECK) {
        wait_for_private_server_or_signal(permitd);
    } else if (!server_run_until(permitd->server, private_server_begun_fd(permitd->private_server))) {
        buf_append_text(&permitd->message, "out of memory");
        return false;
    }
    if (permitd->stopping)
        buf_append_text(&permitd->message, "stopped before the private MariaDB answered");
    return !permitd->stopping && private_server_wait(permitd->private_server, &permitd->message);
}

/* Gives both services a table of principals, whose reference it takes over, and drops the table before it. */
static void use_principals(struct permitd *permitd, struct principals *principals)
{
    struct principals *before = atomic_exchange(&permitd->service.principals, principals);
    atomic_store(&permitd->body_service.principals, principals);
    principals_unref(before);
}

/* Loads the credentials for the start. `user`: the file must belong to this user or to root. */
static bool open_credentials(struct permitd *permitd, uid_t user)
{
    if (!permitd->settings.credentials)
        return true;
    struct principals *principals = principals_load_of(permitd->settings.credentials, user, &permitd->message);
    if (principals)
        use_principals(permitd, principals);
    return principals;
}

/*
 * Loads the credentials before anything else is done. If permitd may still become the owner of the data directory, the
 * file may belong to any user: open_database loads it again as the final user, who must be able to read it at a reload.
 */
static bool open_credentials_first(struct permitd *permitd)
{
    struct stat file;
    bool is_final = geteuid() != 0 || !permitd->settings.data_dir;
    bool is_known = permitd->settings.credentials && stat(permitd->settings.credentials, &file) == 0;
    return open_credentials(permitd, !is_final && is_known ? file.st_uid : geteuid());
}

/* Reads webhook_secret, whose file must belong to the user of the process or to root, and sets the rest of the policy. */
static bool load_webhooks(struct permitd *permitd, struct buf *message)
{
    const struct settings *settings = &permitd->settings;
    struct webhook_policy policy = {.may_be_private = settings->webhook_private};
    const char *fault = NULL;
    struct buf content;
    bool readable = true;
    snprintf(policy.hosts, sizeof policy.hosts, "%s", settings->webhook_hosts ? settings->webhook_hosts : "");
    if (settings->webhook_secret) {
        readable = private_file_read(settings->webhook_secret, geteuid(), WEBHOOK_FILE_MAX, &content, message);
        if (readable)
            fault = webhook_read_secrets((struct bytes){content.data, content.length}, &policy);
        buf_release(&content);
    }
    if (fault)
        buf_printf(message, "webhook_secret: %s: %s", settings->webhook_secret, fault);
    if (!readable || fault) { /* the secrets of before stay */
        memcpy(policy.secrets, permitd->webhooks.secrets, sizeof policy.secrets);
        policy.secret_count = permitd->webhooks.secret_count;
    }
    permitd->webhooks = policy;
    return readable && !fault;
}

static struct data_dir_user data_dir_user_of(const struct settings *settings)
{
    return (struct data_dir_user){.name = settings->user, .allow_root = settings->allow_root};
}

/* Only root can become another user. */
static bool check_user(struct permitd *permitd)
{
    uid_t uid;
    gid_t gid;
    const char *user = permitd->settings.user;
    if (!user || geteuid() == 0)
        return true;
    if (!user_find(user, &uid, &gid, &permitd->message))
        return false;
    if (uid != geteuid())
        buf_printf(&permitd->message, "only root can become the user %s", user);
    return uid == geteuid();
}

/*
 * Becomes the user that permitd remains: the owner of the data directory, or that of --user. Opens what must belong to
 * this user: the data directory and the Unix sockets.
 */
static bool become_final_user(struct permitd *permitd)
{
    const struct settings *settings = &permitd->settings;
    const struct private_server_options options = {
        .directory = settings->data_dir, .user = data_dir_user_of(settings), .buffer_pool = settings->buffer_pool};
    uid_t uid;
    gid_t gid;
    if (settings->data_dir) {
        if (!private_server_open(&options, &permitd->private_server, &permitd->message))
            return false;
    } else if (settings->user && geteuid() == 0) { /* with --database no other user is known */
        if (!user_find(settings->user, &uid, &gid, &permitd->message) || !user_become(uid, gid, &permitd->message))
            return false;
    }
    return !permitd->server || server_open_paths(permitd->server, &permitd->message);
}

static bool open_database(struct permitd *permitd)
{
    struct settings *settings = &permitd->settings;
    permitd->doctor.unsafe_multi_writer = settings->unsafe_multi_writer;
    if (!become_final_user(permitd) || !load_webhooks(permitd, &permitd->message))
        return false;
    if (settings->data_dir) {
        permitd->address = private_server_address(permitd->private_server);
        bool ready = open_credentials(permitd, geteuid()) &&
                     private_server_begin(permitd->private_server, &permitd->message) &&
                     wait_for_private_server(permitd);
        if (ready && geteuid() == 0)
            log_write(LOG_WARN, "the private MariaDB runs as root, as allow_root says: a fault in it has all rights",
                      NULL);
        return ready;
    }
    if (!database_address_parse(settings->database, &permitd->own_address, &permitd->message))
        return false;
    if (settings->database_password) {
        free(permitd->own_address.password);
        permitd->own_address.password = strdup(settings->database_password);
    }
    permitd->address = &permitd->own_address;
    return true;
}

/* Logs the warnings; with --check prints all findings on standard output. */
static void show_report(const struct permitd *permitd, const struct doctor_report *report)
{
    struct buf text;
    buf_init(&text, 64 * 1024);
    if (permitd->line.action == ACTION_CHECK) {
        doctor_print(report, DOCTOR_OK, &text);
        fputs(buf_text(&text), stdout);
    } else {
        for (size_t i = 0; i < report->count; i++)
            if (report->findings[i].verdict == DOCTOR_WARN)
                log_write(LOG_WARN, "database setting warning", "check", report->findings[i].check, "finding",
                          report->findings[i].sentence, NULL);
    }
    buf_release(&text);
}

/* Checks the database settings. permitd does not serve on settings that would break a promise (P14). */
static enum permit_status examine_database(struct permitd *permitd, struct store *store)
{
    struct doctor_report report;
    enum permit_status status = store->session->doctor(store, &report);
    if (status != PERMIT_OK) {
        buf_printf(&permitd->message, "cannot check the database: %s", store->message);
        return status;
    }
    show_report(permitd, &report);
    if (!report.refusals)
        return PERMIT_OK;
    buf_append_text(&permitd->message, "unsafe database settings");
    if (permitd->line.action != ACTION_CHECK) { /* --check has printed all findings */
        buf_append_text(&permitd->message, ":\n");
        doctor_print(&report, DOCTOR_REFUSE, &permitd->message);
    }
    return PERMIT_DATABASE_UNAVAILABLE;
}

/* Runs the loop for this time; requests are answered 503. A signal ends it. */
static void serve_for(struct permitd *permitd, int seconds)
{
    const struct itimerspec once = {.it_value.tv_sec = seconds};
    int timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (timer < 0)
        return;
    if (timerfd_settime(timer, 0, &once, NULL) != 0 || !server_run_until(permitd->server, timer))
        log_write(LOG_WARN, "no memory to serve during the pause", NULL);
    close(timer);
}

/*
 * Upgrades the schema. A statement that waits for the open transaction of another program stalls all that come after it,
 * so it waits for 1 s only, and is tried again after a pause.
 */
static enum permit_status apply_schema(struct permitd *permitd, struct store *store)
{
    enum permit_status status = store->schema->apply(store, &permitd->message);
    for (int tries = 1; status == PERMIT_LOCK_TIMEOUT && tries < SCHEMA_TRIES && !permitd->stopping; tries++) {
        log_write(LOG_WARN, "the upgrade of the schema waits for an open transaction on these tables, retrying",
                  "error", buf_text(&permitd->message), NULL);
        serve_for(permitd, SCHEMA_PAUSE_S);
        buf_clear(&permitd->message);
        if (!permitd->stopping)
            status = store->schema->apply(store, &permitd->message);
    }
    return status;
}

static enum permit_status prepare_store(struct permitd *permitd, struct store *store)
{
    bool checks = permitd->line.action == ACTION_CHECK;
    enum permit_status status = store->session->reconnect(store);
    if (status != PERMIT_OK) {
        buf_append_text(&permitd->message, "the database at ");
        database_address_print(permitd->address, &permitd->message);
        buf_printf(&permitd->message, " cannot be used: %s", store->message);
        return status;
    }
    if (checks) { /* changes nothing, so that an operator can check a new permitd before it replaces an older one */
        unsigned version;
        status = store->schema->version(store, &version, &permitd->message);
        if (status == PERMIT_OK && version < schema_newest())
            printf("schema: version %u; permitd upgrades it to %u when it starts\n", version, schema_newest());
    } else {
        status = apply_schema(permitd, store);
    }
    if (status == PERMIT_OK)
        status = examine_database(permitd, store);
    if (status != PERMIT_OK || checks)
        return status;
    /* Detects, before the first grant, a failover or an older copy of the database from while no permitd ran. */
    struct epoch_advance advance = {.cause = EPOCH_SERVER, .hold_ms = permitd->settings.engine.failover_hold_ms};
    status = store->clock->advance_epoch(store, &advance);
    if (status != PERMIT_OK)
        buf_printf(&permitd->message, "cannot read the identity of the database: %s", store->message);
    return status;
}

/* Connects once, so that wrong settings end the start with a message. Upgrades the schema and checks the database. */
static bool prepare_database(struct permitd *permitd)
{
    struct store *store = store_open(permitd->address, STORE_SCHEMA, &permitd->doctor);
    if (!store) {
        buf_append_text(&permitd->message, "out of memory");
        return false;
    }
    enum permit_status status = prepare_store(permitd, store);
    store_free(store);
    return status == PERMIT_OK;
}

static struct store *open_store(void *context, enum store_use use)
{
    const struct permitd *permitd = context;
    return store_open(permitd->address, use, &permitd->doctor);
}

/* Sets the members of the engine's settings that are not in its table. */
static void complete_engine_settings(struct permitd *permitd)
{
    struct settings *settings = &permitd->settings;
    struct engine_settings *engine = &settings->engine;
    const bool named = settings->advertise && *settings->advertise;
    engine->max_pending_ends = 4 * engine->max_pending;
    engine->row_bytes = ROW_BYTES;
    engine->request_timeout_ms = settings->server.request_timeout_ms;
    engine->shared_pause_ms = SHARED_PAUSE_MS;
    engine->open_store = open_store;
    engine->open_context = permitd;
    engine->ask_probe = permitd->probe ? probe_ask_all : NULL;
    engine->probe_context = permitd->probe;
    engine->write_webhook = webhook_write_event;
    engine->address = named ? settings->advertise : server_url_at(permitd->server, 0);
    engine->version = PERMIT_VERSION;
    engine->tasks = tasks_all;
    engine->task_count = TASK_COUNT;
}

static void on_stop(void *context)
{
    struct permitd *permitd = context;
    log_write(LOG_INFO, "stopping", NULL);
    permitd->stopping = true;
    server_stop(permitd->server, STOP_GRACE_MS);
    if (permitd->engine)
        engine_end_waits(permitd->engine);
}

/*
 * Reads the credentials again, even if the settings cannot be read: a mistake there must not keep a credential that was
 * taken away.
 */
static void reload_credentials(struct permitd *permitd)
{
    const char *path = permitd->settings.credentials;
    struct buf message;
    if (!path)
        return;
    buf_init(&message, 16 * 1024);
    struct principals *principals = principals_load(path, &message);
    permitd->service.credentials_reload_failed = !principals;
    if (principals) {
        char count[24];
        snprintf(count, sizeof count, "%zu", principals_count(principals));
        use_principals(permitd, principals);
        server_recheck(permitd->server);
        log_write(LOG_INFO, "credentials reloaded", "principals", count, NULL);
    } else {
        log_write(LOG_ERROR, "credentials reload failed, the earlier ones stay", "why", buf_text(&message), NULL);
    }
    buf_release(&message);
}

static void reload_webhooks(struct permitd *permitd)
{
    struct buf message;
    buf_init(&message, 16 * 1024);
    if (!load_webhooks(permitd, &message))
        log_write(LOG_ERROR, "webhook_secret reload failed, the earlier one stays", "why", buf_text(&message), NULL);
    if (permitd->engine)
        engine_set_webhook_policy(permitd->engine, &permitd->webhooks);
    buf_release(&message);
}

static void on_reload(void *context)
{
    struct permitd *permitd = context;
    struct settings fresh = {0};
    struct buf message;
    buf_init(&message, 16 * 1024);
    reload_credentials(permitd);
    if (settings_load(&permitd->line, &fresh, &message)) {
        settings_reload(&permitd->settings, &fresh, &message);
        configure_log(&permitd->settings);
        raise_file_limit(permitd);
        complete_engine_settings(permitd);
        if (permitd->engine)
            engine_reload(permitd->engine, &permitd->settings.engine);
        server_reload(permitd->server, &permitd->settings.server);
        reload_webhooks(permitd);
        log_write(LOG_INFO, "settings reloaded", "needs_restart", buf_text(&message), NULL);
    } else {
        log_write(LOG_ERROR, "settings reload failed", "why", buf_text(&message), NULL);
    }
    settings_release(&fresh);
    buf_release(&message);
}

static bool database_is_unavailable(void *context, char ret_sentence[STORE_MESSAGE_SIZE])
{
    struct permitd *permitd = context;
    if (permitd->private_server && private_server_is_unavailable(permitd->private_server, ret_sentence))
        return true;
    if (atomic_load(&permitd->engine_ready))
        return false;
    snprintf(ret_sentence, STORE_MESSAGE_SIZE, "permitd is starting");
    return true;
}

static void service_init(struct permitd *permitd, struct service *service)
{
    *service = (struct service){
        .doctor = &permitd->doctor,
        .started_at = clock_mono(),
        .settings = &permitd->settings.service,
        .engine_settings = &permitd->settings.engine,
        .database = permitd->settings.data_dir ? "private" : "external",
        .is_unavailable = database_is_unavailable,
        .is_unavailable_context = permitd,
    };
    buf_init(&service->message, 16 * 1024);
}

static bool open_services(struct permitd *permitd)
{
    service_init(permitd, &permitd->service);
    service_init(permitd, &permitd->body_service);
    struct access *access = access_new();
    struct readiness *readiness = readiness_new();
    struct refusals *refusals = refusals_new();
    struct availability_cache *availability = availability_cache_new();
    permitd->service.access = permitd->body_service.access = access;
    permitd->service.readiness = permitd->body_service.readiness = readiness;
    permitd->service.refusals = permitd->body_service.refusals = refusals;
    permitd->service.availability = permitd->body_service.availability = availability;
    if (!access || !readiness || !refusals || !availability)
        return false;
    struct server_settings *settings = &permitd->settings.server;
    permitd->settings.engine.plan.tombstone_us = TOMBSTONE_US;
    settings->has_credentials = permitd->settings.credentials != NULL;
    settings->hooks = &api_hooks;
    settings->service = &permitd->service;
    settings->body_service = &permitd->body_service;
    return server_open(settings, &permitd->server, &permitd->message);
}

/* Starts permitd. Listeners are opened before the database is started, so that an unusable address fails early. */
static bool start(struct permitd *permitd)
{
    const char *liveness_url = permitd->settings.liveness_url;
    struct buf *message = &permitd->message;
    if (!open_services(permitd) || !open_credentials_first(permitd))
        return false;
    if (liveness_url && *liveness_url) {
        permitd->probe = probe_new(liveness_url, permitd->settings.liveness_ca, message);
        if (!permitd->probe)
            return false;
    }
    if (!server_on_signal(permitd->server, SIGTERM, on_stop, permitd) ||
        !server_on_signal(permitd->server, SIGINT, on_stop, permitd) ||
        !server_on_signal(permitd->server, SIGHUP, on_reload, permitd))
        return false;
    if (!open_database(permitd) || !prepare_database(permitd))
        return false;
    complete_engine_settings(permitd);
    if (!engine_start(&permitd->settings.engine, &permitd->engine, message))
        return false;
    engine_set_webhook_policy(permitd->engine, &permitd->webhooks);
    permitd->service.engine = permitd->body_service.engine = permitd->engine;
    atomic_store(&permitd->engine_ready, true);
    return true;
}

/* Runs --check. An existing private database is started for it; a missing one is not created. */
static bool check(struct permitd *permitd)
{
    const char *data_dir = permitd->settings.data_dir;
    const struct data_dir_user user = data_dir_user_of(&permitd->settings);
    bool is_made = true;
    if (!server_check(&permitd->settings.server, &permitd->message))
        return false;
    if (!open_credentials_first(permitd))
        return false;
    if (permitd->service.principals)
        printf("credentials: %zu principals in %s\n", principals_count(permitd->service.principals),
               permitd->settings.credentials);
    if (data_dir && !data_dir_check(data_dir, &user, &is_made, &permitd->message))
        return false;
    if (is_made)
        return open_database(permitd) && prepare_database(permitd);
    printf("there is no database in %s; permitd creates one when it starts\n", data_dir);
    return true;
}

/* Stops the parts in reverse order; the private MariaDB last. */
static void stop(struct permitd *permitd)
{
    if (permitd->engine)
        engine_stop(permitd->engine);
    server_free(permitd->server);
    if (permitd->engine)
        engine_free(permitd->engine);
    access_free(permitd->service.access);
    readiness_free(permitd->service.readiness);
    refusals_free(permitd->service.refusals);
    availability_cache_free(permitd->service.availability);
    use_principals(permitd, NULL);
    probe_free(permitd->probe);
    private_server_stop(permitd->private_server);
    database_address_release(&permitd->own_address);
    buf_release(&permitd->service.message);
    buf_release(&permitd->body_service.message);
}

static bool run(struct permitd *permitd)
{
    const struct settings *settings = &permitd->settings;
    const bool serves = permitd->line.action == ACTION_SERVE;
    const char *url;
    struct buf names;
    sigset_t held;
    signal(SIGPIPE, SIG_IGN);
    /* The loop reads these signals when it runs. A stop in the middle of the start would leave a mariadbd running. */
    signals_fill(&held);
    pthread_sigmask(SIG_BLOCK, &held, NULL);
    configure_log(&permitd->settings);
    /* They look like settings, and are those of a service or container with the name permitd. */
    buf_init(&names, 16 * 1024);
    settings_name_service_variables(&names);
    if (names.length)
        log_write(LOG_INFO, "variables of a Kubernetes service or a linked container are ignored", "variables",
                  buf_text(&names), NULL);
    buf_release(&names);
    raise_file_limit(permitd);
    map_seed(random_u64(), random_u64());
    memory_configure();
    if (!store_library_begin()) {
        buf_append_text(&permitd->message, "cannot initialize the database library");
        return false;
    }
    bool started = false;
    if (!settings->data_dir == !settings->database)
        buf_append_text(&permitd->message,
                        settings->database
                            ? "data_dir and database exclude each other: give one of them"
                            : "give --data-dir DIR for a private MariaDB in DIR, or --database URL for your own");
    else
        started = check_user(permitd) && (serves ? start(permitd) : check(permitd));
    if (started && serves) {
        for (size_t i = 0; (url = server_url_at(permitd->server, i)); i++)
            printf("permitd: listening on %s\n", url);
        fflush(stdout);
        server_run(permitd->server);
        engine_stop(permitd->engine);
        server_flush(permitd->server);
    }
    stop(permitd);
    store_library_end();
    return started || (permitd->stopping && serves);
}

static bool run_action(struct permitd *permitd)
{
    switch (permitd->line.action) {
    case ACTION_HELP: settings_print_help(); return true;
    case ACTION_VERSION: printf("permitd %s\n", PERMIT_VERSION); return true;
    case ACTION_MARKDOWN: settings_print_markdown(); return true;
    case ACTION_ROUTES: routes_print(stdout); return true;
    case ACTION_CHECK:
    case ACTION_SERVE: break;
    }
    return settings_load(&permitd->line, &permitd->settings, &permitd->message) && run(permitd);
}

/* Prints why permitd ends. The lines may have text of the command line, of a file, or of MariaDB's log. */
static void print_failure(struct buf *message)
{
    for (size_t at = 0; at < message->length; at++) {
        size_t length = strcspn(message->data + at, "\n");
        escape_control_chars(message->data + at, length);
        at += length;
    }
    fprintf(stderr, "permitd: %s\n", message->length ? buf_text(message) : "cannot start");
}

int main(int argc, char **argv)
{
    struct permitd permitd = {.line = {.argc = argc, .argv = argv}};
    buf_init(&permitd.message, 64 * 1024);
    bool good = command_line_scan(&permitd.line, &permitd.message) && run_action(&permitd);
    if (!good)
        print_failure(&permitd.message);
    settings_release(&permitd.settings);
    buf_release(&permitd.message);
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
