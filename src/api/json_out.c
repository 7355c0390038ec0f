/* SPDX-License-Identifier: MIT */
#include "api/json_out.h"

#include <assert.h>

#include "base/clock.h"
#include "base/utf8.h"
#include "store/sql_accounts.h"

/* Writes a character that must be escaped or checked. Returns the number of bytes used. */
static size_t write_escaped(struct buf *out, const unsigned char *at, size_t left)
{
    if (*at == '"' || *at == '\\') {
        buf_append_char(out, '\\');
        buf_append_char(out, (char)*at);
        return 1;
    }
    if (*at < 0x20 || *at == 0x7F) {
        buf_append_text(out, "\\u00");
        buf_append_hex(out, at, 1);
        return 1;
    }
    size_t length = utf8_length(at, left);
    if (length)
        buf_append(out, at, length);
    else
        buf_append_text(out, "\\ufffd");
    return length ? length : 1;
}

void write_text(struct buf *out, struct bytes text)
{
    const unsigned char *at = (const unsigned char *)text.data;
    size_t done = 0;
    buf_append_char(out, '"');
    while (done < text.length) {
        size_t plain = done;
        while (plain < text.length && at[plain] >= 0x20 && at[plain] < 0x7F && at[plain] != '"' && at[plain] != '\\')
            plain++;
        buf_append(out, at + done, plain - done);
        done = plain;
        if (done < text.length)
            done += write_escaped(out, at + done, text.length - done);
    }
    buf_append_char(out, '"');
}

void write_time(struct buf *out, utc_us time)
{
    char text[RFC3339_SIZE];
    size_t length = clock_format_rfc3339(time, text);
    buf_append_char(out, '"');
    buf_append(out, text, length);
    buf_append_char(out, '"');
}

static void write_name(struct buf *out, const char *name)
{
    buf_append(out, ",\"", 2);
    buf_append_text(out, name);
    buf_append(out, "\":", 2);
}

static void write_list_begin(struct buf *out, const char *name)
{
    write_name(out, name);
    buf_append_char(out, '[');
}

void write_member_text(struct buf *out, const char *name, struct bytes text)
{
    write_name(out, name);
    write_text(out, text);
}

void write_member_i64(struct buf *out, const char *name, int64_t number)
{
    write_name(out, name);
    buf_append_i64(out, number);
}

void write_member_u64(struct buf *out, const char *name, uint64_t number)
{
    write_name(out, name);
    buf_append_u64(out, number);
}

void write_member_bool(struct buf *out, const char *name, bool value)
{
    write_name(out, name);
    buf_append_text(out, value ? "true" : "false");
}

/* ---- keys and owners ---- */

/* Writes ,"namespace":"..." of a key that the viewer sees, if it is not his own namespace. */
static void write_namespace(struct buf *out, const struct viewer *viewer, struct bytes stored)
{
    if (viewer_needs_namespace(viewer, stored))
        write_member_text(out, "namespace", key_split(stored).namespace);
}

void write_member_key(struct buf *out, const struct viewer *viewer, const char *name, struct bytes stored)
{
    if (!viewer_sees(viewer, stored))
        return;
    write_member_text(out, name, key_split(stored).key);
    write_namespace(out, viewer, stored);
}

void write_key_begin(struct buf *out, const struct viewer *viewer, struct bytes stored)
{
    if (!viewer_sees(viewer, stored)) {
        buf_append_text(out, "{\"hidden\":true");
        return;
    }
    buf_append_text(out, "{\"external_id\":");
    write_text(out, key_split(stored).key);
    write_namespace(out, viewer, stored);
}

void write_owner(struct buf *out, const struct viewer *viewer, struct bytes stored)
{
    if (stored.length && viewer_sees(viewer, stored))
        write_member_text(out, "owner", key_split(stored).key);
}

/*
 * Writes ,"name":["key",...] of the keys that the viewer may see and, if one of them is of another namespace,
 * ,"name_namespaces":["namespace",...] in the same order.
 */
