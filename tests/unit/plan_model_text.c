/* SPDX-License-Identifier: MIT */
/* Operations and outcomes of the model test as text: for transcripts, and to print a script that failed. */
#include <stdlib.h>

#include "plan_model.h"

void step_finish(struct step *step)
{
    struct want wants[MODEL_WANTS];
    struct slot_name names[MODEL_WANTS][MODEL_NAMES];
    char wishes[MODEL_WANTS][WISH_SIZE];
    for (unsigned i = 0; i < step->want_count; i++) {
        const struct model_want *want = &step->wants[i];
        wants[i] = (struct want){.semaphore = semaphore_name(want->semaphore),
                                 .count = want->count,
                                 .choice = want->choice,
                                 .adjacent = want->adjacent,
                                 .named = names[i],
                                 .named_count = want->name_count,
                                 .best = model_wish(want, wishes[i])};
        for (unsigned j = 0; j < want->name_count; j++)
            names[i][j] = (struct slot_name){want->names[j].number, label_text(want->names[j].label)};
    }
    if (step->kind == OP_ACQUIRE &&
        !request_digest(owner_name(step->owner), step->ttl, wants, step->want_count, step->digest))
        abort();
}

/* ---- reading ---- */

/* Returns the next word; length 0 at the end. */
static struct bytes next_word(const char **at)
{
    while (**at == ' ')
        (*at)++;
    struct bytes word = {*at, strcspn(*at, " ")};
    *at += word.length;
    return word;
}

/* Returns true if the word is name=value; *ret_value is the value. */
static bool word_has(struct bytes word, const char *name, struct bytes *ret_value)
{
    size_t length = strlen(name);
    if (word.length <= length || memcmp(word.data, name, length) != 0 || word.data[length] != '=')
        return false;
    *ret_value = (struct bytes){word.data + length + 1, word.length - length - 1};
    return true;
}

static int64_t read_ms(struct bytes value)
{
    char *end;
    int64_t number = strtoll(value.data, &end, 10);
    return *end == 's' ? number * MS_PER_SECOND : number; /* "30s", else "30000ms" */
}

static bool read_semaphore(struct bytes word, unsigned *ret_semaphore)
{
    *ret_semaphore = word.length ? (unsigned)(word.data[0] - 'a') : MODEL_SEMAPHORES;
    return *ret_semaphore < MODEL_SEMAPHORES;
}

/* Returns the index of a label such as "L3"; 0: none. */
static unsigned read_label(struct bytes word)
{
    return word.length == 2 ? label_index(word) : 0;
}

/* Returns the next part of a list such as "1,L2,-"; length 0 at the end. */
static struct bytes next_part(struct bytes *list)
{
    const char *comma = list->length ? memchr(list->data, ',', list->length) : NULL;
    struct bytes part = {list->data, comma ? (size_t)(comma - list->data) : list->length};
    size_t used = part.length + (comma != NULL);
    *list = (struct bytes){list->data + used, list->length - used};
    return part;
}

static bool read_names(struct bytes list, struct model_want *want)
{
    for (struct bytes part = next_part(&list); part.length; part = next_part(&list)) {
        if (want->name_count == MODEL_NAMES)
            return false;
        want->names[want->name_count++] = part.data[0] == 'L'
                                              ? (struct model_name){0, read_label(part)}
                                              : (struct model_name){(uint32_t)strtoul(part.data, NULL, 10), 0};
    }
    return want->name_count > 0;
}

/* Reads the wish of best seats, such as "!f" behind "a:2": '!' together or '?' apart, 'f' in front, 'n' no aisle. */
static const char *read_wish(const char *at, const char *end, struct model_want *want)
{
    if (at == end || (*at != '!' && *at != '?'))
        return at;
    want->choice = CHOOSE_BEST;
    for (; at < end; at++) {
        want->together |= *at == '!';
        want->front |= *at == 'f';
        want->no_aisle |= *at == 'n';
    }
    return at;
}

