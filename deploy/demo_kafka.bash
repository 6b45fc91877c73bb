# deploy/demo.sh --kafka, sourced by it: the settlements come from a topic, which sagad takes over from
# a consumer that is killed in mid-step.
# shellcheck shell=bash disable=SC2154 # what demo.sh sets

topic=payments.settlements
old_group=settlers
partitions=6
handed_over=$((count > 80 ? count / 8 : 10)) # so many records the old consumer has in its hands
part=$(((count - handed_over + 2) / 3))      # and so many come in each of three parts (or less)

cannot_kafka() { # why
    say "SKIPPED: $1" >&2
    exit 77
}

get_kafka() { # before anything is started
    "$root/deploy/setup.sh" --kafka || cannot_kafka "a Kafka broker needs Java and Maven (see above)"
    local status=0
    "$root/tests/kafka/broker.sh" fetch >/dev/null || status=$?
    [ "$status" != 77 ] || cannot_kafka "there is no Kafka broker here (see above)"
    [ "$status" = 0 ] || fail "tests/kafka/broker.sh fetch"
}

broker() { # verb, more arguments
    local line
    line=$("$root/tests/kafka/broker.sh" "$1" "$directory/kafka" "${@:2}" 2>>"$directory/broker.log") ||
        fail "tests/kafka/broker.sh $1"
    [ -n "$line" ] || return 0 # it was stopped
    broker_pid=${line#* pid=}
    line=${line#bootstrap=}
    brokers=${line%% *}
}

start_kafka() {
    broker start 0
    cat >"$directory/sagad.conf" <<RULE
kafka-brokers = $brokers

[kafka settlements]
topic = $topic
definition = settlement
start = group
value = protobuf
batch = 10
RULE
    sagad_options=(--config "$directory/sagad.conf")
}

feed() { # file, more arguments
    "$build/tests/kafka/feed" --bootstrap "$brokers" --topic "$topic" --lines "$1" --hex "${@:2}" \
        >>"$directory/feed.log" 2>&1
}

# The first records are there before sagad has the topic.
make_records() {
    driver settlement records >"$directory/records"
    head -n "$handed_over" "$directory/records" >"$directory/part-0"
    tail -n "+$((handed_over + 1))" "$directory/records" |
        split -l "$part" -d -a 1 --numeric-suffixes=1 - "$directory/part-"
}

# --- the old consumer -----------------------------------------------------------------------------

calls() { # so many settlements were on their way to risk
    grep -c 'calls risk$' "$directory/consumer.out" || true
}

run_old_consumer() {
    local i end
    "$build/workers/demo/kafka_consumer" --brokers "$brokers" --topic "$topic" --group "$old_group" \
        --batch "$handed_over" --bank "host=$socket user=postgres dbname=bank" --risk "$risk" \
        >"$directory/consumer.out" 2>"$directory/consumer.log" &
    consumer_pid=$!
    wait_for_line "$consumer_pid" "$directory/consumer.out" 'has ' 'the old consumer'
    end=$((SECONDS + 60))
    while [ "$(calls)" -lt $((handed_over / 2)) ]; do
        is_running "$consumer_pid" || fail "the old consumer has ended"
        [ $SECONDS -lt $end ] || fail "the old consumer did not come to its middle within 60 s"
        sleep 0.01
    done
    kill_hard "$consumer_pid"
    consumer_pid=''
    ! grep -q 'is committed$' "$directory/consumer.out" || fail "the old consumer had ended its batch"
    say "kill -9 the old consumer, in the middle of a batch of $handed_over; its last words:"
    tail -n 3 "$directory/consumer.out" | sed 's/^/    /'
}

# --- taking over ----------------------------------------------------------------------------------

show_ctl() { # arguments of sagactl: says and runs it
    echo "    sagactl $*"
    ctl "$@" 2>&1 | sed 's/^/    /'
    return "${PIPESTATUS[0]}"
}

take_over() {
    local end=$((SECONDS + 60)) command=(kafka takeover settlements --from-group "$old_group"
        --reason "the settlements move to sagad")
    show_ctl "${command[@]}" >"$directory/refused.out" &&
        fail "it takes over from a group that has a member"
    grep -q GROUP_HAS_MEMBERS "$directory/refused.out" || {
        cat "$directory/refused.out"
        fail "kafka takeover"
    }
    say "the group does not know yet that its member is dead, so nothing is taken over:"
    cat "$directory/refused.out"
    say "meanwhile, what would become of the records:"
    show_ctl kafka check settlements --last 100000 || fail "kafka check"
    until show_ctl "${command[@]}" >"$directory/takeover.out"; do
        grep -q GROUP_HAS_MEMBERS "$directory/takeover.out" && [ $SECONDS -lt $end ] || {
            cat "$directory/takeover.out"
            fail "kafka takeover"
        }
        sleep 0.5
    done
    say "the group is empty:"
    cat "$directory/takeover.out"
}

# --- while everything dies ------------------------------------------------------------------------

moving() {
    sql sagad "SELECT count(*) FROM sagad.saga WHERE state IN ('RUNNING', 'COMPENSATING')"
}

sagas() {
    sql sagad "SELECT count(*) FROM sagad.saga"
}

wait_for_sagas() { # at least
    local end=$((SECONDS + limit_seconds))
    until [ "$(sagas)" -ge "$1" ]; do
        [ $SECONDS -lt $end ] || fail "$(sagas) sagas of $1 after $limit_seconds s"
        sleep 0.1
    done
}

wait_for_rest() { # one settlement is left at its step on purpose
    local end=$((SECONDS + limit_seconds))
    wait_for_sagas "$count"
    until [ "$(moving)" -le 1 ]; do
        [ $SECONDS -lt $end ] || fail "$(moving) settlements still move after $limit_seconds s"
        sleep 0.2
    done
}

kill_reader() {
    local held
    held=$(wait_for_live 3 true)
    say "kill -9 sagad, with $(sagas) sagas of $count, while workers hold $held steps"
    kill_hard "$sagad_pid"
    feed "$directory/part-2" || fail "feed"
    start_sagad
    say "sagad is back; more records came meanwhile"
}

kill_broker() {
    local feeder
    wait_for_sagas $((handed_over + part + 1)) # it reads the second part
    say "kill -9 the broker, with $(sagas) sagas of $count"
    broker kill
    feed "$directory/part-3" &
    feeder=$!
    sleep 2
    broker restart
    wait "$feeder" || fail "feed"
    say "the broker is back, with all records"
}

# --- people ---------------------------------------------------------------------------------------

# The settlements that the old consumer had in its hands wait for a person: whether it has told risk
# about them only risk knows. One whose reply was lost stays as it is, as everywhere in the demo.
ask_risk() {
    local id word happened=0 not=0
    driver settlement ids | awk '$1 == "lost" { print $2 }' >"$directory/lost"
    for id in $(sql sagad "SELECT saga_id FROM sagad.saga WHERE state = 'PARKED' ORDER BY saga_id"); do
        grep -q "^$id"$'\t' "$directory/part-0" && ! grep -qx "$id" "$directory/lost" || continue
        if grep -q "NOTIFIED .* $id\$" "$directory/risk.effects"; then
            word=--happened happened=$((happened + 1))
        else
            word=--did-not-happen not=$((not + 1))
        fi
        if [ $((happened + not)) = 1 ]; then
            say "$id was half done, so sagad did not call risk for it; a person asks risk:"
            echo "    sagactl where $id"
            ctl where "$id" || fail "where $id"
            echo "    sagactl resolve $id --step notify_risk $word --evidence '...'"
        fi
        ctl resolve "$id" --step notify_risk "$word" --evidence "risk's own books were asked" \
            >/dev/null || fail "resolve $id"
    done
    [ $happened -gt 0 ] || fail "the old consumer has told risk nothing"
    say "$((happened + not)) settlements were asked for: risk knew $happened, and is told $not now"
}

# --- and once more from the beginning ---------------------------------------------------------------

cursor() { # expression over the rule's partitions
    sql sagad "SELECT $1 FROM sagad.kafka_cursor WHERE rule = 'settlements'"
}

replay() {
    local before duplicates i end=$((SECONDS + 120)) why="the topic is read again from its beginning"
    before=$(sagas)
    duplicates=$(cursor 'sum(duplicates)')
    audit settlement books >"$directory/books.before" || fail "the books cannot be read"
    say "$why, and the group's offsets are gone:"
    show_ctl kafka stop settlements --reason "$why" || fail "kafka stop"
    until "$build/tests/kafka/feed" --bootstrap "$brokers" --topic "$topic" \
        --forget sagad-settlements >"$directory/forget.out" 2>&1; do
        [ $SECONDS -lt $end ] ||
            fail "the group's offsets cannot be deleted: $(cat "$directory/forget.out")"
        sleep 0.2
    done
    for ((i = 0; i < partitions; i++)); do
        show_ctl kafka resume "$topic/$i" --from 0 --reason "$why" || fail "kafka resume"
    done
    show_ctl kafka start settlements --reason "$why" || fail "kafka start"
    until [ "$(cursor "sum(duplicates) >= $duplicates + $count")" = t ] &&
        [ "$(cursor "min(seen_at) > now() - interval '5 s'")" = t ]; do # kafka status can tell it
        [ $SECONDS -lt $end ] || fail "the replay did not come to its end within 120 s"
        sleep 0.2
    done
    show_ctl kafka status || fail "kafka status"
    [ "$(cursor 'sum(next_offset)')" = "$count" ] || fail "the cursors are not at the topic's end"
    [ "$(sagas)" = "$before" ] || fail "the replay has started $(($(sagas) - before)) sagas"
    [ "$(cursor 'sum(dead_letters + mismatches)')" = 0 ] || fail "not every record was the same again"
    audit settlement books >"$directory/books.after" || fail "the books cannot be read"
    diff "$directory/books.before" "$directory/books.after" || fail "the books have changed"
    say "$count records again: 0 new sagas, the same books"
}

settle_from_kafka() {
    export SAGACTL_ACTOR=${SAGACTL_ACTOR-demo}
    register settlement
    local end=$((SECONDS + 30))
    until show_ctl kafka stop settlements --reason "not before the old consumer is gone" \
        >"$directory/stop.out"; do # a moment after its start sagad has told of its rules
        [ $SECONDS -lt $end ] || fail "kafka stop: $(cat "$directory/stop.out")"
        sleep 0.2
    done
    cat "$directory/stop.out"
    make_records
    feed "$directory/part-0" --partitions "$partitions" || fail "feed"
    say "$handed_over settlements are in the topic; the old consumer, with the guard, works on them"
    run_old_consumer
    take_over
    start_worker worker-1
    start_worker worker-2
    feed "$directory/part-1" || fail "feed"
    say "$count settlements over 50 accounts come in, those of the old consumer first"
    kill_reader
    kill_broker
    wait_for_rest
    ask_risk
    wait_for_rest
    turn_one_back "$(first settlement lost)"
    replay
    show_settlements
    audit settlement verdict
}
