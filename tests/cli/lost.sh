# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2154,SC2016
# permitctl run when the permit is lost: the server has ended it, or it can no longer be proven. Stops permitd; comes
# last.

# run_lost NAME TTL FLAG...: starts a command that does not end by itself, and records that it got TERM.
run_lost() {
    local name=$1 ttl=$2
    shift 2
    "$permitctl" run -s backups --ttl "$ttl" --id "$name" "$@" -- \
        sh -c "trap 'echo term > $dir/$name.term; exit 0' TERM; echo \$\$ > '$dir/$name'; $(until_there "$dir/never"); exit 3" \
        2>"$dir/err" &
    pid=$!
    soon test -s "$dir/$name"
}

# permitctl renews after every third of the ttl.
run_lost released 30s
start=$(now_ms)
"$permitctl" --json release released >/dev/null
finish "$pid"
check "a permit that another client released is lost: 76" test "$code" = 76
check "the command got TERM" test -e "$dir/released.term"
check "at the next renewal" between "$(($(now_ms) - start))" 0 29000
check "permitctl reported the loss" grep -q 'the permit is lost: ended' "$dir/err"

# At most 10 seconds later, whatever the ttl. The command would go on for two minutes.
for ttl in none 30m; do
    run_lost "late-$ttl" "$ttl"
    "$permitctl" --json force-release "late-$ttl" --reason test >/dev/null
    finish "$pid"
    check "a permit with --ttl $ttl that an operator ended is lost: 76" test "$code" = 76
    check "the command got TERM" test -e "$dir/late-$ttl.term"
done

run_lost killed 6s --on-lost kill
"$permitctl" --json release killed >/dev/null
finish "$pid"
check "--on-lost kill: 76" test "$code" = 76
check "without TERM" test ! -e "$dir/killed.term"
check "the command is gone" soon dead "$(cat "$dir/killed")"

# Every process that the command has started ends with it, in any process group: below timeout(1), in its own session,
# and after its parent has ended.
cat >"$dir/spread.sh" <<'END'
timeout 600 sh -c 'echo $$ >"$dir/$1.group"; sleep 600' - "$1" &
setsid sh -c 'echo $$ >"$dir/$1.session"; sleep 600' - "$1" &
(setsid sh -c 'trap "" TERM; echo $$ >"$dir/$1.orphan"; while :; do sleep 1; done' - "$1" &)
wait
END
spread_is_there() { [ -s "$dir/$1.group" ] && [ -s "$dir/$1.session" ] && [ -s "$dir/$1.orphan" ]; }
for on_lost in kill term; do
    dir=$dir "$permitctl" run -s backups --ttl 6s --id "spread-$on_lost" --on-lost $on_lost -- sh "$dir/spread.sh" $on_lost 2>"$dir/err" &
    pid=$!
    check "a command with processes in other groups" soon spread_is_there $on_lost
    "$permitctl" --json release "spread-$on_lost" >/dev/null
    finish "$pid"
    check "--on-lost $on_lost: 76" test "$code" = 76
    for process in group session orphan; do
        check "the process in its own $process has ended too" dead "$(cat "$dir/$on_lost.$process")"
    done
done
dir=$dir "$permitctl" run -s backups -- sh -c '(setsid sh -c "echo \$\$ >$dir/leaves.group; exec sleep 600" &); while ! test -s "$dir/leaves.group"; do sleep 0.05; done'
check "a command that ends by itself may leave something running" not dead "$(cat "$dir/leaves.group")"
kill "$(cat "$dir/leaves.group")"

"$permitctl" run -s backups --ttl 15s --id deaf -- sh -c "trap '' TERM; echo > '$dir/deaf'; sleep 180 & $(until_there "$dir/never")" \
    2>"$dir/err" &
pid=$!
soon test -e "$dir/deaf"
start=$(now_ms)
"$permitctl" --json release deaf >/dev/null
finish "$pid"
check "a command that ignores TERM gets KILL: 76" test "$code" = 76
check "5 seconds later" between "$(($(now_ms) - start))" 4900 60000

"$permitctl" run -s backups --ttl 6s --id goes-on --on-lost continue -- sh -c "echo > '$dir/goes-on'; $(until_there "$dir/told"); exit 3" \
    2>"$dir/err" &
pid=$!
soon test -e "$dir/goes-on"
"$permitctl" --json release goes-on >/dev/null
check "--on-lost continue: it reports the loss" soon grep -q 'the permit is lost' "$dir/err"
check "but the command continues" not dead "$pid"
touch "$dir/told"
finish "$pid"
check "and its status comes out" test "$code" = 3

# A silent connection to a healthy server: a new connection works.
later_than() { [ "$(date -d "$("$permitctl" --json show "$1" | jq -r .expires_at)" +%s%N)" -gt "$2" ]; }
start_relay pass hang pass
"$permitctl" --url "$relay" run -s backups --ttl 9s --id silence -- sh -c "echo > '$dir/silence'; $(until_there "$dir/silence_ends"); exit 5" &
pid=$!
soon test -e "$dir/silence"
until=$(date -d "$("$permitctl" --json show silence | jq -r .expires_at)" +%s%N)
check "a renewal without an answer is retried in time" soon later_than silence "$until"
touch "$dir/silence_ends"
finish "$pid"
check "and the permit is not lost" test "$code" = 5
stop_relay
start_relay pass hang pass
call "$permitctl" --url "$relay" run -s backups --ttl none -- sh -c 'exit 0'
check "a release without an answer is retried" test "$code" = 0
check "and nothing is left" in_use backups 0
stop_relay
start_relay hang pass
call "$permitctl" --url "$relay" run -s backups --wait-piece 500ms -- sh -c 'exit 5'
check "a wait without an answer continues" test "$code" = 5
stop_relay

