/* SPDX-License-Identifier: MIT */
#include "cli/json.h"

#include <json-c/json.h>
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
    TEXT_FLAGS = JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE
};

/* Largest integer that every JSON parser represents exactly. */
#define NUMBER_MAX (1LL << 53)

/* ---- Printing ---- */

static void append_value(struct buf *out, struct json_object *value)
{
    switch (json_object_get_type(value)) {
    case json_type_null: buf_append_text(out, "-"); return;
    case json_type_boolean: buf_append_text(out, json_object_get_boolean(value) ? "yes" : "no"); return;
    case json_type_array:
        for (size_t i = 0; i < json_object_array_length(value); i++) {
            if (i)
                buf_append_char(out, ',');
            append_value(out, json_object_array_get_idx(value, i));
        }
        return;
    case json_type_object:
        buf_append_text(out, json_object_object_length(value) ? json_object_get_string(value) : "-");
        return;
    default: buf_append_text(out, json_object_get_string(value)); return;
    }
}

static bool ends_in(const char *word, const char *end)
{
    size_t length = strlen(word), tail = strlen(end);
    return length >= tail && strcmp(word + length - tail, end) == 0;
}

/* Appends "A1,A2", or "A1,A2,A3,A4,..." for a long list. */
static void append_first(struct buf *out, struct json_object *values)
{
    size_t count = json_object_array_length(values);
    for (size_t i = 0; i < count && i < NAMES_SHOWN; i++) {
        buf_append_text(out, i ? "," : "");
        append_value(out, json_object_array_get_idx(values, i));
    }
    if (count > NAMES_SHOWN)
        buf_append_text(out, ",...");
}

/* Appends "(A1,A2)": the labels of a held permit, or the slots that a waiting request asks for. */
static void append_slots(struct buf *out, struct json_object *permit)
{
    struct json_object *values = NULL;
    bool waited = !json_object_object_get_ex(permit, "token", NULL);
    bool any_of = waited && json_object_object_get_ex(permit, "any_of", &values);
    bool named = any_of || json_object_object_get_ex(permit, waited ? "slots" : "labels", &values);
    bool adjacent = json_object_object_get_ex(permit, "adjacent", NULL);
    named = named && json_object_is_type(values, json_type_array);
    if (!named && !adjacent)
        return;
    buf_append_text(out, adjacent ? "(adjacent" : "(");
    buf_append_text(out, adjacent && named ? " " : "");
    buf_append_text(out, any_of ? "of " : "");
    if (named)
        append_first(out, values);
    buf_append_char(out, ')');
}

static void append_permits(struct buf *out, struct json_object *permits)
{
    for (size_t i = 0; i < json_object_array_length(permits); i++) {
        struct json_object *permit = json_object_array_get_idx(permits, i);
        struct json_object *name = NULL;
        struct json_object *count = NULL;
        (void)json_object_object_get_ex(permit, "semaphore", &name);
        (void)json_object_object_get_ex(permit, "count", &count);
        buf_printf(out, "%s%s", i ? " " : "", name ? json_object_get_string(name) : "?");
        if (json_object_get_int64(count) != 1)
            buf_printf(out, ":%lld", (long long)json_object_get_int64(count));
        append_slots(out, permit);
    }
}

/* Formats a member for a cell. Replaces bytes that would control the terminal. */
static void format_cell(struct json_object *object, const char *member, struct buf *out)
{
    struct json_object *value = NULL;
    char span[SPAN_SIZE], duration[DURATION_TEXT_SIZE];
    buf_clear(out);
    (void)json_object_object_get_ex(object, member, &value);
    if (ends_in(member, "_ms") && json_object_is_type(value, json_type_int)) {
        /* Ages and times left change while the table is read: 2m10s, not 2m10s417ms. */
        if (ends_in(member, "_in_ms") || ends_in(member, "waited_ms") || strcmp(member, "oldest_wait_ms") == 0) {
            span_format(json_object_get_int64(value), span);
            buf_append_text(out, span);
        } else {
            (void)duration_format(json_object_get_int64(value), duration);
            buf_append_text(out, duration);
        }
    } else if (strcmp(member, "permits") == 0 && json_object_is_type(value, json_type_array)) {
        append_permits(out, value);
    } else {
        append_value(out, value);
    }
    escape_control_chars(out->data, out->length);
}

