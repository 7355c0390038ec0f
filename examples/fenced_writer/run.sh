#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Two writers of one report (fenced_writer.c). The first is stopped after its first line, for longer than its ttl of a
# second. The second gets the unit and writes both its lines. Then the first continues. Once with the guard, once
# without.
#
#     examples/fenced_writer/run.sh [--small]      the same, small as it is
set -uo pipefail
# shellcheck source=examples/lib/permitd.sh
. "$(dirname "$0")/../lib/permitd.sh"
[ $# -eq 0 ] || [ "$*" = --small ] || fail "usage: run.sh [--small]"

# claim SENTENCE COMMAND...
status=0
claim() {
    local sentence=$1
    shift
    if "$@"; then echo "ok - $sentence"; else echo "NOT SO - $sentence" && status=1; fi
}

stopped() { grep -q '^State:.T' "/proc/$1/status"; }

# scene guarded|unguarded: leaves the report, and the exit status of the first writer in $first_ended.
scene() {
    local first
    report=$work/$1
    echo "     $1:"
    "$build/examples/fenced_writer" "$PERMITD_URL" "$report" first "$1" pause &
    first=$!
    until stopped "$first"; do
        kill -0 "$first" 2>/dev/null || fail "the first writer has ended too early"
        sleep 0.02
    done
    # The second writer waits in permitd's queue until the ttl of the first has expired.
    "$build/examples/fenced_writer" "$PERMITD_URL" "$report" second "$1" || fail "the second writer has failed"
    kill -CONT "$first"
    first_ended=0
    wait "$first" || first_ended=$?
    sed 's/^/     | /' "$report"
}

lines() { sed 's/ (token.*//' "$report" | paste -sd, -; }
tokens_rise() { sed 's/.*(token \(.*\))/\1/' "$report" | sort -nc 2>/dev/null; }

needs permitd permitctl fenced_writer
permitd_start
"$permitctl" semaphore put report --capacity 1 >/dev/null

scene guarded
claim "with the guard, the first writer is refused when it wakes up" [ "$first_ended" -eq 3 ]
claim "and its second line is not in the report" \
    [ "$(lines)" = "first: first line,second: first line,second: second line" ]
claim "no line has an older token than the one before" tokens_rise
scene unguarded
claim "without it, the first writer writes under the second one's line" \
    [ "$(lines)" = "first: first line,second: first line,second: second line,first: second line" ]
exit "$status"
