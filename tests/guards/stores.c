/* SPDX-License-Identifier: MIT */
/* Code shared by all stores. */
#include "stores.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "testkit.h"

void session_open(struct session *session, struct store *store)
{
    memset(session, 0, sizeof(*session));
    session->store = store;
    store->kind->open(session);
}

void session_close(struct session *session)
{
    session->store->kind->close(session);
    session->link = NULL;
}

static enum verdict opened_again(struct session *session, enum verdict verdict)
{
    if (verdict == LOST) {
        session->lost++;
        session->store->kind->close(session);
        session->store->kind->open(session);
    }
    return verdict;
}

enum verdict session_guard(struct session *session, const struct write *write)
{
    return opened_again(session, session->store->kind->guard(session, write));
}

enum verdict session_write(struct session *session, const struct write *write)
{
    return opened_again(session, session->store->kind->write(session, write));
}

enum verdict session_write_in_steps(struct session *session, const struct write *write)
{
    return opened_again(session, session->store->kind->write_in_steps(session, write));
}

void session_run(struct session *session, const char *format, ...)
{
    char *text = NULL;
    va_list arguments;
    va_start(arguments, format);
    KIT_CHECK(vasprintf(&text, format, arguments) >= 0);
    va_end(arguments);
    if (session->store->kind->run(session, text) != PASSED)
        kit_fail("%s: %s: %s", session->store->name, text, session->message);
    free(text);
}

int64_t token_of(int64_t token)
{
    enum { ORIGIN = 1767225600, HOUR = 3600, DAY = 24 * HOUR, A_SECOND = 1024000 }; /* docs/fencing.md */
    static int64_t limit;
    if (!limit)
        limit = ((int64_t)time(NULL) - ORIGIN + DAY) * A_SECOND;
    switch (token) {
    case NEWEST: return limit - (int64_t)HOUR * A_SECOND;
    case OLDER_THAN_NEWEST: return limit - (int64_t)HOUR * A_SECOND - 1;
    case BEYOND: return limit + (int64_t)HOUR * A_SECOND;
    default: return token;
    }
}

size_t slots_of(const char *where, uint32_t *ret_slots, size_t max)
{
    size_t count = 0;
    for (const char *at = where; *at && count < max; at += strcspn(at, ","), at += *at == ',')
        ret_slots[count++] = (uint32_t)strtoul(at, NULL, 10);
    return count;
}
