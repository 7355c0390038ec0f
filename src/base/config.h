/* SPDX-License-Identifier: MIT */
/*
 * Settings from one table: a row says name, type, default, whether SIGHUP may change it, and the help text. A setting
 * `log_level` is `log_level = ...` in the file (INI), PERMITD_LOG_LEVEL in the environment and --log-level on the
 * command line; a later one of these wins. Whoever has the table need not know how it was filled. The only file that
 * speaks to inih.
 */
#ifndef BASE_CONFIG_H
#define BASE_CONFIG_H

#include <stdio.h>

#include "base/base.h"
#include "base/buf.h"

enum config_type {
    CONFIG_TEXT,     /* char * (malloc'ed; NULL when the default is NULL) */
    CONFIG_BOOL,     /* bool; as a flag it needs no value: --insecure */
    CONFIG_NUMBER,   /* int64_t, between min and max */
    CONFIG_DURATION, /* int64_t in milliseconds, between min and max (in ms) */
    CONFIG_SIZE,     /* int64_t in bytes, between min and max (in bytes): 256MiB, 2GiB, 1048576 */
    CONFIG_CHOICE,   /* const char *, one of the words in `choices`, pointing into the table's own text */
};

enum config_flags {
    CONFIG_RELOADABLE = 1, /* SIGHUP may change it */
    CONFIG_SECRET = 2,     /* never printed */
};

struct config_row {
    const char *name; /* with_underscores */
    enum config_type type;
    size_t offset;            /* of the member in the settings struct */
    const char *default_text; /* in the syntax of the file; NULL: unset (text only) */
    int64_t min;              /* numbers, durations and sizes */
    int64_t max;
    const char *const *choices; /* NULL-terminated, for CONFIG_CHOICE */
    unsigned flags;
    const char *placeholder; /* "DIR", "URL" in --help; NULL: from the type */
    const char *help;        /* one or two sentences */
};

struct config_table {
    const struct config_row *rows;
    size_t count;
    const char *environment_prefix; /* "PERMITD_" */
    /* Names behind that prefix that other programs read ("URL"), NULL-terminated; NULL: none. */
    const char *const *environment_ignored;
};

/* Sets every member to its default. The struct was zeroed or released before. False: no memory or a bad table
 * (message). */
bool config_init(const struct config_table *table, void *settings, struct buf *message) MUST_CHECK;
/* Frees the text members and zeroes them. */
void config_release(const struct config_table *table, void *settings);

/* Each returns false with a sentence in `message` that names the setting, what was given, and what is expected. */
bool config_load_file(const struct config_table *table, void *settings, const char *path,
                      struct buf *message) MUST_CHECK;
bool config_load_environment(const struct config_table *table, void *settings, struct buf *message) MUST_CHECK;
/*
 * Takes one argument of the command line (and its value from the next if it needs one), as --name=value or --name
 * value. *index stands on it and is left on the last one used.
 */
bool config_load_argument(const struct config_table *table, void *settings, int argc, char **argv, int *index,
                          struct buf *message) MUST_CHECK;
/*
 * After SIGHUP: `fresh` was loaded anew; copies the reloadable members into `settings`, and appends to `message`, with
 * commas, the names of those that differ but need a restart. Both stay owned by the caller.
 */
void config_reload(const struct config_table *table, void *settings, void *fresh, struct buf *message);

/* The options part of --help. */
void config_print_help(const struct config_table *table, FILE *out);
/* A Markdown table for docs/config.md. */
void config_print_markdown(const struct config_table *table, FILE *out);
#endif
