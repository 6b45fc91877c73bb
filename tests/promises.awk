# From the logs of the suites (ctest's LastTest.log): which tests proved which promise in this run, and
# which faults hit meanwhile, how often. A test says it by its name (test_p1_p8_...) or by a line
# "proves: P1 P8 | name"; a program's faults ("fault: name | count") count for every promise that one of
# its tests proves. Prints a Markdown table; exits 1 when a promise that is built has no passed test.
#   awk -f promises.awk LOG...
function proved(promise, test) {
    if (!((promise, test) in seen)) {
        seen[promise, test] = 1
        before = promise in tests ? tests[promise] ", " : ""
        tests[promise] = before "`" test "`"
    }
    program_proves[program, promise] = 1
}
function flush_passed(test,    parts, n, i) {
    if (test in said) {
        n = split(said[test], parts, " ")
        for (i = 1; i <= n; i++)
            proved(parts[i], test)
    }
    n = split(test, parts, "_")
    for (i = 2; i <= n && parts[i] ~ /^p[1-8]$/; i++)
        proved(toupper(parts[i]), test)
}
/^[0-9]+\/[0-9]+ Testing: / {
    program = $3
    programs[program] = 1
    delete said
    next
}
/^proves: / {
    line = substr($0, 9)
    at = index(line, " | ")
    name = substr(line, at + 3)
    said[name] = said[name] " " substr(line, 1, at - 1)
    if (name !~ /^test_/) # a script's case: it passed or its program failed
        pending[name] = 1
    next
}
/\[       OK \] test_/ { # on stderr, so perhaps in the middle of a line of stdout
    flush_passed(substr($0, index($0, "[       OK ] ") + 13))
    next
}
/^Test Passed\.$/ {
    for (name in pending)
        flush_passed(name)
    delete pending
    next
}
/^Test Failed\.$/ { delete pending; next }
/^fault: / {
    line = substr($0, 8)
    at = index(line, " | ")
    name = substr(line, 1, at - 1)
    if (!((program, name) in hits))
        order[++faults] = name
    hits[program, name] += substr(line, at + 3)
    next
}
END {
    print "| promise | proved by | faults that hit in the last run |"
    print "|---|---|---|"
    for (p = 1; p <= 8; p++) {
        promise = "P" p
        text = ""
        delete told
        for (i = 1; i <= faults; i++) {
            name = order[i]
            if (name in told)
                continue
            told[name] = 1
            sum = 0
            for (program in programs)
                if ((program, promise) in program_proves && (program, name) in hits)
                    sum += hits[program, name]
            if (sum > 0)
                text = text (text == "" ? "" : ", ") name " " sum
        }
        if (promise == "P7" && !(promise in tests))
            tests[promise] = "not built yet (Kafka)"
        else if (!(promise in tests)) {
            tests[promise] = "NOTHING"
            failed = 1
        }
        printf "| %s | %s | %s |\n", promise, tests[promise], text
    }
    exit failed
}
