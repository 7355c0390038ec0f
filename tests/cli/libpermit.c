/* SPDX-License-Identifier: MIT */
/*
 * libpermit against a scripted server: each line of a script gives an expected request and its answer. So lost answers,
 * hanging servers and answers of other servers can be produced on demand. Prints "ok - ..." and "not ok - ..." lines.
 * The argument is the path of permitctl: some of its verbs are also tested best against a script.
 */
#include <arpa/inet.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "permit/permit.h"

static int failures;

static void check(bool holds, const char *sentence)
{
    printf("%s - libpermit: %s\n", holds ? "ok" : "not ok", sentence);
    failures += !holds;
}

/* ---- The clock of a machine that is suspended now and then ---- */

static atomic_llong suspended_s;

/* Replaces that of the C library, in libpermit too: only CLOCK_BOOTTIME counts suspended time. */
int clock_gettime(clockid_t clock, struct timespec *ret_time)
{
    int status = (int)syscall(SYS_clock_gettime, clock, ret_time);
    if (clock == CLOCK_BOOTTIME)
        ret_time->tv_sec += atomic_load(&suspended_s);
    return status;
}

static void suspend_machine(long long seconds)
{
    atomic_fetch_add(&suspended_s, seconds);
}

static int64_t clock_ms(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static int64_t now_ms(void)
{
    return clock_ms(CLOCK_MONOTONIC);
}

/* On the clock of held_until_us. */
static int64_t boot_ms(void)
{
    return clock_ms(CLOCK_BOOTTIME);
}

/* ---- The server ---- */

enum act {
    ANSWER, /* answer with `status` and `body` */
    WAIT,   /* like ANSWER, after the wait that the request asked for */
    CUT,    /* read the request, then close the connection */
    HANG,   /* read the request, then send nothing until the client disconnects */
    SLEEP,  /* like ANSWER, after the machine was suspended for an hour */
};

struct line {
    enum act act;
    int status;
    const char *body;
    const char *expect; /* must occur in the request; NULL: any request */
};

enum { REQUEST_MAX = 8192, SEEN_MAX = 16, KEY_SIZE = 64 };
#define KEY "@KEY@" /* stands in an answer for the key of the request */

struct script {
    const struct line *lines;
    size_t count;
    int listener;
    char url[128];
    pthread_t thread;
    atomic_size_t served;
    atomic_bool unexpected;
    size_t connections;
    size_t connection[SEEN_MAX];   /* number of the connection of each request, from 1 */
    char keys[SEEN_MAX][KEY_SIZE]; /* external_id of each acquire */
    char nonces[SEEN_MAX][64];
    int64_t at[SEEN_MAX];    /* time of arrival of each request */
    int64_t waits[SEEN_MAX]; /* "wait" of each acquire, in ms; 0: none */
};

/* Reads one request with its body. Returns false if the connection is closed. */
static bool read_request(int fd, char request[REQUEST_MAX])
{
    size_t length = 0;
    for (;;) {
        ssize_t got = recv(fd, request + length, REQUEST_MAX - 1 - length, 0);
        if (got <= 0)
            return false;
        length += (size_t)got;
        request[length] = '\0';
        const char *end = strstr(request, "\r\n\r\n");
        const char *said = strcasestr(request, "content-length:");
        if (end && length >= (size_t)(end + 4 - request) + (said && said < end ? strtoul(said + 15, NULL, 10) : 0))
            return true;
    }
}

static void note(struct script *script, size_t index, const char *request)
{
    const char *key = strstr(request, "\"external_id\":");
    const char *nonce = strstr(request, "\"nonce\":");
    const char *wait = strstr(request, "\"wait\":");
    script->at[index] = now_ms();
    script->connection[index] = script->connections;
    if (key)
        (void)sscanf(key + 14, " \"%63[^\"]", script->keys[index]);
    if (nonce)
        (void)sscanf(nonce + 8, " \"%63[^\"]", script->nonces[index]);
    if (wait)
        script->waits[index] = strtoll(wait + strcspn(wait, "0123456789"), NULL, 10);
}

/* Copies the key of the request: the external_id of an acquire, else that of the path. */
static void read_key(const char *request, char key[KEY_SIZE])
{
    const char *member = strstr(request, "\"external_id\":");
    const char *path = strstr(request, "/v1/requests/");
    *key = '\0';
    if (member)
        (void)sscanf(member + 14, " \"%63[^\"]", key);
    else if (path)
        (void)sscanf(path + 13, "%63[^/? ]", key);
}

/* A body with the external_id KEY has the key of the request there. */
static void answer(int fd, const struct line *line, const char *request)
{
    char text[REQUEST_MAX], key[KEY_SIZE], body[REQUEST_MAX / 2];
    const char *at = strstr(line->body, KEY);
    read_key(request, key);
    if (at)
        (void)snprintf(body, sizeof(body), "%.*s%s%s", (int)(at - line->body), line->body, key, at + strlen(KEY));
    else
        (void)snprintf(body, sizeof(body), "%s", line->body);
    int length = snprintf(text, sizeof(text), "HTTP/1.1 %d X\r\nContent-Length: %zu\r\n%s\r\n%s", line->status,
                          strlen(body), line->status == 503 ? "Retry-After: 1\r\n" : "", body);
    (void)send(fd, text, (size_t)length, MSG_NOSIGNAL);
}

static void serve_connection(struct script *script, int fd)
{
    char request[REQUEST_MAX];
    while (atomic_load(&script->served) < script->count && read_request(fd, request)) {
        size_t index = atomic_load(&script->served);
        const struct line *line = &script->lines[index];
        note(script, index, request);
        if (line->expect && !strstr(request, line->expect)) {
            printf("# expected %s, got:\n# %s\n", line->expect, request);
            atomic_store(&script->unexpected, true);
        }
        atomic_fetch_add(&script->served, 1);
        if (line->act == WAIT)
            usleep((useconds_t)script->waits[index] * 1000);
        if (line->act == SLEEP)
            suspend_machine(3600);
        if (line->act == ANSWER || line->act == WAIT || line->act == SLEEP)
            answer(fd, line, request);
        else if (line->act == HANG)
            (void)!recv(fd, request, 1, 0);
        if (line->act == CUT || line->act == HANG)
            return;
    }
}

static void *serve(void *context)
{
    struct script *script = context;
    while (atomic_load(&script->served) < script->count) {
        int fd = accept(script->listener, NULL, NULL);
        if (fd < 0)
            break;
        script->connections++;
        serve_connection(script, fd);
        close(fd);
    }
    return NULL;
}

/* Serves at this address, and writes the address that the listener has then. */
static void script_start_at(struct script *script, const struct line *lines, size_t count, struct sockaddr *address,
                            socklen_t length)
{
    memset(script, 0, sizeof(*script));
    script->lines = lines;
    script->count = count;
    script->listener = socket(address->sa_family, SOCK_STREAM, 0);
    if (bind(script->listener, address, length) != 0 || listen(script->listener, 8) != 0 ||
        getsockname(script->listener, address, &length) != 0)
        abort();
    if (pthread_create(&script->thread, NULL, serve, script) != 0)
        abort();
}

static void script_start(struct script *script, const struct line *lines, size_t count)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    script_start_at(script, lines, count, (struct sockaddr *)&address, sizeof(address));
    (void)snprintf(script->url, sizeof(script->url), "http://127.0.0.1:%u", (unsigned)ntohs(address.sin_port));
}

/* Returns true if every line was requested as expected. */
static bool script_end(struct script *script)
{
    shutdown(script->listener, SHUT_RDWR);
    pthread_join(script->thread, NULL);
    close(script->listener);
    return atomic_load(&script->served) == script->count && !atomic_load(&script->unexpected);
}

