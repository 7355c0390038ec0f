# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2154,SC2016
# permitctl run: status, environment, waiting, keys.

call "$permitctl" run -s backups -- true
check "the status of the command: 0" test "$code" = 0
call "$permitctl" run -s backups -- sh -c 'exit 7'
check "the status of the command: 7" test "$code" = 7
call "$permitctl" run -s backups sh -c 'exit 8'
check "-- may be left out" test "$code" = 8
call "$permitctl" run -s backups -- "$dir/nothing"
check "a command that is not there: 127" test "$code" = 127
touch "$dir/plain"
call "$permitctl" run -s backups -- "$dir/plain"
check "a file that is no program: 126" test "$code" = 126
check "the permit is back after all of them" in_use backups 0
echo input >"$dir/in"
out=$("$permitctl" run -s backups cat <"$dir/in")
check "standard input and output are the command's" test "$out" = input
out=$("$permitctl" run -s backups -- sh -c 'ls /proc/self/fd | wc -l')
check "the command inherits no descriptor of permitctl" test "$out" = "$(sh -c 'ls /proc/self/fd | wc -l')"

call "$permitctl" run -s backups -- sh -c 'env | grep ^PERMIT_'
check "PERMIT_TOKEN is a number" grep -Eqx 'PERMIT_TOKEN=[0-9]+' "$dir/out"
check "PERMIT_SLOTS is the slot" grep -Eqx 'PERMIT_SLOTS=[12]' "$dir/out"
check "PERMIT_REQUEST is the key" grep -Eqx 'PERMIT_REQUEST=[0-9a-f-]{36}' "$dir/out"
check "PERMIT_REQUESTS has only this key in an outermost run" \
    test "$(sed -n 's/^PERMIT_REQUESTS=//p' "$dir/out")" = "$(sed -n 's/^PERMIT_REQUEST=//p' "$dir/out")"
check "PERMIT_GRANT is the grant" test "$(sed -n 's/^PERMIT_GRANT=//p' "$dir/out" | jq -r .permits[0].token)" = \
    "$(sed -n 's/^PERMIT_TOKEN=//p' "$dir/out")"
call "$permitctl" run -s backups:2 -- sh -c 'echo $PERMIT_SLOTS'
check "several slots have commas" test "$out" = 1,2
"$permitctl" --json semaphore put db-1.x --capacity 1 >/dev/null
call env PERMIT_TOKEN=77 PERMIT_SLOTS=9 PERMIT_TOKEN_OLD=1 "$permitctl" run -s backups -s network:2 -s db-1.x -- \
    sh -c 'env | grep ^PERMIT_'
check "several semaphores: PERMIT_TOKEN_<NAME>" grep -Eqx 'PERMIT_TOKEN_BACKUPS=[0-9]+' "$dir/out"
check "with _ for everything else" grep -Eqx 'PERMIT_TOKEN_DB_1_X=[0-9]+' "$dir/out"
check "slots likewise, not for a counted one" test "$(grep -c '^PERMIT_SLOTS' "$dir/out")" = 2
check "PERMIT_TOKEN itself is unset, and what was inherited is gone" \
    test "$(grep -cE '^PERMIT_(TOKEN|SLOTS|TOKEN_OLD)=' "$dir/out")" = 0
# A grant too long for a variable: 1000 slots with labels of 200 bytes.
for ((label = 1; label <= 1000; label++)); do printf '%0200d\n' "$label"; done >"$dir/long_labels"
"$permitctl" --json semaphore put hall --capacity 1000 --labels "$dir/long_labels" >/dev/null
call "$permitctl" run -s hall:1000 -- sh -c 'echo "$PERMIT_GRANT_FILE"; jq -c . "$PERMIT_GRANT_FILE"; echo "${PERMIT_GRANT-unset}${PERMIT_LABELS-unset}"; echo "$PERMIT_SLOTS"'
grant_file=$(sed -n 1p "$dir/out")
check "a grant that is too long for a variable is in PERMIT_GRANT_FILE" \
    test "$code $(sed -n 2p "$dir/out" | jq -r '.permits[0].labels | length, .[999]' | xargs)" = "0 1000 $(printf '%0200d' 1000)"
