#!/bin/sh
# SPDX-License-Identifier: MIT
# Measures permitd against the naive design, or the ends of permits, waiting, the queue, the examples, the fencing
# guards, HTTP, lists, batches, databases, or permitd beside other services, and prints the figures as Markdown. The figures
# that docs/performance.md keeps are written there by hand.
#
#     tests/bench/run.sh [--quick] [--rounds N] [--seconds S] [--held N]
#     tests/bench/run.sh ends [--quick] [PART ...]
#     tests/bench/run.sh waiting [--quick] [PART ...]
#     tests/bench/run.sh queue [--quick] [--before PERMITD] [PART ...]
#     tests/bench/run.sh access [--quick] [PART ...]
#     tests/bench/run.sh examples [--quick] [NAME ...]
#     tests/bench/run.sh guards [--quick] [STORE ...]
#     tests/bench/run.sh reader --against PERMITD [--rounds N] [--seconds S]
#     tests/bench/run.sh writes --against PERMITD [--rounds N] [--seconds S]
#     tests/bench/run.sh reads [--rows N] [--seconds S]
#     tests/bench/run.sh availability [--rounds N] [--seconds S] [--rate N]
#     tests/bench/run.sh sale [--rounds N] [--seconds S] [--clients N] [--open S]
#     tests/bench/run.sh seats [--rounds N] [--groups N] [--clients N] [--clicks N] [--clickers N]
#     tests/bench/run.sh events [--rounds N] [--seconds S]
#     tests/bench/run.sh databases [--database mariadb|mysql] [--rounds N] [--seconds S]
#     tests/bench/run.sh peers [--quick] [--before PERMITD] [--peers] [--rounds N] [--seconds S]
#     tests/bench/run.sh scale [--quick] [PART ...]
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
# sale     an order with CALL permit_confirm, and open transactions of shops beside others
# seats    groups that take the best seats together beside groups that name their seats, and many clicks on one seat
# events   the cost of the feed, and reservations of 10 units in batches, without and with their releases
# clean    the cost of retention: deletes 5,000,000 ended requests while the hot benchmark runs (about 40 minutes)
# --quick  one short round with fewer permits held: a trial, not for figures
#
# PERMIT_BUILD names the build directory (default: build). If it is missing, the script creates a release build.
set -eu
cd "$(dirname "$0")/../.."
build=${PERMIT_BUILD:-build}

program=bench
case ${1-} in
ends)
    program=bench_ends
    shift
    ;;
waiting)
    program=bench_waiting
    shift
    ;;
queue)
    program=bench_queue
    shift
    ;;
examples)
    program=examples
    shift
    ;;
access)
    program=bench_access
    shift
    ;;
guards)
    program=bench_guards
    shift
    ;;
reader)
    program=bench_reader
    shift
    ;;
writes)
    program=bench_writes
    shift
    ;;
reads)
    program=bench_reads
    shift
    ;;
availability)
    program=bench_availability
    shift
    ;;
sale)
    program=bench_sale
    shift
    ;;
seats)
    program=bench_seats
    shift
    ;;
events)
    program=bench_events
    shift
    ;;
databases)
    program=bench_databases
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
    shift
    ;;
scale)
    program=bench_scale
    shift
    ;;
clean)
    program=clean_bench
    shift
    ;;
esac

peers=no
for argument do
    shift
    case $argument in
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

if [ "$program" = examples ]; then
    PERMIT_BUILD=$(cd "$build" && pwd)
    export PERMIT_BUILD
    exec tests/bench/examples.sh "$@"
fi
exec "$build/tests/bench/$program" "$@"