# permitctl is stopped for longer than the ttl.
has_ended() { [ "$("$permitctl" --json show "$1" | jq -r .end_reason)" = expired ]; }
run_lost stopped 5s
kill -STOP "$pid"
check "a permit whose permitctl is stopped expires" soon has_ended stopped
kill -CONT "$pid"
finish "$pid"
check "and is lost when permitctl continues: 76" test "$code" = 76
check "which ends the command" test -e "$dir/stopped.term"

# The machine is suspended for an hour: the proven time has passed, although the next renewal is minutes away.
truncate -s 16 "$dir/clock"
PERMIT_CLOCK_FILE=$dir/clock LD_PRELOAD=$build/tests/lib/libpermit_clock_shim.so ASAN_OPTIONS=verify_asan_link_order=0 \
    "$permitctl" run -s backups --ttl 30m --id suspended -- sh -c "echo > '$dir/suspended'; $(until_there "$dir/never"); exit 3" 2>"$dir/err" &
pid=$!
soon test -e "$dir/suspended"
printf '\x00\xa4\x93\xd6' | dd of="$dir/clock" bs=1 seek=8 conv=notrunc status=none
finish "$pid"
check "a permit is lost when the machine was suspended for longer than its ttl: 76" test "$code" = 76
"$permitctl" --json release suspended >/dev/null

# A restart of the server within the ttl is harmless.
"$permitctl" run -s backups --ttl 1m --id frozen -- sh -c "echo > '$dir/frozen'; $(until_there "$dir/thawed"); exit 3" &
pid=$!
soon test -e "$dir/frozen"
kill -STOP "$permitd_pid"
sleep 1
kill -CONT "$permitd_pid"
touch "$dir/thawed"
finish "$pid"
check "a short outage of the server is not noticed" test "$code" = 3

# The server does not answer the release. A signal ends the wait for it.
hurried() { kill -TERM "$pid" 2>/dev/null; dead "$pid"; }
"$permitctl" run -s backups --ttl 1m --id hurry -- \
    sh -c "kill -STOP $permitd_pid; echo \$\$ > '$dir/hurry'; exit 3" 2>"$dir/err" &
pid=$!
soon test -s "$dir/hurry"
check "the command of one that cannot release has ended" soon dead "$(cat "$dir/hurry")"
start=$(now_ms)
check "a signal ends the wait for the release" soon hurried
check "before the call times out" between "$(($(now_ms) - start))" 0 14000
finish "$pid"
check "the status of the command comes out" test "$code" = 3
check "and it reports that the permit is not released" grep -q 'cannot release the permit, it will expire' "$dir/err"
kill -CONT "$permitd_pid"
call "$permitctl" release hurry
check "the release is retried when the server continues" soon in_use backups 0

# The same for a permit that nothing else ends: that is no success.
"$permitctl" run -s backups --ttl none --id left -- sh -c "kill -STOP $permitd_pid; echo \$\$ > '$dir/left'; exit 0" 2>"$dir/err" &
pid=$!
soon test -s "$dir/left"
soon dead "$(cat "$dir/left")"
soon hurried
finish "$pid"
check "a permit without a ttl that could not be released: 69" test "$code" = 69
check "it says how to release it" grep -q 'cannot release the permit; it is held until permitctl release left:' "$dir/err"
kill -CONT "$permitd_pid"
call "$permitctl" release left
check "which works" soon in_use backups 0

# The server does not answer any more. The local clock, which started before the request was sent, decides. The command
# itself stops the server.
start=$(now_ms)
"$permitctl" run -s backups --ttl 9s --id unproved -- \
    sh -c "trap 'echo term > $dir/unproved.term; exit 0' TERM; kill -STOP $permitd_pid; $(until_there "$dir/never")" 2>"$dir/err"
code=$?
took=$(($(now_ms) - start))
check "a server that does not answer: lost, 76" test "$code" = 76
check "the command got TERM when the ttl was over" test -e "$dir/unproved.term"
check "not before" test "$took" -ge 8980
kill -CONT "$permitd_pid"
call "$permitctl" release unproved
check "the permit is released when the server continues" soon in_use backups 0

# Without a ttl, max_hold is the time that is proved.
"$permitctl" --json semaphore put limited --capacity 1 --max-hold 9s >/dev/null
start=$(now_ms)
"$permitctl" run -s limited --ttl none --id unproved-2 -- \
    sh -c "trap 'echo term > $dir/unproved-2.term; exit 0' TERM; kill -STOP $permitd_pid; $(until_there "$dir/never")" 2>"$dir/err"
code=$?
took=$(($(now_ms) - start))
check "a server that does not answer, without a ttl: lost, 76" test "$code" = 76
check "the command got TERM when max_hold was over" test -e "$dir/unproved-2.term"
check "not before" test "$took" -ge 8980
kill -CONT "$permitd_pid"
call "$permitctl" release unproved-2

run_lost gone 15s
kill -TERM "$permitd_pid"
wait "$permitd_pid"
check "permitd stops with 0" test $? = 0
permitd_pid=
wait "$pid"
check "a server that has stopped: lost, 76" test $? = 76
check "and the command is ended" test -e "$dir/gone.term"