check "and not in PERMIT_GRANT, nor its labels in PERMIT_LABELS" test "$(sed -n 3p "$dir/out")" = unsetunset
check "a list that fits is still a variable" test "$(sed -n 4p "$dir/out" | tr , '\n' | wc -l)" = 1000
check "the file is gone afterwards" test ! -e "$grant_file"
call env TMPDIR="$dir/no/such" "$permitctl" run -s hall:1000 -- touch "$dir/ran_without_file"
check "a file that cannot be created is reported before the command runs" \
    contains "$code $err$(ls "$dir/ran_without_file" 2>/dev/null)" "71 permitctl: cannot create the environment of the command (a long grant needs a file in TMPDIR, $dir/no/such): No such file"
call "$permitctl" run -s hall:1000 -- sh -c "stat -c %a \"\$PERMIT_GRANT_FILE\"; exec '$permitctl' run -s backups -- sh -c 'echo \"\${PERMIT_GRANT_FILE-unset}\"'"
check "others cannot read it, and a permit below has a grant of its own" test "$(xargs <<<"$out")" = "600 unset"
check "all of it is released" in_use hall 0
"$permitctl" --json semaphore put db_1_x --capacity 1 >/dev/null
call "$permitctl" run -s backups -s db-1.x -s db_1_x -- sh -c 'env | grep ^PERMIT_'
check "names that would be equal are only in PERMIT_GRANT" test "$(grep -cE '^PERMIT_TOKEN_DB' "$dir/out")" = 0
call "$permitctl" run -s network -- sh -c 'echo ${PERMIT_SLOTS-unset}'
check "a counted semaphore has no PERMIT_SLOTS" test "$out" = unset
call "$permitctl" run -s backups -- sh -c "'$permitctl' --json holders backups"
check "the owner is user and host unless given" test "$(jq -r '.holders[0].owner' <<<"$out")" = "$(id -un)@$(hostname)"
call "$permitctl" run -s backups --owner nightly@db7 -- sh -c "'$permitctl' --json holders backups"
check "--owner" test "$(jq -r '.holders[0].owner' <<<"$out")" = nightly@db7
call "$permitctl" run -s backups -s network:4 --id both -- sh -c "'$permitctl' --json show both"
check "several semaphores are held together" test "$(jq -r '.permits[1].count' <<<"$out")" = 4
check "and released together" test "$(in_use backups 0 && in_use network 0 && echo yes)" = yes

# The number of descriptors needed depends on those already open.
scarce=
for most in 6 7 8 9 10 11 12 13 14; do
    call sh -c "ulimit -n $most; exec '$permitctl' run -s backups -- true"
    scarce+="$code $err"$'\n'
done
check "without a descriptor for the renewal it reports so" grep -qx '71 permitctl: cannot renew the permit: Too many open files' <<<"$scarce"
check "and does not blame the command" not grep -q '^126' <<<"$scarce"
check "and releases the permit" in_use backups 0

# Renewal, observed from outside the command.
call "$permitctl" run -s backups --ttl 20s --id renewed -- sleep 21
check "a command that takes longer than its ttl" test "$code" = 0
outlived='def seconds: sub("[.].*"; "Z") | fromdate; (.ended_at | seconds) - (.acquired_at | seconds) >= 20 and .end_reason == "released"'
check "was renewed and ended once, by its release" test "$("$permitctl" --json show renewed | jq "$outlived")" = true

# The ttl of run, and a semaphore that accepts less.
call "$permitctl" run -s backups -- sh -c "'$permitctl' --json show \$PERMIT_REQUEST"
check "run asks for a ttl of 2 minutes" test "$code $(jq .ttl_ms <<<"$out")" = "0 120000"
"$permitctl" --json semaphore put brief --capacity 1 --max-ttl 20s >/dev/null
"$permitctl" --json semaphore put briefer --capacity 1 --max-ttl 10s >/dev/null
call "$permitctl" run -s backups -s brief -s briefer -- sh -c "'$permitctl' --json show \$PERMIT_REQUEST"
check "or for the shortest max_ttl of its semaphores" test "$code $(jq .ttl_ms <<<"$out")" = "0 10000"
call "$permitctl" run -s brief --ttl 21s true
check "a ttl that was given is refused if it is too long" contains "$code $err" "65 permitctl: invalid: ttl exceeds the max_ttl"
"$permitctl" run -s brief --id brief-key -- sh -c "echo > '$dir/brief_runs'; $(until_there "$dir/brief_ends")" &
pid=$!
soon test -e "$dir/brief_runs"
call "$permitctl" run -s brief --id brief-key true
check "the key of another run is found with the shorter ttl, too" contains "$code $err" "75 permitctl: key brief-key is already held"
touch "$dir/brief_ends"
finish "$pid"