#define SCRIPT(name, ...)                                                                                              \
    static const struct line name##_lines[] = {__VA_ARGS__};                                                           \
    struct script name;                                                                                                \
    script_start(&name, name##_lines, sizeof(name##_lines) / sizeof(name##_lines[0]))

/*
 * The ttl of grants is so long that half of it is never over when the answer arrives, even on a slow machine: a client
 * would then renew. Tests that wait for a renewer use BRIEF, long enough for a slow machine to answer in its first
 * third. Promised times are fractions of it. LONG only bounds a test that fails.
 */
#define TTL   "60000"
#define BRIEF "6000"
enum { TTL_MS = 60000, BRIEF_MS = 6000, LONG_MS = 30000 };

#define GRANT_FOR(ttl, replayed, left)                                                                                 \
    "{\"external_id\":\"" KEY "\",\"state\":\"ACQUIRED\",\"replayed\":" replayed                                       \
    ",\"permits\":[{\"semaphore\":\"s\",\"count\":2,\"token\":57,\"slots\":[1,3],\"floor\":55,\"available\":4}],"      \
    "\"ttl_ms\":" ttl ",\"expires_in_ms\":" left ",\"news\":{}}"
#define GRANT(replayed, left) GRANT_FOR(TTL, replayed, left)
#define YOURS                 "true,\"yours\":true"
#define NOT_YOURS             "true,\"yours\":false"
#define BRIEF_GRANT           GRANT_FOR(BRIEF, "false", BRIEF)
#define PROBLEM(word, more)                                                                                            \
    "{\"type\":\"/problems/" word "\",\"title\":\"t\",\"status\":1,\"detail\":\"said so\"" more "}"

static const struct permit_want want = {.semaphore = "s", .count = 2};

static struct permit_client *client_of(const struct script *script, int64_t timeout_ms)
{
    struct permit_client *client = NULL;
    struct permit_client_options options = {.url = script->url, .timeout_ms = timeout_ms, .token = "secret"};
    if (permit_client_new(&options, &client))
        abort();
    return client;
}

/* Options of tests that time out: silence is noticed soon, and retries end early. */
static struct permit_client *hasty_client_of(const struct script *script, int64_t timeout_ms)
{
    struct permit_client *client = NULL;
    struct permit_client_options options = {.url = script->url, .timeout_ms = timeout_ms, .retry_ms = 1};
    if (permit_client_new(&options, &client))
        abort();
    return client;
}

static enum permit_status acquire(struct permit_client *client, int64_t wait_ms, struct permit_request **ret_request)
{
    struct permit_acquire_options options = {.permits = &want, .permit_count = 1, .wait_ms = wait_ms, .ttl_ms = TTL_MS};
    return permit_acquire(client, &options, ret_request);
}

/* ---- Tests ---- */

static void grant_is_read_completely(void)
{
    SCRIPT(script, {ANSWER, 201, GRANT("false", TTL), "Authorization: Bearer secret"});
    struct permit_client *client = client_of(&script, 0);
    struct permit_request *request = NULL;
    int64_t before = boot_ms();
    enum permit_status status = acquire(client, 0, &request);
    check(status == PERMIT_OK && request->held && !request->replayed && request->yours, "a grant");
    check(request->permit_count == 1 && request->permits[0].token == 57 && request->permits[0].slot_count == 2 &&
              request->permits[0].slots[1] == 3 && request->permits[0].floor == 55 &&
              request->permits[0].available == 4,
          "with token, slots, floor and what is left; unknown members are ignored");
    check(request->held_until_us / 1000 >= before + TTL_MS - 1 && request->held_until_us / 1000 <= boot_ms() + TTL_MS,
          "held until ttl after it was sent");
    check(*permit_client_message(client) == '\0', "no message after success");
    permit_request_free(request);
    permit_client_free(client);
    check(script_end(&script), "sent with the credential");
}

static void metadata_is_sent_with_the_acquire(void)
{
    SCRIPT(script, {ANSWER, 201, GRANT("false", TTL), ",\"metadata\":{\"order\":\"4711\"}"});
    struct permit_client *client = client_of(&script, 0);
    struct permit_request *request = NULL;
    const struct permit_acquire_options options = {
        .permits = &want, .permit_count = 1, .metadata = "{\"order\":\"4711\"}"};
    check(permit_acquire(client, &options, &request) == PERMIT_OK, "an acquire with metadata");
    permit_request_free(request);
    permit_client_free(client);
    check(script_end(&script), "which is sent");
}

/* "#12" is a number, "##12" the label #12, all else labels. */
static void specific_slots_are_requested_and_read(void)
{
    static const char *const these[] = {"A1", "#12", "##12", "#a", "##", "#99999999999999999999"};
    static const char *const two[] = {"B1", "#2"};
    static const char grant[] =
        "{\"external_id\":\"" KEY "\",\"state\":\"ACQUIRED\",\"permits\":[{\"semaphore\":\"s\",\"count\":2,"
        "\"token\":57,\"slots\":[3,4],\"labels\":[\"A3\",null]},{\"semaphore\":\"t\",\"count\":1,"
        "\"token\":9,\"slots\":[1],\"labels\":[7,\"x\",\"y\"]},{\"semaphore\":\"u\",\"count\":1,"
        "\"token\":9,\"labels\":[\"x\"]}]}";
    SCRIPT(script, {ANSWER, 201, grant,
                    "[{\"semaphore\":\"s\",\"slots\":[\"A1\",12,\"#12\",\"#a\",\"#\",9223372036854775807]},{"
                    "\"semaphore\":\"t\",\"count\":1,"
                    "\"any_of\":[\"B1\",2],\"adjacent\":true},{\"semaphore\":\"u\",\"count\":3,\"slots\":[]}]"});
    const struct permit_want wants[] = {
        {.semaphore = "s", .slots = these, .slot_count = 6, .choice = PERMIT_THESE},
        {.semaphore = "t", .slots = two, .slot_count = 2, .choice = PERMIT_ANY_OF, .adjacent = true},
        {.semaphore = "u", .count = 3, .choice = PERMIT_THESE}};
    const struct permit_acquire_options options = {.permits = wants, .permit_count = 3};
    struct permit_client *client = client_of(&script, 0);
    struct permit_request *request = NULL;
    check(permit_acquire(client, &options, &request) == PERMIT_OK, "certain slots");
    check(request && request->permits[0].labels && strcmp(request->permits[0].labels[0], "A3") == 0 &&
              !request->permits[0].labels[1],
          "labels, and none");
    check(request && request->permits[1].labels && !request->permits[1].labels[0] && !request->permits[2].labels,
          "labels of nonsense are none");
    permit_request_free(request);
    permit_client_free(client);
    check(script_end(&script), "sent as numbers and labels");
}

static void lost_answer_is_requested_again(void)
{
    SCRIPT(script, {CUT, 0, NULL, "\"ttl\":\"" TTL "ms\""}, {ANSWER, 500, PROBLEM("internal", ""), NULL},
           {ANSWER, 200, GRANT(YOURS, TTL), NULL});
    struct permit_client *client = client_of(&script, 0);
    struct permit_request *request = NULL;
    check(acquire(client, 0, &request) == PERMIT_OK, "a lost answer is requested again");
    check(request && request->replayed && request->yours, "and the replay is known to be ours");
    check(strlen(script.keys[0]) == 36 && strcmp(script.keys[0], script.keys[1]) == 0 &&
              strcmp(script.keys[0], script.keys[2]) == 0 && strcmp(script.keys[0], permit_client_key(client)) == 0,
          "with the same key each time");
    check(strlen(script.nonces[0]) == 36 && strcmp(script.nonces[0], script.nonces[2]) == 0 &&
              strcmp(script.nonces[0], script.keys[0]) != 0,
          "and the same nonce, which is not the key");
    permit_request_free(request);
    permit_client_free(client);
    check(script_end(&script), "three times");
}

/* Another client may have lost an answer under the same key, too. */
static void replay_of_another_client_is_not_ours(void)
{
    SCRIPT(script, {CUT, 0, NULL, NULL}, {ANSWER, 200, GRANT(NOT_YOURS, TTL), NULL},
           {ANSWER, 200, GRANT("true", TTL), NULL}, {ANSWER, 200, GRANT(NOT_YOURS, "1"), NULL},
           {ANSWER, 200, GRANT(YOURS, TTL), "\"nonce\":\"mine\""});
    struct permit_client *client = client_of(&script, 0);
    struct permit_acquire_options named = {
        .external_id = "k", .nonce = "mine", .permits = &want, .permit_count = 1, .ttl_ms = TTL_MS};
    struct permit_request *requests[4] = {NULL};
    check(acquire(client, 0, &requests[0]) == PERMIT_OK && requests[0]->replayed && !requests[0]->yours,
          "a replay that is not ours is not taken for ours after a lost answer");
    check(acquire(client, 0, &requests[1]) == PERMIT_OK && !requests[1]->yours,
          "nor is one of a server that does not say");
    check(acquire(client, 0, &requests[2]) == PERMIT_OK && !requests[2]->yours,
          "and another client's grant is not renewed");
    check(permit_acquire(client, &named, &requests[3]) == PERMIT_OK && requests[3]->yours,
          "a caller may name the nonce");
    check(strcmp(script.nonces[0], script.nonces[1]) == 0 && strcmp(script.nonces[1], script.nonces[2]) != 0,
          "each call has a nonce of its own");
    for (size_t i = 0; i < 4; i++)
        permit_request_free(requests[i]);
    permit_client_free(client);
    check(script_end(&script), "five times");
}

static void refusals_have_status_and_message(void)
{
    SCRIPT(script, {ANSWER, 422, PROBLEM("never_satisfiable", ""), NULL},
           {ANSWER, 423, PROBLEM("no_capacity", ",\"retry_after_ms\":700"), NULL},
           {ANSWER, 418, PROBLEM("teapot", ""), NULL}, {ANSWER, 422, PROBLEM("tomorrows", ""), NULL});
    struct permit_client *client = client_of(&script, 0);
    struct permit_request *request = NULL;
    check(acquire(client, 5000, &request) == PERMIT_NEVER_SATISFIABLE && !request, "a refusal is not repeated");
    check(strcmp(permit_client_message(client), "said so") == 0, "and has the server's sentence");
    check(strstr(permit_client_answer(client), "never_satisfiable") != NULL, "and its problem");
    check(acquire(client, 0, &request) == PERMIT_NO_CAPACITY && permit_client_retry_after_ms(client) == 700,
          "no capacity without a wait: at once, with Retry-After");
    check(acquire(client, 0, &request) == PERMIT_INVALID, "an unknown problem of the 400s is a refusal");
    check(permit_status_http(acquire(client, 0, &request)) == 422, "and keeps its HTTP status where we know it");
    permit_client_free(client);
    check(script_end(&script), "each sent once");
}

/* The library calculates with "retry_after_ms" and "ttl_ms", so any value must be safe. */
static void out_of_range_numbers_are_clamped(void)
{
    static const char huge_ttl[] = "{\"external_id\":\"" KEY "\",\"state\":\"ACQUIRED\",\"ttl_ms\":9223372036854775807,"
                                   "\"permits\":[{\"semaphore\":\"s\",\"token\":1}]}";
    SCRIPT(script, {ANSWER, 423, PROBLEM("no_capacity", ",\"retry_after_ms\":9223372036854775807"), NULL},
           {ANSWER, 423, PROBLEM("no_capacity", ",\"retry_after_ms\":-9223372036854775807"), NULL},
           {ANSWER, 201, huge_ttl, NULL});
    struct permit_client *client = client_of(&script, 0);
    struct permit_request *request = NULL;
    check(acquire(client, 0, &request) == PERMIT_NO_CAPACITY && permit_client_retry_after_ms(client) == 86400000,
          "no answer asks for a wait longer than a day");
    check(acquire(client, 0, &request) == PERMIT_NO_CAPACITY && permit_client_retry_after_ms(client) == 0,
          "or for less than no time");
    check(acquire(client, 0, &request) == PERMIT_OK && request->ttl_ms == 3162240000000, "or holds for over 100 years");
    permit_request_free(request);
    permit_client_free(client);
    check(script_end(&script), "each sent once");
}

/* Another server may answer instead of permitd: a grant is returned only if it is held. */
static void request_that_is_not_held_is_no_grant(void)
{
    static const char ended[] = "{\"external_id\":\"" KEY "\",\"state\":\"RELEASED\"}";
    SCRIPT(script, {ANSWER, 201, ended, NULL}, {ANSWER, 201, GRANT("false", "0"), NULL},
           {ANSWER, 200, ended, "/renew HTTP/1.1"});
    struct permit_client *client = client_of(&script, 0);
    struct permit_request *request = NULL;
    check(acquire(client, 0, &request) == PERMIT_INTERNAL && !request, "a request that is not held is no grant");
    check(acquire(client, 0, &request) == PERMIT_INTERNAL && !request, "nor is one that is renewed but not held");
    permit_client_free(client);
    check(script_end(&script), "in that order");
}

static void retry_after_is_honoured(void)
{
    SCRIPT(script, {ANSWER, 423, PROBLEM("no_capacity", ",\"retry_after_ms\":400"), NULL},
           {ANSWER, 503, PROBLEM("busy", ",\"retry_after_ms\":300"), NULL}, {ANSWER, 201, GRANT("false", TTL), NULL});
    struct permit_client *client = client_of(&script, 0);
    struct permit_request *request = NULL;
    check(acquire(client, PERMIT_FOREVER, &request) == PERMIT_OK && request->yours, "it waits for capacity");
    check(script.at[1] - script.at[0] >= 400 && script.at[1] - script.at[0] < LONG_MS &&
              script.at[2] - script.at[1] >= 300 && script.at[2] - script.at[1] < LONG_MS,
          "asking again after Retry-After, and soon after it");
    permit_request_free(request);
    permit_client_free(client);
    (void)script_end(&script);
}

/* ---- Waiting ---- */

/* The server waits itself and sends Retry-After; the client asks again immediately. */
#define FULL PROBLEM("no_capacity", ",\"retry_after_ms\":20000")

static struct permit_client *client_of_one_try(const struct script *script)
{
    struct permit_client *client = NULL;
    struct permit_client_options options = {.url = script->url, .retry_ms = -1};
    if (permit_client_new(&options, &client))
        abort();
    return client;
}

static enum permit_status acquire_in_pieces(struct permit_client *client, int64_t wait_ms, int64_t piece_ms,
                                            struct permit_request **ret_request)
{
    struct permit_acquire_options options = {
        .permits = &want, .permit_count = 1, .wait_ms = wait_ms, .wait_piece_ms = piece_ms, .ttl_ms = TTL_MS};
    return permit_acquire(client, &options, ret_request);
}

static void long_wait_is_cut_into_pieces(void)
{
    SCRIPT(script, {WAIT, 423, FULL, "\"wait\":\"300ms\""}, {WAIT, 423, FULL, "\"wait\":\"300ms\""},
           {ANSWER, 201, GRANT("false", TTL), "\"wait\":\"300ms\""});
    struct permit_client *client = client_of(&script, 0);
    struct permit_request *request = NULL;
    check(acquire_in_pieces(client, PERMIT_FOREVER, 300, &request) == PERMIT_OK && request->yours,
          "a long wait is cut into pieces");
    check(strcmp(script.keys[0], script.keys[2]) == 0 && strcmp(script.nonces[0], script.nonces[2]) == 0,
          "of one key and one nonce");
    check(script.at[1] - script.at[0] >= 300 && script.at[2] - script.at[0] < 20000, "one following the other at once");
    permit_request_free(request);
    permit_client_free(client);
    check(script_end(&script), "each with the requested length");
}

static void last_piece_is_the_remaining_wait(void)
{
    SCRIPT(script, {WAIT, 423, FULL, NULL}, {WAIT, 423, FULL, NULL});
    struct permit_client *client = client_of(&script, 0);
    struct permit_request *request = NULL;
    int64_t start = now_ms();
    check(acquire_in_pieces(client, 7000, 3500, &request) == PERMIT_NO_CAPACITY, "no capacity when the wait is over");
    check(script.waits[0] == 3500 && script.waits[1] > 0 && script.waits[1] <= 3500,
          "the last piece is the remaining wait");
    check(now_ms() - start >= 7000 && now_ms() - start < LONG_MS, "and nothing is sent after it");
    permit_client_free(client);
    check(script_end(&script), "twice");
}

static void shorter_max_wait_of_the_server_is_used(void)
{
    SCRIPT(script, {ANSWER, 422, PROBLEM("invalid", ",\"max_wait_ms\":250"), "\"wait\":\"60000ms\""},
           {WAIT, 423, FULL, "\"wait\":\"250ms\""}, {ANSWER, 201, GRANT("false", TTL), "\"wait\":\"250ms\""},
           {ANSWER, 201, GRANT("false", TTL), "\"wait\":\"250ms\""},
           {ANSWER, 422, PROBLEM("invalid", ",\"max_wait_ms\":250"), "\"wait\":\"250ms\""},
           {ANSWER, 422, PROBLEM("invalid", ",\"max_wait_ms\":0"), "\"wait\":\"250ms\""},
           {ANSWER, 423, PROBLEM("no_capacity", ",\"retry_after_ms\":300"), NULL},
           {ANSWER, 201, GRANT("false", TTL), NULL});
    struct permit_client *client = client_of(&script, 0);
    struct permit_request *first = NULL, *second = NULL, *third = NULL;
    check(acquire(client, PERMIT_FOREVER, &first) == PERMIT_OK, "a shorter limit of the server is used");
    check(acquire(client, PERMIT_FOREVER, &second) == PERMIT_OK, "from then on");
    check(acquire(client, PERMIT_FOREVER, &third) == PERMIT_INVALID, "but not if the server refuses something else");
    check(acquire(client, PERMIT_FOREVER, &third) == PERMIT_OK && script.waits[6] == 0 && script.waits[7] == 0,
          "one that takes none at all is asked");
    check(script.at[7] - script.at[6] >= 300, "again and again, after Retry-After");
    permit_request_free(first);
    permit_request_free(second);
    permit_request_free(third);
    permit_client_free(client);
    check(script_end(&script), "in that order");
}

static void client_pauses_if_the_server_does_not_wait(void)
{
    SCRIPT(script, {ANSWER, 423, PROBLEM("no_capacity", ",\"retry_after_ms\":400"), "\"wait\":\"60000ms\""},
           {ANSWER, 429, PROBLEM("too_many", ",\"retry_after_ms\":300"), NULL},
           {ANSWER, 201, GRANT("false", TTL), NULL});
    struct permit_client *client = client_of_one_try(&script);
    struct permit_request *request = NULL;
    check(acquire(client, PERMIT_FOREVER, &request) == PERMIT_OK, "a server that does not wait, or has no place,");
    check(script.at[1] - script.at[0] >= 400 && script.at[2] - script.at[1] >= 300 &&
              script.at[2] - script.at[0] < LONG_MS,
          "is asked again after Retry-After");
    permit_request_free(request);
    permit_client_free(client);
    check(script_end(&script), "for as long as it takes");
}

#define CROWDED PROBLEM("too_many", ",\"retry_after_ms\":100")

static void full_queue_is_asked_less_and_less_often(void)
{
    SCRIPT(script, {ANSWER, 429, CROWDED, NULL}, {ANSWER, 429, CROWDED, NULL}, {ANSWER, 429, CROWDED, NULL},
           {ANSWER, 429, CROWDED, NULL}, {WAIT, 423, FULL, "\"wait\":\"100ms\""}, {ANSWER, 429, CROWDED, NULL},
           {ANSWER, 201, GRANT("false", TTL), NULL});
    struct permit_client *client = client_of_one_try(&script);
    struct permit_request *request = NULL;
    check(acquire_in_pieces(client, PERMIT_FOREVER, 100, &request) == PERMIT_OK, "a full queue is asked again,");
    check(script.at[1] - script.at[0] >= 100 && script.at[2] - script.at[1] >= 200 &&
              script.at[3] - script.at[2] >= 400 && script.at[4] - script.at[3] >= 800,
          "each time after twice the pause");
    permit_request_free(request);
    permit_client_free(client);
    check(script_end(&script), "until the request has a place");
}

static enum permit_status acquire_with_retries(struct permit_client *client, int64_t wait_ms, int64_t retry_ms,
                                               struct permit_request **ret_request)
{
    struct permit_acquire_options options = {
        .permits = &want, .permit_count = 1, .wait_ms = wait_ms, .retry_ms = retry_ms, .ttl_ms = TTL_MS};
    return permit_acquire(client, &options, ret_request);
}

static void acquire_without_retries_is_tried_once(void)
{
    SCRIPT(script, {CUT, 0, NULL, NULL}, {ANSWER, 429, CROWDED, "\"wait\":\"60000ms\""},
           {ANSWER, 503, PROBLEM("busy", ",\"retry_after_ms\":50"), NULL}, {WAIT, 423, FULL, NULL},
           {ANSWER, 201, GRANT("false", TTL), NULL});
    struct permit_client *client = client_of(&script, 0);
    struct permit_request *request = NULL;
    check(acquire_with_retries(client, PERMIT_FOREVER, -1, &request) == PERMIT_NO_SERVER,
          "without retries a lost answer ends an acquire,");
    check(acquire_with_retries(client, PERMIT_FOREVER, -1, &request) == PERMIT_TOO_MANY, "so does a full queue,");
    check(acquire_with_retries(client, 0, -1, &request) == PERMIT_BUSY, "and a server that is busy");
    check(acquire_with_retries(client, 500, -1, &request) == PERMIT_NO_CAPACITY, "a wait is no retry");
    check(acquire_with_retries(client, 0, -1, &request) == PERMIT_OK, "nor is a grant refused");
    permit_request_free(request);
    permit_client_free(client);
    check(script_end(&script), "each was sent once");
}

static void acquire_retries_for_as_long_as_its_wait(void)
{
#define BUSY_FOR_NOW {ANSWER, 503, PROBLEM("busy", ",\"retry_after_ms\":50"), NULL}
    SCRIPT(script, BUSY_FOR_NOW, BUSY_FOR_NOW, BUSY_FOR_NOW, BUSY_FOR_NOW, {ANSWER, 201, GRANT("false", TTL), NULL});
    struct permit_client *client = hasty_client_of(&script, 0);
    struct permit_request *request = NULL;
    int64_t start = now_ms();
    check(acquire_with_retries(client, LONG_MS, LONG_MS, &request) == PERMIT_OK,
          "retry_ms of an acquire goes beyond that of its client");
    check(script_end(&script), "until there is an answer,");
    permit_request_free(request);
    start = now_ms();
    check(acquire_with_retries(client, 1500, LONG_MS, &request) == PERMIT_NO_SERVER && now_ms() - start >= 1500 &&
              now_ms() - start < LONG_MS,
          "or the wait ends");
    permit_client_free(client);
}

static void wait_survives_a_restart_of_the_server(void)
{
    SCRIPT(script, {CUT, 0, NULL, NULL}, {ANSWER, 503, PROBLEM("shutting_down", ",\"retry_after_ms\":50"), NULL},
           {ANSWER, 503, PROBLEM("database_unavailable", ",\"retry_after_ms\":50"), NULL},
           {ANSWER, 200, GRANT(YOURS, TTL), NULL});
    struct permit_client *client = client_of_one_try(&script);
    struct permit_request *request = NULL;
    check(acquire(client, PERMIT_FOREVER, &request) == PERMIT_OK && request->yours,
          "a wait outlives a server that goes away");
    permit_request_free(request);
    permit_client_free(client);
    check(script_end(&script), "and comes back");
}

struct tale {
    struct permit_client *client;
    int calls;
    bool right;
};

static void on_waiting(void *context, enum permit_status status, const char *message)
{
    struct tale *tale = context;
    bool right = status == PERMIT_NO_CAPACITY && strcmp(message, "said so") == 0 &&
                 strstr(permit_client_answer(tale->client), "no_capacity");
    tale->right = right && (tale->right || tale->calls == 0);
    tale->calls++;
}

static void caller_learns_the_reason_of_the_wait(void)
{
    SCRIPT(script, {WAIT, 423, FULL, "\"wait\":\"1000ms\""}, {WAIT, 423, FULL, "\"wait\":\"1500ms\""},
           {ANSWER, 201, GRANT("false", TTL), "\"wait\":\"1500ms\""});
    struct permit_client *client = client_of(&script, 0);
    struct permit_request *request = NULL;
    struct tale tale = {.client = client};
    struct permit_acquire_options options = {.permits = &want,
                                             .permit_count = 1,
                                             .ttl_ms = TTL_MS,
                                             .wait_ms = PERMIT_FOREVER,
                                             .wait_piece_ms = 1500,
                                             .waiting = on_waiting,
                                             .waiting_context = &tale};
    check(permit_acquire(client, &options, &request) == PERMIT_OK && tale.calls == 2 && tale.right,
          "who waits is told why, after a second and then after each piece");
    permit_request_free(request);
    permit_client_free(client);
    (void)script_end(&script);
}

static void caller_that_learns_it_late_costs_no_call(void)
{
    SCRIPT(script, {WAIT, 423, FULL, "\"wait\":\"1500ms\""}, {ANSWER, 201, GRANT("false", TTL), "\"wait\":\"1500ms\""});
    struct permit_client *client = client_of(&script, 0);
    struct permit_request *request = NULL;
    struct tale tale = {.client = client};
    struct permit_acquire_options options = {.permits = &want,
                                             .permit_count = 1,
                                             .ttl_ms = TTL_MS,
                                             .wait_ms = PERMIT_FOREVER,
                                             .wait_piece_ms = 1500,
                                             .waiting = on_waiting,
                                             .waiting_context = &tale,
                                             .waiting_late = true};
    check(permit_acquire(client, &options, &request) == PERMIT_OK && tale.calls == 1 && tale.right,
          "the reason of the wait may be told after each piece only");
    permit_request_free(request);
    permit_client_free(client);
    check(script_end(&script), "and the first is as long as the others");
}

static void grant_that_expired_during_suspension_is_requested_again(void)
{
    SCRIPT(script, {ANSWER, 201, GRANT("false", "0"), NULL},
           {ANSWER, 410, PROBLEM("ended", ",\"end_reason\":\"expired\""), "/renew"},
           {ANSWER, 410, PROBLEM("ended", ",\"end_reason\":\"expired\""), "\"wait\":"},
           {ANSWER, 201, GRANT("false", TTL), "\"wait\":"},
           {ANSWER, 410, PROBLEM("ended", ",\"end_reason\":\"never_held\""), NULL},
           {ANSWER, 410, PROBLEM("ended", ",\"end_reason\":\"expired\""), NULL});
    struct permit_client *client = client_of(&script, 0);
    struct permit_request *request = NULL, *none = NULL;
    struct permit_acquire_options ours = {
        .external_id = "ours", .permits = &want, .permit_count = 1, .wait_ms = PERMIT_FOREVER};
    check(acquire(client, PERMIT_FOREVER, &request) == PERMIT_OK && !request->replayed,
          "a grant that was slept through is asked for anew");
    check(strcmp(script.keys[0], script.keys[2]) != 0 && strcmp(script.keys[2], script.keys[3]) != 0,
          "under other keys");
    check(acquire(client, PERMIT_FOREVER, &none) == PERMIT_ENDED, "but not if the key was released");
    check(permit_acquire(client, &ours, &none) == PERMIT_ENDED, "nor under a key of the caller's");
    permit_request_free(request);
    permit_client_free(client);
    check(script_end(&script), "whose end is final");
}

struct canceller {
    struct script *script;
    int fd;
};

static void *cancel_after_first_request(void *context)
{
    const struct canceller *canceller = context;
    while (atomic_load(&canceller->script->served) < 1)
        usleep(1000);
    (void)eventfd_write(canceller->fd, 1);
    return NULL;
}

static void running_piece_can_be_cancelled(void)
{
    SCRIPT(script, {HANG, 0, NULL, NULL});
    struct permit_client *client = client_of(&script, 0);
    struct permit_request *request = NULL;
    struct canceller canceller = {.script = &script, .fd = eventfd(0, 0)};
    struct permit_acquire_options options = {
        .permits = &want, .permit_count = 1, .wait_ms = PERMIT_FOREVER, .cancel_fd = canceller.fd};
    pthread_t thread;
    int64_t start = now_ms();
    if (pthread_create(&thread, NULL, cancel_after_first_request, &canceller) != 0)
        abort();
    check(permit_acquire(client, &options, &request) == PERMIT_OUTCOME_UNKNOWN && now_ms() - start < LONG_MS,
          "a piece under way can be cancelled");
    check(strcmp(permit_client_key(client), script.keys[0]) == 0, "and its key is known, to be released");
    pthread_join(thread, NULL);
    close(canceller.fd);
    permit_client_free(client);
    check(script_end(&script), "after one try");
}

static void every_call_can_be_cancelled(void)
{
    SCRIPT(script, {HANG, 0, NULL, "GET /v1/requests/k "});
    struct permit_client *client = NULL;
    struct permit_request *request = NULL;
    struct canceller canceller = {.script = &script, .fd = eventfd(0, 0)};
    struct permit_client_options options = {.url = script.url, .cancel_fd = canceller.fd};
    pthread_t thread;
    int64_t start = now_ms();
    if (permit_client_new(&options, &client) ||
        pthread_create(&thread, NULL, cancel_after_first_request, &canceller) != 0)
        abort();
    check(permit_show(client, "k", &request) == PERMIT_OUTCOME_UNKNOWN && now_ms() - start < LONG_MS,
          "every call of a client can be cancelled");
    pthread_join(thread, NULL);
    close(canceller.fd);
    permit_client_free(client);
    (void)script_end(&script);
}

static void another_server_is_no_server(void)
{
    SCRIPT(script, {ANSWER, 502, "<html>bad gateway</html>", NULL});
    struct permit_client *client = NULL;
    struct permit_request *request = NULL;
    struct permit_client_options options = {.url = script.url, .retry_ms = -1};
    check(permit_client_new(&options, &client) == PERMIT_OK && acquire(client, 0, &request) == PERMIT_NO_SERVER,
          "an answer that is not permitd's: no server");
    permit_client_free(client);
    check(script_end(&script), "retry_ms -1: one try");
    check(permit_client_new(&(struct permit_client_options){.url = "gopher://x"}, &client) == PERMIT_INVALID,
          "a url that is not http");
}

static void several_requests_are_confirmed_in_one_call(void)
{
    static const char *const keys[] = {"a", "b"};
    SCRIPT(script, {ANSWER, 409, PROBLEM("in_transaction", ",\"retry_after_ms\":1"), "POST /v1/confirm "},
           {ANSWER, 200, "{\"confirmed\":[{\"external_id\":\"a\"},{\"external_id\":\"b\"}]}",
            "{\"external_ids\":[\"a\",\"b\"]}"},
           {ANSWER, 410, PROBLEM("ended", ",\"external_id\":\"b\""), NULL}, {ANSWER, 200, "{\"confirmed\":[]}", NULL});
    struct permit_client *client = client_of(&script, 0);
    check(permit_confirm_all(client, keys, 2) == PERMIT_OK, "several requests are confirmed, after a transaction");
    check(permit_confirm_all(client, keys, 2) == PERMIT_ENDED &&
              strstr(permit_client_answer(client), "\"external_id\":\"b\""),
          "or none, and the answer names one that has ended");
    check(permit_confirm_all(client, keys, 2) == PERMIT_INTERNAL, "an answer about others is none");
    permit_client_free(client);
    check(script_end(&script), "in one call");
}

/* The nonce is the same in all tries, so that a change whose answer was lost is made once. */
static void changes_are_sent_again_with_their_nonce(void)
{
    static const char *const slots[] = {"A1", "#12"};
    static const char answer[] =
        "{\"external_id\":\"" KEY "\",\"state\":\"ACQUIRED\",\"permits\":[{\"semaphore\":\"s\","
        "\"count\":1,\"token\":58,\"slots\":[3]}],\"changes\":3,\"ttl_ms\":9}";
    static const char released[] =
        "{\"external_id\":\"" KEY "\",\"state\":\"RELEASED\",\"permits\":[],\"changes\":4294967296}";
    SCRIPT(script, {CUT, 0, NULL, "POST /v1/requests/k/shrink "}, {ANSWER, 200, answer, NULL},
           {ANSWER, 200, answer,
            "{\"permits\":[{\"semaphore\":\"s\",\"count\":2,\"adjacent\":true}],\"nonce\":\"mine\",\"changes\":2}"},
           {ANSWER, 200, released,
            "{\"give\":[{\"semaphore\":\"s\",\"slots\":[\"A1\",12]}],\"take\":[{\"semaphore\":\"t\",\"count\":1}],"
            "\"nonce\":\""});
    const struct permit_want named = {.semaphore = "s", .slots = slots, .slot_count = 2, .choice = PERMIT_THESE};
    const struct permit_want two = {.semaphore = "s", .count = 2, .adjacent = true}, other = {.semaphore = "t"};
    struct permit_client *client = client_of(&script, 0);
    struct permit_request *shrunk = NULL, *exchanged = NULL;
    check(permit_shrink(client, "k", &(struct permit_change){.give = &named, .give_count = 1, .changes = 2}, &shrunk) ==
                  PERMIT_OK &&
              shrunk->permit_count == 1 && shrunk->permits[0].token == 58 && shrunk->changes == 3,
          "a shrink whose answer was lost is sent again, and shows what is held");
    check(strlen(script.nonces[0]) == 36 && strcmp(script.nonces[0], script.nonces[1]) == 0, "with the same nonce");
    check(permit_grow(client, "k",
                      &(struct permit_change){.take = &two, .take_count = 1, .changes = 2, .nonce = "mine"},
                      NULL) == PERMIT_OK,
          "a grow, with a nonce of the caller");
    check(permit_exchange(client, "k",
                          &(struct permit_change){.give = &named, .give_count = 1, .take = &other, .take_count = 1},
                          &exchanged) == PERMIT_OK &&
              !exchanged->held && exchanged->changes == UINT32_MAX,
          "an exchange, whose number of changes is clamped");
    check(strcmp(script.nonces[3], script.nonces[1]) != 0, "and which has a nonce of its own");
    const struct permit_change both = {.give = &two, .give_count = 1, .take = &two, .take_count = 1};
    check(permit_shrink(client, "k", &both, NULL) == PERMIT_INVALID &&
              permit_grow(client, "k", &both, NULL) == PERMIT_INVALID && *permit_client_message(client),
          "a shrink that takes and a grow that gives are not sent");
    permit_request_free(shrunk);
    permit_request_free(exchanged);
    permit_client_free(client);
    check(script_end(&script), "sent as documented");
}

/* Between two tries of a change another client may have made the next one. */
static void mismatch_after_a_lost_answer_leaves_doubt(void)
{
    SCRIPT(script, {ANSWER, 412, PROBLEM("version_mismatch", ""), NULL}, {CUT, 0, NULL, NULL},
           {ANSWER, 412, PROBLEM("version_mismatch", ""), NULL}, {ANSWER, 423, PROBLEM("no_capacity", ""), NULL},
           {ANSWER, 409, PROBLEM("confirmed", ""), NULL});
    struct permit_client *client = client_of(&script, 0);
    const struct permit_change change = {.take = &want, .take_count = 1};
    check(permit_grow(client, "k", &change, NULL) == PERMIT_VERSION_MISMATCH && !permit_client_in_doubt(client),
          "another number of changes is final");
    check(permit_grow(client, "k", &change, NULL) == PERMIT_VERSION_MISMATCH && permit_client_in_doubt(client),
          "after a lost answer the change may have been made");
    check(permit_grow(client, "k", &change, NULL) == PERMIT_NO_CAPACITY && !permit_client_in_doubt(client),
          "there is no wait for capacity");
    check(permit_grow(client, "k", &change, NULL) == PERMIT_CONFIRMED, "a sale does not grow");
    permit_client_free(client);
    check(script_end(&script), "no refusal is sent again");
}

/* Another server may answer 200 to anything: that is no release and no confirmation. */
static void success_of_another_server_is_none(void)
{
    static const char page[] = "<html>hello</html>", other[] = "{\"external_id\":\"j\",\"state\":\"RELEASED\"}";
    SCRIPT(script, {ANSWER, 200, page, "DELETE"}, {ANSWER, 200, page, "/confirm"}, {ANSWER, 204, "", "/renew"},
           {ANSWER, 200, "[1]", "PUT /v1/semaphores/s "}, {ANSWER, 200, "{\"ok\":true}", "DELETE"},
           {ANSWER, 200, other, "DELETE"}, {ANSWER, 200, page, "POST /v1/requests "},
           {ANSWER, 200, "permitd_waiting 0\n", "GET /metrics "});
    struct permit_client *client = client_of_one_try(&script);
    struct permit_request *request = NULL;
    check(permit_release(client, "k", NULL) == PERMIT_NO_SERVER &&
              strstr(permit_client_message(client), "HTTP status 200 from another server, not from permitd"),
          "a page that is answered to a release is not taken for one");
    check(permit_confirm(client, "k", NULL) == PERMIT_NO_SERVER, "nor for a sale");
    check(permit_renew(client, "k", 0, NULL) == PERMIT_NO_SERVER, "nor is nothing at all for a renewal");
    check(permit_semaphore_put(client, "s", &(struct permit_semaphore_options){.capacity = 1}) == PERMIT_NO_SERVER,
          "nor is JSON that is no object for a semaphore");
    check(permit_release(client, "k", NULL) == PERMIT_INTERNAL, "nor an object that is no request for a release");
    check(permit_release(client, "k", NULL) == PERMIT_INTERNAL, "nor is the release of another key");
    check(acquire(client, 0, &request) == PERMIT_NO_SERVER && permit_client_in_doubt(client),
          "an acquire that gets a page may have been granted");
    check(permit_call(client, "GET", "/metrics", NULL) == PERMIT_OK, "metrics are text");
    permit_client_free(client);
    check(script_end(&script), "each sent once");
}

/* A proxy that refuses has not passed the call on. */
static void refusal_of_a_proxy_is_reported_as_such(void)
{
    static const char page[] = "<html>go away</html>";
    SCRIPT(script, {ANSWER, 401, page, NULL}, {ANSWER, 407, page, NULL}, {ANSWER, 403, page, NULL},
           {ANSWER, 404, page, NULL}, {CUT, 0, NULL, NULL}, {ANSWER, 401, page, NULL});
    struct permit_client *client = client_of(&script, 0), *once = client_of_one_try(&script);
    struct permit_request *request = NULL;
    check(acquire(client, PERMIT_FOREVER, &request) == PERMIT_UNAUTHENTICATED && !permit_client_in_doubt(client) &&
              strstr(permit_client_message(client), "401 from a proxy, not from permitd"),
          "a proxy's 401 is said as such, and leaves no doubt");
    check(acquire(client, PERMIT_FOREVER, &request) == PERMIT_UNAUTHENTICATED && !permit_client_in_doubt(client),
          "so is its 407");
    check(acquire(client, PERMIT_FOREVER, &request) == PERMIT_FORBIDDEN && !permit_client_in_doubt(client) &&
              strstr(permit_client_message(client), "403 from a proxy, not from permitd"),
          "and its 403");
    permit_client_free(client); /* the server serves one connection at a time */
    check(acquire(once, 0, &request) == PERMIT_NO_SERVER && !permit_client_in_doubt(once),
          "a stranger's 404 leaves no doubt either");
    permit_client_free(once);
    client = client_of(&script, 0);
    check(acquire(client, 0, &request) == PERMIT_UNAUTHENTICATED && permit_client_in_doubt(client),
          "but what was sent before a 401 may have been granted");
    permit_client_free(client);
    check(script_end(&script), "each sent once");
}

/* ---- Silence ---- */

static void call_abandons_a_silent_connection(void)
{
    static const char released[] = "{\"external_id\":\"k\",\"state\":\"RELEASED\",\"permits\":[]}";
    SCRIPT(script, {HANG, 0, NULL, "DELETE /v1/requests/k "}, {HANG, 0, NULL, "DELETE /v1/requests/k "},
           {ANSWER, 200, released, "DELETE /v1/requests/k "});
    struct permit_client *client = hasty_client_of(&script, 3000);
    check(permit_release(client, "k", NULL) == PERMIT_OK, "a release that meets silence twice is tried a third time");
    permit_client_free(client);
    check(script_end(&script) && script.connection[1] > script.connection[0] &&
              script.connection[2] > script.connection[1],
          "each time on a new connection");
    SCRIPT(first, {HANG, 0, NULL, NULL}, {ANSWER, 200, released, NULL});
    client = hasty_client_of(&first, 24000);
    int64_t start = now_ms(); /* the server may see the first try a little after the client's clock for it has begun */
    check(permit_release(client, "k", NULL) == PERMIT_OK && script_end(&first) && first.at[1] - start >= 8000 &&
              first.at[1] - start < 24000,
          "after a third of the time of a try");
    permit_client_free(client);
}

static void call_gives_up_a_silent_server(void)
{
    SCRIPT(script, {HANG, 0, NULL, NULL}, {HANG, 0, NULL, NULL}, {HANG, 0, NULL, NULL}, {HANG, 0, NULL, NULL});
    struct permit_client *client = hasty_client_of(&script, 3000);
    int64_t start = now_ms();
    check(permit_release(client, "k", NULL) == PERMIT_NO_SERVER && permit_client_in_doubt(client) &&
              atomic_load(&script.served) == 3,
          "a silent server is given up after three tries");
    check(now_ms() - start >= 6000, "of which the second has two thirds, and the third all of it");
    permit_client_free(client);
    (void)script_end(&script);
}

static void wait_abandons_a_silent_connection(void)
{
    SCRIPT(script, {HANG, 0, NULL, "\"wait\":\"2000ms\""}, {ANSWER, 423, FULL, "\"wait\":\"1000ms\""},
           {ANSWER, 201, GRANT("false", TTL), "\"wait\":\"2000ms\""});
    struct permit_client *client = hasty_client_of(&script, 3000);
    struct permit_request *request = NULL;
    check(acquire_in_pieces(client, PERMIT_FOREVER, 2000, &request) == PERMIT_OK && request->yours,
          "a wait does not end at a silent piece");
    permit_request_free(request);
    permit_client_free(client);
    check(script_end(&script), "after which a short one looks whether the server is there");
}

static void wait_can_be_cancelled(void)
{
    SCRIPT(script, {ANSWER, 423, PROBLEM("no_capacity", ",\"retry_after_ms\":60000"), NULL}, {HANG, 0, NULL, NULL});
    struct permit_client *client = client_of(&script, 0);
    struct permit_request *request = NULL;
    int cancel = eventfd(1, 0);
    struct permit_acquire_options options = {
        .permits = &want, .permit_count = 1, .wait_ms = PERMIT_FOREVER, .cancel_fd = cancel};
    int64_t start = now_ms();
    enum permit_status status = permit_acquire(client, &options, &request);
    check((status == PERMIT_NO_CAPACITY || status == PERMIT_OUTCOME_UNKNOWN) && now_ms() - start < LONG_MS,
          "a wait ends when cancel_fd is readable");
    close(cancel);
    permit_client_free(client);
    (void)script_end(&script);
}

/* A request that may be held must be released; one that was never sent need not be. */
static void failed_acquire_reports_whether_it_may_hold(void)
{
    SCRIPT(script, {CUT, 0, NULL, NULL}, {ANSWER, 503, PROBLEM("busy", ",\"retry_after_ms\":60000"), NULL},
           {CUT, 0, NULL, NULL}, {ANSWER, 423, PROBLEM("no_capacity", ""), NULL},
           {ANSWER, 503, PROBLEM("busy", ",\"retry_after_ms\":60000"), NULL}, {ANSWER, 201, "{}", NULL},
           {ANSWER, 201, GRANT("false", TTL), NULL});
    struct permit_client *client = client_of(&script, 0);
    struct permit_request *request = NULL;
    check(acquire(client, 0, &request) == PERMIT_BUSY && permit_client_in_doubt(client),
          "a lost answer leaves a doubt");
    check(acquire(client, 0, &request) == PERMIT_NO_CAPACITY && !permit_client_in_doubt(client),
          "which a refusal settles");
    check(acquire(client, 0, &request) == PERMIT_BUSY && !permit_client_in_doubt(client),
          "a refusal alone leaves none");
    check(acquire(client, 0, &request) == PERMIT_INTERNAL && permit_client_in_doubt(client),
          "an answer that cannot be read does");
    check(acquire(client, 0, &request) == PERMIT_OK && !permit_client_in_doubt(client), "a grant is none");
    permit_request_free(request);
    check(script_end(&script), "seven of them were sent");
    check(acquire(client, 0, &request) == PERMIT_NO_SERVER && !permit_client_in_doubt(client),
          "and what was never sent leaves none either");
    permit_client_free(client);
}

static void repeated_delete_of_a_deleted_semaphore_succeeds(void)
{
    static const char unknown[] = PROBLEM("unknown_semaphore", "");
    SCRIPT(script, {CUT, 0, NULL, "DELETE /v1/semaphores/s "}, {ANSWER, 404, unknown, "DELETE /v1/semaphores/s "},
           {ANSWER, 404, unknown, NULL}, {ANSWER, 503, PROBLEM("outcome_unknown", ",\"retry_after_ms\":1"), NULL},
           {ANSWER, 404, PROBLEM("unknown_template", ""), NULL}, {CUT, 0, NULL, NULL}, {ANSWER, 404, unknown, NULL},
           {CUT, 0, NULL, NULL}, {ANSWER, 404, PROBLEM("unknown_owner", ""), NULL});
    struct permit_client *client = client_of(&script, 0);
    check(permit_call(client, "DELETE", "/v1/semaphores/s", NULL) == PERMIT_OK,
          "a DELETE whose answer was lost, and that finds nothing then, is done");
    check(strcmp(permit_client_answer(client), "{}") == 0 && !*permit_client_message(client), "and nothing is wrong");
    check(permit_call(client, "DELETE", "/v1/semaphores/s", NULL) == PERMIT_UNKNOWN_SEMAPHORE &&
              !permit_client_in_doubt(client),
          "one that finds nothing at first is not");
    check(permit_call(client, "DELETE", "/v1/templates/t", NULL) == PERMIT_OK, "the same of a template");
    check(permit_call(client, "GET", "/v1/semaphores/s", NULL) == PERMIT_UNKNOWN_SEMAPHORE, "but not of a look");
    check(permit_call(client, "DELETE", "/v1/owners/o", NULL) == PERMIT_UNKNOWN_OWNER,
          "and for an owner, which stays known, 404 says that there was none");
    permit_client_free(client);
    check(script_end(&script), "each tried again once");
}

static void name_of_dots_is_sent_unchanged(void)
{
    SCRIPT(script, {ANSWER, 422, PROBLEM("invalid", ""), "GET /v1/requests/.. "},
           {ANSWER, 422, PROBLEM("invalid", ""), "DELETE /v1/semaphores/. "});
    struct permit_client *client = client_of(&script, 0);
    struct permit_request *request = NULL;
    check(permit_show(client, "..", &request) == PERMIT_INVALID &&
              permit_call(client, "DELETE", "/v1/semaphores/.", NULL) == PERMIT_INVALID,
          "a name of dots is refused");
    permit_client_free(client);
    check(script_end(&script), "and stands for nothing else");
}

struct loss {
    atomic_int calls;
    atomic_int status;
    _Atomic int64_t at;
    char message[160];
};

static void on_lost(void *context, enum permit_status status, const char *message)
{
    struct loss *loss = context;
    (void)snprintf(loss->message, sizeof(loss->message), "%s", message);
    atomic_store(&loss->status, (int)status);
    atomic_store(&loss->at, now_ms());
    atomic_fetch_add(&loss->calls, 1);
}

static bool wait_for_loss(struct loss *loss, int64_t ms)
{
    int64_t end = now_ms() + ms;
    while (atomic_load(&loss->calls) == 0 && now_ms() < end)
        usleep(2000);
    return atomic_load(&loss->calls) == 1;
}

/* Record of a renewer until the loss of the permit. Times count from before the acquire was sent. */
struct renewal_record {
    struct loss loss;
    int64_t lost_ms;
    int64_t asked_ms[SEEN_MAX]; /* time of each request, by line of the script */
};

/* Acquires with the first line of the script, starts a renewer, and waits for the loss. every_ms: of the renewer. */
static struct renewal_record renew_every_until_lost(struct script *script, int64_t every_ms)
{
    struct permit_client *client = client_of(script, 0);
    struct permit_request *request = NULL;
    struct permit_renewer *renewer = NULL;
    struct renewal_record record = {.loss = {.calls = 0}};
    struct loss *loss = &record.loss;
    struct permit_renewer_options options = {.every_ms = every_ms, .lost = on_lost, .context = loss};
    int64_t start = now_ms();
    if (acquire(client, 0, &request) || permit_renewer_start(client, request, &options, &renewer))
        abort();
    permit_client_free(client);
    permit_request_free(request);
    if (!wait_for_loss(loss, 2 * LONG_MS) || permit_renewer_holds(renewer) ||
        permit_renewer_held_until_us(renewer) != 0)
        atomic_store(&loss->calls, -1);
    record.lost_ms = atomic_load(&loss->at) - start;
    permit_renewer_stop(renewer);
    for (size_t i = 0; i < atomic_load(&script->served); i++)
        record.asked_ms[i] = script->at[i] - start;
    return record;
}

static struct renewal_record renew_until_lost(struct script *script)
{
    return renew_every_until_lost(script, 0);
}

/* A hold without a ttl, of semaphores with this max_hold. */
#define ENDLESS_GRANT(max_hold, replayed)                                                                              \
    "{\"external_id\":\"" KEY "\",\"state\":\"ACQUIRED\",\"replayed\":" replayed                                       \
    ",\"permits\":[{\"semaphore\":\"s\",\"count\":1,\"token\":57}],\"max_hold_ms\":" max_hold "}"

static void hold_without_a_ttl_is_renewed_within_its_max_hold(void)
{
    SCRIPT(script, {ANSWER, 201, ENDLESS_GRANT(BRIEF, "false"), NULL},
           {ANSWER, 200, ENDLESS_GRANT(BRIEF, "false"), "/renew"}, {HANG, 0, NULL, "/renew"});
    struct renewal_record record = renew_until_lost(&script);
    check(record.asked_ms[1] >= BRIEF_MS / 3 - 1 && record.asked_ms[1] < BRIEF_MS,
          "a hold without a ttl is renewed after a third of max_hold");
    check(record.loss.calls == 1 && record.lost_ms >= BRIEF_MS * 4 / 3 - 1 && record.lost_ms < BRIEF_MS * 4,
          "and lost when that is over without a renewal");
    (void)script_end(&script);
    SCRIPT(shorter, {ANSWER, 201, ENDLESS_GRANT("86400000", "false"), NULL},
           {ANSWER, 200, ENDLESS_GRANT(BRIEF, "false"), "/renew"}, {HANG, 0, NULL, "/renew"});
    record = renew_every_until_lost(&shorter, 1);
    check(record.loss.calls == 1 && record.lost_ms >= BRIEF_MS - 1, "max_hold may change meanwhile");
    (void)script_end(&shorter);
}

static void replay_of_a_hold_without_a_ttl_is_renewed(void)
{
    SCRIPT(script, {CUT, 0, NULL, NULL}, {ANSWER, 200, ENDLESS_GRANT(TTL, YOURS), NULL},
           {ANSWER, 200, ENDLESS_GRANT(TTL, "false"), "/renew"});
    struct permit_client *client = client_of(&script, 0);
    struct permit_request *request = NULL;
    int64_t before = boot_ms();
    check(acquire(client, 0, &request) == PERMIT_OK && request->max_hold_ms == TTL_MS &&
              request->held_until_us / 1000 >= before + TTL_MS - 1,
          "a replay does not show when its max_hold began");
    permit_request_free(request);
    permit_client_free(client);
    check(script_end(&script), "so it is renewed");
}

static void renewals_are_never_later_than_a_third_of_the_ttl(void)
{
    SCRIPT(script, {ANSWER, 201, BRIEF_GRANT, NULL}, {ANSWER, 410, PROBLEM("ended", ""), "/renew"});
    struct renewal_record record = renew_every_until_lost(&script, LONG_MS);
    check(record.loss.calls == 1 && record.loss.status == PERMIT_ENDED && record.asked_ms[1] >= BRIEF_MS / 3 - 1,
          "every_ms does not delay a renewal beyond a third of the ttl");
    (void)script_end(&script);
}

static void hold_by_heartbeat_is_only_queried(void)
{
#define BY_OWNER(state, more)                                                                                          \
    "{\"external_id\":\"" KEY "\",\"state\":\"" state                                                                  \
    "\",\"owner\":\"o\",\"permits\":[{\"semaphore\":\"s\",\"count\":1,"                                                \
    "\"token\":57}],\"ttl\":\"owner\",\"ttl_ms\":null" more "}"
    SCRIPT(script, {ANSWER, 201, BY_OWNER("ACQUIRED", ""), NULL},
           {ANSWER, 200, BY_OWNER("ACQUIRED", ""), "GET /v1/requests/"},
           {ANSWER, 200, BY_OWNER("RELEASED", ",\"end_reason\":\"owner_dead\""), "GET /v1/requests/"});
    struct renewal_record record = renew_every_until_lost(&script, 20);
    check(record.loss.calls == 1 && record.loss.status == PERMIT_ENDED && strstr(record.loss.message, "(owner_dead)"),
          "a hold by heartbeat is queried until it has ended");
    check(script_end(&script), "and not renewed");
}

static void ended_request_is_lost(void)
{
    SCRIPT(script, {ANSWER, 201, BRIEF_GRANT, NULL}, {ANSWER, 200, BRIEF_GRANT, "/renew HTTP/1.1"},
           {ANSWER, 410, PROBLEM("ended", ""), NULL});
    struct renewal_record record = renew_until_lost(&script);
    check(record.loss.calls == 1 && record.loss.status == PERMIT_ENDED, "410 on renew: lost, once");
    check(script_end(&script) && record.asked_ms[1] >= BRIEF_MS / 3 - 1 && record.asked_ms[1] < BRIEF_MS &&
              record.asked_ms[2] >= BRIEF_MS * 2 / 3 - 1,
          "renewed every third of the ttl");
    SCRIPT(forgotten, {ANSWER, 201, BRIEF_GRANT, NULL}, {ANSWER, 404, PROBLEM("unknown_request", ""), NULL});
    record = renew_until_lost(&forgotten);
    check(record.loss.calls == 1 && record.loss.status == PERMIT_UNKNOWN_REQUEST, "404 on renew means the same");
    (void)script_end(&forgotten);
}

static void permit_that_cannot_be_proven_is_lost(void)
{
    SCRIPT(hangs, {ANSWER, 201, BRIEF_GRANT, NULL}, {HANG, 0, NULL, NULL});
    struct renewal_record record = renew_until_lost(&hangs);
    check(record.loss.calls == 1 && record.lost_ms >= BRIEF_MS - 1 && record.lost_ms < 2 * BRIEF_MS,
          "a server that hangs: lost when the ttl is over, not later");
    (void)script_end(&hangs);
    SCRIPT(fails, {ANSWER, 201, BRIEF_GRANT, NULL},
           {ANSWER, 503, PROBLEM("database_unavailable", ",\"retry_after_ms\":50"), NULL}, {CUT, 0, NULL, NULL},
           {ANSWER, 200, BRIEF_GRANT, NULL}, {HANG, 0, NULL, NULL});
    record = renew_until_lost(&fails);
    check(record.loss.calls == 1 && record.lost_ms >= BRIEF_MS * 4 / 3 - 1 && script_end(&fails),
          "renewals that fail are repeated within the ttl");
}

/* The server is healthy and answers on a new connection. */
static void silent_connection_does_not_lose_the_permit(void)
{
    SCRIPT(once, {ANSWER, 201, BRIEF_GRANT, NULL}, {HANG, 0, NULL, "/renew"}, {ANSWER, 200, BRIEF_GRANT, "/renew"},
           {ANSWER, 410, PROBLEM("ended", ""), "/renew"});
    struct renewal_record record = renew_until_lost(&once);
    check(record.loss.calls == 1 && record.loss.status == PERMIT_ENDED && record.asked_ms[2] < BRIEF_MS,
          "a renewal without an answer is retried in time");
    check(script_end(&once) && once.connection[2] > once.connection[1], "on a new connection");
    SCRIPT(twice, {ANSWER, 201, BRIEF_GRANT, NULL}, {HANG, 0, NULL, "/renew"}, {HANG, 0, NULL, "/renew"},
           {ANSWER, 200, BRIEF_GRANT, "/renew"}, {ANSWER, 410, PROBLEM("ended", ""), "/renew"});
    record = renew_until_lost(&twice);
    check(record.loss.calls == 1 && record.loss.status == PERMIT_ENDED && script_end(&twice),
          "and at least once more after that");
}

/* ---- A machine that is suspended ---- */

#define LONG_GRANT GRANT_FOR("600000", "false", "600000")

static void suspended_machine_holds_no_longer_than_its_server(void)
{
    SCRIPT(script, {ANSWER, 201, LONG_GRANT, NULL});
    struct permit_client *client = client_of(&script, 0);
    struct permit_request *request = NULL;
    struct permit_renewer *renewer = NULL;
    struct loss loss = {.calls = 0};
    struct permit_renewer_options options = {.lost = on_lost, .context = &loss};
    if (acquire(client, 0, &request) || permit_renewer_start(client, request, &options, &renewer))
        abort();
    check(permit_renewer_holds(renewer), "a fresh grant is held");
    suspend_machine(3600);
    check(!permit_renewer_holds(renewer), "after an hour of suspension it is not");
    check(wait_for_loss(&loss, LONG_MS), "reported long before the next renewal");
    permit_renewer_stop(renewer);
    permit_request_free(request);
    permit_client_free(client);
    (void)script_end(&script);
}

static void grant_answered_during_suspension_proves_nothing(void)
{
    SCRIPT(script, {SLEEP, 201, GRANT("false", TTL), NULL},
           {ANSWER, 410, PROBLEM("ended", ",\"end_reason\":\"expired\""), "/renew"});
    struct permit_client *client = client_of(&script, 0);
    struct permit_request *request = NULL;
    check(acquire(client, 0, &request) == PERMIT_ENDED && !request,
          "a grant whose answer came after a suspension is looked at again");
    permit_client_free(client);
    check(script_end(&script), "by a renewal");
}

static void *suspend_after_first_request(void *context)
{
    const struct script *script = context;
    while (atomic_load(&script->served) < 1)
        usleep(1000);
    suspend_machine(3600);
    return NULL;
}

static void running_call_counts_suspended_time(void)
{
    SCRIPT(script, {HANG, 0, NULL, NULL});
    struct permit_client *client = NULL;
    struct permit_request *request = NULL;
    struct permit_client_options options = {.url = script.url, .timeout_ms = 600000, .retry_ms = -1};
    pthread_t thread;
    int64_t start = now_ms();
    if (permit_client_new(&options, &client) ||
        pthread_create(&thread, NULL, suspend_after_first_request, &script) != 0)
        abort();
    check(permit_show(client, "k", &request) == PERMIT_NO_SERVER && now_ms() - start < LONG_MS,
          "the time of a call goes on while the machine is suspended");
    pthread_join(thread, NULL);
    permit_client_free(client);
    (void)script_end(&script);
}

static void expiry_before_the_first_renewal_is_reported(void)
{
    SCRIPT(script, {ANSWER, 201, GRANT("false", TTL), NULL});
    struct permit_client *client = client_of(&script, 0);
    struct permit_request *request = NULL;
    struct permit_renewer *renewer = NULL;
    struct loss loss = {.calls = 0};
    struct permit_renewer_options options = {.lost = on_lost, .context = &loss};
    if (acquire(client, 0, &request))
        abort();
    request->held_until_us = boot_ms() * 1000 - 1;
    if (permit_renewer_start(client, request, &options, &renewer))
        abort();
    check(wait_for_loss(&loss, LONG_MS) && loss.status == PERMIT_OUTCOME_UNKNOWN &&
              strstr(loss.message, "too short, or this process was suspended"),
          "what is over before it is renewed has two possible reasons");
    permit_renewer_stop(renewer);
    permit_request_free(request);
    permit_client_free(client);
    (void)script_end(&script);
}

static void renewer_stops_immediately(void)
{
    SCRIPT(script, {ANSWER, 201, GRANT("false", "60000"), NULL}, {HANG, 0, NULL, NULL});
    struct permit_client *client = client_of(&script, 0);
    struct permit_request *request = NULL;
    struct permit_renewer *renewer = NULL;
    struct permit_renewer_options options = {.every_ms = 20};
    if (acquire(client, 0, &request) || permit_renewer_start(client, request, &options, &renewer))
        abort();
    permit_client_free(client); /* the server serves one connection at a time */
    while (atomic_load(&script.served) < 2)
        usleep(1000);
    int64_t start = now_ms();
    check(permit_renewer_holds(renewer), "held while a renewal is under way");
    permit_renewer_stop(renewer);
    check(now_ms() - start < LONG_MS / 6, "a renewer stops at once, also in a renewal");
    permit_request_free(request);
    (void)script_end(&script);
}

static void grant_answered_late_is_renewed(void)
{
    SCRIPT(script, {ANSWER, 201, GRANT("false", "0"), NULL}, {ANSWER, 200, GRANT("false", TTL), "/renew"});
    struct permit_client *client = client_of(&script, 0);
    struct permit_request *request = NULL;
    check(acquire(client, 0, &request) == PERMIT_OK && request->held_until_us / 1000 > boot_ms() + 200,
          "a grant that proves little any more is renewed first");
    permit_request_free(request);
    permit_client_free(client);
    check(script_end(&script), "by one renewal");
}

static void failed_renewal_keeps_the_grant(void)
{
    SCRIPT(script, {ANSWER, 201, GRANT("false", "20000"), NULL},
           {ANSWER, 503, PROBLEM("busy", ",\"retry_after_ms\":60000"), "/renew"});
    struct permit_client *client = client_of(&script, 0);
    struct permit_request *request = NULL;
    check(acquire(client, 0, &request) == PERMIT_OK && request->permits[0].token == 57,
          "a grant stands, although the renewal that was to prove it has failed");
    check(strstr(permit_client_answer(client), "ACQUIRED") && !strstr(permit_client_answer(client), "busy"),
          "the answer is the grant's");
    check(!*permit_client_message(client) && !permit_client_in_doubt(client) &&
              permit_client_retry_after_ms(client) == 0,
          "and nothing is wrong");
    permit_request_free(request);
    permit_client_free(client);
    check(script_end(&script), "after one renewal");
}

/* ---- Processes ---- */

#define SHOWN "{\"external_id\":\"k\",\"state\":\"RELEASED\",\"permits\":[]}"

/* Returns the exit status of the child. */
static int status_of_child(pid_t child)
{
    int status = -1;
    (void)waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void client_belongs_to_its_process(void)
{
    SCRIPT(script, {ANSWER, 200, SHOWN, NULL}, {ANSWER, 200, SHOWN, NULL});
    struct permit_client *client = client_of(&script, 0);
    struct permit_request *request = NULL;
    check(permit_show(client, "k", &request) == PERMIT_OK, "a client before a fork");
    permit_request_free(request);
    pid_t child = fork();
    if (child == 0) {
        bool refused = permit_show(client, "k", &request) == PERMIT_INVALID && !*permit_client_answer(client) &&
                       strstr(permit_client_message(client), "fork");
        permit_client_free(client);
        _exit(refused ? 3 : 4);
    }
    check(status_of_child(child) == 3, "is refused in the child");
    check(permit_show(client, "k", &request) == PERMIT_OK, "and still works in the parent");
    permit_request_free(request);
    permit_client_free(client);
    check(script_end(&script) && script.connections == 1, "on its connection");
}

static void renewer_belongs_to_its_process(void)
{
    SCRIPT(script, {ANSWER, 201, BRIEF_GRANT, NULL}, {ANSWER, 200, BRIEF_GRANT, "/renew"},
           {ANSWER, 410, PROBLEM("ended", ""), "/renew"});
    struct permit_client *client = client_of(&script, 0);
    struct permit_request *request = NULL;
    struct permit_renewer *renewer = NULL;
    struct loss loss = {.calls = 0};
    struct permit_renewer_options options = {.lost = on_lost, .context = &loss};
    if (acquire(client, 0, &request) || permit_renewer_start(client, request, &options, &renewer))
        abort();
    permit_client_free(client);
    pid_t child = fork();
    if (child == 0) {
        permit_renewer_stop(renewer);
        _exit(3);
    }
    check(status_of_child(child) == 3, "a child may free the renewer of its parent");
    check(wait_for_loss(&loss, 2 * LONG_MS) && loss.status == PERMIT_ENDED, "whose thread continues");
    permit_renewer_stop(renewer);
    permit_request_free(request);
    check(script_end(&script), "and renews");
}

/* ---- Texts and numbers from outside ---- */

static enum permit_status try_options(const struct permit_client_options *options)
{
    struct permit_client *client = NULL;
    enum permit_status status = permit_client_new(options, &client);
    permit_client_free(client);
    return status;
}

static void invalid_options_are_refused(void)
{
    static const char *const urls[] = {"http://h/?a=b", "http://h?", "http://h#x", "http://h/#", "ftp://h", "h", ""};
    static const char *const tokens[] = {"a\r\nX-Evil: 1", "a\n", "a b", "a\x1b", "a\x7f", "\xc3\xa4"};
    struct permit_client *client = NULL;
    struct permit_request *request = NULL;
    for (size_t i = 0; i < sizeof(urls) / sizeof(urls[0]); i++)
        check(try_options(&(struct permit_client_options){.url = urls[i]}) == PERMIT_INVALID,
              "a url with a query or a fragment, or that is not http");
    for (size_t i = 0; i < sizeof(tokens) / sizeof(tokens[0]); i++)
        check(try_options(&(struct permit_client_options){.token = tokens[i]}) == PERMIT_UNAUTHENTICATED,
              "a token with bytes that no credential has");
    check(try_options(&(struct permit_client_options){.timeout_ms = (int64_t)INT_MAX + 1}) == PERMIT_INVALID &&
              try_options(&(struct permit_client_options){.timeout_ms = INT_MAX, .retry_ms = INT64_MAX}) == PERMIT_OK,
          "a time-out over INT_MAX is refused");
    if (permit_client_new(&(struct permit_client_options){.url = "http://127.0.0.1:1", .retry_ms = -1}, &client))
        abort();
    check(acquire_in_pieces(client, PERMIT_FOREVER, (int64_t)INT_MAX + 1, &request) == PERMIT_INVALID,
          "so is a piece of a wait");
    check(permit_call(client, "GET / HTTP/1.1\r\nX: y\r\n\r\nGET", "/healthz", NULL) == PERMIT_INVALID,
          "and a method that is none");
    permit_client_free(client);
}

/* ---- Credentials ---- */

static char scratch[] = "/tmp/permit-libpermit.XXXXXX"; /* a directory for the tests' files */

static const char *const scratch_files[] = {"token", "file", "socket"};

/* Returns the path of a file in the scratch directory; the text is valid until the next call. */
static const char *scratch_path(const char *name)
{
    static char path[sizeof(scratch) + 32];
    (void)snprintf(path, sizeof(path), "%s/%s", scratch, name);
    return path;
}

/* Replaces the file as a program should that rotates a token: by rename. */
static void write_scratch(const char *name, const char *text, mode_t mode)
{
    char temporary[sizeof(scratch) + 32];
    (void)snprintf(temporary, sizeof(temporary), "%s", scratch_path("temporary"));
    FILE *file = fopen(temporary, "w");
    if (!file || fputs(text, file) == EOF || fclose(file) != 0 || chmod(temporary, mode) != 0 ||
        rename(temporary, scratch_path(name)) != 0)
        abort();
}

static struct permit_client *client_with_file(const char *url, const char *token_file)
{
    struct permit_client *client = NULL;
    if (permit_client_new(&(struct permit_client_options){.url = url, .token_file = token_file, .retry_ms = -1},
                          &client))
        abort();
    return client;
}

static void token_file_is_read_again_after_a_change(void)
{
    SCRIPT(script, {ANSWER, 200, SHOWN, "Authorization: Bearer first\r\n"},
           {ANSWER, 200, SHOWN, "Authorization: Bearer second\r\n"},
           {ANSWER, 200, SHOWN, "Authorization: Bearer second\r\n"},
           {ANSWER, 200, SHOWN, "Authorization: Bearer second\r\n"},
           {ANSWER, 200, SHOWN, "Authorization: Bearer third\r\n"});
    write_scratch("token", "first\r\n", 0640);
    struct permit_client *client = client_with_file(script.url, scratch_path("token"));
    check(permit_call(client, "GET", "/v1/requests/k", NULL) == PERMIT_OK, "a token from a file");
    write_scratch("token", "second", 0600);
    check(permit_call(client, "GET", "/v1/requests/k", NULL) == PERMIT_OK, "which has changed");
    write_scratch("token", "\n", 0600);
    check(permit_call(client, "GET", "/v1/requests/k", NULL) == PERMIT_OK, "an empty file changes nothing");
    (void)unlink(scratch_path("token"));
    check(permit_call(client, "GET", "/v1/requests/k", NULL) == PERMIT_OK, "nor does one that is gone");
    write_scratch("token", "third\n", 0600);
    check(permit_call(client, "GET", "/v1/requests/k", NULL) == PERMIT_OK, "until a token is there again");
    permit_client_free(client);
    check(script_end(&script), "each sent with the token of its time");
}

static void renewer_uses_the_token_of_its_client(void)
{
    SCRIPT(script, {ANSWER, 201, BRIEF_GRANT, "Authorization: Bearer first\r\n"},
           {ANSWER, 200, BRIEF_GRANT, "Authorization: Bearer first\r\n"},
           {ANSWER, 401, PROBLEM("unauthenticated", ""), "Authorization: Bearer first\r\n"},
           {ANSWER, 410, PROBLEM("ended", ""), "Authorization: Bearer second\r\n"});
    write_scratch("token", "first", 0600);
    struct permit_client *client = client_with_file(script.url, scratch_path("token"));
    struct permit_request *request = NULL;
    struct permit_renewer *renewer = NULL;
    struct loss loss = {.calls = 0};
    struct permit_renewer_options options = {.every_ms = 100, .lost = on_lost, .context = &loss};
    if (acquire(client, 0, &request) || permit_renewer_start(client, request, &options, &renewer))
        abort();
    permit_client_free(client);
    while (atomic_load(&script.served) < 3)
        usleep(1000);
    write_scratch("token", "second", 0600);
    check(wait_for_loss(&loss, LONG_MS) && loss.status == PERMIT_ENDED,
          "a renewer goes on after a 401, with the new token of the file");
    permit_renewer_stop(renewer);
    permit_request_free(request);
    check(script_end(&script), "and begins with that of its client");
    /* The second counts from when the refused renewal was sent: after the answer to the one before it. */
    check(script.at[3] - script.at[1] >= 990, "a second after the refusal");
}

static void check_refused(const struct permit_client_options *options, enum permit_status expected, const char *reason)
{
    char message[512] = "";
    bool right = try_options(options) == expected &&
                 permit_options_check(options, message, sizeof(message)) == expected && strstr(message, reason);
    if (!right)
        printf("# %s\n", message);
    check(right, reason);
}

static void files_that_cannot_be_used_are_refused(void)
{
    const char *path = scratch_path("file");
    check_refused(&(struct permit_client_options){.token = "a", .token_file = path}, PERMIT_INVALID,
                  "token and token_file exclude each other");
    check_refused(&(struct permit_client_options){.token_file = path}, PERMIT_UNAUTHENTICATED,
                  "/file cannot be read: No such file or directory");
    write_scratch("file", "a token", 0600);
    check_refused(&(struct permit_client_options){.token_file = path}, PERMIT_UNAUTHENTICATED,
                  "/file must have one line of printable ASCII without space");
    write_scratch("file", "a\nb\n", 0600);
    check_refused(&(struct permit_client_options){.token_file = path}, PERMIT_UNAUTHENTICATED,
                  "must have one line of printable ASCII");
    write_scratch("file", "\n", 0600);
    check_refused(&(struct permit_client_options){.token_file = path}, PERMIT_UNAUTHENTICATED, "/file is empty");
    write_scratch("file", "secret", 0604);
    check_refused(&(struct permit_client_options){.token_file = path}, PERMIT_UNAUTHENTICATED,
                  "/file can be read or changed by other users (mode 604)");
    check_refused(&(struct permit_client_options){.cert = path, .key = path}, PERMIT_INVALID,
                  "the key /tmp/permit-libpermit");
    check_refused(&(struct permit_client_options){.cert = path}, PERMIT_INVALID,
                  "the certificate with its key /tmp/permit-libpermit");
    write_scratch("file", "secret", 0620);
    check_refused(&(struct permit_client_options){.token_file = path}, PERMIT_UNAUTHENTICATED, "(mode 620)");
    check_refused(&(struct permit_client_options){.key = path}, PERMIT_INVALID, "/file needs its certificate (cert)");
    check_refused(&(struct permit_client_options){.ca = "/nowhere"}, PERMIT_INVALID,
                  "the file of authorities (ca) /nowhere cannot be read: No such file or directory");
    check_refused(&(struct permit_client_options){.cert = "/nowhere"}, PERMIT_INVALID,
                  "the certificate (cert) /nowhere");
    check_refused(&(struct permit_client_options){.token_file = "/nowhere\x1b[31m"}, PERMIT_UNAUTHENTICATED,
                  "/nowhere?[31m");
    check_refused(&(struct permit_client_options){.timeout_ms = (int64_t)INT_MAX + 1}, PERMIT_INVALID,
                  "timeout_ms must be at most");
    check_refused(&(struct permit_client_options){.url = "http://a,h"}, PERMIT_INVALID,
                  "the url has an invalid entry 2, h: it must be");
}

static void wait_piece_over_int_max_is_refused(void)
{
    struct permit_client *client;
    struct permit_request *request;
    const struct permit_acquire_options options = {
        .permits = &want, .permit_count = 1, .wait_piece_ms = (int64_t)INT_MAX + 1};
    if (permit_client_new(NULL, &client)) {
        check(false, "a client");
        return;
    }
    check(permit_acquire(client, &options, &request) == PERMIT_INVALID &&
              strstr(permit_client_message(client), "wait_piece_ms must be at most 2147483647"),
          "a wait_piece_ms over INT_MAX is refused with the limit");
    permit_client_free(client);
}

static void credential_stays_off_the_network_in_the_clear(void)
{
    static const char *const exposed[] = {"http://192.0.2.1:7070",    "http://permit.example",
                                          "http://128.0.0.1",         "http://[2001:db8::1]:7070",
                                          "http://localhost.example", "http://127.0.0.1:1,http://192.0.2.1",
                                          "http://0.0.0.0:7070"};
    static const char *const safe[] = {
        "https://192.0.2.1:7070",  "http://127.0.0.1:7070",  "http://127.9.9.9",
        "http://[::1]:7070",       "http://localhost",       "http://LocalHost:7070",
        "http://permit.localhost", "unix:/run/permitd.sock", "https://a,unix:/x,http://localhost"};
    for (size_t i = 0; i < sizeof(exposed) / sizeof(exposed[0]); i++) {
        check_refused(&(struct permit_client_options){.url = exposed[i], .token = "secret"}, PERMIT_INVALID,
                      "the credential would be sent in the clear to another machine, http://");
        check(try_options(&(struct permit_client_options){.url = exposed[i], .token = "secret", .insecure = true}) ==
                  PERMIT_OK,
              "unless it is to be so");
        check(try_options(&(struct permit_client_options){.url = exposed[i]}) == PERMIT_OK, "or there is none");
    }
    for (size_t i = 0; i < sizeof(safe) / sizeof(safe[0]); i++)
        check(try_options(&(struct permit_client_options){.url = safe[i], .token = "secret"}) == PERMIT_OK, safe[i]);
    check_refused(&(struct permit_client_options){.url = "http://ann:sesame@192.0.2.1"}, PERMIT_INVALID,
                  "another machine, http://192.0.2.1:");
    check(try_options(&(struct permit_client_options){.url = "http://ann:sesame@localhost"}) == PERMIT_OK,
          "a password to this machine");
}

static void unix_socket_is_a_server(void)
{
    static const struct line lines[] = {{ANSWER, 200, SHOWN, "GET /v1/requests/k HTTP/1.1\r\nHost: localhost\r\n"},
                                        {ANSWER, 200, SHOWN, "Authorization: Bearer secret\r\n"}};
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct permit_client *client = NULL;
    struct permit_request *request = NULL;
    struct script script;
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", scratch_path("socket"));
    script_start_at(&script, lines, 2, (struct sockaddr *)&address, sizeof(address));
    (void)snprintf(script.url, sizeof(script.url), "unix:%s", scratch_path("socket"));
    client = client_of(&script, 0);
    check(permit_show(client, "k", &request) == PERMIT_OK, "a server at a Unix socket");
    permit_request_free(request);
    check(permit_show(client, "k", &request) == PERMIT_OK && script.connections == 1, "on one connection");
    permit_request_free(request);
    check(strcmp(permit_client_url(client), script.url) == 0, "named by its url");
    permit_client_free(client);
    check(script_end(&script), "with the Host localhost, and the credential");
    client = hasty_client_of(&script, 0);
    check(permit_show(client, "k", &request) == PERMIT_NO_SERVER && strstr(permit_client_message(client), "unix:/tmp/"),
          "a socket without a server");
    permit_client_free(client);
    static const char *const invalid[] = {"unix:", "unix:run/x", "unix:/a?b", "unix:/a#b",
                                          "unix:/234567890123456789012345678901234567890123456789012345678901234567890"
                                          "123456789012345678901234567890123456789012"};
    for (size_t i = 0; i < sizeof(invalid) / sizeof(invalid[0]); i++)
        check(try_options(&(struct permit_client_options){.url = invalid[i]}) == PERMIT_INVALID, invalid[i]);
}

/* ---- Several servers ---- */

/* Writes a url where connections are refused, as long as the returned socket stays open. */
static int refusing_url(char url[64])
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(fd, (struct sockaddr *)&address, length) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &length) != 0)
        abort();
    (void)snprintf(url, 64, "http://127.0.0.1:%u", (unsigned)ntohs(address.sin_port));
    return fd;
}

