#!/bin/sh
# SPDX-License-Identifier: MIT
# Measures permitd against the naive design, or the ends of permits, waiting, the queue, the examples, the fencing
# guards, HTTP, lists, batches, databases, or permitd beside other services, and prints the figures as Markdown.
#
#     tests/bench/run.sh [--quick] [--write] [--rounds N] [--seconds S] [--held N]
#     tests/bench/run.sh ends [--quick] [--write] [PART ...]
#     tests/bench/run.sh waiting [--quick] [--write] [PART ...]
#     tests/bench/run.sh queue [--quick] [--write] [--before PERMITD] [PART ...]
#     tests/bench/run.sh access [--quick] [--write] [PART ...]
#     tests/bench/run.sh examples [--quick] [--write] [NAME ...]
#     tests/bench/run.sh guards [--quick] [--write] [STORE ...]
#     tests/bench/run.sh reader --against PERMITD [--write] [--rounds N] [--seconds S]
#     tests/bench/run.sh writes --against PERMITD [--write] [--rounds N] [--seconds S]
#     tests/bench/run.sh reads [--write] [--rows N] [--seconds S]
#     tests/bench/run.sh databases [--write] [--database mariadb|mysql] [--rounds N] [--seconds S]
#     tests/bench/run.sh peers [--quick] [--write] [--before PERMITD] [--peers] [--rounds N] [--seconds S]
#     tests/bench/run.sh scale [--quick] [--write] [PART ...]
#     tests/bench/run.sh clean [--rows N] [--seconds S] [--clients N] [--limit SECONDS]
#
# databases  MariaDB and MySQL, each without and with its binary log, alternately; the MySQL of tests/mysql/root.sh
# peers    this build, the one before, several permitd, the naive design, and those of ZooKeeper and Redis that are
#          installed; --peers installs them (scripts/packages.sh)
# queue    one queue over several permitd, against another permitd, built before: turns, crowd, latency, cost, killed,
#          parked, hot
# access   credentials, tls, reconnect, memory
# reader   the cost of reading HTTP, alternately with another permitd, built before
# writes   the cost of batches in the database, on one semaphore and on 1,000, alternately with another permitd
# scale    small loads on large databases: slots, due, semaphores, ended (50,000,000 rows: 15 GiB of disk and memory)
# clean    the cost of retention: deletes 5,000,000 ended requests while the hot benchmark runs (about 40 minutes)
# --quick  one short round with fewer permits held: a trial, not for figures
# --write  also writes the figures between their marks in docs/performance.md
#
# PERMIT_BUILD names the build directory (default: build). If it is missing, the script creates a release build.
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
queue)
    program=bench_queue
    marks=queue
    shift
    ;;
examples)
    program=examples
    marks=examples
    shift
    ;;
access)
    program=bench_access
    marks=access
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
writes)
    program=bench_writes
    marks=writes
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
        echo "$root" >&2 # only MariaDB is measured
        unset PERMIT_MYSQL_ROOT
    fi
    shift
    ;;
peers)
    program=bench_peers
    marks=peers
    shift
    ;;
scale)
    program=bench_scale
    marks=scale
    shift
    ;;
clean)
    program=clean_bench
    marks=clean
    shift
    ;;
esac

write=no
peers=no
for argument do
    shift
    case $argument in
    --write) write=yes ;;
    --peers) peers=yes ;;
    *) set -- "$@" "$argument" ;;
    esac
done

if [ "$peers" = yes ]; then
    scripts/packages.sh peers
    [ ! -f "$build/CMakeCache.txt" ] || cmake "$build" >&2 # finds the client library
fi
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
