# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2154
# locks: which transactions lock permitd's rows. A second session holds the locks, with an account of its own.

# A wait ends when the test ends it: neither a lock time-out of the server nor the time limit of an acquire may come first.
sql() { mariadb --no-defaults -u root -S "$server_socket" -e "SET innodb_lock_wait_timeout=3600; $1"; }
# MariaDB reads its list of transactions anew only if no session has read it for 0.1 s: quicker polls would see the first
# answer forever.
seen() {
    sleep 0.15
    "$permitctl" --json locks | jq -e "$1" >/dev/null
}

sql "CREATE USER shop@localhost; GRANT ALL ON permitd.* TO shop@localhost"
mkfifo "$dir/shop"
mariadb --no-defaults -u shop -S "$server_socket" permitd <"$dir/shop" >/dev/null 2>"$dir/shop.err" &
shop=$!
exec 7>"$dir/shop"
call "$permitctl" semaphore put vault --capacity 2
call "$permitctl" locks
check "no stranger's lock: 0" test "$code" = 0
echo "SET innodb_lock_wait_timeout=3600; BEGIN; SELECT id FROM semaphore WHERE name = 'vault' FOR UPDATE;" >&7
check "an open transaction is listed, with its account" soon seen '.locks[] | select(.account == "shop@localhost" and .rows_locked > 0)'
# MariaDB lists no row for which no session waits. MySQL lists each, in each index.
complete=false
found_by_name=1
[ -z "${PERMIT_MYSQL_ROOT-}" ] || { complete=true && found_by_name=2; }
check "the list is complete: $complete" seen ".complete == $complete"
until "$permitctl" acquire -s vault --id vault-1 --ttl 1h --allow-replay >"$dir/acquired" 2>&1; do [ $? = 69 ] || break; done &
acquirer=$!
check "the row for which permitd waits is named, with its semaphore" \
    soon seen '.locks[] | select(.account == "shop@localhost" and .semaphore == "vault" and .table == "semaphore" and .waiting > 0 and .waited_ms >= 0)'
echo "ROLLBACK;" >&7
finish "$acquirer"
check "it is gone after the end of the transaction" soon seen '[.locks[] | select(.account == "shop@localhost")] == []'

# A shop calls a procedure, and its transaction stays open: no session waits for the row of the request.
has_procedures() { sql "SHOW CREATE PROCEDURE permitd.permit_confirm"; }
shop_confirms='.account == "shop@localhost" and .table == "permit_request" and .external_id == "vault-2"'
call "$permitctl" sql-account put shop
call "$permitctl" acquire -s vault --id vault-2 --ttl 1h
check "the procedures are installed" soon has_procedures
echo "BEGIN; CALL permit_confirm('vault-2');" >&7
check "a request that a procedure has locked is named, with its semaphore, though no session waits" \
    soon seen ".locks[] | select($shop_confirms and .semaphore == \"vault\" and .waiting == 0)"
echo "ROLLBACK; BEGIN; SELECT id FROM semaphore WHERE name = 'vault' FOR UPDATE;" >&7
check "after ROLLBACK it is not, though the session has another transaction" \
    soon seen '[.locks[] | select(.account == "shop@localhost")] | length == '$found_by_name' and all(.external_id == null)'
echo "ROLLBACK; BEGIN; CALL permit_confirm('vault-2'); COMMIT;" >&7
check "nor after COMMIT" soon seen '[.locks[] | select(.account == "shop@localhost")] == []'
echo "BEGIN; SELECT n FROM held_bit WHERE n = 1 FOR UPDATE;" >&7
check "it holds the first row" soon seen '.locks[] | select(.account == "shop@localhost")'
(sql "BEGIN; SELECT n FROM permitd.held_bit WHERE n = 2 FOR UPDATE; SELECT n FROM permitd.held_bit WHERE n = 1 FOR UPDATE") >/dev/null 2>&1 &
other=$!
check "another session waits for it" soon seen '.locks[] | select(.account == "shop@localhost" and .table == "held_bit" and .waiting == 1)'
echo "SELECT n FROM held_bit WHERE n = 2 FOR UPDATE; ROLLBACK;" >&7
check "the deadlock has both transactions, and its victim" soon seen '.deadlock | .rolled_back > 0 and ([.transactions[] |
    select(.table == "held_bit" and .index == "PRIMARY" and (.statement | startswith("SELECT n FROM"))) | .account] | sort) == ["root@localhost", "shop@localhost"]'
wait "$other"
call "$permitctl" locks
check "and is printed in words" contains "$out" "waited for a row of held_bit (PRIMARY) in: SELECT n FROM"
call "$permitctl" --json doctor
check "doctor: the right is there, and the plans use their indexes" \
    test "$(jq -r '.findings[] | select(.check == "locks" or .check == "plans") | .verdict' <<<"$out" | xargs)" = "ok ok"
sql "ALTER TABLE permitd.permit DROP KEY permit_request"
call "$permitctl" --json doctor
check "doctor warns of an index that is gone" \
    contains "$(jq -r '.findings[] | select(.check == "plans" and .verdict == "warn") | .sentence' <<<"$out")" "permits of requests"
sql "ALTER TABLE permitd.permit ADD KEY permit_request (permit_request_id)"
exec 7>&-
finish "$shop"

sql "CREATE USER lean@localhost; GRANT ALL ON permitd.* TO lean@localhost"
"$permitd" --database "mysql://lean@/permitd?socket=$server_socket" --listen 127.0.0.1:0 >"$dir/lean.out" 2>"$dir/lean.err" &
beside[lean]=$!
check "a permitd without the right serves" soon grep -q '^permitd: listening on ' "$dir/lean.out"
lean=$(sed -n 's/^permitd: listening on //p' "$dir/lean.out")
call "$permitctl" --url "$lean" locks
check "without the right: 65, and the grant" test "$code" = 65
check "by its account" contains "$err" "GRANT PROCESS ON *.* TO 'lean'@'localhost'"
grants=${err#*administrator: }
call "$permitctl" --url "$lean" --json doctor
check "doctor names the grant, and does not warn" contains "$out" "GRANT PROCESS ON"
sql "$grants"
call "$permitctl" --url "$lean" locks
check "what was named is enough, and counts at once" test "$code" = 0
end_beside lean TERM
