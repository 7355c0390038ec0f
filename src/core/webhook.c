/* SPDX-License-Identifier: MIT */
#include "core/webhook.h"

#include <stdio.h>
#include <strings.h>

#include "core/name.h"

enum { BACKOFF_MS = 1000, BACKOFF_MAX_MS = 5 * 60 * 1000, PORT_MAX = 65535, PORT_DIGITS = 5 };

/* ---- secrets ---- */

const char *webhook_read_secrets(struct bytes text, struct webhook_policy *policy)
{
    size_t count = 0;
    for (size_t at = 0, end; at < text.length; at = end + 1) {
        for (end = at; end < text.length && text.data[end] != '\n'; end++)
            if (text.data[end] <= ' ' || text.data[end] > '~')
                return "a line has a byte that is no printable ASCII, or a space";
        size_t length = end - at;
        if (count == WEBHOOK_SECRETS_MAX)
            return "more than two lines";
        if (length < WEBHOOK_SECRET_MIN || length > WEBHOOK_SECRET_MAX)
            return "a line has 32 to 255 bytes, such as the output of openssl rand -hex 32";
        memcpy(policy->secrets[count], text.data + at, length);
        policy->secrets[count++][length] = '\0';
    }
    policy->secret_count = count;
    return count ? NULL : "it is empty";
}

/* ---- URLs ---- */

/* Returns the bytes from the beginning on that are letters, digits or in `others`. */
static struct bytes span(struct bytes text, const char *others)
{
    size_t length = 0;
    while (length < text.length) {
        char byte = text.data[length], letter = byte | 0x20;
        if (!(byte >= '0' && byte <= '9') && !(letter >= 'a' && letter <= 'z') && (!byte || !strchr(others, byte)))
            break;
        length++;
    }
    return (struct bytes){text.data, length};
}

static struct bytes behind(struct bytes text, size_t length)
{
    return (struct bytes){text.data + length, text.length - length};
}

/* Returns the length of the part before the first of these bytes. */
static size_t length_before(struct bytes text, const char *ends)
{
    size_t length = 0;
    while (length < text.length && (!text.data[length] || !strchr(ends, text.data[length])))
        length++;
    return length;
}

static bool begins_with_char(struct bytes text, char byte)
{
    return text.length && text.data[0] == byte;
}

/* Takes [:PORT]. False: it is no port. */
static bool take_port(struct bytes *text)
{
    unsigned long port = 0;
    size_t digits = 0;
    if (!begins_with_char(*text, ':'))
        return true;
    *text = behind(*text, 1);
    for (; digits < text->length && text->data[digits] >= '0' && text->data[digits] <= '9'; digits++)
        port = digits < PORT_DIGITS ? port * 10 + (unsigned long)(text->data[digits] - '0') : PORT_MAX + 1;
    *text = behind(*text, digits);
    return port >= 1 && port <= PORT_MAX;
}

/* Only bytes that no reader of URLs takes for something else: what this finds as the host is what is called. */
const char *webhook_url_fault(struct bytes url, struct bytes *ret_host)
{
    size_t scheme = bytes_begin_with(url, BYTES("http://")) ? 7 : bytes_begin_with(url, BYTES("https://")) ? 8 : 0;
    struct bytes rest = behind(url, scheme);
    if (!scheme)
        return "it must begin with http:// or https://";
    if (url.length > WEBHOOK_URL_MAX)
        return "it is longer than 1024 bytes";
    if (memchr(rest.data, '@', length_before(rest, "/?#")))
        return "a user is not allowed in it";
    bool bracketed = begins_with_char(rest, '[');
    rest = behind(rest, bracketed);
    struct bytes host = span(rest, bracketed ? ":." : "-._");
    rest = behind(rest, host.length);
    if (host.length == 0 || host.length > NAME_MAX_BYTES || (bracketed && !begins_with_char(rest, ']')))
        return "it has no host";
    rest = behind(rest, bracketed);
    if (!take_port(&rest))
        return "its port is not 1 to 65535";
    if (rest.length && !begins_with_char(rest, '/') && !begins_with_char(rest, '?'))
        return "there is a byte in it that no host has";
    rest = behind(rest, span(rest, "-._~:/?@!$&'()*+,;=%").length);
    if (rest.length)
        return rest.data[0] == '#' ? "a fragment is not allowed in it" : "a byte in it must be percent-encoded";
    *ret_host = host;
    return NULL;
}

