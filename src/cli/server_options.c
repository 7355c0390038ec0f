/* SPDX-License-Identifier: MIT */
#include "cli/server_options.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "cli/cli.h"

enum { SENTENCE_MAX = 512, TOKEN_MAX = 16 * 1024 };

const char *const server_options_variables[] = {"PERMIT_CREDENTIAL", "PERMIT_CREDENTIAL_FILE", "PERMITD_TOKEN", NULL};

/* Returns a variable; NULL: unset or empty. */
static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

/* Reads the token from its file. Returns the exit status. */
static int read_token(struct server_options *found, const char *path)
{
    char text[TOKEN_MAX];
    int fd = open(path, O_RDONLY | O_NOCTTY | O_CLOEXEC);
    ssize_t got = fd >= 0 ? io_read(fd, text, sizeof(text)) : -1;
    int error = errno;
    if (fd >= 0)
        (void)close(fd);
    if (got < 0)
        return cli_error(CLI_USAGE, "the token file %s cannot be read: %s", path, strerror(error));
    size_t length = (size_t)got;
    while (length > 0 && (text[length - 1] == '\n' || text[length - 1] == '\r'))
        length--;
    if (length == 0 || length == sizeof(text))
        return cli_error(CLI_USAGE, "the token file %s %s", path, length ? "is too long" : "is empty");
    found->client.token = found->read_token = strndup(text, length);
    explicit_bzero(text, sizeof(text));
    return found->read_token ? CLI_OK : cli_error(CLI_NO_START, "out of memory");
}

static int use_token_file(struct server_options *found, const char *path)
{
    struct stat about;
    found->token_source = path;
    /* libpermit would read a pipe again for each client. */
    if (stat(path, &about) == 0 && !S_ISREG(about.st_mode) && !S_ISDIR(about.st_mode))
        return read_token(found, path);
    found->client.token_file = path;
    return CLI_OK;
}

static void use_token(struct server_options *found, const char *source, const char *token)
{
    found->token_source = source;
    found->client.token = token;
}

/* Uses the token of the command line. *ret_found: there is one. */
static int find_given_token(struct server_options *found, const struct cli_options *given)
{
    if (given->token && given->token_file)
        return cli_error(CLI_USAGE, "--token and --token-file exclude each other");
    if (given->token)
        use_token(found, "--token", given->token);
    return given->token_file ? use_token_file(found, given->token_file) : CLI_OK;
}

/*
 * Uses the settings of the file. Its token and certificate are used together or not at all: with a token from elsewhere
 * they could belong to different principals.
 */
static void use_file(struct server_options *found, bool wants_credential)
{
    struct permit_client_options *client = &found->client;
    const struct user_file *file = &found->file;
    if (!user_file_covers(file, client->url ? client->url : PERMIT_DEFAULT_URL)) {
        found->withheld = wants_credential && (file->token || file->cert);
        return;
    }
    if (!client->ca)
        client->ca = file->ca;
    if (!wants_credential)
        return;
    client->cert = file->cert;
    client->key = file->key;
    if (file->token)
        use_token(found, found->path, file->token);
}

static void begin(struct server_options *found, const struct cli_options *given)
{
    *found = (struct server_options){.client = {.ca = given->ca ? given->ca : variable("PERMIT_CA"),
                                                .cert = given->cert,
                                                .key = given->key,
                                                .insecure = given->flags[FLAG_INSECURE]}};
    if (user_file_path(found->path_buffer))
        found->path = found->path_buffer;
}

int server_options_find(struct server_options *found, const struct cli_options *given)
{
    struct buf message;
    begin(found, given);
    buf_init(&message, SENTENCE_MAX + USER_FILE_PATH_MAX);
    int code = CLI_OK;
    if (found->path && !user_file_load(&found->file, found->path, &message))
        code = cli_error(CLI_USAGE, "%s", buf_text(&message));
    buf_release(&message);
    struct permit_client_options *client = &found->client;
    if ((client->url = given->url))
        found->url_source = "--url";
    else if ((client->url = variable("PERMITD_URL")))
        found->url_source = "PERMITD_URL";
    else if ((client->url = found->file.url))
        found->url_source = found->path;
    if (code == CLI_OK)
        code = find_given_token(found, given);
    if (code == CLI_OK && !found->token_source) {
        const char *value;
        if ((value = variable("PERMIT_CREDENTIAL_FILE"))) {
            code = use_token_file(found, value);
        } else if ((value = variable("PERMIT_CREDENTIAL"))) {
            use_token(found, "PERMIT_CREDENTIAL", value);
        } else if ((value = variable("PERMITD_TOKEN"))) {
            (void)cli_error(0, "PERMITD_TOKEN is now called PERMIT_CREDENTIAL; a later version ignores the old name");
            use_token(found, "PERMITD_TOKEN", value);
        }
    }
    if (code == CLI_OK)
        use_file(found, !found->token_source && !given->cert && !given->key);
    return code;
}

int server_options_for_login(struct server_options *found, const struct cli_options *given, const char *url)
{
    begin(found, given);
    found->client.url = url;
    found->url_source = "login";
    return find_given_token(found, given);
}

int server_options_read_file(struct server_options *found)
{
    const char *path = found->client.token_file;
    found->client.token_file = NULL;
    return path ? read_token(found, path) : CLI_OK;
}

void server_options_release(struct server_options *found)
{
    if (found->read_token)
        explicit_bzero(found->read_token, strlen(found->read_token));
    free(found->read_token);
    user_file_release(&found->file);
    *found = (struct server_options){.path = NULL};
}

int server_options_connect(const struct server_options *found, struct permit_client **ret_client)
{
    char message[SENTENCE_MAX + USER_FILE_PATH_MAX];
    const struct permit_client_options *options = &found->client;
    enum permit_status status = permit_client_new(options, ret_client);
    if (!status)
        return CLI_OK;
    if (status == PERMIT_INVALID && permit_urls_check(options->url, message, sizeof(message)))
        return cli_error(CLI_USAGE, "the URL of the server (%s) %s", found->url_source, message);
    if (status == PERMIT_UNAUTHENTICATED && options->token)
        return cli_error(CLI_USAGE, "the token (%s) must be printable ASCII without space", found->token_source);
    (void)!permit_options_check(options, message, sizeof(message));
    return cli_error(status == PERMIT_NO_MEMORY ? CLI_NO_START : CLI_USAGE, "%s", message);
}

void server_options_explain_refusal(const struct server_options *found)
{
    const char *source = found->token_source;
    if (found->withheld)
        (void)cli_error(0, "the credential in %s is for other servers, and was not sent", found->path);
    else if (source)
        (void)cli_error(0, "the token is from %s", source);
    else if (!found->client.cert)
        (void)cli_error(0, "no credential was sent: permitctl login URL saves one, or set PERMIT_CREDENTIAL_FILE");
}
