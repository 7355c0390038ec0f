/* SPDX-License-Identifier: MIT */
/* Names, keys, nonces and labels, and the table of statuses. */
#include <criterion/criterion.h>

#include "core/name.h"
#include "permit/status.h"

static bool semaphore_letter(int byte)
{
    return byte != 0 && strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:@-", byte);
}

Test(name, every_byte_is_allowed_or_refused_as_documented)
{
    for (int byte = 0; byte < 256; byte++) {
        char name[] = {'a', (char)byte, 'b'};
        cr_expect_eq(name_is_semaphore((struct bytes){name, 3}), semaphore_letter(byte), "byte %d", byte);
        cr_expect_eq(name_is_key((struct bytes){name, 3}), byte >= 0x21 && byte <= 0x7e, "byte %d", byte);
        cr_expect_eq(name_is_semaphore((struct bytes){name + 1, 1}), semaphore_letter(byte) && byte != '.', "byte %d",
                     byte);
    }
}

Test(name, has_one_to_255_bytes)
{
    char name[256];
    memset(name, 'x', sizeof name);
    cr_expect(!name_is_semaphore((struct bytes){name, 0}));
    cr_expect(!name_is_semaphore((struct bytes){NULL, 0}));
    cr_expect(!name_is_key((struct bytes){NULL, 0}));
    cr_expect(name_is_semaphore((struct bytes){name, 1}));
    cr_expect(name_is_semaphore((struct bytes){name, 255}));
    cr_expect(name_is_key((struct bytes){name, 255}));
    cr_expect(!name_is_semaphore((struct bytes){name, 256}));
    cr_expect(!name_is_key((struct bytes){name, 256}));
}

Test(name, nonce_has_one_to_64_bytes_of_printable_ascii)
{
    char nonce[65];
    memset(nonce, 'x', sizeof nonce);
    cr_expect(!name_is_nonce((struct bytes){NULL, 0}));
    cr_expect(!name_is_nonce((struct bytes){nonce, 0}));
    cr_expect(name_is_nonce((struct bytes){nonce, 1}));
    cr_expect(name_is_nonce((struct bytes){nonce, 64}));
    cr_expect(!name_is_nonce((struct bytes){nonce, 65}));
    for (int byte = 0; byte < 256; byte++) {
        nonce[1] = (char)byte;
        cr_expect_eq(name_is_nonce((struct bytes){nonce, 3}), byte >= 0x20 && byte <= 0x7e, "byte %d", byte);
    }
}

/* In a path, dots mean directories. */
Test(name, is_not_one_or_two_dots)
{
    static bool (*const kinds[])(struct bytes) = {name_is_semaphore, name_is_key};
    for (size_t i = 0; i < ARRAY_LENGTH(kinds); i++) {
        cr_expect(!kinds[i](BYTES(".")));
        cr_expect(!kinds[i](BYTES("..")));
        cr_expect(kinds[i](BYTES("...")));
        cr_expect(kinds[i](BYTES(".a")));
    }
}

Test(name, accented_letters_are_refused)
{
    cr_expect(!name_is_semaphore(BYTES("caf\xc3\xa9")));
    cr_expect(!name_is_key(BYTES("caf\xc3\xa9")));
    cr_expect(!name_is_semaphore(BYTES("backups ")));
}

Test(name, namespace_is_up_to_32_of_few_characters)
{
    static const char *const namespaces[] = {"s", "shop", "0", "-", "shop-2", "abcdefghijklmnopqrstuvwxyz012345"};
    static const char *const others[] = {"", "Shop", "a.b", "a_b", "a b", "a\001", "abcdefghijklmnopqrstuvwxyz0123456"};
    for (size_t i = 0; i < ARRAY_LENGTH(namespaces); i++)
        cr_expect(name_is_namespace(bytes_of(namespaces[i])), "%s", namespaces[i]);
    for (size_t i = 0; i < ARRAY_LENGTH(others); i++)
        cr_expect_not(name_is_namespace(bytes_of(others[i])), "%s", others[i]);
}

/* So that no client can write the stored form, and rows from before namespaces are in the empty one. */
Test(name, key_cannot_have_the_mark_of_a_namespace)
{
    cr_expect_not(name_is_key(BYTES("\001shop\001job-1")));
    cr_expect_not(name_is_key(BYTES("job\001")));
    cr_expect(name_has_namespace(BYTES("\001shop\001job-1")));
    for (char first = '!'; first <= '~'; first++)
        cr_expect_not(name_has_namespace((struct bytes){&first, 1}));
    cr_expect_not(name_has_namespace((struct bytes){"", 0}));
}

