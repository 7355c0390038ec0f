#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Two resources in opposite order, without a deadlock (atomic_pair.c).
#
#     examples/atomic_pair/run.sh            16 workers, 100 times each
#     examples/atomic_pair/run.sh --small    6 workers, 20 times each
set -uo pipefail
# shellcheck source=examples/lib/permitd.sh
. "$(dirname "$0")/../lib/permitd.sh"

case "${1-}" in
'') workers=16 rounds=100 ;;
--small) workers=6 rounds=20 ;;
*) fail "usage: run.sh [--small]" ;;
esac

needs permitd permitctl atomic_pair
permitd_start
"$permitctl" semaphore put disk --capacity 1 >/dev/null
"$permitctl" semaphore put network --capacity 1 >/dev/null
timeout 300 "$build/examples/atomic_pair" "$PERMITD_URL" "$workers" "$rounds" || status=1 # detects a deadlock

# Checks the rows: the number of permits of each request that ever held.
pairs=$(sql -e "SELECT COUNT(*), MIN(n), MAX(n) FROM (SELECT COUNT(*) n FROM permit JOIN permit_request r
                ON r.id = permit_request_id WHERE r.external_id NOT IN ('one-disk', 'two-network') GROUP BY r.id) requests")
claim "in the rows, no request ever had one without the other" [ "$pairs" = "$((workers * rounds))"$'\t2\t2' ]
exit "$status"
