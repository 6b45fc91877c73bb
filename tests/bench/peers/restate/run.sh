#!/usr/bin/env bash
# Restate: its server's binary and its SDK, both from npm; worker and callers are a Node process each.
#   tests/bench/peers/restate/run.sh SECONDS CALLERS...
source "$(dirname "$0")/../peer.sh"
peer_npm
server=$(find "$scratch/node/node_modules/@restatedev" -path '*/bin/restate-server' -type f | head -n 1)
[ -n "$server" ] || {
    say "SKIPPED: there is no server for this kind of machine among its npm packages"
    exit 77
}
peer_is 'Restate 1.7.12, TypeScript SDK 1.17.2' \
    'its own replicated log (one node, one copy) and state in RocksDB; each step is a record of the log, which is synced before it is acknowledged, many records a sync'

peer_ports 4
cat >"$scratch/restate.toml" <<CONFIG
base-dir = "$scratch/data"
bind-address = "127.0.0.1:${ports[0]}"
listen-mode = "tcp"
disable-telemetry = true
log-filter = "warn"
[ingress]
bind-address = "127.0.0.1:${ports[1]}"
[admin]
bind-address = "127.0.0.1:${ports[2]}"
disable-web-ui = true
CONFIG
admin=http://127.0.0.1:${ports[2]}
say "starts"
peer_start server "$server" --no-logo --config-file "$scratch/restate.toml"
peer_wait server curl -sSf "$admin/health"
peer_start worker env NODE_ENV=production RESTATE_LOGGING=ERROR node "$scratch/node/worker.mjs" "${ports[3]}"
peer_wait worker curl -sSf --json "{\"uri\": \"http://127.0.0.1:${ports[3]}\"}" "$admin/deployments"
peer_measure node "$scratch/node/call.mjs" "${ports[1]}"
