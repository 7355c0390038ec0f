# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2154
# The names in the certificate of a permitd, as permitctl and libpermit verify them.

certificates=$dir/names
mkdir -p "$certificates"
unset PERMITD_URL

# make_server NAMES: replaces the certificate of the server, signed by ca.pem, by one with these names. Its common name is
# that of the host, which must not count.
make_server() {
    (
        cd "$certificates" || exit
        [ -s ca.pem ] || openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout ca.key -out ca.pem -days 9 -subj /CN=ca
        openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout key.new -out csr -subj /CN=localhost \
            -addext "subjectAltName=$1"
        openssl x509 -req -in csr -CA ca.pem -CAkey ca.key -CAcreateserial -copy_extensions copy -days 9 -out pem.new
        chmod 600 key.new
        mv key.new server.key
        mv pem.new server.pem
    ) >>"$dir/openssl" 2>&1
}
# shows NAME: succeeds if the certificate that permitd shows has this name.
shows() {
    openssl s_client -connect "127.0.0.1:$port" </dev/null 2>/dev/null | openssl x509 -noout -ext subjectAltName | grep -qF "$1"
}
# reload NAMES SHOWN: permitd loads a certificate with these names.
reload() {
    make_server "$1"
    kill -HUP "$permitd_pid"
    check "permitd loads a certificate for $1" soon shows "$2"
}
served() { sed -n 's/^permitd_http_answers_total{class="2xx"} //p' <(curl -sS "$plain/metrics"); }

# accepted HOST, refused HOST: by permitctl and by libpermit.
accepted() {
    call "$permitctl" --url "https://$1:$port" --ca "$certificates/ca.pem" semaphore list
    check "permitctl accepts $1" test "$code" = 0
    call "$build/tests/cli/cli_call" "https://$1:$port" "$certificates/ca.pem" /v1/semaphores
    check "libpermit accepts $1" test "$code" = 0
}
refused() {
    local before
    before=$(served)
    call "$permitctl" --url "https://$1:$port" --ca "$certificates/ca.pem" run -s never touch "$dir/never"
    check "permitctl refuses $1: 69" contains "$code $err" "69 permitctl: no_server: https://$1:$port: the server's certificate is refused: "
    check "and says what helps" contains "$err" "; use a URL with a name of the certificate, or give the server one with this name"
    call "$build/tests/cli/cli_call" "https://$1:$port" "$certificates/ca.pem" /v1/semaphores
    check "libpermit refuses $1" contains "$code $out" "1 no_server https://$1:$port: the server's certificate is refused: "
    check "and says what helps" contains "$out" "; use a URL with a name of the certificate, or give the server one with this name"
    check "permitd has served neither" test "$(served)" = "$((before + 1))" # the request for the metrics before
}

make_server DNS:localhost,IP:127.0.0.1
start_permitd --listen https://127.0.0.1:0 --tls-certificate "$certificates/server.pem" --tls-key "$certificates/server.key"
plain=$(head -n 1 <<<"$PERMITD_URL")
port=$(sed -n 's,^https://127.0.0.1:,,p' <<<"$PERMITD_URL")
unset PERMITD_URL
accepted localhost
accepted 127.0.0.1
reload DNS:elsewhere.example,IP:192.0.2.1 elsewhere.example
refused localhost
refused 127.0.0.1
reload DNS:localhost DNS:localhost
accepted localhost
refused 127.0.0.1
reload IP:127.0.0.1 'IP Address:127.0.0.1'
accepted 127.0.0.1
refused localhost
check "no command has run" test ! -e "$dir/never"
stop_permitd
