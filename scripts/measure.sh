#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Measures how the sources read, for comparison between commits. Prints a table; changes nothing.
#
#     scripts/measure.sh [DIRECTORY]      the sources in DIRECTORY (default: this project)
#     scripts/measure.sh --clauses [DIRECTORY]    the comment clauses that begin with who, what, whoever, nobody, of those
#
# lines: of src/ and include/. function: a definition that starts in the first column; its lines include the braces. one
# caller: static functions whose name occurs exactly once more in their file. setting: files that name the semaphore setting
# backfill_bound, tests and documents included. A clause of a comment ends at . ; : ! or ?.
set -euo pipefail

list=0
[ "${1-}" != --clauses ] || { list=1 && shift; }
case "${1-}" in
-*) sed -n '5,6s/^# \{0,1\}//p' "$0" >&2 && exit 64 ;;
esac
cd "${1:-$(dirname "$0")/..}"
[ -d src ] || { echo "measure.sh: no src in $PWD" >&2 && exit 66; }

sources() { find src include -name '*.[ch]' | sort; }

# Counts clauses; with list=1 prints those that begin with such a word.
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
        printf "%d of %d (%.1f %%)\n", $found, $clauses, $clauses ? 100 * $found / $clauses : 0 unless $list;' "$list"
}

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

if [ "$list" -eq 1 ]; then
    clauses
    exit
fi
printf '%-28s %s\n' "lines" "$(sources | xargs cat | wc -l) in $(sources | wc -l) files"
printf '%-28s %s\n' "functions" "$(functions)"
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
