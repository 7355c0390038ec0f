/* SPDX-License-Identifier: MIT */
/*
 * libpermit against a server that follows a script: each line says what one request must be, and what it is answered.
 * So lost answers, servers that hang and answers of strangers can be had at will. Prints "ok - ..." and "not ok - ..."
 * lines. The path of permitctl is the argument: of one of its verbs, too, it is a script that tells most.
 */
#include <arpa/inet.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "permit/permit.h"

static int failures;

static void check(bool holds, const char *sentence)
{
    printf("%s - libpermit: %s\n", holds ? "ok" : "not ok", sentence);
    failures += !holds;
}

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* ---- The server ---- */

enum act {
    ANSWER, /* with `status` and `body` */
    WAIT,   /* the same, after as long as the request asked for */
    CUT,    /* read the request, then close */
    HANG,   /* read the request, then say nothing until the client goes away */
};

struct line {
    enum act act;
    int status;
    const char *body;
    const char *expect; /* must occur in the request; NULL: anything */
};

enum { REQUEST_MAX = 8192, SEEN_MAX = 16 };

struct script {
    const struct line *lines;
    size_t count;
    int listener;
    char url[64];
    pthread_t thread;
    atomic_size_t served;
    atomic_bool unexpected;
    char keys[SEEN_MAX][64]; /* external_id of each acquire */
    int64_t at[SEEN_MAX];    /* when each request came */
    int64_t waits[SEEN_MAX]; /* "wait" of each acquire, in ms; 0: none */
};

/* Reads one request with its body. False: the connection is closed. */
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
    const char *wait = strstr(request, "\"wait\":");
    script->at[index] = now_ms();
    if (key)
        (void)sscanf(key + 14, " \"%63[^\"]", script->keys[index]);
    if (wait)
        script->waits[index] = strtoll(wait + strcspn(wait, "0123456789"), NULL, 10);
}

static void answer(int fd, const struct line *line)
{
    char text[REQUEST_MAX];
    int length = snprintf(text, sizeof(text), "HTTP/1.1 %d X\r\nContent-Length: %zu\r\n%s\r\n%s", line->status,
                          strlen(line->body), line->status == 503 ? "Retry-After: 1\r\n" : "", line->body);
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
        if (line->act == ANSWER || line->act == WAIT)
            answer(fd, line);
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
        serve_connection(script, fd);
        close(fd);
    }
    return NULL;
}

static void script_start(struct script *script, const struct line *lines, size_t count)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);
    memset(script, 0, sizeof(*script));
    script->lines = lines;
    script->count = count;
    script->listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(script->listener, (struct sockaddr *)&address, sizeof(address)) != 0 || listen(script->listener, 8) != 0 ||
        getsockname(script->listener, (struct sockaddr *)&address, &length) != 0)
        abort();
    (void)snprintf(script->url, sizeof(script->url), "http://127.0.0.1:%u", (unsigned)ntohs(address.sin_port));
    if (pthread_create(&script->thread, NULL, serve, script) != 0)
        abort();
}

/* All of it was asked for, as expected. */
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
 * The ttl of grants: no machine is so slow that half of it is over when the answer comes, after which a client renews.
 * Where a renewer is waited for, it is BRIEF: long enough for a slow machine to answer in its first third. Times that
 * are promised are fractions of it; where a bound is for nothing but an end, it is LONG.
 */
#define TTL   "60000"
#define BRIEF "6000"
enum { TTL_MS = 60000, BRIEF_MS = 6000, LONG_MS = 30000 };

#define GRANT_FOR(ttl, replayed, left)                                                                                 \
    "{\"external_id\":\"k\",\"state\":\"ACQUIRED\",\"replayed\":" replayed                                             \
    ",\"permits\":[{\"semaphore\":\"s\",\"count\":2,\"token\":57,\"slots\":[1,3],\"floor\":55}],"                      \
    "\"ttl_ms\":" ttl ",\"expires_in_ms\":" left ",\"news\":{}}"
#define GRANT(replayed, left) GRANT_FOR(TTL, replayed, left)
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

static enum permit_status acquire(struct permit_client *client, int64_t wait_ms, struct permit_request **ret_request)
{
    struct permit_acquire_options options = {.permits = &want, .permit_count = 1, .wait_ms = wait_ms, .ttl_ms = TTL_MS};
    return permit_acquire(client, &options, ret_request);
}

