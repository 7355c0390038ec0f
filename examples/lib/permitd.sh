# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# What the run.sh of the examples share: a permitd of their own, on a private MariaDB in a temporary directory, gone when
# the example is. To be sourced; sets root, build, work (a directory), permitctl, status, and, once permitd serves,
# PERMITD_URL.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=${PERMIT_BUILD:-$root/build}
permitctl=$build/permitctl
work=$(mktemp -d "${TMPDIR:-/tmp}/permit-example.XXXXXX")
permitd_pid=

leave() {
    local status=$?
    trap '' INT TERM HUP
    local pid
    for pid in $(jobs -rp); do # what an interrupted example has left
        [ "$pid" = "$permitd_pid" ] || kill -KILL "$pid" 2>/dev/null
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

# claim SENTENCE COMMAND...: says whether it is so. If not, the example ends with status.
status=0
claim() {
    local sentence=$1
    shift
    if "$@"; then echo "ok - $sentence"; else echo "NOT SO - $sentence" && status=1; fi
}

# needs PROGRAM...: builds what is not there yet.
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

# permitd_start [HOST:PORT]: on a free port, unless one is named, and waits until it serves.
permitd_start() {
    : >"$work/permitd.out" # what an earlier one has said
    "${PERMIT_PERMITD:-$build/permitd}" --data-dir "$work/data" --listen "${1:-127.0.0.1:0}" \
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

# What the database itself says, past permitd.
sql() { mariadb --no-defaults --protocol=socket --socket="$work/data/mariadb.sock" --user=root --database=permitd -N "$@"; }
