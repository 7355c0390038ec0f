/* SPDX-License-Identifier: MIT */
/*
 * Keeps permitd's resident memory under max_memory. Memory of requests and answers is counted when it is allocated
 * (budget.h): one half of the limit for requests being received, one half for requests being handled and answers, so
 * that neither starves the other; share.h has the shares of clients. Together they may use what max_memory leaves
 * beside everything else: engine, connections, libraries. The rest of the process is measured ten times a second.
 */
#include "base/memory.h"

#include "base/log.h"
#include "http/loop.h"

/* Fractions of max_memory. */
enum {
    IDLE_FRACTION = 64,    /* below this, nearly nothing is counted */
    RESERVE_FRACTION = 16, /* kept free for uncounted memory that is allocated between two measurements */
    MINIMUM_FRACTION = 16, /* minimum for requests and answers */
    TRIM_FRACTION = 16,    /* above this, freed memory is returned to the system */
    CHANGE_FRACTION = 64,  /* a change of resident memory that counts as a change */
};

enum { TRIM_PAUSE_MS = 1000, TRIM_LONG_PAUSE_MS = 30000 };

/*
 * Sets the limits of both budgets. The uncounted rest of the process is taken to be at least as large as it was when
 * nearly nothing was counted, because counted memory may not be resident yet.
 */
static void set_limits(struct server *server, size_t max, size_t resident)
{
    size_t used = atomic_load(&server->memory.receiving.used) + atomic_load(&server->memory.handling.used);
    if (used < max / IDLE_FRACTION)
        server->baseline_bytes = resident;
    size_t other = resident > used ? resident - used : 0;
    if (other < server->baseline_bytes)
        other = server->baseline_bytes;
    other += max / RESERVE_FRACTION;
    size_t limit = other < max - max / MINIMUM_FRACTION ? max - other : max / MINIMUM_FRACTION;
    atomic_store(&server->memory.receiving.limit, limit / 2);
    atomic_store(&server->memory.handling.limit, limit / 2);
}

/*
 * Returns freed memory to the system while resident memory is high. The amount of freed memory is unknown, so after a
 * try the next one follows only after a long pause, or after a shorter one if resident memory has changed. The spare
 * exchanges are freed first: they lie between pieces that others have freed, and would keep their pages resident.
 */
static void trim(struct server *server, size_t max, size_t resident)
{
    bool much = resident > max / TRIM_FRACTION;
    bool changed = resident > server->trimmed_bytes + max / CHANGE_FRACTION ||
                   resident + max / CHANGE_FRACTION < server->trimmed_bytes;
    mono_us pause = (changed ? TRIM_PAUSE_MS : TRIM_LONG_PAUSE_MS) * (mono_us)US_PER_MS;
    if (!much || server->now < server->trimmed_at + pause)
        return;
    server->trimmed_at = server->now;
    server->trimmed_bytes = resident;
    exchanges_free_spare(server);
    bodies_trim(server);
}

static void log_refusals(struct server *server)
{
    size_t refused = atomic_load(&server->memory.receiving.refused) + atomic_load(&server->memory.handling.refused);
    if (refused == server->refusals_logged || server->now < server->memory_quiet_until)
        return;
    server->refusals_logged = refused;
    server->memory_quiet_until = server->now + US_PER_SECOND;
    log_write(LOG_WARN, "max_memory reached, large requests and answers are refused", NULL);
}

void memory_watch(struct server *server)
{
    size_t max = (size_t)server->settings.max_memory;
    size_t resident = memory_resident(); /* 0 if unknown: then the limits ignore the rest of the process */
    trim(server, max, resident);
    set_limits(server, max, resident);
    server->memory_short = resident > max;
    log_refusals(server);
}