/* ---- Tests ---- */

static void a_grant_is_read_whole(void)
{
    SCRIPT(script, {ANSWER, 201, GRANT("false", TTL), "Authorization: Bearer secret"});
    struct permit_client *client = client_of(&script, 0);
    struct permit_request *request = NULL;
    int64_t before = now_ms();
    enum permit_status status = acquire(client, 0, &request);
    check(status == PERMIT_OK && request->held && !request->replayed && !request->answer_lost, "a grant");
    check(request->permit_count == 1 && request->permits[0].token == 57 && request->permits[0].slot_count == 2 &&
              request->permits[0].slots[1] == 3 && request->permits[0].floor == 55,
          "with token, slots and floor; unknown members are ignored");
    check(request->held_until_us / 1000 >= before + TTL_MS - 1 && request->held_until_us / 1000 <= now_ms() + TTL_MS,
          "held until ttl after it was sent");
    check(*permit_client_message(client) == '\0', "no message after success");
    permit_request_free(request);
    permit_client_free(client);
    check(script_end(&script), "sent with the credential");
}

/* "#12" is a number, "##12" the label #12, and the rest labels. */
static void certain_slots_are_asked_for_and_read(void)
{
    static const char *const these[] = {"A1", "#12", "##12", "#a", "##", "#99999999999999999999"};
    static const char *const two[] = {"B1", "#2"};
    static const char grant[] =
        "{\"external_id\":\"k\",\"state\":\"ACQUIRED\",\"permits\":[{\"semaphore\":\"s\",\"count\":2,"
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

static void a_lost_answer_is_asked_for_again(void)
{
    SCRIPT(script, {CUT, 0, NULL, "\"ttl\":\"" TTL "ms\""}, {ANSWER, 500, PROBLEM("internal", ""), NULL},
           {ANSWER, 200, GRANT("true", TTL), NULL});
    struct permit_client *client = client_of(&script, 0);
    struct permit_request *request = NULL;
    check(acquire(client, 0, &request) == PERMIT_OK, "a lost answer is asked for again");
    check(request && request->replayed && request->answer_lost, "and the replay is known to be ours");
    check(strlen(script.keys[0]) == 36 && strcmp(script.keys[0], script.keys[1]) == 0 &&
              strcmp(script.keys[0], script.keys[2]) == 0 && strcmp(script.keys[0], permit_client_key(client)) == 0,
          "with the same key each time");
    permit_request_free(request);
    permit_client_free(client);
    check(script_end(&script), "three times");
}

static void a_replay_without_a_lost_answer_is_not_ours(void)
{
    SCRIPT(script, {ANSWER, 423, PROBLEM("no_capacity", ",\"retry_after_ms\":100"), NULL},
           {ANSWER, 200, GRANT("true", TTL), NULL});
    struct permit_client *client = client_of(&script, 0);
    struct permit_request *request = NULL;
    check(acquire(client, LONG_MS, &request) == PERMIT_OK && request->replayed && !request->answer_lost,
          "a replay without a lost answer is not ours");
    permit_request_free(request);
    permit_client_free(client);
    (void)script_end(&script);
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
    check(script_end(&script), "each asked once");
}

/* "retry_after_ms" and "ttl_ms" are counted with, whoever has answered. */
static void numbers_that_nobody_means_are_bounded(void)
{
    static const char huge_ttl[] = "{\"external_id\":\"k\",\"state\":\"ACQUIRED\",\"ttl_ms\":9223372036854775807}";
    SCRIPT(script, {ANSWER, 423, PROBLEM("no_capacity", ",\"retry_after_ms\":9223372036854775807"), NULL},
           {ANSWER, 423, PROBLEM("no_capacity", ",\"retry_after_ms\":-9223372036854775807"), NULL},
           {ANSWER, 201, huge_ttl, NULL});
    struct permit_client *client = client_of(&script, 0);
    struct permit_request *request = NULL;
    check(acquire(client, 0, &request) == PERMIT_NO_CAPACITY && permit_client_retry_after_ms(client) == 86400000,
          "nobody is told to wait for longer than a day");
    check(acquire(client, 0, &request) == PERMIT_NO_CAPACITY && permit_client_retry_after_ms(client) == 0,
          "or for less than no time");
    check(acquire(client, 0, &request) == PERMIT_OK && request->ttl_ms == 3162240000000, "or holds for over 100 years");
    permit_request_free(request);
    permit_client_free(client);
    check(script_end(&script), "each asked once");
}

/* Whatever a stranger says in permitd's place: a grant is handed out only if it is one. */
static void what_is_not_held_is_no_grant(void)
{
    static const char ended[] = "{\"external_id\":\"k\",\"state\":\"RELEASED\"}";
    SCRIPT(script, {ANSWER, 201, ended, NULL}, {ANSWER, 201, GRANT("false", "0"), NULL},
           {ANSWER, 200, ended, "POST /v1/requests/k/renew"});
    struct permit_client *client = client_of(&script, 0);
    struct permit_request *request = NULL;
    check(acquire(client, 0, &request) == PERMIT_INTERNAL && !request, "what is not held is no grant");
    check(acquire(client, 0, &request) == PERMIT_INTERNAL && !request, "nor what is renewed and not held");
    permit_client_free(client);
    check(script_end(&script), "in that order");
}

static void retry_after_is_honoured(void)
{
    SCRIPT(script, {ANSWER, 423, PROBLEM("no_capacity", ",\"retry_after_ms\":400"), NULL},
           {ANSWER, 503, PROBLEM("busy", ",\"retry_after_ms\":300"), NULL}, {ANSWER, 201, GRANT("false", TTL), NULL});
    struct permit_client *client = client_of(&script, 0);
    struct permit_request *request = NULL;
    check(acquire(client, PERMIT_FOREVER, &request) == PERMIT_OK && !request->answer_lost, "it waits for capacity");
    check(script.at[1] - script.at[0] >= 400 && script.at[1] - script.at[0] < LONG_MS &&
              script.at[2] - script.at[1] >= 300 && script.at[2] - script.at[1] < LONG_MS,
          "asking again after Retry-After, and soon after it");
    permit_request_free(request);
    permit_client_free(client);
    (void)script_end(&script);
}

/* ---- Waiting ---- */

/* A server that does the waiting, says when it would like to be asked again, and is asked again at once. */
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

static void a_long_wait_is_cut_into_pieces(void)
{
    SCRIPT(script, {WAIT, 423, FULL, "\"wait\":\"300ms\""}, {WAIT, 423, FULL, "\"wait\":\"300ms\""},
           {ANSWER, 201, GRANT("false", TTL), "\"wait\":\"300ms\""});
    struct permit_client *client = client_of(&script, 0);
    struct permit_request *request = NULL;
    check(acquire_in_pieces(client, PERMIT_FOREVER, 300, &request) == PERMIT_OK && !request->answer_lost,
          "a long wait is cut into pieces");
    check(strcmp(script.keys[0], script.keys[2]) == 0, "of one key");
    check(script.at[1] - script.at[0] >= 300 && script.at[2] - script.at[0] < 20000, "one following the other at once");
    permit_request_free(request);
    permit_client_free(client);
    check(script_end(&script), "each as long as it was asked for");
}

static void the_last_piece_is_what_is_left(void)
{
    SCRIPT(script, {WAIT, 423, FULL, NULL}, {WAIT, 423, FULL, NULL});
    struct permit_client *client = client_of(&script, 0);
    struct permit_request *request = NULL;
    int64_t start = now_ms();
    check(acquire_in_pieces(client, 7000, 3500, &request) == PERMIT_NO_CAPACITY, "no capacity when the wait is over");
    check(script.waits[0] == 3500 && script.waits[1] > 0 && script.waits[1] <= 3500, "the last piece is what is left");
    check(now_ms() - start >= 7000 && now_ms() - start < LONG_MS, "and nothing is asked after it");
    permit_client_free(client);
    check(script_end(&script), "twice");
}

static void a_server_that_takes_shorter_waits_is_asked_for_those(void)
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
    check(acquire(client, PERMIT_FOREVER, &first) == PERMIT_OK, "a server that takes shorter waits is asked for those");
    check(acquire(client, PERMIT_FOREVER, &second) == PERMIT_OK, "from then on");
    check(acquire(client, PERMIT_FOREVER, &third) == PERMIT_INVALID, "but not if the wait is not what it refuses");
    check(acquire(client, PERMIT_FOREVER, &third) == PERMIT_OK && script.waits[6] == 0 && script.waits[7] == 0,
          "one that takes none at all is asked");
    check(script.at[7] - script.at[6] >= 300, "again and again, after Retry-After");
    permit_request_free(first);
    permit_request_free(second);
    permit_request_free(third);
    permit_client_free(client);
    check(script_end(&script), "in that order");
}

