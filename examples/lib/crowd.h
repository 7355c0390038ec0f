/* SPDX-License-Identifier: MIT */
/*
 * A crowd of clients of permitd in one thread, for the examples. Each client has a kept-alive connection of its own and
 * sends one request at a time; its answer is handed to a function, which sends the next one.
 *
 *     struct crowd *crowd = crowd_new("http://127.0.0.1:7070", 10000, buyers);
 *     for (unsigned i = 0; i < 10000; i++)
 *         crowd_send(crowd, i, answered, "POST", "/v1/requests", "{\"external_id\":\"buyer-%u\",...}", i);
 *     crowd_run(crowd);
 *     crowd_free(crowd);
 *
 * A client does what every client of permitd should do: a request without an answer (the server was killed, the
 * connection cut), and one that is answered "not now" (429, 503), is sent again, the same under the same key, until
 * there is an answer. That is always safe; docs/protocol.md says why.
 *
 * Made of libevent's HTTP client and json-c. Ends the process when it cannot go on.
 */
#ifndef CROWD_H
#define CROWD_H

#include <json-c/json.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct crowd;

struct answer {
    int status; /* 200, 201, 423, ...; 0: none within a minute */
    double ms;  /* from the first try to this answer */
    const char *text;
    struct json_object *json; /* its parsed text; made by answer_find */
};

typedef void crowd_answered(struct crowd *crowd, unsigned client, struct answer *answer);
typedef void crowd_woken(struct crowd *crowd, unsigned client);

/* `context` is what crowd_context gives back: the example's own state. */
struct crowd *crowd_new(const char *url, unsigned clients, void *context);
void crowd_free(struct crowd *crowd);
void *crowd_context(struct crowd *crowd);
/* Opens the connections of all clients: to have come before the shop opens. */
void crowd_connect(struct crowd *crowd);

/*
 * Client number `client` sends a request; method "GET", "PUT", "POST", "DELETE". `format` makes its body; NULL: none.
 */
void crowd_send(struct crowd *crowd, unsigned client, crowd_answered *answered, const char *method, const char *path,
                const char *format, ...) __attribute__((format(printf, 6, 7)));
/* The client does nothing for so long. */
void crowd_wait(struct crowd *crowd, unsigned client, double ms, crowd_woken *woken);
/* True once this process was sent SIGTERM or SIGINT: for examples that go on until somebody says so. */
bool crowd_told_to_stop(void);
/* Until no client has an answer or its time to wait for. */
void crowd_run(struct crowd *crowd);
/*
 * One request by itself, outside of the crowd's turns. Its status; *ret_json, if not NULL, is to be put by the caller.
 */
int crowd_ask(struct crowd *crowd, struct json_object **ret_json, const char *method, const char *path,
              const char *format, ...) __attribute__((format(printf, 5, 6)));

/* What stands at a JSON pointer, "/permits/0/token": NULL or 0 if there is nothing. */
struct json_object *answer_find(struct answer *answer, const char *pointer);
int64_t answer_number(struct answer *answer, const char *pointer);
int64_t json_number(struct json_object *json, const char *pointer);

/* Milliseconds of a clock that only goes forward. */
double now_ms(void);

/* Durations, to say which one is longer than 95 % of them. */
struct durations {
    double *ms;
    size_t count, room;
};
void durations_add(struct durations *durations, double ms);
double durations_percentile(struct durations *durations, double percent);

/* What an example claims: printed as it turned out; claims_kept is false if one did not hold. */
void claim(bool holds, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool claims_kept(void);
/* A measured figure beside what was asked for; also a row of a table in the file $PERMIT_FIGURES, if that is set. */
void figure(const char *what, const char *asked, bool reached, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
#endif
