# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2154
# The command line, without a server.

call "$permitctl"
check "no verb is a usage error" test "$code" = 64
call "$permitctl" dance
check "an unknown verb is a usage error" test "$code" = 64
check "and is named" contains "$err" dance
call "$permitctl" semaphore
check "an incomplete verb: 64, and the possible words" contains "$code $err" '64 permitctl: incomplete verb "semaphore"; expected one of: put get'
call "$permitctl" semaphore putt a
check "a verb that goes on wrong is named as it is" \
    contains "$code $err" '64 permitctl: unknown verb "semaphore putt"; expected "semaphore" with one of: put get'
call "$permitctl" run -s a --jump true
check "an unknown option is a usage error" test "$code" = 64
call "$permitctl" run -- true
check "run needs a semaphore" test "$code" = 64
call "$permitctl" run -s a
check "run needs a command" test "$code" = 64
call "$permitctl" run -s 'a b' true
check "a name with a space is a usage error" test "$code" = 64
call "$permitctl" run -s a:0 true
check "a count of 0 is a usage error" test "$code" = 64
check "and is shown as it was given" contains "$err" "--semaphore a:0: expected NAME or NAME:COUNT"
call "$permitctl" run -s a --wait 100000 true
check "a number of milliseconds is refused with a hint" contains "$code $err" "64 permitctl: --wait 100000: numbers are seconds, at most 86400"
call "$permitctl" run -s a --ttl soon true
check "a ttl that is no time is a usage error" test "$code" = 64
call "$permitctl" run -s a --ttl 0 true
check "a ttl of 0 is a usage error" test "$code $err" = "64 permitctl: --ttl 0: it must be above 0"
call "$permitctl" semaphore put a --default-ttl 0s
check "a default ttl, too" test "$code $err" = "64 permitctl: --default-ttl 0s: it must be above 0"
call "$permitctl" semaphore put a --priority-step soon
check "a priority step is a time or strict" \
    contains "$code $err" "64 permitctl: --priority-step soon: expected a time such as 30s, 10m or 1h30m, or strict"
call "$permitctl" top --interval 10ms
check "an interval below the minimum is a usage error" \
    test "$code $err" = "64 permitctl: --interval 10ms: it must be at least 100ms"
call "$permitctl" run -s a --wait 1e3 true
check "an exponent is refused with a hint" contains "$code $err" "64 permitctl: --wait 1e3: a number of seconds has no exponent"
call "$permitctl" run -s a --wait 99999999d true
check "so is a time beyond the maximum" contains "$code $err" "64 permitctl: --wait 99999999d: the maximum is 100 years"
call "$permitctl" run -s a -n --wait 1s true
check "-n and --wait exclude each other" test "$code" = 64
for wrong in 10minutes soon -1s 1m30 ""; do
    call "$permitctl" run -s a --wait "$wrong" true
    check "--wait \"$wrong\": 64, and what is expected" contains "$code $err" "64 permitctl: --wait $wrong: expected a time such as"
done
call "$permitctl" acquire -s a --priority 10
check "a priority above 9 is a usage error" contains "$code $err" "64 permitctl: --priority: expected 0 to 9"
call "$permitctl" acquire -s a --wait-piece 0
check "a piece of no length is a usage error" test "$code" = 64
call "$permitctl" acquire --slot A1 -s a
check "--slot must follow its -s" contains "$code $err" "64 permitctl: --slot must follow an -s NAME"
call "$permitctl" acquire --adjacent
check "so does --adjacent" test "$code" = 64
call "$permitctl" --limit 3 holders a
check "an option of a verb must follow the verb" \
    contains "$code $err" "64 permitctl: --limit must follow the verb: permitctl VERB --limit"
