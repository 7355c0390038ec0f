/* SPDX-License-Identifier: MIT */
#include "core/feed.h"

#include <limits.h>

const char *feed_what_word(uint32_t what)
{
    static const char *const words[] = {
        [FEED_WAITING] = "waiting",     [FEED_ACQUIRED] = "acquired", [FEED_RENEWED] = "renewed",
        [FEED_CONFIRMED] = "confirmed", [FEED_ENDED] = "ended",       [FEED_GAP] = "gap",
        [FEED_CHANGED] = "changed",
    };
    return what < ARRAY_LENGTH(words) ? words[what] : NULL;
}

bool feed_admits(enum semaphore_feed feed, enum feed_what what, bool sold)
{
    return feed == FEED_ALL || (feed == FEED_SALES && (what == FEED_CONFIRMED || (what == FEED_ENDED && sold)));
}

void feed_permits_format(const struct feed_permit *permits, size_t count, struct buf *out)
{
    for (size_t i = 0; i < count; i++) {
        buf_append(out, permits[i].semaphore.data, permits[i].semaphore.length);
        buf_append_char(out, ' ');
        buf_append_i64(out, permits[i].count);
        buf_append_char(out, ' ');
        buf_append_u64(out, permits[i].token);
        buf_append_char(out, ' ');
        slots_format(&permits[i].slots, out);
        buf_append_char(out, '\n');
    }
}

/* Takes the bytes up to `end` from the text. False: `end` is not in it. */
static bool take_field(struct bytes *text, char end, struct bytes *ret_field)
{
    const char *at = text->length ? memchr(text->data, end, text->length) : NULL;
    if (!at)
        return false;
    *ret_field = (struct bytes){text->data, (size_t)(at - text->data)};
    *text = (struct bytes){at + 1, text->length - ret_field->length - 1};
    return true;
}

static bool take_number(struct bytes *text, char end, uint64_t *ret_number)
{
    struct bytes digits;
    return take_field(text, end, &digits) && bytes_read_u64(digits, INT64_MAX, ret_number);
}

static bool take_permit(struct bytes *text, struct arena *arena, struct feed_permit *ret_permit)
{
    struct bytes slots;
    uint64_t count;
    if (!take_field(text, ' ', &ret_permit->semaphore) || !take_number(text, ' ', &count) ||
        !take_number(text, ' ', &ret_permit->token) || !take_field(text, '\n', &slots))
        return false;
    ret_permit->count = (int64_t)count;
    return slots_parse(slots, arena, &ret_permit->slots);
}

bool feed_permits_parse(struct bytes text, struct arena *arena, struct feed_permit **ret_permits, size_t *ret_count)
{
    size_t lines = 0;
    for (size_t i = 0; i < text.length; i++)
        lines += text.data[i] == '\n';
    struct feed_permit *permits = arena_array(arena, lines, sizeof *permits);
    if (!permits && lines)
        return false;
    for (size_t i = 0; i < lines; i++)
        if (!take_permit(&text, arena, &permits[i]))
            return false;
    if (text.length)
        return false;
    *ret_permits = permits;
    *ret_count = lines;
    return true;
}

/* ---- events ---- */

static void append_text(struct bytes text, struct buf *out)
{
    buf_append_u64(out, text.length);
    buf_append_char(out, ':');
    buf_append(out, text.data, text.length);
}

void feed_event_format(const struct feed_event *event, struct buf *out)
{
    struct buf permits;
    buf_init(&permits, out->max);
    feed_permits_format(event->permits, event->permit_count, &permits);
    buf_append_u64(out, event->what);
    buf_append_char(out, ' ');
    buf_append_u64(out, event->end_reason);
    buf_append_char(out, ' ');
    append_text(event->external_id, out);
    append_text(event->owner, out);
    append_text(event->principal, out);
    append_text((struct bytes){permits.data, permits.length}, out);
    out->broken |= permits.broken;
    buf_release(&permits);
}

static bool take_text(struct bytes *text, struct bytes *ret_text)
{
    uint64_t length;
    if (!take_number(text, ':', &length) || length > text->length)
        return false;
    *ret_text = (struct bytes){text->data, (size_t)length};
    *text = (struct bytes){text->data + length, text->length - (size_t)length};
    return true;
}

bool feed_event_take(struct bytes *text, struct feed_row *ret_row)
{
    uint64_t what, end_reason;
    if (!take_number(text, ' ', &what) || !take_number(text, ' ', &end_reason) || what > UINT32_MAX ||
        end_reason > UINT_MAX)
        return false;
    ret_row->what = (uint32_t)what;
    ret_row->end_reason = (unsigned)end_reason;
    bool taken = take_text(text, &ret_row->external_id) && take_text(text, &ret_row->owner) &&
                 take_text(text, &ret_row->principal) && take_text(text, &ret_row->permits) &&
                 take_text(text, &ret_row->metadata);
    if (taken && ret_row->metadata.length == 0)
        ret_row->metadata.data = NULL;
    return taken;
}

/* ---- positions ---- */

enum feed_verdict feed_judge(struct feed_position position, const struct feed_facts *facts,
                             struct feed_position *ret_go_on)
{
    uint64_t last = facts->least < facts->head ? facts->least : facts->head;
    *ret_go_on = (struct feed_position){facts->epoch, position.seq};
    if (position.epoch > facts->epoch || position.seq > last) {
        ret_go_on->seq = position.seq < last ? position.seq : last;
        return FEED_LOST;
    }
    /* Numbers have no gaps: if the next one is not there, it was deleted, with all before it. */
    uint64_t next = facts->first ? facts->first : facts->durable + 1;
    if (next <= position.seq + 1)
        return FEED_KNOWN;
    ret_go_on->seq = next - 1;
    return FEED_GONE;
}

bool feed_position_parse(struct bytes text, struct feed_position *ret_position)
{
    char written[48];
    struct buf again;
    uint64_t numbers[2] = {0};
    size_t part = 0;
    if (text.length == 0 || text.length >= sizeof written)
        return false;
    for (size_t i = 0; i < text.length; i++) {
        char byte = text.data[i];
        if (byte == '-' && part == 0)
            part = 1;
        else if (byte >= '0' && byte <= '9' && numbers[part] <= INT64_MAX / 10)
            numbers[part] = numbers[part] * 10 + (uint64_t)(byte - '0');
        else
            return false;
    }
    const struct feed_position position = {numbers[0], numbers[1]};
    bool in_range = position.epoch <= INT64_MAX && position.seq <= INT64_MAX;
    buf_init(&again, sizeof written);
    feed_position_format(position, &again);
    bool good = in_range && bytes_equal(text, (struct bytes){again.data, again.length});
    buf_release(&again);
    if (good)
        *ret_position = position;
    return good;
}

void feed_position_format(struct feed_position position, struct buf *out)
{
    buf_append_u64(out, position.epoch);
    buf_append_char(out, '-');
    buf_append_u64(out, position.seq);
}
