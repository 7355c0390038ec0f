/* SPDX-License-Identifier: MIT */
/*
 * Seeded scripts: a few semaphores of small capacity, a few keys that are repeated with the same and with other
 * content, and administration in between. Each script has its own mixture: some use one hot semaphore only, some mainly
 * change capacities, in some most requests wait for so long that they are protected.
 */
#include "plan_model.h"
#include "random.h"

struct mixture {
    uint64_t random;
    unsigned semaphores;                                   /* names used; not all are created */
    unsigned keys;                                         /* keys used */
    unsigned weights[OP_KIND_COUNT];                       /* of operations */
    unsigned batch_percent, stale_percent, moment_percent; /* of arrival */
    unsigned cut_percent, walk_percent;                    /* of reads of due holders */
    unsigned locked_percent;                               /* of batches beside another session that has locked a row */
    bool small_packets;
    unsigned wait_percent;   /* of acquires that may wait */
    unsigned again_percent;  /* of acquires for a key that may wait */
    unsigned server_percent; /* of changes of the server */
    unsigned priority_percent;
    unsigned step_percent;     /* of semaphores with a priority_step of their own */
    unsigned age_percent;      /* of batches by which the waiters have become protected */
    unsigned later_percent;    /* of steps with operations that come after the batch */
    unsigned several_percent;  /* of contents of several semaphores */
    unsigned adjacent_percent; /* of wants for specific slots that are for adjacent ones */
    unsigned best_percent;     /* of wants for specific slots that are for best seats */
    unsigned queues_percent;   /* of small capacities and counts, so that requests queue */
    unsigned fifo_percent;     /* of semaphores */
    unsigned specific_percent; /* of wants for specific slots */
    bool hasty;                /* all deadlines are within seconds */
    bool crowd;
    struct step usual[MODEL_KEYS]; /* usual content of each key */
    unsigned asked[8];             /* keys of recent acquires */
    unsigned asked_count;
};

static unsigned below(struct mixture *mixture, unsigned bound)
{
    return (unsigned)random_below(&mixture->random, bound);
}

static bool percent(struct mixture *mixture, unsigned chance)
{
    return below(mixture, 100) < chance;
}

/* ---- operations with a key ---- */

static struct ttl random_ttl(struct mixture *mixture)
{
    static const int64_t durations[] = {1, 5000, 30000, 60000, 600000, 900000};
    static const int64_t hasty[] = {1, 500, 1000, 1000, 2000, 3000};
    switch (below(mixture, mixture->crowd ? 40 : 12)) {
    case 0:
    case 1:
    case 2:
    case 3: return (struct ttl){.kind = TTL_ABSENT};
    case 4:
    case 5: return (struct ttl){.kind = TTL_UNLIMITED};
    case 6: return (struct ttl){.kind = TTL_OWNER};
    default: return (struct ttl){TTL_DURATION, (mixture->hasty ? hasty : durations)[below(mixture, 6)]};
    }
}

/* Returns a count, usually small; sometimes above every capacity here, or above the limit of a slotted permit. */
static int64_t random_count(struct mixture *mixture)
{
    unsigned dice = mixture->crowd ? 10 + below(mixture, 30) : below(mixture, 40);
    if (percent(mixture, mixture->queues_percent))
        return 1 + below(mixture, percent(mixture, 60) ? 1 : 3);
    if (dice == 0)
        return 1001;
    return dice < 3 ? 4 + below(mixture, 6) : 1 + below(mixture, dice < 25 ? 1 : 3);
}

/* Names some of the first slots: numbers ascending, followed by labels. */
static void random_names(struct mixture *mixture, struct model_want *want)
{
    unsigned count = 1 + below(mixture, MODEL_NAMES);
    uint32_t number = 0;
    unsigned label = 0;
    for (bool labels = percent(mixture, 20); want->name_count < count;) {
        struct model_name *name = &want->names[want->name_count];
        labels = labels || percent(mixture, 20);
        if (labels && label >= MODEL_LABELS - 3)
            break;
        *name = labels ? (struct model_name){0, label += 1 + below(mixture, 3)}
                       : (struct model_name){number += 1 + below(mixture, percent(mixture, 60) ? 1 : 4), 0};
        want->name_count++;
    }
}

