/* SPDX-License-Identifier: MIT */
/*
 * The server that permitctl calls, and the credential for it. An option of the command line comes first, then the
 * environment, then the user's file (user_file.h). A credential of the file goes to the servers of the file only.
 */
#ifndef CLI_SERVER_OPTIONS_H
#define CLI_SERVER_OPTIONS_H

#include "cli/user_file.h"
#include "permit/permit.h"

struct cli_options;

struct server_options {
    struct permit_client_options client; /* url, token, token_file, ca, cert, key, insecure; the strings live as long */
    const char *url_source;              /* for messages: "--url", ...; NULL: the default url */
    const char *token_source;            /* the same for the token; NULL: none */
    const char *path;                    /* of the user's file; NULL: its place is unknown */
    bool withheld;                       /* the file has a credential, but for other servers */

    /* Owned; server_options_release frees them. */
    struct user_file file;
    char *read_token; /* from a pipe or the terminal */
    char path_buffer[USER_FILE_PATH_MAX];
};

/* The variables with a credential; NULL-terminated. */
extern const char *const server_options_variables[];

/*
 * Finds the options for the client. Returns the exit status: CLI_OK, or another one after an error message.
 * server_options_release is needed in any case.
 */
int server_options_find(struct server_options *found, const struct cli_options *given);
/*
 * Finds only the options of the command line and the authorities of the environment: for login. Then
 * server_options_read_file reads a token_file into `token`.
 */
int server_options_for_login(struct server_options *found, const struct cli_options *given, const char *url);
int server_options_read_file(struct server_options *found);
/* Accepts a zeroed object. */
void server_options_release(struct server_options *found);

/* Creates the client. Returns the exit status: CLI_OK, or another one after an error message. */
int server_options_connect(const struct server_options *found, struct permit_client **ret_client);
/* Explains a 401 of the server, as far as the options do. */
void server_options_explain_refusal(const struct server_options *found);
#endif
