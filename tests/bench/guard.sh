#!/usr/bin/env bash
# What the participant's guard costs: builds what is installed (release), starts a PostgreSQL and a
# MariaDB of its own, and prints one JSON line. About two and a half minutes, half a minute with
# --quick, after the build. What the figures mean: tests/bench/README.md.
#   tests/bench/guard.sh [--quick]
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
cmake --build build/release --target guard >&2

# /var/tmp, because /tmp may be memory, where fsync costs nothing.
scratch=$(mktemp -d "${SAGAD_BENCH_DIR:-/var/tmp}/sagad-guard.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
chmod 0711 "$scratch"
TMPDIR=$scratch build/release/tests/bench/guard "$@"
