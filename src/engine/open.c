/* SPDX-License-Identifier: MIT */
/*
 * Opens the store or session of a new thread. Out of memory, the thread retries: an engine without its expiry task or a
 * worker would look healthy but not work.
 */
#include <time.h>

#include "base/log.h"
#include "engine/state.h"

enum { AGAIN_MS = 100 };

/* Sleeps before the next try and logs the first failure. False: the engine stops. */
static bool try_again_later(const struct engine *engine, const char *who, bool *said)
{
    if (!*said)
        log_write(LOG_ERROR, "out of memory, retrying thread start", "thread", who, NULL);
    *said = true;
    nanosleep(&(struct timespec){.tv_nsec = AGAIN_MS * 1000000L}, NULL);
    return !atomic_load(&engine->stopping);
}

struct store *engine_open_store(const struct engine *engine, const char *who)
{
    bool said = false;
    struct store *store;
    do
        store = engine->settings.open_store(engine->settings.open_context);
    while (!store && try_again_later(engine, who, &said));
    return store;
}

struct session *engine_open_session(const struct engine *engine, enum session_use use, const char *who)
{
    bool said = false;
    struct session *session;
    do
        session = session_new(engine->settings.address, use);
    while (!session && try_again_later(engine, who, &said));
    return session;
}
