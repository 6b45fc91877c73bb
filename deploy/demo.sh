#!/usr/bin/env bash
# Plays two stories on a real stack and audits their books:
# - settlements over 50 accounts (PostgreSQL, a risk service), while sagad, a worker and PostgreSQL are
#   killed with -9; ends with "demo: N settled, N compensated, 0 doubled, 0 lost, books balance"
# - fulfilments of orders (MariaDB, a logistics service, Redis), while sagad, a worker and MariaDB are
#   killed with -9 and Redis stands still; ends with "demo: N fulfilled, N cancelled, 0 doubled, 0 lost,
#   shop and logistics agree"; two of an order's steps run at the same time, and what is cancelled is taken
#   back in reverse order: every order's history is asked
# The exit code is 0 only if all of that is true. Everything runs in a throw-away directory and is
# stopped at the end.
#   deploy/demo.sh [--count N]     N settlements and N orders, 20 to 5000, default 500
#   deploy/demo.sh --kafka [--count N]   only settlements, from a real Kafka topic (demo_kafka.bash): taken
#                       over from a consumer that is killed in mid-step, while the broker and sagad are
#                       killed; read once more from offset 0. Exit code 77 where no broker can be had
#   deploy/demo.sh --outage [--count N]   only settlements: the risk service dies in the night
#                       (demo_outage.bash); its handler is held, released with a rate, and in the morning
#                       what nobody knows is settled by a file of verdicts
#   deploy/demo.sh --workers mixed [--count N]   both stories, each step by a worker in another language
#                       (demo_mixed.bash): Go, Java, Python, Node and C. Exit code 77 where one of these
#                       cannot be had
#   SAGAD_PG_BIN        where initdb and postgres are (default: Debian's place, then pg_config)
#   SAGAD_MARIADB_BIN   where mariadbd is (default: Debian's place)
#   SAGAD_DEMO_KEEP     keep the directory with the logs
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$root/build/release
count=500
with_kafka='' with_languages='' with_outage=''
start_seconds=25 # over which the sagas of a story are started
limit_seconds=95 # from the first start until all are at rest
key_seconds=15   # so long logistics remembers a key; fulfilment.proto says the same

usage() {
    echo "usage: $0 [--kafka | --outage | --workers mixed] [--count N]      N: 20 to 5000" >&2
    exit 2
}

while [ $# -gt 0 ]; do
    case "$1" in
        --count)
            [[ ${2-} =~ ^[0-9]{1,5}$ ]] || usage
            count=$((10#$2))
            shift
            ;;
        --kafka) with_kafka=yes ;;
        --outage) with_outage=yes ;;
        --workers)
            [ "${2-}" = mixed ] || usage
            with_languages=yes
            shift
            ;;
        *) usage ;;
    esac
    shift
done
{ [ "$count" -ge 20 ] && [ "$count" -le 5000 ]; } || usage
[[ $with_kafka$with_languages$with_outage =~ ^(yes)?$ ]] || usage

directory='' socket='' data='' sagad='' sagad_port='' risk='' shop='' logistics=''
pg_pid='' sagad_pid='' risk_pid='' driver_pid='' mariadb_pid='' logistics_pid='' redis_pid=''
broker_pid='' brokers='' consumer_pid='' risk_listen=127.0.0.1:0
sagad_options=()
settlers=(worker-1 worker-2) settler_faults=(kill_sagad kill_settler kill_postgres)
shippers=(shipper-1 shipper-2) shipper_faults=(kill_sagad freeze_redis kill_shipper kill_mariadb)
declare -A worker_pids=()
as_owner=() # runs the databases, which refuse to be root
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
    stop TERM "$consumer_pid"
    for name in "${!worker_pids[@]}"; do
        kill -TERM "${worker_pids[$name]}" 2>/dev/null || true # all at once; waited for below
    done
    for name in "${!worker_pids[@]}"; do
        stop TERM "${worker_pids[$name]}"
    done
    stop TERM "$risk_pid"
    stop TERM "$logistics_pid"
    kill -CONT "$redis_pid" 2>/dev/null || true # it may stand still
    stop TERM "$redis_pid"
    stop TERM "$sagad_pid"
    stop TERM "$broker_pid"
    stop TERM "$mariadb_pid"
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

