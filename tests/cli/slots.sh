# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2154
# Labels and specific slots: given, requested, shown.

call "$permitctl" --json semaphore put hall --capacity 6 --label A1 --label A2 --label "" --label "#4"
check "semaphore put gives labels" test "$code $(jq -r .config_version <<<"$out")" = "0 1"
call "$permitctl" --json acquire -s hall --slot A2 --slot '#3' --id pair
check "specific slots, by label and number" test "$code $(jq -c '.permits[0] | [.count, .slots, .labels]' <<<"$out")" = \
    '0 [2,[2,3],["A2",null]]'
"$permitctl" --json semaphore put halle --capacity 3 --label 'Loge 1' --label 'Парте́р 1' --label '座席１' >/dev/null
call env LC_ALL=C "$permitctl" slots halle
check "a table counts columns, not bytes: of combining and wide characters, too" \
    test "$out" = "SLOT  LABEL     TOKEN  EXPIRES  CONFIRMED  KEY
1     Loge 1    -      -        -          -
2     Парте́р 1  -      -        -          -
3     座席１    -      -        -          -"
call "$permitctl" acquire -s hall --slot A1 --slot A2 --id late
check "a held one: 75, with its label and deadline" contains "$code $err" "75 permitctl: no_capacity: hall: A2 is held until 20"
call "$permitctl" --json acquire -s hall --slot A2
check "--json has all that are held" test "$(jq -c '[.blocking[0].taken[] | .slot, .label, .external_id]' <<<"$out")" = \
    '[2,"A2","pair"]'
call "$permitctl" acquire -s hall --slot B1
check "an unknown label: 65" contains "$code $err" "65 permitctl: never_satisfiable: "
check "by its name" contains "$err" B1
call "$permitctl" --json acquire -s hall --slot '##4' --id number
check "a label that looks like a number" test "$code $(jq -c '.permits[0].labels' <<<"$out")" = '0 ["#4"]'
call "$permitctl" --json acquire -s hall:2 --adjacent --id neighbours
check "--adjacent: neighbours" test "$code $(jq -c '.permits[0].slots' <<<"$out")" = "0 [5,6]"
call "$permitctl" --json acquire -s hall --any-of '#6' --any-of A1 --id best
check "--any-of: the lowest that is free" test "$code $(jq -c '.permits[0].slots' <<<"$out")" = "0 [1]"
mapfile -t many < <(for i in $(seq 33); do printf -- '--any-of\n%0255d\n' "$i"; done)
call "$permitctl" acquire -s hall "${many[@]}"
check "more names than a request may have are refused with the limit" contains "$code $err" "more than 8192 bytes"
call "$permitctl" acquire -s network --slot '#1'
check "a counted semaphore has no slots: 65" contains "$code $err" "65 permitctl: invalid"

call "$permitctl" show pair
check "show has labels" grep -Eq '^hall +2 +[0-9]+ +2,3 +A2,-$' "$dir/out"
call "$permitctl" holders hall
check "holders too" grep -Eq '^[0-9]+ +2 +2,3 +A2,- ' "$dir/out"
call "$permitctl" requests -s hall
check "and requests" contains "$out" "hall:2(A2,-)"
"$permitctl" --json semaphore put plain --capacity 1 >/dev/null
call "$permitctl" holders plain
check "without labels there is no column of them" not contains "$out" LABELS

# ---- run ----

call "$permitctl" release best
# shellcheck disable=SC2016
call env PERMIT_LABELS=mine PERMIT_LABELS_X=mine "$permitctl" run -s hall --slot A1 -- \
    sh -c 'echo "$PERMIT_SLOTS $PERMIT_LABELS ${PERMIT_LABELS_X-none}"'
check "run has PERMIT_LABELS" test "$code $out" = "0 1 A1 none"
# shellcheck disable=SC2016
call env PERMIT_LABELS=mine "$permitctl" run -s plain -- sh -c 'echo "${PERMIT_LABELS-none}"'
check "which is not set without labels" test "$code $out" = "0 none"
# shellcheck disable=SC2016
call "$permitctl" run -s hall --slot A1 -s network -- sh -c 'echo "$PERMIT_LABELS_HALL ${PERMIT_LABELS-none}"'
check "of several semaphores each has its own" test "$code $out" = "0 A1 none"
call "$permitctl" run --report "$dir/report" -s hall --slot A1 true
check "the report has labels" test "$(jq -c '.permits[0].labels' "$dir/report")" = '["A1"]'

# ---- waiting ----