static void write_keys(struct buf *out, const struct viewer *viewer, const char *name, const char *name_namespaces,
                       const struct bytes *keys, size_t count)
{
    const char *between = "";
    bool others = false;
    write_list_begin(out, name);
    for (size_t i = 0; i < count; i++) {
        if (!viewer_sees(viewer, keys[i]))
            continue;
        buf_append_text(out, between);
        write_text(out, key_split(keys[i]).key);
        between = ",";
        others |= viewer_needs_namespace(viewer, keys[i]);
    }
    buf_append_char(out, ']');
    if (!others) /* only a viewer that sees all keys sees others */
        return;
    write_list_begin(out, name_namespaces);
    for (size_t i = 0; i < count; i++) {
        buf_append_text(out, i ? "," : "");
        write_text(out, key_split(keys[i]).namespace);
    }
    buf_append_char(out, ']');
}

/* ---- requests ---- */

/* Writes a time of the database's clock; nothing for NEVER. */
static void write_member_time(struct buf *out, const char *name, utc_us time)
{
    if (time == NEVER)
        return;
    write_name(out, name);
    write_time(out, time);
}

static void write_slots(struct buf *out, const struct slots *slots)
{
    write_list_begin(out, "slots");
    for (uint32_t i = 0; i < slots->count; i++) {
        if (i)
            buf_append_char(out, ',');
        buf_append_u64(out, slots->numbers[i]);
    }
    buf_append_char(out, ']');
}

/* Writes the labels of the slots at the time of the grant. */
static void write_labels(struct buf *out, const struct bytes *labels, uint32_t count)
{
    write_list_begin(out, "labels");
    for (uint32_t i = 0; i < count; i++) {
        if (i)
            buf_append_char(out, ',');
        if (labels[i].length)
            write_text(out, labels[i]);
        else
            buf_append_text(out, "null");
    }
    buf_append_char(out, ']');
}

/* Writes count, token and slots of a permit. A counted permit has no slots. */
static void write_permit(struct buf *out, const struct permit *permit)
{
    write_member_i64(out, "count", permit->count);
    write_member_u64(out, "token", permit->token);
    if (permit->slots.count)
        write_slots(out, &permit->slots);
    if (permit->slots.count && permit->labels)
        write_labels(out, permit->labels, permit->slots.count);
}

void write_feed_event(struct buf *out, const struct viewer *viewer, const struct feed_row *event, uint64_t epoch,
                      const struct feed_permit *permits, size_t count)
{
    buf_append_text(out, "{\"cursor\":\"");
    feed_position_format((struct feed_position){epoch, event->seq}, out);
    buf_append_text(out, "\",\"at\":");
    write_time(out, event->at);
    write_member_text(out, "what", bytes_of(feed_what_word(event->what)));
    if (event->end_reason != END_NONE)
        write_member_text(out, "end_reason", bytes_of(end_reason_word((enum end_reason)event->end_reason)));
    if (event->external_id.length)
        write_member_key(out, viewer, "external_id", event->external_id);
    write_owner(out, viewer, event->owner);
    if (event->principal.length && viewer->sees_all)
        write_member_text(out, "principal", event->principal);
    for (size_t i = 0; i < count; i++) {
        buf_append_text(out, i ? "},{" : ",\"permits\":[{");
        buf_append_text(out, "\"semaphore\":");
        write_text(out, permits[i].semaphore);
        write_member_i64(out, "count", permits[i].count);
        if (permits[i].token)
            write_member_u64(out, "token", permits[i].token);
        if (permits[i].slots.count)
            write_slots(out, &permits[i].slots);
    }
    buf_append_text(out, count ? "}]" : "");
    write_metadata(out, viewer, event->external_id, event->metadata);
    buf_append_char(out, '}');
}

/* Orders the permits by the names of their semaphores. Those of a grant are in this order, those of a row are not. */
static void order_by_name(const struct bytes *names, size_t count, size_t *ret_order)
{
    for (size_t i = 0; i < count; i++) {
        size_t at = i;
        for (; at > 0 && bytes_compare(names[ret_order[at - 1]], names[i]) > 0; at--)
            ret_order[at] = ret_order[at - 1];
        ret_order[at] = i;
    }
}