/* Returns a client of two servers whose random order begins with `first`. The caller sets the other options. */
static struct permit_client *client_of_two(const char *first, const char *second, struct permit_client_options options)
{
    char urls[160];
    (void)snprintf(urls, sizeof(urls), "%s,%s", second, first);
    options.url = urls;
    for (;;) {
        struct permit_client *client = NULL;
        if (permit_client_new(&options, &client))
            abort();
        if (strcmp(permit_client_url(client), first) == 0)
            return client;
        permit_client_free(client);
    }
}

static void order_of_servers_is_random(void)
{
    struct permit_client_options options = {.retry_ms = -1};
    struct permit_client *a = client_of_two("http://a:1", "http://b:1", options);
    struct permit_client *b = client_of_two("http://b:1", "http://a:1", options);
    check(a && b, "the order of the servers is random: each may be the first");
    permit_client_free(a);
    permit_client_free(b);
}

static void refusing_server_is_followed_by_the_next(void)
{
    char refusing[64];
    int fd = refusing_url(refusing);
    SCRIPT(script, {ANSWER, 201, GRANT("false", TTL), NULL}, {ANSWER, 200, SHOWN, "DELETE"},
           {ANSWER, 200, SHOWN, "GET"});
    struct permit_client_options hasty = {.retry_ms = -1};
    struct permit_client *client = client_of_two(refusing, script.url, hasty), *other;
    struct permit_request *request = NULL;
    check(acquire(client, 0, &request) == PERMIT_OK && request->yours && !permit_client_in_doubt(client),
          "a server that refuses the connection is followed by the next one, even without retries");
    check(strcmp(permit_client_url(client), script.url) == 0 && permit_release(client, "k", NULL) == PERMIT_OK,
          "where the client stays");
    permit_request_free(request);
    permit_client_free(client);
    other = client_of_two("http://permit.invalid:7070", script.url, hasty);
    request = NULL;
    check(permit_show(other, "k", &request) == PERMIT_OK, "so is one that cannot be resolved");
    permit_request_free(request);
    permit_client_free(other);
    check(script_end(&script) && script.connections == 2, "on one connection");
    close(fd);
}

