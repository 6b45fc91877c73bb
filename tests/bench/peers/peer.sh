# What the peers' scripts share; sourced by PEER/run.sh, which is called as
#
#   PEER/run.sh SECONDS CALLERS...
#
# and prints on stdout one JSON line that says what the peer is and how it stores, then one for each
# number of callers. Exit code 77: its packages cannot be had here.
set -euo pipefail

peers=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$peers/../../.." && pwd)
peer=$(cd "$(dirname "$0")" && pwd)
name=$(basename "$peer")

[ $# -ge 2 ] || {
    echo "usage: $0 SECONDS CALLERS..." >&2
    exit 2
}
for number; do
    [[ $number =~ ^[1-9][0-9]{0,4}$ ]] || {
        echo "$0: not a number from 1 to 99999: $number" >&2
        exit 2
    }
done
seconds=$1
shift
callers=("$@")
warm_up=$((seconds < 12 ? 2 : 5))

# /var/tmp, because /tmp may be memory, where fsync costs nothing.
scratch=$(mktemp -d "${SAGAD_BENCH_DIR:-/var/tmp}/sagad-peers.XXXXXX")
chmod 0711 "$scratch"
started=()

clean_up() {
    local i
    # The newest first: workers before servers, servers before their database.
    for ((i = ${#started[@]} - 1; i >= 0; i--)); do
        kill -INT "${started[i]}" 2>/dev/null || true # it may have ended by itself
        for _ in {1..100}; do
            kill -0 "${started[i]}" 2>/dev/null || break
            sleep 0.1
        done
        kill -KILL "${started[i]}" 2>/dev/null || true
        wait "${started[i]}" 2>/dev/null || true # whatever its exit code: it was told to end
    done
    rm -rf "$scratch"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

say() {
    echo "$name: $*" >&2
}

# peer_is WHAT HOW: the first line of the output. Neither may hold a quote or a backslash.
peer_is() {
    printf '{"what": "%s", "stores": "%s"}\n' "$1" "$2"
}

# peer_fetch WHAT COMMAND...: a package client. When it fails the peer is skipped, and its last words told.
peer_fetch() {
    local what=$1
    shift
    say "fetches $what"
    "$@" >"$scratch/fetch.log" 2>&1 || {
        tail -n 5 "$scratch/fetch.log" >&2
        say "SKIPPED: $what cannot be had"
        exit 77
    }
}

# peer_npm: the packages of the lock file, none of whose scripts run, in $scratch/node; with our programs.
peer_npm() {
    mkdir "$scratch/node"
    cp "$peer"/package.json "$peer"/package-lock.json "$peer"/*.mjs "$peers"/callers/callers.mjs "$scratch/node/"
    peer_fetch "its npm packages" npm --prefix "$scratch/node" ci --prefer-offline --ignore-scripts --no-audit --no-fund
}

# Before a command: no proxy between it and 127.0.0.1; some servers use one for all that they call.
direct=(env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY -u all_proxy -u ALL_PROXY)

# peer_start NAME COMMAND...: in the background, until the script ends.
peer_start() {
    local log=$scratch/$1.log
    shift
    "${direct[@]}" "$@" >"$log" 2>&1 &
    started+=($!)
}

# peer_wait NAME COMMAND...: until the command succeeds; NAME's log is told when that takes a minute, or
# when the process that was started last ends.
peer_wait() {
    local log=$scratch/$1.log end=$((SECONDS + 60))
    shift
    until "${direct[@]}" "$@" >/dev/null 2>&1; do
        if [ $SECONDS -ge $end ] || ! kill -0 "${started[-1]}" 2>/dev/null; then
            tail -n 40 "$log" | cut -c 1-400 >&2
            say "does not come up"
            exit 1
        fi
        sleep 0.2
    done
}

# peer_ports N: free ones, in the array `ports`. Below 32,768: Temporal stores its own as signed 16 bits.
peer_ports() {
    local list
    list=$(python3 -c '
import random, socket, sys
sockets = []
while len(sockets) < int(sys.argv[1]):
    try:
        sockets.append(socket.create_server(("127.0.0.1", random.randrange(20000, 32768))))
    except OSError:
        continue # it is taken
print(*(s.getsockname()[1] for s in sockets))' "$1")
    read -r -a ports <<<"$list"
}

# peer_postgres DATABASE...: a PostgreSQL with fsync on, and the settings that tests/bench gives to the one
# under sagad; on port $pg_port of 127.0.0.1, superuser postgres, no password.
peer_postgres() {
    local bin=${SAGAD_PG_BIN:-/usr/lib/postgresql/15/bin} as=() database
    if [ "$(id -u)" = 0 ]; then
        as=(setpriv --reuid postgres --regid postgres --clear-groups)
    fi
    mkdir "$scratch/postgres"
    [ "$(id -u)" != 0 ] || chown postgres: "$scratch/postgres"
    "${as[@]}" "$bin/initdb" -D "$scratch/postgres/data" -U postgres -A trust -E UTF8 --locale C >"$scratch/initdb.log"
    peer_ports 1
    pg_port=${ports[0]}
    peer_start postgres "${as[@]}" "$bin/postgres" -D "$scratch/postgres/data" -p "$pg_port" \
        -c listen_addresses=127.0.0.1 -c unix_socket_directories="$scratch/postgres" \
        -c shared_buffers=512MB -c max_wal_size=4GB -c min_wal_size=1GB -c wal_compression=off \
        -c checkpoint_timeout=30min
    peer_wait postgres "$bin/pg_isready" -h 127.0.0.1 -p "$pg_port" -U postgres
    for database; do
        "$bin/createdb" -h 127.0.0.1 -p "$pg_port" -U postgres "$database"
    done
}

# peer_go MODULE OUTPUT PACKAGE...: builds Go packages of a module's folder, with what go.sum pins.
peer_go() {
    local module=$1 output=$2
    shift 2
    command -v go >/dev/null || {
        say "SKIPPED: there is no Go"
        exit 77
    }
    peer_fetch "its Go modules" go -C "$module" mod download
    say "builds"
    go -C "$module" build -mod=readonly -o "$output" "$@"
}

# peer_measure COMMAND...: runs the callers' program for each number of callers, with
# CALLERS WARM_UP SECONDS behind its arguments. One that hangs is ended, which is an error.
peer_measure() {
    local count
    for count in "${callers[@]}"; do
        say "$count callers for $seconds s"
        "${direct[@]}" timeout $((warm_up + seconds + 120)) "$@" "$count" "$warm_up" "$seconds"
    done
}
