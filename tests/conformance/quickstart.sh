#!/usr/bin/env bash
# Does in an empty folder what the quick start in workers/LANGUAGE/README.md says, as a new user would,
# against a real `sagad dev`, and looks whether a saga SUCCEEDED.
#   quickstart.sh LANGUAGE
# The README marks each file by a line "<!-- quickstart:PATH -->" above its fenced block, and ends them with
# "<!-- quickstart:end -->"; the indented block behind that are the commands, run in order by one bash -eu.
# There $SAGAD is this repository, sagad and sagactl are on the PATH; the line that starts `sagad dev` is
# left to this script, and its address, 127.0.0.1:7233, becomes a free one.
#   SAGAD_BUILD_DIR   where sagad was built (default: build/debug of the tree); without it an installed one
# Exit: 0 it worked; 77 the language cannot be had here, with one line why; else what went wrong is told.
set -euo pipefail

language=${1:?usage: quickstart.sh LANGUAGE}
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=${SAGAD_BUILD_DIR:-$root/build/debug}
readme=$root/workers/$language/README.md
limit_s=${SAGAD_QUICKSTART_S:-600} start_s=120

[ -f "$readme" ] || {
    echo "SKIPPED: there is no workers/$language/README.md"
    exit 77
}
bin=$build/orchestrator
[ ! -x "$bin/app/sagad" ] || PATH=$bin/app:$bin/ctl:$PATH
command -v sagad >/dev/null && command -v sagactl >/dev/null || {
    echo "sagad and sagactl are neither in $build nor on the PATH: build or install them" >&2
    exit 1
}
case $language in
    c) needs=cc ;;
    go) needs=go ;;
    java) needs=mvn ;;
    node) needs=npm ;;
    python) needs=python3 ;;
    *) needs=true ;;
esac
command -v "$needs" >/dev/null || {
    echo "SKIPPED: $language: there is no $needs here"
    exit 77
}

scratch=$(mktemp -d "${TMPDIR:-/tmp}/sagad-quickstart.XXXXXX")
chmod 0755 "$scratch"
dev=
finish() {
    local status=$?
    if [ -n "$dev" ]; then
        kill "$dev" 2>/dev/null || true # it may have ended by itself
        wait "$dev" || true
    fi
    if [ "$status" != 0 ] && [ "$status" != 77 ]; then
        for log in "$scratch"/*.log; do
            echo "--- $(basename "$log")"
            tail -40 "$log"
        done >&2
    fi
    rm -rf "$scratch"
}
trap finish EXIT

# Files and commands.
mkdir "$scratch/empty"
cd "$scratch/empty"
awk -v commands="$scratch/commands" '
    /^<!-- quickstart:.* -->$/ {
        file = $0
        sub(/^<!-- quickstart:/, "", file)
        sub(/ -->$/, "", file)
        inside = 0
        if (file == "end") { file = ""; waits = 1 }
        else {
            folder = file
            if (sub(/\/[^\/]*$/, "", folder)) system("mkdir -p \"" folder "\"")
        }
        next
    }
    file != "" && /^```/ { if (inside) file = ""; inside = !inside; next }
    file != "" && inside { print > file }
    waits && /^    / { sub(/^    /, ""); print > commands; some = 1; next }
    waits && some { exit }' "$readme"
[ -s "$scratch/commands" ] || {
    echo "workers/$language/README.md has no quick start: no indented commands behind quickstart:end" >&2
    exit 1
}

# A server of its own.
: >"$scratch/sagad.log"
sagad dev --data "$scratch/data" --listen 127.0.0.1:0 >"$scratch/sagad.log" 2>&1 &
dev=$!
address=
for ((i = 0; i < start_s * 10 && ${#address} == 0; i++)); do
    kill -0 "$dev" 2>/dev/null || {
        dev=
        echo "sagad dev ended at once" >&2
        exit 1
    }
    address=$(sed -n 's/.*serving on[^0-9]*\(127\.0\.0\.1:[0-9]*\).*/\1/p' "$scratch/sagad.log" | head -1)
    [ -n "$address" ] || sleep 0.1
done
[ -n "$address" ] || {
    echo "sagad dev did not serve within $start_s s" >&2
    exit 1
}
find . -type f -exec sed -i "s/127\.0\.0\.1:7233/$address/g" {} +
sed -i -e "s/127\.0\.0\.1:7233/$address/g" -e '/^sagad dev/d' "$scratch/commands"

# As it says.
export SAGAD=$root SAGACTL_ADDRESS=$address
if command -v ccache >/dev/null; then
    export CMAKE_C_COMPILER_LAUNCHER=ccache
fi
status=0
timeout --kill-after=10 "$limit_s" bash -eu "$scratch/commands" >"$scratch/commands.log" 2>&1 || status=$?
if [ "$status" != 0 ]; then
    echo "the quick start of $language ended with $status" >&2
    exit 1
fi
state=$(sagactl list -o json 2>"$scratch/sagactl.log" | grep -o '"SAGA_STATE_[A-Z]*"' | sort -u || true)
if [ "$state" != '"SAGA_STATE_SUCCEEDED"' ]; then
    echo "the quick start of $language left sagas in these states, not just SUCCEEDED: ${state:-none}" >&2
    exit 1
fi
echo "quick start of $language: SUCCEEDED"
