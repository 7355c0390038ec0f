#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Runs the checks of .clang-tidy on src/, two minutes on 2 cores, with -Wthread-safety (base/mutex.h says what it checks), and codespell
# (.codespellrc) on all files. Ends with 1 if one of them finds something.
#
#     scripts/tidy.sh [FILE.c ...]     all of src/, or these files
#
# A file in which nothing was found is not checked again until the file, one that it includes, or the checks change:
# ${PERMIT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/permitd}/tidy has the digests of such files.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
case "${1-}" in
-*) sed -n '6p' "$0" | sed 's/^# *//' >&2 && exit 64 ;;
esac

scripts/packages.sh tidy || exit 1
export build=build-tidy # its own, so that it can run beside a build
export clean=${PERMIT_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/permitd}/tidy
found=0
[ -f $build/CMakeCache.txt ] || cmake --preset release -B $build -G Ninja >/dev/null || exit 1
cmake -S . -B $build -DCMAKE_EXPORT_COMPILE_COMMANDS=ON >/dev/null || exit 1
mkdir -p "$clean" || exit 1

# digest FILE: of all that a check of the file depends on. Fails if the compiler cannot read it.
digest() {
    local compile
    compile=$(jq -r --arg file "$PWD/$1" 'map(select(.file == $file))[0].command // empty' $build/compile_commands.json)
    [ -n "$compile" ] || return
    {
        clang-tidy --version
        cat .clang-tidy scripts/tidy.sh
        echo "${compile//$PWD/}"
        (cd $build && eval "$compile -M -MF /dev/stdout" | sed 's/^[^:]*://; s/\\$//' | xargs cat)
    } | sha256sum | cut -d ' ' -f 1
}
check() {
    local file key status=0
    for file; do
        key=$(digest "$file") || key=
        [ -z "$key" ] || [ ! -e "$clean/$key" ] || continue
        if ! clang-tidy -p $build --extra-arg=-Wthread-safety --quiet "$file" 2>/dev/null; then
            status=1
        elif [ -n "$key" ]; then
            : >"$clean/$key"
        fi
    done
    return $status
}
export -f digest check
if [ $# -gt 0 ]; then printf '%s\0' "$@"; else find src -name '*.c' -print0; fi |
    xargs -0 -n 10 -P "$(nproc)" bash -o pipefail -c 'check "$@"' check || found=1
[ $# -gt 0 ] || codespell || found=1
[ $found -eq 0 ]
