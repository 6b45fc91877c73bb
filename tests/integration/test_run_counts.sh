#!/bin/sh
# The test run counts right. Goal: no failed, crashed, late, absent or empty test program can pass
# for a good one. Method: ctest over small shell programs, each with a known result.
#   test_run_counts.sh TESTS_DIRECTORY
set -eu
tests=$1
scratch=$(mktemp -d "${TMPDIR:-/tmp}/sagad-counts.XXXXXX")
trap 'rm -rf "$scratch"' EXIT

expect() { # name, wanted counts, ctest lines on stdin
    mkdir "$scratch/$1"
    cat >"$scratch/$1/CTestTestfile.cmake"
    (cd "$scratch/$1" && ctest -j 2 >"$scratch/$1/out" 2>&1) || true # failures are what is counted
    got=$(awk -f "$tests/count_cases.awk" "$scratch/$1/Testing/Temporary/LastTest.log")
    if [ "$got" != "$2" ]; then
        echo "$1: counted \"$got\", wanted \"$2\""
        exit 1
    fi
}

expect cases '3 0 0 1' <<'END'
add_test(a "/bin/sh" "-c" "printf '[==========] 3 test(s) run.'; echo '[  PASSED  ] 3 test(s).' >&2")
END
expect failed_and_skipped '2 2 1 1' <<'END'
add_test(a "/bin/sh" "-c" "echo '[  PASSED  ] 2 test(s).'; echo '[  SKIPPED ] 1 test(s), listed below:'; echo '[  FAILED  ] 2 test(s), listed below:'; exit 1")
END
expect two_groups '7 0 0 1' <<'END'
add_test(a "/bin/sh" "-c" "echo '[  PASSED  ] 3 test(s).'; echo '[  PASSED  ] 4 test(s).'")
END
expect no_case '0 1 0 1' <<'END'
add_test(a "/bin/sh" "-c" "echo '[  PASSED  ] 0 test(s).'")
END
expect failed_setup '0 1 0 1' <<'END'
add_test(a "/bin/sh" "-c" "echo '[  FAILED  ] GROUP SETUP'; echo '[  PASSED  ] 0 test(s).'; exit 1")
END
expect leak_at_exit '3 1 0 1' <<'END'
add_test(a "/bin/sh" "-c" "echo '[  PASSED  ] 3 test(s).'; exit 1")
END
expect scripts '1 1 0 2' <<'END'
add_test(good "/bin/sh" "-c" "echo Test Failed.")
add_test(bad "/bin/sh" "-c" "echo Test Passed.; exit 1")
END
expect crash '0 1 0 1' <<'END'
add_test(a "/bin/sh" "-c" "kill -SEGV $$")
END
expect late '0 1 0 1' <<'END'
add_test(a "/bin/sh" "-c" "exec sleep 60")
set_tests_properties(a PROPERTIES TIMEOUT 1)
END
expect absent '1 1 0 2' <<'END'
add_test(a "/no/such/program")
add_test(b "/bin/sh" "-c" "exit 0")
END
echo "counted right"
