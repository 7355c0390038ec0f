/* SPDX-License-Identifier: MIT */
/* What the files of permitctl share: what was asked for on the command line, and the verbs. */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include <stdio.h>
#include <sys/select.h>

#include "base/base.h"
#include "permit/permit.h"

/* What permitctl exits with; `run` else with the status of its command. Documented by --help (options.c). */
enum cli_exit {
    CLI_OK = 0,
    CLI_DECLINED = 1, /* who was asked said no: nothing was done */
    CLI_USAGE = 64,
    CLI_REFUSED = 65,     /* the server said no, and would say so again */
    CLI_NO_SERVER = 69,   /* nobody answers, or the server cannot work now */
    CLI_NO_START = 71,    /* something of this machine is missing: memory, a process, a file that cannot be written */
    CLI_NO_CAPACITY = 75, /* not in time: no room, paused, or too many; -E changes it */
    CLI_LOST = 76,        /* the permit is not held any more */
    CLI_UNAUTHENTICATED = 77, /* no valid credential: 401 */
    CLI_FORBIDDEN = 78,       /* 403 */
};

enum { CLI_MAX_WANTS = 64 };

/* A number or duration that was not given. */
#define CLI_UNSET INT64_MIN

/* Every option of every verb; strings are argv's. */
struct cli_options {
    const char *url;
    const char *token;
    bool json;
    bool help;
    bool version;
    bool verbose;

    struct permit_want wants[CLI_MAX_WANTS];
    size_t want_count;
    const char **names; /* of --slot, --any-of (those of a want stand side by side) or --label; freed by cli_main */
    size_t name_count;
    int64_t ttl_ms; /* PERMIT_TTL_NONE: none; PERMIT_TTL_OWNER: by heartbeat */
    int64_t wait_ms;
    int64_t wait_piece_ms;
    bool no_wait;
    const char *id;
    const char *owner;
    int64_t exit_code;
    const char *on_lost;
    const char *report;

    int64_t capacity;
    const char *kind;
    int64_t default_ttl_ms;
    int64_t max_ttl_ms;
    int64_t grace_ms;
    int64_t max_hold_ms;
    const char *queue;
    const char *note;
    const char *labels; /* a file */

    const char *prefix;
    int64_t limit;
    int64_t slot;

    const char *semaphore; /* requests: only its own */
    const char *state;
    const char *at;
    const char *reason;
    bool confirmed;
    bool force;
    bool yes;

    int64_t interval_ms; /* top */
    bool once;
};

struct cli {
    const struct verb *verb;
    const char *group; /* with --help: the verbs that begin with this word, if not one verb */
    struct cli_options options;
    char **words; /* behind the verb; for `run` the command, closed by NULL */
    int word_count;
    struct permit_client_options server;
    struct permit_client *client; /* of that server */
    fd_set inherited;             /* the descriptors that were open when we started */
};

struct verb {
    const char *name;
    const char *arguments; /* for the usage line */
    unsigned bit;          /* which options it takes: enum verb_bit */
    int min_words;
    int max_words;
    bool takes_command; /* options end at the first word */
    int (*run)(struct cli *cli);
    const char *help;
    const char *more; /* paragraphs for --help; may be NULL */
};

enum verb_bit {
    VERB_RUN = 1 << 0,
    VERB_ACQUIRE = 1 << 1,
    VERB_RELEASE = 1 << 2,
    VERB_RENEW = 1 << 3,
    VERB_SHOW = 1 << 4,
    VERB_PUT = 1 << 5,
    VERB_GET = 1 << 6,
    VERB_LIST = 1 << 7,
    VERB_TEMPLATE_DELETE = 1 << 8,
    VERB_HOLDERS = 1 << 9,
    VERB_FENCE = 1 << 10,
    VERB_DOCTOR = 1 << 11,
    VERB_CONFIRM = 1 << 12,
    VERB_FORCE = 1 << 13,
    VERB_REQUESTS = 1 << 14,
    VERB_PAUSE = 1 << 15,
    VERB_RESUME = 1 << 16,
    VERB_EVENTS = 1 << 17,
    VERB_BUMP = 1 << 18,
    VERB_BEAT = 1 << 19,
    VERB_OWNER = 1 << 20,
    VERB_WAITERS = 1 << 21,
    VERB_WHY = 1 << 22,
    VERB_TOP = 1 << 23,
    VERB_SLOTS = 1 << 24,
    VERB_TEMPLATE = 1 << 25,
    VERB_SEMAPHORE_DELETE = 1 << 26,
};
#define VERB_ANY (~0U)

/* Everything permitctl does; the exit status. */
int cli_main(int argc, char **argv);

/* Found in verbs.c. NULL: no such verb. *ret_used: how many of the words are its name. */
const struct verb *verb_find(char **words, int count, int *ret_used);
const struct verb *verb_table(size_t *ret_count);

/* Reads the command line. False: the sentence on stderr has been written. */
bool options_parse(int argc, char **argv, struct cli *cli) MUST_CHECK;
/* Of one verb; else of those that begin with the word `group`; NULL, too: everything. */
void options_print_help(const struct verb *verb, const char *group, FILE *out);

/* The exit status for a call that ended so. */
int cli_exit_of(const struct cli *cli, enum permit_status status);
/* Says what went wrong with the last call, on stderr (and with --json the problem on stdout); the exit status. */
int cli_fail(struct cli *cli, enum permit_status status);
/* A complaint of our own; returns `code`. */
int cli_complain(int code, const char *format, ...) PRINTF_LIKE(2, 3);
/* True if --reason was given, and not empty. False: a complaint has been written. */
bool cli_has_reason(const struct cli *cli) MUST_CHECK;
/* PERMIT_OK: prints the answer as JSON, or `print`s it; else cli_fail. */
int cli_finish(struct cli *cli, enum permit_status status, void (*print)(const char *body));

int verb_run(struct cli *cli);
int verb_acquire(struct cli *cli);
int verb_release(struct cli *cli);
int verb_renew(struct cli *cli);
int verb_confirm(struct cli *cli);
int verb_show(struct cli *cli);
int verb_force_release(struct cli *cli);
int verb_requests(struct cli *cli);
int verb_semaphore_put(struct cli *cli);
int verb_semaphore_get(struct cli *cli);
int verb_semaphore_list(struct cli *cli);
int verb_semaphore_delete(struct cli *cli);
int verb_semaphore_pause(struct cli *cli);
int verb_semaphore_resume(struct cli *cli);
int verb_semaphore_events(struct cli *cli);
int verb_template_put(struct cli *cli);
int verb_template_get(struct cli *cli);
int verb_template_list(struct cli *cli);
int verb_template_delete(struct cli *cli);
int verb_owner_beat(struct cli *cli);
int verb_owner_show(struct cli *cli);
int verb_owner_gone(struct cli *cli);
int verb_holders(struct cli *cli);
int verb_slots(struct cli *cli);
int verb_waiters(struct cli *cli);
int verb_why(struct cli *cli);
int verb_top(struct cli *cli);
int verb_fence_check(struct cli *cli);
int verb_doctor(struct cli *cli);
int verb_fence_bump(struct cli *cli);
#endif
