#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Checks the documents against the code and against each other, as far as a program can.
#
#     tests/docs/run.sh           (PERMIT_BUILD names the build directory, default: build)
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
build=${PERMIT_BUILD:-build}
api=docs/openapi.json
protocol=docs/protocol.md

# shellcheck source=tests/lib/check.sh
. tests/lib/check.sh

# same_lines A B: shows the difference, if any (< only in the first, > only in the second). Two empty lists are not the same.
same_lines() { [ -n "$1" ] && diff <(sort -u <<<"$1") <(sort -u <<<"$2"); }

# nothing TEXT: succeeds if the text is empty, otherwise shows it.
nothing() {
    [ -z "$1" ] || { echo "$1" && false; }
}

# "GET /v1/semaphores/{name}" of each operation.
api_routes() { jq -r '.paths | to_entries[] | .key as $p | .value | keys[] | select(. != "parameters") | ascii_upcase + " " + $p' $api; }
# The same from the headings of protocol.md, and from the server's table of routes.
protocol_routes() {
    sed -nE 's/^##+ ((GET|PUT|POST|DELETE) [^?]*)(\?.*)?$/\1/p; s/^\| `(GET [^`]*)` \|.*/\1/p' $protocol
}

# The words after /problems/.
api_problems() { jq -r '.components.schemas.Problem.properties.type.enum[] | ltrimstr("/problems/")' $api; }
protocol_problems() { sed -nE 's/^\| [45][0-9]{2} \| `([a-z_]+)` \|.*/\1/p' $protocol; }
# "404 unknown_path": from the table of statuses in C, and from protocol.md.
code_problem_statuses() { sed -nE 's/^ *X\(PERMIT_[A-Z_]+, "([a-z_]+)", ([0-9]+),.*/\2 \1/p' include/permit/status.h; }
protocol_problem_statuses() { sed -nE 's/^\| ([45][0-9]{2}) \| `([a-z_]+)` \|.*/\1 \2/p' $protocol; }

dangling_references() {
    jq -r '[paths] as $all | [.. | objects | ."$ref"? // empty] | unique[]
           | select((ltrimstr("#/") | split("/")) as $p | ($all | index([$p])) | not)' $api
}

documents="README.md CHANGELOG.md docs/*.md docs/decisions/*.md"

# broken_links DIRECTORY: the relative links in its documents whose target does not exist.
broken_links() (
    cd "$1" || { echo "no directory $1" && exit; }
    for document in $documents; do
        [ -f "$document" ] || { echo "no $document in $1" && continue; }
        grep -oE '\]\([^)#:]+' "$document" | sed 's/^](//' | while read -r target; do
            [ -e "$(dirname "$document")/$target" ] || echo "$document: $target"
        done
    done
)

# anchors DOCUMENT: the anchors of its headings, as GitHub and GitLab make them.
anchors() {
    awk '/^```/ { code = !code } !code && sub(/^#+ +/, "") { print tolower($0) }' "$1" |
        sed -E 's/[^a-z0-9 _-]//g; s/ /-/g' | awk '{ n = seen[$0]++; print n ? $0 "-" n : $0 }'
}

# The links to a heading that does not exist.
broken_anchors() {
    local document target heading
    for document in $documents; do
        tr '\n' ' ' <"$document" | grep -oE '\]\([^) :]*#[^) ]+\)' | sed 's/^](//; s/)$//' | while IFS='#' read -r target heading; do
            target=${target:+$(dirname "$document")/$target}
            grep -qxF -- "$heading" <(anchors "${target:-$document}") || echo "$document: ${target:-$document}#$heading"
        done
    done
}

# broken_links for the installed documents, except the tour, whose links point to sources, which are not installed.
broken_installed_links() {
    local directory
    directory=$(mktemp -d) || return 1
    if DESTDIR=$directory/root cmake --install "$build" >"$directory/out" 2>&1; then
        broken_links "$(dirname "$(find "$directory/root" -path '*/permitd/README.md')")" | grep -vE ': (\.\./)?(src|include|sql)/'
    else
        cat "$directory/out"
    fi
    rm -rf "$directory"
}

# The part of config.md that permitd prints.
written_settings() { sed -n '/<!-- settings: begin/,/<!-- settings: end/p' docs/config.md | sed '1d;$d'; }

# of_permitd COMMAND [FLAG...]: its output. $url and $directory belong to a permitd that runs for the duration of the command,
# with these flags.
of_permitd() {
    local directory permitd url command=$1
    shift
    directory=$(mktemp -d) || return 1
    touch "$directory/out"
    PERMITD_ALLOW_ROOT=true "$build/permitd" --data-dir "$directory/data" --listen 127.0.0.1:0 "$@" >"$directory/out" 2>"$directory/err" &
    permitd=$!
    for ((tries = 0; tries < 1800; tries++)); do
        url=$(sed -n 's/^permitd: listening on //p' "$directory/out")
        [ -z "$url" ] && kill -0 $permitd 2>/dev/null || break
        sleep 0.1
    done
    [ -n "$url" ] || cat "$directory/err"
    "$command"
    kill $permitd
    wait $permitd || echo "permitd ended with $?"
    rm -rf "$directory"
}

# Runs the curl commands of README.md. Prints the status of each answer.
minute() {
    sed -n '/minute: begin/,/minute: end/p' README.md | sed -n '/^```sh/,/^```/p' | grep -v '^```' |
        sed "s|localhost:7070|$url|; s|^curl |curl -s -o /dev/null -w '%{http_code} ' |" >"$directory/commands"
    bash "$directory/commands"
}

