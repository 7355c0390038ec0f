/* SPDX-License-Identifier: MIT */
/* Shared by the files of permitctl: the options of the command line, and the verbs. */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include <stdio.h>
#include <sys/select.h>

#include "base/base.h"
#include "cli/server_options.h"
#include "client/json.h"
#include "core/semaphore.h"
#include "permit/permit.h"

/*
 * Exit statuses of permitctl. `run` otherwise exits with the status of its command. --help documents them (options.c).
 */
enum cli_exit {
    CLI_OK = 0,
    CLI_DECLINED = 1, /* not confirmed; nothing was done */
    CLI_FOUND = 2,    /* reconcile: there are findings */
    CLI_USAGE = 64,
    CLI_REFUSED = 65,         /* refused by the server; a retry will not help */
    CLI_NO_SERVER = 69,       /* no server answers, or the server cannot work now */
    CLI_NO_START = 71,        /* out of memory, processes or descriptors, or a file cannot be written */
    CLI_NO_CAPACITY = 75,     /* not granted in time: no capacity, paused, or too many; -E changes it */
    CLI_LOST = 76,            /* the permit is no longer held */
    CLI_UNAUTHENTICATED = 77, /* no valid credential: 401 */
    CLI_FORBIDDEN = 78,       /* not allowed: 403 */
};

enum { CLI_MAX_WANTS = 64 };

/* Value of a number or duration that was not given. */
#define CLI_UNSET JSON_ABSENT

/* The option of a setting of a semaphore. */
union setting_option {
    int64_t number;   /* CLI_UNSET: not given */
    const char *text; /* of a text or a choice; NULL: not given */
};

/* The options without a value. */
enum cli_flag {
    FLAG_INSECURE,
    FLAG_JSON,
    FLAG_HELP,
    FLAG_VERSION,
    FLAG_VERBOSE,
    FLAG_NO_WAIT,
    FLAG_NO_RETRY,
    FLAG_ALLOW_REPLAY,
    FLAG_KEEP_CREDENTIAL,
    FLAG_CONFIRMED,
    FLAG_FORCE,
    FLAG_YES,
    FLAG_ONCE,
    FLAG_APPLY,
    FLAG_FOLLOW,
    FLAG_COUNT,
};

/* The units of several semaphores. */
struct want_list {
    struct permit_want wants[CLI_MAX_WANTS];
    size_t count;
};

/* Every option of every verb. argv owns the strings. */
struct cli_options {
    const char *url;
    const char *token;
    const char *token_file;
    const char *ca;
    const char *cert;
    const char *key;
    bool flags[FLAG_COUNT]; /* those that were given */

    struct want_list taken, given; /* given: back, by shrink and exchange */
    struct permit_want *last_want; /* of either; NULL: none yet */
    int64_t changes;               /* CLI_UNSET: those of the request when the verb runs */
    const char **names; /* of --slot, --any-of or --label; those of one want are adjacent; cli_main frees the array */
    size_t name_count;
    int64_t ttl_ms; /* PERMIT_TTL_NONE: no ttl; PERMIT_TTL_OWNER: held by heartbeat */
    int64_t wait_ms;
    int64_t wait_piece_ms;
    int64_t priority;
    const char *id;
    const char *owner;
    struct json_writer *metadata; /* of --label; NULL: none; cli_main frees it */
    int64_t exit_code;
    const char *on_lost;
    const char *report;

    union setting_option settings[SETTING_COUNT];
    const char *labels, *seats; /* names of files */

    const char *prefix;
    int64_t limit;
    int64_t slot;

    const char *semaphore; /* requests, feed: only those of this semaphore */
    const char *after;     /* feed: a cursor */
    const char *state;
    const char *at;
    const char *reason;
    const char *role;
    const char *semaphores; /* scope of a principal */
    const char *until;
    const char *append;    /* name of a credentials file */
    const char *namespace; /* token make: of the principal; else that of the key or owner; NULL: the caller's own */
    int64_t interval_ms;   /* top: refresh interval */
    const char *orders;    /* name of a file, or - */
    int64_t min_age_ms;
    int64_t since_ms;
};

struct cli {
    const struct verb *verb;
    const char *group; /* with --help: first word of several verbs, if no single verb is given */
    struct cli_options options;
    char **words; /* after the verb; for `run` the command, ended by NULL */
    int word_count;
    struct server_options found;
    struct permit_client *client; /* of `found`; NULL in a verb that connects by itself */
    fd_set inherited;             /* descriptors that were open when permitctl started */
};

struct verb {
    const char *name;
    const char *arguments; /* shown in the usage line */
    uint64_t bit;          /* one of VERB_...; selects the options that the verb takes */
    int min_words;
    int max_words;
    bool takes_command; /* the first word ends the options */
    int (*run)(struct cli *cli);
    const char *help;
    const char *more; /* further paragraphs of --help; may be NULL */
};

