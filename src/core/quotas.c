/* SPDX-License-Identifier: MIT */
#include "core/quotas.h"

#include <assert.h>

#include "base/config.h"

#define NO_LIMIT "no limit"

/* One row for each quota. */
static const struct {
    const char *word;
    mono_us period;
    bool is_size;        /* of bytes */
    const char *without; /* the limit if the file does not give it */
} rows[] = {
    [QUOTA_CONNECTIONS] = {"connections", 0, false, NO_LIMIT},
    [QUOTA_WAITING] = {"waiting", 0, false, NO_LIMIT},
    [QUOTA_BYTES] = {"bytes", 0, true, NO_LIMIT},
    [QUOTA_RATE] = {"rate", US_PER_SECOND, false, NO_LIMIT},
    [QUOTA_UNITS] = {"units", 60 * (mono_us)US_PER_SECOND, false, NO_LIMIT},
    [QUOTA_ANSWERS] = {"answers", 0, true, "half of the memory for answers"},
};

const char *quota_word(enum quota quota)
{
    return rows[quota].word;
}

mono_us quota_period(enum quota quota)
{
    return rows[quota].period;
}

enum quota quota_of_word(const char *word)
{
    enum quota quota = 0;
    while (quota < QUOTA_COUNT && strcmp(rows[quota].word, word) != 0)
        quota++;
    return quota;
}

bool quota_parse(enum quota quota, const char *text, int64_t *ret_limit, struct buf *why)
{
    int64_t limit;
    bool is_number = text[strspn(text, "0123456789")] == '\0';
    if ((rows[quota].is_size || is_number) && config_parse_size(text, &limit) && limit >= 1 && limit <= QUOTA_MAX) {
        *ret_limit = limit;
        return true;
    }
    buf_printf(why, "%s is a whole number from 1 to %lld%s; leave the line out for %s", rows[quota].word, QUOTA_MAX,
               rows[quota].is_size ? ", or a size such as 64MiB" : "", rows[quota].without);
    return false;
}

bool usage_take(struct usage *usage, const struct quotas *quotas, enum quota quota, int64_t amount, mono_us now,
                mono_us *ret_wait)
{
    int64_t limit = quotas->limits[quota];
    int64_t *under_way = &usage->under_way[quota];
    mono_us wait = 0;
    if (rows[quota].period) {
        if (limit)
            wait = bucket_take(&usage->buckets[quota], limit, rows[quota].period, amount, now);
        if (wait)
            *ret_wait = wait;
        return wait == 0;
    }
    if (limit && *under_way && amount > limit - *under_way) {
        *ret_wait = 0;
        return false;
    }
    *under_way += amount;
    return true;
}

void usage_give_back(struct usage *usage, enum quota quota, int64_t amount)
{
    assert(usage->under_way[quota] >= amount);
    usage->under_way[quota] -= amount;
}
