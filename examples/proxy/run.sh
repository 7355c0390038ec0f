#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# HAProxy and nginx in front of permitd: TLS ends at the proxy, permitd listens on a Unix socket and on loopback, and
# clients send their tokens through.
#
#     examples/proxy/run.sh    [--small]: the same; it takes somewhat more than a minute, because of a wait of that length
#
# haproxy.cfg and nginx.conf are what an operator would install; this script only replaces their paths and ports.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=examples/lib/permitd.sh
. "$here/../lib/permitd.sh"
PATH=$PATH:/usr/sbin
needs permitd permitctl
for program in haproxy nginx openssl curl; do
    command -v "$program" >/dev/null || fail "needs $program"
done
cd "$work" || exit 1
umask 077
: >answer
unset PERMITD_URL PERMIT_CREDENTIAL PERMIT_CREDENTIAL_FILE PERMITD_TOKEN
export XDG_CONFIG_HOME=$work

# ---- Certificate, token, permitd ----

openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 9 -subj /CN=permit.example \
    -addext subjectAltName=DNS:permit.example,IP:127.0.0.1 -keyout proxy.key -out certificate.pem 2>>openssl.log
cat certificate.pem proxy.key >proxy.pem
export PERMIT_CA=$work/certificate.pem
"$permitctl" token make web1 --role operate --semaphores '*' --append credentials >web1.token
"$permitctl" token make scraper --role metrics --append credentials >scraper.token
permitd_start 127.0.0.1:0 --listen "unix:$work/permitd.sock" --credentials credentials \
    --allowed-hosts permit.example
permitd_address=$(sed -n 's!^permitd: listening on http://!!p' permitd.out)
permitd_data=$work/data

# ---- The proxies ----

proxies=(haproxy nginx)
declare -A address=() pid=()
for proxy in "${proxies[@]}"; do address[$proxy]=$(free_address); done

sed -e "s!/etc/permitd!$work!; s!bind :443!bind ${address[haproxy]}!; s!/run/permitd!$work!" "$here/haproxy.cfg" >haproxy.cfg
haproxy -db -f haproxy.cfg >haproxy.log 2>&1 &
pid[haproxy]=$!

sed -e "s!/etc/permitd!$work!; s!listen 443!listen ${address[nginx]}!; s!127.0.0.1:7070!$permitd_address!" \
    "$here/nginx.conf" >permitd.conf
cat >nginx.conf <<EOF
daemon off;
master_process off;
pid $work/nginx.pid;
error_log stderr;
events {}
http {
    access_log off;
    client_body_temp_path $work/nginx-body;
    proxy_temp_path $work/nginx-proxy;
    fastcgi_temp_path $work/nginx-fastcgi;
    uwsgi_temp_path $work/nginx-uwsgi;
    scgi_temp_path $work/nginx-scgi;
    include $work/permitd.conf;
}
EOF
nginx -c "$work/nginx.conf" -p "$work" -e stderr >nginx.log 2>&1 &
pid[nginx]=$!

# ask PROXY PATH [CURL-OPTION...]: prints status and body.
ask() {
    curl -sS --cacert certificate.pem --max-time 60 -w '%{http_code} ' -o answer "${@:3}" "https://${address[$1]}$2" \
        2>>curl.log
    cat answer
    : >answer # an answer without a body leaves it as it is
}
# until_answer STATUS PROXY PATH: asks until the answer has this status.
until_answer() {
    local tries=0
    until [[ $(ask "$2" "$3") == "$1 "* ]]; do
        tries=$((tries + 1))
        { [ "$tries" -lt 1200 ] && kill -0 "${pid[$2]}"; } || { tail -n 5 "$2.log" >&2 && return 1; }
        sleep 0.05
    done
}
# through PROXY ARGUMENT...: permitctl with the token of web1.
through() { "$permitctl" --url "https://${address[$1]}" --token-file web1.token "${@:2}"; }
# ends_with STATUS COMMAND...
ends_with() {
    local code=0
    "${@:2}" >out 2>&1 || code=$?
    [ "$code" -eq "$1" ]
}
# metric NAME: its value at permitd.
metric() {
    curl -sS -H "Authorization: Bearer $(cat scraper.token)" "http://$permitd_address/metrics" |
        sed -n "s/^$1 //p"
}
# until_metric NAME VALUE
until_metric() {
    local tries=0
    until [ "$(metric "$1")" = "$2" ]; do
        tries=$((tries + 1))
        [ "$tries" -lt 1200 ] || return 1
        sleep 0.05
    done
}
contains() { [[ $1 == *"$2"* ]]; }

