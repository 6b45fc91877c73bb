#!/usr/bin/env bash
# What others' tools make of reflection, at a server that runs: reflect.sh python|node|buf ADDRESS
#   python   grpcio of Debian (deploy/setup.sh --workers)
#   node     @grpc/grpc-js of npm
#   buf      `buf curl`, of npm (proto/check.sh)
# What is fetched is kept in $TOOLS_DIR (default: a folder that goes again). Exits 77 when the tool
# cannot be had.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$here/../..
protos=$root/proto/grpc/reflection
fetch_s=120

skip() {
    echo "SKIPPED: reflection by $tool: $1" >&2
    exit 77
}

by_python() {
    python=/usr/bin/python3 # Debian's, which has Debian's packages
    "$python" -c 'import grpc, google.protobuf' 2>/dev/null ||
        skip "python3-grpcio is not installed (deploy/setup.sh --workers)"
    # Python's own package is called grpc, too: the generated code gets another folder.
    mkdir -p "$scratch/protos/grpc_"
    cp -r "$protos" "$scratch/protos/grpc_/"
    mkdir "$scratch/generated"
    (cd "$scratch/protos" && protoc --python_out="$scratch/generated" -I . \
        grpc_/reflection/v1/reflection.proto grpc_/reflection/v1alpha/reflection.proto)
    "$python" "$here/reflect.py" "$address" "$scratch/generated"
}

by_node() {
    command -v node >/dev/null && command -v npm >/dev/null || skip "there is no node and npm"
    if [ ! -d "$folder/node_modules/@grpc/proto-loader" ]; then
        timeout "$fetch_s" npm install --prefix "$folder" --no-save --no-audit --no-fund \
            --ignore-scripts @grpc/grpc-js@1.12.5 @grpc/proto-loader@0.7.13 >"$scratch/npm.log" 2>&1 ||
            skip "@grpc/grpc-js could not be fetched within $fetch_s s"
    fi
    for version in v1 v1alpha; do
        NODE_PATH=$folder/node_modules node "$here/reflect.js" "$address" \
            "$protos/$version/reflection.proto"
    done
}

by_buf() {
    for version in v1 v1alpha; do
        ask=("$root/proto/check.sh" buf curl --protocol grpc --http2-prior-knowledge
            --reflect-protocol "grpc-$version")
        BUF_DIR=$folder "${ask[@]}" --list-services "http://$address" >"$scratch/services" || exit
        grep -qx saga.v1.SagaService "$scratch/services"
        BUF_DIR=$folder "${ask[@]}" "http://$address/saga.v1.OperatorService/GetStatus" \
            >"$scratch/status"
        grep -q '"node"' "$scratch/status"
        echo "$version: $(wc -l <"$scratch/services") services, called"
    done
}

[ $# = 2 ] || {
    echo "usage: $0 python|node|buf ADDRESS" >&2
    exit 2
}
tool=$1 address=$2
scratch=$(mktemp -d "${TMPDIR:-/tmp}/sagad-tools.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
folder=${TOOLS_DIR:-$scratch/npm}
mkdir -p "$folder"
case $tool in
    python | node | buf) "by_$tool" ;;
    *) exit 2 ;;
esac
