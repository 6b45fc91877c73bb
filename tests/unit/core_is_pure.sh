#!/bin/sh
# Goal: the core knows no clock, socket, database, thread, random source or memory but what base/
# hands it. Method: each undefined symbol of libcore.a must be defined in libcore.a itself, be one of
# base's pure ones, or be a plain function of the C library on memory and text.
#
#   core_is_pure.sh libcore.a libbase.a
#
# That the check can fail is part of it: the same look at libbase.a, which does have a clock, must
# find clock_gettime.
set -eu
core=$1
base=$2
nm=${NM:-nm}

defined() { "$nm" --defined-only "$1" | awk 'NF == 3 && $2 ~ /[A-Z]/ { print $3 }' | sort -u; }
undefined() { "$nm" -u "$1" | awk 'NF == 2 && $1 ~ /^[Uw]$/ { print $2 }' | sort -u; }

# What of base/ has no clock, thread, log or random source behind it.
pure_base='^(buf|err|heap|mem|sha256|utf8|uuid)_[a-z0-9_]+$|^rng_(seed|next|below)$'
pure_libc='^(bcmp|mem(cpy|move|set|cmp|chr)|str(len|nlen|cmp|ncmp|chr|rchr|str)|v?snprintf)$'
# The same, as compilers rename them; and the calls that sanitizers and the compiler put in.
compiler='^(__(mem|str)[a-z]+_chk|__v?snprintf_chk|__stack_chk_fail|__asan_.*|__ubsan_.*|__tsan_.*'
compiler="$compiler"'|__sanitizer_.*|__gcov_.*|__llvm_.*|_GLOBAL_OFFSET_TABLE_)$'

# Prints the symbols of an archive that are not allowed.
impure() {
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    defined "$1" > "$work/own"
    undefined "$1" | comm -23 - "$work/own" |
        grep -Ev "$pure_base" | grep -Ev "$pure_libc" | grep -Ev "$compiler" || true
    rm -rf "$work"
    trap - EXIT
}

[ -n "$(defined "$core")" ] || { echo "$core defines nothing: not looked at"; exit 1; }
[ -n "$(undefined "$core" | grep '^mem_' || true)" ] || { echo "$core calls no mem_*: wrong file?"; exit 1; }

impure "$base" | grep -qx clock_gettime || { echo "the check is blind: no clock in $base"; exit 1; }
impure "$base" | grep -qx pthread_mutex_lock || { echo "the check is blind: no lock in $base"; exit 1; }
found=$(impure "$core")
if [ -n "$found" ]; then
    echo "not allowed in $core:"
    echo "$found"
    exit 1
fi
echo "$(undefined "$core" | wc -l) symbols looked at, all pure"
