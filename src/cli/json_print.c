/* SPDX-License-Identifier: MIT */
#include "cli/json_print.h"

#include <stdlib.h>

#include "base/duration.h"
#include "base/escape.h"
#include "base/utf8.h"
#include "cli/cli.h"
#include "cli/columns.h"
#include "cli/time_parse.h"

enum {
    CELL_MAX = 8192,
    COLUMNS_MAX = 16,
    NAMES_SHOWN = 8,
};

static void append_value(struct buf *out, struct json_object *value)
{
    switch (json_kind(value)) {
    case JSON_NULL: buf_append_text(out, "-"); return;
    case JSON_BOOL: buf_append_text(out, json_is_true(value) ? "yes" : "no"); return;
    case JSON_ARRAY:
        for (size_t i = 0; i < json_length(value); i++) {
            if (i)
                buf_append_char(out, ',');
            append_value(out, json_item(value, i));
        }
        return;
    case JSON_OBJECT: buf_append_text(out, json_length(value) ? json_string(value) : "-"); return;
    case JSON_NUMBER:
    case JSON_TEXT: break;
    }
    buf_append_text(out, json_string(value));
}

static bool ends_in(const char *word, const char *end)
{
    size_t length = strlen(word), tail = strlen(end);
    return length >= tail && strcmp(word + length - tail, end) == 0;
}

/* Appends "(A1,A2)" or "(A1,A2,...)": the labels of a held permit, or the slots that a waiting request asks for. */
static void append_slots(struct buf *out, struct json_object *permit)
{
    bool waited = !json_has(permit, "token");
    bool any_of = waited && json_has(permit, "any_of");
    bool adjacent = json_has(permit, "adjacent");
    struct json_object *values = json_array_of(permit, any_of ? "any_of" : waited ? "slots" : "labels");
    if (!values && !adjacent)
        return;
    buf_append_text(out, adjacent ? "(adjacent" : "(");
    buf_append_text(out, adjacent && values ? " " : "");
    buf_append_text(out, any_of ? "of " : "");
    size_t count = json_length(values);
    for (size_t i = 0; i < count && i < NAMES_SHOWN; i++) {
        buf_append_text(out, i ? "," : "");
        append_value(out, json_item(values, i));
    }
    if (count > NAMES_SHOWN)
        buf_append_text(out, ",...");
    buf_append_char(out, ')');
}

static void append_permits(struct buf *out, struct json_object *permits)
{
    for (size_t i = 0; i < json_length(permits); i++) {
        struct json_object *permit = json_item(permits, i);
        struct json_object *name = json_member(permit, "semaphore");
        int64_t count = json_integer_of(permit, "count", 0);
        buf_printf(out, "%s%s", i ? " " : "", name ? json_string(name) : "?");
        if (count != 1)
            buf_printf(out, ":%lld", (long long)count);
        append_slots(out, permit);
    }
}

/* Formats a member for a cell. Replaces bytes that would control the terminal. */
static void format_cell(struct json_object *object, const char *member, struct buf *out)
{
    struct json_object *value = json_member(object, member);
    int64_t ms = json_integer_of(object, member, INT64_MIN);
    char span[SPAN_SIZE], duration[DURATION_TEXT_SIZE];
    buf_clear(out);
    if (ends_in(member, "_ms") && ms != INT64_MIN) {
        /* Ages and times left change while the table is read: 2m10s, not 2m10s417ms. */
        if (ends_in(member, "_in_ms") || ends_in(member, "waited_ms") || strcmp(member, "oldest_wait_ms") == 0 ||
            strcmp(member, "open_ms") == 0) {
            span_format(ms, span);
            buf_append_text(out, span);
        } else {
            (void)duration_format(ms, duration);
            buf_append_text(out, duration);
        }
    } else if (strcmp(member, "permits") == 0 && json_kind(value) == JSON_ARRAY) {
        append_permits(out, value);
    } else {
        append_value(out, value);
    }
    escape_control_chars(out->data, out->length);
}

void json_print_lines(struct json_object *answer, const struct json_column *columns, size_t count)
{
    struct buf text;
    buf_init(&text, CELL_MAX);
    for (size_t i = 0; i < count; i++) {
        if (!json_member(answer, columns[i].member))
            continue;
        format_cell(answer, columns[i].member, &text);
        (void)printf("%-14s %s\n", columns[i].heading, buf_text(&text));
    }
    buf_release(&text);
}

static void print_row(struct json_object *row, const struct json_column *columns, const int *widths, size_t count,
                      int indent, struct buf *text)
{
    (void)printf("%*s", indent, "");
    for (size_t i = 0; i < count; i++) {
        const char *shown = columns[i].heading;
        if (row) {
            format_cell(row, columns[i].member, text);
            shown = buf_text(text);
        }
        bool is_last = i + 1 == count;
        (void)printf("%s%*s", shown, is_last ? 0 : widths[i] + 2 - (int)columns_of(shown), "");
        (void)fputs(is_last ? "\n" : "", stdout);
    }
}

