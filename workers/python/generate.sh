#!/usr/bin/env bash
# Makes the Python modules of the .proto files, beside the sources: saga/ and sagad/details_pb2.py.
#   workers/python/generate.sh [PYTHON]     needs protoc, or grpcio-tools in PYTHON (default python3)
# Safe to run again and at the same time: modules are moved into place when they are whole.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
protos=$here/proto # a source distribution brings its own copy
[ -d "$protos" ] || protos=$(cd "$here/../../proto" && pwd)
python=${1:-python3}

if command -v protoc >/dev/null; then
    compiler=(protoc)
elif "$python" -c 'import grpc_tools' 2>/dev/null; then
    compiler=("$python" -m grpc_tools.protoc)
else
    echo "$0: neither protoc nor grpcio-tools is there: install protobuf-compiler or grpcio-tools" >&2
    exit 1
fi

scratch=$(mktemp -d "$here/.generate-XXXXXX")
trap 'rm -rf "$scratch"' EXIT
"${compiler[@]}" -I "$protos" --python_out="$scratch" --pyi_out="$scratch" \
    "$protos"/saga/v1/*.proto
"${compiler[@]}" -I "$here" --python_out="$scratch" --pyi_out="$scratch" \
    "$here/sagad/details.proto"
mkdir -p "$here/saga/v1"
for module in "$scratch"/saga/v1/*; do
    mv -f "$module" "$here/saga/v1/"
done
mv -f "$scratch"/sagad/* "$here/sagad/"
