/* SPDX-License-Identifier: MIT */
/* One holds, one waits: from sending the release to the grant. */
#include "waits.h"

#include <stdio.h>

enum { NAME_SIZE = 64, POLL_MS = 50 };

/* One round; `holder` and `waiter` are connections to the same or to different permitd. */
static int64_t hand_over(struct site *site, struct kit_http *holder, struct kit_http *waiter, const char *semaphore,
                         unsigned round)
{
    char held[NAME_SIZE], wanted[NAME_SIZE];
    struct reply grant, released;
    snprintf(held, sizeof(held), "%s-held-%u", semaphore, round);
    snprintf(wanted, sizeof(wanted), "%s-wanted-%u", semaphore, round);
    if (site_acquire(holder, held, semaphore, 1, "1h", &grant) != 201)
        kit_fail("latency: %d %s", grant.status, grant.body);
    reply_release(&grant);
    site_send_waiting(waiter, wanted, semaphore, 1, "60s");
    site_await_waiting(site, semaphore, 1, WAITS_LOST_MS);
    kit_sleep_ms((int)(round * 37 % (POLL_MS + 7))); /* any moment between two looks at what others freed */

    char path[2 * NAME_SIZE];
    snprintf(path, sizeof(path), "/v1/requests/%s", held);
    int64_t start_us = kit_now_us();
    KIT_CHECK(kit_http_send(holder, "DELETE", path, NULL, NULL));
    kit_http_receive(waiter, "POST", &grant);
    int64_t us = kit_now_us() - start_us;
    if (grant.status != 201)
        kit_fail("latency: who waited was answered %d %s %s", grant.status, grant.body, grant.error ? grant.error : "");
    kit_http_receive(holder, "DELETE", &released);
    KIT_CHECK(released.status == 200);
    reply_release(&grant);
    reply_release(&released);
    KIT_CHECK(site_release(waiter, wanted) == 200);
    return us;
}

static void measure_pair(struct site *site, size_t from, const char *semaphore, unsigned rounds, struct spread *spread)
{
    struct kit_http holder = kit_http(site->permitd[from]->port), waiter = kit_http(site->permitd[0]->port);
    waiter.timeout_ms = WAITS_LOST_MS;
    site_semaphore(site, semaphore, "{\"capacity\":1}");
    for (unsigned i = 0; i < rounds; i++)
        spread_add(spread, hand_over(site, &holder, &waiter, semaphore, i));
    kit_http_close(&holder);
    kit_http_close(&waiter);
}

void latency_measure(unsigned rounds, struct latency_figures *ret_figures)
{
    struct site site = site_start(2, false);
    *ret_figures = (struct latency_figures){.own.us = NULL};
    measure_pair(&site, 0, "own", rounds, &ret_figures->own);
    measure_pair(&site, 1, "other", rounds, &ret_figures->other);
    site_stop(&site);
}

void latency_release(struct latency_figures *figures)
{
    spread_release(&figures->own);
    spread_release(&figures->other);
}
