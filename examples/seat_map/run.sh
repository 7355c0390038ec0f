#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# A hall: 2,000 clients click seat A1 at once, 200 groups want to sit together, and there is standing room (seat_map.c).
# Also shows how a page with the seats stays up to date.
#
#     examples/seat_map/run.sh            2,000 clients
#     examples/seat_map/run.sh --small    300 clients
set -uo pipefail
# shellcheck source=examples/lib/permitd.sh
. "$(dirname "$0")/../lib/permitd.sh"

case "${1-}" in
'') clients=2000 ;;
--small) clients=300 ;;
*) fail "usage: run.sh [--small]" ;;
esac

needs permitd seat_map
permitd_start
"$build/examples/seat_map" "$PERMITD_URL" "$clients" || status=1

# The page polls with the version that it has: while nothing has changed, the answer is 304 and empty.
hall=$PERMITD_URL/v1/semaphores/hall
etag=$(curl -s -D - -o /dev/null "$hall/slots?limit=1000" | sed -n 's/^[Ee][Tt]ag: *//p' | tr -d '\r')
look() { curl -s -o /dev/null -w '%{http_code}' -H "If-None-Match: $etag" "$hall/slots?limit=1000"; }
before=$(look)
curl -s -o /dev/null -X DELETE "$PERMITD_URL/v1/requests/aisles?confirmed=true" # a hall without rows
after=$(look)
claim "a look that finds nothing new is a 304; after a change it has the seats" [ "$before $after" = "304 200" ]
exit "$status"
