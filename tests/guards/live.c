/* SPDX-License-Identifier: MIT */
/* Guards with real permits: stopped holders, ten live holders, fence bump, and a store that has lost its marks. */
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guards.h"
#include "permits.h"
#include "testkit.h"

enum { SHORT_TTL_MS = 500, LONG_TTL_MS = 600000, WAIT_MS = 60000, TEN = 10, END_MS = 60000 };

struct live {
    struct store *store;
    struct kit_http http;
    struct session session;
    char name[64]; /* name of the semaphore */
};

static void live_start(struct live *live, struct store *store, unsigned port, const char *what, const char *kind,
                       unsigned capacity)
{
    live->store = store;
    live->http = kit_http(port);
    live->http.timeout_ms = WAIT_MS + 15000;
    snprintf(live->name, sizeof(live->name), "%s-%s", store->name, what);
    permits_semaphore(&live->http, live->name, kind, capacity);
    session_open(&live->session, store);
    prepare_history(&live->session, live->name, capacity);
}

static void live_end(struct live *live)
{
    session_close(&live->session);
    kit_http_close(&live->http);
}

static void must_acquire(struct live *live, int ttl_ms, struct permit *ret_permit)
{
    if (!permits_acquire(&live->http, live->name, 1, ttl_ms, WAIT_MS, ret_permit))
        kit_fail("%s: no permit within %d ms", live->name, WAIT_MS);
}

static enum verdict write_with(struct live *live, const struct permit *permit)
{
    return session_write(&live->session, ON_SLOTS(live->name, permit->slots, permit->token));
}

/* ---- a holder stopped for longer than its ttl ---- */

/*
 * The process of the holder: writes once, waits for a byte (and is stopped meanwhile), and writes again. Exits with the
 * verdict of that. It never checks whether its permit has expired.
 */
_Noreturn static void old_holder(struct live *live, unsigned port, int ready_fd, int go_fd)
{
    struct permit permit;
    char byte = 'r';
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    live->http = kit_http(port);
    session_open(&live->session, live->store);
    must_acquire(live, SHORT_TTL_MS, &permit);
    if (write_with(live, &permit) != PASSED || write(ready_fd, &byte, 1) != 1 || read(go_fd, &byte, 1) != 1)
        _exit(100);
    _exit((int)write_with(live, &permit));
}

static void check_stopped(struct store *store, unsigned port)
{
    struct live live;
    struct permit permit;
    int ready[2], go[2];
    char byte;
    live_start(&live, store, port, "stopped", "slotted", 1);
    KIT_CHECK(!pipe(ready) && !pipe(go));
    fflush(stdout);
    pid_t pid = fork();
    KIT_CHECK(pid >= 0);
    if (!pid)
        old_holder(&live, port, ready[1], go[0]);
    KIT_CHECK(read(ready[0], &byte, 1) == 1);
    kit_freeze(pid);
    must_acquire(&live, LONG_TTL_MS, &permit); /* when the old one has expired */
    KIT_CHECK(write_with(&live, &permit) == PASSED);
    KIT_CHECK(write(go[1], "g", 1) == 1 && !kill(pid, SIGCONT));
    int status;
    KIT_CHECK(waitpid(pid, &status, 0) == pid);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != STALE)
        kit_fail("%s: the stopped holder's write ended with status 0x%x, it should be stale", store->name,
                 (unsigned)status);
    KIT_CHECK(write_with(&live, &permit) == PASSED);
    KIT_CHECK(check_history(&live.session, live.name, 1) == 3);
    for (int i = 0; i < 2; i++) {
        close(ready[i]);
        close(go[i]);
    }
    live_end(&live);
    printf("%-10s a holder stopped beyond its ttl is refused once its successor has written\n", store->name);
}

/* ---- ten live holders of ten slots ---- */

struct holder {
    pthread_t thread;
    struct store *store;
    unsigned port;
    const char *name;
    uint64_t dice;
    atomic_bool *stop;
    uint64_t writes, permits, below_highest;
};

/* The mark that a guard with one maximum for the whole semaphore would have. */
static _Atomic int64_t highest;

static void note_highest(struct holder *holder, int64_t token)
{
    int64_t seen = atomic_load(&highest);
    holder->below_highest += token < seen;
    while (token > seen && !atomic_compare_exchange_weak(&highest, &seen, token))
        ;
}

