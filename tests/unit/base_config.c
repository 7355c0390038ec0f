/* SPDX-License-Identifier: MIT */
/* Settings from file, environment and flags. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/config.h"

struct settings {
    char *listen;
    char *data_dir;
    char *password;
    struct config_list hosts;
    bool insecure;
    int64_t workers;
    int64_t timeout_ms;
    const char *log_level;
    const char *log_format;
};

static const char *const levels[] = {"debug", "info", "warn", "error", NULL};
static const char *const formats[] = {"text", "json", NULL};
static const char *const ignored[] = {"URL", "TOKEN", NULL};

#define AT(member) offsetof(struct settings, member)

static const struct config_row rows[] = {
    {.name = "listen",
     .type = CONFIG_TEXT,
     .offset = AT(listen),
     .default_text = "127.0.0.1:7070",
     .placeholder = "ADDRESS",
     .help = "Where to listen."},
    {.name = "data_dir", .type = CONFIG_TEXT, .offset = AT(data_dir), .help = "Where the private database lives."},
    {.name = "database_password",
     .type = CONFIG_TEXT,
     .offset = AT(password),
     .flags = CONFIG_SECRET | CONFIG_RELOADABLE,
     .help = "Password of the database."},
    {.name = "hosts",
     .type = CONFIG_LIST,
     .offset = AT(hosts),
     .default_text = "first",
     .flags = CONFIG_RELOADABLE,
     .help = "Names."},
    {.name = "insecure",
     .type = CONFIG_BOOL,
     .offset = AT(insecure),
     .default_text = "false",
     .help = "Listen anywhere."},
    {.name = "workers",
     .type = CONFIG_NUMBER,
     .offset = AT(workers),
     .default_text = "2",
     .min = 1,
     .max = 64,
     .help = "Threads that speak to the database."},
    {.name = "request_timeout",
     .type = CONFIG_DURATION,
     .offset = AT(timeout_ms),
     .default_text = "10s",
     .min = 100,
     .max = 3600000,
     .flags = CONFIG_RELOADABLE,
     .help = "How long an operation is tried, a|b."},
    {.name = "log_level",
     .type = CONFIG_CHOICE,
     .offset = AT(log_level),
     .default_text = "info",
     .choices = levels,
     .flags = CONFIG_RELOADABLE,
     .help = "What to log."},
    {.name = "log_format",
     .type = CONFIG_CHOICE,
     .offset = AT(log_format),
     .default_text = "text",
     .choices = formats,
     .help = "How to log."},
};

static const struct config_table table = {rows, ARRAY_LENGTH(rows), "UNITTEST_", ignored};

static struct settings settings;
static struct buf message;
static char path[] = "/tmp/permit-config-XXXXXX";

static void setup(void)
{
    buf_init(&message, 4096);
    cr_assert(config_init(&table, &settings, &message), "%s", buf_text(&message));
}

static void teardown(void)
{
    config_release(&table, &settings);
    buf_release(&message);
}

TestSuite(config, .init = setup, .fini = teardown);

static bool load_bytes(const char *text, size_t length)
{
    char name[sizeof path];
    memcpy(name, path, sizeof path);
    int file = mkstemp(name);
    cr_assert(file >= 0 && write(file, text, length) == (ssize_t)length);
    close(file);
    buf_clear(&message);
    bool loaded = config_load_file(&table, &settings, name, &message);
    unlink(name);
    return loaded;
}

static bool load_text(const char *text)
{
    return load_bytes(text, strlen(text));
}

static bool load_flags(int argc, char **argv)
{
    buf_clear(&message);
    for (int i = 0; i < argc; i++)
        if (!config_load_argument(&table, &settings, argc, argv, &i, &message))
            return false;
    return true;
}

#define FLAGS(...) load_flags((int)ARRAY_LENGTH(((char *[]){__VA_ARGS__})), (char *[]){__VA_ARGS__})

static bool load_variable(const char *name, const char *value)
{
    buf_clear(&message);
    setenv(name, value, 1);
    bool loaded = config_load_environment(&table, &settings, &message);
    unsetenv(name);
    return loaded;
}

static void expect_said(const char *part)
{
    cr_expect(strstr(buf_text(&message), part), "\"%s\" is not in \"%s\"", part, buf_text(&message));
}

static void expect_not_said(const char *part)
{
    cr_expect(!strstr(buf_text(&message), part), "\"%s\" is in \"%s\"", part, buf_text(&message));
}

Test(config, settings_begin_with_the_defaults)
{
    cr_expect_str_eq(settings.listen, "127.0.0.1:7070");
    cr_expect_null(settings.data_dir);
    cr_expect(!settings.insecure);
    cr_expect_eq(settings.workers, 2);
    cr_expect_eq(settings.timeout_ms, 10000);
    cr_expect_str_eq(settings.log_level, "info");
}

Test(config, table_with_an_invalid_default_is_refused)
{
    static const struct config_row bad[] = {
        {.name = "workers", .type = CONFIG_NUMBER, .default_text = "0", .min = 1, .max = 2, .help = ""}};
    const struct config_table bad_table = {bad, 1, "UNITTEST_", NULL};
    int64_t number;
    cr_expect(!config_init(&bad_table, &number, &message));
    expect_said("workers");
}

Test(config, file_sets_the_settings_it_names)
{
    cr_assert(load_text("# comment\n; another\n\nlisten = 127.0.0.1:0\n  \ndata_dir=/srv/a b ; why\ninsecure = yes\n"
                        "workers = 64\nrequest_timeout = 1m30s\nlog_level = debug"),
              "%s", buf_text(&message));
    cr_expect_str_eq(settings.listen, "127.0.0.1:0");
    cr_expect_str_eq(settings.data_dir, "/srv/a b");
    cr_expect(settings.insecure);
    cr_expect_eq(settings.workers, 64);
    cr_expect_eq(settings.timeout_ms, 90000);
    cr_expect_eq(settings.log_level, levels[0]);
}

Test(config, unknown_name_in_the_file_is_refused_with_the_nearest)
{
    cr_expect(!load_text("workers = 3\nlog_levl = debug\n"));
    expect_said("line 2: log_levl is not a setting; the nearest is log_level");
    cr_expect(!load_text("timeout = 3s\n"));
    expect_said("the nearest is request_timeout");
    cr_expect(!load_text("Workers = 3\n"));
    expect_said("the nearest is workers");
    cr_expect(!load_text("data-dir = /srv\n"));
    expect_said("the nearest is data_dir");
    cr_expect(!load_text("foo = 1\n"));
    cr_expect_null(strstr(buf_text(&message), "nearest"), "%s", buf_text(&message));
}

Test(config, invalid_value_is_refused_with_the_expected_form)
{
    static const struct {
        const char *line, *said;
    } cases[] = {
        {"workers = 0", "workers: invalid value '0'; expected a whole number from 1 to 64"},
        {"workers = 65", "'65'"},
        {"workers = 2x", "'2x'"},
        {"workers = ", "''"},
        {"workers = -", "'-'"},
        {"workers = 99999999999999999999", "from 1 to 64"},
        {"insecure = maybe", "expected true or false"},
        {"request_timeout = 2h", "expected a duration from 100ms to 1h, such as"},
        {"request_timeout = soon", "'soon'"},
        {"log_level = INFO", "expected debug, info, warn or error"},
        {"log_format = xml", "expected text or json"},
        {"listen =", "non-empty"},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        cr_expect(!load_text(cases[i].line), "%s", cases[i].line);
        expect_said("line 1: ");
        expect_said(cases[i].said);
    }
    cr_expect_eq(settings.workers, 2);
    cr_expect_str_eq(settings.listen, "127.0.0.1:7070");
}

Test(config, empty_text_unsets_a_setting)
{
    cr_assert(FLAGS("--data-dir=/srv"));
    cr_expect_str_eq(settings.data_dir, "/srv");
    cr_assert(load_text("data_dir =\n"));
    cr_expect_null(settings.data_dir);
}

static void hosts_are(size_t count, const char *const *expected)
{
    cr_assert_eq(settings.hosts.count, count, "%zu texts", settings.hosts.count);
    for (size_t i = 0; i < count; i++)
        cr_expect_str_eq(settings.hosts.texts[i], expected[i]);
    cr_expect_null(settings.hosts.texts[count]);
}

#define HOSTS(...) hosts_are(ARRAY_LENGTH(((const char *[]){__VA_ARGS__})), (const char *[]){__VA_ARGS__})

Test(config, list_is_replaced_as_a_whole_by_a_later_source)
{
    HOSTS("first");
    cr_assert(load_text("hosts = a\nworkers = 3\nhosts = b, c\n"), "%s", buf_text(&message));
    HOSTS("a", "b", "c");
    cr_assert(load_variable("UNITTEST_HOSTS", "d ,e"));
    HOSTS("d", "e");
    cr_assert(load_variable("UNITTEST_WORKERS", "4"), "a source without the list keeps it");
    HOSTS("d", "e");
    config_begin_source(&table, &settings);
    cr_assert(FLAGS("--hosts", "f", "--workers=3", "--hosts=g"));
    HOSTS("f", "g");
}

Test(config, list_continues_on_lines_that_begin_with_a_space)
{
    cr_assert(load_text("hosts = a\n  b, c\n\td\nworkers = 3\n"), "%s", buf_text(&message));
    HOSTS("a", "b", "c", "d");
    cr_expect_eq(settings.workers, 3);
}

Test(config, empty_text_in_a_list_is_refused)
{
    cr_expect(!load_text("hosts = a,,b\n"));
    expect_said("line 1: hosts: invalid value 'a,,b'; expected texts separated by commas");
    cr_expect(!load_text("hosts =\n"));
    cr_expect(!load_variable("UNITTEST_HOSTS", "a,"));
}

Test(config, secret_is_never_printed)
{
    cr_expect(!load_text("databse_password = hunter2\n"));
    expect_said("database_password");
    expect_not_said("hunter2");
    cr_expect(!load_variable("UNITTEST_DATABSE_PASSWORD", "hunter2"));
    expect_not_said("hunter2");
    cr_expect(!FLAGS("--databse-password=hunter2"));
    expect_not_said("hunter2");
    cr_expect(!FLAGS("database-password=hunter2"));
    expect_said("'database-password' is not expected");
    expect_not_said("hunter2");
    cr_expect(!FLAGS("mysql://permitd:hunter2@db.example/permitd"));
    expect_said("argument 0 is not expected");
    expect_not_said("permitd");
    expect_not_said("hunter2");
    cr_expect(!FLAGS("--mysql://permitd:hunter2@db.example/permitd"));
    expect_said("that is not the name of a setting");
    expect_not_said("hunter2");
    cr_expect(!FLAGS("--workers=3", "hunter2"));
    expect_said("argument 1, after --workers, is not expected");
    expect_not_said("hunter2");
    cr_expect(!FLAGS("--workers", "3", "hunter2"));
    expect_said("argument 2, after --workers, is not expected");
    expect_not_said("hunter2");
}

Test(config, invalid_secret_is_not_printed)
{
    static const struct config_row secret[] = {{.name = "pin",
                                                .type = CONFIG_NUMBER,
                                                .default_text = "1",
                                                .min = 1,
                                                .max = 9,
                                                .flags = CONFIG_SECRET,
                                                .help = ""}};
    const struct config_table secrets = {secret, 1, "UNITTEST_", NULL};
    int64_t pin;
    char *argv[] = {"--pin=4711"};
    int index = 0;
    cr_assert(config_init(&secrets, &pin, &message));
    cr_expect(!config_load_argument(&secrets, &pin, 1, argv, &index, &message));
    expect_said("--pin: invalid value");
    expect_not_said("4711");
}

Test(config, duplicate_setting_in_the_file_is_refused)
{
    cr_expect(!load_text("workers = 2\nworkers = 3\n"));
    expect_said("line 2: duplicate setting workers");
    cr_expect(!load_text("data_dir = /srv\n  workers = 3\n"));
    expect_said("line 2: duplicate setting data_dir (a line that begins with a space");
}

Test(config, sections_and_invalid_lines_are_refused)
{
    cr_expect(!load_text("workers = 3\n[permitd]\nworkers = 2\n"));
    expect_said("line 2: [permitd] is not expected; sections are not supported");
    cr_expect(!load_text("[permitd]\n"), "a heading without settings");
    cr_expect(!load_text("workers = 3\nworkers 2\n"));
    expect_said("line 2: expected 'name = value'");
    cr_expect(!load_bytes("work\0ers = 2\n", 13));
    expect_said("line 1: ");
}

/* inih would read the rest of a long line as a line of its own. */
Test(config, too_long_line_is_refused)
{
    char text[6000] = "data_dir = ";
    size_t length = strlen(text);
    memset(text + length, 'x', sizeof text - length - 1);
    memcpy(text + 5000, "\nworkers = 3\n", 14);
    cr_expect(!load_text(text));
    expect_said("line 1: longer than");
    cr_expect_null(settings.data_dir);
    cr_expect_eq(settings.workers, 2);
}

