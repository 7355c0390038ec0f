/* SPDX-License-Identifier: MIT */
/*
 * TLS of the server's side. A context has the certificate, the key and the authorities of clients; it is loaded whole
 * or not at all, and never changes. Sessions keep the context that they began with. Only tls.c uses libssl. All
 * functions run on the loop's thread; none blocks.
 */
#ifndef HTTP_TLS_H
#define HTTP_TLS_H

#include <sys/types.h>

#include "base/buf.h"
#include "http/server.h"

/*
 * Reads the files of a certificate (with the certificates of its authorities, its own first), of its key, and of the
 * authorities of clients (NULL: clients are not asked for certificates). NULL: `message` has the file and the reason.
 * Refused: a key that other users may read, a key of another certificate, a certificate that is not valid today.
 */
struct tls_context *tls_context_load(const struct server_tls *files, struct buf *message) MUST_CHECK;
/* Accepts NULL. */
void tls_context_free(struct tls_context *context);
/* Returns the time in seconds since 1970 at which the certificate ends. */
int64_t tls_context_until(const struct tls_context *context);

/* Begins a session on a connected socket, which stays the caller's. NULL: out of memory. */
struct tls *tls_new(struct tls_context *context, int fd) MUST_CHECK;
/* Accepts NULL. */
void tls_free(struct tls *tls);
/*
 * Continues the handshake. HANDSHAKE_OK: it is complete. HANDSHAKE_RESULTS: it needs more input or output. Any other
 * result is the reason of its failure.
 */
enum handshake_result tls_handshake(struct tls *tls) MUST_CHECK;
/* As recv and send: -1 with errno EAGAIN if nothing can be done now. An unwritten piece is passed again, unchanged. */
ssize_t tls_read(struct tls *tls, void *data, size_t size) MUST_CHECK;
ssize_t tls_write(struct tls *tls, const void *data, size_t size) MUST_CHECK;
/* Returns true if the last call waits until the socket takes output. */
bool tls_wants_output(const struct tls *tls);
/*
 * Returns true if the client has closed its side. May read input from the socket; *ret_pending tells whether some of it
 * is to be read with tls_read although the socket is not readable.
 */
bool tls_client_closed(struct tls *tls, bool *ret_pending);
/* Tells the client that nothing follows. */
void tls_end(struct tls *tls);
/*
 * Returns the names of the client's verified certificate, NULL-terminated: its alternative names "DNS:a.example",
 * "URI:...", "email:...", or, if it has none, "CN=..." of its subject. Valid as long as the session. *ret_count is
 * their number, 0 without a certificate.
 */
const char **tls_client_names(struct tls *tls, size_t *ret_count);
#endif
