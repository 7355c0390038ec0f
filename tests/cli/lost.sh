# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2154,SC2016
# permitctl run when the permit is lost: ended by the server, or not to be proved any more. Stops permitd; comes last.

# run_lost NAME TTL FLAG...: starts a command that does not end by itself, but says when it got TERM.
run_lost() {
    local name=$1 ttl=$2
    shift 2
    "$permitctl" run -s backups --ttl "$ttl" --id "$name" "$@" -- \
        sh -c "trap 'echo term > $dir/$name.term; exit 0' TERM; echo \$\$ > '$dir/$name'; $(until_there "$dir/never"); exit 3" \
        2>"$dir/err" &
    pid=$!
    soon test -s "$dir/$name"
}

# Renewed every third of the ttl.
run_lost released 15s
start=$(now_ms)
"$permitctl" --json release released >/dev/null
finish "$pid"
check "a permit that somebody else released is lost: 76" test "$code" = 76
check "the command got TERM" test -e "$dir/released.term"
check "at the next renewal" between "$(($(now_ms) - start))" 0 14000
check "which said so" grep -q 'the permit is lost: ended' "$dir/err"

run_lost killed 6s --on-lost kill
"$permitctl" --json release killed >/dev/null
finish "$pid"
check "--on-lost kill: 76" test "$code" = 76
check "without TERM" test ! -e "$dir/killed.term"
check "the command is gone" soon dead "$(cat "$dir/killed")"

"$permitctl" run -s backups --ttl 6s --id deaf -- sh -c "trap '' TERM; echo > '$dir/deaf'; sleep 180 & $(until_there "$dir/never")" \
    2>"$dir/err" &
pid=$!
soon test -e "$dir/deaf"
start=$(now_ms)
"$permitctl" --json release deaf >/dev/null
finish "$pid"
check "a command that ignores TERM gets KILL: 76" test "$code" = 76
check "5 seconds later" between "$(($(now_ms) - start))" 4900 30000

"$permitctl" run -s backups --ttl 6s --id goes-on --on-lost continue -- sh -c "echo > '$dir/goes-on'; $(until_there "$dir/told"); exit 3" \
    2>"$dir/err" &
pid=$!
soon test -e "$dir/goes-on"
"$permitctl" --json release goes-on >/dev/null
check "--on-lost continue: it says that the permit is lost" soon grep -q 'the permit is lost' "$dir/err"
check "but the command goes on" not dead "$pid"
touch "$dir/told"
finish "$pid"
check "and its status comes out" test "$code" = 3

# A restart of the server within the ttl does no harm.
"$permitctl" run -s backups --ttl 1m --id frozen -- sh -c "echo > '$dir/frozen'; $(until_there "$dir/thawed"); exit 3" &
pid=$!
soon test -e "$dir/frozen"
kill -STOP "$permitd_pid"
sleep 1
kill -CONT "$permitd_pid"
touch "$dir/thawed"
finish "$pid"
check "a server that is away for a moment is not noticed" test "$code" = 3

# A server that does not answer the release: whoever does not want to wait for it sends a signal.
hurried() { kill -TERM "$pid" 2>/dev/null; dead "$pid"; }
"$permitctl" run -s backups --ttl 1m --id hurry -- \
    sh -c "kill -STOP $permitd_pid; echo \$\$ > '$dir/hurry'; exit 3" 2>"$dir/err" &
pid=$!
soon test -s "$dir/hurry"
check "the command of one that cannot release has ended" soon dead "$(cat "$dir/hurry")"
start=$(now_ms)
check "a signal ends the wait for the release" soon hurried
check "before the time of a call is over" between "$(($(now_ms) - start))" 0 14000
finish "$pid"
check "the status of the command comes out" test "$code" = 3
check "and it says that the permit is not given back" grep -q 'could not be given back, and ends with its ttl' "$dir/err"
kill -CONT "$permitd_pid"
call "$permitctl" release hurry
check "a server that goes on is asked for it again" soon in_use backups 0

# Nobody answers any more: by its own clock, which began before the request was sent. The command itself stops the server.
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
check "a server that goes on is asked again" soon in_use backups 0

run_lost gone 15s
kill -TERM "$permitd_pid"
wait "$permitd_pid"
check "permitd stops with 0" test $? = 0
permitd_pid=
wait "$pid"
check "a server that has gone: lost, 76" test $? = 76
check "and the command is ended" test -e "$dir/gone.term"