static void dead_servers_are_named(void)
{
    char first[64], second[64], sentence[256];
    int fds[] = {refusing_url(first), refusing_url(second)};
    struct permit_client *client = client_of_two(first, second, (struct permit_client_options){.retry_ms = 1});
    (void)snprintf(sentence, sizeof(sentence), "no permitd answers at %s (Connection refused), %s (Connection refused)",
                   first, second);
    bool reversed = strcmp(permit_client_url(client), first) != 0;
    check(permit_release(client, "k", NULL) == PERMIT_NO_SERVER && !permit_client_in_doubt(client) && !reversed,
          "all servers refuse: no server");
    if (strcmp(permit_client_message(client), sentence) != 0)
        printf("# %s\n", permit_client_message(client));
    check(strcmp(permit_client_message(client), sentence) == 0, "and all are named");
    permit_client_free(client);
    close(fds[0]);
    close(fds[1]);
}

static void lost_answer_is_requested_from_the_next_server(void)
{
    SCRIPT(first, {CUT, 0, NULL, NULL});
    SCRIPT(second, {ANSWER, 200, GRANT(YOURS, TTL), NULL});
    struct permit_client *client = client_of_two(first.url, second.url, (struct permit_client_options){.retry_ms = 1});
    struct permit_request *request = NULL;
    check(acquire(client, 0, &request) == PERMIT_OK && request->replayed && request->yours,
          "a lost answer is requested from the next server");
    check(strlen(first.keys[0]) == 36 && strcmp(first.keys[0], second.keys[0]) == 0 &&
              strcmp(first.nonces[0], second.nonces[0]) == 0,
          "with the same key and the same nonce");
    permit_request_free(request);
    permit_client_free(client);
    check(script_end(&first) && script_end(&second), "each sent once");
}

