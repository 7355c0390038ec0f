/* SPDX-License-Identifier: MIT */
/* A growing array, sorted on demand. */
#include "spread.h"

#include <stdlib.h>

void duration_set_add(struct duration_set *spread, int64_t us)
{
    if (spread->count == spread->room) {
        spread->room = spread->room ? 2 * spread->room : 256;
        spread->us = realloc(spread->us, spread->room * sizeof(spread->us[0]));
        KIT_CHECK(spread->us);
    }
    spread->us[spread->count++] = us;
    spread->sorted = false;
}

static void take_row(void *context, char **columns)
{
    duration_set_add(context, columns[0] ? strtoll(columns[0], NULL, 10) : INT64_MIN);
}

struct duration_set duration_set_read(struct kit_sql *sql, const char *statement)
{
    struct duration_set spread = {.us = NULL};
    kit_sql_each(sql, statement, take_row, &spread);
    return spread;
}

static int compare_us(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

int64_t duration_set_quantile_us(struct duration_set *spread, double part)
{
    if (!spread->count)
        return 0;
    if (!spread->sorted)
        qsort(spread->us, spread->count, sizeof(spread->us[0]), compare_us);
    spread->sorted = true;
    return spread->us[(size_t)(part * (double)(spread->count - 1))];
}

double duration_set_quantile_ms(struct duration_set *spread, double part)
{
    return (double)duration_set_quantile_us(spread, part) / 1000;
}

void duration_set_release(struct duration_set *spread)
{
    free(spread->us);
    *spread = (struct duration_set){.us = NULL};
}
