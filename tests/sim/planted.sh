#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# A checker counts only once it has caught planted faults: builds the simulation with them (src/base/plant.h), runs it
# with one at a time, and shows which promise was seen broken, and after how many operations. Each must be caught, and
# without any nothing may be. The last line is `N passed, N failed`.
#
#     tests/sim/planted.sh [NUMBER ...]
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1

# number  what is done wrong
faults='
 1  no FOR UPDATE
 2  REPEATABLE READ with a read before the lock
 3  the key is looked up only before the lock
 4  renew without the state condition
 5  a release in two transactions
 6  a token from the clock of the process
 7  no ROLLBACK after 1205
 8  "no capacity" on an unknown outcome
 9  a replay that does not write
10  the same semaphore twice in one request
11  expiry judged by the clock alone, without ending the holder
12  flush at commit off
13  no epoch on failover
14  no row for the release of an unknown key
15  in_use written outside the transaction
16  a waiter that left is granted
17  a lost COMMIT not re-run
18  who ends what is due locks requests before semaphores
19  only the locked permits of a due request are ended
20  renew outside the locks of the semaphores
21  423 said from memory when a wait is over
22  a poll that starts from the version it first reads
23  the second release answered from a bare read
24  newcomers planned before waiters
25  epochs counted in hours
26  first uses at once: only whoever makes the semaphore goes on
27  labels move, and who waits for one is not called
'
seeds=1-900

build=${PERMIT_BUILD:-build}/planted
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! { cmake -S . -B "$build" -G Ninja -DPERMIT_PLANT=ON -DPERMIT_TESTS=ON -DCMAKE_BUILD_TYPE=Release &&
    cmake --build "$build" -j 2 --target sim; } >"$log" 2>&1; then
    tail -n 50 "$log"
    echo "0 passed, 1 failed"
    exit 1
fi

passed=0
failed=0

# tell GOOD TEXT...
tell() {
    if [ "$1" = true ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
    fi
    shift
    echo "$*"
}

if [ $# -eq 0 ]; then
    if "$build/tests/sim/sim" --seeds 1-10 >"$log"; then
        tell true "no fault: nothing is broken"
    else
        cat "$log"
        tell false "no fault: something is broken"
    fi
fi
while read -r number what; do
    [ -n "$number" ] || continue
    [ $# -eq 0 ] || [[ " $* " == *" $number "* ]] || continue
    "$build/tests/sim/sim" --plant "$number" --seeds "$seeds" >"$log"
    if caught=$(grep -m 1 '^caught: ' "$log"); then
        tell true "M$number ($what) $caught"
    else
        tell false "M$number ($what) NOT CAUGHT"
    fi
done <<<"$faults"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