# --ttl none: max_hold ends a hold that is not renewed.
"$permitctl" --json semaphore put limited --capacity 1 --max-hold 20s >/dev/null
call "$permitctl" acquire -s limited --ttl none --id limited-key
check "acquire shows max_hold of a hold without a ttl" test "$code $(sed -n 's/^max hold *//p' "$dir/out")" = "0 20s"
"$permitctl" --json release limited-key >/dev/null
call "$permitctl" run -s limited --ttl none --id renewed-2 -- sleep 21
check "a command without a ttl is renewed within max_hold" test "$code" = 0
check "and ended once, by its release" test "$("$permitctl" --json show renewed-2 | jq "$outlived")" = true

# Runs inside runs.
nested() { timeout -s KILL 120 "$permitctl" run "$@"; }
"$permitctl" --json semaphore put alone --capacity 1 >/dev/null
call nested -s alone --id outer-1 -- "$permitctl" run -s alone -- touch "$dir/ran_inside"
check "a run inside a run that holds all that it wants: 75 at once" test "$code$(ls "$dir/ran_inside" 2>/dev/null)" = 75
check "one line names the outer run" \
    test "$err" = "permitctl: no_capacity: alone: 1 asked, but the outer runs of this command (outer-1) hold 1 of 1, and end only after it"
call nested -s alone -- "$permitctl" run -E 9 -s network -s alone --wait 10m -- touch "$dir/ran_inside"
check "also with -E and --wait, and among others" test "$code$(ls "$dir/ran_inside" 2>/dev/null)" = 9
call nested -s alone -- "$permitctl" acquire -s alone --wait 10m
check "so does acquire, if it waits" contains "$code $err" "75 permitctl: no_capacity: alone: 1 asked, but the outer runs"
call nested -s alone -- "$permitctl" --json run -s alone true
check "--json: a problem" test "$code $(jq -r .type <<<"$out")" = "75 /problems/no_capacity"
call nested -s backups -- "$permitctl" run -s alone -- sh -c 'exit 7'
check "a run inside a run of something else" test "$code" = 7
call nested -s backups --id outer-2 -- "$permitctl" run -s backups --id inner-2 -- "$permitctl" run -s alone --id inmost-2 -- \
    sh -c 'echo "$PERMIT_REQUEST: $PERMIT_REQUESTS"'
check "if the capacity suffices, it holds beside the outer one" test "$code" = 0
check "PERMIT_REQUESTS has all keys, outermost first, PERMIT_REQUEST its own" test "$out" = "inmost-2: outer-2 inner-2 inmost-2"
call nested -s backups -- "$permitctl" run -s backups -- "$permitctl" run -s backups true
check "all outer runs count together" contains "$code $err" "75 permitctl: no_capacity: backups: 1 asked, but the outer runs of this command"
call nested -s backups -- "$permitctl" run -s backups:3 true
check "more than the capacity is refused as ever" contains "$code $err" "65 permitctl: never_satisfiable"
call env PERMIT_REQUESTS="outer-1 outer-2 never-there" "$permitctl" run -s alone -- sh -c 'exit 7'
check "outer runs that hold no more count nothing" test "$code" = 7
call nested -s alone -- env -u PERMIT_REQUESTS "$permitctl" run -s alone true
check "PERMIT_REQUEST counts if there is no list" contains "$code $err" "75 permitctl: no_capacity: alone: 1 asked, but the outer runs"
"$permitctl" --json acquire -s backups --id beside-it >/dev/null
nested -s backups -- "$permitctl" run -s backups -- sh -c 'exit 7' 2>"$dir/err" &
pid=$!
check "a run inside a run waits for a unit of another client" soon waiting backups 1
"$permitctl" --json release beside-it >/dev/null
finish "$pid"
check "and gets it" test "$code" = 7
"$permitctl" --json semaphore put row --capacity 3 --label A1 --label A2 >/dev/null
call nested -s row --slot A1 --slot '#3' -- "$permitctl" run -s row --slot A1 true
check "a slot of the outer run is one that it would wait for" contains "$code $err" \
    "75 permitctl: no_capacity: row: the outer runs of this command ("