static void random_choice(struct mixture *mixture, struct model_want *want)
{
    if (!percent(mixture, mixture->specific_percent))
        return;
    if (percent(mixture, mixture->best_percent)) {
        want->choice = CHOOSE_BEST;
        want->count = 1 + below(mixture, 4);
        want->together = percent(mixture, 60);
        want->front = percent(mixture, 25);
        want->no_aisle = percent(mixture, 25);
        return;
    }
    want->choice = percent(mixture, mixture->adjacent_percent) ? CHOOSE_LOWEST : (enum slot_choice)below(mixture, 3);
    want->adjacent = want->choice == CHOOSE_LOWEST || (want->choice == CHOOSE_ANY_OF && percent(mixture, 40));
    if (want->choice != CHOOSE_LOWEST)
        random_names(mixture, want);
    if (want->choice == CHOOSE_NAMED)
        want->count = want->name_count;
    else if (percent(mixture, 60))
        want->count = 1 + below(mixture, 3);
}

static void random_content(struct mixture *mixture, unsigned key, struct step *step)
{
    *step = (struct step){.kind = OP_ACQUIRE, .key = key, .owner = below(mixture, 3), .ttl = random_ttl(mixture)};
    unsigned wanted = 1 + (percent(mixture, mixture->several_percent) ? below(mixture, MODEL_WANTS) : 0);
    for (unsigned i = 0; i < mixture->semaphores && step->want_count < wanted; i++)
        if (below(mixture, mixture->semaphores - i) < wanted - step->want_count) {
            struct model_want *want = &step->wants[step->want_count++];
            *want = (struct model_want){.semaphore = i, .count = random_count(mixture)};
            random_choice(mixture, want);
        }
    step_finish(step);
}

/* Returns a key, usually one that may be held. */
static unsigned known_key(struct mixture *mixture)
{
    unsigned count = (unsigned)min_i64(mixture->asked_count, ARRAY_LENGTH(mixture->asked));
    return count && percent(mixture, 75) ? mixture->asked[below(mixture, count)] : below(mixture, mixture->keys);
}

/* How the acquire waits: most ask; a wait that goes on may end, its client may go or come to another server. */
static void random_wait(struct mixture *mixture, bool again, struct step *step)
{
    unsigned dice = below(mixture, 100);
    if (!percent(mixture, mixture->wait_percent))
        return;
    step->wait = !again || dice < 60 ? WAIT_ASK : dice < 75 ? WAIT_LAST : dice < 90 ? WAIT_GONE : WAIT_NO;
    step->wait_us = US_PER_SECOND / 2 * (1 + below(mixture, 20));
    step->priority = percent(mixture, mixture->priority_percent) ? (int)below(mixture, PRIORITY_MAX + 1) : 0;
    step->anew = percent(mixture, 10);
    step->mailed = percent(mixture, 40);
    step->vanished = percent(mixture, 5);
}

static void random_acquire(struct mixture *mixture, struct step *step)
{
    bool again = percent(mixture, mixture->again_percent);
    unsigned key = again ? known_key(mixture) : below(mixture, mixture->keys);
    mixture->asked[mixture->asked_count++ % ARRAY_LENGTH(mixture->asked)] = key;
    if (percent(mixture, 90))
        *step = mixture->usual[key];
    else
        random_content(mixture, key, step);
    step->extra_slots = percent(mixture, 20) ? below(mixture, 3) : 0;
    step->due_cut = percent(mixture, mixture->cut_percent) ? 1 + below(mixture, 2) : 0;
    step->walks_due = percent(mixture, mixture->walk_percent);
    step->locked_rows = percent(mixture, mixture->locked_percent) ? 1U << known_key(mixture) : 0;
    random_wait(mixture, again, step);
}

static void random_known(struct mixture *mixture, enum operation_kind kind, struct step *step)
{
    *step = (struct step){.kind = kind, .key = known_key(mixture)};
    step->stale = percent(mixture, mixture->stale_percent);
    step->stale_locks = step->stale && percent(mixture, 50) ? below(mixture, 1U << mixture->semaphores) : 0;
    step->more_locks = percent(mixture, 5) ? below(mixture, 1U << mixture->semaphores) : 0;
    step->vanished = mixture->wait_percent && percent(mixture, mixture->age_percent ? 2 : 8);
    if (kind == OP_RENEW)
        step->ttl = random_ttl(mixture);
    unsigned with = kind == OP_CONFIRM && percent(mixture, 40) ? known_key(mixture) : step->key;
    step->with = with == step->key ? 0 : with + 1;
    if (kind == OP_RELEASE)
        step->allow_confirmed = percent(mixture, 30);
    if (kind == OP_EXPIRE && percent(mixture, mixture->locked_percent))
        step->locked_rows = 1U << step->key;
    if (kind == OP_EXPIRE)
        step->expire_as = percent(mixture, 60) ? END_EXPIRED : percent(mixture, 50) ? END_OWNER_DEAD : END_NEVER_HELD;
    if (kind == OP_FORCE_RELEASE)
        step->reason = 1 + below(mixture, MODEL_REASONS - 1);
}

