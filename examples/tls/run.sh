#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# permitd for three machines, with TLS and credentials: the ten commands that set it up, and the rotation of everything
# that ends one day.
#
#     examples/tls/run.sh    [--small]: the same; it takes some seconds
#
# web1 and web2 may acquire, each by its token or its certificate; admin may do everything. All runs on this machine, in a
# temporary directory. docs/security.md explains the files.
set -uo pipefail
# shellcheck source=examples/lib/permitd.sh
. "$(dirname "$0")/../lib/permitd.sh"
needs permitd permitctl
openssl version >/dev/null || fail "needs openssl"
cd "$work" || exit 1
umask 077 # keys, tokens and credentials are for their owner only
PATH=$build:$PATH
unset PERMITD_URL PERMIT_CREDENTIAL PERMIT_CREDENTIAL_FILE PERMITD_TOKEN PERMIT_CA
export XDG_CONFIG_HOME=$work # no file of an earlier `permitctl login`

# sign NAME ALTERNATIVE-NAMES: makes NAME.key and NAME.pem, a certificate of the authority $signer.
signer=ca
sign() {
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$1.key" -subj "/CN=$1" \
        -addext "subjectAltName=$2" -addext basicConstraints=CA:FALSE 2>>openssl.log |
        openssl x509 -req -CA "$signer.pem" -CAkey "$signer.key" -CAcreateserial -copy_extensions copy -days 365 -out "$1.pem" \
            2>>openssl.log
}
authority() {
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -subj "/CN=$1" -keyout "$1.key" \
        -out "$1.pem" 2>>openssl.log
}

# ---- The ten commands ----

# 1. Our authority. ca.key stays with who makes certificates; ca.pem goes to every machine.
authority ca
# 2. The certificate of permitd, for the names by which clients reach it.
sign permitd DNS:permit.example,IP:127.0.0.1
# 3. and 4. A certificate for each machine that uses permits.
sign web1 DNS:web1.example
sign web2 DNS:web2.example
# shellcheck disable=SC2129
# 5. to 7. A token and a section of the credentials file for each machine; the token file goes to the machine.
permitctl token make web1 --role use --semaphores 'backups shop:*' --append credentials >web1.token
permitctl token make web2 --role use --semaphores 'backups' --append credentials >web2.token
permitctl token make admin --role admin --append credentials >admin.token
# 8. The names of the certificates belong to the same principals.
sed -i -e '/^\[web[12]\]$/{p;s/\[\(.*\)\]/certificate = DNS:\1.example/}' credentials
# 9. permitd: permitd_start adds --data-dir and waits until it serves.
permitd_start https://127.0.0.1:0 --credentials credentials --tls-certificate permitd.pem --tls-key permitd.key \
    --tls-client-ca ca.pem
# 10. On every machine: whom to trust. PERMITD_URL is the address that permitd has printed.
export PERMIT_CA=ca.pem

# ---- What they do ----

as_token() { permitctl --token-file "$1.token" "${@:2}"; }
as_certificate() { permitctl --cert "$1.pem" --key "$1.key" "${@:2}"; }
# ends_with STATUS COMMAND...
ends_with() {
    local code=0
    "${@:2}" >out 2>&1 || code=$?
    [ "$code" -eq "$1" ]
}
not() { ! "$@"; }
# said TEXT COMMAND...: the command succeeds and prints the text.
said() { "${@:2}" >out 2>&1 && grep -q -- "$1" out; }

claim "permitd listens with TLS: $PERMITD_URL" [ "${PERMITD_URL%%:*}" = https ]
claim "permitctl token check accepts the credentials" said web1 permitctl token check credentials
claim "the admin makes a semaphore, with a token" said backups as_token admin semaphore put backups --capacity 2
claim "web1 runs a command, with its token" said ran as_token web1 run -s backups -- echo ran
claim "web2 runs a command, with its certificate and no token" said ran as_certificate web2 run -s backups -- echo ran
claim "both name the same principal" said '^principal *web1' as_certificate web1 whoami
claim "the certificate of one machine and the token of another are refused (77)" \
    ends_with 77 permitctl --token-file web1.token --cert web2.pem --key web2.key whoami
claim "web2 has no right on shop:* (78)" ends_with 78 as_token web2 acquire -s shop:a
claim "without a credential: 77" ends_with 77 permitctl whoami
claim "a client that does not trust our authority sends nothing" ends_with 69 env -u PERMIT_CA \
    permitctl --token-file web1.token whoami

# ---- Rotation: each is a change of files and a SIGHUP ----

reloads=0
reload() {
    kill -HUP "$permitd_pid"
    reloads=$((reloads + 1))
    until [ "$(grep -c 'settings reloaded' permitd.log)" -ge "$reloads" ]; do sleep 0.02; done
}
serial() { openssl s_client -connect "${PERMITD_URL#https://}" </dev/null 2>/dev/null | openssl x509 -noout -serial; }

# A token: add the next one, change the client, remove the old one.
mv web1.token old.token
permitctl token make web1 >web1.token 2>line
sed -i -e '/^\[web1\]$/r line' credentials
reload
claim "after a rotation begins, the new token of web1 is valid" said '^principal *web1' as_token web1 whoami
claim "and the old one too" said '^principal *web1' as_token old whoami
digest=$(tr -d '\n' <old.token | sha256sum | cut -d ' ' -f 1)
sed -i -e "/sha256:$digest/d" credentials
reload
claim "when its line is removed, the old token is refused (77)" ends_with 77 as_token old whoami
claim "the new one stays" said '^principal *web1' as_token web1 whoami

# The certificate of permitd: replace both files.
before=$(serial)
sign permitd DNS:permit.example,IP:127.0.0.1
reload
claim "permitd shows its new certificate" [ "$(serial)" != "$before" ]
claim "clients notice nothing" said '^principal *web1' as_token web1 whoami

# The certificate of a machine: nothing to do at permitd, because it knows the name.
sign web2 DNS:web2.example
claim "a new certificate of web2 is valid at once" said '^principal *web2' as_certificate web2 whoami

# The authority: trust both, make new certificates, trust the new one only. ca.pem is the file of permitd and of every
# machine.
cp web2.pem old.pem && cp web2.key old.key
authority ca2
cat ca.pem ca2.pem >both.pem && mv both.pem ca.pem
reload
signer=ca2
sign permitd DNS:permit.example,IP:127.0.0.1
sign web1 DNS:web1.example
sign web2 DNS:web2.example
reload
claim "while both authorities are trusted, certificates of the new one are valid" \
    said '^principal *web2' as_certificate web2 whoami
claim "and those of the old one" said '^principal *web2' as_certificate old whoami
cp ca2.pem ca.pem
reload
claim "when the old authority is removed, its certificates are refused" ends_with 69 as_certificate old whoami
claim "those of the new one stay" said '^principal *web2' as_certificate web2 whoami
claim "and no token is in the log" not grep -q pmt_ permitd.log
exit "$status"
