/* SPDX-License-Identifier: MIT */
/*
 * P19, judged: what stood behind each name at what time, so that a semaphore is made from a template that stood between
 * a call and its answer, and nobody is told that there is none while there was something all the time.
 */
#include <stdio.h>

#include "site.h"

enum { STANDINGS = 32, SLACK_US = 20 * US_PER_SECOND };

/* The template that was for a name from this moment on; NULL: none. */
struct standing {
    mono_us from;
    const struct db_template *template;
    struct semaphore settings;
};

/* The last ones: for each name, as in database.semaphores, and of each template itself. */
static struct standings {
    struct standing last[STANDINGS];
    uint64_t count;
} standings[SEMAPHORES_MAX], versions[TEMPLATES_MAX];

static uint64_t undone; /* rows that were made, and then never were */

/* A permitd has made one more than there are to be; NEVER: not since it was started. */
static struct too_many {
    uint64_t start;
    mono_us since;
} too_many[PROCESSES_MAX];

/* ---- what stood when ---- */

/* The one before the newest that is `back` changes ago; NULL: it is forgotten, or there was none. */
static const struct standing *standing_before(const struct standings *list, uint64_t back)
{
    return back < list->count && back < STANDINGS ? &list->last[(list->count - 1 - back) % STANDINGS] : NULL;
}

static bool same_settings(const struct semaphore *a, const struct semaphore *b)
{
    return a->kind == b->kind && a->queue == b->queue && a->capacity == b->capacity &&
           a->default_ttl_ms == b->default_ttl_ms && a->max_ttl_ms == b->max_ttl_ms && a->grace_ms == b->grace_ms &&
           a->max_hold_ms == b->max_hold_ms;
}

static void note_standing(struct standings *list, const struct db_template *template)
{
    const struct standing *last = standing_before(list, 0);
    bool same =
        last && last->template == template && (!template || same_settings(&last->settings, &template->row.settings));
    if (same)
        return;
    list->last[list->count++ % STANDINGS] = (struct standing){
        .from = sim_now(), .template = template, .settings = template ? template->row.settings : (struct semaphore){0}};
}

void names_follow(struct db_semaphore *semaphore)
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
    note_standing(&versions[template - database.templates], template->row.exists ? template : NULL);
    for (size_t i = 0; i < database.semaphore_count; i++) {
        note_standing(&standings[i], database_template_for(database.semaphores[i].row.semaphore.name));
        names_follow(&database.semaphores[i]);
    }
}

/* ---- what was made ---- */

/* "created" or "revived", of this commit. */
static const struct event *find_record(const struct changes *changes, const char *what)
{
    for (size_t i = 0; i < changes->event_count; i++)
        if (strcmp(changes->events[i].what, what) == 0)
            return &changes->events[i];
    return NULL;
}

/*
 * Step 0 reads names, how long prefixes are, and templates one after the other: of two changes behind a name in between
 * it may see the second and not the first, as there was no moment when it was so (docs/reliability.md).
 */
static bool changed_twice(const struct db_semaphore *semaphore, mono_us since)
{
    unsigned changes = semaphore->served_at >= since;
    const struct standing *standing;
    for (size_t i = 0; i < database.template_count; i++)
        if (bytes_begin_with(semaphore->row.semaphore.name, database.templates[i].prefix))
            for (uint64_t back = 0; (standing = standing_before(&versions[i], back)) && standing->from >= since; back++)
                changes++;
    return changes >= 2;
}

/* A template of this prefix stood at some moment since then, and has these settings. */
static bool stood_since(const struct standings *list, mono_us since, struct bytes prefix,
                        const struct semaphore *settings)
{
    const struct standing *standing;
    for (uint64_t back = 0; (standing = standing_before(list, back)); back++) {
        if (standing->template && bytes_equal(standing->template->prefix, prefix) &&
            same_settings(&standing->settings, settings))
            return true;
        if (standing->from < since)
            return false;
    }
    return list->count > STANDINGS; /* too many to remember */
}

