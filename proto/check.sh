#!/usr/bin/env bash
# Looks at the protos with buf (buf.yaml):
#   proto/check.sh lint       their style
#   proto/check.sh breaking   what has changed since the last tag and would break those who use them
#   proto/check.sh buf ARG... buf itself, for tests
# buf is the one in PATH, or is fetched with npm into $BUF_DIR (default: a folder that goes again).
# Exits 77 when it could not look: no buf and no way to get it, or no tag to compare with.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
version=1.75.0
fetch_s=120

usage() {
    echo "usage: $0 lint|breaking|buf ARG..." >&2
    exit 2
}

skip() { # why
    echo "SKIPPED: $0 $what: $1" >&2
    exit 77
}

find_buf() { # sets $buf
    buf=$(command -v buf) && return
    command -v npm >/dev/null || skip "there is no buf, and no npm to fetch it with"
    local folder=${BUF_DIR-}
    if [ -z "$folder" ]; then
        scratch=$(mktemp -d "${TMPDIR:-/tmp}/sagad-buf.XXXXXX")
        trap 'rm -rf "$scratch"' EXIT
        folder=$scratch
    fi
    buf=$folder/node_modules/.bin/buf
    [ -x "$buf" ] && return
    mkdir -p "$folder"
    timeout "$fetch_s" npm install --prefix "$folder" --no-save --no-audit --no-fund \
        --ignore-scripts "@bufbuild/buf@$version" >"$folder/npm.log" 2>&1 ||
        skip "buf $version could not be fetched within $fetch_s s: $(
            grep -m 1 error "$folder/npm.log" || echo "no answer")"
    "$buf" --version >/dev/null 2>&1 || skip "the buf that was fetched does not run here"
}

[ $# = 1 ] || [ "${1-}" = buf ] || usage
what=$1
shift
cd "$here"
case "$what" in
    lint)
        find_buf
        "$buf" lint
        echo "the protos are as buf.yaml asks"
        ;;
    breaking)
        tag=$(git describe --tags --abbrev=0 2>/dev/null) ||
            skip "no tag leads here (a release, or its tags in this clone): nothing to compare with"
        find_buf
        repository=$(git rev-parse --path-format=absolute --git-common-dir)
        "$buf" breaking --against "$repository#tag=$tag,subdir=proto"
        echo "nothing breaks what was released as $tag"
        ;;
    buf)
        find_buf
        "$buf" "$@"
        ;;
    *) usage ;;
esac
