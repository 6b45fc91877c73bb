#!/usr/bin/env bash
# Builds the Java SDK and runs its tests, with a PostgreSQL and a MariaDB of their own. Exits 77 with one
# line why where Java, Maven or Maven Central cannot be had.
#   workers/java/test.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

reason=$(../../tests/conformance/java/build) || {
    status=$?
    echo "$reason"
    exit "$status"
}
mvn -B -q test
