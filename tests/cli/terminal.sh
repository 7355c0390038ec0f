# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2154,SC2016
# permitctl run on a terminal, which script(1) makes. What is written to its standard input is typed.

# on_terminal COMMAND: its output, without carriage returns, goes to $dir/screen. Standard input is typed.
on_terminal() {
    script -qec "$1" /dev/null 2>/dev/null | tr -d '\r' >"$dir/screen"
}

on_terminal "'$permitctl' run -s backups -- sh -c 'ps -o pgid=,tpgid= -p \$\$'" </dev/null
check "the command is in the foreground group" awk '$1 == $2 && $1 > 0 { ok = 1 } END { exit !ok }' "$dir/screen"

{ sleep 0.7; echo typed; sleep 0.3; } | on_terminal "'$permitctl' run -s backups -- sh -c 'read -r word; echo got:\$word'"
check "it can read from the terminal" grep -q '^got:typed' "$dir/screen"

{ soon test -e "$dir/at_work"; printf '\003'; sleep 0.7; } |
    on_terminal "'$permitctl' run -s backups -- sh -c 'trap \"echo interrupted; exit 5\" INT; echo > $dir/at_work; while :; do sleep 0.1; done'; echo status:\$?"
check "Ctrl-C reaches the command" grep -q 'interrupted' "$dir/screen"
check "once" test "$(grep -c interrupted "$dir/screen")" = 1
check "and its status comes out" grep -q 'status:5' "$dir/screen"

{ soon test -e "$dir/at_work2"; printf '\003'; sleep 0.7; } |
    on_terminal "'$permitctl' run -s backups -- sh -c 'echo > $dir/at_work2; sleep 60'; echo status:\$?"
check "a command that Ctrl-C ends: 130" grep -q 'status:130' "$dir/screen"
check "and the permit is back" soon in_use backups 0

"$permitctl" --json acquire -s backups:2 --id full2 >/dev/null
{ sleep 0.7; printf '\003'; sleep 0.7; } | on_terminal "'$permitctl' run -s backups -- touch '$dir/ran2'; echo status:\$?"
check "Ctrl-C while it waits: 130" grep -q 'status:130' "$dir/screen"
"$permitctl" --json release full2 >/dev/null

# In a shell with job control: Ctrl-Z stops both, fg continues both, and the terminal is the shell's in between.
{
    echo "'$permitctl' run -s backups --ttl 20s -- sh -c 'echo > $dir/at_work3; sleep 1; exit 6'"
    soon test -e "$dir/at_work3"
    printf '\032'
    sleep 0.5
    echo 'jobs; fg; echo status:$?'
    sleep 1.5
    echo exit
    sleep 0.3
} | TERM=dumb on_terminal 'bash --norc --noprofile -i'
check "Ctrl-Z stops the job" grep -q 'Stopped.*permitctl' "$dir/screen"
check "fg continues it to its end" grep -q '^status:6' "$dir/screen"
check "and the permit is back then" soon in_use backups 0

# In a pipeline the terminal belongs to the pager, say; a command that asks for it gets it.
{ sleep 0.7; echo typed; sleep 0.3; } |
    on_terminal "'$permitctl' run -s backups -- sh -c 'read -r word < /dev/tty; echo got:\$word' | cat"
check "in a pipeline the command can still ask at the terminal" grep -q '^got:typed' "$dir/screen"
