/* SPDX-License-Identifier: MIT */
/* Random identities, digests, and slices of bytes. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>

#include "base/digest.h"
#include "base/uuid.h"

Test(uuid, uuid_is_random_and_in_lower_case)
{
    for (int i = 0; i < 1000; i++) {
        char text[UUID_TEXT_SIZE];
        uuid_make(text);
        cr_assert_eq(strlen(text), UUID_TEXT_SIZE - 1);
        cr_assert_eq(strspn(text, "0123456789abcdef-"), UUID_TEXT_SIZE - 1, "%s", text);
        cr_assert_eq(text[14], '4', "%s", text);
        cr_assert(strchr("89ab", text[19]), "%s", text);
    }
}

Test(uuid, uuids_are_unique)
{
    enum { MANY = 300 };
    static char texts[MANY][UUID_TEXT_SIZE];
    for (size_t i = 0; i < MANY; i++) {
        uuid_make(texts[i]);
        for (size_t j = 0; j < i; j++)
            cr_assert_str_neq(texts[i], texts[j]);
    }
    cr_expect_neq(random_u64(), random_u64());
}

static void expect_digest(struct bytes message, const char *hex)
{
    unsigned char digest[DIGEST_SIZE];
    char text[2 * DIGEST_SIZE + 1];
    cr_assert(digest_sha256(message, digest));
    for (size_t i = 0; i < DIGEST_SIZE; i++)
        snprintf(text + 2 * i, 3, "%02x", digest[i]);
    cr_expect_str_eq(text, hex);
}

/* The examples of FIPS 180-4. */
Test(digest, is_sha_256)
{
    expect_digest(BYTES("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    expect_digest(BYTES("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
                  "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    expect_digest((struct bytes){NULL, 0}, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

static void *digest_often(void *context)
{
    unsigned char digest[DIGEST_SIZE];
    for (int i = 0; i < 2000; i++) {
        if (!digest_sha256(BYTES("abc"), digest) || digest[0] != 0xba || digest[31] != 0xad)
            *(bool *)context = true;
    }
    return NULL;
}

Test(digest, first_use_is_thread_safe)
{
    enum { THREADS = 8 };
    pthread_t threads[THREADS];
    bool wrong[THREADS] = {false};
    for (size_t i = 0; i < THREADS; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, digest_often, &wrong[i]), 0);
    for (size_t i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        cr_expect(!wrong[i]);
    }
}

/* The order of VARBINARY: by bytes without sign, a prefix first. */
Test(bytes, order_is_that_of_the_database)
{
    const struct bytes ordered[] = {BYTES(""), BYTES("A"), BYTES("A "), BYTES("AB"), BYTES("a"), BYTES("\xc3\xa9")};
    for (size_t i = 0; i < ARRAY_LENGTH(ordered); i++)
        for (size_t j = 0; j < ARRAY_LENGTH(ordered); j++) {
            int order = bytes_compare(ordered[i], ordered[j]);
            cr_expect_eq((order > 0) - (order < 0), (i > j) - (i < j), "%zu and %zu", i, j);
            cr_expect_eq(bytes_equal(ordered[i], ordered[j]), i == j);
        }
}

Test(bytes, bytes_of_null_is_empty)
{
    cr_expect_eq(bytes_of(NULL).length, 0);
    cr_expect(bytes_equal(bytes_of(NULL), BYTES("")));
}
