/* SPDX-License-Identifier: MIT */
#include "base/address_range.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <string.h>

struct row {
    const char *address;
    enum address_range range;
};

static enum address_range range_of(const char *text)
{
    unsigned char address[16];
    bool v6 = strchr(text, ':');
    cr_assert_eq(inet_pton(v6 ? AF_INET6 : AF_INET, text, address), 1, "%s", text);
    return address_range_of(address, v6 ? 16 : 4);
}

static void check(const struct row *rows, size_t count)
{
    for (size_t i = 0; i < count; i++)
        cr_expect_eq(range_of(rows[i].address), rows[i].range, "%s", rows[i].address);
}

Test(address_range, of_ipv4_at_the_edges_of_each_range)
{
    static const struct row rows[] = {
        {"0.0.0.0", ADDRESS_NEVER},       {"0.255.255.255", ADDRESS_NEVER},
        {"1.0.0.0", ADDRESS_GLOBAL},      {"9.255.255.255", ADDRESS_GLOBAL},
        {"10.0.0.0", ADDRESS_PRIVATE},    {"10.255.255.255", ADDRESS_PRIVATE},
        {"11.0.0.0", ADDRESS_GLOBAL},     {"100.63.255.255", ADDRESS_GLOBAL},
        {"100.64.0.0", ADDRESS_PRIVATE},  {"100.127.255.255", ADDRESS_PRIVATE},
        {"100.128.0.0", ADDRESS_GLOBAL},  {"126.255.255.255", ADDRESS_GLOBAL},
        {"127.0.0.1", ADDRESS_PRIVATE},   {"127.255.255.255", ADDRESS_PRIVATE},
        {"128.0.0.0", ADDRESS_GLOBAL},    {"169.253.255.255", ADDRESS_GLOBAL},
        {"169.254.0.0", ADDRESS_NEVER},   {"169.254.169.254", ADDRESS_NEVER},
        {"169.255.0.0", ADDRESS_GLOBAL},  {"172.15.255.255", ADDRESS_GLOBAL},
        {"172.16.0.0", ADDRESS_PRIVATE},  {"172.31.255.255", ADDRESS_PRIVATE},
        {"172.32.0.0", ADDRESS_GLOBAL},   {"192.0.0.170", ADDRESS_NEVER},
        {"192.0.1.0", ADDRESS_GLOBAL},    {"192.0.2.1", ADDRESS_NEVER},
        {"192.88.99.1", ADDRESS_NEVER},   {"192.167.255.255", ADDRESS_GLOBAL},
        {"192.168.0.0", ADDRESS_PRIVATE}, {"192.168.255.255", ADDRESS_PRIVATE},
        {"192.169.0.0", ADDRESS_GLOBAL},  {"198.17.255.255", ADDRESS_GLOBAL},
        {"198.18.0.0", ADDRESS_NEVER},    {"198.19.255.255", ADDRESS_NEVER},
        {"198.20.0.0", ADDRESS_GLOBAL},   {"198.51.100.7", ADDRESS_NEVER},
        {"203.0.113.7", ADDRESS_NEVER},   {"223.255.255.255", ADDRESS_GLOBAL},
        {"224.0.0.1", ADDRESS_NEVER},     {"239.255.255.255", ADDRESS_NEVER},
        {"240.0.0.0", ADDRESS_NEVER},     {"255.255.255.255", ADDRESS_NEVER},
    };
    check(rows, ARRAY_LENGTH(rows));
}

Test(address_range, of_ipv6_at_the_edges_of_each_range)
{
    static const struct row rows[] = {
        {"::", ADDRESS_NEVER},
        {"::1", ADDRESS_PRIVATE},
        {"::2", ADDRESS_NEVER},
        {"100::1", ADDRESS_NEVER},
        {"1fff:ffff::1", ADDRESS_NEVER},
        {"2000::", ADDRESS_GLOBAL},
        {"2001::1", ADDRESS_NEVER},
        {"2001:1ff:ffff::1", ADDRESS_NEVER},
        {"2001:200::1", ADDRESS_GLOBAL},
        {"2001:db7:ffff::1", ADDRESS_GLOBAL},
        {"2001:db8::1", ADDRESS_NEVER},
        {"2001:db9::1", ADDRESS_GLOBAL},
        {"2606:4700::1", ADDRESS_GLOBAL},
        {"3ffe::1", ADDRESS_GLOBAL},
        {"3fff::1", ADDRESS_NEVER},
        {"3fff:1000::1", ADDRESS_GLOBAL},
        {"4000::1", ADDRESS_NEVER},
        {"5f00::1", ADDRESS_NEVER},
        {"fbff::1", ADDRESS_NEVER},
        {"fc00::1", ADDRESS_PRIVATE},
        {"fd00:ec2::254", ADDRESS_PRIVATE},
        {"fe00::1", ADDRESS_NEVER},
        {"fe80::1", ADDRESS_NEVER},
        {"febf::1", ADDRESS_NEVER},
        {"fec0::1", ADDRESS_NEVER},
        {"ff02::1", ADDRESS_NEVER},
    };
    check(rows, ARRAY_LENGTH(rows));
}

Test(address_range, of_ipv6_that_stands_for_ipv4_is_that_of_ipv4)
{
    static const struct row rows[] = {
        {"::ffff:127.0.0.1", ADDRESS_PRIVATE},
        {"::ffff:10.0.0.1", ADDRESS_PRIVATE},
        {"::ffff:169.254.169.254", ADDRESS_NEVER},
        {"::ffff:1.1.1.1", ADDRESS_GLOBAL},
        {"::127.0.0.1", ADDRESS_NEVER},
        {"::1.1.1.1", ADDRESS_NEVER},
        {"64:ff9b::1.1.1.1", ADDRESS_GLOBAL},
        {"64:ff9b::127.0.0.1", ADDRESS_NEVER},
        {"64:ff9b::10.0.0.1", ADDRESS_NEVER},
        {"64:ff9b:1::1.1.1.1", ADDRESS_NEVER},
        {"2002:101:101::1", ADDRESS_GLOBAL},
        {"2002:7f00:1::1", ADDRESS_NEVER},
        {"2002:a9fe:a9fe::1", ADDRESS_NEVER},
        {"2002:c0a8:1::1", ADDRESS_NEVER},
    };
    check(rows, ARRAY_LENGTH(rows));
}

Test(address_range, of_other_lengths_is_never)
{
    cr_expect_eq(address_range_of((const unsigned char *)"\1\1\1\1\1\1", 6), ADDRESS_NEVER);
    cr_expect_eq(address_range_of((const unsigned char *)"", 0), ADDRESS_NEVER);
}
