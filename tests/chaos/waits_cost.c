/* SPDX-License-Identifier: MIT */
/*
 * CPU of a hand-over: a steady crowd of which each client acquires, and releases at once. A client has two connections,
 * one for acquires and one for releases, so they can lead to different permitd.
 */
#include "measure.h"
#include "waits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WARM_MS = 500, TEXT_SIZE = 512 };

struct cost {
    const struct cost_numbers *numbers;
    struct load_pool *connections; /* of client i: i for acquires, clients + i for releases */
    unsigned *rounds;              /* of each client */
    unsigned busy;
    size_t done; /* releases that were answered */
    bool stopping;
};

static void cost_send(struct cost *cost, unsigned number, const char *method, const char *path, const char *body)
{
    char *text = load_request("localhost", method, path, "", body);
    load_send(cost->connections, number, text, strlen(text));
    free(text);
}

static void cost_acquire(struct cost *cost, unsigned client)
{
    char body[TEXT_SIZE];
    snprintf(body, sizeof(body),
             "{\"external_id\":\"cost-%u-%u\",\"wait\":\"100s\",\"permits\":[{\"semaphore\":\"hot\"}]}", client,
             cost->rounds[client]);
    cost_send(cost, client, "POST", "/v1/requests", body);
}

static void cost_release(struct cost *cost, unsigned client)
{
    char path[TEXT_SIZE];
    snprintf(path, sizeof(path), "/v1/requests/cost-%u-%u", client, cost->rounds[client]++);
    cost_send(cost, cost->numbers->clients + client, "DELETE", path, NULL);
}

static void cost_answered(void *context, unsigned number, const struct load_answer *answer)
{
    struct cost *cost = context;
    bool acquired = number < cost->numbers->clients;
    if (!answer || answer->status != (acquired ? 201 : 200))
        kit_fail("cost: %s was answered %d %.300s", acquired ? "an acquire" : "a release", answer ? answer->status : 0,
                 answer ? answer->body : "");
    if (acquired) {
        cost_release(cost, number);
        return;
    }
    cost->done++;
    cost->busy -= cost->stopping;
    if (!cost->stopping)
        cost_acquire(cost, number - cost->numbers->clients);
}

static void cost_run(struct cost *cost, int64_t until_us)
{
    while (cost->busy && kit_now_us() < until_us)
        load_pool_step(cost->connections, 10);
}

static int64_t permitd_cpu_us(const struct fixture *fixture)
{
    int64_t sum = 0;
    for (size_t i = 0; i < fixture->count; i++)
        sum += process_cpu_us(fixture->permitd[i]->pid);
    return sum;
}

static void cost_window(struct cost *cost, const struct fixture *fixture, struct cost_figures *figures)
{
    cost_run(cost, kit_now_us() + (int64_t)WARM_MS * 1000);
    size_t done = cost->done;
    int64_t start_us = kit_now_us(), permitd_us = permitd_cpu_us(fixture);
    int64_t database_us = process_cpu_us(fixture->database->pid);
    cost_run(cost, start_us + (int64_t)(cost->numbers->seconds * 1e6));
    double pairs = (double)(cost->done - done);
    figures->database_us = (double)(process_cpu_us(fixture->database->pid) - database_us) / pairs;
    figures->permitd_us = (double)(permitd_cpu_us(fixture) - permitd_us) / pairs;
    figures->rate = pairs * 1e6 / (double)(kit_now_us() - start_us);
}

void cost_measure(const struct cost_numbers *numbers, struct cost_figures *ret_figures)
{
    struct fixture fixture = fixture_start(2, false);
    struct cost cost = {.numbers = numbers, .busy = numbers->clients};
    size_t releases_at = numbers->kind == COST_OTHER ? 1 : 0;
    char body[TEXT_SIZE], message[MESSAGE_SIZE];
    snprintf(body, sizeof(body), "{\"capacity\":%u,\"kind\":\"counted\"}",
             numbers->kind == COST_PLAIN ? 2 * numbers->clients : numbers->capacity);
    fixture_semaphore(&fixture, "hot", body);
    cost.rounds = calloc(numbers->clients, sizeof(cost.rounds[0]));
    KIT_CHECK(cost.rounds);
    cost.connections = load_pool_open(&(struct load_settings){.host = "127.0.0.1",
                                                              .port = fixture.permitd[0]->port,
                                                              .count = 2 * numbers->clients,
                                                              .answered = cost_answered,
                                                              .context = &cost});
    for (unsigned i = 0; i < numbers->clients; i++)
        load_set_port(cost.connections, numbers->clients + i, fixture.permitd[releases_at]->port);
    for (unsigned i = 0; i < numbers->clients; i++)
        cost_acquire(&cost, i);
    cost_window(&cost, &fixture, ret_figures);
    cost.stopping = true;
    cost_run(&cost, kit_now_us() + (int64_t)WAITS_LOST_MS * 1000);
    if (cost.busy)
        kit_fail("cost: %u clients have no answer", cost.busy);
    load_pool_close(cost.connections);
    free(cost.rounds);
    if (fixture.one_queue && (!rows_check(fixture.sql, message) || !rows_check_past(fixture.sql, message)))
        kit_fail("cost: %s", message);
    fixture_stop(&fixture);
}
