# deploy/demo.sh --outage, sourced by it: the night in which the risk service dies under the settlements,
# and the morning after it.
# shellcheck shell=bash disable=SC2154 # what demo.sh sets

risk_handler=bank.v1.Settlement.NotifyRisk
trial_seconds=2
release_rate=$((count / 10)) # a second: what has piled up is through after about ten

quoted() { # words: as one types them into a shell
    local word
    for word in "$@"; do
        [[ $word =~ ^[A-Za-z0-9_./:=@-]+$ ]] || word="'$word'"
        printf ' %s' "$word"
    done
}

show() { # arguments of sagactl: says and runs it
    echo "    sagactl$(quoted "$@")"
    ctl "$@" >"$directory/show.out" 2>&1 || {
        cat "$directory/show.out" >&2
        fail "sagactl $1"
    }
    sed 's/^/    /' "$directory/show.out"
}

says() { # pattern: what show() has shown last says it
    grep -Eq -- "$1" "$directory/show.out" || fail "not told: $1"
}

held_by_breaker() {
    ctl handler list --held >"$directory/held.out" 2>&1 && grep -q "$risk_handler" "$directory/held.out"
}

wait_for() { # seconds, what, command
    local end=$((SECONDS + $1)) what=$2
    shift 2
    until "$@"; do
        [ $SECONDS -lt $end ] || fail "$what"
        sleep 0.1
    done
}

leases_of() { # step: how often it was handed to a worker
    sql sagad "SELECT count(*) FROM sagad.journal WHERE kind = 'LEASE' AND step = '$1'"
}

# The youngest that was debited and written, and never handed to risk: a trial takes the oldest, which would
# wait for its next try, and not for the handler.
last_waiting() {
    sql sagad "SELECT s.saga_id FROM sagad.saga s WHERE s.state = 'RUNNING' AND EXISTS (SELECT FROM
        sagad.journal j WHERE j.shard = s.shard AND j.saga_uid = s.saga_uid AND j.step = 'write_ledger'
        AND j.outcome = 'DONE') AND NOT EXISTS (SELECT FROM sagad.journal j WHERE j.shard = s.shard
        AND j.saga_uid = s.saga_uid AND j.step = 'notify_risk') ORDER BY s.started_at DESC LIMIT 1"
}

night() {
    local id debited called held_at
    wait_until $((start_seconds / 5))
    say "kill -9 the risk service, in the middle of $(wait_for_live 2 "step = 'notify_risk'") calls"
    kill_hard "$risk_pid"
    risk_pid=''
    wait_for 30 "no breaker held $risk_handler within 30 s" held_by_breaker
    say "after ten failures in a row its breaker holds the handler; who waits loses no try and no time:"
    show handler list --held
    held_at=$SECONDS
    debited=$(leases_of debit_account)
    called=$(leases_of notify_risk)
    wait_until $((start_seconds + 1))
    debited=$(($(leases_of debit_account) - debited))
    called=$(($(leases_of notify_risk) - called))
    [ "$debited" -gt 0 ] || fail "no account was debited while risk was held"
    # One trial every $trial_seconds, and one at each end of the time.
    [ "$called" -le $(((SECONDS - held_at) / trial_seconds + 2)) ] ||
        fail "risk was tried $called times in $((SECONDS - held_at)) s, although it was held"
    id=$(last_waiting)
    [ -n "$id" ] || fail "no settlement waits for risk"
    say "meanwhile $debited accounts were debited, and risk was tried $called times; $id waits:"
    show where "$id"
    says "handler $risk_handler held since .* by its breaker .*, [0-9,]+ waiting"
    show status >"$directory/status.out"
    sed '/^ *reports_accepted/,$d' "$directory/status.out"
    say "a person takes over from the breaker, and risk comes back:"
    show handler hold "$risk_handler" --reason "risk moves to another disk, says its night shift"
    risk_listen=$risk
    start_risk
    show handler release "$risk_handler" --rate "$release_rate/s" --reason "risk is back; gently"
    says "waiting, about .* at $release_rate/s"
    say "oldest first; $id is told about when all that waits is through:"
    show where "$id"
    says "released gradually, .* waiting, about .* at $release_rate/s"
    show handler list
}

