# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# Shared by the run.sh of the examples: starts a permitd on a private MariaDB in a temporary directory, and removes both
# when the example ends. To be sourced. Sets root, build, work (a directory), permitctl, status and, once permitd
# serves, PERMITD_URL.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=${PERMIT_BUILD:-$root/build}
permitctl=$build/permitctl
work=$(mktemp -d "${TMPDIR:-/tmp}/permit-example.XXXXXX")
permitd_pid=

leave() {
    local status=$?
    trap '' INT TERM HUP
    local pid
    for pid in $(jobs -rp); do # processes that an interrupted example has left
        [ "$pid" = "$permitd_pid" ] || { kill -KILL "$pid" && wait "$pid"; } 2>/dev/null
    done
    permitd_stop
    rm -rf "$work"
    exit "$status"
}
trap leave EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

fail() {
    echo "$(basename "$(dirname "$0")"): $*" >&2
    exit 1
}

# claim SENTENCE COMMAND...: prints whether the sentence holds. If not, the example exits with status 1.
status=0
claim() {
    local sentence=$1
    shift
    if "$@"; then echo "ok - $sentence"; else echo "NOT SO - $sentence" && status=1; fi
}

# needs PROGRAM...: builds missing programs.
needs() {
    local program missing=()
    for program; do
        [ -x "$build/$program" ] || [ -x "$build/examples/$program" ] || missing+=("$program")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    "$root/scripts/packages.sh" build
    [ -f "$build/CMakeCache.txt" ] || cmake -S "$root" -B "$build" -G Ninja -DPERMIT_TESTS=OFF >/dev/null
    cmake --build "$build" -j "$(nproc)" --target "${missing[@]}" | tail -n 1
}

# Prints a free address that a server can use again after each kill. Its port is below the range for outgoing
# connections: otherwise one of many clients that try to reach the dead server would sooner or later get this very port.
free_address() {
    local port
    until port=$((10000 + RANDOM % 20000)) && ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do :; done
    echo "127.0.0.1:$port"
}

# A trial in a temporary directory: started by root, its MariaDB may run as root.
export PERMITD_ALLOW_ROOT=true

# permitd_start [ADDRESS [OPTION...]]: starts permitd, on a free port by default, and waits until it serves.
permitd_start() {
    : >"$work/permitd.out" # remove the output of an earlier one
    "${PERMIT_PERMITD:-$build/permitd}" --data-dir "$work/data" --listen "${1:-127.0.0.1:0}" "${@:2}" \
        >"$work/permitd.out" 2>>"$work/permitd.log" &
    permitd_pid=$!
    until grep -q '^permitd: listening on ' "$work/permitd.out"; do
        kill -0 "$permitd_pid" 2>/dev/null || { tail -n 20 "$work/permitd.log" >&2 && fail "permitd does not serve"; }
        sleep 0.02
    done
    PERMITD_URL=$(sed -n 's/^permitd: listening on //p' "$work/permitd.out")
    export PERMITD_URL
}

permitd_stop() {
    [ -n "$permitd_pid" ] || return 0
    kill "$permitd_pid" 2>/dev/null
    wait "$permitd_pid" 2>/dev/null
    permitd_pid=
}

# page_polls KEY: the page of the semaphore hall polls with the version that it has. While nothing has changed, the answer is
# 304 and empty; after the release of KEY it has the seats.
page_polls() {
    local hall=$PERMITD_URL/v1/semaphores/hall etag before=0 after tries
    look() { curl -s -o /dev/null -w '%{http_code}' -H "If-None-Match: $etag" "$hall/slots?limit=1000"; }
    for ((tries = 0; tries < 20 && before != 304; tries++)); do # permitd may have had to write the row once more
        etag=$(curl -s -D - -o /dev/null "$hall/slots?limit=1000" | sed -n 's/^[Ee][Tt]ag: *//p' | tr -d '\r')
        before=$(look)
    done
    curl -s -o /dev/null -X DELETE "$PERMITD_URL/v1/requests/$1?confirmed=true"
    after=$(look)
    claim "a look that finds nothing new is a $before; after a change it has the seats: $after" [ "$before $after" = "304 200" ]
}

# Queries the database directly, bypassing permitd.
sql() { mariadb --no-defaults --protocol=socket --socket="$work/data/mariadb.sock" --user=root --database=permitd -N "$@"; }
