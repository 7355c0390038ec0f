#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Builds permitd with warnings as errors and runs its tests; the last line is `N passed, N failed`.
#
#     tests/run.sh [--preset NAME] [--permitd NAME] [--lanes N] [--label LABEL | SUITE ...]
#
# Without names: the suites of tests/suites but those with the label chaos, which take longer. --label chaos runs these,
# and --label all runs all. --lanes: so many suites side by side (3): most of the time they wait. With names, only what
# these suites run is built.
# --preset asan: everything under that sanitizer (CMakePresets.json). --permitd tsan: the suites as they are, but the
# permitd that they start is that of another preset (Criterion cannot be run under the thread sanitizer). Installs what is
# missing with scripts/packages.sh. Needs no server that it does not start itself. Output: BUILD/test-logs/SUITE.log.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

# name label counts seconds command, one line per suite.
suites=$(grep -v '^#' tests/suites)

usage() {
    sed -n '3,13s/^# \{0,1\}//p' "$0" >&2
    exit 64
}

preset=release
permitd=
lanes=3
labels='fast server fuzz'
chosen=()
while [ $# -gt 0 ]; do
    case "$1" in
    --preset)
        [ $# -gt 1 ] || usage
        preset=$2
        shift
        ;;
    --permitd)
        [ $# -gt 1 ] || usage
        permitd=$2
        shift
        ;;
    --lanes)
        [[ ${2-} =~ ^[1-9][0-9]*$ ]] || usage
        lanes=$2
        shift
        ;;
    --label)
        [ "${2-}" = all ] || grep -qE "^[a-z_]+ +${2-} " <<<"$suites" || usage
        labels=$2
        [ "$2" != all ] || labels='fast server fuzz chaos'
        shift
        ;;
    -*) usage ;;
    *)
        grep -q "^$1 " <<<"$suites" || { echo "run.sh: no suite $1" >&2 && exit 64; }
        chosen+=("$1")
        ;;
    esac
    shift
done
# The directory that CMakePresets.json gives a preset.
directory() { [ "$1" = release ] && echo "$PWD/build" || echo "$PWD/build-$1"; }

build=$(directory "$preset")
export PERMIT_BUILD=$build # for the suites that are scripts
logs=$build/test-logs

passed=0
failed=0

finish() {
    echo "$passed passed, $failed failed"
    [ "$failed" -eq 0 ]
    exit
}

# One step before the tests: its output only if it fails, and then there is nothing to test.
prepare() {
    local log=$logs/$1.log
    shift
    if ! "$@" >"$log" 2>&1 </dev/null; then
        tail -n 200 "$log"
        echo "run.sh: failed: $*"
        failed=1
        finish
    fi
}

# configure PRESET: quickstart.sh makes build/ without tests.
configure() {
    local generator=()
    [ -f "$(directory "$1")/CMakeCache.txt" ] || generator=(-G Ninja)
    cmake --preset "$1" -DPERMIT_TESTS=ON "${generator[@]}"
}

# The programs that the chosen suites run; "all" without names, or if one of the suites is a script that runs others.
targets() {
    local name command programs=(permitd permitctl)
    [ ${#chosen[@]} -gt 0 ] || programs=(all)
    for name in "${chosen[@]}"; do
        command=$(awk -v name="$name" '$1 == name { print $5 }' <<<"$suites")
        case "$command" in
        {bin}/*) programs+=("${command##*/}") ;;
        tests/cli/run.sh) programs+=(cli) ;;
        *) programs=(all) && break ;;
        esac
    done
    echo "${programs[@]}"
}

# number_before WORD FILE: N of the last "N WORD" in the last line of FILE that has one.
number_before() {
    grep -aE "[0-9]+ passed, [0-9]+ failed" "$2" | tail -n 1 | grep -aoE "[0-9]+ $1" | grep -oE '[0-9]+'
}

# number_after WORD FILE: N of "WORD: N" in Criterion's synthesis.
number_after() {
    grep -a 'Synthesis:' "$2" | tail -n 1 | grep -aoE "$1: [0-9]+" | grep -oE '[0-9]+'
}

