#!/bin/sh
# SPDX-License-Identifier: MIT
# Measures permitd against the naive design, or how permits end, or waiting, or the examples, or the fencing guards, or
# what lists cost others, or what database it runs on, and prints the figures as Markdown.
#
#     tests/bench/run.sh [--quick] [--write] [--rounds N] [--seconds S] [--held N]
#     tests/bench/run.sh ends [--quick] [--write] [PART ...]
#     tests/bench/run.sh waiting [--quick] [--write] [PART ...]
#     tests/bench/run.sh examples [--quick] [--write] [NAME ...]
#     tests/bench/run.sh guards [--quick] [--write] [STORE ...]
#     tests/bench/run.sh reader --against PERMITD [--write] [--rounds N] [--seconds S]
#     tests/bench/run.sh reads [--write] [--rows N] [--seconds S]
#     tests/bench/run.sh databases [--write] [--database mariadb|mysql] [--rounds N] [--seconds S]
#     tests/bench/run.sh clean [--rows N] [--seconds S] [--clients N] [--limit SECONDS]
#
# databases  MariaDB and MySQL, each without and with its binary log, by turns; the MySQL of tests/mysql/root.sh
# reader   what reading HTTP costs, by turns with another permitd: one that was built before
# clean    what the cleaner costs: 5,000,000 ended requests removed while the hot benchmark runs (some 40 minutes)
# --quick  one short round, fewer permits held: to see that it runs, not for figures
# --write  also puts the figures between their marks in docs/performance.md
#
# PERMIT_BUILD names the build directory (default: build); it is made as a release build if it is not there.
set -eu
cd "$(dirname "$0")/../.."
build=${PERMIT_BUILD:-build}

program=bench
marks=figures
case ${1-} in
ends)
    program=bench_ends
    marks=ends
    shift
    ;;
waiting)
    program=bench_waiting
    marks=waiting
    shift
    ;;
examples)
    program=examples
    marks=examples
    shift
    ;;
guards)
    program=bench_guards
    marks=guards
    shift
    ;;
reader)
    program=bench_reader
    marks=reader
    shift
    ;;
reads)
    program=bench_reads
    marks=reads
    shift
    ;;
databases)
    program=bench_databases
    marks=databases
    if root=$(tests/mysql/root.sh); then
        export PERMIT_MYSQL_ROOT="$root"
    else
        echo "$root" >&2 # MariaDB alone is measured
        unset PERMIT_MYSQL_ROOT
    fi
    shift
    ;;
clean)
    program=clean_bench
    marks=clean
    shift
    ;;
esac

write=no
for argument do
    shift
    case $argument in
    --write) write=yes ;;
    *) set -- "$@" "$argument" ;;
    esac
done

[ -f "$build/CMakeCache.txt" ] || cmake -S . -B "$build" -DCMAKE_BUILD_TYPE=Release >&2
cmake --build "$build" -j "$(nproc)" --target permitd "$program" loadgen naive >&2

kept=yes # examples: whether they did what they claim
figures=$(mktemp)
trap 'rm -f "$figures" "$figures.new"' EXIT
if [ "$program" = examples ]; then
    PERMIT_BUILD=$(cd "$build" && pwd) tests/bench/examples.sh "$@" > "$figures" || kept=no
else
    "$build/tests/bench/$program" "$@" > "$figures"
fi
cat "$figures"

if [ "$write" = yes ]; then
    awk -v figures="$figures" -v begin="<!-- $marks: begin" -v end="<!-- $marks: end" '
        index($0, end) == 1    { inside = 0 }
        !inside                { print }
        index($0, begin) == 1  { inside = 1; while ((getline line < figures) > 0) print line }
    ' docs/performance.md > "$figures.new"
    cat "$figures.new" > docs/performance.md
fi
[ "$kept" = yes ]
