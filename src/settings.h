/* SPDX-License-Identifier: MIT */
/* The settings of permitd, from its file, environment and command line, and their table (settings.c). */
#ifndef SETTINGS_H
#define SETTINGS_H

#include "base/base.h"
#include "base/buf.h"
#include "base/config.h"

struct settings {
    struct config_list listen;
    bool insecure;
    char *tls_certificate;
    char *tls_key;
    char *tls_client_ca;
    int64_t tls_handshakes;
    char *credentials;
    char *advertise;
    char *allowed_hosts;
    char *data_dir;
    char *user;
    bool allow_root;
    int64_t buffer_pool;
    char *database;
    char *database_password;
    bool unsafe_multi_writer;
    int64_t workers;
    int64_t max_connections;
    int64_t max_connections_per_address;
    int64_t max_memory;
    int64_t max_pending;
    int64_t max_wait_ms;
    int64_t max_waiters;
    int64_t max_semaphore_waiters;
    int64_t max_owner_waiters;
    int64_t max_waiting_bytes;
    int64_t max_semaphores;
    int64_t max_slots;
    int64_t wait_poll_ms;
    bool short_path;
    int64_t backfill_bound_ms;
    int64_t request_timeout_ms;
    int64_t idle_timeout_ms;
    int64_t default_ttl_ms;
    int64_t retention_ms;
    int64_t retention_rows;
    int64_t failover_hold_ms;
    char *liveness_url;
    char *liveness_ca;
    int64_t liveness_interval_ms;
    int64_t metrics_semaphores;
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
