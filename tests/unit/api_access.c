/* SPDX-License-Identifier: MIT */
/* Which credential of a request counts. tests/http/access.c has the rest. */
#include "api/access.h"

#include "principals_fixture.h"

#define SHOP_TOKEN "pmt_abcdefghijklmnopqrstuvwxyz0123456789ABCDE-_"
#define BARN_TOKEN "pmt_bbcdefghijklmnopqrstuvwxyz0123456789ABCDE-_"
#define BEARER     "Bearer "

enum { ENDS_AT = 1801440000 }; /* 2027-02-01T00:00:00Z */

static void write_section(struct buf *out, const char *name, const char *token, const char *until, int user)
{
    unsigned char digest[DIGEST_SIZE];
    cr_assert(digest_sha256(bytes_of(token), digest));
    buf_printf(out, "[%s]\nrole = use\nsemaphores = *\ncertificate = DNS:%s.example\nuser = %d\ntoken = sha256:", name,
               name, user);
    buf_append_hex(out, digest, sizeof digest);
    buf_printf(out, "%s\n", until);
}

/* Loads a file with the principals shop, whose token ends, and barn. */
static struct principals *load(void)
{
    struct buf text;
    buf_init(&text, 4096);
    write_section(&text, "shop", SHOP_TOKEN, " until 2027-01-31", 1000);
    write_section(&text, "barn", BARN_TOKEN, "", 1001);
    struct principals *principals = principals_from((struct bytes){text.data, text.length});
    buf_release(&text);
    return principals;
}

Test(access, token_counts_before_the_user_and_must_agree_with_the_certificate)
{
    static const char *shop_names[] = {"DNS:shop.example"};
    static const char *other_names[] = {"DNS:other.example"};
    static const char *both_names[] = {"DNS:shop.example", "DNS:barn.example"};
    const struct client plain = {.transport = CLIENT_TCP};
    const struct client shop = {.transport = CLIENT_TLS, .certificate_names = shop_names, .certificate_name_count = 1};
    const struct client other = {
        .transport = CLIENT_TLS, .certificate_names = other_names, .certificate_name_count = 1};
    const struct client both = {.transport = CLIENT_TLS, .certificate_names = both_names, .certificate_name_count = 2};
    const struct client local = {.transport = CLIENT_UNIX, .uid = 1001};
    const struct client stranger = {.transport = CLIENT_UNIX, .uid = 1002};
    const struct {
        const struct client *client;
        const char *value; /* NULL: no header */
        enum auth_result result;
        const char *principal;
        int64_t until;
        unsigned times; /* 0: once */
    } rows[] = {
        {&plain, NULL, AUTH_MISSING, NULL, 0, 0},
        {&plain, BEARER SHOP_TOKEN, AUTH_OK, "shop", ENDS_AT, 0},
        {&plain, BEARER BARN_TOKEN, AUTH_OK, "barn", INT64_MAX, 0},
        {&plain, BEARER BARN_TOKEN, AUTH_MALFORMED, NULL, 0, 2},
        {&plain, BEARER, AUTH_MALFORMED, NULL, 0, 0},
        {&shop, NULL, AUTH_OK, "shop", INT64_MAX, 0},
        {&shop, BEARER SHOP_TOKEN, AUTH_OK, "shop", ENDS_AT, 0},
        {&shop, BEARER BARN_TOKEN, AUTH_CONFLICT, NULL, 0, 0},
        {&shop, "Basic x", AUTH_MALFORMED, NULL, 0, 0},
        {&both, NULL, AUTH_CONFLICT, NULL, 0, 0},
        {&both, BEARER SHOP_TOKEN, AUTH_CONFLICT, NULL, 0, 0},
        {&other, NULL, AUTH_UNKNOWN, NULL, 0, 0},
        {&other, BEARER BARN_TOKEN, AUTH_OK, "barn", INT64_MAX, 0},
        {&local, NULL, AUTH_OK, "barn", INT64_MAX, 0},
        {&local, BEARER SHOP_TOKEN, AUTH_OK, "shop", ENDS_AT, 0},
        {&local, BEARER "pmt_", AUTH_MALFORMED, NULL, 0, 0},
        {&stranger, NULL, AUTH_MISSING, NULL, 0, 0},
    };
    struct principals *table = load();
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        struct identity identity = {0};
        unsigned times = rows[i].value ? (rows[i].times ? rows[i].times : 1) : 0;
        enum auth_result result = access_identify(table, rows[i].client, rows[i].value, times, 0, &identity);
        cr_expect_eq(result, rows[i].result, "row %zu: %s", i, auth_result_word(result));
        const struct principal *principal = identity.principal;
        cr_expect_str_eq(principal ? principal->name : "", rows[i].principal ? rows[i].principal : "", "row %zu", i);
        cr_expect_eq(identity.until, rows[i].until, "row %zu", i);
    }
    struct identity identity;
    cr_expect_eq(access_identify(table, &plain, BEARER SHOP_TOKEN, 1, ENDS_AT, &identity), AUTH_EXPIRED);
    principals_unref(table);
}
