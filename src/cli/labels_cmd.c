/* SPDX-License-Identifier: MIT */
#include "cli/labels_cmd.h"

#include "cli/json_print.h"
#include "cli/list_pages.h"

/*
 * permitd accepts a body of 256 KiB for PUT semaphore. A byte of a label takes at most two bytes in JSON (six only for
 * bytes that permitd refuses).
 */
enum { PAGE_LABELS = 1000, PAGE_BYTES = 100000, FILE_MAX = 32 << 20 };

static int read_lines(const char *path, struct labels *labels)
{
    int code = text_file_read(path, FILE_MAX, &labels->file);
    labels->texts = (const char *const *)labels->file.lines;
    labels->count = labels->file.count;
    return code;
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
    ret_labels->texts = given->names;
    ret_labels->count = given->name_count;
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
    text_file_release(&labels->file);
}
