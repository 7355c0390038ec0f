#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Jobs: never more than two backups at once, on any machine, whatever happens to one of them.
#
#     examples/backups/run.sh    [--small]: the same; it takes some seconds
#
# Six backups at the same time; a cron job that skips a night rather than wait; a machine that loses power in the middle
# of a backup; an operator who ends one. The job itself is backup.sh and knows nothing of this.
set -uo pipefail
# shellcheck source=examples/lib/permitd.sh
. "$(dirname "$0")/../lib/permitd.sh"
here=$(dirname "$0")
export SCRATCH=$work

needs permitd permitctl
permitd_start
"$permitctl" semaphore put backups --capacity 2 --note "the disk stands two at a time" >/dev/null

held() { "$permitctl" --json holders backups | grep -o '"external_id"' | wc -l; }
ends_with() {
    local expected=$1 code=0
    shift
    "$@" || code=$?
    [ "$code" -eq "$expected" ]
}

# ---- Six at once ----

# Records start and end of each job, to count afterwards how many ran at the same time.
timed='date "+%s%N +1" >>"$0"; "$@"; code=$?; date "+%s%N -1" >>"$0"; exit $code'
jobs=()
for name in db1 db2 db3 db4 db5 db6; do
    mkdir "$work/$name"
    seq 100000 >"$work/$name/rows"
    "$permitctl" run -s backups --owner "nightly@$name" --wait 10m -- \
        sh -c "$timed" "$work/times" "$here/backup.sh" "$work/$name" "$work/$name.tar.gz" &
    jobs+=($!)
done
for job in "${jobs[@]}"; do wait "$job" || status=1; done
most=$(sort -n "$work/times" | awk '{ running += $2; if (running > most) most = running } END { print most }')
claim "six backups ran, at most $most at once" [ "$most" -le 2 ]
claim "and every archive is whole" gzip --test "$work"/db?.tar.gz

# ---- A cron job that does not wait, while a maintenance holds both places ----

"$permitctl" acquire -s backups:2 --id maintenance --ttl 1h >/dev/null
claim "a job that does not wait (-n) exits with status 75" ends_with 75 "$permitctl" run -n -s backups -- true 2>/dev/null
"$permitctl" release maintenance >/dev/null

# ---- The power goes off ----

# Both processes of the job are dead, and its permit is not released. It was renewed as long as the job lived.
"$permitctl" run -s backups --ttl 10s --id unlucky -- sh -c "echo \$\$ >$work/pid; exec sleep 1000" 2>/dev/null &
job=$!
until [ -s "$work/pid" ]; do sleep 0.02; done
disown "$job" # or this shell would report its death
kill -KILL "$job" "$(cat "$work/pid")"
claim "the dead one is still in the list: $(held) holds a place" [ "$(held)" -eq 1 ]
claim "its place comes back by itself: one that needs both waits for it, and runs" \
    "$permitctl" run -s backups:2 --wait 1m -- true
claim "the record says why" grep -q '"end_reason":"expired"' <("$permitctl" --json show unlucky)

# ---- An operator ends a job ----

rm "$work/pid"
"$permitctl" run -s backups --ttl 3s --id endless -- sh -c "echo \$\$ >$work/pid; exec sleep 1000" 2>"$work/said" &
job=$!
until [ -s "$work/pid" ]; do sleep 0.02; done
"$permitctl" force-release endless --reason "db7 is being moved" >/dev/null
claim "a job whose permit was taken away is ended, and exits with 76" ends_with 76 wait "$job"
claim "it said so: $(tail -n 1 "$work/said")" [ -s "$work/said" ]
claim "at the end no place is held" [ "$(held)" -eq 0 ]
exit "$status"
