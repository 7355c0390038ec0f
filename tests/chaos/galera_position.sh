#!/bin/sh
# SPDX-License-Identifier: MIT
# The "state transfer" of the test's Galera nodes. All start with copies of the same files, so a joining node lacks only
# transactions that the donor still has in its cache (incremental transfer). This script only hands over the position.
# mariadbd runs it as wsrep_sst_position on both nodes and reads its output. The position is written to a file in
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
    # MariaDB 11.8 writes the name and password of a user for the transfer to this script's input; the transfer fails with
    # "Broken pipe" if the script ends before it has read them. The input is empty in MariaDB 10.11.
    while read -r _; do :; done
    [ -n "$bypass" ] || exit 22 # a full transfer, which the test never needs
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
