/* SPDX-License-Identifier: MIT */
/* Tokens and the table of principals. */
#include "api/principals.h"

#include "principals_fixture.h"

#define TOKEN "pmt_abcdefghijklmnopqrstuvwxyz0123456789ABCDE-_"
#define OTHER "pmt_bbcdefghijklmnopqrstuvwxyz0123456789ABCDE-_"

enum { ENDS_AT = 1801440000 }; /* 2027-02-01T00:00:00Z */

/* Loads a file with TOKEN until the end of January 2027. */
static struct principals *load(void)
{
    unsigned char digest[DIGEST_SIZE];
    struct buf text;
    buf_init(&text, 4096);
    cr_assert(digest_sha256(BYTES(TOKEN), digest));
    buf_append_text(&text,
                    "[shop]\nrole = use\nsemaphores = shop:*\nuser = 12\ncertificate = CN=shop\ntoken = sha256:");
    buf_append_hex(&text, digest, sizeof digest);
    buf_append_text(&text, " until 2027-01-31\n");
    struct principals *principals = principals_from((struct bytes){text.data, text.length});
    buf_release(&text);
    return principals;
}

static enum auth_result try_token(const struct principals *principals, const char *token, int64_t now)
{
    enum auth_result result = AUTH_RESULTS;
    int64_t until = 0;
    const struct principal *found = principals_of_token(principals, bytes_of(token), now, &until, &result);
    cr_expect_eq(found != NULL, result == AUTH_OK);
    cr_expect_eq(until, found ? ENDS_AT : 0);
    return result;
}

Test(principals, token_is_known_until_it_ends)
{
    const struct principal *shop;
    struct principals *principals = load();
    cr_expect_eq(try_token(principals, TOKEN, 0), AUTH_OK);
    cr_expect_eq(try_token(principals, TOKEN, ENDS_AT - 1), AUTH_OK);
    cr_expect_eq(try_token(principals, TOKEN, ENDS_AT), AUTH_EXPIRED);
    cr_expect_eq(try_token(principals, OTHER, 0), AUTH_UNKNOWN);
    cr_expect_eq(try_token(principals, TOKEN "a", 0), AUTH_MALFORMED);
    cr_expect_eq(try_token(principals, "", 0), AUTH_MALFORMED);
    cr_expect_eq(try_token(principals, "pmt_abcdefghijklmnopqrstuvwxyz0123456789ABCDE-=", 0), AUTH_MALFORMED);
    cr_expect_eq(try_token(principals, "PMT_abcdefghijklmnopqrstuvwxyz0123456789ABCDE-_", 0), AUTH_MALFORMED);
    cr_expect_eq(principals_until(principals, 0), ENDS_AT);
    cr_expect_str_eq(principals_of_user(principals, 12)->name, "shop");
    cr_expect_eq(principals_of_certificate(principals, (const char *[]){"CN=shop"}, 1, &shop), AUTH_OK);
    cr_expect_str_eq(shop->name, "shop");
    principals_unref(principals);
}

Test(principals, header_has_one_bearer_token)
{
    static const char *const malformed[] = {"",
                                            "Bearer",
                                            "Bearer ",
                                            "Bearer  " TOKEN,
                                            "Bearer " TOKEN " ",
                                            "Bearer " TOKEN ", Bearer " TOKEN,
                                            "Bearer\t" TOKEN,
                                            "Basic " TOKEN,
                                            TOKEN};
    cr_expect(bytes_equal(principals_token_of_header("Bearer " TOKEN), BYTES(TOKEN)));
    cr_expect(bytes_equal(principals_token_of_header("bEARER " TOKEN), BYTES(TOKEN)));
    for (size_t i = 0; i < ARRAY_LENGTH(malformed); i++)
        cr_expect_null(principals_token_of_header(malformed[i]).data, "'%s'", malformed[i]);
}

Test(principals, table_lives_as_long_as_a_reference_and_has_its_own_generation)
{
    struct principals *first = load();
    struct principals *second = load();
    cr_expect_neq(principals_generation(first), 0);
    cr_expect_neq(principals_generation(first), principals_generation(second));
    cr_expect_eq(principals_ref(first), first);
    principals_unref(first);
    cr_expect_eq(try_token(first, TOKEN, 0), AUTH_OK);
    principals_unref(first);
    principals_unref(second);
    principals_unref(NULL);
}
