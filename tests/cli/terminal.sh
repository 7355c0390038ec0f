# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2154,SC2016
# permitctl run on a terminal, which script(1) creates. Its standard input is typed: each key after the condition that
# it is meant for. The typing side then waits for the end, because the end of the input would be typed too (as ^D).

# In a chroot, say, without /dev/pts.
no_terminal() { script -qec true /dev/null </dev/null 2>&1 | grep -q 'failed to create pseudo-terminal'; }
if no_terminal; then
    echo "skip - no pseudo-terminal can be had here (/dev/pts): permitctl on a terminal is not tested"
    return 0
fi

# on_terminal COMMAND: runs it on a terminal and types the standard input; its output without carriage returns goes to
# $dir/screen. Signals have their defaults, as after a login: a shell cannot trap a signal that was ignored at its
# start. The shell is bash: script uses $SHELL, or sh if that is unset, and dash dies, with its whole group, of the
# Ctrl-C that permitctl handles.
on_terminal() {
    SHELL=/bin/bash env --default-signal timeout --foreground 500 script -qec "$1" /dev/null >"$dir/raw" 2>/dev/null
    tr -d '\r' <"$dir/raw" >"$dir/screen"
}

# Removes the output of the previous terminal before typing starts. (on_terminal cannot do this: it may start and end
# before the typing side has checked.)
new_terminal() { rm -f "$dir/raw"; }

# shown PATTERN: waits until a line of the terminal matches.
shown() { soon grep -q "$1" "$dir/raw"; }

new_terminal
shown '[0-9] *[0-9]' | on_terminal "'$permitctl' run -s backups -- sh -c 'ps -o pgid=,tpgid= -p \$\$'"
check "the command is in the foreground group" awk '$1 == $2 && $1 > 0 { ok = 1 } END { exit !ok }' "$dir/screen"

new_terminal
{ soon test -e "$dir/at_work0"; echo typed; shown '^got:'; } |
    on_terminal "'$permitctl' run -s backups -- sh -c 'echo > $dir/at_work0; read -r word; echo got:\$word'"
check "it can read from the terminal" grep -q '^got:typed' "$dir/screen"

new_terminal
{ soon test -e "$dir/at_work"; printf '\003'; shown 'status:'; } |
    on_terminal "'$permitctl' run -s backups -- sh -c 'trap \"echo interrupted; exit 5\" INT; echo > $dir/at_work; while :; do sleep 0.1; done'; echo status:\$?"
check "Ctrl-C reaches the command" grep -q 'interrupted' "$dir/screen"
check "once" test "$(grep -c interrupted "$dir/screen")" = 1
check "and its status comes out" grep -q 'status:5' "$dir/screen"

new_terminal
{ soon test -e "$dir/at_work2"; printf '\003'; shown 'status:'; } |
    on_terminal "'$permitctl' run -s backups -- sh -c 'echo > $dir/at_work2; sleep 180'; echo status:\$?"
check "a command that Ctrl-C ends: 130" grep -q 'status:130' "$dir/screen"
check "and the permit is back" soon in_use backups 0

"$permitctl" --json acquire -s backups:2 --id full2 >/dev/null
new_terminal
{ soon waiting backups 1 && shown 'waiting for'; printf '\003'; shown 'status:'; } |
    on_terminal "'$permitctl' run -s backups -- touch '$dir/ran2'; echo status:\$?"
check "Ctrl-C while it waits: 130" grep -q 'status:130' "$dir/screen"
check "and the command has not run" test ! -e "$dir/ran2"
check "it has printed the reason of the wait" grep -q 'permitctl: waiting for backups: 2 of 2 in use, 1 asked, held longest by full2' "$dir/screen"
check "none waits any more" soon waiting backups 0
"$permitctl" --json release full2 >/dev/null

