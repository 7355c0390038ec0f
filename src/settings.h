/* SPDX-License-Identifier: MIT */
/*
 * The settings of permitd, from its file, environment and command line. Each room has a struct and a table of its own;
 * settings.c puts the tables together. permitd.c sets the members of these structs that are no settings.
 */
#ifndef SETTINGS_H
#define SETTINGS_H

#include "api/service.h"
#include "base/base.h"
#include "base/buf.h"
#include "engine/engine.h"
#include "http/server.h"

struct settings {
    struct server_settings server;
    struct service_settings service;
    struct engine_settings engine;
    /* Those of permitd itself. */
    char *credentials;
    char *advertise;
    char *data_dir;
    char *user;
    bool allow_root;
    int64_t buffer_pool;
    char *database;
    char *database_password;
    bool unsafe_multi_writer;
    char *liveness_url;
    char *liveness_ca;
    char *webhook_secret;
    char *webhook_hosts;
    bool webhook_private;
    const char *log_level;
    const char *log_format;
};

enum action { ACTION_SERVE, ACTION_CHECK, ACTION_HELP, ACTION_VERSION, ACTION_MARKDOWN, ACTION_ROUTES };

struct command_line {
    int argc;
    char **argv;
    const char *config_file; /* NULL: none */
    enum action action;
};

/*
 * Finds -c FILE and the action among the arguments; settings_load reads the others. False: `message` has the reason.
 */
bool command_line_scan(struct command_line *line, struct buf *message) MUST_CHECK;
/*
 * Loads defaults, file, environment and command line; a later source overrides an earlier one. False: `message` has the
 * reason. The caller releases the settings in both cases.
 */
bool settings_load(const struct command_line *line, struct settings *settings, struct buf *message) MUST_CHECK;
/* Appends the names of the variables that settings_load ignores, as config_name_service_variables does. */
void settings_name_service_variables(struct buf *names);
/* Takes from `fresh` what SIGHUP may change, and appends to `message` the names of other settings that differ. */
void settings_reload(struct settings *settings, struct settings *fresh, struct buf *message);
void settings_release(struct settings *settings);

/* Print on standard output. */
void settings_print_help(void);
void settings_print_markdown(void); /* the table of docs/config.md */
#endif
