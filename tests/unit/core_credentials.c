/* SPDX-License-Identifier: MIT */
/* The credentials file. */
#include "core/credentials.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define A64 "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define B64 "BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBB"

static struct credentials credentials;
static struct buf message;

static bool parse(const char *text)
{
    credentials_release(&credentials);
    buf_release(&message);
    buf_init(&message, 4096);
    return credentials_parse(bytes_of(text), "F", &credentials, &message);
}

/* Expects that the text is refused with exactly this message. */
static void refused(const char *text, const char *expected)
{
    cr_expect_not(parse(text), "taken: %s", text);
    cr_expect_str_eq(buf_text(&message), expected);
    cr_expect_eq(credentials.principals.count, 0);
}

static void done(void)
{
    credentials_release(&credentials);
    buf_release(&message);
}

static const struct credential *of_byte(int byte)
{
    unsigned char digest[DIGEST_SIZE];
    memset(digest, byte, sizeof digest);
    return credentials_of_digest(&credentials, digest);
}

static const struct principal *of_names(const char *first, const char *second)
{
    const char *names[] = {first, second};
    const struct principal *principal;
    cr_assert(credentials_of_certificate(&credentials, names, second ? 2 : 1, &principal));
    return principal;
}

#define HEAD "[p]\nrole = use\nsemaphores = *\n"

Test(credentials, file_of_all_words_is_read, .fini = done)
{
    cr_assert(parse("\xEF\xBB\xBF# who may do what\n"
                    "[shop-checkout]   ; the shop\r\n"
                    "token = sha256:" A64 "   until 2027-01-31 ; rotation\n"
                    "token = sha256:" B64 "\n"
                    "certificate = DNS:Checkout.Shop.example\n"
                    "certificate=CN=Shop Checkout\n"
                    "user = 1000\n"
                    "role = use\n"
                    "semaphores = shop:* hall\n"
                    "   ; between\n"
                    "  \t\n"
                    "semaphores = \tstock:*\n"
                    "[ops]\n"
                    "role = admin"),
              "%s", buf_text(&message));
    cr_assert_eq(credentials.principals.count, 2);
    const struct principal *shop = of_byte(0xaa)->principal;
    cr_expect_str_eq(shop->name, "shop-checkout");
    cr_expect_eq(shop->rights, (unsigned)(RIGHT_LOOK | RIGHT_USE));
    cr_expect_eq(of_byte(0xaa)->until, 1801440000); /* 2027-02-01T00:00:00Z */
    cr_expect_eq(of_byte(0xbb)->until, INT64_MAX);
    cr_expect_eq(of_byte(0xbb)->principal, shop);
    cr_expect_null(of_byte(0));
    cr_expect_null(of_byte(0xff));
    cr_expect_eq(shop->scope.count, 3);
    cr_expect(scope_covers(&shop->scope, BYTES("stock:1")));
    cr_expect(scope_covers(&shop->scope, BYTES("hall")));
    cr_expect_not(scope_covers(&shop->scope, BYTES("hall2")));
    cr_expect_eq(credentials_of_user(&credentials, 1000), shop);
    cr_expect_null(credentials_of_user(&credentials, 0));
    cr_expect_eq(credentials_until(&credentials, 0), 1801440000);
    cr_expect_eq(credentials_until(&credentials, 1801440000), INT64_MAX);
}

Test(credentials, certificate_is_known_by_its_names, .fini = done)
{
    cr_assert(parse("[a]\nrole = metrics\ncertificate = DNS:a.example\ncertificate = CN=a\n"
                    "[b]\nrole = metrics\ncertificate = URI:spiffe://b\n"));
    cr_expect_str_eq(of_names("DNS:A.EXAMPLE", NULL)->name, "a");
    cr_expect_str_eq(of_names("DNS:other", "DNS:a.example")->name, "a");
    cr_expect_str_eq(of_names("URI:spiffe://b", "CN=a")->name, "b");
    cr_expect_str_eq(of_names("CN=a", NULL)->name, "a");
    cr_expect_null(of_names("CN=a", "DNS:other"), "a common name counts only alone");
    cr_expect_null(of_names("URI:SPIFFE://b", NULL));
}

Test(credentials, certificate_with_names_of_two_principals_is_a_conflict, .fini = done)
{
    const char *names[] = {"DNS:a.example", "DNS:other", "URI:spiffe://b"};
    const struct principal *principal;
    cr_assert(parse("[a]\nrole = metrics\ncertificate = DNS:a.example\n"
                    "[b]\nrole = metrics\ncertificate = URI:spiffe://b\n"));
    cr_expect_not(credentials_of_certificate(&credentials, names, 3, &principal));
    cr_assert(credentials_of_certificate(&credentials, names, 2, &principal));
    cr_expect_str_eq(principal->name, "a");
    cr_assert(credentials_of_certificate(&credentials, NULL, 0, &principal));
    cr_expect_null(principal);
}

