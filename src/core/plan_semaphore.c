/* SPDX-License-Identifier: MIT */
/* Decides what operators do to a semaphore: create, change, label, pause, revive, retire. */
#include "core/planner.h"

#include <stdio.h>

#include "core/template.h"

static struct semaphore_image *find_by_name(struct planner *planner, struct bytes name)
{
    for (size_t i = 0; i < planner->view->semaphore_count; i++)
        if (bytes_equal(planner->images[i].semaphore->name, name))
            return &planner->images[i];
    return NULL;
}

/* A name that was never used, as PUT finds it before it applies the body. */
static struct semaphore_image *new_image(struct planner *planner, const struct operation *operation)
{
    struct semaphore *semaphore = arena_alloc(planner->arena, sizeof *semaphore);
    if (!semaphore)
        return NULL;
    *semaphore = (struct semaphore){
        .id = planner->ids.next++,
        .name = operation->semaphore,
        .kind = operation->change->has_kind ? operation->change->kind : KIND_SLOTTED,
        .next_permit_id = 1,
        .retired_at = NEVER,
        .next_due_at = NEVER,
    };
    struct semaphore_image *image = &planner->images[planner->image_count++];
    *image = (struct semaphore_image){.semaphore = semaphore, .insert = true};
    return image;
}

static void reset_settings(struct semaphore *semaphore, int64_t default_ttl_ms)
{
    semaphore->queue = QUEUE_BACKFILL;
    semaphore->default_ttl_ms = default_ttl_ms;
    semaphore->max_ttl_ms = -1;
    semaphore->grace_ms = 0;
    semaphore->max_hold_ms = DEFAULT_MAX_HOLD_MS;
    semaphore->paused_reason = semaphore->note = (struct bytes){0};
    semaphore->retired_at = NEVER;
}

static void apply_settings(struct semaphore *semaphore, const struct semaphore_change *change, bool fresh)
{
    if (change->has_capacity)
        semaphore->capacity = change->capacity;
    if (change->has_queue)
        semaphore->queue = change->queue;
    if (change->has_max_ttl)
        semaphore->max_ttl_ms = change->max_ttl_ms;
    if (change->has_default_ttl)
        semaphore->default_ttl_ms = change->default_ttl_ms;
    else if (fresh && semaphore->max_ttl_ms >= 0)
        semaphore->default_ttl_ms = min_i64(semaphore->default_ttl_ms, semaphore->max_ttl_ms);
    if (change->has_grace)
        semaphore->grace_ms = change->grace_ms;
    if (change->has_max_hold)
        semaphore->max_hold_ms = change->max_hold_ms;
    if (change->has_note)
        semaphore->note = change->note;
}

static bool same_text(struct bytes a, struct bytes b)
{
    return (a.data == NULL) == (b.data == NULL) && bytes_equal(a, b);
}

/* All that an operator may change. */
static bool same_settings(const struct semaphore *a, const struct semaphore *b)
{
    return a->capacity == b->capacity && a->queue == b->queue && a->default_ttl_ms == b->default_ttl_ms &&
           a->max_ttl_ms == b->max_ttl_ms && a->grace_ms == b->grace_ms && a->max_hold_ms == b->max_hold_ms &&
           a->retired_at == b->retired_at && same_text(a->note, b->note) &&
           same_text(a->paused_reason, b->paused_reason);
}

static const char *settings_refusal(const struct semaphore *semaphore, const struct semaphore_change *change)
{
    if (change->has_kind && change->kind != semaphore->kind)
        return "kind cannot change";
    if (semaphore->kind == KIND_SLOTTED && semaphore->capacity > SLOTS_MAX_CAPACITY)
        return "capacity is at most 65536 for a slotted semaphore; \"kind\":\"counted\" takes more";
    if (semaphore->max_ttl_ms >= 0 && semaphore->default_ttl_ms > semaphore->max_ttl_ms)
        return "default_ttl exceeds max_ttl";
    return NULL;
}

