# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2154,SC2016,SC2094
# Credentials, TLS and Unix sockets: permitctl against a server that checks credentials (fake_server.py).

files=$dir/access
mkdir -p "$files"
saved=$XDG_CONFIG_HOME/permit/config
good=pmt_$(head -c 32 /dev/urandom | base64 | tr '+/' '-_' | tr -d '=')
echo "$good" >"$files/token"
chmod 600 "$files/token"
declare -A fakes # pids, by name

# start_fake NAME OPTION...: starts a server. Leaves its url in $url; its log is $files/log.
start_fake() {
    : >"$dir/fake.$1"
    python3 "$here/fake_server.py" "$files/log" "${@:2}" >"$dir/fake.$1" 2>"$dir/fake.$1.err" &
    fakes[$1]=$!
    check "a server $1 starts" soon test -s "$dir/fake.$1"
    url=$(cat "$dir/fake.$1")
}
stop_fakes() {
    local name
    for name in "${!fakes[@]}"; do kill "${fakes[$name]}"; done
    wait "${fakes[@]}" 2>/dev/null
    fakes=()
}

# make_certificate NAME SUBJECT ALTERNATIVE [DAYS]: $files/NAME.pem and NAME.key, signed by $files/ca.pem, and both in
# NAME.both.
make_certificate() {
    (
        cd "$files" || exit
        openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$1.key" -out "$1.csr" \
            -subj "/CN=$2" -addext "subjectAltName=$3"
        sign=(openssl x509 -req -in "$1.csr" -CA ca.pem -CAkey ca.key -CAcreateserial -copy_extensions copy -out "$1.pem")
        if [ "${4-}" = expired ]; then
            "${sign[@]}" -not_before 20200101000000Z -not_after 20200102000000Z || "${sign[@]}" -days -1
        else
            "${sign[@]}" -days 9
        fi
        cat "$1.pem" "$1.key" >"$1.both"
        chmod 600 "$1".*
    ) >>"$dir/openssl" 2>&1
}
make_authority() {
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$files/$1.key" -out "$files/$1.pem" \
        -days 9 -subj "/CN=$1" >>"$dir/openssl" 2>&1
}

sent() { wc -l <"$files/log"; }
# nothing_sent COMMAND...: succeeds if the command fails and the server sees nothing of it.
nothing_sent() {
    local before
    before=$(sent)
    call "$@"
    [ "$code" != 0 ] && [ "$(sent)" = "$before" ]
}
mode() { stat -c %a "$1"; }

touch "$files/log"
start_fake plain
plain=$url
export PERMITD_URL=$plain

# Where the token comes from.
last() { tail -n 1 "$files/log"; }
call "$permitctl" whoami
check "without a credential: 77" contains "$code $err" "77 permitctl: unauthenticated: no valid credential"
check "and how to save one" contains "$err" "no credential was sent: permitctl login URL saves one"
check "sent once" test "$(sent)" = 1
call "$permitctl" --token "$good" whoami
check "--token" contains "$code $(xargs <<<"$out")" \
    "0 principal shop-checkout rights look,use semaphores shop:*,hall quotas - until 2027-01-31"
call "$permitctl" --json --token look whoami
check "whoami as JSON" test "$code $(jq -r '.principal, .until' <<<"$out" | xargs)" = "0 reader null"
call "$permitctl" --url "$plain/open" whoami
check "of a server without credentials" contains "$code $(xargs <<<"$out")" "0 principal - rights look,use"
call "$permitctl" --token-file "$files/token" whoami
check "--token-file" test "$code" = 0
call env PERMIT_CREDENTIAL_FILE="$files/token" PERMIT_CREDENTIAL=no PERMITD_TOKEN=no "$permitctl" whoami
check "PERMIT_CREDENTIAL_FILE" test "$code $err" = "0 "
call env PERMIT_CREDENTIAL="$good" PERMITD_TOKEN=no "$permitctl" whoami
check "PERMIT_CREDENTIAL" test "$code $err" = "0 "
call env PERMITD_TOKEN="$good" "$permitctl" whoami
check "PERMITD_TOKEN, with a warning" \
    test "$code $err" = "0 permitctl: PERMITD_TOKEN is now called PERMIT_CREDENTIAL; a later version ignores the old name"
