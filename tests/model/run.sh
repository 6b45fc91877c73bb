#!/usr/bin/env bash
# Checks the journal protocol (journal.pml) exhaustively with spin.
#   tests/model/run.sh              every case; or those named: tests/model/run.sh join no_epoch
#   tests/model/run.sh --list       their names
#   tests/model/run.sh --trace X    of a mutant: and what happened, in order
# SAGAD_TEST_SIZE=full: larger bounds. A model passes when spin has searched all of it without an
# error, a mutant when the assertion that is to catch it is violated.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
size=${SAGAD_TEST_SIZE:-everyday}
[ "$size" = full ] || size=everyday

# name | which model | bounds everyday | bounds in full; the longest first
models='
failover             | -DFAILOVER               | -DFAILOVERS=1 -DLOST=1 -DSTURDY | -DFAILOVERS=1 -DLOST=1
failover_synchronous | -DFAILOVER -DSYNCHRONOUS | -DFAILOVERS=1                   | -DFAILOVERS=2
join                 | -DJOIN                   | -DINCIDENTS=1                   | -DINCIDENTS=2
calls                | -DCALLS                  | -DINCIDENTS=1                   | -DINCIDENTS=2
repeats              | -DREPEATS=1              | -DCALLS                         | -DJOIN
'
# name | model and bounds at every size | the assertions of which one must be violated
mutants='
no_position_check      | -DJOIN | one_lease forward_in_phase undo_in_phase in_turn no_entry_after_end
no_epoch               | -DFAILOVER -DFAILOVERS=1 -DLOST=1 | fence_rises guard_refuses_older
copies_kept            | -DFAILOVER -DFAILOVERS=1 -DLOST=1 | contiguous finish_hits
refusal_in_two_commits | -DJOIN | refusal_has_phase
no_time_check          | -DJOIN | expiry_after_time
unseen_is_stale        | -DJOIN | holder_is_heard
lost_stream_not_loaded | -DCALLS -DINCIDENTS=2 | undo_beside_lease
'

scratch=$(mktemp -d "${TMPDIR:-/tmp}/sagad-model.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
trace=

field() { # table, name, column: without the blanks around it
    awk -F'|' -v name="$2" -v column="$3" '
        { gsub(/^ +| +$/, "", $1) }
        $1 == name { gsub(/^ +| +$/, "", $column); print $column }' <<<"$1"
}

names() { # table
    awk -F'|' 'NF > 1 { gsub(/ /, "", $1); print $1 }' <<<"$1"
}

fail() { # name, why; the log is shown
    echo "$1: FAILED: $2"
    tail -n 40 "$scratch/$1/log"
    return 1
}

# Generates, compiles and runs a verifier; its output is $scratch/NAME/log. Depth, vector and memory
# are bounded, and reaching a bound is an error.
search() { # name, flags, gcc's flags: flags are split on purpose
    local name=$1 flags=$2 compiled=$3 hash=24
    [ "$size" = full ] && hash=26
    mkdir "$scratch/$name"
    cd "$scratch/$name"
    # shellcheck disable=SC2086
    spin -a $flags "$here/journal.pml" >log 2>&1 || return 1
    [ ! -s log ] || return 1
    # shellcheck disable=SC2086
    gcc $compiled -w -DSAFETY -DNOREDUCE -DMEMLIM=6000 -o pan pan.c >>log 2>&1 || return 1
    timeout 800 ./pan -m20000 -w$hash >>log 2>&1
}

count() { # log, words behind the figure
    awk -v words="$2" 'index($0, words) { printf "%d", $1; exit }' "$1"
}

# The names of violated assertions stand behind them in the source.
violated() { # flags, in the directory of the search: the name
    local line
    # shellcheck disable=SC2086
    spin -k journal.pml.trail $1 "$here/journal.pml" >told 2>&1 || true
    line=$(sed -n 's/^spin: .*:\([0-9]*\), Error: assertion violated.*/\1/p' told)
    [ -n "$line" ] && sed -n "${line}s:.*/\* \([a-z_]*\) \*/.*:\1:p" "$here/journal.pml"
}

tell() { # what happened, in order
    grep -E '^ *(node|failover)|text of failed' told | sed 's/^ *//'
}

whole_search() { # log: nothing was left out
    grep -q 'errors: 0$' "$1" && grep -q 'Full statespace search' "$1" &&
        ! grep -qiE 'depth too small|out of memory|not completed|table full|warning|aborted' "$1"
}

run_model() { # name
    local name=$1 flags column=3 log=$scratch/$1/log
    [ "$size" = full ] && column=4
    flags="$(field "$models" "$name" 2) $(field "$models" "$name" $column)"
    (search "$name" "$flags" -O2) || { fail "$name" "no complete search"; return 1; }
    if ! whole_search "$log"; then
        (cd "$scratch/$name" && echo "violated: $(violated "$flags")" && tell) || true
        fail "$name" "an error, or not all of it was searched"
        return 1
    fi
    printf '%s: 0 errors, %s states, %s transitions, depth %s, %s MB, %s s (%s)\n' "$name" \
        "$(count "$log" 'states, stored')" "$(count "$log" 'transitions (=')" \
        "$(sed -n 's/.*depth reached \([0-9]*\).*/\1/p' "$log")" \
        "$(count "$log" 'total actual memory usage')" \
        "$(sed -n 's/pan: elapsed time \([0-9.]*\) .*/\1/p' "$log")" "$flags"
    echo "proves: P2 P3 P5 P6 P8 | model $name"
}

run_mutant() { # name
    local name=$1 flags log=$scratch/$1/log wanted found
    flags="$(field "$mutants" "$name" 2) -DMUTANT_${name^^}"
    wanted=" $(field "$mutants" "$name" 3) "
    # Breadth first: a shortest way to the violation, which is not far.
    (search "$name" "$flags" "-O0 -DBFS") || { fail "$name" "no search"; return 1; }
    grep -q 'errors: 1$' "$log" || { fail "$name" "the mutant was not caught"; return 1; }
    found=$(cd "$scratch/$name" && violated "$flags") || true
    case "$wanted" in
        *" ${found:-?} "*) ;;
        *) fail "$name" "violated \"$found\", not one of:$wanted"; return 1 ;;
    esac
    printf 'mutant %s: caught by %s after %s states (%s)\n' "$name" "$found" \
        "$(count "$log" 'states, stored')" "$flags"
    [ -z "$trace" ] || (cd "$scratch/$name" && tell)
}

case "${1-}" in
    --list)
        names "$models"
        names "$mutants"
        exit 0
        ;;
    --trace)
        trace=yes
        shift
        ;;
esac
[ $# -gt 0 ] || mapfile -t all < <(names "$models$mutants")
[ $# -gt 0 ] || set -- "${all[@]}"
bad=0
for name in "$@"; do
    if [ -n "$(field "$models" "$name" 2)" ]; then
        run_model "$name" || bad=1
    elif [ -n "$(field "$mutants" "$name" 2)" ]; then
        run_mutant "$name" || bad=1
    else
        echo "no such case: $name" >&2
        exit 2
    fi
done
exit $bad
