#!/bin/sh
# SPDX-License-Identifier: MIT
# The "state transfer" of the test's Galera nodes. All start on copies of the same files, so the one that joins lacks only
# what the donor still has in its cache (an incremental transfer); all that is left to hand over is from which position on.
# mariadbd runs it as wsrep_sst_position at both ends and reads its output; the position goes through a file in
# $PERMIT_GALERA_DIR.
set -u
bypass=
domain=0
while [ $# -gt 0 ]; do
    case "$1" in
    --role) role=$2 ;;
    --address) address=$2 ;;
    --gtid) gtid=$2 ;;
    --gtid-domain-id) domain=$2 ;;
    --bypass) bypass=yes ;;
    esac
    shift
done
file=$PERMIT_GALERA_DIR/position-${address##*:}
if [ "$role" = donor ]; then
    [ -n "$bypass" ] || exit 22 # it would need the files: nobody in the test does
    echo "$gtid $domain" >"$file.new" && mv "$file.new" "$file" && echo "done $gtid"
    exit
fi
rm -f "$file"
echo "ready $address"
tries=0
while [ ! -e "$file" ]; do
    [ $((tries += 1)) -le 2400 ] || exit 110
    sleep 0.05
done
cat "$file"