Test(credentials, role_has_the_rights_of_the_roles_before_it, .fini = done)
{
    static const struct {
        const char *role;
        unsigned rights;
    } expected[] = {
        {"look", RIGHT_LOOK},
        {"use", RIGHT_LOOK | RIGHT_USE},
        {"operate", RIGHT_LOOK | RIGHT_USE | RIGHT_OPERATE},
        {"admin", RIGHT_LOOK | RIGHT_USE | RIGHT_OPERATE | RIGHT_ADMIN | RIGHT_FENCE | RIGHT_METRICS},
        {"fence", RIGHT_FENCE},
        {"metrics", RIGHT_METRICS},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(expected); i++)
        cr_expect_eq(role_of_word(expected[i].role)->rights, expected[i].rights, "%s", expected[i].role);
    cr_expect_null(role_of_word("Use"));
    cr_assert(parse("[m]\nrole = metrics\n[a]\nrole = admin\n"));
    for (size_t i = 0; i < 2; i++)
        cr_expect(scope_covers(&credentials.principals.items[i].principal->scope, BYTES("anything")));
}

Test(credentials, what_the_file_has_twice_is_refused_with_its_line, .fini = done)
{
    refused(HEAD "[q]\nrole = admin\n[p]\nrole = admin\n", "F, line 6: this section is already on line 1");
    refused(HEAD "token = sha256:" A64 "\n[q]\nrole = admin\ntoken = sha256:" A64 " until 2030-01-01\n",
            "F, line 7: this token is already on line 4");
    refused(HEAD "user = 7\n[q]\nrole = admin\nuser = 7\n", "F, line 7: this user is already on line 4");
    refused(HEAD "certificate = DNS:A\n[q]\nrole = admin\ncertificate = DNS:a\n",
            "F, line 7: this certificate is already on line 4");
    refused(HEAD "role = use\n", "F, line 4: role is given twice in this section");
}

Test(credentials, malformed_values_are_refused_with_their_line, .fini = done)
{
    static const char digest[] = "F, line 4: expected 'token = sha256:' and 64 hexadecimal digits";
    static const char until[] = "F, line 4: behind the digest only 'until' and a date such as 2027-01-31 may follow";
    refused(HEAD "token =\n", digest);
    refused(HEAD "token = sha256:\n", digest);
    refused(HEAD "token = sha256:" A64 "a\n", digest);
    refused(HEAD "token = sha256:" A64 "\"\n", digest);
    refused(HEAD "token = sha512:" A64 "\n", digest);
    refused(HEAD "token = sha256:g" A64 "\n", digest);
    refused(HEAD "token = pmt_abcdefghijklmnopqrstuvwxyz0123456789ABCDE-_x\n",
            digest); /* too long, so that it is not a token */
    refused(HEAD "token = sha256:" A64 " until\n", until);
    refused(HEAD "token = sha256:" A64 " until2027-01-31\n", until);
    refused(HEAD "token = sha256:" A64 " until 2027-02-29\n", until);
    refused(HEAD "token = sha256:" A64 " until 2027-1-31\n", until);
    refused(HEAD "token = sha256:" A64 " until 2027-01-31 x\n", until);
    refused(HEAD "token = sha256:" A64 " # comment\n", until);
    refused(HEAD "user = root\n", "F, line 4: expected the number of a user, such as 1000");
    refused(HEAD "user = 4294967295\n", "F, line 4: expected the number of a user, such as 1000");
    refused(HEAD "user = 01\n", "F, line 4: expected the number of a user, such as 1000");
    refused(HEAD "certificate = shop.example\n", "F, line 4: expected a name as in DNS:shop.example, "
                                                 "URI:spiffe://example/shop, email:shop@example.com or CN=shop");
    refused("[p]\nrole = root\n",
            "F, line 2: this is not a role; expected look, use, operate, admin, fence or metrics");
    refused("[p]\nsemaphores = a*b\n",
            "F, line 2: a name has 1 to 255 of A-Z a-z 0-9 . _ : @ - , and a prefix ends in *");
}

Test(credentials, token_in_the_file_is_refused_and_not_shown, .fini = done)
{
    refused(HEAD "token = pmt_abcdefghijklmnopqrstuvwxyz0123456789ABCDE-_\n",
            "F, line 4: this is the token itself, and no longer secret: make another one, and put its digest here");
}