/* Reads a want: "a" or "a:2", "a:2~", "a:2!", "a:2@1,L2", "a@1,L2": see step_parse. */
static bool read_want(struct bytes word, struct model_want *wants, unsigned *count)
{
    struct model_want want = {.count = 1};
    if (*count == MODEL_WANTS || !read_semaphore(word, &want.semaphore))
        return false;
    const char *at = word.length > 1 ? word.data + 1 : "";
    const char *end = word.data + word.length;
    bool counted = word.length > 2 && *at == ':';
    if (counted) {
        char *behind;
        want.count = strtoll(at + 1, &behind, 10);
        at = behind;
        want.adjacent = at < end && *at == '~';
        at += want.adjacent;
        at = read_wish(at, end, &want);
    }
    if (word.length > 1 && at < end && *at == '@') {
        if (!read_names((struct bytes){at + 1, (size_t)(end - at) - 1}, &want))
            return false;
        want.choice = counted ? CHOOSE_ANY_OF : CHOOSE_NAMED;
        want.count = counted ? want.count : (int64_t)want.name_count;
        at = end;
    }
    wants[(*count)++] = want;
    return word.length == 1 || at == end;
}

/* Reads "labels=L1,-,L3" or "from=2". */
static bool read_labels(struct bytes word, struct step *step)
{
    struct bytes value;
    if (word_has(word, "from", &value)) {
        step->change.labels_from = (uint32_t)strtoul(value.data, NULL, 10);
        return true;
    }
    if (!word_has(word, "labels", &value))
        return false;
    for (struct bytes part = next_part(&value); part.length && step->label_count < MODEL_LABELS - 1;
         part = next_part(&value))
        step->labels[step->label_count++] = read_label(part);
    step->change.has_labels = true;
    if (step->change.labels_from == 0)
        step->change.labels_from = 1;
    return true;
}

static bool read_ttl(struct bytes value, struct ttl *ret_ttl)
{
    if (bytes_equal(value, BYTES("none")))
        *ret_ttl = (struct ttl){.kind = TTL_UNLIMITED};
    else if (bytes_equal(value, BYTES("owner")))
        *ret_ttl = (struct ttl){.kind = TTL_OWNER};
    else
        *ret_ttl = (struct ttl){TTL_DURATION, read_ms(value)};
    return true;
}

/* Reads how an acquire waits. */
static bool read_wait(struct bytes word, struct step *step)
{
    struct bytes value;
    if (word_has(word, "wait", &value)) {
        step->wait = WAIT_ASK;
        step->wait_us = read_ms(value) * US_PER_MS;
        return step->wait_us > 0;
    }
    if (word_has(word, "priority", &value))
        return (step->priority = (int)strtol(value.data, NULL, 10)) > 0;
    if (bytes_equal(word, BYTES("last")))
        return step->wait = WAIT_LAST, true;
    if (bytes_equal(word, BYTES("gone")))
        return step->wait = WAIT_GONE, true;
    if (bytes_equal(word, BYTES("anew")))
        return step->anew = true;
    if (bytes_equal(word, BYTES("mailed")))
        return step->mailed = true;
    return bytes_equal(word, BYTES("vanished")) && (step->vanished = true);
}

static bool read_word(struct bytes word, struct step *step)
{
    struct bytes value;
    if (word_has(word, "ttl", &value))
        return read_ttl(value, &step->ttl);
    if (word_has(word, "owner", &value)) {
        step->owner = (unsigned)strtoul(value.data, NULL, 10);
        return step->owner < MODEL_OWNERS;
    }
    if (word_has(word, "nonce", &value)) {
        step->nonce = (unsigned)strtoul(value.data, NULL, 10);
        return (step->kind == OP_ACQUIRE || step->kind == OP_EXCHANGE) && step->nonce < MODEL_NONCES;
    }
    if (word_has(word, "with", &value)) {
        step->with = (unsigned)(key_index(value) + 1);
        return step->kind == OP_CONFIRM && step->with && step->with - 1 != step->key;
    }
    if (word_has(word, "changes", &value)) {
        step->changes = (unsigned)strtoul(value.data, NULL, 10);
        return step->kind == OP_EXCHANGE;
    }
    if (word_has(word, "why", &value)) {
        step->reason = (unsigned)strtoul(value.data, NULL, 10);
        return step->reason < MODEL_REASONS;
    }
    if (word_has(word, "cut", &value)) {
        step->due_cut = (unsigned)strtoul(value.data, NULL, 10);
        return step->due_cut > 0;
    }
    if (word_has(word, "locked", &value)) {
        step->locked_rows = (unsigned)strtoul(value.data, NULL, 16);
        return step->locked_rows > 0;
    }
    if (bytes_equal(word, BYTES("walks")))
        return step->walks_due = true;
    if (step->kind == OP_ACQUIRE && read_wait(word, step))
        return true;
    if (step->kind == OP_RELEASE && bytes_equal(word, BYTES("confirmed")))
        return step->allow_confirmed = true;
    if (step->kind == OP_EXPIRE && bytes_equal(word, BYTES("owner_dead")))
        return step->expire_as = END_OWNER_DEAD, true;
    if (step->kind == OP_EXPIRE && bytes_equal(word, BYTES("abandoned")))
        return step->expire_as = END_NEVER_HELD, true;
    if (bytes_equal(word, BYTES("vanished")))
        return step->vanished = true;
    if (step->kind == OP_EXCHANGE && word.data[0] == '-')
        return read_want((struct bytes){word.data + 1, word.length - 1}, step->given, &step->given_count);
    return (step->kind == OP_ACQUIRE || step->kind == OP_EXCHANGE) && read_want(word, step->wants, &step->want_count);
}