# Sets good and bad to what a finished suite reports, and why to its line `skipped: WHY` if it has one. A suite that reports
# nothing, or that fails without saying in which test, has one failure.
count() {
    local how=$1 log=$2 status=$3 crashed
    why=
    good=0
    bad=0
    case "$how" in
    criterion)
        good=$(number_after Passing "$log")
        bad=$(number_after Failing "$log")
        crashed=$(number_after Crashing "$log")
        bad=$((${bad:-0} + ${crashed:-0}))
        ;;
    lines)
        good=$(number_before passed "$log")
        bad=$(number_before failed "$log")
        ;;
    exit) [ "$status" -ne 0 ] || good=1 ;;
    esac
    good=${good:-0}
    bad=${bad:-0}
    why=$(grep -a '^skipped: ' "$log" | tail -n 1) # it cannot be run here, and says why
    if [ "$bad" -eq 0 ] && { [ "$status" -ne 0 ] || { [ "$good" -eq 0 ] && [ -z "$why" ]; }; }; then
        bad=1
    fi
}

# Shows what has failed, wherever it stands in the log, and the end of it.
show_failures() {
    grep -aE -A 8 '^(not ok|FAILED|\[----\]|\[FAIL\])' "$1" | head -n 120
    echo "..."
    tail -n 60 "$1"
}

# Leaves its two numbers in NAME.counts, and what is to be shown in NAME.shown. What runs in the background would ignore the
# signals of a keyboard, which some suites send.
run_suite() {
    local name=$1 how=$2 seconds=$3
    shift 3
    local command=("${@//\{bin\}/$build/tests}")
    command=("${command[@]//\{build\}/$build}")
    [ "$how" != criterion ] || command+=(--color=never)
    local log=$logs/$name.log started=$SECONDS status=0 note=''
    LC_ALL=C timeout -k 10 "$seconds" env --default-signal=INT,QUIT "${command[@]}" >"$log" 2>&1 </dev/null &
    local pid=$!
    trap 'kill "$pid"; exit 143' TERM
    wait "$pid" || status=$?
    count "$how" "$log" "$status"
    [ -z "$why" ] || note=", $why"
    if grep -aqE 'ERROR: (Address|Leak)Sanitizer|WARNING: ThreadSanitizer|: runtime error: ' "$log"; then
        bad=$((bad + 1)) # Criterion passes a test whose process ends with a leak
        note=', a sanitizer reports'
    fi
    case "$status" in
    124 | 137) note=", not done after $seconds s" ;;
    126 | 127) note=", could not be run" ;;
    esac
    {
        if [ "$bad" -gt 0 ]; then
            echo "---- $name (exit $status$note)"
            show_failures "$log"
            echo "----"
        fi
        printf '%-12s %5d passed %5d failed %5d s%s\n' "$name" "$good" "$bad" $((SECONDS - started)) "$note"
    } >"$logs/$name.shown"
    echo "$good $bad" >"$logs/$name.counts"
}

# Shows and adds what has ended since the last look.
collect() {
    local counts
    for counts in "$logs"/*.counts; do
        [ -e "$counts" ] || continue
        cat "${counts%.counts}.shown"
        read -r good bad <"$counts"
        passed=$((passed + good))
        failed=$((failed + bad))
        rm -f "$counts" "${counts%.counts}.shown"
    done
}

[ "$preset" != libmysqlclient ] || export PERMIT_MYSQL_CLIENT=mysql # for packages.sh
mkdir -p "$logs"
prepare packages scripts/packages.sh test
prepare configure configure "$preset"
# shellcheck disable=SC2046 # names of targets
prepare build cmake --build "$build" -j 2 --target $(targets)
if [ -n "$permitd" ]; then
    prepare configure-permitd configure "$permitd"
    prepare build-permitd cmake --build "$(directory "$permitd")" -j 2 --target permitd
    PERMIT_PERMITD=$(directory "$permitd")/permitd
    export PERMIT_PERMITD # tests/lib and tests/cli start this one
fi
# What a sanitizer takes is not permitd's memory.
[ "$preset$permitd" = release ] || export PERMITD_MAX_MEMORY=64GiB

rm -f "$logs"/*.counts
trap 'kill $(jobs -rp) 2>/dev/null; wait; exit 130' INT TERM
while read -r name label how seconds command; do
    if [ ${#chosen[@]} -gt 0 ]; then
        [[ " ${chosen[*]} " == *" $name "* ]] || continue
    else
        [[ " $labels " == *" $label "* ]] || continue
    fi
    while [ "$(jobs -rp | wc -l)" -ge "$lanes" ]; do
        wait -n
        collect
    done
    # shellcheck disable=SC2086 # a command of the table is words
    run_suite "$name" "$how" "$seconds" $command &
done < <(sort -s -k 4,4nr <<<"$suites") # the longest first: at the end no long one runs alone
wait
collect
finish
