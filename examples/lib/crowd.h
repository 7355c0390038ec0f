/* SPDX-License-Identifier: MIT */
/*
 * A crowd of clients of permitd in one thread, for the examples. Each client has its own kept-alive connection and
 * sends one request at a time. A function receives the answer and sends the next request.
 *
 *     struct crowd *crowd = crowd_new("http://127.0.0.1:7070", 10000, buyers);
 *     for (unsigned i = 0; i < 10000; i++)
 *         crowd_send(crowd, i, answered, "POST", "/v1/requests", "{\"external_id\":\"buyer-%u\",...}", i);
 *     crowd_run(crowd);
 *     crowd_free(crowd);
 *
 * A client retries as every client of permitd should: it repeats a request without an answer (the server was killed,
 * the connection cut), and one that is answered "not now" (429, 503), under the same key until there is an answer. That
 * is always safe; docs/protocol.md explains why.
 *
 * Uses load_client.h and json-c. Ends the process if it cannot continue.
 */
#ifndef CROWD_H
#define CROWD_H

#include <json-c/json.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct crowd;

struct answer {
    int status; /* 200, 201, 423, ...; 0: no answer within a minute */
    double ms;  /* from the first try to this answer */
    const char *text;
    struct json_object *json; /* parsed text; answer_find creates it */
};

typedef void crowd_answered(struct crowd *crowd, unsigned client, struct answer *answer);
typedef void crowd_woken(struct crowd *crowd, unsigned client);

/* crowd_context returns `context`, the state of the example. */
struct crowd *crowd_new(const char *url, unsigned clients, void *context);
void crowd_free(struct crowd *crowd);
void *crowd_context(struct crowd *crowd);
/* Opens the connections of all clients, so that they are ready before the test begins. */
void crowd_connect(struct crowd *crowd);

/*
 * Sends a request from client number `client`; method "GET", "PUT", "POST", "DELETE". `format` gives its body; NULL:
 * none.
 */
void crowd_send(struct crowd *crowd, unsigned client, crowd_answered *answered, const char *method, const char *path,
                const char *format, ...) __attribute__((format(printf, 6, 7)));
/* Lets the client pause for this time, then calls `woken`. */
void crowd_wait(struct crowd *crowd, unsigned client, double ms, crowd_woken *woken);
/* Returns true once this process got SIGTERM or SIGINT, for examples that run until then. */
bool crowd_told_to_stop(void);
/* Runs until no client waits for an answer or a pause. */
void crowd_run(struct crowd *crowd);
/*
 * Sends one request outside of the crowd and waits for it. Returns its status. The caller puts *ret_json, if ret_json
 * is not NULL.
 */
int crowd_ask(struct crowd *crowd, struct json_object **ret_json, const char *method, const char *path,
              const char *format, ...) __attribute__((format(printf, 5, 6)));

/* The value at a JSON pointer, such as "/permits/0/token": NULL or 0 if there is none. */
struct json_object *answer_find(struct answer *answer, const char *pointer);
int64_t answer_number(struct answer *answer, const char *pointer);
int64_t json_number(struct json_object *json, const char *pointer);

/* Milliseconds of a monotonic clock. */
double now_ms(void);

/* Durations, for percentiles. */
struct durations {
    double *ms;
    size_t count, room;
};
void durations_add(struct durations *durations, double ms);
double durations_percentile(struct durations *durations, double percent);

/* Prints a claim of the example and whether it holds. claims_kept returns false if one did not hold. */
void claim(bool holds, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool claims_kept(void);
/*
 * Prints a measured figure with its goal, and adds it as a row of a table to the file $PERMIT_FIGURES, if that is set.
 */
void figure(const char *what, const char *asked, bool reached, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
#endif
