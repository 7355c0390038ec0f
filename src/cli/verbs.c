/* SPDX-License-Identifier: MIT */
/* The table of verbs, and the functions that they share. */
#include <stdarg.h>
#include <stdlib.h>

#include "base/config.h"
#include "base/escape.h"
#include "cli/cli.h"
#include "cli/descriptors.h"
#include "cli/json_print.h"
#include "cli/semaphore_settings.h"

enum { MESSAGE_MAX = 8192 };

static const char run_more[] =
    ". permitctl renews the permit while the\n"
    "command runs and releases it when the command ends. permitctl exits with the command's own status.\n"
    "\n"
    "Environment of the command:\n"
    "  PERMIT_REQUEST         the key of the request\n"
    "  PERMIT_REQUESTS        the keys of its outer runs, outermost first, and its own, with blanks between them\n"
    "  PERMIT_TOKEN           the fencing token: send it with every write, and let the store refuse older tokens\n"
    "  PERMIT_SLOTS           the numbers of its slots, separated by commas\n"
    "  PERMIT_LABELS          their labels, separated by commas; unset if no slot has a label\n"
    "  PERMIT_GRANT           the whole grant as JSON; unset if it is too long for a variable\n"
    "  PERMIT_GRANT_FILE      then: the name of a file with the grant, which exists until the command ends\n"
    "  PERMIT_TOKEN_<NAME>, PERMIT_SLOTS_<NAME>, PERMIT_LABELS_<NAME>\n"
    "                         with several semaphores, instead of the above: the name in upper case, every other\n"
    "                         character than A-Z and 0-9 as _ (if two names become equal: use PERMIT_GRANT)\n"
    "\n"
    "permitctl passes signals on to the command's process group, except those that were ignored when it started\n"
    "(nohup). On a terminal the command runs in the foreground.\n"
    "The permit is renewed every 10 seconds, or every third of its ttl if that is shorter.\n"
    "The permit is lost when the server reports that it has ended, or when renewals have failed for so long that\n"
    "permitctl, by its own clock, can no longer prove that it is held. --on-lost selects what happens then; with\n"
    "term and kill the exit status is 76, and every process that the command started is ended, in whatever process\n"
    "group it is. Out of reach are processes that the command started elsewhere (by ssh, a service manager or a\n"
    "container's daemon) or as another user; if permitctl itself is killed, only the command is ended.\n"
    "If the permit cannot be released, it ends with its ttl; without a ttl, the exit status is 69 if the command's\n"
    "was 0. With --id, a request that is already held under that key belongs to another client: exit status 75. A\n"
    "key is used once: after its request has ended, the key is refused with 65 for 7 days.\n"
    "Without -n and --wait it waits without limit. The command may call permitctl run again. If it asks for more than\n"
    "the capacity less what its own outer runs hold, it would wait for itself: exit status 75";

static const char acquire_more[] =
    ". They are held until they are released or their ttl expires.\n"
    "\n"
    "Specific seats:     permitctl acquire -s hall --slot A1 --slot A2\n"
    "Four adjacent:      permitctl acquire -s hall:4 --adjacent\n"
    "Two of a section:   permitctl acquire -s hall:2 --any-of B1 --any-of B2 --any-of B3\n"
    "One of user:4711:   permitctl acquire -s user:4711:1\n"
    "\n"
    "Without :1 the digits would be the count: 4711 units of user.\n"
    "\n"
    "If another client holds the permits under the key of --id, that grant is printed, with \"yours no\", and the\n"
    "exit status is 75; with --allow-replay it is 0";

#define CHANGE_MORE                                                                                                    \
    "\n"                                                                                                               \
    "Exit status 76: it is no longer held; 65: it is confirmed, or was changed meanwhile, and other refusals. A "      \
    "call\n"                                                                                                           \
    "that got no answer may be repeated with the --changes that it prints: it is refused if the change was made"

static const char shrink_more[] = ". The rest keeps its tokens;\n"
                                  "all given back is a release.\n"
                                  "\n"
                                  "One of two seats:   permitctl shrink cart-7 -s hall --slot A2\n" CHANGE_MORE;

