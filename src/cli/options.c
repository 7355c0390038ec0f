/* SPDX-License-Identifier: MIT */
/* The command line: a table of options, read and explained by short loops. */
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/duration.h"
#include "base/help.h"
#include "base/utf8.h"
#include "cli/cli.h"
#include "cli/json_print.h"
#include "core/name.h"
#include "core/request.h"

enum option_type {
    OPTION_FLAG,               /* bool */
    OPTION_TEXT,               /* const char * */
    OPTION_KEY,                /* const char *, valid as a key or an owner */
    OPTION_CHOICE,             /* const char *, one of `choices`, separated by | */
    OPTION_INTEGER,            /* int64_t, at least `minimum` */
    OPTION_DURATION,           /* int64_t in ms, at least `minimum` */
    OPTION_INTEGER_OR_NONE,    /* as OPTION_INTEGER; "none" is SETTING_NONE */
    OPTION_DURATION_OR_NONE,   /* as OPTION_DURATION; "none" is PERMIT_TTL_NONE, which is SETTING_NONE */
    OPTION_DURATION_OR_STRICT, /* the same with "strict" */
    OPTION_HOLD,               /* as OPTION_DURATION_OR_NONE, or "owner" */
    OPTION_WANT,               /* appended to a want_list */
    OPTION_SLOT,               /* appended to the slots of the last want: exactly these */
    OPTION_ANY_OF,             /* appended to the slots of the last want: any of these */
    OPTION_ADJACENT,           /* a flag of the last want */
    OPTION_BEST,               /* a JSON object of the last want */
    OPTION_LABEL,              /* appended to names */
    OPTION_METADATA,           /* a member, NAME=VALUE, of a json_writer */
    OPTION_NAMESPACE,          /* const char *, valid as a namespace or empty */
};

struct option {
    char letter; /* 0: none */
    const char *name;
    const char *placeholder; /* for a choice: the choices */
    uint64_t verbs;
    enum option_type type;
    size_t offset;
    int64_t minimum;
    const char *help;
};

