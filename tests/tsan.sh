#!/usr/bin/env bash
# The unit, integration and sim suites at everyday size under ThreadSanitizer, in a tree of their own
# (preset tsan). Any report is a failure. A program that failed without one, because it waits for
# something only so long and everything is many times slower here, must pass when it runs again by
# itself: what it asserts is asserted under AddressSanitizer, here threads are looked at.
#   tests/tsan.sh [suite ...]
#   SAGAD_TEST_JOBS   programs that are busy at a time (default 2): twice as many run, most of them wait
set -euo pipefail

# They measure memory, of which ThreadSanitizer takes several times as much; or are there to fail.
without='test_hostile_peers|sim_mutations'

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
(cd "$root" && cmake --preset tsan "${launcher[@]}" -DSAGAD_SIM_MUTANTS=OFF \
    >"$tree/configure.log" 2>&1) || {
    cat "$tree/configure.log"
    exit 1
}
cmake --build "$tree" -j "$jobs" >"$tree/build.log" || {
    tail -n 40 "$tree/build.log"
    exit 1
}

reports=$(mktemp -d "${TMPDIR:-/tmp}/sagad-tsan.XXXXXX")
chmod 0777 "$reports" # some programs run as another user
trap 'rm -rf "$reports"' EXIT
# The system's libgrpc and libpq are not instrumented: what they do between themselves would be
# reported, and what they synchronise would not be seen. A thread of gRPC's own may end, unjoined, just
# when its program does: its last channel goes after grpc_shutdown_blocking has looked.
echo 'thread:grpc_core::Thread' >"$reports/suppressions"
chmod 0644 "$reports/suppressions"
export TSAN_OPTIONS=ignore_noninstrumented_modules=1:halt_on_error=1:log_path=$reports/report
TSAN_OPTIONS+=:suppressions=$reports/suppressions
export SAGAD_TEST_SIZE=everyday
labels=$(IFS='|' && echo "${suites[*]}")
failed=$tree/Testing/Temporary/LastTestsFailed.log
rm -f "$failed"
status=0
ctest --test-dir "$tree" -L "^($labels)\$" -E "^($without)\$" -j $((2 * jobs)) --no-tests=error || status=$?
if [ "$status" != 0 ] && [ -s "$failed" ]; then
    # A test that fails leaves its threads behind: whether it does when it passes is looked at now.
    for report in "$reports"/report*; do
        if [ -f "$report" ] && ! grep 'WARNING: ThreadSanitizer:' "$report" | grep -qv 'thread leak'; then
            rm "$report"
        fi
    done
    status=0
    ctest --test-dir "$tree" --rerun-failed -j 1 --output-on-failure || status=$?
fi
if [ -n "$(find "$reports" -type f -name 'report*')" ]; then
    find "$reports" -type f -name 'report*' -exec cat {} +
    echo "ThreadSanitizer reported something"
    status=1
fi
exit "$status"
