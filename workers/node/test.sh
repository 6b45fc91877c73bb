#!/usr/bin/env bash
# Builds the Node SDK and runs its tests. Exits 77 with one line why where Node, or a package, cannot be had.
#   workers/node/test.sh [tests/NAME.test.js ...]     without: all
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

reason=$(./build.sh) || {
    status=$?
    echo "$reason"
    exit "$status"
}
if command -v protoc >/dev/null; then
    ./generate.sh --check
fi
node_modules/.bin/tsc -p tests
if [ $# -eq 0 ]; then
    set -- tests/*.test.js
fi
exec node --test "$@"
