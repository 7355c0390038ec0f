# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2154
# The verbs that make one call.

call "$permitctl" --json semaphore put backups --capacity 2
check "semaphore put creates one" test "$code $(jq .capacity <<<"$out")" = "0 2"
call "$permitctl" --json semaphore put network -c 10 --kind counted --note "of db1" --default-ttl 5m --max-ttl none
check "with kind, note and ttl" test "$code $(jq -r '.kind, .note, .default_ttl_ms' <<<"$out" | xargs)" = \
    "0 counted of db1 300000"
call "$permitctl" semaphore put network --note $'of \xc2\x9b31mdb1\x1b'
call "$permitctl" semaphore get network
check "control characters in a note are escaped" contains "$out" "of ??31mdb1?"
call "$permitctl" semaphore put network --note $'of \xe2\x80\xaedb1\xf3\xa0\x80\xa1'
call "$permitctl" semaphore get network
check "and so are characters that turn or hide text" contains "$out" "of ???db1????"
call "$permitctl" --json semaphore get network
check "--json writes them by number" contains "$out" '"of \u202edb1\udb40\udc21"'
call "$permitctl" --json semaphore put backups --priority-step strict
check "a priority that is always first" test "$code $(jq -c '[.priority_step, .priority_step_ms]' <<<"$out")" = '0 ["strict",null]'
call "$permitctl" --json semaphore put backups --priority-step 30s
check "or worth some waiting time" test "$code $(jq -c '[.priority_step, .priority_step_ms]' <<<"$out")" = "0 [null,30000]"
call "$permitctl" semaphore put backups --kind counted
check "the kind cannot change: 65" test "$code" = 65
call "$permitctl" semaphore get backups
check "semaphore get prints lines" contains "$out" "capacity       2"
call "$permitctl" semaphore get nothing
check "an unknown semaphore: 65" test "$code" = 65
call "$permitctl" semaphore get ..
check "dots are no name: 65" contains "$code $err" "65 permitctl: invalid: a semaphore's name is"
call "$permitctl" --json semaphore list
check "semaphore list has both" test "$(jq -r '.semaphores[].name' <<<"$out" | xargs)" = "backups network"
call "$permitctl" --url "${PERMITD_URL/127.0.0.1/permit.localhost}" semaphore list
check "a host that permitd does not serve: 65" contains "$code $err" "65 permitctl: misdirected"
check "and the setting that lists it" contains "$err" "add the host to its setting allowed_hosts"
call "$permitctl" --json semaphore get network
check "JSON is one line" test "$(wc -l <"$dir/out")" = 1
call "$permitctl" --json doctor
check "that of doctor too" test "$(wc -l <"$dir/out")" = 1
call "$permitctl" --json semaphore get there_is_none
check "and that of a refusal" test "$(wc -l <"$dir/out")" = 1
call "$permitctl" --json semaphore list --prefix net
check "--prefix" test "$(jq -r '.semaphores[].name' <<<"$out" | xargs)" = network
call "$permitctl" --json semaphore list --limit 1
check "--limit" test "$(jq '.semaphores | length' <<<"$out")" = 1
call "$permitctl" semaphore list
check "semaphore list prints a table" contains "$out" "NAME "
call "$permitctl" availability network there_is_none backups
check "availability prints a table, in the order of the names" test "$code $(awk '{ print $1 }' <<<"$out" | xargs)" = "0 NAME network backups"
call "$permitctl" --json availability backups
check "availability --json is the answer" test "$code $(jq -c '[.semaphores[] | .name, .available, .waiting]' <<<"$out")" = \
    '0 ["backups",2,0]'
