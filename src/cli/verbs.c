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
    ". The permit is renewed from outside the\n"
    "command and given back when it ends. permitctl exits with the command's own status.\n"
    "\n"
    "The command finds in its environment:\n"
    "  PERMIT_REQUEST         the key of the request\n"
    "  PERMIT_TOKEN           the fencing token: send it along with every write, and let the store refuse older ones\n"
    "  PERMIT_SLOTS           the numbers of its slots, separated by commas\n"
    "  PERMIT_LABELS          their labels, separated by commas; not set if none has one\n"
    "  PERMIT_GRANT           the whole grant, as JSON; if that is too long for a variable there is instead\n"
    "  PERMIT_GRANT_FILE      the name of a file that has it, until the command ends\n"
    "  PERMIT_TOKEN_<NAME>, PERMIT_SLOTS_<NAME>, PERMIT_LABELS_<NAME>\n"
    "                         instead of these when there are several semaphores: the name in upper case, everything\n"
    "                         but A-Z and 0-9 as _ (names that would be equal so: PERMIT_GRANT)\n"
    "\n"
    "Signals are passed on to the command's process group, but for those that were ignored when permitctl began\n"
    "(nohup). On a terminal the command is in the foreground.\n"
    "The permit is lost when the server says that it has ended, and also when renewals have failed for so long that\n"
    "permitctl, by its own clock, cannot prove any more that it is held. Then --on-lost says what becomes of the\n"
    "command; with term and kill the exit status is 76, and all that the command has started is ended, too, in "
    "whatever\n"
    "process group it is. Out of reach is what it has started elsewhere (by ssh, a service manager or a container's\n"
    "daemon) or as another user; and if permitctl itself is killed, all but the command.\n"
    "If the permit cannot be given back it ends with its ttl; without one the exit status is 69 if the command's was "
    "0.\n"
    "With --id, a request that is already held under that key belongs to somebody else: exit status 75. A key is used\n"
    "once: one whose request has ended is refused with 65, for as long as it is remembered (7 days).\n"
    "Without -n and --wait it waits for as long as it takes";

static const char acquire_more[] =
    ". They are held until they are released or their ttl is over.\n"
    "\n"
    "Certain seats:      permitctl acquire -s hall --slot A1 --slot A2\n"
    "Four side by side:  permitctl acquire -s hall:4 --adjacent\n"
    "Two of a section:   permitctl acquire -s hall:2 --any-of B1 --any-of B2 --any-of B3\n"
    "One of user:4711:   permitctl acquire -s user:4711:1\n"
    "\n"
    "Without the :1 the digits would be the count, and 4711 units of user be asked for.\n"
    "\n"
    "If the key of --id is held already, that grant is printed, with \"yours no\", and the exit status is 0";

static const char put_more[] =
    ". What is not given stays as it is.\n"
    "Many labels go in pages of 1000: those of the first page together with all else, the others after it";

static const char top_more[] =
    ": those for which somebody waits first, then the fullest. OLDEST WAIT\n"
    "is how long the first in the queue has waited, OLDEST HOLD how long the longest holder has held. q quits, any "
    "other\n"
    "key looks again at once. A server that does not answer is asked again and again. With --json it prints one\n"
    "table, as --once does";

/*
 * name  arguments  bit  least words  most words  takes a command  function  help  more
 */
