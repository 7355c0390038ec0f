/* SPDX-License-Identifier: MIT */
/* Hosts that permitd serves, and web pages that may send it requests. */
#include <criterion/criterion.h>

#include "http/origin.h"

struct row {
    enum permit_status status;
    const char *host; /* NULL: absent; also below */
    const char *origin;
    const char *sec_fetch_site;
};

static enum permit_status judge(const struct row *row, const char *allowed_hosts, char ret_message[512])
{
    struct buf message;
    buf_init(&message, 511);
    const struct origin origin = {
        .host = bytes_of(row->host),
        .origin = bytes_of(row->origin),
        .sec_fetch_site = bytes_of(row->sec_fetch_site),
    };
    enum permit_status status = origin_check(&origin, bytes_of(allowed_hosts), &message);
    strcpy(ret_message, buf_text(&message));
    buf_release(&message);
    return status;
}

static void judge_all(const struct row *rows, size_t count, const char *allowed_hosts)
{
    char message[512];
    for (size_t i = 0; i < count; i++) {
        enum permit_status status = judge(&rows[i], allowed_hosts, message);
        cr_expect_eq(status, rows[i].status, "Host %s, Origin %s, Sec-Fetch-Site %s: %s (%s)", rows[i].host,
                     rows[i].origin, rows[i].sec_fetch_site, permit_status_word(status), message);
        cr_expect((status == PERMIT_OK) == (message[0] == '\0'), "%s", message);
    }
}

Test(origin, addresses_and_localhost_are_served)
{
    static const struct row rows[] = {
        {PERMIT_OK, NULL, NULL, NULL},
        {PERMIT_OK, "127.0.0.1:7070", NULL, NULL},
        {PERMIT_OK, "127.0.0.1", NULL, NULL},
        {PERMIT_OK, "192.0.2.7:80", NULL, NULL},
        {PERMIT_OK, "[::1]:7070", NULL, NULL},
        {PERMIT_OK, "[2001:db8::7]", NULL, NULL},
        {PERMIT_OK, "[::ffff:127.0.0.1]:7070", NULL, NULL},
        {PERMIT_OK, "localhost:7070", NULL, NULL},
        {PERMIT_OK, "localhost", NULL, NULL},
        {PERMIT_OK, "LocalHost:9", NULL, NULL},
        {PERMIT_OK, "localhost.:7070", NULL, NULL},
        {PERMIT_OK, "localhost:", NULL, NULL},
    };
    judge_all(rows, ARRAY_LENGTH(rows), NULL);
}

Test(origin, other_hosts_are_misdirected)
{
    static const struct row rows[] = {
        {PERMIT_MISDIRECTED, "evil.example", NULL, NULL},
        {PERMIT_MISDIRECTED, "evil.example:7070", NULL, NULL},
        {PERMIT_MISDIRECTED, "permit.example", NULL, NULL},
        {PERMIT_MISDIRECTED, "", NULL, NULL},
        {PERMIT_MISDIRECTED, ":7070", NULL, NULL},
        {PERMIT_MISDIRECTED, ".", NULL, NULL},
        {PERMIT_MISDIRECTED, "localhost.evil.example", NULL, NULL},
        {PERMIT_MISDIRECTED, "evil.localhost", NULL, NULL},
        {PERMIT_MISDIRECTED, "localhost..", NULL, NULL},
        {PERMIT_MISDIRECTED, "127.0.0.1.evil.example", NULL, NULL},
        {PERMIT_MISDIRECTED, "127.0.0.1@evil.example", NULL, NULL},
        {PERMIT_MISDIRECTED, "evil.example@127.0.0.1", NULL, NULL},
        {PERMIT_MISDIRECTED, "127.0.0.1:7070:evil.example", NULL, NULL},
        {PERMIT_MISDIRECTED, "127.0.0.1:70x", NULL, NULL},
        {PERMIT_MISDIRECTED, "127.0.0.1:123456", NULL, NULL},
        {PERMIT_MISDIRECTED, "127.1", NULL, NULL},
        {PERMIT_MISDIRECTED, "0x7f000001", NULL, NULL},
        {PERMIT_MISDIRECTED, "2130706433", NULL, NULL},
        {PERMIT_MISDIRECTED, "127.0.0.1 ", NULL, NULL},
        {PERMIT_MISDIRECTED, "127.0.0.1, evil.example", NULL, NULL},
        {PERMIT_MISDIRECTED, "::1", NULL, NULL},
        {PERMIT_MISDIRECTED, "[::1", NULL, NULL},
        {PERMIT_MISDIRECTED, "[::1]evil.example", NULL, NULL},
        {PERMIT_MISDIRECTED, "[localhost]", NULL, NULL},
        {PERMIT_MISDIRECTED, "[127.0.0.1]", NULL, NULL},
        {PERMIT_MISDIRECTED, "[evil.example]:7070", NULL, NULL},
        {PERMIT_MISDIRECTED, "http://localhost", NULL, NULL},
        {PERMIT_MISDIRECTED, "local\x01host", NULL, NULL},
    };
    judge_all(rows, ARRAY_LENGTH(rows), NULL);
}