/* Slot rows follow the capacity: missing ones are made, those above it go out of service (their holders keep them). */
static void follow_capacity(struct semaphore_image *image, int64_t before)
{
    struct semaphore *semaphore = image->semaphore;
    if (semaphore->kind != KIND_SLOTTED || semaphore->capacity == before)
        return;
    if (semaphore->first_free != FIRST_FREE_SHRUNK)
        semaphore->first_free = 1;
    if (semaphore->capacity > before) {
        image->slots_from = (uint32_t)before + 1;
        image->slots_to = (uint32_t)semaphore->capacity;
    } else {
        image->retire_from = (uint32_t)semaphore->capacity + 1;
        semaphore->first_free = semaphore->in_use ? FIRST_FREE_SHRUNK : 1;
    }
}

/* ---- the record ---- */

static struct bytes number_text(struct planner *planner, int64_t number)
{
    char text[24];
    int length = snprintf(text, sizeof text, "%lld", (long long)number);
    return arena_copy(planner->arena, (struct bytes){text, (size_t)length});
}

static struct bytes ms_text(struct planner *planner, int64_t ms)
{
    return ms < 0 ? BYTES("none") : number_text(planner, ms);
}

static struct bytes capacity_text(struct planner *planner, const struct semaphore *semaphore)
{
    return number_text(planner, semaphore->capacity);
}

static struct bytes default_ttl_text(struct planner *planner, const struct semaphore *semaphore)
{
    return ms_text(planner, semaphore->default_ttl_ms);
}

static struct bytes max_ttl_text(struct planner *planner, const struct semaphore *semaphore)
{
    return ms_text(planner, semaphore->max_ttl_ms);
}

static struct bytes grace_text(struct planner *planner, const struct semaphore *semaphore)
{
    return ms_text(planner, semaphore->grace_ms);
}

static struct bytes max_hold_text(struct planner *planner, const struct semaphore *semaphore)
{
    return ms_text(planner, semaphore->max_hold_ms);
}

static struct bytes queue_text(struct planner *planner, const struct semaphore *semaphore)
{
    (void)planner;
    return bytes_of(semaphore_queue_word(semaphore->queue));
}

/* What a PUT may change: an event each, with the value before and after. (A note is for people: not recorded.) */
static const struct {
    const char *what;
    struct bytes (*text)(struct planner *planner, const struct semaphore *semaphore);
} settings[] = {
    {"capacity", capacity_text}, {"default_ttl_ms", default_ttl_text}, {"max_ttl_ms", max_ttl_text},
    {"grace_ms", grace_text},    {"max_hold_ms", max_hold_text},       {"queue", queue_text},
};

static void record_settings(struct planner *planner, const struct semaphore_image *image,
                            const struct semaphore *before, const struct operation *operation)
{
    for (size_t i = 0; i < ARRAY_LENGTH(settings); i++) {
        struct bytes from = settings[i].text(planner, before);
        struct bytes to = settings[i].text(planner, image->semaphore);
        if (!bytes_equal(from, to))
            record_event(planner, image,
                         (struct event){.who = operation->principal, .what = settings[i].what, .from = from, .to = to});
    }
}

/* One line for a semaphore that comes into service, or one for each setting that changes. */
static void record_put(struct planner *planner, const struct semaphore_image *image, const struct semaphore *before,
                       const struct operation *operation)
{
    if (!image->insert && before->retired_at == NEVER) {
        record_settings(planner, image, before, operation);
        return;
    }
    record_event(planner, image,
                 (struct event){.who = operation->principal,
                                .what = image->insert ? "created" : "revived",
                                .to = capacity_text(planner, image->semaphore),
                                .why = operation->why});
}

/*
 * The answer says how it is now, and config_version whether that has changed. It is durable, because the version is
 * raised in any case.
 */
static void answer_changed(const struct planner *planner, struct outcome *outcome, struct semaphore_image *image,
                           const struct semaphore *before)
{
    image_touch(image);
    image->settings = image->insert || planner->label_count > 0 || !same_settings(before, image->semaphore);
    image->semaphore->config_version += image->settings;
    outcome->semaphore = image->semaphore;
}