/* Bits of a verb; verbs that take the same options share one. */
#define VERB_RUN              (UINT64_C(1) << 0)
#define VERB_ACQUIRE          (UINT64_C(1) << 1)
#define VERB_RELEASE          (UINT64_C(1) << 2)
#define VERB_RENEW            (UINT64_C(1) << 3)
#define VERB_SHOW             (UINT64_C(1) << 4)
#define VERB_PUT              (UINT64_C(1) << 5)
#define VERB_GET              (UINT64_C(1) << 6)
#define VERB_LIST             (UINT64_C(1) << 7)
#define VERB_TEMPLATE_DELETE  (UINT64_C(1) << 8)
#define VERB_HOLDERS          (UINT64_C(1) << 9)
#define VERB_FENCE            (UINT64_C(1) << 10)
#define VERB_PLAIN            (UINT64_C(1) << 11) /* a verb without options of its own */
#define VERB_CONFIRM          (UINT64_C(1) << 12)
#define VERB_FORCE            (UINT64_C(1) << 13)
#define VERB_REQUESTS         (UINT64_C(1) << 14)
#define VERB_PAUSE            (UINT64_C(1) << 15)
#define VERB_RESUME           (UINT64_C(1) << 16)
#define VERB_EVENTS           (UINT64_C(1) << 17)
#define VERB_BUMP             (UINT64_C(1) << 18)
#define VERB_BEAT             (UINT64_C(1) << 19)
#define VERB_OWNER            (UINT64_C(1) << 20)
#define VERB_WAITERS          (UINT64_C(1) << 21)
#define VERB_WHY              (UINT64_C(1) << 22)
#define VERB_TOP              (UINT64_C(1) << 23)
#define VERB_SLOTS            (UINT64_C(1) << 24)
#define VERB_TEMPLATE         (UINT64_C(1) << 25)
#define VERB_SEMAPHORE_DELETE (UINT64_C(1) << 26)
#define VERB_LOGIN            (UINT64_C(1) << 27)
#define VERB_LOGOUT           (UINT64_C(1) << 28)
#define VERB_TOKEN_MAKE       (UINT64_C(1) << 29)
#define VERB_TOKEN_CHECK      (UINT64_C(1) << 30)
#define VERB_SQL_ACCOUNT_PUT  (UINT64_C(1) << 31)
#define VERB_RECONCILE        (UINT64_C(1) << 32)
#define VERB_REPORT           (UINT64_C(1) << 33)
#define VERB_FEED             (UINT64_C(1) << 34)
#define VERB_SHRINK           (UINT64_C(1) << 35)
#define VERB_GROW             (UINT64_C(1) << 36)
#define VERB_EXCHANGE         (UINT64_C(1) << 37)
#define VERB_ANY              UINT64_MAX
/* Verbs that call no server, or connect by themselves. */
#define VERBS_UNCONNECTED     (VERB_LOGIN | VERB_LOGOUT | VERB_TOKEN_MAKE | VERB_TOKEN_CHECK)

/* Runs permitctl. Returns its exit status. */
int cli_main(int argc, char **argv);

/* Returns the verb that the first words name. NULL: no such verb. *ret_used is the number of words in its name. */
const struct verb *verb_find(char **words, int count, int *ret_used);
const struct verb *verb_table(size_t *ret_count);

/* Parses the command line. Returns CLI_OK, or another exit status after an error message. */
int options_parse(int argc, char **argv, struct cli *cli) MUST_CHECK;
/* Prints the help of one verb, or else of the verbs that begin with the word `group`, or (both NULL) of all verbs. */
void options_print_help(const struct verb *verb, const char *group, FILE *out);

/* Returns the exit status for a call that ended with this status. */
int cli_exit_of(const struct cli *cli, enum permit_status status);
/* Reports the failure of the last call on stderr, with --json also the problem on stdout. Returns the exit status. */
int cli_fail(struct cli *cli, enum permit_status status);
/* Prints a message on stderr. Returns `code`. */
int cli_error(int code, const char *format, ...) PRINTF_LIKE(2, 3);

int verb_run(struct cli *cli);
int verb_acquire(struct cli *cli);
int verb_release(struct cli *cli);
int verb_renew(struct cli *cli);
int verb_confirm(struct cli *cli);
int verb_shrink(struct cli *cli);
int verb_grow(struct cli *cli);
int verb_exchange(struct cli *cli);
int verb_show(struct cli *cli);
int verb_force_release(struct cli *cli);
int verb_requests(struct cli *cli);
int verb_semaphore_put(struct cli *cli);
int verb_semaphore_get(struct cli *cli);
int verb_list(struct cli *cli);
int verb_availability(struct cli *cli);
int verb_semaphore_delete(struct cli *cli);
int verb_semaphore_pause(struct cli *cli);
int verb_semaphore_resume(struct cli *cli);
int verb_template_put(struct cli *cli);
int verb_template_get(struct cli *cli);
int verb_template_delete(struct cli *cli);
int verb_sql_account_put(struct cli *cli);
int verb_sql_account_delete(struct cli *cli);
int verb_owner_beat(struct cli *cli);
int verb_owner_show(struct cli *cli);
int verb_owner_gone(struct cli *cli);
int verb_why(struct cli *cli);
int verb_top(struct cli *cli);
int verb_fence_check(struct cli *cli);
int verb_token_make(struct cli *cli);
int verb_token_check(struct cli *cli);
int verb_login(struct cli *cli);
int verb_logout(struct cli *cli);
int verb_whoami(struct cli *cli);
int verb_servers(struct cli *cli);
int verb_doctor(struct cli *cli);
int verb_feed(struct cli *cli);
int verb_locks(struct cli *cli);
int verb_webhooks(struct cli *cli);
int verb_reconcile(struct cli *cli);
int verb_report(struct cli *cli);
int verb_fence_bump(struct cli *cli);
#endif
