#!/usr/bin/env bash
# The tests of the Python package, with Debian's packages alone.
#   workers/python/test.sh [test ...]     e.g. tests.test_guard; without: all
#   SAGAD_PYTHON   another interpreter (a virtual environment's)
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")"
python=${SAGAD_PYTHON:-/usr/bin/python3}
export PYTHONDONTWRITEBYTECODE=1 GRPC_ENABLE_FORK_SUPPORT=false # see sagad/__init__.py
"$python" -c 'import grpc, google.protobuf' || {
    echo "$0: $python has no gRPC: deploy/setup.sh --workers installs it" >&2
    exit 1
}
./generate.sh "$python"
if [ $# -gt 0 ]; then
    exec "$python" -m unittest "$@"
fi
exec "$python" -m unittest discover -t . -s tests
