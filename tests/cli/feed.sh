# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2154
# The verb feed.

call "$permitctl" semaphore put stage -c 5 --feed all
check "a semaphore is put into the feed" test "$code" = 0
call "$permitctl" acquire -s stage:2 --id cart-1 --label order=4711 --label "by=$(printf 'red\033[31m')"
call "$permitctl" release cart-1
sees() { "$permitctl" feed -s stage | grep -q "ended released"; }
check "its events come" soon sees
call "$permitctl" feed -s stage
check "a line for each, in order" test "$code $(awk '{ print $3 }' <<<"$out" | xargs)" = "0 acquired ended"
check "with key, permits and metadata" contains "$out" 'ended released  cart-1  stage:2  { "order": "4711"'
check "without its control characters" test "$(grep -c "$(printf '\033')" <<<"$out")" = 0
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

# Webhooks: this permitd has no secret; one that has some is in the suite http.
call "$permitctl" semaphore put stage --feed-url https://shop.example/permits
check "--feed-url needs a secret" contains "$code $err" "65 permitctl: invalid: feed_url: this permitd sends nothing"
call "$permitctl" webhooks
check "without a URL webhooks says so" contains "$code $out" "0 no semaphore and no template names a URL"
call "$permitctl" --json webhooks
check "with --json too" test "$code $(jq -c .webhooks <<<"$out")" = "0 []"
openssl rand -hex 32 >"$dir/secret"
chmod 600 "$dir/secret"
"$permitd" --database "mysql://root@/permitd?socket=$dir/server/mariadb.sock" --listen 127.0.0.1:0 --webhook-secret "$dir/secret" \
    >"$dir/hooks.out" 2>"$dir/hooks.err" &
beside[hooks]=$!
check "a permitd with a secret serves" soon grep -q '^permitd: listening on ' "$dir/hooks.out"
hooks=$(sed -n 's/^permitd: listening on //p' "$dir/hooks.out")
call "$permitctl" --url "$hooks" semaphore put stage --feed-url http://127.0.0.1:1/permits
check "a URL is named" contains "$code $out" "0 "
call "$permitctl" --url "$hooks" semaphore get stage
check "and shown" contains "$out" "http://127.0.0.1:1/permits"
call "$permitctl" --url "$hooks" webhooks
check "webhooks lists it" contains "$code $out" "http://127.0.0.1:1/permits"
call "$permitctl" --url "$hooks" --json webhooks
check "with its key" test "$code $(jq -r '.webhooks[0].keys[0] | length' <<<"$out")" = "0 64"
call "$permitctl" --json doctor
check "doctor of the permitd without a secret warns" \
    contains "$(jq -r '.findings[] | select(.check == "webhooks" and .verdict == "warn") | .sentence' <<<"$out")" "no webhook_secret"
call "$permitctl" --url "$hooks" semaphore put stage --feed-url ""
check "an empty one takes it away" test "$code $("$permitctl" --url "$hooks" --json semaphore get stage | jq -r .feed_url)" = "0 null"
end_beside hooks TERM
