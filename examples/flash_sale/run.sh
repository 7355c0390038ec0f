#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# A flash sale: 10,000 buyers at the same moment, 5 units, a payment between hold and sale (flash_sale.c).
#
#     examples/flash_sale/run.sh            10,000 buyers, each waiting in the queue for a second
#     examples/flash_sale/run.sh --small    500 buyers
set -uo pipefail
# shellcheck source=examples/lib/permitd.sh
. "$(dirname "$0")/../lib/permitd.sh"

case "${1-}" in
'') buyers=10000 wait=1s ;;
--small) buyers=500 wait=8s ;; # longer, for slow machines
*) fail "usage: run.sh [--small]" ;;
esac

needs permitd flash_sale
export PERMITD_MAX_CONNECTIONS_PER_ADDRESS=16384 # all buyers come from this machine
permitd_start
"$build/examples/flash_sale" "$PERMITD_URL" "$buyers" "$wait"
