/* SPDX-License-Identifier: MIT */
/* The verbs of permitctl, and what they have in common. */
#include <stdarg.h>
#include <stdlib.h>

#include "base/escape.h"
#include "cli/cli.h"
#include "cli/descriptors.h"
#include "cli/json.h"

enum { COMPLAINT_MAX = 8192 };

static const char run_more[] =
    ". permitctl renews the permit while the\ncommand runs and releases it when the command ends. permitctl exits with "
    "the command's own status.\n\nThe command finds in its environment:\n  PERMIT_REQUEST         the key of the "
    "request\n  PERMIT_TOKEN           the fencing token: send it with every write, and let the store refuse older "
    "tokens\n  PERMIT_SLOTS           the numbers of its slots, separated by commas\n  PERMIT_LABELS          their "
    "labels, separated by commas; not set if none has one\n  PERMIT_GRANT           the whole grant, as JSON; if that "
    "is too long for a variable there is instead\n  PERMIT_GRANT_FILE      the name of a file that has it, until the "
    "command ends\n  PERMIT_TOKEN_<NAME>, PERMIT_SLOTS_<NAME>, PERMIT_LABELS_<NAME>\n                         instead "
    "of these when there are several semaphores: the name in upper case, everything\n                         but A-Z "
    "and 0-9 as _ (names that would be equal so: PERMIT_GRANT)\n\nSignals are passed on to the command's process "
    "group, but for those that were ignored when permitctl began\n(nohup). On a terminal the command is in the "
    "foreground.\nThe permit is lost when the server says that it has ended, and also when renewals have failed for so "
    "long that\npermitctl, by its own clock, cannot prove any more that it is held. Then --on-lost says what becomes "
    "of the\ncommand; with term and kill the exit status is 76, and all that the command has started is ended, too, in "
    "whatever\nprocess group it is. Out of reach is what it has started elsewhere (by ssh, a service manager or a "
    "container's\ndaemon) or as another user; and if permitctl itself is killed, all but the command.\nIf the permit "
    "cannot be given back it ends with its ttl; without one the exit status is 69 if the command's was 0.\nWith --id, "
    "a request that is already held under that key belongs to somebody else: exit status 75. A key is used\nonce: one "
    "whose request has ended is refused with 65, for as long as it is remembered (7 days).\nWithout -n and --wait it "
    "waits for as long as it takes";

static const char acquire_more[] =
    ". They are held until they are released or their ttl expires.\n\nSpecific seats:     permitctl acquire -s hall "
    "--slot A1 --slot A2\nFour adjacent:      permitctl acquire -s hall:4 --adjacent\nTwo of a section:   permitctl "
    "acquire -s hall:2 --any-of B1 --any-of B2 --any-of B3\nOne of user:4711:   permitctl acquire -s "
    "user:4711:1\n\nWithout :1 the digits would be the count, and 4711 units of user be asked for";

static const char put_more[] = ". Options that are not given keep their value.\nLabels are sent in pages of 1000: the "
                               "first page together with the other options, the rest after it";

static const char top_more[] =
    ": semaphores with waiters first, then the fullest. OLDEST WAIT\nis the age of the oldest wait, OLDEST HOLD the "
    "age of the oldest hold. q quits, any other\nkey refreshes. If the server does not answer, top retries. With "
    "--json it prints one\ntable, like --once";

/*
 * name  arguments  bit  least words  most words  takes a command  function  help  more
 */
