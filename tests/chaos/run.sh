#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Repeats the storm for N minutes: runs of about a minute, each with its own seed and each fault once, until
# the time has passed (the last run is completed) or one fails. A failed run prints its seed and the file of its
# history, one line of JSON per call. 50 seeds and 3,000,000 operations take about an hour.
#
#     tests/chaos/run.sh --minutes N [--build DIR] [OPTION of storm ...]
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1

usage() {
    sed -n '3,7s/^# \{0,1\}//p' "$0" >&2
    exit 64
}

minutes=
build=build
options=(--operations 75000)
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
[ -x "$build/tests/chaos/storm" ] || { echo "run.sh: $build has no storm; tests/run.sh builds it" >&2 && exit 69; }

history=$(mktemp)
log=$(mktemp)
trap 'rm -f "$log"' EXIT
end=$((SECONDS + minutes * 60))
seeds=0
operations=0
faults=0
slowest=0
while [ $SECONDS -lt $end ]; do
    seed=$(($(date +%s%N) / 1000))
    if ! "$build/tests/chaos/storm" --seed "$seed" --history "$history" "${options[@]}" >"$log" 2>&1; then
        cat "$log"
        echo "run.sh: $seeds seeds, $operations operations, $faults faults passed; then seed $seed failed;" \
            "its history, if it was written: $history"
        exit 1
    fi
    seeds=$((seeds + 1))
    operations=$((operations + $(sed -n 's/^storm: \([0-9]*\) operations.*/\1/p' "$log")))
    faults=$((faults + $(sed -n 's/^  N[0-9]* .*: \([0-9]*\)$/\1/p' "$log" | paste -sd+)))
    again=$(sed -n 's/^storm: all served again within \([0-9.]*\) s.*/\1/p' "$log")
    slowest=$(sort -g <<<"$slowest"$'\n'"$again" | tail -n 1)
    echo "run.sh: seed $seed: $(sed -n 's/^storm: \(.* operations.*\)/\1/p' "$log"); all served again within $again s"
    grep '^storm: all is quiet' "$log"
done
rm -f "$history"
echo "run.sh: $seeds seeds, $operations operations, $faults faults, all served again within $slowest s at most," \
    "no promise broken"
