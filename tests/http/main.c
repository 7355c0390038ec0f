/* SPDX-License-Identifier: MIT */
/*
 * Starts the permitd that the tests share, runs the tests, stops it. The tests find it through environment variables.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fixture.h"

#define PORT_VARIABLE      "PERMIT_HTTP_TEST_PORT"
#define DIRECTORY_VARIABLE "PERMIT_HTTP_TEST_DIRECTORY"
#define SOCKET_VARIABLE    "PERMIT_HTTP_TEST_SOCKET"

unsigned shared_port(void)
{
    const char *port = getenv(PORT_VARIABLE);
    cr_assert_not_null(port, "no shared permitd: run the executable by its own main");
    return (unsigned)strtoul(port, NULL, 10);
}

const char *shared_directory(void)
{
    const char *directory = getenv(DIRECTORY_VARIABLE);
    if (!directory)
        cr_skip_test("the shared permitd has no directory");
    return directory;
}

const char *shared_socket(void)
{
    const char *socket = getenv(SOCKET_VARIABLE);
    cr_assert_not_null(socket);
    return socket;
}

const char *process_name(void)
{
    static const char *name;
    if (!name)
        name = text("%d_%llx", (int)getpid(), (unsigned long long)kit_now_us());
    return name;
}

const char *own_database(const char *name)
{
    return text("%s_%s", name, process_name());
}

const char *own_url(const char *name)
{
    return text("mysql://root@/%s?socket=%s", own_database(name), shared_socket());
}

struct kit_sql *own_sql(const char *name)
{
    return kit_sql_open(shared_socket(), own_database(name));
}

const char *const patient_flags[] = {"--request-timeout", "2m", NULL};

struct kit_permitd *own_permitd(const char *const *flags)
{
    enum { FLAGS_MAX = 16 };
    static int count;
    const char *all[FLAGS_MAX + 1] = {patient_flags[0], patient_flags[1]};
    for (size_t i = 2; flags && *flags; i++) {
        cr_assert_lt(i, FLAGS_MAX);
        all[i] = *flags++;
    }
    struct kit_permitd_options options = {
        .database = own_url(text("own%d", count++)),
        .flags = all,
    };
    return kit_permitd_start(&options);
}

const char *next_url(const struct kit_permitd *permitd)
{
    static const char start[] = "permitd: listening on ";
    char line[256];
    size_t length = 0;
    while (length < sizeof line - 1 && read(permitd->stdout_fd, line + length, 1) == 1 && line[length] != '\n')
        length++;
    line[length] = '\0';
    cr_assert(strncmp(line, start, strlen(start)) == 0, "%s", line);
    return text("%s", line + strlen(start));
}

const char *permitd_output(const struct kit_permitd_options *options, int expected_exit)
{
    char output[16 * 1024];
    size_t length = 0;
    struct kit_permitd *permitd = kit_permitd_spawn(options);
    int status = kit_permitd_wait_end(permitd, 120000);
    for (ssize_t got; (got = read(permitd->stdout_fd, output + length, sizeof output - 1 - length)) > 0;)
        length += (size_t)got;
    output[length] = '\0';
    char *log = kit_read_file(permitd->log_path);
    const char *all = text("%s%s", output, log);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == expected_exit, "status %d: %s", status, all);
    free(log);
    kit_permitd_kill(permitd);
    return all;
}

void refuses_to_start(const struct kit_permitd_options *options, const char *part)
{
    const char *output = permitd_output(options, 1);
    cr_assert(strstr(output, "permitd: ") && strstr(output, part), "no \"%s\" in: %s", part, output);
}

void refuses_flags(const char *first, const char *second, const char *part)
{
    const char *flags[] = {first, second, NULL};
    refuses_to_start(&(struct kit_permitd_options){.flags = flags}, part);
}

size_t log_count(const struct kit_permitd *permitd, const char *sentence)
{
    char *log = kit_read_file(permitd->log_path);
    size_t count = 0;
    for (const char *at = log; at && (at = strstr(at, sentence)); at++)
        count++;
    free(log);
    return count;
}

char *kept(char *memory)
{
    static struct kept_memory {
        struct kept_memory *older;
        char *memory;
    } * list;
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    struct kept_memory *entry = malloc(sizeof *entry);
    cr_assert(memory && entry);
    pthread_mutex_lock(&mutex);
    *entry = (struct kept_memory){list, memory};
    list = entry;
    pthread_mutex_unlock(&mutex);
    return memory;
}

const char *text(const char *format, ...)
{
    char *made = NULL;
    va_list arguments;
    va_start(arguments, format);
    cr_assert_geq(vasprintf(&made, format, arguments), 0);
    va_end(arguments);
    return kept(made);
}

const char *fresh_name(const char *name)
{
    static int count;
    return text("%s-%s-%d", name, process_name(), count++);
}

const char *semaphore_path(const char *name)
{
    return text("/v1/semaphores/%s", name);
}

const char *request_path(const char *key)
{
    return text("/v1/requests/%s", key);
}

const char *acquire_body(const char *key, const char *semaphore, int count, const char *more)
{
    return text("{%s\"permits\":[{\"semaphore\":\"%s\",\"count\":%d}]%s}",
                key ? text("\"external_id\":\"%s\",", key) : "", semaphore, count, more);
}

void release(struct talk *talk, const char *key)
{
    say(talk, 200, "DELETE", request_path(key), NULL);
}

void send_text(int fd, const char *bytes)
{
    cr_assert_eq(send(fd, bytes, strlen(bytes), MSG_NOSIGNAL), (ssize_t)strlen(bytes), "%s", strerror(errno));
}

bool comes_within(int fd, int ms)
{
    struct pollfd look = {.fd = fd, .events = POLLIN};
    return poll(&look, 1, ms) == 1;
}

int count_of(const char *bytes, const char *part)
{
    int count = 0;
    for (const char *at = strstr(bytes, part); at; at = strstr(at + 1, part))
        count++;
    return count;
}

void write_file(const char *path, const char *content, mode_t mode)
{
    const char *fresh = text("%s.new", path);
    FILE *file = fopen(fresh, "we");
    cr_assert(file && fputs(content, file) >= 0 && fchmod(fileno(file), mode) == 0 && fclose(file) == 0);
    cr_assert_eq(rename(fresh, path), 0);
}

pid_t mariadbd_of(const char *data_dir)
{
    char *pid = kit_read_file(text("%s/mariadb.pid", data_dir));
    cr_assert_not_null(pid);
    long number = strtol(pid, NULL, 10);
    free(pid);
    return (pid_t)number;
}

static bool statement_waits(struct kit_sql *sql, const char *like)
{
    return kit_sql_number(sql,
                          "SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE() AND "
                          "id <> CONNECTION_ID() AND info LIKE '%s'",
                          like) > 0;
}

bool list_waits(void *sql)
{
    return statement_waits(sql, "%FROM semaphore_event%");
}

bool batch_waits(void *sql)
{
    return statement_waits(sql, "%FROM semaphore%FOR UPDATE");
}

const char *run_shell(int *ret_status, const char *format, ...)
{
    enum { OUTPUT_MAX = 256 * 1024 };
    static char output[OUTPUT_MAX];
    char *command = NULL;
    va_list arguments;
    va_start(arguments, format);
    cr_assert_geq(vasprintf(&command, format, arguments), 0);
    va_end(arguments);
    FILE *stream = popen(text("{ %s\n} 2>&1", command), "re");
    cr_assert_not_null(stream);
    size_t length = fread(output, 1, sizeof output - 1, stream);
    output[length] = '\0';
    int status = pclose(stream);
    if (ret_status)
        *ret_status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    free(command);
    return text("%s", output);
}

struct talk talk_to(unsigned port)
{
    return (struct talk){.http = kit_http(port)};
}

void talk_end(struct talk *talk)
{
    reply_release(&talk->reply);
    kit_http_close(&talk->http);
}

int connect_small(unsigned port)
{
    int size = 4096;
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert(fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size) == 0);
    cr_assert_eq(connect(fd, (struct sockaddr *)&address, sizeof address), 0, "%s", strerror(errno));
    return fd;
}

const char *fresh_semaphore(struct talk *talk, const char *body)
{
    const char *name = fresh_name("s");
    say(talk, 201, "PUT", semaphore_path(name), body);
    return name;
}

void template_passes_on(struct talk *talk, const char *setting, const char *value)
{
    const char *prefix = text("%s:", fresh_name("t"));
    say(talk, 201, "PUT", text("/v1/templates/%s", prefix), text("{\"capacity\":1,\"%s\":\"%s\"}", setting, value));
    text_is(talk, setting, value);
    say(talk, 201, "POST", "/v1/requests", acquire_body(NULL, text("%sone", prefix), 1, ""));
    say(talk, 200, "GET", semaphore_path(text("%sone", prefix)), NULL);
    text_is(talk, setting, value);
}

static const char *labels(int from, int count, int length)
{
    char *list = kept(malloc((size_t)count * ((size_t)length + 3) + 3));
    char *end = stpcpy(list, "[");
    for (int i = from; i < from + count; i++)
        end += sprintf(end, "%s\"%0*d\"", i > from ? "," : "", length, i);
    strcpy(end, "]");
    return list;
}

const char *hall_labels(int from, int count)
{
    return labels(from, count, HALL_LABEL_LENGTH);
}

const char *stalls_waited_for(struct talk *talk, const char *headers, const char *wait, const char **ret_name)
{
    const char *name = fresh_name("stalls"), *list = labels(0, STALLS, STALL_LABEL_LENGTH);
    say_with(talk, 201, NULL, "PUT", text("/v1/semaphores/%s", name), headers,
             text("{\"capacity\":%d,\"labels\":%s}", STALLS, list));
    say_with(talk, 201, NULL, "POST", "/v1/requests", headers,
             text("{\"permits\":[{\"semaphore\":\"%s\",\"count\":%d}]}", name, STALLS));
    *ret_name = name;
    return text("{\"permits\":[{\"semaphore\":\"%s\",\"any_of\":%s}],\"wait\":\"%s\"}", name, list, wait);
}

const char *hall(struct talk *talk, const char *headers)
{
    const char *name = fresh_name("hall");
    say_with(talk, 201, NULL, "PUT", semaphore_path(name), headers, text("{\"capacity\":%d}", HALL_SLOTS));
    for (int from = 0; from < HALL_SLOTS; from += HALL_SLOTS / 2)
        say_with(talk, 200, NULL, "PUT", text("/v1/semaphores/%s/slots?from=%d", name, from + 1), headers,
                 text("{\"labels\":%s}", hall_labels(from, HALL_SLOTS / 2)));
    return name;
}

static void check_problem(struct talk *talk, int status, const char *type)
{
    const char *body = talk->reply.body;
    text_is(talk, "type", text("/problems/%s", type));
    cr_assert_eq(kit_json_int(body, "status"), status, "%s", body);
    cr_assert(kit_json_has(body, "title") && kit_json_has(body, "detail"), "%s", body);
    header_is(talk, "Content-Type", "application/problem+json");
    char *retry_after = reply_header(&talk->reply, "Retry-After");
    bool retries = status == 423 || status == 429 || status == 503 || strcmp(type, "in_transaction") == 0;
    cr_assert_eq(retry_after != NULL, retries, "%s", talk->reply.headers);
    cr_assert_eq(kit_json_int(body, "retry_after_ms") > 0, retries, "%s", body);
    free(retry_after);
}

static void check_reply(struct talk *talk, int status, const char *type)
{
    char *id = reply_header(&talk->reply, "X-Request-Id");
    cr_assert_not_null(id, "%s", talk->reply.headers);
    free(id);
    cr_assert(status == 304 || kit_json_valid(talk->reply.body), "%s", talk->reply.body);
    if (type)
        check_problem(talk, status, type);
}

void say_with(struct talk *talk, int status, const char *type, const char *method, const char *path,
              const char *headers, const char *body)
{
    reply_release(&talk->reply);
    cr_assert(kit_http_call(&talk->http, method, path, headers, body, &talk->reply), "%s %s: %s", method, path,
              talk->reply.error);
    cr_assert_eq(talk->reply.status, status, "%s %s %s: %d instead of %d: %s", method, path, body ? body : "",
                 talk->reply.status, status, talk->reply.body);
    check_reply(talk, status, type);
}

enum { PATIENCE_MS = 120000 };

void tell(struct talk *talk, const char *method, const char *path, const char *body)
{
    talk->http.timeout_ms = PATIENCE_MS;
    cr_assert(kit_http_send(&talk->http, method, path, NULL, body));
}

void hear(struct talk *talk, int status, const char *type)
{
    reply_release(&talk->reply);
    cr_assert(kit_http_receive(&talk->http, "", &talk->reply), "%s", talk->reply.error);
    cr_assert_eq(talk->reply.status, status, "%d instead of %d: %s", talk->reply.status, status, talk->reply.body);
    check_reply(talk, status, type);
}

double metric_of(struct talk *talk, const char *name)
{
    reply_release(&talk->reply);
    cr_assert(kit_http_get(&talk->http, "/metrics", &talk->reply), "%s", talk->reply.error);
    const char *line = strstr(talk->reply.body, text("\n%s ", name));
    return line ? atof(line + 1 + strlen(name)) : -1;
}

void metric_becomes(struct talk *talk, const char *name, double value)
{
    double seen = metric_of(talk, name);
    for (int64_t end = kit_now_us() + PATIENCE_MS * INT64_C(1000); seen != value && kit_now_us() < end;) {
        kit_sleep_ms(5);
        seen = metric_of(talk, name);
    }
    cr_assert_eq(seen, value, "%s is %g instead of %g", name, seen, value);
}

void say(struct talk *talk, int status, const char *method, const char *path, const char *body)
{
    say_with(talk, status, NULL, method, path, NULL, body);
}

void refused(struct talk *talk, int status, const char *type, const char *method, const char *path, const char *body)
{
    say_with(talk, status, type, method, path, NULL, body);
}

void header_is(struct talk *talk, const char *name, const char *value)
{
    char *found = reply_header(&talk->reply, name);
    cr_assert(found && strcmp(found, value) == 0, "%s is %s, not %s", name, found ? found : "absent", value);
    free(found);
}

int64_t number_of(const struct talk *talk, const char *path)
{
    int64_t number = kit_json_int(talk->reply.body, path);
    cr_assert_neq(number, INT64_MIN, "no number %s in %s", path, talk->reply.body);
    return number;
}

void text_is(const struct talk *talk, const char *path, const char *expected)
{
    cr_assert(kit_json_text_is(talk->reply.body, path, expected), "%s is not %s in %s", path, expected,
              talk->reply.body);
}

void detail_has(const struct talk *talk, const char *part)
{
    char *detail = kit_json_text(talk->reply.body, "detail");
    cr_assert(detail && strstr(detail, part), "no \"%s\" in %s", part, talk->reply.body);
    free(detail);
}

/* A call that is repeated until its answer has this status. */
struct until {
    struct talk *talk;
    const char *method;
    const char *path;
    const char *body;
    int status;
};