static void write_permits(struct buf *out, const struct request *request, const struct permit_facts *facts)
{
    size_t order[REQUEST_MAX_SEMAPHORES];
    assert(request->permit_count <= REQUEST_MAX_SEMAPHORES);
    order_by_name(facts->names, request->permit_count, order);
    write_list_begin(out, "permits");
    for (size_t n = 0; n < request->permit_count; n++) {
        size_t i = order[n];
        buf_append_text(out, n ? ",{\"semaphore\":" : "{\"semaphore\":");
        write_text(out, facts->names[i]);
        write_permit(out, &request->permits[i]);
        if (facts->floors)
            write_member_u64(out, "floor", facts->floors[i]);
        if (facts->available)
            write_member_i64(out, "available", facts->available[i]);
        buf_append_char(out, '}');
    }
    buf_append_char(out, ']');
}

/*
 * Returns when the lease clock reaches `served`, by the database's clock. Only the remaining time of the lease clock
 * counts, because the database's clock may have been stepped since the last tick.
 */
static utc_us deadline_to_wall(utc_us served, const struct query_time *time)
{
    return served == NEVER ? NEVER : time->now + (served - lease_time(&time->clock, time->now));
}

/* Writes expires_at and expires_in_ms; nothing for NEVER. */
static void write_expiry(struct buf *out, utc_us expires_at, const struct query_time *time)
{
    if (expires_at == NEVER)
        return;
    write_member_time(out, "expires_at", deadline_to_wall(expires_at, time));
    write_member_i64(out, "expires_in_ms", lease_left_us(&time->clock, expires_at) / US_PER_MS);
}

static void write_deadline(struct buf *out, const struct request *request, const struct query_time *time)
{
    if (request->confirmed_at != NEVER) {
        write_name(out, "expires_at");
        buf_append_text(out, "null");
    }
    write_expiry(out, request_expires_at(request), time);
}

/* Writes ,"unclaimed":true for a grant that no client has been told. */
static void write_unclaimed(struct buf *out, const struct request *request)
{
    if (request->state == REQUEST_ACQUIRED && request->server_id)
        write_member_bool(out, "unclaimed", true);
}

void write_request_begin(struct buf *out, const struct viewer *viewer, const struct request *request,
                         const struct permit_facts *facts, const struct query_time *time)
{
    write_key_begin(out, viewer, request->external_id);
    write_member_text(out, "state", bytes_of(request_state_word(request->state)));
    write_unclaimed(out, request);
    write_owner(out, viewer, request->owner);
    write_permits(out, request, facts);
    write_member_u64(out, "changes", request->changes);
    if (request->ttl_ms == TTL_BY_OWNER)
        buf_append_text(out, ",\"ttl\":\"owner\",\"ttl_ms\":null");
    else if (request->ttl_ms != TTL_NONE && request->end_reason != END_NEVER_HELD)
        write_member_i64(out, "ttl_ms", request->ttl_ms);
    write_member_time(out, "acquired_at", lease_to_wall(&time->clock, request->acquired_at));
    write_member_time(out, "confirmed_at", lease_to_wall(&time->clock, request->confirmed_at));
    if (request->state == REQUEST_RELEASED) {
        write_member_text(out, "end_reason", bytes_of(end_reason_word(request->end_reason)));
        write_member_time(out, "ended_at", lease_to_wall(&time->clock, request->ended_at));
        write_member_time(out, "forgotten_at", lease_to_wall(&time->clock, request->due_at));
    } else {
        write_deadline(out, request, time);
    }
}

void write_metadata(struct buf *out, const struct viewer *viewer, struct bytes external_id, struct bytes metadata)
{
    if (!metadata.data || !viewer_sees(viewer, external_id))
        return;
    write_name(out, "metadata");
    buf_append(out, metadata.data, metadata.length);
}

void write_overdue(struct buf *out, const struct request *request, const struct lease_clock *clock)
{
    if (request->state == REQUEST_ACQUIRED)
        write_member_bool(out, "overdue", request->due_at <= clock->due);
}

void write_suspect(struct buf *out, const struct request *request, bool suspect)
{
    if (request->state == REQUEST_ACQUIRED)
        write_member_bool(out, "suspect", suspect);
}

