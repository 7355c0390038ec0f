#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Lays out the C code with .clang-format and clang-format 14, the version of Debian 12; others give another layout.
#
#     scripts/format.sh [--check] [FILE ...]     all of include, src, tests and examples, or these files
#
# --check: changes nothing, and ends with 1 if a file has another layout. Without clang-format 14 it only says so.
set -euo pipefail
cd "$(dirname "$0")/.."

how=(-i)
if [ "${1-}" = --check ]; then
    how=(--dry-run -Werror)
    shift
fi
case "${1-}" in
-*) sed -n '5p' "$0" | sed 's/^# *//' >&2 && exit 64 ;;
esac
formatter=clang-format
! command -v clang-format-14 >/dev/null || formatter=clang-format-14
if ! version=$("$formatter" --version 2>&1) || [[ $version != *'version 14.'* ]]; then
    echo "skipped: the layout needs clang-format 14, and this is ${version:-none}"
    [ "${how[0]}" = --dry-run ]
    exit
fi
if [ $# -gt 0 ]; then printf '%s\0' "$@"; else find include src tests examples -name '*.[ch]' -print0; fi |
    xargs -0 -n 50 -P "$(nproc)" "$formatter" "${how[@]}"
