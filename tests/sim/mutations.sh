#!/usr/bin/env bash
# mutations.sh BUILD_DIR MUTANT...: every fault of ours must be caught, within the everyday seeds: those
# in the simulated store, and the simulators that were built with a patched product. Prints which
# invariant caught which, and after how many seeds.
set -uo pipefail
dir=$1
shift
missed=0

try() { # command...
    "$@" --catch || missed=$((missed + 1))
}

echo "mutation | caught by | seeds"
for mutation in $("$dir/sim" --mutations); do
    try "$dir/sim" --mutation "$mutation"
done
for mutant; do
    try "$dir/sim_$mutant"
done
echo "$missed mutations were not caught"
[ "$missed" = 0 ]