static void a_server_that_does_not_wait_is_not_asked_without_pause(void)
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

static void a_wait_outlives_a_restart_of_the_server(void)
{
    SCRIPT(script, {CUT, 0, NULL, NULL}, {ANSWER, 503, PROBLEM("shutting_down", ",\"retry_after_ms\":50"), NULL},
           {ANSWER, 503, PROBLEM("database_unavailable", ",\"retry_after_ms\":50"), NULL},
           {ANSWER, 200, GRANT("true", TTL), NULL});
    struct permit_client *client = client_of_one_try(&script);
    struct permit_request *request = NULL;
    check(acquire(client, PERMIT_FOREVER, &request) == PERMIT_OK && request->answer_lost,
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

static void who_waits_is_told_why(void)
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

static void a_grant_that_was_slept_through_is_asked_for_anew(void)
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
    check(acquire(client, PERMIT_FOREVER, &none) == PERMIT_ENDED, "but not if somebody released the key");
    check(permit_acquire(client, &ours, &none) == PERMIT_ENDED, "nor under a key of the caller's");
    permit_request_free(request);
    permit_client_free(client);
    check(script_end(&script), "whose end is final");
}

struct canceller {
    struct script *script;
    int fd;
};

static void *cancel_when_asked(void *context)
{
    const struct canceller *canceller = context;
    while (atomic_load(&canceller->script->served) < 1)
        usleep(1000);
    (void)eventfd_write(canceller->fd, 1);
    return NULL;
}

static void a_piece_under_way_can_be_cancelled(void)
{
    SCRIPT(script, {HANG, 0, NULL, NULL});
    struct permit_client *client = client_of(&script, 0);
    struct permit_request *request = NULL;
    struct canceller canceller = {.script = &script, .fd = eventfd(0, 0)};
    struct permit_acquire_options options = {
        .permits = &want, .permit_count = 1, .wait_ms = PERMIT_FOREVER, .cancel_fd = canceller.fd};
    pthread_t thread;
    int64_t start = now_ms();
    if (pthread_create(&thread, NULL, cancel_when_asked, &canceller) != 0)
        abort();
    check(permit_acquire(client, &options, &request) == PERMIT_OUTCOME_UNKNOWN && now_ms() - start < LONG_MS,
          "a piece under way can be cancelled");
    check(strcmp(permit_client_key(client), script.keys[0]) == 0, "and its key is known, to be released");
    pthread_join(thread, NULL);
    close(canceller.fd);
    permit_client_free(client);
    check(script_end(&script), "after one try");
}

static void every_call_of_a_client_can_be_cancelled(void)
{
    SCRIPT(script, {HANG, 0, NULL, "GET /v1/requests/k "});
    struct permit_client *client = NULL;
    struct permit_request *request = NULL;
    struct canceller canceller = {.script = &script, .fd = eventfd(0, 0)};
    struct permit_client_options options = {.url = script.url, .cancel_fd = canceller.fd};
    pthread_t thread;
    int64_t start = now_ms();
    if (permit_client_new(&options, &client) || pthread_create(&thread, NULL, cancel_when_asked, &canceller) != 0)
        abort();
    check(permit_show(client, "k", &request) == PERMIT_OUTCOME_UNKNOWN && now_ms() - start < LONG_MS,
          "every call of a client can be cancelled");
    pthread_join(thread, NULL);
    close(canceller.fd);
    permit_client_free(client);
    (void)script_end(&script);
}

static void a_stranger_is_no_server(void)
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

static void a_wait_can_be_cancelled(void)
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

/* What may be held must be released; what was never sent need not be. */
static void who_failed_knows_whether_something_may_be_held(void)
{
    SCRIPT(script, {CUT, 0, NULL, NULL}, {ANSWER, 503, PROBLEM("busy", ",\"retry_after_ms\":60000"), NULL},
           {CUT, 0, NULL, NULL}, {ANSWER, 423, PROBLEM("no_capacity", ""), NULL},
           {ANSWER, 503, PROBLEM("busy", ",\"retry_after_ms\":60000"), NULL}, {ANSWER, 201, "a proxy's", NULL},
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
    check(script_end(&script), "of that it was asked seven times");
    check(acquire(client, 0, &request) == PERMIT_NO_SERVER && !permit_client_in_doubt(client),
          "and what was never sent leaves none either");
    permit_client_free(client);
}

static void what_a_lost_answer_has_retired_is_done(void)
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
          "and of an owner, who stays known, 404 says that there was none");
    permit_client_free(client);
    check(script_end(&script), "each tried again once");
}

