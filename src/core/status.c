/* SPDX-License-Identifier: MIT */
/* Access to the table of statuses. */
#include "permit/status.h"

#include <string.h>

static const struct {
    const char *word;
    const char *title;
    int http;
    enum permit_retry retry;
} rows[PERMIT_STATUS_COUNT] = {
#define X(name, word, http, retry, title) [name] = {word, title, http, PERMIT_RETRY_##retry},
    PERMIT_STATUS_MAP(X)
#undef X
};

const char *permit_status_word(enum permit_status status)
{
    return rows[status].word;
}

const char *permit_status_title(enum permit_status status)
{
    return rows[status].title;
}

int permit_status_http(enum permit_status status)
{
    return rows[status].http;
}

enum permit_retry permit_status_retry(enum permit_status status)
{
    return rows[status].retry;
}

int permit_status_from_word(const char *word)
{
    for (int status = 0; status < PERMIT_STATUS_COUNT; status++)
        if (strcmp(rows[status].word, word) == 0)
            return status;
    return -1;
}
