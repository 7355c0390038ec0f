/* SPDX-License-Identifier: MIT */
/* A growing array, sorted when somebody asks. */
#include "spread.h"

#include <stdlib.h>

void spread_add(struct spread *spread, int64_t us)
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
    spread_add(context, columns[0] ? strtoll(columns[0], NULL, 10) : INT64_MIN);
}

struct spread spread_read(struct kit_sql *sql, const char *statement)
{
    struct spread spread = {.us = NULL};
    kit_sql_each(sql, statement, take_row, &spread);
    return spread;
}

static int compare_us(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

int64_t spread_at(struct spread *spread, double part)
{
    if (!spread->count)
        return 0;
    if (!spread->sorted)
        qsort(spread->us, spread->count, sizeof(spread->us[0]), compare_us);
    spread->sorted = true;
    return spread->us[(size_t)(part * (double)(spread->count - 1))];
}

double spread_ms(struct spread *spread, double part)
{
    return (double)spread_at(spread, part) / 1000;
}

void spread_release(struct spread *spread)
{
    free(spread->us);
    *spread = (struct spread){.us = NULL};
}