/* Writes the settings that the viewer sees, after kind and capacity, which have their places at the beginning. */
static void write_settings(struct buf *out, const struct viewer *viewer, const struct semaphore *semaphore)
{
    for (size_t i = SETTING_default_ttl; i < SETTING_COUNT; i++) {
        const struct semaphore_setting *setting = &semaphore_settings[i];
        struct bytes text = setting_text(setting, semaphore);
        bool is_private = setting->flags & SETTING_OPERATE;
        if (text.data && is_private && viewer->sees_all)
            write_member_text(out, setting->column, key_split(text).key);
        else if (text.data && !is_private)
            write_member_text(out, setting->column, text);
        else if (setting_is_number(setting) && setting_number(setting, semaphore) != SETTING_NONE)
            write_member_i64(out, setting->column, setting_number(setting, semaphore));
        else if (setting->type == SETTING_DURATION_OR_STRICT)
            write_member_text(out, setting->name, bytes_of(setting_none_word(setting)));
    }
    if (semaphore->paused_reason.data)
        write_member_text(out, "paused_reason", semaphore->paused_reason);
}

/* floor 0, oldest_wait_ms -1: not written. */
static void write_semaphore_members(struct buf *out, const struct viewer *viewer, const struct semaphore *semaphore,
                                    uint64_t floor, int64_t oldest_wait_ms)
{
    buf_append_text(out, "{\"name\":");
    write_text(out, semaphore->name);
    write_member_text(out, "kind", bytes_of(semaphore_kind_word(semaphore->kind)));
    write_member_i64(out, "capacity", semaphore->capacity);
    write_member_i64(out, "in_use", semaphore->in_use);
    write_member_i64(out, "available", semaphore_available(semaphore));
    write_member_i64(out, "waiting", semaphore->waiting);
    if (oldest_wait_ms >= 0)
        write_member_i64(out, "oldest_wait_ms", oldest_wait_ms);
    write_member_u64(out, "next_token", semaphore->next_token);
    if (floor)
        write_member_u64(out, "floor", floor);
    write_member_u64(out, "version", semaphore->version);
    write_member_u64(out, "config_version", semaphore->config_version);
    write_settings(out, viewer, semaphore);
    if (semaphore->retired_at != NEVER)
        write_member_bool(out, "retired", true);
}

void write_semaphore_begin(struct buf *out, const struct viewer *viewer, const struct semaphore *semaphore)
{
    write_semaphore_members(out, viewer, semaphore, 0, -1);
}

void write_semaphore(struct buf *out, const struct viewer *viewer, const struct semaphore *semaphore)
{
    write_semaphore_begin(out, viewer, semaphore);
    buf_append_char(out, '}');
}

/* Returns the time since a moment of the lease clock. */
static int64_t elapsed_ms(utc_us since, const struct query_time *time)
{
    return max_i64(0, (lease_time(&time->clock, time->now) - since) / US_PER_MS);
}

void write_semaphore_row(struct buf *out, const struct viewer *viewer, const struct semaphore_row *row,
                         const struct query_time *time)
{
    int64_t oldest_wait_ms = row->waiting_since == NEVER ? 0 : elapsed_ms(row->waiting_since, time);
    write_semaphore_members(out, viewer, &row->semaphore, row->floor, oldest_wait_ms);
    buf_append_char(out, '}');
}

void write_availability(struct buf *out, const struct availability *row)
{
    buf_append_text(out, "{\"name\":");
    write_text(out, row->name);
    write_member_i64(out, "available", row->available);
    write_member_i64(out, "waiting", row->waiting);
    write_member_u64(out, "version", row->version);
    buf_append_char(out, '}');
}

void write_sql_account_begin(struct buf *out, const struct sql_account *account)
{
    buf_append_text(out, "{\"user\":");
    write_text(out, account->user);
    write_member_text(out, "namespace", account->namespace);
}

void write_sql_account(struct buf *out, const struct sql_account *account)
{
    write_sql_account_begin(out, account);
    buf_append_char(out, '}');
}

