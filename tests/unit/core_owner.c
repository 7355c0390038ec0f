/* SPDX-License-Identifier: MIT */
/* The effect of one call on the row of an owner. */
#include <criterion/criterion.h>

#include "core/owner.h"

enum { NOW = 1000000, TTL_MS = 100, TTL = TTL_MS * US_PER_MS };

static const struct lease_clock lease_clock = {.tick_at = NOW, .due = NOW, .from = NOW};

/*
 * The row before the call: none, alive, late; lapsed at NOW - 50 with requests held or not; settled; settled, with a
 * request held that was acquired before the lapse.
 */
enum before { NONE, ALIVE, LATE, HOLDING, LAPSED, SETTLED, SETTLED_HOLDING, BEFORE_COUNT };

static struct owner_image image_of(enum before before)
{
    struct owner_image image = {
        .owner = {.name = BYTES("o"), .ttl_ms = TTL_MS, .due_at = NOW + 10, .lapsed_at = NEVER, .settled_at = NEVER},
        .existed = before != NONE,
        .exists = before != NONE,
    };
    if (before == LATE)
        image.owner.due_at = NOW - 10;
    if (before >= HOLDING)
        image.owner.lapsed_at = NOW - 50;
    if (before >= SETTLED)
        image.owner.settled_at = NOW - 20;
    image.holding = before == HOLDING || before == SETTLED_HOLDING;
    return image;
}

enum after { SAME, BEATEN, LAPSES, LAPSES_AT_CALL, REPLAYED, SETTLES, REMOVED };

static void check(const char *what, enum after after, enum before before, const struct owner_image *image, utc_us at)
{
    struct owner_image was = image_of(before);
    const struct owner *owner = &image->owner;
    cr_assert_eq(image->changed, after != SAME, "%s", what);
    cr_assert_eq(image->exists, after == REMOVED ? false : after == SAME ? was.exists : true, "%s", what);
    cr_assert_eq(owner->replays, after == REPLAYED, "%s", what);
    switch (after) {
    case BEATEN:
        cr_assert_eq(owner->due_at, NOW + 2 * TTL, "%s", what);
        cr_assert_eq(owner->ttl_ms, 2 * TTL_MS, "%s", what);
        cr_assert(owner->lapsed_at == NEVER && owner->settled_at == NEVER && !image->holding, "%s", what);
        break;
    case LAPSES:
    case LAPSES_AT_CALL:
        cr_assert_eq(owner->lapsed_at, after == LAPSES ? NOW : at, "%s", what);
        cr_assert(owner->settled_at == NEVER && image->holding, "%s", what);
        break;
    case SETTLES: cr_assert_eq(owner->settled_at, NOW, "%s", what); break;
    case SAME:
    case REPLAYED:
    case REMOVED: cr_assert_eq(owner->lapsed_at, was.owner.lapsed_at, "%s", what); break;
    }
}

