# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2154,SC2016,SC2034
# Waiting in the server: order, pieces, waiters and reasons, the table of all semaphores.

# asks KEY ARGUMENT...: starts an acquire of backups that waits in the background; its grant goes to $dir/KEY, its pid
# to $pid.
asks() {
    local key=$1
    shift
    "$permitctl" --json acquire --id "$key" "$@" >"$dir/$key" 2>"$dir/$key.err" &
    pid=$!
}
token() { jq .permits[0].token "$dir/$1"; }
place() { "$permitctl" --json waiters backups | jq -r ".waiters[] | select(.external_id == \"$1\") | .place"; }

"$permitctl" --json acquire -s backups:2 --id full --owner nightly@db1 >/dev/null

# Three requests wait, in pieces longer than the test. The third, which prints the reason of its wait, starts with a
# piece of one second.
asks first -s backups:2 --wait 5m --wait-piece 5m
pids=("$pid")
soon waiting backups 1
asks second -s backups -s network:4 --wait 5m --wait-piece 5m --owner ann@db2
pids+=("$pid")
soon waiting backups 2
"$permitctl" run -v -s backups --id third --wait-piece 5m -- true 2>"$dir/third.err" &
pids+=($!)
check "run -v prints the reason of the wait" soon grep -q 'permitctl: waiting for backups: 2 of 2 in use, 1 asked, 2 wait before it' "$dir/third.err"
check "and the holder" grep -q 'held longest by full' "$dir/third.err"
check "after its first piece it waits on" soon waiting backups 3
call "$permitctl" --json waiters backups
check "waiters has them in their order" test "$code $(jq -r '.waiters[].external_id' <<<"$out" | xargs)" = "0 first second third"
check "with owner, permits, and the request ahead" test "$(jq -r '.waiters[-2] | .owner, .permits[1].count, .behind' <<<"$out" |
    xargs)" = "ann@db2 4 first"
call "$permitctl" waiters backups
check "waiters prints a table" contains "$out" "PLACE"
check "with permits and the request ahead" grep -Eq '^3 +third .* backups +0 +[0-9.]+s .*Z +[0-9]+ +second *$' "$dir/out"
call "$permitctl" waiters network
check "a request for two semaphores is in both queues" grep -Eq '^1 +second +ann@db2 +backups network:4 ' "$dir/out"
call "$permitctl" --json waiters backups --limit 1
check "--limit" test "$(jq '.waiters | length' <<<"$out")" = 1
call "$permitctl" waiters nothing
check "of an unknown semaphore: 65" contains "$code $err" "65 permitctl: unknown_semaphore"

call "$permitctl" requests --state waiting
check "requests --state waiting has no columns of holds" grep -Eq '^STATE +OWNER +PRIORITY +WAITED +SINCE +UNTIL +SERVER +PERMITS +KEY$' "$dir/out"
check "it has the times of each wait, and its permitd" grep -Eq '^WAITING +ann@db2 +0 +[0-9.]+s +20.*Z +20.*Z +[0-9]+ +backups network:4 +second$' "$dir/out"
call "$permitctl" why second
check "why shows the owner" test "$code $(sed -n 's/^owner *//p' "$dir/out")" = "0 ann@db2"
check "its place, and the request ahead" grep -Eq '^backups +place 2, behind first$' "$dir/out"
check "units requested, capacity and use" grep -Eq '^ +1 asked, 2 of 2 in use$' "$dir/out"
check "the longest holders with owner and deadline" grep -Eq '^ +full +nightly@db1 +20.*Z +20.*Z +[0-9]+m[0-9]+s$' "$dir/out"
check "and the semaphore with enough free units" grep -Eq '^ +4 asked, 0 of 10 in use: room for it$' "$dir/out"
call "$permitctl" --json why second
check "--json prints the server's answer" test "$(jq -r '.state, .waiting_for[0].ahead_count, .waiting_for[0].holders[0].external_id' <<<"$out" |
    xargs)" = "WAITING 1 full"
call "$permitctl" why full
check "why of a held request shows it" contains "$code $out" "0 key            full"
call "$permitctl" why nobody
check "why of an unknown key: 65" contains "$code $err" "65 permitctl: unknown_request"

