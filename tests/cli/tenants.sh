# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2154,SC2016
# Namespaces: two tenants and an operator of a permitd with credentials. tests/http/tenants.c has the rest.

tokens=$dir/tokens
mkdir -p "$tokens"
umask 077
for principal in shop bank; do
    "$permitctl" token make $principal --role use --semaphores '*' --namespace $principal \
        >"$tokens/$principal" 2>>"$tokens/credentials"
done
"$permitctl" token make operator --role operate --semaphores '*' >"$tokens/operator" 2>>"$tokens/credentials"
"$permitctl" token make admin --role admin >"$tokens/admin" 2>>"$tokens/credentials"
umask 022
call "$permitctl" --json token check "$tokens/credentials"
check "token make --namespace writes a namespace that token check shows" \
    test "$(jq -r '.principals[] | select(.principal == "shop") | .namespace' <<<"$out")" = shop
check "without it there is none" test "$(jq '.principals[] | select(.principal == "operator") | has("namespace")' <<<"$out")" = false

stop_permitd
start_permitd --credentials "$tokens/credentials"
as() { "$permitctl" --token-file "$tokens/$1" "${@:2}"; }

call as operator semaphore put hall --capacity 9 --kind counted
call as operator sql-account put web
check "sql-account needs the right admin: 78" test "$code" = 78
call as admin sql-account put web --namespace shop
check "an account in the namespace of a principal" test "$code $(grep -c '^namespace *shop$' <<<"$out")" = "0 1"
call as admin sql-account put web --namespace shops
check "none in another" test "$code" = 65
call as admin semaphore events hall
check "its event names the principal and the account" grep -q 'sql_account .*web, namespace shop.* admin' <<<"$out"
call as operator semaphore events hall
check "and is shown to admins only" test "$code $(grep -c web <<<"$out")" = "0 0"
for principal in shop bank; do
    call as $principal acquire -s hall --id job --owner worker
    check "$principal acquires under the key of both" test "$code" = 0
    call as $principal owner beat worker --ttl 1h
    check "and sends the heartbeat of the owner of both" test "$code" = 0
done
call as shop whoami
check "whoami shows the namespace" grep -qx 'namespace *shop' <<<"$out"
call as operator show job
check "the operator has no namespace: the key is unknown to him" test "$code" = 65
call as operator show job --namespace shop
check "show --namespace" test "$code $(grep -c '^namespace *shop$' <<<"$out")" = "0 1"
call as shop show job --namespace shop
check "only operators may name one: 78" contains "$code $err" "78 permitctl: forbidden: needs the right operate"
call as operator show job --namespace Shop
check "one that cannot be: 64" contains "$code $err" "64 permitctl: --namespace Shop: expected 1 to 32 of a-z 0-9 -"
call as operator renew job --namespace shop --ttl 2h
check "renew --namespace" test "$code $(grep -c 7200000 <(as shop --json show job))" = "0 1"
call as operator why job --namespace shop
check "why --namespace" test "$code $(grep -c '^namespace *shop$' <<<"$out")" = "0 1"
call as operator requests --namespace bank
check "requests --namespace: only its requests" test "$code $(wc -l <<<"$out") $(grep -c bank <<<"$out")" = "0 2 1"
call as operator --json requests --namespace ''
check "'' is the empty namespace" test "$code $(jq '.requests | length' <<<"$out")" = "0 0"
call as operator holders hall
check "holders has a column NAMESPACE for operators" grep -q NAMESPACE <<<"$out"
call as shop holders hall
check "and none for tenants" test "$code $(grep -c NAMESPACE <<<"$out") $(grep -c job <<<"$out")" = "0 0 1"
call as operator owner show worker --namespace shop
check "owner show --namespace" test "$code $(grep -c '^namespace *shop$' <<<"$out")" = "0 1"
call as operator force-release job --reason stuck --namespace shop
check "force-release --namespace" test "$code" = 0
check "ends the request of this tenant" test "$(as shop --json show job | jq -r .end_reason)" = forced
check "and not that of the other" test "$(as bank --json show job | jq -r .state)" = ACQUIRED
call as operator confirm job --namespace bank
check "confirm --namespace" test "$code $(as bank --json show job | jq 'has("confirmed_at")')" = "0 true"
call as operator owner gone worker --namespace shop
check "owner gone --namespace" test "$code $(as bank --json owner show worker | jq -r .state)" = "0 alive"
