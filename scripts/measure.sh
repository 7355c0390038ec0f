#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Measures how the sources read. Prints a table; changes nothing. Ends with 1 if this project has more lines than its budget.
#
#     scripts/measure.sh                          this project
#     scripts/measure.sh DIRECTORY                the sources in DIRECTORY, for comparison; no budget
#     scripts/measure.sh --clauses [DIRECTORY]    the comment clauses that begin with who, what, whoever, nobody, of those
#     scripts/measure.sh --parameters [DIRECTORY] the functions with 7 or more parameters
#
# lines: of src/ and include/. function: a definition that starts in the first column; its lines include the braces. one
# caller: static functions whose name occurs exactly once more in their file. setting: files that name the semaphore setting
# backfill_bound, tests and documents included. A clause of a comment ends at . ; : ! or ?. bools: the members of type bool
# that a struct declares, with those of the structs that it declares inside.
set -euo pipefail

# The most lines that src/ and include/ may have. A change that needs more raises it in a commit of its own, which names
# the room that grows and why.
budget=68352

list=
case "${1-}" in
--clauses | --parameters) list=$1 && shift ;;
esac
case "${1-}" in
-*) sed -n '5,8s/^# \{0,1\}//p' "$0" >&2 && exit 64 ;;
?*) budget= ;;
esac
cd "${1:-$(dirname "$0")/..}"
[ -d src ] || { echo "measure.sh: no src in $PWD" >&2 && exit 66; }

sources() { find src include -name '*.[ch]' | sort; }

