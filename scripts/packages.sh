#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Installs the packages that permitd needs, and only those that are missing. Knows their names in Debian 12, Debian 13 and
# unstable, and in Ubuntu 24.04 and newer.
#
#     scripts/packages.sh run      for an installed permitd
#     scripts/packages.sh build    for compiling, and run
#     scripts/packages.sh test     for tests/run.sh and .ci/run, and build
#     scripts/packages.sh browser  for the suite browser, which calls this itself
#     scripts/packages.sh tidy     for scripts/tidy.sh, which calls this itself
#     scripts/packages.sh try      for scripts/try.sh
#     scripts/packages.sh peers    for tests/bench/run.sh peers --peers, which calls this itself
#
# PERMIT_MYSQL_CLIENT=mysql in the environment: for a build with Oracle's client library. Its package conflicts with that
# of MariaDB's.
#
# Asks dpkg first: if nothing is missing, it does not call apt and needs no rights. Otherwise it calls apt-get, with sudo
# if it is not root.
set -euo pipefail

# Names separated by |: one installed name is enough; otherwise the script installs the first one that apt knows.
#
# package                            why
run_packages='
mariadb-server-core                  # mariadbd and mariadb-install-db, for the private MariaDB of --data-dir
mariadb-client                       # mariadb-dump, for backups (docs/operating.md, examples/quickstart.sh)
libmariadb3                          # permitd speaks to the database through it
libevent-2.1-7t64|libevent-2.1-7     # the loop and connections of HTTP
libjson-c5                           # reading JSON
libinih1                             # the settings file and the credentials file
libuuid1                             # keys that the server generates
libssl3t64|libssl3                   # SHA-256 of requests, and TLS
libcurl4t64|libcurl4                 # permitctl and libpermit; the liveness probe
'
build_packages='
gcc                                  # C17
libc6-dev                            # gcc only recommends it
cmake                                # 3.25 or newer
ninja-build                          # the generator of the presets
pkg-config|pkgconf                   # finds the libraries
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
libclang-rt-dev                      # libFuzzer and the sanitizers of clang, which only recommends it
clang-format-14|clang-format         # checks the layout of the code; only version 14 does
galera-4                             # a cluster of three nodes, in the suite galera
patch                                # applies the faults of tests/sim/mutants
openssl                              # certificates, in the suites store, http and examples
git                                  # a release, in the suite scripts
debootstrap                          # a root with a MySQL server (tests/mysql/root.sh)
curl                                 # runs the commands of README.md
jq                                   # checks docs/openapi.json
procps                               # ps, in the suite of permitctl
postgresql                           # a database for the guards of sql/guards
valkey-tools|redis-tools             # another one: NAME-check-rdb is the server under another name; no daemon is installed
libpq-dev
libhiredis-dev
haproxy                              # a proxy in front of permitd, in the suites smuggling and examples
nginx                                # another one
python3                              # its HTTP client, in the suite http
'
browser_packages='
chromium-headless-shell|chromium     # the shell needs neither a display nor the packages of a desktop
jq
mariadb-client
python3
'
tidy_packages='
clang-tidy
codespell
'
try_packages='
debootstrap
git
'
peers_packages='
zookeeper                            # the server alone; its service would be the package zookeeperd
libzookeeper-st-dev                  # its client in C for programs with their own loop
redis-tools|valkey-tools             # NAME-check-rdb is the server under another name; no daemon is installed
'
# Only in Debian unstable and Ubuntu.
[ "${PERMIT_MYSQL_CLIENT-}" != mysql ] || build_packages=${build_packages/libmariadb-dev/libmysqlclient-dev}

# One package per line, comments after #.
entries() { sed 's/#.*//' <<<"$1" | xargs -n 1; }

installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

# Succeeds if one name of this entry is installed.
satisfied() {
    local name
    for name in ${1//|/ }; do
        ! installed "$name" || return 0
    done
    return 1
}

# The first name of this entry that apt can install; the last one if it knows none.
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
    browser) entries "$browser_packages" ;;
    tidy) entries "$build_packages$tidy_packages" ;;
    try) entries "$try_packages" ;;
    peers) entries "$peers_packages" ;;
    *)
        echo "usage: scripts/packages.sh run|build|test|browser|tidy|try|peers" >&2
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
    echo "packages.sh: no apt-get; install the equivalents of: ${lacking[*]}" >&2
    exit 1
fi
if [ "$(id -u)" -ne 0 ] && ! command -v sudo >/dev/null; then
    echo "packages.sh: neither root nor sudo; run as root: apt-get install --no-install-recommends ${lacking[*]}" >&2
    exit 1
fi
as_root apt-get -q update >&2
missing=()
for entry in "${lacking[@]}"; do
    missing+=("$(name_here "$entry")")
done
# PostgreSQL for tests only: without this its package creates a cluster in /var and starts it. Nothing changes if
# PostgreSQL is already in use.
if [[ " ${missing[*]} " == *" postgresql "* ]] && [ ! -e /etc/postgresql-common ]; then
    as_root mkdir -p /etc/postgresql-common/createcluster.d
    echo 'create_main_cluster = false' | as_root tee /etc/postgresql-common/createcluster.d/permitd.conf >/dev/null
fi
# Servers for tests only are started neither now nor at boot.
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