call "$permitctl" acquire -s a:2 --slot A1 --slot A2
check "--slot excludes a count" contains "$code $err" "64 permitctl: a: --slot cannot be combined with"
call "$permitctl" acquire -s a --slot A1 --adjacent
check "and --adjacent" test "$code" = 64
call "$permitctl" acquire -s a --slot A1 -s b --any-of B1 --slot B2
check "--slot and --any-of exclude each other" contains "$code $err" "64 permitctl: --slot B2"
call "$permitctl" acquire -s a --adjacent=yes
check "--adjacent takes no value" test "$code" = 64
call "$permitctl" release a --label A1
check "release takes no labels" contains "$code $err" "64 permitctl: release does not take --label"
for wrong in order =4711 '' $'order=\xff'; do
    call "$permitctl" run -s a --label "$wrong" true
    check "a label of a request is NAME=VALUE, in UTF-8: $(printf %q "$wrong")" \
        contains "$code $err" "64 permitctl: --label $(printf %s "$wrong" | tr '\377' '?'): expected NAME=VALUE"
done
call "$permitctl" acquire -s a --label order=1 --label order=2
check "each name once" contains "$code $err" "64 permitctl: --label order=2: expected each name once"
call "$permitctl" acquire -s a --label "a=$(printf '%01500d' 0)" --label "b=$(printf '%0600d' 0)"
check "all labels of a request have at most 2048 bytes" contains "$code $err" "64 permitctl: --label: all of them have more than 2048 bytes"
call "$permitctl" semaphore put a --label A1 --labels "$dir/none"
check "--label and --labels exclude each other" test "$code" = 64
call "$permitctl" semaphore put a --labels "$dir/none"
check "a file of labels that is not there" contains "$code $err" "64 permitctl: $dir/none"
printf 'A1\0\n' >"$dir/zero"
call "$permitctl" semaphore put a --labels "$dir/zero"
check "a file of labels with a zero byte" contains "$code $err" "64 permitctl: $dir/zero: contains a zero byte"
call "$permitctl" slots a --state open
check "slots are free or held" contains "$code $err" "64 permitctl: --state open: expected free|held"
call "$permitctl" release a --wait 1s
check "release does not wait, and its help is named" \
    contains "$code $err" "64 permitctl: release does not take --wait (permitctl release --help)"
call "$permitctl" why ''
check "an empty key is a usage error" contains "$code $err" "64 permitctl: the key must have 1 to 255 bytes"
call "$permitctl" holders ''
check "an empty name, too" contains "$code $err" "64 permitctl: the name must have 1 to 255 bytes"
call "$permitctl" semaphore list --prefix "$(printf '%0400d' 0)"
check "a prefix longer than any name, too" contains "$code $err" "64 permitctl: --prefix: at most 255 bytes"
call "$permitctl" waiters --help
check "the help of waiters says that all permitd share the queue" \
    contains "$code $(xargs -d '\n' <<<"$out")" "All permitd on one database share the queue"
call "$permitctl" requests --help
check "the help of requests names all three states" contains "$code $out" "--state waiting|held|released"
call "$permitctl" why
check "why needs a key" contains "$code $err" "64 permitctl: usage: permitctl why KEY"
call "$permitctl" waiters
check "waiters needs a name" contains "$code $err" "64 permitctl: usage: permitctl waiters NAME"
call "$permitctl" waiters ""
check "an empty name is a usage error" test "$code" = 64
call "$permitctl" top backups
check "top takes no name" contains "$code $err" "64 permitctl: usage: permitctl top"
call "$permitctl" top --interval 1ms
check "top refreshes at most ten times a second" contains "$code $err" "64 permitctl: --interval 1ms"
call "$permitctl" run -s a --on-lost sing true
check "--on-lost takes three words" test "$code" = 64
call "$permitctl" show a --ttl 3s
check "an option of another verb is refused" test "$code" = 64
call "$permitctl" show
check "show needs a key" test "$code" = 64
call "$permitctl" fence check a b
check "a token is a number" test "$code" = 64
call "$permitctl" --url ftp://x show a
check "a url that is not http is a usage error" test "$code" = 64

