#!/usr/bin/env bash
# Programs of the unit suite under valgrind, in a build without sanitizers: what is read without
# having been written, which AddressSanitizer does not see. Everyday one short program, so that this
# stays in order; at full size (SAGAD_TEST_SIZE=full) all but two.
#   tests/valgrind.sh TREE
#   SAGAD_TEST_JOBS   programs at a time (default 2)
set -euo pipefail

short=test_base_heap
without=" test_core_walk test_ctl_client " # walks for minutes; holds libgrpc to the clock

tree=$1
root=$(cd "$(dirname "$0")/.." && pwd)
jobs=${SAGAD_TEST_JOBS:-2}
launcher=()
if command -v ccache >/dev/null; then
    launcher=(-DCMAKE_C_COMPILER_LAUNCHER=ccache)
fi
mkdir -p "$tree"
cmake -S "$root" -B "$tree" -G Ninja "${launcher[@]}" -DCMAKE_BUILD_TYPE=Debug \
    -DCMAKE_C_FLAGS_DEBUG='-O1 -g' >"$tree/configure.log" 2>&1 || {
    cat "$tree/configure.log"
    exit 1
}

programs=()
if [ "${SAGAD_TEST_SIZE-}" = full ]; then
    while read -r name; do
        case "$without" in
            *" $name "*) echo "$name: left out" ;;
            *) programs+=("$name") ;;
        esac
    done < <(ctest --test-dir "$tree" -N -L '^unit$' | awk '/: test_/ { print $NF }')
else
    programs=("$short")
fi
cmake --build "$tree" -j "$jobs" --target "${programs[@]}" >"$tree/build.log" || {
    tail -n 40 "$tree/build.log"
    exit 1
}

check() { # program: what it and valgrind say only when something is wrong
    local started=$SECONDS log program
    program=$(find "$tree/tests" -name "$1" -type f -executable)
    log=$(mktemp "${TMPDIR:-/tmp}/sagad-valgrind.XXXXXX")
    if SAGAD_TEST_SIZE=everyday valgrind --quiet --error-exitcode=9 --leak-check=full \
        --errors-for-leak-kinds=definite,possible --track-origins=yes "$program" >"$log" 2>&1; then
        echo "$1: clean in $((SECONDS - started)) s"
        rm -f "$log"
    else
        cat "$log"
        rm -f "$log"
        echo "$1: FAILED after $((SECONDS - started)) s"
        return 1
    fi
}
export -f check
export tree
printf '%s\n' "${programs[@]}" | xargs -P "$jobs" -I '{}' bash -c 'check {}'
echo "${#programs[@]} programs under valgrind"
