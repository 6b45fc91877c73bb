# deploy/demo.sh --workers mixed, sourced by it: each step is done by a worker in another language, what is
# taken back in others than what was done. Every one of these workers is killed with -9 once.
# shellcheck shell=bash disable=SC2034,SC2154 # what demo.sh reads and sets

# Who does what; the second part of a name is its language. Two of those who wait for a third party.
settlers=(debit-go-1 ledger-java-1 risk-python-1 risk-python-2 refund-node-1 reversal-c-1)
settler_faults=(kill_sagad kill_risk kill_debit kill_other_risk kill_ledger kill_reversal kill_postgres
    kill_refund)
shippers=(orders-java-1 shipping-c-1 shipping-c-2)
shipper_faults=(kill_sagad freeze_redis kill_shipping kill_orders kill_other_shipping kill_mariadb)
logs=$root/build/languages

worker_command() { # name
    local java=$root/workers/java/example
    case $1 in
        debit-go-*) command=("$build/workers/go/settlement" "${settling[@]}" --only DebitAccount) ;;
        ledger-java-*) command=("$java/settlement_worker" "${settling[@]}" --only WriteLedger) ;;
        risk-python-*)
            command=("$root/workers/python/examples/settlement_worker" "${settling[@]}"
                --only NotifyRisk)
            ;;
        refund-node-*)
            command=("$root/workers/node/examples/settlement/settlement_worker" "${settling[@]}"
                --only RefundAccount,WithdrawNotice)
            ;;
        reversal-c-*)
            command=("$build/workers/demo/settlement_worker" "${settling[@]}" --only ReverseLedger)
            ;;
        orders-java-*) command=("$java/order_worker" --shop "$shop/sock") ;;
        shipping-c-*)
            command=("$build/workers/demo/fulfilment_worker" "${fulfilling[@]}"
                --only CreateWaybill,FindWaybill,CancelWaybill,PickGoods,PutBack,HandOver,WarmCache)
            ;;
    esac
}

start_workers() { # names: until each is connected, and has told its SDK
    local name end=$((SECONDS + 60))
    for name in "$@"; do
        start_worker "$name"
    done
    for name in "$@"; do
        until ctl workers >"$directory/workers.out" 2>&1 && grep -qF "$name" "$directory/workers.out"; do
            [ $SECONDS -lt $end ] || fail "$name is not connected: $(cat "$directory/workers.out")"
            sleep 0.2
        done
    done
    say "who is connected:"
    echo "    sagactl workers"
    sed 's/^/    /' "$directory/workers.out"
}

# --- building, each as its language does ------------------------------------------------------------

cannot_mix() { # why
    say "SKIPPED: $1" >&2
    exit 77
}

needs() { # language, command, where it comes from
    command -v "$2" >/dev/null || cannot_mix "$1 is missing: there is no $2 here ($3)"
}

compile() { # language, folder, command, which may exit with 77 and say why
    local status=0
    (cd "$root/workers/$2" && "${@:3}") >"$logs/$1.log" 2>&1 || status=$?
    [ $status != 77 ] || cannot_mix "$1 is missing: $(tail -n 1 "$logs/$1.log")"
    [ $status = 0 ] || {
        cat "$logs/$1.log" >&2
        fail "the worker in $1 cannot be built"
    }
}

# Maven fetches while it builds: what is missing is known only afterwards.
maven() { # folder, goals
    mvn -B -q -o -f "$root/workers/java/$1/pom.xml" "${@:2}" >"$logs/Java.log" 2>&1 ||
        mvn -B -q -f "$root/workers/java/$1/pom.xml" "${@:2}" >"$logs/Java.log" 2>&1 || {
        cat "$logs/Java.log" >&2
        ! grep -qE 'Could not transfer|Unknown host|Temporary failure' "$logs/Java.log" ||
            cannot_mix "what Java needs cannot be fetched (see above)"
        fail "the worker in Java cannot be built"
    }
}

get_languages() { # before anything is started
    needs Go go https://go.dev/dl
    needs Node npm https://nodejs.org
    "$root/deploy/setup.sh" --workers || cannot_mix "Java and Python are missing (see above)"
    say "building the workers in Go, Java, Node and Python"
    mkdir -p "$logs" "$build/workers/go"
    (cd "$root/workers/go/examples" && go mod download) >"$logs/Go.log" 2>&1 ||
        cannot_mix "what Go needs cannot be fetched: $(tail -n 1 "$logs/Go.log")"
    compile Go go/examples go build -buildvcs=false -o "$build/workers/go/settlement" ./settlement
    maven . install -DskipTests
    maven example compile dependency:build-classpath -Dmdep.outputFile=target/classpath
    compile Node node/examples/settlement ./build
    compile Python python ./generate.sh "${SAGAD_PYTHON:-/usr/bin/python3}"
}

# --- faults -----------------------------------------------------------------------------------------

# Stands still until it holds something, and dies with that: a step of a bank is too short to be met in
# its middle by chance.
kill_holding() { # when, name, who takes its place
    local pid=${worker_pids[$2]} held
    wait_until "$1"
    kill -STOP "$pid"
    held=$(wait_for_live 1 "worker LIKE '$2%'")
    say "kill -9 $2, while it holds $held lease(s)"
    kill_hard "$pid"
    unset "worker_pids[$2]"
    sleep 1
    start_worker "$3"
    say "$3 takes its place"
}

kill_risk() {
    kill_worker $((start_seconds * 6 / 20)) risk-python-1 risk-python-3 notify_risk risk
}

kill_other_risk() {
    kill_worker $((start_seconds * 10 / 20)) risk-python-2 risk-python-4 notify_risk risk
}

kill_debit() {
    kill_holding $((start_seconds * 9 / 20)) debit-go-1 debit-go-2
}

kill_ledger() {
    kill_holding $((start_seconds * 11 / 20)) ledger-java-1 ledger-java-2
}

kill_reversal() {
    kill_holding $((start_seconds * 13 / 20)) reversal-c-1 reversal-c-2
}

kill_refund() {
    kill_holding $((start_seconds * 17 / 20)) refund-node-1 refund-node-2
}

kill_shipping() {
    kill_worker $((start_seconds * 3 / 5)) shipping-c-1 shipping-c-3 create_waybill logistics
}

kill_other_shipping() {
    kill_worker $((start_seconds * 4 / 5)) shipping-c-2 shipping-c-4 create_waybill logistics
}

kill_orders() {
    kill_holding $((start_seconds * 7 / 10)) orders-java-1 orders-java-2
}

# --- who did it -------------------------------------------------------------------------------------

show_languages() { # story, names of its workers
    local share=$directory/languages.out name language
    sql sagad "
        SELECT format('    %-7s %-15s %-13s %5s done of %s', split_part(j.worker, '-', 2), j.step,
                      lower(j.operation), count(*) FILTER (WHERE j.outcome IN ('DONE', 'ALREADY_DONE')),
                      count(*))
          FROM sagad.journal j JOIN sagad.saga s USING (shard, saga_uid)
         WHERE j.kind = 'LEASE' AND s.definition LIKE '$1%'
         GROUP BY split_part(j.worker, '-', 2), j.step, j.operation ORDER BY 1" >"$share"
    say "which language did how many tasks, by sagad's journal:"
    cat "$share"
    for name in "${@:2}"; do
        language=${name#*-}
        language=${language%-*}
        grep -qE "^ +$language .* [1-9][0-9]* done of " "$share" || fail "nothing was done in $language"
    done
}