call nested -s row --slot A1 --slot '#3' -- "$permitctl" run -s row --any-of A1 --any-of '#3' true
check "so is one of several, if it has all of them" contains "$code $err" "hold 2 of the named slots, and end only after it"
call nested -s row --slot A1 --slot '#3' -- "$permitctl" run -s row --any-of A1 --any-of A2 -- sh -c 'echo $PERMIT_SLOTS'
check "but not if one is free" test "$code $out" = "0 2"

# Replays.
"$permitctl" run -s backups --id nightly -- sleep 60 &
pid=$!
soon in_use backups 1
call "$permitctl" run -s backups --id nightly -- touch "$dir/twice"
check "a key that another client holds: 75" test "$code" = 75
check "with a sentence" contains "$err" "key nightly is already held by another client"
check "the command has not run" test ! -e "$dir/twice"
check "and the other one still holds" in_use backups 1
kill -TERM "$pid"
finish "$pid"
call "$permitctl" run -s backups --id nightly -- touch "$dir/twice"
check "a key that was used before: 65" contains "$code $err" "65 permitctl: ended"

# Two jobs under one key. The first answer of the second job is lost; its next answer is a replay, but not of its own
# grant.
"$permitctl" --json semaphore put single --capacity 1 >/dev/null
"$permitctl" run -s single --id one-key -- sh -c "echo > '$dir/first_runs'; $(until_there "$dir/first_ends"); exit 5" &
pid=$!
soon test -e "$dir/first_runs"
start_relay drop pass
call "$permitctl" --url "$relay" run -s single --id one-key -- touch "$dir/second_ran"
check "a replay after a lost answer is not one's own grant: 75" test "$code" = 75
check "with a sentence" contains "$err" "key one-key is already held by another client"
check "the second command has not run" test ! -e "$dir/second_ran"
check "and the first one still holds" in_use single 1
call "$permitctl" run -n -s single -- touch "$dir/third_ran"
check "so no third one gets in" test "$code$(ls "$dir/third_ran" 2>/dev/null)" = 75
touch "$dir/first_ends"
finish "$pid"
check "it ends normally" test "$code" = 5
check "and releases its permit" in_use single 0
stop_relay
start_relay drop pass
call "$permitctl" --url "$relay" run -s single --id one-key-2 -- sh -c 'exit 6'
check "an own grant is recognised after a lost answer" test "$code" = 6
stop_relay
start_relay drop drop pass
call "$permitctl" --url "$relay" --json acquire -s single --id one-key-3
check "acquire reports an own grant" test "$code $(jq -r '.replayed, .yours' <<<"$out" | xargs)" = "0 true true"
call "$permitctl" acquire -s single --id one-key-3
check "one of another client: it shows it, and ends with 75" test "$code $(sed -n 's/^yours *//p' "$dir/out")" = "75 no"
check "with a sentence" contains "$err" "permitctl: key one-key-3 is already held by another client"
call "$permitctl" --json acquire -s single --id one-key-3 -E 9
check "-E changes it" test "$code $(jq .yours <<<"$out")" = "9 false"
call "$permitctl" acquire -s single --id one-key-3 --allow-replay
check "--allow-replay: 0" test "$code$err $(sed -n 's/^yours *//p' "$dir/out")" = "0 no"
call "$permitctl" release one-key-3
stop_relay

# Waiting.
"$permitctl" --json acquire -s backups:2 --id full >/dev/null
call "$permitctl" run -n -s backups -- touch "$dir/ran"
check "-n: 75 at once" test "$code" = 75
check "the message names the reason" contains "$err" "no_capacity"
call "$permitctl" run -n -E 9 -s backups -- touch "$dir/ran"
check "-E changes it" test "$code" = 9
call "$permitctl" run -n -E 0 -s backups -- touch "$dir/ran"
check "-E 0 is success without running" test "$code$(ls "$dir/ran" 2>/dev/null)" = 0
start=$(now_ms)
call "$permitctl" run --wait 1s -s backups -- touch "$dir/ran"
check "--wait 1s: 75 after a second" test "$code" = 75
check "no shorter and not much longer" between "$(($(now_ms) - start))" 900 60000
check "none of them has run" test ! -e "$dir/ran"
"$permitctl" run -s backups -- touch "$dir/ran" &
pid=$!
check "without -n and --wait it waits" soon waiting backups 1
check "and the command has not run" test ! -e "$dir/ran"
"$permitctl" --json release full >/dev/null
finish "$pid"
check "until a unit is free" test "$code$(ls "$dir/ran")" = "0$dir/ran"

