#!/usr/bin/env bash
# Which lines the test suites reach. Builds by clang in a tree of its own, runs the suites, prints
# each file and folder, and fails where a folder that must be covered is not.
#   tests/coverage.sh [suite ...]      labels of ctest; without: unit integration
#   tests/coverage.sh --lines FILE     the lines of FILE that the last run did not reach
# Counts are kept in mapped files, so they survive a kill -9.
#   SAGAD_TEST_JOBS   test programs at a time (default 2)
set -euo pipefail

least=90 # percent of the lines of each of these
must="orchestrator/core orchestrator/store orchestrator/dispatch"

root=$(cd "$(dirname "$0")/.." && pwd)
tree=$root/build/coverage
profiles=$tree/profiles
jobs=${SAGAD_TEST_JOBS:-2}

# Into `programs`: "-object PROGRAM" for each, but the first goes without the word. Not the simulator's
# mutants, which are other code under the same names.
programs() {
    mapfile -t programs < <(find "$tree/orchestrator" "$tree/tests" "$tree/workers" -type f \
        -executable ! -path '*/CMakeFiles/*' ! -path '*/sim/sim_*' ! -name '*.sh' \
        -printf '-object\n%p\n' | tail -n +2)
}

if [ "${1-}" = --lines ]; then
    programs
    llvm-cov-14 show "${programs[@]}" "-instr-profile=$profiles/all" "$(realpath "$2")" |
        awk -F'|' '$2 ~ /^ *0$/'
    exit
fi
suites=("$@")
[ ${#suites[@]} -gt 0 ] || suites=(unit integration)

launcher=()
if command -v ccache >/dev/null; then
    launcher=(-DCMAKE_C_COMPILER_LAUNCHER=ccache)
fi
mkdir -p "$tree"
cmake -S "$root" -B "$tree" -G Ninja -DCMAKE_C_COMPILER=clang-14 "${launcher[@]}" \
    -DSAGAD_SIM_MUTANTS=OFF -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_FLAGS_DEBUG='-O1 -g' \
    -DCMAKE_C_FLAGS="-fprofile-instr-generate \
-fcoverage-mapping -mllvm -runtime-counter-relocation" >"$tree/configure.log" 2>&1 || {
    cat "$tree/configure.log"
    exit 1
}
cmake --build "$tree" -j "$jobs"

rm -rf "$profiles"
mkdir "$profiles"
status=0
labels=$(IFS='|' && echo "${suites[*]}")
LLVM_PROFILE_FILE=$profiles/%c%m.profraw ctest --test-dir "$tree" -L "^($labels)\$" -E '^sim_mutations$' \
    -j "$jobs" --no-tests=error --output-on-failure || status=$?
find "$profiles" -name '*.profraw' >"$profiles/list"
llvm-profdata-14 merge -sparse -o "$profiles/all" "--input-files=$profiles/list"

programs
llvm-cov-14 export -format=lcov -summary-only "${programs[@]}" "-instr-profile=$profiles/all" |
    awk -v least="$least" -v must="$must" -v root="$root/" '
        function show(name, hit, lines) {
            return sprintf("%-46s %5d of %5d lines  %5.1f %%", name, hit, lines, 100 * hit / lines)
        }
        /^SF:/ {
            file = folder = substr($0, 4 + length(root))
            keep = index($0, root) == 4 && file ~ /^(orchestrator|workers)\/.*\.c$/
            sub(/\/[^\/]*$/, "", folder)
        }
        /^LF:/ && keep { lines = substr($0, 4) }
        /^LH:/ && keep && lines > 0 {
            hit = substr($0, 4)
            print show(file, hit, lines) | "sort"
            hits[folder] += hit
            all[folder] += lines
        }
        END {
            close("sort")
            for (folder in all)
                print show(folder, hits[folder], all[folder]) | "sort"
            close("sort")
            count = split(must, names, " ")
            for (i = 1; i <= count; i++)
                if (100 * hits[names[i]] < least * all[names[i]] || !all[names[i]]) {
                    print names[i] " is below " least " %"
                    bad = 1
                }
            exit bad
        }' || status=1
exit "$status"
