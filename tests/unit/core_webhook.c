/* SPDX-License-Identifier: MIT */
#include "core/webhook.h"

#include <criterion/criterion.h>
#include <stdio.h>

static const char *fault_of(const char *url)
{
    struct bytes host;
    return webhook_url_fault(bytes_of(url), &host);
}

Test(webhook, url_has_a_host)
{
    static const char *const urls[][2] = {
        {"http://a", "a"},
        {"https://shop.example/permits?x=1&y=%20", "shop.example"},
        {"https://SHOP.example:8443/", "SHOP.example"},
        {"http://127.0.0.1:1", "127.0.0.1"},
        {"http://[::1]:65535/a", "::1"},
        {"http://[::ffff:127.0.0.1]", "::ffff:127.0.0.1"},
        {"http://a_b-c.d?q", "a_b-c.d"},
        {"http://a/@b:c", "a"},
        {"http://a?b@c", "a"},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(urls); i++) {
        struct bytes host = {0};
        const char *fault = webhook_url_fault(bytes_of(urls[i][0]), &host);
        cr_expect_null(fault, "%s: %s", urls[i][0], fault);
        cr_expect(bytes_equal(host, bytes_of(urls[i][1])), "%s: %.*s", urls[i][0], (int)host.length, host.data);
    }
}

Test(webhook, url_that_readers_could_take_for_another_is_refused)
{
    static const char *const urls[][2] = {
        {"", "http://"},
        {"ftp://a", "http://"},
        {"HTTP://a", "http://"},
        {"file:///etc/passwd", "http://"},
        {"http:/a", "http://"},
        {"http://", "no host"},
        {"http:///a", "no host"},
        {"http://:80", "no host"},
        {"http://[]", "no host"},
        {"http://[::1", "no host"},
        {"http://[fe80::1%25eth0]/", "no host"},
        {"http://me@a", "user"},
        {"http://me:secret@a", "user"},
        {"http://a:80@b", "user"},
        {"http://a/#b", "fragment"},
        {"http://a#b", "no host has"},
        {"http://a:0", "port"},
        {"http://a:65536", "port"},
        {"http://a:", "port"},
        {"http://a:99999999999999999999", "port"},
        {"http://a\\b", "no host has"},
        {"http://a/\\b", "encoded"},
        {"http://a b", "no host has"},
        {"http://a/b c", "encoded"},
        {"http://a/\x01", "encoded"},
        {"http://a/\xc3\xa4", "encoded"},
        {"http://\xc3\xa4", "no host"},
        {"http://a%2eb", "no host has"},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(urls); i++) {
        const char *fault = fault_of(urls[i][0]);
        cr_expect(fault && strstr(fault, urls[i][1]), "%s: %s", urls[i][0], fault);
    }
}

Test(webhook, url_has_at_most_1024_bytes)
{
    char url[WEBHOOK_URL_MAX + 2];
    memset(url, 'a', sizeof url);
    memcpy(url, "http://a/", 9);
    url[WEBHOOK_URL_MAX + 1] = '\0';
    cr_expect(strstr(fault_of(url), "1024"));
    url[WEBHOOK_URL_MAX] = '\0';
    cr_expect_null(fault_of(url));
}

Test(webhook, private_addresses_are_for_listed_hosts_link_local_ones_for_none)
{
    struct webhook_policy policy = {.secret_count = 0};
    struct bytes host = BYTES("Hook.example");
    cr_expect(webhook_allows_host(&policy, host) && webhook_allows_range(&policy, host, ADDRESS_GLOBAL));
    policy.may_be_private = true;
    cr_expect(!webhook_allows_range(&policy, host, ADDRESS_PRIVATE), "no list: no private address");
    snprintf(policy.hosts, sizeof policy.hosts, "other.example, hook.example\t[::1]");
    cr_expect(webhook_allows_range(&policy, host, ADDRESS_PRIVATE) &&
              webhook_allows_range(&policy, host, ADDRESS_GLOBAL));
    cr_expect(webhook_allows_range(&policy, BYTES("::1"), ADDRESS_PRIVATE));
    cr_expect(!webhook_allows_range(&policy, host, ADDRESS_NEVER));
    cr_expect(!webhook_allows_host(&policy, BYTES("example")) && !webhook_allows_host(&policy, BYTES("k.example")));
    cr_expect(!webhook_allows_range(&policy, BYTES("else.example"), ADDRESS_GLOBAL));
    policy.may_be_private = false;
    cr_expect(!webhook_allows_range(&policy, host, ADDRESS_PRIVATE));
}

#define SECRET "0123456789abcdef0123456789abcdef"