Test(credentials, unknown_words_are_refused, .fini = done)
{
    refused(HEAD "tokn = x\n", "F, line 4: unknown word; expected token, certificate, user, role, semaphores, "
                               "namespace or a quota; the nearest is token");
    refused(HEAD "x = y\n",
            "F, line 4: unknown word; expected token, certificate, user, role, semaphores, namespace or a quota");
    refused(HEAD "role\n", "F, line 4: expected 'word = value'");
    refused("role = use\n", "F, line 1: role stands before the first [principal]");
    refused(HEAD "oops\nx = y\n", "F, line 4: expected 'word = value'");
}

Test(credentials, quotas_are_read_and_belong_to_their_section, .fini = done)
{
    cr_assert(parse(HEAD "connections = 500\nwaiting = 1000\nbytes = 1MiB\nrate=2000 ; a second\nunits = 70000\n"
                         "answers = 8MiB\n"
                         "[q]\nrole = metrics\nrate = 1\n"),
              "%s", buf_text(&message));
    static const struct quotas expected[] = {{{500, 1000, 1 << 20, 2000, 70000, 8 << 20}}, {{[QUOTA_RATE] = 1}}};
    for (size_t i = 0; i < ARRAY_LENGTH(expected); i++)
        for (enum quota quota = 0; quota < QUOTA_COUNT; quota++)
            cr_expect_eq(credentials.principals.items[i].principal->quotas.limits[quota], expected[i].limits[quota],
                         "%s", quota_word(quota));
    refused(HEAD "rate = 0\n",
            "F, line 4: rate is a whole number from 1 to 1000000000; leave the line out for no limit");
    refused(HEAD "rate = 5 waiting = 7\n",
            "F, line 4: rate is a whole number from 1 to 1000000000; leave the line out for no limit");
    refused(HEAD "bytes = many\n", "F, line 4: bytes is a whole number from 1 to 1000000000, or a size such as 64MiB; "
                                   "leave the line out for no limit");
    refused(HEAD "answers = 0\n", "F, line 4: answers is a whole number from 1 to 1000000000, or a size such as 64MiB; "
                                  "leave the line out for half of the memory for answers");
    refused(HEAD "rate = 5\nrate = 5\n", "F, line 5: rate is given twice in this section");
}

Test(credentials, several_principals_may_share_a_namespace, .fini = done)
{
    cr_assert(parse("[a]\nrole = use\nsemaphores = *\nuser = 1\nnamespace = shop-1\n"
                    "[b]\nnamespace = shop-1 ; the same\nrole = admin\nuser = 2\n"
                    "[c]\nrole = admin\nuser = 3\n"),
              "%s", buf_text(&message));
    cr_expect(bytes_equal(credentials_of_user(&credentials, 1)->namespace, BYTES("shop-1")));
    cr_expect(bytes_equal(credentials_of_user(&credentials, 2)->namespace, BYTES("shop-1")));
    cr_expect_eq(credentials_of_user(&credentials, 3)->namespace.length, 0);
}

Test(credentials, invalid_namespace_is_refused, .fini = done)
{
    static const char rule[] = "F, line 4: a namespace has 1 to 32 of a-z 0-9 -";
    refused(HEAD "namespace =\n", rule);
    refused(HEAD "namespace = Shop\n", rule);
    refused(HEAD "namespace = a b\n", rule);
    refused(HEAD "namespace = shop:1\n", rule);
    refused(HEAD "namespace = abcdefghijklmnopqrstuvwxyz0123456\n", rule);
    refused(HEAD "namespace = a\nnamespace = a\n", "F, line 5: namespace is given twice in this section");
}

Test(credentials, section_without_role_or_scope_is_refused, .fini = done)
{
    refused("", "F: has no section of a principal");
    refused("; nothing\n\n", "F: has no section of a principal");
    refused("[p]\n", "F, line 1: [p] has no role");
    refused("[p]\n[q]\nrole = admin\n", "F, line 2: [p] has no role");
    refused("\n[p]\nrole = look\nsemaphores =\n", "F, line 2: [p] has no semaphores; role look needs them (* for all)");
    refused("[p]\nrole = fence\n", "F, line 1: [p] has no semaphores; role fence needs them (* for all)");
    refused("[p]\nrole = admin\nsemaphores = shop:*\n",
            "F, line 1: [p]: role admin has all semaphores; remove the word semaphores");
}

Test(credentials, headings_are_read_strictly, .fini = done)
{
    static const char rule[] = "F, line 1: the name of a principal has 1 to 255 of A-Z a-z 0-9 . _ @ -";
    char longest[600], expected[400];
    refused("[]\nrole = admin\n", rule);
    refused("[a b]\nrole = admin\n", rule);
    refused("[a:b]\nrole = admin\n", rule);
    refused("[.]\nrole = admin\n", rule);
    refused("[p] role = admin\n", "F, line 1: expected '[name]'");
    refused("[p]; glued\n", "F, line 1: expected '[name]'");
    refused("[p\n", "F, line 1: expected '[name]'");
    memset(expected, 'n', 255);
    expected[255] = '\0';
    snprintf(longest, sizeof longest, "[%s]\nrole = admin\n", expected);
    cr_assert(parse(longest));
    cr_expect_str_eq(credentials.principals.items[0].principal->name, expected);
    snprintf(longest, sizeof longest, "[%sn]\nrole = admin\n", expected);
    refused(longest, rule);
}

