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
unset PERMITD_URL PERMITD_TOKEN PERMIT_FIGURES
names=(backups atomic_pair fenced_writer ad_inventory flash_sale seat_map tickets)
[ $# -eq 0 ] || names=("$@")

directory=$(mktemp -d "${TMPDIR:-/tmp}/permit-examples.XXXXXX")
trap 'rm -rf "$directory"' EXIT
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

# run NAME: counts its claims as checks; then checks that it exited with 0, had at least one claim and left nothing behind.
run() {
    local name=$1 code=0 started=$SECONDS
    mkdir "$directory/$name"
    TMPDIR=$directory/$name "examples/$name/run.sh" --small >"$directory/out" 2>&1 </dev/null || code=$?
    sed "s/^/$name: /" "$directory/out"
    passed=$((passed + $(grep -c '^ok - ' "$directory/out")))
    failed=$((failed + $(grep -c '^NOT SO - ' "$directory/out")))
    check "$name: ends with 0, in $((SECONDS - started)) s" [ "$code" -eq 0 ]
    check "$name: has shown something" grep -q '^ok - ' "$directory/out"
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

for name in "${names[@]}"; do
    run "$name"
done
[ $# -gt 0 ] || check "flash_sale notices a unit that it could not sell" sold_before

echo "examples: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
