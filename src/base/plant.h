/* SPDX-License-Identifier: MIT */
/*
 * Planted faults: "a checker counts only once it has caught them" (docs/reliability.md has the list). Each is one line
 * at the place where it would be made by mistake. They exist only in a build with PERMIT_PLANT, which the simulation's
 * planted.sh makes, and there one at a time is active; everywhere else PLANTED(n) is false and leaves no code.
 */
#ifndef BASE_PLANT_H
#define BASE_PLANT_H

#ifdef PERMIT_PLANT
extern int permit_plant; /* the number of the fault; 0: none. Whoever runs the test defines it. */
#define PLANTED(number) (permit_plant == (number))
#else
#define PLANTED(number) 0
#endif
#endif