#define AT(member)         offsetof(struct cli_options, member)
#define ACQUIRES           (VERB_RUN | VERB_ACQUIRE)
#define CHANGES            (VERB_SHRINK | VERB_GROW | VERB_EXCHANGE)
#define TAKES              (ACQUIRES | VERB_GROW | VERB_EXCHANGE)
#define VERBS_IN_NAMESPACE (VERB_RENEW | VERB_CONFIRM | VERB_SHOW | VERB_FORCE | VERB_WHY | VERB_OWNER)
#define SETTING_OPTION(name, c_type, member, type, flags, min, max, initial, words, expected, letter, option,          \
                       placeholder, help)                                                                              \
    {letter, option, placeholder, VERB_PUT | VERB_TEMPLATE, OPTION_##type, AT(settings[SETTING_##name]), min, help},

#define GIVE_HELP                                                                                                      \
    "give back COUNT units (default: 1) of this semaphore, of slots those with the highest numbers; repeat for "       \
    "several semaphores"
#define TAKE_HELP                                                                                                      \
    "take COUNT units (default: 1) of this semaphore, beside what the request holds; repeat for several semaphores, "  \
    "all or nothing"

/*
 * letter  name  placeholder  verbs that take it  type  member  minimum  help
 */
static const struct option options[] = {
    {'s', "semaphore", "NAME[:COUNT]", ACQUIRES, OPTION_WANT, AT(taken), 0,
     "acquire COUNT units (default: 1) of this semaphore; repeat for several semaphores, all or nothing. The last "
     ":DIGITS are the count: user:7 is 7 units of user, user:7:1 is one unit of user:7"},
    {'s', "semaphore", "NAME[:COUNT]", VERB_GROW, OPTION_WANT, AT(taken), 0, TAKE_HELP},
    {'s', "semaphore", "NAME[:COUNT]", VERB_SHRINK, OPTION_WANT, AT(given), 0, GIVE_HELP},
    {0, "give", "NAME[:COUNT]", VERB_EXCHANGE, OPTION_WANT, AT(given), 0, GIVE_HELP},
    {0, "take", "NAME[:COUNT]", VERB_EXCHANGE, OPTION_WANT, AT(taken), 0, TAKE_HELP},
    {0, "slot", "SLOT", ACQUIRES | CHANGES, OPTION_SLOT, 0, 0,
     "exactly this slot of the preceding semaphore: its label, or '#12' for number 12; repeat for several slots"},
    {0, "any-of", "SLOT", TAKES, OPTION_ANY_OF, 0, 0,
     "acquire COUNT of these slots of the preceding semaphore, lowest free first; repeat for each slot"},
    {0, "adjacent", NULL, TAKES, OPTION_ADJACENT, 0, 0, "acquire adjacent slots of the preceding semaphore"},
    {0, "best", "JSON", TAKES, OPTION_BEST, 0, 0,
     "acquire the best seats of the preceding semaphore: '{}', or '{\"together\":true,\"section\":[\"B\"]}', ..."},
    {'w', "wait", "TIME", ACQUIRES, OPTION_DURATION, AT(wait_ms), 0,
     "maximum wait for capacity, such as 10m (default: run waits without limit, acquire does not wait)"},
    {0, "wait-piece", "TIME", ACQUIRES, OPTION_DURATION, AT(wait_piece_ms), 100,
     "maximum length of one waiting call (default: 60s); must be below the timeout of any proxy; the place in the "
     "queue is kept"},
    {0, "priority", "0-9", ACQUIRES, OPTION_INTEGER, AT(priority), 0,
     "priority while it waits (default: 0); each step counts as 30 s of waiting. A semaphore may allow less "
     "(max_priority)"},
    {'n', "no-wait", NULL, ACQUIRES, OPTION_FLAG, AT(flags[FLAG_NO_WAIT]), 0, "do not wait"},
    {0, "no-retry", NULL, ACQUIRES, OPTION_FLAG, AT(flags[FLAG_NO_RETRY]), 0,
     "end at once if no server answers, or if too many requests wait already (default: ask again until the wait ends)"},
    {0, "changes", "N", CHANGES, OPTION_INTEGER, AT(changes), 0,
     "change the request only if it has been changed N times, the number that show prints (default: read it first)"},
    {'E', "conflict-exit-code", "N", TAKES, OPTION_INTEGER, AT(exit_code), 0, "exit with N instead of 75"},
    {'t', "ttl", "TIME", ACQUIRES | VERB_RENEW | VERB_BEAT, OPTION_HOLD, AT(ttl_ms), 1,
     "the permit expires after this time unless renewed; none: never, but the semaphore's max_hold ends it if it is "
     "not "
     "renewed; owner: with the owner's heartbeat (run: 2m, or the max_ttl of the semaphore if that is shorter)"},
    {0, "id", "KEY", ACQUIRES, OPTION_KEY, AT(id), 0,
     "the key of the request (default: random); a key is used once: after the request has ended the key is refused for "
     "7 days"},
    {0, "allow-replay", NULL, VERB_ACQUIRE, OPTION_FLAG, AT(flags[FLAG_ALLOW_REPLAY]), 0,
     "exit with 0 also if another client holds the permits under the key of --id"},
    {0, "owner", "OWNER", ACQUIRES, OPTION_KEY, AT(owner), 0,
     "owner of the request, printable ASCII without space (default: USER@HOST; none with --id)"},
    {0, "label", "NAME=VALUE", ACQUIRES, OPTION_METADATA, AT(metadata), 0,
     "what people should know of the request, such as order=4711: its metadata, which show and requests --json print; "
     "repeat for several names"},
    {0, "on-lost", "term|kill|continue", VERB_RUN, OPTION_CHOICE, AT(on_lost), 0,
     "when the permit is lost: TERM and KILL 5 s later (the default), KILL immediately, or only report it"},
    {0, "report", "FILE", VERB_RUN, OPTION_TEXT, AT(report), 0,
     "write a JSON object with times, token, slots and exit status"},
    {0, "keep-credential", NULL, VERB_RUN, OPTION_FLAG, AT(flags[FLAG_KEEP_CREDENTIAL]), 0,
     "leave the credential in the environment of the command (default: PERMIT_CREDENTIAL and "
     "PERMIT_CREDENTIAL_FILE are removed)"},
    {'v', "verbose", NULL, ACQUIRES, OPTION_FLAG, AT(flags[FLAG_VERBOSE]), 0,
     "report on stderr why it waits (always on a terminal); run: also how long it waited and ran"},
    SEMAPHORE_SETTINGS(SETTING_OPTION) /* all that a PUT has, except labels */
    {0, "label", "LABEL", VERB_PUT, OPTION_LABEL, 0, 0, "label of slot 1, then of slot 2, and so on; empty: no label"},
    {0, "labels", "FILE", VERB_PUT, OPTION_TEXT, AT(labels), 0,
     "labels of slots 1, 2, ..., one a line; empty line: no label; -: standard input"},
    {0, "seats", "FILE", VERB_PUT, OPTION_TEXT, AT(seats), 0,
     "slots 1, 2, ..., one a line, as JSON: label, section, row, seat, rank, tags; -: standard input"},
    {0, "prefix", "TEXT", VERB_LIST | VERB_TOP | VERB_FEED, OPTION_TEXT, AT(prefix), 0, "only names with this prefix"},
    {0, "prefix", "TEXT", VERB_RECONCILE, OPTION_TEXT, AT(prefix), 0, "only keys with this prefix, in FILE too"},
    {0, "after", "CURSOR", VERB_FEED, OPTION_TEXT, AT(after), 0,
     "only events behind this one (default: from the oldest on)"},
    {'f', "follow", NULL, VERB_FEED, OPTION_FLAG, AT(flags[FLAG_FOLLOW]), 0, "wait for more events, until it is ended"},
    {'s', "semaphore", "NAME", VERB_FEED, OPTION_TEXT, AT(semaphore), 0, "only events of this semaphore"},
    {0, "owner", "OWNER", VERB_FEED, OPTION_KEY, AT(owner), 0, "only events of requests of this owner"},
    {0, "prefix", "TEXT", VERB_SLOTS, OPTION_TEXT, AT(prefix), 0, "only slots whose label has this prefix"},
    {0, "state", "free|held", VERB_SLOTS, OPTION_CHOICE, AT(state), 0, "only free or only held slots"},
    {0, "orders", "FILE", VERB_RECONCILE, OPTION_TEXT, AT(orders), 0,
     "the orders, one a line: the key, a blank, and paid, pending or cancelled; -: standard input"},
    {0, "min-age", "TIME", VERB_RECONCILE, OPTION_DURATION, AT(min_age_ms), 0,
     "report no request that was acquired, confirmed or ended later than this before now, by the clock of this machine "
     "(default: 10m): longer than an order is in flight, and than FILE is old"},
    {0, "apply", NULL, VERB_RECONCILE, OPTION_FLAG, AT(flags[FLAG_APPLY]), 0, "mend the findings that can be mended"},
    {'s', "semaphore", "NAME", VERB_REPORT, OPTION_TEXT, AT(semaphore), 0, "the semaphore"},
    {0, "since", "TIME", VERB_REPORT, OPTION_DURATION, AT(since_ms), 1000,
     "the length of the time before now (default: 7d)"},
    {'s', "semaphore", "NAME", VERB_RECONCILE, OPTION_TEXT, AT(semaphore), 0, "only requests that hold units of it"},
    {'s', "semaphore", "NAME", VERB_REQUESTS, OPTION_TEXT, AT(semaphore), 0,
     "only requests that wait for, hold or held units of it"},
    {0, "owner", "OWNER", VERB_REQUESTS | VERB_RECONCILE, OPTION_TEXT, AT(owner), 0, "only requests of this owner"},
    {0, "state", "waiting|held|released", VERB_REQUESTS, OPTION_CHOICE, AT(state), 0,
     "only waiting, only held or only ended requests"},
    {0, "at", "TIME", VERB_REQUESTS, OPTION_TEXT, AT(at), 0,
     "requests that held the semaphore at this time: 02:14, \"2026-11-21 02:14\" (time of this machine), "
     "2026-11-21T02:14:00Z"},
    {0, "force", NULL, VERB_SEMAPHORE_DELETE, OPTION_FLAG, AT(flags[FLAG_FORCE]), 0,
     "retire it while permits are held: pauses it and ends every request that holds units of it; requires --reason"},
    {0, "reason", "TEXT", VERB_FORCE | VERB_PAUSE | VERB_BUMP | VERB_SEMAPHORE_DELETE, OPTION_TEXT, AT(reason), 0,
     "reason, which is recorded"},
    {0, "reason", "TEXT", VERB_RECONCILE, OPTION_TEXT, AT(reason), 0,
     "with --apply: the reason for which sales end (default: reconcile: and the finding)"},
    {0, "confirmed", NULL, VERB_RELEASE, OPTION_FLAG, AT(flags[FLAG_CONFIRMED]), 0,
     "release a confirmed request, too (a refund)"},
    {0, "role", "look|use|operate|admin|fence|metrics", VERB_TOKEN_MAKE, OPTION_CHOICE, AT(role), 0,
     "role of a new principal (default: make only the line of the token, for a section that is there)"},
    {0, "semaphores", "NAMES", VERB_TOKEN_MAKE, OPTION_TEXT, AT(semaphores), 0,
     "its scope: names with spaces between them; a name that ends in * is a prefix. Not for the roles admin and "
     "metrics, which have all"},
    {0, "until", "DATE", VERB_TOKEN_MAKE, OPTION_TEXT, AT(until), 0,
     "last day of the token, such as 2027-01-31, in UTC (default: it does not end)"},
    {0, "append", "FILE", VERB_TOKEN_MAKE, OPTION_TEXT, AT(append), 0,
     "append the new section to this credentials file, instead of printing it; created if it is not there"},
    {0, "namespace", "NAMESPACE", VERB_TOKEN_MAKE, OPTION_TEXT, AT(namespace), 0,
     "namespace of its keys and owners: a-z 0-9 - (default: the empty one)"},
    {0, "namespace", "NAMESPACE", VERBS_IN_NAMESPACE, OPTION_NAMESPACE, AT(namespace), 0,
     "the namespace of the key or owner, for operators; '' is the empty one (default: that of the client)"},
    {0, "namespace", "NAMESPACE", VERB_SQL_ACCOUNT_PUT, OPTION_NAMESPACE, AT(namespace), 0,
     "the namespace of the keys that the account may work on; '' is the empty one (default: that of the client)"},
    {0, "namespace", "NAMESPACE", VERB_FEED, OPTION_NAMESPACE, AT(namespace), 0,
     "only events of this namespace, for operators; '' is the empty one (default: all that are visible)"},
    {0, "namespace", "NAMESPACE", VERB_REQUESTS, OPTION_NAMESPACE, AT(namespace), 0,
     "only requests of this namespace, for operators; '' is the empty one (default: all that are visible)"},
    {'y', "yes", NULL, VERB_BUMP, OPTION_FLAG, AT(flags[FLAG_YES]), 0, "do not ask for confirmation"},
    {'i', "interval", "TIME", VERB_TOP, OPTION_DURATION, AT(interval_ms), 100, "refresh interval (default: 1s)"},
    {'1', "once", NULL, VERB_TOP, OPTION_FLAG, AT(flags[FLAG_ONCE]), 0,
     "print one table and exit (the default without a terminal)"},
    {0, "limit", "N", VERB_LIST | VERB_HOLDERS | VERB_SLOTS | VERB_WAITERS | VERB_EVENTS | VERB_REQUESTS,
     OPTION_INTEGER, AT(limit), 1, "maximum number of rows (default: all)"},
    {0, "slot", "N", VERB_FENCE, OPTION_INTEGER, AT(slot), 1, "check whether the token is live on this slot"},
    {0, "url", "URL", VERB_ANY, OPTION_TEXT, AT(url), 0,
     "the server, also https://HOST:PORT or unix:/PATH (PERMITD_URL, that of permitctl login, or " PERMIT_DEFAULT_URL
     "); several on one database, with commas between them: the first that answers, in random order, and another one "
     "when it fails"},
    {0, "token-file", "FILE", VERB_ANY, OPTION_TEXT, AT(token_file), 0,
     "file with the token as its only line (PERMIT_CREDENTIAL_FILE)"},
    {0, "token", "TEXT", VERB_ANY, OPTION_TEXT, AT(token), 0,
     "the token (PERMIT_CREDENTIAL is safer: other users cannot see it)"},
    {0, "ca", "FILE", VERB_ANY, OPTION_TEXT, AT(ca), 0,
     "file of the authorities that may sign the server's certificate (PERMIT_CA; default: those that the machine "
     "trusts)"},
    {0, "cert", "FILE", VERB_ANY, OPTION_TEXT, AT(cert), 0,
     "certificate that identifies this client, instead of a token"},
    {0, "key", "FILE", VERB_ANY, OPTION_TEXT, AT(key), 0, "key of --cert (default: in the same file)"},
    {0, "insecure", NULL, VERB_ANY, OPTION_FLAG, AT(flags[FLAG_INSECURE]), 0,
     "send the credential also over http to another machine: everyone on the way can read it"},
    {0, "json", NULL, VERB_ANY, OPTION_FLAG, AT(flags[FLAG_JSON]), 0, "print the server's answer as JSON"},
    {'h', "help", NULL, VERB_ANY, OPTION_FLAG, AT(flags[FLAG_HELP]), 0, "print this"},
    {'V', "version", NULL, VERB_ANY, OPTION_FLAG, AT(flags[FLAG_VERSION]), 0, "print the version"},
};

static const char exit_codes[] =
    "\nExit status:\n"
    "   0  done (run: the command's own status, 128 + N if signal N ended it)\n"
    "   1  fence bump: not confirmed, nothing was done\n"
    "   2  reconcile: there are findings, with --apply: that are left\n"
    "  64  the command line is wrong, or a file of the credential or for TLS cannot be used\n"
    "  65  refused by the server; a retry will not help. token check: the file has a mistake\n"
    "  69  no server available: unreachable, its certificate refused, not permitd, busy, stopping, or its database is\n"
    "      unavailable\n"
    "  71  this machine is out of memory, processes or descriptors, or a file cannot be written\n"
    "  75  not granted in time (-E changes it): no capacity, a paused semaphore, too many waiting or pending\n"
    "      requests, too many semaphores for a template to create one more; another client holds that --id; or an\n"
    "      outer run of this command holds what it would wait for\n"
    "  76  the permit is no longer held\n"
    "  77  no valid credential, for the server or for a proxy; 78: not allowed\n"
    " 126  run: the command cannot be executed; 127: it is not found\n"
    "\nTimes are 500ms, 1.5s, 10m, 1h30m, 7d, or a number of seconds, at most 86400.\n";

/* ---- Values ---- */

/* These functions return CLI_OK, or another exit status after an error message. */

static int refuse(const struct option *option, const char *value, const char *expected)
{
    return cli_error(CLI_USAGE, "--%s %s: expected %s", option->name, value, expected);
}

static int read_number(const struct option *option, const char *value, int64_t *ret_number)
{
    char *end;
    long long number = strtoll(value, &end, 10);
    if (end == value || *end || number < option->minimum || number == INT64_MAX)
        return refuse(option, value, option->minimum ? "a positive number" : "a number");
    *ret_number = number;
    return CLI_OK;
}

static int read_duration(const struct option *option, const char *value, int64_t *ret_ms)
{
    if (option->type == OPTION_HOLD && strcmp(value, "owner") == 0) {
        *ret_ms = PERMIT_TTL_OWNER;
        return CLI_OK;
    }
    const char *none = option->type == OPTION_DURATION_OR_STRICT ? "strict" : "none";
    const char *expected = option->type == OPTION_DURATION           ? "a time such as 30s, 10m or 1h30m"
                           : option->type == OPTION_DURATION_OR_NONE ? "a time such as 30s, 10m or 1h30m, or none"
                           : option->type == OPTION_DURATION_OR_STRICT
                               ? "a time such as 30s, 10m or 1h30m, or strict"
                               : "a time such as 30s, 10m or 1h30m, none or owner";
    if (option->type != OPTION_DURATION && strcmp(value, none) == 0) {
        *ret_ms = PERMIT_TTL_NONE;
        return CLI_OK;
    }
    int64_t ms;
    if (!duration_parse_any(bytes_of(value), &ms)) {
        const char *hint = duration_hint(bytes_of(value));
        if (!hint)
            return refuse(option, value, expected);
        return cli_error(CLI_USAGE, "--%s %s: %s", option->name, value, hint);
    }
    if (ms < option->minimum) {
        char minimum[DURATION_TEXT_SIZE];
        (void)duration_format(option->minimum, minimum);
        return cli_error(CLI_USAGE, "--%s %s: it must be %s %s", option->name, value,
                         option->minimum == 1 ? "above" : "at least", option->minimum == 1 ? "0" : minimum);
    }
    *ret_ms = ms;
    return CLI_OK;
}

static int read_choice(const struct option *option, const char *value, const char **ret_word)
{
    size_t length = strlen(value);
    for (const char *at = option->placeholder; at; at = strchr(at, '|')) {
        at += *at == '|';
        size_t word = strcspn(at, "|");
        if (word == length && memcmp(at, value, length) == 0) {
            *ret_word = value;
            return CLI_OK;
        }
    }
    return refuse(option, value, option->placeholder);
}

/* Parses "name" or "name:count"; the last ":digits" is the count. Cuts the name out of argv. */
static int read_want(const struct option *option, char *value, struct want_list *list, struct permit_want **ret_want)
{
    if (list->count == CLI_MAX_WANTS)
        return refuse(option, value, "at most 64 semaphores");
    int64_t count = 0; /* default: 1, or the number of slots given */
    char *colon = strrchr(value, ':');
    if (colon && colon[1] && strspn(colon + 1, "0123456789") == strlen(colon + 1)) {
        *colon = '\0';
        count = strlen(colon + 1) < 18 ? strtoll(colon + 1, NULL, 10) : 0;
        count = count > 0 ? count : -1;
    }
    if (count < 0 || !name_is_semaphore(bytes_of(value))) {
        if (count)
            *colon = ':'; /* restored for the error message */
        return refuse(option, value, "NAME or NAME:COUNT; names have A-Z a-z 0-9 . _ : @ -, a count is at least 1");
    }
    *ret_want = &list->wants[list->count++];
    **ret_want = (struct permit_want){.semaphore = value, .count = count};
    return CLI_OK;
}

static int read_slot(const struct option *option, const char *value, struct cli_options *into)
{
    enum permit_choice choice = option->type == OPTION_SLOT ? PERMIT_THESE : PERMIT_ANY_OF;
    struct permit_want *want = into->last_want;
    if (!want->slot_count)
        want->slots = into->names + into->name_count;
    else if (want->choice != choice)
        return refuse(option, value, "either --slot or --any-of for one semaphore");
    want->choice = choice;
    want->slot_count++;
    into->names[into->name_count++] = value;
    return CLI_OK;
}

/* Adds NAME=VALUE to the metadata of the request. */
static int read_metadata(const struct option *option, const char *value, struct json_writer **metadata)
{
    const char *equals = strchr(value, '=');
    if (!equals || equals == value || !utf8_valid(bytes_of(value)))
        return refuse(option, value, "NAME=VALUE, in UTF-8");
    char *name = strndup(value, (size_t)(equals - value));
    if (!*metadata)
        *metadata = json_writer_new();
    bool twice = name && json_has(json_written(*metadata), name);
    if (name)
        json_add_text(*metadata, name, equals + 1);
    free(name);
    const char *text = json_text(*metadata);
    if (!name || !text)
        return cli_error(CLI_NO_START, "out of memory");
    if (twice)
        return refuse(option, value, "each name once");
    if (strlen(text) > METADATA_MAX_BYTES)
        return cli_error(CLI_USAGE, "--%s: all of them have more than %d bytes, as JSON", option->name,
                         METADATA_MAX_BYTES);
    return CLI_OK;
}

/* ---- One option ---- */

/* Returns the option that the verb takes, or else another one of this name, which the caller refuses. */
static const struct option *find(const struct cli *cli, const char *name, size_t length, char letter)
{
    const struct option *other = NULL;
    for (size_t i = 0; i < ARRAY_LENGTH(options); i++) {
        if (letter ? options[i].letter != letter
                   : strlen(options[i].name) != length || memcmp(options[i].name, name, length) != 0)
            continue;
        if (cli->verb && (options[i].verbs & cli->verb->bit))
            return &options[i];
        other = &options[i];
    }
    return other;
}

static bool is_json_object(const char *text)
{
    struct json_object *object = json_read(text);
    json_free(object);
    return object != NULL;
}

static int store_value(const struct option *option, char *value, struct cli *cli)
{
    void *member = (char *)&cli->options + option->offset;
    switch (option->type) {
    case OPTION_FLAG: *(bool *)member = true; return CLI_OK;
    case OPTION_KEY:
        if (!name_is_key(bytes_of(value)))
            return refuse(option, value, "1 to 255 printable ASCII bytes without space, and not . or ..");
        *(const char **)member = value;
        return CLI_OK;
    case OPTION_NAMESPACE:
        if (*value && !name_is_namespace(bytes_of(value)))
            return refuse(option, value, "1 to 32 of a-z 0-9 - , or ''");
        *(const char **)member = value;
        return CLI_OK;
    case OPTION_TEXT: *(const char **)member = value; return CLI_OK;
    case OPTION_CHOICE: return read_choice(option, value, member);
    case OPTION_INTEGER_OR_NONE:
        if (strcmp(value, "none") == 0) {
            *(int64_t *)member = SETTING_NONE;
            return CLI_OK;
        }
        return read_number(option, value, member);
    case OPTION_INTEGER: return read_number(option, value, member);
    case OPTION_DURATION:
    case OPTION_DURATION_OR_NONE:
    case OPTION_DURATION_OR_STRICT:
    case OPTION_HOLD: return read_duration(option, value, member);
    case OPTION_WANT: return read_want(option, value, member, &cli->options.last_want);
    case OPTION_SLOT:
    case OPTION_ANY_OF: return read_slot(option, value, &cli->options);
    case OPTION_ADJACENT: cli->options.last_want->adjacent = true; return CLI_OK;
    case OPTION_BEST:
        cli->options.last_want->best = value;
        return is_json_object(value) ? CLI_OK : refuse(option, value, "a JSON object");
    case OPTION_METADATA: return read_metadata(option, value, member);
    case OPTION_LABEL: cli->options.names[cli->options.name_count++] = value; return CLI_OK;
    }
    return CLI_USAGE;
}

/* Returns true for an option that says more of a semaphore before it. */
static bool follows_want(const struct option *option)
{
    return option->type == OPTION_SLOT || option->type == OPTION_ANY_OF || option->type == OPTION_ADJACENT ||
           option->type == OPTION_BEST;
}

static bool is_flag(const struct option *option)
{
    return option->type == OPTION_FLAG || option->type == OPTION_ADJACENT;
}

/* Applies an option. Its value is the text after "=", the rest of the letters, or the next word. */
static int apply(const struct option *option, char *value, struct cli *cli, int argc, char **argv, int *at)
{
    if (option->verbs != VERB_ANY && !cli->verb)
        return cli_error(CLI_USAGE, "--%s must follow the verb: permitctl VERB --%s ...", option->name, option->name);
    if (option->verbs != VERB_ANY && !(option->verbs & cli->verb->bit))
        return cli_error(CLI_USAGE, "%s does not take --%s (permitctl %s --help)", cli->verb->name, option->name,
                         cli->verb->name);
    if (is_flag(option) ? value != NULL : !value && *at + 1 >= argc)
        return cli_error(CLI_USAGE, "--%s %s", option->name, value ? "takes no value" : "needs a value");
    if (!value && !is_flag(option))
        value = argv[++*at];
    if (follows_want(option) && !cli->options.last_want)
        return cli_error(CLI_USAGE, "--%s must follow %s NAME", option->name,
                         cli->verb->bit == VERB_EXCHANGE ? "--give NAME or --take" : "an -s");
    return store_value(option, value, cli);
}

/* Prints an unknown option without its value, which may be secret. */
static int refuse_unknown(const char *text)
{
    return cli_error(CLI_USAGE, "unknown option %.*s (permitctl --help)", (int)strcspn(text, "="), text);
}

/* Parses "-n", "-nv", "-sbackups", "-s backups". */
static int parse_letters(int argc, char **argv, int *at, struct cli *cli)
{
    char *word = argv[*at];
    for (char *letter = word + 1; *letter; letter++) {
        const struct option *option = find(cli, NULL, 0, *letter);
        if (!option)
            return refuse_unknown((const char[]){'-', *letter, '\0'});
        if (!is_flag(option))
            return apply(option, letter[1] ? letter + 1 : NULL, cli, argc, argv, at);
        int code = apply(option, NULL, cli, argc, argv, at);
        if (code)
            return code;
    }
    return CLI_OK;
}

/* ---- The whole line ---- */

/* Returns true if the verb has several words and this is the first, as "semaphore" is. */
static bool begins_with(const struct verb *verb, const char *word)
{
    size_t length = strlen(word);
    return strncmp(verb->name, word, length) == 0 && verb->name[length] == ' ';
}

/* Returns the word if verbs begin with it, else NULL. */
static const char *group_of(const char *word)
{
    size_t count;
    const struct verb *verbs = verb_table(&count);
    for (size_t i = 0; i < count; i++)
        if (begins_with(&verbs[i], word))
            return word;
    return NULL;
}

/* Prints that the word is no verb, with the verbs that it begins; `next` is the word after it, or "". */
static int refuse_verb(const char *word, const char *next)
{
    struct buf known;
    size_t count;
    const struct verb *verbs = verb_table(&count);
    buf_init(&known, 4096);
    for (size_t i = 0; i < count; i++)
        if (begins_with(&verbs[i], word))
            buf_append_text(&known, verbs[i].name + strlen(word));
    if (known.length && *next && *next != '-')
        (void)cli_error(CLI_USAGE, "unknown verb \"%s %s\"; expected \"%s\" with one of:%s (permitctl --help)", word,
                        next, word, buf_text(&known));
    else if (known.length)
        (void)cli_error(CLI_USAGE, "incomplete verb \"%s\"; expected one of:%s (permitctl --help)", word,
                        buf_text(&known));
    else
        (void)cli_error(CLI_USAGE, "unknown verb \"%s\" (permitctl --help)", word);
    buf_release(&known);
    return CLI_USAGE;
}

/* Checks what options together say of the units of each semaphore. */
static int check_wants(const struct want_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        const struct permit_want *want = &list->wants[i];
        if (want->best && (want->slot_count || want->adjacent))
            return cli_error(CLI_USAGE, "%s: --best cannot be combined with --slot, --any-of or --adjacent",
                             want->semaphore);
        if (want->choice == PERMIT_THESE && (want->count || want->adjacent)) /* --slot gives slots and number */
            return cli_error(CLI_USAGE, "%s: --slot cannot be combined with :COUNT or --adjacent", want->semaphore);
    }
    return CLI_OK;
}