call "$permitctl" --json availability --prefix net
check "availability --prefix" test "$(jq -r '.semaphores[].name' <<<"$out" | xargs)" = network
call "$permitctl" --json availability --prefix '' --limit 1
check "of all, with --limit" test "$(jq -r '.semaphores[].name' <<<"$out" | xargs)" = backups
call "$permitctl" availability
check "without names and prefix it is a usage error" contains "$code $err" "64 permitctl: availability needs names"
call "$permitctl" availability network --prefix net
check "with both, too" test "$code" = 64
call "$permitctl" availability network --limit 1
check "names have no --limit" test "$code" = 64
call "$permitctl" availability 'a b'
check "a name that cannot be: 65" contains "$code $err" "65 permitctl: invalid: semaphore must be names"

call "$permitctl" --json template put each: --capacity 2 --max-ttl 1h --queue fifo --note "of each"
check "template put creates one" test "$code $(jq -r '.prefix, .capacity, .max_ttl_ms, .queue, .note' <<<"$out" | xargs)" = \
    "0 each: 2 3600000 fifo of each"
call "$permitctl" --json template put each:few -c 1
call "$permitctl" template put each:
check "template put keeps settings that are not given" contains "$out" "capacity       2"
call "$permitctl" template get each:
check "template get prints lines" contains "$out" "template       each:"
call "$permitctl" template put each: --kind counted
check "the kind of a template cannot change: 65" test "$code" = 65
call "$permitctl" template put new
check "a template needs a capacity: 65" contains "$code $err" "65 permitctl: invalid: capacity is required"
call "$permitctl" template put each: -s backups
check "template put takes no semaphore" test "$code" = 64
call "$permitctl" template list
check "template list prints a table" contains "$out" "PREFIX "
call "$permitctl" --json template list --prefix each:f --limit 3
check "template list --prefix" test "$(jq -r '.templates[].prefix' <<<"$out" | xargs)" = each:few
call "$permitctl" --json acquire -s each:one
check "a semaphore is created from the template by acquire" test "$code $(jq -r '.permits[0].slots[0]' <<<"$out")" = "0 1"
call "$permitctl" run -n -s each:few.2 true
check "and by run" test "$code" = 0
call "$permitctl" semaphore events each:few.2
check "its events name the template" contains "$out" "template each:few"
call "$permitctl" template delete each:few
check "template delete names the removed template" test "$code $(xargs <<<"$out")" = "0 template each:few removed yes"
call "$permitctl" template get each:few
check "an unknown template: 65" contains "$code $err" "65 permitctl: unknown_template"

call "$permitctl" --json acquire -s backups -s network:3 --id k/1% --owner me --ttl 1m
check "acquire prints the grant" test "$code $(jq -r '.external_id, .owner, .ttl_ms, .permits[1].count' <<<"$out" | xargs)" = \
    "0 k/1% me 60000 3"
token=$(jq '.permits[0].token' <<<"$out")
call "$permitctl" --json acquire -s backups -s network:3 --id k/1% --owner me --ttl 60 --allow-replay
check "the same key gives the same tokens" test "$(jq '.replayed, .permits[0].token' <<<"$out" | xargs)" = "true $token"
call "$permitctl" acquire -s backups --id k/1% --owner me --ttl 60
check "the same key for something else: 65" contains "$code $err" "65 permitctl: key_reused"
call "$permitctl" --json acquire -s backups:2
check "no capacity: 75, immediately" test "$code $(jq -r .type <<<"$out")" = "75 /problems/no_capacity"
start=$(now_ms)
call "$permitctl" acquire -s backups:2 -w 1500ms -E 7
check "acquire --wait waits so long, and -E changes the status" test "$code" = 7
check "no shorter and not much longer" between "$(($(now_ms) - start))" 1400 60000
call "$permitctl" --json show k/1%
check "show" test "$(jq -r .state <<<"$out")" = ACQUIRED
call "$permitctl" show nobody
check "show of an unknown key: 65" test "$code" = 65
call "$permitctl" --json holders backups
check "holders" test "$(jq -r '.holders[].external_id' <<<"$out")" = k/1%
call "$permitctl" holders backups
check "holders prints a table" contains "$out" "OWNER"
check "with columns for overdue and suspect" grep -Eq '^TOKEN .* OVERDUE  SUSPECT  KEY$' "$dir/out"
call "$permitctl" requests -s backups
check "requests as well" grep -Eq '^STATE .* OVERDUE  SUSPECT  PERMITS ' "$dir/out"
call "$permitctl" show k/1%
check "and show" contains "$(xargs <<<"$out")" "overdue no suspect no"
call "$permitctl" --json acquire -s network --id labelled --label order=4711 --label 'url=https://shop/?a=b' --label empty=
check "acquire --label" test "$code" = 0
call "$permitctl" --json show labelled
check "is the metadata of the request" test "$(jq -c .metadata <<<"$out")" = \
    '{"order":"4711","url":"https://shop/?a=b","empty":""}'
