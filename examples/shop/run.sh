#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# A shop whose orders are in the database server of permitd: the hold becomes a sale in the transaction that writes the
# order. Meanwhile permitd is killed with SIGKILL now and then, together with the database, and so are the clerks of the
# shop. A mailer reads the feed and writes a mail for each sale and each refund. At the end no order is without its sale,
# no sale without its order, and nobody has a mail too many.
#
#     examples/shop/run.sh            300 carts, 6 clerks, 8 kills of each kind
#     examples/shop/run.sh --small    60 carts, 3 clerks, 2 kills of each kind
set -uo pipefail
# shellcheck source=examples/lib/permitd.sh
. "$(dirname "$0")/../lib/permitd.sh"

carts=300 clerks=6 kills=8
case "${1-}" in
'') ;;
--small) carts=60 clerks=3 kills=2 ;;
*) fail "usage: run.sh [--small]" ;;
esac

# The shop's own account: its tables, and the procedures of permitd.
shop() { mariadb --no-defaults --protocol=socket --socket="$work/data/mariadb.sock" --user=shop --password=shop --database=shop -N "$@" 2>>"$work/shop.log"; }

tables="CREATE TABLE orders (cart VARCHAR(255) PRIMARY KEY, clerk INT NOT NULL, state ENUM('paid','refunded') NOT NULL);
CREATE TABLE mail (cursor_of VARCHAR(64) PRIMARY KEY, cart VARCHAR(255) NOT NULL, says VARCHAR(16) NOT NULL);
CREATE TABLE mail_position (id INT PRIMARY KEY, cursor_of VARCHAR(64) NOT NULL);
INSERT INTO mail_position VALUES (1, '')"

# ---- A clerk ----

# The order and the sale are one transaction. The primary key of orders makes it safe to repeat after a lost answer.
order() {
    shop -e "START TRANSACTION;
             INSERT INTO orders VALUES ('$1', $2, 'paid');
             CALL permitd.permit_confirm('$1');
             COMMIT"
}
refund() {
    shop -e "START TRANSACTION;
             UPDATE orders SET state = 'refunded' WHERE cart = '$1';
             CALL permitd.permit_refund('$1');
             COMMIT"
}
# state_is CART STATE...
state_is() { [[ " ${*:2} " == *" $(shop -e "SELECT state FROM orders WHERE cart = '$1'") "* ]]; }

# hold CART TTL CLERK
hold() {
    "$permitctl" acquire -s stock --id "$1" --allow-replay --ttl "$2" --label "clerk=$3" >/dev/null 2>>"$work/clerks.log"
}

# sell CART CLERK: repeats its two steps, which is safe, until there is an order. Fails if no units are left.
sell() {
    local code
    for (( ; ; )); do
        hold "$1" 1m "$2"
        code=$?
        [ $code != 75 ] || return 1
        [ $code != 0 ] || ! order "$1" "$2" || return 0
        ! state_is "$1" paid refunded || return 0 # the answer of an earlier try was lost, or its clerk was killed
        sleep 0.1                                 # permitd or the database is being started
    done
}

# clerk NUMBER: sells every so many-th cart. A clerk who was killed begins with the cart that he was killed over.
clerk() {
    local number=$1 next cart
    next=$(cat "$work/clerk.$number" 2>/dev/null || echo "$number")
    for (( ; next <= carts; next += clerks)); do
        echo "$next" >"$work/clerk.$number"
        cart=cart-$next
        if ((next % 5 == 0)); then # the customer leaves: the hold ends by itself
            hold "$cart" 1s "$number"
        elif sell "$cart" "$number" && ((next % 7 == 0)); then
            until state_is "$cart" refunded; do refund "$cart" || sleep 0.1; done
        fi
    done
    echo "$next" >"$work/clerk.$number"
}
# In a process group of his own, so that he can be killed in the middle of a transaction.
hire() {
    set -m
    clerk "$1" &
    set +m
    staff[$1]=$!
}
have_sold() {
    local number
    for ((number = 1; number <= clerks; number++)); do
        (($(cat "$work/clerk.$number" 2>/dev/null || echo 0) > carts)) || return 1
    done
}

# ---- The mailer ----

