#!/usr/bin/env bash
# What a transition of a saga of 256 steps costs the core, late in it and early in it: builds the
# core as it is installed (release), and prints one JSON line. Exits 1 when a ratio is above 1.5.
# Some seconds after the build. What the figures mean: tests/bench/README.md.
#   tests/bench/core.sh [--quick]
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
case "${1-}" in
    '' | --quick) ;;
    *)
        echo "usage: $0 [--quick]" >&2
        exit 2
        ;;
esac

"$root/deploy/setup.sh" >&2
launcher=()
if command -v ccache >/dev/null; then
    launcher=(-DCMAKE_C_COMPILER_LAUNCHER=ccache)
fi
cd "$root"
cmake --preset release "${launcher[@]}" >&2
cmake --build build/release --target core_steps >&2
build/release/tests/bench/core_steps "$@"
