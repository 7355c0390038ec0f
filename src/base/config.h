/* SPDX-License-Identifier: MIT */
/*
 * Settings from one table. A row has name, type, default, help text, and a flag for settings that SIGHUP may change.
 * The setting `log_level` is `log_level = ...` in the file (INI), PERMITD_LOG_LEVEL in the environment and --log-level
 * on the command line; a later one of these wins. The owner of the table need not know where a value came from.
 */
#ifndef BASE_CONFIG_H
#define BASE_CONFIG_H

#include <stdio.h>

#include "base/base.h"
#include "base/buf.h"

enum config_type {
    CONFIG_TEXT,     /* char *, from malloc; NULL if the text is empty or the default is NULL */
    CONFIG_BOOL,     /* bool; the flag may omit its value: --insecure, --short-path off, --short-path=off */
    CONFIG_NUMBER,   /* int64_t, between min and max. This one and the next two: also size_t or uint64_t if min >= 0 */
    CONFIG_DURATION, /* int64_t in milliseconds, between min and max (in ms) */
    CONFIG_SIZE,     /* int64_t in bytes, between min and max (in bytes): 256MiB, 2GiB, 1048576 */
    CONFIG_CHOICE,   /* const char *, one of the words in `choices`; points into the table */
    CONFIG_LIST,     /* struct config_list: several texts. A source gives one per line or flag, or several separated by
                        commas; a later source replaces the whole list */
};

/* A list of texts, from malloc. */
struct config_list {
    char **texts; /* NULL-terminated; NULL: empty */
    size_t count;
    bool complete; /* its source has been read: the next text begins a new list */
};

enum config_flags {
    CONFIG_RELOADABLE = 1,   /* SIGHUP may change it */
    CONFIG_SECRET = 2,       /* never printed */
    CONFIG_MICROSECONDS = 4, /* the member of a duration is in microseconds */
};

struct config_row {
    const char *name; /* with_underscores */
    enum config_type type;
    size_t offset;            /* offset of the member in the settings struct */
    const char *default_text; /* in file syntax; NULL: unset (text only) */
    int64_t min;              /* for numbers, durations and sizes */
    int64_t max;
    const char *const *choices; /* NULL-terminated, for CONFIG_CHOICE */
    unsigned flags;
    const char *placeholder; /* "DIR", "URL" in --help; NULL: derived from the type */
    const char *help;        /* one or two sentences */
};

/* The rows of one struct: the settings of a room, say. */
struct config_section {
    const struct config_row *rows;
    size_t count;
};

struct config_table {
    const struct config_row *rows;
    size_t count;
    const char *environment_prefix; /* "PERMITD_" */
    /* Names after the prefix that belong to other programs ("URL"), NULL-terminated; NULL: none. */
    const char *const *environment_ignored;
};

/*
 * Sets every member to its default. The struct must be zeroed or released before. False: out of memory or a bad table
 * (message).
 */
bool config_init(const struct config_table *table, void *settings, struct buf *message) MUST_CHECK;
/* Frees the texts and lists and sets them to NULL. */
void config_release(const struct config_table *table, void *settings);

/* Loads a source of settings. False: `message` names the setting, the given value and the expected form. */
bool config_load_file(const struct config_table *table, void *settings, const char *path,
                      struct buf *message) MUST_CHECK;
/*
 * The environment may have variables with the prefix that Kubernetes or docker --link has set for a service of that
 * name, such as PERMITD_SERVICE_HOST and PERMITD_PORT=tcp://10.43.0.5:7070. They are ignored.
 */
bool config_load_environment(const struct config_table *table, void *settings, struct buf *message) MUST_CHECK;
/* Appends the names of these variables, separated by commas; nothing if there is none. */
void config_name_service_variables(const char *prefix, struct buf *names);
/* Begins a new source: the next text of a list replaces the whole list. Called before the first argument is parsed. */
void config_begin_source(const struct config_table *table, void *settings);
/*
 * Parses one command-line argument, as --name=value or --name value. *index points to the argument and is moved to its
 * value if that is a separate argument.
 */
bool config_load_argument(const struct config_table *table, void *settings, int argc, char **argv, int *index,
                          struct buf *message) MUST_CHECK;
/*
 * Applies a reload after SIGHUP: copies the reloadable members of `fresh` into `settings`, and appends to `message`,
 * separated by commas, the names of other members that differ and need a restart. Both structs stay owned by the
 * caller. Numbers are written atomically, so that other threads may read those that are declared _Atomic.
 */
void config_reload(const struct config_table *table, void *settings, void *fresh, struct buf *message);

/*
 * Copies the reloadable flags, numbers, durations and sizes of one struct, whose offsets are those of the section; no
 * texts and lists.
 */
void config_copy_values(const struct config_section *section, const void *from, void *to);

/* Parses a size, such as 4096 or 64MiB. False: it is none, or too large. */
bool config_parse_size(const char *text, int64_t *ret_bytes) MUST_CHECK;

enum { CONFIG_HELP_INDENT = 28 }; /* columns before the texts of config_print_help */
/* Prints the options of --help. */
void config_print_help(const struct config_table *table, FILE *out);
/* Prints the Markdown table of docs/config.md. */
void config_print_markdown(const struct config_table *table, FILE *out);
#endif
