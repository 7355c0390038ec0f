/* SPDX-License-Identifier: MIT */
/*
 * TLS before the first request: what a client may send to tls.c, over a socket. The first byte selects what the rest is:
 * records without a handshake, one changed byte of an honest client's handshake, records or requests after it, or the
 * names of the client's certificate. The other side is libssl's client, with a certificate that is made here.
 */
#include "http/tls.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fuzz.h"

enum {
    FLIGHT_MAX = 64 * 1024, /* bytes that the socket takes at once */
    NAMES_MAX = 32,         /* names of a certificate that are used */
    ROUNDS = 12,            /* more than any handshake needs */
};

/* ---- certificates ---- */

static EVP_PKEY *authority_key, *server_key, *client_key;
static X509 *authority, *server_certificate;
static struct tls_context *contexts[2]; /* [1] asks clients for certificates */

static X509 *begin_certificate(const char *name, EVP_PKEY *key)
{
    static long serial;
    X509 *certificate = X509_new();
    MUST(certificate && X509_set_version(certificate, 2) && X509_set_pubkey(certificate, key));
    ASN1_INTEGER_set(X509_get_serialNumber(certificate), ++serial);
    X509_gmtime_adj(X509_getm_notBefore(certificate), -3600);
    X509_gmtime_adj(X509_getm_notAfter(certificate), 30 * 86400L);
    X509_NAME *subject = X509_get_subject_name(certificate);
    MUST(X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, (const unsigned char *)name, -1, -1, 0));
    MUST(X509_set_issuer_name(certificate, authority ? X509_get_subject_name(authority) : subject));
    return certificate;
}

static X509 *sign(X509 *certificate)
{
    MUST(X509_sign(certificate, authority_key, EVP_sha256()) > 0);
    return certificate;
}

/* Returns the path of a file in memory with this certificate and, if it is not NULL, this key. */
static const char *file_of(X509 *certificate, EVP_PKEY *key, char path[64])
{
    int fd = memfd_create("tls", MFD_CLOEXEC);
    FILE *file = fdopen(fd, "w");
    MUST(file && fchmod(fd, 0600) == 0);
    MUST(!certificate || PEM_write_X509(file, certificate));
    MUST(!key || PEM_write_PrivateKey(file, key, NULL, NULL, 0, NULL, NULL));
    MUST(fflush(file) == 0);
    snprintf(path, 64, "/proc/self/fd/%d", fd);
    return path; /* the file stays open */
}

static void open_contexts(void)
{
    char certificate[64], key[64], ca[64];
    struct buf message;
    authority_key = EVP_EC_gen("P-256");
    server_key = EVP_EC_gen("P-256");
    client_key = EVP_EC_gen("P-256");
    MUST(authority_key && server_key && client_key);
    X509 *own = begin_certificate("authority", authority_key);
    X509_EXTENSION *is_ca = X509V3_EXT_conf_nid(NULL, NULL, NID_basic_constraints, "critical,CA:TRUE");
    MUST(is_ca && X509_add_ext(own, is_ca, -1));
    X509_EXTENSION_free(is_ca);
    authority = sign(own);
    server_certificate = sign(begin_certificate("server", server_key));
    buf_init(&message, 1024);
    struct server_tls files = {file_of(server_certificate, NULL, certificate), file_of(NULL, server_key, key), NULL};
    contexts[0] = tls_context_load(&files, &message);
    files.client_ca = file_of(authority, NULL, ca);
    contexts[1] = tls_context_load(&files, &message);
    MUST(contexts[0] && contexts[1]);
    buf_release(&message);
}

/* ---- both sides ---- */

struct sides {
    int fd; /* of the client; the server's belongs to `server_fd` */
    int server_fd;
    struct tls *server;
    enum handshake_result result; /* HANDSHAKE_RESULTS: not complete */
    SSL *client;
    BIO *to_client, *from_client; /* of `client` */
    size_t sent;                  /* bytes of the client */
    size_t change_at;             /* the byte of the client that is changed; SIZE_MAX: none */
    unsigned char change;         /* bits of it */
};

static void begin(struct sides *sides, bool asks)
{
    int fds[2];
    int size = FLIGHT_MAX;
    MUST(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0);
    for (int i = 0; i < 2; i++)
        MUST(setsockopt(fds[i], SOL_SOCKET, SO_SNDBUF, &size, sizeof size) == 0);
    *sides = (struct sides){.fd = fds[0],
                            .server_fd = fds[1],
                            .server = tls_new(contexts[asks], fds[1]),
                            .result = HANDSHAKE_RESULTS,
                            .change_at = SIZE_MAX};
    MUST(sides->server);
}