static const char grow_more[] =
    ", at once or not at all. Its deadline\n"
    "stays. The semaphores that grow have a new token for all their units of the request; the old one is dead.\n"
    "\n"
    "Two adjacent seats: permitctl grow cart-7 -s hall:2 --adjacent\n" CHANGE_MORE;

static const char exchange_more[] =
    ", at once or not at\n"
    "all: another seat, without losing the old one. Its deadline stays. The semaphores of which it takes units have a\n"
    "new token for all their units of the request; the old one is dead.\n"
    "\n"
    "Another seat:       permitctl exchange cart-7 --give hall --slot A3 --take hall --slot B7\n" CHANGE_MORE;

static const char put_more[] =
    ". Options that are not given keep their value.\n"
    "Labels are sent in pages of 1000: the first page together with the other options, the rest after it";

static const char token_make_more[] =
    ". The token is printed on standard output, once;\n"
    "the lines for the credentials file of permitd, on standard error, or with --append into the file. No server is\n"
    "contacted. permitctl refuses a file with a token that others can read: umask 077.\n"
    "\n"
    "A new principal:\n"
    "  (umask 077; permitctl token make shop --role use --semaphores 'shop:* hall' --append credentials > token)\n"
    "Its next token; the line is printed, for the section that is there:\n"
    "  (umask 077; permitctl token make shop --until 2027-01-31 > token)\n"
    "\n"
    "Reload permitd (SIGHUP) after a change of the file";

static const char top_more[] =
    ": semaphores with waiters first, then the fullest. OLDEST WAIT\n"
    "is how long the head of the queue has waited (with priorities another request may have\n"
    "waited longer), OLDEST HOLD the age of the oldest hold; on a narrow terminal they are headed WAIT and HOLD,\n"
    "and names and notes are cut (~). q quits, any other key refreshes.\n"
    "If the server does not answer, top retries. With --json it prints one table, like --once";

