/* SPDX-License-Identifier: MIT */
#include "base/uuid.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>
#include <uuid/uuid.h>

void uuid_make(char text[UUID_TEXT_SIZE])
{
    _Static_assert((int)UUID_TEXT_SIZE == (int)UUID_STR_LEN, "the library's idea of the text");
    uuid_t uuid;
    uuid_generate_random(uuid);
    uuid_unparse_lower(uuid, text);
}

uint64_t random_u64(void)
{
    uint64_t bits;
    ssize_t length;
    do
        length = getrandom(&bits, sizeof bits, 0);
    while (length < 0 && errno == EINTR);
    /* So few bytes come whole or, on a kernel without the call, not at all: then nothing we make would be unique. */
    if (length != (ssize_t)sizeof bits)
        abort();
    return bits;
}