call "$permitctl" show labelled
check "show prints it" grep -q '^metadata  *{ *"order": *"4711"' "$dir/out"
call "$permitctl" run -s network --id run-labelled --label $'note=\xc2\x9b31m\e[1m' -- "$permitctl" show run-labelled
check "run --label, too; a terminal gets no control characters of it" contains "$code $(grep ^metadata "$dir/out")" 31m
check "of either kind" not grep -qP '\xc2\x9b|\e' "$dir/out"
call "$permitctl" --json release labelled
for key in basket-1 basket-2 basket-3; do "$permitctl" --json acquire -s network --id $key >/dev/null; done
call "$permitctl" confirm basket-1 nobody basket-2
check "confirm of several keys, of which one is unknown: 76" contains "$code $err" '76 permitctl: unknown_request: there is no request "nobody"'
call "$permitctl" --json show basket-1
check "confirms none" test "$(jq .confirmed_at <<<"$out")" = null
call "$permitctl" confirm basket-1 basket-2
check "and else all" test "$code $(awk '{ print $NF }' <<<"$out" | xargs)" = "0 KEY basket-1 basket-2"
call "$permitctl" --json confirm basket-1 basket-3
check "confirm --json of several keys" test "$code $(jq -c '[.confirmed[].external_id]' <<<"$out")" = '0 ["basket-1","basket-3"]'
for key in basket-1 basket-2 basket-3; do "$permitctl" --json release --confirmed $key >/dev/null; done
call "$permitctl" --json renew k/1% --ttl 10m
check "renew" test "$code $(jq .ttl_ms <<<"$out")" = "0 600000"
call "$permitctl" fence check backups "$token"
check "the token is live: 0" test "$code" = 0
call "$permitctl" fence check backups "$token" --slot 1
check "and live on its slot" test "$code" = 0
call "$permitctl" semaphore delete backups
check "a held semaphore is not retired: 65" contains "$code $err" "65 permitctl: in_use"
call "$permitctl" --json release k/1%
check "release" test "$code $(jq -r '.state, .already_released' <<<"$out" | xargs)" = "0 RELEASED false"
call "$permitctl" --json release k/1%
check "release again says so" test "$code $(jq .already_released <<<"$out")" = "0 true"
call "$permitctl" --json fence check backups "$token"
check "the token is dead: 76" test "$code $(jq .live <<<"$out")" = "76 false"
call "$permitctl" renew k/1%
check "renew after the end: 76" test "$code" = 76
call "$permitctl" renew nobody
check "renew of an unknown key: the same" test "$code" = 76
call "$permitctl" --json release overtaken
check "release of an unknown key leaves a tombstone" test "$code $(jq -r .end_reason <<<"$out")" = "0 never_held"
call "$permitctl" acquire -s backups --id overtaken
check "which refuses the late acquire: 65" contains "$code $err" "65 permitctl: ended"

call "$permitctl" acquire -s network --ttl owner
check "without --owner the default owner is named" \
    grep -Eq '^permitctl: permitctl owner beat [^ ]+@[^ ]+ sends a heartbeat; --owner names another owner$' "$dir/err"
call "$permitctl" acquire -s network --owner w1 --ttl owner
check "ttl owner without a heartbeat: 65" contains "$code $err" "65 permitctl: unknown_owner"
check "with a remedy" contains "$err" "permitctl: permitctl owner beat w1 sends"
call "$permitctl" acquire -s backups --slot 1
check "a number is a label; a hint says how to write a number" contains "$code $err" \
    "1 is a label here; the slot with the number 1 is '#1'"
