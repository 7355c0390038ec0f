/* SPDX-License-Identifier: MIT */
#include "core/owner.h"

const char *owner_life_word(enum owner_life life)
{
    static const char *const words[OWNER_LIFE_COUNT] = {
        [OWNER_ALIVE] = "alive", [OWNER_LATE] = "late", [OWNER_LAPSED] = "lapsed"};
    return words[life];
}

const char *owner_call_word(enum owner_call_kind kind)
{
    static const char *const words[OWNER_CALL_KIND_COUNT] = {
        [OWNER_BEAT] = "beat", [OWNER_GONE] = "gone",     [OWNER_LAPSE] = "lapse",
        [OWNER_DEAD] = "dead", [OWNER_SETTLE] = "settle", [OWNER_FORGET] = "forget",
    };
    return words[kind];
}

enum owner_life owner_life(const struct owner *owner, utc_us due)
{
    if (owner->lapsed_at != NEVER)
        return OWNER_LAPSED;
    return owner->due_at < due ? OWNER_LATE : OWNER_ALIVE;
}

bool owner_is_ending(const struct owner *owner)
{
    return owner->lapsed_at != NEVER && owner->settled_at == NEVER;
}

bool owner_lapse_ends(const struct owner *owner, const struct request *request)
{
    return owner_is_ending(owner) && request->state == REQUEST_ACQUIRED && request->confirmed_at == NEVER &&
           (request->ttl_ms == TTL_BY_OWNER || request->acquired_at <= owner->lapsed_at);
}

/* Writes the lapse: the requests held at that time end with it. */
static void lapse(struct owner_image *image, utc_us at)
{
    image->owner.lapsed_at = at;
    image->owner.settled_at = NEVER;
    image->changed = image->holding = true;
}

static void replay(struct owner_image *image)
{
    image->owner.replays++;
    image->changed = true;
}

/*
 * After a lapse, heartbeats are answered 410 until all requests of the lapse have ended; the next heartbeat revives the
 * owner.
 */
static enum permit_status decide_beat(const struct owner_call *call, utc_us from, struct owner_image *image)
{
    struct owner *owner = &image->owner;
    if (image->exists && owner_is_ending(owner) && image->holding) {
        replay(image);
        return PERMIT_ENDED;
    }
    owner->ttl_ms = call->ttl_ms;
    owner->due_at = from + call->ttl_ms * US_PER_MS;
    owner->lapsed_at = owner->settled_at = NEVER;
    image->exists = image->changed = true;
    image->holding = false;
    return PERMIT_OK;
}

static enum permit_status decide_gone(utc_us now, struct owner_image *image)
{
    if (!image->exists)
        return PERMIT_UNKNOWN_OWNER;
    if (image->owner.lapsed_at != NEVER)
        replay(image);
    else
        lapse(image, now);
    return PERMIT_OK;
}

/*
 * Declares the owner dead, unless a heartbeat came after the first probe: a heartbeat is better evidence than two
 * answers of the probe.
 */
static void decide_dead(const struct owner_call *call, struct owner_image *image)
{
    struct owner *owner = &image->owner;
    if (!image->exists) {
        *owner = (struct owner){.name = owner->name, .due_at = call->at};
        image->exists = true;
        lapse(image, call->at);
        return;
    }
    bool lapsed = owner->lapsed_at != NEVER;
    utc_us last_beat = owner->due_at - owner->ttl_ms * US_PER_MS;
    if (lapsed ? owner->lapsed_at < call->at : last_beat <= call->at)
        lapse(image, call->at);
}

static enum permit_status decide(const struct owner_call *call, const struct lease_clock *clock, utc_us wall_now,
                                 struct owner_image *image)
{
    utc_us now = lease_time(clock, wall_now);
    const struct owner *owner = &image->owner;
    bool alive = image->exists && owner->lapsed_at == NEVER;
    switch (call->kind) {
    case OWNER_BEAT: return decide_beat(call, clock->from, image);
    case OWNER_GONE: return decide_gone(now, image);
    case OWNER_LAPSE:
        if (alive && owner->due_at < clock->due)
            lapse(image, now);
        return PERMIT_OK;
    case OWNER_DEAD: decide_dead(call, image); return PERMIT_OK;
    case OWNER_SETTLE:
        if (image->exists && !alive && owner->lapsed_at == call->at && owner->settled_at == NEVER) {
            image->owner.settled_at = now;
            image->changed = true;
        }
        return PERMIT_OK;
    case OWNER_FORGET:
        if (image->exists && !alive && owner->settled_at < call->at) {
            image->exists = false;
            image->changed = true;
        }
        return PERMIT_OK;
    case OWNER_CALL_KIND_COUNT: break;
    }
    return PERMIT_INTERNAL;
}

void owner_decide(const struct owner_call *call, const struct lease_clock *clock, utc_us now, struct owner_image *image,
                  struct owner_outcome *ret_outcome)
{
    bool was = image->exists;
    enum permit_status status = decide(call, clock, now, image);
    *ret_outcome = (struct owner_outcome){.status = status, .created = !was && image->exists, .owner = image->owner};
    ret_outcome->owner.name = call->name;
}
