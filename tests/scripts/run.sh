#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Runs the scripts of scripts/ on small trees of their own.
#
#     tests/scripts/run.sh [NAME ...]     measure
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
top=$PWD

passed=0
failed=0
directory=$(mktemp -d) || exit 1
trap 'rm -rf "$directory"' EXIT

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

# prints TEXT COMMAND...: succeeds if the command does and a line of its output, with single spaces, contains the text; shows
# its output.
prints() {
    local text=$1 output status
    shift
    output=$("$@" 2>&1)
    status=$?
    echo "$output"
    [ "$status" -eq 0 ] && tr -s ' ' <<<"$output" | grep -qF -- "$text"
}

# refuses TEXT COMMAND...: the same for a command that must end with 1.
refuses() {
    local text=$1 output status
    shift
    output=$("$@" 2>&1)
    status=$?
    echo "$output (exit $status)"
    [ "$status" -eq 1 ] && tr -s ' ' <<<"$output" | grep -qF -- "$text"
}

# ---- measure.sh ----

# A tree with a copy of the script, so that it is the project that the copy measures.
measured_tree() {
    mkdir -p "$directory/tree"/{scripts,src/engine,src/core,src/store,include/permit,docs,docs/decisions,sql,tests,examples}
    cp scripts/measure.sh "$directory/tree/scripts/"
    cat >"$directory/tree/src/engine/op.h" <<'END'
/* bool of a comment; */
struct op {
    bool queued, keyed;
    bool waited : 1;
    const bool *shared;
    void (*decided)(bool yes,
                    bool no);
    struct {
        _Atomic bool inner;
    } part;
};
struct other_op {
    bool a, b, c, d, e;
};
END
    cat >"$directory/tree/src/core/plan.c" <<'END'
static int six(int a, int b, int c, int d, int e, int f)
{
    return a + b + c + d + e + f;
}

static int seven(int a, int b /* not, a, parameter */, int (*f)(int c, int d), const char *text, int g,
                 struct op *op, int h)
{
    return six(a, b, f(1, 2), text[0], g, op->queued + h);
}
END
    printf 'one\ntwo\n' >"$directory/tree/README.md"
    echo three >"$directory/tree/docs/design.md"
    echo four >"$directory/tree/docs/decisions/0001-none.md"
}

# padded LINES: the tree with so many lines in src and include.
padded() {
    rm -f "$directory/tree/include/permit/pad.h"
    local has
    has=$(find "$directory/tree/src" "$directory/tree/include" -name '*.[ch]' -exec cat {} + | wc -l)
    yes '/* pad */' | head -n $(($1 - has)) >"$directory/tree/include/permit/pad.h"
}

test_measure() {
    local measure=$directory/tree/scripts/measure.sh budget
    measured_tree
    check "measure.sh counts the lines of a room" prints "lines of engine 14" "$measure"
    check "measure.sh adds the rooms of the queue" prints "lines of engine+core+store 24" "$measure"
    check "measure.sh counts documents without decisions" prints "lines of documents 3 " "$measure"
    check "measure.sh counts functions with 7 or more parameters" prints "7 or more parameters 1 functions" "$measure"
    check "measure.sh names them, with the number and the line" \
        prints "7 src/core/plan.c:6: seven" "$measure" --parameters
    check "measure.sh counts members of type bool, with those of inner structs, in the whole of a struct" \
        prints "at most 5 (src/engine/op.h: struct other_op); struct op: 4" "$measure"
    budget=$(sed -n 's/^budget=//p' scripts/measure.sh)
    padded "$budget"
    check "measure.sh accepts as many lines as the budget" prints "lines $budget in" "$measure"
    padded $((budget + 1))
    check "measure.sh refuses one line more" \
        refuses "src and include have $((budget + 1)) lines, 1 more than the budget of $budget" "$measure"
    check "measure.sh knows no budget for another directory" prints "lines $((budget + 1)) in" \
        "$top/scripts/measure.sh" "$directory/tree"
}

tests=(measure)
[ $# -eq 0 ] || tests=("$@")
for name in "${tests[@]}"; do
    "test_$name"
done
echo "scripts: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
