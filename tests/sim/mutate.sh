#!/bin/sh
# mutate.sh ROOT PATCH OUT FILE... -- COMPILER...: copies of the files with the patch applied. If it no
# longer applies, or what it makes does not compile, the copies are as the files are and say so: the
# build goes on, and the test fails.
set -e
root=$1 patch=$2 out=$3
shift 3
files=
while [ "$1" != -- ]; do
    files="$files $1"
    shift
done
shift

copy() {
    for file in $files; do
        mkdir -p "$out/$(dirname "$file")"
        cp "$root/$file" "$out/$file"
    done
}

applies() { # compiler...
    patch -p1 -s -N -r - --no-backup-if-mismatch -d "$out" <"$patch" || return 1
    for file in $files; do
        "$@" -fsyntax-only "$out/$file" || return 1
    done
}

copy
applies "$@" >"$out/mutate.log" 2>&1 && exit 0
cat "$out/mutate.log" >&2
copy
for file in $files; do
    echo 'const char *const sim_mutation_stale __attribute__((weak)) = "the patch does not apply";' \
        >>"$out/$file"
done
