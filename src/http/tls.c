/* SPDX-License-Identifier: MIT */
#include "http/tls.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    CLIENT_CHAIN_MAX = 16 * 1024, /* bytes of a client's certificates */
    NAMES_MAX = 32,               /* names of a client's certificate; more are not used */
    NAME_MAX_BYTES = 255,
};

struct tls_context {
    SSL_CTX *ssl;
    int64_t until;
};

struct tls {
    SSL *ssl;
    bool broken;       /* after a fatal error nothing is sent any more */
    bool wants_output; /* the last call waits for output */
    const char **names;
    size_t name_count;
};

/* ---- loading ---- */

/* Appends the reason of the library's first error: the later ones are consequences. */
static void append_error(struct buf *message, const char *what, const char *path)
{
    unsigned long error = ERR_peek_error();
    const char *reason = ERR_SYSTEM_ERROR(error) ? strerror(ERR_GET_REASON(error)) : ERR_reason_error_string(error);
    buf_printf(message, "%s %s: %s", what, path, reason ? reason : "it is not a PEM file");
    ERR_clear_error();
}

/* Refuses a key with a password: permitd cannot ask for it. */
static int no_password(char *text, int size, int writes, void *context)
{
    (void)text, (void)size, (void)writes, (void)context;
    return -1;
}

/*
 * The key belongs to the user of the process, who alone may read it, or to root, who may let a group read it (as Debian
 * does with the group ssl-cert). root takes a key of any user, because permitd may become that user later.
 */
static bool key_is_private(int fd, const char *path, struct buf *message)
{
    struct stat info;
    if (fstat(fd, &info) != 0) {
        buf_printf(message, "tls_key %s: %s", path, strerror(errno));
        return false;
    }
    mode_t allowed = info.st_uid == 0 ? S_IRWXU | S_IRGRP : S_IRWXU;
    if (!S_ISREG(info.st_mode))
        buf_printf(message, "tls_key %s: not a regular file", path);
    else if (info.st_uid != 0 && info.st_uid != geteuid() && geteuid() != 0)
        buf_printf(message, "tls_key %s: the file belongs to another user (%u)", path, (unsigned)info.st_uid);
    else if (info.st_mode & 07777 & ~allowed)
        buf_printf(message, "tls_key %s: other users can read the file (mode %04o); chmod 600 is needed", path,
                   (unsigned)info.st_mode & 07777);
    else
        return true;
    return false;
}

static bool load_key(SSL_CTX *ssl, const char *path, struct buf *message)
{
    FILE *file = fopen(path, "re");
    if (!file) {
        buf_printf(message, "tls_key %s: %s", path, strerror(errno));
        return false;
    }
    bool private = key_is_private(fileno(file), path, message);
    EVP_PKEY *key = private ? PEM_read_PrivateKey(file, NULL, no_password, NULL) : NULL;
    fclose(file);
    if (private && !key) {
        bool encrypted = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_BAD_PASSWORD_READ;
        if (encrypted)
            buf_printf(message, "tls_key %s: the key is encrypted with a password", path);
        else
            append_error(message, "tls_key", path);
    }
    bool fits = key && SSL_CTX_use_PrivateKey(ssl, key) == 1 && SSL_CTX_check_private_key(ssl) == 1;
    if (key && !fits)
        buf_printf(message, "tls_key %s: the key does not belong to the certificate", path);
    EVP_PKEY_free(key);
    return fits;
}

static int64_t seconds_of(const ASN1_TIME *time)
{
    ASN1_TIME *start = ASN1_TIME_set(NULL, 0);
    int days = 0, seconds = 0;
    bool known = start && ASN1_TIME_diff(&days, &seconds, start, time) == 1;
    ASN1_TIME_free(start);
    return known ? (int64_t)days * 86400 + seconds : 0;
}