call "$permitctl" run --wait 300ms -s backups -- touch "$dir/ran"
check "a wait that has passed: 75" test "$code" = 75
check "the message names the holder and the number of requests ahead" contains "$err" \
    "no_capacity: backups: 2 of 2 in use, 1 asked, 3 wait before it, held longest by full"
check "the command has not run" test ! -e "$dir/ran"
check "and it waits no more" soon waiting backups 3
call "$permitctl" run -n -E 9 -s backups -- touch "$dir/ran"
check "-n: immediately, also with a queue" test "$code" = 9

call "$permitctl" top --once
check "top --once prints one table" grep -Eq '^NAME +CAPACITY +USED +FREE +WAITING +OLDEST WAIT +OLDEST HOLD *$' "$dir/out"
check "the semaphore with most waiters is on top" grep -Eq '^backups +2 +2 +0 +3 +[0-9.hms]+ +[0-9.hms]+ *$' <(sed -n 2p "$dir/out")
check "with 0 and - where there is nothing" grep -Eq '^network +10 +0 +10 +1 +[0-9.hms]+ +- *$' "$dir/out"
call "$permitctl" top
check "without a terminal as well" test "$code $(grep -c '^backups ' <<<"$out")" = "0 1"
call "$permitctl" --json top --prefix back
check "--json, --prefix" test "$(jq -r '.semaphores[] | .name, .capacity, .in_use, .available, .waiting, (.oldest_wait_ms > 0), (.oldest_hold_ms > 0)' \
    <<<"$out" | xargs)" = "backups 2 2 0 3 true true"
call "$permitctl" --json top --prefix zzz
check "of nothing: an empty list" test "$code $(jq -c . <<<"$out")" = '0 {"semaphores":[]}'
call "$permitctl" semaphore get backups
check "semaphore get shows the number of waiters" contains "$out" "waiting        3"

# They are granted in that order.
"$permitctl" --json release full >/dev/null
finish "${pids[0]}"
check "the first is granted first" test "$code $(jq .replayed "$dir/first")" = "0 false"
check "the others still wait" waiting backups 2
"$permitctl" --json release first >/dev/null
finish "${pids[1]}"
check "then the second" test "$code $(jq -r '.permits | length' "$dir/second")" = "0 2"
finish "${pids[2]}"
check "and the third" test "$code" = 0
check "in the order of their tokens" test "$(token first)" -lt "$(token second)"
"$permitctl" --json release second >/dev/null
check "none waits" waiting backups 0
check "and nothing is held" soon in_use backups 0

# A wait in pieces: between two pieces the request has no client for a moment. The checks run right after a piece has
# ended, and the next piece is as long.
given_up() { curl -s "$PERMITD_URL/metrics" | sed -n 's/^permitd_waits_total{end="given_up"} //p'; }
more_given_up() { [ "$(given_up)" -ge "$1" ]; }
"$permitctl" --json acquire -s backups:2 --id full2 >/dev/null
asks pieces -s backups:2 --wait 5m --wait-piece 10s
pids=("$pid")
soon waiting backups 1
asks whole -s backups --wait 5m --wait-piece 5m
pids+=("$pid")
soon waiting backups 2
before=$(given_up)
check "a piece ends" soon more_given_up $((before + 1))
check "and the next begins" soon waiting backups 2
check "a wait in pieces keeps the first place" test "$(place pieces) $(place whole)" = "1 2"
"$permitctl" --json release full2 >/dev/null
finish "${pids[0]}"
check "and is granted before a wait in one piece" test "$code $(jq .replayed "$dir/pieces")" = "0 false"
check "which still waits" waiting backups 1
"$permitctl" --json release pieces >/dev/null
finish "${pids[1]}"
check "until its turn" test "$code" = 0
"$permitctl" --json release whole >/dev/null

# Two clients under one key: one place, one grant, and one command. Both wait when both have printed the reason.
"$permitctl" --json acquire -s backups:2 --id full3 >/dev/null
pids=()
for job in one two; do
    "$permitctl" run -v -s backups --id same --wait-piece 500ms -- sh -c "echo >> '$dir/same.ran'; $(until_there "$dir/same.end")" 2>"$dir/same.$job" &
    pids+=($!)
