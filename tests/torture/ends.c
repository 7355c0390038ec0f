/* SPDX-License-Identifier: MIT */
/*
 * How permits end by themselves, with real servers: expiry with and without demand, races at the deadline, the clock of
 * the database stepped, everything stopped for longer than every ttl, a killed owner.
 *
 * ends [--long] [--seed N] [PART ...]: all parts in their short form; --long: with the numbers that were asked for.
 */
#include "ends.h"

static const struct part parts[] = {
    {"shim", ends_shim, 0},     {"expiry", ends_expiry, 1},
    {"demand", ends_demand, 2}, {"race", ends_race, 3},
    {"crowd", ends_crowd, 4},   {"steps", ends_steps, 5},
    {"away", ends_away, 5},     {"frozen", ends_frozen, 5},
    {"leader", ends_leader, 5}, {"owner_kill", ends_owner_kill, 5},
};

int main(int argc, char **argv)
{
    return parts_main("ends", parts, sizeof(parts) / sizeof(parts[0]), argc, argv);
}
