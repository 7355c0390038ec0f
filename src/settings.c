/* SPDX-License-Identifier: MIT */
#include "settings.h"

#include <stdio.h>

#include "base/help.h"
#include "core/name.h"
#include "store/servers.h"

/* ---- the table ---- */

#define AT(member) offsetof(struct settings, member)
#define DAY_MS     (24LL * 3600 * 1000)

static const char *const log_levels[] = {"debug", "info", "warn", "error", NULL};
static const char *const log_formats[] = {"text", "json", NULL};

/* docs/config.md is printed from this table (permitd --print-config-markdown). */
static const struct config_row setting_rows[] = {
    {.name = "listen",
     .type = CONFIG_LIST,
     .offset = AT(listen),
     .default_text = "127.0.0.1:7070",
     .placeholder = "ADDRESS",
     .help = "Where the HTTP server listens: ADDRESS:PORT or http://ADDRESS:PORT, https://ADDRESS:PORT for TLS, or "
             "unix:PATH for a Unix socket. May be given several times, or with commas between the addresses. Addresses "
             "other than loopback require https and credentials. Port 0 chooses a free port and prints it."},
    {.name = "insecure",
     .type = CONFIG_BOOL,
     .offset = AT(insecure),
     .default_text = "false",
     .help = "Listen on addresses other than loopback without TLS or without credentials. Every client that can "
             "connect there may do everything, or can be overheard. The log warns of it each hour."},
    {.name = "tls_certificate",
     .type = CONFIG_TEXT,
     .offset = AT(tls_certificate),
     .flags = CONFIG_RELOADABLE,
     .placeholder = "FILE",
     .help = "Certificate (PEM) of the https listeners, followed by the certificates of its authorities. SIGHUP reads "
             "the file again."},
    {.name = "tls_key",
     .type = CONFIG_TEXT,
     .offset = AT(tls_key),
     .flags = CONFIG_RELOADABLE,
     .placeholder = "FILE",
     .help =
         "Private key (PEM) of tls_certificate. Only the user of permitd may read the file; a group may read one of "
         "root. SIGHUP reads the file again."},
    {.name = "tls_client_ca",
     .type = CONFIG_TEXT,
     .offset = AT(tls_client_ca),
     .flags = CONFIG_RELOADABLE,
     .placeholder = "FILE",
     .help = "Certificates (PEM) of the authorities of clients. With it clients may authenticate by a certificate; a "
             "certificate of another authority is refused. SIGHUP reads the file again."},
    {.name = "tls_handshakes",
     .type = CONFIG_NUMBER,
     .offset = AT(tls_handshakes),
     .default_text = "200",
     .min = 1,
     .max = 100000,
     .flags = CONFIG_RELOADABLE,
     .help = "Maximum number of TLS handshakes that begin in a second; the clients beyond it wait. A handshake costs "
             "the time of about ten requests, so that this limit keeps clients that all connect at once from delaying "
             "the others."},
    {.name = "credentials",
     .type = CONFIG_TEXT,
     .offset = AT(credentials),
     .placeholder = "FILE",
     .help =
         "File of the principals, their credentials and rights (security.md). Its mode is 0600 or stricter. It is read "
         "again on SIGHUP; while it has a mistake, the last good version stays in use. Without this setting every "
         "client may do everything."},
    {.name = "advertise",
     .type = CONFIG_TEXT,
     .offset = AT(advertise),
     .placeholder = "URL",
     .help =
         "Address under which this permitd is listed (GET /v1/servers): where people and programs on other machines "
         "reach it. By default the URL of the first listener."},
    {.name = "allowed_hosts",
     .type = CONFIG_TEXT,
     .offset = AT(allowed_hosts),
     .flags = CONFIG_RELOADABLE,
     .placeholder = "NAMES",
     .help = "Host names that clients may use in URLs, separated by commas. Addresses and localhost are always served. "
             "A request for another host is answered 421, because a web page could have chosen the name."},
    {.name = "data_dir",
     .type = CONFIG_TEXT,
     .offset = AT(data_dir),
     .placeholder = "DIR",
     .help = "Run on a private MariaDB in this directory, which is created if it is missing."},
    {.name = "user",
     .type = CONFIG_TEXT,
     .offset = AT(user),
     .placeholder = "NAME",
     .help = "User that permitd becomes, with its MariaDB, if it is started as root. By default the owner of the data "
             "directory; a new one is given to the user permitd or mysql."},
    {.name = "allow_root",
     .type = CONFIG_BOOL,
     .offset = AT(allow_root),
     .default_text = "false",
     .help = "Let the private MariaDB run as root, in a data directory of root. Only for containers and trials."},
    {.name = "buffer_pool",
     .type = CONFIG_SIZE,
     .offset = AT(buffer_pool),
     .default_text = "256MiB",
     .min = 32LL << 20,
     .max = 1LL << 44,
     .help =
         "Memory of the private MariaDB for rows and indexes (innodb_buffer_pool_size). The default does not depend "
         "on the machine: give it what the requests that are kept need (operating.md)."},
    {.name = "database",
     .type = CONFIG_TEXT,
     .offset = AT(database),
     .placeholder = "URL",
     .help = "Run on your own MariaDB or MySQL: mysql://user:password@host:port/name, also with ?socket=PATH, "
             "ssl_ca=FILE or ssl=verify, ssl_cert=FILE and ssl_key=FILE."},
    {.name = "database_password",
     .type = CONFIG_TEXT,
     .offset = AT(database_password),
     .flags = CONFIG_SECRET,
     .placeholder = "TEXT",
     .help = "Password of the database user. Safer in the environment or the settings file than in the URL."},
    {.name = "unsafe_multi_writer",
     .type = CONFIG_BOOL,
     .offset = AT(unsafe_multi_writer),
     .default_text = "false",
     .help = "Serve a cluster in which several servers accept writes. permitd's promises do not hold there."},
    {.name = "workers",
     .type = CONFIG_NUMBER,
     .offset = AT(workers),
     .default_text = "2",
     .min = 1,
     .max = 64,
     .help = "Database connections that run batches. Each has a thread."},
    {.name = "max_connections",
     .type = CONFIG_NUMBER,
     .offset = AT(max_connections),
     .default_text = "16384",
     .min = 1,
     .max = 1000000,
     .flags = CONFIG_RELOADABLE,
     .help = "Maximum number of client connections. A new connection beyond it closes the connection that has been "
             "idle longest; while none is idle, it waits to be accepted."},
    {.name = "max_connections_per_address",
     .type = CONFIG_NUMBER,
     .offset = AT(max_connections_per_address),
     .default_text = "0",
     .min = 0,
     .max = 1000000,
     .flags = CONFIG_RELOADABLE,
     .help = "Maximum number of connections from one address (IPv6: from one /64). While none of them is idle, a new "
             "one is answered 429 and closed. 0: a quarter of max_connections."},
    {.name = "max_memory",
     .type = CONFIG_SIZE,
     .offset = AT(max_memory),
     .default_text = "256MiB",
     .min = 64LL << 20,
     .max = 1LL << 40,
     .flags = CONFIG_RELOADABLE,
     .help = "Limit of permitd's resident memory, without its private MariaDB. Requests and answers share the memory "
             "that the rest of permitd leaves. When it is used up, requests and answers of more than 2 KiB are refused "
             "with 503."},
    {.name = "max_pending",
     .type = CONFIG_NUMBER,
     .offset = AT(max_pending),
     .default_text = "16384",
     .min = 1,
     .max = 1000000,
     .flags = CONFIG_RELOADABLE,
     .help = "Maximum number of undecided acquires and calls about semaphores and owners; more are answered 429. "
             "Releases, renewals and confirms together have a limit of four times as many. Queries, lists and changes "
             "of templates have a limit of 10,000 each."},
    {.name = "max_wait",
     .type = CONFIG_DURATION,
     .offset = AT(max_wait_ms),
     .default_text = "10m",
     .min = 0,
     .max = DAY_MS,
     .flags = CONFIG_RELOADABLE,
     .help = "Longest wait of an acquire. 0: waiting is off."},
    {.name = "max_waiters",
     .type = CONFIG_NUMBER,
     .offset = AT(max_waiters),
     .default_text = "50000",
     .min = 0,
     .max = 1000000,
     .flags = CONFIG_RELOADABLE,
     .help = "Maximum number of requests that wait at this permitd; more are answered 429. Each client that waits also "
             "needs a connection (max_connections)."},
    {.name = "max_semaphore_waiters",
     .type = CONFIG_NUMBER,
     .offset = AT(max_semaphore_waiters),
     .default_text = "50000",
     .min = 0,
     .max = 1000000,
     .flags = CONFIG_RELOADABLE,
     .help = "Maximum number of requests that wait for one semaphore, at all permitd together; more are answered 429."},
    {.name = "max_owner_waiters",
     .type = CONFIG_NUMBER,
     .offset = AT(max_owner_waiters),
     .default_text = "0",
     .min = 0,
     .max = 1000000,
     .flags = CONFIG_RELOADABLE,
     .help = "Maximum number of requests of one owner that wait at this permitd; more are answered 429. Requests "
             "without an owner are not counted. 0: no limit."},
    {.name = "max_waiting_bytes",
     .type = CONFIG_SIZE,
     .offset = AT(max_waiting_bytes),
     .default_text = "64MiB",
     .min = 1LL << 20,
     .max = 1LL << 40,
     .flags = CONFIG_RELOADABLE,
     .help = "Memory for the slots that the requests that wait at this permitd name; more are answered 429."},
    {.name = "max_semaphores",
     .type = CONFIG_NUMBER,
     .offset = AT(max_semaphores),
     .default_text = "1000000",
     .min = 0,
     .max = 1000000000,
     .flags = CONFIG_RELOADABLE,
     .help = "Approximate number of semaphores, retired ones included, at which templates stop creating more: an "
             "acquire that needs a new one is answered 429. PUT has no such limit."},
    {.name = "max_slots",
     .type = CONFIG_NUMBER,
     .offset = AT(max_slots),
     .default_text = "10000000",
     .min = 0,
     .max = 1000000000000,
     .flags = CONFIG_RELOADABLE,
     .help =
         "Approximate number of units of all slotted semaphores; each is a row of about 70 bytes. A PUT that needs "
         "more, and an acquire that would create such a semaphore from a template, are answered 429. 0: unlimited."},
    {.name = "wait_poll",
     .type = CONFIG_DURATION,
     .offset = AT(wait_poll_ms),
     .default_text = "20ms",
     .min = 5,
     .max = 60 * 1000,
     .flags = CONFIG_RELOADABLE,
     .help = "Interval at which a permitd with waiting clients reads its mail: the requests that another permitd has "
             "granted, or that it has to try again."},
    {.name = "backfill_bound",
     .type = CONFIG_DURATION,
     .offset = AT(backfill_bound_ms),
     .default_text = "30s",
     .min = 0,
     .max = DAY_MS,
     .flags = CONFIG_RELOADABLE,
     .help = "With queue backfill, no request passes a waiter older than this; freed units are reserved for it."},
    {.name = "short_path",
     .type = CONFIG_BOOL,
     .offset = AT(short_path),
     .default_text = "on",
     .flags = CONFIG_RELOADABLE,
     .help =
         "Batches of requests whose rows this permitd knows go to the database in one packet, which proves that the "
         "rows are still so. off: every batch locks and reads its rows first."},
    {.name = "request_timeout",
     .type = CONFIG_DURATION,
     .offset = AT(request_timeout_ms),
     .default_text = "10s",
     .min = 100,
     .max = 3600 * 1000,
     .flags = CONFIG_RELOADABLE,
     .help = "A request that is not decided within this time plus its wait is answered 503."},
    {.name = "idle_timeout",
     .type = CONFIG_DURATION,
     .offset = AT(idle_timeout_ms),
     .default_text = "60s",
     .min = 100,
     .max = DAY_MS,
     .flags = CONFIG_RELOADABLE,
     .help = "A connection is closed if its request is not complete, or none of its answer is read, within this time."},
    {.name = "default_ttl",
     .type = CONFIG_DURATION,
     .offset = AT(default_ttl_ms),
     .default_text = "10m",
     .min = 1,
     .max = 3660 * DAY_MS,
     .flags = CONFIG_RELOADABLE,
     .help = "default_ttl of a semaphore that is created without one; its max_ttl if that is shorter. Existing "
             "semaphores keep theirs."},
    {.name = "retention",
     .type = CONFIG_DURATION,
     .offset = AT(retention_ms),
     .default_text = "7d",
     .min = 3600 * 1000,
     .max = 3660 * DAY_MS,
     .flags = CONFIG_RELOADABLE,
     .help = "How long the key of an ended request is remembered. retention_rows can shorten it."},
    {.name = "retention_rows",
     .type = CONFIG_NUMBER,
     .offset = AT(retention_rows),
     .default_text = "10000000",
     .min = 100000,
     .max = 1000000000000,
     .flags = CONFIG_RELOADABLE,
     .help = "Number of requests that are kept. Ended requests beyond the newest of this number are deleted before "
             "their retention has passed, but not within an hour of their end."},
    {.name = "failover_hold",
     .type = CONFIG_DURATION,
     .offset = AT(failover_hold_ms),
     .default_text = "5s",
     .min = 0,
     .max = 3600 * 1000,
     .flags = CONFIG_RELOADABLE,
     .help = "How long nothing is granted after permitd detected a failover or an older copy of the database."},
    {.name = "liveness_url",
     .type = CONFIG_TEXT,
     .offset = AT(liveness_url),
     .placeholder = "URL",
     .help =
         "URL that tells whether an owner is alive: http://HOST:PORT/PATH or https://... with {owner} for its name. "
         "200 means alive; 404 or 410, twice in a row, ends the requests of the owner; any other answer ends "
         "nothing. Owners of a namespace are not asked about."},
    {.name = "liveness_ca",
     .type = CONFIG_TEXT,
     .offset = AT(liveness_ca),
     .placeholder = "FILE",
     .help = "CA certificates (PEM) that the server of an https liveness_url is checked against, instead of the "
             "system's."},
    {.name = "liveness_interval",
     .type = CONFIG_DURATION,
     .offset = AT(liveness_interval_ms),
     .default_text = "30s",
     .min = 100,
     .max = DAY_MS,
     .flags = CONFIG_RELOADABLE,
     .help = "Interval of the calls of liveness_url for each owner of held requests."},
    {.name = "metrics_semaphores",
     .type = CONFIG_NUMBER,
     .offset = AT(metrics_semaphores),
     .default_text = "1000",
     .min = 0,
     .max = 100000,
     .help = "Maximum number of semaphores that /metrics shows one by one. With more it shows only sums."},
    {.name = "log_level",
     .type = CONFIG_CHOICE,
     .offset = AT(log_level),
     .default_text = "info",
     .choices = log_levels,
     .flags = CONFIG_RELOADABLE,
     .help = "Lowest level of the lines that are logged on standard error."},
    {.name = "log_format",
     .type = CONFIG_CHOICE,
     .offset = AT(log_format),
     .default_text = "text",
     .choices = log_formats,
     .flags = CONFIG_RELOADABLE,
     .help = "Format of log lines: text, or JSON for programs."},
};

