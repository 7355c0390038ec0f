/* SPDX-License-Identifier: MIT */
/* The verbs login, logout and whoami. */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <termios.h>
#include <unistd.h>

#include "base/escape.h"
#include "cli/json_print.h"
#include "cli/resource.h"
#include "cli/signals.h"

enum { TOKEN_MAX = 16 * 1024, MESSAGE_MAX = 1024 + USER_FILE_PATH_MAX };

#define WHOAMI_PATH "/v1/whoami"

/* ---- The token ---- */

/* Reads to the end of the line. Returns CLI_OK, or 128 + n after signal n, or another status after an error message. */
static int read_line(int signal_fd, char line[TOKEN_MAX])
{
    struct pollfd events[] = {{.fd = STDIN_FILENO, .events = POLLIN}, {.fd = signal_fd, .events = POLLIN}};
    size_t length = 0;
    while (length < TOKEN_MAX - 1 && !memchr(line, '\n', length)) {
        if (poll(events, ARRAY_LENGTH(events), -1) < 0 && errno != EINTR)
            return cli_error(CLI_NO_START, "the token cannot be read: %s", strerror(errno));
        int signal = signals_next(signal_fd);
        if (signal)
            return 128 + signal;
        if (!events[0].revents)
            continue;
        ssize_t got = read(STDIN_FILENO, line + length, TOKEN_MAX - 1 - length);
        if (got == 0)
            break;
        if (got < 0 && errno != EINTR)
            return cli_error(CLI_USAGE, "the token cannot be read: %s", strerror(errno));
        length += got > 0 ? (size_t)got : 0;
    }
    line[length] = '\0';
    line[strcspn(line, "\r\n")] = '\0';
    return CLI_OK;
}

/* Reads the token from the terminal, without echo, or from another standard input. An empty line: none. */
static int read_token(struct server_options *found)
{
    char line[TOKEN_MAX] = "", prompt[MESSAGE_MAX];
    struct termios before;
    sigset_t set, mask_before;
    sigemptyset(&set);
    sigaddset(&set, SIGTSTP); /* the echo would stay off while permitctl is stopped */
    (void)sigprocmask(SIG_BLOCK, NULL, &mask_before);
    int signal_fd = signals_take(-1, signals_ending, SIGNALS_ENDING_COUNT, &set);
    if (signal_fd < 0)
        return cli_error(CLI_NO_START, "no file descriptors left: raise the limit (ulimit -n)");
    bool is_terminal = tcgetattr(STDIN_FILENO, &before) == 0;
    if (is_terminal) { /* without echo */
        struct termios hidden = before;
        hidden.c_lflag &= ~(tcflag_t)ECHO;
        hidden.c_lflag |= ICANON | ISIG | ECHONL;
        is_terminal = tcsetattr(STDIN_FILENO, TCSAFLUSH, &hidden) == 0;
    }
    if (is_terminal) {
        (void)snprintf(prompt, sizeof(prompt), "Token for %s: ", found->client.url);
        escape_control_chars(prompt, strlen(prompt));
        (void)fputs(prompt, stderr);
    }
    int code = read_line(signal_fd, line);
    if (is_terminal)
        (void)tcsetattr(STDIN_FILENO, TCSAFLUSH, &before);
    (void)close(signal_fd);
    if (code == CLI_OK) /* otherwise a signal that is pending must not end permitctl with another status */
        (void)sigprocmask(SIG_SETMASK, &mask_before, NULL);
    if (code == CLI_OK && *line) {
        found->client.token = found->read_token = strdup(line);
        found->token_source = "standard input";
        code = found->read_token ? CLI_OK : cli_error(CLI_NO_START, "out of memory");
    }
    explicit_bzero(line, sizeof(line));
    return code;
}

/* ---- The verbs ---- */

static void print_whoami(struct json_object *answer)
{
    static const struct json_column lines[] = {{"principal", "principal"}, {"namespace", "namespace"},
                                               {"rights", "rights"},       {"semaphores", "semaphores"},
                                               {"quotas", "quotas"},       {"until", "until"}};
    if (!json_text_of(answer, "principal"))
        (void)printf("%-14s %s\n", "principal", "-");
    json_print_lines(answer, lines, ARRAY_LENGTH(lines));
}

