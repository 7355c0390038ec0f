/* SPDX-License-Identifier: MIT */
/* The effect of PUT on a template, and of a template on a new semaphore. */
#include <criterion/criterion.h>

#include "core/template.h"

enum { TTL_MS = 1234 };

/* Returns a template with this version; 0: the template does not exist. */
static struct template template_of(uint64_t version)
{
    struct template template = {.prefix = BYTES("user:")};
    const struct semaphore_change change = {.has_capacity = true, .capacity = 3, .has_note = true, .note = BYTES("n")};
    const char *refusal;
    if (version)
        cr_assert_eq(template_apply(&template, false, &change, TTL_MS, &refusal), PERMIT_OK);
    template.settings.config_version = version;
    return template;
}

Test(template, template_is_created_with_the_defaults_of_a_semaphore)
{
    struct template template = template_of(1);
    const struct semaphore *settings = &template.settings;
    cr_assert(settings->kind == KIND_SLOTTED && settings->queue == QUEUE_BACKFILL && settings->capacity == 3);
    cr_assert(settings->default_ttl_ms == TTL_MS && settings->max_ttl_ms == -1 && settings->grace_ms == 0);
    cr_assert_eq(settings->max_hold_ms, DEFAULT_MAX_HOLD_MS);
}

Test(template, template_is_changed_by_the_rules_of_a_semaphore)
{
    static const struct {
        const char *what;
        uint64_t version; /* before; 0: none */
        struct semaphore_change change;
        enum permit_status status;
        uint64_t after; /* config_version after it */
    } cases[] = {
        {"made", 0, {.has_capacity = true, .capacity = 1}, PERMIT_OK, 1},
        {"made without capacity", 0, {.has_note = true}, PERMIT_INVALID, 0},
        {"too many slots", 0, {.has_capacity = true, .capacity = 65537}, PERMIT_INVALID, 0},
        {"many units",
         0,
         {.has_capacity = true, .capacity = 65537, .has_kind = true, .kind = KIND_COUNTED},
         PERMIT_OK,
         1},
        {"changed", 7, {.has_grace = true, .grace_ms = 5}, PERMIT_OK, 8},
        {"another kind", 7, {.has_kind = true, .kind = KIND_COUNTED}, PERMIT_INVALID, 7},
        {"default_ttl over max_ttl", 7, {.has_max_ttl = true, .max_ttl_ms = 1}, PERMIT_INVALID, 7},
        {"labels", 7, {.has_labels = true}, PERMIT_INVALID, 7},
        {"if there is none, and there is", 7, {.if_none_match = true}, PERMIT_VERSION_MISMATCH, 7},
        {"if there is none", 0, {.if_none_match = true, .has_capacity = true}, PERMIT_OK, 1},
        {"if it is this one",
         7,
         {.match_count = 1, .config_versions = {7}, .has_grace = true, .grace_ms = 5},
         PERMIT_OK,
         8},
        {"if it is one of these", 7, {.match_count = 2, .config_versions = {6, 7}}, PERMIT_OK, 7},
        {"if there is one", 7, {.if_exists = true}, PERMIT_OK, 7},
        {"if there is one, and there is none",
         0,
         {.if_exists = true, .has_capacity = true},
         PERMIT_VERSION_MISMATCH,
         0},
        {"the same again", 7, {.has_capacity = true, .capacity = 3, .has_note = true, .note = {"n", 1}}, PERMIT_OK, 7},
        {"another note", 7, {.has_note = true, .note = {"m", 1}}, PERMIT_OK, 8},
        {"no note", 7, {.has_note = true}, PERMIT_OK, 8},
        {"if it is another one", 7, {.match_count = 1, .config_versions = {6}}, PERMIT_VERSION_MISMATCH, 7},
        {"if it is one that is not", 0, {.match_count = 1, .config_versions = {1}}, PERMIT_VERSION_MISMATCH, 0},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct template template = template_of(cases[i].version);
        const char *refusal = NULL;
        enum permit_status status = template_apply(&template, cases[i].version, &cases[i].change, TTL_MS, &refusal);
        cr_assert_eq(status, cases[i].status, "%s: %s", cases[i].what, refusal);
        cr_assert_eq(refusal == NULL, status == PERMIT_OK, "%s", cases[i].what);
        cr_assert_eq(template.settings.config_version, cases[i].after, "%s", cases[i].what);
        cr_assert(bytes_equal(template.prefix, BYTES("user:")), "%s", cases[i].what);
    }
}

Test(template, template_gives_a_semaphore_all_its_settings)
{
    struct template template = template_of(7);
    struct semaphore_change change = template_change(&template);
    cr_assert(change.if_none_match && !change.match_count && !change.if_exists && !change.has_labels);
    cr_assert(change.has_capacity && change.has_kind && change.has_default_ttl && change.has_max_ttl);
    cr_assert(change.has_grace && change.has_max_hold && change.has_queue && change.has_note);
    cr_assert(change.capacity == 3 && change.default_ttl_ms == TTL_MS && change.max_ttl_ms == -1);
    cr_assert(bytes_equal(change.note, BYTES("n")));
    template.settings.note = (struct bytes){0};
    cr_assert_not(template_change(&template).has_note);
}