# Never more than two at once. The first two end only when both run, which shows that two can run.
pids=()
for job in 1 2 3 4 5; do
    "$permitctl" run -s backups -- sh -c "now() { date +%s%N; }
        now > '$dir/from.$job'; $(until_there "$dir/two"); sleep 0.3; now > '$dir/to.$job'" &
    pids+=($!)
done
two_run() { [ "$(find "$dir" -name 'from.?' | wc -l)" -ge 2 ]; }
soon two_run
touch "$dir/two"
codes=
for pid in "${pids[@]}"; do
    finish "$pid"
    codes+=$code
done
check "five jobs on two slots all run" test "$codes" = 00000
most=$({ for job in 1 2 3 4 5; do echo "$(cat "$dir/from.$job") 1"; echo "$(cat "$dir/to.$job") -1"; done; } | sort -n |
    awk '{ n += $2; if (n > most) most = n } END { print most }')
check "and never more than two at once" test "$most" = 2

call "$permitctl" run -v --report "$dir/report" -s backups --id reported -- sh -c 'exit 4'
check "--report is JSON with the outcome" test "$(jq -r '.external_id, .exit_status, .lost, .permits[0].slots[0]' \
    "$dir/report" | xargs)" = "reported 4 false 1"
check "and times" test "$(jq ".waiting_since <= .granted_at and .granted_at <= .ended_at" "$dir/report")" = true
check "-v reports the exit status" contains "$err" "exit status 4"
call "$permitctl" run --report "$dir/no/such/report" -s backups -- touch "$dir/ran_unreported"
check "a report that cannot be written is reported before the command runs" \
    contains "$code $err" "71 permitctl: cannot write $dir/no/such/report: No such file"
check "the command does not run then" not test -e "$dir/ran_unreported"
call "$permitctl" run --report "$dir" -s backups -- touch "$dir/ran_unreported"
check "nor is a directory one" contains "$code $err" "71 permitctl: cannot write $dir: Is a directory"
call "$permitctl" run --report "$dir/of_no_run" -n -s nobody -- touch "$dir/ran_unreported"
check "a run that is refused leaves no report" test "$code$(ls "$dir/of_no_run" 2>/dev/null)" = 65
mkfifo "$dir/fifo" "$dir/unread"
cat "$dir/fifo" >"$dir/read" &
pid=$!
call timeout -s KILL 120 "$permitctl" run --report "$dir/fifo" -s backups -- sh -c 'exit 4'
finish "$pid"
check "a report into a FIFO reaches its reader" test "$(jq .exit_status "$dir/read")" = 4
call timeout -s KILL 120 "$permitctl" run --report "$dir/unread" -s backups -- sh -c 'exit 4'
check "a FIFO without a reader does not block" contains "$code $err" "4 permitctl: cannot write $dir/unread: no reader"
call "$permitctl" run --report "$dir/report" -s backups --id reported -- sh -c 'exit 4'
check "a key is used once" contains "$code $err" "65 permitctl: ended: reported has ended (released); use a new key"
call "$permitctl" run -n -s nobody:4711 true
check "digits after a name are a count: a hint says so if the semaphore is unknown" \
    contains "$code $err" "one unit of \"nobody:4711\" is -s nobody:4711:1"
call "$permitctl" run -n -s nobody:1 true
check "also where the count would be 1 anyway" contains "$code $err" "one unit of \"nobody:1\" is -s nobody:1:1"
call "$permitctl" run -n -s nobody true
check "and not without digits" not contains "$err" "one unit of"
call "$permitctl" semaphore
check "an incomplete verb gets a list of the possible words" contains "$code $err" '64 permitctl: incomplete verb "semaphore"; expected one of: put get list'
