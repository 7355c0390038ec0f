#!/bin/sh
# SPDX-License-Identifier: MIT
# backup.sh DIRECTORY ARCHIVE: packs a directory. An ordinary backup job; its caller makes sure that at most two run at
# once:
#
#     permitctl run -s backups --wait 2h -- backup.sh /srv/db7 /backup/db7.tar.gz
#
# PERMIT_SLOTS gives the job one of the two places, 1 or 2, which no other job has meanwhile. Here the place is a
# scratch directory; it could as well be a port, a disk or a core.
set -eu
scratch=${SCRATCH:-/tmp}/backup-$PERMIT_SLOTS
mkdir "$scratch" # fails if another job uses it
trap 'rm -rf "$scratch"' EXIT
tar -C "$1" -czf "$scratch/archive" .
mv "$scratch/archive" "$2"
