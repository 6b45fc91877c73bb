#!/bin/sh
# mutate.sh ROOT PATCH OUT FILE...: copies of the files with the patch applied. If it no longer applies
# the copies are as they were and say so: the build goes on, and the test fails.
set -e
root=$1 patch=$2 out=$3
shift 3
for file; do
    mkdir -p "$out/$(dirname "$file")"
    cp "$root/$file" "$out/$file"
done
if patch -p1 -s -N -r - --no-backup-if-mismatch -d "$out" <"$patch" >"$out/patch.log" 2>&1; then
    exit 0
fi
cat "$out/patch.log" >&2
for file; do
    cp "$root/$file" "$out/$file"
    echo 'const char *const sim_mutation_stale __attribute__((weak)) = "the patch does not apply";' \
        >>"$out/$file"
done
