/* SPDX-License-Identifier: MIT */
/* The labels of `semaphore put`: of --label, or of the lines of a file; in pages that a body has room for. */
#ifndef CLI_LABELS_H
#define CLI_LABELS_H

#include "cli/cli.h"

struct labels {
    const char **texts; /* "": none */
    size_t count;
    char *file; /* what texts of a file point into */
};

/* CLI_OK, or a complaint has been written. labels_release in any case. */
int labels_read(const struct cli_options *given, struct labels *ret_labels) MUST_CHECK;
/* How many of them, from `from` on, go into one body; 0 behind the last. */
size_t labels_page(const struct labels *labels, size_t from) MUST_CHECK;
/* Writes a page; path is the semaphore's. */
enum permit_status labels_put(struct cli *cli, const char *path, const struct labels *labels, size_t from,
                              size_t count) MUST_CHECK;
void labels_release(struct labels *labels);
#endif