call env PERMIT_CREDENTIAL_FILE=/none PERMIT_CREDENTIAL=no "$permitctl" --token "$good" whoami
check "an option comes before the environment" test "$code" = 0
call "$permitctl" --token-file <(echo "$good") whoami
check "a token from a pipe" test "$code" = 0
call "$permitctl" --token-file <(echo "$good") run -s s true
check "also for run, which needs it more than once" test "$code" = 0
call "$permitctl" --token a --token-file "$files/token" whoami
check "--token and --token-file exclude each other" contains "$code $err" "64 permitctl: --token and --token-file"
call env PERMIT_CREDENTIAL=wrong "$permitctl" whoami
check "an unknown token: 77" contains "$code $err" "77 permitctl: unauthenticated: no valid credential"
check "its source is named, not the token" contains "$err" "the token is from PERMIT_CREDENTIAL"
check "which is not printed" not grep -q wrong "$dir/err"

# Refusals are final.
before=$(sent)
call "$permitctl" --token look run -s s touch "$dir/never"
check "403: 78, and the server's reason" contains "$code $err" "78 permitctl: forbidden: needs the right use on s"
check "sent once" test "$(sent)" = $((before + 1))
check "and the command has not run" test ! -e "$dir/never"
call "$permitctl" --token nobody run -s s touch "$dir/never"
check "401 of run: 77" test "$code" = 77
check "sent once, too" test "$(sent)" = $((before + 2))

# Answers that prove nothing.
for semaphore in another-key no-token; do
    call "$permitctl" --token "$good" run -s "$semaphore" touch "$dir/never"
    check "a grant with $semaphore: 69" test "$code" = 69
    check "and the command has not run" test ! -e "$dir/never"
    check "its own key is released" contains "$(last)" "DELETE /v1/requests/"
    check "and not the other one" test "$(grep -c somebody-else "$files/log")" = 0
done
call "$permitctl" --token "$good" run -s another-key true
check "the reason is told" contains "$err" "the server's answer is about another request"
before=$(sent)
call "$permitctl" --token "$good" semaphore list
check "a list that does not go on: 69" contains "$code $err" \
    "69 permitctl: internal: the server's list cannot be read, or does not go on"
check "is asked for twice" test "$(sent)" = $((before + 2))

# Token files.
check "no token file: nothing is sent" nothing_sent "$permitctl" --token-file "$files/none" whoami
check "64, and the file is named" \
    test "$code $err" = "64 permitctl: the token file $files/none cannot be read: No such file or directory"
cp "$files/token" "$files/open"
chmod 644 "$files/open"
check "a token file that others can read: nothing is sent" nothing_sent "$permitctl" --token-file "$files/open" whoami
check "64, and what helps" contains "$code $err" \
    "64 permitctl: the token file $files/open can be read or changed by other users (mode 644): chmod 600 $files/open"
: >"$files/open"
chmod 600 "$files/open"
call "$permitctl" --token-file "$files/open" whoami
check "an empty one" contains "$code $err" "64 permitctl: the token file $files/open is empty"
call "$permitctl" --token-file "$files" whoami
check "a directory" contains "$code $err" "64 permitctl: the token file $files cannot be read: Is a directory"
if [ "$(id -u)" != 0 ]; then
    chmod 000 "$files/open"
    call "$permitctl" --token-file "$files/open" whoami
    check "one that cannot be read" contains "$code $err" "cannot be read: Permission denied"
fi

# Other machines. 192.0.2.1 is for documents; nothing answers there.
for other in http://192.0.2.1:7070 http://permit.example "http://127.0.0.1:1,http://192.0.2.1"; do
    call timeout 10 "$permitctl" --url "$other" --token "$good" whoami
    check "no token over http to another machine, $other: 64" contains "$code $err" \
        "64 permitctl: the credential would be sent in the clear to another machine, http://"
    check "before anything is sent" not grep -q no_server "$dir/err"
done
call "$permitctl" --url http://permit.invalid --insecure --token "$good" whoami
check "unless --insecure: 69" contains "$code $err" "69 permitctl: no_server: http://permit.invalid:"
call "$permitctl" --url http://permit.invalid whoami
check "or there is none: 69" test "$code" = 69

# The credentials that the command of run inherits.
secrets() { printenv | grep -c -F -e "$good" -e sesame; }
export -f secrets
export good
with_user=${plain/localhost/ann:sesame@localhost}
call env PERMITD_URL="$with_user,${with_user/localhost/127.0.0.1}" PERMIT_CREDENTIAL="$good" PERMITD_TOKEN="$good" PERMIT_CREDENTIAL_FILE="$files/token" \
    good= "$permitctl" run -s s -- sh -c 'printenv | grep -e ^PERMIT -e sesame'