Test(config, missing_file_is_an_error)
{
    cr_expect(!config_load_file(&table, &settings, "/nonexistent/permitd.conf", &message));
    expect_said("/nonexistent/permitd.conf: cannot be opened: No such file or directory");
    buf_clear(&message);
    cr_expect(!config_load_file(&table, &settings, "/", &message));
    expect_said("/: cannot be read: Is a directory");
}

Test(config, random_bytes_in_a_file_are_harmless)
{
    static const char letters[] = "workers=\n [];#\x00\xff\xef\xbb\xbf 12";
    static char noise[3000];
    uint32_t state = 6;
    for (int round = 0; round < 300; round++) {
        for (size_t i = 0; i < sizeof noise; i++) {
            state = state * 1664525 + 1013904223;
            noise[i] = letters[(state >> 16) % sizeof letters];
        }
        (void)load_bytes(noise, sizeof noise);
    }
}

Test(config, environment_sets_the_settings_it_names)
{
    cr_assert(load_variable("UNITTEST_REQUEST_TIMEOUT", "5"));
    cr_expect_eq(settings.timeout_ms, 5000);
    cr_assert(load_variable("UNITTEST_DATA_DIR", "/a=b"));
    cr_expect_str_eq(settings.data_dir, "/a=b");
    cr_assert(load_variable("OTHER_DATA_DIR", "/c"));
    cr_expect_str_eq(settings.data_dir, "/a=b");
}

