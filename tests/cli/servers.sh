# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2154,SC2016
# Several servers in one client: two permitd, a and b, on one database. A third one, with the MariaDB, is there to look.

a=$(free_address)
b=$(free_address)
until [ "$b" != "$a" ]; do b=$(free_address); done
both=http://$a,http://$b
# asks_both ARGUMENT...: permitctl with the list.
asks_both() { "$permitctl" --url "$both" "$@"; }
# The id of the permitd at this address: the latest, because the row of one that was killed stays for some seconds.
server_at() { "$permitctl" --json servers | jq "[.servers[] | select(.address == \"http://$1\" and .alive) | .id] | max"; }
# waits_at ADDRESS KEY: succeeds if the client of this key waits at that permitd.
waits_at() {
    local server
    server=$(server_at "$1") && [ "$server" != null ] &&
        [ "$("$permitctl" --json waiters backups | jq -r ".waiters[] | select(.server == $server) | .external_id")" = "$2" ]
}
place_of() { "$permitctl" --json show "$1" | jq '.permits[0].place'; }
grants_of() { "$permitctl" --json requests -s backups --owner "$1" | jq '.requests | length'; }
ends_at() { date -d "$("$permitctl" --json show "$1" | jq -r .expires_at)" +%s%N; }
later_than() { [ "$(ends_at "$1")" -gt "$2" ]; }

call asks_both show k
check "where no server is there: 69" test "$code" = 69
check "and all are named" contains "$err" "http://$a (Connection refused)"
check "each of them" contains "$err" "http://$b (Connection refused)"
check "in one sentence" contains "$err" "permitctl: no_server: no permitd answers at http://"

# The order is random, so the server that is not there is the first of about half of the calls.
serve_beside a "$a"
for i in 1 2 3 4 5 6 7 8; do
    call asks_both --json acquire -s network --id "n$i"
    check "a server that refuses the connection is followed by the next one" test "$code $(jq .replayed <<<"$out")" = "0 false"
done
check "each call has got one unit" in_use network 8
call env PERMITD_URL="$both" "$permitctl" --json acquire -s network --id n1 --allow-replay
check "the same key has the same grant" test "$code $(jq .replayed <<<"$out")" = "0 true"
check "and no other unit" in_use network 8
call asks_both top --once
check "top finds the server that is there" test "$code" = 0
call asks_both semaphore put short --capacity 1
check "so does semaphore put" test "$code" = 0
call asks_both semaphore delete short
check "and semaphore delete" test "$code" = 0
for i in 1 2 3 4 5 6 7 8; do asks_both --json release "n$i" >/dev/null; done
check "and release" in_use network 0
call asks_both servers
check "servers tries each URL of the list: one that answers" grep -qE "^http://$a +yes +-" <<<"$out"
check "and one that does not, with the reason" grep -qE "^http://$b +no +no_server: .*[Cc]onnect" <<<"$out"
check "before the table of the database" test "$(grep -oE '^(URL|ID) ' <<<"$out" | xargs)" = "URL ID"
check "then its status is 69" test "$code" = 69
call asks_both --json servers
check "--json has the URLs in the order of the list" \
    test "$code $(jq -c '[.urls[] | [.url, .ready]]' <<<"$out")" = "69 [[\"http://$a\",true],[\"http://$b\",false]]"
check "and the permitd of the database" test "$(jq '.servers | length > 0' <<<"$out")" = true
call "$permitctl" --url "http://user:secret@$a,http://$b" servers
check "no password is shown" not grep -q secret <<<"$out$err"
call "$permitctl" --json servers
check "without a list there are no URLs" test "$code $(jq 'has("urls")' <<<"$out")" = "0 false"

# Only a was there when the command started, so permitctl uses it.
asks_both run -s backups --ttl 1m --id killed -- sh -c "echo > '$dir/killed'; $(until_there "$dir/killed.go"); exit 5" 2>"$dir/err" &
pid=$!
soon test -e "$dir/killed"
serve_beside b "$b"
end_beside a KILL
touch "$dir/killed.go"
finish "$pid"
check "the server in use is killed: the command's status" test "$code" = 5
check "and its permit is released at the other one" in_use backups 0

# A wait at a goes on at b when a stops, and at a when b is killed.
end_beside b TERM
serve_beside a "$a"
"$permitctl" --json acquire -s backups:2 --id full >/dev/null
asks_both run -s backups --id mover --owner mover --wait 30m -- sh -c "echo > '$dir/moved'; $(until_there "$dir/moved.go")" 2>"$dir/err" &
pid=$!
check "a client waits at the server that is there" soon waits_at "$a" mover
serve_beside b "$b"
# Another client comes after it, at the third server. If the machine stalls for longer than a place is kept, that one is
# first in the end; but not three times in a row.
for try in 1 2 3; do
    end_beside a TERM
    check "the server stops: the client waits at the other one, under the same key" soon waits_at "$b" mover
    "$permitctl" --json acquire -s backups --id "behind$try" --wait 30m >/dev/null 2>&1 &
    behind=$!
    check "another client waits behind it" soon waiting backups 2
    places=$(place_of mover),$(place_of "behind$try")
    serve_beside a "$a"
    end_beside b KILL
    check "that one is killed: the client waits at the first one again" soon waits_at "$a" mover
    places=$places,$(place_of mover),$(place_of "behind$try")
    kill "$behind"
    wait "$behind" 2>/dev/null
    check "the other one leaves" soon waiting backups 1
    [ "$places" != 1,2,1,2 ] || break
    serve_beside b "$b"
done
check "in its old place" test "$places" = 1,2,1,2
"$permitctl" --json release full >/dev/null
check "and is granted" soon test -e "$dir/moved"
check "one unit" in_use backups 1
check "by one request" test "$(grants_of mover)" = 1
touch "$dir/moved.go"
finish "$pid"
check "which it releases" test "$code" = 0
check "as a whole" in_use backups 0

# A server that hangs accepts connections and does not answer.
asks_both run -s backups --ttl 12s --id frozen -- sh -c "echo > '$dir/frozen'; $(until_there "$dir/frozen.go"); exit 5" 2>"$dir/frozen.err" &
pid=$!
soon test -e "$dir/frozen"
serve_beside b "$b"
call asks_both servers
check "servers is content when each URL answers" test "$code $(grep -cE '^http://.* yes +-$' <<<"$out")" = "0 2"
freeze_beside a
until=$(ends_at frozen)
check "the server in use hangs: the renewal goes on at the other one" soon later_than frozen "$until"
until=$(ends_at frozen)
check "and the next one" soon later_than frozen "$until"
for i in 1 2 3; do
    call asks_both --json show frozen
    check "a call does not fail because one server hangs" test "$code $(jq -r .state <<<"$out")" = "0 ACQUIRED"
done
call asks_both --json acquire -s backups --id beside --wait 30s
check "nor does an acquire" test "$code" = 0
call asks_both --json acquire -s backups --wait 100ms
check "nor is the answer to a short wait lost: 75" test "$code" = 75
check "which holds nothing" in_use backups 2
"$permitctl" --json release beside >/dev/null
touch "$dir/frozen.go"
finish "$pid"
check "the permit is not lost" test "$code" = 5
check "and nothing is said of it" not grep -q lost "$dir/frozen.err"
check "it is released" in_use backups 0
thaw_beside a
end_beside a TERM
end_beside b TERM
check "and stays so when the server goes on" in_use backups 0