call "$permitctl" --version
check "--version prints name and version" test "$out" = "permitctl $(sed -nE 's/^project\(.* VERSION ([0-9.]+).*/\1/p' "$here/../../CMakeLists.txt")"
call "$permitctl" --help
check "--help lists the verbs" contains "$out" "semaphore put"
check "--help lists the exit statuses" contains "$out" "76"
for verb in run acquire release renew show "semaphore put" "semaphore get" "semaphore list" "semaphore delete" holders availability \
    "template put" "template get" "template list" "template delete" \
    slots "fence check" "fence bump" confirm force-release requests "semaphore pause" "semaphore resume" "semaphore events" \
    waiters why top servers doctor login logout whoami "token make" "token check" "owner beat" "owner show" "owner gone"; do
    # shellcheck disable=SC2086
    call "$permitctl" $verb --help
    check "$verb --help explains itself" contains "$code $out" "0 Usage: permitctl $verb "
    check "$verb --help has no example that ends in a full stop" not grep -q ': *permitctl .*\.$' <<<"$out"
    check "$verb --help breaks the lines of its options" not grep -qE '^(  [ -].{5}--| {33}).{90}' <<<"$out"
done
for group in semaphore template owner fence token; do
    call "$permitctl" $group --help
    check "$group --help lists the verbs that begin so" contains "$code $(xargs <<<"$out")" "0 Usage: permitctl $group VERB"
    check "and no other" test "$(sed '1,/^Verbs/d' <<<"$out" | grep -cv "^  $group ")" = 0
done
call "$permitctl" --help fence
check "--help may stand before it" contains "$code $out" "0 Usage: permitctl fence VERB"
call "$permitctl" dance --help
check "a word that begins no verb is an error with --help, too" test "$code" = 64
call "$permitctl" acquire -s a --id 'a b'
check "a key with a space is a usage error" contains "$code $err" "64 permitctl: --id a b: expected 1 to 255 printable ASCII"
call "$permitctl" run -s a --owner '' true
check "so is an owner without a name" contains "$code $err" "64 permitctl: --owner : expected 1 to 255"
call "$permitctl" run --help
check "run --help names the variables" contains "$out" PERMIT_TOKEN_
call "$permitctl" $'\e[31mdance'
check "control characters in an error message are escaped" contains "$err" '"?[31mdance"'

if ! (exec 3<>/dev/tcp/127.0.0.1/7070) 2>/dev/null; then # otherwise the default address is in use
    call "$permitctl" semaphore list
    check "where no server was named: 69, and how one is" \
        contains "$code $(xargs -d '\n' <<<"$err")" "no server was named, so that was the default: --url or PERMITD_URL names another"
fi
call "$permitctl" --url http://127.0.0.1:1 semaphore list
check "and not if one was named" not grep -q 'no server was named' "$dir/err"
check "no server: 69" test "$code" = 69
call "$permitctl" --json --url http://127.0.0.1:1 show a
check "no server, --json: a problem" test "$(jq -r .type <<<"$out")" = /problems/no_server
call "$permitctl" --url http://127.0.0.1:1 top --once
check "top without a server: 69" contains "$code $err" "69 permitctl: no_server"
call "$permitctl" --url http://127.0.0.1:1 run -s a touch "$dir/never"
check "run without a server: 69" test "$code" = 69
start=$(now_ms)
call "$permitctl" --url http://127.0.0.1:1 run --wait 8s -s a touch "$dir/never"
check "with --wait: when the wait is over" test "$code $(($(now_ms) - start >= 8000))" = "69 1"
call "$permitctl" --url http://127.0.0.1:1 run --no-retry --wait 10h -s a touch "$dir/never"
check "--no-retry: at once" test "$code" = 69
call "$permitctl" run -s a --allow-replay true
check "--allow-replay is an option of acquire" contains "$code $err" "64 permitctl: run does not take --allow-replay"
check "and the command has not run" test ! -e "$dir/never"

