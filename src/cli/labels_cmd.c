/* SPDX-License-Identifier: MIT */
#include "cli/labels_cmd.h"

#include <stdlib.h>

#include "cli/json_print.h"
#include "cli/list_pages.h"
#include "cli/text_file.h"

/*
 * permitd accepts a body of 256 KiB for PUT semaphore. A byte of a label takes at most two bytes in JSON (six only for
 * bytes that permitd refuses).
 */
enum { PAGE_LABELS = 1000, PAGE_BYTES = 100000, FILE_MAX = 32 << 20 };

/* Ends each line by a zero in place of its line feed (and of a carriage return before it). */
static void cut_lines(struct labels *labels, size_t length)
{
    char *at = labels->file;
    const char *end = labels->file + length;
    while (at < end) {
        size_t line = strcspn(at, "\n");
        labels->texts[labels->count++] = at;
        at[line] = '\0';
        if (line && at[line - 1] == '\r')
            at[line - 1] = '\0';
        at += line + 1;
    }
}

static int read_lines(const char *path, struct labels *labels)
{
    size_t length;
    int code = text_file_read(path, FILE_MAX, &labels->file, &length);
    if (code)
        return code;
    size_t lines = 1;
    for (size_t i = 0; i < length; i++)
        lines += labels->file[i] == '\n';
    labels->texts = calloc(lines, sizeof(*labels->texts));
    if (!labels->texts)
        return cli_error(CLI_NO_START, "out of memory");
    cut_lines(labels, length);
    return CLI_OK;
}

/* Checks that each line is one JSON object; permitd checks its members. */
static int check_seats(const char *path, const struct labels *seats)
{
    for (size_t i = 0; i < seats->count; i++) {
        struct json_object *object = json_read(seats->texts[i]);
        bool is_object = object != NULL;
        json_free(object);
        if (!is_object)
            return cli_error(CLI_USAGE, "%s: line %zu is not a JSON object", path, i + 1);
    }
    return CLI_OK;
}

int labels_read(const struct cli_options *given, struct labels *ret_labels)
{
    *ret_labels = (struct labels){0};
    if (given->labels && given->name_count)
        return cli_error(CLI_USAGE, "--label and --labels exclude each other");
    if (given->seats && (given->labels || given->name_count))
        return cli_error(CLI_USAGE, "--seats has the labels, too: it excludes --label and --labels");
    if (given->labels)
        return read_lines(given->labels, ret_labels);
    if (given->seats) {
        int code = read_lines(given->seats, ret_labels);
        ret_labels->are_seats = true;
        return code == CLI_OK ? check_seats(given->seats, ret_labels) : code;
    }
    ret_labels->texts = calloc(given->name_count + 1, sizeof(*ret_labels->texts));
    if (!ret_labels->texts)
        return cli_error(CLI_NO_START, "out of memory");
    for (size_t i = 0; i < given->name_count; i++)
        ret_labels->texts[ret_labels->count++] = given->names[i];
    return CLI_OK;
}

size_t labels_page(const struct labels *labels, size_t from)
{
    size_t bytes = 0;
    size_t count = 0;
    while (from + count < labels->count && count < PAGE_LABELS && (count == 0 || bytes < PAGE_BYTES))
        bytes += strlen(labels->texts[from + count++]);
    return count;
}

static void add_seats(struct json_writer *writer, const char *const *texts, size_t count)
{
    json_add_items(writer, "slots");
    for (size_t i = 0; i < count; i++) {
        struct json_object *seat = json_read(texts[i]);
        json_append_value(writer, "slots", seat);
        json_free(seat);
    }
}

enum permit_status labels_put(struct cli *cli, const char *path, const struct labels *labels, size_t from, size_t count)
{
    char page[CLI_PATH_MAX + 32];
    struct json_writer *writer = json_writer_new();
    (void)snprintf(page, sizeof(page), "%s/slots?from=%zu", path, from + 1);
    if (labels->are_seats)
        add_seats(writer, labels->texts + from, count);
    else
        json_add_texts(writer, "labels", labels->texts + from, count);
    const char *body = json_text(writer);
    enum permit_status status = body ? permit_call(cli->client, "PUT", page, body) : PERMIT_NO_MEMORY;
    json_writer_free(writer);
    return status;
}

void labels_release(struct labels *labels)
{
    free(labels->texts);
    free(labels->file);
}
