/* SPDX-License-Identifier: MIT */
#include "settings.h"

#include <assert.h>
#include <stdio.h>

#include "base/help.h"
#include "core/name.h"
#include "core/webhook.h"
#include "store/servers.h"

/* ---- the table ---- */

#define AT(member) offsetof(struct settings, member)

static const char *const log_levels[] = {"debug", "info", "warn", "error", NULL};
static const char *const log_formats[] = {"text", "json", NULL};

/* Those of permitd itself. */
static const struct config_row own_rows[] = {
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
    {.name = "webhook_secret",
     .type = CONFIG_TEXT,
     .offset = AT(webhook_secret),
     .placeholder = "FILE",
     .help =
         "File of the secret from which the keys of webhooks are made: a line of 32 to 255 bytes, or two while it is "
         "changed (operating.md). Its mode is 0600 or stricter. All permitd of a database have the same. It is read "
         "again on SIGHUP; while it has a mistake, the last good version stays in use. Without this setting nothing is "
         "sent, and semaphores cannot name a URL."},
    {.name = "webhook_hosts",
     .type = CONFIG_TEXT,
     .offset = AT(webhook_hosts),
     .flags = CONFIG_RELOADABLE,
     .placeholder = "NAMES",
     .help =
         "Hosts to which events may be sent, separated by commas, as they stand in URLs. By default any host with a "
         "public address."},
    {.name = "webhook_private",
     .type = CONFIG_BOOL,
     .offset = AT(webhook_private),
     .default_text = "false",
     .flags = CONFIG_RELOADABLE,
     .help = "Hosts of webhook_hosts may have loopback and private addresses, but never link-local ones."},
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

static const struct config_section own_section = {own_rows, ARRAY_LENGTH(own_rows)};

/* The sections of all rooms, in the order of --help and docs/config.md, and where their structs are. */
static const struct {
    const struct config_section *section;
    size_t offset;
} sections[] = {
    {&server_section, AT(server)},
    {&own_section, 0},
    {&service_section, AT(service)},
    {&engine_section, AT(engine)},
};

enum { ROWS_MAX = 64 };

/* Returns the table of all settings. */
static const struct config_table *setting_table(void)
{
    static const char *const permitctl_variables[] = {"URL", "TOKEN", NULL}; /* read by permitctl */
    static struct config_row rows[ROWS_MAX];
    static struct config_table table = {
        .rows = rows, .environment_prefix = "PERMITD_", .environment_ignored = permitctl_variables};
    if (table.count)
        return &table;
    for (size_t i = 0; i < ARRAY_LENGTH(sections); i++)
        for (size_t j = 0; j < sections[i].section->count; j++) {
            assert(table.count < ROWS_MAX);
            rows[table.count] = sections[i].section->rows[j];
            rows[table.count++].offset += sections[i].offset;
        }
    return &table;
}

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

bool settings_load(const struct command_line *line, struct settings *settings, struct buf *message)
{
    const struct config_table *table = setting_table();
    enum action ignored;
    if (!config_init(table, settings, message) ||
        (line->config_file && !config_load_file(table, settings, line->config_file, message)) ||
        !config_load_environment(table, settings, message))
        return false;
    config_begin_source(table, settings);
    for (int i = 1; i < line->argc; i++) {
        if (is_action_flag(line->argv[i], &ignored) || strncmp(line->argv[i], "--config=", 9) == 0)
            continue;
        if (is_config_flag(line->argv[i]))
            i++;
        else if (!config_load_argument(table, settings, line->argc, line->argv, &i, message))
            return false;
    }
    /* An address is 1 to 255 bytes of printable ASCII without space, as a key. "": the default. */
    struct bytes address = bytes_of(settings->advertise ? settings->advertise : "");
    if (settings->webhook_hosts && strlen(settings->webhook_hosts) > WEBHOOK_HOSTS_MAX) {
        buf_append_text(message, "webhook_hosts: longer than 4095 bytes");
        return false;
    }
    if (address.length == 0 || (address.length <= SERVER_ADDRESS_MAX && name_is_key(address)))
        return true;
    buf_append_text(message,
                    "advertise: 1 to 255 bytes of printable ASCII without space, such as http://10.0.0.7:7070");
    return false;
}

void settings_name_service_variables(struct buf *names)
{
    config_name_service_variables(setting_table()->environment_prefix, names);
}

void settings_reload(struct settings *settings, struct settings *fresh, struct buf *message)
{
    config_reload(setting_table(), settings, fresh, message);
}

void settings_release(struct settings *settings)
{
    config_release(setting_table(), settings);
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
    config_print_help(setting_table(), stdout);
}

void settings_print_markdown(void)
{
    config_print_markdown(setting_table(), stdout);
}
