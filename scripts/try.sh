#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Tests this commit on another system: in a minimal root of Debian, created by debootstrap, with only the packages that
# the project's own scripts install.
#
#     scripts/try.sh SYSTEM quickstart                   README.md's first command, in a new root
#     scripts/try.sh SYSTEM tests [SUITE ...]            tests/run.sh
#     scripts/try.sh SYSTEM compilers                    all targets with gcc and with clang, warnings as errors
#     scripts/try.sh SYSTEM libmysqlclient [SUITE ...]   the same with Oracle's client library, then store and http, or SUITE
#
# SYSTEM is a name of debootstrap: bookworm (Debian 12), trixie (13), sid (unstable; the only one with libmysqlclient).
# Needs root and a Debian mirror: $PERMIT_MIRROR, else that of this machine's apt, else http://deb.debian.org/debian. The
# roots stay below ${PERMIT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/permitd}/try; each SYSTEM has one run at a time. Only
# committed files are tested. The commands run in a chroot with an empty environment, in their own mount and process
# namespaces, which end with this script in every case, together with their mounts and processes.
set -euo pipefail
# shellcheck disable=SC2317 # functions are called by name
repository=$(cd "$(dirname "$0")/.." && pwd)

usage() {
    sed -n '6,9s/^# \{0,1\}//p' "$0" >&2
    exit 64
}

fail() {
    echo "try.sh: $*" >&2
    exit 1
}

say() { echo "try.sh: $*"; }

[ $# -ge 2 ] || usage
system=$1 what=$2
shift 2
[[ $system =~ ^[a-z]+$ ]] || usage
case "$what" in
quickstart | compilers) [ $# -eq 0 ] || usage ;;
tests | libmysqlclient) ;;
*) usage ;;
esac
[ "$(id -u)" -eq 0 ] || fail "needs root: debootstrap and chroot"
"$repository/scripts/packages.sh" try

cache=${PERMIT_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/permitd}/try
base=$cache/$system        # as created by debootstrap; only copied
kept=$cache/$system.kept   # with all packages and builds; it and the base may be deleted at any time
fresh=$cache/$system.fresh # for one run
mkdir -p "$cache"
exec 9>"$base.lock"
if ! flock -n 9; then
    say "waits for another run on $system"
    flock 9
fi

# ---- Ending ----

began=         # seconds; start of the timed step
namespace_pid= # of unshare, the parent of the namespace's first process

# The end of its first process ends all processes of the namespace, and unshare returns after the last of them.
end_namespace() {
    [ -n "$namespace_pid" ] || return 0
    local first
    for first in $(cat "/proc/$namespace_pid/task/$namespace_pid/children" 2>/dev/null); do
        kill -KILL "$first" 2>/dev/null || true
    done
    wait "$namespace_pid" 2>/dev/null || true
    namespace_pid=
}

leave() {
    local status=$?
    trap '' INT TERM HUP
    end_namespace
    rm -rf --one-file-system "$fresh"
    if [ "$status" -eq 0 ]; then
        say "$system: $what: done in $((SECONDS - began)) s"
    else
        say "$system: $what: failed (exit $status)"
    fi
    exit "$status"
}
trap leave EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# ---- A root ----

# mirror LABEL DEFAULT: the mirror of this machine's apt for archives with that label.
mirror() {
    local found=
    # shellcheck disable=SC2016 # apt expands it
    if command -v apt-get >/dev/null; then
        found=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' "Label: $1" 2>/dev/null |
            grep -E '^https?:' | head -n 1) || true
    fi
    echo "${found:-$2}"
}

# Copies this machine's apt settings of proxies and of the age of lists into the root.
apt_settings() {
    ! command -v apt-config >/dev/null || apt-config dump | grep -E '^Acquire::(https?::|Check-|Retries)' || true
}