static void *holder_run(void *context)
{
    struct holder *holder = context;
    struct kit_http http = kit_http(holder->port);
    struct session session;
    session_open(&session, holder->store);
    while (!atomic_load(holder->stop)) {
        struct permit permit;
        uint64_t until = holder->writes + 20 + dice(&holder->dice) % 200;
        if (!permits_acquire(&http, holder->name, 1, LONG_TTL_MS, 10000, &permit))
            continue;
        holder->permits++;
        while (holder->writes < until && !atomic_load(holder->stop)) {
            enum verdict verdict = session_write(&session, ON_SLOTS(holder->name, permit.slots, permit.token));
            if (verdict != PASSED)
                kit_fail("%s: a live holder of slot %s with token %" PRIi64 " was refused: %s", holder->store->name,
                         permit.slots, permit.token, session.message);
            note_highest(holder, permit.token);
            holder->writes++;
        }
        permits_release(&http, &permit);
    }
    session_close(&session);
    kit_http_close(&http);
    return NULL;
}

static void check_ten(struct store *store, unsigned port, int seconds)
{
    static struct holder holders[TEN];
    struct live live;
    atomic_bool stop = false;
    uint64_t writes = 0, permits = 0, below_highest = 0;
    size_t lines = 0;
    live_start(&live, store, port, "ten", "slotted", TEN);
    for (unsigned i = 0; i < TEN; i++) {
        holders[i] = (struct holder){
            .store = store, .port = port, .name = live.name, .dice = 0x9e3779b97f4a7c15u * (i + 1), .stop = &stop};
        KIT_CHECK(!pthread_create(&holders[i].thread, NULL, holder_run, &holders[i]));
    }
    kit_sleep_ms(seconds * 1000);
    atomic_store(&stop, true);
    for (unsigned i = 0; i < TEN; i++) {
        pthread_join(holders[i].thread, NULL);
        writes += holders[i].writes;
        permits += holders[i].permits;
        below_highest += holders[i].below_highest;
    }
    for (unsigned slot = 1; slot <= TEN; slot++)
        lines += check_history(&live.session, live.name, slot);
    KIT_CHECK(lines == writes);
    live_end(&live);
    printf("%-10s ten live holders for %d s: %" PRIu64 " writes under %" PRIu64 " permits, none refused; one maximum "
           "for all would have refused %" PRIu64 "\n",
           store->name, seconds, writes, permits, below_highest);
}

/* ---- fence bump ---- */

/* The limit of the last bump, for another store, may not have passed yet. */
static void bump(struct live *live, struct reply *ret_reply)
{
    for (int64_t end = kit_now_us() + END_MS * 1000;;) {
        KIT_CHECK(kit_http_post(&live->http, "/v1/fence/bump", "{\"reason\":\"a copy was restored\"}", ret_reply));
        if (ret_reply->status == 200)
            return;
        KIT_CHECK(ret_reply->status == 429 && kit_now_us() < end);
        kit_sleep_ms((int)kit_json_int(ret_reply->body, "retry_after_ms"));
        reply_release(ret_reply);
    }
}

static void check_bump(struct store *store, unsigned port)
{
    struct live live;
    struct permit before, after;
    struct reply reply;
    live_start(&live, store, port, "bump", "slotted", 1);
    must_acquire(&live, LONG_TTL_MS, &before);
    KIT_CHECK(write_with(&live, &before) == PASSED);
    bump(&live, &reply);
    int64_t from = kit_json_int(reply.body, "tokens_from");
    reply_release(&reply);
    KIT_CHECK(write_with(&live, &before) == PASSED); /* still held: bump ends no request */
    permits_release(&live.http, &before);
    for (int64_t end = kit_now_us() + END_MS * 1000;;) /* no grants during the failover hold */
        if (permits_acquire(&live.http, live.name, 1, LONG_TTL_MS, 1000, &after))
            break;
        else if (kit_now_us() > end)
            kit_fail("%s: no permit after fence bump", live.name);
    KIT_CHECK(from > before.token && after.token >= from);
    KIT_CHECK(write_with(&live, &after) == PASSED);
    KIT_CHECK(write_with(&live, &before) == STALE);
    KIT_CHECK(write_with(&live, &after) == PASSED);
    permits_release(&live.http, &after);
    live_end(&live);
    printf("%-10s fence bump: tokens from %" PRIi64 " on, the holder of before writes on until his successor does\n",
           store->name, from);
}

/* ---- a counted semaphore ---- */

static enum verdict at_place(struct live *live, enum queue_rank place, const char *where, int64_t token)
{
    return session_guard(&live->session, &(struct write){live->name, place, where, token});
}

/* The floor in a grant may be a second old: repeats until it is above `token`. */
static void floor_above(struct live *live, int64_t token, struct permit *ret_permit)
{
    for (int64_t end = kit_now_us() + END_MS * 1000;;) {
        must_acquire(live, LONG_TTL_MS, ret_permit);
        KIT_CHECK(at_place(live, PLACE_RAISE, NULL, ret_permit->floor) == PASSED);
        if (ret_permit->floor > token)
            return;
        if (kit_now_us() > end)
            kit_fail("%s: the floor does not rise", live->name);
        permits_release(&live->http, ret_permit);
        kit_sleep_ms(50);
    }
}

