#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# permitd as a distributed service: three permitd on a replicated MariaDB, and jobs that know all three. In turn a
# permitd, the primary database and another permitd are killed with SIGKILL; no job notices.
#
#     examples/cluster/run.sh    [--small]: the same; it takes some 15 seconds
#
# db1 is the primary, db2 its semi-synchronous replica: db1 answers a COMMIT only after db2 has received it, so a grant
# that a client has seen survives the loss of db1. All permitd have one address of the database, the symbolic link
# primary.sock. After a failover it leads to db2. It has the part of a floating address, a proxy or a DNS name.
#
# Jobs that wait stand in one queue, in rows of the database. A job whose permitd is killed asks again at another, under
# its key, and has the place that it had.
#
# The jobs (job.sh) record when they begin and end; check.awk compares these intervals at the end.
set -uo pipefail
# shellcheck source=examples/lib/permitd.sh
. "$(dirname "$0")/../lib/permitd.sh"
here=$(dirname "$0")
PATH=$PATH:/usr/sbin:/usr/local/sbin # mariadbd

capacity=3
patience=60 # seconds, for each condition that is awaited
database="mysql://permitd@/permitd?socket=$work/primary.sock"
names=(archive mail wiki shop files photos chat forum ledger music maps)
declare -A expected=([ledger]=3) # exit status; otherwise 0
declare -A job=()             # pids of permitctl run
leader=                       # number of the MariaDB to which primary.sock leads
server=() port=()             # of MariaDB: pids, ports
permitd=() address=()         # of permitd: pids of those that are alive, HOST:PORT
as_root=()
[ "$(id -u)" -ne 0 ] || as_root=(--user=root) # which mariadbd asks for

# ---- What happens, line by line ----

started=${EPOCHREALTIME/[^0-9]/}
shown=0 # lines of the record that were printed

# Prints the seconds since a time.
seconds() {
    local tenths=$(((${EPOCHREALTIME/[^0-9]/} - $1) / 100000))
    echo $((tenths / 10)).$((tenths % 10))
}

say() { printf '%5s s  %s\n' "$(seconds "$started")" "$*"; }

# Prints what jobs have recorded since the last call.
show_jobs() {
    local what name token slot
    while read -r what name token slot; do
        shown=$((shown + 1))
        case $what in
        begin) say "    $name begins: token $token, slot $slot" ;;
        end) say "    $name ends" ;;
        esac
    done < <(tail -n +$((shown + 1)) "$work/record")
}