/* Checks the semaphores of a verb about units. */
static int check_units(const struct cli *cli)
{
    uint64_t bit = cli->verb->bit;
    const struct want_list *taken = &cli->options.taken, *given = &cli->options.given;
    if (bit == VERB_EXCHANGE && (!taken->count || !given->count))
        return cli_error(CLI_USAGE, "exchange requires at least one --give NAME and one --take NAME");
    if ((bit & (TAKES | VERB_SHRINK)) && !taken->count && !given->count)
        return cli_error(CLI_USAGE, "%s requires at least one -s NAME", cli->verb->name);
    for (size_t i = 0; i < given->count; i++)
        if (given->wants[i].choice == PERMIT_ANY_OF || given->wants[i].adjacent || given->wants[i].best)
            return cli_error(CLI_USAGE, "--any-of, --adjacent and --best must follow a --take NAME");
    int code = check_wants(taken);
    return code ? code : check_wants(given);
}

static int check_words(const struct cli *cli)
{
    const struct verb *verb = cli->verb;
    if (cli->options.flags[FLAG_HELP] || cli->options.flags[FLAG_VERSION])
        return CLI_OK;
    if (!verb || cli->word_count < verb->min_words || (!verb->takes_command && cli->word_count > verb->max_words))
        return cli_error(CLI_USAGE, "usage: permitctl %s %s", verb ? verb->name : "VERB ...",
                         verb ? verb->arguments : "(permitctl --help)");
    int code = check_units(cli);
    if (code)
        return code;
    if (cli->options.exit_code > 255)
        return cli_error(CLI_USAGE, "--conflict-exit-code: expected 0 to 255");
    if (cli->options.priority > PERMIT_MAX_PRIORITY)
        return cli_error(CLI_USAGE, "--priority: expected 0 to %d", PERMIT_MAX_PRIORITY);
    if (cli->options.wait_piece_ms > INT_MAX)
        return cli_error(CLI_USAGE, "--wait-piece must be at most 24 days");
    if (cli->options.flags[FLAG_NO_WAIT] && cli->options.wait_ms != CLI_UNSET)
        return cli_error(CLI_USAGE, "--wait and --no-wait exclude each other");
    return CLI_OK;
}