static const char reconcile_more[] =
    ", for orders in another database than permitd's. Each\n"
    "line of FILE has a key, a blank, and the state of its order. Findings:\n"
    "  paid_not_confirmed       paid, but only held. --apply confirms it\n"
    "  paid_not_held            paid, but it has ended, or waits: acquire the same units under a new key, or refund\n"
    "  unknown_request          paid, but permitd does not know the key: never acquired, or forgotten after its end\n"
    "  held_and_cancelled       cancelled, but still held. --apply releases it, if it is no sale by then\n"
    "  confirmed_and_cancelled  cancelled, but a sale. --apply ends the sale with force-release, which records a "
    "reason\n"
    "  confirmed_without_order  a sale that FILE does not have. --apply ends it in the same way\n"
    "  confirmed_not_paid       a sale of a pending order\n"
    "Only keys of this client's own namespace are compared. With -s or --owner, an order whose request the filter\n"
    "leaves out is a finding only if it is paid and no sale. Each finding is one line, with --json one object, and "
    "the\n"
    "last line has the sums. It may be interrupted and repeated: what is mended is no finding any more.\n"
    "Exit status 2: there are findings, with --apply: that are left";

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
    {"renew", "KEY [--ttl TIME] [--namespace NAMESPACE]", VERB_RENEW, 1, 1, false, verb_renew,
     "Extends a request by its ttl, from now", ". Exit status 76: it is no longer held"},
    {"confirm", "KEY... [--namespace NAMESPACE]", VERB_CONFIRM, 1, PERMIT_CONFIRM_MAX, false, verb_confirm,
     "Makes holds permanent: sales",
     ". They then have no deadline. Several are confirmed together or not at\n"
     "all. Exit status 76: one of them is no longer held"},
    {"grow", "KEY -s NAME[:COUNT]... [--changes N] [options]", VERB_GROW, 1, 1, false, verb_grow,
     "Adds units to what a request holds", grow_more},
    {"shrink", "KEY -s NAME[:COUNT]... [--changes N] [options]", VERB_SHRINK, 1, 1, false, verb_shrink,
     "Gives back a part of what a request holds", shrink_more},
    {"exchange", "KEY --give NAME[:COUNT]... --take NAME[:COUNT]... [--changes N] [options]", VERB_EXCHANGE, 1, 1,
     false, verb_exchange, "Gives back units of a request and takes others", exchange_more},
    {"show", "KEY [--namespace NAMESPACE]", VERB_SHOW, 1, 1, false, verb_show, "Shows a request", NULL},
    {"requests", "[-s NAME] [--owner OWNER] [--state waiting|held|released] [--at TIME]", VERB_REQUESTS, 0, 0, false,
     verb_requests, "Lists requests: waiting, held and ended",
     ", approximately the oldest first (each\nworker of a permitd numbers its own); with --at the last granted first.\n"
     "\n"
     "Who held backups at 02:14: permitctl requests -s backups --at 02:14\n"
     "\n"
     "An unknown semaphore or owner gives an empty table"},
    {"reconcile", "--orders FILE [--min-age TIME] [-s NAME] [--owner OWNER] [--prefix TEXT] [--apply [--reason TEXT]]",
     VERB_RECONCILE, 0, 0, false, verb_reconcile, "Compares sales and holds with a list of orders", reconcile_more},
    {"force-release", "KEY --reason TEXT [--namespace NAMESPACE]", VERB_FORCE, 1, 1, false, verb_force_release,
     "Ends a request of another client",
     ". The reason is recorded (semaphore events). The holder learns of it at its next renewal: let the store check\n"
     "tokens"},
    {"semaphore put", "NAME [--capacity N] [options]", VERB_PUT, 1, 1, false, verb_semaphore_put,
     "Creates or changes a semaphore", put_more},
    {"semaphore get", "NAME", VERB_GET, 1, 1, false, verb_semaphore_get, "Shows a semaphore", NULL},
    {"semaphore list", "[--prefix TEXT]", VERB_LIST, 0, 0, false, verb_list, "Lists semaphores", NULL},
    {"semaphore delete", "NAME [--force --reason TEXT]", VERB_SEMAPHORE_DELETE, 1, 1, false, verb_semaphore_delete,
     "Retires a semaphore",
     ". Refused while permits are held, unless --force ends every request that holds them, as\n"
     "force-release does, with all its other permits. Its tokens continue if it is created again"},
    {"semaphore pause", "NAME --reason TEXT", VERB_PAUSE, 1, 1, false, verb_semaphore_pause,
     "Stops new grants of a semaphore", ". Holders keep their permits; new requests are refused with the reason"},
    {"semaphore resume", "NAME", VERB_RESUME, 1, 1, false, verb_semaphore_resume, "Allows new grants again", NULL},
    {"semaphore events", "NAME", VERB_EVENTS, 1, 1, false, verb_list, "Lists the events of a semaphore, newest first",
     ". Works for a retired semaphore, too"},
    {"template put", "PREFIX [--capacity N] [options]", VERB_TEMPLATE, 1, 1, false, verb_template_put,
     "Creates or changes a template",
     ": a semaphore whose name begins with PREFIX is created with these settings\n"
     "when it is first acquired; the longest prefix decides. Options that are not given keep their value; existing\n"
     "semaphores do not change"},
    {"template get", "PREFIX", VERB_GET, 1, 1, false, verb_template_get, "Shows a template", NULL},
    {"template list", "[--prefix TEXT]", VERB_LIST, 0, 0, false, verb_list, "Lists templates", NULL},
    {"template delete", "PREFIX", VERB_TEMPLATE_DELETE, 1, 1, false, verb_template_delete, "Removes a template",
     ". Semaphores that were created from it stay"},
    {"sql-account put", "USER [--namespace NAMESPACE]", VERB_SQL_ACCOUNT_PUT, 1, 1, false, verb_sql_account_put,
     "Lets an SQL user confirm and release requests by SQL",
     ": permit_confirm and the other\nprocedures, on all keys of its namespace, whatever the semaphore. Prints the "
     "GRANTs that an administrator of the\n"
     "database runs, with the host of the account instead of %"},
    {"sql-account list", "", VERB_PLAIN, 0, 0, false, verb_list, "Lists the SQL users that may do so", NULL},
    {"sql-account delete", "USER", VERB_PLAIN, 1, 1, false, verb_sql_account_delete, "Takes that right away",
     ": from now on its calls are refused (permit: forbidden). Its GRANTs stay"},
    {"owner beat", "NAME [--ttl TIME]", VERB_BEAT, 1, 1, false, verb_owner_beat, "Sends a heartbeat of an owner",
     ": the owner is alive for the ttl (30s) from now. Requests acquired with\n"
     "--ttl owner are held as long as heartbeats arrive; when they stop, all requests of the owner end.\n"
     "Exit status 76: heartbeats had stopped, and requests of the owner are still ending"},
    {"owner show", "NAME [--namespace NAMESPACE]", VERB_OWNER, 1, 1, false, verb_owner_show,
     "Shows whether an owner is alive", NULL},
    {"owner gone", "NAME [--namespace NAMESPACE]", VERB_OWNER, 1, 1, false, verb_owner_gone,
     "Ends an owner and all requests that it holds", ". Confirmed requests stay. Safe to repeat"},
    {"availability", "NAME... | --prefix TEXT", VERB_LIST, 0, 1000, false, verb_availability,
     "Shows the free units of semaphores",
     ", as they were at most a second ago: permitd\n"
     "answers from memory. A name that does not exist is left out"},
    {"holders", "NAME", VERB_HOLDERS, 1, 1, false, verb_list, "Lists who holds permits of a semaphore", NULL},
    {"slots", "NAME [--state free|held] [--prefix TEXT]", VERB_SLOTS, 1, 1, false, verb_list,
     "Lists the slots of a semaphore, and who holds them", NULL},
    {"waiters", "NAME", VERB_WAITERS, 1, 1, false, verb_list, "Lists the waiting requests of a semaphore, in order",
     ". All permitd on one database\n"
     "share the queue. SERVER: the permitd of its client (permitctl servers). KEPT: no client asks for the request\n"
     "now; it is passed over, and its place is kept for 10 seconds"},
    {"why", "KEY [--namespace NAMESPACE]", VERB_WHY, 1, 1, false, verb_why,
     "Shows what a request waits for, and what is ahead of it",
     ": for each\n"
     "semaphore the units requested and in use, the oldest holders, its place in the queue, and the requests ahead"},
    {"top", "[--prefix TEXT] [--interval TIME] [--once]", VERB_TOP, 0, 0, false, verb_top,
     "Shows a live table of semaphores", top_more},
    {"report", "-s NAME [--since TIME]", VERB_REPORT, 0, 0, false, verb_report, "Sums up what a semaphore was used for",
     ": grants, waits, holds, use over time, and its\n"
     "owners, from the requests that are still kept. Times are rounded up by at most 3 %, but for the longest. A\n"
     "grant without a wait counts as a wait of 0. Refusals, and waits that ended without a grant, are not in the\n"
     "database: permitd's metrics count them. \"complete no\": permits granted before \"read from\" are missing"},
    {"feed", "[--after CURSOR] [--follow] [-s NAME | --prefix TEXT] [--owner OWNER] [--namespace NAMESPACE]", VERB_FEED,
     0, 0, false, verb_feed, "Shows what happened to requests, in order",
     ", of the semaphores whose setting feed is\n"
     "sales or all: CURSOR, time, word, reason, key, permits and metadata, a line for each event. With --json it\n"
     "prints the answers of the server, one a line; `next` is the cursor to go on from. Exit status 65: events\n"
     "behind the cursor were deleted"},
    {"fence check", "NAME TOKEN [--slot N]", VERB_FENCE, 2, 2, false, verb_fence_check, "Shows whether a token is live",
     ". Exit status 76 if it is not"},
    {"fence bump", "--reason TEXT [--yes]", VERB_BUMP, 0, 0, false, verb_fence_bump,
     "Raises the tokens of all semaphores above every token issued so far",
     ". Needed after an older\n"
     "copy of the database was restored. Grants stop for a few seconds. On a terminal it asks first"},
    {"login", "URL [--token-file FILE]", VERB_LOGIN, 1, 1, false, verb_login,
     "Saves the URL of a server and the credential for it",
     ". Reads the token from the terminal, or else\n"
     "from standard input, asks the server to whom it belongs, and writes ~/.config/permit/config (or permit/config "
     "in\n"
     "XDG_CONFIG_HOME), which only this user can read. --ca, --cert and --key are saved, too. An empty line: no "
     "token,\n"
     "as for a Unix socket whose server knows the user"},
    {"logout", "", VERB_LOGOUT, 0, 0, false, verb_logout, "Removes the file that login has written", NULL},
    {"whoami", "", VERB_PLAIN, 0, 0, false, verb_whoami, "Shows the principal of this client, and its rights", NULL},
    {"token make", "NAME [--role ROLE --semaphores NAMES [--namespace NAMESPACE] [--append FILE]] [--until DATE]",
     VERB_TOKEN_MAKE, 1, 1, false, verb_token_make, "Makes a token for the principal NAME", token_make_more},
    {"token check", "FILE", VERB_TOKEN_CHECK, 1, 1, false, verb_token_check, "Checks a credentials file of permitd",
     " and lists its principals, without a server.\n"
     "UNTIL: when the first of its tokens ends. Exit status 65: the file has a mistake, and permitd would refuse it"},
    {"servers", "", VERB_PLAIN, 0, 0, false, verb_servers, "Lists the permitd that run on the database",
     ": address, version, and how many requests\n"
     "wait there. THIS: the one that answers. A dead one (ALIVE no) is listed for ten more seconds.\n"
     "If the URL of the server is a list, it also tries each URL, and prints whether a permitd is READY there.\n"
     "Exit status 69: one of them is not"},
    {"doctor", "", VERB_PLAIN, 0, 0, false, verb_doctor, "Reports unsafe database settings",
     " and how to fix them.\n"
     "Exit status 65 if permitd refuses to serve because of one"},
    {"webhooks", "", VERB_PLAIN, 0, 0, false, verb_webhooks, "Shows the URLs to which events of the feed are sent",
     ": how many events\n"
     "each is behind, those of other semaphores included, and since when; the calls that failed in a row, and the "
     "last\n"
     "error. WEBHOOK is its name in metrics and the log. --json also prints the keys, with which its receiver verifies "
     "the calls"},
    {"locks", "", VERB_PLAIN, 0, 0, false, verb_locks, "Shows which transactions lock permitd's rows",
     ", also those of other\n"
     "programs, by semaphore and key: how long they are open, their account and statement, how many sessions wait for\n"
     "the row; and the last deadlock. MariaDB names a row only while a session waits for it, or if a procedure was\n"
     "called about it. Exit status 65: permitd's database account lacks the right, which is printed"},
};

