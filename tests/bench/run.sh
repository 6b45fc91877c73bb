#!/usr/bin/env bash
# The benchmark: builds what is installed (release), starts PostgreSQL, sagad, workers and a load
# generator on this machine, one part after the other, each a script that can be called by itself.
# Every part prints one JSON line on stdout; at the end the rows of all their tables stand together
# on stderr, each with its reach, and pass or short. What the figures mean: tests/bench/README.md.
#
#   tests/bench/run.sh [--quick] [--only ROW]...
#
# ROW: steps, kafka, backlog. --quick scales all down, and then says that it works, not how fast it is. A part
# that cannot be measured here (exit code 77) is told, and no error.
source "$(dirname "${BASH_SOURCE[0]}")/stage.sh"

declare -A scripts=([steps]=steps.sh [kafka]=kafka.sh [backlog]=backlog.sh)
order=(steps kafka backlog)

quick=()
only=()
while [ $# -gt 0 ]; do
    case $1 in
        --quick) quick=(--quick) ;;
        --only)
            [ -n "${scripts[${2-}]-}" ] || {
                echo "$0: --only takes one of: ${order[*]}" >&2
                exit 2
            }
            only+=("$2")
            shift
            ;;
        *)
            echo "usage: $0 [--quick] [--only ROW]..." >&2
            exit 2
            ;;
    esac
    shift
done
[ ${#only[@]} -gt 0 ] || only=("${order[@]}")

stage_scratch
rows=$scratch/rows
failed=()
for row in "${only[@]}"; do
    status=0
    echo "=== $row" >&2
    { "tests/bench/${scripts[$row]}" "${quick[@]}" 2>&1 >&3 | tee "$scratch/log" >&2 ||
        status=${PIPESTATUS[0]}; } 3>&1
    # The rows of its tables, without their heads.
    grep -E '^\| .* \|$' "$scratch/log" | grep -v '^| figure |' >>"$rows" || true # none where it failed
    case $status in
        0) ;;
        77) echo "| $row | | | | | not measured |" >>"$rows" ;;
        *)
            failed+=("$row")
            echo "| $row | | | | | failed |" >>"$rows"
            ;;
    esac
done

{
    echo
    echo '| figure | reach | median | least | most | |'
    echo '|---|---|---|---|---|---|'
    cat "$rows"
} >&2
[ ${#failed[@]} = 0 ] || {
    echo "$0: failed: ${failed[*]}" >&2
    exit 1
}
