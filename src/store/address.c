/* SPDX-License-Identifier: MIT */
/*
 * Parses and prints database URLs; opens no connection. An error message quotes no part of the URL: if the parts were
 * misread, any of them may be a piece of the password.
 */
#include <stdlib.h>

#include "store/mysql_session.h"

void database_address_release(struct database_address *address)
{
    free(address->host);
    free(address->socket);
    free(address->user);
    if (address->password)
        explicit_bzero(address->password, strlen(address->password));
    free(address->password);
    free(address->database);
    free(address->ssl_ca);
    free(address->ssl_cert);
    free(address->ssl_key);
    *address = (struct database_address){.port = 0};
}

/* Returns a percent-decoded copy (malloc'ed); NULL: bad encoding, a zero byte, or out of memory. */
static char *decode(struct bytes text)
{
    char *decoded = malloc(text.length + 1);
    size_t length = 0;
    for (size_t i = 0; decoded && i < text.length; i++) {
        char byte = text.data[i];
        if (byte == '%') {
            int high = i + 2 < text.length ? hex_value(text.data[i + 1]) : -1;
            int low = i + 2 < text.length ? hex_value(text.data[i + 2]) : -1;
            byte = high < 0 || low < 0 ? '\0' : (char)(high * 16 + low);
            i += 2;
        }
        if (byte == '\0') {
            free(decoded);
            return NULL;
        }
        decoded[length++] = byte;
    }
    if (decoded)
        decoded[length] = '\0';
    return decoded;
}

/* Splits *rest at the first `separator`. Returns false, and changes nothing, if there is none. */
static bool cut_front(struct bytes *rest, char separator, struct bytes *ret_front)
{
    const char *at = rest->length ? memchr(rest->data, separator, rest->length) : NULL;
    if (!at)
        return false;
    size_t length = (size_t)(at - rest->data);
    *ret_front = (struct bytes){rest->data, length};
    *rest = (struct bytes){at + 1, rest->length - length - 1};
    return true;
}

#define HINT "; in a user name or password write @ as %40, / as %2F and : as %3A"

static bool refuse(struct buf *message, const char *why)
{
    buf_printf(message, "database URL: %s", why);
    return false;
}

static bool has_byte(struct bytes text, char byte)
{
    return text.length && memchr(text.data, byte, text.length);
}

/* Sets a member to the decoded part. An empty part counts as missing. */
static bool set_part(char **member, struct bytes text, const char *what, struct buf *message)
{
    if (text.length == 0)
        return true;
    char *decoded = decode(text);
    if (!decoded) {
        buf_printf(message, "database URL: the %s is not correctly percent-encoded", what);
        return false;
    }
    free(*member);
    *member = decoded;
    return true;
}

static bool parse_port(struct database_address *address, struct bytes text, struct buf *message)
{
    uint64_t port;
    if (!bytes_read_u64(text, 65535, &port) || port == 0)
        return refuse(message, "the port must be a number from 1 to 65535" HINT);
    address->port = (unsigned)port;
    return true;
}

/* Parses "host", "host:port", "[::1]:port" or "". */
static bool parse_host(struct database_address *address, struct bytes text, struct buf *message)
{
    struct bytes host;
    struct bytes rest = text;
    if (text.length > 0 && text.data[0] == '[') {
        rest = (struct bytes){text.data + 1, text.length - 1};
        if (!cut_front(&rest, ']', &host) || (rest.length > 0 && rest.data[0] != ':'))
            return refuse(message, "an IPv6 address is written as [::1]");
        rest = rest.length ? (struct bytes){rest.data + 1, rest.length - 1} : (struct bytes){NULL, 0};
        return set_part(&address->host, host, "host", message) && (!rest.data || parse_port(address, rest, message));
    }
    if (!cut_front(&rest, ':', &host))
        return set_part(&address->host, text, "host", message);
    return set_part(&address->host, host, "host", message) && parse_port(address, rest, message);
}

static bool parse_user(struct database_address *address, struct bytes text, struct buf *message)
{
    struct bytes user = text;
    struct bytes rest = text;
    if (cut_front(&rest, ':', &user) && !set_part(&address->password, rest, "password", message))
        return false;
    return set_part(&address->user, user, "user", message);
}