static void stopping_server_is_followed_immediately(void)
{
    SCRIPT(first, {ANSWER, 503, PROBLEM("shutting_down", ",\"retry_after_ms\":86400000"), NULL},
           {ANSWER, 503, PROBLEM("busy", ",\"retry_after_ms\":300"), NULL});
    SCRIPT(second, {ANSWER, 200, SHOWN, NULL}, {ANSWER, 200, SHOWN, NULL});
    struct permit_client *client = client_of_two(first.url, second.url, (struct permit_client_options){.retry_ms = 0});
    check(permit_release(client, "k", NULL) == PERMIT_OK, "a server that stops is followed by the next one at once");
    permit_client_free(client);
    client = client_of_two(first.url, second.url, (struct permit_client_options){.retry_ms = 0});
    check(permit_release(client, "k", NULL) == PERMIT_OK && second.at[1] - first.at[1] >= 300,
          "one that is busy after Retry-After");
    permit_client_free(client);
    check(script_end(&first) && script_end(&second), "each asked twice");
}

static void hanging_server_leaves_time_for_the_next(void)
{
    SCRIPT(first, {HANG, 0, NULL, NULL});
    SCRIPT(second, {ANSWER, 200, SHOWN, NULL}, {ANSWER, 200, SHOWN, NULL});
    struct permit_client_options options = {.timeout_ms = 24000, .retry_ms = 1};
    struct permit_client *client = client_of_two(first.url, second.url, options);
    int64_t start = now_ms();
    check(permit_release(client, "k", NULL) == PERMIT_OK && second.at[0] - start >= 8000 &&
              second.at[0] - start < 24000,
          "a server that hangs costs a third of the time of a try");
    check(permit_release(client, "k", NULL) == PERMIT_OK, "and only once");
    permit_client_free(client);
    check(script_end(&first) && script_end(&second), "because the client stays at the other one");
}

