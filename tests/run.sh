#!/usr/bin/env bash
# Sets up, builds with AddressSanitizer and UndefinedBehaviorSanitizer, and runs test suites.
#   tests/run.sh [--full] [suite ...]      without suites: all of them
# A suite is a label of ctest. --full: at full size (SAGAD_TEST_SIZE=full), else everyday size.
# Ends with the line "N passed, N failed, N skipped"; exits 1 when a test failed, a suite ran
# nothing, or a suite took longer than its budget.
#   SAGAD_TEST_JOBS   how many programs that are busy may run at a time (default 2)
#   SAGAD_TEST_KEEP   keep the scratch directories of the tests
set -euo pipefail

# suite        everyday  full: the seconds that it may take on 2 cores; -: not at this size
#                        programs at a time for each job: more than 1 where they mostly wait
suites_known="
unit           60        300    1
integration    480       1800   2
sim            180       900    1
fault          150       1200   1
fuzz           240       1200   1
model          240       900    1
never-guess    180       900    2
definitions    120       900    1
kafka          240       900    2
conformance    240       900    1
operator       120       900    1
tsan           -         1800   1
"

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$root/build/debug
size=everyday
suites=()
passed=0 failed=0 skipped=0

usage() {
    echo "usage: $0 [--full] [$(awk 'NF { printf "%s%s", sep, $1; sep = "|" }' <<<"$suites_known") ...]" >&2
    exit 2
}

budget_of() { # suite: its seconds at this size; fails for an unknown suite
    awk -v suite="$1" -v size="$size" \
        '$1 == suite { print size == "full" ? $3 : $2; found = 1 } END { exit !found }' <<<"$suites_known"
}

finish() {
    echo "$passed passed, $failed failed, $skipped skipped"
    [ "$failed" = 0 ] || exit 1
    exit 0
}

stop_without_tests() { # what failed
    echo "$1 failed" >&2
    failed=$((failed + 1))
    finish
}

while [ $# -gt 0 ]; do
    case "$1" in
        --full) size=full ;;
        -*) usage ;;
        *)
            budget_of "$1" >/dev/null || usage
            suites+=("$1")
            ;;
    esac
    shift
done
all=no
if [ ${#suites[@]} = 0 ]; then
    all=yes
    mapfile -t suites < <(awk -v size="$size" \
        'NF && (size == "full" ? $3 : $2) != "-" { print $1 }' <<<"$suites_known")
fi
for suite in "${suites[@]}"; do
    [ "$(budget_of "$suite")" != - ] || usage
done

"$root/deploy/setup.sh" || stop_without_tests "setup"
# A Kafka broker for those who need one; without it their tests count as skipped, by name.
if [[ " ${suites[*]} " == *" kafka "* ]]; then
    "$root/deploy/setup.sh" --kafka ||
        echo "kafka: what a broker needs could not be installed"
    "$root/tests/kafka/broker.sh" fetch ||
        [ $? = 77 ] || stop_without_tests "fetching a Kafka broker"
fi

if [[ " ${suites[*]} " == *" conformance "* ]]; then
    "$root/deploy/setup.sh" --workers ||
        echo "conformance: what the workers' languages need could not be installed"
fi

mkdir -p "$root/build"
exec 9>"$root/build/.tests-run.lock"
flock 9 # one run at a time in this tree

launcher=()
if command -v ccache >/dev/null; then
    launcher=(-DCMAKE_C_COMPILER_LAUNCHER=ccache)
fi
(cd "$root" && cmake --preset debug "${launcher[@]}" >"$root/build/configure.log" 2>&1) || {
    cat "$root/build/configure.log"
    stop_without_tests "configure"
}
cmake --build "$build" || stop_without_tests "build"

# Everything that the tests leave behind is in here, also when one of them was killed.
scratch=$(mktemp -d /tmp/sagad-run.XXXXXX)
chmod 0711 "$scratch"
if [ -z "${SAGAD_TEST_KEEP-}" ]; then
    trap 'rm -rf "$scratch"' EXIT
fi
export TMPDIR=$scratch SAGAD_TEST_SIZE=$size
export ASAN_OPTIONS=detect_leaks=1:halt_on_error=1:abort_on_error=1:detect_stack_use_after_return=1
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1

run_suite() { # suite
    local suite=$1 budget log=$build/Testing/Temporary/LastTest.log status=0 started seconds
    local programs ok bad left finished jobs=${SAGAD_TEST_JOBS:-2}
    budget=$(budget_of "$suite")
    programs=$(ctest --test-dir "$build" -N -L "^$suite\$" | awk '/^Total Tests:/ { print $3 }')
    if [ "${programs:-0}" = 0 ]; then
        echo "$suite: no tests"
        failed=$((failed + 1))
        return
    fi
    rm -f "$log"
    started=$(date +%s%N)
    jobs=$((jobs * $(awk -v suite="$suite" '$1 == suite { print $4 }' <<<"$suites_known")))
    ctest --test-dir "$build" -L "^$suite\$" -j "$jobs" --output-on-failure \
        --test-output-size-passed 100000000 --test-output-size-failed 100000000 || status=$?
    seconds=$((($(date +%s%N) - started) / 1000000))
    cp "$log" "$logs/$suite.log" 2>/dev/null || true # no log: nothing ran, which is told below
    read -r ok bad left finished < <(awk -f "$root/tests/count_cases.awk" "$log")
    if [ "$finished" -lt "$programs" ]; then
        echo "$suite: $((programs - finished)) of $programs programs did not run"
        bad=$((bad + programs - finished))
    fi
    if [ "$status" != 0 ] && [ "$bad" = 0 ]; then
        bad=1
    fi
    if [ $((ok + bad + left)) = 0 ]; then
        echo "$suite: ran nothing"
        bad=1
    fi
    if [ "$seconds" -gt $((budget * 1000)) ]; then
        echo "$suite: took longer than its budget"
        bad=$((bad + 1))
    fi
    printf '%s (%s): %d passed, %d failed, %d skipped in %d.%d s of %d s\n' "$suite" "$size" \
        "$ok" "$bad" "$left" $((seconds / 1000)) $((seconds % 1000 / 100)) "$budget"
    passed=$((passed + ok)) failed=$((failed + bad)) skipped=$((skipped + left))
}

# The suites' logs stay, for the table of promises; the last run of each counts.
logs=$build/Testing/suites
mkdir -p "$logs"
for suite in "${suites[@]}"; do
    run_suite "$suite"
done
if ! awk -f "$root/tests/promises.awk" "$logs"/*.log >"$logs/promises.md"; then
    grep NOTHING "$logs/promises.md" || true
    echo "promises without a passed test, in the last run of each suite: $logs/promises.md"
    if [ "$all" = yes ]; then
        failed=$((failed + 1))
    fi
fi
finish
