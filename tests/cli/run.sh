#!/bin/bash
# SPDX-License-Identifier: MIT
# permitctl against a real permitd: tests/cli/run.sh BUILD_DIRECTORY. One line per check, a last line with the sums; exits
# non-zero if any check failed. Needs jq and script(1).
# shellcheck disable=SC2034,SC2154
set -u

here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "${1:?usage: run.sh BUILD_DIRECTORY}" && pwd)
permitctl=$build/permitctl
permitd=${PERMIT_PERMITD:-$build/permitd}
dir=$(mktemp -d "${TMPDIR:-/tmp}/permit-cli.XXXXXX")
unset PERMITD_URL PERMITD_TOKEN

# shellcheck source=/dev/null
. "$here/lib.sh"

leave() {
    stop_permitd
    rm -rf "$dir"
}
trap leave EXIT
trap 'exit 130' INT TERM

# The library: its suite prints lines of the same form.
echo "# libpermit"
"$build/tests/cli/cli_libpermit" >"$dir/lines" 2>&1 || [ "$?" -eq 1 ] || echo "not ok - libpermit: the suite ends" >>"$dir/lines"
cat "$dir/lines"
passed=$((passed + $(grep -c '^ok ' "$dir/lines")))
failed=$((failed + $(grep -c '^not ok ' "$dir/lines")))

for suite in usage verbs doctor command signals terminal lost; do
    echo "# $suite"
    [ "$suite" != verbs ] || start_permitd
    # shellcheck source=/dev/null
    . "$here/$suite.sh"
done

echo "cli: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