/* A server that hangs may continue, and then grant what another one has refused. */
static void refusal_beside_a_hanging_server_leaves_doubt(void)
{
    SCRIPT(first, {HANG, 0, NULL, NULL}, {CUT, 0, NULL, NULL});
    SCRIPT(second, {ANSWER, 423, PROBLEM("no_capacity", ""), NULL}, {ANSWER, 423, PROBLEM("no_capacity", ""), NULL});
    struct permit_client_options options = {.timeout_ms = 3000, .retry_ms = 1};
    struct permit_client *client = client_of_two(first.url, second.url, options);
    struct permit_request *request = NULL;
    check(acquire(client, 0, &request) == PERMIT_NO_CAPACITY && permit_client_in_doubt(client),
          "a refusal does not settle what a server does that hangs");
    permit_client_free(client);
    client = client_of_two(first.url, second.url, (struct permit_client_options){.retry_ms = 1});
    check(acquire(client, 0, &request) == PERMIT_NO_CAPACITY && !permit_client_in_doubt(client),
          "but it does after a lost connection");
    permit_client_free(client);
    check(script_end(&first) && script_end(&second), "each asked twice");
}

static void wait_goes_on_at_another_server(void)
{
    SCRIPT(first, {WAIT, 423, FULL, NULL}, {ANSWER, 503, PROBLEM("shutting_down", ""), NULL});
    SCRIPT(second, {WAIT, 423, FULL, "\"wait\":\"1000ms\""}, {ANSWER, 201, GRANT("false", TTL), NULL});
    struct permit_client *client = client_of_two(first.url, second.url, (struct permit_client_options){.retry_ms = -1});
    struct permit_request *request = NULL;
    check(acquire_in_pieces(client, 9000, 0, &request) == PERMIT_OK && request->yours,
          "a wait goes on at another server");
    check(first.waits[0] <= 3000, "in pieces that leave time for it");
    check(second.waits[1] <= 5000 / 3, "with the rest of its time");
    check(strcmp(first.keys[0], second.keys[1]) == 0 && strcmp(first.nonces[0], second.nonces[1]) == 0,
          "under the same key");
    permit_request_free(request);
    permit_client_free(client);
    check(script_end(&first) && script_end(&second), "each asked twice");
}

