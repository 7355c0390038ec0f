#!/bin/sh
# SPDX-License-Identifier: MIT
# backup.sh DIRECTORY ARCHIVE: packs a directory. An ordinary backup job; that only two of its kind run at once is the
# business of who calls it:
#
#     permitctl run -s backups --wait 2h -- backup.sh /srv/db7 /backup/db7.tar.gz
#
# It is told which of the two places it has, PERMIT_SLOTS, 1 or 2, and nobody else has that one meanwhile: here it is a
# scratch directory; it could as well be a port, a disk or a core.
set -eu
scratch=${SCRATCH:-/tmp}/backup-$PERMIT_SLOTS
mkdir "$scratch" # fails if somebody is in there
trap 'rm -rf "$scratch"' EXIT
tar -C "$1" -czf "$scratch/archive" .
mv "$scratch/archive" "$2"
