#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Runs the scripts of scripts/ on small trees of their own.
#
#     tests/scripts/run.sh [NAME ...]     measure, release, hooks
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
top=$PWD

# shellcheck source=tests/lib/check.sh
. tests/lib/check.sh
directory=$(mktemp -d) || exit 1
trap 'rm -rf "$directory"' EXIT

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

# ---- release.sh ----

# in_clone COMMAND...: runs it in the clone, whose commits need no settings of this user.
in_clone() {
    (cd "$directory/clone" && GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=t GIT_AUTHOR_EMAIL=t@example.org \
        GIT_COMMITTER_NAME=t GIT_COMMITTER_EMAIL=t@example.org "$@")
}

commit_all() { in_clone git add -A && in_clone git commit -q --allow-empty -m "$1"; }

# changelog HEADING [TEXT]: commits a changelog with this first heading.
changelog() {
    printf '# Changelog\n\n## %s\n\n%s\n\n## [0.0.1] - 2020-01-01\n\n- An older one.\n' "$1" "${2-}" >"$directory/clone/CHANGELOG.md"
    commit_all "changelog: $1"
}

# version NUMBER: commits it where it stands.
version() {
    sed -i -E "s/^(project\(permitd VERSION )[0-9.]+/\1$1/" "$directory/clone/CMakeLists.txt"
    sed -i -E "s/^(    \"version\": \")[0-9.]+/\1$1/" "$directory/clone/docs/openapi.json"
    commit_all "version $1"
}

tags() { in_clone git tag --list; }
made() { ls "$directory/clone/out" 2>/dev/null; }
checksums_hold() { (cd "$directory/clone/out" && sha256sum -c permitd-9.8.7.sha256); }
# The tarball is the commit, under one directory.
tarball_is_the_commit() {
    mkdir "$directory/unpacked" && tar -xzf "$directory/clone/out/permitd-9.8.7.tar.gz" -C "$directory/unpacked" &&
        diff -r "$directory/unpacked/permitd-9.8.7" "$directory/clone" --exclude=.git --exclude=out
}
same() { [ "$1" = "$2" ] || { diff <(echo "$1") <(echo "$2") && false; }; }

test_release() {
    # A repository of this tree as it is, without its history, which an unpacked tarball has not.
    mkdir "$directory/clone"
    tar -c --exclude=./.git --exclude='./build*' --exclude=./out . | tar -x -C "$directory/clone"
    in_clone git init -q -b main
    in_clone git config core.autocrlf false
    commit_all all
    version 9.8.7

    check "release.sh --help prints its manual" prints "scripts/release.sh [--dry-run] [--output DIRECTORY]" scripts/release.sh --help
    rm -f "$directory/clone/CHANGELOG.md" && commit_all 'no changelog'
    check "release.sh refuses without a changelog" refuses "there is no CHANGELOG.md" in_clone scripts/release.sh
    changelog "[9.8.6] - 2026-01-01" "- A change."
    check "release.sh refuses a changelog of another version" \
        refuses 'begins with "[9.8.6] - 2026-01-01", not with "[9.8.7] - " and a date' in_clone scripts/release.sh
    changelog "[9.8.7] - unreleased" "- A change."
    check "release.sh refuses a version that the changelog calls unreleased" \
        refuses 'begins with "[9.8.7] - unreleased"' in_clone scripts/release.sh
    changelog "[9.8.7] - 2026-01-02"
    check "release.sh refuses a changelog without changes" \
        refuses "CHANGELOG.md says nothing about 9.8.7" in_clone scripts/release.sh
    changelog "[9.8.7] - 2026-01-02" "- A change."
    touch "$directory/clone/new_file"
    check "release.sh refuses a tree with a file that is not committed" refuses "?? new_file" in_clone scripts/release.sh
    rm "$directory/clone/new_file"
    sed -i 's/9\.8\.7/9.8.8/' "$directory/clone/docs/openapi.json" && commit_all 'another version'
    check "release.sh refuses another version in openapi.json" \
        refuses "docs/openapi.json has version 9.8.8, and CMakeLists.txt has 9.8.7" in_clone scripts/release.sh
    version 9.8.7
    in_clone git tag v9.10.0
    check "release.sh refuses a version below a tag" refuses "9.8.7 is below the tag v9.10.0" in_clone scripts/release.sh
    in_clone git tag -d v9.10.0 >/dev/null
    in_clone git tag v9.8.6
    check "release.sh --dry-run says what it would make" \
        prints "as v9.8.7, and make out/permitd-9.8.7.tar.gz" in_clone scripts/release.sh --dry-run
    check "release.sh --dry-run makes no tag" same "$(tags)" v9.8.6
    check "release.sh --dry-run makes no file" same "$(made)" ""
    check "release.sh makes a release" prints "to publish: git push origin v9.8.7" in_clone scripts/release.sh
    check "release.sh tags the commit" same "$(in_clone git rev-parse 'v9.8.7^{commit}')" "$(in_clone git rev-parse HEAD)"
    check "the tag has the changes of this release, and no others" \
        same "$(in_clone git tag --list --format='%(contents)' v9.8.7)" "- A change."
    check "the checksums of the tarball hold" checksums_hold
    check "the tarball has the files of the commit" tarball_is_the_commit
    check "release.sh refuses a tag that is there" refuses "there is a tag v9.8.7 already" in_clone scripts/release.sh
}

# ---- hooks/pre-commit ----

# suite COMMAND: a build/ with one suite, of label fast, which is this command.
suite() {
    rm -rf "$directory/hooked/build"
    printf 'cmake_minimum_required(VERSION 3.25)\nproject(t NONE)\nenable_testing()\nadd_test(NAME t COMMAND %s)\n%s\n' "$1" \
        'set_tests_properties(t PROPERTIES LABELS fast)' >"$directory/suite/CMakeLists.txt"
    cmake -S "$directory/suite" -B "$directory/hooked/build" >/dev/null
}

hooked_commit() {
    (cd "$directory/hooked" && git add -A && GIT_AUTHOR_NAME=t GIT_AUTHOR_EMAIL=t@example.org GIT_COMMITTER_NAME=t \
        GIT_COMMITTER_EMAIL=t@example.org git commit -m t)
}

test_hooks() {
    mkdir -p "$directory/hooked/src" "$directory/suite"
    cp -r --parents scripts .clang-format "$directory/hooked"
    printf '/build/\n' >"$directory/hooked/.gitignore"
    git -C "$directory/hooked" init -q
    git -C "$directory/hooked" config core.hooksPath scripts/hooks

    printf 'int main(void)\n{\n    return 0;\n}\n' >"$directory/hooked/src/a.c"
    check "without build/ the hook checks the layout alone" prints "there is no build/, so no suite runs" hooked_commit
    printf 'int main(void) {\n  return 1;\n}\n' >"$directory/hooked/src/a.c"
    if scripts/format.sh --check scripts/../src/base/base.h | grep -q skipped; then
        echo "the layout is not tested without clang-format 14"
    else
        check "the hook refuses another layout, and says how to mend it" \
            refuses "another layout; scripts/format.sh src/a.c" hooked_commit
        check "format.sh mends it" "$directory/hooked/scripts/format.sh" src/a.c
    fi
    suite true
    check "the hook accepts a commit that passes the suites" prints "1 file changed" hooked_commit
    echo more >"$directory/hooked/more"
    suite false
    check "the hook refuses a commit that fails one" refuses "0% tests passed, 1 tests failed" hooked_commit
}

tests=(measure release hooks)
[ $# -eq 0 ] || tests=("$@")
for name in "${tests[@]}"; do
    "test_$name"
done
echo "scripts: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
