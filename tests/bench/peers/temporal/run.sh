#!/usr/bin/env bash
# Temporal: its whole server built from its Go module, on a PostgreSQL of its own (state and visibility);
# worker and callers are a Go process each.
#   tests/bench/peers/temporal/run.sh SECONDS CALLERS...
source "$(dirname "$0")/../peer.sh"
shards=64      # of its history; a shard commits one thing at a time, its samples have 4
connections=50 # to PostgreSQL, of its 100
mkdir "$scratch/bin"
peer_go "$peer" "$scratch/bin/" . go.temporal.io/server/cmd/server go.temporal.io/server/cmd/tools/sql
peer_is 'Temporal 1.32.0, Go SDK 1.44.0' \
    'PostgreSQL 15, fsync on: several commits for the start, for each task scheduled, started and completed and for the end, and one for the search record; commits of different workflows share a sync'
peer_postgres temporal temporal_visibility
schema=$(go -C "$peer" list -mod=readonly -m -f '{{.Dir}}' go.temporal.io/server)/schema/postgresql/v12
for database in temporal temporal_visibility; do
    folder=$schema/${database/temporal_/}/versioned
    tool=("$scratch/bin/sql" --plugin postgres12 --endpoint 127.0.0.1 --port "$pg_port" --user postgres
        --password none --database "$database")
    { "${direct[@]}" "${tool[@]}" setup-schema --version 0.0 &&
        "${direct[@]}" "${tool[@]}" update-schema --schema-dir "$folder"; } >"$scratch/schema.log" 2>&1 || {
        tail -n 20 "$scratch/schema.log" >&2
        exit 1
    }
done

peer_ports 10
store() { # DATABASE CONNECTIONS
    cat <<CONFIG
      sql:
        pluginName: postgres12
        databaseName: $1
        connectAddr: 127.0.0.1:$pg_port
        connectProtocol: tcp
        user: postgres
        password: none
        maxConns: $2
        maxIdleConns: $2
        maxConnLifetime: 1h
CONFIG
}
service() { # NAME PORT PORT
    cat <<CONFIG
  $1:
    rpc:
      grpcPort: $2
      membershipPort: $3
      bindOnLocalHost: true
CONFIG
}
mkdir "$scratch/config"
{
    cat <<CONFIG
log:
  stdout: true
  level: warn
persistence:
  defaultStore: state
  visibilityStore: visibility
  numHistoryShards: $shards
  datastores:
    state:
$(store temporal "$connections")
    visibility:
$(store temporal_visibility 10)
global:
  membership:
    maxJoinDuration: 30s
    broadcastAddress: 127.0.0.1
services:
$(service frontend "${ports[0]}" "${ports[1]}")
$(service matching "${ports[2]}" "${ports[3]}")
$(service history "${ports[4]}" "${ports[5]}")
$(service worker "${ports[6]}" "${ports[7]}")
clusterMetadata:
  enableGlobalNamespace: false
  failoverVersionIncrement: 10
  masterClusterName: active
  currentClusterName: active
  clusterInformation:
    active:
      enabled: true
      initialFailoverVersion: 1
      rpcName: frontend
      rpcAddress: 127.0.0.1:${ports[0]}
dcRedirectionPolicy:
  policy: noop
dynamicConfigClient:
  filepath: $scratch/config/dynamic.yaml
  pollInterval: 10s
CONFIG
} >"$scratch/config/base.yaml"
# The limits by default, so many calls a second, are those of one tenant among many.
for limit in frontend.rps frontend.namespaceRPS history.rps matching.rps history.persistenceMaxQPS \
    matching.persistenceMaxQPS frontend.persistenceMaxQPS; do
    printf '%s:\n  - value: 1000000\n' "$limit"
done >"$scratch/config/dynamic.yaml"

address=127.0.0.1:${ports[0]}
say "starts"
peer_start server "$scratch/bin/server" --root "$scratch" --config config --env base start
peer_wait server "$scratch/bin/temporal" namespace "$address"
# A new namespace is known everywhere some seconds later.
peer_start worker "$scratch/bin/temporal" worker "$address"
peer_wait worker grep -q ready "$scratch/worker.log"
sleep 12
peer_measure "$scratch/bin/temporal" call "$address"
