# Reads ctest's log of a suite; prints "passed failed skipped programs". A program that uses cmocka
# says how many cases passed, failed and were skipped; any other program is one case. A program that
# failed without naming a failed case (it crashed, ran out of time, could not be started, or failed
# to set up) is one failed case; so is a cmocka program without any case.

function number_after(mark)
{
    return substr($0, index($0, mark) + length(mark)) + 0
}

/^Unable to find executable/ && !output {
    absent = 1
}
/^[0-9]+\/[0-9]+ Testing: / && !output {
    cases = bad = left = cmocka = 0
}
/^Output:$/ {
    output = 1
}
/^<end of output>$/ {
    output = 0
}

# cmocka writes these to stderr, each in one piece, but maybe in the middle of a line of stdout.
output && /\[  PASSED  \] [0-9]+ test\(s\)/ {
    cmocka = 1
    cases += number_after("[  PASSED  ] ")
}
output && /\[  FAILED  \] [0-9]+ test\(s\), listed/ {
    cmocka = 1
    bad += number_after("[  FAILED  ] ")
}
output && /\[  SKIPPED \] [0-9]+ test\(s\), listed/ {
    cmocka = 1
    left += number_after("[  SKIPPED ] ")
}

/^Test (Passed|Failed)\.$/ && !output {
    programs++
    good = $2 == "Passed." && !absent
    if (!cmocka && good)
        cases = 1
    if (!good && bad == 0)
        bad = 1
    if (cmocka && cases + bad + left == 0)
        bad = 1
    passed += cases
    failed += bad
    skipped += left
    absent = 0
}

END {
    print passed + 0, failed + 0, skipped + 0, programs + 0
}
