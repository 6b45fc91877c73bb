#!/usr/bin/env bash
# What Kafka's way in costs: a topic of 32 partitions that is full already, sagas of 3 steps to their end,
# beside batched starts over gRPC in the same run; then the same while finished sagas are purged. Prints
# one JSON line; what the figures mean: tests/bench/README.md. About two minutes with --quick, four without,
# after the build. Needs a broker of its own (tests/kafka/broker.sh); exit code 77 where none can be had.
# Exits 1 when Kafka's way in makes less than 0.9 of the batched starts, when the purge does not keep up,
# or when a step's p99 is more than twice as long while it purges.
#   tests/bench/kafka.sh [--quick]
source "$(dirname "${BASH_SOURCE[0]}")/stage.sh"
stage_arguments "$@"
deploy/setup.sh --kafka >&2
stage_build bench_kafka feed
stage_scratch
broker=''
clean_up() {
    [ -z "$broker" ] || tests/kafka/broker.sh stop "$scratch/kafka" >&2 || true
    rm -rf "$scratch"
}
trap clean_up EXIT
broker=$(tests/kafka/broker.sh start "$scratch/kafka" 0)
broker=${broker#bootstrap=}
TMPDIR=$scratch SAGAD_BENCH_BROKER=${broker%% *} build/release/tests/bench/bench_kafka "$@"
