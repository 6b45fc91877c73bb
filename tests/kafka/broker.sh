#!/usr/bin/env bash
# A real Apache Kafka for tests and the demo: one node (KRaft), loopback only, a small heap, no topic
# that nobody created.
#   broker.sh fetch                         gets it, once for all work trees; prints its folder
#   broker.sh start DIR PORT [KEY=VALUE...] gets and starts one with its data in DIR (made if needed);
#                                           PORT 0: a free one. KEY=VALUE: settings of the broker.
#                                           Prints "bootstrap=127.0.0.1:PORT pid=PID" when it serves
#   broker.sh stop DIR                      SIGTERM, and waits for its end
#   broker.sh kill DIR                      kill -9
#   broker.sh restart DIR                   starts it again, same port, same data, once it is down
#   broker.sh run DIR PORT PORT [KEY=VALUE...]  in the foreground, as this process (its child pid is
#                                           the broker's); the second port is the controller's
# SAGAD_KAFKA_HOME: where it is kept (default: ~/.cache/sagad/kafka-VERSION, or in XDG_CACHE_HOME).
# fetch needs Maven and its repository, all need Java 17. Exit codes: 77 when a broker cannot be had
# here, with one line that says why; 1 when one could not be started; 2 for a wrong call.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
version=$(sed -n '/<artifactId>kafka_2.13</{n;s/.*<version>\(.*\)<.*/\1/p}' "$here/pom.xml")
fetch_s=480 start_s=120 stop_s=60
java=${JAVA_HOME:+$JAVA_HOME/bin/}java
# Quick to start, small, and nothing outside of DIR.
java_options=(-Xms64m -Xmx384m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData
    -Xshare:auto -XX:+ExitOnOutOfMemoryError)

usage() {
    sed -n '4,16s/^# \{0,1\}//p' "$0" >&2
    exit 2
}

fail() { # what
    echo "$0: $1" >&2
    exit 1
}

cannot() { # why
    echo "SKIPPED: no Kafka broker here: $1" >&2
    exit 77
}

home_find() { # sets $home
    home=${SAGAD_KAFKA_HOME-}
    [ -n "$home" ] && return
    local cache=${XDG_CACHE_HOME:-${HOME:+$HOME/.cache}}
    [ -n "$cache" ] || cannot "neither SAGAD_KAFKA_HOME nor HOME says where to keep it"
    home=$cache/sagad/kafka-$version
}

java_check() {
    local major
    command -v "$java" >/dev/null || cannot "no Java ($java): deploy/setup.sh --kafka installs it"
    major=$("$java" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p')
    [ "${major:-0}" -ge 17 ] || cannot "$java is version ${major:-unknown}, Kafka needs 17 or newer"
}

java_run() { # class, argument...
    "$java" "${java_options[@]}" -cp "$home/lib/*" "$@"
}

# A file of settings: ports, folder, further settings.
settings_write() { # file, port, controller's port, data folder, KEY=VALUE...
    local file=$1 port=$2 controller=$3 data=$4
    shift 4
    cat >"$file" <<EOF
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:$controller
listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$controller
advertised.listeners=PLAINTEXT://127.0.0.1:$port
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs=$data
auto.create.topics.enable=false
num.network.threads=2
num.io.threads=4
num.recovery.threads.per.data.dir=2
log.cleaner.dedupe.buffer.size=4194304
log.cleaner.io.buffer.size=262144
message.max.bytes=16777216
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
# After kill -9 the controller waits for so long before it takes the broker back.
broker.heartbeat.interval.ms=500
broker.session.timeout.ms=6000
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
EOF
    for setting in "$@"; do
        [[ $setting == *=* ]] || usage
        echo "$setting" >>"$file"
    done
}

# The jars, and a formatted empty data folder: each start copies that, which is quicker than to
# format anew. The folder gets its name last, so that it is whole or not there.
home_make() {
    command -v mvn >/dev/null || cannot "no Maven (mvn) to fetch it with: deploy/setup.sh --kafka installs it"
    made=$(mktemp -d "$home.XXXXXX")
    trap 'rm -rf "$made"' EXIT
    echo "kafka: fetching $version into $home" >&2
    timeout "$fetch_s" mvn -B -q -f "$here/pom.xml" -DincludeScope=runtime \
        -DoutputDirectory="$made/lib" \
        org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies \
        >"$made/maven.log" 2>&1 ||
        cannot "Maven could not fetch version $version within $fetch_s s: $(
            grep -m 1 ERROR "$made/maven.log" || echo "no answer")"
    settings_write "$made/format.properties" 1 2 "$made/formatted"
    "$java" "${java_options[@]}" -cp "$made/lib/*" kafka.tools.StorageTool format \
        -t "$(head -c 16 /dev/urandom | base64 | tr '+/' 'AB' | tr -d '=')" \
        -c "$made/format.properties" >"$made/format.log" 2>&1 ||
        cannot "it does not run here: $(tail -n 1 "$made/format.log")"
    chmod -R a+rX "$made"
    mv -T "$made" "$home"
    trap - EXIT
}