/* Reads a member that is a duration or a number: name=value. */
static bool read_number(struct bytes word, struct semaphore_change *change)
{
    const struct {
        const char *name;
        bool *has;
        int64_t *number;
    } members[] = {
        {"capacity", &change->has_capacity, &change->capacity},
        {"default_ttl", &change->has_default_ttl, &change->default_ttl_ms},
        {"max_ttl", &change->has_max_ttl, &change->max_ttl_ms},
        {"grace", &change->has_grace, &change->grace_ms},
        {"max_hold", &change->has_max_hold, &change->max_hold_ms},
        {"max_waiters", &change->has_max_waiters, &change->max_waiters},
        {"max_priority", &change->has_max_priority, &change->max_priority},
        {"priority_step", &change->has_priority_step, &change->priority_step_ms},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(members); i++) {
        struct bytes value;
        if (!word_has(word, members[i].name, &value))
            continue;
        *members[i].has = true;
        bool none = bytes_equal(value, BYTES("none")) || bytes_equal(value, BYTES("strict"));
        *members[i].number = none ? -1 : read_ms(value);
        return true;
    }
    return false;
}

static bool read_member(struct bytes word, struct semaphore_change *change)
{
    struct bytes value;
    if (bytes_equal(word, BYTES("counted")) || bytes_equal(word, BYTES("slotted"))) {
        change->has_kind = true;
        change->kind = word.data[0] == 'c' ? KIND_COUNTED : KIND_SLOTTED;
    } else if (bytes_equal(word, BYTES("fifo")) || bytes_equal(word, BYTES("backfill"))) {
        change->has_queue = true;
        change->queue = word.data[0] == 'f' ? QUEUE_FIFO : QUEUE_BACKFILL;
    } else if (bytes_equal(word, BYTES("if_none_match"))) {
        change->if_none_match = true;
    } else if (word_has(word, "if_match", &value)) {
        change->match_count = 1;
        change->config_versions[0] = strtoull(value.data, NULL, 10);
    } else if (word_has(word, "note", &value)) {
        change->has_note = true;
        change->note = value;
    } else {
        return read_number(word, change);
    }
    return true;
}

static bool read_change(struct bytes word, struct step *step)
{
    struct bytes value;
    if ((step->kind == OP_SEMAPHORE_PUT || step->kind == OP_SEMAPHORE_LABELS) && read_labels(word, step))
        return true;
    if (step->kind == OP_SEMAPHORE_PUT || step->kind == OP_SEMAPHORE_LABELS)
        return read_member(word, &step->change);
    step->reason = word_has(word, "why", &value) ? (unsigned)strtoul(value.data, NULL, 10) : MODEL_REASONS;
    return step->reason < MODEL_REASONS;
}

/* Returns "put", or else operation_kind_word: "renew", "pause". */
static const char *kind_word(enum operation_kind kind)
{
    static const char administrative[] = "semaphore_";
    const char *word = operation_kind_word(kind);
    return strncmp(word, administrative, sizeof administrative - 1) == 0 ? word + sizeof administrative - 1 : word;
}

