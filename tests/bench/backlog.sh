#!/usr/bin/env bash
# What 1,000,000 waiting sagas (20,000 with --quick) cost: the questions of an operator, memory, and a
# start after kill -9. Prints a table on stderr and one JSON line on stdout; what the figures mean:
# tests/bench/README.md. Exits 1 when one is out of its bound. Some minutes after the build.
#   tests/bench/backlog.sh [--quick]
source "$(dirname "${BASH_SOURCE[0]}")/stage.sh"
stage_run bench_backlog "$@"