home_get() { # sets $home, fetches what is not there
    java_check
    home_find
    [ -d "$home" ] && return
    mkdir -p "$(dirname "$home")" || cannot "$(dirname "$home") cannot be made"
    exec 8>"$home.lock"
    flock 8
    [ -d "$home" ] || home_make
    exec 8>&-
}

broker_exec() { # folder: its settings are there
    cd "$1"
    rm -rf tmp
    mkdir tmp # for the native libraries that it unpacks
    exec "$java" "${java_options[@]}" -Djava.io.tmpdir="$1/tmp" \
        -Dlog4j2.configurationFile="$here/log4j2.properties" \
        -cp "$home/lib/*" kafka.Kafka server.properties
}

folder_prepare() { # folder, port, controller's port, KEY=VALUE...
    local folder=$1
    shift
    settings_write "$folder/server.properties" "$1" "$2" "$folder/data" "${@:3}"
    [ -d "$folder/data" ] || cp -r "$home/formatted" "$folder/data"
}

running() { # folder: sets $pid; another process that got the number meanwhile is none
    pid=$(cat "$1/pid" 2>/dev/null) && grep -qs kafka.Kafka "/proc/$pid/cmdline"
}

find_port() { # below the range that the system gives to clients, so that no client takes it
    local port
    for _ in $(seq 50); do
        port=$((10000 + RANDOM % 10000))
        if ! (: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
            echo "$port"
            return
        fi
    done
    fail "no free port"
}

broker_start() { # folder: in the background; waits until it serves
    local folder=$1 end=$((SECONDS + start_s))
    : >"$folder/log"
    (broker_exec "$folder") </dev/null >>"$folder/log" 2>&1 8>&- 9>&- &
    local child=$!
    echo "$child" >"$folder/pid"
    until grep -q "Kafka Server started" "$folder/log"; do
        if ! kill -0 "$child" 2>/dev/null || [ $SECONDS -ge $end ]; then
            tail -n 20 "$folder/log" >&2
            kill -KILL "$child" 2>/dev/null || true # it has ended by itself
            rm -f "$folder/pid"
            fail "the broker in $folder does not serve; its log: $folder/log"
        fi
        sleep 0.05
    done
    echo "bootstrap=$(sed -n 's,^advertised.listeners=PLAINTEXT://,,p' "$folder/server.properties")" \
        "pid=$(cat "$folder/pid")"
}

broker_end() { # folder, signal
    local end=$((SECONDS + stop_s))
    running "$1" || fail "no broker runs in $1"
    kill "-$2" "$pid"
    while running "$1"; do
        [ $SECONDS -lt $end ] || fail "broker $pid has not ended after $stop_s s"
        sleep 0.05
    done
    rm -f "$1/pid"
}

[ $# -ge 1 ] || usage
verb=$1
shift
case "$verb:$#" in
    fetch:0) ;;
    start:0 | start:1 | run:0 | run:1 | run:2) usage ;;
    start:* | run:*) mkdir -p "$1" && folder=$(cd "$1" && pwd) ;;
    stop:1 | kill:1 | restart:1) folder=$(cd "$1" && pwd) || exit 2 ;;
    *) usage ;;
esac
case "$verb" in
    fetch)
        home_get
        echo "$home"
        ;;
    start)
        home_get
        if running "$folder"; then fail "a broker runs in $folder (pid $pid)"; fi
        port=$2
        [ "$port" != 0 ] || port=$(find_port)
        folder_prepare "$folder" "$port" "$(find_port)" "${@:3}"
        broker_start "$folder"
        ;;
    restart)
        java_check
        home_find
        if running "$folder"; then fail "a broker runs in $folder (pid $pid)"; fi
        broker_start "$folder"
        ;;
    stop) broker_end "$folder" TERM ;;
    kill) broker_end "$folder" KILL ;;
    run)
        java_check
        home_find
        [ -d "$home" ] || cannot "$home is not there: tests/kafka/broker.sh fetch gets it"
        folder_prepare "$folder" "${@:2}"
        broker_exec "$folder"
        ;;
esac
