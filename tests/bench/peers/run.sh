#!/usr/bin/env bash
# The same saga of three steps that do nothing on sagad and on its peers, one after the other on this
# machine: a table on stderr, one JSON line on stdout. What the figures mean: tests/bench/peers/README.md.
# A minute for each row with 128 or 400 callers, after fetching and building; a few seconds with --quick,
# which says that it works, not how fast it is. A peer whose packages cannot be had is skipped and counted.
#
#   tests/bench/peers/run.sh [--quick] [PEER...]        PEER: sagad restate dbos temporal dtm
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
order=(sagad restate dbos temporal dtm)

quick=()
chosen=()
for argument; do
    case $argument in
        --quick) quick=(--quick) ;;
        sagad | restate | dbos | temporal | dtm) chosen+=("$argument") ;;
        *)
            echo "usage: $0 [--quick] [PEER...], PEER one of: ${order[*]}" >&2
            exit 2
            ;;
    esac
done
[ ${#chosen[@]} -gt 0 ] || chosen=("${order[@]}")
if [ ${#quick[@]} -gt 0 ]; then
    seconds=3
else
    seconds=30
fi

results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT
failed=()
for peer in "${chosen[@]}"; do
    callers=(128)
    case $peer in
        sagad | restate) callers+=(400) ;;
    esac
    echo "=== $peer" >&2
    status=0
    "$here/$peer/run.sh" "$seconds" "${callers[@]}" >"$results/$peer" || status=$?
    echo "$status" >"$results/$peer.status"
    [ "$status" = 0 ] || [ "$status" = 77 ] || failed+=("$peer")
    if [ "$peer" = sagad ] && [ "$status" = 0 ]; then
        # What sagad does when its callers do not wait for each saga: the product's own benchmark, one run.
        "$here/../steps.sh" --quick >"$results/steps" || failed+=(steps)
    fi
done

python3 - "$results" "${chosen[@]}" <<'PYTHON'
import json, pathlib, sys

results = pathlib.Path(sys.argv[1])
peers = []
for name in sys.argv[2:]:
    status = int((results / f"{name}.status").read_text())
    lines = [json.loads(line) for line in (results / name).read_text().splitlines()]
    peer = {"peer": name, "outcome": {0: "measured", 77: "skipped"}.get(status, "failed")}
    if lines:
        peer |= lines[0]
    peer["runs"] = lines[1:]
    peers.append(peer)
own = {}
if (results / "steps").exists() and (results / "steps").read_text().strip():
    steps = json.loads((results / "steps").read_text().splitlines()[-1])
    own = {key: steps[key] for key in ("sagas_per_s", "sagas_per_s_unary", "pg_limit_sagas_per_s")}

table = ["| what | callers | workflows/s | p50 ms | p99 ms |", "|---|---|---|---|---|"]
for peer in peers:
    what = peer.get("what", peer["peer"])
    for run in peer["runs"]:
        table.append("| {} | {callers} | {workflows_per_s:.0f} | {p50_ms} | {p99_ms} |".format(what, **run))
    if peer["outcome"] != "measured":
        table.append(f"| {what} | | {peer['outcome'].upper()} | | |")
if own:
    table.append(f"| sagad, unary starts, callers that do not wait | | {own['sagas_per_s_unary']:.0f} | | |")
    table.append(f"| sagad, batched starts, callers that do not wait | | {own['sagas_per_s']:.0f} | | |")
print("", *table, sep="\n", file=sys.stderr)
skipped = sum(peer["outcome"] == "skipped" for peer in peers)
if skipped:
    print(f"{skipped} SKIPPED", file=sys.stderr)
print(json.dumps({"peers": peers, "sagad": own, "skipped": skipped}))
PYTHON
[ ${#failed[@]} = 0 ] || {
    echo "$0: failed: ${failed[*]}" >&2
    exit 1
}