/* inih would append such a line to the value before it: names of the scope, where a token was meant. */
Test(credentials, indented_line_is_refused, .fini = done)
{
    static const char *const lines[] = {" token: x", " token = sha256:" A64, "\tstock:*", " [q]", "\f[q]",
                                        "\v[q]",     "  role = use",         " ]"};
    char text[400];
    for (size_t i = 0; i < ARRAY_LENGTH(lines); i++) {
        snprintf(text, sizeof text, HEAD "%s\n", lines[i]);
        refused(text, "F, line 4: remove the space before this line; a value has one line");
        snprintf(text, sizeof text, "%s\n" HEAD, lines[i]);
        refused(text, "F, line 1: remove the space before this line; a value has one line");
    }
}

Test(credentials, line_that_inih_would_split_is_refused, .fini = done)
{
    char text[400] = HEAD "certificate = URI:";
    memset(text + strlen(text), 'x', 250);
    refused(text, "F, line 4: longer than 197 bytes");
    cr_expect_not(credentials_parse((struct bytes){"[p]\nrole\0 = admin\n", 18}, "F", &credentials, &message));
}

/* ---- files ---- */

static char path[] = "/tmp/permit-credentials-XXXXXX";

static bool load_with_mode(mode_t mode, uid_t user)
{
    int fd = open(path, O_WRONLY | O_TRUNC);
    cr_assert(fd >= 0 && write(fd, "[p]\nrole = admin\n", 17) == 17 && fchmod(fd, mode) == 0);
    close(fd);
    done();
    buf_init(&message, 4096);
    return credentials_load(path, user, &credentials, &message);
}

static void make_file(void)
{
    int fd = mkstemp(path);
    cr_assert(fd >= 0);
    close(fd);
}

static void remove_file(void)
{
    unlink(path);
    done();
}

Test(credentials, file_that_others_may_read_is_refused, .init = make_file, .fini = remove_file)
{
    char expected[300];
    cr_expect(load_with_mode(0600, geteuid()));
    cr_expect(load_with_mode(0600, geteuid()));
    cr_expect_not(load_with_mode(0640, geteuid()));
    snprintf(expected, sizeof expected, "%s: users other than its owner have access (mode 0640): chmod 600 %s", path,
             path);
    cr_expect_str_eq(buf_text(&message), expected);
    cr_expect_not(load_with_mode(0604, geteuid()));
    cr_expect_not(load_with_mode(0620, geteuid()));
}

Test(credentials, file_above_the_limit_is_refused, .init = make_file, .fini = remove_file)
{
    char expected[300];
    cr_assert_eq(truncate(path, CREDENTIALS_MAX_BYTES + 1), 0);
    buf_init(&message, 4096);
    cr_expect_not(credentials_load(path, geteuid(), &credentials, &message));
    snprintf(expected, sizeof expected, "%s: larger than %d bytes", path, CREDENTIALS_MAX_BYTES);
    cr_expect_str_eq(buf_text(&message), expected);
}

Test(credentials, file_of_another_user_is_refused, .init = make_file, .fini = remove_file)
{
    char expected[300];
    if (geteuid() == 0) {
        cr_expect(load_with_mode(0600, 4711), "a file of root is good for everybody");
        cr_assert_eq(chown(path, 4712, (gid_t)-1), 0);
    }
    unsigned owner = geteuid() == 0 ? 4712 : geteuid();
    cr_expect_not(load_with_mode(0600, 4711));
    snprintf(expected, sizeof expected, "%s: its owner is user %u; expected user 4711 or root", path, owner);
    cr_expect_str_eq(buf_text(&message), expected);
}

Test(credentials, what_is_not_a_file_is_refused, .fini = done)
{
    buf_init(&message, 4096);
    cr_expect_not(credentials_load("/tmp", geteuid(), &credentials, &message));
    cr_expect_str_eq(buf_text(&message), "/tmp: is not a regular file");
    buf_clear(&message);
    cr_expect_not(credentials_load("/nonexistent/credentials", geteuid(), &credentials, &message));
    cr_expect(strstr(buf_text(&message), "/nonexistent/credentials: cannot be opened by user "));
    cr_expect(strstr(buf_text(&message), ": No such file or directory"));
}
