#!/usr/bin/env bash
# Makes the TypeScript of the protos (src/gen) anew. Anyone may run it; the result is the same.
#   workers/node/generate.sh           writes workers/node/src/gen
#   workers/node/generate.sh --check   fails if what is committed is not what the protos say
# Needs protoc (Debian: protobuf-compiler) and the plugin that `npm ci` brings.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
protos=$(cd "$here/../../proto" && pwd)
plugin=$here/node_modules/.bin/protoc-gen-es

command -v protoc >/dev/null || {
    echo "$0: protoc is missing (Debian: protobuf-compiler)" >&2
    exit 1
}
[ -x "$plugin" ] || {
    echo "$0: protoc-gen-es is missing: run npm ci in $here" >&2
    exit 1
}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

# What workers and clients need, and events; the details of errors; not the services of operators.
protoc -I "$protos" --plugin=protoc-gen-es="$plugin" --es_out="$out" \
    --es_opt=target=ts,import_extension=js "$protos"/saga/v1/{definition,event,options,saga,worker}.proto "$protos"/google/rpc/{error_details,status}.proto

if [ "${1-}" = --check ]; then
    diff -rq "$here/src/gen" "$out" || {
        echo "$0: the generated code is old: run workers/node/generate.sh" >&2
        exit 1
    }
else
    rm -rf "$here/src/gen"
    cp -R "$out" "$here/src/gen"
    chmod 0755 "$here/src/gen"
fi