# A shell with job control: Ctrl-Z stops both processes, fg continues both, and the shell has the terminal in between.
new_terminal
{
    shown '^bash-.*[#$] '
    echo "'$permitctl' run -s backups --ttl 2m -- sh -c 'echo > $dir/at_work3; $(until_told "$dir/told3"); exit 6'"
    soon test -e "$dir/at_work3"
    printf '\032'
    shown 'Stopped'
    tell "$dir/told3"
    echo 'jobs; fg; echo status:$?'
    shown 'status:[0-9]'
    echo exit
    shown '^exit'
} | TERM=dumb on_terminal 'bash --norc --noprofile -i'
check "Ctrl-Z stops the job" grep -q 'Stopped.*permitctl' "$dir/screen"
check "fg continues it to its end" grep -q '^status:6' "$dir/screen"
check "and the permit is back then" soon in_use backups 0

# In a pipeline the terminal belongs to the pager, say; a command that asks for it gets it.
new_terminal
{ soon test -e "$dir/at_work4"; echo typed; shown '^got:'; } |
    on_terminal "'$permitctl' run -s backups -- sh -c 'echo > $dir/at_work4; read -r word < /dev/tty; echo got:\$word' | cat"
check "in a pipeline the command can still ask at the terminal" grep -q '^got:typed' "$dir/screen"

# Ctrl-Z in a pipeline stops all of it, whichever process has the terminal.
new_terminal
{
    shown '^bash-.*[#$] '
    echo "'$permitctl' run -s backups --ttl 2m -- sh -c 'echo \$\$ > $dir/at_work5; $(until_told "$dir/told5"); echo > $dir/done5' | cat"
    soon test -s "$dir/at_work5"
    printf '\032'
    shown 'Stopped'
    soon state "$(cat "$dir/at_work5")" T && touch "$dir/stopped5"
    tell "$dir/told5"
    echo fg
    soon test -e "$dir/done5"
    echo exit
    shown '^exit'
} | TERM=dumb on_terminal 'bash --norc --noprofile -i'
check "Ctrl-Z stops a pipeline" grep -q 'Stopped.*permitctl' "$dir/screen"
check "and the command" test -e "$dir/stopped5"
check "which fg continues to its end" test -e "$dir/done5"
new_terminal
{
    shown '^bash-.*[#$] '
    echo "'$permitctl' run -s backups --ttl 2m -- sh -c 'read -r word < /dev/tty; echo \$\$ > $dir/at_work6; $(until_told "$dir/told6"); echo > $dir/done6' | cat"
    soon in_use backups 1
    echo typed
    soon test -s "$dir/at_work6"
    printf '\032'
    shown 'Stopped'
    tell "$dir/told6"
    echo fg
    soon test -e "$dir/done6"
    echo exit
    shown '^exit'
} | TERM=dumb on_terminal 'bash --norc --noprofile -i'
check "Ctrl-Z stops a pipeline also if its command has the terminal" grep -q 'Stopped.*permitctl' "$dir/screen"
check "and fg continues it to its end" test -e "$dir/done6"
check "and the permit is back then" soon in_use backups 0

# In the background, a command that asks for the terminal stops the job, as without permitctl, until fg gives it the
# terminal.
new_terminal
{
    shown '^bash-.*[#$] '
    echo "'$permitctl' run -s backups --ttl 2m -- sh -c 'read -r word < /dev/tty; echo got:\$word' &"
    soon in_use backups 1
    for _ in $(seq 60); do
        echo jobs # bash says what has become of them
        sleep 1
        ! grep -q Stopped "$dir/raw" || break
    done
    echo fg
    echo typed
    shown '^got:'
    echo exit
    shown '^exit'
} | TERM=dumb on_terminal 'bash --norc --noprofile -i'
check "a command in the background that asks for the terminal is stopped" grep -q 'Stopped' "$dir/screen"
check "and gets it by fg" grep -q '^got:typed' "$dir/screen"
check "and the permit is back then" soon in_use backups 0

# Without a shell that could continue it, as after ssh -t, the kernel does not let Ctrl-Z stop a process; permitctl
# neither.
new_terminal
{ soon test -e "$dir/at_work7"; printf '\032'; shown '\^Z'; tell "$dir/told7"; shown 'status:'; } |
    on_terminal "'$permitctl' run -s backups --ttl 2m -- sh -c 'echo > $dir/at_work7; $(until_told "$dir/told7"); exit 6' | cat; echo status:\${PIPESTATUS[0]}"