int options_parse(int argc, char **argv, struct cli *cli)
{
    bool only_words = false;
    int code = CLI_OK;
    cli->options.names = calloc((size_t)argc, sizeof(*cli->options.names));
    if (!cli->options.names)
        return cli_error(CLI_NO_START, "out of memory");
    cli->words = argv; /* words move to the front of argv, over arguments that have been parsed */
    for (int at = 1; at < argc && code == CLI_OK; at++) {
        char *word = argv[at];
        if (!only_words && strcmp(word, "--") == 0 && cli->verb) {
            only_words = true;
        } else if (!only_words && strncmp(word, "--", 2) == 0) {
            char *equals = strchr(word, '=');
            size_t length = equals ? (size_t)(equals - word) - 2 : strlen(word + 2);
            const struct option *option = find(cli, word + 2, length, 0);
            if (!option)
                return refuse_unknown(word);
            code = apply(option, equals ? equals + 1 : NULL, cli, argc, argv, &at);
        } else if (!only_words && word[0] == '-' && word[1]) {
            code = parse_letters(argc, argv, &at, cli);
        } else if (!cli->verb && !cli->group) {
            const char *next = at + 1 < argc ? argv[at + 1] : "";
            int used = 1;
            cli->verb = verb_find(argv + at, argc - at, &used);
            /* "semaphore --help" asks for help on the verbs that begin so. */
            if (!cli->verb && (cli->options.flags[FLAG_HELP] || strcmp(next, "--help") == 0 || strcmp(next, "-h") == 0))
                cli->group = group_of(word);
            if (!cli->verb && !cli->group)
                return refuse_verb(word, next);
            at += used - 1;
        } else {
            cli->words[cli->word_count++] = word;
            only_words = only_words || (cli->verb && cli->verb->takes_command);
        }
    }
    cli->words[cli->word_count] = NULL;
    return code == CLI_OK ? check_words(cli) : code;
}