done
both_wait() { grep -q 'waiting for backups' "$dir/same.one" && grep -q 'waiting for backups' "$dir/same.two"; }
places() { [ "$("$permitctl" --json waiters backups | jq '.waiters | length')" = "$1" ]; }
check "two clients under one key print the reason of the wait" soon both_wait
check "they have one place" soon places 1
"$permitctl" --json release full3 >/dev/null
refused() { cat "$dir"/same.one "$dir"/same.two | grep -q 'key same is already held by another client'; }
check "one of them learns that the other runs" soon refused
touch "$dir/same.end"
codes=
for pid in "${pids[@]}"; do
    finish "$pid"
    codes+="$code "
done
check "with 75, and the other one ends well" test "$(tr ' ' '\n' <<<"$codes" | sort | xargs)" = "0 75"
check "the command has run once" test "$(wc -l <"$dir/same.ran")" = 1
check "and all is released" soon in_use backups 0

# The same with the ttl of run where it is too long: both ask for the shorter one.
"$permitctl" --json semaphore put brief --capacity 1 --max-ttl 1m >/dev/null
"$permitctl" --json acquire -s brief --id full3b --ttl 1m >/dev/null
pids=()
for job in one two; do
    "$permitctl" run -v -s brief --id same-brief --wait-piece 500ms -- sh -c "echo >> '$dir/brief.ran'; $(until_there "$dir/brief.end")" 2>"$dir/brief.$job" &
    pids+=($!)
done
both_wait() { grep -q 'waiting for brief' "$dir/brief.one" && grep -q 'waiting for brief' "$dir/brief.two"; }
check "two clients under one key whose ttl is too long wait" soon both_wait
"$permitctl" --json release full3b >/dev/null
refused() { cat "$dir"/brief.one "$dir"/brief.two | grep -q 'key same-brief is already held by another client'; }
check "one of them learns that the other runs" soon refused
touch "$dir/brief.end"
codes=
for pid in "${pids[@]}"; do
    finish "$pid"
    codes+="$code "
done
check "with 75, and the other one ends well" test "$(tr ' ' '\n' <<<"$codes" | sort | xargs)" = "0 75"

# A queue that is full: the request has no place, and is tried again.
"$permitctl" --json semaphore put crowded --capacity 1 --max-waiters 1 >/dev/null
"$permitctl" --json acquire -s crowded --id crowded-1 >/dev/null
"$permitctl" --json acquire -s crowded --id crowded-2 --wait 5m >/dev/null &
pids=($!)
soon waiting crowded 1
"$permitctl" run -s crowded -- sh -c 'exit 7' 2>"$dir/crowded.err" &
pids+=($!)
no_place() { grep -q 'permitctl: waiting, but without a place in the queue: too many waiting requests for crowded (its max_waiters is 1)' "$dir/crowded.err"; }
check "run says that the queue is full" soon no_place
call "$permitctl" run --no-retry -s crowded -- touch "$dir/ran_crowded"
check "--no-retry: 75" contains "$code$(ls "$dir/ran_crowded" 2>/dev/null) $err" "75 permitctl: too_many: too many waiting requests for crowded"
call "$permitctl" run --wait 3s -s crowded -- touch "$dir/ran_crowded"
check "also when its wait is over" contains "$code$(ls "$dir/ran_crowded" 2>/dev/null) $err" "75 permitctl: waiting, but without a place in the queue: too many"
"$permitctl" --json release crowded-1 >/dev/null
finish "${pids[0]}"
"$permitctl" --json release crowded-2 >/dev/null
finish "${pids[1]}"
check "it runs when there is room" test "$code" = 7
check "and has said so once" test "$(wc -l <"$dir/crowded.err")" = 1