find_owner() {
    if [ "$(id -u)" = 0 ]; then
        id postgres >/dev/null 2>&1 || fail "PostgreSQL does not run as root; there is no user postgres"
        as_owner=(setpriv --reuid=postgres --regid=postgres --init-groups)
        chmod 0711 "$directory"
        install -d -m 0700 -o postgres -g postgres "$socket" "$shop"
    else
        as_owner=(env)
        mkdir -m 0700 "$socket" "$shop"
    fi
}

create_postgres() {
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

shop_sql() { # database ("": none), statement or nothing: then statements come from stdin
    mariadb --no-defaults --socket="$shop/sock" --user=root --batch --skip-column-names \
        ${1:+"$1"} ${2:+-e "$2"}
}

start_mariadb() { # again and again for 30 s, as PostgreSQL
    local i
    for ((i = 0; i < 300; i++)); do
        if ! is_running "$mariadb_pid"; then
            (cd / && exec "${as_owner[@]}" env TMPDIR="$shop" "$mariadbd" --no-defaults \
                --datadir="$shop/data" --socket="$shop/sock" --skip-networking --skip-name-resolve \
                --innodb-flush-log-at-trx-commit=1 --innodb-buffer-pool-size=64M \
                --innodb-log-file-size=16M --innodb-use-native-aio=0 \
                --character-set-server=utf8mb4) >>"$directory/mariadb.log" 2>&1 &
            mariadb_pid=$!
        fi
        sleep 0.1
        if shop_sql '' 'DO 0' 2>/dev/null; then
            return
        fi
    done
    fail "MariaDB did not start within 30 s"
}

create_mariadb() {
    local database
    (cd / && exec "${as_owner[@]}" env TMPDIR="$shop" mariadb-install-db --no-defaults \
        --datadir="$shop/data" --auth-root-authentication-method=normal --skip-test-db \
        --skip-name-resolve --innodb-log-file-size=16M --innodb-use-native-aio=0) \
        >>"$directory/mariadb.log" 2>&1 || fail "mariadb-install-db"
    start_mariadb
    for database in shop warehouse; do # each is a participant of its own, with its own guard
        shop_sql '' "CREATE DATABASE $database"
        shop_sql "$database" <"$root/sql/guard/mysql.sql" || fail "guard/mysql.sql"
        shop_sql "$database" <"$root/workers/demo/$database.sql" || fail "$database.sql"
    done
}

start_redis() {
    redis-server --port 0 --unixsocket "$directory/redis.sock" --save '' --dir "$directory" \
        >"$directory/redis.log" 2>&1 &
    redis_pid=$!
    wait_for_line "$redis_pid" "$directory/redis.log" "eady to accept connections" Redis
}

start_sagad() {
    : >"$directory/sagad.out"
    "$build/orchestrator/app/sagad" serve "${sagad_options[@]}" --listen "127.0.0.1:$sagad_port" \
        --database "host=$socket user=postgres dbname=sagad connect_timeout=5" \
        >"$directory/sagad.out" 2>>"$directory/sagad.log" &
    sagad_pid=$!
    wait_for_line "$sagad_pid" "$directory/sagad.out" "serving on" sagad
    sagad=127.0.0.1:$sagad_port
}

start_risk() {
    "$build/workers/demo/risk_service" --listen "$risk_listen" --log "$directory/risk.effects" \
        >"$directory/risk.out" 2>>"$directory/risk.log" &
    risk_pid=$!
    wait_for_line "$risk_pid" "$directory/risk.out" "serving on" "the risk service"
    risk=$(sed -n 's/.*serving on //p' "$directory/risk.out")
}

start_logistics() {
    "$build/workers/demo/logistics_service" --listen 127.0.0.1:0 \
        --log "$directory/logistics.effects" --remember-seconds "$key_seconds" \
        >"$directory/logistics.out" 2>>"$directory/logistics.log" &
    logistics_pid=$!
    wait_for_line "$logistics_pid" "$directory/logistics.out" "serving on" "the logistics service"
    logistics=$(sed -n 's/.*serving on //p' "$directory/logistics.out")
}

worker_command() { # name: worker-N settles, shipper-N fulfils; `settling`, `fulfilling`: its options
    case $1 in
        worker-*) command=("$build/workers/demo/settlement_worker" "${settling[@]}") ;;
        shipper-*) command=("$build/workers/demo/fulfilment_worker" "${fulfilling[@]}") ;;
    esac
}