int verb_whoami(struct cli *cli)
{
    return cli_finish(cli, permit_call(cli->client, "GET", WHOAMI_PATH, NULL), print_whoami);
}

/* Returns the absolute path of a file, which the caller frees; NULL: no file was given. */
static char *absolute(const char *path)
{
    return path ? realpath(path, NULL) : NULL;
}

/* Writes the user's file. Returns the exit status. */
static int write_file(struct server_options *found, const char *token)
{
    struct buf message;
    struct user_file file = {.url = (char *)found->client.url,
                             .token = (char *)token,
                             .ca = absolute(found->client.ca),
                             .cert = absolute(found->client.cert),
                             .key = absolute(found->client.key)};
    buf_init(&message, MESSAGE_MAX);
    int code = CLI_OK;
    if (!user_file_write(&file, found->path, &message))
        code = cli_error(CLI_NO_START, "%s", buf_text(&message));
    buf_release(&message);
    free(file.ca);
    free(file.cert);
    free(file.key);
    return code;
}

/* Tries the credential at the server, and writes the file if it is accepted. Returns the exit status. */
static int log_in(struct cli *cli)
{
    struct server_options *found = &cli->found;
    const char *token = found->client.token;
    int code = server_options_connect(found, &cli->client);
    if (code)
        return code;
    enum permit_status status = permit_call(cli->client, "GET", WHOAMI_PATH, NULL);
    if (status)
        return cli_fail(cli, status);
    struct json_object *answer = json_read(permit_client_answer(cli->client));
    bool has_principal = json_text_of(answer, "principal");
    json_free(answer);
    if (!has_principal)
        return cli_error(CLI_REFUSED, "%s requires no credential; nothing was written", permit_client_url(cli->client));
    code = write_file(found, token && *token ? token : NULL);
    if (code)
        return code;
    (void)cli_finish(cli, PERMIT_OK, print_whoami);
    (void)cli_error(0, "wrote %s", found->path);
    /* With a variable that overrides the file the next command may use another server or credential. */
    static const char *const others[] = {"PERMITD_URL", "PERMIT_CA", NULL};
    const char *const *const lists[] = {server_options_variables, others};
    for (size_t list = 0; list < ARRAY_LENGTH(lists); list++)
        for (const char *const *name = lists[list]; *name; name++)
            if (getenv(*name) && *getenv(*name))
                (void)cli_error(0, "%s is set, and overrides the file", *name);
    return CLI_OK;
}

/* Reports a mistake in the options, before the user types the token: `must_ask`. Returns the exit status. */
static int check_options(const struct server_options *found, bool must_ask)
{
    struct server_options checked = *found;
    struct permit_client *client = NULL;
    if (!found->path)
        return cli_error(CLI_USAGE, "the path of the user's file is unknown: set HOME or XDG_CONFIG_HOME");
    if (must_ask)
        checked.client.token = "-"; /* so that a token over http to another machine is refused now */
    int code = server_options_connect(&checked, &client);
    permit_client_free(client);
    return code;
}

int verb_login(struct cli *cli)
{
    struct server_options *found = &cli->found;
    int code = server_options_for_login(found, &cli->options, cli->words[0]);
    bool must_ask = !found->token_source && !found->client.cert;
    if (code == CLI_OK)
        code = check_options(found, must_ask);
    if (code == CLI_OK)
        code = must_ask ? read_token(found) : server_options_read_file(found);
    return code == CLI_OK ? log_in(cli) : code;
}

int verb_logout(struct cli *cli)
{
    char path[USER_FILE_PATH_MAX];
    (void)cli;
    if (!user_file_path(path))
        errno = ENOENT;
    else if (unlink(path) == 0)
        return cli_error(CLI_OK, "removed %s", path);
    if (errno != ENOENT && errno != ENOTDIR)
        return cli_error(CLI_NO_START, "%s cannot be removed: %s", path, strerror(errno));
    return cli_error(CLI_OK, "no login is saved");
}
