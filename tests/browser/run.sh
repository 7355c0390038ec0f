#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# A browser on a page of another origin, against a permitd without credentials on loopback: the page tries every route, in
# every way that a page has. It must see nothing and change nothing. Installs Chromium if it is missing (100 MB).
#
#     tests/browser/run.sh           (PERMIT_BUILD names the build directory, default: build)
#
# The routes are those of permitd's table, their bodies the examples of docs/openapi.json. The last part is a control: if
# permitd does not learn which page asks, each of these requests is served, seen and changes what it should.
# shellcheck disable=SC2034,SC2154
set -u
cd "$(dirname "$0")/../.." || exit 1

build=${PERMIT_BUILD:-$PWD/build}
permitd=${PERMIT_PERMITD:-$build/permitd}
permitctl=$build/permitctl
dir=$(mktemp -d "${TMPDIR:-/tmp}/permit-browser.XXXXXX")
unset PERMITD_URL PERMITD_TOKEN PERMIT_CREDENTIAL PERMIT_CREDENTIAL_FILE PERMIT_CA
# shellcheck source=/dev/null
. tests/cli/lib.sh

pages_pid=
browser_pid=
# Its processes are a group: the command may be a script that waits for the browser.
end_browser() {
    [ -n "$browser_pid" ] || return 0
    kill -KILL -- "-$browser_pid" 2>/dev/null
    wait "$browser_pid" 2>/dev/null
    check "no process of the browser is left" soon not kill -0 -- "-$browser_pid"
    browser_pid=
}
leave() {
    end_browser
    [ -z "$pages_pid" ] || kill -KILL "$pages_pid"
    stop_permitd
    rm -rf "$dir"
}
trap leave EXIT
trap 'exit 130' INT TERM

started=$SECONDS
if ! scripts/packages.sh browser >"$dir/packages" 2>&1; then
    cat "$dir/packages"
    echo "not ok - Chromium can be installed"
    echo "browser: 0 passed, 1 failed"
    exit 1
fi
echo "# scripts/packages.sh browser took $((SECONDS - started)) s"
chromium=$(command -v chromium-headless-shell || command -v chromium)
echo "# $("$chromium" --version)"

# ---- what a page could see and change ----

# put METHOD PATH BODY: a request of the owner of this machine.
put() {
    curl -sS -o "$dir/put" -X "$1" -H 'Content-Type: application/json' -d "$3" --fail-with-body "$PERMITD_URL$2" ||
        check "$1 $2 prepares: $(cat "$dir/put")" false
}

# "NUMBER METHOD PATH" for each route; its names are its own, because the control changes all of them.
targets() {
    local number=0 method path _
    while read -r method path _; do
        number=$((number + 1))
        path=${path/'{semaphore}'/secret-s-$number}
        path=${path/'{prefix}'/secret-t-$number:}
        path=${path/'{external_id}'/secret-k-$number}
        path=${path/'{owner}'/secret-o-$number}
        path=${path/'{user}'/secret-u-$number}
        echo "$number $method $path"
    done < <("$permitd" --print-routes)
}

# Adds the example of the body and the parameters that must be there (of availability either of two), from docs/openapi.json, whose paths have other names
# of the parameters.
with_bodies() {
    jq -R -n --slurpfile api docs/openapi.json '
        [inputs | split(" ") | {number: .[0], method: .[1], path: .[2]}] as $targets
        | [$api[0].paths | to_entries[] | .key as $path | .value | to_entries[]
           | select(.key | IN("get", "put", "post", "delete"))
           | {method: .key | ascii_upcase, pattern: ("^" + ($path | gsub("{[^}]*}"; "[^/]*")) + "$"),
              body: .value.requestBody.content["application/json"].example,
              query: [.value.parameters[]?
                      | select(.in? == "query" and (.required? or (.name == "prefix" and $path == "/v1/availability")))
                      | .name + "=1"] | join("&")}] as $operations
        | [$targets[] | . as $target
           | first($operations[] | select(.method == $target.method and (.pattern as $pattern | $target.path | test($pattern))))
           | {method, path: ($target.path + (if .query == "" then "" else "?" + .query end)),
              body: (if .body == null then null else (.body | tojson) end)}]'
}

