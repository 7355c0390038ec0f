#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Makes a release of the commit that is checked out: the tag vX.Y.Z and, in a directory, the source tarball with its checksums.
# Pushes nothing.
#
#     scripts/release.sh [--dry-run] [--output DIRECTORY]
#
# The version is that of project() in CMakeLists.txt. Refuses with 1 if the tree has changes that are not committed, if
# docs/openapi.json has another version, if CHANGELOG.md does not begin with this version, a date and its changes, or if the
# version is not above all tags. --dry-run: checks, and says what it would make. --output: where the tarball goes (out/).
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
    sed -n '3,10s/^# \{0,1\}//p' "$0"
}

refuse() {
    echo "release.sh: $*" >&2
    exit 1
}

dry=
output=out
while [ $# -gt 0 ]; do
    case "$1" in
    --dry-run) dry=1 ;;
    --output)
        [ $# -gt 1 ] || { usage >&2 && exit 64; }
        output=$2
        shift
        ;;
    -h | --help) usage && exit ;;
    *) usage >&2 && exit 64 ;;
    esac
    shift
done

# The first heading of the changelog below its title, such as "[0.1.0] - 2026-12-01", and the text under it.
first_heading() { sed -n 's/^## //p' CHANGELOG.md | sed 1q; }
notes() { awk '/^## / { if (found++) exit; next } found' CHANGELOG.md | sed '/./,$!d'; }

version=$(sed -nE 's/^project\(permitd VERSION ([0-9]+\.[0-9]+\.[0-9]+) .*/\1/p' CMakeLists.txt)
[ "$version" ] || refuse "project() in CMakeLists.txt has no version X.Y.Z"
tag=v$version

changes=$(git status --porcelain)
[ -z "$changes" ] || refuse "the tree has changes that are not committed:"$'\n'"$changes"
described=$(sed -nE 's/^    "version": "(.*)",?$/\1/p' docs/openapi.json)
[ "$described" = "$version" ] || refuse "docs/openapi.json has version $described, and CMakeLists.txt has $version"
[ -f CHANGELOG.md ] || refuse "there is no CHANGELOG.md"
heading=$(first_heading)
[[ $heading =~ ^"[$version] - "[0-9]{4}-[0-9]{2}-[0-9]{2}$ ]] ||
    refuse "CHANGELOG.md begins with \"$heading\", not with \"[$version] - \" and a date"
[ "$(notes)" ] || refuse "CHANGELOG.md says nothing about $version"
! git rev-parse -q --verify "refs/tags/$tag" >/dev/null || refuse "there is a tag $tag already"
newest=$(git tag --list 'v[0-9]*' | sed 's/^v//' | sort -V | tail -n 1)
[ "$(printf '%s\n' "$newest" "$version" | sort -V | tail -n 1)" = "$version" ] || refuse "$version is below the tag v$newest"

name=permitd-$version
if [ "$dry" ]; then
    echo "release.sh: would tag $(git rev-parse --short HEAD) as $tag, and make $output/$name.tar.gz and $output/$name.sha256"
    exit
fi
mkdir -p "$output"
# Reproducible: the times are those of the commit, and gzip notes none.
git archive --format=tar --prefix="$name/" HEAD | gzip -9n >"$output/$name.tar.gz"
(cd "$output" && sha256sum "$name.tar.gz" >"$name.sha256")
# The tag comes last: after a failure before it, the release is tried again.
notes | git tag --annotate "$tag" --cleanup=verbatim --file=-
echo "release.sh: $tag, $output/$name.tar.gz, $output/$name.sha256; to publish: git push origin $tag"