static void begin_client(struct sides *sides, int version, X509 *certificate)
{
    static SSL_CTX *context;
    if (!context)
        context = SSL_CTX_new(TLS_client_method());
    MUST(context);
    sides->client = SSL_new(context);
    sides->to_client = BIO_new(BIO_s_mem());
    sides->from_client = BIO_new(BIO_s_mem());
    MUST(sides->client && sides->to_client && sides->from_client);
    MUST(SSL_set_max_proto_version(sides->client, version));
    MUST(!certificate ||
         (SSL_use_certificate(sides->client, certificate) == 1 && SSL_use_PrivateKey(sides->client, client_key) == 1));
    SSL_set_bio(sides->client, sides->to_client, sides->from_client);
    SSL_set_connect_state(sides->client);
}

static void end(struct sides *sides)
{
    tls_end(sides->server);
    tls_free(sides->server);
    SSL_free(sides->client);
    ERR_clear_error();
    close(sides->fd);
    close(sides->server_fd);
}

/* The queue of errors is the thread's: one that is left would be taken for the next client's. */
static void step_server(struct sides *sides)
{
    if (sides->result != HANDSHAKE_RESULTS)
        return;
    sides->result = tls_handshake(sides->server);
    MUST(sides->result >= HANDSHAKE_OK && sides->result <= HANDSHAKE_RESULTS);
    MUST(sides->result != HANDSHAKE_TIMED_OUT && sides->result != HANDSHAKE_PLAIN_HTTP);
    MUST(ERR_peek_error() == 0);
}

/* Passes what the client has written to the server's socket. Returns the number of bytes. */
static size_t pass_to_server(struct sides *sides)
{
    unsigned char bytes[FLIGHT_MAX];
    int got = BIO_read(sides->from_client, bytes, sizeof bytes);
    if (got <= 0)
        return 0;
    if (sides->change_at >= sides->sent && sides->change_at - sides->sent < (size_t)got)
        bytes[sides->change_at - sides->sent] ^= sides->change;
    sides->sent += (size_t)got;
    (void)!send(sides->fd, bytes, (size_t)got, MSG_NOSIGNAL);
    return (size_t)got;
}

static size_t pass_to_client(struct sides *sides)
{
    unsigned char bytes[FLIGHT_MAX];
    ssize_t got = recv(sides->fd, bytes, sizeof bytes, 0);
    if (got > 0)
        MUST(BIO_write(sides->to_client, bytes, (int)got) == got);
    return got > 0 ? (size_t)got : 0;
}

static void shake_hands(struct sides *sides)
{
    size_t moved = 1;
    for (int i = 0; i < ROUNDS && moved; i++) {
        (void)SSL_do_handshake(sides->client);
        ERR_clear_error();
        moved = pass_to_server(sides);
        step_server(sides);
        moved += pass_to_client(sides);
    }
}

/* After a failure nothing is read or sent any more. */
static void check_failed(struct sides *sides)
{
    char byte = 'x';
    bool pending;
    MUST(tls_read(sides->server, &byte, 1) == -1 && errno == ECONNRESET);
    MUST(tls_write(sides->server, &byte, 1) == -1 && errno == ECONNRESET);
    MUST(tls_client_closed(sides->server, &pending) && byte == 'x');
}

/* ---- what the bytes are ---- */

/* Records without a handshake, in pieces: none of them makes a session. */
static void run_records(struct sides *sides, const uint8_t *data, size_t size)
{
    size_t piece = 1 + fuzz_choice(&data, &size) * 8;
    unsigned char answer[FLIGHT_MAX];
    size_t answered = 0;
    while (size && sides->result == HANDSHAKE_RESULTS) {
        size_t length = piece < size ? piece : size;
        MUST(send(sides->fd, data, length, MSG_NOSIGNAL) == (ssize_t)length);
        data += length;
        size -= length;
        step_server(sides);
        ssize_t got = recv(sides->fd, answer, sizeof answer, 0);
        answered += got > 0 ? (size_t)got : 0;
    }
    shutdown(sides->fd, SHUT_WR);
    step_server(sides);
    MUST(sides->result != HANDSHAKE_OK && sides->result != HANDSHAKE_RESULTS);
    MUST(answered < 8192); /* at most a hello with a certificate, and an alert */
    check_failed(sides);
}

/* A handshake of which one byte is changed on its way. */
static void run_changed(struct sides *sides, int version, const uint8_t *data, size_t size)
{
    size_t at = fuzz_choice(&data, &size);
    sides->change_at = at | (size_t)fuzz_choice(&data, &size) << 8;
    sides->change = (unsigned char)fuzz_choice(&data, &size);
    begin_client(sides, version, NULL);
    shake_hands(sides);
    shutdown(sides->fd, SHUT_WR);
    step_server(sides);
    MUST(sides->result != HANDSHAKE_RESULTS);
    MUST(sides->result == HANDSHAKE_OK || (sides->change && sides->change_at < sides->sent));
    if (sides->result != HANDSHAKE_OK)
        check_failed(sides);
}