const struct verb *verb_table(size_t *ret_count)
{
    *ret_count = ARRAY_LENGTH(verbs);
    return verbs;
}

const struct verb *verb_find(char **words, int count, int *ret_used)
{
    for (size_t i = 0; i < ARRAY_LENGTH(verbs); i++) {
        int used = 0;
        const char *name = verbs[i].name;
        for (size_t length; *name && used < count; used++, name += length + (name[length] == ' ')) {
            length = strcspn(name, " ");
            if (strlen(words[used]) != length || memcmp(words[used], name, length) != 0)
                break;
        }
        if (*name)
            continue;
        *ret_used = used;
        return &verbs[i];
    }
    return NULL;
}

int cli_error(int code, const char *format, ...)
{
    char text[MESSAGE_MAX];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    escape_control_chars(text, strlen(text));
    (void)fprintf(stderr, "permitctl: %s\n", text);
    return code;
}

/* The verbs about a hold: without it they have nothing to do. */
#define HOLD_VERBS (VERB_RENEW | VERB_CONFIRM | VERB_BEAT | VERB_SHRINK | VERB_GROW | VERB_EXCHANGE)

int cli_exit_of(const struct cli *cli, enum permit_status status)
{
    switch (status) {
    case PERMIT_OK: return CLI_OK;
    case PERMIT_NO_CAPACITY:
    case PERMIT_PAUSED:
    case PERMIT_TOO_MANY: return (int)cli->options.exit_code;
    case PERMIT_ENDED:
    case PERMIT_UNKNOWN_REQUEST: return cli->verb->bit & HOLD_VERBS ? CLI_LOST : CLI_REFUSED;
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
    if (cli->options.flags[FLAG_JSON] && *answer)
        json_print_text(answer);
    else if (cli->options.flags[FLAG_JSON])
        json_print_problem(status, message);
    int code = cli_error(cli_exit_of(cli, status), "%s: %s", permit_status_word(status),
                         *message ? message : permit_status_title(status));
    if (status == PERMIT_UNAUTHENTICATED)
        server_options_explain_refusal(&cli->found);
    if (status == PERMIT_NO_SERVER && !cli->found.client.url)
        (void)cli_error(code, "no server was named, so that was the default: --url or PERMITD_URL names another");
    return code;
}

static int run_verb(struct cli *cli)
{
    if (cli->options.flags[FLAG_VERSION]) {
        (void)printf("permitctl %s\n", permit_version());
        return CLI_OK;
    }
    if (cli->options.flags[FLAG_HELP]) {
        options_print_help(cli->verb, cli->group, stdout);
        return CLI_OK;
    }
    int code = CLI_OK;
    if (!(cli->verb->bit & VERBS_UNCONNECTED)) {
        if (cli->options.flags[FLAG_VERBOSE]) { /* they look like those of permitctl */
            struct buf names;
            buf_init(&names, MESSAGE_MAX);
            config_name_service_variables("PERMITD_", &names);
            if (names.length)
                (void)cli_error(0, "variables of a Kubernetes service or a linked container are ignored: %s",
                                buf_text(&names));
            buf_release(&names);
        }
        code = server_options_find(&cli->found, &cli->options);
        cli->found.client.retry_ms = 2000;
        if (cli->verb->bit == VERB_RUN)
            cli->found.client.retry_ms = 5000; /* outlives a restart of the server; a person at a terminal waits less */
        else if (cli->verb->bit == VERB_SEMAPHORE_DELETE)
            cli->found.client.retry_ms = -1; /* the verb handles each answer itself (semaphores_cmd.c) */
        if (code == CLI_OK)
            code = server_options_connect(&cli->found, &cli->client);
    }
    if (code == CLI_OK)
        code = cli->verb->run(cli);
    permit_client_free(cli->client);
    server_options_release(&cli->found);
    return code;
}

int cli_main(int argc, char **argv)
{
    struct cli cli = {.options = {.ttl_ms = CLI_UNSET,
                                  .wait_ms = CLI_UNSET,
                                  .wait_piece_ms = CLI_UNSET,
                                  .interval_ms = 1000,
                                  .since_ms = CLI_UNSET,
                                  .min_age_ms = 10 * 60 * 1000,
                                  .exit_code = CLI_NO_CAPACITY,
                                  .on_lost = "term",
                                  .changes = CLI_UNSET,
                                  .limit = CLI_UNSET}};
    settings_unset(&cli.options);
    descriptors_note(&cli.inherited);
    int code = options_parse(argc, argv, &cli);
    if (code == CLI_OK)
        code = run_verb(&cli);
    /* A full disk or a closed pipe must not look like success. */
    if ((fflush(stdout) != 0 || ferror(stdout)) && code == CLI_OK)
        code = cli_error(CLI_NO_START, "cannot write the output");
    free(cli.options.names);
    json_writer_free(cli.options.metadata);
    return code;
}
