#!/usr/bin/env bash
# Runs one fuzz target from its kept corpus; what it finds on the way stays in a temporary folder.
#   run.sh TREE TARGET
# 10 s, at full size 60 s (SAGAD_FUZZ_SECONDS: other). SAGAD_FUZZ_SEED repeats a run.
set -euo pipefail

tree=$1 target=$2
here=$(cd "$(dirname "$0")" && pwd)
binary=$tree/tests/fuzz/fuzz_$target
corpus=$here/corpus/$target
seconds=10
[ "${SAGAD_TEST_SIZE-}" != full ] || seconds=60
seconds=${SAGAD_FUZZ_SECONDS:-$seconds}
seed=${SAGAD_FUZZ_SEED:-$((RANDOM * 32768 + RANDOM + 1))}
found=$tree/found/$target
scratch=$(mktemp -d "${TMPDIR:-/tmp}/sagad-fuzz.XXXXXX")
trap 'rm -rf "$scratch"' EXIT

options=(-max_len=4096 -timeout=20 -rss_limit_mb=2048)
[ ! -f "$here/$target.dict" ] || options+=("-dict=$here/$target.dict")
mkdir -p "$found" "$scratch/new"
echo "$target: seed $seed, $(find "$corpus" -type f | wc -l) kept inputs, $seconds s"
status=0
LLVM_PROFILE_FILE=$scratch/profile "$binary" "${options[@]}" "-seed=$seed" \
    "-max_total_time=$seconds" "-artifact_prefix=$found/" -print_final_stats=1 \
    "$scratch/new" "$corpus" >"$scratch/log" 2>&1 || status=$?
if [ "$status" != 0 ]; then
    grep -v '^#' "$scratch/log" | tail -n 60
    echo "$target failed (seed $seed). Once more with the input that did it:"
    find "$found" -type f -newer "$scratch" -printf "  $binary %p\n"
    exit 1
fi
runs=$(awk '/^stat::number_of_executed_units:/ { print $2 }' "$scratch/log")
echo "$target: $runs runs, $(find "$scratch/new" -type f | wc -l) inputs with something new"
if [ "${runs:-0}" -lt $((seconds * 10)) ]; then
    echo "$target: too few runs: something holds it up"
    exit 1
fi