static bool answers(void *context)
{
    struct until *until = context;
    reply_release(&until->talk->reply);
    kit_http_call(&until->talk->http, until->method, until->path, NULL, until->body, &until->talk->reply);
    return until->talk->reply.status == until->status;
}

void say_until(struct talk *talk, int status, const char *method, const char *path, const char *body)
{
    struct until until = {talk, method, path, body, status};
    cr_assert(kit_wait_until(answers, &until, PATIENCE_MS), "%s %s: %d %s", method, path, talk->reply.status,
              talk->reply.body);
}

static bool has_ended(void *context)
{
    struct until *until = context;
    say(until->talk, 200, "GET", until->path, NULL);
    return kit_json_has(until->talk->reply.body, "ended_at");
}

void ends_as(struct talk *talk, const char *key, const char *reason)
{
    struct until until = {.talk = talk, .path = request_path(key)};
    cr_assert(kit_wait_until(has_ended, &until, PATIENCE_MS), "%s", talk->reply.body);
    text_is(talk, "end_reason", reason);
}

int main(int argc, char **argv)
{
    struct kit_permitd_options options = {.flags = patient_flags};
    struct kit_database *database = kit_database_is_mysql() ? kit_database_start(NULL) : NULL; /* else a private one */
    options.database = database ? database->url : NULL;
    struct kit_permitd *permitd = kit_permitd_start(&options);
    setenv(PORT_VARIABLE, text("%u", permitd->port), 1);
    if (!database)
        setenv(DIRECTORY_VARIABLE, permitd->data_dir, 1);
    setenv(SOCKET_VARIABLE, database ? database->socket : text("%s/mariadb.sock", permitd->data_dir), 1);
    struct criterion_test_set *tests = criterion_initialize();
    int result = 0;
    if (criterion_handle_args(argc, argv, true))
        result = !criterion_run_all_tests(tests);
    criterion_finalize(tests);
    if (result)
        kit_show_logs();
    kit_permitd_stop(permitd);
    kit_database_stop(database);
    return result;
}
