/* SPDX-License-Identifier: MIT */
/*
 * Judges P19. Records which template covered each name at which time: a semaphore is created from a template that
 * existed between call and answer, and no client is answered "unknown" if there was a semaphore or a template all the
 * time.
 */
#include <stdio.h>

#include "world.h"

enum { COVERS_MAX = 32, SLACK_US = 20 * US_PER_SECOND };

/* The template that covers a name from this time on; NULL: none. */
struct cover {
    mono_us from;
    const struct db_template *template;
    struct semaphore settings;
};

/* The latest ones: for each name (indexed like database.semaphores), and for each template. */
static struct covers {
    struct cover last[COVERS_MAX];
    uint64_t count;
} covers[SEMAPHORES_MAX], versions[TEMPLATES_MAX];

static uint64_t undone; /* rows created and then undone */

/* A permitd has created a semaphore above the limit; NEVER: not since it was started. */
static struct too_many {
    uint64_t start;
    mono_us since;
} too_many[PROCESSES_MAX];

/* ---- templates by time ---- */

/* The one `back` changes before the newest; NULL: forgotten, or there was none. */
static const struct cover *cover_before(const struct covers *list, uint64_t back)
{
    return back < list->count && back < COVERS_MAX ? &list->last[(list->count - 1 - back) % COVERS_MAX] : NULL;
}

static bool same_settings(const struct semaphore *a, const struct semaphore *b)
{
    return a->kind == b->kind && a->queue == b->queue && a->capacity == b->capacity &&
           a->default_ttl_ms == b->default_ttl_ms && a->max_ttl_ms == b->max_ttl_ms && a->grace_ms == b->grace_ms &&
           a->max_hold_ms == b->max_hold_ms;
}

static void record_cover(struct covers *list, const struct db_template *template)
{
    const struct cover *last = cover_before(list, 0);
    bool same =
        last && last->template == template && (!template || same_settings(&last->settings, &template->row.settings));
    if (same)
        return;
    list->last[list->count++ % COVERS_MAX] = (struct cover){
        .from = sim_now(), .template = template, .settings = template ? template->row.settings : (struct semaphore){0}};
}

void names_update(struct db_semaphore *semaphore)
{
    bool serves = row_in_service(&semaphore->row);
    if (semaphore->served && !serves) {
        semaphore->left_at = sim_now();
        undone += !semaphore->row.exists;
    }
    if (semaphore->served != serves)
        semaphore->served_at = sim_now();
    semaphore->served = serves;
    if (!serves && !database_template_for(semaphore->row.semaphore.name))
        semaphore->uncovered_at = NEVER;
    else if (semaphore->uncovered_at == NEVER)
        semaphore->uncovered_at = sim_now();
}

void oracle_template_changed(struct db_template *template)
{
    step("template %.*s: %s, capacity %lld", (int)template->prefix.length, template->prefix.data,
         template->row.exists ? semaphore_kind_word(template->row.settings.kind) : "none",
         (long long)template->row.settings.capacity);
    counts.templates_changed++;
    record_cover(&versions[template - database.templates], template->row.exists ? template : NULL);
    for (size_t i = 0; i < database.semaphore_count; i++) {
        record_cover(&covers[i], database_template_for(database.semaphores[i].row.semaphore.name));
        names_update(&database.semaphores[i]);
    }
}

/* ---- created semaphores ---- */

/* The event "created" or "revived" of this commit. */
static const struct event *find_record(const struct changes *changes, const char *what)
{
    for (size_t i = 0; i < changes->event_count; i++)
        if (strcmp(changes->events[i].what, what) == 0)
            return &changes->events[i];
    return NULL;
}

/*
 * Resolve reads names, prefix lengths and templates one after the other. If a name has two changes in between, resolve
 * may see the second and not the first, a state that never existed (docs/reliability.md).
 */
static bool changed_twice(const struct db_semaphore *semaphore, mono_us since)
{
    unsigned changes = semaphore->served_at >= since;
    const struct cover *cover;
    for (size_t i = 0; i < database.template_count; i++)
        if (bytes_begin_with(semaphore->row.semaphore.name, database.templates[i].prefix))
            for (uint64_t back = 0; (cover = cover_before(&versions[i], back)) && cover->from >= since; back++)
                changes++;
    return changes >= 2;
}

/* Returns true if a template with this prefix had these settings at some time since `since`. */
static bool covered_since(const struct covers *list, mono_us since, struct bytes prefix,
                          const struct semaphore *settings)
{
    const struct cover *cover;
    for (uint64_t back = 0; (cover = cover_before(list, back)); back++) {
        if (cover->template && bytes_equal(cover->template->prefix, prefix) &&
            same_settings(&cover->settings, settings))
            return true;
        if (cover->from < since)
            return false;
    }
    return list->count > COVERS_MAX; /* more changes than are recorded */
}

