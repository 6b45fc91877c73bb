#!/usr/bin/env bash
# Makes a kept corpus better: fuzzes for a while, then keeps the few inputs that together reach as
# many lines of ours as all of them. Inputs named found-* were failures once: they stay.
#   grow.sh TREE TARGET SECONDS
set -euo pipefail

tree=$1 target=$2 seconds=$3
here=$(cd "$(dirname "$0")" && pwd)
binary=$tree/tests/fuzz/fuzz_$target
corpus=$here/corpus/$target
scratch=$(mktemp -d "${TMPDIR:-/tmp}/sagad-fuzz.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
export LLVM_PROFILE_FILE=$scratch/profile

options=(-max_len=4096 -timeout=20)
[ ! -f "$here/$target.dict" ] || options+=("-dict=$here/$target.dict")
mkdir -p "$corpus" "$scratch/new" "$scratch/cover" "$scratch/kept" "$tree/found/$target"
"$binary" "${options[@]}" "-max_total_time=$seconds" "-artifact_prefix=$tree/found/$target/" \
    "$scratch/new" "$corpus" 2>&1 | tail -n 1
"$binary" -set_cover_merge=1 -use_counters=0 "$scratch/cover" "$corpus" "$scratch/new" \
    >"$scratch/log" 2>&1

for input in "$scratch"/cover/*; do # "input file:line" for each line that it reaches
    "$binary" "$input" >"$scratch/log" 2>&1
    llvm-profdata-14 merge -sparse -o "$scratch/merged" "$scratch/profile"
    llvm-cov-14 export -format=lcov -skip-functions -skip-expansions \
        "-instr-profile=$scratch/merged" "$binary" | awk -F'[:,]' -v input="$input" '
            /^SF:/ { file = $2 }
            /^DA:/ && $3 > 0 && file ~ /\/(orchestrator|workers)\// { print input, file ":" $2 }'
done >"$scratch/lines"

# The next one is always the one that adds the most.
awk '
    { reached[$1, ++count[$1]] = $2 }
    END {
        while (1) {
            best = 0
            for (input in count) {
                gain = 0
                for (i = 1; i <= count[input]; i++)
                    gain += !(reached[input, i] in seen)
                if (gain > best) {
                    best = gain
                    chosen = input
                }
            }
            if (!best)
                break
            print chosen
            for (i = 1; i <= count[chosen]; i++)
                seen[reached[chosen, i]]
        }
    }' "$scratch/lines" | xargs cp -t "$scratch/kept"
find "$corpus" -type f ! -name 'found-*' -delete
cp "$scratch"/kept/* "$corpus/"
echo "$target: $(find "$corpus" -type f | wc -l) inputs"