/* Read by permitctl. */
static const char *const permitctl_variables[] = {"URL", "TOKEN", NULL};
static const struct config_table setting_table = {
    .rows = setting_rows,
    .count = ARRAY_LENGTH(setting_rows),
    .environment_prefix = "PERMITD_",
    .environment_ignored = permitctl_variables,
};

/* ---- the command line ---- */

/* Flags that are not settings. */
static const struct {
    const char *flag;
    enum action action;
} action_flags[] = {
    {"--check", ACTION_CHECK},         {"--help", ACTION_HELP}, {"-h", ACTION_HELP},
    {"--version", ACTION_VERSION},     {"-V", ACTION_VERSION},  {"--print-config-markdown", ACTION_MARKDOWN},
    {"--print-routes", ACTION_ROUTES}, /* for the tests */
};

static bool is_config_flag(const char *argument)
{
    return strcmp(argument, "-c") == 0 || strcmp(argument, "--config") == 0;
}

static bool is_action_flag(const char *argument, enum action *ret_action)
{
    for (size_t i = 0; i < ARRAY_LENGTH(action_flags); i++)
        if (strcmp(argument, action_flags[i].flag) == 0) {
            *ret_action = action_flags[i].action;
            return true;
        }
    return false;
}

bool command_line_scan(struct command_line *line, struct buf *message)
{
    for (int i = 1; i < line->argc; i++) {
        if (is_action_flag(line->argv[i], &line->action))
            continue;
        if (strncmp(line->argv[i], "--config=", 9) == 0) {
            line->config_file = line->argv[i] + 9;
        } else if (is_config_flag(line->argv[i])) {
            if (++i == line->argc) {
                buf_printf(message, "%s needs the name of a file", line->argv[i - 1]);
                return false;
            }
            line->config_file = line->argv[i];
        }
    }
    return true;
}

