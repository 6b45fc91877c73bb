#!/usr/bin/env bash
# What a task costs a worker of each SDK: tasks a second and processor time of the worker at concurrency
# 64, handlers that do nothing, side by side in one run. Builds what is installed (release) and a worker
# on each SDK (workers/LANGUAGE), starts a PostgreSQL of its own, and prints a table on stderr and one
# JSON line on stdout; what the figures mean: tests/bench/README.md. A language that cannot be had is
# SKIPPED by its name. About three minutes with --quick, seven without, after the build.
#   tests/bench/workers.sh [--quick] [LANGUAGE ...]     c, the measure of the others, is always there
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
workers=$root/tests/bench/workers
# What each is measured as: a thread a handler, and handlers that need none.
declare -A kinds=(
    [c]='c c-async' [go]=go [java]='java java-async' [node]=node [python]='python python-async'
)
quick=()
if [ "${1-}" = --quick ]; then
    quick=(--quick)
    shift
fi
languages=(c go java node python)
if [ $# -gt 0 ]; then
    languages=(c)
    for language in "$@"; do
        [ -n "${kinds[$language]-}" ] || {
            echo "usage: $0 [--quick] [LANGUAGE ...]     of ${!kinds[*]}" >&2
            exit 2
        }
        [ "$language" = c ] || languages+=("$language")
    done
fi

"$root/deploy/setup.sh" --workers >&2
launcher=()
if command -v ccache >/dev/null; then
    launcher=(-DCMAKE_C_COMPILER_LAUNCHER=ccache)
fi
cd "$root"
cmake --preset release "${launcher[@]}" >&2
cmake --build build/release --target sagad bench_workers load >&2
export SAGAD_BUILD_DIR=$root/build/release

names=()
for language in "${languages[@]}"; do
    status=0
    why=$("$workers/$language/build") || status=$?
    if [ "$status" = 77 ]; then
        echo "SKIPPED: $language: $why" >&2
        names+=(--skipped "$language")
    elif [ "$status" != 0 ]; then
        echo "workers/$language/build failed: $why" >&2
        exit 1
    else
        read -ra these <<<"${kinds[$language]}"
        names+=("${these[@]}")
    fi
done

# /var/tmp, because /tmp may be memory, where fsync costs nothing.
scratch=$(mktemp -d "${SAGAD_BENCH_DIR:-/var/tmp}/sagad-bench.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
chmod 0711 "$scratch"
TMPDIR=$scratch build/release/tests/bench/bench_workers "${quick[@]}" "${names[@]}"
