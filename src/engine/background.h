/* SPDX-License-Identifier: MIT */
/*
 * What the threads have in common that work in the background on a session of their own: a session that comes back,
 * trouble that is logged once, a sleep that the engine's end cuts short.
 */
#ifndef ENGINE_BACKGROUND_H
#define ENGINE_BACKGROUND_H

#include "engine/state.h"

struct background {
    struct engine *engine;
    const char *who; /* for the log */
    struct session *session;
    struct arena arena; /* of one piece of work */
    bool in_trouble;    /* the last call failed: logged once */
    unsigned servers;   /* engine->servers, as of the session */
};

/* In the thread that is to use it. False: the engine stops; background_release is due all the same. */
bool background_init(struct background *background, struct engine *engine, const char *who,
                     enum session_use use) MUST_CHECK;
void background_release(struct background *background);
/* Before a piece of work: a session that answers, and an empty arena. */
enum permit_status background_begin(struct background *background) MUST_CHECK;
/* After it: logs the first failure and the end of trouble. A row that somebody else holds is no trouble. */
void background_note(struct background *background, enum permit_status status);
/* Returns early, at the latest after 50 ms, when the engine stops. */
void background_sleep(const struct background *background, int64_t us);
bool background_stops(const struct background *background);
#endif
