#!/usr/bin/env bash
# Plays settlements over 50 accounts on a real stack (PostgreSQL, sagad, two workers, a risk service)
# and kills sagad, a worker and PostgreSQL with -9 while they run. Then audits the books.
#   deploy/demo.sh [--count N]     N settlements, 20 to 5000, default 500
# Ends with the line "demo: N settled, N compensated, 0 doubled, 0 lost, books balance" and exit code
# 0 only if that is true. Everything runs in a throw-away directory and is stopped at the end.
#   SAGAD_PG_BIN      where initdb and postgres are (default: Debian's place, then pg_config)
#   SAGAD_DEMO_KEEP   keep the directory with the logs
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$root/build/release
count=500
start_seconds=25 # over which the settlements are started
limit_seconds=95 # from the first start until all are at rest

usage() {
    echo "usage: $0 [--count N]      N: 20 to 5000" >&2
    exit 2
}

while [ $# -gt 0 ]; do
    case "$1" in
        --count)
            [[ ${2-} =~ ^[0-9]{1,5}$ ]] || usage
            count=$((10#$2))
            shift
            ;;
        *) usage ;;
    esac
    shift
done
{ [ "$count" -ge 20 ] && [ "$count" -le 5000 ]; } || usage

directory='' socket='' data='' sagad='' sagad_port='' risk=''
pg_pid='' sagad_pid='' risk_pid='' driver_pid=''
declare -A worker_pids=()
as_owner=() # runs PostgreSQL, which refuses to be root
erase=''
[ ! -t 1 ] || erase=$'\r\033[K' # the line of progress, where there is one

say() {
    printf '%sdemo: %s\n' "$erase" "$*"
}

fail() {
    say "FAILED: $*" >&2
    for log in "$directory"/*.log; do
        [ -s "$log" ] || continue
        echo "--- the last lines of ${log##*/}" >&2
        tail -n 15 "$log" >&2
    done
    exit 1
}

# --- starting and stopping ------------------------------------------------------------------------

is_running() { # pid
    [ -n "$1" ] && kill -0 "$1" 2>/dev/null
}

stop() { # signal, pid: asks, waits 10 s, insists
    local signal=$1 pid=$2 i
    is_running "$pid" || return 0
    kill "-$signal" "$pid" 2>/dev/null || true
    for ((i = 0; i < 100; i++)); do
        is_running "$pid" || break
        sleep 0.1
    done
    kill -9 "$pid" 2>/dev/null || true
    { wait "$pid" || true; } 2>/dev/null
}

kill_hard() { # pid: the fault that the demo is about
    kill -9 "$1"
    { wait "$1" || true; } 2>/dev/null # and bash says nothing about it
}