call "$permitctl" --json owner beat w1
check "owner beat creates an owner for 30 s" test "$code $(jq -r '.state, .ttl_ms' <<<"$out" | xargs)" = "0 alive 30000"
call "$permitctl" --json owner beat w1 --ttl 1h
check "and extends it" test "$code $(jq -r .ttl_ms <<<"$out")" = "0 3600000"
call "$permitctl" owner beat w1 --ttl none
check "a heartbeat counts for some time: 64" test "$code" = 64
call "$permitctl" --json acquire -s network --id of-w1 --owner w1 --ttl owner
check "ttl owner" test "$code $(jq -r '.ttl, .ttl_ms' <<<"$out" | xargs)" = "0 owner null"
call "$permitctl" run -s network --owner w1 --ttl owner -- true
check "run with ttl owner" test "$code" = 0
call "$permitctl" owner show w1
check "owner show prints lines" contains "$out" "requests held"
call "$permitctl" --json owner gone w1
check "owner gone" test "$code $(jq -r .state <<<"$out")" = "0 lapsed"
ended_as() { [ "$("$permitctl" --json show "$1" | jq -r .end_reason)" = "$2" ]; }
check "its requests end" soon ended_as of-w1 owner_dead
call "$permitctl" renew of-w1
check "which cannot be renewed any more: 76" test "$code" = 76
call "$permitctl" owner show nobody
check "an unknown owner: 65" contains "$code $err" "65 permitctl: unknown_owner"

call "$permitctl" semaphore put old --capacity 1
call "$permitctl" semaphore delete old
check "semaphore delete" test "$code" = 0
call "$permitctl" semaphore get old
check "and it is gone" test "$code" = 65

# ---- how a permit ends, and what operators do ----

call "$permitctl" semaphore put seats --capacity 3 --default-ttl 90s --max-ttl 1h30m
call "$permitctl" semaphore get seats
check "a setting that has no value is not shown" test -z "$(sed -n '/^max waiters/p' <<<"$out")"
check "times are shown in words" test "$(sed -n 's/^default ttl  *//p; s/^max ttl  *//p' <<<"$out" | xargs)" = "1m30s 1h30m"
call "$permitctl" semaphore put network --max-waiters 7
check "--max-waiters limits the requests that wait" test "$code $(sed -n 's/^max waiters  *//p' <<<"$out")" = "0 7"
call "$permitctl" semaphore put network --max-waiters=-1
check "and is no negative number" test "$code" = 64
call "$permitctl" --json semaphore put network --max-waiters none
check "none removes the limit" test "$code $(jq 'has("max_waiters")' <<<"$out")" = "0 false"
call "$permitctl" --json acquire -s seats --id sold --ttl 10m
call "$permitctl" show sold
check "also the ttl of a request" contains "$out" "ttl            10m"
call "$permitctl" --json confirm sold
check "confirm removes the deadline" test "$code $(jq -r '.expires_at, has("confirmed_at")' <<<"$out" | xargs)" = "0 null true"
call "$permitctl" --json confirm sold
check "and is idempotent" test "$code" = 0
call "$permitctl" release sold
check "release of a confirmed one: 65" contains "$code $err" "65 permitctl: confirmed"
call "$permitctl" --json release sold --confirmed
check "release --confirmed" test "$code $(jq -r .end_reason <<<"$out")" = "0 released"
call "$permitctl" confirm sold
check "confirm after the end: 76" test "$code" = 76
call "$permitctl" confirm nobody
check "confirm of an unknown key: 76" test "$code" = 76

