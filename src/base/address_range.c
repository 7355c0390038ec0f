/* SPDX-License-Identifier: MIT */
#include "base/address_range.h"

#include <string.h>

enum { V4_SIZE = 4, V6_SIZE = 16 };

struct prefix {
    unsigned char bytes[V6_SIZE];
    unsigned bits;
    enum address_range range;
};

/* All others are global. */
static const struct prefix v4_prefixes[] = {
    {{0}, 8, ADDRESS_NEVER},             /* this network */
    {{10}, 8, ADDRESS_PRIVATE},          /* RFC 1918 */
    {{100, 64}, 10, ADDRESS_PRIVATE},    /* shared by carriers, RFC 6598 */
    {{127}, 8, ADDRESS_PRIVATE},         /* loopback */
    {{169, 254}, 16, ADDRESS_NEVER},     /* link-local, with the services of clouds at 169.254.169.254 */
    {{172, 16}, 12, ADDRESS_PRIVATE},    /* RFC 1918 */
    {{192, 0, 0}, 24, ADDRESS_NEVER},    /* protocol assignments */
    {{192, 0, 2}, 24, ADDRESS_NEVER},    /* documents */
    {{192, 88, 99}, 24, ADDRESS_NEVER},  /* 6to4 relays */
    {{192, 168}, 16, ADDRESS_PRIVATE},   /* RFC 1918 */
    {{198, 18}, 15, ADDRESS_NEVER},      /* benchmarks */
    {{198, 51, 100}, 24, ADDRESS_NEVER}, /* documents */
    {{203, 0, 113}, 24, ADDRESS_NEVER},  /* documents */
    {{224}, 4, ADDRESS_NEVER},           /* multicast */
    {{240}, 4, ADDRESS_NEVER},           /* reserved, and broadcast */
};

/* The first that fits counts. No other is global: only 2000::/3 is given out. */
static const struct prefix v6_prefixes[] = {
    {{[15] = 1}, 128, ADDRESS_PRIVATE},            /* loopback */
    {{0xfc}, 7, ADDRESS_PRIVATE},                  /* unique local, RFC 4193 */
    {{0x20, 0x01}, 23, ADDRESS_NEVER},             /* protocol assignments, with Teredo and benchmarks */
    {{0x20, 0x01, 0x0d, 0xb8}, 32, ADDRESS_NEVER}, /* documents */
    {{0x3f, 0xff}, 20, ADDRESS_NEVER},             /* documents */
    {{0x20}, 3, ADDRESS_GLOBAL},
    {{0}, 0, ADDRESS_NEVER},
};

/* Those that stand for an address of IPv4, which begins at byte `at`. */
static const struct {
    struct prefix prefix;
    size_t at;
    bool gateway; /* it leads to another machine, which reaches its own network */
} embeddings[] = {
    {{{[10] = 0xff, 0xff}, 96, ADDRESS_GLOBAL}, 12, false},     /* ::ffff:0:0/96, the same address */
    {{{0x00, 0x64, 0xff, 0x9b}, 96, ADDRESS_GLOBAL}, 12, true}, /* 64:ff9b::/96, NAT64 */
    {{{0x20, 0x02}, 16, ADDRESS_GLOBAL}, 2, true},              /* 2002::/16, 6to4 */
};

static bool begins_with(const unsigned char *address, const struct prefix *prefix)
{
    size_t whole = prefix->bits / 8;
    unsigned rest = prefix->bits % 8;
    unsigned mask = 0xff00U >> rest & 0xff;
    return memcmp(address, prefix->bytes, whole) == 0 &&
           (rest == 0 || (address[whole] & mask) == (prefix->bytes[whole] & mask));
}

static enum address_range range_of_v4(const unsigned char *address)
{
    for (size_t i = 0; i < ARRAY_LENGTH(v4_prefixes); i++)
        if (begins_with(address, &v4_prefixes[i]))
            return v4_prefixes[i].range;
    return ADDRESS_GLOBAL;
}

enum address_range address_range_of(const unsigned char *address, size_t length)
{
    if (length == V4_SIZE)
        return range_of_v4(address);
    if (length != V6_SIZE)
        return ADDRESS_NEVER;
    for (size_t i = 0; i < ARRAY_LENGTH(embeddings); i++) {
        if (!begins_with(address, &embeddings[i].prefix))
            continue;
        enum address_range range = range_of_v4(address + embeddings[i].at);
        return embeddings[i].gateway && range != ADDRESS_GLOBAL ? ADDRESS_NEVER : range;
    }
    size_t i = 0;
    while (!begins_with(address, &v6_prefixes[i]))
        i++;
    return v6_prefixes[i].range;
}
