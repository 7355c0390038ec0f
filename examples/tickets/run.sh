#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Tickets for many events of three houses, each with its own prefix (tickets.c).
#
#     examples/tickets/run.sh            5,000 buyers, 40 evenings in each house
#     examples/tickets/run.sh --small    600 buyers, 8 evenings
set -uo pipefail
# shellcheck source=examples/lib/permitd.sh
. "$(dirname "$0")/../lib/permitd.sh"

case "${1-}" in
'') buyers=5000 evenings=40 ;;
--small) buyers=600 evenings=8 ;;
*) fail "usage: run.sh [--small]" ;;
esac

needs permitd permitctl tickets
permitd_start

# One template for each house. The opera holds tickets for ten minutes, and a bit longer for late payments; the club
# does not.
"$permitctl" template put opera: --capacity 60 --kind counted --default-ttl 10m --grace 30s >/dev/null
"$permitctl" template put arena: --capacity 200 --kind counted --default-ttl 10m --grace 30s >/dev/null
"$permitctl" template put club: --capacity 15 --kind counted --default-ttl 5m >/dev/null
"$build/examples/tickets" "$PERMITD_URL" "$buyers" "$evenings" || status=1

granted() { "$permitctl" --json acquire "$@" >/dev/null; }
refused() { # STATUS ARGUMENT...
    local expected=$1 code=0
    shift
    "$permitctl" acquire "$@" >/dev/null 2>&1 || code=$?
    [ "$code" -eq "$expected" ]
}

# One evening is cancelled: its sales stop until the house knows more. The others continue.
"$permitctl" semaphore put opera:spring --capacity 60 --kind counted >/dev/null
"$permitctl" semaphore pause opera:spring --reason "the tenor is ill" >/dev/null
claim "a paused event sells nothing" refused 75 -s opera:spring
claim "the next evening does" granted -s opera:summer --id summer
claim "a name of no house is a mistake, and makes nothing" refused 65 -s opra:summer

# A larger room for new events; existing events keep theirs.
"$permitctl" template put opera: --capacity 90 >/dev/null
capacity() { "$permitctl" --json semaphore get "$1" | grep -o '"capacity":[0-9]*'; }
granted -s opera:autumn --id autumn || status=1
claim "a changed template counts for new events, not for old ones" \
    [ "$(capacity opera:summer) $(capacity opera:autumn)" = '"capacity":60 "capacity":90' ]
exit "$status"