static bool load_certificate(struct tls_context *context, const char *path, struct buf *message)
{
    if (SSL_CTX_use_certificate_chain_file(context->ssl, path) != 1) {
        append_error(message, "tls_certificate", path);
        return false;
    }
    const X509 *certificate = SSL_CTX_get0_certificate(context->ssl);
    context->until = seconds_of(X509_get0_notAfter(certificate));
    if (X509_cmp_current_time(X509_get0_notAfter(certificate)) < 0)
        buf_printf(message, "tls_certificate %s: the certificate has expired", path);
    else if (X509_cmp_current_time(X509_get0_notBefore(certificate)) > 0)
        buf_printf(message, "tls_certificate %s: the certificate is not valid yet", path);
    else
        return true;
    return false;
}

static bool load_client_ca(SSL_CTX *ssl, const char *path, struct buf *message)
{
    STACK_OF(X509_NAME) *names = SSL_load_client_CA_file(path);
    if (!names || SSL_CTX_load_verify_locations(ssl, path, NULL) != 1) {
        append_error(message, "tls_client_ca", path);
        sk_X509_NAME_pop_free(names, X509_NAME_free);
        return false;
    }
    SSL_CTX_set_client_CA_list(ssl, names);
    SSL_CTX_set_verify(ssl, SSL_VERIFY_PEER, NULL); /* a client may also have no certificate */
    return true;
}

