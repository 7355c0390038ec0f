/* SPDX-License-Identifier: MIT */
/*
 * Which addresses belong to the public Internet (the registries of special-purpose addresses of IANA, RFC 6890): for calls
 * to hosts that strangers choose.
 */
#ifndef BASE_ADDRESS_RANGE_H
#define BASE_ADDRESS_RANGE_H

#include "base/base.h"

enum address_range {
    ADDRESS_GLOBAL,
    ADDRESS_PRIVATE, /* loopback, private networks, the space that carriers share: a machine of one's own may have it */
    ADDRESS_NEVER,   /* link-local, multicast, reserved, for documents, ...: no machine that is called has it */
};

/*
 * Judges an address of 4 or 16 bytes, in the order of the network. One of IPv6 that stands for one of IPv4 is judged by
 * that: ::ffff:127.0.0.1 is private. If it leads through a gateway (NAT64, 6to4), it is global or never.
 */
enum address_range address_range_of(const unsigned char *address, size_t length) MUST_CHECK;
#endif