Test(webhook, secrets_are_one_or_two_lines)
{
    static const char *const bad[] = {
        "", "\n", "short", SECRET "\n\n", SECRET "\nshort", SECRET " ", SECRET "\r\n", SECRET "\n" SECRET "\n" SECRET};
    struct webhook_policy policy = {.secret_count = 0};
    for (size_t i = 0; i < ARRAY_LENGTH(bad); i++)
        cr_expect_not_null(webhook_read_secrets(bytes_of(bad[i]), &policy), "%s", bad[i]);
    cr_assert_null(webhook_read_secrets(BYTES(SECRET), &policy));
    cr_expect(policy.secret_count == 1 && strcmp(policy.secrets[0], SECRET) == 0);
    cr_assert_null(webhook_read_secrets(BYTES("x" SECRET "\n" SECRET "\n"), &policy));
    cr_expect(policy.secret_count == 2 && strcmp(policy.secrets[0], "x" SECRET) == 0 &&
              strcmp(policy.secrets[1], SECRET) == 0);
}

#define BODY                                                                                                           \
    "{\"events\":[{\"cursor\":\"28040550847-91\",\"at\":\"2026-11-21T09:14:31.123456Z\",\"what\":\"confirmed\","       \
    "\"external_id\":\"cart-4711\",\"permits\":[{\"semaphore\":\"hall\",\"count\":2,\"token\":57,\"slots\":[1,2]}]}]," \
    "\"next\":\"28040550847-93\"}"

/* The vectors of docs/protocol.md, made with Python's hmac. */
Test(webhook, signature_is_that_of_the_vectors)
{
    static const struct {
        const char *url, *key, *signature;
    } vectors[] = {
        {"https://shop.example/permits", "1e7ec148a858afefe9be812b6dfaff18ef87ac8c250ced3d1f89668050f95648",
         "1700f6eab9d0531bfa2c0de0662c0547f3e006321546e8e3b3d09bb122f590f2"},
        {"\x01shop\x01https://shop.example/permits", "a7a325606e483a2cd0e41a7d86766eccdfd113f2b5957231a80af59437ebceeb",
         "f770993d030b36683e71ce72788ca13811f2ca4ca9299c0e619751ea6a8a2e77"},
    };
    struct webhook_policy policy = {.secret_count = 0};
    cr_assert_null(webhook_read_secrets(BYTES(SECRET), &policy));
    for (size_t i = 0; i < ARRAY_LENGTH(vectors); i++) {
        unsigned char key[DIGEST_SIZE];
        struct buf text;
        buf_init(&text, 1000);
        cr_assert(webhook_key(SECRET, bytes_of(vectors[i].url), key));
        buf_append_hex(&text, key, sizeof key);
        cr_expect_str_eq(buf_text(&text), vectors[i].key);
        buf_clear(&text);
        cr_assert(webhook_sign(&policy, bytes_of(vectors[i].url), 1795425271, BYTES(BODY), &text));
        cr_expect(strncmp(buf_text(&text), "t=1795425271,v1=", 16) == 0 &&
                  strcmp(buf_text(&text) + 16, vectors[i].signature) == 0);
        buf_release(&text);
    }
}

Test(webhook, call_has_a_signature_for_each_secret)
{
    struct webhook_policy policy = {.secret_count = 0};
    struct buf one, two;
    buf_init(&one, 1000);
    buf_init(&two, 1000);
    cr_assert_null(webhook_read_secrets(BYTES(SECRET), &policy));
    cr_assert(webhook_sign(&policy, BYTES("http://a"), 7, BYTES("{}"), &one));
    cr_assert_null(webhook_read_secrets(BYTES("x" SECRET "\n" SECRET), &policy));
    cr_assert(webhook_sign(&policy, BYTES("http://a"), 7, BYTES("{}"), &two));
    cr_expect_eq(two.length, strlen("t=7") + 2 * strlen(",v1=") + 4 * DIGEST_SIZE);
    cr_expect_str_eq(two.data + two.length - 67, one.data + one.length - 67, "the second is that of before");
    buf_release(&one);
    buf_release(&two);
}

Test(webhook, pauses_double_up_to_five_minutes)
{
    cr_expect_eq(webhook_backoff_ms(1), 1000);
    cr_expect_eq(webhook_backoff_ms(2), 2000);
    cr_expect_eq(webhook_backoff_ms(9), 256000);
    cr_expect_eq(webhook_backoff_ms(10), 300000);
    cr_expect_eq(webhook_backoff_ms(UINT64_MAX), 300000);
}

Test(webhook, id_is_the_beginning_of_the_digest)
{
    char id[WEBHOOK_ID_SIZE];
    webhook_id(BYTES("https://shop.example/permits"), id);
    cr_expect_str_eq(id, "8c829cb4ed38");
}