static const struct verb verbs[] = {
    {"run", "-s NAME[:COUNT]... [options] [--] COMMAND [ARGUMENT...]", VERB_RUN, 1, 0, true, verb_run,
     "Runs a command while holding permits", run_more},
    {"acquire", "-s NAME[:COUNT]... [options]", VERB_ACQUIRE, 0, 0, false, verb_acquire,
     "Acquires permits and prints the grant", acquire_more},
    {"release", "KEY [--confirmed]", VERB_RELEASE, 1, 1, false, verb_release, "Releases the permits of a request",
     ". Safe to repeat; also ends a request that has not arrived yet. A confirmed request needs --confirmed"},
    {"renew", "KEY [--ttl TIME]", VERB_RENEW, 1, 1, false, verb_renew, "Extends a request by its ttl, from now",
     ". Exit status 76: it is no longer held"},
    {"confirm", "KEY", VERB_CONFIRM, 1, 1, false, verb_confirm, "Makes a hold permanent: a sale",
     ". It then has no deadline. Exit status 76: it is no longer held"},
    {"show", "KEY", VERB_SHOW, 1, 1, false, verb_show, "Shows a request", NULL},
    {"requests", "[-s NAME] [--owner OWNER] [--state held|released] [--at TIME]", VERB_REQUESTS, 0, 0, false,
     verb_requests, "Lists requests, held and ended",
     ", oldest first; with --at the last granted first.\n\nWho held backups at 02:14: permitctl requests -s backups "
     "--at 02:14\n\nAn unknown semaphore or owner gives an empty table"},
    {"force-release", "KEY --reason TEXT", VERB_FORCE, 1, 1, false, verb_force_release,
     "Ends a request of another client",
     ". The reason is recorded (semaphore events). The holder learns of it at its next renewal: let the store "
     "check\ntokens"},
    {"semaphore put", "NAME [--capacity N] [options]", VERB_PUT, 1, 1, false, verb_semaphore_put,
     "Creates or changes a semaphore", put_more},
    {"semaphore get", "NAME", VERB_GET, 1, 1, false, verb_semaphore_get, "Shows a semaphore", NULL},
    {"semaphore list", "[--prefix TEXT]", VERB_LIST, 0, 0, false, verb_semaphore_list, "Lists semaphores", NULL},
    {"semaphore delete", "NAME [--force --reason TEXT]", VERB_SEMAPHORE_DELETE, 1, 1, false, verb_semaphore_delete,
     "Retires a semaphore",
     ". Refused while permits are held, unless --force ends every request that holds them, as\nforce-release does, "
     "with all its other permits. Its tokens continue if it is created again"},
    {"semaphore pause", "NAME --reason TEXT", VERB_PAUSE, 1, 1, false, verb_semaphore_pause,
     "Stops new grants of a semaphore", ". Holders keep their permits; new requests are refused with the reason"},
    {"semaphore resume", "NAME", VERB_RESUME, 1, 1, false, verb_semaphore_resume, "Allows new grants again", NULL},
    {"semaphore events", "NAME", VERB_EVENTS, 1, 1, false, verb_semaphore_events,
     "Lists the events of a semaphore, newest first", ". Works for a retired semaphore, too"},
    {"template put", "PREFIX [--capacity N] [options]", VERB_TEMPLATE, 1, 1, false, verb_template_put,
     "Creates or changes a template",
     ": a semaphore whose name begins with PREFIX is created with these settings\nwhen it is first acquired; the "
     "longest prefix decides. Options that are not given keep their value; existing\nsemaphores do not change"},
    {"template get", "PREFIX", VERB_GET, 1, 1, false, verb_template_get, "Shows a template", NULL},
    {"template list", "[--prefix TEXT]", VERB_LIST, 0, 0, false, verb_template_list, "Lists templates", NULL},
    {"template delete", "PREFIX", VERB_TEMPLATE_DELETE, 1, 1, false, verb_template_delete, "Removes a template",
     ". Semaphores that were created from it stay"},
    {"owner beat", "NAME [--ttl TIME]", VERB_BEAT, 1, 1, false, verb_owner_beat, "Sends a heartbeat of an owner",
     ": the owner is alive for the ttl (30s) from now. Requests acquired with\n--ttl owner are held as long as "
     "heartbeats arrive; when they stop, all requests of the owner end. Exit status 76:\nheartbeats had stopped, and "
     "requests of the owner are still ending"},
    {"owner show", "NAME", VERB_OWNER, 1, 1, false, verb_owner_show, "Shows whether an owner is alive", NULL},
    {"owner gone", "NAME", VERB_OWNER, 1, 1, false, verb_owner_gone, "Ends an owner and all requests that it holds",
     ". Confirmed requests stay. Safe to repeat"},
    {"holders", "NAME", VERB_HOLDERS, 1, 1, false, verb_holders, "Lists who holds permits of a semaphore", NULL},
    {"slots", "NAME [--state free|held] [--prefix TEXT]", VERB_SLOTS, 1, 1, false, verb_slots,
     "Lists the slots of a semaphore, and who holds them", NULL},
    {"waiters", "NAME", VERB_WAITERS, 1, 1, false, verb_waiters, "Lists who waits for a semaphore, in order",
     ": at the permitd that answers;\nothers on the same database have queues of their own"},
    {"why", "KEY", VERB_WHY, 1, 1, false, verb_why, "Says what a request waits for, and who is in the way",
     ": of each semaphore\nwhat is asked, what is in use, who has held it longest, its place in the queue and who is "
     "ahead of it"},
    {"top", "[--prefix TEXT] [--interval TIME] [--once]", VERB_TOP, 0, 0, false, verb_top,
     "Shows a live table of semaphores", top_more},
    {"fence check", "NAME TOKEN [--slot N]", VERB_FENCE, 2, 2, false, verb_fence_check, "Shows whether a token is live",
     ". Exit status 76 if it is not"},
    {"fence bump", "--reason TEXT [--yes]", VERB_BUMP, 0, 0, false, verb_fence_bump,
     "Raises the tokens of all semaphores above every token issued so far",
     ". Needed after an older\ncopy of the database was restored. Grants stop for a few seconds. On a terminal it asks "
     "first"},
    {"doctor", "", VERB_DOCTOR, 0, 0, false, verb_doctor, "Reports unsafe database settings",
     " and how to fix them.\nExit status 65 if permitd refuses to serve because of one"},
};