void write_template(struct buf *out, const struct viewer *viewer, const struct template *template)
{
    const struct semaphore *settings = &template->settings;
    buf_append_text(out, "{\"prefix\":");
    write_text(out, template->prefix);
    write_member_text(out, "kind", bytes_of(semaphore_kind_word(settings->kind)));
    write_member_i64(out, "capacity", settings->capacity);
    write_member_u64(out, "config_version", settings->config_version);
    write_settings(out, viewer, settings);
    buf_append_char(out, '}');
}

void write_event(struct buf *out, const struct viewer *viewer, const struct event_row *event)
{
    buf_append_text(out, "{\"at\":");
    write_time(out, event->at);
    if (event->who.length)
        write_member_text(out, "who", event->who);
    write_member_text(out, "what", event->what);
    bool names_key = bytes_equal(event->what, BYTES("forced"));
    if (event->from.data && names_key)
        write_member_key(out, viewer, "from", event->from);
    else if (event->from.data)
        write_member_text(out, "from", event->from);
    if (event->to.data)
        write_member_text(out, "to", event->to);
    if (event->why.data)
        write_member_text(out, "why", event->why);
    if (event->next_token) /* 0: a change of an SQL account */
        write_member_u64(out, "next_permit_id", event->next_token);
    buf_append_char(out, '}');
}

void write_holder(struct buf *out, const struct viewer *viewer, const struct holder_row *holder,
                  const struct query_time *time, bool suspect)
{
    const struct request *request = &holder->request;
    write_key_begin(out, viewer, request->external_id);
    write_owner(out, viewer, request->owner);
    write_unclaimed(out, request);
    write_permit(out, &holder->permit);
    write_member_time(out, "acquired_at", lease_to_wall(&time->clock, request->acquired_at));
    write_member_time(out, "confirmed_at", lease_to_wall(&time->clock, request->confirmed_at));
    write_deadline(out, request, time);
    write_overdue(out, request, &time->clock);
    write_suspect(out, request, suspect);
    buf_append_char(out, '}');
}

static void write_seat(struct buf *out, const struct seat *seat)
{
    if (seat->section.length)
        write_member_text(out, "section", seat->section);
    if (seat->row.length)
        write_member_text(out, "row", seat->row);
    if (seat->position)
        write_member_u64(out, "seat", seat->position);
    if (seat->rank != SEAT_RANK_NONE)
        write_member_u64(out, "rank", seat->rank);
    if (seat->tags.length == 0)
        return;
    write_list_begin(out, "tags");
    struct bytes rest = seat->tags, tag;
    for (const char *comma = ""; seat_next_tag(&rest, &tag); comma = ",") {
        buf_append_text(out, comma);
        write_text(out, tag);
    }
    buf_append_char(out, ']');
}

void write_slot(struct buf *out, const struct viewer *viewer, const struct slot_list_row *slot,
                const struct query_time *time)
{
    const struct request *request = &slot->request;
    buf_append_text(out, "{\"number\":");
    buf_append_u64(out, slot->number);
    if (slot->label.data)
        write_member_text(out, "label", slot->label);
    write_seat(out, &slot->seat);
    if (slot->token) {
        write_member_u64(out, "token", slot->token);
        write_member_key(out, viewer, "external_id", request->external_id);
        if (request->confirmed_at != NEVER)
            write_member_bool(out, "confirmed", true);
        write_member_time(out, "expires_at", deadline_to_wall(request_expires_at(request), time));
    }
    buf_append_char(out, '}');
}

/* Writes as `name` and `name`_in_ms when a wait ends, or until when a place is kept (kept_until, 0: it is not). */
static void write_wait_end(struct buf *out, const char *name, const char *name_in_ms, const struct request *request,
                           utc_us kept_until, const struct query_time *time)
{
    utc_us end = kept_until ? kept_until : request->waiting_until;
    write_member_time(out, name, deadline_to_wall(end, time));
    write_member_i64(out, name_in_ms, lease_left_us(&time->clock, end) / US_PER_MS);
}

/* Writes since when a request waits, and its priority. */
static void write_wait_begin(struct buf *out, const struct request *request, const struct query_time *time)
{
    write_member_i64(out, "priority", request->priority);
    write_member_time(out, "since", lease_to_wall(&time->clock, request->waiting_since));
    write_member_i64(out, "waited_ms", elapsed_ms(request->waiting_since, time));
}

