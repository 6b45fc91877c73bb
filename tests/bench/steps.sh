#!/usr/bin/env bash
# Throughput, latency, processor time and log, five times: a table on stderr, one JSON line on stdout.
# Ten minutes; one run of less than a minute with --quick. What the figures mean: tests/bench/README.md.
#   tests/bench/steps.sh [--quick]
source "$(dirname "${BASH_SOURCE[0]}")/stage.sh"
stage_run bench "$@"