static void a_name_of_dots_is_sent_as_it_is(void)
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

/* What a renewer did until the permit was lost. Times count from before the acquire was sent. */
struct course {
    struct loss loss;
    int64_t lost_ms;
    int64_t asked_ms[SEEN_MAX]; /* by line of the script */
};

/* Acquires from the script's first line, starts a renewer, and waits for the loss. */
static struct course renew_until_lost(struct script *script)
{
    struct permit_client *client = client_of(script, 0);
    struct permit_request *request = NULL;
    struct permit_renewer *renewer = NULL;
    struct course course = {.loss = {.calls = 0}};
    struct loss *loss = &course.loss;
    struct permit_renewer_options options = {.lost = on_lost, .context = loss};
    int64_t start = now_ms();
    if (acquire(client, 0, &request) || permit_renewer_start(client, request, &options, &renewer))
        abort();
    permit_client_free(client);
    permit_request_free(request);
    if (!wait_for_loss(loss, 2 * LONG_MS) || permit_renewer_holds(renewer) ||
        permit_renewer_held_until_us(renewer) != 0)
        atomic_store(&loss->calls, -1);
    course.lost_ms = atomic_load(&loss->at) - start;
    permit_renewer_stop(renewer);
    for (size_t i = 0; i < atomic_load(&script->served); i++)
        course.asked_ms[i] = script->at[i] - start;
    return course;
}

