/* SPDX-License-Identifier: MIT */
/* One client holds, one waits: from sending the release to the grant. */
#include "waits.h"

#include <stdio.h>

enum { NAME_SIZE = 64, POLL_MS = 50 };

/* One round; `holder` and `waiter` are connections to the same or to different permitd. */
static int64_t hand_over(struct fixture *fixture, struct kit_http *holder, struct kit_http *waiter,
                         const char *semaphore, unsigned round)
{
    char held[NAME_SIZE], wanted[NAME_SIZE];
    struct reply grant, released;
    snprintf(held, sizeof(held), "%s-held-%u", semaphore, round);
    snprintf(wanted, sizeof(wanted), "%s-wanted-%u", semaphore, round);
    if (fixture_acquire(holder, held, semaphore, 1, "1h", &grant) != 201)
        kit_fail("latency: %d %s", grant.status, grant.body);
    reply_release(&grant);
    fixture_send_waiting(waiter, wanted, semaphore, 1, "60s");
    fixture_await_waiting(fixture, semaphore, 1, WAITS_LOST_MS);
    kit_sleep_ms((int)(round * 37 % (POLL_MS + 7))); /* any time between two wait polls */

    char path[2 * NAME_SIZE];
    snprintf(path, sizeof(path), "/v1/requests/%s", held);
    int64_t start_us = kit_now_us();
    KIT_CHECK(kit_http_send(holder, "DELETE", path, NULL, NULL));
    kit_http_receive(waiter, "POST", &grant);
    int64_t us = kit_now_us() - start_us;
    if (grant.status != 201)
        kit_fail("latency: the waiter was answered %d %s %s", grant.status, grant.body, grant.error ? grant.error : "");
    kit_http_receive(holder, "DELETE", &released);
    KIT_CHECK(released.status == 200);
    reply_release(&grant);
    reply_release(&released);
    KIT_CHECK(fixture_release(waiter, wanted) == 200);
    return us;
}

static void measure_pair(struct fixture *fixture, size_t from, const char *semaphore, unsigned rounds,
                         struct duration_set *spread)
{
    struct kit_http holder = kit_http(fixture->permitd[from]->port), waiter = kit_http(fixture->permitd[0]->port);
    waiter.timeout_ms = WAITS_LOST_MS;
    fixture_semaphore(fixture, semaphore, "{\"capacity\":1}");
    for (unsigned i = 0; i < rounds; i++)
        duration_set_add(spread, hand_over(fixture, &holder, &waiter, semaphore, i));
    kit_http_close(&holder);
    kit_http_close(&waiter);
}

void latency_measure(unsigned rounds, struct latency_figures *ret_figures)
{
    struct fixture fixture = fixture_start(2, false);
    *ret_figures = (struct latency_figures){.own.us = NULL};
    measure_pair(&fixture, 0, "own", rounds, &ret_figures->own);
    measure_pair(&fixture, 1, "other", rounds, &ret_figures->other);
    fixture_stop(&fixture);
}

void latency_release(struct latency_figures *figures)
{
    duration_set_release(&figures->own);
    duration_set_release(&figures->other);
}