static bool read_kind(struct bytes word, enum operation_kind *ret_kind)
{
    for (unsigned i = 0; i < OP_KIND_COUNT; i++)
        if (bytes_equal(word, bytes_of(kind_word((enum operation_kind)i)))) {
            *ret_kind = (enum operation_kind)i;
            return true;
        }
    return false;
}

bool step_parse(const char *text, struct step *ret_step)
{
    struct step step = {0};
    struct bytes word = next_word(&text);
    if (word.length && word.data[0] == '~') {
        step.stale = true;
        word = (struct bytes){word.data + 1, word.length - 1};
    }
    if (!read_kind(word, &step.kind))
        return false;
    bool administrative = step_is_administrative(&step);
    if (step.kind == OP_EXPIRE)
        step.expire_as = END_EXPIRED;
    word = next_word(&text);
    int key = key_index(word);
    if (administrative ? !read_semaphore(word, &step.semaphore) : key < 0)
        return false;
    step.key = administrative ? 0 : (unsigned)key;
    for (word = next_word(&text); word.length; word = next_word(&text))
        if (!(administrative ? read_change(word, &step) : read_word(word, &step)))
            return false;
    step_finish(&step);
    *ret_step = step;
    return true;
}

/* ---- writing ---- */

static void print_ms(const char *name, int64_t ms, struct buf *out)
{
    if (ms == -1)
        buf_printf(out, " %s=none", name);
    else if (ms % MS_PER_SECOND == 0)
        buf_printf(out, " %s=%llds", name, (long long)(ms / MS_PER_SECOND));
    else
        buf_printf(out, " %s=%lldms", name, (long long)ms);
}

static void print_change(const struct semaphore_change *change, struct buf *out)
{
    if (change->has_capacity)
        buf_printf(out, " capacity=%lld", (long long)change->capacity);
    if (change->has_kind)
        buf_printf(out, " %s", semaphore_kind_word(change->kind));
    if (change->has_queue)
        buf_printf(out, " %s", semaphore_queue_word(change->queue));
    if (change->has_default_ttl)
        print_ms("default_ttl", change->default_ttl_ms, out);
    if (change->has_max_ttl)
        print_ms("max_ttl", change->max_ttl_ms, out);
    if (change->has_grace)
        print_ms("grace", change->grace_ms, out);
    if (change->has_max_hold)
        print_ms("max_hold", change->max_hold_ms, out);
    if (change->has_max_waiters)
        buf_printf(out, " max_waiters=%lld", (long long)change->max_waiters);
    if (change->has_max_priority)
        buf_printf(out, " max_priority=%lld", (long long)change->max_priority);
    if (change->has_priority_step && change->priority_step_ms == -1)
        buf_append_text(out, " priority_step=strict");
    else if (change->has_priority_step)
        print_ms("priority_step", change->priority_step_ms, out);
    if (change->has_note)
        buf_printf(out, " note=%.*s", (int)change->note.length, change->note.data);
    if (change->if_none_match)
        buf_append_text(out, " if_none_match");
    if (change->match_count)
        buf_printf(out, " if_match=%llu", (unsigned long long)change->config_versions[0]);
}

static void print_names(const struct model_want *want, struct buf *out)
{
    for (unsigned i = 0; i < want->name_count; i++) {
        struct bytes label = label_text(want->names[i].label);
        buf_append_char(out, i ? ',' : '@');
        if (label.length)
            buf_printf(out, "%.*s", (int)label.length, label.data);
        else
            buf_append_u64(out, want->names[i].number);
    }
}

static void print_labels(const struct step *step, struct buf *out)
{
    buf_printf(out, " from=%u labels=", step->change.labels_from);
    for (unsigned i = 0; i < step->label_count; i++) {
        struct bytes label = step->labels[i] ? label_text(step->labels[i]) : BYTES("-");
        buf_printf(out, "%s%.*s", i ? "," : "", (int)label.length, label.data);
    }
}

static void print_wants(const char *sign, const struct model_want *wants, unsigned count, struct buf *out)
{
    for (const struct model_want *want = wants; want < wants + count; want++) {
        buf_printf(out, " %s%c", sign, 'a' + (int)want->semaphore);
        if (want->choice != CHOOSE_NAMED)
            buf_printf(out, ":%lld%s", (long long)want->count, want->adjacent ? "~" : "");
        if (want->choice == CHOOSE_BEST)
            buf_printf(out, "%s%s%s", want->together ? "!" : "?", want->front ? "f" : "", want->no_aisle ? "n" : "");
        print_names(want, out);
    }
}

