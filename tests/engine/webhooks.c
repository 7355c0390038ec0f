/* SPDX-License-Identifier: MIT */
/* How many URLs may be named. */
#include "engine/webhooks.h"

#include <criterion/criterion.h>
#include <stdio.h>

#include "engine/state.h"

static struct engine engine;

static bool may_name(int number)
{
    char url[40];
    snprintf(url, sizeof url, "http://a/%d", number);
    return engine_may_name_webhook(&engine, bytes_of(url));
}

/* The task has not read what was named since its last look; many name a URL at once. */
Test(webhooks, those_that_were_just_named_count)
{
    struct webhook_row row = {.url = BYTES("http://a/7")};
    const struct webhook_list list = {.ret_rows = &row, .ret_count = 1};
    mutex_init(&engine.mutex);
    for (int i = 0; i < WEBHOOKS_MAX; i++)
        cr_expect(may_name(i), "%d", i);
    cr_expect(!may_name(WEBHOOKS_MAX));
    cr_expect(may_name(0) && may_name(WEBHOOKS_MAX - 1));
    engine_note_webhooks(&engine, &list);
    cr_expect(may_name(7) && may_name(WEBHOOKS_MAX), "the others are not named any more");
}
