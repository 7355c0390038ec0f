/* SPDX-License-Identifier: MIT */
/*
 * Names of semaphores, keys, and UTF-8, against the plain reference. The first byte selects how the rest is repeated.
 */
#include "base/utf8.h"
#include "core/name.h"
#include "fuzz.h"
#include "reference.h"

/* Returns the text repeated, so that short inputs reach the length limits. */
static struct bytes repeated(struct bytes text, size_t times)
{
    char *whole = malloc(text.length * times + 1);
    MUST(whole);
    for (size_t i = 0; i < times; i++)
        memcpy(whole + i * text.length, text.data, text.length);
    struct bytes exact = fuzz_bytes(whole, text.length * times);
    free(whole);
    return exact;
}

/* Checks that utf8_length finds exactly the characters that the reference finds. */
static void check_characters(struct bytes text)
{
    for (size_t at = 0; at < text.length; at++) {
        size_t length = utf8_length((const unsigned char *)text.data + at, text.length - at);
        MUST(length != 1 && length <= 4 && length <= text.length - at);
        if (length)
            MUST(reference_utf8((struct bytes){text.data + at, length}));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t times = fuzz_choice(&data, &size) % 8 + 1;
    struct bytes once = fuzz_bytes(data, size);
    struct bytes text = repeated(once, times);
    MUST(name_is_semaphore(text) == reference_semaphore(text));
    MUST(name_is_key(text) == reference_key(text));
    MUST(utf8_valid(text) == reference_utf8(text));
    check_characters(text);
    free((void *)text.data);
    free((void *)once.data);
    return 0;
}