/* Most semaphores have no labels or seats, most queues no kept places, and most clients see one namespace. */
static bool is_rare(const char *name)
{
    static const char *const names[] = {"label", "labels", "section", "row",      "seat",
                                        "rank",  "tags",   "kept",    "namespace"};
    size_t i = 0;
    while (i < ARRAY_LENGTH(names) && strcmp(names[i], name) != 0)
        i++;
    return i < ARRAY_LENGTH(names);
}

void json_print_table(struct json_object *answer, const char *member, const struct json_column *all_columns,
                      size_t all_count, int indent)
{
    struct json_object *array = json_array_of(answer, member);
    int widths[COLUMNS_MAX];
    struct json_column columns[COLUMNS_MAX];
    size_t count = 0;
    struct buf text;
    if (!array)
        return;
    buf_init(&text, CELL_MAX);
    for (size_t i = 0; i < all_count && count < COLUMNS_MAX; i++) {
        const char *name = all_columns[i].member;
        bool is_shown = !is_rare(name);
        widths[count] = (int)strlen(all_columns[i].heading);
        for (size_t row = 0; row < json_length(array); row++) {
            is_shown |= json_has(json_item(array, row), name);
            format_cell(json_item(array, row), name, &text);
            widths[count] = (int)max_i64(widths[count], (int64_t)columns_of(buf_text(&text)));
        }
        if (is_shown)
            columns[count++] = all_columns[i];
    }
    print_row(NULL, columns, widths, count, indent, &text);
    for (size_t row = 0; row < json_length(array); row++)
        print_row(json_item(array, row), columns, widths, count, indent, &text);
    buf_release(&text);
}

/* Prints the character at `at`, which must be escaped. Returns its length. */
static size_t print_escaped(const unsigned char *at, size_t left)
{
    size_t length = at[0] < 0x80 ? 1 : utf8_length(at, left);
    uint32_t point = length ? utf8_code_point(at, length) : 0xFFFD;
    if (point == '\n' || point == '\t' || point == '\r') /* white space between values */
        (void)putchar(point == '\n' ? '\n' : ' ');
    else if (point <= 0xFFFF)
        (void)printf("\\u%04x", point);
    else
        (void)printf("\\u%04x\\u%04x", 0xD800 + ((point - 0x10000) >> 10), 0xDC00 + ((point - 0x10000) & 0x3FF));
    return length ? length : 1;
}

void json_print_text(const char *text)
{
    size_t left = strlen(text);
    bool ended = left && text[left - 1] == '\n'; /* as in an answer of permitd */
    while (left) {
        size_t plain = escape_shown_length(text, left);
        (void)fwrite(text, 1, plain, stdout);
        size_t escaped = plain < left ? print_escaped((const unsigned char *)text + plain, left - plain) : 0;
        text += plain + escaped;
        left -= plain + escaped;
    }
    if (!ended)
        (void)putchar('\n');
}

int64_t json_number(const char *body, const char *member)
{
    struct json_object *object = json_read(body);
    int64_t number = json_number_of(object, member);
    json_free(object);
    return number;
}

void json_print_problem(enum permit_status status, const char *detail)
{
    char type[64];
    (void)snprintf(type, sizeof(type), "/problems/%s", permit_status_word(status));
    struct json_writer *writer = json_writer_new();
    json_add_text(writer, "type", type);
    json_add_text(writer, "title", permit_status_title(status));
    json_add_number(writer, "status", permit_status_http(status));
    json_add_text(writer, "detail", *detail ? detail : NULL);
    if (json_text(writer))
        json_print_text(json_text(writer));
    json_writer_free(writer);
}

bool json_pages_add(struct json_writer **all, const char *body, const char *member, char *ret_next, size_t size)
{
    struct json_object *page = json_read(body);
    struct json_object *next = json_member(page, "next");
    if (!*all) {
        *all = json_writer_new();
        json_add_items(*all, member);
    }
    bool is_page = json_array_of(page, member);
    for (size_t i = 0; i < json_length_of(page, member); i++)
        json_append_value(*all, member, json_item_of(page, member, i));
    bool whole = is_page && json_written(*all);
    (void)snprintf(ret_next, size, "%s", whole && next ? json_string(next) : "");
    json_free(page);
    return whole;
}

void json_add_permits(struct json_writer *writer, const char *name, const struct permit_request *request)
{
    json_add_items(writer, name);
    for (size_t i = 0; i < request->permit_count; i++) {
        const struct permit_held *held = &request->permits[i];
        struct json_writer *item = json_writer_new();
        json_add_text(item, "semaphore", held->semaphore);
        json_add_number(item, "count", held->count);
        json_add_number(item, "token", (int64_t)held->token);
        json_add_items(item, "slots");
        for (size_t j = 0; j < held->slot_count; j++)
            json_append_number(item, "slots", held->slots[j]);
        if (held->labels)
            json_add_items(item, "labels");
        for (size_t j = 0; held->labels && j < held->slot_count; j++)
            json_append_text(item, "labels", held->labels[j]);
        json_add_item(writer, name, item);
        json_writer_free(item);
    }
}
