# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2154
# The verbs that make one call.

call "$permitctl" --json semaphore put backups --capacity 2
check "semaphore put makes one" test "$code $(jq .capacity <<<"$out")" = "0 2"
call "$permitctl" --json semaphore put network -c 10 --kind counted --note "of db1" --default-ttl 5m --max-ttl none
check "with kind, note and ttl" test "$code $(jq -r '.kind, .note, .default_ttl_ms' <<<"$out" | xargs)" = \
    "0 counted of db1 300000"
call "$permitctl" semaphore put backups --kind counted
check "the kind cannot change: 65" test "$code" = 65
call "$permitctl" semaphore get backups
check "semaphore get prints lines" contains "$out" "capacity       2"
call "$permitctl" semaphore get nothing
check "an unknown semaphore: 65" test "$code" = 65
call "$permitctl" --json semaphore list
check "semaphore list has both" test "$(jq -r '.semaphores[].name' <<<"$out" | xargs)" = "backups network"
call "$permitctl" --json semaphore list --prefix net
check "--prefix" test "$(jq -r '.semaphores[].name' <<<"$out" | xargs)" = network
call "$permitctl" --json semaphore list --limit 1
check "--limit" test "$(jq '.semaphores | length' <<<"$out")" = 1
call "$permitctl" semaphore list
check "semaphore list prints a table" contains "$out" "NAME "

call "$permitctl" --json acquire -s backups -s network:3 --id k/1% --owner me --ttl 1m
check "acquire prints the grant" test "$code $(jq -r '.external_id, .owner, .ttl_ms, .permits[1].count' <<<"$out" | xargs)" = \
    "0 k/1% me 60000 3"
token=$(jq '.permits[0].token' <<<"$out")
call "$permitctl" --json acquire -s backups -s network:3 --id k/1% --owner me --ttl 60
check "the same key gives the same tokens" test "$(jq '.replayed, .permits[0].token' <<<"$out" | xargs)" = "true $token"
call "$permitctl" acquire -s backups --id k/1% --owner me --ttl 60
check "the same key for something else: 65" contains "$code $err" "65 permitctl: key_reused"
call "$permitctl" --json acquire -s backups:2
check "no capacity: 75, at once" test "$code $(jq -r .type <<<"$out")" = "75 /problems/no_capacity"
start=$(now_ms)
call "$permitctl" acquire -s backups:2 -w 1500ms -E 7
check "acquire --wait waits so long, and -E changes the status" test "$code" = 7
check "no shorter and not much longer" between "$(($(now_ms) - start))" 1400 20000
call "$permitctl" --json show k/1%
check "show" test "$(jq -r .state <<<"$out")" = ACQUIRED
call "$permitctl" show nobody
check "show of an unknown key: 65" test "$code" = 65
call "$permitctl" --json holders backups
check "holders" test "$(jq -r '.holders[].external_id' <<<"$out")" = k/1%
call "$permitctl" holders backups
check "holders prints a table" contains "$out" "OWNER"
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
call "$permitctl" semaphore put old --capacity 1
call "$permitctl" semaphore delete old
check "semaphore delete" test "$code" = 0
call "$permitctl" semaphore get old
check "and it is gone" test "$code" = 65