static void an_ended_request_is_lost(void)
{
    SCRIPT(script, {ANSWER, 201, BRIEF_GRANT, NULL}, {ANSWER, 200, BRIEF_GRANT, "POST /v1/requests/k/renew"},
           {ANSWER, 410, PROBLEM("ended", ""), NULL});
    struct course course = renew_until_lost(&script);
    check(course.loss.calls == 1 && course.loss.status == PERMIT_ENDED, "410 on renew: lost, once");
    check(script_end(&script) && course.asked_ms[1] >= BRIEF_MS / 3 - 1 && course.asked_ms[1] < BRIEF_MS &&
              course.asked_ms[2] >= BRIEF_MS * 2 / 3 - 1,
          "renewed every third of the ttl");
    SCRIPT(forgotten, {ANSWER, 201, BRIEF_GRANT, NULL}, {ANSWER, 404, PROBLEM("unknown_request", ""), NULL});
    course = renew_until_lost(&forgotten);
    check(course.loss.calls == 1 && course.loss.status == PERMIT_UNKNOWN_REQUEST, "404 on renew means the same");
    (void)script_end(&forgotten);
}

static void what_cannot_be_proved_is_lost(void)
{
    SCRIPT(hangs, {ANSWER, 201, BRIEF_GRANT, NULL}, {HANG, 0, NULL, NULL});
    struct course course = renew_until_lost(&hangs);
    check(course.loss.calls == 1 && course.lost_ms >= BRIEF_MS - 1 && course.lost_ms < 2 * BRIEF_MS,
          "a server that hangs: lost when the ttl is over, not later");
    (void)script_end(&hangs);
    SCRIPT(fails, {ANSWER, 201, BRIEF_GRANT, NULL},
           {ANSWER, 503, PROBLEM("database_unavailable", ",\"retry_after_ms\":50"), NULL}, {CUT, 0, NULL, NULL},
           {ANSWER, 200, BRIEF_GRANT, NULL}, {HANG, 0, NULL, NULL});
    course = renew_until_lost(&fails);
    check(course.loss.calls == 1 && course.lost_ms >= BRIEF_MS * 4 / 3 - 1 && script_end(&fails),
          "renewals that fail are repeated within the ttl");
}