static bool is_one_of(const struct semaphore_change *change, uint64_t config_version)
{
    for (size_t i = 0; i < change->match_count; i++)
        if (change->config_versions[i] == config_version)
            return true;
    return false;
}

/* If-Match and If-None-Match, before anything is touched. `exists`: the semaphore in service, or the template. */
static const char *precondition_refusal(const struct semaphore_change *change, const struct semaphore *exists)
{
    if (change->if_none_match && exists)
        return "it already exists";
    if (change->if_exists && !exists)
        return "it does not exist";
    if (change->match_count && !(exists && is_one_of(change, exists->config_version)))
        return "config_version does not match";
    return NULL;
}

/* The labels that a PUT carries, of the semaphore as it is to be. */
static enum permit_status put_labels(struct planner *planner, const struct semaphore_image *image,
                                     const struct semaphore_change *change, const char **ret_detail)
{
    return change->has_labels ? planner_change_labels(planner, image, change, ret_detail) : PERMIT_OK;
}

enum permit_status plan_put(struct planner *planner, struct outcome *outcome, const struct operation *operation)
{
    const struct semaphore_change *change = operation->change;
    struct semaphore_image *image = find_by_name(planner, operation->semaphore);
    bool in_service = image && image->semaphore->retired_at == NEVER;
    const char *refusal = precondition_refusal(change, in_service ? image->semaphore : NULL);
    if (refusal) {
        outcome_refuse(outcome, PERMIT_VERSION_MISMATCH, refusal);
        return PERMIT_OK;
    }
    if (!in_service && !change->has_capacity) {
        outcome_refuse(outcome, PERMIT_INVALID, "capacity is required to create a semaphore");
        return PERMIT_OK;
    }
    if (!image)
        image = new_image(planner, operation);
    if (!image)
        return PERMIT_NO_MEMORY;
    struct semaphore *semaphore = image->semaphore;
    struct semaphore before = *semaphore;
    if (!in_service)
        reset_settings(semaphore, planner->settings->default_ttl_ms);
    apply_settings(semaphore, change, !in_service);
    refusal = settings_refusal(semaphore, change);
    enum permit_status status = refusal ? PERMIT_INVALID : put_labels(planner, image, change, &refusal);
    if (status != PERMIT_OK) {
        *semaphore = before;
        outcome_refuse(outcome, status, refusal);
        return status == PERMIT_NO_MEMORY ? status : PERMIT_OK;
    }
    follow_capacity(image, before.capacity);
    record_put(planner, image, &before, operation);
    planner_record_labels(planner, image, operation);
    outcome->created = !in_service;
    answer_changed(planner, outcome, image, &before);
    return PERMIT_OK;
}

/* ---- templates ---- */

enum permit_status template_apply(struct template *template, bool exists, const struct semaphore_change *change,
                                  int64_t default_ttl_ms, const char **ret_refusal)
{
    struct semaphore next = template->settings;
    *ret_refusal = precondition_refusal(change, exists ? &template->settings : NULL);
    if (*ret_refusal)
        return PERMIT_VERSION_MISMATCH;
    if (change->has_labels)
        *ret_refusal = "a template has no labels; give them to each semaphore";
    else if (!exists && !change->has_capacity)
        *ret_refusal = "capacity is required to create a template";
    if (*ret_refusal)
        return PERMIT_INVALID;
    if (!exists) {
        next = (struct semaphore){.kind = change->has_kind ? change->kind : KIND_SLOTTED};
        reset_settings(&next, default_ttl_ms);
    }
    apply_settings(&next, change, !exists);
    *ret_refusal = settings_refusal(&next, change);
    if (*ret_refusal)
        return PERMIT_INVALID;
    if (!exists || !same_settings(&template->settings, &next))
        next.config_version++;
    template->settings = next;
    return PERMIT_OK;
}

