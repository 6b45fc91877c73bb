#!/usr/bin/env bash
# Writes the table of promises of the last tests/run.sh into tests/README.md, between its two marks.
set -euo pipefail

tests=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
table=$tests/../build/debug/Testing/suites/promises.md
[ -s "$table" ] || {
    echo "$0: no table: run tests/run.sh --full first" >&2
    exit 1
}
awk -v table="$table" '
    /^<!-- promises:end -->/ { inside = 0 }
    !inside { print }
    /^<!-- promises:begin -->/ { inside = 1; print ""; while ((getline line < table) > 0) print line; print "" }
' "$tests/README.md" >"$tests/README.md.new"
mv "$tests/README.md.new" "$tests/README.md"
