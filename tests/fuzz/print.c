/* SPDX-License-Identifier: MIT */
/*
 * permitctl's output of an answer: lines, tables, merged pages. No foreign text controls the terminal: the output has
 * no control characters but line ends, not even those above U+007F.
 */
#include "cli/json_print.h"

#include "base/utf8.h"
#include "fuzz.h"

static const struct json_column columns[] = {
    {"KEY", "external_id"}, {"PERMITS", "permits"}, {"LEFT", "expires_in_ms"}, {"WAITED", "waited_ms"},
    {"TTL", "ttl_ms"},      {"SLOTS", "slots"},     {"HELD", "held"},          {"NOTE", "note"},
};

static void check_harmless(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        unsigned char byte = (unsigned char)text[i];
        unsigned char next = i + 1 < length ? (unsigned char)text[i + 1] : 0;
        MUST(byte == '\n' || (byte >= ' ' && byte != 0x7f));
        MUST(byte != 0xc2 || next < 0x80 || next > 0x9f);
    }
    MUST(utf8_valid((struct bytes){text, length})); /* an 8-bit terminal would see more control characters */
}

/* Prints all pages as one table. */
static void print_pages(const char *body)
{
    struct json_writer *pages = NULL;
    char next[64];
    bool first = json_pages_add(&pages, body, "requests", next, sizeof next);
    MUST(strlen(next) < sizeof next);
    MUST(json_pages_add(&pages, body, "requests", next, sizeof next) == first);
    if (first)
        json_print_table(json_written(pages), "requests", columns, ARRAY_LENGTH(columns), 0);
    MUST(!pages || json_length_of(json_written(pages), "requests") % 2 == 0);
    json_writer_free(pages);
}

/* An answer that is no JSON is NULL, and prints nothing. */
static void print_answer(struct json_object *whole)
{
    json_print_lines(whole, columns, ARRAY_LENGTH(columns));
    json_print_table(whole, "requests", columns, ARRAY_LENGTH(columns), 0);
    size_t length = json_length_of(whole, "requests");
    for (size_t i = 0; i < length + 1; i++) {
        MUST(json_item_text(whole, "requests", i));
        json_print_lines(json_item_of(whole, "requests", i), columns, ARRAY_LENGTH(columns));
        json_print_table(json_item_of(whole, "requests", i), "permits", columns, ARRAY_LENGTH(columns), 2);
    }
    (void)json_true_of(whole, "held");
    (void)json_text_of(whole, "note");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *body = fuzz_text(data, size);
    char *printed = NULL;
    size_t length = 0;
    FILE *kept = stdout;
    stdout = open_memstream(&printed, &length);
    MUST(stdout);
    struct json_object *whole = json_read(body);
    print_answer(whole);
    json_free(whole);
    print_pages(body);
    (void)json_number(body, "ttl_ms");
    json_print_text(body);
    fclose(stdout);
    stdout = kept;
    check_harmless(printed, length);
    free(printed);
    free(body);
    return 0;
}
