#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Installs the packages that permitd needs, and only those that are missing. Knows their names in Debian 12, Debian 13 and
# unstable, and in Ubuntu 24.04 and newer.
#
#     scripts/packages.sh run              what an installed permitd needs
#     scripts/packages.sh build            what compiling it needs, and run
#     scripts/packages.sh test             what tests/run.sh and .ci/run need, and build
#     scripts/packages.sh libmysqlclient   what -DPERMIT_MYSQL_CLIENT=mysql needs besides
#     scripts/packages.sh try              what scripts/try.sh needs
#
# Asks dpkg first: if everything is there, apt is not called and no rights are needed. Otherwise it calls apt-get, through
# sudo where it is not root.
set -euo pipefail

# A package that has several names: installed under any of them is enough; else the first one that apt knows.
#
# package                            why
run_packages='
mariadb-server-core                  # mariadbd and mariadb-install-db, for the private MariaDB of --data-dir
mariadb-client                       # mariadb-dump, for backups (docs/operating.md, examples/quickstart.sh)
libmariadb3                          # permitd speaks to the database through it
libevent-2.1-7t64|libevent-2.1-7     # the loop and connections of HTTP
libjson-c5                           # reading JSON
libinih1                             # the settings file
libuuid1                             # keys that the server makes
libssl3t64|libssl3                   # SHA-256 of requests
libcurl4t64|libcurl4                 # permitctl and libpermit
'
build_packages='
gcc                                  # C17
libc6-dev                            # only recommended by gcc
cmake                                # 3.25 or newer
ninja-build                          # what the presets build with
pkg-config|pkgconf                   # where the libraries are
libmariadb-dev
libevent-dev
libjson-c-dev
libinih-dev
uuid-dev
libssl-dev
libcurl4-openssl-dev
'
test_packages='
libcriterion-dev                     # the suites in C
clang                                # the fuzzers (tests/fuzz)
libclang-rt-dev                      # libFuzzer and the sanitizers of clang; only recommended by it
clang-format                         # the layout of the code is checked
galera-4                             # a cluster of three nodes, in the suite galera
openssl                              # certificates of the database, in the suite store
debootstrap                          # a root with a MySQL server (tests/mysql/root.sh)
curl                                 # the commands of README.md are tried
jq                                   # docs/openapi.json is checked
procps                               # ps, in the suite of permitctl
postgresql                           # the guards of src/guards are tested on it
valkey-tools|redis-tools             # and on Valkey or Redis: NAME-check-rdb is the server, under another name; no daemon is installed
libpq-dev
libhiredis-dev
haproxy                              # requests are read behind it, in the suite smuggling
nginx                                # and behind this one
python3                              # its HTTP client, in the suite http
'

libmysqlclient_packages='
libmysqlclient-dev                   # of unstable and Ubuntu; Debian 12 and 13 have none
'
try_packages='
debootstrap
git
'

# One package a line, comments after #.
entries() { sed 's/#.*//' <<<"$1" | xargs -n 1; }

installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

# Is one name of this entry installed?
satisfied() {
    local name
    for name in ${1//|/ }; do
        ! installed "$name" || return 0
    done
    return 1
}

# The name of this entry that apt can install; the last one where it knows none of them.
name_here() {
    local name
    for name in ${1//|/ }; do
        ! apt-cache policy "$name" 2>/dev/null | grep "Candidate: [^(]" >/dev/null || break
    done
    echo "$name"
}

wanted_for() {
    case "$1" in
    run) entries "$run_packages" ;;
    build) entries "$run_packages$build_packages" ;;
    test) entries "$run_packages$build_packages$test_packages" ;;
    libmysqlclient) entries "$libmysqlclient_packages" ;;
    try) entries "$try_packages" ;;
    *)
        echo "usage: scripts/packages.sh run|build|test|libmysqlclient|try" >&2
        exit 64
        ;;
    esac
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}

[ $# -eq 1 ] || set -- usage
wanted=$(wanted_for "$1")
lacking=()
for entry in $wanted; do
    satisfied "$entry" || lacking+=("$entry")
done
[ ${#lacking[@]} -gt 0 ] || exit 0

if ! command -v apt-get >/dev/null; then
    echo "packages.sh: no apt-get here; install what corresponds to: ${lacking[*]}" >&2
    exit 1
fi
if [ "$(id -u)" -ne 0 ] && ! command -v sudo >/dev/null; then
    echo "packages.sh: neither root nor sudo; as root: apt-get install --no-install-recommends ${lacking[*]}" >&2
    exit 1
fi
as_root apt-get -q update >&2
missing=()
for entry in "${lacking[@]}"; do
    missing+=("$(name_here "$entry")")
done
# A PostgreSQL for tests only: without this its package makes a cluster in /var and starts it. Nothing is changed where
# PostgreSQL is used already.
if [[ " ${missing[*]} " == *" postgresql "* ]] && [ ! -e /etc/postgresql-common ]; then
    as_root mkdir -p /etc/postgresql-common/createcluster.d
    echo 'create_main_cluster = false' | as_root tee /etc/postgresql-common/createcluster.d/permitd.conf >/dev/null
fi
# Servers for tests only are neither started now nor with the machine.
for server in haproxy nginx; do
    if [[ " ${missing[*]} " == *" $server "* ]] && [ ! -e "/etc/systemd/system/$server.service" ]; then
        as_root mkdir -p /etc/systemd/system
        as_root ln -s /dev/null "/etc/systemd/system/$server.service"
    fi
done
if [ ! -e /usr/sbin/policy-rc.d ]; then
    printf '#!/bin/sh\nexit 101\n' | as_root tee /usr/sbin/policy-rc.d >/dev/null
    as_root chmod +x /usr/sbin/policy-rc.d
    trap 'as_root rm -f /usr/sbin/policy-rc.d' EXIT
fi
echo "packages.sh: installing ${missing[*]}" >&2
as_root env DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends "${missing[@]}" </dev/null >&2