/* ---- Help ---- */

static void print_options(uint64_t verbs, bool for_all, FILE *out)
{
    enum { HELP_INDENT = 33 };
    char name[64];
    for (size_t i = 0; i < ARRAY_LENGTH(options); i++) {
        const struct option *option = &options[i];
        if (!(option->verbs & verbs) || for_all != (option->verbs == VERB_ANY))
            continue;
        (void)snprintf(name, sizeof(name), "  %c%c%s --%s%s%s", option->letter ? '-' : ' ',
                       option->letter ? option->letter : ' ', option->letter ? "," : " ", option->name,
                       option->placeholder ? " " : "", option->placeholder ? option->placeholder : "");
        help_print_entry(name, option->help, HELP_INDENT, out);
    }
}

/* Prints the verbs that begin with `group`; NULL: all verbs. */
static void print_verbs(const char *group, FILE *out)
{
    size_t count;
    const struct verb *verbs = verb_table(&count);
    for (size_t i = 0; i < count; i++)
        if (!group || begins_with(&verbs[i], group))
            (void)fprintf(out, "  %-18s %s\n", verbs[i].name, verbs[i].help);
}

void options_print_help(const struct verb *verb, const char *group, FILE *out)
{
    if (group) {
        (void)fprintf(out, "Usage: permitctl %s VERB [options] ...\n\nVerbs (permitctl %s VERB --help says more):\n",
                      group, group);
        print_verbs(group, out);
        return;
    }
    if (verb) {
        (void)fprintf(out, "Usage: permitctl %s %s\n\n%s%s.\n", verb->name, verb->arguments, verb->help,
                      verb->more ? verb->more : "");
        (void)fputs("\nOptions:\n", out);
        print_options(verb->bit, false, out);
    } else {
        (void)fputs("Usage: permitctl VERB [options] ...\n"
                    "\n"
                    "Talks to permitd, which hands out permits of counting semaphores.\n"
                    "\n"
                    "Verbs (permitctl VERB --help says more):\n",
                    out);
        print_verbs(NULL, out);
        (void)fputs("\nOptions of all verbs:\n", out);
    }
    print_options(VERB_ANY, true, out);
    (void)fputs(exit_codes, out);
}