static bool is_made_rightly(const struct db_semaphore *semaphore, mono_us asked_at, struct bytes prefix)
{
    const struct semaphore *row = &semaphore->row.semaphore;
    if (stood_since(&standings[semaphore - database.semaphores], asked_at, prefix, row))
        return true;
    for (size_t i = 0; i < database.template_count && changed_twice(semaphore, asked_at); i++)
        if (bytes_equal(database.templates[i].prefix, prefix))
            return stood_since(&versions[i], asked_at, prefix, row);
    return false;
}

/*
 * "Templates make no more once there are about as many": a permitd that makes one too many counts them within seconds,
 * and makes no others.
 */
static void check_many(const struct db_semaphore *semaphore, mono_us asked_at)
{
    int process = process_current();
    struct too_many *over = &too_many[process];
    if (!fiber_current()) /* its session is gone, nobody knows whose that was */
        return;
    if (over->start != site.servers[process].starts || database_count_semaphores() <= profile.max_semaphores)
        *over = (struct too_many){.start = site.servers[process].starts, .since = NEVER};
    if (database_count_semaphores() > profile.max_semaphores)
        over->since = min_i64(over->since, sim_now());
    if (over->since != NEVER && asked_at > over->since + SLACK_US)
        violation("P19", "%s is made %lld s after there were too many semaphores", semaphore->name,
                  (long long)((sim_now() - over->since) / US_PER_SECOND));
}

void names_made(struct db_semaphore *semaphore, const struct semaphore_row *before, const struct changes *changes)
{
    static const char why_template[] = "template ";
    const size_t skipped = sizeof why_template - 1;
    const struct event *record = find_record(changes, before->exists ? "revived" : "created");
    char who[24] = "";
    if (!record)
        violation("P19", "%s is made without a record", semaphore->name);
    step("%s is %s: %.*s, capacity %lld", semaphore->name, record->what, (int)record->why.length, record->why.data,
         (long long)semaphore->row.semaphore.capacity);
    if (!record->why.data)
        return; /* by an operator */
    if (record->who.length < sizeof who)
        memcpy(who, record->who.data, record->who.length);
    mono_us asked_at = strtoll(who, NULL, 10);
    counts.made += !before->exists;
    counts.revived += before->exists;
    struct bytes prefix = {record->why.data + skipped, record->why.length - skipped};
    if (!is_made_rightly(semaphore, asked_at, prefix))
        violation("P19", "%s is made as no template says that stood since somebody asked for it, %lld us ago",
                  semaphore->name, (long long)(sim_now() - asked_at));
    if (!before->exists)
        check_many(semaphore, asked_at);
}

/* ---- what was said ---- */

/* "One that was refused as unknown": at some moment of the call there was neither; or it went out of service. */
static void check_unknown(const struct call *call)
{
    const struct story *story = call->story;
    for (size_t i = 0; i < story->want_count; i++) {
        const struct db_semaphore *semaphore = story->semaphores[i];
        if (semaphore->uncovered_at >= call->sent_at || semaphore->left_at >= call->sent_at ||
            changed_twice(semaphore, call->sent_at))
            return;
    }
    violation("P19", "%s is told that a semaphore of it is unknown, and all had one or a template", story->key->text);
}

/* What was made lately may be counted twice. */
static void check_full(const struct call *call)
{
    uint64_t count = database_count_semaphores() + undone;
    for (size_t i = 0; i < database.semaphore_count; i++)
        count += database.semaphores[i].set_at > sim_now() - SLACK_US;
    if (count < profile.max_semaphores)
        violation("P19", "%s is told that there are too many semaphores, of which there are %llu",
                  call->story->key->text, (unsigned long long)count);
}

void names_refused(const struct call *call, const struct decision *decision)
{
    if (decision->status == PERMIT_UNKNOWN_SEMAPHORE)
        check_unknown(call);
    if (decision->status == PERMIT_TOO_MANY && decision->detail && strstr(decision->detail, "templates"))
        check_full(call);
    if (decision->status == PERMIT_VERSION_MISMATCH || decision->status == PERMIT_IN_USE)
        violation("P19", "%s is told %s, which was said of the making of a semaphore", call->story->key->text,
                  permit_status_word(decision->status));
}