/* Gives back some of what the key usually holds, and takes other units: often again of the same semaphore. */
static void random_exchange(struct mixture *mixture, struct step *step)
{
    struct step other;
    random_known(mixture, OP_EXCHANGE, step);
    const struct step *usual = &mixture->usual[step->key];
    random_content(mixture, step->key, &other);
    const struct step *taken = percent(mixture, 40) ? usual : &other;
    step->nonce = 1 + below(mixture, MODEL_NONCES - 1);
    step->changes = percent(mixture, 60) ? 0 : 1 + below(mixture, 2);
    for (unsigned i = 0; i < usual->want_count && percent(mixture, 65); i++) {
        struct model_want *given = &step->given[step->given_count++];
        *given = (struct model_want){.semaphore = usual->wants[i].semaphore, .count = 1 + below(mixture, 2)};
        if (!percent(mixture, usual->wants[i].choice == CHOOSE_NAMED ? 70 : 15))
            continue;
        given->choice = CHOOSE_NAMED;
        if (usual->wants[i].name_count && percent(mixture, 60))
            given->names[given->name_count++] = usual->wants[i].names[0];
        else
            random_names(mixture, given);
        given->count = given->name_count;
    }
    if (step->given_count && percent(mixture, 35))
        return;
    memcpy(step->wants, taken->wants, sizeof step->wants);
    step->want_count = taken->want_count;
}

/* ---- administration ---- */

static int64_t random_capacity(struct mixture *mixture)
{
    static const int64_t capacities[] = {0, 1, 1, 2, 2, 3, 4, 5, 7, 9};
    if (percent(mixture, mixture->queues_percent))
        return 2 + below(mixture, 4);
    if (mixture->specific_percent && percent(mixture, 60))
        return 3 + below(mixture, 7);
    return capacities[below(mixture, ARRAY_LENGTH(capacities))];
}

static void random_times(struct mixture *mixture, struct semaphore_change *change)
{
    static const int64_t max_ttls[] = {-1, 30000, 600000, 700000};
    static const int64_t default_ttls[] = {1000, 30000, 600000, 650000};
    static const int64_t hasty_ttls[] = {1, 1000, 2000, 3000};
    change->has_max_ttl = percent(mixture, 30);
    change->max_ttl_ms = max_ttls[below(mixture, 4)];
    change->has_default_ttl = percent(mixture, 20);
    change->default_ttl_ms = (mixture->hasty ? hasty_ttls : default_ttls)[below(mixture, 4)];
    change->has_grace = percent(mixture, 20);
    change->grace_ms = below(mixture, 4) * (mixture->hasty ? 300 : 1000);
    change->has_max_hold = percent(mixture, 20);
    change->max_hold_ms = (mixture->hasty ? 500 : 60000) * (1 + below(mixture, 20));
}

/* A second, more or less than the default, or strict. */
static void random_step_of_priority(struct mixture *mixture, struct semaphore_change *change)
{
    static const int64_t steps[] = {1, 1000, 5000, 60000, -1};
    change->has_priority_step = percent(mixture, mixture->step_percent);
    change->priority_step_ms = steps[below(mixture, ARRAY_LENGTH(steps))];
}

static void random_conditions(struct mixture *mixture, struct semaphore_change *change)
{
    change->has_kind = percent(mixture, 8);
    change->if_none_match = percent(mixture, 5);
    change->match_count = percent(mixture, 10);
    change->config_versions[0] = 1 + below(mixture, 4);
    if (percent(mixture, 2))
        change->capacity = SLOTS_MAX_CAPACITY + 1;
}

