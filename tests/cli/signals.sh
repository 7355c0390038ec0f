# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2154
# permitctl run: signals, of the command and of permitctl. (A background job of a script ignores SIGINT, so the tests
# use TERM, HUP and USR1.)

call "$permitctl" run -s backups -- sh -c 'kill -9 $$'
check "a command killed by signal 9: 137" test "$code" = 137
call "$permitctl" run -s backups -- sh -c 'kill -TERM $$'
check "a command ended by TERM: 143" test "$code" = 143

"$permitctl" run -s backups -- sh -c "echo \$\$ > '$dir/leader'; sleep 300 & echo \$! > '$dir/grandchild'; wait" &
pid=$!
soon test -s "$dir/grandchild"
kill -TERM "$pid"
finish "$pid"
check "TERM is passed on: 143" test "$code" = 143
check "to the whole group" soon dead "$(cat "$dir/grandchild")"
check "and the permit is back" soon in_use backups 0

"$permitctl" run -s backups -- sh -c "trap 'exit 9' USR1; echo > '$dir/ready'; while :; do sleep 0.05; done" &
pid=$!
soon test -e "$dir/ready"
kill -USR1 "$pid"
finish "$pid"
check "the command decides what a signal means" test "$code" = 9

"$permitctl" run -s backups -- sh -c "trap '' TERM; echo > '$dir/stubborn'; $(until_there "$dir/enough"); exit 3" &
pid=$!
soon test -e "$dir/stubborn"
kill -TERM "$pid"
soon taken TERM "$pid"
check "a command that ignores TERM keeps its permit" in_use backups 1
touch "$dir/enough"
finish "$pid"
check "and ends with its own status" test "$code" = 3

# Without a terminal, TSTP and CONT go to the command like all other signals.
setsid "$permitctl" run -s backups --ttl 10m -- sh -c "echo \$\$ > '$dir/stopper'; $(until_told "$dir/never_told"); exit 3" &
pid=$!
soon test -s "$dir/stopper"
kill -TSTP "$pid"
check "TSTP stops the command" soon state "$(cat "$dir/stopper")" T
check "and permitctl keeps its permit" in_use backups 1
kill -CONT "$pid"
check "CONT continues it" soon not state "$(cat "$dir/stopper")" T
kill -TSTP "$pid"
soon state "$(cat "$dir/stopper")" T
kill -TERM "$pid"
finish "$pid"
check "TERM ends a command that is stopped: 143" test "$code" = 143
check "and the permit is back" soon in_use backups 0

