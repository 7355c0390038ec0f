#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Runs the checks of .clang-tidy on src/, two minutes on 2 cores, with -Wthread-safety (base/mutex.h says what it checks), and codespell
# (.codespellrc) on all files. Ends with 1 if one of them finds something.
#
#     scripts/tidy.sh [FILE.c ...]     all of src/, or these files
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
case "${1-}" in
-*) sed -n '6p' "$0" | sed 's/^# *//' >&2 && exit 64 ;;
esac

scripts/packages.sh tidy || exit 1
build=build-tidy # its own, so that it can run beside a build
found=0
[ -f $build/CMakeCache.txt ] || cmake --preset release -B $build -G Ninja >/dev/null || exit 1
cmake -S . -B $build -DCMAKE_EXPORT_COMPILE_COMMANDS=ON >/dev/null || exit 1
if [ $# -gt 0 ]; then printf '%s\0' "$@"; else find src -name '*.c' -print0; fi |
    xargs -0 -n 10 -P "$(nproc)" clang-tidy -p $build --extra-arg=-Wthread-safety --quiet 2>/dev/null || found=1
[ $# -gt 0 ] || codespell || found=1
[ $found -eq 0 ]