static void random_labels(struct mixture *mixture, struct step *step, unsigned from_below)
{
    unsigned used = 0;
    step->change.has_labels = true;
    step->change.labels_from = (percent(mixture, 3) ? 0 : 1) + below(mixture, from_below);
    unsigned count = below(mixture, 6);
    while (step->label_count < count) {
        unsigned label = percent(mixture, 20) ? 0
                         : percent(mixture, 50)
                             ? 1 + (step->change.labels_from + step->label_count) % (MODEL_LABELS - 1)
                             : 1 + below(mixture, MODEL_LABELS - 1);
        if ((used >> label & 1) && percent(mixture, 95))
            label = 0;
        used |= 1U << label;
        step->labels[step->label_count++] = label;
    }
}

static void random_put(struct mixture *mixture, struct step *step)
{
    static const struct bytes notes[] = {{NULL, 0}, {"x", 1}, {"night", 5}};
    *step = (struct step){.kind = OP_SEMAPHORE_PUT, .semaphore = below(mixture, mixture->semaphores)};
    struct semaphore_change *change = &step->change;
    change->has_capacity = percent(mixture, 80);
    change->capacity = random_capacity(mixture);
    change->kind = percent(mixture, 50) ? KIND_COUNTED : KIND_SLOTTED;
    change->has_queue = percent(mixture, 10);
    change->queue = percent(mixture, 50) ? QUEUE_FIFO : QUEUE_BACKFILL;
    change->has_max_waiters = mixture->wait_percent && percent(mixture, 10);
    change->max_waiters = (int64_t)below(mixture, 5) - 1;
    change->has_max_priority = mixture->priority_percent && percent(mixture, 10);
    change->max_priority = below(mixture, PRIORITY_MAX + 1);
    if (percent(mixture, 30))
        random_step_of_priority(mixture, change);
    change->has_note = percent(mixture, 10);
    change->note = notes[below(mixture, ARRAY_LENGTH(notes))];
    random_times(mixture, change);
    random_conditions(mixture, change);
    if (percent(mixture, mixture->specific_percent / 2))
        random_labels(mixture, step, 1);
}

static void random_page(struct mixture *mixture, struct step *step)
{
    *step = (struct step){.kind = OP_SEMAPHORE_LABELS, .semaphore = below(mixture, mixture->semaphores)};
    step->change.match_count = percent(mixture, 5);
    step->change.config_versions[0] = 1 + below(mixture, 4);
    random_labels(mixture, step, 4);
}

/* Creates a semaphore at the start of a script. */
static void first_put(struct mixture *mixture, unsigned semaphore, struct step *step)
{
    *step = (struct step){.kind = OP_SEMAPHORE_PUT, .semaphore = semaphore, .new_batch = true};
    step->change = (struct semaphore_change){.has_capacity = true, .capacity = random_capacity(mixture)};
    step->change.has_kind = percent(mixture, mixture->specific_percent ? 8 : 50);
    step->change.kind = KIND_COUNTED;
    if (percent(mixture, mixture->specific_percent) && !step->change.has_kind)
        random_labels(mixture, step, 1);
    step->label_count = (unsigned)min_i64(step->label_count, step->change.capacity);
    step->change.has_queue = percent(mixture, mixture->fifo_percent);
    step->change.queue = QUEUE_FIFO;
    if (percent(mixture, 30))
        random_times(mixture, &step->change);
    random_step_of_priority(mixture, &step->change);
    if (mixture->hasty && percent(mixture, 90)) {
        step->change.has_default_ttl = step->change.has_max_hold = true;
        step->change.has_max_ttl = false;
        step->change.default_ttl_ms = 1000 * (1 + below(mixture, 4));
        step->change.max_hold_ms = 1000 * (1 + below(mixture, 6));
    }
}

/* ---- arrival ---- */

/* Advances the time served: after an hour tombstones may be deleted, after eight days all ended requests. */
static void serve_long(struct mixture *mixture, struct moment *moment)
{
    static const int64_t seconds[] = {60, 600, 3600, 8 * 24 * 3600};
    moment->now += seconds[below(mixture, ARRAY_LENGTH(seconds))] * US_PER_SECOND;
    moment->clock.tick_at = moment->now;
}

/* The own clock of the permitd: it may differ from that of the database. */
static void judge_time(struct mixture *mixture, struct moment *moment)
{
    utc_us served = model_time(moment);
    moment->clock.due = served;
    if (percent(mixture, 50))
        moment->clock.due += (int64_t)random_below(&mixture->random, 4 * US_PER_SECOND) - 2 * US_PER_SECOND;
    moment->clock.from = max_i64(served, moment->clock.due) + below(mixture, 2) * US_PER_SECOND / 2;
}