call "$permitctl" --json acquire -s seats:2 --id taken --owner ann
call "$permitctl" --json acquire -s seats --id kept --owner bob
call "$permitctl" force-release taken
check "force-release needs a reason: 64" contains "$code $err" "64 permitctl: force-release needs --reason"
call "$permitctl" --json force-release taken --reason 'ann is "gone" \o/'
check "force-release" test "$code $(jq -r .end_reason <<<"$out")" = "0 forced"
call "$permitctl" renew taken
check "its holder learns it: 76" test "$code" = 76
call "$permitctl" force-release nobody --reason x
check "force-release of an unknown key: 65" test "$code" = 65

call "$permitctl" semaphore pause seats
check "semaphore pause needs a reason: 64" test "$code" = 64
call "$permitctl" semaphore pause seats --reason "hall is flooded"
check "semaphore pause shows it" contains "$code $out" "paused         hall is flooded"
call "$permitctl" acquire -s seats
check "an acquire gets the reason: 75" contains "$code $err" "75 permitctl: paused: seats is paused: hall is flooded"
call "$permitctl" semaphore list
check "semaphore list has the reason" contains "$out" "hall is flooded"
call "$permitctl" semaphore resume seats
check "semaphore resume" test "$code" = 0
call "$permitctl" --json semaphore events seats
check "semaphore events has all, the newest first" test "$(jq -r '.events[].what' <<<"$out" | xargs)" = \
    "resumed paused forced created"
check "with the reasons" test "$(jq -r '.events[2].why' <<<"$out")" = 'ann is "gone" \o/'
call "$permitctl" semaphore events seats --limit 1
check "semaphore events prints a table" contains "$code $out" "NEXT TOKEN"
call "$permitctl" semaphore events nothing
check "of an unknown semaphore: 65" test "$code" = 65

call "$permitctl" --json requests -s seats --state released
check "requests lists ended requests" test "$(jq -r '[.requests[].external_id] | sort | .[]' <<<"$out" | xargs)" = "sold taken"
call "$permitctl" --json requests -s seats --state held --owner bob
check "and held ones" test "$(jq -r '.requests[].external_id' <<<"$out")" = kept
call "$permitctl" requests -s seats
check "as a table" test "$code $(grep -o 'seats:2 ' <<<"$out" | xargs)" = "0 seats:2"
call "$permitctl" --json show taken
at=$(jq -r .acquired_at <<<"$out")
call "$permitctl" --json requests -s seats --at "$at"
check "requests --at: the holders at that time" test "$(jq -r '.requests[].external_id' <<<"$out")" = taken
call "$permitctl" --json requests -s seats --at "2001-01-01 00:00"
check "long ago: none" test "$code $(jq '.requests | length' <<<"$out")" = "0 0"
call env TZ=UTC "$permitctl" --json requests -s seats --at "$(TZ=UTC date -d '+2 minutes' '+%Y-%m-%d %H:%M')"
check "a time of this machine" test "$(jq -r '.requests[].external_id' <<<"$out")" = kept
call "$permitctl" --json requests -s seats --at "$(date +%H:%M)"
check "a time of day" test "$code" = 0
for wrong in 25:00 "2026-02-30 00:00" soon ""; do
    call "$permitctl" requests -s seats --at "$wrong"
    check "--at \"$wrong\": 64" test "$code" = 64
done
call "$permitctl" requests --at 02:14
check "--at needs a semaphore: 64" test "$code" = 64
call "$permitctl" requests -s seats --at 02:14 --state held
check "--at takes no state: 64" test "$code" = 64