/* Writes the permitd at which the client of a waiting request is, or that no client asks for it. */
static void write_client(struct buf *out, const struct request *request, bool kept)
{
    if (kept)
        write_member_bool(out, "kept", true);
    else
        write_member_u64(out, "server", request->server_id);
}

void write_wait(struct buf *out, const struct request *request, utc_us kept_until, const struct query_time *time)
{
    write_wait_begin(out, request, time);
    write_wait_end(out, "deadline", "deadline_in_ms", request, kept_until, time);
    write_client(out, request, kept_until != 0);
}

static void write_named(struct buf *out, const char *name, const struct want *want)
{
    write_list_begin(out, name);
    for (size_t i = 0; i < want->named_count; i++) {
        if (i)
            buf_append_char(out, ',');
        if (want->named[i].number)
            buf_append_u64(out, want->named[i].number);
        else
            write_text(out, want->named[i].label);
    }
    buf_append_char(out, ']');
}

static void write_words(struct buf *out, const char *name, const struct bytes *words, uint32_t count)
{
    if (count == 0)
        return;
    write_list_begin(out, name);
    for (uint32_t i = 0; i < count; i++) {
        buf_append_text(out, i ? "," : "");
        write_text(out, words[i]);
    }
    buf_append_char(out, ']');
}

static void write_best(struct buf *out, const struct want *want)
{
    struct arena arena;
    struct best wish;
    arena_init(&arena, 1024, 16 * 1024);
    if (best_decode(want->best, want->count, &arena, &wish)) {
        buf_append_text(out, ",\"best\":{\"together\":");
        buf_append_text(out, wish.together ? "true" : "false");
        write_words(out, "section", wish.sections, wish.section_count);
        write_words(out, "tags", wish.tags, wish.tag_count);
        write_words(out, "not_tags", wish.not_tags, wish.not_tag_count);
        for (uint32_t i = 0; i < wish.with_count; i++) {
            buf_append_text(out, i ? "," : ",\"with\":{");
            write_text(out, wish.with[i].tag);
            buf_append_char(out, ':');
            buf_append_u64(out, wish.with[i].count);
        }
        buf_append_text(out, wish.with_count ? "}" : "");
        if (wish.split)
            write_member_u64(out, "split", wish.split);
        if (wish.no_orphans)
            write_member_bool(out, "no_orphans", true);
        buf_append_char(out, '}');
    }
    arena_release(&arena);
}

void write_choice(struct buf *out, const struct want *want)
{
    if (want->choice == CHOOSE_BEST)
        write_best(out, want);
    else if (want->choice != CHOOSE_LOWEST)
        write_named(out, want->choice == CHOOSE_NAMED ? "slots" : "any_of", want);
    if (want->adjacent)
        write_member_bool(out, "adjacent", true);
}

/*
 * Writes ,"permits":[...] of a waiting request; which slots it names only for a viewer that sees it. positions NULL:
 * without its places.
 */
static void write_wants(struct buf *out, const struct viewer *viewer, const struct request *request,
                        const struct queue_position *positions)
{
    write_list_begin(out, "permits");
    for (size_t i = 0; i < request->want_count; i++) {
        const struct want *want = &request->wants[i];
        buf_append_text(out, i ? ",{\"semaphore\":" : "{\"semaphore\":");
        write_text(out, want->semaphore);
        write_member_i64(out, "count", want->count);
        if (viewer_sees(viewer, request->external_id))
            write_choice(out, want);
        if (positions)
            write_position(out, viewer, &positions[i]);
        buf_append_char(out, '}');
    }
    buf_append_char(out, ']');
}

void write_position(struct buf *out, const struct viewer *viewer, const struct queue_position *position)
{
    write_member_u64(out, "place", position->ahead + 1);
    write_member_u64(out, "ahead_count", position->ahead);
    if (position->more)
        write_member_bool(out, "ahead_more", true);
    write_keys(out, viewer, "ahead", "ahead_namespaces", position->keys, position->key_count);
}