struct semaphore_change template_change(const struct template *template)
{
    const struct semaphore *from = &template->settings;
    return (struct semaphore_change){
        .has_capacity = true,
        .has_kind = true,
        .has_default_ttl = true,
        .has_max_ttl = true,
        .has_grace = true,
        .has_max_hold = true,
        .has_queue = true,
        .has_note = from->note.data != NULL,
        .capacity = from->capacity,
        .kind = from->kind,
        .queue = from->queue,
        .default_ttl_ms = from->default_ttl_ms,
        .max_ttl_ms = from->max_ttl_ms,
        .grace_ms = from->grace_ms,
        .max_hold_ms = from->max_hold_ms,
        .note = from->note,
        .if_none_match = true,
    };
}

/* ---- labels, pause, resume, retire ---- */

/* The semaphore in service with the operation's name; NULL: refused as unknown. */
static struct semaphore_image *find_in_service(struct planner *planner, struct outcome *outcome,
                                               const struct operation *operation)
{
    struct semaphore_image *image = find_by_name(planner, operation->semaphore);
    if (image && image->semaphore->retired_at == NEVER)
        return image;
    outcome_refuse(outcome, PERMIT_UNKNOWN_SEMAPHORE, NULL);
    return NULL;
}

enum permit_status plan_labels(struct planner *planner, struct outcome *outcome, const struct operation *operation)
{
    struct semaphore_image *image = find_in_service(planner, outcome, operation);
    if (!image)
        return PERMIT_OK;
    const char *detail = precondition_refusal(operation->change, image->semaphore);
    enum permit_status status =
        detail ? PERMIT_VERSION_MISMATCH : planner_change_labels(planner, image, operation->change, &detail);
    if (status != PERMIT_OK) {
        outcome_refuse(outcome, status, detail);
        return status == PERMIT_NO_MEMORY ? status : PERMIT_OK;
    }
    planner_record_labels(planner, image, operation);
    answer_changed(planner, outcome, image, image->semaphore);
    return PERMIT_OK;
}

enum permit_status plan_pause(struct planner *planner, struct outcome *outcome, const struct operation *operation)
{
    struct semaphore_image *image = find_in_service(planner, outcome, operation);
    if (!image)
        return PERMIT_OK;
    const struct semaphore before = *image->semaphore;
    image->semaphore->paused_reason = operation->why;
    if (!same_settings(&before, image->semaphore))
        record_event(planner, image,
                     (struct event){.who = operation->principal, .what = "paused", .why = operation->why});
    answer_changed(planner, outcome, image, &before);
    return PERMIT_OK;
}

enum permit_status plan_resume(struct planner *planner, struct outcome *outcome, const struct operation *operation)
{
    struct semaphore_image *image = find_in_service(planner, outcome, operation);
    if (!image)
        return PERMIT_OK;
    const struct semaphore before = *image->semaphore;
    image->semaphore->paused_reason = (struct bytes){0};
    if (!same_settings(&before, image->semaphore))
        record_event(planner, image,
                     (struct event){.who = operation->principal, .what = "resumed", .why = operation->why});
    answer_changed(planner, outcome, image, &before);
    return PERMIT_OK;
}

enum permit_status plan_retire(struct planner *planner, struct outcome *outcome, const struct operation *operation)
{
    struct semaphore_image *image = find_in_service(planner, outcome, operation);
    if (!image)
        return PERMIT_OK;
    if (image->semaphore->in_use > 0) {
        outcome_refuse(outcome, PERMIT_IN_USE, "permits of the semaphore are held; release them first");
        return PERMIT_OK;
    }
    const struct semaphore before = *image->semaphore;
    record_event(planner, image, (struct event){.who = operation->principal, .what = "retired", .why = operation->why});
    image->semaphore->retired_at = planner->now;
    image->drop_labels = image->semaphore->kind == KIND_SLOTTED;
    answer_changed(planner, outcome, image, &before);
    return PERMIT_OK;
}
