/* SPDX-License-Identifier: MIT */
/*
 * A hall with numbered seats: thousands of clients click the same seat, groups want to sit together, and there is
 * standing room. examples/seat_map/run.sh runs it.
 *
 * Each seat is a slot with a label, A1 to T25, numbered row by row. Between two rows there is a slot without a label
 * that the house holds permanently, so adjacent slots are always in one row. A click holds a seat for 8 minutes;
 * payment confirms it. Standing room is a counted semaphore: places without numbers.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "seats.h"

enum { ROWS = 20, SEATS = 25, ROW = SEATS + 1, CAPACITY = ROWS * ROW, STALLS = 5, STANDING = 300 };

struct hall {
    struct clicks clicks;         /* on A1 */
    unsigned taken[CAPACITY + 1]; /* by number of slot: grants that clients were told of */
    unsigned groups, group_seats, apart, twice, in_stalls, outside_stalls, no_room;
    unsigned standing; /* places granted */
};

/* ---- The hall ---- */

/* Returns ["A1","A2",...,"A25",null,"B1",...] for the first `rows` rows. */
static char *labels_of(unsigned rows)
{
    char *text = malloc(rows * ROW * 8 + 3), *end = text;

    if (!text)
        exit(1);
    for (unsigned row = 0; row < rows; row++) {
        for (unsigned seat = 1; seat <= SEATS; seat++)
            end += sprintf(end, ",\"%c%u\"", 'A' + row, seat);
        end += sprintf(end, ",null");
    }
    strcpy(end, "]");
    text[0] = '[';
    return text;
}

static char *aisles(void)
{
    char *text = malloc(ROWS * 8), *end = text;

    if (!text)
        exit(1);
    for (unsigned row = 1; row <= ROWS; row++)
        end += sprintf(end, ",%u", row * ROW);
    strcpy(end, "]");
    text[0] = '[';
    return text;
}

static void build(struct crowd *crowd)
{
    char *labels = labels_of(ROWS), *house = aisles();

    must(crowd_ask(crowd, NULL, "PUT", "/v1/semaphores/hall",
                   "{\"capacity\":%d,\"labels\":%s,\"default_ttl\":\"8m\",\"grace\":\"10s\"}", CAPACITY, labels),
         201, "PUT hall");
    must(crowd_ask(crowd, NULL, "PUT", "/v1/semaphores/standing",
                   "{\"capacity\":%d,\"kind\":\"counted\",\"default_ttl\":\"8m\"}", STANDING),
         201, "PUT standing");
    must(crowd_ask(crowd, NULL, "POST", "/v1/requests",
                   "{\"external_id\":\"aisles\",\"permits\":[{\"semaphore\":\"hall\",\"slots\":%s}]}", house),
         201, "the aisles");
    must(crowd_ask(crowd, NULL, "POST", "/v1/requests/aisles/confirm", NULL), 200, "the aisles, for good");
    free(labels);
    free(house);
}

/* ---- Groups want the best seats that are left, together ---- */

static unsigned size_of_group(unsigned client)
{
    return 2 + client % 4;
}

/* Returns true for every third group: it wants to sit in the first rows. */
static bool wants_stalls(unsigned client)
{
    return client % 3 == 0;
}

static void seated(struct crowd *crowd, unsigned client, struct answer *answer)
{
    struct hall *hall = crowd_context(crowd);
    unsigned count = size_of_group(client);
    int64_t first = slot_of(answer, 0);

    if (!granted(answer)) {
        hall->no_room += answer->status == 423;
        return;
    }
    hall->groups++;
    for (unsigned i = 0; i < count; i++) {
        int64_t slot = slot_of(answer, i);

        hall->apart += slot != first + i || slot % ROW == 0 || (slot - 1) / ROW != (first - 1) / ROW;
        hall->twice += hall->taken[slot]++ > 0;
        hall->outside_stalls += wants_stalls(client) && slot > STALLS * ROW;
        hall->group_seats++;
    }
    hall->in_stalls += wants_stalls(client);
}