check "run: 0" test "$code" = 0
check "its command has the grant" contains "$out" PERMIT_TOKEN=57
check "and the servers, without a password" grep -qxF "PERMITD_URL=$plain,${plain/localhost/127.0.0.1}" "$dir/out"
check "but no credential" not grep -q -e ^PERMIT_CREDENTIAL -e PERMITD_TOKEN -e sesame -e "$good" "$dir/out"
call env PERMIT_CREDENTIAL="$good" PERMITD_URL="$with_user" "$permitctl" run --keep-credential -s s -- printenv PERMIT_CREDENTIAL PERMITD_URL
check "unless --keep-credential" test "$code $(xargs <<<"$out")" = "0 $good $with_user"

# login, logout, and the file.
unset PERMITD_URL
login() { printf '%s\n' "$2" | "$permitctl" login "$1" "${@:3}" >"$dir/out" 2>"$dir/err"; code=$?; out=$(cat "$dir/out"); err=$(cat "$dir/err"); }
login "$plain" "$good"
check "login reads the token from standard input" contains "$code $(xargs <<<"$out")" "0 principal shop-checkout"
check "and names the file" test "$err" = "permitctl: wrote $saved"
check "which only the user can read" test "$(mode "$saved") $(mode "${saved%/*}")" = "600 700"
check "with url and token" test "$(grep -v '^#' "$saved" | xargs)" = "url = $plain token = $good"
call "$permitctl" whoami
check "from then on neither url nor token is needed" test "$code $err" = "0 "
call "$permitctl" --url "$plain/" whoami
check "nor a token for that url" test "$code" = 0
call "$permitctl" --url "${plain/localhost/127.0.0.1}" whoami
check "another server does not get the token" test "$code $(last)" = "77 GET /v1/whoami -"
check "and permitctl says so" contains "$err" "the credential in $saved is for other servers, and was not sent"
call env PERMITD_URL="$plain,${plain/localhost/127.0.0.1}" "$permitctl" whoami
check "nor does a list with another server" test "$code $(last)" = "77 GET /v1/whoami -"
call env PERMIT_CREDENTIAL=look "$permitctl" whoami
check "the environment comes before the file" contains "$(xargs <<<"$out")" "principal reader"
sed -i 's/^token = .*/token = wrong/' "$saved"
call "$permitctl" whoami
check "an unknown token of the file: 77, and the file" contains "$code $err" "the token is from $saved"
chmod 640 "$saved"
check "a file that others can read is refused" nothing_sent "$permitctl" whoami
check "64, and what helps" test "$code $err" = \
    "64 permitctl: $saved can be read or changed by other users (mode 640): chmod 600 $saved"
chmod 600 "$saved"
echo "passwort = $good" >>"$saved"
call "$permitctl" whoami
check "so is one with an unknown word" contains "$code $err" "64 permitctl: $saved, line 4: passwort is not a setting"
check "whose value is not printed" not grep -qF "$good" "$dir/err"
login "$plain" nonsense
check "login with an unknown token: 77" contains "$code $err" "77 permitctl: unauthenticated"
check "leaves the file as it was" grep -q "^token = wrong" "$saved"
login "$plain" "$good"
check "login replaces a file with mistakes" test "$code $(grep -c . "$saved")" = "0 3"
call "$permitctl" login "$plain" --token-file "$files/token"
check "login --token-file" test "$code $(grep -c "^token = $good" "$saved")" = "0 1"
call "$permitctl" login "$plain/open" --token a
check "login at a server without credentials: 65" \
    test "$code $err" = "65 permitctl: $plain/open requires no credential; nothing was written"
call timeout 10 "$permitctl" login http://192.0.2.1
check "login over http to another machine: 64, before a token is read" \
    contains "$code $err" "64 permitctl: the credential would be sent in the clear"
call "$permitctl" login ftp://x
check "login with a wrong url: 64" contains "$code $err" "64 permitctl: the URL of the server (login) must be"
PERMIT_CREDENTIAL=look login "$plain" "$good"
check "login warns of variables that override the file" contains "$code $err" "PERMIT_CREDENTIAL is set, and overrides the file"
if script -qec true /dev/null </dev/null >/dev/null 2>&1; then
    rm "$saved"
    { soon grep -q '^Token for' "$dir/raw" && echo "$good"; soon grep -q 'status:' "$dir/raw"; } |
        SHELL=/bin/bash timeout --foreground 60 script -qec "'$permitctl' login $plain; echo status:\$?" /dev/null >"$dir/raw" 2>/dev/null
    tr -d '\r' <"$dir/raw" >"$dir/screen"
    check "login reads the token from a terminal" grep -q status:0 "$dir/screen"
    check "without echo" not grep -qF "$good" "$dir/screen"
    check "and writes it" grep -qF "$good" "$saved"
    : >"$dir/raw"
    { soon grep -q '^Token for' "$dir/raw" && printf '\003'; soon grep -q 'echo:' "$dir/raw"; } |
        SHELL=/bin/bash env --default-signal timeout --foreground 60 script -qec "'$permitctl' login $plain/$'a\xe2\x80\xaeb'; echo status:\$?; stty | grep -c -e -echo; echo echo:" /dev/null >"$dir/raw" 2>/dev/null
    tr -d '\r' <"$dir/raw" >"$dir/screen"
    check "Ctrl-C ends it: 130" grep -q status:130 "$dir/screen"
    check "with the echo on again" grep -qx 0 "$dir/screen"
    check "the prompt shows a control of the direction of text as ?" grep -q "^Token for $plain/a???b: " "$dir/screen"
fi
call "$permitctl" logout
check "logout removes the file" test "$code $err" = "0 permitctl: removed $saved"
check "indeed" test ! -e "$saved"
call "$permitctl" logout
check "again: 0" test "$code $err" = "0 permitctl: no login is saved"
mkdir -p "$saved"
call "$permitctl" logout
check "a directory in its place: 71" contains "$code $err" "71 permitctl: $saved cannot be removed: "
rmdir "$saved"
call env -u XDG_CONFIG_HOME -u HOME "$permitctl" login "$plain" --token "$good"
check "login without a home: 64" contains "$code $err" "64 permitctl: the path of the user's file is unknown"
mkdir "$dir/home"
call env -u XDG_CONFIG_HOME HOME="$dir/home" "$permitctl" login "$plain" --token "$good"
check "the file is in ~/.config" test "$code $(mode "$dir/home/.config/permit/config")" = "0 600"

# Unix sockets.
start_fake unix --unix "$files/socket"
call "$permitctl" --url "$url" whoami
check "a Unix socket: the server knows the user" contains "$code $(xargs <<<"$out")" "0 principal user-$(id -u)"
call "$permitctl" --url "$url" --token "$good" run -s s true
check "run, with a token" test "$code" = 0
login "$url" ""
check "login without a token" test "$code $(grep -v '^#' "$saved")" = "0 url = $url"
call "$permitctl" whoami
check "and whoami after it" contains "$code $(xargs <<<"$out")" "0 principal user-"
call "$permitctl" --url "unix:$files/none" whoami
check "no such socket: 69, and why" \
    test "$code $err" = "69 permitctl: no_server: unix:$files/none: cannot connect to the socket: No such file or directory"
: >"$files/dead"
call "$permitctl" --url "unix:$files/dead" whoami
check "no server at the socket: 69, and why" \
    test "$code $err" = "69 permitctl: no_server: unix:$files/dead: cannot connect to the socket: Connection refused"
if [ "$(id -u)" != 0 ]; then # root may pass every directory
    mkdir -m 0 "$files/closed"
    call "$permitctl" --url "unix:$files/closed/socket" whoami
    check "a closed directory: 69, and a hint" contains "$code $err" \
        "69 permitctl: no_server: unix:$files/closed/socket: cannot connect to the socket: Permission denied: this user may not"
fi
call "$permitctl" --url unix:here whoami
check "a relative path: 64" contains "$code $err" "64 permitctl: the URL of the server (--url) must be"
"$permitctl" logout 2>/dev/null

# TLS.
make_authority ca
make_authority other
make_certificate server permitd DNS:localhost,IP:127.0.0.1
make_certificate elsewhere permitd DNS:elsewhere.example
make_certificate expired permitd DNS:localhost expired
make_certificate client worker-7 DNS:worker-7.example
start_fake tls --tls "$files/server.both" "$files/ca.pem"
tls=$url
call "$permitctl" --url "$tls" --ca "$files/ca.pem" --token-file "$files/token" whoami
check "https with --ca" contains "$code $(xargs <<<"$out")" "0 principal shop-checkout"
call env PERMIT_CA="$files/ca.pem" PERMITD_URL="$tls" PERMIT_CREDENTIAL="$good" "$permitctl" run -s s true
check "https with PERMIT_CA, for run" test "$code" = 0
call "$permitctl" --url "$tls" --ca "$files/ca.pem" --cert "$files/client.pem" --key "$files/client.key" whoami
check "a client certificate" contains "$code $(xargs <<<"$out")" "0 principal worker-7"
call "$permitctl" --url "$tls" --ca "$files/ca.pem" --cert "$files/client.both" whoami
check "with its key in the same file" contains "$code $(xargs <<<"$out")" "0 principal worker-7"
(cd "$files" && "$permitctl" login "$tls" --ca ca.pem --cert client.pem --key client.key) >"$dir/out" 2>"$dir/err"
check "login with a certificate asks for no token" contains "$(xargs <"$dir/out")" "principal worker-7"
check "and saves the paths" test "$(grep -v -e '^#' -e '^url' "$saved" | xargs)" = \
    "ca = $files/ca.pem cert = $files/client.pem key = $files/client.key"
call "$permitctl" whoami
check "so that nothing else is needed" contains "$code $(xargs <<<"$out")" "0 principal worker-7"
call "$permitctl" --token "$good" whoami
check "a token on the command line is sent without the certificate of the file" \
    contains "$code $(xargs <<<"$out")" "0 principal shop-checkout"
"$permitctl" logout 2>/dev/null

# tls_fails SENTENCE OPTION...: 69, no request is sent, and the message has the sentence. Leaves the number of
# connections in $tried.
tls_fails() {
    local sentence=$1 before
    before=$(wc -l <"$files/log.connections")
    check "$sentence" nothing_sent "$permitctl" --token "$good" "${@:2}" run -s s touch "$dir/never"
    check "69, and the reason" contains "$code $err" "69 permitctl: no_server: https://localhost:"
    check "$sentence: the message says so" contains "$err" "$sentence"
    tried=$(($(wc -l <"$files/log.connections") - before))
}
tls_fails "; the option ca names the file of its authority" --url "$tls"
check "once: a retry does not help" test "$tried" = 1
check "and nothing is left to release" not grep -q 'may have been granted' "$dir/err"
tls_fails "the server's certificate is refused: " --url "$tls" --ca "$files/other.pem"
tls_fails "the certificate or key of this client cannot be used: " --url "$tls" --ca "$files/ca.pem" \
    --cert "$files/client.pem" --key "$files/server.key"
echo nonsense >"$files/nonsense.pem"
tls_fails "the file of authorities cannot be used: " --url "$tls" --ca "$files/nonsense.pem"
(cd "$files" && openssl req -x509 -key client.key -out self.pem -subj /CN=self -days 9 2>>"$dir/openssl")
tls_fails "the server refuses the certificate of this client, or requires one: " --url "$tls" --ca "$files/ca.pem" \
    --cert "$files/self.pem" --key "$files/client.key"
check "once, although TLS 1.3 sends the request before it knows of the refusal" test "$tried" = 1
check "and nothing is left to release" not grep -q 'may have been granted' "$dir/err"
openssl ec -aes128 -passout pass:sesame -in "$files/client.key" -out "$files/locked.key" 2>>"$dir/openssl"
tls_fails "the certificate or key of this client cannot be used: " --url "$tls" --ca "$files/ca.pem" \
    --cert "$files/client.pem" --key "$files/locked.key"
start_fake elsewhere --tls "$files/elsewhere.both"
tls_fails "the server's certificate is refused: no alternative certificate subject name matches target host name 'localhost'" \
    --url "$url" --ca "$files/ca.pem"
check "and what helps" contains "$err" "; use a URL with a name of the certificate, or give the server one with this name"
start_fake expired --tls "$files/expired.both"
tls_fails "the server's certificate is refused: certificate has expired" --url "$url" --ca "$files/ca.pem"
check "once, too" test "$tried" = 1
call "$permitctl" --url "$url,$tls" --ca "$files/ca.pem" --token "$good" whoami
check "of two servers the one with a good certificate serves" test "$code" = 0
call "$permitctl" --url "https${plain#http}" --token "$good" whoami
check "https to a port that speaks http: 69, and a hint" contains "$code $err" "; the server may speak http, not https"
check "a key without its certificate: 64" nothing_sent "$permitctl" --url "$tls" --key "$files/client.key" whoami
check "and a sentence" contains "$code $err" "64 permitctl: the key $files/client.key needs its certificate (cert)"
chmod 644 "$files/client.key"
call "$permitctl" --url "$tls" --cert "$files/client.pem" --key "$files/client.key" whoami
check "a key that others can read: 64" contains "$code $err" \
    "64 permitctl: the key $files/client.key can be read or changed by other users (mode 644)"
call "$permitctl" --url "$tls" --ca "$files/none" whoami
check "no file of authorities: 64" contains "$code $err" "64 permitctl: the file of authorities (ca) $files/none cannot be read"
check "the command has never run" test ! -e "$dir/never"
check "no server has had an error" test ! -s "$dir/fake.plain.err" -a ! -s "$dir/fake.tls.err" -a ! -s "$dir/fake.unix.err"
stop_fakes
rm -f "$dir/raw" "$dir/screen"