static bool is_created_correctly(const struct db_semaphore *semaphore, mono_us asked_at, struct bytes prefix)
{
    const struct semaphore *row = &semaphore->row.semaphore;
    if (covered_since(&covers[semaphore - database.semaphores], asked_at, prefix, row))
        return true;
    for (size_t i = 0; i < database.template_count && changed_twice(semaphore, asked_at); i++)
        if (bytes_equal(database.templates[i].prefix, prefix))
            return covered_since(&versions[i], asked_at, prefix, row);
    return false;
}

/*
 * Templates stop creating at about max_semaphores. A permitd that creates one too many counts them within seconds and
 * then creates no more.
 */
static void check_max_semaphores(const struct db_semaphore *semaphore, mono_us asked_at)
{
    int process = process_current();
    struct too_many *over = &too_many[process];
    if (!fiber_current()) /* its session is lost, so its process is unknown */
        return;
    if (over->start != world.servers[process].starts || database_count_semaphores() <= profile.max_semaphores)
        *over = (struct too_many){.start = world.servers[process].starts, .since = NEVER};
    if (database_count_semaphores() > profile.max_semaphores)
        over->since = min_i64(over->since, sim_now());
    if (over->since != NEVER && asked_at > over->since + SLACK_US)
        violation("P19", "%s is created %lld s after max_semaphores was reached", semaphore->name,
                  (long long)((sim_now() - over->since) / US_PER_SECOND));
}

void names_created(struct db_semaphore *semaphore, const struct db_semaphore_row *before, const struct changes *changes)
{
    static const char why_template[] = "template ";
    const size_t skipped = sizeof why_template - 1;
    const struct event *record = find_record(changes, before->exists ? "revived" : "created");
    char who[24] = "";
    if (!record)
        violation("P19", "%s is created without an event", semaphore->name);
    step("%s is %s: %.*s, capacity %lld", semaphore->name, record->what, (int)record->why.length, record->why.data,
         (long long)semaphore->row.semaphore.capacity);
    if (!record->why.data)
        return; /* by an operator */
    if (record->who.length && record->who.length < sizeof who)
        memcpy(who, record->who.data, record->who.length);
    mono_us asked_at = strtoll(who, NULL, 10);
    counts.made += !before->exists;
    counts.revived += before->exists;
    struct bytes prefix = {record->why.data + skipped, record->why.length - skipped};
    if (!is_created_correctly(semaphore, asked_at, prefix))
        violation("P19", "%s is created with settings that no template had since the acquire was sent, %lld us ago",
                  semaphore->name, (long long)(sim_now() - asked_at));
    if (!before->exists)
        check_max_semaphores(semaphore, asked_at);
}

/* ---- refusals ---- */

/*
 * An answer "unknown": at some time of the call the name had neither a semaphore nor a template, or its semaphore went
 * out of service.
 */
static void check_unknown(const struct call *call)
{
    const struct story *story = call->story;
    for (size_t i = 0; i < story->want_count; i++) {
        const struct db_semaphore *semaphore = story->semaphores[i];
        if (semaphore->uncovered_at >= call->sent_at || semaphore->left_at >= call->sent_at ||
            changed_twice(semaphore, call->sent_at))
            return;
    }
    violation("P19", "%s is answered unknown_semaphore, but each name had a semaphore or a template", story->key->text);
}

/* Recently created semaphores may count twice. */
static void check_too_many(const struct call *call)
{
    uint64_t count = database_count_semaphores() + undone;
    for (size_t i = 0; i < database.semaphore_count; i++)
        count += database.semaphores[i].set_at > sim_now() - SLACK_US;
    if (count < profile.max_semaphores)
        violation("P19", "%s is answered too_many_semaphores, but there are only %llu", call->story->key->text,
                  (unsigned long long)count);
}

void names_refused(const struct call *call, const struct decision *decision)
{
    if (decision->status == PERMIT_UNKNOWN_SEMAPHORE)
        check_unknown(call);
    if (decision->status == PERMIT_TOO_MANY && decision->detail && strstr(decision->detail, "templates"))
        check_too_many(call);
    if (decision->status == PERMIT_VERSION_MISMATCH || decision->status == PERMIT_IN_USE)
        violation("P19", "%s is answered %s, which is the result of a semaphore's creation", call->story->key->text,
                  permit_status_word(decision->status));
}