static void check_counted(struct store *store, unsigned port)
{
    struct live live;
    struct permit first, second, later;
    live_start(&live, store, port, "counted", "counted", 3);
    must_acquire(&live, LONG_TTL_MS, &first);
    KIT_CHECK(at_place(&live, PLACE_RAISE, NULL, first.floor) == PASSED);
    must_acquire(&live, LONG_TTL_MS, &second);
    KIT_CHECK(at_place(&live, PLACE_RAISE, NULL, second.floor) == PASSED);
    KIT_CHECK(at_place(&live, PLACE_FLOOR, NULL, second.token) == PASSED);
    KIT_CHECK(at_place(&live, PLACE_FLOOR, NULL, first.token) == PASSED); /* older, but live */
    KIT_CHECK(at_place(&live, PLACE_RESOURCE, "file", first.token) == PASSED);
    permits_release(&live.http, &first);
    floor_above(&live, first.token, &later);
    KIT_CHECK(at_place(&live, PLACE_FLOOR, NULL, first.token) == STALE);
    KIT_CHECK(at_place(&live, PLACE_FLOOR, NULL, second.token) == PASSED);
    KIT_CHECK(at_place(&live, PLACE_FLOOR, NULL, later.token) == PASSED);
    KIT_CHECK(at_place(&live, PLACE_RESOURCE, "file", later.token) == PASSED);
    KIT_CHECK(at_place(&live, PLACE_RESOURCE, "file", first.token) == STALE);
    live_end(&live);
    printf("%-10s a counted semaphore, by floor and by resource: live holders pass, the ended one is refused\n",
           store->name);
}

/* ---- a store that has lost its marks ---- */

/*
 * The steps of docs/fencing.md before a restored store takes writes again: `next_token` first, then the holders. The
 * mark of a held slot becomes the token of its holder; that of a free slot becomes the last token that can have been
 * granted.
 */
static void raise_marks(struct live *live, unsigned capacity)
{
    char path[200], member[64];
    struct reply semaphore, holders;
    snprintf(path, sizeof(path), "/v1/semaphores/%s", live->name);
    KIT_CHECK(kit_http_get(&live->http, path, &semaphore) && semaphore.status == 200);
    snprintf(path, sizeof(path), "/v1/semaphores/%s/holders?limit=1000", live->name);
    KIT_CHECK(kit_http_get(&live->http, path, &holders) && holders.status == 200);
    int64_t marks[SLOTS_MAX + 1];
    for (unsigned slot = 1; slot <= capacity; slot++)
        marks[slot] = kit_json_int(semaphore.body, "next_token") - 1;
    for (long i = 0; i < kit_json_length(holders.body, "holders"); i++) {
        snprintf(member, sizeof(member), "holders.%ld.slots.0", i);
        int64_t slot = kit_json_int(holders.body, member);
        snprintf(member, sizeof(member), "holders.%ld.token", i);
        KIT_CHECK(slot >= 1 && slot <= capacity);
        marks[slot] = kit_json_int(holders.body, member);
    }
    for (unsigned slot = 1; slot <= capacity; slot++) {
        snprintf(member, sizeof(member), "%u", slot);
        KIT_CHECK(session_guard(&live->session, ON_SLOTS(live->name, member, marks[slot])) == PASSED);
    }
    reply_release(&semaphore);
    reply_release(&holders);
}

static void check_restored(struct store *store, unsigned port)
{
    enum { CAPACITY = 3 };
    struct live live;
    struct permit ended[CAPACITY], live_one, later;
    live_start(&live, store, port, "restored", "slotted", CAPACITY);
    for (int i = 0; i < CAPACITY; i++)
        must_acquire(&live, LONG_TTL_MS, &ended[i]);
    for (int i = 0; i < CAPACITY; i++)
        permits_release(&live.http, &ended[i]);
    must_acquire(&live, LONG_TTL_MS, &live_one); /* the lowest slot; the others are free, and the store has no marks */
    raise_marks(&live, CAPACITY);
    for (int i = 0; i < CAPACITY; i++)
        KIT_CHECK(write_with(&live, &ended[i]) == STALE);
    KIT_CHECK(write_with(&live, &live_one) == PASSED);
    must_acquire(&live, LONG_TTL_MS, &later);
    KIT_CHECK(write_with(&live, &later) == PASSED);
    live_end(&live);
    printf("%-10s after losing and restoring all its marks: refuses every ended holder and no live one\n", store->name);
}

void guard_live(struct store *store, unsigned port, int seconds)
{
    check_stopped(store, port);
    check_ten(store, port, seconds);
    check_counted(store, port);
    check_restored(store, port);
    check_bump(store, port);
}
