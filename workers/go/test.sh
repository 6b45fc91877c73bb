#!/usr/bin/env bash
# Looks at the Go SDK and its example, and runs their tests; with -race if asked. Exits 77 with one line
# why where Go, or a module, cannot be had.
#   workers/go/test.sh [-race]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

reason=$(../../tests/conformance/go/build) || {
    status=$?
    echo "$reason"
    exit "$status"
}
./generate.sh --check
for module in . examples; do
    (
        cd "$module"
        unformatted=$(gofmt -l .)
        [ -z "$unformatted" ] || { echo "gofmt -w is needed: $unformatted" >&2; exit 1; }
        go vet ./...
        go test -timeout 300s "$@" ./...
    )
done
