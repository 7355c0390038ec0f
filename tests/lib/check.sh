# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2034
# Counts the checks of a suite. Sourced.

passed=0
failed=0

# check SENTENCE COMMAND...: passes if the command succeeds; otherwise shows its output.
check() {
    local sentence=$1 output
    shift
    if output=$("$@" 2>&1); then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: $sentence"
        [ -z "$output" ] || sed 's/^/    /' <<<"$output"
    fi
}
