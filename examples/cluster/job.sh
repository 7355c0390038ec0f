#!/bin/sh
# SPDX-License-Identifier: MIT
# job.sh NAME DIRECTORY STATUS [STAGE]: a job that records when it begins and ends, and knows nothing of servers.
#
# It lasts until the next failure has happened, so that every failure meets running jobs, however fast the machine is.
# DIRECTORY/stage has the number of the present stage, in which it begins; STAGE replaces that number for a job that
# lasts longer. In stage 4, the last one, nothing is awaited. Each line of DIRECTORY/record is one write at its end, so
# the order of the lines is the order of the events.
set -eu
began=${4:-$(cat "$2/stage")}
echo "begin $1 $PERMIT_TOKEN $PERMIT_SLOTS" >>"$2/record"
sleep 1
until stage=$(cat "$2/stage") && { [ "$stage" -gt "$began" ] || [ "$stage" -eq 4 ]; }; do sleep 0.1; done
echo "end $1 $PERMIT_TOKEN $PERMIT_SLOTS" >>"$2/record"
exit "$3"