/* Bytes behind a handshake that nobody has encrypted: none of them is read as input. */
static void run_behind(struct sides *sides, int version, const uint8_t *data, size_t size)
{
    char input[256];
    begin_client(sides, version, NULL);
    shake_hands(sides);
    MUST(sides->result == HANDSHAKE_OK);
    MUST(size == 0 || send(sides->fd, data, size, MSG_NOSIGNAL) == (ssize_t)size);
    for (int i = 0; i < ROUNDS; i++)
        MUST(tls_read(sides->server, input, sizeof input) <= 0);
    MUST(ERR_peek_error() == 0);
}

/* The client's text arrives unchanged, whatever the records are. */
static void run_requests(struct sides *sides, int version, const uint8_t *data, size_t size)
{
    size_t piece = 1 + fuzz_choice(&data, &size) * 16;
    size_t space = 1 + fuzz_choice(&data, &size) * 16;
    char input[8192];
    size_t read = 0;
    begin_client(sides, version, NULL);
    shake_hands(sides);
    MUST(sides->result == HANDSHAKE_OK);
    for (size_t at = 0; at < size; at += piece) {
        size_t length = piece < size - at ? piece : size - at;
        MUST(SSL_write(sides->client, data + at, (int)length) == (int)length);
        (void)pass_to_server(sides);
        ssize_t got;
        while (read + space <= sizeof input && (got = tls_read(sides->server, input + read, space)) > 0)
            read += (size_t)got;
    }
    MUST(read <= size && memcmp(input, data, read) == 0);
    MUST(read == size || read + space > sizeof input);
}

/* The names of a certificate, as tls_client_names is to return them. */
struct names {
    char texts[NAMES_MAX][300];
    size_t count;
};

static void expect_name(struct names *names, const char *type, const uint8_t *data, size_t length)
{
    bool is_shown = length > 0 && length <= 255 && names->count < NAMES_MAX;
    for (size_t i = 0; i < length; i++)
        is_shown = is_shown && data[i] >= ' ' && data[i] <= '~';
    if (is_shown)
        snprintf(names->texts[names->count++], sizeof names->texts[0], "%s%.*s", type, (int)length, (const char *)data);
}

static void add_name(GENERAL_NAMES *all, int type, const uint8_t *data, size_t length)
{
    GENERAL_NAME *name = GENERAL_NAME_new();
    ASN1_STRING *text = ASN1_STRING_type_new(type == GEN_IPADD ? V_ASN1_OCTET_STRING : V_ASN1_IA5STRING);
    MUST(name && text && ASN1_STRING_set(text, data, (int)length));
    GENERAL_NAME_set0_value(name, type, text);
    MUST(sk_GENERAL_NAME_push(all, name));
}

/* A certificate whose names are of the input: a byte for the type, one for the length, and the name. */
static void run_names(struct sides *sides, int version, const uint8_t *data, size_t size)
{
    static const struct {
        int type;
        const char *word;
    } types[] = {{GEN_DNS, "DNS:"}, {GEN_URI, "URI:"}, {GEN_EMAIL, "email:"}, {GEN_IPADD, NULL}};
    struct names names = {.count = 0};
    GENERAL_NAMES *all = sk_GENERAL_NAME_new_null();
    X509 *certificate = begin_certificate("client", client_key);
    MUST(all);
    while (size >= 2) {
        unsigned type = fuzz_choice(&data, &size) % ARRAY_LENGTH(types);
        size_t length = fuzz_choice(&data, &size);
        length = length < size ? length : size;
        add_name(all, types[type].type, data, length);
        if (types[type].word)
            expect_name(&names, types[type].word, data, length);
        data += length;
        size -= length;
    }
    if (sk_GENERAL_NAME_num(all))
        MUST(X509_add1_ext_i2d(certificate, NID_subject_alt_name, all, 0, 0) == 1);
    else
        expect_name(&names, "CN=", (const uint8_t *)"client", strlen("client"));
    begin_client(sides, version, sign(certificate));
    shake_hands(sides);
    MUST(sides->result == HANDSHAKE_OK);
    size_t count;
    const char **shown = tls_client_names(sides->server, &count);
    MUST(count == names.count);
    for (size_t i = 0; i < count; i++)
        MUST(strcmp(shown[i], names.texts[i]) == 0);
    GENERAL_NAMES_free(all);
    X509_free(certificate);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { RECORDS, CHANGED, BEHIND, REQUESTS, NAMES, KINDS };
    struct sides sides;
    if (!contexts[0])
        open_contexts();
    unsigned choice = fuzz_choice(&data, &size);
    int version = choice & 0x80 ? TLS1_2_VERSION : TLS1_3_VERSION;
    unsigned kind = (choice & 0x3f) % KINDS;
    begin(&sides, kind == NAMES || choice & 0x40);
    switch (kind) {
    case RECORDS: run_records(&sides, data, size); break;
    case CHANGED: run_changed(&sides, version, data, size); break;
    case BEHIND: run_behind(&sides, version, data, size); break;
    case REQUESTS: run_requests(&sides, version, data, size); break;
    default: run_names(&sides, version, data, size); break;
    }
    end(&sides);
    return 0;
}