static bool is_listed(const char *list, struct bytes host)
{
    static const char separators[] = ", \t";
    for (const char *at = list + strspn(list, separators); *at; at += strspn(at, separators)) {
        size_t length = strcspn(at, separators);
        bool bracketed = length >= 2 && at[0] == '[' && at[length - 1] == ']';
        if (length - 2 * bracketed == host.length && strncasecmp(at + bracketed, host.data, host.length) == 0)
            return true;
        at += length;
    }
    return false;
}

bool webhook_allows_host(const struct webhook_policy *policy, struct bytes host)
{
    return !policy->hosts[0] || is_listed(policy->hosts, host);
}

bool webhook_allows_range(const struct webhook_policy *policy, struct bytes host, enum address_range range)
{
    if (range == ADDRESS_GLOBAL)
        return webhook_allows_host(policy, host);
    return range == ADDRESS_PRIVATE && policy->may_be_private && is_listed(policy->hosts, host);
}

/* ---- keys and signatures ---- */

void webhook_id(struct bytes stored_url, char ret_id[WEBHOOK_ID_SIZE])
{
    unsigned char digest[DIGEST_SIZE] = {0};
    (void)!digest_sha256(stored_url, digest);
    for (size_t i = 0; i < WEBHOOK_ID_SIZE / 2; i++)
        snprintf(ret_id + 2 * i, 3, "%02x", digest[i]);
}

bool webhook_key(const char *secret, struct bytes stored_url, unsigned char ret_key[DIGEST_SIZE])
{
    struct bytes url = name_without_namespace(stored_url);
    size_t prefix = stored_url.length - url.length;
    struct buf message;
    buf_init(&message, WEBHOOK_STORED_URL_MAX + 2);
    if (prefix)
        buf_append(&message, stored_url.data + 1, prefix - 2);
    buf_append_char(&message, '\n');
    buf_append(&message, url.data, url.length);
    bool made =
        !message.broken && digest_hmac_sha256(bytes_of(secret), (struct bytes){message.data, message.length}, ret_key);
    buf_release(&message);
    return made;
}

static bool append_signature(const char *secret, struct bytes stored_url, struct bytes message, struct buf *out)
{
    unsigned char key[DIGEST_SIZE], signature[DIGEST_SIZE];
    if (!webhook_key(secret, stored_url, key) ||
        !digest_hmac_sha256((struct bytes){(const char *)key, sizeof key}, message, signature))
        return false;
    buf_append_text(out, ",v1=");
    buf_append_hex(out, signature, sizeof signature);
    return true;
}

bool webhook_sign(const struct webhook_policy *policy, struct bytes stored_url, int64_t unix_s, struct bytes body,
                  struct buf *out)
{
    struct buf message;
    buf_init(&message, body.length + 32);
    buf_append_i64(&message, unix_s);
    buf_append_char(&message, '.');
    buf_append(&message, body.data, body.length);
    buf_append_text(out, "t=");
    buf_append_i64(out, unix_s);
    bool made = !message.broken;
    for (size_t i = 0; made && i < policy->secret_count; i++)
        made = append_signature(policy->secrets[i], stored_url, (struct bytes){message.data, message.length}, out);
    buf_release(&message);
    return made && !out->broken;
}

/* ---- back-off ---- */

int64_t webhook_backoff_ms(uint64_t failures)
{
    int64_t ms = BACKOFF_MS;
    for (uint64_t i = 1; i < failures && ms < BACKOFF_MAX_MS; i++)
        ms *= 2;
    return min_i64(ms, BACKOFF_MAX_MS);
}
