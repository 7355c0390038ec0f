/* SPDX-License-Identifier: MIT */
/*
 * Keeps permitd's resident memory under max_memory. What requests and answers take is counted when it is taken
 * (budget.h), half for those that come in, half for those that are worked on and go out, so that neither starves the
 * other. Together they have what max_memory leaves beside everything else: engine, connections, libraries. That is
 * measured ten times a second.
 */
#include "base/memory.h"

#include "base/log.h"
#include "http/loop.h"

/* Parts of max_memory. */
enum {
    QUIET_PART = 64, /* less is counted: next to nothing */
    FREE_PART = 16,  /* stays free, for what is not counted and comes between two measurements */
    LEAST_PART = 16, /* requests and answers have as much in any case */
    MUCH_PART = 8,   /* more is resident: much */
    STEP_PART = 64,  /* more or less is resident than before: it has changed */
};

enum { TRIM_REST_MS = 1000, TRIM_LONG_REST_MS = 30000 };

static size_t counted(const struct server *server)
{
    return atomic_load(&server->receiving.used) + atomic_load(&server->answering.used);
}

/* Resident beside what is counted. */
static size_t other_bytes(const struct server *server, size_t resident)
{
    size_t used = counted(server);
    return resident > used ? resident - used : 0;
}

/*
 * The rest of the process is never taken for less than it was when next to nothing was counted: of what is counted not
 * all need be resident yet.
 */
static void set_limits(struct server *server, size_t max, size_t resident)
{
    if (counted(server) < max / QUIET_PART)
        server->quiet_bytes = resident;
    size_t other = other_bytes(server, resident);
    if (other < server->quiet_bytes)
        other = server->quiet_bytes;
    other += max / FREE_PART;
    size_t limit = other < max - max / LEAST_PART ? max - other : max / LEAST_PART;
    atomic_store(&server->receiving.limit, limit / 2);
    atomic_store(&server->answering.limit, limit / 2);
}

/*
 * What was freed goes back to the system while much is resident. It is not known how much of that was freed: one try
 * that brings little is followed by the next only after a while, or after growth.
 */
static void trim(struct server *server, size_t max, size_t resident)
{
    bool much = resident > max / MUCH_PART;
    bool changed =
        resident > server->trimmed_bytes + max / STEP_PART || resident + max / STEP_PART < server->trimmed_bytes;
    mono_us rest = (changed ? TRIM_REST_MS : TRIM_LONG_REST_MS) * (mono_us)US_PER_MS;
    if (!much || server->now < server->trimmed_at + rest)
        return;
    server->trimmed_at = server->now;
    server->trimmed_bytes = resident;
    bodies_trim(server);
}

static void say_refused(struct server *server)
{
    size_t refused = atomic_load(&server->receiving.refused) + atomic_load(&server->answering.refused);
    if (refused == server->refused_said || server->now < server->memory_quiet_until)
        return;
    server->refused_said = refused;
    server->memory_quiet_until = server->now + US_PER_SECOND;
    log_write(LOG_WARN, "max_memory reached, large requests and answers are refused", NULL);
}

void memory_watch(struct server *server)
{
    size_t max = (size_t)server->settings.max_memory;
    size_t resident = memory_resident(); /* 0, if it is not known, is well: then the rest is taken for nothing */
    trim(server, max, resident);
    set_limits(server, max, resident);
    server->memory_short = resident > max;
    say_refused(server);
}