Test(name, stored_key_without_its_namespace_is_what_the_client_wrote)
{
    cr_expect(bytes_equal(name_without_namespace(BYTES("\001shop\001job-1")), BYTES("job-1")));
    cr_expect(bytes_equal(name_without_namespace(BYTES("job-1")), BYTES("job-1")));
    cr_expect(bytes_equal(name_without_namespace(BYTES("\001shop\001")), BYTES("")));
    cr_expect(bytes_equal(name_without_namespace(BYTES("")), BYTES("")));
}

Test(status, every_status_has_a_word_a_title_and_a_code)
{
    for (int i = 0; i < PERMIT_STATUS_COUNT; i++) {
        enum permit_status status = (enum permit_status)i;
        const char *word = permit_status_word(status);
        cr_assert_not_null(word);
        cr_expect_gt(strlen(word), 0);
        cr_expect_eq(strspn(word, "abcdefghijklmnopqrstuvwxyz_"), strlen(word), "%s", word);
        cr_expect_gt(strlen(permit_status_title(status)), 0, "%s", word);
        cr_expect(permit_status_http(status) == 200 || permit_status_http(status) >= 400, "%s", word);
        cr_expect_eq(permit_status_from_word(word), i, "%s", word);
    }
}

Test(status, success_is_zero)
{
    cr_expect_eq(PERMIT_OK, 0);
    cr_expect_str_eq(permit_status_word(PERMIT_OK), "ok");
    cr_expect_eq(permit_status_http(PERMIT_OK), 200);
}

Test(status, unknown_word_is_no_status)
{
    cr_expect_eq(permit_status_from_word("nonsense"), -1);
    cr_expect_eq(permit_status_from_word(""), -1);
    cr_expect_eq(permit_status_from_word("OK"), -1);
}

Test(status, retry_class_agrees_with_the_http_code)
{
    cr_expect_eq(permit_status_retry(PERMIT_INVALID), PERMIT_RETRY_NEVER);
    cr_expect_eq(permit_status_retry(PERMIT_NO_CAPACITY), PERMIT_RETRY_LATER);
    cr_expect_eq(permit_status_retry(PERMIT_OUTCOME_UNKNOWN), PERMIT_RETRY_SAME);
    for (int i = 0; i < PERMIT_STATUS_COUNT; i++) {
        enum permit_status status = (enum permit_status)i;
        int http = permit_status_http(status);
        bool again = http == 423 || http == 429 || http >= 500 || status == PERMIT_IN_TRANSACTION;
        cr_expect_eq(permit_status_retry(status) != PERMIT_RETRY_NEVER, again, "%s", permit_status_word(status));
    }
}

Test(name, label_is_utf8_without_control_characters)
{
    static const char *const labels[] = {"A1", " ", "Loge \xC3\xA4, 3", "\xC2\xA0", "\xF0\x9F\x8E\xAB", "#12", "~"};
    static const char *const others[] = {"",         "A\n1",     "\x1F",         "\x7F",  "\xC2\x80",
                                         "\xC2\x9F", "\xC0\xAF", "\xED\xA0\x80", "A\xFF", "\xC3"};
    char longer[NAME_MAX_BYTES + 1];
    for (size_t i = 0; i < ARRAY_LENGTH(labels); i++)
        cr_expect(name_is_label(bytes_of(labels[i])), "%s", labels[i]);
    for (size_t i = 0; i < ARRAY_LENGTH(others); i++)
        cr_expect_not(name_is_label(bytes_of(others[i])), "%zu", i);
    cr_expect_not(name_is_label((struct bytes){"A\0", 2}));
    memset(longer, 'x', sizeof longer);
    cr_expect(name_is_label((struct bytes){longer, NAME_MAX_BYTES}));
    cr_expect_not(name_is_label((struct bytes){longer, NAME_MAX_BYTES + 1}));
}

Test(name, section_row_and_tag_have_up_to_32_bytes)
{
    static const char text[] = "123456789012345678901234567890123";
    cr_expect(name_is_seat_name((struct bytes){text, 32}));
    cr_expect_not(name_is_seat_name((struct bytes){text, 33}));
    cr_expect_not(name_is_seat_name((struct bytes){text, 0}));
    cr_expect(name_is_seat_name(BYTES("Rang 1, l\xc3\xb6wen")));
    cr_expect_not(name_is_seat_name(BYTES("a\nb")));
    cr_expect(name_is_tag((struct bytes){text, 32}));
    cr_expect_not(name_is_tag((struct bytes){text, 33}));
    cr_expect_not(name_is_tag((struct bytes){text, 0}));
    cr_expect_not(name_is_tag(BYTES("a b")));
    cr_expect_not(name_is_tag(BYTES("l\xc3\xb6we")));
}
