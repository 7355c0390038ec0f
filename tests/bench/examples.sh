#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Prints the figures of the examples at full size, as Markdown. tests/bench/run.sh examples runs it.
#
#     examples.sh [--quick] [NAME ...]     ad_inventory, flash_sale, seat_map
#
# ad_inventory: a minute with a kill every 15 s, then 100 kills. The others: five times; the slowest is shown.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1

kills=100 rounds=5
if [ "${1-}" = --quick ]; then
    kills=5 rounds=2
    shift
fi
parts=("$@")
[ $# -gt 0 ] || parts=(ad_inventory flash_sale seat_map)

work=$(mktemp -d "${TMPDIR:-/tmp}/permit-figures.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
status=0

# measure FILE NAME [ARGUMENT...]: runs once and appends its rows to FILE. Reports a run whose claims did not hold.
measure() {
    local file=$1 name=$2
    shift 2
    PERMIT_FIGURES=$file "examples/$name/run.sh" "$@" >"$work/out" 2>&1 || status=1
    ! grep '^NOT SO' "$work/out" || status=1
    sed "s/^/$name: /" "$work/out" >&2
}

# Prints the slowest of several runs, by "in N s", and the median; reached if all runs reached it.
slowest() {
    sed -E 's/.* in ([0-9.]+) s.*/\1 &/' "$1" | sort -n | awk -F ' \\| ' '
        { split($0, first, " "); seconds[NR] = first[1]; row = $0; if (/\*\*no\*\*/) no++ }
        END {
            sub(/^[0-9.]+ /, "", row)
            sub(/ \| [^|]* \|$/, "", row)
            print row "; the slowest of " NR ", median " seconds[int((NR + 1) / 2)] " s | " (no ? "**no** (" no " of " NR ")" : "yes") " |"
        }'
}

crowd() {
    for ((round = 0; round < rounds; round++)); do measure "$work/$1" "$1"; done
    slowest "$work/$1"
}

# Rates and times are of the run with fewer kills; losses are counted over all kills.
ad_inventory() {
    measure "$work/minute" ad_inventory
    grep -v 'lost' "$work/minute"
    measure "$work/kills" ad_inventory --kills "$kills"
    grep 'sold + held' "$work/kills"
    grep 'lost' "$work/kills" | sed "s/or given to two |/or given to two, over $kills kills |/"
}

echo "- Date: $(date -u '+%Y-%m-%d %H:%M UTC'), load before: $(cut -d ' ' -f 1 /proc/loadavg)"
echo "- Machine: $(nproc) cores, $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)," \
    "$(awk '/MemTotal/ { printf "%.0f", $2 / 1048576 }' /proc/meminfo) GiB of memory, which clients, permitd and MariaDB share"
echo "- Software: $(build/permitd --version), $(mariadbd --version | sed -E 's/.*Ver ([^ ]+).*/MariaDB \1/'), Linux $(uname -r)"
echo
echo "| figure | target | measured | reached |"
echo "|---|---|---|---|"
for part in "${parts[@]}"; do
    case $part in
    ad_inventory) ad_inventory ;;
    flash_sale | seat_map) crowd "$part" ;;
    *) echo "examples.sh: no figures of $part" >&2 && exit 64 ;;
    esac
done
exit "$status"
