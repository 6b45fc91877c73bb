#!/usr/bin/env bash
# Makes the Go code of the protos (sagapb) anew. Anyone may run it; the result is the same.
#   workers/go/generate.sh           writes workers/go/sagapb and the example's messages
#   workers/go/generate.sh --check   fails if what is committed is not what the protos say
# Needs protoc (Debian: protobuf-compiler) and Go; the plugins are fetched at the versions below into
# $SAGAD_GO_TOOLS (default: a folder of the user's cache).
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
protoc_gen_go=v1.36.12
protoc_gen_go_grpc=v1.6.2
tools=${SAGAD_GO_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/sagad-go-tools}/$protoc_gen_go-$protoc_gen_go_grpc

command -v protoc >/dev/null || {
    echo "$0: protoc is missing (Debian: protobuf-compiler)" >&2
    exit 1
}
mkdir -p "$tools"
[ -x "$tools/protoc-gen-go" ] ||
    GOBIN=$tools go install "google.golang.org/protobuf/cmd/protoc-gen-go@$protoc_gen_go"
[ -x "$tools/protoc-gen-go-grpc" ] ||
    GOBIN=$tools go install "google.golang.org/grpc/cmd/protoc-gen-go-grpc@$protoc_gen_go_grpc"

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

# generate PROTO_PATH PROTO...
generate() {
    local path=$1
    shift
    # Which package a file of the demo is in is said here, not in the proto.
    PATH=$tools:$PATH protoc -I "$path" -I "$root/proto" --go_out="$out" --go_opt=module=sagad.dev/go \
        --go-grpc_out="$out" --go-grpc_opt=module=sagad.dev/go \
        "--go_opt=Mrisk.proto=$examples/riskpb" "--go-grpc_opt=Mrisk.proto=$examples/riskpb" \
        "--go_opt=Msettlement.proto=$examples/bankpb" "--go-grpc_opt=Msettlement.proto=$examples/bankpb" "$@"
}

examples=sagad.dev/go/examples/internal
# What workers and clients need, and events; not the services of operators.
(cd "$root/proto" && generate "$root/proto" saga/v1/{definition,event,options,saga,worker}.proto)
(cd "$root/workers/demo" && generate "$root/workers/demo" risk.proto settlement.proto)
rm "$out/examples/internal/bankpb/settlement_grpc.pb.go" # nobody serves it by gRPC
find "$out" -name '*.go' -exec sed -i -E '/^\/\/.*\bprotoc +v[0-9]/d' {} + # whichever protoc is here

for folder in sagapb examples/internal/bankpb examples/internal/riskpb; do
    if [ "${1-}" = --check ]; then
        diff -rq "$here/$folder" "$out/$folder" ||
            { echo "$0: the generated code is old: run workers/go/generate.sh" >&2; exit 1; }
    else
        mkdir -p "$(dirname "$here/$folder")"
        rm -rf "${here:?}/$folder"
        cp -R "$out/$folder" "$here/$folder"
    fi
done