Test(config, unknown_variable_is_refused_with_the_nearest)
{
    cr_expect(!load_variable("UNITTEST_WORKER", "3"));
    expect_said("UNITTEST_WORKER is not a setting; the nearest is UNITTEST_WORKERS");
    cr_expect(!load_variable("UNITTEST_workers", "3"));
    expect_said("the nearest is UNITTEST_WORKERS");
    cr_expect(!load_variable("UNITTEST_", "3"));
    cr_expect(!load_variable("UNITTEST_WORKERS", "many"));
    expect_said("UNITTEST_WORKERS: invalid value 'many'");
    cr_expect_eq(settings.workers, 2);
}

Test(config, ignored_variables_are_accepted)
{
    cr_expect(load_variable("UNITTEST_URL", "http://127.0.0.1:7070"), "%s", buf_text(&message));
    cr_expect(!load_variable("UNITTEST_URLS", "x"));
}

/* As Kubernetes writes them for the services unittest and unittest-eu, and docker --link for a container. */
Test(config, variables_of_a_service_of_that_name_are_ignored)
{
    static const char *const variables[][2] = {
        {"UNITTEST_SERVICE_HOST", "10.43.0.5"},
        {"UNITTEST_SERVICE_PORT", "7070"},
        {"UNITTEST_SERVICE_PORT_HTTP_METRICS", "9090"},
        {"UNITTEST_PORT", "tcp://10.43.0.5:7070"},
        {"UNITTEST_PORT_7070_TCP", "tcp://10.43.0.5:7070"},
        {"UNITTEST_PORT_7070_TCP_PROTO", "tcp"},
        {"UNITTEST_PORT_7070_TCP_PORT", "7070"},
        {"UNITTEST_PORT_7070_TCP_ADDR", "10.43.0.5"},
        {"UNITTEST_PORT_53_UDP", "udp://[fd00::5]:53"},
        {"UNITTEST_EU_SERVICE_HOST", "10.43.0.6"},
        {"UNITTEST_EU_PORT", "tcp://10.43.0.6:7070"},
        {"UNITTEST_NAME", "/shop/unittest"},
        {"UNITTEST_ENV_PATH", "/bin"},
    };
    struct buf names;
    for (size_t i = 0; i < ARRAY_LENGTH(variables); i++) {
        buf_init(&names, 1024);
        setenv(variables[i][0], variables[i][1], 1);
        config_name_service_variables("UNITTEST_", &names);
        cr_expect_str_eq(buf_text(&names), variables[i][0]);
        buf_release(&names);
        cr_expect(load_variable(variables[i][0], variables[i][1]), "%s", buf_text(&message));
    }
    cr_expect_str_eq(settings.listen, "127.0.0.1:7070");
}