call "$permitctl" --json acquire -s seats:2 --id more --owner cy
call "$permitctl" confirm more
call "$permitctl" semaphore delete seats
check "semaphore delete is refused while it is held: 65" contains "$code $err" "65 permitctl: in_use"
call "$permitctl" semaphore delete seats --force
check "--force needs a reason: 64" contains "$code $err" "64 permitctl: semaphore delete needs --reason"
call "$permitctl" semaphore delete seats --force --reason ""
check "an empty reason: 64" test "$code" = 64
call "$permitctl" semaphore delete seats --reason "it is over"
check "a reason without --force: 64" contains "$code $err" "64 permitctl: --reason requires --force"
call "$permitctl" semaphore delete seats --force --reason "$(printf '%01001d' 0)"
check "a reason that is too long: 64" contains "$code $err" "64 permitctl: --reason: at most 1000 bytes"
call "$permitctl" template delete each: --force
check "a template takes no --force: 64" test "$code" = 64
call "$permitctl" --json semaphore get seats
check "none of these ended a request" test "$(jq -r '.in_use, .paused_reason' <<<"$out" | xargs)" = "3 null"
call "$permitctl" semaphore delete seats --force --reason 'it is "over" & out, 100%'
check "semaphore delete --force reports the result" test "$code $(xargs <<<"$out$err")" = \
    "0 semaphore seats retired yes requests ended 2"
call "$permitctl" --json semaphore events seats
check "each is recorded with the reason" test "$(jq -r '.events[:4][].what' <<<"$out" | xargs)" = "retired forced forced paused"
check "as it was given" test "$(jq -r '[.events[:4][].why] | unique[]' <<<"$out")" = 'it is "over" & out, 100%'
check "kept has ended" ended_as kept forced
check "and the confirmed one" ended_as more forced
call "$permitctl" semaphore delete seats --force --reason "again"
check "again: 65" contains "$code $err" "65 permitctl: unknown_semaphore"
call "$permitctl" semaphore put seats --capacity 3
call "$permitctl" --json semaphore delete seats --force --reason "nobody is here"
check "--json prints the answer of the server" test "$code $(jq -r '.retired, .forced' <<<"$out" | xargs)" = "0 true 0"
call "$permitctl" semaphore put seats --capacity 3
call "$permitctl" semaphore delete seats
check "semaphore delete reports the result" test "$code $(xargs <<<"$out")" = "0 semaphore seats retired yes"
call "$permitctl" --json semaphore put seats --capacity 3
call "$permitctl" --json semaphore delete seats
check "with --json the answer of the server" test "$code $(jq -r '.name, .capacity, .retired, .forced' <<<"$out" | xargs)" = \
    "0 seats 3 true null"
call "$permitctl" semaphore put seats --capacity 3

call "$permitctl" fence bump
check "fence bump needs a reason: 64" test "$code" = 64
call "$permitctl" --json fence bump --reason "restored Friday"
check "fence bump" test "$code $(jq '.tokens_from == .epoch * 1024' <<<"$out")" = "0 true"
from=$(jq .tokens_from <<<"$out")
grants_again() { "$permitctl" --json acquire -s seats >"$dir/grant"; }
check "grants resume after a while" soon grants_again
check "with tokens from that value on" test "$(jq .permits[0].token "$dir/grant")" -ge "$from"

# ---- more holders than one call can end ----

# Requests without an answer, or refused for load, are repeated under the same keys.
granted() { curl -s -H 'Content-Type: application/json' --data-binary "@$1" "$PERMITD_URL/v1/batch" | jq -e '[.results[].status] | all(. < 300)'; }

# hold_many NAME N: holds N units by as many requests, a thousand at a time.
hold_many() {
    local from
    "$permitctl" --json semaphore put "$1" --capacity "$2" >/dev/null
    for ((from = 0; from < $2; from += 1000)); do
        jq -nc --arg name "$1" --argjson from "$from" \
            '{operations: [range($from; $from + 1000) | {op: "acquire", external_id: "\($name)-\(.)", permits: [{semaphore: $name}]}]}' \
            >"$dir/batch"
        soon granted "$dir/batch"
    done
}

