/* SPDX-License-Identifier: MIT */
/* Decides administrative operations: create, change, label, pause, resume, retire, revive; and PUT on a template. */
#include "core/planner.h"

#include <assert.h>
#include <stdio.h>

#include "core/template.h"

static struct semaphore_image *find_by_name(struct planner *planner, struct bytes name)
{
    for (size_t i = 0; i < planner->view->semaphore_count; i++)
        if (bytes_equal(planner->images[i].semaphore->name, name))
            return &planner->images[i];
    return NULL;
}

/* Adds an image for a name that was never used, before the body of the PUT is applied. */
static struct semaphore_image *new_image(struct planner *planner, const struct operation *operation)
{
    assert(planner->ids.next < planner->ids.end && planner->image_count == planner->view->semaphore_count);
    struct semaphore *semaphore = arena_must_alloc(planner->arena, sizeof *semaphore);
    *semaphore = (struct semaphore){
        .id = planner->ids.next++,
        .name = operation->semaphore,
        .kind = operation->change->has_kind ? operation->change->kind : KIND_SLOTTED,
        .next_token = 1,
        .retired_at = NEVER,
        .next_due_at = NEVER,
    };
    struct semaphore_image *image = &planner->images[planner->image_count++];
    *image = (struct semaphore_image){.semaphore = semaphore, .insert = true};
    return image;
}

/*
 * Changes the settings; before that, a new or revived semaphore or template (`fresh`) gets those that it begins with.
 */
static void apply_settings(struct semaphore *semaphore, const struct semaphore_change *change, bool fresh,
                           int64_t default_ttl_ms)
{
    if (fresh) {
        semaphore_reset(semaphore, default_ttl_ms);
        semaphore->paused_reason = (struct bytes){0};
        semaphore->retired_at = NEVER;
    }
    semaphore_apply(semaphore, change);
    if (fresh && !change->has_default_ttl && semaphore->max_ttl_ms >= 0)
        semaphore->default_ttl_ms = min_i64(semaphore->default_ttl_ms, semaphore->max_ttl_ms);
}

