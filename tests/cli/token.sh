# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2154,SC2016
# permitctl token make and token check, without a server.

creds=$dir/credentials
unreachable() { PERMITD_URL=http://127.0.0.1:1 call "$permitctl" "$@"; }

unreachable token make shop --role use --semaphores 'shop:*  hall' --until 2099-01-31
token=$out
check "token make prints a token of 256 bits" grep -qxE 'pmt_[A-Za-z0-9_-]{43}' <<<"$token"
check "and nothing else" test "$code $(wc -l <<<"$out")" = "0 1"
digest=$(printf %s "$token" | sha256sum | cut -d ' ' -f 1)
check "on standard error there is the section for the file" \
    test "$err" = $'\n'"[shop]"$'\n'"token = sha256:$digest until 2099-01-31"$'\nrole = use\nsemaphores = shop:* hall'
(umask 077 && cp "$dir/err" "$creds")
unreachable token make shop --role use --semaphores '*'
check "each token is another one" test "$out" != "$token"

unreachable token make prometheus --role metrics
echo "$err" >>"$creds"
unreachable token make prometheus
check "without a role there is only the line of the token" \
    test "$err" = "token = sha256:$(printf %s "$out" | sha256sum | cut -d ' ' -f 1)"
echo "$err" >>"$creds"
unreachable token make many --role look --semaphores "$(seq -f 'semaphore-%g' 300 | xargs)"
echo "$err" >>"$creds"
check "long scopes have several lines" test "$(wc -L <<<"$err")" -le 110
unreachable --json token make a@b
check "--json: principal, token and line" \
    test "$(jq -r '[.principal, (.token | length), (.line | length)] | join(" ")' <<<"$out")" = "a@b 47 79"

appended=$dir/appended
unreachable token make shop --role use --semaphores 'shop:*' --append "$appended"
check "--append creates the file, and prints only the token" contains "$code $(stat -c %a "$appended") $out$err" "0 600 pmt_"
check "the file has the section" test "$(cat "$appended")" = "
[shop]
token = sha256:$(printf %s "$out" | sha256sum | cut -d ' ' -f 1)
role = use
semaphores = shop:*"
chmod 400 "$appended"
truncate -s -1 "$appended" # its last line has no end
unreachable --json token make prometheus --role metrics --append "$appended"
[ "$(id -u)" = 0 ] || { chmod 600 "$appended" && unreachable --json token make prometheus --role metrics --append "$appended"; }
check "--json: the token as JSON" contains "$code $out$err" '0 {"principal":"prometheus","token":"pmt_'
unreachable token check "$appended"
check "both sections are there" contains "$code $(xargs <<<"$out")" "prometheus metrics 1 - 0 0 * shop use 1"
cp -p "$appended" "$dir/before"
# not_appended SENTENCE EXPECTED ARGUMENT...: token make --append fails, and prints no token.
not_appended() {
    local sentence=$1 expected=$2
    shift 2
    unreachable token make "$@" --append "$appended"
    check "$sentence" contains "$code $err" "$expected"
    check "and no token is printed" test -z "$out"
}
not_appended "a section that is there is not appended" \
    "71 permitctl: the section is not appended: $appended, line 10: this section is already on line 2" shop --role admin
not_appended "a wrong option is reported" "64 permitctl: --until" shop2 --role admin --until 2020-01-01
not_appended "--append needs --role" "64 permitctl: --append needs --role" shop
chmod 620 "$appended"
not_appended "a file that others may write is refused" \
    "71 permitctl: the section is not appended: $appended: users other than its owner have access (mode 0620)" b --role admin
chmod 600 "$appended"
if "$permitctl" token make b --role admin --append "$appended" 2>/dev/null >/dev/full; then code=0; else code=$?; fi
check "a token that cannot be written: 71" test "$code" = 71
check "and the file is as it was each time" cmp "$appended" "$dir/before"
echo 'x = y' >>"$appended"
not_appended "an invalid file is not changed" "71 permitctl: the section is not appended: $appended, line 9: unknown word" b --role admin
appended=$dir/nowhere/file
not_appended "a file that cannot be made: 71" "71 permitctl: the section is not appended: $appended: cannot be opened" b --role admin

unreachable token check "$creds"
check "token check lists the principals" contains "$code $(xargs <<<"$out")" \
    "0 PRINCIPAL ROLE TOKENS UNTIL CERTIFICATES USERS SEMAPHORES many look 1 - 0 0"
check "with their scope" contains "$(xargs <<<"$out")" "prometheus metrics 2 - 0 0 * shop use 1 2099-01-31 0 0 hall,shop:*"
unreachable --json token check "$creds"
check "--json: all of the scope" test "$(jq '.principals[] | select(.principal == "many") | .semaphores | length' <<<"$out")" = 300
check "no token and no digest is shown" not grep -qE "$token|$digest" <<<"$out"

# Mistakes.
wrong() {
    local sentence=$1 expected=$2
    shift 2
    unreachable token make "$@"
    check "$sentence" contains "$code $err" "64 permitctl: $expected"
    check "and no token is printed" test -z "$out"
}
wrong "a name with a space is refused" "NAME a b: expected 1 to 255 of A-Z a-z 0-9 . _ @ -" 'a b'
wrong "a name cannot end the heading" "NAME a]" $'a]\nrole = admin'
wrong "an unknown role" "--role root: expected look|use|operate|admin|fence|metrics" a --role root
wrong "a role that needs semaphores" "--role use needs --semaphores NAMES" a --role use
wrong "a role that has all semaphores" "--role admin has all semaphores" a --role admin --semaphores 'x'
wrong "a namespace without a role" "--namespace needs --role" a --namespace x
wrong "a namespace that cannot be" "--namespace X: expected 1 to 32 of a-z 0-9 -" a --role admin --namespace X
wrong "an empty namespace" "--namespace : expected 1 to 32" a --role admin --namespace ''
wrong "semaphores without a role" "--semaphores needs --role" a --semaphores 'x'
wrong "no semaphores" "--role use needs --semaphores NAMES" a --role use --semaphores ' '
wrong "a name of a semaphore that cannot be" "--semaphores a*b: expected names of 1 to 255" a --role use --semaphores 'x a*b y'
wrong "a line within a value" "--semaphores x" a --role use --semaphores $'x\nrole = admin'
wrong "a comment within a value" "--semaphores ;y: expected" a --role use --semaphores 'x ;y'
wrong "a name that is too long for a line of the file" "a section with these options, line 5: longer than 197 bytes" a --role use --semaphores "$(printf '%0200d' 0)"
wrong "a word instead of a day" "--until tomorrow: expected a date such as 2027-01-31" a --until tomorrow
wrong "a day that is not there" "--until 2027-02-30: expected a date" a --until 2027-02-30
wrong "a day that is over" "--until 2020-01-01: that day has passed" a --until 2020-01-01

# bad SENTENCE EXPECTED LINE...: a file of these lines is refused.
bad() {
    local sentence=$1 expected=$2
    shift 2
    printf '%s\n' "$@" >"$creds"
    unreachable token check "$creds"
    check "$sentence: 65, with file and line" contains "$code $err" "65 permitctl: $creds$expected"
}
bad "an unknown word" ", line 3: unknown word" '[a]' 'role = admin' 'tokens = x'
bad "a token instead of its digest" ", line 3: this is the token itself, and no longer secret" '[a]' 'role = admin' "token = $token"
check "which is not shown" not grep -q "$token" <<<"$err"
bad "a section twice" ", line 3: this section is already on line 1" '[a]' 'role = admin' '[a]' 'role = admin'
printf '[a]\nrole = admin\ntoken = sha256:%s until 2020-01-01\n' "$digest" >"$creds"
unreachable token check "$creds"
check "a token that has ended is a warning" contains "$code $err" "0 permitctl: $creds, line 3: warning: this token of a has ended"
chmod 640 "$creds"
unreachable token check "$creds"
check "a file that others can read: 65" contains "$code $err" "65 permitctl: $creds: users other than its owner have access (mode 0640)"
unreachable token check "$dir/nowhere"
check "a file that is not there: 65" contains "$code $err" "65 permitctl: $dir/nowhere: cannot be opened"
if "$permitctl" token make a 2>/dev/null >/dev/full; then code=0; else code=$?; fi
check "a token that cannot be written is an error" test "$code" = 71
