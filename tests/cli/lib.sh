# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2034,SC2154
# Shared by the suites of permitctl: checks, waits for conditions, a permitd on a free port, and others beside it.

passed=0
failed=0

# check SENTENCE COMMAND...: prints one line, "ok - SENTENCE" or "not ok - SENTENCE".
check() {
    local sentence=$1
    shift
    if "$@"; then
        passed=$((passed + 1))
        echo "ok - $sentence"
    else
        failed=$((failed + 1))
        echo "not ok - $sentence"
        echo "#   failed: $*"
        [ ! -s "$dir/err" ] || sed 's/^/#   stderr: /' "$dir/err"
        [ ! -s "$dir/screen" ] || sed 's/^/#   screen: /' "$dir/screen"
        [ ! -s "$dir/permitd.err" ] || tail -n 5 "$dir/permitd.err" | sed 's/^/#   permitd: /'
    fi
}

# call COMMAND...: runs the command; leaves $code, and its output in $out and $err.
call() {
    code=0
    "$@" >"$dir/out" 2>"$dir/err" </dev/null || code=$?
    out=$(cat "$dir/out")
    err=$(cat "$dir/err")
}

# within MS COMMAND...: succeeds as soon as the command does; fails after MS milliseconds.
within() {
    local end=$(($(now_ms) + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        [ "$(now_ms)" -lt "$end" ] || return 1
        sleep 0.05
    done
}
# soon COMMAND...: waits up to a minute, enough for any machine.
soon() { within 60000 "$@"; }

# finish PID: waits for the process and leaves its status in $code.
finish() {
    code=0
    wait "$1" || code=$?
}

contains() { [[ $1 == *"$2"* ]]; }
not() { ! "$@"; }
gone() { ! kill -0 "$1" 2>/dev/null; }
# A zombie counts as dead too: its parent has not waited for it yet.
dead() { gone "$1" || grep -q '^State:.Z' "/proc/$1/status" 2>/dev/null; }
between() { [ "$1" -ge "$2" ] && [ "$1" -le "$3" ]; }
in_use() { "$permitctl" --json semaphore get "$1" | jq -e ".in_use == $2" >/dev/null; }
# Milliseconds since the boot, so that a step of the clock does not count as a wait.
now_ms() {
    local up
    read -r up _ </proc/uptime
    echo "${up/./}0"
}

# state PID LETTER: succeeds if the process sleeps (S), is stopped (T), ...
state() { [ "$(sed -n 's/^State:[[:space:]]*\(.\).*/\1/p' "/proc/$1/status")" = "$2" ]; }
# start_relay ACT...: starts a proxy in front of permitd that loses requests and answers (relay.c); leaves its url in
# $relay, its pid in $relay_pid.
start_relay() {
    : >"$dir/relay"
    "$build/tests/cli/cli_relay" "${PERMITD_URL##*:}" "$@" >"$dir/relay" &
    relay_pid=$!
    soon test -s "$dir/relay"
    relay=$(cat "$dir/relay")
}
stop_relay() {
    kill "$relay_pid"
    wait "$relay_pid" 2>/dev/null
}

# Conditions that a test waits for before it types a key or sends a signal.
#
# waiting NAME N: succeeds if N requests wait for the semaphore.
waiting() { "$permitctl" --json semaphore get "$1" | jq -e ".waiting == $2" >/dev/null; }
# taken SIGNAL PID: succeeds if the process, which reads its signals from a descriptor, has read this one.
taken() {
    local pending
    for pending in $(sed -n 's/^\(ShdPnd\|SigPnd\):[[:space:]]*//p' "/proc/$2/status"); do
        [ $((0x$pending >> ($(kill -l "$1") - 1) & 1)) = 0 ] || return 1
    done
}
# until_there FILE: prints a command for sh that waits up to two minutes for this file.
until_there() { echo "for i in \$(seq 2400); do test -e $1 && break; sleep 0.05; done"; }
# until_told FIFO: creates the FIFO and prints a command that waits for a line in it. The command starts no process
# meanwhile: a shell whose child is stopped between vfork and exec cannot be stopped.
until_told() { mkfifo "$1" && echo "read -r told < $1"; }
tell() { timeout 120 sh -c "echo > '$1'" & }

# ---- permitd ----

# A port that permitd can use again after a stop. It is below the range for outgoing connections, because the system
# would sooner or later give a port of that range to another program in between.
free_address() {
    local port
    until port=$((10000 + RANDOM % 20000)) && ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do :; done
    echo "127.0.0.1:$port"
}

# The database of permitd: a private MariaDB, or with PERMIT_MYSQL_ROOT (tests/mysql/root.sh) a MySQL of the test.
server_socket=$dir/server/mariadb.sock
server_database=(--data-dir "$dir/server")
if [ -n "${PERMIT_MYSQL_ROOT-}" ]; then
    server_socket=$dir/mysql.sock
    server_database=(--database "mysql://root@/permitd?socket=$server_socket")
fi
start_mysql() {
    cp -R --preserve=mode --sparse=always "$PERMIT_MYSQL_ROOT/var/lib/mysql-initial" "$dir/mysql"
    "$here/../mysql/mysqld" --no-defaults --secure-file-priv=NULL --mysqlx=OFF --datadir="$dir/mysql" --socket="$server_socket" \
        --pid-file="$dir/mysql.pid" --tmpdir="$dir" --skip-networking --user="$(id -un)" >"$dir/mysql.log" 2>&1 &
    mysql_pid=$!
    soon mariadb --no-defaults -u root -S "$server_socket" -e 'DO 0'
}
stop_mysql() {
    [ -n "${mysql_pid-}" ] || return 0
    kill "$mysql_pid"
    wait "$mysql_pid" 2>/dev/null
}

# serve_at ADDRESS FLAG...: starts a permitd, on the database of the previous one if there is one. Fails if it does not
# serve. A new database is created first; no test requires this to be fast.
export PERMITD_ALLOW_ROOT=true # tests in a container run as root, and so do their servers
serve_at() {
    : >"$dir/permitd.out" # remove the line of the previous one, which says that it serves
    "$permitd" "${server_database[@]}" --listen "$@" >"$dir/permitd.out" 2>"$dir/permitd.err" &
    permitd_pid=$!
    within 180000 serves_or_dead && serves || return 1
    PERMITD_URL=$(sed -n 's/^permitd: listening on //p' "$dir/permitd.out")
    export PERMITD_URL
}
serves() { grep -q '^permitd: listening on ' "$dir/permitd.out"; }
serves_or_dead() { serves || dead "$permitd_pid"; }

# start_permitd FLAG...
start_permitd() {
    serve_at 127.0.0.1:0 "$@" || { echo "# permitd does not serve"; tail -n 20 "$dir/permitd.err"; exit 1; }
}

stop_permitd() {
    [ -n "${permitd_pid:-}" ] || return 0
    kill -CONT "$permitd_pid" 2>/dev/null
    kill -TERM "$permitd_pid" 2>/dev/null
    if ! within 180000 dead "$permitd_pid"; then
        check "permitd $permitd_pid stops when it gets TERM ($(grep -E '^(State|ShdPnd|SigBlk):' "/proc/$permitd_pid/status" | xargs))" false
        kill -KILL "$permitd_pid"
    fi
    wait "$permitd_pid" 2>/dev/null
    permitd_pid=
}

# ---- More permitd, on the database of the first ----

declare -A beside # their pids, by name

# serve_beside NAME ADDRESS: starts one. Its output goes to $dir/NAME.out and .err.
serve_beside() {
    : >"$dir/$1.out"
    "$permitd" --database "mysql://root@/permitd?socket=$server_socket" --listen "$2" >"$dir/$1.out" 2>"$dir/$1.err" &
    beside[$1]=$!
    check "permitd $1 serves" soon grep -q '^permitd: listening on ' "$dir/$1.out"
}
# end_beside NAME SIGNAL: ends it and waits for its end.
end_beside() {
    kill "-$2" "${beside[$1]}"
    wait "${beside[$1]}" 2>/dev/null
    unset "beside[$1]"
}
freeze_beside() { kill -STOP "${beside[$1]}" && soon state "${beside[$1]}" T; }
thaw_beside() { kill -CONT "${beside[$1]}"; }
stop_beside() {
    local name
    for name in "${!beside[@]}"; do end_beside "$name" KILL; done
}
