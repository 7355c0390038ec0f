#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Creates a MySQL server for tests: a small root of Debian unstable with mysql-server-core and the files of an empty
# server, which tests copy. Debian 12 has no MySQL.
#
#     tests/mysql/root.sh          prints the directory of the root; creates it if it is missing
#     tests/mysql/root.sh build    the same, and always creates it anew
#
# The root stays between runs, below ${PERMIT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/permitd}. Its creation takes a minute
# and needs root (debootstrap) and the Debian mirror of apt's sources. Its use needs neither (tests/mysql/mysqld).
# Exit status 75, after one line "skipped: WHY": it is missing and cannot be created here.
set -uo pipefail

suite=sid
cache=${PERMIT_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/permitd}
root=$cache/mysql-$suite
build_log=$cache/mysql-$suite.log
initial=/var/lib/mysql-initial # in the root: a data directory that was only initialised

skip() {
    echo "skipped: $*"
    exit 75
}

# The Debian mirror of this machine's apt.
mirror() {
    local found=''
    if command -v apt-get >/dev/null; then
        found=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 'Label: Debian' 2>/dev/null | head -n 1)
    fi
    echo "${found:-http://deb.debian.org/debian}"
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo -n "$@"; fi
}

# This file is created last: if it exists, the root is complete.
complete() { [ -e "$root/permitd-tests-use-this" ]; }

root_make() {
    local new=$root.new
    as_root rm -rf --one-file-system "$new" || return
    as_root timeout -k 10 240 debootstrap --variant=minbase --include=mysql-server-core "$suite" "$new" "$(mirror)" || return
    as_root chroot "$new" mysqld --no-defaults --initialize-insecure --user=root --datadir="$initial" \
        --lc-messages-dir=/usr/share/mysql --secure-file-priv=NULL --mysqlx=OFF || return
    # auto.cnf: each copy needs its own server UUID.
    as_root rm -rf "$new$initial/auto.cnf" "$new/var/cache/apt/archives" "$new/var/lib/apt/lists" || return
    as_root chmod -R a+rX "$new$initial" || return
    as_root touch "$new/permitd-tests-use-this" || return
    as_root rm -rf --one-file-system "$root" || return
    as_root mv "$new" "$root"
}

case "${1-}" in
'' | build) ;;
*)
    sed -n '3,12s/^# \{0,1\}//p' "$0" >&2
    exit 64
    ;;
esac

mkdir -p "$cache" 2>/dev/null || skip "cannot make $cache"
{ exec 9>"$root.lock"; } 2>/dev/null || skip "cannot write to $cache"
flock 9
if ! complete || [ "${1-}" = build ]; then
    PATH=$PATH:/usr/sbin:/sbin
    [ "$(dpkg --print-architecture 2>/dev/null)" = amd64 ] || skip "not an amd64 Debian"
    command -v debootstrap >/dev/null || skip "no debootstrap (scripts/packages.sh test installs it)"
    as_root true 2>/dev/null || skip "neither root nor sudo without a password: $root cannot be made"
    if ! root_make >"$build_log" 2>&1; then
        skip "a root of Debian $suite with mysql-server-core cannot be made: $(grep . "$build_log" | tail -n 1) ($build_log)"
    fi
fi
echo "$root"