# Changes that affect a waiter.
"$permitctl" --json acquire -s backups:2 --id full4 >/dev/null
asks doomed -s backups:2 --wait 3m
soon waiting backups 1
"$permitctl" --json release doomed >/dev/null
finish "$pid"
check "a key that is released while it waits: 65" contains "$code $(cat "$dir/doomed.err")" "65 permitctl: ended"
asks doomed2 -s backups:2 --wait 3m
soon waiting backups 1
"$permitctl" --json semaphore put backups --capacity 1 >/dev/null
finish "$pid"
check "a capacity that can never suffice: 65" contains "$code $(cat "$dir/doomed2.err")" "65 permitctl: never_satisfiable"
"$permitctl" --json semaphore put backups --capacity 2 >/dev/null
"$permitctl" --json semaphore pause backups --reason "disk is full" >/dev/null
"$permitctl" --json release full4 >/dev/null
call "$permitctl" acquire -s backups --wait 300ms
check "paused until the wait is over: 75" contains "$code $err" "75 permitctl: paused: backups is paused: disk is full"
asks patient -s backups --wait 3m
soon waiting backups 1
call "$permitctl" why patient
check "why says that it is paused" grep -Eq '^ +paused: +disk is full$' "$dir/out"
"$permitctl" --json semaphore resume backups >/dev/null
finish "$pid"
check "a resume wakes the waiter" test "$code" = 0
"$permitctl" --json release patient >/dev/null
"$permitctl" --json acquire -s backups:2 --id short --ttl 1s >/dev/null
asks heir -s backups --wait 3m
finish "$pid"
check "so does an expiry" test "$code" = 0
"$permitctl" --json release heir >/dev/null

# A waiting permitctl is stopped, as by Ctrl-Z or a closed lid: its grant expires meanwhile, and it waits again.
"$permitctl" --json acquire -s backups:2 --id full5 >/dev/null
granted_to() { [ "$("$permitctl" --json requests -s backups --owner "$1" | jq '.requests | length')" = 1 ]; }
expired_of() { [ "$("$permitctl" --json requests -s backups --owner "$1" | jq -r '.requests[].end_reason')" = expired ]; }
"$permitctl" run -s backups --ttl 10s --owner sleeper -- touch "$dir/awake" 2>"$dir/err" &
pid=$!
soon waiting backups 1
kill -STOP "$pid"
"$permitctl" --json release full5 >/dev/null
check "a stopped waiter is granted a permit" soon granted_to sleeper
check "which expires" soon expired_of sleeper
kill -CONT "$pid"
finish "$pid"
check "and when it continues it gets another" test "$code$(ls "$dir/awake")" = "0$dir/awake"
check "which it releases" soon in_use backups 0

# Units are reserved for a waiter that lacks those of another semaphore.
stop_permitd
address=$(free_address)
check "a server on its own port" serve_at "$address" --backfill-bound 100ms
aged() { "$permitctl" --json waiters backups | jq -e '.waiters[0].waited_ms >= 100' >/dev/null; }
"$permitctl" --json acquire -s network:10 --ttl 1h --id link >/dev/null
asks saving -s backups -s network --wait 3m
pids=("$pid")
soon waiting backups 1
soon aged
asks behind -s backups:2 --wait 3m
pids+=("$pid")
soon waiting backups 2
# The fronts of queues are read once a second, and served time stands still for a moment after a start.
why_says() { call "$permitctl" why behind && grep -Eq "$1" "$dir/out"; }
soon why_says '^ +reserved for saving, which lacks network$'
check "why names the waiter for which units are reserved, and what it lacks" grep -Eq '^ +reserved for saving, which lacks network$' "$dir/out"
check "of free units" grep -Eq '^ +2 asked, 0 of 2 in use: room for it$' "$dir/out"
call "$permitctl" why saving
check "why of that one names none" not contains "$out" "reserved for"
"$permitctl" --json release link >/dev/null
finish "${pids[0]}"
"$permitctl" --json release saving >/dev/null
finish "${pids[1]}"
"$permitctl" --json release behind >/dev/null

# A wait survives a restart of the server.
"$permitctl" --json acquire -s backups:2 --id full6 >/dev/null
"$permitctl" run -s backups -- touch "$dir/survived" 2>"$dir/err" &
pid=$!
soon waiting backups 1
stop_permitd
check "that is started again" serve_at "$address"
check "finds the waiter again" soon waiting backups 1
"$permitctl" --json release full6 >/dev/null
finish "$pid"
check "and grants it" test "$code$(ls "$dir/survived")" = "0$dir/survived"