base_make() {
    local new=$base.new debian security
    debian=${PERMIT_MIRROR:-$(mirror Debian http://deb.debian.org/debian)}
    security=$(mirror Debian-Security http://deb.debian.org/debian-security)
    say "makes $base from $debian"
    rm -rf --one-file-system "$new"
    timeout -k 10 1800 debootstrap --variant=minbase --include=ca-certificates "$system" "$new" "$debian" 9>&- >"$base.log" 2>&1 ||
        fail "debootstrap cannot make $system: $(grep . "$base.log" | tail -n 1) ($base.log)"
    {
        echo "deb $debian $system main"
        if [ "$system" != sid ] && [ "$system" != unstable ]; then
            echo "deb $debian $system-updates main"
            echo "deb $security $system-security main"
        fi
    } >"$new/etc/apt/sources.list"
    apt_settings >"$new/etc/apt/apt.conf.d/00machine"
    printf '#!/bin/sh\nexit 101\n' >"$new/usr/sbin/policy-rc.d" # no service is started
    chmod +x "$new/usr/sbin/policy-rc.d"
    echo '127.0.0.1 localhost' >"$new/etc/hosts"
    mv "$new" "$base"
}

# root_refresh DIR: copies this commit into a root.
root_refresh() {
    cp -L /etc/resolv.conf "$1/etc/resolv.conf"
    find "$1/tmp" "$1/var/tmp" -mindepth 1 -delete
    if [ ! -d "$1/permitd/.git" ]; then
        git init -q "$1/permitd"
    fi
    git -C "$1/permitd" fetch -q --depth 1 "file://$repository" HEAD
    git -C "$1/permitd" checkout -q -f --detach FETCH_HEAD
    git -C "$1/permitd" clean -q -f -d # what it ignores, build directories, stays
}

# root_run DIR COMMAND...: in the root, at the top of the sources.
root_run() {
    local root=$1 status=0
    shift
    # shellcheck disable=SC2016 # expanded in the root
    setpriv --pdeathsig KILL env --default-signal=INT,QUIT \
        unshare --mount --pid --fork --kill-child=KILL -- bash -c '
            root=$1
            shift
            mount -t proc proc "$root/proc" && mount --rbind /dev "$root/dev" || exit
            chroot "$root" env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin LC_ALL=C.UTF-8 \
                sh -c '\''cd /permitd && exec "$@"'\'' sh "$@"
            exit' bash "$root" "$@" </dev/null 9>&- &
    namespace_pid=$!
    wait "$namespace_pid" || status=$?
    namespace_pid=
    return "$status"
}

# ---- Tests ----

# A new root, like a freshly installed machine.
quickstart() {
    cp -a "$base" "$fresh"
    root_refresh "$fresh"
    began=$SECONDS
    root_run "$fresh" examples/quickstart.sh
}

# The kept root, with the current packages for tests. With "mysql": with Oracle's client library too.
keep() {
    if [ ! -d "$kept" ]; then
        rm -rf --one-file-system "$kept.new"
        cp -a "$base" "$kept.new"
        mv "$kept.new" "$kept"
    fi
    root_refresh "$kept"
    # shellcheck disable=SC2016 # expanded inside
    root_run "$kept" sh -c 'apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -q -y dist-upgrade &&
        PERMIT_MYSQL_CLIENT=$1 scripts/packages.sh test' sh "${1-}" >"$kept.log" 2>&1 ||
        fail "packages cannot be installed: $(grep . "$kept.log" | tail -n 1) ($kept.log)"
    began=$SECONDS
}

# build_with DIRECTORY COMPILER OPTION...: builds everything, tests included.
build_with() {
    local directory=$1 compiler=$2
    shift 2
    root_run "$kept" "$compiler" --version >"$kept.log" 2>&1
    say "$system: builds with $(head -n 1 "$kept.log")"
    root_run "$kept" cmake -B "$directory" -G Ninja -DCMAKE_C_COMPILER="$compiler" -DPERMIT_TESTS=ON "$@" >"$kept.log"
    root_run "$kept" cmake --build "$directory" -j "$(nproc)" -- --quiet
}

compilers() {
    keep
    build_with build-gcc gcc
    build_with build-clang clang
}

# MariaDB needs the plugin mysql_native_password; since 9.0 its package conflicts with MariaDB's.
native_password() {
    # shellcheck disable=SC2016 # expanded inside
    root_run "$kept" sh -ec '
        cd "$(mktemp -d)"
        apt-get -q download mysql-client-core
        dpkg-deb -x *.deb .
        mkdir -p /usr/lib/mysql/plugin
        cp usr/lib/mysql/plugin/mysql_native_password.so /usr/lib/mysql/plugin/' >"$kept.log" 2>&1 ||
        fail "no mysql_native_password.so: $(grep . "$kept.log" | tail -n 1) ($kept.log)"
}

libmysqlclient() {
    [ $# -gt 0 ] || set -- store http
    keep mysql
    native_password
    build_with build-libmysqlclient-clang clang -DPERMIT_MYSQL_CLIENT=mysql
    root_run "$kept" tests/run.sh --preset libmysqlclient "$@"
}

tests() {
    keep
    [ $# -gt 0 ] || set -- --label all
    root_run "$kept" tests/run.sh "$@"
}

say "$system: $what of $(git -C "$repository" log -1 --format='%h %s')"
rm -rf --one-file-system "$fresh"
[ -d "$base" ] || base_make
began=$SECONDS
"$what" "$@"