# What risk's own book says of each attempt whose outcome is unknown, as a third party's file does.
make_verdicts() { # the export, risk's book: the file of verdicts
    awk -F, -v book="$2" '
        BEGIN {
            while ((getline line < book) > 0) {
                split(line, word, " ")
                if (word[2] == "NOTIFIED")
                    at[word[3]] = word[1]
            }
            print "verdict,saga_id,fence,evidence"
        }
        NR == 1 {
            for (i = 1; i <= NF; i++)
                column[$i] = i
            next
        }
        $column["outcome"] == "MAYBE" {
            key = $column["idempotency_key"]
            printf "%s,%s,%s,%s\n", key in at ? "DID_HAPPEN" : "DID_NOT_HAPPEN", $column["saga_id"],
                $column["fence"], key in at ? "in the book of risk at " at[key] : "not in the book of risk"
        }' "$1"
}

parked() {
    sql sagad "SELECT count(*) FROM sagad.saga WHERE state = 'PARKED'"
}

all_ended() { # but for those that are left at the risk step on purpose
    local stuck
    stuck=$(driver settlement ids | grep -c '^stuck ' || true)
    [ "$(sql sagad "SELECT count(*) FROM sagad.saga
        WHERE state NOT IN ('SUCCEEDED', 'COMPENSATED')")" -le "$stuck" ]
}

morning() {
    local from=$1 to export=$directory/risk.csv verdicts=$directory/verdicts.csv rows unknown doubted
    to=$(date -u -d '+1 minute' +%Y-%m-%dT%H:%M:%SZ)
    say "the morning: what may have been notified twice? (an AT_MOST_ONCE step is never repeated by itself)"
    show effects --definition settlement --step notify_risk --since "$from" 'possible > 1'
    says "no effect matches"
    say "and what may have been notified, and nobody knows:"
    show effects --definition settlement --step notify_risk --since "$from" --limit 5 'possible = 1 AND sure = 0'
    say "all that was sent to risk, to compare with its books:"
    show export --definition settlement --step notify_risk --from "$from" --to "$to" --file "$export"
    head -n 3 "$export" | sed 's/^/    /'
    sed 's/^/    /' "$export.manifest.json"
    rows=$(($(wc -l <"$export") - 1))
    grep -Eq "\"(rows|count|lines)\": *\"?$rows\b" "$export.manifest.json" ||
        fail "the manifest does not count $rows rows"
    grep -q "$(sha256sum "$export" | cut -d' ' -f1)" "$export.manifest.json" ||
        fail "the manifest has another SHA-256"
    make_verdicts "$export" "$directory/risk.effects" >"$verdicts"
    unknown=$(($(wc -l <"$verdicts") - 1))
    doubted=$(parked)
    [ "$unknown" -gt 0 ] || fail "no outcome was unknown in that night"
    [ "$unknown" = "$doubted" ] || fail "$doubted are parked, the export has $unknown unknown outcomes"
    say "risk's file says what became of those $unknown:"
    head -n 4 "$verdicts" | sed 's/^/    /'
    show resolve --file "$verdicts" --definition settlement --step notify_risk --dry-run
    [ "$(parked)" = "$doubted" ] || fail "a dry run has settled something"
    show resolve --file "$verdicts" --definition settlement --step notify_risk
    wait_for 60 "there are settlements that have not ended" all_ended
    say "who did what in that night:"
    show audit --since "$from" --limit 8
    ctl audit --since "$from" --verb resolve --all >"$directory/audit.out" 2>&1 || fail "audit"
    [ "$(grep -c 'verdicts\.csv:' "$directory/audit.out")" = "$unknown" ] ||
        fail "the audit does not have each of the $unknown verdicts"
}

outage() {
    local from
    export SAGACTL_ACTOR=${SAGACTL_ACTOR-night-shift}
    say "$count settlements over 50 accounts, started within $start_seconds s"
    register settlement
    show handler breaker "$risk_handler" 10 --trial "${trial_seconds}s" --reason "risk has been down before"
    start_workers "${settlers[@]}"
    from=$(date -u +%Y-%m-%dT%H:%M:%SZ)
    play settlement night
    morning "$from"
    say "the books:"
    audit settlement books || fail "the books cannot be read"
    sed -n 's/^DID_HAPPEN,\([^,]*\),.*/\1/p' "$directory/verdicts.csv" >"$directory/confirmed"
    audit settlement verdict --confirmed "$directory/confirmed"
}