"$permitctl" --json acquire -s hall --slot A2 --slot A1 --wait 3m --id waits >"$dir/waits" 2>&1 &
pid=$!
check "a request for specific slots waits" soon waiting hall 1
call "$permitctl" waiters hall
check "it is listed with them" contains "$out" "hall:2(A1,A2)"
call "$permitctl" why waits
check "why, too" grep -Eq '^  slots +A1,A2$' "$dir/out"
"$permitctl" release pair >/dev/null
finish "$pid"
check "and gets them when they are free" test "$code $(jq -c '.permits[0].labels' "$dir/waits")" = '0 ["A1","A2"]'

# ---- many labels ----

seq -f 'row %g' 2500 >"$dir/labels"
call "$permitctl" --json semaphore put stadium --capacity 2500 --labels "$dir/labels"
check "semaphore put --labels takes a file, in pages" test "$code $(jq -r .config_version <<<"$out")" = "0 3"
call "$permitctl" --json acquire -s stadium --slot "row 2500" --slot "row 1001" --id last
check "all of it" test "$code $(jq -c '.permits[0].slots' <<<"$out")" = "0 [1001,2500]"
printf 'X1\r\n\nX3' >"$dir/labels"
call sh -c '"$1" semaphore put stadium --labels - <"$2"' sh "$permitctl" "$dir/labels"
call "$permitctl" --json acquire -s stadium --slot X1 --slot X3 --slot "#2"
check "standard input, lines of another system, an empty one, no last line feed" test \
    "$code $(jq -c '.permits[0].labels' <<<"$out")" = '0 ["X1",null,"X3"]'
call "$permitctl" semaphore put stadium --label Y1
check "the label of a held slot stays: 65" contains "$code $err" "65 permitctl: in_use"
call "$permitctl" semaphore put plain --label P1 --label P2
check "more labels than slots: 65" contains "$code $err" "65 permitctl: invalid"

# ---- seats ----

for ((seat = 1; seat <= 1200; seat++)); do
    echo "{\"label\":\"P$seat\",\"section\":\"P\",\"row\":\"1\",\"seat\":$seat,\"rank\":$((seat % 7)),\"tags\":[\"aisle\"]}"
done >"$dir/seats"
call "$permitctl" --json semaphore put arena --capacity 1200 --seats "$dir/seats"
check "semaphore put --seats takes a file, in pages" test "$code $(jq -r .config_version <<<"$out")" = "0 3"
call "$permitctl" --json slots arena
check "slots shows them" test "$code $(jq -c '.slots[1199]' <<<"$out")" = \
    '0 {"number":1200,"label":"P1200","section":"P","row":"1","seat":1200,"rank":3,"tags":["aisle"]}'
call "$permitctl" --json acquire -s arena:3 --best '{"together":true}'
check "acquire takes the best of them" test "$code $(jq -c '.permits[0].slots' <<<"$out")" = '0 [7,8,9]'
call "$permitctl" acquire -s arena --best together
check "--best is a JSON object: 64" contains "$code $err" "64 permitctl: --best"
call "$permitctl" acquire -s arena --best '{}' --adjacent
check "and excludes --adjacent: 64" test "$code" = 64
call "$permitctl" acquire -s arena --best '{"split":9}'
check "permitd checks the rest: 65" contains "$code $err" "permits[0].best.split must be"
call "$permitctl" slots arena
check "as a table, too" contains "$out" SECTION
echo '[]' >"$dir/seats"
call "$permitctl" semaphore put arena --seats "$dir/seats"
check "a line that is no object: 64" contains "$code $err" "64 permitctl: $dir/seats: line 1 is not a JSON object"
call "$permitctl" semaphore put arena --seats "$dir/seats" --label A
check "seats beside labels: 64" test "$code" = 64

# ---- slots ----

call "$permitctl" slots hall --state held
check "slots lists the holders" grep -Eq '^1 +A1 +[0-9]+ +20.*Z +.*waits$' "$dir/out"
call "$permitctl" --json slots hall --state free
check "or the free slots" test "$code $(jq -c '[.slots[].number]' <<<"$out")" = "0 [3]"
call "$permitctl" --json slots stadium --prefix "row 24"
check "by the beginning of the label" test "$code $(jq '.slots | length' <<<"$out")" = "0 111"
call "$permitctl" --json slots stadium
check "all pages of them" test "$code $(jq '.slots | length' <<<"$out")" = "0 2500"
call "$permitctl" --json slots stadium --limit 3
check "--limit" test "$code $(jq '.slots | length' <<<"$out")" = "0 3"
call "$permitctl" slots nothing
check "slots of an unknown semaphore: 65" contains "$code $err" "65 permitctl: unknown_semaphore"