void json_print_lines_of(struct json_object *object, const struct json_column *columns, size_t count)
{
    struct buf text;
    buf_init(&text, CELL_MAX);
    for (size_t i = 0; i < count; i++) {
        struct json_object *value;
        if (!json_object_object_get_ex(object, columns[i].member, &value) || !value)
            continue;
        format_cell(object, columns[i].member, &text);
        (void)printf("%-14s %s\n", columns[i].heading, buf_text(&text));
    }
    buf_release(&text);
}

void json_print_lines(const char *body, const struct json_column *columns, size_t count)
{
    struct json_object *object = json_tokener_parse(body);
    json_print_lines_of(object, columns, count);
    json_object_put(object);
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

static void measure(struct json_object *array, const struct json_column *columns, int *widths, size_t count,
                    struct buf *text)
{
    for (size_t i = 0; i < count; i++) {
        widths[i] = (int)strlen(columns[i].heading);
        for (size_t row = 0; row < json_object_array_length(array); row++) {
            format_cell(json_object_array_get_idx(array, row), columns[i].member, text);
            int width = (int)columns_of(buf_text(text));
            widths[i] = width > widths[i] ? width : widths[i];
        }
    }
}

static bool any_row_has(struct json_object *array, const char *member)
{
    for (size_t row = 0; row < json_object_array_length(array); row++)
        if (json_object_object_get_ex(json_object_array_get_idx(array, row), member, NULL))
            return true;
    return false;
}

/* Most semaphores have no labels, most queues no kept places, and most clients see one namespace. */
static bool is_rare(const char *member)
{
    return strncmp(member, "label", strlen("label")) == 0 || strcmp(member, "kept") == 0 ||
           strcmp(member, "namespace") == 0;
}

/* Omits rare columns if no row has a value in them. */
static size_t choose_columns(struct json_object *array, const struct json_column *all, size_t count,
                             struct json_column ret_columns[COLUMNS_MAX])
{
    size_t chosen = 0;
    for (size_t i = 0; i < count && chosen < COLUMNS_MAX; i++)
        if (!is_rare(all[i].member) || any_row_has(array, all[i].member))
            ret_columns[chosen++] = all[i];
    return chosen;
}

void json_print_table_of(struct json_object *object, const char *member, const struct json_column *all_columns,
                         size_t all_count, int indent)
{
    struct json_object *array = NULL;
    int widths[COLUMNS_MAX];
    struct json_column columns[COLUMNS_MAX];
    struct buf text;
    buf_init(&text, CELL_MAX);
    if (json_object_object_get_ex(object, member, &array) && json_object_is_type(array, json_type_array)) {
        size_t count = choose_columns(array, all_columns, all_count, columns);
        measure(array, columns, widths, count, &text);
        print_row(NULL, columns, widths, count, indent, &text);
        for (size_t row = 0; row < json_object_array_length(array); row++)
            print_row(json_object_array_get_idx(array, row), columns, widths, count, indent, &text);
    }
    buf_release(&text);
}

void json_print_table(const char *body, const char *member, const struct json_column *columns, size_t count)
{
    struct json_object *object = json_tokener_parse(body);
    json_print_table_of(object, member, columns, count, 0);
    json_object_put(object);
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

/* ---- Reading ---- */

struct json_object *json_read(const char *body)
{
    return json_tokener_parse(body);
}

void json_free(struct json_object *whole)
{
    json_object_put(whole);
}

static struct json_object *member_of(struct json_object *object, const char *member, enum json_type type)
{
    struct json_object *value = NULL;
    (void)json_object_object_get_ex(object, member, &value);
    return json_object_is_type(value, type) ? value : NULL;
}

const char *json_text_of(struct json_object *object, const char *member)
{
    struct json_object *value = member_of(object, member, json_type_string);
    return value ? json_object_get_string(value) : NULL;
}

int64_t json_number_of(struct json_object *object, const char *member)
{
    int64_t number = json_object_get_int64(member_of(object, member, json_type_int));
    return max_i64(-NUMBER_MAX, min_i64(number, NUMBER_MAX));
}

bool json_true_of(struct json_object *object, const char *member)
{
    return json_object_get_boolean(member_of(object, member, json_type_boolean));
}

size_t json_length_of(struct json_object *object, const char *member)
{
    struct json_object *array = member_of(object, member, json_type_array);
    return array ? json_object_array_length(array) : 0;
}

struct json_object *json_object_of(struct json_object *object, const char *member)
{
    return member_of(object, member, json_type_object);
}

struct json_object *json_item_of(struct json_object *object, const char *member, size_t index)
{
    struct json_object *array = member_of(object, member, json_type_array);
    return array ? json_object_array_get_idx(array, index) : NULL; /* json-c aborts if the value is no array */
}

const char *json_item_text(struct json_object *object, const char *member, size_t index)
{
    struct json_object *item = json_item_of(object, member, index);
    return json_object_is_type(item, json_type_string) ? json_object_get_string(item) : "";
}

int64_t json_number(const char *body, const char *member)
{
    struct json_object *object = json_tokener_parse(body);
    int64_t number = json_number_of(object, member);
    json_object_put(object);
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

/* ---- Pages of a list ---- */

struct json_pages {
    struct json_object *object; /* {member: [...]} */
};

static struct json_pages *pages_new(const char *member)
{
    struct json_pages *pages = calloc(1, sizeof(*pages));
    struct json_object *array = json_object_new_array();
    if (pages)
        pages->object = json_object_new_object();
    if (pages && pages->object && array && json_object_object_add(pages->object, member, array) == 0)
        return pages;
    json_object_put(array);
    json_pages_free(pages);
    return NULL;
}

static struct json_object *pages_array(const struct json_pages *pages, const char *member)
{
    struct json_object *array = NULL;
    (void)json_object_object_get_ex(pages->object, member, &array);
    return array;
}

bool json_pages_add(struct json_pages **all, const char *body, const char *member, char *ret_next, size_t size)
{
    struct json_object *object = json_tokener_parse(body);
    struct json_object *array = NULL;
    struct json_object *next = NULL;
    if (!*all)
        *all = pages_new(member);
    bool whole =
        *all && json_object_object_get_ex(object, member, &array) && json_object_is_type(array, json_type_array);
    for (size_t i = 0; whole && i < json_object_array_length(array); i++) {
        struct json_object *row = json_object_get(json_object_array_get_idx(array, i));
        whole = json_object_array_add(pages_array(*all, member), row) == 0;
    }
    bool more = whole && json_object_object_get_ex(object, "next", &next) && next;
    (void)snprintf(ret_next, size, "%s", more ? json_object_get_string(next) : "");
    json_object_put(object);
    return whole;
}

size_t json_pages_count(const struct json_pages *pages, const char *member)
{
    return json_object_array_length(pages_array(pages, member));
}

const char *json_pages_text(struct json_pages *pages)
{
    return json_object_to_json_string_ext(pages->object, TEXT_FLAGS);
}

struct json_object *json_pages_read(struct json_pages *pages)
{
    return pages ? pages->object : NULL;
}

void json_pages_free(struct json_pages *pages)
{
    if (!pages)
        return;
    json_object_put(pages->object);
    free(pages);
}

/* ---- Writing ---- */

struct json_writer {
    struct json_object *object;
    bool broken;
};

struct json_writer *json_writer_from(const char *body)
{
    struct json_writer *writer = calloc(1, sizeof(*writer));
    if (!writer)
        return NULL;
    writer->object = json_tokener_parse(body);
    writer->broken = !json_object_is_type(writer->object, json_type_object);
    return writer;
}

struct json_writer *json_writer_new(void)
{
    return json_writer_from("{}");
}

static void add(struct json_writer *writer, const char *name, struct json_object *value)
{
    if (!writer || writer->broken || !value || json_object_object_add(writer->object, name, value) != 0) {
        json_object_put(value);
        if (writer)
            writer->broken = true;
    }
}

void json_add_text(struct json_writer *writer, const char *name, const char *text)
{
    if (text)
        add(writer, name, json_object_new_string(text));
}

void json_add_number(struct json_writer *writer, const char *name, int64_t number)
{
    if (number != CLI_UNSET)
        add(writer, name, json_object_new_int64(number));
}

void json_add_duration(struct json_writer *writer, const char *name, int64_t ms)
{
    char text[32];
    (void)snprintf(text, sizeof(text), "%lldms", (long long)ms);
    if (ms != CLI_UNSET)
        json_add_text(writer, name, ms == PERMIT_TTL_NONE ? "none" : text);
}

void json_add_bool(struct json_writer *writer, const char *name, bool value)
{
    add(writer, name, json_object_new_boolean(value));
}

void json_add_texts(struct json_writer *writer, const char *name, const char *const *texts, size_t count)
{
    struct json_object *array = count ? json_object_new_array() : NULL;
    bool whole = array != NULL;
    for (size_t i = 0; whole && i < count; i++) {
        struct json_object *text = *texts[i] ? json_object_new_string(texts[i]) : NULL;
        whole = (text || !*texts[i]) && json_object_array_add(array, text) == 0;
    }
    if (!whole) {
        json_object_put(array);
        array = NULL;
    }
    if (count)
        add(writer, name, array);
}

void json_add_items(struct json_writer *writer, const char *name)
{
    add(writer, name, json_object_new_array());
}

void json_add_item(struct json_writer *writer, const char *name, struct json_writer *item)
{
    struct json_object *value = item && !item->broken ? json_object_get(item->object) : NULL;
    if (!writer || writer->broken)
        json_object_put(value);
    else if (!value || json_object_array_add(member_of(writer->object, name, json_type_array), value) != 0)
        writer->broken = true;
}

static struct json_object *labels_value(const struct permit_held *held)
{
    struct json_object *labels = json_object_new_array();
    for (size_t i = 0; i < held->slot_count; i++)
        (void)json_object_array_add(labels, held->labels[i] ? json_object_new_string(held->labels[i]) : NULL);
    return labels;
}

static struct json_object *held_value(const struct permit_held *held)
{
    struct json_object *value = json_object_new_object();
    struct json_object *slots = json_object_new_array();
    for (size_t i = 0; i < held->slot_count; i++)
        (void)json_object_array_add(slots, json_object_new_int64(held->slots[i]));
    (void)json_object_object_add(value, "semaphore", json_object_new_string(held->semaphore));
    (void)json_object_object_add(value, "count", json_object_new_int64(held->count));
    (void)json_object_object_add(value, "token", json_object_new_int64((int64_t)held->token));
    (void)json_object_object_add(value, "slots", slots);
    if (held->labels)
        (void)json_object_object_add(value, "labels", labels_value(held));
    return value;
}

void json_add_permits(struct json_writer *writer, const char *name, const struct permit_request *request)
{
    struct json_object *array = json_object_new_array();
    for (size_t i = 0; i < request->permit_count; i++)
        (void)json_object_array_add(array, held_value(&request->permits[i]));
    add(writer, name, array);
}

const char *json_text(struct json_writer *writer)
{
    return !writer || writer->broken ? NULL : json_object_to_json_string_ext(writer->object, TEXT_FLAGS);
}

void json_writer_free(struct json_writer *writer)
{
    if (!writer)
        return;
    json_object_put(writer->object);
    free(writer);
}
