# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2154
# doctor: what is unsafe at the database, and how to mend it.

database() { mariadb --no-defaults -u root -S "$dir/server/mariadb.sock" -e "$1"; }
refused() { [ "$(curl -s -o /dev/null -w '%{http_code}' "$PERMITD_URL/readyz")" = 503 ]; }
served() { [ "$(curl -s -o /dev/null -w '%{http_code}' "$PERMITD_URL/readyz")" = 200 ]; }

call "$permitctl" doctor
check "a safe database: 0" test "$code" = 0
check "and a table" contains "$out" "VERDICT  CHECK"
call "$permitctl" --json doctor
check "--json has findings and how many are bad" test "$(jq -r '(.findings | length > 10), .refusals, .warnings' <<<"$out" | xargs)" = "true 0 0"
database "SET GLOBAL innodb_flush_log_at_trx_commit = 2"
call "$permitctl" doctor
check "a refusal: 65, and the sentence" contains "$code $out" "SET GLOBAL innodb_flush_log_at_trx_commit = 1"
check "by its status" test "$code" = 65
call "$permitctl" --json doctor
check "the same with --json" test "$code $(jq -r '.refusals, (.findings[] | select(.verdict == "refuse") | .check)' <<<"$out" | xargs)" = \
    "65 1 flush_at_commit"
call "$permitd" --check --database "mysql://root@/permitd?socket=$dir/server/mariadb.sock"
check "permitd --check: 1, and what to do" contains "$code $out" "SET GLOBAL innodb_flush_log_at_trx_commit = 1"
check "by its status" test "$code" = 1
check "said once, in one list" test "$(grep -c 'innodb_flush_log_at_trx_commit is 2' <<<"$out$err")" = 1
check "and a sentence for who looks at errors only" contains "$err" "unsafe database settings"
check "permitd notices" soon refused
call "$permitctl" acquire -s network
check "acquire says why: 69" contains "$code $err" "innodb_flush_log_at_trx_commit is 2"
check "by its status" test "$code" = 69
database "SET GLOBAL innodb_flush_log_at_trx_commit = 1; SET GLOBAL max_allowed_packet = 1048576"
check "mended it serves again" soon served
call "$permitctl" doctor
check "a warning is not a refusal: 0" test "$code" = 0
check "but is shown" contains "$out" "warn     max_packet"
database "SET GLOBAL max_allowed_packet = 16777216"