static const struct verb verbs[] = {
    {"run", "-s NAME[:COUNT]... [options] [--] COMMAND [ARGUMENT...]", VERB_RUN, 1, 0, true, verb_run,
     "Runs a command while holding permits", run_more},
    {"acquire", "-s NAME[:COUNT]... [options]", VERB_ACQUIRE, 0, 0, false, verb_acquire,
     "Takes permits and prints the grant", acquire_more},
    {"release", "KEY [--confirmed]", VERB_RELEASE, 1, 1, false, verb_release, "Gives the permits of a request back",
     ". May be repeated; also ends a request that has not arrived yet. A confirmed one only with --confirmed"},
    {"renew", "KEY [--ttl TIME]", VERB_RENEW, 1, 1, false, verb_renew, "Extends a request by its ttl, from now",
     ". Exit status 76: it is not held any more"},
    {"confirm", "KEY", VERB_CONFIRM, 1, 1, false, verb_confirm, "Makes a hold permanent: a sale",
     ". It has no deadline any more. Exit status 76: too late, it is not held any more"},
    {"show", "KEY", VERB_SHOW, 1, 1, false, verb_show, "Shows a request", NULL},
    {"requests", "[-s NAME] [--owner OWNER] [--state held|released] [--at TIME]", VERB_REQUESTS, 0, 0, false,
     verb_requests, "Lists requests, held and ended",
     ", the oldest first; with --at the last granted first.\n\n"
     "Who held backups at 02:14: permitctl requests -s backups --at 02:14\n\n"
     "A semaphore or an owner that there is not gives an empty table"},
    {"force-release", "KEY --reason TEXT", VERB_FORCE, 1, 1, false, verb_force_release,
     "Ends a request that somebody else holds",
     ". The reason is recorded (semaphore events). The holder learns it when it renews next: let the store look at\n"
     "tokens"},
    {"semaphore put", "NAME [--capacity N] [options]", VERB_PUT, 1, 1, false, verb_semaphore_put,
     "Makes or changes a semaphore", put_more},
    {"semaphore get", "NAME", VERB_GET, 1, 1, false, verb_semaphore_get, "Shows a semaphore", NULL},
    {"semaphore list", "[--prefix TEXT]", VERB_LIST, 0, 0, false, verb_semaphore_list, "Lists semaphores", NULL},
    {"semaphore delete", "NAME [--force --reason TEXT]", VERB_SEMAPHORE_DELETE, 1, 1, false, verb_semaphore_delete,
     "Retires a semaphore",
     ". Refused while permits of it are held, unless --force ends all who hold them, as\n"
     "force-release does, whatever else they hold. Its tokens go on if it is ever made again"},
    {"semaphore pause", "NAME --reason TEXT", VERB_PAUSE, 1, 1, false, verb_semaphore_pause,
     "Stops new grants of a semaphore", ". Who holds keeps what he has; who asks is told the reason"},
    {"semaphore resume", "NAME", VERB_RESUME, 1, 1, false, verb_semaphore_resume, "Allows new grants again", NULL},
    {"semaphore events", "NAME", VERB_EVENTS, 1, 1, false, verb_semaphore_events,
     "Lists what was done to a semaphore, the newest first", ". Also of a retired one"},
    {"template put", "PREFIX [--capacity N] [options]", VERB_TEMPLATE, 1, 1, false, verb_template_put,
     "Makes or changes a template",
     ": semaphores whose name begins with PREFIX are made with its settings on\ntheir first use; the longest prefix "
     "decides. What is not given stays as it is, and so do semaphores that are there"},
    {"template get", "PREFIX", VERB_GET, 1, 1, false, verb_template_get, "Shows a template", NULL},
    {"template list", "[--prefix TEXT]", VERB_LIST, 0, 0, false, verb_template_list, "Lists templates", NULL},
    {"template delete", "PREFIX", VERB_TEMPLATE_DELETE, 1, 1, false, verb_template_delete, "Removes a template",
     ". What was made from it stays"},
    {"owner beat", "NAME [--ttl TIME]", VERB_BEAT, 1, 1, false, verb_owner_beat, "Sends a heartbeat of an owner",
     ": it is alive, for the ttl (30s) from now. What was acquired with\n"
     "--ttl owner is held as long as heartbeats come; when they stop, all that the owner holds ends. Exit status 76:\n"
     "they had stopped, and what ends with that is still ending"},
    {"owner show", "NAME", VERB_OWNER, 1, 1, false, verb_owner_show, "Says whether an owner is alive", NULL},
    {"owner gone", "NAME", VERB_OWNER, 1, 1, false, verb_owner_gone, "Ends an owner, and with it all that it holds",
     ". Confirmed requests stay. May be repeated"},
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
    {"fence check", "NAME TOKEN [--slot N]", VERB_FENCE, 2, 2, false, verb_fence_check, "Says whether a token is live",
     ". Exit status 76 if it is not"},
    {"fence bump", "--reason TEXT [--yes]", VERB_BUMP, 0, 0, false, verb_fence_bump,
     "Lifts the tokens of all semaphores above all that were handed out",
     ". After the restore of an older\ncopy of the database. Nothing is granted for some seconds afterwards. On a "
     "terminal it asks first"},
    {"doctor", "", VERB_DOCTOR, 0, 0, false, verb_doctor, "Says what is unsafe at the server's database",
     " and how to mend it.\nExit status 65 if something is, for which permitd refuses to serve"},
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
    int code = cli_complain(cli_exit_of(cli, status), "%s: %s", permit_status_word(status),
                            *message ? message : permit_status_title(status));
    if (status == PERMIT_NO_SERVER && !cli->server.url)
        (void)cli_complain(code, "no server was named, so that was the default: --url or PERMITD_URL names another");
    return code;
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
        return cli_complain(CLI_NO_START, "the output cannot be written");
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
