#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Runs every example at small size: tests/examples/run.sh [NAME ...]. An example prints a line for each claim, "ok - ..."
# or "NOT SO - ...", and exits non-zero if a claim did not hold. This script counts the lines; the last line has the sums.
#
# PERMIT_BUILD names the build directory (default: build), which must be complete. Times are never judged here, only
# claims.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
export PERMIT_BUILD=${PERMIT_BUILD:-$PWD/build}
unset PERMITD_URL PERMITD_TOKEN PERMIT_CREDENTIAL PERMIT_CREDENTIAL_FILE PERMIT_CA PERMIT_FIGURES
names=(backups atomic_pair fenced_writer ad_inventory flash_sale shop seat_map hall tickets cluster tls proxy)
[ $# -eq 0 ] || names=("$@")

directory=$(mktemp -d "${TMPDIR:-/tmp}/permit-examples.XXXXXX")
trap 'kill $(jobs -rp) 2>/dev/null; wait; rm -rf "$directory"' EXIT
trap 'exit 130' INT TERM
passed=0
failed=0

# check SENTENCE COMMAND...
check() {
    local sentence=$1
    shift
    if "$@"; then
        passed=$((passed + 1))
        echo "ok - $sentence"
    else
        failed=$((failed + 1))
        echo "not ok - $sentence"
    fi
}

# begin NAME: starts the example in the background; $! is its pid. --default-signal: a background job would ignore SIGINT.
begin() {
    mkdir "$directory/$1"
    TMPDIR=$directory/$1 env --default-signal=INT,QUIT "examples/$1/run.sh" --small >"$directory/$1.out" 2>&1 </dev/null &
}

# finish NAME PID: waits for the example and counts its claims as checks; then checks that it exited with 0, had at least
# one claim and left nothing behind.
finish() {
    local name=$1 out=$directory/$1.out code=0 started=$SECONDS
    wait "$2" || code=$?
    sed "s/^/$name: /" "$out"
    passed=$((passed + $(grep -c '^ok - ' "$out")))
    failed=$((failed + $(grep -c '^NOT SO - ' "$out")))
    check "$name: ends with 0, after $((SECONDS - started)) s" [ "$code" -eq 0 ]
    check "$name: has shown something" grep -q '^ok - ' "$out"
    check "$name: nothing is left of it" [ -z "$(ls -A "$directory/$name")" ]
}

# An example that cannot fail proves nothing: with one unit too few, the sale must notice it.
sold_before() (
    TMPDIR=$directory
    . examples/lib/permitd.sh
    permitd_start
    "$permitctl" semaphore put console --capacity 5 >/dev/null
    "$permitctl" acquire -s console --id somebody-else >/dev/null
    "$build/examples/flash_sale" "$PERMITD_URL" 50 8s >"$directory/sale"
    code=$?
    [ "$code" -eq 1 ] && grep -q '^NOT SO - 4 of 5 units were sold' "$directory/sale"
)

# The same for the checker of the cluster. record NUMBER [TEXT]: prints a good record of two jobs on one unit, of which
# line NUMBER is replaced by TEXT, or missing if there is no TEXT.
record() {
    printf '%s\n' 'job a 0' 'job b 3' 'begin a 1 1' 'end a 1 1' 'begin b 2 1' 'end b 2 1' 'row a 1' 'row b 2' \
        'exit a 0' 'exit b 3' |
        awk -v number="$1" -v text="${2-}" 'NR != number { print } NR == number && text != "" { print text }'
}
not() { ! "$@"; }
checker() { awk -v capacity="$1" -f examples/cluster/check.awk >"$directory/checked"; }
# finds CLAIM NUMBER [TEXT]: the checker finds that the claim does not hold.
finds() { ! record "$2" "${3-}" | checker 1 && grep -q "^NOT SO - .*$1" "$directory/checked"; }

# The example proxy waits for more than a minute, so it runs beside the others.
proxy=
[[ " ${names[*]} " != *" proxy "* ]] || { begin proxy && proxy=$!; }
for name in "${names[@]}"; do
    [ "$name" != proxy ] || continue
    begin "$name"
    finish "$name" $!
done
[ -z "$proxy" ] || finish proxy "$proxy"
if [ $# -eq 0 ] || [[ " $* " == *" cluster "* ]]; then
    check "the checker of the cluster accepts a good record" checker 1 < <(record 0)
    check "it finds two jobs at once" finds 'never exceeded' 4
    check "it finds a token that did not rise" finds 'tokens rose' 5 'begin b 1 1'
    check "it finds a grant that is not in the database" finds 'promoted database' 8
    check "it finds a grant of another token in the database" finds 'promoted database' 8 'row b 3'
    check "it finds grants in the database whose tokens fall" finds 'tokens rose' 7 'row a 4'
    check "it finds a job that began twice" finds 'began once' 5 'begin a 2 1'
    check "it finds a job that did not come to its end" finds 'began once' 6
    check "it finds an exit status that was not passed on" finds 'began once' 10 'exit b 0'
    check "it finds that the capacity was never reached" not checker 2 < <(record 0)
fi
[ $# -gt 0 ] || check "flash_sale notices a unit that it could not sell" sold_before

echo "examples: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
