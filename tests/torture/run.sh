#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The storm for as long as you like: run after run of a few minutes, each with a seed of its own, until the time is over
# or a run fails; then its seed and its history, a line of JSON a call, are there to look at.
#
#     tests/torture/run.sh --minutes N [--build DIR] [OPTION of storm ...]
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1

usage() {
    sed -n '3,6s/^# \{0,1\}//p' "$0" >&2
    exit 64
}

minutes=
build=build
options=()
while [ $# -gt 0 ]; do
    case "$1" in
    --minutes | --build)
        [ $# -gt 1 ] || usage
        [ "$1" = --minutes ] && minutes=$2 || build=$2
        shift 2
        ;;
    -h | --help) usage ;;
    *)
        options+=("$1")
        shift
        ;;
    esac
done
[[ $minutes =~ ^[1-9][0-9]*$ ]] || usage
[ -x "$build/tests/torture/storm" ] || { echo "run.sh: $build has no storm; tests/run.sh builds it" >&2 && exit 69; }

history=$(mktemp)
log=$(mktemp)
trap 'rm -f "$log"' EXIT
end=$((SECONDS + minutes * 60))
runs=0
calls=0
strikes=0
while [ $SECONDS -lt $end ]; do
    seed=$(($(date +%s%N) / 1000))
    piece=$(((end - SECONDS + 59) / 60))
    if ! "$build/tests/torture/storm" --seed "$seed" --minutes $((piece < 3 ? piece : 3)) --history "$history" \
        "${options[@]}" >"$log" 2>&1; then
        cat "$log"
        echo "run.sh: seed $seed failed; its history, if it came so far: $history"
        exit 1
    fi
    runs=$((runs + 1))
    calls=$((calls + $(sed -n 's/^storm: \([0-9]*\) calls.*/\1/p' "$log")))
    strikes=$((strikes + $(sed -n 's/^  N[0-9]* .*: \([0-9]*\)$/\1/p' "$log" | paste -sd+)))
    echo "run.sh: seed $seed: $(sed -n 's/^storm: \(.* calls.*\)/\1/p' "$log")"
    sed -n 's/^storm: \(all served.*\)/          \1/p' "$log"
done
rm -f "$history"
echo "run.sh: $runs seeds, $calls calls, $strikes faults, no promise broken"