/* The renewer begins at the server that granted, and must not wait for it until the ttl is over. */
static void hanging_server_does_not_lose_the_permit(void)
{
    SCRIPT(first, {ANSWER, 201, BRIEF_GRANT, NULL}, {HANG, 0, NULL, "/renew"});
    SCRIPT(second, {ANSWER, 200, BRIEF_GRANT, "/renew"}, {ANSWER, 200, BRIEF_GRANT, "/renew"},
           {ANSWER, 410, PROBLEM("ended", ""), "/renew"});
    struct permit_client *client = client_of_two(first.url, second.url, (struct permit_client_options){.retry_ms = 0});
    struct permit_request *request = NULL;
    struct permit_renewer *renewer = NULL;
    struct loss loss = {.calls = 0};
    struct permit_renewer_options options = {.lost = on_lost, .context = &loss};
    int64_t start = now_ms();
    if (acquire(client, 0, &request) || permit_renewer_start(client, request, &options, &renewer))
        abort();
    permit_client_free(client);
    permit_request_free(request);
    check(wait_for_loss(&loss, 2 * LONG_MS) && loss.status == PERMIT_ENDED,
          "a permit is not lost because the server that granted it hangs");
    permit_renewer_stop(renewer);
    check(first.at[1] - start >= BRIEF_MS / 3 - 1 && second.at[0] - start < BRIEF_MS, "the next one is asked in time");
    check(script_end(&first) && script_end(&second), "and is asked from then on");
}

