#!/bin/sh
# Configures and builds the tree of the fuzz targets: clang, libFuzzer, AddressSanitizer and
# UndefinedBehaviorSanitizer, and counters for coverage.sh.
#   build.sh TREE
set -eu
tree=$1
root=$(cd "$(dirname "$0")/../.." && pwd)
launcher=
if command -v ccache >/dev/null; then
    launcher=-DCMAKE_C_COMPILER_LAUNCHER=ccache
fi
cmake -S "$root" -B "$tree" -G Ninja -DCMAKE_C_COMPILER=clang-14 $launcher \
    -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_FLAGS_DEBUG='-O1 -g' \
    -DCMAKE_C_FLAGS='-fsanitize=fuzzer-no-link -fprofile-instr-generate -fcoverage-mapping' \
    '-DSAGAD_SANITIZE=address;undefined' -DSAGAD_FUZZ=ON >"$tree.configure.log" 2>&1 || {
    cat "$tree.configure.log"
    exit 1
}
cmake --build "$tree" -j "${SAGAD_TEST_JOBS:-2}" --target fuzzers
