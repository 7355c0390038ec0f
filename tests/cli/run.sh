#!/bin/bash
# SPDX-License-Identifier: MIT
# permitctl against a real permitd: tests/cli/run.sh BUILD_DIRECTORY [SUITE ...]. Prints one line per check, and a last
# line with the sums; exits non-zero if any check failed. Needs jq and script(1). Named suites run one after the other
# on one permitd. Without names all suites run, in parallel lanes: most of the time they wait. On MySQL runs only locks
# (tests/mysql/run.sh).
# shellcheck disable=SC2034,SC2154
set -u

lanes='
usage token access verbs waiting doctor slots changes locks reconcile feed
libpermit
command signals
terminal lost
servers
tenants
names
'

here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "${1:?usage: run.sh BUILD_DIRECTORY [SUITE ...]}" && pwd)
shift
permitctl=$build/permitctl
permitd=${PERMIT_PERMITD:-$build/permitd}
dir=$(mktemp -d "${TMPDIR:-/tmp}/permit-cli.XXXXXX")
unset PERMITD_URL PERMITD_TOKEN PERMIT_CREDENTIAL PERMIT_CREDENTIAL_FILE PERMIT_CA
export XDG_CONFIG_HOME=$dir/config # no file of the user who runs the tests

# shellcheck source=/dev/null
. "$here/lib.sh"

# A process that the shell has forked still has its traps for a moment, and must not take the directory away.
leave() {
    [ "$BASHPID" = $$ ] || return
    stop_beside
    stop_permitd
    stop_mysql
    rm -rf "$dir"
}
trap leave EXIT
trap 'exit 130' INT TERM

# Runs the suite of the library, and of permitctl against a script; it prints lines of the same form.
run_libpermit() {
    "$build/tests/cli/cli_libpermit" "$permitctl" >"$dir/lines" 2>&1 || [ "$?" -eq 1 ] || echo "not ok - libpermit: the suite ends" >>"$dir/lines"
    cat "$dir/lines"
    passed=$((passed + $(grep -c '^ok ' "$dir/lines")))
    failed=$((failed + $(grep -c '^not ok ' "$dir/lines")))
}

# Creates the semaphores that the suites need; the suite verbs creates its own.
make_semaphores() {
    "$permitctl" --json semaphore put backups --capacity 2 >/dev/null
    "$permitctl" --json semaphore put network --capacity 10 --kind counted >/dev/null
}

start_server() {
    [ -z "${PERMIT_MYSQL_ROOT-}" ] || start_mysql
    start_permitd
}

run_suite() {
    case $1 in
    usage | access | token) ;; # without a permitd
    tenants | names) ;;        # with one of their own
    *) [ -n "${PERMITD_URL-}" ] || start_server ;;
    esac
    case $1 in
    command | signals | terminal | waiting | lost | slots | servers) make_semaphores ;;
    esac
    # shellcheck source=/dev/null
    . "$here/$1.sh"
}

# Runs all suites. --default-signal: a background job would ignore the signals that the suites send.
run_lanes() {
    local lane pids=()
    while read -r lane; do
        [ -n "$lane" ] || continue
        # shellcheck disable=SC2086 # a lane is words
        env --default-signal=INT,QUIT "$here/run.sh" "$build" $lane >"$dir/lane.${#pids[@]}" 2>&1 </dev/null &
        pids+=($!)
    done <<<"$lanes"
    for lane in "${!pids[@]}"; do
        wait "${pids[$lane]}"
        cat "$dir/lane.$lane"
        if [[ $(tail -n 1 "$dir/lane.$lane") =~ ^cli:\ ([0-9]+)\ passed,\ ([0-9]+)\ failed$ ]]; then
            passed=$((passed + BASH_REMATCH[1]))
            failed=$((failed + BASH_REMATCH[2]))
        else
            echo "not ok - lane $lane comes to its end"
            failed=$((failed + 1))
        fi
    done
}

[ $# -gt 0 ] || run_lanes
for suite; do
    echo "# $suite"
    if [ "$suite" = libpermit ]; then
        run_libpermit
    else
        run_suite "$suite"
    fi
done

echo "cli: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
