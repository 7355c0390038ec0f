#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# 200 advertising slots, 500 clients that hold, buy and release them (ad_inventory.c), and a permitd that is killed with
# SIGKILL now and then, together with its database. Meanwhile an observer checks the rows: sold + held + free = 200, at
# every moment.
#
#     examples/ad_inventory/run.sh                a minute, permitd is killed every 15 s
#     examples/ad_inventory/run.sh --kills 100    100 kills, a second after it serves again
#     examples/ad_inventory/run.sh --small        100 clients, 3 kills
set -uo pipefail
# shellcheck source=examples/lib/permitd.sh
. "$(dirname "$0")/../lib/permitd.sh"

clients=500 kills=3 pause=15
case "${1-}" in
'') ;;
--kills) kills=${2:?how many} pause=1 ;;
--small) clients=100 pause=1 ;;
*) fail "usage: run.sh [--kills N | --small]" ;;
esac

# One statement reads one consistent state. It counts units in use by the permits of held requests, and free units by
# the slots.
look="SELECT s.capacity, s.in_use,
             (SELECT COALESCE(SUM(p.count), 0) FROM permit p JOIN permit_request r ON r.id = p.permit_request_id
               WHERE p.semaphore_id = s.id AND r.state = 1 AND r.confirmed_at IS NOT NULL),
             (SELECT COALESCE(SUM(p.count), 0) FROM permit p JOIN permit_request r ON r.id = p.permit_request_id
               WHERE p.semaphore_id = s.id AND r.state = 1 AND r.confirmed_at IS NULL),
             (SELECT COUNT(*) FROM slot f WHERE f.semaphore_id = s.id AND f.permit_id = 0 AND f.retired = 0)
        FROM semaphore s WHERE s.name = 'ads'"
observe() {
    while [ -e "$work/observing" ]; do
        sql -e "$look" 2>/dev/null # fails while the database is dead
        sleep 0.1
    done >"$work/looks"
}

# Pauses; unlike a sleep in the foreground, this can be interrupted.
rest() {
    sleep "$pause" &
    wait $!
}

needs permitd ad_inventory
address=$(free_address)
permitd_start "$address"
"$build/examples/ad_inventory" "$PERMITD_URL" "$clients" &
crowd=$!
touch "$work/observing"
observe &
observer=$!

for ((killed = 0; killed < kills; killed++)); do
    rest
    kill -KILL "$permitd_pid"
    wait "$permitd_pid" 2>/dev/null
    permitd_start "$address"
done
rest
# A slow machine may not have seen both yet.
seen() { awk '$3 > 0 { sold = 1 } $4 > 0 { held = 1 } END { exit !(sold && held) }' "$work/looks"; }
tries=0
until seen || [ $((tries += 1)) -gt 600 ]; do sleep 0.1; done
kill -TERM "$crowd"
wait "$crowd"
status=$?
rm "$work/observing"
wait "$observer"

awk -v kills="$kills" -v figures="${PERMIT_FIGURES:-/dev/null}" '
    $1 != 200 || $3 + $4 + $5 != $1 || $2 != $3 + $4 { wrong++; print "     capacity, in use, sold, held, free: " $0 }
    { if ($3 > sold) sold = $3; if ($4 > held) held = $4 }
    END {
        kept = NR > 0 && sold > 0 && held > 0 && !wrong
        print (kept ? "ok - " : "NOT SO - ") "sold + held + free = 200 at each of " NR " looks, over " kills \
            " kills (at most " sold + 0 " sold, " held + 0 " held)"
        print "| ad_inventory: sold + held + free, by the rows, over " kills " kills | 200 at every look | " NR - wrong " of " NR \
            " looks (at most " sold + 0 " sold, " held + 0 " held) | " (kept ? "yes" : "**no**") " |" >>figures
        exit !kept
    }' "$work/looks" || status=1
exit "$status"