const struct verb *verb_table(size_t *ret_count)
{
    *ret_count = ARRAY_LENGTH(verbs);
    return verbs;
}

/* True if the name's words are the first of `words`. */
static bool name_matches(const char *name, char **words, int count, int *ret_used)
{
    int used = 0;
    while (*name) {
        size_t length = strcspn(name, " ");
        if (used == count || strlen(words[used]) != length || memcmp(words[used], name, length) != 0)
            return false;
        used++;
        name += length + (name[length] == ' ');
    }
    *ret_used = used;
    return true;
}

const struct verb *verb_find(char **words, int count, int *ret_used)
{
    for (size_t i = 0; i < ARRAY_LENGTH(verbs); i++)
        if (name_matches(verbs[i].name, words, count, ret_used))
            return &verbs[i];
    return NULL;
}

int cli_complain(int code, const char *format, ...)
{
    char sentence[COMPLAINT_MAX];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(sentence, sizeof(sentence), format, arguments);
    va_end(arguments);
    escape_control_chars(sentence, strlen(sentence));
    (void)fprintf(stderr, "permitctl: %s\n", sentence);
    return code;
}

int cli_exit_of(const struct cli *cli, enum permit_status status)
{
    switch (status) {
    case PERMIT_OK: return CLI_OK;
    case PERMIT_NO_CAPACITY:
    case PERMIT_PAUSED:
    case PERMIT_TOO_MANY: return (int)cli->options.exit_code;
    case PERMIT_ENDED:
    case PERMIT_UNKNOWN_REQUEST:
        return cli->verb->bit & (VERB_RENEW | VERB_CONFIRM | VERB_BEAT) ? CLI_LOST : CLI_REFUSED;
    case PERMIT_NO_MEMORY: return CLI_NO_START;
    case PERMIT_UNAUTHENTICATED: return CLI_UNAUTHENTICATED;
    case PERMIT_FORBIDDEN: return CLI_FORBIDDEN;
    default: return permit_status_http(status) >= 500 ? CLI_NO_SERVER : CLI_REFUSED;
    }
}

