# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2154
# reconcile: orders in a file against requests of each state.

shop=(reconcile --orders "$dir/orders" --min-age 0s --prefix o-) # other suites hold permits here, too
orders() { printf '%s\n' "$@" >"$dir/orders"; }
hold() { "$permitctl" --json acquire -s "${2:-shelf}" --id "$1" --ttl 1h >/dev/null; }
sale() { hold "$@" && "$permitctl" --json confirm "$1" >/dev/null; }
# found: the findings of the last call, without times.
found() { grep -v ' requests held: ' <<<"$out" | sed 's/  since [^ ]*//; s/   */ /g'; }
sums() { tail -n 1 <<<"$out"; }

call "$permitctl" semaphore put shelf --capacity 100
call "$permitctl" semaphore put desk --capacity 100
for key in good late refund lost basket early; do hold "o-$key"; done
for key in good refund lost early; do "$permitctl" --json confirm "o-$key" >/dev/null; done
hold o-away && "$permitctl" --json release o-away >/dev/null
hold o-stop
sale o-desk desk

orders 'o-good paid' 'o-late paid' 'o-refund cancelled' 'o-early pending' 'o-basket pending' 'o-away paid' \
    'o-never paid' $'o-stop\tcancelled\r' 'o-gone cancelled' 'o-desk paid'
call "$permitctl" "${shop[@]}"
check "findings: exit status 2" test "$code" = 2
check "each kind of finding, with its line" test "$(found | sort)" = "confirmed_and_cancelled o-refund line 3
confirmed_not_paid o-early line 4
confirmed_without_order o-lost
held_and_cancelled o-stop line 8
paid_not_confirmed o-late line 2
paid_not_held o-away line 6
unknown_request o-never line 7"
check "the sums" test "$(sums)" = "10 orders, 8 requests held: 7 findings, 0 mended, 0 in flight"
check "nothing was changed" test "$("$permitctl" --json requests --state held | jq '[.requests[] | select(.external_id | startswith("o-"))] | length')" = 8
check "- is standard input" test "$("$permitctl" reconcile --orders - --min-age 0s --prefix o- <"$dir/orders")" = "$out"
call "$permitctl" reconcile --orders - --min-age 0s --prefix o-
check "without an order, every sale lacks one" test "$(found | sort | uniq -w 10 | xargs) $(sums)" = \
    "confirmed_without_order o-desk 0 orders, 8 requests held: 5 findings, 0 mended, 0 in flight"

call "$permitctl" reconcile --orders "$dir/orders" --prefix o-
check "requests of the last ten minutes are in flight: only a key that is unknown is found" \
    test "$code $(found)" = "2 unknown_request o-never line 7"
check "and are counted" contains "$(sums)" "1 findings, 0 mended, 6 in flight"
call "$permitctl" "${shop[@]}" -s desk
check "of one semaphore: holds of others are no finding, a paid order is" \
    test "$(found | sort | xargs)" = "paid_not_confirmed o-late line 2 paid_not_held o-away line 6 unknown_request o-never line 7"
call "$permitctl" "${shop[@]}" --prefix o-st
check "of keys with a prefix" test "$(found)" = "held_and_cancelled o-stop line 8"
call "$permitctl" "${shop[@]}" --owner nobody --prefix o-l
check "of an owner that holds nothing" test "$(found)" = "paid_not_confirmed o-late line 2"

call "$permitctl" --json "${shop[@]}"
check "--json: a line for each finding" \
    test "$(jq -r 'select(.finding == "paid_not_confirmed") | "\(.external_id) \(.line) \(.since | length)"' <<<"$out")" = "o-late 2 27"
check "--json: the sums" test "$(tail -n 1 <<<"$out" | jq -c .)" = '{"orders":10,"requests":8,"findings":7,"mended":0,"in_flight":0}'

