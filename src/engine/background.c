/* SPDX-License-Identifier: MIT */
#include "engine/background.h"

#include <time.h>

#include "base/clock.h"
#include "base/log.h"

enum { ARENA_CHUNK = 64 * 1024, ARENA_LIMIT = 16 * 1024 * 1024, SLEEP_PIECE_US = 50 * 1000 };

bool background_init(struct background *background, struct engine *engine, const char *who, enum session_use use)
{
    *background = (struct background){.engine = engine, .who = who};
    session_thread_begin();
    arena_init(&background->arena, ARENA_CHUNK, ARENA_LIMIT);
    background->session = engine_open_session(engine, use, who);
    return background->session != NULL;
}

void background_release(struct background *background)
{
    session_free(background->session);
    arena_release(&background->arena);
    session_thread_end();
}

enum permit_status background_begin(struct background *background)
{
    unsigned servers = atomic_load(&background->engine->server_generation);
    arena_clear(&background->arena);
    if (servers != background->servers)
        session_drop(background->session);
    background->servers = servers;
    return session_connect(background->session);
}

void background_record_status(struct background *background, enum permit_status status)
{
    if (status == PERMIT_LOCK_TIMEOUT || status == PERMIT_CONFLICT)
        return;
    bool failed = status != PERMIT_OK;
    if (failed && !background->failing)
        log_write(LOG_WARN, "background task delayed", "thread", background->who, "status", permit_status_word(status),
                  "error", session_message(background->session), NULL);
    if (!failed && background->failing)
        log_write(LOG_INFO, "background task recovered", "thread", background->who, NULL);
    background->failing = failed;
}

void background_sleep(const struct background *background, int64_t us)
{
    mono_us until = clock_mono() + us;
    for (int64_t left = us; left > 0 && !background_stopping(background); left = until - clock_mono()) {
        const struct timespec piece = {.tv_nsec = min_i64(left, SLEEP_PIECE_US) * 1000};
        nanosleep(&piece, NULL);
    }
}

bool background_stopping(const struct background *background)
{
    return atomic_load(&background->engine->stopping);
}