int cli_fail(struct cli *cli, enum permit_status status)
{
    const char *message = permit_client_message(cli->client);
    const char *answer = permit_client_answer(cli->client);
    if (cli->options.json && *answer)
        json_print_text(answer);
    else if (cli->options.json)
        json_print_problem(status, message);
    return cli_complain(cli_exit_of(cli, status), "%s: %s", permit_status_word(status),
                        *message ? message : permit_status_title(status));
}

bool cli_has_reason(const struct cli *cli)
{
    if (cli->options.reason && *cli->options.reason)
        return true;
    (void)cli_complain(CLI_USAGE, "%s needs --reason TEXT, which is recorded", cli->verb->name);
    return false;
}

int cli_finish(struct cli *cli, enum permit_status status, void (*print)(const char *body))
{
    if (status)
        return cli_fail(cli, status);
    if (cli->options.json)
        json_print_text(permit_client_answer(cli->client));
    else
        print(permit_client_answer(cli->client));
    return CLI_OK;
}

/*
 * A command that outlives a restart of the server tries for longer than a person at a terminal likes to wait. Who
 * retires a semaphore looks at each answer (semaphores.c).
 */
static int64_t retry_ms(const struct verb *verb)
{
    return verb->bit == VERB_RUN ? 5000 : verb->bit == VERB_SEMAPHORE_DELETE ? -1 : 2000;
}

static int with_client(struct cli *cli)
{
    const char *url = cli->options.url ? cli->options.url : getenv("PERMITD_URL");
    const char *token = cli->options.token ? cli->options.token : getenv("PERMITD_TOKEN");
    cli->server = (struct permit_client_options){
        .url = url && *url ? url : NULL, .token = token, .retry_ms = retry_ms(cli->verb)};
    enum permit_status status = permit_client_new(&cli->server, &cli->client);
    if (status == PERMIT_INVALID) /* nothing of it is repeated: there may be a password in it */
        return cli_complain(CLI_USAGE, "the URL of the server (%s) must be http://HOST:PORT, without ? or #",
                            cli->options.url ? "--url" : "PERMITD_URL");
    if (status == PERMIT_UNAUTHENTICATED)
        return cli_complain(CLI_USAGE, "the token (%s) must be printable ASCII without space",
                            cli->options.token ? "--token" : "PERMITD_TOKEN");
    if (status)
        return cli_complain(CLI_NO_START, "%s", permit_status_title(status));
    int code = cli->verb->run(cli);
    permit_client_free(cli->client);
    return code;
}

/* A full disk or a closed pipe must not look like success. */
static int flush(int code)
{
    if ((fflush(stdout) != 0 || ferror(stdout)) && code == CLI_OK)
        return cli_complain(CLI_NO_START, "cannot write the output");
    return code;
}

static int obey(struct cli *cli)
{
    if (cli->options.version) {
        (void)printf("permitctl %s\n", permit_version());
        return CLI_OK;
    }
    if (cli->options.help) {
        options_print_help(cli->verb, cli->group, stdout);
        return CLI_OK;
    }
    return with_client(cli);
}

int cli_main(int argc, char **argv)
{
    struct cli cli = {.options = {.ttl_ms = CLI_UNSET,
                                  .wait_ms = CLI_UNSET,
                                  .wait_piece_ms = CLI_UNSET,
                                  .interval_ms = 1000,
                                  .exit_code = CLI_NO_CAPACITY,
                                  .on_lost = "term",
                                  .capacity = CLI_UNSET,
                                  .default_ttl_ms = CLI_UNSET,
                                  .max_ttl_ms = CLI_UNSET,
                                  .grace_ms = CLI_UNSET,
                                  .max_hold_ms = CLI_UNSET,
                                  .limit = CLI_UNSET}};
    descriptors_note(&cli.inherited);
    int code = options_parse(argc, argv, &cli) ? flush(obey(&cli)) : CLI_USAGE;
    free(cli.options.names);
    return code;
}