# A signal that was ignored when permitctl started stays ignored; tested for every signal that permitctl passes on.
all=HUP,INT,QUIT,TERM,USR1,USR2,ALRM
"$permitctl" --json acquire -s backups:2 --id full0 >/dev/null
env --ignore-signal=$all "$permitctl" run -s backups --owner unmoved -- sh -c 'exit 4' 2>"$dir/err" &
pid=$!
env --ignore-signal=$all "$permitctl" acquire -s backups --wait 10m --id unmoved2 >/dev/null 2>&1 &
pid2=$!
nohup "$permitctl" run -s backups -- sh -c 'exit 5' >/dev/null 2>&1 &
pid3=$!
soon waiting backups 3
kill -HUP "$pid3"
for signal in ${all//,/ }; do
    kill -"$signal" "$pid"
    kill -"$signal" "$pid2"
done
"$permitctl" --json release full0 >/dev/null
finish "$pid"
check "a run that waits is not ended by signals that it ignores" test "$code" = 4
finish "$pid2"
check "nor is an acquire" test "$code" = 0
call "$permitctl" release unmoved2
finish "$pid3"
check "nor a run under nohup" test "$code" = 5
call env --ignore-signal=CHLD "$permitctl" run -s backups -- grep SigIgn /proc/self/status
check "the command finds SIGCHLD ignored if permitctl did" test "$code $((0x${out##*[[:space:]]} >> 16 & 1))" = "0 1"

# Signals while it waits for capacity.
call "$permitctl" --json acquire -s backups:2 --id full1
"$permitctl" run -s backups --id waits -- touch "$dir/ran_not" 2>"$dir/err" &
pid=$!
soon waiting backups 1
kill -TERM "$pid"
finish "$pid"
check "TERM while it waits: 143" test "$code" = 143
check "it has left the queue" soon waiting backups 0
check "the command has not run" test ! -e "$dir/ran_not"
"$permitctl" acquire --wait 10m -s backups >/dev/null &
pid=$!
soon waiting backups 1
kill -TERM "$pid"
finish "$pid"
check "TERM of an acquire that waits: 143" test "$code" = 143
check "it has left the queue" soon waiting backups 0
"$permitctl" run -s backups --id killed -- touch "$dir/ran_not" 2>/dev/null &
pid=$!
soon waiting backups 1
kill -KILL "$pid"
finish "$pid"
check "a killed waiter leaves the queue too" soon waiting backups 0
call "$permitctl" release full1
check "nothing of them is left behind" soon in_use backups 0
check "and none has run" test ! -e "$dir/ran_not"

# A server that never answers: bytes sent to it stay unread.
sent() {
    awk -v port=":$(printf %04X "${PERMITD_URL##*:}")\$" '$2 ~ port && $4 == "01" && $5 !~ /:00000000$/ { found = 1 }
        END { exit !found }' /proc/net/tcp
}
for verb in run acquire; do
    soon not sent
    kill -STOP "$permitd_pid"
    command=()
    [ "$verb" = acquire ] || command=(touch "$dir/ran_not")
    "$permitctl" "$verb" -s backups "${command[@]}" 2>"$dir/err" &
    pid=$!
    soon sent
    start=$(now_ms)
    kill -TERM "$pid"
    soon taken TERM "$pid"
    kill -HUP "$pid"
    finish "$pid"
    check "TERM of $verb when the server does not answer: 143" test "$code" = 143
    check "without waiting for an answer" between "$(($(now_ms) - start))" 0 12000
    check "it reports a possible permit, and how to release it" \
        grep -Eq '([0-9a-f-]{36}) may have been granted; if so, it is held .* permitctl release \1$' "$dir/err"
    kill -CONT "$permitd_pid"
    soon in_use backups 0
done
soon not sent
kill -STOP "$permitd_pid"
"$permitctl" acquire -s backups --id doubted 2>"$dir/err" &
pid=$!
soon sent
kill -TERM "$pid"
finish "$pid"
check "with --id, whose key may be another client's, it says to look first" grep -q \
    'Another client may hold this key: look with permitctl show doubted, before you release it' "$dir/err"
kill -CONT "$permitd_pid"
call "$permitctl" release doubted
soon in_use backups 0
"$permitctl" --url http://127.0.0.1:1 run -s backups -- touch "$dir/ran_not" 2>"$dir/err" &
pid=$!
# The shell blocks signals, too, in the process that becomes permitctl: one that comes then ends it by the shell's trap.
takes_signals() { [ "$(cat "/proc/$pid/comm")" = permitctl ] && [ $((0x$(sed -n 's/^SigBlk:[[:space:]]*//p' "/proc/$pid/status") >> 14 & 1)) = 1 ]; }
soon takes_signals
kill -TERM "$pid"
finish "$pid"
check "TERM when there is no server: 143" test "$code" = 143
check "and nothing is reported about a request that was never sent" not grep -q granted "$dir/err"
check "nothing of them is left behind" soon in_use backups 0
check "and none has run" test ! -e "$dir/ran_not"

# A killed permitctl takes the command along.
"$permitctl" run -s backups --ttl 10s --id orphan -- sh -c "echo \$\$ > '$dir/orphan'; exec sleep 300" 2>/dev/null &
pid=$!
soon test -s "$dir/orphan"
kill -KILL "$pid"
finish "$pid"
check "KILL of permitctl ends the command" soon dead "$(cat "$dir/orphan")"
call "$permitctl" release orphan
