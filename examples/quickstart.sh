#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# From nothing to six real backups, at most two of them at once.
#
# Installs missing packages (scripts/packages.sh), builds into build/, starts permitd on a private MariaDB in a
# temporary directory, creates the semaphore `backups` with capacity 2, and runs six backups at the same time as
# `permitctl run -s backups -- ...`: three directory trees are packed and three databases dumped. Then it checks the
# time stamps of the jobs, and exits non-zero if more than two ever overlapped. It removes everything but build/ at the
# end, also after Ctrl-C.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
build=$root/build
capacity=2
jobs=(tree-1 tree-2 tree-3 database-1 database-2 database-3)

# ---- Cleaning up ----

work=
permitd_pid=
running=()

clean_up() {
    local status=$?
    trap '' INT TERM HUP
    for pid in ${running[@]+"${running[@]}"} $permitd_pid; do
        kill "$pid" 2>/dev/null || true
    done
    for pid in ${running[@]+"${running[@]}"} $permitd_pid; do
        wait "$pid" 2>/dev/null || true
    done
    [ -z "$work" ] || rm -rf "$work"
    exit "$status"
}
trap clean_up EXIT
trap 'echo "quickstart: line $LINENO failed" >&2' ERR
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

fail() {
    echo "quickstart: $*" >&2
    exit 1
}

# ---- Getting it ----

echo "== Installing what is missing, building"
"$root/scripts/packages.sh" build
[ -f "$build/CMakeCache.txt" ] || cmake -S "$root" -B "$build" -G Ninja -DPERMIT_TESTS=OFF >/dev/null
cmake --build "$build" --target permitd permitctl -j "$(nproc)" | tail -n 1
permitctl=$build/permitctl

# ---- permitd, on a MariaDB of its own ----

work=$(mktemp -d "${TMPDIR:-/tmp}/permitd-quickstart.XXXXXX")
data=$work/permitd
echo
echo "== Starting permitd --data-dir $data"
: >"$work/permitd.out" # it may be read before permitd starts
export PERMITD_ALLOW_ROOT=true # only here: a trial in a temporary directory
"$build/permitd" --data-dir "$data" --listen 127.0.0.1:0 >"$work/permitd.out" 2>"$work/permitd.log" &
permitd_pid=$!
for _ in $(seq 1800); do
    PERMITD_URL=$(sed -n 's/^permitd: listening on //p' "$work/permitd.out")
    [ -z "$PERMITD_URL" ] || break
    kill -0 "$permitd_pid" 2>/dev/null || break
    sleep 0.1
done
[ -n "$PERMITD_URL" ] || { tail -n 20 "$work/permitd.log" >&2; fail "permitd does not serve"; }
export PERMITD_URL
echo "permitd serves on $PERMITD_URL"
"$permitctl" semaphore put backups --capacity "$capacity" --note "disk and network stand two at a time" >/dev/null
echo "permitctl semaphore put backups --capacity $capacity"

# ---- Something to back up ----

# A tree of some 20 MB, half of it compressible.
make_tree() {
    mkdir -p "$1"
    for file in 1 2 3 4; do
        head -c 2500000 /dev/urandom >"$1/random.$file"
        seq --format="line %.0f of tree ${1##*/}, file $file" 80000 >"$1/text.$file"
    done
}

sql() { mariadb --no-defaults --protocol=socket --socket="$data/mariadb.sock" --user=root "$@"; }

make_database() {
    sql -e "CREATE DATABASE $1; USE $1;
            CREATE TABLE orders (id INT PRIMARY KEY, customer CHAR(64), note VARCHAR(255));
            INSERT INTO orders SELECT seq, SHA2(seq, 256), REPEAT(MD5(seq), 7) FROM seq_1_to_40000"
}

echo
echo "== Making three directory trees and three databases"
for number in 1 2 3; do
    make_tree "$work/tree-$number"
    make_database "shop_$number"
done
du -sh "$work"/tree-* | sed "s|$work/||"

# ---- Six backups at once ----

# The command of each job under its permit: records its own times, its token and its slot.
cat >"$work/backup" <<'JOB'
#!/usr/bin/env bash
set -euo pipefail
name=$1 work=$2 socket=$3
from=$(date +%s%3N)
case $name in
tree-*) tar -C "$work" -cz -f "$work/$name.tar.gz" "$name" ;;
database-*) mariadb-dump --no-defaults --socket="$socket" --user=root "shop_${name##*-}" | gzip >"$work/$name.sql.gz" ;;
esac
echo "$from $(date +%s%3N) $PERMIT_TOKEN $PERMIT_SLOTS" >"$work/$name.ran"
JOB
chmod +x "$work/backup"

echo
echo "== Six backups at once: permitctl run -s backups -- ..."
started=$(date +%s%3N)
for name in "${jobs[@]}"; do
    date +%s%3N >"$work/$name.asked"
    "$permitctl" run -s backups --id "$name" -- "$work/backup" "$name" "$work" "$data/mariadb.sock" &
    running+=($!)
done
for index in "${!jobs[@]}"; do
    wait "${running[$index]}" || fail "${jobs[$index]} ended with status $?"
done
running=()

# ---- What happened ----

seconds() { printf '%d.%03d' $(($1 / 1000)) $(($1 % 1000)); }

echo
echo "Seconds since the first was started, by the jobs' own time stamps:"
printf '%-12s %12s %10s %10s %7s %6s %9s\n' job "waited from" "ran from" to token slot size
for name in "${jobs[@]}"; do
    read -r from to token slot <"$work/$name.ran"
    asked=$(cat "$work/$name.asked")
    size=$(du -h "$work/$name".*.gz | cut -f 1)
    echo "$from $(printf '%-12s %12s %10s %10s %7s %6s %9s' "$name" "$(seconds $((asked - started)))" \
        "$(seconds $((from - started)))" "$(seconds $((to - started)))" "$token" "$slot" "$size")"
done | sort -n | cut -d ' ' -f 2-

# Counts the running jobs at each start and end. An end sorts before a start in the same millisecond.
most=$(for name in "${jobs[@]}"; do
    read -r from to _ <"$work/$name.ran"
    printf '%s +1\n%s -1\n' "$from" "$to"
done | sort -k 1,1n -k 2,2n | awk '{ running += $2; if (running > most) most = running } END { print most }')
echo
[ "$most" -le "$capacity" ] || fail "$most backups ran at once"
echo "Never more than $most ran at once. All six archives are whole:"
for archive in "$work"/*.gz; do
    gzip --test "$archive" || fail "$archive is broken"
done
echo "gzip --test has found no fault."

cat <<END

To start permitd for good, on a MariaDB of its own, as root:

    useradd --system permitd
    $build/permitd --data-dir /var/lib/permitd      # becomes the user permitd

and then, from any program or cron job on this machine:

    $permitctl semaphore put backups --capacity 2
    $permitctl run -s backups -- your-backup-command

To install both, as root (README.md says more):

    cmake --build $build && cmake --install $build
END