Test(owner, every_call_on_every_row_has_its_effect)
{
    const utc_us beat_at = NOW + 10 - TTL; /* last heartbeat of ALIVE */
    const struct {
        const char *what;
        enum owner_call_kind kind;
        enum before before;
        utc_us at;
        enum permit_status status;
        enum after after;
    } rows[] = {
        {"a first heartbeat makes the row", OWNER_BEAT, NONE, 0, PERMIT_OK, BEATEN},
        {"another one extends", OWNER_BEAT, ALIVE, 0, PERMIT_OK, BEATEN},
        {"late and not lapsed is alive again", OWNER_BEAT, LATE, 0, PERMIT_OK, BEATEN},
        {"410 while something of the lapse is held", OWNER_BEAT, HOLDING, 0, PERMIT_ENDED, REPLAYED},
        {"afterwards it revives", OWNER_BEAT, LAPSED, 0, PERMIT_OK, BEATEN},
        {"and when that was noted too", OWNER_BEAT, SETTLED, 0, PERMIT_OK, BEATEN},
        {"a grant that committed after the end of the lapse is no part of it", OWNER_BEAT, SETTLED_HOLDING, 0,
         PERMIT_OK, BEATEN},

        {"nobody who never came can go", OWNER_GONE, NONE, 0, PERMIT_UNKNOWN_OWNER, SAME},
        {"gone is lapsed at once", OWNER_GONE, ALIVE, 0, PERMIT_OK, LAPSES},
        {"late too", OWNER_GONE, LATE, 0, PERMIT_OK, LAPSES},
        {"twice is once, and written", OWNER_GONE, HOLDING, 0, PERMIT_OK, REPLAYED},
        {"also long after", OWNER_GONE, SETTLED, 0, PERMIT_OK, REPLAYED},

        {"no row, no lapse", OWNER_LAPSE, NONE, 0, PERMIT_OK, SAME},
        {"a heartbeat came since somebody looked", OWNER_LAPSE, ALIVE, 0, PERMIT_OK, SAME},
        {"its heartbeat is over", OWNER_LAPSE, LATE, 0, PERMIT_OK, LAPSES},
        {"another permitd was first", OWNER_LAPSE, HOLDING, 0, PERMIT_OK, SAME},

        {"found dead without any heartbeat", OWNER_DEAD, NONE, NOW - 30, PERMIT_OK, LAPSES_AT_CALL},
        {"its last heartbeat came before the question", OWNER_DEAD, ALIVE, beat_at, PERMIT_OK, LAPSES_AT_CALL},
        {"a heartbeat since then proves the contrary", OWNER_DEAD, ALIVE, beat_at - 1, PERMIT_OK, SAME},
        {"lapsed before: what came later ends too", OWNER_DEAD, SETTLED, NOW - 30, PERMIT_OK, LAPSES_AT_CALL},
        {"a lapse does not go back", OWNER_DEAD, SETTLED, NOW - 50, PERMIT_OK, SAME},

        {"nothing is held any more", OWNER_SETTLE, LAPSED, NOW - 50, PERMIT_OK, SETTLES},
        {"that was another lapse", OWNER_SETTLE, LAPSED, NOW - 60, PERMIT_OK, SAME},
        {"noted already", OWNER_SETTLE, SETTLED, NOW - 50, PERMIT_OK, SAME},
        {"revived since", OWNER_SETTLE, ALIVE, NOW - 50, PERMIT_OK, SAME},

        {"not needed any more", OWNER_FORGET, SETTLED, NOW - 19, PERMIT_OK, REMOVED},
        {"not yet", OWNER_FORGET, SETTLED, NOW - 20, PERMIT_OK, SAME},
        {"lapsed and not settled stays", OWNER_FORGET, LAPSED, NOW, PERMIT_OK, SAME},
        {"revived since somebody looked", OWNER_FORGET, ALIVE, NOW, PERMIT_OK, SAME},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        struct owner_image image = image_of(rows[i].before);
        struct owner_call call = {
            .kind = rows[i].kind, .name = BYTES("o"), .ttl_ms = (int64_t)2 * TTL_MS, .at = rows[i].at};
        struct owner_outcome outcome;
        owner_decide(&call, &lease_clock, NOW, &image, &outcome);
        cr_assert_eq(outcome.status, rows[i].status, "%s", rows[i].what);
        cr_assert_eq(outcome.created, rows[i].before == NONE && rows[i].after != SAME, "%s", rows[i].what);
        check(rows[i].what, rows[i].after, rows[i].before, &image, rows[i].at);
    }
}

Test(owner, calls_of_one_transaction_see_each_other)
{
    struct owner_image image = image_of(NONE);
    struct owner_outcome outcome;
    struct owner_call beat = {.kind = OWNER_BEAT, .ttl_ms = TTL_MS};
    struct owner_call gone = {.kind = OWNER_GONE};
    owner_decide(&gone, &lease_clock, NOW, &image, &outcome);
    cr_assert_eq(outcome.status, PERMIT_UNKNOWN_OWNER);
    owner_decide(&beat, &lease_clock, NOW, &image, &outcome);
    cr_assert(outcome.status == PERMIT_OK && outcome.created);
    owner_decide(&beat, &lease_clock, NOW, &image, &outcome);
    cr_assert(outcome.status == PERMIT_OK && !outcome.created);
    owner_decide(&gone, &lease_clock, NOW, &image, &outcome);
    cr_assert_eq(outcome.owner.lapsed_at, NOW);
    owner_decide(&beat, &lease_clock, NOW, &image, &outcome);
    cr_assert_eq(outcome.status, PERMIT_ENDED, "whether it held something is not known in this transaction");
    cr_assert(!image.existed && image.exists && image.changed);
}

Test(owner, answer_points_into_its_own_call_only)
{
    char first[] = "o", second[] = "o";
    struct owner_image image = image_of(ALIVE);
    struct owner_outcome outcome;
    image.owner.name = (struct bytes){first, 1};
    struct owner_call call = {.kind = OWNER_BEAT, .name = {second, 1}, .ttl_ms = TTL_MS};
    owner_decide(&call, &lease_clock, NOW, &image, &outcome);
    cr_assert_eq(outcome.owner.name.data, second);
}

