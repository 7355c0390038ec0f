/* SPDX-License-Identifier: MIT */
/*
 * Seeded scripts: a few semaphores of small capacity, a few keys that come again with the same and with other content,
 * and administration in between. Each script has its own mixture, so that some are all about one hot semaphore and some
 * all about resizing.
 */
#include "plan_model.h"
#include "random.h"

struct mixture {
    uint64_t random;
    unsigned semaphores;                                   /* names in play; not all of them are made */
    unsigned keys;                                         /* keys in play */
    unsigned weights[OP_KIND_COUNT];                       /* of operations */
    unsigned batch_percent, stale_percent, moment_percent; /* how they arrive */
    struct step usual[MODEL_KEYS];                         /* what is sent under a key, as a rule */
};

static unsigned below(struct mixture *mixture, unsigned bound)
{
    return (unsigned)random_below(&mixture->random, bound);
}

static bool percent(struct mixture *mixture, unsigned chance)
{
    return below(mixture, 100) < chance;
}

/* --- acquire, release, renew ------------------------------------------------------------------------------------ */

static struct ttl random_ttl(struct mixture *mixture)
{
    static const int64_t durations[] = {1, 5000, 30000, 60000, 600000, 900000};
    switch (below(mixture, 5)) {
    case 0:
    case 1: return (struct ttl){.kind = TTL_ABSENT};
    case 2: return (struct ttl){.kind = TTL_UNLIMITED};
    default: return (struct ttl){TTL_DURATION, durations[below(mixture, ARRAY_LENGTH(durations))]};
    }
}

/* As a rule small; sometimes more than any capacity here, or than any slotted permit may have. */
static int64_t random_count(struct mixture *mixture)
{
    unsigned dice = below(mixture, 40);
    if (dice == 0)
        return 1001;
    return dice < 3 ? 4 + below(mixture, 6) : 1 + below(mixture, dice < 25 ? 1 : 3);
}

static void random_content(struct mixture *mixture, unsigned key, struct step *step)
{
    *step = (struct step){.kind = OP_ACQUIRE, .key = key, .owner = below(mixture, 3), .ttl = random_ttl(mixture)};
    unsigned wanted = 1 + (percent(mixture, 40) ? below(mixture, MODEL_WANTS) : 0);
    for (unsigned i = 0; i < mixture->semaphores && step->want_count < wanted; i++)
        if (below(mixture, mixture->semaphores - i) < wanted - step->want_count)
            step->wants[step->want_count++] = (struct model_want){i, random_count(mixture)};
    step_finish(step);
}

static void random_acquire(struct mixture *mixture, struct step *step)
{
    unsigned key = below(mixture, mixture->keys);
    if (percent(mixture, 90))
        *step = mixture->usual[key];
    else
        random_content(mixture, key, step);
    step->extra_slots = percent(mixture, 20) ? below(mixture, 3) : 0;
}

static void random_known(struct mixture *mixture, enum operation_kind kind, struct step *step)
{
    *step = (struct step){.kind = kind, .key = below(mixture, mixture->keys)};
    step->stale = percent(mixture, mixture->stale_percent);
    step->stale_locks = step->stale && percent(mixture, 50) ? below(mixture, 1U << mixture->semaphores) : 0;
    if (kind == OP_RENEW)
        step->ttl = random_ttl(mixture);
}

/* --- administration --------------------------------------------------------------------------------------------- */

static int64_t random_capacity(struct mixture *mixture)
{
    static const int64_t capacities[] = {0, 1, 1, 2, 2, 3, 4, 5, 7, 9};
    return capacities[below(mixture, ARRAY_LENGTH(capacities))];
}

static void random_times(struct mixture *mixture, struct semaphore_change *change)
{
    static const int64_t max_ttls[] = {-1, 30000, 600000, 700000};
    static const int64_t default_ttls[] = {1000, 30000, 600000, 650000};
    change->has_max_ttl = percent(mixture, 30);
    change->max_ttl_ms = max_ttls[below(mixture, 4)];
    change->has_default_ttl = percent(mixture, 20);
    change->default_ttl_ms = default_ttls[below(mixture, 4)];
    change->has_grace = percent(mixture, 20);
    change->grace_ms = below(mixture, 4) * 1000;
    change->has_max_hold = percent(mixture, 20);
    change->max_hold_ms = 60000 * (1 + below(mixture, 20));
}