Test(config, variables_that_only_resemble_those_of_a_service_are_refused)
{
    static const char *const variables[][2] = {
        {"UNITTEST_PORT", "7070"},
        {"UNITTEST_PORT", "http://10.43.0.5:7070"},
        {"UNITTEST_SERVICE_PORT", "seven"},
        {"UNITTEST_SERVICE_HOSTS", "10.43.0.5"},
        {"UNITTEST_PORT_HTTP_TCP", "tcp://10.43.0.5:7070"},
        {"UNITTEST_PORT_7070_TCP_NAME", "x"},
        {"UNITTEST_service_host", "10.43.0.5"},
        {"UNITTEST_NAME", "unittest"},
        {"UNITTEST_WORKER", "tcp://3"},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(variables); i++) {
        cr_expect(!load_variable(variables[i][0], variables[i][1]), "%s=%s", variables[i][0], variables[i][1]);
        expect_said(variables[i][0]);
    }
    expect_said("UNITTEST_WORKER is not a setting; the nearest is UNITTEST_WORKERS");
}

Test(config, flags_are_read_with_their_values)
{
    cr_assert(FLAGS("--listen", "127.0.0.1:0", "--workers=3", "--insecure", "--log-level", "warn"), "%s",
              buf_text(&message));
    cr_expect_str_eq(settings.listen, "127.0.0.1:0");
    cr_expect_eq(settings.workers, 3);
    cr_expect(settings.insecure);
    cr_expect_eq(settings.log_level, levels[2]);
    cr_assert(FLAGS("--insecure=false"));
    cr_expect(!settings.insecure);
}