show_logs() {
    local log
    for log in "$work"/*.log; do
        [ ! -s "$log" ] || { echo "== $(basename "$log")" && tail -n 8 "$log"; } >&2
    done
}

# The example cannot go on: prints the sentence that does not hold, and the logs.
give_up() {
    echo "NOT SO - $*"
    show_logs
    exit 1
}

# await SENTENCE COMMAND...: waits until the command succeeds.
await() {
    local sentence=$1 until=$((SECONDS + patience))
    shift
    until "$@"; do
        [ "$SECONDS" -lt "$until" ] || give_up "$sentence (not within $patience s)"
        show_jobs
        sleep 0.1
    done
    show_jobs
}

# Jobs read it at any time, so it is replaced in one step.
stage() {
    echo "$1" >"$work/stage.new"
    mv "$work/stage.new" "$work/stage"
}

# await_claim SENTENCE COMMAND...: waits until the sentence holds.
await_claim() {
    await "$@"
    claim "$1" true
}

begun() { [ "$(grep -c '^begin ' "$work/record")" -ge "$1" ]; }
end_at_once() { kill -KILL "$1" && wait "$1" 2>/dev/null; }

# ---- MariaDB ----

# query NUMBER STATEMENTS [OPTION]
query() {
    mariadb --no-defaults --protocol=socket --socket="$work/db$1.sock" --user=root --batch --skip-column-names \
        "${@:3}" -e "$2"
}
status_is() { [ "$(query "$1" "SHOW GLOBAL STATUS LIKE '$2'" 2>/dev/null | cut -f 2)" = "$3" ]; }
answers() { kill -0 "${server[$1]}" 2>/dev/null || give_up "db$1 starts" && query "$1" "DO 1" 2>/dev/null; }
replica_status() { query "$1" "SHOW REPLICA STATUS\G" --column-names | sed -n "s/^ *$2: //p"; }
replicates() { [ "$(replica_status "$1" Slave_IO_Running)$(replica_status "$1" Slave_SQL_Running)" = YesYes ]; }

# database_start NUMBER: starts a server that refuses writes, until it is told to be the primary.
#
# init-rpl-role and rpl-semi-sync-slave-enabled matter after a crash of a primary: a transaction that no replica had
# received, and that therefore was not answered, is rolled back and removed from its binary log.
# The time-out of semi-synchronous replication is an hour: rather than go on without a replica, a primary waits.
database_start() {
    local number=$1 endpoint
    endpoint=$(free_address)
    port[number]=${endpoint#*:}
    rm -f "$work/db$number.sock" # of a server that was killed
    mariadbd --no-defaults "${as_root[@]}" --datadir="$work/db$number" --socket="$work/db$number.sock" \
        --pid-file="$work/db$number.pid" --tmpdir="$work" --bind-address=127.0.0.1 --port="${port[number]}" \
        --skip-name-resolve --character-set-server=utf8mb4 --innodb-buffer-pool-size=32M --innodb-log-file-size=8M \
        --innodb-flush-log-at-trx-commit=1 --server-id="$number" --log-bin=binlog --sync-binlog=1 --binlog-format=ROW \
        --log-slave-updates --gtid-strict-mode=1 --skip-slave-start --read-only --init-rpl-role=SLAVE \
        --rpl-semi-sync-slave-enabled=1 --rpl-semi-sync-master-wait-point=AFTER_SYNC \
        --rpl-semi-sync-master-timeout=3600000 >>"$work/db$number.log" 2>&1 &
    server[number]=$!
    await "db$number starts" answers "$number"
}

# replicate FROM TO: TO follows FROM, from its own position on, and FROM answers no COMMIT from now on without it.
replicate() {
    query "$2" "SET GLOBAL gtid_slave_pos = @@GLOBAL.gtid_binlog_pos;
        CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = ${port[$1]}, MASTER_USER = 'copy',
            MASTER_PASSWORD = 'copy', MASTER_CONNECT_RETRY = 1, MASTER_USE_GTID = slave_pos;
        START REPLICA"
    await "db$2 replicates db$1" replicates "$2"
    await "db$2 is a semi-synchronous replica" status_is "$1" Rpl_semi_sync_master_clients 1
    query "$1" "SET GLOBAL rpl_semi_sync_master_enabled = ON"
    await "db$1 waits for its replica" status_is "$1" Rpl_semi_sync_master_status ON
}

# lead_to NUMBER: from now on, the address of the database leads there.
lead_to() {
    leader=$1
    ln -s "db$1.sock" "$work/primary.new"
    mv -T "$work/primary.new" "$work/primary.sock"
}

# promote NUMBER. The replica has received every answered grant, but perhaps not applied all of them: that comes first.
promote() {
    query "$1" "STOP REPLICA IO_THREAD"
    [ "$(query "$1" "SELECT MASTER_GTID_WAIT('$(replica_status "$1" Gtid_IO_Pos)', $patience)")" = 0 ] ||
        give_up "db$1 applies what it has received"
    query "$1" "STOP REPLICA; RESET REPLICA ALL; SET GLOBAL read_only = OFF"
}

# ---- permitd ----

# permitd_run NUMBER: starts it, or starts it again, at its address.
permitd_run() {
    "${PERMIT_PERMITD:-$build/permitd}" --database "$database" --listen "${address[$1]}" \
        >/dev/null 2>>"$work/permitd$1.log" &
    permitd[$1]=$!
}

# readyz NUMBER STATUS: whether GET /readyz is answered with this status: 200 if it serves, 503 while it cannot.
readyz() {
    local answer
    answer=$(exec 2>/dev/null 3<>"/dev/tcp/${address[$1]/://}" && printf 'GET /readyz HTTP/1.0\r\n\r\n' >&3 &&
        timeout 5 head -n 1 <&3)
    [[ $answer == HTTP/1.?" $2 "* ]]
}

# all_readyz STATUS: of all that are alive.
all_readyz() {
    local number
    for number in "${!permitd[@]}"; do
        kill -0 "${permitd[number]}" 2>/dev/null || give_up "permitd$number runs"
        readyz "$number" "$1" || return
    done
}

# The queue, in its order: a line "NAME PLACE" for each waiting job. It is read from the rows; clients see it in
# GET /v1/semaphores/backups/waiters.
places() {
    query "$leader" "SELECT external_id, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', place) FROM permitd.permit_request
        WHERE state = 3 ORDER BY place, id"
}

# waiting_at NUMBER: prints the number of jobs whose client waits at this permitd.
waiting_at() {
    query "$leader" "SELECT COUNT(*) FROM permitd.permit_request r JOIN permitd.server s ON s.id = r.server_id
        WHERE r.state = 3 AND s.address LIKE '%${address[$1]}'"
}

# places_kept QUEUE NUMBER: whether all jobs of this queue wait in their places again, none of them at that permitd.
places_kept() {
    [ "$(places)" = "$1" ] && [ "$(waiting_at "$2")" = 0 ] && all_others_wait "$(wc -l <<<"$1")"
}

# Sets most to the number of the permitd, among these, at which most jobs wait, and waits to the number of jobs.
most_waited_at() {
    local number count
    waits=-1
    for number; do
        count=$(waiting_at "$number")
        [ "${count:-0}" -le "$waits" ] || { most=$number && waits=${count:-0}; }
    done
}

# all_others_wait COUNT: whether so many jobs wait, with a client, at a permitd that is alive.
all_others_wait() {
    local number count sum=0
    for number in "${!permitd[@]}"; do
        count=$(waiting_at "$number")
        sum=$((sum + ${count:-0}))
    done
    [ "$sum" -eq "$1" ]
}

renewed() { "$permitctl" renew "$1" --ttl 60s >/dev/null; }
epoch_raised() { "$permitctl" --json semaphore events backups | grep '"what":"epoch"' >/dev/null; }

permitd_kill() {
    end_at_once "${permitd[$1]}"
    unset "permitd[$1]"
}

# ---- The cluster ----

needs permitd permitctl
for program in mariadbd mariadb-install-db mariadb; do
    command -v "$program" >/dev/null ||
        fail "$program is not on this machine: apt-get install mariadb-server-core mariadb-client"
done
: >"$work/record"
stage 0

mariadb-install-db --no-defaults "${as_root[@]}" --datadir="$work/db1" --tmpdir="$work" --skip-test-db --force \
    --skip-name-resolve --auth-root-authentication-method=normal --innodb-log-file-size=8M >"$work/install.log" 2>&1 ||
    give_up "mariadb-install-db creates a server"
rm "$work/install.log"
cp -R "$work/db1" "$work/db2"
database_start 1
database_start 2
query 1 "SET GLOBAL read_only = OFF;
    CREATE USER copy@'127.0.0.1' IDENTIFIED BY 'copy'; GRANT REPLICATION SLAVE ON *.* TO copy@'127.0.0.1';
    CREATE DATABASE permitd; CREATE USER permitd@localhost;
    GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, INDEX ON permitd.* TO permitd@localhost"
replicate 1 2
lead_to 1
say "Two MariaDB run: db1 is the primary, db2 its semi-synchronous replica: db1 answers a COMMIT after db2 received it."

for number in 1 2 3; do
    address[number]=$(free_address)
    permitd_run "$number"
    await "permitd$number serves" readyz "$number" 200
done
PERMITD_URL=http://${address[1]},http://${address[2]},http://${address[3]}
export PERMITD_URL
say "Three permitd serve, all with the same address of the database, primary.sock, which leads to db1."
say "Clients know all three: PERMITD_URL=$PERMITD_URL"

"$permitctl" semaphore put backups --capacity "$capacity" >/dev/null || give_up "the semaphore is created"
say "${#names[@]} backups start, each as 'permitctl run -s backups -- job.sh'. At most $capacity may run at once:"
for name in "${names[@]}"; do echo "job $name ${expected[$name]-0}" >>"$work/record"; done
# A permit outlives its renewals by 60 s, so that even a slow machine has time for a failover.
for name in "${names[@]}"; do
    last=()
    [ "$name" != archive ] || last=(3)
    "$permitctl" run -s backups --id "$name" --ttl 60s -- \
        "$here/job.sh" "$name" "$work" "${expected[$name]-0}" "${last[@]}" >>"$work/$name.log" 2>&1 &
    job[$name]=$!
    [ "$name" != archive ] || await "the first backup begins" begun 1
done
await "$capacity jobs run" begun "$capacity"
await "the other jobs wait" all_others_wait $((${#names[@]} - capacity))
say "They stand in one queue, at whichever permitd they wait:$(places | awk '{ printf " %s", $1 }')"

# ---- A permitd is killed ----

most_waited_at 1 2 3
killed=$most
say "SIGKILL: permitd$killed. $waits of the $((${#names[@]} - capacity)) waiting jobs wait there. They go on at the others."
queue=$(places)
permitd_kill "$killed"
await_claim "places were kept: the jobs of permitd$killed wait at the others, and the queue is the same" \
    places_kept "$queue" "$killed"
stage 1
await_claim "with permitd$killed dead, the other two let the next jobs run" begun $((capacity + 2))
permitd_run "$killed"
await "permitd$killed serves again" readyz "$killed" 200
say "permitd$killed is started again, as systemd would do. It needs nothing but its database."

# ---- The primary database is killed ----

status_is 1 Rpl_semi_sync_master_status ON || give_up "db1 waits for its replica"
say "SIGKILL: db1, the primary. Jobs that run go on; nothing can be granted or released."
end_at_once "${server[1]}"
died=${EPOCHREALTIME/[^0-9]/}
await "every permitd reports that its database is gone" all_readyz 503
say "All permitd answer 503 on /readyz: they run, and try again until their address leads to a primary."
promote 2
say "db2 has applied all that it had received, and takes writes now. db1 is dead, so there is no second primary."
lead_to 2
say "primary.sock leads to db2. permitd is told nothing: it connects again."
await_claim "permitd has noticed that this is another server, and has raised all tokens" epoch_raised
say "Why: permitd cannot know whether db2 lacks grants of db1. So tokens continue above all that db1 may have issued,"
say "and nothing is granted for 5 s (failover_hold), within which all holders can renew."
await_claim "all permitd are ready again" all_readyz 200
claim "db2 knows the permit of archive, which db1 had granted: it can be renewed" renewed archive
stage 2
await_claim "permits are granted again, by db2" begun $((capacity + 4))
say "That was within $(seconds "$died") s of the death of db1, of which 5 s are failover_hold."
database_start 1
replicate 2 1
say "db1 is started again, as the replica of db2. It rolls back the commits that it had not answered. From now on db2 waits for db1."

# ---- Another permitd is killed ----

others=()
for number in 1 2 3; do [ "$number" = "$killed" ] || others+=("$number"); done
most_waited_at "${others[@]}"
say "SIGKILL: permitd$most, for good. $waits of the $((${#names[@]} - capacity - 4)) waiting jobs wait there."
queue=$(places)
permitd_kill "$most"
await_claim "places were kept again: after a failover, and with permitd$most dead, the queue is the same" \
    places_kept "$queue" "$most"
stage 3
await_claim "with permitd$most dead, the other two let the next jobs run" begun $((capacity + 6))

# ---- The end ----

none_runs() {
    local pid
    for pid in "${job[@]}"; do ! kill -0 "$pid" 2>/dev/null || return 1; done
}

say "No more failures. The remaining jobs come to their end."
stage 4
await "all jobs end" none_runs
query 2 "SELECT CONCAT('row ', r.external_id, ' ', p.id) FROM permitd.permit p
    JOIN permitd.permit_request r ON r.id = p.permit_request_id ORDER BY r.acquired_at, p.id" >>"$work/record"
for name in "${names[@]}"; do
    wait "${job[$name]}"
    echo "exit $name $?" >>"$work/record"
done
awk -v capacity="$capacity" -f "$here/check.awk" "$work/record" || status=1
await_claim "every permitd that is alive is ready:$(printf ' permitd%s' "${!permitd[@]}")" all_readyz 200
claim "db1 is a semi-synchronous replica of db2" status_is 2 Rpl_semi_sync_master_clients 1
if [ "$status" -eq 0 ]; then
    say "${#names[@]} jobs, 2 permitd and 1 primary database killed: no permit too many, no job lost."
else
    show_logs
    say "At least one claim does not hold: see the lines with NOT SO."
fi
exit "$status"
