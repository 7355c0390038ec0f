/* SPDX-License-Identifier: MIT */
/* The verbs token make and token check: the credentials file of permitd. Neither contacts a server. */
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/uuid.h"
#include "cli/cli.h"
#include "cli/credentials_file.h"
#include "cli/json_print.h"
#include "core/credentials.h"
#include "core/name.h"

enum {
    TEXT_MAX = 1024 * 1024,
    LINE_AIM = 100, /* columns of a line of semaphores */
    DATE_LENGTH = 10,
};

/* ---- token make ---- */

static void make_token(char ret_token[TOKEN_SIZE + 1])
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    unsigned char bits[33] = {0}; /* the last byte is padding */
    for (size_t i = 0; i < 32; i += sizeof(uint64_t)) {
        uint64_t random = random_u64();
        memcpy(bits + i, &random, sizeof random);
    }
    memcpy(ret_token, "pmt_", 4);
    for (size_t i = 0; i < TOKEN_SIZE - 4; i++) {
        size_t bit = 6 * i;
        unsigned window = (unsigned)bits[bit / 8] << 8 | bits[bit / 8 + 1];
        ret_token[4 + i] = digits[window >> (10 - bit % 8) & 63];
    }
    ret_token[TOKEN_SIZE] = '\0';
}

/* Appends the names, in lines that are not much longer than LINE_AIM. */
static void append_semaphores(struct buf *out, const char *names)
{
    size_t start = out->length;
    buf_append_text(out, "semaphores =");
    for (names += strspn(names, " "); *names; names += strspn(names, " ")) {
        size_t length = strcspn(names, " ");
        if (out->length - start + 1 + length > LINE_AIM) {
            start = out->length + 1;
            buf_append_text(out, "\nsemaphores =");
        }
        buf_append_char(out, ' ');
        buf_append(out, names, length);
        names += length;
    }
    buf_append_char(out, '\n');
}

/* Reads the section as permitd does. Without a role it is tried with one that needs no more. */
static bool section_is_valid(const char *name, const char *lines, const char *role, struct buf *message)
{
    struct credentials credentials = {0};
    struct buf text;
    buf_init(&text, TEXT_MAX);
    buf_printf(&text, "[%s]\n%s%s", name, lines, role ? "" : "role = admin\n");
    bool valid = credentials_parse((struct bytes){buf_text(&text), text.length}, "a section with these options",
                                   &credentials, message);
    credentials_release(&credentials);
    buf_release(&text);
    return valid;
}

/* Prints the token on the standard output. False: it cannot be written, which cli_main reports. */
static bool print_token(const struct cli *cli, const char *token, const char *lines)
{
    if (cli->options.flags[FLAG_JSON]) /* name, token and line have nothing to be escaped */
        (void)printf("{\"principal\":\"%s\",\"token\":\"%s\",\"line\":\"%.*s\"}\n", cli->words[0], token,
                     (int)strcspn(lines, "\n"), lines);
    else
        (void)printf("%s\n", token);
    return fflush(stdout) == 0;
}

/* Appends the section to the file of --append, then prints the token. The file keeps no section without a token. */
static int append_section(const struct cli *cli, const char *token, const char *lines, struct buf *message)
{
    struct credentials_file file;
    struct buf section;
    int code = CLI_OK;
    buf_init(&section, TEXT_MAX);
    buf_printf(&section, "\n[%s]\n%s", cli->words[0], lines);
    if (section.broken)
        code = cli_error(CLI_NO_START, "out of memory");
    else if (!credentials_file_append(cli->options.append, (struct bytes){section.data, section.length}, &file,
                                      message))
        code = cli_error(CLI_NO_START, "the section is not appended: %s", buf_text(message));
    else {
        if (!print_token(cli, token, lines) && !credentials_file_undo(&file))
            code = cli_error(CLI_NO_START, "%s: the section of the token cannot be removed", cli->options.append);
        credentials_file_close(&file);
    }
    buf_release(&section);
    return code;
}