Test(config, switch_takes_its_value_with_and_without_an_equals_sign)
{
    cr_assert(FLAGS("--insecure", "on", "--workers", "3"), "%s", buf_text(&message));
    cr_expect(settings.insecure && settings.workers == 3);
    cr_assert(FLAGS("--insecure", "off"), "%s", buf_text(&message));
    cr_expect(!settings.insecure);
    cr_assert(FLAGS("--insecure", "--workers", "4"), "%s", buf_text(&message));
    cr_expect(settings.insecure && settings.workers == 4);
    cr_assert(FLAGS("--insecure=no"), "%s", buf_text(&message));
    cr_expect(!settings.insecure);
    cr_expect(!FLAGS("--insecure", "maybe"));
    expect_said("after --insecure, is not expected");
}

Test(config, index_stays_on_the_last_argument_used)
{
    char *argv[] = {"--insecure", "--workers", "4", "--data-dir=x"};
    static const int left[] = {0, 2, 2, 3};
    for (int i = 0; i < 4; i++) {
        if (i == 2)
            continue;
        int index = i;
        cr_assert(config_load_argument(&table, &settings, 4, argv, &index, &message));
        cr_expect_eq(index, left[i]);
    }
}

Test(config, invalid_flags_are_refused)
{
    cr_expect(!FLAGS("--worker=3"));
    expect_said("--worker is not a setting; the nearest is --workers");
    cr_expect(!FLAGS("--log_level=info"));
    expect_said("the nearest is --log-level");
    cr_expect(!FLAGS("--workers"));
    expect_said("--workers: missing value; expected a whole number from 1 to 64");
    cr_expect(!FLAGS("workers"));
    expect_said("'workers' is not expected");
    cr_expect(!FLAGS("--"));
    cr_expect(!FLAGS("-w"));
    cr_expect(!FLAGS("--=3"));
    cr_expect(!FLAGS("--insecure=perhaps"));
    expect_said("--insecure: invalid value 'perhaps'");
}

