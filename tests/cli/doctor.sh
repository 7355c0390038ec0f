# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2154
# doctor: unsafe database settings and how to fix them.

database() { mariadb --no-defaults -u root -S "$dir/server/mariadb.sock" -e "$1"; }
refused() { [ "$(curl -s -o /dev/null -w '%{http_code}' "$PERMITD_URL/readyz")" = 503 ]; }
served() { [ "$(curl -s -o /dev/null -w '%{http_code}' "$PERMITD_URL/readyz")" = 200 ]; }

call "$permitctl" doctor
check "a safe database: 0" test "$code" = 0
check "and a table" contains "$out" "VERDICT  CHECK"
call "$permitctl" --json doctor
check "--json has findings and the numbers of bad ones" test "$(jq -r '(.findings | length > 10), .refusals, .warnings' <<<"$out" | xargs)" = "true 0 0"
database "SET GLOBAL innodb_flush_log_at_trx_commit = 2"
call "$permitctl" doctor
check "a refusal: 65, with the remedy" contains "$code $out" "SET GLOBAL innodb_flush_log_at_trx_commit = 1"
check "by its status" test "$code" = 65
call "$permitctl" --json doctor
check "the same with --json" test "$code $(jq -r '.refusals, (.findings[] | select(.verdict == "refuse") | .check)' <<<"$out" | xargs)" = \
    "65 1 flush_at_commit"
call "$permitd" --check --database "mysql://root@/permitd?socket=$dir/server/mariadb.sock"
check "permitd --check: 1, with the remedy" contains "$code $out" "SET GLOBAL innodb_flush_log_at_trx_commit = 1"
check "by its status" test "$code" = 1
check "printed once, in one list" test "$(grep -c 'innodb_flush_log_at_trx_commit is 2' <<<"$out$err")" = 1
check "and a sentence on standard error" contains "$err" "unsafe database settings"
check "permitd notices" soon refused
call "$permitctl" acquire -s network
check "acquire prints the reason: 69" contains "$code $err" "innodb_flush_log_at_trx_commit is 2"
check "by its status" test "$code" = 69
database "SET GLOBAL innodb_flush_log_at_trx_commit = 1; SET GLOBAL max_allowed_packet = 1048576"
check "it serves again after the fix" soon served
call "$permitctl" doctor
check "a warning is not a refusal: 0" test "$code" = 0
check "but is shown" contains "$out" "warn     max_packet"
database "SET GLOBAL max_allowed_packet = 16777216"
