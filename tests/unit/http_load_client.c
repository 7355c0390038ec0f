/* SPDX-License-Identifier: MIT */
/* How examples/lib/load_client.h reads an answer: in pieces, without a body, and with bytes that are none. */
#include "load_client.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static const char created[] = "HTTP/1.1 201 Created\r\nX-Length: 7\r\ncontent-length:  12\r\nConnection: close\r\n\r\n"
                              "{\"a\":\"\r\n\r\n\"}";

Test(load_client, answer_is_read_with_its_last_byte)
{
    struct load_answer answer;
    size_t all = strlen(created);
    for (size_t length = 0; length < all; length++) {
        char *part = strndup(created, length);
        cr_expect_not(load_answer_read(part, length, false, &answer), "%zu of %zu bytes", length, all);
        free(part);
    }
    cr_assert(load_answer_read(created, all, false, &answer));
    cr_expect_eq(answer.status, 201);
    cr_expect_eq(answer.length, all);
    cr_expect_eq(answer.body_length, 12);
    cr_expect_str_eq(answer.body, "{\"a\":\"\r\n\r\n\"}");
    cr_expect(answer.closes);
}

Test(load_client, answer_to_head_has_no_body)
{
    struct load_answer answer;
    cr_assert(load_answer_read(created, strlen(created) - 12, true, &answer));
    cr_expect_eq(answer.body_length, 0);
}

Test(load_client, other_bytes_are_no_answer)
{
    static const char bytes[] = "SSH-2.0 201\r\n\r\n";
    struct load_answer answer;
    cr_assert(load_answer_read(bytes, strlen(bytes), false, &answer));
    cr_expect_eq(answer.status, 0);
}