/* Compares everything that an operator may change, except labels. */
static bool same_settings(const struct semaphore *a, const struct semaphore *b)
{
    return semaphore_same_settings(a, b) && a->retired_at == b->retired_at &&
           bytes_same(a->paused_reason, b->paused_reason);
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

/*
 * Adapts the slot rows to the capacity: missing rows are created, rows above it go out of service (holders keep them).
 */
static void adapt_slot_rows(struct semaphore_image *image, int64_t before)
{
    struct semaphore *semaphore = image->semaphore;
    if (semaphore->kind != KIND_SLOTTED || semaphore->capacity == before)
        return;
    if (semaphore->first_free != FIRST_FREE_SHRUNK || semaphore->in_use == 0)
        semaphore->first_free = 1;
    if (semaphore->capacity > before) {
        image->slots_from = (uint32_t)before + 1;
        image->slots_to = (uint32_t)semaphore->capacity;
    } else {
        image->retire_from = (uint32_t)semaphore->capacity + 1;
        semaphore->first_free = semaphore->in_use ? FIRST_FREE_SHRUNK : 1;
    }
}

static int64_t new_slots(const struct semaphore_image *image)
{
    return image->slots_to ? (int64_t)image->slots_to - image->slots_from + 1 : 0;
}

int64_t changes_new_slots(const struct changes *changes)
{
    int64_t count = 0;
    for (size_t i = 0; i < changes->semaphore_count; i++)
        count += changes->semaphores[i].changed ? new_slots(&changes->semaphores[i]) : 0;
    return count;
}

/* Returns a refusal if the new capacity needs more slots than max_slots leaves, together with the batch so far. */
static const char *slots_refusal(struct planner *planner, const struct semaphore *semaphore, int64_t before)
{
    const struct plan_settings *settings = planner->settings;
    int64_t more = semaphore->kind == KIND_SLOTTED ? semaphore->capacity - before : 0;
    int64_t left = settings->max_slots - settings->slots;
    if (!settings->max_slots || more <= 0)
        return NULL;
    for (size_t i = 0; i < planner->image_count; i++)
        left -= new_slots(&planner->images[i]);
    if (more <= left)
        return NULL;
    return planner_sentence(planner,
                            "%lld more slots are needed, and max_slots (%lld for all semaphores) leaves %lld; "
                            "\"kind\":\"counted\" needs none",
                            (long long)more, (long long)settings->max_slots, (long long)max_i64(0, left));
}

/* ---- events ---- */

static struct bytes number_text(struct planner *planner, int64_t number)
{
    char text[24];
    int length = snprintf(text, sizeof text, "%lld", (long long)number);
    return arena_must_copy(planner->arena, (struct bytes){text, (size_t)length});
}

static struct bytes setting_event_text(struct planner *planner, const struct semaphore_setting *setting,
                                       const struct semaphore *semaphore)
{
    if (!setting_is_number(setting))
        return setting_text(setting, semaphore);
    int64_t number = setting_number(setting, semaphore);
    return number == SETTING_NONE ? bytes_of(setting_none_word(setting)) : number_text(planner, number);
}

/* Records each changed setting, with its value before and after. (A note is free text and not recorded.) */
static void record_settings(struct planner *planner, const struct semaphore_image *image,
                            const struct semaphore *before, const struct operation *operation)
{
    for (size_t i = 0; i < SETTING_COUNT; i++) {
        const struct semaphore_setting *setting = &semaphore_settings[i];
        if (!(setting->flags & SETTING_EVENT))
            continue;
        struct bytes from = setting_event_text(planner, setting, before);
        struct bytes to = setting_event_text(planner, setting, image->semaphore);
        if (!bytes_equal(from, to))
            record_event(planner, image,
                         (struct event){.who = operation->principal, .what = setting->column, .from = from, .to = to});
    }
}

/* Records one event for a semaphore that comes into service, else one for each changed setting. */
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
                                .to = number_text(planner, image->semaphore->capacity),
                                .why = operation->why});
}

/*
 * Answers with the current semaphore; config_version rises if a setting has changed. The answer is durable because the
 * version rises in any case.
 */
static void answer_semaphore(const struct planner *planner, struct outcome *outcome, struct semaphore_image *image,
                             const struct semaphore *before)
{
    semaphore_mark_changed(image);
    image->settings = image->insert || planner->label_count > 0 || planner->seat_count > 0 ||
                      !same_settings(before, image->semaphore);
    image->semaphore->config_version += image->settings;
    outcome->semaphore = image->semaphore;
}

/*
 * Checks If-Match and If-None-Match, before any change. `exists`: the semaphore in service, or the template; NULL:
 * missing.
 */
static const char *precondition_refusal(const struct semaphore_change *change, const struct semaphore *exists)
{
    if (change->if_none_match && exists)
        return "it already exists";
    if (change->if_exists && !exists)
        return "it does not exist";
    bool matches = change->match_count == 0;
    for (size_t i = 0; exists && i < change->match_count; i++)
        matches |= change->config_versions[i] == exists->config_version;
    if (!matches)
        return "config_version does not match";
    return NULL;
}