# Counts clauses; with --clauses prints those that begin with such a word.
clauses() {
    sources | xargs perl -e '
        my ($list, $clauses, $found) = (shift, 0, 0);
        for my $file (@ARGV) {
            local $/;
            open(my $in, "<", $file) or die "$file: $!";
            my $text = <$in>;
            while ($text =~ m{"(?:[^"\\\n]|\\.)*"|\x27(?:[^\x27\\\n]|\\.)*\x27|(/\*.*?\*/|(?://[^\n]*\n\s*)+)}gs) {
                my $comment = $1 // next;
                $comment =~ s{^/\*+|\*+/$}{}g;
                $comment =~ s{^\s*(\*+ ?|//)}{}mg;
                $comment =~ s/\s+/ /g;
                for (split /(?<=[.;:!?])\s+/, $comment) {
                    s/^\s+//;
                    next unless /\w/;
                    $clauses++;
                    next unless /^(who|whom|whose|what|whatever|whoever|nobody|of those|of which|of whom)\b/i;
                    $found++;
                    print "$file: $_\n" if $list;
                }
            }
        }
        printf "%d of %d (%.1f %%)\n", $found, $clauses, $clauses ? 100 * $found / $clauses : 0 unless $list;' "${list:+1}"
}

# Prints "NUMBER FILE:LINE: NAME" for each function with 7 or more parameters.
parameters() {
    find src -name '*.c' | sort | xargs perl -0777 -ne '
        s{"(?:[^"\\\n]|\\.)*"}{""}g;
        s{(/\*.*?\*/|//[^\n]*)}{"\n" x ($1 =~ tr/\n//)}gse;
        while (/^[a-z_][\w \t*]*?\b(\w+)(\((?:[^(){};]|(?2))*\))[^;{}()]*\n?\{\n/mg) {
            my ($name, $list, $line) = ($1, substr($2, 1, -1), 1 + (substr($_, 0, $-[0]) =~ tr/\n//));
            1 while $list =~ s/\([^()]*\)//; # the parameters of a parameter that is a function
            my $count = 1 + ($list =~ tr/,//);
            print "$count $ARGV:$line: $name\n" if $count >= 7;
        }'
}

# Prints "NUMBER FILE: struct NAME" for each struct with members of type bool.
bools() {
    sources | xargs perl -0777 -ne '
        s{"(?:[^"\\\n]|\\.)*"}{""}g;
        s{/\*.*?\*/|//[^\n]*}{}gs;
        while (/^(?:static )?struct (\w+) (\{(?:[^{}]|(?2))*\})/mg) {
            my ($name, $body, $count) = ($1, $2, 0);
            1 while $body =~ s/\([^()]*\)//; # the parameters of a member that is a function
            $count += 1 + ($1 =~ tr/,//) while $body =~ /^\s*(?:_Atomic |volatile |const )*bool ([^;*]*);/mg;
            print "$count $ARGV: struct $name\n" if $count;
        }'
}

# bools_of STRUCT DIRECTORY
bools_of() { bools | awk -v start="$2/" -v end=": struct $1" 'index($0, start) && substr($0, length($0) - length(end) + 1) == end { n = $1 }
    END { print n + 0 }'; }

count_lines() { find "$@" -name '*.[ch]' -print0 2>/dev/null | xargs -0 -r cat | wc -l; }

# functions: "count, 90th percentile of their lines, longest, share of static functions with one caller"
functions() {
    find src -name '*.c' | sort | xargs perl -e '
        my (@lines, $static, $single);
        for my $file (@ARGV) {
            local $/;
            open(my $in, "<", $file) or die "$file: $!";
            my $text = <$in>;
            my $code = $text;
            $code =~ s{"(?:[^"\\\n]|\\.)*"|/\*.*?\*/|//[^\n]*}{}gs;
            while ($text =~ /^((?:[a-z_][\w \t*]*?)\b(\w+)\([^;{}]*\)[^;{}()]*\n?\{\n(?:(?!\}).*\n)*\}\n)/mg) {
                my ($body, $name) = ($1, $2);
                push @lines, ($body =~ tr/\n//);
                next unless $body =~ /^static /;
                $static++;
                my $uses = () = $code =~ /\b$name\b/g;
                my $declared = () = $code =~ /^static [^\n{]*\b$name\([^{;]*\);/mg;
                $single++ if $uses - $declared == 2;
            }
        }
        @lines = sort { $a <=> $b } @lines;
        printf "%d functions, median %d lines, p90 %d, longest %d; static with one caller: %d of all (%.0f %%)\n", scalar @lines,
            $lines[$#lines / 2], $lines[$#lines * 0.9], $lines[-1], $single, 100 * $single / @lines;'
}

# outward ROOM: the other rooms that its files include, with how often.
outward() {
    { grep -rhoE '^#include "[a-z_]+/' "src/$1" --include='*.[ch]' || true; } | sed 's/.*"//; s,/,,' | { grep -vx "$1" || true; } |
        sort | uniq -c | awk '{ printf "%s%s %d", n++ ? ", " : "", $2, $1 }'
}

# outside WHAT PATTERN FOLDER...: files of src that match and are in none of the folders.
outside() {
    local what=$1 pattern=$2
    shift 2
    local exclude
    exclude=$(printf '^src/%s\n' "$@")
    printf '%-28s %s\n' "$what" "$(grep -rlE "$pattern" src --include='*.[ch]' | { grep -vf <(echo "$exclude") || true; } | tr '\n' ' ')"
}

if [ "$list" ]; then
    "${list#--}"
    exit
fi
lines=$(count_lines src include)
printf '%-28s %s\n' "lines" "$lines in $(sources | wc -l) files${budget:+; budget $budget}"
for room in src/*/; do
    printf '%-28s %s\n' "lines of $(basename "$room")" "$(count_lines "$room")"
done
printf '%-28s %s\n' "lines of engine+core+store" "$(count_lines src/engine src/core src/store)"
printf '%-28s %s\n' "lines of documents" "$(cat README.md docs/*.md 2>/dev/null | wc -l) (README.md, docs/*.md)"
printf '%-28s %s\n' "functions" "$(functions)"
printf '%-28s %s\n' "7 or more parameters" "$(parameters | wc -l) functions"
printf '%-28s %s\n' "bools of a struct" "$(bools | sort -rn | awk 'NR == 1 { n = $1; sub(/^[0-9]+ /, ""); print "at most " n " (" $0 ")" }'); struct op: $(bools_of op src/engine)"
printf '%-28s %s\n' "clauses with who, what ..." "$(clauses)"
printf '%-28s %s\n' "files of one setting" "$(grep -rlwE 'backfill_bound' src include sql docs tests examples | wc -l)"
for room in src/*/; do
    room=$(basename "$room")
    printf '%-28s %s\n' "$room includes" "$(outward "$room")"
done
outside "sessions outside store" 'struct session\b|mysql\.h|\bmysql_[a-z]' store/
outside "libevent outside http" 'include <ev(ent2|http|dns|util)' http/
outside "json-c outside" 'include <json' client/json.c
outside "curl outside" 'include <curl' client/ tasks/
outside "OpenSSL outside" 'include <openssl' base/ http/
outside "faults in the product" 'PERMIT_PLANT|plant\(' none/
if [ "$budget" ] && [ "$lines" -gt "$budget" ]; then
    echo "measure.sh: src and include have $lines lines, $((lines - budget)) more than the budget of $budget: take code out, or" \
        "raise the budget in a commit that names the room and why" >&2
    exit 1
fi