prepare() {
    local number key path held
    put PUT /v1/semaphores/hall '{"capacity": 7, "labels": ["A1", "A2", "A3", "A4", "A5", "A6", "B7"]}'
    put PUT /v1/semaphores/backups '{"capacity": 100}' # of the examples
    put PUT /v1/semaphores/secret '{"capacity": 1000, "kind": "counted"}'
    for key in seats-4711 parking-4711; do # of the example of /v1/confirm
        put POST /v1/requests "{\"external_id\": \"$key\", \"ttl\": \"10h\", \"permits\": [{\"semaphore\": \"secret\"}]}"
    done
    while read -r number _ path; do
        case "$path" in # of the examples
        */shrink) held='{"semaphore": "hall", "slots": ["A1", "A2"]}' ;;
        */exchange) held='{"semaphore": "hall", "slots": ["A5"]}' ;;
        *) held='{"semaphore": "secret"}' ;;
        esac
        put PUT "/v1/semaphores/secret-s-$number" '{"capacity": 100, "note": "secret"}'
        put PUT "/v1/templates/secret-t-$number:" '{"capacity": 3}'
        put PUT "/v1/owners/secret-o-$number" '{"ttl": "10h"}'
        put PUT "/v1/sql-accounts/secret-u-$number" ''
        put POST /v1/requests "{\"external_id\": \"secret-k-$number\", \"ttl\": \"10h\", \"permits\": [$held]}"
    done < <(targets)
}

# All rows but those that a permitd without clients changes by itself.
rows() {
    mariadb-dump --no-defaults --socket="$dir/server/mariadb.sock" -u root --skip-dump-date --skip-extended-insert \
        --order-by-primary --no-create-info --ignore-table=permitd.cluster --ignore-table=permitd.server \
        --ignore-table=permitd.served_offset permitd
}
# The lists and records that the API shows.
lists() {
    local path
    for path in /v1/semaphores /v1/requests /v1/templates /v1/sql-accounts; do
        curl -sS --fail-with-body "$PERMITD_URL$path?limit=1000"
    done
    while read -r number _; do
        curl -sS --fail-with-body "$PERMITD_URL/v1/semaphores/secret-s-$number/events"
        curl -sS --fail-with-body "$PERMITD_URL/v1/semaphores/secret-s-$number/slots"
        curl -sS "$PERMITD_URL/v1/owners/secret-o-$number"
    done < <(targets)
}
# Their times are derived: the rows have them.
state_of() { rows >"$dir/rows.$1" && lists | sed -E 's/"([a-z_]*_in_ms":[0-9]+|([a-z_]*_at|since|served_time)":"[^"]*")//g' >"$dir/lists.$1"; }
unchanged() { diff "$dir/rows.before" "$dir/rows.$1" && diff "$dir/lists.before" "$dir/lists.$1"; } >"$dir/err"

# ---- pages ----

# browse NAME URL: opens the page and waits for its report.
browse() {
    : >"$dir/requests"
    setsid "$chromium" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run --disable-background-networking \
        --user-data-dir="$dir/profile.$1" --remote-debugging-port=0 \
        --host-resolver-rules="MAP evil.example 127.0.0.1, MAP rebind.example 127.0.0.2" "$2" >"$dir/chromium" 2>&1 </dev/null &
    browser_pid=$!
    check "$1: the page comes to its end" reports "$1"
    end_browser
    cp "$dir/requests" "$dir/requests.$1"
    state_of "$1"
    [ -s "$dir/report.$1" ] || tail -n 20 "$dir/chromium"
    echo "# $1: $(jq .tried "$dir/report.$1") attempts, $(wc -l <"$dir/requests.$1") requests reach permitd"
}
ended() { test -s "$dir/report.$1" || dead "$browser_pid"; }
reports() { within 400000 ended "$1" && test -s "$dir/report.$1"; }
# sent NAME FILTER: the requests of a page that reached permitd and fit the filter of jq.
sent() { jq -c "select($2)" "$dir/requests.$1"; }
# all NAME FILTER: succeeds if all of them fit, and there are some.
all() { test -s "$dir/requests.$1" && sent "$1" "$2 | not" | head -n 5 >"$dir/err" && test ! -s "$dir/err"; }
# METHOD PATH of the targets, and of the requests of the page that fit the filter, without repetition.
wanted() { jq -r ".[] | select($1) | .method + \" \" + (.path | sub(\"[?].*\"; \"\"))" "$dir/targets" | sort -u; }
reached() { sent "$1" "$2" | jq -r '.method + " " + (.path | sub("[?].*"; ""))' | sort -u; }
reaches_all() { diff <(wanted "$2") <(reached "$1" "$3" | grep -Fxf <(wanted "$2")) >"$dir/err"; }
seen() { jq -r "[.seen[] | select($2)] | length" "$dir/report.$1"; }
sees() {
    jq -r "[.seen[] | select($2)][0:5][] | tojson" "$dir/report.$1" >"$dir/err"
    test ! -s "$dir/err"
}

