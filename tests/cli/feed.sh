# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2154
# The verb feed.

call "$permitctl" semaphore put stage -c 5 --feed all
check "a semaphore is put into the feed" test "$code" = 0
call "$permitctl" acquire -s stage:2 --id cart-1
call "$permitctl" release cart-1
sees() { "$permitctl" feed -s stage | grep -q "ended released"; }
check "its events come" soon sees
call "$permitctl" feed -s stage
check "a line for each, in order" test "$code $(awk '{ print $3 }' <<<"$out" | xargs)" = "0 acquired ended"
check "with key and permits" contains "$out" "ended released  cart-1  stage:2"
cursor=$(sed -n '1s/ .*//p' <<<"$out")
call "$permitctl" feed -s stage --after "$cursor"
check "--after shows those behind a cursor" test "$code $(awk '{ print $3 }' <<<"$out")" = "0 ended"
call "$permitctl" --json feed -s stage --after "$cursor"
check "--json has the cursor to go on from" test "$code $(jq -s '[.[].events | length] | add' <<<"$out") $(jq -rs '.[-1].next | length > 2' <<<"$out")" = \
    "0 1 true"
call "$permitctl" feed --after 99999999999999-1
check "a cursor of an older copy: 65, and where to go on" contains "$code $err" "65 permitctl: feed_gone: a server has lost events"
check "by name" contains "$err" "go on from "
call "$permitctl" feed --after soon
check "no cursor: 65" test "$code" = 65

"$permitctl" feed -s stage --follow --after "$cursor" >"$dir/followed" 2>&1 &
follower=$!
call "$permitctl" acquire -s stage --id cart-2
check "--follow waits for more" soon grep -q "acquired  cart-2" "$dir/followed"
kill "$follower"
wait "$follower"
