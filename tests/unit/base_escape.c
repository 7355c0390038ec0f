/* SPDX-License-Identifier: MIT */
/* Control and format characters in a foreign text, which must not reach a terminal. */
#include <criterion/criterion.h>

#include "base/base.h"
#include "base/escape.h"

static const struct {
    const char *text, *shown;
} cases[] = {
    {"", ""},
    {"plain", "plain"},
    {"a\x1b]0;b\x07", "a?]0;b?"},
    {"a\r\n\tb", "a???b"},
    {"\x7f", "?"},
    {"\xc2\x9bK", "??K"},                         /* CSI as UTF-8 */
    {"\x9bK", "?K"},                              /* CSI for an 8-bit terminal */
    {"\xc2\x80\xc2\x9f\xc2\xa0", "????\xc2\xa0"}, /* U+00A0 is no control character */
    {"\xc3\xa4\xe2\x82\xac\xf0\x9f\x99\x82", "\xc3\xa4\xe2\x82\xac\xf0\x9f\x99\x82"},
    {"\xc2", "?"}, /* truncated */
    {"\xe2\x82", "??"},
    {"\xc0\x9b", "??"},                                    /* overlong form */
    {"\xed\xa0\x80", "???"},                               /* half a surrogate pair */
    {"a\xe2\x80\xae\x62", "a???b"},                        /* U+202E turns the direction */
    {"\xe2\x81\xa6\xe2\x80\xa8\xef\xbb\xbf", "?????????"}, /* U+2066, U+2028, U+FEFF */
    {"\xc2\xad\xd8\x9c\xf3\xa0\x80\xa1", "????????"},      /* U+00AD, U+061C, U+E0021 */
    {"\xe2\x80\xae\xe2\x82\xac\x1b", "???\xe2\x82\xac?"},
    {"\xd9\x86\xe2\x80\x8c\xd9\x85", "\xd9\x86\xe2\x80\x8c\xd9\x85"}, /* U+200C within a word */
};

Test(escape, control_and_format_characters_are_replaced)
{
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        char text[32];
        size_t length = strlen(cases[i].text);
        memcpy(text, cases[i].text, length + 1);
        escape_control_chars(text, length);
        cr_expect_str_eq(text, cases[i].shown, "case %zu: %s", i, text);
        cr_expect_eq(escape_shown_length(text, length), length, "case %zu", i);
    }
}

Test(escape, plain_length_ends_at_the_first_control_character)
{
    cr_expect_eq(escape_plain_length("ab\x1bK", 4), 2);
    cr_expect_eq(escape_plain_length("\xc3\xa4\xc2\x9b", 4), 2);
    cr_expect_eq(escape_plain_length("\xc3\xa4", 1), 0);
    cr_expect_eq(escape_plain_length(NULL, 0), 0);
    cr_expect_eq(escape_plain_length("a\xe2\x80\xae\x1b", 5), 4);
    cr_expect_eq(escape_shown_length("a\xe2\x80\xae\x1b", 5), 1);
}

Test(escape, every_byte_outside_printable_ascii_is_replaced)
{
    for (int byte = 0; byte < 256; byte++) {
        char text = (char)byte;
        escape_control_chars(&text, 1);
        cr_expect_eq(text, byte >= ' ' && byte < 0x7f ? (char)byte : '?', "byte %d", byte);
    }
}