Test(config, unknown_name_of_any_length_is_refused)
{
    char flag[5000] = "--";
    memset(flag + 2, 'w', sizeof flag - 3);
    cr_expect(!FLAGS(flag));
    expect_said("is not a setting");
    cr_expect(!load_variable("UNITTEST_A_NAME_THAT_IS_MUCH_LONGER_THAN_ANY_SETTING_WILL_EVER_BE_IN_OUR_TABLE", "1"));
    expect_said("is not a setting");
}

static void reload(struct settings *fresh)
{
    buf_clear(&message);
    config_reload(&table, &settings, fresh, &message);
    config_release(&table, fresh);
}

Test(config, reload_changes_reloadable_settings_and_names_the_rest)
{
    struct settings fresh = {0};
    char *argv[] = {"--log-level=debug", "--request-timeout=3s", "--database-password=x", "--workers=5", "--listen=:1"};
    cr_assert(config_init(&table, &fresh, &message));
    for (int i = 0; i < 5; i++)
        cr_assert(config_load_argument(&table, &fresh, 5, argv, &i, &message));
    reload(&fresh);
    cr_expect_eq(settings.log_level, levels[0]);
    cr_expect_eq(settings.timeout_ms, 3000);
    cr_expect_str_eq(settings.password, "x");
    cr_expect_eq(settings.workers, 2);
    cr_expect_str_eq(settings.listen, "127.0.0.1:7070");
    cr_expect_str_eq(buf_text(&message), "listen, workers");
}

Test(config, reload_without_changes_prints_nothing)
{
    struct settings fresh = {0};
    cr_assert(config_init(&table, &fresh, &message));
    reload(&fresh);
    cr_expect_str_eq(buf_text(&message), "");
}

/* A struct of a room: a duration in microseconds, and a number that other threads read. */
struct room {
    int64_t bound_us;
    _Atomic int64_t limit;
    size_t threads;
    bool short_path;
    char *name;
};