static void print_request_step(const struct step *step, struct buf *out)
{
    buf_printf(out, "%s%s %s", step->stale ? "~" : "", kind_word(step->kind), key_name(step->key).data);
    print_wants("-", step->given, step->given_count, out);
    print_wants("", step->wants, step->want_count, out);
    if (step->ttl.kind == TTL_OWNER)
        buf_append_text(out, " ttl=owner");
    else if (step->ttl.kind != TTL_ABSENT)
        print_ms("ttl", step->ttl.kind == TTL_DURATION ? step->ttl.ms : -1, out);
    if (step->with)
        buf_printf(out, " with=%s", key_name(step->with - 1).data);
    if (step->changes)
        buf_printf(out, " changes=%u", step->changes);
    if (step->owner)
        buf_printf(out, " owner=%u", step->owner);
    if (step->nonce)
        buf_printf(out, " nonce=%u", step->nonce);
    buf_append_text(out, step->allow_confirmed ? " confirmed" : "");
    buf_append_text(out, step->expire_as == END_OWNER_DEAD ? " owner_dead" : "");
    buf_append_text(out, step->expire_as == END_NEVER_HELD ? " abandoned" : "");
    buf_append_text(out, step->walks_due ? " walks" : "");
    if (step->due_cut)
        buf_printf(out, " cut=%u", step->due_cut);
    if (step->locked_rows)
        buf_printf(out, " locked=%x", step->locked_rows);
    if (step->wait == WAIT_ASK)
        print_ms("wait", step->wait_us / US_PER_MS, out);
    buf_append_text(out, step->wait == WAIT_LAST ? " last" : step->wait == WAIT_GONE ? " gone" : "");
    if (step->priority)
        buf_printf(out, " priority=%d", step->priority);
    buf_append_text(out, step->anew ? " anew" : "");
    buf_append_text(out, step->mailed ? " mailed" : "");
    buf_append_text(out, step->vanished ? " vanished" : "");
}

void step_print(const struct step *step, struct buf *out)
{
    if (!step_is_administrative(step)) {
        print_request_step(step, out);
    } else {
        buf_printf(out, "%s %c", kind_word(step->kind), 'a' + (int)step->semaphore);
        print_change(&step->change, out);
        if (step->change.has_labels)
            print_labels(step, out);
    }
    if (step->reason)
        buf_printf(out, " why=%u", step->reason);
}

static void print_moment(const struct moment *moment, struct buf *out)
{
    buf_printf(out, "   (at %lld us, tick %lld, offset %lld", (long long)(moment->now - MODEL_START),
               (long long)(moment->clock.tick_at - MODEL_START), (long long)moment->clock.offset_us);
    if (moment->clock.due)
        buf_printf(out, ", due %lld, from %lld", (long long)(moment->clock.due - model_time(moment)),
                   (long long)(moment->clock.from - model_time(moment)));
    if (moment->epoch)
        buf_printf(out, ", epoch %llu", (unsigned long long)moment->epoch);
    if (moment->grants_from > model_time(moment))
        buf_printf(out, ", grants in %lld us", (long long)(moment->grants_from - model_time(moment)));
    buf_printf(out, ", owners %x of %x, server %u, was %u, dead %x)", moment->owners_alive, moment->owners_known,
               moment->server, moment->was, moment->servers_dead);
}

void script_print(const struct script *script, struct buf *out)
{
    if (script->max_waiters)
        buf_printf(out, "  at most %u waiters of a semaphore\n", script->max_waiters);
    if (script->max_packet)
        buf_printf(out, "  at most %u bytes in a packet\n", script->max_packet);
    if (script->queue_cut)
        buf_printf(out, "  %u waiters read of a queue\n", script->queue_cut);
    if (script->rounds)
        buf_printf(out, "  %u rounds of reads\n", script->rounds);
    for (unsigned i = 0; i < script->count; i++) {
        const struct step *step = &script->steps[i];
        buf_printf(out, "%s%3u  ", step->new_batch ? "  --\n" : "", i);
        step_print(step, out);
        if (step->stale)
            buf_printf(out, "   (locks %02x)", step->stale_locks);
        if (step->more_locks)
            buf_printf(out, "   (more locks %02x)", step->more_locks);
        if (step->later)
            buf_printf(out, "   (later %08x)", step->later);
        if (step->moment.now && (i == 0 || memcmp(&step[-1].moment, &step->moment, sizeof step->moment) != 0))
            print_moment(&step->moment, out);
        buf_append_char(out, '\n');
    }
}