void write_waiter(struct buf *out, const struct viewer *viewer, const struct waiter_row *waiter, utc_us kept_until,
                  const struct query_time *time)
{
    const struct request *request = &waiter->request;
    write_key_begin(out, viewer, request->external_id);
    write_owner(out, viewer, request->owner);
    write_wants(out, viewer, request, NULL);
    write_wait(out, request, kept_until, time);
    write_member_u64(out, "place", waiter->kept ? waiter->number + 1 : waiter->number);
    if (waiter->behind.data && viewer_sees(viewer, waiter->behind))
        write_member_text(out, "behind", key_split(waiter->behind).key);
    if (waiter->behind.data && viewer_needs_namespace(viewer, waiter->behind))
        write_member_text(out, "behind_namespace", key_split(waiter->behind).namespace);
    buf_append_char(out, '}');
}

void write_waiting_begin(struct buf *out, const struct viewer *viewer, const struct request *request,
                         const struct queue_position *positions, utc_us kept_until, const struct query_time *time)
{
    write_key_begin(out, viewer, request->external_id);
    write_member_text(out, "state", bytes_of(request_state_word(request->state)));
    write_owner(out, viewer, request->owner);
    write_wants(out, viewer, request, positions);
    write_wait_begin(out, request, time);
    write_wait_end(out, "until", "until_in_ms", request, kept_until, time);
    write_client(out, request, kept_until != 0);
}

void write_longest_holders(struct buf *out, const struct viewer *viewer, const struct front_holder *holders,
                           size_t count, const struct query_time *time)
{
    write_list_begin(out, "holders");
    for (size_t i = 0; i < count; i++) {
        const struct front_holder *holder = &holders[i];
        if (i)
            buf_append_char(out, ',');
        write_key_begin(out, viewer, holder->external_id);
        write_owner(out, viewer, holder->owner);
        write_member_time(out, "since", lease_to_wall(&time->clock, holder->since));
        write_expiry(out, holder->expires_at, time);
        buf_append_char(out, '}');
    }
    buf_append_char(out, ']');
}

/* Writes the held slots among those that the request names. */
static void write_taken(struct buf *out, const struct viewer *viewer, const struct taken_slot *taken, size_t count,
                        const struct query_time *time)
{
    write_list_begin(out, "taken");
    for (size_t i = 0; i < count; i++) {
        buf_append_text(out, i ? ",{\"slot\":" : "{\"slot\":");
        buf_append_u64(out, taken[i].number);
        if (taken[i].label.length)
            write_member_text(out, "label", taken[i].label);
        write_member_u64(out, "token", taken[i].token);
        write_member_key(out, viewer, "external_id", taken[i].holder);
        write_expiry(out, taken[i].expires_at, time);
        buf_append_char(out, '}');
    }
    buf_append_char(out, ']');
}

void write_blocking(struct buf *out, const struct viewer *viewer, const struct blocking *blocking, size_t count,
                    const struct query_time *time)
{
    write_list_begin(out, "blocking");
    for (size_t i = 0; i < count; i++) {
        const struct shortage *shortage = blocking[i].shortage;
        const struct semaphore_front *front = &blocking[i].front;
        size_t ahead = blocking[i].ahead;
        buf_append_text(out, i ? ",{\"semaphore\":" : "{\"semaphore\":");
        write_text(out, shortage->semaphore);
        write_member_i64(out, "capacity", shortage->capacity);
        write_member_i64(out, "in_use", shortage->in_use);
        write_member_i64(out, "requested", shortage->requested);
        if (ahead) {
            write_member_i64(out, "waiting_ahead", (int64_t)ahead);
            write_keys(out, viewer, "ahead", "ahead_namespaces", front->waiters,
                       front->waiter_count < ahead ? front->waiter_count : ahead);
        }
        if (shortage->is_best)
            write_member_u64(out, "largest_together", shortage->largest_together);
        if (shortage->taken_count)
            write_taken(out, viewer, shortage->taken, shortage->taken_count, time);
        write_longest_holders(out, viewer, front->holders, front->holder_count, time);
        buf_append_char(out, '}');
    }
    buf_append_char(out, ']');
}
