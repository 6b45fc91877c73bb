# What the benchmarks' scripts share; sourced by them. After it $root is the repository's root, where
# they are, and stage_run builds and runs one. With --quick all is scaled down.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"

# stage_arguments [--quick]: anything else is refused.
stage_arguments() {
    [ $# = 0 ] || { [ $# = 1 ] && [ "$1" = --quick ]; } || {
        echo "usage: $0 [--quick]" >&2
        exit 2
    }
}

# stage_build TARGET...: the release preset.
stage_build() {
    local launcher=()
    if command -v ccache >/dev/null; then
        launcher=(-DCMAKE_C_COMPILER_LAUNCHER=ccache)
    fi
    cmake --preset release "${launcher[@]}" >&2
    cmake --build build/release --target sagad pg_limit load noop_worker "$@" >&2
}

# stage_scratch: $scratch, a folder that goes with the script. /var/tmp, because /tmp may be memory,
# where fsync costs nothing.
stage_scratch() {
    scratch=$(mktemp -d "${SAGAD_BENCH_DIR:-/var/tmp}/sagad-bench.XXXXXX")
    trap 'rm -rf "$scratch"' EXIT
    chmod 0711 "$scratch"
}

# stage_run PROGRAM [--quick]
stage_run() {
    local program=$1
    shift
    stage_arguments "$@"
    deploy/setup.sh >&2
    stage_build "$program"
    stage_scratch
    TMPDIR=$scratch "build/release/tests/bench/$program" "$@"
}
