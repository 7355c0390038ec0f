/* SPDX-License-Identifier: MIT */
/*
 * A hall whose seats have a section, a row, a position and a rank: thousands of clients click the best seat, groups get
 * the best seats that are left side by side, a cart of seats and a parking space becomes a sale as a whole, and a page
 * shows the seats. examples/hall/run.sh runs it.
 *
 * The rank says how good a seat is, small is good; section, row and position say who sits beside whom. So seats in the
 * middle of the front may be the best ones, and still nobody is seated across an aisle or the end of a row.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "seats.h"

enum { ROWS = 24, SEATS = 40, CAPACITY = ROWS * SEATS, STALLS = 12, GROUPS = 330, BEST = SEATS / 2, WHEELCHAIRS = 4 };

struct hall {
    struct clicks clicks;         /* on the best seat */
    unsigned taken[CAPACITY + 1]; /* by number of slot: grants that clients were told of */
    unsigned groups, seats, apart, twice, elsewhere, refused, unhelpful;
};

/* ---- The hall ---- */

/* Row A is at the stage. Slots are numbered row by row. */
static unsigned row_of(int64_t slot)
{
    return (unsigned)(slot - 1) / SEATS;
}

static unsigned seat_of(int64_t slot)
{
    return (unsigned)(slot - 1) % SEATS + 1;
}

/* The square of the distance to the middle of the stage. */
static unsigned rank_of(int64_t slot)
{
    int aside = 2 * (int)seat_of(slot) - SEATS - 1;

    return 4 * row_of(slot) * row_of(slot) + (unsigned)(aside * aside);
}

static const char *tags_of(int64_t slot)
{
    unsigned seat = seat_of(slot);

    if (row_of(slot) == STALLS - 1 && seat <= 2 * WHEELCHAIRS)
        return seat <= WHEELCHAIRS ? "\"wheelchair\"" : "\"companion\"";
    return seat == 1 || seat == SEATS ? "\"aisle\"" : "";
}

static char *seats(void)
{
    char *text = malloc(CAPACITY * 128), *end = text;

    if (!text)
        exit(1);
    for (int64_t slot = 1; slot <= CAPACITY; slot++)
        end += sprintf(
            end, "%s{\"label\":\"%c%u\",\"section\":\"%s\",\"row\":\"%c\",\"seat\":%u,\"rank\":%u,\"tags\":[%s]}",
            slot > 1 ? "," : "", 'A' + row_of(slot), seat_of(slot), row_of(slot) < STALLS ? "stalls" : "circle",
            'A' + row_of(slot), seat_of(slot), rank_of(slot), tags_of(slot));
    return text;
}

static void build(struct crowd *crowd)
{
    char *all = seats();

    must(crowd_ask(crowd, NULL, "PUT", "/v1/semaphores/hall",
                   "{\"capacity\":%d,\"default_ttl\":\"8m\",\"grace\":\"10s\"}", CAPACITY),
         201, "PUT hall");
    must(crowd_ask(crowd, NULL, "PUT", "/v1/semaphores/hall/slots", "{\"slots\":[%s]}", all), 200, "PUT slots");
    must(crowd_ask(crowd, NULL, "PUT", "/v1/semaphores/parking",
                   "{\"capacity\":50,\"kind\":\"counted\",\"default_ttl\":\"8m\"}"),
         201, "PUT parking");
    free(all);
}

/* ---- Best seats ---- */

/* Returns the sum of the ranks of the best pair that is left: two seats side by side. */
static unsigned best_pair(const struct hall *hall)
{
    unsigned best = 0;

    for (int64_t slot = 1; slot < CAPACITY; slot++) {
        unsigned sum = rank_of(slot) + rank_of(slot + 1);
        bool is_pair = seat_of(slot) < SEATS && !hall->taken[slot] && !hall->taken[slot + 1];

        best = is_pair && (!best || sum < best) ? sum : best;
    }
    return best;
}

/* Acquires the two best seats side by side; `more`: further members of `best`. */
static void take_two(struct crowd *crowd, struct hall *hall, const char *key, const char *more, int64_t *ret_left,
                     int64_t *ret_right)
{
    struct json_object *grant;

    must(crowd_ask(crowd, &grant, "POST", "/v1/requests",
                   "{\"external_id\":\"%s\",\"permits\":[{\"semaphore\":\"hall\",\"count\":2,"
                   "\"best\":{\"together\":true%s}}]}",
                   key, more),
         201, key);
    *ret_left = json_number(grant, "/permits/0/slots/0");
    *ret_right = json_number(grant, "/permits/0/slots/1");
    json_object_put(grant);
    hall->taken[*ret_left]++;
    hall->taken[*ret_right]++;
}