/* Checks --semaphores against --role. Returns CLI_OK, or another status after an error message. */
static int check_semaphores(const struct cli_options *options)
{
    const char *names = options->semaphores ? options->semaphores : "";
    bool needs_scope = role_of_word(options->role)->needs_scope;
    if (options->semaphores && !needs_scope)
        return cli_error(CLI_USAGE, "--role %s has all semaphores, and does not take --semaphores", options->role);
    names += strspn(names, " ");
    if (needs_scope && !*names)
        return cli_error(CLI_USAGE, "--role %s needs --semaphores NAMES ('*' for all)", options->role);
    for (size_t length; *names; names += length + strspn(names + length, " ")) {
        length = strcspn(names, " ");
        if (!scope_name_is_valid((struct bytes){names, length}))
            return cli_error(CLI_USAGE,
                             "--semaphores %.*s: expected names of 1 to 255 of A-Z a-z 0-9 . _ : @ - with spaces "
                             "between them; a prefix ends in *",
                             (int)length, names);
    }
    return CLI_OK;
}

/* Returns CLI_OK, or another status after an error message. */
static int check_make_options(const struct cli *cli)
{
    const struct cli_options *options = &cli->options;
    if (!options->role && (options->semaphores || options->namespace))
        return cli_error(CLI_USAGE,
                         "--%s needs --role: without a role only the line of the token is made, for a section "
                         "that is there",
                         options->semaphores ? "semaphores" : "namespace");
    if (!options->role && options->append)
        return cli_error(CLI_USAGE,
                         "--append needs --role: without a role only a line is made, which belongs into the "
                         "section [%s]; put it there",
                         cli->words[0]);
    if (!principal_name_is_valid(bytes_of(cli->words[0])))
        return cli_error(CLI_USAGE, "NAME %s: expected 1 to %d of A-Z a-z 0-9 . _ @ -", cli->words[0],
                         PRINCIPAL_NAME_MAX);
    if (options->namespace && !name_is_namespace(bytes_of(options->namespace)))
        return cli_error(CLI_USAGE, "--namespace %s: expected 1 to 32 of a-z 0-9 -", options->namespace);
    int code = options->role ? check_semaphores(options) : CLI_OK;
    int64_t until;
    if (code != CLI_OK || !options->until)
        return code;
    if (!credential_parse_date(options->until, &until))
        return cli_error(CLI_USAGE, "--until %s: expected a date such as 2027-01-31", options->until);
    if (until <= clock_wall() / US_PER_SECOND)
        return cli_error(CLI_USAGE, "--until %s: that day has passed", options->until);
    return CLI_OK;
}

int verb_token_make(struct cli *cli)
{
    const struct cli_options *options = &cli->options;
    char token[TOKEN_SIZE + 1];
    struct buf lines, message;
    int code = check_make_options(cli);
    if (code != CLI_OK)
        return code;
    make_token(token);
    buf_init(&lines, TEXT_MAX);
    buf_init(&message, TEXT_MAX);
    unsigned char digest[DIGEST_SIZE] = {0};
    bool made = digest_sha256(bytes_of(token), digest);
    buf_append_text(&lines, "token = sha256:");
    buf_append_hex(&lines, digest, sizeof digest);
    if (options->until)
        buf_printf(&lines, " until %s", options->until);
    buf_append_char(&lines, '\n');
    if (options->role)
        buf_printf(&lines, "role = %s\n", options->role);
    if (options->semaphores)
        append_semaphores(&lines, options->semaphores);
    if (options->namespace)
        buf_printf(&lines, "namespace = %s\n", options->namespace);
    if (!made || lines.broken)
        code = cli_error(CLI_NO_START, "out of memory");
    else if (!section_is_valid(cli->words[0], buf_text(&lines), options->role, &message))
        code = cli_error(CLI_USAGE, "%s", buf_text(&message));
    else if (options->append)
        code = append_section(cli, token, buf_text(&lines), &message);
    else if (print_token(cli, token, buf_text(&lines)) && !options->flags[FLAG_JSON]) {
        /* Without the token its digest is of no use. */
        if (isatty(STDERR_FILENO))
            (void)fprintf(stderr,
                          options->role ? "\n# The token is shown once. This belongs into the credentials file:\n"
                                        : "\n# The token is shown once. This belongs into the section [%s]:\n",
                          cli->words[0]);
        if (options->role)
            (void)fprintf(stderr, "\n[%s]\n", cli->words[0]);
        (void)fputs(buf_text(&lines), stderr);
    }
    buf_release(&lines);
    buf_release(&message);
    return code;
}