/* The waiters that wait now are protected from then on. */
static void serve_bound(struct mixture *mixture, struct moment *moment)
{
    moment->now += model_settings.backfill_bound_us;
    moment->clock.tick_at = moment->now;
    judge_time(mixture, moment);
}

/* Advances the time: the clock may jump either way, the cluster may tick, the server may change. */
static void random_moment(struct mixture *mixture, struct moment *moment)
{
    if (percent(mixture, 3))
        serve_long(mixture, moment);
    moment->now += (int64_t)random_below(&mixture->random, 3 * US_PER_SECOND);
    if (percent(mixture, 5))
        moment->now += 3600LL * US_PER_SECOND * (percent(mixture, 50) ? 1 : -1);
    utc_us served = model_time(moment);
    if (percent(mixture, 50)) {
        moment->clock.tick_at = moment->now;
        moment->clock.offset_us = moment->now - served;
    }
    judge_time(mixture, moment);
    if (percent(mixture, 5)) {
        moment->epoch += 1 + below(mixture, 3);
        moment->grants_from = model_time(moment) + below(mixture, 4 * US_PER_SECOND);
    }
    moment->owners_known |= percent(mixture, 10) ? 2U << below(mixture, MODEL_OWNERS - 1) : 0;
    moment->owners_alive ^= percent(mixture, 10) ? 2U << below(mixture, MODEL_OWNERS - 1) : 0;
    moment->servers_dead ^= percent(mixture, 4) ? 2U << below(mixture, MODEL_SERVERS - 1) : 0;
}

/* A mixture in which all requests want the same few units and few are released: units come from due holders. */
static void crowd(struct mixture *mixture)
{
    mixture->hasty = mixture->crowd = true;
    mixture->semaphores = 1 + below(mixture, 3);
    mixture->keys = 8 + below(mixture, MODEL_KEYS - 7);
    mixture->weights[OP_ACQUIRE] = 12;
    mixture->weights[OP_RELEASE] = below(mixture, 2);
    mixture->weights[OP_FORCE_RELEASE] = 0;
    mixture->weights[OP_SEMAPHORE_PUT] = percent(mixture, 20);
    mixture->weights[OP_SEMAPHORE_PAUSE] = mixture->weights[OP_SEMAPHORE_RESUME] = 0;
    mixture->weights[OP_SEMAPHORE_RETIRE] = 0;
    mixture->moment_percent = 60 + below(mixture, 40);
}

/* A mixture of many waiters, of one or several servers, for units that are freed one by one. */
static void waiting(struct mixture *mixture)
{
    mixture->wait_percent = 40 + below(mixture, 61);
    mixture->again_percent = 10 + below(mixture, 50);
    mixture->fifo_percent = percent(mixture, 60) ? 20 + below(mixture, 81) : 0;
    mixture->server_percent = percent(mixture, 75) ? 10 + below(mixture, 80) : 0;
    mixture->priority_percent = percent(mixture, 50) ? below(mixture, 60) : 0;
    mixture->weights[OP_RELEASE] += 2 + below(mixture, 4);
    mixture->weights[OP_EXPIRE] += 1;
}

/* A mixture in which most requests wait for long, come again, and are released: queues of many places. */
static void long_queues(struct mixture *mixture)
{
    waiting(mixture);
    mixture->wait_percent = 80 + below(mixture, 21);
    mixture->semaphores = 1 + below(mixture, 3);
    mixture->keys = 12 + below(mixture, MODEL_KEYS - 11);
    mixture->hasty = mixture->crowd = percent(mixture, 30);
    mixture->weights[OP_ACQUIRE] = 12;
    mixture->weights[OP_RELEASE] = 6;
    mixture->weights[OP_RENEW] = mixture->weights[OP_CONFIRM] = mixture->weights[OP_FORCE_RELEASE] = 1;
    mixture->weights[OP_SEMAPHORE_PUT] = percent(mixture, 30);
    mixture->weights[OP_SEMAPHORE_PAUSE] = mixture->weights[OP_SEMAPHORE_RESUME] = percent(mixture, 15);
    mixture->weights[OP_SEMAPHORE_RETIRE] = 0;
    mixture->queues_percent = 95;
}

