/* SPDX-License-Identifier: MIT */
#include "http/tls.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "testkit.h"

enum { VALID_S = 3600 };

/* Writes a key and a certificate of its own. The caller frees both paths. */
static struct server_tls files_make(void)
{
    struct server_tls files = {.certificate = kit_path("server.pem"), .key = kit_path("server.key")};
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *certificate = X509_new();
    X509_gmtime_adj(X509_getm_notBefore(certificate), 0);
    X509_gmtime_adj(X509_getm_notAfter(certificate), VALID_S);
    cr_assert_eq(X509_set_pubkey(certificate, key), 1);
    cr_assert_gt(X509_sign(certificate, key, EVP_sha256()), 0);
    umask(077);
    FILE *out = fopen(files.certificate, "w");
    cr_assert(out && PEM_write_X509(out, certificate) == 1 && fclose(out) == 0);
    out = fopen(files.key, "w");
    cr_assert(out && PEM_write_PrivateKey(out, key, NULL, NULL, 0, NULL, NULL) == 1 && fclose(out) == 0);
    X509_free(certificate);
    EVP_PKEY_free(key);
    return files;
}

/* A session of the server, and its client at the other end of a socket pair. */
struct sides {
    struct tls_context *context;
    struct tls *server;
    SSL_CTX *client_context;
    SSL *client;
    int fds[2]; /* of the client, of the server */
};

static void sides_begin(struct sides *sides)
{
    struct server_tls files = files_make();
    struct buf message;
    buf_init(&message, 1024);
    sides->context = tls_context_load(&files, &message);
    cr_assert_not_null(sides->context, "%s", buf_text(&message));
    buf_release(&message);
    free((char *)files.certificate);
    free((char *)files.key);
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, sides->fds), 0);
    sides->client_context = SSL_CTX_new(TLS_client_method());
    sides->client = SSL_new(sides->client_context);
    cr_assert_eq(SSL_set_fd(sides->client, sides->fds[0]), 1);
    SSL_set_connect_state(sides->client);
    sides->server = tls_new(sides->context, sides->fds[1]);
    cr_assert_not_null(sides->server);
    enum handshake_result result = HANDSHAKE_RESULTS;
    for (int i = 0; i < 10 && result == HANDSHAKE_RESULTS; i++) {
        (void)SSL_do_handshake(sides->client);
        result = tls_handshake(sides->server);
    }
    cr_assert_eq(result, HANDSHAKE_OK);
}

static void sides_end(struct sides *sides)
{
    tls_free(sides->server);
    tls_context_free(sides->context);
    SSL_free(sides->client);
    SSL_CTX_free(sides->client_context);
    close(sides->fds[0]);
    close(sides->fds[1]);
}

/* A client may send records without data, such as key updates, as fast as the server reads them. */
Test(tls, read_returns_after_each_record_without_data)
{
    enum { UPDATES = 20 };
    struct sides sides;
    char byte = 0;
    sides_begin(&sides);
    for (int i = 0; i < UPDATES; i++) {
        cr_assert_eq(SSL_key_update(sides.client, SSL_KEY_UPDATE_REQUESTED), 1);
        cr_assert_eq(SSL_do_handshake(sides.client), 1);
    }
    cr_assert_eq(SSL_write(sides.client, "x", 1), 1);
    int turns = 0;
    while (tls_read(sides.server, &byte, 1) != 1) {
        cr_assert_eq(errno, EAGAIN);
        cr_assert_not(tls_wants_output(sides.server));
        cr_assert_lt(turns++, 10 * UPDATES);
    }
    cr_assert_geq(turns, UPDATES, "several records in one turn of the loop");
    cr_assert_eq(byte, 'x');
    cr_assert_eq(tls_write(sides.server, "y", 1), 1); /* the keys of both directions are those of the client */
    cr_assert_eq(SSL_read(sides.client, &byte, 1), 1);
    cr_assert_eq(byte, 'y');
    sides_end(&sides);
}
