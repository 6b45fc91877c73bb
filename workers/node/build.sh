#!/usr/bin/env bash
# Builds the package (dist), after its packages were fetched if they are not what the lock file says.
#   workers/node/build.sh [FOLDER ...]   FOLDER: a program beside it, whose packages are fetched, too, and which
#                                        gets a link to this one
# Exits 77 with one line why where Node, npm, or a package cannot be had.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
fetch_s=300

skip() {
    echo "$1"
    exit 77
}

command -v node >/dev/null || skip "no node here: 18.19 or newer is needed (Debian: nodejs, npm)"
node -e 'const [a, b] = process.versions.node.split("."); process.exit(a > 18 || (a == 18 && b >= 19) ? 0 : 1)' ||
    skip "node 18.19 or newer is needed, this is $(node --version)"
command -v npm >/dev/null || skip "no npm here (Debian: npm)"

limit() { # command: macOS has no timeout
    if command -v timeout >/dev/null; then timeout "$fetch_s" "$@"; else "$@"; fi
}

fetch() { # folder: what its lock file says, unless npm did so since that was written
    [ "$1/node_modules/.package-lock.json" -nt "$1/package-lock.json" ] && return
    # Of the npm that may have called this one its settings are not taken: they are about another package.
    limit env -u npm_config_prefix -u npm_config_local_prefix -u npm_config_install_links \
        npm --prefix "$1" ci --ignore-scripts --no-audit --no-fund >"$1/.npm.log" 2>&1 ||
        skip "its packages cannot be fetched: $(grep -m 1 error "$1/.npm.log" || echo "no answer")"
    rm "$1/.npm.log"
}

exec 9>"$here/.build.lock"
! command -v flock >/dev/null || flock 9 # others may want it at the same time
fetch "$here"
(cd "$here" && node_modules/.bin/tsc)
for folder in "$@"; do
    fetch "$folder"
    ln -sfn "$here" "$folder/node_modules/sagad" # a link that npm does not know: its packages are its own
done