static bool load_arguments(const struct command_line *line, struct settings *settings, struct buf *message)
{
    enum action ignored;
    config_begin_source(&setting_table, settings);
    for (int i = 1; i < line->argc; i++) {
        if (is_action_flag(line->argv[i], &ignored) || strncmp(line->argv[i], "--config=", 9) == 0)
            continue;
        if (is_config_flag(line->argv[i]))
            i++;
        else if (!config_load_argument(&setting_table, settings, line->argc, line->argv, &i, message))
            return false;
    }
    return true;
}

/* An address is 1 to 255 bytes of printable ASCII without space, as a key. "": the default. */
static bool check_advertise(const struct settings *settings, struct buf *message)
{
    struct bytes address = bytes_of(settings->advertise ? settings->advertise : "");
    if (address.length == 0 || (address.length <= SERVER_ADDRESS_MAX && name_is_key(address)))
        return true;
    buf_append_text(message,
                    "advertise: 1 to 255 bytes of printable ASCII without space, such as http://10.0.0.7:7070");
    return false;
}

bool settings_load(const struct command_line *line, struct settings *settings, struct buf *message)
{
    return config_init(&setting_table, settings, message) &&
           (!line->config_file || config_load_file(&setting_table, settings, line->config_file, message)) &&
           config_load_environment(&setting_table, settings, message) && load_arguments(line, settings, message) &&
           check_advertise(settings, message);
}

