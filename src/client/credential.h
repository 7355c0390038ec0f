/* SPDX-License-Identifier: MIT */
/*
 * The credential of a client: a token that its program gives, or a file with the token; and checks of the files for
 * TLS. Sends nothing.
 */
#ifndef CLIENT_CREDENTIAL_H
#define CLIENT_CREDENTIAL_H

#include <sys/stat.h>

#include "base/buf.h"
#include "permit/permit.h"

enum { TOKEN_MAX_BYTES = 15 * 1024 };

struct client_credential {
    char *token;      /* NULL: none */
    char *path;       /* the file that it comes from; NULL: none */
    struct stat seen; /* state of the file when it was read */
};

/*
 * Takes the token of the options, or reads their token_file. PERMIT_UNAUTHENTICATED, PERMIT_INVALID: appends a sentence
 * to `message`, which has no part of the token. credential_release is needed in any case.
 */
enum permit_status credential_open(struct client_credential *credential, const struct permit_client_options *options,
                                   struct buf *message) MUST_CHECK;
/* Copies a credential without reading its file, which may be a pipe. PERMIT_NO_MEMORY. */
enum permit_status credential_copy(struct client_credential *credential,
                                   const struct client_credential *from) MUST_CHECK;
/*
 * Reads the file again if it has changed. Returns true if the token is another one now. A file that cannot be read, or
 * has no valid token, changes nothing; it is read again at the next call.
 */
bool credential_refresh(struct client_credential *credential) MUST_CHECK;
/* Accepts a zeroed object. */
void credential_release(struct client_credential *credential);

/*
 * Checks that ca, cert and key can be read, that a key comes with its certificate, and that other users cannot read
 * the key. PERMIT_INVALID: appends a sentence to `message`.
 */
enum permit_status credential_check_files(const struct permit_client_options *options, struct buf *message) MUST_CHECK;
#endif
