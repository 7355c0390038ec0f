/* SPDX-License-Identifier: MIT */
/*
 * A flash sale: 10,000 buyers, 5 units, and a payment between the hold and the sale. examples/flash_sale/run.sh runs
 * it.
 *
 * All buyers ask at the same moment. Five get a hold on one unit each, for at most 5 minutes, and pay; the others wait
 * in the queue for a second. A buyer who has paid confirms the hold, which makes it a sale. A buyer whose card is
 * declined releases the unit, which goes immediately to the first buyer in the queue. After their second the other
 * buyers get the definite answer that they have nothing. A buyer who closes the browser instead of paying is the same
 * case: the hold ends with its ttl.
 *
 * A shop that dies between the payment and the confirm must confirm when it is back. If its orders are in the database
 * server of permitd, CALL permit_confirm in the transaction of the order leaves no such moment (docs/recipes.md, "Sell").
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "crowd.h"

enum { UNITS = 5, DECLINED = 3, PAYMENT_MS = 100 };

enum fate { UNANSWERED, SOLD, DECLINED_CARD, SOLD_OUT, FAILED };

struct buyer {
    enum fate fate;
    int64_t unit, token;
};

struct sale {
    struct buyer *buyers;
    unsigned payments; /* payments tried; the first DECLINED fail */
    unsigned count[FAILED + 1];
    double opened_ms, last_ms; /* time of the last answer that settled a buyer */
};

static void settle(struct crowd *crowd, unsigned number, enum fate fate)
{
    struct sale *sale = crowd_context(crowd);

    sale->buyers[number].fate = fate;
    sale->count[fate]++;
    sale->last_ms = now_ms();
}

static void confirmed(struct crowd *crowd, unsigned number, struct answer *answer)
{
    settle(crowd, number, answer->status == 200 ? SOLD : FAILED);
}

static void let_go(struct crowd *crowd, unsigned number, struct answer *answer)
{
    settle(crowd, number, answer->status == 200 ? DECLINED_CARD : FAILED);
}

/* The bank has answered. */
static void paid(struct crowd *crowd, unsigned number)
{
    struct sale *sale = crowd_context(crowd);
    char path[64];

    if (sale->payments++ < DECLINED) {
        snprintf(path, sizeof(path), "/v1/requests/buyer-%u", number);
        crowd_send(crowd, number, let_go, "DELETE", path, NULL);
    } else {
        snprintf(path, sizeof(path), "/v1/requests/buyer-%u/confirm", number);
        crowd_send(crowd, number, confirmed, "POST", path, NULL);
    }
}

static void held(struct crowd *crowd, unsigned number, struct answer *answer)
{
    struct sale *sale = crowd_context(crowd);

    if (answer->status == 423) { /* no_capacity: it is certain that the key holds nothing */
        settle(crowd, number, SOLD_OUT);
        return;
    }
    if (answer->status != 201 && answer->status != 200) {
        fprintf(stderr, "buyer-%u: %d %s\n", number, answer->status, answer->text);
        settle(crowd, number, FAILED);
        return;
    }
    sale->buyers[number].unit = answer_number(answer, "/permits/0/slots/0");
    sale->buyers[number].token = answer_number(answer, "/permits/0/token");
    crowd_wait(crowd, number, PAYMENT_MS, paid);
}

/* Counts the sales that the list of holders confirms: same keys, same units, all confirmed. */
static unsigned sales_that_agree(struct crowd *crowd, struct sale *sale)
{
    struct json_object *list, *holders;
    unsigned agree = 0;

    crowd_ask(crowd, &list, "GET", "/v1/semaphores/console/holders", NULL);
    holders = json_object_object_get(list, "holders");
    for (size_t i = 0; i < json_object_array_length(holders); i++) {
        struct json_object *holder = json_object_array_get_idx(holders, i);
        unsigned number = 0;

        sscanf(json_object_get_string(json_object_object_get(holder, "external_id")), "buyer-%u", &number);
        if (sale->buyers[number].fate == SOLD && sale->buyers[number].unit == json_number(holder, "/slots/0") &&
            sale->buyers[number].token == json_number(holder, "/token") &&
            json_object_object_get(holder, "confirmed_at"))
            agree++;
        else
            agree += UNITS + 1; /* a client holds a unit without having been told */
    }
    json_object_put(list);
    return agree;
}

/* Counts units that were sold after the first holder could not pay. */
static unsigned sold_again(const struct sale *sale, unsigned buyers)
{
    unsigned again = 0;

    for (unsigned i = 0; i < buyers; i++)
        for (unsigned j = 0; j < buyers && sale->buyers[i].fate == DECLINED_CARD; j++)
            again += sale->buyers[j].fate == SOLD && sale->buyers[j].unit == sale->buyers[i].unit &&
                     sale->buyers[j].token > sale->buyers[i].token;
    return again;
}

int main(int argc, char **argv)
{
    unsigned buyers = argc > 2 ? (unsigned)atoi(argv[2]) : 10000;
    const char *wait = argc > 3 ? argv[3] : "1s";
    struct sale sale = {.buyers = calloc(buyers, sizeof(*sale.buyers))};
    struct crowd *crowd;
    double seconds;

    if (argc < 2 || !sale.buyers) {
        fprintf(stderr, "usage: flash_sale URL [BUYERS [WAIT]]\n");
        return 64;
    }
    crowd = crowd_new(argv[1], buyers, &sale);
    if (crowd_ask(crowd, NULL, "PUT", "/v1/semaphores/console", "{\"capacity\":%d,\"default_ttl\":\"5m\"}", UNITS) >
        201)
        return 1;
    crowd_connect(crowd);
    sale.opened_ms = now_ms();
    for (unsigned i = 0; i < buyers; i++)
        crowd_send(crowd, i, held, "POST", "/v1/requests",
                   "{\"external_id\":\"buyer-%u\",\"permits\":[{\"semaphore\":\"console\"}],\"wait\":\"%s\"}", i, wait);
    crowd_run(crowd);
    seconds = (sale.last_ms - sale.opened_ms) / 1000;

    claim(sale.count[SOLD] == UNITS, "%u of %d units were sold to %u buyers", sale.count[SOLD], UNITS, buyers);
    claim(sales_that_agree(crowd, &sale) == UNITS, "permitd lists the same buyers, units and tokens, and no others");
    claim(sale.count[DECLINED_CARD] == DECLINED && sold_again(&sale, buyers) == DECLINED,
          "%u cards were declined, and %u of their units sold to other buyers", sale.count[DECLINED_CARD],
          sold_again(&sale, buyers));
    claim(sale.count[SOLD] + sale.count[DECLINED_CARD] + sale.count[SOLD_OUT] == buyers,
          "every buyer has an answer: %u sold, %u declined, %u told that it is sold out", sale.count[SOLD],
          sale.count[DECLINED_CARD], sale.count[SOLD_OUT]);
    figure("flash_sale: units sold, and until the last buyer has an answer", "exactly 5; 10,000 within 2 s",
           sale.count[SOLD] == UNITS && seconds <= 2, "%u; %u in %.2f s (a wait of %s included)", sale.count[SOLD],
           buyers, seconds, wait);
    crowd_free(crowd);
    free(sale.buyers);
    return claims_kept() ? 0 : 1;
}
