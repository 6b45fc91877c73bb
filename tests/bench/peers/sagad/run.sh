#!/usr/bin/env bash
# sagad as built here (release), with PostgreSQL, the worker of tests/bench and callers that wait for each
# saga's end, as the peers' callers do.
#   tests/bench/peers/sagad/run.sh SECONDS CALLERS...
source "$(dirname "$0")/../peer.sh"
build=${SAGAD_BENCH_BUILD:-$root/build/release} # where another build is
if [ -z "${SAGAD_BENCH_BUILD-}" ]; then
    say "builds sagad"
    (
        source "$root/tests/bench/stage.sh"
        deploy/setup.sh >&2
        stage_build
    )
fi
peer_go "$peer" "$scratch/callers" .
peer_is 'sagad' \
    'PostgreSQL 15, fsync on: the start with the first grant, each report with the next grant, and the end are durable before they have an effect; transitions of many sagas share a commit'
peer_postgres sagad
peer_ports 1
address=127.0.0.1:${ports[0]}
peer_start sagad "$build/orchestrator/app/sagad" serve --log-level warn --listen "$address" \
    --database "host=127.0.0.1 port=$pg_port dbname=sagad user=postgres"
peer_wait sagad "$scratch/callers" define "$address"
peer_start worker "$build/tests/bench/noop_worker" --target "$address"
peer_measure "$scratch/callers" call "$address"
