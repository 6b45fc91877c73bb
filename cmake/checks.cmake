# Targets that look at the code without running it: check-format, check-tidy, check-cppcheck.
find_program(CLANG_FORMAT clang-format-14)
find_program(CLANG_TIDY clang-tidy-14)
find_program(CPPCHECK cppcheck)
file(GLOB_RECURSE CHECKED_SOURCES CONFIGURE_DEPENDS
    ${CMAKE_SOURCE_DIR}/orchestrator/*.[ch] ${CMAKE_SOURCE_DIR}/workers/*.[ch]
    ${CMAKE_SOURCE_DIR}/tests/*.[ch])
set(CHECKED_UNITS ${CHECKED_SOURCES})
list(FILTER CHECKED_UNITS INCLUDE REGEX "\\.c$")

add_custom_target(check-format
    COMMAND ${CLANG_FORMAT} --dry-run --Werror ${CHECKED_SOURCES} VERBATIM)
add_custom_target(format COMMAND ${CLANG_FORMAT} -i ${CHECKED_SOURCES} VERBATIM)
add_custom_target(check-tidy
    COMMAND printf "%s\\n" ${CHECKED_UNITS} | xargs -P 2 -n 4
        ${CLANG_TIDY} -p ${CMAKE_BINARY_DIR} --quiet --warnings-as-errors=*
    DEPENDS saga_proto VERBATIM)
add_custom_target(check-cppcheck
    COMMAND ${CPPCHECK} -j 2 --quiet --error-exitcode=1 --inline-suppr --std=c11
        --enable=warning,performance,portability --suppress=missingIncludeSystem
        -D__linux__ -D_GNU_SOURCE -DSAGAD_VERSION="check"
        -I ${CMAKE_SOURCE_DIR}/orchestrator -I ${CMAKE_SOURCE_DIR}/workers/c ${CHECKED_UNITS} VERBATIM)