# In a Kubernetes namespace with a service of the name permitd.
of_service=(env PERMITD_SERVICE_HOST=10.43.0.5 PERMITD_PORT=tcp://10.43.0.5:7070 PERMITD_PORT_7070_TCP_ADDR=10.43.0.5)
call "${of_service[@]}" "$permitctl" --url http://127.0.0.1:1 acquire -v -s a
check "variables of a service of the name permitd are ignored: -v says so once" \
    grep -qx 'permitctl: variables of a Kubernetes service or a linked container are ignored: PERMITD_SERVICE_HOST, PERMITD_PORT, PERMITD_PORT_7070_TCP_ADDR' "$dir/err"
check "in one line" test "$code $(grep -c PERMITD_ "$dir/err")" = "69 1"
call "${of_service[@]}" "$permitctl" --url http://127.0.0.1:1 acquire -s a
check "and nothing is said without -v" test "$code $(grep -c PERMITD_ "$dir/err")" = "69 0"

# Secrets are not printed, and invalid values are refused before anything is sent.
for url in 'http://h:7070/?a=b' 'http://h#x' 'ftp://ann:sesame@h' 'http://ann:sesame@h:port' 'http://ann:sesame@h?x'; do
    call "$permitctl" --url "$url" show k
    check "--url $url: 64, and nothing of it is repeated" \
        test "$code $err" = "64 permitctl: the URL of the server (--url) must be http://HOST:PORT, https://HOST:PORT or unix:/PATH, without ? or #"
done
call env PERMITD_URL='ftp://ann:sesame@h' "$permitctl" show k
check "so of PERMITD_URL" test "$code $err" = "64 permitctl: the URL of the server (PERMITD_URL) must be http://HOST:PORT, https://HOST:PORT or unix:/PATH, without ? or #"
list_refused() {
    call "$permitctl" --url "$1" show k
    check "--url $1: 64, and the entry is named" test "$code $err" = "64 permitctl: the URL of the server (--url) $2"
}
list_refused http://a:1, "has an empty entry 2"
list_refused http://a:1,h:2 "has an invalid entry 2, h:2: it must be http://HOST:PORT, https://HOST:PORT or unix:/PATH, without ? or #"
list_refused http://a:1,http://ann:sesame@b:x "has an invalid entry 2: it must be http://HOST:PORT, https://HOST:PORT or unix:/PATH, without ? or #"
list_refused http://a:1,http://b:2,http://A:1/ "has the same server in entries 1 and 3: http://A:1"
list_refused "$(seq -s , 17)" "has 17 entries, more than 16"
call env PERMITD_URL=,http://a:1 "$permitctl" show k
check "so of PERMITD_URL" test "$code $err" = "64 permitctl: the URL of the server (PERMITD_URL) has an empty entry 1"
for token in $'a\r\nX-Evil: 1' $'a\n' 'a b' $'a\x1b'; do
    call "$permitctl" --token "$token" show k
    check "a token that would end its header: 64" \
        test "$code $err" = "64 permitctl: the token (--token) must be printable ASCII without space"
done
call env PERMIT_CREDENTIAL=$'a\r\nX-Evil: 1' "$permitctl" show k
check "so of PERMIT_CREDENTIAL" contains "$code $err" "64 permitctl: the token (PERMIT_CREDENTIAL)"
call "$permitctl" --url http://ann:sesame@127.0.0.1:1/ show k
check "a server that does not answer is named without user and password" contains "$code $err" "69 permitctl: no_server: http://127.0.0.1:1: "
check "which are not printed" not grep -q -e sesame -e ann "$dir/err"
call "$permitctl" --json --url http://ann:sesame@127.0.0.1:1/ show k
check "also not in JSON" not grep -q -e sesame -e ann "$dir/out" "$dir/err"
call "$permitctl" --tokn=sesame show k
check "an unknown option is named without its value" test "$code $err" = "64 permitctl: unknown option --tokn (permitctl --help)"
call "$permitctl" -usesame show k
check "so is a letter" test "$code $err" = "64 permitctl: unknown option -u (permitctl --help)"
call "$permitctl" acquire -s a --wait-piece 100d
check "a piece of over INT_MAX ms is a usage error" contains "$code $err" "64 permitctl: --wait-piece must be at most 24 days"
