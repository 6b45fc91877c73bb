#!/usr/bin/env bash
# DBOS Transact from npm, on a PostgreSQL of its own. It is a library: worker and callers are one process.
#   tests/bench/peers/dbos/run.sh SECONDS CALLERS...
source "$(dirname "$0")/../peer.sh"
peer_npm
peer_is 'DBOS Transact for TypeScript 5.3.0' \
    'PostgreSQL 15, fsync on: a commit for the start, for each step and for the end of each workflow; commits of different workflows share a sync'
peer_postgres dbos
peer_measure node "$scratch/node/saga.mjs" "$pg_port"
