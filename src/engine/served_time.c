/* SPDX-License-Identifier: MIT */
#include "engine/served_time.h"

#include "base/clock.h"

void engine_judge(struct engine *engine, struct query_time *time)
{
    engine_lock(engine);
    own_clock_judge(&engine->own_clock, time->now, clock_boot(), &time->clock);
    engine_unlock(engine);
}

bool served_time_read(struct engine *engine, const struct tick *tick, boot_us asked_at, boot_us answered_at,
                      struct lease_row *ret_ticked)
{
    struct own_clock *own = &engine->own_clock;
    struct served_clock *served = &engine->served_clock;
    const struct served_read read = {
        .clock = &tick->ret_row.clock, .now = tick->ret_now, .asked_at = asked_at, .answered_at = answered_at};
    engine_lock(engine);
    own_clock_read(own, &tick->ret_row, asked_at, answered_at);
    /* A tick does not read grants_from, which another epoch has changed. */
    if (served->known && served->clock.epoch == tick->ret_row.clock.epoch)
        served_clock_read(served, &read, clock_boot());
    bool ticks = own_clock_may_tick(own);
    if (ticks)
        *ret_ticked = own_clock_tick(own, tick->ret_now);
    engine_unlock(engine);
    return ticks;
}

void served_time_won(struct engine *engine, const struct lease_row *ticked, boot_us answered_at)
{
    struct served_clock *served = &engine->served_clock;
    engine_lock(engine);
    own_clock_won(&engine->own_clock, ticked, answered_at);
    if (served->known && served->clock.epoch == ticked->clock.epoch)
        served->clock = ticked->clock;
    engine_unlock(engine);
}

void served_time_locked(struct engine *engine, struct view *view, boot_us asked_at, boot_us answered_at)
{
    const struct served_read read = {
        .clock = &view->clock, .now = view->now, .asked_at = asked_at, .answered_at = answered_at};
    engine_lock(engine);
    boot_us at = clock_boot();
    served_clock_read(&engine->served_clock, &read, at);
    engine->grants_from = view->grants_from;
    own_clock_judge(&engine->own_clock, view->now, at, &view->clock);
    (void)served_clock_give(&engine->served_clock, view->now, &view->clock); /* after a step, it is as it was read */
    engine_unlock(engine);
}

bool served_time_estimate(struct engine *engine, struct view *view)
{
    struct served_clock *served = &engine->served_clock;
    boot_us at = clock_boot();
    if (!served->known || !own_clock_is_fresh(&engine->own_clock, at))
        return false;
    view->clock = served->clock;
    view->now = served_clock_estimate(served, at);
    view->grants_from = engine->grants_from;
    view->same_server = true;
    own_clock_judge(&engine->own_clock, view->now, at, &view->clock);
    return served_clock_give(served, view->now, &view->clock);
}

void served_time_forget(struct engine *engine)
{
    engine_lock(engine);
    engine->served_clock.known = false;
    engine_unlock(engine);
}
