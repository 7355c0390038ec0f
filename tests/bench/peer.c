/* SPDX-License-Identifier: MIT */
/* See peer.h. */
#include "peer.h"

#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>

#include "load_client.h"
#include "measure.h"

enum { EVENTS_MAX = 256 };

static struct {
    const struct peer_calls *calls;
    const char *server;
    unsigned clients;
    double seconds, warmup;
    struct measure measure;
    int epoll_fd;
    unsigned active; /* clients with an operation in flight */
    bool counting;
    bool stopping; /* complete the pair, then stay idle */
    struct {
        bool releasing;
        int64_t sent_us;
    } states[PEER_CLIENTS_MAX];
} peer = {.clients = 64, .seconds = 3, .warmup = 0.5};

void peer_fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(1);
}

static void send_next(unsigned number)
{
    bool releasing = peer.states[number].releasing;
    if (peer.stopping && !releasing) {
        peer.active--;
        return;
    }
    peer.states[number].sent_us = load_now_us();
    (releasing ? peer.calls->release : peer.calls->acquire)(number);
}

void peer_answered(unsigned number, bool granted)
{
    bool releasing = peer.states[number].releasing;
    if (peer.counting) {
        if (!releasing)
            samples_add(&peer.measure.acquires, load_now_us() - peer.states[number].sent_us);
        peer.measure.operations += granted;
        peer.measure.failed += !granted;
    }
    peer.states[number].releasing = granted && !releasing;
    send_next(number);
}

static void run_for(double seconds)
{
    struct epoll_event events[EVENTS_MAX];
    int64_t end = load_now_us() + (int64_t)(seconds * 1e6);
    for (int64_t left; peer.active && (left = end - load_now_us()) > 0;) {
        int count = epoll_wait(peer.epoll_fd, events, EVENTS_MAX, (int)(left / 1000) + 1);
        for (int i = 0; i < count; i++)
            peer.calls->readable(events[i].data.u32);
    }
}

static void open_connections(void)
{
    peer.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    for (unsigned i = 0; i < peer.clients; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = i};
        int fd = peer.calls->open(i, peer.server);
        if (epoll_ctl(peer.epoll_fd, EPOLL_CTL_ADD, fd, &event))
            peer_fail("epoll_ctl");
    }
}

static void run(void)
{
    peer.active = peer.clients;
    for (unsigned i = 0; i < peer.clients; i++)
        send_next(i);
    run_for(peer.warmup);
    measure_begin(&peer.measure);
    peer.counting = true;
    run_for(peer.seconds);
    measure_end(&peer.measure);
    peer.counting = false;
    peer.stopping = true;
    run_for(30);
}

static const struct option options[] = {
    {"server", required_argument, NULL, 'S'},  {"clients", required_argument, NULL, 'c'},
    {"seconds", required_argument, NULL, 't'}, {"warmup", required_argument, NULL, 'w'},
    {"watch", required_argument, NULL, 'W'},   {NULL, 0, NULL, 0},
};

static void take_option(int option)
{
    switch (option) {
    case 'S': peer.server = optarg; break;
    case 'c': peer.clients = (unsigned)atoi(optarg); break;
    case 't': peer.seconds = atof(optarg); break;
    case 'w': peer.warmup = atof(optarg); break;
    case 'W': measure_watch(&peer.measure, optarg); break;
    default: exit(2);
    }
}

int peer_main(int argc, char **argv, const struct peer_calls *calls)
{
    int option;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1)
        take_option(option);
    if (!peer.server || !peer.clients || peer.clients > PEER_CLIENTS_MAX)
        peer_fail("usage: %s --server WHERE [--clients N] [--seconds S] [--warmup S] [--watch PID,PID]", argv[0]);
    peer.calls = calls;
    load_raise_file_limit();
    open_connections();
    run();
    measure_print(&peer.measure);
    printf("unanswered %u\n", peer.active);
    samples_release(&peer.measure.acquires);
    return 0;
}
