#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Runs the suites that need a database on MySQL: the server of tests/mysql/root.sh instead of MariaDB.
#
#     tests/mysql/run.sh              the short form: contract, schema, doctor and logins of the store, transcripts, a storm,
#                                     the guard on MySQL, permitctl locks, sales in SQL
#     tests/mysql/run.sh --all        all of them in full; a quarter of an hour on 2 cores
#     tests/mysql/run.sh PART ...     these: store http guards locks sale right durable ends waiting storm each promoted election
#
# Runs the programs in $PERMIT_BUILD/tests (tests/run.sh builds them). Prints one line per part, and the output of a
# failed one. The last line is `N passed, N failed`; without a server, `skipped: WHY` and `0 passed, 0 failed`.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1

build=${PERMIT_BUILD:-$PWD/build}

# part      counts     command. {build} is $build, {bin} is $build/tests
parts='
contract    criterion  {bin}/store/store --filter @(contract|schema|procedures|doctor|session|login|plugins)/*
transcripts criterion  {bin}/http/http --jobs 3 --filter @(acquire|batch|fence|not_found|ops|release|renew|request|semaphore)/*
calm        lines      {bin}/chaos/storm --operations 10000
guards      lines      {bin}/guards/guards mariadb mariadb-rows
locks       lines      tests/cli/run.sh {build} locks
sales       lines      {bin}/chaos/sale --orders 100 --kills 3 --shops 16
store       criterion  {bin}/store/store
http        criterion  {bin}/http/http --jobs 3
right       lines      {bin}/chaos/right
durable     lines      {bin}/chaos/durable
ends        lines      {bin}/chaos/ends
waiting     lines      {bin}/chaos/waiting
storm       lines      {bin}/chaos/storm
sale        lines      {bin}/chaos/sale
each        lines      {bin}/chaos/each
promoted    lines      {bin}/chaos/promoted
election    lines      {bin}/chaos/election
'

case "${1-}" in
'') set -- contract transcripts calm guards locks sales ;;
--all) set -- store http guards locks sale right durable ends waiting storm each promoted election ;;
esac
for part in "$@"; do
    grep -q "^$part " <<<"$parts" || { sed -n '5,8s/^# \{0,1\}//p' "$0" >&2 && exit 64; }
done

PERMIT_MYSQL_ROOT=$(tests/mysql/root.sh)
if [ $? -ne 0 ]; then
    echo "$PERMIT_MYSQL_ROOT" # skipped: why
    echo "0 passed, 0 failed"
    exit 0
fi
export PERMIT_MYSQL_ROOT
echo "on $(tests/mysql/mysqld --version)"

log=$(mktemp)
trap 'kill $(jobs -rp) 2>/dev/null; rm -f "$log"' EXIT
trap 'exit 143' INT TERM

# The number next to a word in the last line of the log that has it: "N WORD", or "WORD: N".
number_before() { grep -aoE "[0-9]+ $1" "$log" | tail -n 1 | grep -oE '[0-9]+'; }
number_after() { grep -a 'Synthesis:' "$log" | grep -aoE "$1: [0-9]+" | tail -n 1 | grep -oE '[0-9]+'; }

passed=0
failed=0
run_part() {
    local name=$1 how=$2 started=$SECONDS status=0 good bad command
    shift 2
    command=("${@//\{bin\}/$build/tests}")
    command=("${command[@]//\{build\}/$build}")
    timeout -k 10 900 "${command[@]}" >"$log" 2>&1 </dev/null &
    wait $! || status=$?
    if [ "$how" = criterion ]; then
        good=$(number_after Passing)
        bad=$(($(number_after Failing || echo 0) + $(number_after Crashing || echo 0)))
    else
        good=$(number_before passed)
        bad=$(number_before failed)
    fi
    good=${good:-0}
    bad=${bad:-0}
    [ "$bad" -gt 0 ] || { [ "$status" -eq 0 ] && [ "$good" -gt 0 ]; } || bad=1
    [ "$bad" -eq 0 ] || tail -n 200 "$log"
    printf '%-12s %5d passed %5d failed %5d s\n' "$name" "$good" "$bad" $((SECONDS - started))
    grep -aE '^(promoted|election|storm): .* s( |,|$)' "$log" | head -n 4 # what was measured
    passed=$((passed + good))
    failed=$((failed + bad))
}

while read -r name how command; do
    [[ -n $name && " $* " == *" $name "* ]] || continue
    # shellcheck disable=SC2086 # words
    set -f && run_part "$name" "$how" $command
done <<<"$parts"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