start_worker() { # name
    local command=() settling fulfilling
    settling=(--risk "$risk" --bank "host=$socket user=postgres dbname=bank connect_timeout=5")
    fulfilling=(--shop "$shop/sock" --logistics "$logistics" --cache "$directory/redis.sock")
    worker_command "$1"
    "${command[@]}" --id "$1" --sagad "$sagad" >"$directory/$1.out" 2>>"$directory/$1.log" &
    worker_pids[$1]=$!
    wait_for_line "${worker_pids[$1]}" "$directory/$1.out" "serving as" "$1"
}

start_workers() { # names
    local name
    for name in "$@"; do
        start_worker "$name"
    done
}

ctl() {
    "$build/orchestrator/ctl/sagactl" --address "$sagad" "$@"
}

driver() { # story, subcommand, more arguments
    local story=$1 command=$2
    shift 2
    "$build/workers/demo/demo_driver" "$story" "$command" --count "$count" "$@"
}

audit() { # story, books or verdict, more arguments
    local story=$1 kind=$2 sources=(--bank "host=$socket user=postgres dbname=bank" --risk-log "$directory/risk.effects")
    shift 2
    if [ "$story" = fulfilment ]; then
        sources=(--shop "$shop/sock" --logistics-log "$directory/logistics.effects"
            --cache "$directory/redis.sock")
    fi
    driver "$story" "$kind" --sagad "$sagad" "${sources[@]}" "$@"
}

first() { # story, word of `demo_driver STORY ids`: the first key of that kind
    driver "$1" ids | awk -v kind="$2" '$1 == kind && !seen { print $2; seen = 1 }'
}

# --- both stories -----------------------------------------------------------------------------------

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