static void seat_groups(struct crowd *crowd, struct hall *hall, unsigned clients)
{
    char *stalls = labels_of(STALLS), *null;

    while ((null = strstr(stalls, ",null"))) /* any_of takes seats; the aisle is no seat */
        memmove(null, null + 5, strlen(null + 5) + 1);
    for (unsigned i = 0; i < clients; i++)
        crowd_send(crowd, i, seated, "POST", "/v1/requests",
                   "{\"external_id\":\"group-%u\",\"permits\":[{\"semaphore\":\"hall\",\"count\":%u,\"adjacent\":true"
                   "%s%s}]}",
                   i, size_of_group(i), wants_stalls(i) ? ",\"any_of\":" : "", wants_stalls(i) ? stalls : "");
    crowd_run(crowd);
    free(stalls);
    printf("     %u groups found %u seats, %u did not\n", hall->groups, hall->group_seats, hall->no_room);
    claim(hall->groups > 0 && hall->groups + hall->no_room == clients, "every group has an answer");
    claim(hall->apart == 0, "every group sits together, in one row");
    claim(hall->in_stalls > 0 && hall->outside_stalls == 0, "%u groups wanted the first %d rows and sit there",
          hall->in_stalls, STALLS);
    claim(hall->twice == 0, "no seat was given to two");
}

/* Compares the public seat map with the answers that the clients got. */
static void compare(struct crowd *crowd, struct hall *hall)
{
    struct json_object *page, *slots;
    unsigned same = 0, listed = 0;

    crowd_ask(crowd, &page, "GET", "/v1/semaphores/hall/slots?limit=1000", NULL);
    slots = json_object_object_get(page, "slots");
    listed = (unsigned)json_object_array_length(slots);
    for (unsigned i = 0; i < listed; i++) {
        struct json_object *slot = json_object_array_get_idx(slots, i);
        int64_t number = json_number(slot, "/number");
        bool aisle = number % ROW == 0;

        same += (json_object_object_get(slot, "token") != NULL) == (aisle || hall->taken[number] == 1);
    }
    json_object_put(page);
    claim(listed == CAPACITY && same == listed, "the seat map shows %u of %u seats as the clients know them", same,
          listed);
}

/* ---- Standing room ---- */

static unsigned places_of(unsigned client)
{
    return 1 + client % 3;
}

static void admitted(struct crowd *crowd, unsigned client, struct answer *answer)
{
    struct hall *hall = crowd_context(crowd);

    hall->standing += granted(answer) ? places_of(client) : 0;
}

static void fill_standing(struct crowd *crowd, struct hall *hall, unsigned clients)
{
    struct json_object *shown;
    int64_t in_use;

    for (unsigned i = 0; i < clients; i++)
        crowd_send(crowd, i, admitted, "POST", "/v1/requests",
                   "{\"external_id\":\"standing-%u\",\"permits\":[{\"semaphore\":\"standing\",\"count\":%u}]}", i,
                   places_of(i));
    crowd_run(crowd);
    crowd_ask(crowd, &shown, "GET", "/v1/semaphores/standing", NULL);
    in_use = json_number(shown, "/in_use");
    json_object_put(shown);
    claim(hall->standing == STANDING && in_use == STANDING, "standing room: %u of %d places given, permitd says %d",
          hall->standing, STANDING, (int)in_use);
}

int main(int argc, char **argv)
{
    unsigned clients = argc > 2 ? (unsigned)atoi(argv[2]) : 2000;
    struct hall hall = {0};
    struct crowd *crowd;

    if (argc < 2 || clients < STANDING) {
        fprintf(stderr, "usage: seat_map URL [CLIENTS]     at least %d\n", STANDING);
        return 64;
    }
    crowd = crowd_new(argv[1], clients, &hall);
    build(crowd);
    click_one_seat(crowd, clients, "A1", "seat_map: 2,000 clients click A1 at once");
    hall.taken[1] = hall.clicks.won;
    seat_groups(crowd, &hall, 200);
    compare(crowd, &hall);
    fill_standing(crowd, &hall, clients);
    crowd_free(crowd);
    return claims_kept() ? 0 : 1;
}
