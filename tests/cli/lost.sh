# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2154,SC2016
# permitctl run when the permit is lost: ended by the server, or not to be proved any more. Stops permitd; comes last.

# run_lost NAME FLAG...: starts a command that never ends by itself, with ttl 2 s.
run_lost() {
    local name=$1
    shift
    "$permitctl" run -s backups --ttl 2s --id "$name" "$@" -- \
        sh -c "trap 'echo term > $dir/$name.term; exit 0' TERM; echo \$\$ > '$dir/$name'; for i in \$(seq 160); do sleep 0.05; done; exit 3" \
        2>"$dir/err" &
    pid=$!
    soon test -s "$dir/$name"
}

run_lost released
call_at=$(now_ms)
"$permitctl" --json release released >/dev/null
finish "$pid"
check "a permit that somebody else released is lost: 76" test "$code" = 76
check "the command got TERM" test -e "$dir/released.term"
check "at the next renewal" between "$(($(now_ms) - call_at))" 0 3000

run_lost killed --on-lost kill
"$permitctl" --json release killed >/dev/null
finish "$pid"
check "--on-lost kill: 76" test "$code" = 76
check "without TERM" test ! -e "$dir/killed.term"
check "the command is gone" soon dead "$(cat "$dir/killed")"

"$permitctl" run -s backups --ttl 1s --id deaf -- sh -c "trap '' TERM; echo > '$dir/deaf'; sleep 30 & while :; do sleep 0.1; done" \
    2>"$dir/err" &
pid=$!
soon test -e "$dir/deaf"
start=$(now_ms)
"$permitctl" --json release deaf >/dev/null
finish "$pid"
check "a command that ignores TERM gets KILL: 76" test "$code" = 76
check "5 seconds later" between "$(($(now_ms) - start))" 4900 8000

"$permitctl" run -s backups --ttl 1s --id goes-on --on-lost continue -- sh -c "echo > '$dir/goes-on'; sleep 1.5; exit 3" \
    2>"$dir/err" &
pid=$!
soon test -e "$dir/goes-on"
"$permitctl" --json release goes-on >/dev/null
finish "$pid"
check "--on-lost continue: the status of the command" test "$code" = 3
check "but it says so" grep -q 'the permit is lost' "$dir/err"

# A restart of the server within the ttl does no harm.
"$permitctl" run -s backups --ttl 20s --id frozen -- sh -c "echo > '$dir/frozen'; sleep 2; exit 3" &
pid=$!
soon test -e "$dir/frozen"
kill -STOP "$permitd_pid"
sleep 1
kill -CONT "$permitd_pid"
finish "$pid"
check "a server that is away for a moment is not noticed" test "$code" = 3

# Nobody answers any more: by its own clock.
run_lost unproved
start=$(now_ms)
kill -STOP "$permitd_pid"
finish "$pid"
took=$(($(now_ms) - start))
check "a server that does not answer: lost, 76" test "$code" = 76
check "the command got TERM when the ttl was over" test -e "$dir/unproved.term"
check "not before two thirds of it" test "$took" -ge 1200
kill -CONT "$permitd_pid"
call "$permitctl" release unproved
check "a server that goes on is asked again" soon in_use backups 0

run_lost gone
kill -TERM "$permitd_pid"
wait "$permitd_pid"
check "permitd stops with 0" test $? = 0
permitd_pid=
wait "$pid"
check "a server that has gone: lost, 76" test $? = 76
check "and the command is ended" test -e "$dir/gone.term"