static void print_permit(const struct model_permit *permit, struct buf *out)
{
    buf_printf(out, " %c=%llu", 'a' + (int)permit->semaphore, (unsigned long long)permit->token);
    if (permit->slot_count == 0)
        buf_printf(out, "x%lld", (long long)permit->count);
    for (unsigned i = 0; i < permit->slot_count; i++) {
        struct bytes label = label_text(permit->labels[i]);
        buf_printf(out, "%s%u%s%.*s", i ? "," : "[", permit->slots[i], label.length ? "/" : "", (int)label.length,
                   label.length ? label.data : "");
    }
    if (permit->slot_count)
        buf_append_char(out, ']');
}

/* Prints a request; deadlines count from the beginning of the script. */
static void print_request(const struct model_request *request, struct buf *out)
{
    bool held = request->state == REQUEST_ACQUIRED;
    bool waits = request->state == REQUEST_WAITING;
    buf_printf(out, " %s", held || waits ? request_state_word(request->state) : end_reason_word(request->end_reason));
    if (waits)
        print_ms("place", (request->place - MODEL_START) / US_PER_MS, out);
    if (request->server)
        buf_printf(out, " server=%u", request->server);
    for (unsigned i = 0; i < request->permit_count; i++)
        print_permit(&request->permits[i], out);
    if (held && request->ttl_ms == TTL_BY_OWNER)
        buf_append_text(out, " ttl=owner");
    else if (held)
        print_ms("ttl", request->ttl_ms, out);
    if (request->due_at == NEVER)
        buf_append_text(out, " due=never");
    else
        print_ms("due", (request->due_at - MODEL_START) / US_PER_MS, out);
    buf_append_text(out, request->confirmed_at != NEVER ? " confirmed" : "");
    if (request->renewals)
        buf_printf(out, " renewals=%u", request->renewals);
    if (request->replays)
        buf_printf(out, " replays=%u", request->replays);
    if (request->nonce)
        buf_printf(out, " nonce=%u", request->nonce);
}

void events_print(const struct verdict *verdict, struct buf *out)
{
    for (unsigned i = 0; i < verdict->event_count; i++) {
        const struct model_event *event = &verdict->events[i];
        buf_printf(out, " +%c %s", 'a' + (int)event->semaphore, event->what);
        if (event->from[0] || event->to[0])
            buf_printf(out, " %s>%s", event->from, event->to);
        if (event->why.length)
            buf_printf(out, " (%.*s)", (int)event->why.length, event->why.data);
    }
}

void verdict_print(const struct verdict *verdict, struct buf *out)
{
    buf_append_text(out, permit_status_word(verdict->status));
    buf_append_text(out, verdict->created ? " created" : "");
    buf_append_text(out, verdict->replayed ? " replayed" : "");
    buf_append_text(out, verdict->already_released ? " already_released" : "");
    buf_append_text(out, verdict->waits ? " waits" : "");
    if (verdict->has_request)
        print_request(&verdict->request, out);
    if (verdict->has_semaphore)
        buf_printf(out, " capacity=%lld in_use=%lld config=%llu", (long long)verdict->semaphore.capacity,
                   (long long)verdict->in_use, (unsigned long long)verdict->semaphore.config_version);
    for (unsigned i = 0; i < verdict->shortage_count; i++) {
        const struct model_shortage *shortage = &verdict->shortages[i];
        buf_printf(out, " %c:%lld+%lld>%lld%s", 'a' + (int)shortage->semaphore, (long long)shortage->in_use,
                   (long long)shortage->requested, (long long)shortage->capacity, shortage->behind ? " behind" : "");
        for (unsigned j = 0; j < shortage->taken_count; j++)
            buf_printf(out, "%s%u by %s", j ? ", " : " (", shortage->taken[j].number,
                       key_name(shortage->taken[j].key).data);
        buf_append_text(out, shortage->taken_count ? ")" : "");
    }
}