# ---- A wait of more than a minute, through each ----

for proxy in "${proxies[@]}"; do
    claim "$proxy answers when permitd is ready" until_answer 200 "$proxy" /readyz
    claim "a semaphore is made through $proxy" ends_with 0 through "$proxy" semaphore put "$proxy" --capacity 1
    claim "a unit is acquired" ends_with 0 through "$proxy" acquire -s "$proxy" --id "$proxy-held" --ttl 10m
done
# wait_behind PROXY KEY: begins one request that waits, whose answer will be in the file KEY. $! is the client.
wait_behind() {
    curl -sS --cacert certificate.pem -H "Authorization: Bearer $token" -H 'Content-Type: application/json' -o "$2" \
        -d "{\"external_id\":\"$2\",\"permits\":[{\"semaphore\":\"$1\"}],\"wait\":\"9m\"}" \
        "https://${address[$1]}/v1/requests" 2>>curl.log &
}
token=$(cat web1.token)
declare -A waiter=()
began=$SECONDS
for proxy in "${proxies[@]}"; do
    wait_behind "$proxy" "$proxy-waits"
    waiter[$proxy]=$!
done
claim "another semaphore is made" ends_with 0 through nginx semaphore put other --capacity 5
claim "a client waits behind each" until_metric permitd_waiting 2

# ---- Meanwhile ----

for proxy in "${proxies[@]}"; do
    claim "$proxy: without a credential permitd's 401" contains "$(ask "$proxy" /v1/whoami)" '401 {"type":"/problems/unauth'
    claim "$proxy: with the token its principal" \
        contains "$(ask "$proxy" /v1/whoami -H "Authorization: Bearer $token")" '200 {"principal":"web1"'
    claim "$proxy: permitd sees the host that the client has named" \
        contains "$(ask "$proxy" /healthz -H "Host: other.example")" '421 {"type":"/problems/misdirected"'
    claim "$proxy: and serves the name that it allows" contains "$(ask "$proxy" /healthz -H "Host: permit.example")" 200
    claim "$proxy: the longest body passes" contains "$(head -c 1048000 /dev/zero | tr '\0' ' ' |
        ask "$proxy" /v1/batch -H "Authorization: Bearer $token" -H 'Content-Type: application/json' \
            --data-binary @-)" '400 {"type":"/problems/malformed"'
    claim "$proxy: a command runs under a permit" ends_with 0 through "$proxy" run -s other -- true
done

# A client that disconnects: it is killed, so it cannot say so.
for proxy in "${proxies[@]}"; do
    wait_behind "$proxy" "$proxy-killed"
    killed=$!
    claim "$proxy: a third client waits" until_metric permitd_waiting 3
    disown "$killed" # or this shell would report its death
    kill -KILL "$killed"
    claim "$proxy: it is killed, and permitd takes it off the queue" until_metric permitd_waiting 2
done

# ---- After more than a minute ----

while [ $((SECONDS - began)) -lt 65 ]; do sleep 0.5; done
for proxy in "${proxies[@]}"; do
    claim "$proxy: the first one waits still, after $((SECONDS - began)) s" kill -0 "${waiter[$proxy]}"
    claim "$proxy: the unit is released" ends_with 0 through "$proxy" release "$proxy-held"
    wait "${waiter[$proxy]}"
    claim "$proxy: and granted to it" grep -q '"state":"ACQUIRED"' "$proxy-waits"
done
claim "no client waits" until_metric permitd_waiting 0

# ---- Health ----

# Without its database permitd is not ready: HAProxy, which checks that, sends it no more requests.
mariadbd=$(cat "$permitd_data/mariadb.pid")
kill -STOP "$mariadbd"
claim "while the database hangs, HAProxy takes permitd out of service" until_answer 503 haproxy /openapi.json
claim "nginx, which does not check, passes permitd's own answer on" until_answer 503 nginx /readyz
kill -CONT "$mariadbd"
claim "when it goes on, HAProxy sends requests again" until_answer 200 haproxy /openapi.json
claim "health checks without a credential have closed nothing" [ "$(metric permitd_http_guessing_total)" = 0 ]

for proxy in "${proxies[@]}"; do
    kill "${pid[$proxy]}"
    wait "${pid[$proxy]}"
done
exit "$status"
