#!/usr/bin/env bash
# Builds the Node SDK and its example, and runs their tests, with a PostgreSQL and a MariaDB of their own. Exits 77
# with one line why where Node, or a package, cannot be had.
#   workers/node/test.sh [tests/NAME.test.js ...]     without: all
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

reason=$(./build.sh && examples/settlement/build) || {
    status=$?
    echo "$reason"
    exit "$status"
}
./generate.sh --check
node_modules/.bin/tsc -p tests
if [ $# -eq 0 ]; then
    set -- tests/*.test.js examples/settlement/tests/*.test.js
fi
exec node --test "$@"