/* A mixture in which requests hold for long, are sold, and wait for several semaphores until they are protected. */
static void reservations(struct mixture *mixture)
{
    mixture->semaphores = 2 + below(mixture, MODEL_SEMAPHORES - 1);
    mixture->keys = 8 + below(mixture, MODEL_KEYS - 7);
    mixture->hasty = mixture->crowd = false;
    mixture->age_percent = 10 + below(mixture, 60);
    mixture->several_percent = 30 + below(mixture, 70);
    mixture->wait_percent = 60 + below(mixture, 41);
    mixture->fifo_percent = percent(mixture, 50) ? 10 + below(mixture, 60) : 0;
    mixture->again_percent = 10 + below(mixture, 30);
    mixture->weights[OP_ACQUIRE] = 14;
    mixture->weights[OP_RELEASE] = 3 + below(mixture, 4);
    mixture->weights[OP_RENEW] = 1;
    mixture->weights[OP_CONFIRM] = percent(mixture, 60) ? 1 + below(mixture, 3) : 0;
    mixture->weights[OP_EXPIRE] = mixture->weights[OP_FORCE_RELEASE] = percent(mixture, 30);
    mixture->weights[OP_SEMAPHORE_PUT] = percent(mixture, 30);
    mixture->weights[OP_SEMAPHORE_PAUSE] = mixture->weights[OP_SEMAPHORE_RESUME] = percent(mixture, 40);
    mixture->weights[OP_SEMAPHORE_RETIRE] = 0;
    mixture->queues_percent = percent(mixture, 70) ? 60 + below(mixture, 40) : 0;
}

/* A mixture in which most requests wait for adjacent slots of the same few semaphores. */
static void neighbours(struct mixture *mixture)
{
    mixture->semaphores = 1 + below(mixture, 2);
    mixture->specific_percent = mixture->adjacent_percent = 95;
    mixture->wait_percent = 95;
    mixture->weights[OP_RELEASE] = 2;
    mixture->weights[OP_CONFIRM] = 1;
    mixture->fifo_percent = mixture->queues_percent = 0;
}

static void random_mixture(struct mixture *mixture)
{
    mixture->semaphores = 1 + below(mixture, MODEL_SEMAPHORES);
    mixture->keys = 2 + below(mixture, MODEL_KEYS - 1);
    mixture->weights[OP_ACQUIRE] = 4 + below(mixture, 8);
    mixture->weights[OP_RELEASE] = 1 + below(mixture, 8);
    mixture->weights[OP_RENEW] = below(mixture, 4);
    mixture->weights[OP_CONFIRM] = percent(mixture, 60) ? below(mixture, 3) : 0;
    mixture->weights[OP_EXPIRE] = below(mixture, 3);
    mixture->weights[OP_FORCE_RELEASE] = percent(mixture, 40);
    mixture->weights[OP_SEMAPHORE_PUT] = below(mixture, 3);
    mixture->weights[OP_SEMAPHORE_PAUSE] = percent(mixture, 20);
    mixture->weights[OP_SEMAPHORE_RESUME] = 2 * mixture->weights[OP_SEMAPHORE_PAUSE];
    mixture->weights[OP_SEMAPHORE_RETIRE] = percent(mixture, 30);
    mixture->again_percent = 10;
    mixture->small_packets = percent(mixture, 8);
    mixture->hasty = percent(mixture, 70);
    if (percent(mixture, 45))
        crowd(mixture);
    if (percent(mixture, 60))
        waiting(mixture);
    mixture->several_percent = mixture->crowd ? 60 : 40;
    if (percent(mixture, 35))
        long_queues(mixture);
    if (percent(mixture, 45)) {
        waiting(mixture);
        reservations(mixture);
    }
    mixture->step_percent = mixture->priority_percent && percent(mixture, 50) ? 20 + below(mixture, 80) : 0;
    mixture->weights[OP_EXCHANGE] = percent(mixture, 40) ? 1 + below(mixture, 4) : 0;
    mixture->later_percent = mixture->wait_percent && percent(mixture, 20) ? below(mixture, 20) : 0;
    mixture->specific_percent = percent(mixture, mixture->queues_percent ? 20 : 35) ? 15 + below(mixture, 75) : 0;
    if (mixture->small_packets) /* the model knows nothing of the bytes of labels */
        mixture->specific_percent = 0;
    mixture->adjacent_percent = percent(mixture, 20) ? 90 : 0;
    mixture->best_percent = percent(mixture, 30) ? 30 + below(mixture, 60) : 0;
    if (mixture->age_percent && !mixture->small_packets && percent(mixture, 8))
        neighbours(mixture);
    mixture->weights[OP_SEMAPHORE_LABELS] = mixture->specific_percent ? below(mixture, 3) : 0;
    mixture->cut_percent = percent(mixture, 12) ? below(mixture, 80) : 0;
    mixture->walk_percent = percent(mixture, 30) ? below(mixture, 100) : 0;
    mixture->locked_percent = percent(mixture, 20) ? below(mixture, 40) : 0;
    mixture->batch_percent = 5 + below(mixture, percent(mixture, 70) ? 40 : 95);
    mixture->stale_percent = below(mixture, 100);
    mixture->moment_percent = below(mixture, 80);
    for (unsigned i = 0; i < mixture->keys; i++)
        random_content(mixture, i, &mixture->usual[i]);
}

