/* SPDX-License-Identifier: MIT */
/* Opens stores on MariaDB and MySQL (store.h has their contract), and has the address of the database. */
#ifndef STORE_OPEN_H
#define STORE_OPEN_H

#include "store/doctor.h"
#include "store/store.h"

/* The address of the database. Owns its strings (malloc'ed); NULL: not given. */
struct database_address {
    char *host;    /* not used if there is a socket */
    unsigned port; /* 0: default of the client library */
    char *socket;
    char *user;
    char *password;
    char *database;
    char *ssl_ca;    /* authorities that the server's certificate is checked against; requires TLS */
    bool ssl_verify; /* the same with the authorities of the system, if there is no ssl_ca */
    char *ssl_cert;  /* certificate of this client, with its chain, and its key: both or none; only with TLS */
    char *ssl_key;
};

/*
 * Parses mysql://user:password@host:port/database?socket=... (or mariadb://), also with ssl_ca, ssl_cert, ssl_key
 * (files) and ssl=verify. All parts but the database are optional. Parts are percent-encoded. On failure returns false
 * with a message that quotes no part of the URL; *ret_address is untouched.
 */
bool database_address_parse(const char *url, struct database_address *ret_address, struct buf *message) MUST_CHECK;
void database_address_release(struct database_address *address);
/* Prints the address as a URL without the password, for logs. */
void database_address_print(const struct database_address *address, struct buf *out);

/* Initialise and release the client library: before the first thread starts, and after the last one has ended. */
bool store_library_begin(void) MUST_CHECK;
void store_library_end(void);

/*
 * Creates a store without a connection; session->reconnect connects. `address` and `options` must outlive the store;
 * `options` may be NULL. The thread that creates a store uses and frees it (store_free). NULL: out of memory.
 */
struct store *store_open(const struct database_address *address, enum store_use use,
                         const struct doctor_options *options) MUST_CHECK;
#endif