static bool parse_parameter(struct database_address *address, struct bytes text, struct buf *message)
{
    const struct {
        const char *name;
        char **member;
    } parts[] = {
        {"socket", &address->socket},
        {"ssl_ca", &address->ssl_ca},
        {"ssl_cert", &address->ssl_cert},
        {"ssl_key", &address->ssl_key},
    };
    struct bytes name;
    struct bytes value = text;
    if (text.length == 0)
        return true;
    if (cut_front(&value, '=', &name)) {
        for (size_t i = 0; i < ARRAY_LENGTH(parts); i++)
            if (bytes_equal(name, bytes_of(parts[i].name)))
                return set_part(parts[i].member, value, parts[i].name, message);
        if (bytes_equal(name, BYTES("ssl")) && bytes_equal(value, BYTES("verify")))
            return address->ssl_verify = true;
    }
    return refuse(message,
                  "the only parameters are socket=PATH, ssl=verify, ssl_ca=FILE, ssl_cert=FILE and ssl_key=FILE");
}

/* A certificate without a check of the server would be shown to any server. */
static bool check_tls(const struct database_address *address, struct buf *message)
{
    if (!address->ssl_cert != !address->ssl_key)
        return refuse(message, "ssl_cert and ssl_key are given together");
    if (address->ssl_cert && !address->ssl_ca && !address->ssl_verify)
        return refuse(message, "ssl_cert needs ssl_ca=FILE or ssl=verify, so that the server is checked too");
    return true;
}

static bool parse_parameters(struct database_address *address, struct bytes rest, struct buf *message)
{
    struct bytes parameter;
    while (cut_front(&rest, '&', &parameter))
        if (!parse_parameter(address, parameter, message))
            return false;
    return parse_parameter(address, rest, message);
}

/* Parses the part after "mysql://". */
static bool parse_parts(struct database_address *address, struct bytes rest, struct buf *message)
{
    struct bytes authority;
    struct bytes user;
    if (!cut_front(&rest, '/', &authority))
        return refuse(message, "missing database name; write mysql://user@host:3306/database");
    if (cut_front(&authority, '@', &user) && !parse_user(address, user, message))
        return false;
    struct bytes database = rest;
    bool has_parameters = cut_front(&rest, '?', &database);
    if (has_byte(authority, '@') || has_byte(database, '@') || has_byte(database, '/'))
        return refuse(message, "it has more than one '@', or more than one '/' behind the host" HINT);
    if (!parse_host(address, authority, message) || !set_part(&address->database, database, "database", message) ||
        (has_parameters && !parse_parameters(address, rest, message)))
        return false;
    if (!address->database || strlen(address->database) > 64 || strchr(address->database, '`'))
        return refuse(message, "the database name must have 1 to 64 characters without `");
    return check_tls(address, message);
}

bool database_address_parse(const char *url, struct database_address *ret_address, struct buf *message)
{
    static const char *const schemes[] = {"mysql://", "mariadb://"};
    for (size_t i = 0; i < ARRAY_LENGTH(schemes); i++) {
        size_t length = strlen(schemes[i]);
        if (strncmp(url, schemes[i], length) != 0)
            continue;
        struct database_address address = {.port = 0};
        if (parse_parts(&address, bytes_of(url + length), message)) {
            *ret_address = address;
            return true;
        }
        database_address_release(&address);
        return false;
    }
    return refuse(message, "it must begin with mysql://, as in mysql://user@host:3306/database");
}

void database_address_print(const struct database_address *address, struct buf *out)
{
    buf_append_text(out, "mysql://");
    if (address->user)
        buf_printf(out, "%s@", address->user);
    if (address->host)
        buf_printf(out, strchr(address->host, ':') ? "[%s]" : "%s", address->host);
    if (address->port)
        buf_printf(out, ":%u", address->port);
    buf_printf(out, "/%s", address->database ? address->database : "");
    if (address->socket)
        buf_printf(out, "?socket=%s", address->socket);
}