static void seat_a_pair(struct crowd *crowd, struct hall *hall)
{
    unsigned best = best_pair(hall);
    int64_t left, right;

    take_two(crowd, hall, "pair", "", &left, &right);
    claim(right == left + 1 && rank_of(left) + rank_of(right) == best,
          "a pair gets the two best seats that are left side by side: %c%u and %c%u", 'A' + row_of(left), seat_of(left),
          'A' + row_of(right), seat_of(right));
}

/* One seat for a wheelchair, one for the companion, and no other of these seats is spent. */
static void seat_a_wheelchair(struct crowd *crowd, struct hall *hall)
{
    int64_t left, right;

    take_two(crowd, hall, "wheelchair", ",\"with\":{\"wheelchair\":1,\"companion\":1}", &left, &right);
    claim(!strcmp(tags_of(left), "\"wheelchair\"") && !strcmp(tags_of(right), "\"companion\"") && right == left + 1,
          "a wheelchair has its place, and a companion sits beside it");
}

/* The pair moves to the circle. It keeps its seats until it has the others. */
static void move_the_pair(struct crowd *crowd, struct hall *hall)
{
    static const char exchange[] =
        "{\"give\":[{\"semaphore\":\"hall\",\"count\":2}],\"take\":[{\"semaphore\":\"hall\",%s}],"
        "\"nonce\":\"%s\",\"changes\":0}";
    struct json_object *grant;
    int64_t before[2], now[2];

    must(crowd_ask(crowd, &grant, "GET", "/v1/requests/pair", NULL), 200, "the pair");
    before[0] = json_number(grant, "/permits/0/slots/0");
    before[1] = json_number(grant, "/permits/0/slots/1");
    json_object_put(grant);
    claim(crowd_ask(crowd, NULL, "POST", "/v1/requests/pair/exchange", exchange, "\"slots\":[\"A20\"]", "a") == 423,
          "a seat that somebody else holds is refused, and the pair keeps its own");
    must(crowd_ask(crowd, &grant, "POST", "/v1/requests/pair/exchange", exchange,
                   "\"count\":2,\"best\":{\"section\":[\"circle\"],\"together\":true}", "b"),
         200, "the exchange");
    now[0] = json_number(grant, "/permits/0/slots/0");
    now[1] = json_number(grant, "/permits/0/slots/1");
    json_object_put(grant);
    for (int i = 0; i < 2; i++) {
        hall->taken[before[i]]--;
        hall->taken[now[i]]++;
    }
    claim(now[1] == now[0] + 1 && row_of(now[0]) >= STALLS && hall->taken[now[0]] == 1 && hall->taken[now[1]] == 1,
          "the pair moves to %c%u and %c%u of the circle", 'A' + row_of(now[0]), seat_of(now[0]), 'A' + row_of(now[1]),
          seat_of(now[1]));
}

static unsigned size_of_group(unsigned client)
{
    return 1 + client % 6;
}

/* Returns true for every third group: it has tickets for the circle. */
static bool wants_circle(unsigned client)
{
    return client % 3 == 0;
}

static void seated(struct crowd *crowd, unsigned client, struct answer *answer)
{
    struct hall *hall = crowd_context(crowd);
    unsigned count = size_of_group(client);
    int64_t first = slot_of(answer, 0);

    if (!granted(answer)) {
        hall->refused++;
        hall->unhelpful += answer->status != 423 || answer_number(answer, "/blocking/0/largest_together") >= count;
        return;
    }
    hall->groups++;
    for (unsigned i = 0; i < count; i++) {
        int64_t slot = slot_of(answer, i);

        if (slot < 1 || slot > CAPACITY)
            exit(1);
        hall->apart += slot != first + i || row_of(slot) != row_of(first);
        hall->twice += hall->taken[slot]++ > 0;
        hall->elsewhere += (row_of(slot) >= STALLS) != wants_circle(client) || strstr(tags_of(slot), "wheelchair");
        hall->seats++;
    }
}

static void seat_groups(struct crowd *crowd, struct hall *hall)
{
    for (unsigned i = 0; i < GROUPS; i++)
        crowd_send(crowd, i, seated, "POST", "/v1/requests",
                   "{\"external_id\":\"group-%u\",\"permits\":[{\"semaphore\":\"hall\",\"count\":%u,\"best\":"
                   "{\"section\":[\"%s\"],\"together\":true,\"not_tags\":[\"wheelchair\"],\"no_orphans\":true}}]}",
                   i, size_of_group(i), wants_circle(i) ? "circle" : "stalls");
    crowd_run(crowd);
    printf("     %u groups found %u seats, %u did not\n", hall->groups, hall->seats, hall->refused);
    claim(hall->groups > 0 && hall->groups + hall->refused == GROUPS && !hall->unhelpful,
          "every group has an answer, if it is refused with the size of the largest that would fit");
    claim(hall->apart == 0, "every group sits side by side, in one row");
    claim(hall->elsewhere == 0, "in its section, and on no place of a wheelchair");
    claim(hall->twice == 0, "no seat was given to two");
}

