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

page_polls aisles # a hall without rows
exit "$status"