# The database is frozen in the middle, for longer than a request may take, so the running call cannot end all.
# libpermit.c checks the sum of the answers: here the number in a late answer is lost.
hold_many crowd 20000
stop_permitd
start_permitd --request-timeout 8s
check "20,000 hold it" in_use crowd 20000
database=$(cat "$dir"/server/*.pid)
begun() { "$permitctl" --json semaphore get crowd | jq -e '.in_use < 20000' >/dev/null; }
"$permitctl" semaphore delete crowd --force --reason "it is over" >"$dir/crowd" 2>"$dir/err" &
pid=$!
soon begun
kill -STOP "$database"
sleep 10
kill -CONT "$database"
finish "$pid"
check "semaphore delete --force continues until all have ended, also after a frozen database" \
    contains "$code $(xargs <"$dir/crowd")" "0 semaphore crowd retired yes requests ended"
check "and reports no more than there were" between "$(sed -n 's/^requests ended *//p' "$dir/crowd")" 0 20000
call "$permitctl" --json requests -s crowd --state held
check "and it has no holder" test "$(jq '.requests | length' <<<"$out")" = 0
call "$permitctl" --json semaphore events crowd
check "each was ended once" test "$(jq '[.events[] | select(.what == "forced").from] | unique | length' <<<"$out")" = 20000
check "and it is gone" test "$(jq -r '.events[0].what' <<<"$out")" = retired
stop_permitd
start_permitd

# The task that joins connects by itself, so the list may be empty for a moment.
listed() { "$permitctl" --json servers | jq -e '.servers == [.servers[] | select(.this and .alive)] and (.servers | length) == 1'; }
check "servers lists this permitd" soon listed
call "$permitctl" --json servers
check "by the address that it listens on" test "$code $(jq -r '.servers[0].address' <<<"$out")" = "0 $PERMITD_URL"
call "$permitctl" servers
check "as a table" contains "$code $out" "0 ID "
check "with its version" contains "$out" "$("$permitctl" --version | cut -d' ' -f2)"
call "$permitctl" servers now
check "without words: 64" test "$code" = 64

call "$permitctl" sql-account put shop.one
check "sql-account put prints the account and its GRANTs" test "$code $(grep -c "^GRANT EXECUTE ON PROCEDURE \`.*\`.permit_[a-z]* TO 'shop.one'@'%';$" <<<"$out")" = "0 4"
call "$permitctl" sql-account put shop.one
check "it can be repeated" test "$code" = 0
call "$permitctl" --json sql-account list
check "sql-account list" test "$(jq -c '.sql_accounts[] | [.user, .namespace]' <<<"$out")" = '["shop.one",""]'
call "$permitctl" semaphore events backups
check "the change is an event" contains "$out" "sql_account"
call "$permitctl" sql-account put "it's"
check "a user that cannot be: 65" contains "$code $err" "65 permitctl: invalid: an SQL user is 1 to 128 bytes"
call "$permitctl" sql-account put "$(printf '%0129d' 1)"
check "one that is too long: 65" test "$code" = 65
call "$permitctl" sql-account put ''
check "an empty one: 64" contains "$code $err" "64 permitctl: an SQL user has 1 to 128 bytes"
call "$permitctl" sql-account put shop.one --namespace Shop
check "a namespace that cannot be: 64" test "$code" = 64
call "$permitctl" sql-account put shop.one --namespace shop
check "a namespace that no principal has: 65" contains "$code $err" "65 permitctl: invalid: no principal has this namespace"
call "$permitctl" sql-account delete shop.one
check "sql-account delete" test "$code $(tail -n 1 <<<"$out" | xargs)" = "0 removed yes"
call "$permitctl" sql-account delete shop.one
check "an unknown account: 65" contains "$code $err" "65 permitctl: unknown_account"

call "$permitctl" report -s backups --since 1h
check "report sums up a semaphore" contains "$code $out" "0 semaphore"
check "with what it cannot know" contains "$out" "refusals"
call "$permitctl" --json report -s backups
check "its time is 7 days by default" test "$(jq -r '[.to, .from | .[0:19] + "Z" | fromdate] | .[0] - .[1]' <<<"$out")" = 604800
call "$permitctl" report
check "report without a semaphore: 64" contains "$code $err" "64 permitctl: report needs -s NAME"
call "$permitctl" report -s backups --since 0
check "report of no time: 64" test "$code" = 64
call "$permitctl" report -s no-such
check "report of an unknown semaphore: 65" test "$code" = 65
