/* SPDX-License-Identifier: MIT */
/*
 * HTTP requests over many kept-alive connections to one server, in one thread. The examples, the test kit, the chaos
 * suites and the load generator share this client, so it knows nothing about permits and needs only the C library.
 *
 *     struct load_pool *pool = load_pool_open(&(struct load_settings){
 *         .host = "127.0.0.1", .port = 7070, .count = 10000, .answered = answered, .woken = woken, .context = shop});
 *     load_send(pool, 17, text, length);          the answer comes to answered(shop, 17, &answer)
 *     load_wake(pool, 18, load_now_us() + 50000); woken(shop, 18) is called after 50 ms
 *     while (...)
 *         load_pool_step(pool, 1000);
 *     load_pool_close(pool);
 *
 * Design: thousands of connections need events instead of threads, and the load generator needs an exchange to cost one
 * send, one recv and its share of an epoll_wait. So there is one loop, it reads every answer into one buffer, and the
 * caller gives each request as finished bytes, which it may prepare once. A connection is a number, and the state of the
 * caller is its own array. load_answer_read makes no calls to the system, so that a blocking client can use it, too.
 *
 * It never repeats a request; the caller decides what a lost one means. It ends the process if it cannot continue.
 */
#ifndef LOAD_CLIENT_H
#define LOAD_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An answer and the positions of its parts in the bytes that have arrived. */
struct load_answer {
    int status;       /* 0: these bytes are not an answer */
    const char *text; /* the status line, headers, an empty line, the body */
    size_t length;
    const char *body; /* in an answer of a pool, a zero follows */
    size_t body_length;
    bool closes; /* the server closes the connection after it */
    /* Set by a pool, of load_now_us: when the request was sent, and when the answer was complete. */
    int64_t sent_us;
    int64_t arrived_us;
};

/*
 * Reads an answer from zero-terminated bytes. Returns false if more bytes are needed. no_body: it answers HEAD. The
 * length of a body is its Content-Length, without which there is none; permitd never sends chunks.
 */
bool load_answer_read(const char *bytes, size_t length, bool no_body, struct load_answer *ret_answer);
/* Returns the value of a header in zero-terminated lines, by name without regard to case; NULL if absent. */
const char *load_header(const char *lines, const char *name, size_t *ret_length);
/*
 * Returns the bytes of a request, zero-terminated. `headers`: further lines, each ended by "\r\n". `body` NULL: none; a
 * body is sent as application/json if the headers have no Content-Type. The caller frees it with free().
 */
char *load_request(const char *host, const char *method, const char *path, const char *headers, const char *body);

/*
 * Returns a connected socket, or -1. Addresses are IPv4; source: to connect from, 0: any. SOCK_NONBLOCK in `flags`: the
 * socket is only connecting, and reading from it reports a failure.
 */
int load_connect(uint32_t address, unsigned port, uint32_t source, int flags);
/* Raises this process's limit of open files to the maximum and returns it. */
size_t load_raise_file_limit(void);
/* Microseconds of the monotonic clock. */
int64_t load_now_us(void);

struct load_settings {
    const char *host; /* a name or an IPv4 address */
    unsigned port;
    unsigned count;    /* of connections; their numbers are from 0 */
    bool many_sources; /* connects from several loopback addresses: one has ports for about 28,000 connections */
    /*
     * Called for each answer, which is valid until the function returns or runs the pool. NULL: the connection has
     * ended or could not be opened, whether or not an answer was due.
     */
    void (*answered)(void *context, unsigned number, const struct load_answer *answer);
    void (*woken)(void *context, unsigned number);
    void *context;
};

struct load_pool;

/* Opens no connection yet, and raises the limit of open files. The host is not used later. */
struct load_pool *load_pool_open(const struct load_settings *settings);
/* Closes all connections. Accepts NULL. */
void load_pool_close(struct load_pool *pool);
/*
 * Opens all connections, some hundred at a time because the server's backlog is limited, and waits for an answer to GET
 * /healthz on each. Returns false if one is not answered 200.
 */
bool load_pool_connect(struct load_pool *pool);
/* Waits at most `ms` for events, and handles them and the timers that are due. */
void load_pool_step(struct load_pool *pool, int ms);

/* From its next connection on, this number is connected to this port of the host. */
void load_set_port(struct load_pool *pool, unsigned number, unsigned port);
/* Sends a request, on a new connection if none is open. The previous request must have been answered. */
void load_send(struct load_pool *pool, unsigned number, const char *bytes, size_t length);
/* Closes the connection without a call of `answered`, or only its sending side. */
void load_close(struct load_pool *pool, unsigned number);
void load_close_sending(struct load_pool *pool, unsigned number);
/* Sets the timer of this number, to the millisecond. 0: stops it. */
void load_wake(struct load_pool *pool, unsigned number, int64_t at_us);
#endif