# The mail and the position in the feed are one transaction too, so each event becomes one mail, whatever is killed.
mailer() {
    local after cursor what key mails
    while [ -e "$work/open" ]; do
        sleep 0.1
        after=$(shop -e "SELECT cursor_of FROM mail_position") || continue
        mails=
        while read -r cursor what key; do
            mails+="INSERT INTO mail VALUES ('$cursor', '$key', '$what'); UPDATE mail_position SET cursor_of = '$cursor';"
        done < <("$permitctl" feed -s stock ${after:+--after "$after"} 2>/dev/null | mail_lines)
        [ -z "$mails" ] || shop -e "START TRANSACTION; $mails COMMIT"
    done
}
# CURSOR WORD KEY of the lines of the feed: CURSOR TIME confirmed KEY ..., or CURSOR TIME ended REASON KEY ...
mail_lines() { awk '$3 == "confirmed" { print $1, $3, $4 } $3 == "ended" { print $1, $3, $5 }'; }

# ---- The run ----

count() { sql -e "SELECT COUNT(*) FROM $1" 2>/dev/null; }
# within_a_minute COMMAND...: waits until it succeeds.
within_a_minute() {
    local end=$((SECONDS + 60))
    until "$@"; do
        [ $SECONDS -lt $end ] || return 1
        sleep 0.1
    done
}
is_ready() { [ "$(count "information_schema.ROUTINES WHERE ROUTINE_SCHEMA = 'permitd'")" = 8 ]; }
is_settled() { [ "$(count "permit_request WHERE errand <> 0")" = 0 ]; }

needs permitd permitctl
address=$(free_address)
permitd_start "$address"
echo "waiting for the procedures, which are installed 8 s after a new database was made"
within_a_minute is_ready || fail "the procedures are not installed"
sql -e "CREATE DATABASE shop; CREATE USER shop@localhost IDENTIFIED BY 'shop'; GRANT ALL ON shop.* TO shop@localhost"
"$permitctl" sql-account put shop | sed -n "s/.*\(GRANT EXECUTE .*\)/\1/p" | sed "s/%/localhost/" | sql
shop -e "$tables" || fail "cannot create the tables of the shop"
units=$((carts * 3 / 4))
"$permitctl" semaphore put stock --capacity "$units" --feed sales >/dev/null

touch "$work/open"
mailer &
mailing=$!
staff=() fallen=0
for ((number = 1; number <= clerks; number++)); do hire "$number"; done
for ((killed = 0; killed < kills; killed++)); do
    sleep 1 & wait $!
    victim=$((killed % clerks + 1))
    kill -KILL -- "-${staff[victim]}" 2>/dev/null && fallen=$((fallen + 1)) # else he has nothing left to sell
    wait "${staff[victim]}" 2>/dev/null
    hire "$victim"
    sleep 1 & wait $!
    kill -KILL "$permitd_pid"
    wait "$permitd_pid" 2>/dev/null
    permitd_start "$address"
done
for ((number = 1; number <= clerks; number++)); do wait "${staff[number]}"; done
claim "permitd has settled what the clerks have done" within_a_minute is_settled

paid=$(count "shop.orders WHERE state = 'paid'") refunded=$(count "shop.orders WHERE state = 'refunded'")
sale="permit_request r WHERE r.state = 1 AND r.confirmed_at IS NOT NULL"
claim "$killed kills of permitd with its database, $fallen of clerks at work; all $carts carts came to their end" have_sold
claim "$paid orders are paid, $refunded were refunded, of $units units" [ "$paid" -gt 0 -a "$refunded" -gt 0 -a "$paid" -le "$units" ]
claim "no paid order is without its sale" \
    [ "$(count "shop.orders o WHERE o.state = 'paid' AND NOT EXISTS (SELECT 1 FROM $sale AND r.external_id = o.cart)")" = 0 ]
claim "no sale is without its paid order" \
    [ "$(count "$sale AND NOT EXISTS (SELECT 1 FROM shop.orders o WHERE o.state = 'paid' AND o.cart = r.external_id)")" = 0 ]
claim "no unit is sold twice" \
    [ "$(sql -e "SELECT COUNT(*) - COUNT(DISTINCT f.number) FROM slot f WHERE f.permit_id <> 0")" = 0 ]

mails="(SELECT COUNT(*) FROM shop.mail m WHERE m.cart = o.cart AND m.says ="
has_all_mail() {
    [ "$(count "shop.mail")" = $((paid + 2 * refunded)) ] &&
        [ "$(count "shop.orders o WHERE $mails 'confirmed') <> 1 OR $mails 'ended') <> (o.state = 'refunded')")" = 0 ]
}
claim "each order has one mail of the sale, and of the refund, and nobody else has any" within_a_minute has_all_mail
rm "$work/open"
wait "$mailing"

shop -e "SELECT cart, IF(state = 'paid', 'paid', 'cancelled') FROM orders" | tr '\t' ' ' >"$work/orders"
reconciled() { "$permitctl" reconcile --orders "$work/orders" --min-age 0 >"$work/findings"; }
claim "permitctl reconcile has 0 findings" reconciled
exit "$status"
