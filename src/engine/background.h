/* SPDX-License-Identifier: MIT */
/*
 * Shared by background threads that own a session: reconnects the session, logs a series of failures once, and sleeps
 * until the time has passed or the engine stops.
 */
#ifndef ENGINE_BACKGROUND_H
#define ENGINE_BACKGROUND_H

#include "engine/state.h"

struct background {
    struct engine *engine;
    const char *who; /* name of the thread, for the log */
    struct session *session;
    struct arena arena; /* cleared by background_begin */
    bool failing;       /* the last call failed; its failure is logged */
    unsigned servers;   /* engine->server_generation when the session was last used */
};

/* Call it on the thread that uses the session. False: the engine stops; background_release is still required. */
bool background_init(struct background *background, struct engine *engine, const char *who,
                     enum session_use use) MUST_CHECK;
void background_release(struct background *background);
/* Clears the arena and connects the session, which it drops first if the database server has changed. */
enum permit_status background_begin(struct background *background) MUST_CHECK;
/* Logs the first failure and the recovery. Ignores PERMIT_LOCK_TIMEOUT and PERMIT_CONFLICT. */
void background_record_status(struct background *background, enum permit_status status);
/* Sleeps; returns early, within 50 ms, when the engine stops. */
void background_sleep(const struct background *background, int64_t us);
bool background_stopping(const struct background *background);
#endif
