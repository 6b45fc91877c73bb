#!/usr/bin/env bash
# Which lines of the parsers the kept corpora reach, by a replay of them. Fails below the least.
#   coverage.sh TREE [--lines FILE]   the second form: the lines of FILE that no input reaches
set -euo pipefail

least=90 # percent of the lines of each
parsers="
orchestrator/wire/scan.c
orchestrator/wire/validate.c
orchestrator/wire/arena.c
orchestrator/wire/times.c
orchestrator/wire/filter.c
orchestrator/wire/definition_codec.c
orchestrator/wire/definition_encode.c
orchestrator/wire/json_decode.c
orchestrator/wire/json_encode.c
orchestrator/wire/json_scalars.c
orchestrator/rpc/request.c
orchestrator/rpc/service_start.c
orchestrator/rpc/service_operator.c
orchestrator/rpc/service_kafka.c
orchestrator/rpc/service_kafka_key.c
orchestrator/rpc/service_kafka_letter.c
orchestrator/rpc/service_kafka_outbox.c
orchestrator/rpc/service_kafka_request.c
orchestrator/rpc/worker_decode.c
orchestrator/core/definition.c
orchestrator/core/apply.c
orchestrator/core/replay.c
orchestrator/schema/schema.c
orchestrator/schema/schema_load.c
orchestrator/schema/schema_types.c
orchestrator/schema/schema_rules.c
orchestrator/schema/schema_prune.c
orchestrator/schema/record.c
orchestrator/schema/place.c
orchestrator/schema/payload_check.c
orchestrator/schema/payload_json.c
orchestrator/schema/payload_json_read.c
orchestrator/schema/payload_json_scalar.c
orchestrator/schema/payload_json_write.c
orchestrator/schema/payload_template.c
orchestrator/schema/template.c
orchestrator/kafka/json_field.c
orchestrator/kafka/property.c
orchestrator/kafka/record.c
orchestrator/kafka/rule.c
orchestrator/kafka/rule_check.c
orchestrator/app/config.c
orchestrator/app/config_file.c
orchestrator/app/address.c
orchestrator/base/utf8.c
workers/c/pool.c
workers/c/session.c
workers/c/session_send.c
workers/c/task.c
"

tree=$1
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
scratch=$(mktemp -d "${TMPDIR:-/tmp}/sagad-fuzz.XXXXXX")
trap 'rm -rf "$scratch"' EXIT

objects=()
for corpus in "$here"/corpus/*; do
    target=$(basename "$corpus")
    binary=$tree/tests/fuzz/fuzz_$target
    LLVM_PROFILE_FILE=$scratch/$target.profraw "$binary" -runs=0 "$corpus" \
        >"$scratch/log" 2>&1 || {
        cat "$scratch/log"
        exit 1
    }
    objects+=(-object "$binary")
done
llvm-profdata-14 merge -sparse -o "$scratch/profile" "$scratch"/*.profraw
if [ "${2-}" = --lines ]; then
    llvm-cov-14 show "${objects[@]:1}" "-instr-profile=$scratch/profile" "$(realpath -s "$3")" |
        awk -F'|' '$2 ~ /^ *0$/'
    exit
fi
llvm-cov-14 export -format=lcov -summary-only "${objects[@]:1}" \
    "-instr-profile=$scratch/profile" |
    awk -v least="$least" -v parsers="$parsers" '
        BEGIN { wanted = split(parsers, names, "\n") }
        /^SF:/ { match($0, /(orchestrator|workers)\/.*/); file = substr($0, RSTART) }
        /^LF:/ { lines[file] = substr($0, 4) }
        /^LH:/ { hit[file] = substr($0, 4) }
        END {
            for (i = 1; i <= wanted; i++) {
                file = names[i]
                if (file == "")
                    continue
                part = lines[file] ? 100 * hit[file] / lines[file] : 0
                low = part < least
                bad += low
                printf "%-42s %4d of %4d lines  %5.1f %%%s\n", file, hit[file], lines[file],
                    part, low ? "  below " least " %" : ""
            }
            exit bad > 0
        }'
