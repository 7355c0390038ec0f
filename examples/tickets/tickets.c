/* SPDX-License-Identifier: MIT */
/*
 * Tickets for many events of several houses. examples/tickets/run.sh runs it.
 *
 * Each house is a tenant with its own prefix, and with a template that sets the size of its room and the time for which
 * a ticket is held until it is paid. An event is a name with that prefix, "opera:2027-03-14"; permitd creates it when
 * its first ticket is requested. Thousands of buyers hold one to three tickets, pay and confirm, or give up. Some want
 * a subscription: a ticket for each of two evenings, or none at all.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "crowd.h"

enum { HOUSES = 3, GIVES_UP_ONE_OF = 5, SUBSCRIBES_ONE_OF = 10, EVENTS_MOST = 100 };

static const struct house {
    const char *prefix;
    unsigned capacity;
} houses[HOUSES] = {{"opera:", 60}, {"arena:", 200}, {"club:", 15}};

struct buyer {
    unsigned house, event, count;
    bool subscribes; /* to this event and the next one */
};

struct box_office {
    struct buyer *buyers;
    unsigned events; /* of each house */
    int64_t sold[HOUSES][EVENTS_MOST + 1];
    unsigned sales, gave_up, sold_out, unexpected;
};

static void settle(struct box_office *office, unsigned number, int64_t change)
{
    const struct buyer *buyer = &office->buyers[number];

    office->sold[buyer->house][buyer->event] += change;
    if (buyer->subscribes)
        office->sold[buyer->house][buyer->event + 1] += change;
}

static void confirmed(struct crowd *crowd, unsigned number, struct answer *answer)
{
    struct box_office *office = crowd_context(crowd);

    if (answer->status != 200) {
        office->unexpected++;
        return;
    }
    office->sales++;
    settle(office, number, office->buyers[number].count);
}

static void let_go(struct crowd *crowd, unsigned number, struct answer *answer)
{
    struct box_office *office = crowd_context(crowd);

    (void)number;
    office->gave_up++;
    office->unexpected += answer->status != 200;
}

static void held(struct crowd *crowd, unsigned number, struct answer *answer)
{
    struct box_office *office = crowd_context(crowd);
    char path[64];

    if (answer->status == 423) {
        office->sold_out++;
    } else if (answer->status != 201 && answer->status != 200) {
        if (office->unexpected++ == 0)
            fprintf(stderr, "tickets: %d %s\n", answer->status, answer->text);
    } else if (rand() % GIVES_UP_ONE_OF == 0) {
        snprintf(path, sizeof(path), "/v1/requests/buyer-%u", number);
        crowd_send(crowd, number, let_go, "DELETE", path, NULL);
    } else {
        snprintf(path, sizeof(path), "/v1/requests/buyer-%u/confirm", number);
        crowd_send(crowd, number, confirmed, "POST", path, NULL);
    }
}

/* Requests tickets. Evenings with small numbers are in higher demand. */
static void ask(struct crowd *crowd, struct box_office *office, unsigned number)
{
    struct buyer *buyer = &office->buyers[number];
    const char *prefix;
    char second[128] = "";

    buyer->house = (unsigned)rand() % HOUSES;
    buyer->event = 1 + (unsigned)rand() % (1 + (unsigned)rand() % office->events);
    buyer->count = 1 + (unsigned)rand() % 3;
    buyer->subscribes = rand() % SUBSCRIBES_ONE_OF == 0 && buyer->event < office->events;
    prefix = houses[buyer->house].prefix;
    if (buyer->subscribes)
        snprintf(second, sizeof(second), ",{\"semaphore\":\"%sevening-%u\",\"count\":%u}", prefix, buyer->event + 1,
                 buyer->count);
    crowd_send(crowd, number, held, "POST", "/v1/requests",
               "{\"external_id\":\"buyer-%u\",\"permits\":[{\"semaphore\":\"%sevening-%u\",\"count\":%u}%s]}", number,
               prefix, buyer->event, buyer->count, second);
}

/* Compares the list of a house's events with the sales of the buyers: its own events only, each with the units sold. */
static void compare(struct crowd *crowd, const struct box_office *office, unsigned house)
{
    struct json_object *list, *events;
    unsigned agree = 0, over = 0, full = 0, unseen = 0;
    size_t listed;
    char path[96];

    snprintf(path, sizeof(path), "/v1/semaphores?prefix=%s&limit=1000", houses[house].prefix);
    crowd_ask(crowd, &list, "GET", path, NULL);
    events = json_object_object_get(list, "semaphores");
    listed = json_object_array_length(events);
    for (size_t i = 0; i < listed; i++) {
        struct json_object *event = json_object_array_get_idx(events, i);
        const char *name = json_object_get_string(json_object_object_get(event, "name"));
        int64_t in_use = json_number(event, "/in_use");
        unsigned number = 0;

        sscanf(name + strlen(houses[house].prefix), "evening-%u", &number);
        agree += number <= EVENTS_MOST && office->sold[house][number] == in_use;
        over += in_use > houses[house].capacity;
        full += in_use == houses[house].capacity;
    }
    for (unsigned number = 1; number <= office->events; number++)
        unseen += office->sold[house][number] > 0;
    json_object_put(list);
    claim(listed >= unseen && agree == listed,
          "%s %zu events were made by their first buyer, the sales of %u are right", houses[house].prefix, listed,
          agree);
    claim(over == 0, "%s none is oversold, %u are sold out", houses[house].prefix, full);
}

int main(int argc, char **argv)
{
    unsigned buyers = argc > 2 ? (unsigned)atoi(argv[2]) : 5000;
    struct box_office office = {.buyers = calloc(buyers, sizeof(*office.buyers)),
                                .events = argc > 3 ? (unsigned)atoi(argv[3]) : 40};
    struct crowd *crowd;
    double from;

    if (argc < 2 || !office.buyers || office.events < 1 || office.events > EVENTS_MOST) {
        fprintf(stderr, "usage: tickets URL [BUYERS [EVENTS]]     at most %d\n", EVENTS_MOST);
        return 64;
    }
    crowd = crowd_new(argv[1], buyers, &office);
    crowd_connect(crowd);
    from = now_ms();
    for (unsigned i = 0; i < buyers; i++)
        ask(crowd, &office, i);
    crowd_run(crowd);
    printf("     %u buyers in %.1f s: %u sales, %u gave up, %u found it sold out\n", buyers, (now_ms() - from) / 1000,
           office.sales, office.gave_up, office.sold_out);
    claim(office.unexpected == 0 && office.sales + office.gave_up + office.sold_out == buyers,
          "every buyer has an answer that it can explain");
    for (unsigned house = 0; house < HOUSES; house++)
        compare(crowd, &office, house);
    crowd_free(crowd);
    free(office.buyers);
    return claims_kept() ? 0 : 1;
}