static SSL_CTX *make_context(void)
{
    static const unsigned char session_id_context[] = "permitd";
    /* Of TLS 1.2: keys that are not kept, and encryption that authenticates; TLS 1.3 has no other ciphers. */
    static const char ciphers[] = "ECDHE+AESGCM:ECDHE+CHACHA20";
    SSL_CTX *ssl = SSL_CTX_new(TLS_server_method());
    if (!ssl || SSL_CTX_set_cipher_list(ssl, ciphers) != 1) {
        SSL_CTX_free(ssl);
        return NULL;
    }
    SSL_CTX_set_min_proto_version(ssl, TLS1_2_VERSION);
    SSL_CTX_set_options(ssl, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
    SSL_CTX_set_mode(ssl,
                     SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    /* With it SSL_read reads on after records without data: a client that sends key updates would keep the loop. */
    SSL_CTX_clear_mode(ssl, SSL_MODE_AUTO_RETRY);
    SSL_CTX_set_session_cache_mode(ssl, SSL_SESS_CACHE_OFF); /* sessions are kept by clients, in tickets */
    SSL_CTX_set_num_tickets(ssl, 1);
    SSL_CTX_set_max_cert_list(ssl, CLIENT_CHAIN_MAX);
    (void)SSL_CTX_set_session_id_context(ssl, session_id_context, sizeof session_id_context - 1);
    return ssl;
}

struct tls_context *tls_context_load(const struct server_tls *files, struct buf *message)
{
    struct tls_context *context = calloc(1, sizeof *context);
    ERR_clear_error();
    if (!context || !(context->ssl = make_context())) {
        buf_append_text(message, "TLS cannot be initialized: no memory");
    } else if (!files->certificate || !files->key) {
        buf_append_text(message, "an https:// listener requires tls_certificate and tls_key");
    } else if (load_certificate(context, files->certificate, message) && load_key(context->ssl, files->key, message) &&
               (!files->client_ca || load_client_ca(context->ssl, files->client_ca, message))) {
        return context;
    }
    tls_context_free(context);
    return NULL;
}

void tls_context_free(struct tls_context *context)
{
    if (!context)
        return;
    SSL_CTX_free(context->ssl);
    free(context);
}

int64_t tls_context_until(const struct tls_context *context)
{
    return context->until;
}

/* ---- sessions ---- */

struct tls *tls_new(struct tls_context *context, int fd)
{
    struct tls *tls = calloc(1, sizeof *tls);
    if (!tls)
        return NULL;
    ERR_clear_error();
    tls->ssl = SSL_new(context->ssl);
    if (tls->ssl && SSL_set_fd(tls->ssl, fd) == 1) {
        SSL_set_accept_state(tls->ssl);
        return tls;
    }
    tls_free(tls);
    ERR_clear_error();
    return NULL;
}

static void free_names(struct tls *tls)
{
    for (size_t i = 0; i < tls->name_count; i++)
        free((void *)tls->names[i]);
    free(tls->names);
    tls->names = NULL;
    tls->name_count = 0;
}

void tls_free(struct tls *tls)
{
    if (!tls)
        return;
    free_names(tls);
    SSL_free(tls->ssl);
    free(tls);
}

/* Returns the result of a call that has failed, in the form of recv and send. */
static ssize_t io_result(struct tls *tls, int result)
{
    int number = errno;
    int error = SSL_get_error(tls->ssl, result);
    tls->wants_output = error == SSL_ERROR_WANT_WRITE;
    if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) {
        errno = EAGAIN;
        return -1;
    }
    if (error == SSL_ERROR_ZERO_RETURN)
        return 0;
    tls->broken = true;
    ERR_clear_error();
    errno = error == SSL_ERROR_SYSCALL && number && number != EAGAIN && number != EINTR ? number : ECONNRESET;
    return -1;
}

static enum handshake_result failure_of_certificate(long verify_result)
{
    switch (verify_result) {
    case X509_V_ERR_CERT_HAS_EXPIRED: return HANDSHAKE_CERTIFICATE_EXPIRED;
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN: return HANDSHAKE_CERTIFICATE_UNKNOWN_CA;
    default: return HANDSHAKE_CERTIFICATE_INVALID;
    }
}

/* Reasons of this range are alerts that the client has sent. */
static bool is_alert(int reason)
{
    return reason >= SSL_AD_REASON_OFFSET && reason < SSL_AD_REASON_OFFSET + 256;
}

static enum handshake_result handshake_failure(struct tls *tls, int error)
{
    unsigned long first = ERR_peek_error();
    tls->broken = true;
    ERR_clear_error();
    if (error == SSL_ERROR_SYSCALL || error == SSL_ERROR_ZERO_RETURN || first == 0 ||
        ERR_GET_REASON(first) == SSL_R_UNEXPECTED_EOF_WHILE_READING)
        return HANDSHAKE_CLOSED;
    if (ERR_GET_LIB(first) == ERR_LIB_SSL && ERR_GET_REASON(first) == SSL_R_CERTIFICATE_VERIFY_FAILED)
        return failure_of_certificate(SSL_get_verify_result(tls->ssl));
    if (ERR_GET_LIB(first) == ERR_LIB_SSL && is_alert(ERR_GET_REASON(first)))
        return HANDSHAKE_REFUSED_BY_CLIENT;
    return HANDSHAKE_PROTOCOL;
}

/* Adds "TYPE:text". A name with a byte that is no printable ASCII is left out: logs and comparisons could mislead. */
static bool add_name(struct tls *tls, const char *type, const ASN1_STRING *string)
{
    const unsigned char *data = ASN1_STRING_get0_data(string);
    int length = ASN1_STRING_length(string);
    char *name;
    if (length <= 0 || length > NAME_MAX_BYTES || tls->name_count == NAMES_MAX)
        return true;
    for (int i = 0; i < length; i++)
        if (data[i] < ' ' || data[i] > '~')
            return true;
    if (asprintf(&name, "%s%.*s", type, length, (const char *)data) < 0)
        return false;
    tls->names[tls->name_count++] = name;
    return true;
}

static bool add_alternative_names(struct tls *tls, const GENERAL_NAMES *names)
{
    for (int i = 0; i < sk_GENERAL_NAME_num(names); i++) {
        const GENERAL_NAME *name = sk_GENERAL_NAME_value(names, i);
        const char *type = name->type == GEN_DNS     ? "DNS:"
                           : name->type == GEN_URI   ? "URI:"
                           : name->type == GEN_EMAIL ? "email:"
                                                     : NULL;
        if (type && !add_name(tls, type, name->d.ia5))
            return false;
    }
    return true;
}

static bool add_common_name(struct tls *tls, const X509 *certificate)
{
    const X509_NAME *subject = X509_get_subject_name(certificate);
    int at = X509_NAME_get_index_by_NID(subject, NID_commonName, -1);
    if (at < 0 || X509_NAME_get_index_by_NID(subject, NID_commonName, at) >= 0) /* several: none is the name */
        return true;
    return add_name(tls, "CN=", X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at)));
}

