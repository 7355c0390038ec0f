/* SPDX-License-Identifier: MIT */
/*
 * The labels of `semaphore put`, from --label or from the lines of a file, or its seats, each line a JSON object; sent
 * in pages that fit into a body.
 */
#ifndef CLI_LABELS_CMD_H
#define CLI_LABELS_CMD_H

#include "cli/cli.h"
#include "cli/text_file.h"

struct labels {
    const char *const *texts; /* "": no label */
    size_t count;
    bool are_seats;        /* JSON objects, not labels */
    struct text_file file; /* zeroed: the texts are those of --label */
};

/* Reads the labels. Returns CLI_OK, or another exit status after an error message. Call labels_release in any case. */
int labels_read(const struct cli_options *given, struct labels *ret_labels) MUST_CHECK;
/* Returns how many of them, starting at `from`, fit into one body; 0 after the last. */
size_t labels_page(const struct labels *labels, size_t from) MUST_CHECK;
/* Sends a page of labels; `path` is that of the semaphore. */
enum permit_status labels_put(struct cli *cli, const char *path, const struct labels *labels, size_t from,
                              size_t count) MUST_CHECK;
void labels_release(struct labels *labels);
#endif