void plan_put(struct planner *planner, struct outcome *outcome, const struct operation *operation)
{
    const struct semaphore_change *change = operation->change;
    struct semaphore_image *image = find_by_name(planner, operation->semaphore);
    bool in_service = image && image->semaphore->retired_at == NEVER;
    const char *refusal = precondition_refusal(change, in_service ? image->semaphore : NULL);
    if (refusal) {
        outcome_refuse(outcome, PERMIT_VERSION_MISMATCH, refusal);
        return;
    }
    if (!in_service && !change->has_capacity) {
        outcome_refuse(outcome, PERMIT_INVALID, "capacity is required to create a semaphore");
        return;
    }
    if (!image)
        image = new_image(planner, operation);
    struct semaphore *semaphore = image->semaphore;
    struct semaphore before = *semaphore;
    apply_settings(semaphore, change, !in_service, planner->settings->default_ttl_ms);
    refusal = settings_refusal(semaphore, change);
    enum permit_status status = refusal ? PERMIT_INVALID : PERMIT_OK;
    if (!refusal && (refusal = slots_refusal(planner, semaphore, before.capacity)))
        status = PERMIT_TOO_MANY;
    if (!refusal && change->has_labels)
        status = planner_change_labels(planner, image, change, &refusal);
    if (status != PERMIT_OK) {
        *semaphore = before;
        outcome_refuse(outcome, status, refusal);
        return;
    }
    adapt_slot_rows(image, before.capacity);
    record_put(planner, image, &before, operation);
    planner_record_labels(planner, image, operation);
    outcome->created = !in_service;
    answer_semaphore(planner, outcome, image, &before);
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
    if (!exists)
        next = (struct semaphore){.kind = change->has_kind ? change->kind : KIND_SLOTTED};
    apply_settings(&next, change, !exists, default_ttl_ms);
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
    struct semaphore_change change = {.if_none_match = true};
    semaphore_change_all(&template->settings, &change);
    return change;
}

/* ---- labels, pause, resume, retire ---- */

/* Returns the semaphore in service with the operation's name. NULL: the outcome is PERMIT_UNKNOWN_SEMAPHORE. */
static struct semaphore_image *find_in_service(struct planner *planner, struct outcome *outcome,
                                               const struct operation *operation)
{
    struct semaphore_image *image = find_by_name(planner, operation->semaphore);
    if (image && image->semaphore->retired_at == NEVER)
        return image;
    outcome_refuse(outcome, PERMIT_UNKNOWN_SEMAPHORE, NULL);
    return NULL;
}

void plan_labels(struct planner *planner, struct outcome *outcome, const struct operation *operation)
{
    struct semaphore_image *image = find_in_service(planner, outcome, operation);
    if (!image)
        return;
    const char *detail = precondition_refusal(operation->change, image->semaphore);
    enum permit_status status =
        detail ? PERMIT_VERSION_MISMATCH : planner_change_labels(planner, image, operation->change, &detail);
    if (status != PERMIT_OK) {
        outcome_refuse(outcome, status, detail);
        return;
    }
    planner_record_labels(planner, image, operation);
    answer_semaphore(planner, outcome, image, image->semaphore);
}

void plan_pause(struct planner *planner, struct outcome *outcome, const struct operation *operation)
{
    struct semaphore_image *image = find_in_service(planner, outcome, operation);
    bool pauses = operation->kind == OP_SEMAPHORE_PAUSE;
    if (!image)
        return;
    const struct semaphore before = *image->semaphore;
    image->semaphore->paused_reason = pauses ? operation->why : (struct bytes){0};
    if (!same_settings(&before, image->semaphore))
        record_event(
            planner, image,
            (struct event){.who = operation->principal, .what = pauses ? "paused" : "resumed", .why = operation->why});
    answer_semaphore(planner, outcome, image, &before);
}

void plan_retire(struct planner *planner, struct outcome *outcome, const struct operation *operation)
{
    struct semaphore_image *image = find_in_service(planner, outcome, operation);
    if (!image)
        return;
    if (image->semaphore->in_use > 0) {
        outcome_refuse(outcome, PERMIT_IN_USE, "permits of the semaphore are held; release them first");
        return;
    }
    const struct semaphore before = *image->semaphore;
    record_event(planner, image, (struct event){.who = operation->principal, .what = "retired", .why = operation->why});
    image->semaphore->retired_at = planner->now;
    image->drop_labels = image->semaphore->kind == KIND_SLOTTED;
    answer_semaphore(planner, outcome, image, &before);
}