/* Reads the names of the client's certificate. False: out of memory. */
static bool read_names(struct tls *tls, X509 *certificate)
{
    tls->names = calloc(NAMES_MAX + 1, sizeof *tls->names);
    if (!tls->names)
        return false;
    GENERAL_NAMES *names = X509_get_ext_d2i(certificate, NID_subject_alt_name, NULL, NULL);
    bool done = names ? add_alternative_names(tls, names) : add_common_name(tls, certificate);
    GENERAL_NAMES_free(names);
    return done;
}

/* A resumed session has the certificate of its first handshake, which may have expired since. */
static enum handshake_result handshake_complete(struct tls *tls)
{
    X509 *certificate = SSL_get0_peer_certificate(tls->ssl);
    if (!certificate)
        return HANDSHAKE_OK;
    if (X509_cmp_current_time(X509_get0_notAfter(certificate)) < 0)
        return HANDSHAKE_CERTIFICATE_EXPIRED;
    if (SSL_get_verify_result(tls->ssl) != X509_V_OK)
        return HANDSHAKE_CERTIFICATE_INVALID;
    return read_names(tls, certificate) ? HANDSHAKE_OK : HANDSHAKE_CLOSED;
}

enum handshake_result tls_handshake(struct tls *tls)
{
    ERR_clear_error();
    int result = SSL_do_handshake(tls->ssl);
    if (result == 1) {
        tls->wants_output = false;
        return handshake_complete(tls);
    }
    int error = SSL_get_error(tls->ssl, result);
    tls->wants_output = error == SSL_ERROR_WANT_WRITE;
    if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE)
        return HANDSHAKE_RESULTS;
    return handshake_failure(tls, error);
}

ssize_t tls_read(struct tls *tls, void *data, size_t size)
{
    if (tls->broken) {
        errno = ECONNRESET;
        return -1;
    }
    ERR_clear_error();
    int got = SSL_read(tls->ssl, data, (int)size);
    if (got <= 0)
        return io_result(tls, got);
    tls->wants_output = false;
    return got;
}

ssize_t tls_write(struct tls *tls, const void *data, size_t size)
{
    if (tls->broken) {
        errno = ECONNRESET;
        return -1;
    }
    ERR_clear_error();
    int sent = SSL_write(tls->ssl, data, (int)size);
    return sent > 0 ? sent : io_result(tls, sent);
}

bool tls_wants_output(const struct tls *tls)
{
    return tls->wants_output;
}

bool tls_client_closed(struct tls *tls, bool *ret_pending)
{
    char byte;
    ERR_clear_error();
    int got = tls->broken ? -1 : SSL_peek(tls->ssl, &byte, 1);
    bool closed = tls->broken || (got <= 0 && (io_result(tls, got) == 0 || errno != EAGAIN));
    *ret_pending = SSL_pending(tls->ssl) > 0;
    return closed;
}

void tls_end(struct tls *tls)
{
    if (tls->broken || !SSL_is_init_finished(tls->ssl))
        return;
    ERR_clear_error();
    (void)SSL_shutdown(tls->ssl);
    ERR_clear_error();
}

const char **tls_client_names(struct tls *tls, size_t *ret_count)
{
    *ret_count = tls->name_count;
    return tls->names;
}

const char *handshake_result_word(enum handshake_result result)
{
    static const char *const words[] = {
        [HANDSHAKE_OK] = "ok",
        [HANDSHAKE_CLOSED] = "closed",
        [HANDSHAKE_TIMED_OUT] = "timed_out",
        [HANDSHAKE_PLAIN_HTTP] = "plain_http",
        [HANDSHAKE_PROTOCOL] = "protocol",
        [HANDSHAKE_REFUSED_BY_CLIENT] = "refused_by_client",
        [HANDSHAKE_CERTIFICATE_UNKNOWN_CA] = "certificate_unknown_ca",
        [HANDSHAKE_CERTIFICATE_EXPIRED] = "certificate_expired",
        [HANDSHAKE_CERTIFICATE_INVALID] = "certificate_invalid",
    };
    return words[result];
}