# With TLS, and with credentials of which one ends, so that every metric is there.
of_permitd_with_credentials() {
    local token=pmt_0123456789012345678901234567890123456789abc file
    file=$(mktemp) || return 1
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$file.key" -out "$file.pem" -days 2 \
        -subj /CN=docs 2>/dev/null
    printf '[docs]\nrole = admin\ntoken = sha256:%s until 9999-12-31\n' "$(printf %s $token | sha256sum | cut -d ' ' -f 1)" >"$file"
    of_permitd "$1" --credentials "$file" --tls-certificate "$file.pem" --tls-key "$file.key"
    rm -f "$file" "$file.key" "$file.pem"
}

# "permitd_waiting gauge" for each metric: from /metrics, and from operating.md.
served_metrics() { curl -s -H "Authorization: Bearer $token" "$url/metrics" | sed -n 's/^# TYPE //p'; }
written_metrics() { sed -nE 's/^\| `(permitd_[a-z_]+)` \| (counter|gauge|histogram) \|.*/\1 \2/p' docs/operating.md; }

check "openapi.json is JSON of OpenAPI 3.1" jq -e '.openapi | startswith("3.1")' $api
check "no path of openapi.json is there twice" nothing "$(grep -oE '^    "/[^"]*": \{' $api | sort | uniq -d)"
check "every \$ref of openapi.json leads somewhere" nothing "$(dangling_references)"
check "operationIds are unique" nothing "$(jq -r '.paths[][] | .operationId? // empty' $api 2>/dev/null | sort | uniq -d)"
# A missing member keeps its value, so the schema has no defaults: a generated client that fills one in would change it.
check "no member of a body has a default" nothing "$(jq -r '.components.schemas | paths | select(.[-1] == "default") | join(".")' $api)"
check "every operation has a summary and a description" \
    nothing "$(jq -r '.paths[][] | objects | select(.operationId and ((.summary and .description) | not)) | .operationId' $api)"
# Answers that every route may give: group [A] of protocol.md.
check "every operation has the answers of group [A]" \
    nothing "$(jq -r '.paths[][] | objects | select(.operationId) | .operationId as $id | .responses as $has
        | ("400", "403", "405", "413", "421", "422", "429", "500", "503") | select($has[.] == null) | $id + " lacks " + .' $api)"
check "openapi.json carries the version of the code" same_lines "$(jq -r .info.version $api)" "$("$build/permitctl" --version | cut -d " " -f 2)"
check "protocol.md and openapi.json know the same routes" same_lines "$(protocol_routes)" "$(api_routes)"
# "GET /v1/semaphores/{} look": from openapi.json, and from the server's table of routes.
api_rights() {
    jq -r '.paths | to_entries[] | .key as $p | .value | to_entries[] | select(.key != "parameters")
           | [(.key | ascii_upcase), ($p | gsub("{[^}]*}"; "{}"))] + .value."x-rights" | join(" ")' $api
}
code_rights() { "$build/permitd" --print-routes | sed 's/{[^}]*}/{}/'; }
check "openapi.json has the rights of the table of routes" same_lines "$(api_rights)" "$(code_rights)"
check "protocol.md and openapi.json know the same problems" same_lines "$(protocol_problems)" "$(api_problems)"
check "each problem has the status it has in the code" \
    nothing "$(comm -23 <(protocol_problem_statuses | sort) <(code_problem_statuses | sort))"
check "links between documents lead somewhere" nothing "$(broken_links .)"
check "links to headings, too" nothing "$(broken_anchors)"
check "links between installed documents lead somewhere" nothing "$(broken_installed_links)"
check "config.md is what permitd --print-config-markdown prints" \
    same_lines "$(written_settings)" "$("$build/permitd" --print-config-markdown)"

# "--limit" for each option in the help of each verb of permitctl; and for each one in its manual page.
helped_options() {
    local verb
    "$build/permitctl" --help | sed -nE 's/^  ([a-z-]+( [a-z]+)?)  .*/\1/p' | while read -r verb; do
        # shellcheck disable=SC2086 # a verb is words
        "$build/permitctl" $verb --help
    done | grep -oE '^  (-.,|   ) --[a-z-]+' | grep -oE -- '--[a-z-]+' | sort -u
}
manual_options() { sed 's/\\-/-/g' docs/man/permitctl.1 | grep -oE -- '--[a-z][a-z-]+' | sort -u; }
check "permitctl.1 has each option of permitctl, and no other" same_lines "$(helped_options)" "$(manual_options)"

# The names with an underscore in reliability.md that are in no source and name no file of tests/.
unknown_names() {
    comm -23 <(grep -oE '`[a-z0-9]+(_[a-z0-9]+)+`' docs/reliability.md | tr -d '`' | sort -u) \
        <({ cat $(find src include sql tests -name '*.[ch]' -o -name '*.sh' -o -name '*.sql' -o -name suites) && find tests; } |
            grep -aoE '[a-z0-9]+(_[a-z0-9]+)*' | sort -u)
}
check "reliability.md names no test that does not exist" nothing "$(unknown_names)"

# Suites that CMake builds but run.sh does not run.
forgotten_suites() {
    grep -hoE 'permit_test\([a-z_]+ ' tests/*/CMakeLists.txt | sed 's/permit_test(//' | while read -r suite; do
        grep -qE "/$suite( --.*)?\$" tests/suites || echo "$suite"
    done
}

check "tests/suites has every suite that is built" nothing "$(forgotten_suites)"
check "the minute of curl in README.md is answered as it says" \
    same_lines "$(of_permitd minute)" "201 201 200 423 200 200 200 200 "
check "operating.md has each metric that is served, and no other" \
    same_lines "$(written_metrics)" "$(of_permitd_with_credentials served_metrics)"

echo "docs: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