clean_up() {
    local status=$?
    trap - EXIT INT TERM HUP
    stop TERM "$driver_pid"
    for name in "${!worker_pids[@]}"; do
        kill -TERM "${worker_pids[$name]}" 2>/dev/null || true # all at once; waited for below
    done
    for name in "${!worker_pids[@]}"; do
        stop TERM "${worker_pids[$name]}"
    done
    stop TERM "$risk_pid"
    stop TERM "$sagad_pid"
    stop INT "$pg_pid"
    if [ -n "$directory" ] && [ -n "${SAGAD_DEMO_KEEP-}" ]; then
        echo "demo: the logs are in $directory" >&2
    elif [ -n "$directory" ]; then
        rm -rf "$directory"
    fi
    exit "$status"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

wait_for_line() { # pid, file, text, what it is
    local i
    for ((i = 0; i < 300; i++)); do
        ! grep -qF "$3" "$2" 2>/dev/null || return 0
        is_running "$1" || fail "$4 ended at its start"
        sleep 0.1
    done
    fail "$4 did not start within 30 s"
}

find_port() { # below the range that the system gives to clients, so that no client takes it
    local port
    for _ in $(seq 50); do
        port=$((20000 + RANDOM % 10000))
        if ! (: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
            echo "$port"
            return
        fi
    done
    fail "no free port"
}

find_postgres() {
    local folder
    for folder in "${SAGAD_PG_BIN-}" /usr/lib/postgresql/15/bin "$(pg_config --bindir 2>/dev/null)"; do
        if [ -n "$folder" ] && [ -x "$folder/postgres" ] && [ -x "$folder/initdb" ]; then
            echo "$folder"
            return
        fi
    done
    fail "initdb and postgres not found; name their folder in SAGAD_PG_BIN"
}

sql() { # database, statement: rows as plain text
    "$pg_bin/psql" -X -q -At -h "$socket" -U postgres -d "$1" -v ON_ERROR_STOP=1 -c "$2"
}

start_postgres() { # again and again for 30 s: a killed one leaves processes that take a moment to go
    local i
    for ((i = 0; i < 300; i++)); do
        if ! is_running "$pg_pid"; then
            (cd / && exec "${as_owner[@]}" "$pg_bin/postgres" -D "$data" -k "$socket" \
                -c listen_addresses= -c fsync=on -c synchronous_commit=on -c shared_buffers=64MB) \
                >>"$directory/postgres.log" 2>&1 &
            pg_pid=$!
        fi
        sleep 0.1
        if "$pg_bin/pg_isready" -q -h "$socket" -U postgres; then
            return
        fi
    done
    fail "PostgreSQL did not start within 30 s"
}

create_postgres() {
    if [ "$(id -u)" = 0 ]; then
        id postgres >/dev/null 2>&1 || fail "PostgreSQL does not run as root; there is no user postgres"
        as_owner=(setpriv --reuid=postgres --regid=postgres --init-groups)
        chmod 0711 "$directory"
        install -d -m 0700 -o postgres -g postgres "$socket"
    else
        as_owner=(env)
        mkdir -m 0700 "$socket"
    fi
    (cd / && exec "${as_owner[@]}" "$pg_bin/initdb" -D "$data" -U postgres -E UTF8 \
        --locale=C.UTF-8 --auth=trust) >>"$directory/postgres.log" 2>&1 ||
        fail "initdb"
    start_postgres
    sql postgres "CREATE DATABASE sagad"
    sql postgres "CREATE DATABASE bank"
    "$pg_bin/psql" -X -q -h "$socket" -U postgres -d bank -v ON_ERROR_STOP=1 \
        -f "$root/workers/demo/bank.sql" >>"$directory/postgres.log" 2>&1 || fail "bank.sql"
    sql postgres CHECKPOINT # so that recovery has only the settlements' work to look at
}

start_sagad() {
    : >"$directory/sagad.out"
    "$build/orchestrator/app/sagad" serve --listen "127.0.0.1:$sagad_port" \
        --database "host=$socket user=postgres dbname=sagad connect_timeout=5" \
        >"$directory/sagad.out" 2>>"$directory/sagad.log" &
    sagad_pid=$!
    wait_for_line "$sagad_pid" "$directory/sagad.out" "serving on" sagad
    sagad=127.0.0.1:$sagad_port
}

start_risk() {
    "$build/workers/demo/risk_service" --listen 127.0.0.1:0 --log "$directory/risk.effects" \
        >"$directory/risk.out" 2>>"$directory/risk.log" &
    risk_pid=$!
    wait_for_line "$risk_pid" "$directory/risk.out" "serving on" "the risk service"
    risk=$(sed -n 's/.*serving on //p' "$directory/risk.out")
}

start_worker() { # name
    "$build/workers/demo/settlement_worker" --id "$1" --sagad "$sagad" --risk "$risk" \
        --bank "host=$socket user=postgres dbname=bank connect_timeout=5" \
        >"$directory/$1.out" 2>>"$directory/$1.log" &
    worker_pids[$1]=$!
    wait_for_line "${worker_pids[$1]}" "$directory/$1.out" "serving as" "$1"
}

ctl() {
    "$build/orchestrator/ctl/sagactl" --address "$sagad" "$@"
}

driver() { # subcommand, more arguments
    local command=$1
    shift
    "$build/workers/demo/demo_driver" "$command" --count "$count" "$@"
}

audit() { # books or verdict
    driver "$1" --sagad "$sagad" --bank "host=$socket user=postgres dbname=bank" \
        --risk-log "$directory/risk.effects"
}

first() { # word of `demo_driver ids`: the first settlement of that kind
    driver ids | awk -v kind="$1" '$1 == kind && !seen { print $2; seen = 1 }'
}

# --- the story ------------------------------------------------------------------------------------

wait_until() { # seconds after the first start
    while [ $((SECONDS - began)) -lt "$1" ] && is_running "$driver_pid"; do
        sleep 0.1
    done
}

live() { # condition: how many leases are held now
    sql sagad "SELECT count(*) FROM sagad.journal WHERE kind = 'LEASE' AND outcome IS NULL AND $1"
}

wait_for_live() { # at least, condition: until there is something to lose; 5 s at most
    local i held=0
    for ((i = 0; i < 50; i++)); do
        held=$(live "$2")
        [ "$held" -lt "$1" ] || break
        sleep 0.05
    done
    echo "$held"
}

kill_sagad() {
    local held
    wait_until $((start_seconds / 5))
    held=$(wait_for_live 3 true)
    say "kill -9 sagad, while workers hold $held steps"
    kill_hard "$sagad_pid"
    sleep 1
    start_sagad
    say "sagad is back"
}

kill_worker() {
    local held
    wait_until $((start_seconds / 2))
    held=$(wait_for_live 2 "worker LIKE 'worker-1%' AND step = 'notify_risk'")
    say "kill -9 worker-1, in the middle of $held calls to risk"
    kill_hard "${worker_pids[worker-1]}"
    unset 'worker_pids[worker-1]'
    sleep 1
    start_worker worker-3
    say "worker-3 takes its place"
}

kill_postgres() {
    local held
    wait_until $((start_seconds * 4 / 5))
    held=$(wait_for_live 3 true)
    say "kill -9 PostgreSQL (sagad's and the bank's), while workers hold $held steps"
    kill_hard "$pg_pid"
    sleep 1
    start_postgres
    say "PostgreSQL is back"
}

play() {
    local status=0
    say "$count settlements over 50 accounts, started within $start_seconds s"
    driver run --sagad "$sagad" --start-seconds "$start_seconds" \
        --limit-seconds "$limit_seconds" &
    driver_pid=$!
    began=$SECONDS
    kill_sagad
    kill_worker
    kill_postgres
    wait "$driver_pid" || status=$?
    driver_pid=''
    if [ "$status" != 0 ]; then
        say "the settlements did not come to rest; the books as they are:"
        audit books || true # the verdict says what is wrong
        audit verdict || true
        fail "the settlements did not come to rest"
    fi
}

# What a person does about a settlement whose risk call has an unknown outcome: risk says on the
# phone what happened, and the settlement is turned back. Its money returns, risk forgets it.
turn_one_back() {
    local id=$1 end=0
    say "parked settlements wait for a person; one of them, $id, is turned back:"
    echo "    sagactl cancel $id"
    ctl cancel "$id" --reason "risk was asked, the customer wants the money back" >/dev/null ||
        fail "cancel $id"
    ctl wait "$id" --timeout 30 >"$directory/wait.out" 2>&1 || end=$?
    sed 's/^/    /' "$directory/wait.out"
    [ "$end" = 3 ] || fail "$id is not COMPENSATED within 30 s (sagactl wait: exit code $end)"
}

show() {
    local id
    say "the books:"
    audit books || fail "the books cannot be read"
    say "the parked ones (risk's reply was lost, or its caller killed in mid-call):"
    ctl list --definition settlement --state PARKED --limit 20 || fail "list"
    id=$(first stuck)
    say "$id is stuck at the risk step on purpose:"
    echo "    sagactl where $id"
    ctl where "$id" || fail "where $id"
}

"$root/deploy/setup.sh"
pg_bin=$(find_postgres)
say "building"
launcher=()
if command -v ccache >/dev/null; then
    launcher=(-DCMAKE_C_COMPILER_LAUNCHER=ccache)
fi
mkdir -p "$root/build"
(cd "$root" && cmake --preset release "${launcher[@]}" >"$root/build/configure-release.log" 2>&1) || {
    cat "$root/build/configure-release.log" >&2
    exit 1
}
cmake --build "$build" --target sagad sagactl risk_service settlement_worker demo_driver

directory=$(mktemp -d /tmp/sagad-demo.XXXXXX)
socket=$directory/pg
data=$socket/data
say "starting PostgreSQL, sagad, the risk service and two workers"
create_postgres
sagad_port=$(find_port)
start_sagad
start_risk
ctl definition apply "$root/workers/demo/settlement.json" >/dev/null || fail "definition apply"
start_worker worker-1
start_worker worker-2
play
turn_one_back "$(first lost)"
show
audit verdict