/* ---- token check ---- */

static size_t count_of(const struct credential_list *list, const struct principal *principal)
{
    size_t count = 0;
    for (size_t i = 0; i < list->count; i++)
        count += list->items[i].principal == principal;
    return count;
}

/* Nothing in it has to be escaped: names have no quote, backslash or control character. */
static void append_principal(struct buf *out, const struct credentials *credentials, const struct principal *principal)
{
    char moment[RFC3339_SIZE];
    int64_t until = INT64_MAX;
    for (size_t i = 0; i < credentials->tokens.count; i++)
        if (credentials->tokens.items[i].principal == principal)
            until = min_i64(until, credentials->tokens.items[i].until);
    buf_printf(out, "{\"principal\":\"%s\",\"role\":\"%s\",\"tokens\":%zu,\"certificates\":%zu,\"users\":%zu,",
               principal->name, principal->role->word, count_of(&credentials->tokens, principal),
               count_of(&credentials->certificates, principal), count_of(&credentials->users, principal));
    if (until < INT64_MAX) {
        (void)clock_format_rfc3339((until - 1) * US_PER_SECOND, moment); /* in the last day of the token */
        buf_printf(out, "\"until\":\"%.*s\",", DATE_LENGTH, moment);
    } else {
        buf_append_text(out, "\"until\":null,");
    }
    if (principal->namespace.length)
        buf_printf(out, "\"namespace\":\"%.*s\",", (int)principal->namespace.length, principal->namespace.data);
    buf_append_text(out, "\"semaphores\":[");
    for (size_t i = 0; i < principal->scope.count; i++) {
        const struct scope_entry *entry = &principal->scope.entries[i];
        buf_printf(out, "%s\"%.*s%s\"", i ? "," : "", (int)entry->text.length, entry->text.data,
                   entry->is_prefix ? "*" : "");
    }
    buf_append_text(out, "]}");
}

static int print_principals(const struct cli *cli, const struct credentials *credentials)
{
    static const struct json_column columns[] = {{"PRINCIPAL", "principal"}, {"ROLE", "role"},
                                                 {"NAMESPACE", "namespace"}, {"TOKENS", "tokens"},
                                                 {"UNTIL", "until"},         {"CERTIFICATES", "certificates"},
                                                 {"USERS", "users"},         {"SEMAPHORES", "semaphores"}};
    int code = CLI_OK;
    struct buf body;
    buf_init(&body, 4 * (size_t)CREDENTIALS_MAX_BYTES);
    buf_append_text(&body, "{\"principals\":[");
    for (size_t i = 0; i < credentials->principals.count; i++) {
        buf_append_text(&body, i ? "," : "");
        append_principal(&body, credentials, credentials->principals.items[i].principal);
    }
    buf_append_text(&body, "]}");
    if (body.broken)
        code = cli_error(CLI_NO_START, "out of memory");
    else if (cli->options.flags[FLAG_JSON])
        json_print_text(buf_text(&body));
    else {
        struct json_object *answer = json_read(buf_text(&body));
        json_print_table(answer, "principals", columns, ARRAY_LENGTH(columns), 0);
        json_free(answer);
    }
    buf_release(&body);
    return code;
}

int verb_token_check(struct cli *cli)
{
    const char *path = cli->words[0];
    struct credentials credentials = {0};
    struct buf message;
    struct stat file;
    /* For root a file of any user is good: permitd may run as that user. */
    uid_t user = geteuid() == 0 && stat(path, &file) == 0 ? file.st_uid : geteuid();
    buf_init(&message, TEXT_MAX);
    int code = credentials_load(path, user, &credentials, &message) ? CLI_OK : CLI_REFUSED;
    if (code == CLI_OK) {
        code = print_principals(cli, &credentials);
        for (size_t i = 0; i < credentials.tokens.count; i++) { /* they do no harm, but their clients are refused */
            const struct credential *token = &credentials.tokens.items[i];
            if (token->until <= clock_wall() / US_PER_SECOND)
                (void)cli_error(CLI_OK, "%s, line %d: warning: this token of %s has ended", path, token->line,
                                token->principal->name);
        }
    } else {
        (void)cli_error(code, "%s", buf_text(&message));
    }
    credentials_release(&credentials);
    buf_release(&message);
    return code;
}