static enum operation_kind random_kind(struct mixture *mixture)
{
    unsigned sum = 0;
    for (unsigned i = 0; i < OP_KIND_COUNT; i++)
        sum += mixture->weights[i];
    unsigned dice = below(mixture, sum);
    unsigned kind = 0;
    while (dice >= mixture->weights[kind])
        dice -= mixture->weights[kind++];
    return (enum operation_kind)kind;
}

static void random_step(struct mixture *mixture, struct step *step)
{
    enum operation_kind kind = random_kind(mixture);
    switch (kind) {
    case OP_ACQUIRE: random_acquire(mixture, step); break;
    case OP_SEMAPHORE_PUT: random_put(mixture, step); break;
    case OP_SEMAPHORE_LABELS: random_page(mixture, step); break;
    case OP_SEMAPHORE_PAUSE:
    case OP_SEMAPHORE_RESUME:
    case OP_SEMAPHORE_RETIRE:
        *step = (struct step){.kind = kind, .semaphore = below(mixture, mixture->semaphores)};
        step->reason = 1 + below(mixture, MODEL_REASONS - 1);
        break;
    case OP_EXCHANGE: random_exchange(mixture, step); break;
    default: random_known(mixture, kind, step); break;
    }
    /* A confirm of two that is put back for the one takes the other out of a walk that has answered its ask before. */
    step->new_batch = step->with || percent(mixture, mixture->batch_percent);
    step->later = percent(mixture, mixture->later_percent) ? 1U << known_key(mixture) : 0;
}

void script_generate(uint64_t seed, struct script *ret_script)
{
    struct mixture mixture = {.random = seed};
    struct moment moment = {
        .now = MODEL_START, .clock = {.tick_at = MODEL_START}, .owners_known = 6, .owners_alive = 2, .server = 1};
    random_mixture(&mixture);
    ret_script->count = 0;
    ret_script->max_waiters = mixture.wait_percent && percent(&mixture, 10) ? 1 + below(&mixture, 4) : 0;
    ret_script->queue_cut = mixture.wait_percent && percent(&mixture, 30) ? 1 + below(&mixture, 3) : 0;
    ret_script->rounds = mixture.wait_percent && percent(&mixture, 15) ? 1 + below(&mixture, 3) : 0;
    ret_script->max_packet = mixture.small_packets ? 6000 + below(&mixture, 5000) : 0;
    for (unsigned i = mixture.semaphores; i-- > 0;) /* ids in another order than names */
        if (percent(&mixture, 90))
            first_put(&mixture, i, &ret_script->steps[ret_script->count++]);
    unsigned count = ret_script->count + 4 + below(&mixture, 40);
    while (ret_script->count < count)
        random_step(&mixture, &ret_script->steps[ret_script->count++]);
    for (unsigned i = 0; i < count; i++) {
        if (ret_script->steps[i].new_batch && percent(&mixture, mixture.moment_percent))
            random_moment(&mixture, &moment);
        if (ret_script->steps[i].new_batch && percent(&mixture, mixture.age_percent))
            serve_bound(&mixture, &moment);
        if (ret_script->steps[i].new_batch && percent(&mixture, mixture.server_percent)) {
            moment.was = moment.server;
            moment.server = percent(&mixture, 5) ? 0 : 1 + below(&mixture, MODEL_SERVERS - 1);
        }
        ret_script->steps[i].moment = moment;
        if (ret_script->steps[i].kind == OP_ACQUIRE)
            ret_script->steps[i].nonce = i % MODEL_NONCES;
    }
}