static const struct config_row room_rows[] = {
    {.name = "bound",
     .type = CONFIG_DURATION,
     .offset = offsetof(struct room, bound_us),
     .default_text = "30s",
     .max = 60000,
     .flags = CONFIG_RELOADABLE | CONFIG_MICROSECONDS},
    {.name = "limit",
     .type = CONFIG_NUMBER,
     .offset = offsetof(struct room, limit),
     .default_text = "7",
     .max = 100,
     .flags = CONFIG_RELOADABLE},
    {.name = "threads", .type = CONFIG_NUMBER, .offset = offsetof(struct room, threads), .default_text = "2", .max = 9},
    {.name = "short_path",
     .type = CONFIG_BOOL,
     .offset = offsetof(struct room, short_path),
     .default_text = "on",
     .flags = CONFIG_RELOADABLE},
    {.name = "name", .type = CONFIG_TEXT, .offset = offsetof(struct room, name), .flags = CONFIG_RELOADABLE},
};

Test(config, values_of_a_room_are_copied_if_they_are_reloadable)
{
    static const struct config_table room_table = {
        .rows = room_rows, .count = ARRAY_LENGTH(room_rows), .environment_prefix = "ROOM_"};
    static const struct config_section section = {room_rows, ARRAY_LENGTH(room_rows)};
    char *argv[] = {"--bound=1500ms", "--limit=9", "--threads=5", "--short-path=off", "--name=x"};
    struct room room = {0}, copy = {0};
    cr_assert(config_init(&room_table, &room, &message));
    cr_expect(room.bound_us == 30000000 && room.limit == 7 && room.threads == 2 && room.short_path && !room.name);
    config_copy_values(&section, &room, &copy);
    cr_expect(copy.bound_us == 30000000 && copy.limit == 7 && copy.threads == 0 && copy.short_path);
    for (int i = 0; i < 5; i++)
        cr_assert(config_load_argument(&room_table, &room, 5, argv, &i, &message));
    config_copy_values(&section, &room, &copy);
    cr_expect(copy.bound_us == 1500000 && copy.limit == 9 && copy.threads == 0 && !copy.short_path);
    cr_expect_null(copy.name);
    config_release(&room_table, &room);
}

Test(config, release_accepts_any_state)
{
    config_release(&table, &settings);
    config_release(&table, &settings);
    config_release(&table, NULL);
}

Test(config, reload_replaces_a_list)
{
    struct settings fresh = {0};
    char *argv[] = {"--hosts=a,b"};
    int index = 0;
    cr_assert(config_init(&table, &fresh, &message));
    config_begin_source(&table, &fresh);
    cr_assert(config_load_argument(&table, &fresh, 1, argv, &index, &message));
    reload(&fresh);
    HOSTS("a", "b");
    cr_expect_str_eq(buf_text(&message), "");
}

static char *printed(void (*print)(const struct config_table *, FILE *))
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    print(&table, out);
    fclose(out);
    return text;
}

Test(config, help_names_every_setting_in_lines_that_fit)
{
    char *text = printed(config_print_help);
    cr_expect(strstr(text, "  --listen ADDRESS          Where to listen. (default 127.0.0.1:7070)\n"), "%s", text);
    cr_expect(strstr(text, "  --insecure                Listen anywhere.\n"), "%s", text);
    cr_expect(strstr(text, "  --log-level debug|info|warn|error\n                            What to log."), "%s",
              text);
    cr_expect(strstr(text, "(default 10s; may be reloaded)"), "%s", text);
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
        cr_expect_leq(strlen(line), 100, "%s", line);
    free(text);
}

Test(config, markdown_table_names_every_setting)
{
    char *text = printed(config_print_markdown);
    cr_expect(strstr(text, "| setting | value | default | reload | what it does |\n|---|---|---|---|---|\n") == text);
    cr_expect(strstr(text, "| `listen` | ADDRESS | `127.0.0.1:7070` | no | Where to listen. |\n"), "%s", text);
    cr_expect(strstr(text, "| `log_level` | debug, info, warn, error | `info` | yes | What to log. |\n"), "%s", text);
    cr_expect(strstr(text, "a\\|b."), "%s", text);
    cr_expect(strstr(text, "| `database_password` | TEXT | none | yes |"), "%s", text);
    free(text);
}
