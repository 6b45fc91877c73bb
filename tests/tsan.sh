#!/usr/bin/env bash
# The unit, integration and sim suites at everyday size under ThreadSanitizer, in a tree of their own
# (preset tsan). Suites that do not exist yet are left out.
#   tests/tsan.sh [suite ...]
#   SAGAD_TEST_JOBS   test programs at a time (default 2)
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
tree=$root/build/tsan
jobs=${SAGAD_TEST_JOBS:-2}
suites=("$@")
[ ${#suites[@]} -gt 0 ] || suites=(unit integration sim)

launcher=()
if command -v ccache >/dev/null; then
    launcher=(-DCMAKE_C_COMPILER_LAUNCHER=ccache)
fi
mkdir -p "$tree"
(cd "$root" && cmake --preset tsan "${launcher[@]}" >"$tree/configure.log" 2>&1) || {
    cat "$tree/configure.log"
    exit 1
}
cmake --build "$tree" -j "$jobs"

# The system's libgrpc and libpq are not instrumented: what they do between themselves would be
# reported, and what they synchronise would not be seen.
export TSAN_OPTIONS=ignore_noninstrumented_modules=1:halt_on_error=1:second_deadlock_stack=1
export SAGAD_TEST_SIZE=everyday
labels=$(IFS='|' && echo "${suites[*]}")
ctest --test-dir "$tree" -L "^($labels)\$" -j "$jobs" --no-tests=error --verbose
