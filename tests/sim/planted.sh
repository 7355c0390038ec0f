#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# A checker counts only after it has caught planted faults. Each file of tests/sim/mutants is a patch that plants one.
# The script applies it to a copy of the sources, builds the simulation from the copy and runs it. It prints the broken
# promise and the number of operations. Every fault must be caught; without a fault the simulation must pass. The last
# line is `N passed, N failed`.
#
#     tests/sim/planted.sh [--seeds] [NUMBER ...]
#
# A patch begins with a line `M7: TITLE`. A patch that no longer applies counts as failed: write it again. The second line,
# `breaks P1 P7`, names the promises of which one must be seen broken first (`crash`: an assertion of the sources). If only
# a late seed shows the fault, a line `seed 272` follows: that seed is tried first, and then all. Without a fault these seeds
# must pass, too. A line `rare 1-9000` names the seeds that a fault needs which the suite has no time for: the script tries
# it only by its number. A line `with --feed` has options of the simulation, without which nothing shows the fault.
#
# A change of the simulation or of what it runs shifts the seeds. A fault whose line is out of date is still caught, but
# only after a walk through all seeds, which takes minutes. --seeds writes these lines anew.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1

mutants=tests/sim/mutants
seeds=1-900

writes_seeds=false
if [ "${1-}" = --seeds ]; then
    writes_seeds=true
    shift
fi

work=${PERMIT_BUILD:-$PWD/build}/planted
copy=$work/copy
log=$work/log
simulation=$work/build/tests/sim/sim
rm -rf "$work"
mkdir -p "$copy"

give_up() {
    tail -n 50 "$log"
    echo "$1"
    echo "0 passed, 1 failed"
    exit 1
}

build() { cmake --build "$work/build" -j 2 --target sim >"$log" 2>&1; }
patched() { patch -d "$copy" -p1 --force --no-backup-if-mismatch "$@" >"$log" 2>&1; }

cp -a CMakeLists.txt include src sql docs tests examples "$copy/" 2>"$log" || give_up "cannot copy the sources"
# A build type of its own: -O1, because it compiles for longer than it runs; -w, because a fault may leave a function
# without a use.
cmake -S "$copy" -B "$work/build" -G Ninja -DPERMIT_TESTS=ON -DCMAKE_BUILD_TYPE=Planted -DCMAKE_C_FLAGS_PLANTED='-O1 -w' \
    >"$log" 2>&1 || give_up "cannot configure"
build || give_up "cannot build"

passed=0
failed=0

# header WORD PATCH: what follows the word in the header of the patch; nothing if the word is not there.
header() { sed -n "2,5s/^$1 //p" "$2"; }

# True if the simulation breaks a promise; the log has it.
# shellcheck disable=SC2086 # options without spaces
is_violated() {
    local first rare with
    first=$(header seed "$1")
    rare=$(header rare "$1")
    with=$(header with "$1")
    [ -n "$first" ] && ! "$simulation" $with --until-violated --seed "$first" >"$log" && return
    ! "$simulation" $with --until-violated --seeds "${rare:-$seeds}" >"$log"
}

# True if the promise that the log shows broken is one of those that the patch names.
is_expected() {
    local promise
    for promise in $(header breaks "$1"); do
        grep -q -m 1 "^caught: $promise," "$log" && return
    done
    return 1
}

passes_without_fault() {
    local patch first
    "$simulation" --until-violated --seeds 1-10 >"$log" || return
    for patch in "$mutants"/M*.patch; do
        first=$(header seed "$patch")
        # shellcheck disable=SC2046 # options without spaces
        [ -z "$first" ] || "$simulation" $(header with "$patch") --until-violated --seed "$first" >"$log" || return
    done
}

# Writes the seed that the log shows into the patch. The first seeds need no line.
write_seed() {
    local seed
    seed=$(sed -n 's/^caught: [^,]*, seed \([0-9]*\), .*/\1/p' "$log")
    sed -i '3,5{/^seed /d}' "$1"
    [ "$seed" -le 3 ] || sed -i "2a seed $seed" "$1"
}

# report GOOD TEXT...
report() {
    if [ "$1" = true ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
    fi
    shift
    echo "$*"
}

# All patches that are not rare, in the order of the first file that each changes: the next build then compiles less.
all_patches() { grep -L '^rare ' "$mutants"/M*.patch | xargs grep -m 1 '^+++ ' | sort -s -t : -k 2 | cut -d : -f 1; }

if [ $# -eq 0 ]; then
    # shellcheck disable=SC2046 # names without spaces
    set -- $(all_patches)
    if passes_without_fault; then
        report true "no fault: passed"
    else
        cat "$log"
        report false "no fault: FAILED"
    fi
else
    set -- $(printf "$mutants/M%02d.patch " "$@")
fi
for patch in "$@"; do
    [ -f "$patch" ] || give_up "no file $patch"
    title=$(head -n 1 "$patch")
    if ! patched --dry-run <"$patch" || ! patched <"$patch"; then
        cat "$log"
        report false "$title: THE PATCH DOES NOT APPLY"
        continue
    fi
    if ! build; then
        tail -n 20 "$log"
        report false "$title: CANNOT BE BUILT"
    elif ! is_violated "$patch"; then
        report false "$title: NOT CAUGHT"
    elif ! is_expected "$patch"; then
        report false "$title: NOT CAUGHT: it should break $(header breaks "$patch"); $(grep '^caught: ' "$log")"
    else
        report true "$title: $(grep '^caught: ' "$log")"
        ! $writes_seeds || write_seed "$patch"
    fi
    patched --reverse <"$patch" || give_up "cannot reverse $patch"
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
