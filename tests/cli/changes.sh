# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2154
# grow, shrink and exchange: what a request holds, changed.

"$permitctl" --json semaphore put row --capacity 6 --label A1 --label A2 --label A3 --label A4 >/dev/null
"$permitctl" --json semaphore put parking --kind counted --capacity 5 >/dev/null
"$permitctl" --json acquire -s row --slot A1 -s parking:2 --id row-cart --ttl 5m >/dev/null
# held FILTER: prints a part of what the request holds.
held() { "$permitctl" --json show row-cart | jq -c "$1"; }

token=$(held .permits[0].token)
call "$permitctl" --json grow row-cart -s row:2 --adjacent
check "grow adds units" test "$code $(jq -c '[.changes, .permits[1].slots]' <<<"$out")" = "0 [1,[1,2,3]]"
check "under a new token" test "$(jq '.permits[1].token' <<<"$out")" -gt "$token"
call "$permitctl" fence check row "$token"
check "and the old one is dead" test "$code" = 76
call "$permitctl" shrink row-cart -s row --slot A1 --slot '#3' -s parking
check "shrink gives back slots, by label and number, and units" test "$code $(held '[.permits[].count]')" = "0 [1,1]"
check "and prints what is left" grep -Eq '^row +1 +[0-9]+ +2 +A2$' "$dir/out"
check "with the number of changes" contains "$(xargs <<<"$out")" "changes 2"
call "$permitctl" --json exchange row-cart --give row --slot A2 --take row --slot A4 --take parking:2
check "exchange moves to another seat, and takes of another semaphore" \
    test "$code $(jq -c '[.permits | sort_by(.semaphore)[] | .semaphore, .count, .labels]' <<<"$out")" = '0 ["parking",3,null,"row",1,["A4"]]'
call "$permitctl" grow row-cart -s row --best '{}'
check "grow --best" test "$code" = 0
call "$permitctl" grow row-cart -s row --any-of A2 --any-of A3
check "grow --any-of" test "$code $(held '[.permits[] | select(.semaphore == "row").slots]')" = "0 [[1,2,4]]"

"$permitctl" --json acquire -s parking:2 --id row-other >/dev/null
call "$permitctl" grow row-cart -s parking
check "no capacity: 75, at once" contains "$code $err" "75 permitctl: no_capacity: parking: 5 of 5 in use"
call "$permitctl" exchange row-cart --give row --take parking -E 7
check "-E changes the status" test "$code" = 7
check "and nothing has changed" test "$(held '[.changes, (.permits[].count)]')" = "[5,3,3]"
"$permitctl" --json release row-other >/dev/null
call "$permitctl" --json grow row-cart -s parking --changes 4
check "--changes with another number: 65" test "$code $(jq -r .type <<<"$out")" = "65 /problems/version_mismatch"
check "which is named" contains "$err" "changes is 5 now, not 4"
call "$permitctl" shrink row-cart -s row --slot A1 --changes 5
check "--changes with that of the request" test "$code" = 0
call "$permitctl" shrink row-cart -s row --slot A1
check "a slot that is not held: 65" contains "$code $err" "65 permitctl: invalid: row: the request does not hold slot A1"
call "$permitctl" shrink row-cart -s backups
check "nor a semaphore" contains "$code $err" "65 permitctl: invalid: backups: the request holds nothing of it"
call "$permitctl" grow row-cart -s nothing
check "an unknown semaphore: 65" contains "$code $err" "65 permitctl: unknown_semaphore"
call "$permitctl" grow row-cart -s row --slot Z
check "an unknown slot: 65" contains "$code $err" "65 permitctl: never_satisfiable"
call "$permitctl" grow nobody -s row
check "an unknown key: 76" contains "$code $err" "76 permitctl: unknown_request"

# The relay loses the answer of the grow, not that of the show before it.
start_relay pass drop pass
call "$permitctl" --url "$relay" --json grow row-cart -s parking --slot '#1'
check "a counted semaphore has no slots: 65, after a lost answer too" contains "$code $err" "65 permitctl: invalid"
stop_relay
start_relay pass drop pass
call "$permitctl" --url "$relay" --json grow row-cart -s parking
check "a change whose answer was lost is made once" \
    test "$code $(jq -c '[.changes, .replayed]' <<<"$out") $(held .changes)" = "0 [7,true] 7"
stop_relay
start_relay pass drop
call "$permitctl" --url "$relay" shrink row-cart -s parking
check "without any answer: 69" test "$code" = 69
check "and the remedy" contains "$err" "row-cart may have been changed: look with permitctl show row-cart. With --changes 7 this"
call "$permitctl" shrink row-cart -s parking --changes 7
check "which makes the change no second time" test "$code $(held '[.changes, (.permits[] | select(.semaphore == "parking").count)]')" = "65 [8,3]"
stop_relay

call "$permitctl" --json acquire -s row --id row-sold
call "$permitctl" --json confirm row-sold
call "$permitctl" shrink row-sold -s row
check "a sale stays as it is: 65" contains "$code $err" "65 permitctl: confirmed"
call "$permitctl" --json shrink row-cart -s row:2 -s parking:3
check "all given back is a release" test "$code $(jq -r '.state, .end_reason' <<<"$out" | xargs)" = "0 RELEASED released"
call "$permitctl" grow row-cart -s row
check "after which nothing grows: 76" contains "$code $err" "76 permitctl: ended"

call "$permitctl" grow row-cart
check "grow needs a semaphore: 64" contains "$code $err" "64 permitctl: grow requires at least one -s NAME"
call "$permitctl" exchange row-cart --give row
check "exchange needs both" contains "$code $err" "64 permitctl: exchange requires at least one --give NAME and one --take NAME"
call "$permitctl" exchange row-cart --slot A1 --give row --take row
check "a slot follows its semaphore" contains "$code $err" "64 permitctl: --slot must follow --give NAME or --take NAME"
call "$permitctl" exchange row-cart --give row --any-of A1 --take row
check "what is given back is no choice" contains "$code $err" "64 permitctl: --any-of, --adjacent and --best must follow a --take"
call "$permitctl" exchange row-cart --give row:2 --slot A1 --take row
check "and has no count beside slots" contains "$code $err" "64 permitctl: row: --slot cannot be combined with :COUNT"
call "$permitctl" shrink row-cart -s row --adjacent
check "shrink takes no choice" contains "$code $err" "64 permitctl: shrink does not take --adjacent"
call "$permitctl" grow row-cart -s row --wait 1s
check "there is no wait" contains "$code $err" "64 permitctl: grow does not take --wait"
call "$permitctl" exchange --help
check "exchange --help" contains "$code $out" "0 Usage: permitctl exchange KEY --give NAME[:COUNT]... --take NAME[:COUNT]..."
"$permitctl" --json release --confirmed row-sold >/dev/null
"$permitctl" --json semaphore delete row >/dev/null
"$permitctl" --json semaphore delete parking >/dev/null
