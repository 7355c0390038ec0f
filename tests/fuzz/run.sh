#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Builds the fuzzers with clang and runs them, two at a time: first each input of tests/fuzz/corpus, then new inputs derived
# from these.
#
#     tests/fuzz/run.sh [--seconds N] [--jobs N] [--plain] [--coverage] [TARGET ...]
#
# --seconds: time for new inputs, for each target (default 10; 0: only the corpus). New inputs that reach more code are kept
# in build-fuzz/found/TARGET, and the next run continues from them. An input that breaks a promise is kept in
# build-fuzz/broken, and the last lines show how to run it again. --plain: without sanitizers, in build-fuzz-plain, which
# compares several times as many inputs a second. --coverage: prints the lines of src/ that were reached, instead of
# searching for new inputs. The last line is `N passed, N failed`, by targets.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1

build='build-fuzz'
targets=(parser request body reply print settings credentials authorization addresses log names duration times slots tls)
seconds=10
jobs=2
coverage=OFF
sanitize=ON
chosen=()

usage() {
    sed -n '3,12s/^# \{0,1\}//p' "$0" >&2
    exit 64
}

while [ $# -gt 0 ]; do
    case "$1" in
    --seconds | --jobs)
        [[ ${2:-} =~ ^[0-9]+$ ]] || usage
        [ "$1$2" != --jobs0 ] || usage
        printf -v "${1#--}" '%s' "$2"
        shift
        ;;
    --plain)
        sanitize=OFF
        build='build-fuzz-plain'
        ;;
    --coverage)
        coverage=ON
        build='build-fuzz-coverage'
        ;;
    -*) usage ;;
    *)
        [[ " ${targets[*]} " == *" $1 "* ]] || usage
        chosen+=("$1")
        ;;
    esac
    shift
done
[ ${#chosen[@]} -gt 0 ] || chosen=("${targets[@]}")

# Bytes of an input: dozens of operations, or of answers; larger ones are slower and reach no further.
largest=4096
# A smaller quarantine of the sanitizer: twice as many inputs a second.
export ASAN_OPTIONS=quarantine_size_mb=32:detect_leaks=1:abort_on_error=0
export UBSAN_OPTIONS=print_stacktrace=1

build_targets() {
    cmake -S tests/fuzz -B "$build" -G Ninja -DCMAKE_C_COMPILER=clang -DPERMIT_COVERAGE="$coverage" \
        -DPERMIT_SANITIZE="$sanitize" &&
        cmake --build "$build" -j "$jobs" --target "${chosen[@]/#/fuzz_}"
}

# value NAME LOG: prints a value of libFuzzer's final statistics.
value() { sed -nE "s/^stat::$1: *([0-9]+)$/\1/p" "$2" | tail -n 1; }

# Prints the command that runs one input again.
again() { echo "$build/fuzz_$1 $2"; }

# run TARGET: prints one line of result; status 0 if no promise was broken.
run() {
    local target=$1 log=$build/logs/$1.log budget=(-max_total_time="$seconds") status=0 broken
    mkdir -p "$build/found/$target" "$build/broken" "$build/logs"
    [ "$seconds" -gt 0 ] || budget=(-runs=0)
    "$build/fuzz_$target" "${budget[@]}" -max_len=$largest -timeout=30 -rss_limit_mb=2048 -print_final_stats=1 \
        -dict="tests/fuzz/words/$target" -artifact_prefix="$build/broken/$target-" \
        "$build/found/$target" "tests/fuzz/corpus/$target" >"$log" 2>&1 || status=$?
    if [ "$status" -ne 0 ]; then
        echo "---- $target (exit $status): $log"
        grep -aE 'broken:|runtime error:|ERROR:|SUMMARY:' "$log" | head -n 5
        broken=$(sed -nE 's/.*Test unit written to (.*)$/\1/p' "$log" | tail -n 1)
        [ -z "$broken" ] || echo "run it again: $(again "$target" "$broken")"
        return 1
    fi
    printf '%-10s %9d inputs, %d of them from the tree; %s\n' "$target" "$(value number_of_executed_units "$log")" \
        "$(find "tests/fuzz/corpus/$target" -type f | wc -l)" \
        "$(grep -aoE 'cov: [0-9]+ ft: [0-9]+' "$log" | tail -n 1 | sed 's/cov: \(.*\) ft: \(.*\)/\1 edges, \2 features/')"
}

# Prints the lines that the corpus and the found inputs reach, by file.
cover() {
    local target version profiles=() programs=()
    mkdir -p "$build/profiles"
    for target in "${chosen[@]}"; do
        mkdir -p "build-fuzz/found/$target"
        LLVM_PROFILE_FILE=$build/profiles/$target.raw "$build/fuzz_$target" -runs=0 "tests/fuzz/corpus/$target" \
            "build-fuzz/found/$target" >/dev/null 2>&1
        profiles+=("$build/profiles/$target.raw")
        programs+=(-object "$build/fuzz_$target")
    done
    version=$(clang -dumpversion)
    version=${version%%.*}
    "llvm-profdata-$version" merge -o "$build/profiles/all" "${profiles[@]}" &&
        "llvm-cov-$version" report "${programs[@]:1}" -instr-profile "$build/profiles/all" -ignore-filename-regex=tests/fuzz/
}

if ! output=$(build_targets 2>&1); then
    tail -n 50 <<<"$output"
    echo "fuzz: the targets cannot be built: 0 passed, 1 failed"
    exit 1
fi
if [ "$coverage" = ON ]; then
    cover
    exit
fi

results=$(mktemp -d) || exit 1
trap 'rm -rf "$results"' EXIT
for target in "${chosen[@]}"; do
    while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do
        wait -n
    done
    { run "$target" && touch "$results/$target"; } &
done
wait
passed=$(find "$results" -type f | wc -l)
failed=$((${#chosen[@]} - passed))
tried=0
for target in "${chosen[@]}"; do
    units=$(value number_of_executed_units "$build/logs/$target.log") # none after a crash
    tried=$((tried + ${units:-0}))
done
echo "fuzz: $tried inputs tried: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
