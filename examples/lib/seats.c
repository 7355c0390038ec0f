/* SPDX-License-Identifier: MIT */
#include "seats.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void must(int status, int expected, const char *what)
{
    if (status == expected)
        return;
    fprintf(stderr, "%s: %d\n", what, status);
    exit(1);
}

bool granted(const struct answer *answer)
{
    return answer->status == 201 || answer->status == 200;
}

int64_t slot_of(struct answer *answer, unsigned index)
{
    char pointer[32];

    snprintf(pointer, sizeof(pointer), "/permits/0/slots/%u", index);
    return answer_number(answer, pointer);
}

static void clicked(struct crowd *crowd, unsigned client, struct answer *answer)
{
    struct clicks *clicks = crowd_context(crowd);
    const char *label;

    (void)client;
    clicks->last_ms = now_ms();
    if (granted(answer)) {
        clicks->won++;
        return;
    }
    /* A refusal names the seat that is taken, and the end of its hold: the page can colour it immediately. */
    label = json_object_get_string(answer_find(answer, "/blocking/0/taken/0/label"));
    if (answer->status == 423 && label && !strcmp(label, clicks->label))
        clicks->told++;
    else if (clicks->unexplained++ == 0)
        fprintf(stderr, "%s: %d %s\n", clicks->label, answer->status, answer->text);
}

void click_one_seat(struct crowd *crowd, unsigned clients, const char *label, const char *what)
{
    struct clicks *clicks = crowd_context(crowd);
    double begun_ms;

    *clicks = (struct clicks){.label = label};
    crowd_connect(crowd);
    begun_ms = now_ms();
    for (unsigned i = 0; i < clients; i++)
        crowd_send(crowd, i, clicked, "POST", "/v1/requests",
                   "{\"external_id\":\"click-%u\",\"permits\":[{\"semaphore\":\"hall\",\"slots\":[\"%s\"]}]}", i,
                   label);
    crowd_run(crowd);
    claim(clicks->won == 1, "%s was given to %u of %u", label, clicks->won, clients);
    claim(clicks->told == clients - 1, "%u were told at once that it is taken, and until when", clicks->told);
    figure(what, "exactly one winner, all answered within 1 s", clicks->won == 1 && clicks->last_ms - begun_ms <= 1000,
           "%u of %u won, all answered in %.2f s", clicks->won, clients, (clicks->last_ms - begun_ms) / 1000);
}
