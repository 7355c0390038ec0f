#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# A hall with best seats: 10,000 clients click one seat, groups sit side by side, and a page shows the seats (hall.c). Also
# shows how the page stays up to date.
#
#     examples/hall/run.sh                10,000 clients
#     examples/hall/run.sh --page FILE    the same, and the page stays in FILE: open it in a browser
#     examples/hall/run.sh --small        400 clients
set -uo pipefail
# shellcheck source=examples/lib/permitd.sh
. "$(dirname "$0")/../lib/permitd.sh"

clients=10000 page=$work/hall.html
case "${1-}" in
'') ;;
--page) page=${2:?which file} ;;
--small) clients=400 ;;
*) fail "usage: run.sh [--page FILE | --small]" ;;
esac

needs permitd hall
export PERMITD_MAX_CONNECTIONS_PER_ADDRESS=16384 # all clients come from this machine
permitd_start
"$build/examples/hall" "$PERMITD_URL" "$page" "$clients" || status=1
claim "it draws 960 seats, free ones and held ones" [ "$(grep -c '<rect ' "$page") $(grep -o 'class="[a-z]*"' "$page" | sort -u | wc -l)" = "960 2" ]

page_polls wheelchair
exit "$status"