kill_worker() { # when, name, who takes its place, step, third party
    local held
    wait_until "$1"
    shift
    held=$(wait_for_live 2 "worker LIKE '$1%' AND step = '$3'")
    say "kill -9 $1, in the middle of $held calls to $4"
    kill_hard "${worker_pids[$1]}"
    unset "worker_pids[$1]"
    sleep 1
    start_worker "$2"
    say "$2 takes its place"
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

play() { # story, faults: functions
    local story=$1 status=0 fault
    shift
    # By itself and not by driver(): a function is another shell, and to stop it would not stop this.
    "$build/workers/demo/demo_driver" "$story" run --count "$count" --sagad "$sagad" \
        --start-seconds "$start_seconds" --limit-seconds "$limit_seconds" &
    driver_pid=$!
    began=$SECONDS
    for fault in "$@"; do
        "$fault"
    done
    wait "$driver_pid" || status=$?
    driver_pid=''
    if [ "$status" != 0 ]; then
        say "the sagas did not come to rest; the books as they are:"
        audit "$story" books || true # the verdict says what is wrong
        audit "$story" verdict || true
        fail "the sagas did not come to rest"
    fi
}

wait_for_end() { # definition, key, exit code of sagactl wait, its name
    local end=0
    ctl wait "$1" "$2" --timeout 30 >"$directory/wait.out" 2>&1 || end=$?
    sed 's/^/    /' "$directory/wait.out"
    [ "$end" = "$3" ] || fail "$2 is not $4 within 30 s (sagactl wait: exit code $end)"
}

register() { # file: every saga in it
    echo "    sagactl definition apply workers/demo/$1.proto"
    ctl definition apply "$root/workers/demo/$1.proto" >"$directory/apply.out" 2>&1 || {
        cat "$directory/apply.out" >&2
        fail "definition apply $1.proto"
    }
    sed 's/^/    /' "$directory/apply.out"
}

# --- settlement -----------------------------------------------------------------------------------

kill_settler() {
    kill_worker $((start_seconds / 2)) worker-1 worker-3 notify_risk risk
}

# What a person does about a settlement whose risk call has an unknown outcome: risk says on the
# phone what happened, and the settlement is turned back. Its money returns, risk forgets it.
turn_one_back() {
    local id=$1
    say "parked settlements wait for a person; one of them, $id, is turned back:"
    echo "    sagactl cancel $id"
    ctl cancel "$id" --reason "risk was asked, the customer wants the money back" >/dev/null ||
        fail "cancel $id"
    wait_for_end settlement "$id" 3 COMPENSATED
}

show_settlements() {
    local id
    say "the books:"
    audit settlement books || fail "the books cannot be read"
    say "the parked ones (risk's reply was lost, or its caller killed in mid-call):"
    ctl list --definition settlement --state PARKED --limit 20 || fail "list"
    id=$(first settlement stuck)
    say "$id is stuck at the risk step on purpose:"
    echo "    sagactl where $id"
    ctl where "$id" || fail "where $id"
}

settle() {
    say "$count settlements over 50 accounts, started within $start_seconds s"
    register settlement
    start_workers "${settlers[@]}"
    play settlement "${settler_faults[@]}"
    turn_one_back "$(first settlement lost)"
    show_settlements
    [ -z "$with_languages" ] || show_languages settlement "${settlers[@]}"
    audit settlement verdict
}

# --- fulfilment -----------------------------------------------------------------------------------

freeze_redis() {
    wait_until $((start_seconds * 7 / 20))
    say "Redis stands still for 6 s"
    kill -STOP "$redis_pid"
    sleep 6
    kill -CONT "$redis_pid"
}

kill_shipper() {
    kill_worker $((start_seconds * 3 / 5)) shipper-1 shipper-3 create_waybill logistics
}

kill_mariadb() {
    wait_until $((start_seconds * 4 / 5))
    say "kill -9 MariaDB (the shop's), while workers hold $(wait_for_live 3 true) steps"
    kill_hard "$mariadb_pid"
    sleep 1
    start_mariadb
    say "MariaDB is back"
}

# What a person does about an order whose window is over: asks logistics for our key, and says what
# was found. Here the log of logistics answers; the demo gave it no other ear.
settle_past_window() {
    local id=$1 key line
    say "$id: logistics never answered, and now it may have forgotten our key; nobody repeats that:"
    echo "    sagactl where $id"
    ctl where "$id" || fail "where $id"
    key=$(ctl key fulfilment_express "$id" create_waybill) || fail "key"
    line=$(grep -F " $key $id" "$directory/logistics.effects") || fail "logistics does not know $key"
    say "a person asks logistics for the key $key, which has it, and says so:"
    echo "    sagactl resolve $id --step create_waybill --happened --evidence '...'"
    ctl resolve fulfilment_express "$id" --step create_waybill --happened \
        --evidence "logistics, asked by phone, reads from its books: $line" >/dev/null ||
        fail "resolve $id"
    wait_for_end fulfilment_express "$id" 0 SUCCEEDED
    show_history fulfilment_express "$id" 'RESOLVE .* DONE by ' ||
        fail "$id: no evidence in its history"
}

show_history() { # definition, key, patterns that must each be in one of its lines
    local definition=$1 id=$2 pattern
    shift 2
    ctl history "$definition" "$id" >"$directory/history.out" || fail "history $id"
    for pattern in "$@"; do
        grep -q -- "$pattern" "$directory/history.out" || return 1
    done
    echo "    sagactl history $id"
    cat "$directory/history.out"
}

show_one() { # word of ids, what to say of it, patterns: the first order of that kind which has them
    local kind=$1 text=$2 id
    shift 2
    for id in $(driver fulfilment ids | awk -v kind="$kind" '$1 == kind { print $2 }'); do
        if show_history fulfilment "$id" "$@" >"$directory/shown.out"; then
            say "$id: $text"
            cat "$directory/shown.out"
            return
        fi
    done
    fail "no order of the kind $kind has in its history: $*"
}

show_branches() { # two steps at the same time; and taken back in the reverse of what depends on what
    local out=$directory/branches.out together undone
    driver fulfilment branches --sagad "$sagad" >"$out" || {
        cat "$out"
        fail "the branches of the orders are not as they should be"
    }
    together=$(sed -n 's/^together //p' "$out")
    undone=$(sed -n 's/^undone //p' "$out")
    say "$together: its goods were picked while its waybill was made, and both were handed over:"
    show_history fulfilment "$together" 'LEASE .* hand_over ' || fail "history $together"
    say "$undone: recalled when both were done; taken back what came later first:"
    show_history fulfilment "$undone" 'REJECTED RECALLED' || fail "history $undone"
    grep '^demo: ' "$out"
}

show_orders() {
    local id
    show_one reply-lost "the reply was lost; a probe asked logistics by our key, and it was there:" \
        'PROBE .* DONE'
    show_one late "the first probe came too early; only after settle_time does NOT_DONE count:" \
        'PROBE .* NOT_DONE' 'PROBE .* DONE' 'RESOLVE .* DONE$'
    show_branches
    say "the books:"
    audit fulfilment books >"$directory/books.out" || fail "the books cannot be read"
    cat "$directory/books.out"
    id=$(sed -n 's/.*, the first is //p' "$directory/books.out")
    [ -n "$id" ] || fail "no order was fulfilled while Redis stood still"
    say "$id: the cache is optional; the order is fulfilled without it:"
    ctl history "$id" || fail "history $id"
    say "what waits for a person:"
    ctl parked --definition fulfilment || fail "parked"
}

fulfil() {
    export SAGACTL_ACTOR=${SAGACTL_ACTOR-demo}
    say "starting MariaDB, Redis, the logistics service and the workers"
    create_mariadb
    start_redis
    start_logistics
    register fulfilment
    start_workers "${shippers[@]}"
    say "$count orders, started within $start_seconds s"
    play fulfilment "${shipper_faults[@]}"
    settle_past_window "$(first fulfilment window)"
    show_orders
    [ -z "$with_languages" ] || show_languages fulfilment "${shippers[@]}"
    audit fulfilment verdict
}

"$root/deploy/setup.sh"
if [ -n "$with_kafka" ]; then
    # shellcheck source=deploy/demo_kafka.bash
    . "$root/deploy/demo_kafka.bash"
    get_kafka
elif [ -n "$with_outage" ]; then
    # shellcheck source=deploy/demo_outage.bash
    . "$root/deploy/demo_outage.bash"
elif [ -n "$with_languages" ]; then
    # shellcheck source=deploy/demo_mixed.bash
    . "$root/deploy/demo_mixed.bash"
    get_languages
fi
pg_bin=$(find_postgres)
mariadbd=${SAGAD_MARIADB_BIN:-/usr/sbin}/mariadbd
[ -x "$mariadbd" ] || fail "$mariadbd not found; name its folder in SAGAD_MARIADB_BIN"
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
cmake --build "$build" --target sagad sagactl risk_service logistics_service settlement_worker \
    fulfilment_worker demo_driver ${with_kafka:+kafka_consumer feed}

directory=$(mktemp -d /tmp/sagad-demo.XXXXXX)
socket=$directory/pg
data=$socket/data
shop=$directory/shop
find_owner
say "starting PostgreSQL, ${with_kafka:+Kafka, }sagad and the risk service"
create_postgres
[ -z "$with_kafka" ] || start_kafka
sagad_port=$(find_port)
start_sagad
start_risk
if [ -n "$with_kafka" ]; then
    settle_from_kafka
elif [ -n "$with_outage" ]; then
    outage
else
    settle
    fulfil
fi