static void what_is_over_before_it_is_renewed_is_told_so(void)
{
    SCRIPT(script, {ANSWER, 201, GRANT("false", TTL), NULL});
    struct permit_client *client = client_of(&script, 0);
    struct permit_request *request = NULL;
    struct permit_renewer *renewer = NULL;
    struct loss loss = {.calls = 0};
    struct permit_renewer_options options = {.lost = on_lost, .context = &loss};
    if (acquire(client, 0, &request))
        abort();
    request->held_until_us = now_ms() * 1000 - 1;
    if (permit_renewer_start(client, request, &options, &renewer))
        abort();
    check(wait_for_loss(&loss, LONG_MS) && loss.status == PERMIT_OUTCOME_UNKNOWN &&
              strstr(loss.message, "too short, or this process was stopped"),
          "what is over before it is renewed has two possible reasons");
    permit_renewer_stop(renewer);
    permit_request_free(request);
    permit_client_free(client);
    (void)script_end(&script);
}

static void a_renewer_stops_at_once(void)
{
    SCRIPT(script, {ANSWER, 201, GRANT("false", "60000"), NULL}, {HANG, 0, NULL, NULL});
    struct permit_client *client = client_of(&script, 0);
    struct permit_request *request = NULL;
    struct permit_renewer *renewer = NULL;
    struct permit_renewer_options options = {.every_ms = 20};
    if (acquire(client, 0, &request) || permit_renewer_start(client, request, &options, &renewer))
        abort();
    permit_client_free(client); /* the server serves one connection after the other */
    while (atomic_load(&script.served) < 2)
        usleep(1000);
    int64_t start = now_ms();
    check(permit_renewer_holds(renewer), "held while a renewal is under way");
    permit_renewer_stop(renewer);
    check(now_ms() - start < LONG_MS / 6, "a renewer stops at once, also in a renewal");
    permit_request_free(request);
    (void)script_end(&script);
}

static void an_answer_later_than_the_ttl_is_renewed(void)
{
    SCRIPT(script, {ANSWER, 201, GRANT("false", "0"), NULL}, {ANSWER, 200, GRANT("false", TTL), "/renew"});
    struct permit_client *client = client_of(&script, 0);
    struct permit_request *request = NULL;
    check(acquire(client, 0, &request) == PERMIT_OK && request->held_until_us / 1000 > now_ms() + 200,
          "a grant that proves little any more is renewed first");
    permit_request_free(request);
    permit_client_free(client);
    check(script_end(&script), "by one renewal");
}

static void release_tells_how_it_ended(void)
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
    check(permit_fence_check(client, "s", 57, 3, &fence) == PERMIT_OK && fence.live && fence.floor == 55, "fence");
    permit_request_free(request);
    permit_client_free(client);
    check(script_end(&script), "keys are percent-encoded");
}

static void what_is_confirmed_does_not_expire(void)
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

/* Each answer tells what it has ended, also those after which it is asked again. */
static void semaphore_delete_counts_what_all_answers_tell(const char *permitctl)
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
    check(output && pclose(output) == 0 && counted, "semaphore delete counts what all answers tell");
    check(script_end(&script), "and asks until one says that it is done");
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 64;
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    a_grant_is_read_whole();
    certain_slots_are_asked_for_and_read();
    a_lost_answer_is_asked_for_again();
    a_replay_without_a_lost_answer_is_not_ours();
    refusals_have_status_and_message();
    numbers_that_nobody_means_are_bounded();
    what_is_not_held_is_no_grant();
    retry_after_is_honoured();
    a_long_wait_is_cut_into_pieces();
    the_last_piece_is_what_is_left();
    a_server_that_takes_shorter_waits_is_asked_for_those();
    a_server_that_does_not_wait_is_not_asked_without_pause();
    a_wait_outlives_a_restart_of_the_server();
    who_waits_is_told_why();
    a_grant_that_was_slept_through_is_asked_for_anew();
    a_piece_under_way_can_be_cancelled();
    every_call_of_a_client_can_be_cancelled();
    a_stranger_is_no_server();
    a_wait_can_be_cancelled();
    who_failed_knows_whether_something_may_be_held();
    a_name_of_dots_is_sent_as_it_is();
    what_a_lost_answer_has_retired_is_done();
    an_ended_request_is_lost();
    what_cannot_be_proved_is_lost();
    what_is_over_before_it_is_renewed_is_told_so();
    a_renewer_stops_at_once();
    an_answer_later_than_the_ttl_is_renewed();
    release_tells_how_it_ended();
    what_is_confirmed_does_not_expire();
    semaphore_delete_counts_what_all_answers_tell(argv[1]);
    return failures > 0;
}
