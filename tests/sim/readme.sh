#!/bin/sh
# readme.sh SIM FOLDER: the README's tables are those of the program. After a change of the tables:
#   tests/sim/run --tables, between the two marks.
set -e
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"$1" --tables >"$scratch/program"
awk '/^<!-- tables: end -->/ { inside = 0 } inside; /^<!-- tables: begin -->/ { inside = 1 }' \
    "$2/README.md" >"$scratch/readme"
diff "$scratch/readme" "$scratch/program"