/* ---- A cart ---- */

static bool is_sold(struct crowd *crowd, const char *path)
{
    struct json_object *request;
    bool sold;

    crowd_ask(crowd, &request, "GET", path, NULL);
    sold = json_object_object_get(request, "confirmed_at") != NULL;
    json_object_put(request);
    return sold;
}

/* The pair takes a parking space, too. Its two holds become sales together, or neither does. */
static void sell_a_cart(struct crowd *crowd)
{
    static const char cart[] = "{\"external_ids\":[\"pair\",\"%s\"]}";
    int late;

    must(crowd_ask(crowd, NULL, "POST", "/v1/requests",
                   "{\"external_id\":\"space\",\"permits\":[{\"semaphore\":\"parking\"}]}"),
         201, "a parking space");
    must(crowd_ask(crowd, NULL, "DELETE", "/v1/requests/space", NULL), 200, "the space is given back");
    late = crowd_ask(crowd, NULL, "POST", "/v1/confirm", cart, "space");
    claim(late == 410 && !is_sold(crowd, "/v1/requests/pair"),
          "a cart of which one hold has ended is not sold in part");
    must(crowd_ask(crowd, NULL, "POST", "/v1/requests",
                   "{\"external_id\":\"space-2\",\"permits\":[{\"semaphore\":\"parking\"}]}"),
         201, "another parking space");
    must(crowd_ask(crowd, NULL, "POST", "/v1/confirm", cart, "space-2"), 200, "the sale");
    claim(is_sold(crowd, "/v1/requests/pair") && is_sold(crowd, "/v1/requests/space-2"),
          "seats and parking space are sold together");
}

/* ---- The page ---- */

/* Draws one seat: a colour for its state, paler for a worse rank. */
static void draw(FILE *page, int64_t slot, bool is_held)
{
    fprintf(
        page,
        "<rect x=\"%u\" y=\"%u\" width=\"9\" height=\"9\" class=\"%s\" opacity=\"%.2f\"><title>%c%u</title></rect>\n",
        12 * seat_of(slot), 12 * row_of(slot) + (row_of(slot) < STALLS ? 20 : 40), is_held ? "held" : "free",
        1 - 0.6 * rank_of(slot) / rank_of(CAPACITY), 'A' + row_of(slot), seat_of(slot));
}

/* Writes the page from the public seat map, and compares the map with the answers that the clients got. */
static void show(struct crowd *crowd, struct hall *hall, const char *path)
{
    FILE *page = fopen(path, "w");
    struct json_object *map, *slots;
    unsigned same = 0, listed;

    if (!page)
        exit(1);
    crowd_ask(crowd, &map, "GET", "/v1/semaphores/hall/slots?limit=1000", NULL);
    slots = json_object_object_get(map, "slots");
    listed = (unsigned)json_object_array_length(slots);
    fprintf(page,
            "<!DOCTYPE html><meta charset=\"utf-8\"><title>The hall</title>\n"
            "<style>.free{fill:#2a7} .held{fill:#999}</style>\n"
            "<svg viewBox=\"0 0 %u %u\"><text x=\"200\" y=\"14\" font-size=\"12\">stage</text>\n",
            12 * SEATS + 24, 12 * ROWS + 60);
    for (unsigned i = 0; i < listed; i++) {
        struct json_object *slot = json_object_array_get_idx(slots, i);
        int64_t number = json_number(slot, "/number");
        bool is_held = json_object_object_get(slot, "token") != NULL;

        same += is_held == (hall->taken[number] == 1) && json_number(slot, "/rank") == rank_of(number);
        draw(page, number, is_held);
    }
    fprintf(page, "</svg>\n");
    json_object_put(map);
    claim(fclose(page) == 0 && listed == CAPACITY && same == listed,
          "the page shows %u of %u seats as the clients know them", same, listed);
}

int main(int argc, char **argv)
{
    unsigned clients = argc > 3 ? (unsigned)atoi(argv[3]) : 10000;
    struct hall hall = {0};
    struct crowd *crowd;

    if (argc < 3 || clients < GROUPS) {
        fprintf(stderr, "usage: hall URL PAGE [CLIENTS]     at least %d\n", GROUPS);
        return 64;
    }
    crowd = crowd_new(argv[1], clients, &hall);
    build(crowd);
    click_one_seat(crowd, clients, "A20", "hall: 10,000 clients click one seat at once");
    hall.taken[BEST] = hall.clicks.won;
    seat_a_pair(crowd, &hall);
    seat_a_wheelchair(crowd, &hall);
    move_the_pair(crowd, &hall);
    seat_groups(crowd, &hall);
    sell_a_cart(crowd);
    show(crowd, &hall, argv[2]);
    crowd_free(crowd);
    return claims_kept() ? 0 : 1;
}