check "Ctrl-Z stops nothing without a shell that could continue it" grep -q 'status:6$' "$dir/screen"

echo n | on_terminal "'$permitctl' fence bump --reason test; echo status:\$?"
check "and nothing was done" grep -q 'permitctl: nothing was done' "$dir/screen"
check "fence bump asks for confirmation; declined: 1" grep -q 'status:1$' "$dir/screen"
check "and prints the consequences" grep -q 'Continue?' "$dir/screen"

# top: a live table. The checks read the frames drawn before the terminal returns to its first screen.
"$permitctl" --json acquire -s backups --id shown >/dev/null
new_terminal
{ shown 'backups  *2  *1  *1  *0  *-  '; printf x; printf q; shown 'status:'; } |
    TERM=xterm on_terminal "stty rows 8 cols 70; '$permitctl' top -i 1s; echo status:\$?; stty -a"
check "top shows a table, and q ends it: 0" grep -q 'status:0' "$dir/screen"
check "the terminal is as it was" grep -q ' icanon .* echo ' <(tr '\n' ' ' <"$dir/screen" | sed 's/.*status://')
check "on its first page, with a cursor and long lines" grep -q $'\033\\[?7h\033\\[?25h\033\\[?1049l' "$dir/screen"
longest() { sed 's/\x1b\[H/\n/g; s/\x1b\[[0-9?]*[a-zA-Z]//g' "$dir/screen" | sed '/status:/,$d' | wc -L; }
check "no line is wider than the terminal" between "$(longest)" 40 70
"$permitctl" --json semaphore put a-name-that-is-too-long-for-its-column-of-the-table --capacity 3 >/dev/null
"$permitctl" --json semaphore pause a-name-that-is-too-long-for-its-column-of-the-table --reason 'диск 満杯 '"$(printf '%050d' 0)" >/dev/null
new_terminal
{ shown 'a-name-that-.*paused'; printf q; shown 'status:'; } |
    TERM=xterm on_terminal "stty rows 24 cols 80; '$permitctl' top -i 1s; echo status:\$?"
check "at 80x24 the last column is there, and cut with a mark" \
    grep -Eq '^a-name-that-[a-z-]*~  +3 +0 +3 +0 +- +-  paused: диск 満杯~' <(sed 's/\x1b\[[0-9?]*[a-zA-Z]//g' "$dir/screen")
check "the headings of the times are short then" grep -Eq 'WAITING  WAIT  HOLD' "$dir/screen"
columns_of() {
    python3 -c 'import sys, unicodedata
print(max(sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line.rstrip("\n")) for line in sys.stdin))'
}
check "no line is wider than the terminal" test \
    "$(sed 's/\x1b\[H/\n/g; s/\x1b\[[0-9?]*[a-zA-Z]//g' "$dir/screen" | sed '/status:/,$d' | PYTHONIOENCODING=utf-8 columns_of)" = 80
"$permitctl" --json semaphore delete a-name-that-is-too-long-for-its-column-of-the-table >/dev/null
new_terminal
{ shown 'backups  *2  *1'; printf '\003'; shown 'status:'; } |
    TERM=xterm on_terminal "'$permitctl' top -i 10m; echo status:\$?; stty -a"
check "Ctrl-C ends top: 130" grep -q 'status:130' "$dir/screen"
check "and the terminal is as it was" grep -q ' icanon .* echo ' <(tr '\n' ' ' <"$dir/screen" | sed 's/.*status://')
new_terminal
{ shown 'backups  *2  *1'; kill -STOP "$permitd_pid"; shown 'no_server.*asking again'; kill -CONT "$permitd_pid"
    "$permitctl" release shown >/dev/null; shown 'backups  *2  *0'; printf q; shown 'status:'; } |
    TERM=xterm on_terminal "'$permitctl' top -i 100ms; echo status:\$?"
check "top reports that the server does not answer, and continues when it does" grep -q 'status:0' "$dir/screen"
new_terminal
on_terminal "TERM=dumb '$permitctl' top; echo status:\$?"
check "a dumb terminal gets one table" grep -q 'NAME  *CAPACITY  *USED' "$dir/screen"
check "and nothing else" grep -q 'status:0' "$dir/screen"