start_permitd
prepare
targets | with_bodies >"$dir/targets"
check "each route is a target" test "$(jq length "$dir/targets")" = "$("$permitd" --print-routes | wc -l)"
python3 tests/browser/pages.py "${PERMITD_URL##*:}" "$dir" >"$dir/ports" 2>"$dir/pages.err" &
pages_pid=$!
soon test -s "$dir/ports"
read -r pages relay <"$dir/ports"
state_of before

# foreign NAME HOST SITE: a page of this host, on another port than permitd.
foreign() {
    browse "$1" "http://$2:$pages/page.html?server=http://127.0.0.1:$relay&report=http://127.0.0.1:$pages/report?$1"
    local dest kind
    # A socket has an Origin only. A frame in a sandbox is foreign to every page.
    check "$1: the browser reports a page that is $3" all "$1" \
        ".\"sec-fetch-site\" == \"$3\" or .\"sec-fetch-site\" == \"cross-site\" or .origin == \"http://$2:$pages\""
    for dest in empty iframe image script style video object; do
        check "$1: every route that has GET is tried as $dest" reaches_all "$1" '.method == "GET"' ".\"sec-fetch-dest\" == \"$dest\""
    done
    for kind in text/plain application/x-www-form-urlencoded multipart/form-data; do
        check "$1: every POST is tried as $kind" reaches_all "$1" '.method == "POST"' "(.\"content-type\" // \"\") | startswith(\"$kind\")"
    done
    check "$1: permitd refuses each request" all "$1" '.status == 403 or (.method == "OPTIONS" and .status == 405)'
    check "$1: no answer allows the page to read it" all "$1" '.shared == false'
    check "$1: the page sees nothing" sees "$1" true
    check "$1: nothing has changed" unchanged "$1"
}

foreign same-site 127.0.0.1 same-site
foreign cross-site evil.example cross-site

# rebound NAME: a page whose host name has the address of permitd by now.
rebound() {
    browse "$1" "http://rebind.example:${PERMITD_URL##*:}/page.html?rebound&server=http://rebind.example:${PERMITD_URL##*:}&report=http://127.0.0.1:$pages/report?$1"
    check "$1: the browser takes permitd for the origin of the page" all "$1" ".host == \"rebind.example:${PERMITD_URL##*:}\""
    check "$1: every route is tried" reaches_all "$1" true true
}

rebound rebinding
check "rebinding: permitd refuses each request" all rebinding '.status == 421'
check "rebinding: the page sees refusals only" sees rebinding '.what | startswith("421 {\"type\":\"/problems/misdirected\"") and (contains("secret") | not) | not'
check "rebinding: nothing has changed" unchanged rebinding

touch "$dir/gullible"
rebound control
check "control: permitd serves each request" all control '.status >= 200 and .status < 300'
check "control: the page sees each answer" test "$(seen control true)" = "$(jq length "$dir/targets")"
check "control: and what they contain" test "$(seen control '.what | contains("secret")')" -gt 10
check "control: much has changed" not unchanged control

echo "browser: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