static void random_conditions(struct mixture *mixture, struct semaphore_change *change)
{
    change->has_kind = percent(mixture, 8);
    change->if_none_match = percent(mixture, 5);
    change->if_match = percent(mixture, 10);
    change->config_version = 1 + below(mixture, 4);
    if (percent(mixture, 2))
        change->capacity = SLOTS_MAX_CAPACITY + 1;
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
    change->has_note = percent(mixture, 10);
    change->note = notes[below(mixture, ARRAY_LENGTH(notes))];
    random_times(mixture, change);
    random_conditions(mixture, change);
}

/* The semaphores that a script begins with. */
static void first_put(struct mixture *mixture, unsigned semaphore, struct step *step)
{
    *step = (struct step){.kind = OP_SEMAPHORE_PUT, .semaphore = semaphore, .new_batch = true};
    step->change = (struct semaphore_change){.has_capacity = true, .capacity = random_capacity(mixture)};
    step->change.has_kind = percent(mixture, 50);
    step->change.kind = KIND_COUNTED;
    if (percent(mixture, 30))
        random_times(mixture, &step->change);
}

/* --- arrival ---------------------------------------------------------------------------------------------------- */

/* Time passes; the clock may jump either way, the cluster may tick, the server may become another one. */
static void random_moment(struct mixture *mixture, struct moment *moment)
{
    moment->now += (int64_t)random_below(&mixture->random, 3 * US_PER_SECOND);
    if (percent(mixture, 5))
        moment->now += 3600LL * US_PER_SECOND * (percent(mixture, 50) ? 1 : -1);
    if (percent(mixture, 50))
        moment->clock = served_clock_tick(&moment->clock, moment->now);
    if (percent(mixture, 5))
        moment->epoch += 1 + below(mixture, 3);
}

static void random_mixture(struct mixture *mixture)
{
    mixture->semaphores = 1 + below(mixture, MODEL_SEMAPHORES);
    mixture->keys = 2 + below(mixture, MODEL_KEYS - 1);
    mixture->weights[OP_ACQUIRE] = 4 + below(mixture, 8);
    mixture->weights[OP_RELEASE] = 1 + below(mixture, 8);
    mixture->weights[OP_RENEW] = below(mixture, 4);
    mixture->weights[OP_SEMAPHORE_PUT] = below(mixture, 3);
    mixture->weights[OP_SEMAPHORE_RETIRE] = percent(mixture, 30);
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
    case OP_SEMAPHORE_RETIRE:
        *step = (struct step){.kind = kind, .semaphore = below(mixture, mixture->semaphores)};
        break;
    default: random_known(mixture, kind, step); break;
    }
    step->new_batch = percent(mixture, mixture->batch_percent);
}

void script_generate(uint64_t seed, struct script *ret_script)
{
    struct mixture mixture = {.random = seed};
    struct moment moment = {MODEL_START, {MODEL_START, 0}, 0};
    random_mixture(&mixture);
    ret_script->count = 0;
    for (unsigned i = mixture.semaphores; i-- > 0;) /* ids in another order than names */
        if (percent(&mixture, 90))
            first_put(&mixture, i, &ret_script->steps[ret_script->count++]);
    unsigned count = ret_script->count + 4 + below(&mixture, MODEL_STEPS / 2);
    while (ret_script->count < count)
        random_step(&mixture, &ret_script->steps[ret_script->count++]);
    for (unsigned i = 0; i < count; i++) {
        if (ret_script->steps[i].new_batch && percent(&mixture, mixture.moment_percent))
            random_moment(&mixture, &moment);
        ret_script->steps[i].moment = moment;
    }
}

/*
 * Within a batch the decision goes by rank, so a batch may be extended as long as ranks do not fall. The rank of an
 * operation depends on the others of its batch, so the rank by its kind alone has to fit, too.
 */
static bool may_join(const struct decided *before, const struct decided *after, const struct step *step)
{
    int rank = step->kind == OP_RELEASE ? 0 : step->kind == OP_RENEW ? 1 : 2;
    return rank >= before->rank && memcmp(&before->moment, &after->moment, sizeof after->moment) == 0;
}

void script_resplit(const struct run *run, uint64_t seed, struct script *ret_script)
{
    int last_rank = 0;
    ret_script->count = run->decided_count;
    for (unsigned i = 0; i < run->decided_count; i++) {
        const struct decided *decided = &run->decided[i];
        struct step *step = &ret_script->steps[i];
        *step = run->script->steps[decided->step];
        struct decided before = {.rank = last_rank, .moment = i > 0 ? decided[-1].moment : decided->moment};
        step->new_batch = !may_join(&before, decided, step) || random_below(&seed, 4) == 0;
        step->stale = false;
        step->moment = decided->moment;
        last_rank = step->kind == OP_RELEASE ? 0 : step->kind == OP_RENEW ? 1 : 2;
    }
}