void settings_name_service_variables(struct buf *names)
{
    config_name_service_variables(setting_table.environment_prefix, names);
}

void settings_reload(struct settings *settings, struct settings *fresh, struct buf *message)
{
    config_reload(&setting_table, settings, fresh, message);
}

void settings_release(struct settings *settings)
{
    config_release(&setting_table, settings);
}

/* ---- help ---- */

void settings_print_help(void)
{
    static const struct {
        const char *name;
        const char *text;
    } entries[] = {
        {"  -c, --config FILE", "Read settings from FILE (INI) first."},
        {"  --check", "Check the credentials file and the database, and exit: with 1 if permitd would refuse to serve. "
                      "Changes nothing. An existing private database is started for it."},
        {"  --print-config-markdown", "Print the table of docs/config.md."},
        {"  -V, --version", "Print the version."},
        {"  -h, --help", "Print this."},
    };
    printf("permitd hands out permits of named semaphores, kept in MariaDB or MySQL.\n\n"
           "  permitd --data-dir DIR    on a private MariaDB in DIR\n"
           "  permitd --database URL    on your own\n\n");
    for (size_t i = 0; i < ARRAY_LENGTH(entries); i++)
        help_print_entry(entries[i].name, entries[i].text, CONFIG_HELP_INDENT, stdout);
    printf(
        "\nEach setting is also a line in the file (name = value) and a variable of the environment (PERMITD_NAME).\n"
        "The command line overrides the environment, and the environment overrides the file.\n\n");
    config_print_help(&setting_table, stdout);
}

void settings_print_markdown(void)
{
    config_print_markdown(&setting_table, stdout);
}
