/* SPDX-License-Identifier: MIT */
/*
 * Tests how permits end, with real servers: expiry with and without demand, races at the deadline, steps of the
 * database's clock, outages longer than every ttl, a killed owner.
 *
 * ends [--long] [--seed N] [PART ...]: all parts with small numbers; --long: with full numbers.
 */
#include "ends.h"

static const struct part parts[] = {
    {"shim", ends_shim, 0},     {"expiry", ends_expiry, 1}, {"demand", ends_demand, 2},         {"race", ends_race, 3},
    {"crowd", ends_crowd, 4},   {"steps", ends_steps, 5},   {"many_steps", ends_many_steps, 5}, {"away", ends_away, 5},
    {"frozen", ends_frozen, 5}, {"leader", ends_leader, 5}, {"owner_kill", ends_owner_kill, 5},
};

int main(int argc, char **argv)
{
    return suite_parts_main("ends", parts, sizeof(parts) / sizeof(parts[0]), argc, argv);
}