Test(owner, row_created_by_the_probe_is_lapsed_and_has_no_ttl)
{
    struct owner_image image = image_of(NONE);
    struct owner_outcome outcome;
    struct owner_call dead = {.kind = OWNER_DEAD, .at = NOW - 1};
    owner_decide(&dead, &lease_clock, NOW, &image, &outcome);
    cr_assert_eq(outcome.owner.ttl_ms, 0);
    cr_assert(bytes_equal(image.owner.name, BYTES("o")));
    cr_assert_eq(owner_life(&outcome.owner, NOW), OWNER_LAPSED);
}

Test(owner, life_depends_on_deadline_and_lapse)
{
    struct owner owner = {.due_at = NOW, .lapsed_at = NEVER};
    cr_assert_eq(owner_life(&owner, NOW), OWNER_ALIVE);
    cr_assert_eq(owner_life(&owner, NOW + 1), OWNER_LATE);
    owner.lapsed_at = NOW;
    cr_assert_eq(owner_life(&owner, 0), OWNER_LAPSED);
    cr_assert_str_eq(owner_life_word(OWNER_ALIVE), "alive");
    cr_assert_str_eq(owner_life_word(OWNER_LATE), "late");
    cr_assert_str_eq(owner_life_word(OWNER_LAPSED), "lapsed");
}

Test(owner, lapse_ends_earlier_unconfirmed_requests)
{
    const struct owner lapsed = {.lapsed_at = NOW, .settled_at = NEVER};
    const struct owner settled = {.lapsed_at = NOW, .settled_at = NOW + 1};
    const struct {
        const char *what;
        struct request request;
        bool ends;
    } rows[] = {
        {"held before", {.state = REQUEST_ACQUIRED, .ttl_ms = 5, .acquired_at = NOW, .confirmed_at = NEVER}, true},
        {"held since", {.state = REQUEST_ACQUIRED, .ttl_ms = 5, .acquired_at = NOW + 1, .confirmed_at = NEVER}, false},
        {"by heartbeat, whenever",
         {.state = REQUEST_ACQUIRED, .ttl_ms = TTL_BY_OWNER, .acquired_at = NOW + 1, .confirmed_at = NEVER},
         true},
        {"no ttl", {.state = REQUEST_ACQUIRED, .ttl_ms = TTL_NONE, .acquired_at = NOW, .confirmed_at = NEVER}, true},
        {"confirmed", {.state = REQUEST_ACQUIRED, .ttl_ms = TTL_BY_OWNER, .acquired_at = 1, .confirmed_at = 2}, false},
        {"ended", {.state = REQUEST_RELEASED, .ttl_ms = 5, .acquired_at = 1, .confirmed_at = NEVER}, false},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        cr_assert_eq(owner_lapse_ends(&lapsed, &rows[i].request), rows[i].ends, "%s", rows[i].what);
        cr_assert_not(owner_lapse_ends(&settled, &rows[i].request), "%s", rows[i].what);
    }
    cr_assert_not(owner_lapse_ends(&(struct owner){.lapsed_at = NEVER, .settled_at = NEVER}, &rows[0].request));
}

/* P8: the own clock says when a heartbeat has expired, not the database's. */
Test(owner, heartbeat_expires_by_the_own_clock)
{
    const struct owner_call beat = {.kind = OWNER_BEAT, .name = BYTES("o"), .ttl_ms = TTL_MS};
    const struct owner_call lapse = {.kind = OWNER_LAPSE, .name = BYTES("o")};
    struct lease_clock clock = {.tick_at = NOW, .due = NOW - TTL, .from = NOW + 7};
    struct owner_image image = image_of(NONE);
    struct owner_outcome outcome;
    owner_decide(&beat, &clock, NOW, &image, &outcome);
    cr_assert_eq(image.owner.due_at, NOW + 7 + TTL);
    utc_us stepped = NOW + 3 * TTL;
    image.changed = false;
    owner_decide(&lapse, &clock, stepped, &image, &outcome);
    cr_assert_not(image.changed);
    clock.due = NOW + 8 + TTL;
    owner_decide(&lapse, &clock, stepped, &image, &outcome);
    cr_assert_eq(image.owner.lapsed_at, stepped, "the time that is stored is the database's");
}
