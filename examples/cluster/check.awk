# SPDX-License-Identifier: MIT
# Checks the record of a run: awk -v capacity=3 -f check.awk RECORD. Prints a line for each claim, "ok - ..." or
# "NOT SO - ..." with the findings before it; exit status 1 if one does not hold. The lines of the record:
#
#     job NAME STATUS          written first: there is such a job, and it is to end with this status
#     begin NAME TOKEN SLOT    by the job, in the order of the events
#     end NAME TOKEN SLOT      by the job
#     row NAME TOKEN           at the end: the grants in the database, in the order in which they were made
#     exit NAME STATUS         at the end: the exit status of permitctl run

function found(claim, text) {
    print "     line " FNR ": " $0 ": " text
    wrong[claim] = 1
}

function claim(name, sentence) {
    print (wrong[name] ? "NOT SO - " : "ok - ") sentence
    failed = failed || wrong[name]
}

$1 == "job" { expected[$2] = $3; jobs++ }

$1 == "begin" {
    begun++
    if (!($2 in expected) || begins[$2]++) found("once", "not a job that was to begin now")
    if (++running > most) most = running
    if (running > capacity) found("capacity", running " jobs run")
    if (slot[$4] != "") found("capacity", slot[$4] " runs in this slot")
    if ($3 + 0 <= last[$4] + 0) found("tokens", "the token before it in slot " $4 " was " last[$4])
    if (token[$2] == "") token[$2] = $3
    slot[$4] = $2
    last[$4] = $3
}

$1 == "end" {
    if (begins[$2] != 1 || ends[$2]++) found("once", "not a job that runs")
    else running--
    slot[$4] = ""
}

$1 == "row" {
    rows++
    if ($3 != token[$2]) found("kept", "the job had token " token[$2])
    if ($3 + 0 <= row + 0) found("tokens", "the grant before it had " row)
    row = $3
    if (rows == 1) first = $3
}

$1 == "exit" {
    exits++
    if (ends[$2] != 1) found("once", "the job did not come to its end")
    if ($3 != expected[$2]) found("once", "the job was to end with " expected[$2])
}

END {
    if (begun != jobs || exits != jobs)
        found("once", jobs " jobs, " begun + 0 " began, permitctl ended " exits + 0 " times")
    if (rows != jobs) found("kept", jobs " jobs, " rows + 0 " grants in the database")
    if (most < capacity) found("capacity", "at most " most + 0 " jobs ran at once: the capacity was never reached")
    claim("capacity", "the capacity of " capacity " was never exceeded: at most " most + 0 \
        " jobs ran, each in a slot of its own")
    claim("tokens", "tokens rose from grant to grant, from " first " to " row)
    claim("kept", "the promoted database has the grant of each job, with the token that the job saw")
    claim("once", "each of " jobs " jobs began once, came to its end, and permitctl passed its exit status on")
    exit failed
}
