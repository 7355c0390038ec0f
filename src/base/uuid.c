/* SPDX-License-Identifier: MIT */
#include "base/uuid.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>
#include <uuid/uuid.h>

static void fill_random(void *memory, size_t size)
{
    ssize_t length;
    do
        length = getrandom(memory, size, 0);
    while (length < 0 && errno == EINTR);
    /*
     * So few bytes are returned completely or, on a kernel without the call, not at all. Without randomness no identity
     * would be unique.
     */
    if (length != (ssize_t)size)
        abort();
}

/* Uses the kernel's random bits: libuuid's own generator mixes in more and takes eight times as long. */
void uuid_make(char text[UUID_TEXT_SIZE])
{
    _Static_assert((int)UUID_TEXT_SIZE == (int)UUID_STR_LEN, "the library's idea of the text");
    uuid_t uuid;
    fill_random(uuid, sizeof uuid);
    uuid[6] = (unsigned char)((uuid[6] & 0x0f) | 0x40); /* version 4: random */
    uuid[8] = (unsigned char)((uuid[8] & 0x3f) | 0x80); /* the variant of RFC 9562 */
    uuid_unparse_lower(uuid, text);
}

uint64_t random_u64(void)
{
    uint64_t bits;
    fill_random(&bits, sizeof bits);
    return bits;
}