Test(origin, listed_hosts_are_served)
{
    static const struct row rows[] = {
        {PERMIT_OK, "permit.example", NULL, NULL},
        {PERMIT_OK, "permit.example.:7070", NULL, NULL},
        {PERMIT_OK, "PERMIT.example:7070", NULL, NULL},
        {PERMIT_OK, "other.example:7070", NULL, NULL},
        {PERMIT_OK, "with-port:1", NULL, NULL},
        {PERMIT_OK, "localhost:7070", NULL, NULL},
        {PERMIT_MISDIRECTED, "mit.example", NULL, NULL},
        {PERMIT_MISDIRECTED, "permit.example.evil", NULL, NULL},
        {PERMIT_MISDIRECTED, "a.permit.example", NULL, NULL},
        {PERMIT_MISDIRECTED, "permit", NULL, NULL},
        {PERMIT_MISDIRECTED, "permit.example,other.example", NULL, NULL},
    };
    judge_all(rows, ARRAY_LENGTH(rows), "permit.example, ,,Other.Example.\tlast with-port:7070");
}

Test(origin, pages_of_the_same_host_may_send_requests)
{
    static const struct row rows[] = {
        {PERMIT_OK, "localhost:7070", "http://localhost:7070", NULL},
        {PERMIT_OK, "localhost:7070", "http://LOCALHOST:7070", "same-origin"},
        {PERMIT_OK, "localhost:7070", NULL, "same-origin"},
        {PERMIT_OK, "localhost:7070", NULL, "none"},
        {PERMIT_OK, "127.0.0.1:7070", "http://127.0.0.1:7070", "same-origin"},
        {PERMIT_OK, "[::1]:7070", "http://[::1]:7070", "same-origin"},
        {PERMIT_OK, "permit.example", "https://permit.example", "same-origin"},
        {PERMIT_OK, "permit.example:443", "https://permit.example", "same-origin"},
        {PERMIT_OK, "localhost:80", "http://localhost", "same-origin"},
        {PERMIT_OK, "localhost", "http://localhost:80", "same-origin"},
    };
    judge_all(rows, ARRAY_LENGTH(rows), "permit.example");
}

Test(origin, pages_of_other_sites_are_forbidden)
{
    static const struct row rows[] = {
        {PERMIT_FORBIDDEN, "127.0.0.1:7070", "http://evil.example", NULL},
        {PERMIT_FORBIDDEN, "127.0.0.1:7070", "http://evil.example", "cross-site"},
        {PERMIT_FORBIDDEN, "127.0.0.1:7070", "http://evil.example:7070", NULL},
        {PERMIT_FORBIDDEN, "localhost:7070", "http://localhost:3000", NULL},
        {PERMIT_FORBIDDEN, "localhost:7070", "http://localhost", NULL},
        {PERMIT_FORBIDDEN, "localhost:7070", "http://127.0.0.1:7070", NULL},
        {PERMIT_FORBIDDEN, "localhost:7070", "http://localhost:7070.evil.example", NULL},
        {PERMIT_FORBIDDEN, "localhost:7070", "http://localhost:7070/", NULL},
        {PERMIT_FORBIDDEN, "localhost:7070", "http://x@localhost:7070", NULL},
        {PERMIT_FORBIDDEN, "localhost:7070", "http://localhost:7070 http://evil.example", NULL},
        {PERMIT_FORBIDDEN, "localhost:7070", "localhost:7070", NULL},
        {PERMIT_FORBIDDEN, "localhost:7070", "file://localhost:7070", NULL},
        {PERMIT_FORBIDDEN, "localhost:7070", "chrome-extension://localhost:7070", NULL},
        {PERMIT_FORBIDDEN, "localhost:7070", "null", NULL},
        {PERMIT_FORBIDDEN, "localhost:7070", "", NULL},
        {PERMIT_FORBIDDEN, "localhost:80", "https://localhost", NULL},
        {PERMIT_FORBIDDEN, "localhost:7070", "http://permit.example", NULL},
        {PERMIT_FORBIDDEN, "localhost:7070", NULL, "cross-site"},
        {PERMIT_FORBIDDEN, "localhost:7070", NULL, "same-site"},
        {PERMIT_FORBIDDEN, "localhost:7070", NULL, "of-a-later-year"},
        {PERMIT_FORBIDDEN, "localhost:7070", NULL, ""},
        {PERMIT_FORBIDDEN, "localhost:7070", "http://localhost:7070", "cross-site"},
        {PERMIT_FORBIDDEN, NULL, "http://localhost:7070", NULL},
        {PERMIT_FORBIDDEN, NULL, NULL, "cross-site"},
    };
    judge_all(rows, ARRAY_LENGTH(rows), "permit.example");
}

Test(origin, repeated_headers_are_refused)
{
    const struct origin origin = {.host = BYTES("localhost"), .repeated = true};
    struct buf message;
    buf_init(&message, 511);
    cr_assert_eq(origin_check(&origin, (struct bytes){0}, &message), PERMIT_FORBIDDEN);
    buf_release(&message);
}

Test(origin, refusals_name_the_remedy)
{
    char message[512];
    (void)judge(&(struct row){PERMIT_MISDIRECTED, "myhost:7070", NULL, NULL}, NULL, message);
    cr_expect(strstr(message, "\"myhost\"") && strstr(message, "allowed_hosts"), "%s", message);
    (void)judge(&(struct row){PERMIT_FORBIDDEN, "localhost:7070", "http://evil.example", NULL}, NULL, message);
    cr_expect(strstr(message, "http://evil.example") && strstr(message, "localhost:7070"), "%s", message);
}
