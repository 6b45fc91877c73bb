# coverage: which lines the unit and integration suites reach (tests/coverage.sh), in a tree of its own.
add_custom_target(coverage
    COMMAND ${CMAKE_SOURCE_DIR}/tests/coverage.sh
    USES_TERMINAL VERBATIM)