call "$permitctl" "${shop[@]}" --apply --reason "audit 7"
check "--apply: what is left needs a person, exit status 2" test "$code" = 2
check "and each line says what was done" test "$(found | sort)" = "confirmed_and_cancelled o-refund line 3 released
confirmed_not_paid o-early line 4
confirmed_without_order o-lost released
held_and_cancelled o-stop line 8 released
paid_not_confirmed o-late line 2 confirmed
paid_not_held o-away line 6
unknown_request o-never line 7"
check "the sums say so" contains "$(sums)" "7 findings, 4 mended"
check "the sale is confirmed, the hold is released" \
    test "$("$permitctl" --json show o-late | jq -r .confirmed_at | cut -c1-2) $("$permitctl" --json show o-stop | jq -r .end_reason)" = "20 released"
check "the end of a sale is recorded with the reason" \
    test "$("$permitctl" --json semaphore events shelf | jq -r '[.events[] | select(.why == "audit 7") | .from] | sort | join(" ")')" = "o-lost o-refund"
call "$permitctl" "${shop[@]}" --apply
check "a second run mends nothing" test "$(found | sort)" = "confirmed_not_paid o-early line 4
paid_not_held o-away line 6
unknown_request o-never line 7"
orders 'o-good paid' 'o-late paid' 'o-desk paid' 'o-early paid'
call "$permitctl" "${shop[@]}"
check "all agree: 0" test "$code $out" = "0 4 orders, 5 requests held: 0 findings, 0 mended, 0 in flight"

# More orders than a page of the list and than a batch, and a run that is killed.
"$permitctl" --json semaphore put store --capacity 2000 --kind counted >/dev/null
for page in $(seq 0 1); do
    jq -nc --argjson page "$page" '{operations: [range(600) | {op: "acquire", external_id: "many-\($page * 600 + .)", ttl: "1h", permits: [{semaphore: "store"}]}]}' |
        curl -sf -o "$dir/batch" --json @- "$PERMITD_URL/v1/batch"
done
seq -f 'many-%.0f paid' 0 1199 >"$dir/orders"
many=(reconcile --orders "$dir/orders" --min-age 0s --prefix many-)
"$permitctl" "${many[@]}" --apply >"$dir/killed" 2>&1 &
killed=$!
check "a run says what it has done at once" soon grep -q ' confirmed$' "$dir/killed"
kill -KILL "$killed" 2>/dev/null
finish "$killed"
call "$permitctl" "${many[@]}" --apply
check "a run after a killed one mends the rest" test "$code" = 0
call "$permitctl" "${many[@]}"
check "then all agree" test "$code $(sums)" = "0 1200 orders, 1200 requests held: 0 findings, 0 mended, 0 in flight"
check "and each order has one unit" in_use store 1200

refused() { # LINE MESSAGE LINES...
    orders "${@:3}"
    call "$permitctl" "${shop[@]}"
    test "$code" = 64 && contains "$err" "$dir/orders:$1: $2"
}
check "a line without a state is refused, with its place" refused 2 "expected a key" 'a paid' 'b'
check "an unknown state is refused" refused 1 "expected a key" 'a payed'
check "a third word is refused" refused 1 "expected a key" 'a paid now'
check "an empty line is refused" refused 2 "expected a key" 'a paid' '' 'b paid'
check "a key that is none is refused" refused 1 "expected a key" $'a\x01b paid'
check "a key with two states is refused, with both lines" refused 3 "the key a has a state already, in line 1" 'a paid' 'b paid' 'a cancelled'
printf 'a paid\0\n' >"$dir/orders"
call "$permitctl" "${shop[@]}"
check "a zero byte is refused" test "$code" = 64
call "$permitctl" reconcile
check "without --orders: 64" test "$code" = 64
call "$permitctl" reconcile --orders /nonexistent
check "a file that is not there: 64" test "$code" = 64
call "$permitctl" "${shop[@]}" --reason why
check "--reason without --apply: 64" test "$code" = 64
orders 'a paid'
call "$permitctl" --url http://127.0.0.1:1 "${shop[@]}"
check "no server: 69, not 2" test "$code" = 69