static void invalid_lists_are_refused(void)
{
    static const struct {
        const char *urls;
        const char *says;
    } cases[] = {
        {"http://a:1,http://b:2", ""},
        {"http://h/?a=b", "must be http://HOST:PORT, https://HOST:PORT or unix:/PATH, without ? or #"},
        {"http://a:1,", "has an empty entry 2"},
        {",http://a:1", "has an empty entry 1"},
        {"http://a:1,,http://b:1", "has an empty entry 2"},
        {"http://a:1,ftp://b", "has an invalid entry 2, ftp://b: it must be http://HOST:PORT, https://HOST:PORT or "
                               "unix:/PATH, without ? or #"},
        {"http://a:1, http://b:1", "has white space in entry 2: separate urls by commas, without space"},
        {"http://a:1 http://b:1", "must be http://HOST:PORT, https://HOST:PORT or unix:/PATH, without ? or #; separate "
                                  "urls by commas, without space"},
        {"http://a:1;http://b:1", "must be http://HOST:PORT, https://HOST:PORT or unix:/PATH, without ? or #; separate "
                                  "urls by commas, without space"},
        {"http://a:1,x\x1b[31m", "has an invalid entry 2, x?[31m: it must be http://HOST:PORT, https://HOST:PORT or "
                                 "unix:/PATH, without ? or #"},
        {"http://ann:se,same@b:1",
         "has an invalid entry 1: it must be http://HOST:PORT, https://HOST:PORT or unix:/PATH, without ? or #"},
        {"http://a:80,http://b,http://ann:sesame@A/", "has the same server in entries 1 and 3: http://A"},
        {"1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17", "has 17 entries, more than 16"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char sentence[256] = "unset";
        enum permit_status expected = *cases[i].says ? PERMIT_INVALID : PERMIT_OK;
        bool right = permit_urls_check(cases[i].urls, sentence, sizeof(sentence)) == expected &&
                     try_options(&(struct permit_client_options){.url = cases[i].urls}) == expected &&
                     strcmp(sentence, cases[i].says) == 0;
        if (!right)
            printf("# %s: %s\n", cases[i].urls, sentence);
        check(right, "an invalid list is refused, and the entry is named");
    }
    char sixteen[512] = "http://h:1";
    for (size_t i = 2, length = strlen(sixteen); i <= PERMIT_SERVERS_MAX; i++)
        length += (size_t)snprintf(sixteen + length, sizeof(sixteen) - length, ",http://h:%zu", i);
    check(try_options(&(struct permit_client_options){.url = sixteen}) == PERMIT_OK, "sixteen servers are a list");
}

static void messages_contain_no_password(void)
{
    struct permit_client *client = NULL;
    struct permit_request *request = NULL;
    struct permit_client_options options = {.url = "http://ann:sesame@127.0.0.1:1/", .retry_ms = -1};
    if (permit_client_new(&options, &client))
        abort();
    check(permit_show(client, "k", &request) == PERMIT_NO_SERVER &&
              strstr(permit_client_message(client), "http://127.0.0.1:1:") &&
              !strstr(permit_client_message(client), "ann") && !strstr(permit_client_message(client), "sesame"),
          "a message names the server without user and password");
    check(strcmp(permit_client_url(client), "http://127.0.0.1:1") == 0, "so does permit_client_url");
    permit_client_free(client);
}

/* In JSON: ESC, BEL, CSI in both forms, half a character, and DEL. */
#define EVIL                                                                                                           \
    "x\\u001b]0;y\\u0007\\u009b31m\xc2\x9b"                                                                            \
    "31m\x9b"                                                                                                          \
    "31m\x7f\\r\x1b"

static bool is_harmless(const char *text)
{
    for (const unsigned char *at = (const unsigned char *)text; *at; at++)
        if ((*at < ' ' && *at != '\n') || *at == 0x7f || (*at == 0xc2 && at[1] < 0xa0) || (*at >= 0x80 && *at < 0xa0))
            return false;
    return true;
}

static void control_characters_in_messages_are_escaped(void)
{
    SCRIPT(script, {ANSWER, 409, "{\"type\":\"/problems/confirmed\",\"detail\":\"" EVIL "\"}", NULL});
    struct permit_client *client = client_of(&script, 0);
    check(permit_release(client, "k", NULL) == PERMIT_CONFIRMED && is_harmless(permit_client_message(client)) &&
              strncmp(permit_client_message(client), "x?]0;y??", 8) == 0,
          "a message does not play with the terminal");
    permit_client_free(client);
    (void)script_end(&script);
}

enum { OUTPUT_MAX = 65536 };

/* Runs permitctl with this url and writes its output to `output`. Returns its exit status. */
static int permitctl_says(const char *permitctl, const char *url, const char *arguments, char output[OUTPUT_MAX])
{
    char command[4096];
    (void)snprintf(command, sizeof(command), "'%s' --url %s %s 2>&1", permitctl, url, arguments);
    FILE *pipe = popen(command, "r");
    if (!pipe)
        abort();
    size_t length = fread(output, 1, OUTPUT_MAX - 1, pipe);
    output[length] = '\0';
    int status = pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

#define HUGE_NUMBER "9223372036854775807"
#define TINY_NUMBER "-9223372036854775808"
#define EVIL_WAITER                                                                                                    \
    "{\"external_id\":\"" EVIL "\",\"state\":\"WAITING\",\"owner\":\"" EVIL                                            \
    "\",\"waiting_for\":[{\"semaphore\":\"" EVIL "\",\"requested\":" HUGE_NUMBER ",\"capacity\":" TINY_NUMBER          \
    ",\"in_use\":" HUGE_NUMBER ",\"place\":1,\"ahead_count\":" HUGE_NUMBER ",\"ahead\":[\"" EVIL                       \
    "\"],\"paused_reason\":\"" EVIL "\",\"holders\":[{\"external_id\":\"" EVIL "\",\"expires_in_ms\":" TINY_NUMBER     \
    "}]},{\"ahead_count\":" TINY_NUMBER "}]}"
#define EVIL_GRANT                                                                                                     \
    "{\"external_id\":\"" KEY "\",\"state\":\"ACQUIRED\",\"owner\":\"" EVIL "\",\"permits\":[{\"semaphore\":\"" EVIL   \
    "\",\"token\":57}],"                                                                                               \
    "\"ttl_ms\":" TTL ",\"expires_in_ms\":" TTL "}"

static void permitctl_escapes_control_characters(const char *permitctl)
{
    static const char ended[] =
        "{\"external_id\":\"" KEY "\",\"state\":\"RELEASED\",\"already_released\":true,\"end_reason\":\"" EVIL "\"}";
    SCRIPT(script, {ANSWER, 200, EVIL_WAITER, "/why"}, {ANSWER, 200, EVIL_WAITER, "/why"},
           {ANSWER, 201, EVIL_GRANT, NULL}, {ANSWER, 200, ended, "DELETE"}, {ANSWER, 201, EVIL_GRANT, NULL},
           {ANSWER, 200, "{\"semaphores\":[{\"name\":\"" EVIL "\"}]}", NULL});
    static const struct {
        const char *arguments;
        int code;
        const char *has;
    } cases[] = {
        {"why k", 0, "behind x?]0;y?"},
        {"--json why k", 0, "\\u009b31m\\ufffd31m\\u007f"},
        {"run -v -s s -- true", 76, " token 57"},
        {"acquire -s s", 0, "57"},
        {"--json semaphore list", 0, "\\u001b]0;y"},
    };
    char output[OUTPUT_MAX];
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int code = permitctl_says(permitctl, script.url, cases[i].arguments, output);
        bool right = code == cases[i].code && is_harmless(output) && strstr(output, cases[i].has);
        if (!right)
            printf("# %s: %d, %s\n", cases[i].arguments, code, output);
        check(right, "permitctl escapes control characters of the server");
    }
    check(script_end(&script), "whatever it prints");
}

static void permitctl_accepts_any_numbers(const char *permitctl)
{
    SCRIPT(script,
           {ANSWER, 200,
            "{\"semaphores\":[{\"name\":\"a\",\"capacity\":" TINY_NUMBER ",\"in_use\":" HUGE_NUMBER
            ",\"waiting\":" HUGE_NUMBER ",\"oldest_wait_ms\":" HUGE_NUMBER ",\"version\":" TINY_NUMBER
            "},{\"name\":\"b\",\"capacity\":" HUGE_NUMBER ",\"in_use\":" TINY_NUMBER ",\"oldest_wait_ms\":" TINY_NUMBER
            "}]}",
            NULL},
           {ANSWER, 200,
            "{\"holders\":[{\"acquired_at\":\"9999-12-31T23:59:59.999999Z\",\"expires_at\":"
            "\"1970-01-01T00:00:00.000000Z\",\"expires_in_ms\":" HUGE_NUMBER "}]}",
            "/holders"},
           {ANSWER, 503, PROBLEM("unfinished", ",\"forced\":" HUGE_NUMBER ",\"retry_after_ms\":1"), "DELETE"},
           {ANSWER, 200, "{\"forced\":" HUGE_NUMBER "}", "DELETE"});
    char output[OUTPUT_MAX];
    check(permitctl_says(permitctl, script.url, "top --once", output) == 0 && strstr(output, "\na "),
          "top counts with any numbers");
    check(permitctl_says(permitctl, script.url, "semaphore delete s --force --reason over", output) == 0 &&
              strstr(output, "9007199254740992"),
          "so does semaphore delete");
    check(script_end(&script), "in that order");
}

#define RELEASED_GRANT "{\"external_id\":\"" KEY "\",\"state\":\"RELEASED\",\"end_reason\":\"released\"}"
#define WITHOUT_TTL    "}],\"wait\":"

static void permitctl_run_adapts_its_own_ttl(const char *permitctl)
{
    SCRIPT(script, {ANSWER, 422, PROBLEM("invalid", ",\"max_ttl_ms\":60000"), "\"ttl\":\"120000ms\""},
           {ANSWER, 201, GRANT("false", TTL), "\"ttl\":\"60000ms\""}, {ANSWER, 200, RELEASED_GRANT, "DELETE"},
           {ANSWER, 422, PROBLEM("key_reused", ",\"max_ttl_ms\":60000"), "\"ttl\":\"120000ms\""},
           {ANSWER, 200, GRANT(NOT_YOURS, TTL), "\"ttl\":\"60000ms\""},
           {ANSWER, 422, PROBLEM("invalid", ""), "\"ttl\":\"120000ms\""},
           {ANSWER, 201, GRANT("false", TTL), WITHOUT_TTL}, {ANSWER, 200, RELEASED_GRANT, "DELETE"},
           {ANSWER, 422, PROBLEM("key_reused", ""), "\"ttl\":\"120000ms\""},
           {ANSWER, 422, PROBLEM("invalid", ",\"max_ttl_ms\":60000"), "\"ttl\":\"180000ms\""});
    char output[OUTPUT_MAX];
    check(permitctl_says(permitctl, script.url, "run -s s -- true", output) == 0 && !*output,
          "run asks for a ttl of 2 minutes, and for the longest that the server accepts");
    check(permitctl_says(permitctl, script.url, "run -s s --id k -- true", output) == 75 &&
              strstr(output, "already held by another client"),
          "so it finds the request of another run with its key");
    check(permitctl_says(permitctl, script.url, "run -s s -- true", output) == 0 && !*output,
          "a server that does not say how long it may be is asked without one");
    check(permitctl_says(permitctl, script.url, "run -s s --id k -- true", output) == 65,
          "another request under the key is final");
    check(permitctl_says(permitctl, script.url, "run -s s --ttl 3m -- true", output) == 65,
          "a given ttl stays as it is");
    check(script_end(&script), "in that order");
}

static size_t count_of(const char *text, const char *part)
{
    size_t count = 0;
    for (const char *at = text; (at = strstr(at, part)); at++)
        count++;
    return count;
}

static void permitctl_run_reports_a_full_queue_once(const char *permitctl)
{
    SCRIPT(script, {ANSWER, 429, CROWDED, NULL}, {ANSWER, 429, CROWDED, NULL}, {ANSWER, 429, CROWDED, NULL},
           {ANSWER, 201, GRANT("false", TTL), NULL}, {ANSWER, 200, RELEASED_GRANT, "DELETE"},
           {ANSWER, 429, CROWDED, NULL}, {ANSWER, 429, CROWDED, NULL});
    char output[OUTPUT_MAX];
    check(permitctl_says(permitctl, script.url, "run -s s -- true", output) == 0 &&
              count_of(output, "waiting, but without a place in the queue") == 1 && count_of(output, "\n") == 1,
          "run says once that it has no place in the queue");
    check(permitctl_says(permitctl, script.url, "run --no-retry -s s -- true", output) == 75 &&
              strstr(output, "too_many"),
          "run --no-retry ends with 75 then");
    check(permitctl_says(permitctl, script.url, "acquire --no-retry --wait 1m -s s", output) == 75, "so does acquire");
    check(script_end(&script), "after one try");
}

static void permitctl_reports_a_refusal_of_a_proxy(const char *permitctl)
{
    SCRIPT(script, {ANSWER, 401, "<html>", NULL}, {ANSWER, 403, "<html>", NULL});
    char output[OUTPUT_MAX];
    check(permitctl_says(permitctl, script.url, "run -s s -- true", output) == 77 && strstr(output, "from a proxy") &&
              !strstr(output, "granted"),
          "a proxy's 401 ends permitctl with 77, and says nothing of a grant");
    check(permitctl_says(permitctl, script.url, "run -s s -- true", output) == 78 && !strstr(output, "granted"),
          "its 403 with 78");
    check(script_end(&script), "each sent once");
}

static void permitctl_reports_an_answer_of_another_server(const char *permitctl)
{
    SCRIPT(script, {ANSWER, 200, "{\"ok\":true}", "DELETE"}, {ANSWER, 200, "{\"ok\":true}", "/renew"});
    char output[OUTPUT_MAX];
    check(permitctl_says(permitctl, script.url, "release k", output) == 69 &&
              strstr(output, "cannot parse the server's answer"),
          "permitctl release ends with 69 if what answers is no permitd");
    check(permitctl_says(permitctl, script.url, "renew k", output) == 69, "so does renew");
    check(script_end(&script), "each sent once");
}

static void release_reports_the_end_reason(void)
{
    SCRIPT(script,
           {ANSWER, 200,
            "{\"external_id\":\"a/"
            "b\",\"state\":\"RELEASED\",\"permits\":[],\"end_reason\":\"expired\",\"already_released\":true}",
            "DELETE /v1/requests/a%2Fb "},
           {ANSWER, 200, "{\"token\":57,\"live\":true,\"state\":\"ACQUIRED\",\"floor\":55}",
            "GET /v1/semaphores/s/fence?token=57&slot=3 "});
    struct permit_client *client = client_of(&script, 0);
    struct permit_request *request = NULL;
    struct permit_fence fence = {.live = false};
    check(permit_release(client, "a/b", &request) == PERMIT_OK && request->already_released && !request->held &&
              strcmp(request->end_reason, "expired") == 0 && request->held_until_us == 0,
          "release tells how it ended before");
    check(permit_release(client, "", NULL) == PERMIT_INVALID, "an empty key is refused here");
    check(permit_release(client, NULL, NULL) == PERMIT_INVALID &&
              permit_show(client, NULL, &request) == PERMIT_INVALID &&
              permit_fence_check(client, NULL, 57, 0, &fence) == PERMIT_INVALID,
          "so is none at all");
    check(permit_fence_check(client, "s", 57, 3, &fence) == PERMIT_OK && fence.live && fence.floor == 55, "fence");
    permit_request_free(request);
    permit_client_free(client);
    check(script_end(&script), "keys are percent-encoded");
}

static void confirmed_request_does_not_expire(void)
{
    SCRIPT(script,
           {ANSWER, 200,
            "{\"external_id\":\"a\",\"state\":\"ACQUIRED\",\"permits\":[],\"ttl_ms\":9,"
            "\"confirmed_at\":\"2026-11-21T02:14:00.000000Z\",\"expires_at\":null}",
            "POST /v1/requests/a/confirm "},
           {ANSWER, 409, "{\"type\":\"/problems/confirmed\",\"title\":\"t\",\"status\":409,\"detail\":\"d\"}",
            "DELETE /v1/requests/a "},
           {ANSWER, 200,
            "{\"external_id\":\"a\",\"state\":\"RELEASED\",\"permits\":[],\"end_reason\":\"released\","
            "\"ended_at\":\"2026-11-21T02:15:00.000000Z\",\"already_released\":false}",
            "DELETE /v1/requests/a?confirmed=true "},
           {ANSWER, 200,
            "{\"external_id\":\"a\",\"state\":\"RELEASED\",\"permits\":[],\"end_reason\":\"released\","
            "\"already_released\":true}",
            "\"reason\":\"it \\\"hangs\\\"\""});
    struct permit_client *client = client_of(&script, 0);
    struct permit_request *request = NULL;
    check(permit_confirm(client, "a", &request) == PERMIT_OK && request->held && request->confirmed_at &&
              !request->expires_at && request->held_until_us == INT64_MAX,
          "what is confirmed does not expire");
    permit_request_free(request);
    check(permit_release(client, "a", &request) == PERMIT_CONFIRMED, "and is not released by accident");
    check(permit_release_confirmed(client, "a", &request) == PERMIT_OK && request->ended_at, "but on purpose");
    permit_request_free(request);
    check(permit_force_release(client, "a", "it \"hangs\"", NULL) == PERMIT_OK, "a reason may have quotes");
    permit_client_free(client);
    check(script_end(&script), "confirm, release and force-release are sent as documented");
}

/* Each answer reports the requests that it has ended, also if the call is repeated after it. */
static void semaphore_delete_adds_up_all_answers(const char *permitctl)
{
    SCRIPT(script,
           {ANSWER, 503, PROBLEM("unfinished", ",\"forced\":15000,\"retry_after_ms\":1"),
            "DELETE /v1/semaphores/s?force=true&reason=over "},
           {CUT, 0, NULL, "DELETE /v1/semaphores/s?force=true&reason=over "},
           {ANSWER, 503, PROBLEM("outcome_unknown", ",\"forced\":4000,\"retry_after_ms\":1"), NULL},
           {ANSWER, 200, "{\"name\":\"s\",\"capacity\":20000,\"forced\":1000}", NULL});
    char command[4096], line[256] = "";
    (void)snprintf(command, sizeof(command), "'%s' --url %s semaphore delete s --force --reason over", permitctl,
                   script.url);
    FILE *output = popen(command, "r");
    bool counted = false;
    while (output && fgets(line, sizeof(line), output))
        counted |= strncmp(line, "requests ended", 14) == 0 && atoi(line + 14) == 20000;
    check(output && pclose(output) == 0 && counted, "semaphore delete adds up all answers");
    check(script_end(&script), "and asks until one says that it is done");
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 64;
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    if (!mkdtemp(scratch))
        abort();
    grant_is_read_completely();
    metadata_is_sent_with_the_acquire();
    specific_slots_are_requested_and_read();
    lost_answer_is_requested_again();
    replay_of_another_client_is_not_ours();
    refusals_have_status_and_message();
    out_of_range_numbers_are_clamped();
    request_that_is_not_held_is_no_grant();
    retry_after_is_honoured();
    long_wait_is_cut_into_pieces();
    last_piece_is_the_remaining_wait();
    shorter_max_wait_of_the_server_is_used();
    client_pauses_if_the_server_does_not_wait();
    full_queue_is_asked_less_and_less_often();
    acquire_without_retries_is_tried_once();
    acquire_retries_for_as_long_as_its_wait();
    wait_survives_a_restart_of_the_server();
    caller_learns_the_reason_of_the_wait();
    caller_that_learns_it_late_costs_no_call();
    grant_that_expired_during_suspension_is_requested_again();
    running_piece_can_be_cancelled();
    every_call_can_be_cancelled();
    another_server_is_no_server();
    several_requests_are_confirmed_in_one_call();
    changes_are_sent_again_with_their_nonce();
    mismatch_after_a_lost_answer_leaves_doubt();
    success_of_another_server_is_none();
    refusal_of_a_proxy_is_reported_as_such();
    call_abandons_a_silent_connection();
    call_gives_up_a_silent_server();
    wait_abandons_a_silent_connection();
    wait_can_be_cancelled();
    failed_acquire_reports_whether_it_may_hold();
    name_of_dots_is_sent_unchanged();
    repeated_delete_of_a_deleted_semaphore_succeeds();
    ended_request_is_lost();
    permit_that_cannot_be_proven_is_lost();
    hold_without_a_ttl_is_renewed_within_its_max_hold();
    replay_of_a_hold_without_a_ttl_is_renewed();
    renewals_are_never_later_than_a_third_of_the_ttl();
    hold_by_heartbeat_is_only_queried();
    silent_connection_does_not_lose_the_permit();
    suspended_machine_holds_no_longer_than_its_server();
    grant_answered_during_suspension_proves_nothing();
    running_call_counts_suspended_time();
    expiry_before_the_first_renewal_is_reported();
    renewer_stops_immediately();
    grant_answered_late_is_renewed();
    failed_renewal_keeps_the_grant();
    client_belongs_to_its_process();
    renewer_belongs_to_its_process();
    invalid_options_are_refused();
    token_file_is_read_again_after_a_change();
    renewer_uses_the_token_of_its_client();
    files_that_cannot_be_used_are_refused();
    wait_piece_over_int_max_is_refused();
    credential_stays_off_the_network_in_the_clear();
    unix_socket_is_a_server();
    order_of_servers_is_random();
    refusing_server_is_followed_by_the_next();
    dead_servers_are_named();
    lost_answer_is_requested_from_the_next_server();
    stopping_server_is_followed_immediately();
    hanging_server_leaves_time_for_the_next();
    refusal_beside_a_hanging_server_leaves_doubt();
    wait_goes_on_at_another_server();
    hanging_server_does_not_lose_the_permit();
    invalid_lists_are_refused();
    messages_contain_no_password();
    control_characters_in_messages_are_escaped();
    release_reports_the_end_reason();
    confirmed_request_does_not_expire();
    semaphore_delete_adds_up_all_answers(argv[1]);
    permitctl_escapes_control_characters(argv[1]);
    permitctl_accepts_any_numbers(argv[1]);
    permitctl_run_adapts_its_own_ttl(argv[1]);
    permitctl_run_reports_a_full_queue_once(argv[1]);
    permitctl_reports_a_refusal_of_a_proxy(argv[1]);
    permitctl_reports_an_answer_of_another_server(argv[1]);
    for (size_t i = 0; i < sizeof(scratch_files) / sizeof(scratch_files[0]); i++)
        (void)unlink(scratch_path(scratch_files[i]));
    (void)rmdir(scratch);
    return failures > 0;
}
