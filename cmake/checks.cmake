# Targets that look at the code without running it: check-format, check-tidy, check-cppcheck (and
# format, which mends the first). check-tidy takes the flags of this build directory, and needs its
# generated headers: build first.
find_program(CLANG_FORMAT clang-format-14)
find_program(CLANG_TIDY clang-tidy-14)
find_program(CPPCHECK cppcheck)
find_program(CHECK_PYTHON python3)
include(ProcessorCount)
ProcessorCount(CHECK_JOBS)

file(GLOB_RECURSE CHECKED_SOURCES CONFIGURE_DEPENDS
    ${CMAKE_SOURCE_DIR}/orchestrator/*.[ch] ${CMAKE_SOURCE_DIR}/workers/*.[ch]
    ${CMAKE_SOURCE_DIR}/tests/*.[ch])
set(CHECKED_UNITS ${CHECKED_SOURCES})
list(FILTER CHECKED_UNITS INCLUDE REGEX "\\.c$")
# The prelude stands in front of every file but the one that defines what it wraps.
set(ERR_UNIT ${CMAKE_SOURCE_DIR}/orchestrator/base/err.c)
set(TIDY_UNITS ${CHECKED_UNITS})
list(REMOVE_ITEM TIDY_UNITS ${ERR_UNIT})
list(JOIN TIDY_UNITS "\n" TIDY_LINES)
file(WRITE ${CMAKE_BINARY_DIR}/tidy-units.txt "${TIDY_LINES}\n")
set(TIDY ${CLANG_TIDY} -p ${CMAKE_BINARY_DIR}/tidy --quiet --warnings-as-errors=*
    --extra-arg=-Wno-unknown-warning-option) # some flags are gcc's
set(TIDY_PRELUDE --extra-arg=-include --extra-arg=${CMAKE_SOURCE_DIR}/cmake/tidy_prelude.h)

add_custom_target(check-format
    COMMAND ${CLANG_FORMAT} --dry-run --Werror ${CHECKED_SOURCES} VERBATIM)
add_custom_target(format COMMAND ${CLANG_FORMAT} -i ${CHECKED_SOURCES} VERBATIM)
# One file a run: clang-tidy 14 sees uninitialised va_lists when it reads several.
add_custom_target(check-tidy
    COMMAND ${CHECK_PYTHON} ${CMAKE_SOURCE_DIR}/cmake/each_unit_once.py ${CMAKE_BINARY_DIR}
        ${CMAKE_BINARY_DIR}/tidy
    COMMAND ${TIDY} ${ERR_UNIT}
    COMMAND xargs -a ${CMAKE_BINARY_DIR}/tidy-units.txt -P ${CHECK_JOBS} -n 1
        ${TIDY} ${TIDY_PRELUDE}
    VERBATIM)
# cppcheck does not read system headers. So it cannot know what their macros initialise (uninitvar:
# clang-tidy looks after that), nor that NULL is a pointer; and it loses its way in some statements.
add_custom_target(check-cppcheck
    COMMAND ${CPPCHECK} -j ${CHECK_JOBS} --quiet --error-exitcode=1 --inline-suppr --std=c11
        --enable=warning,performance,portability --suppress=missingIncludeSystem
        --suppress=uninitvar --suppress=legacyUninitvar --suppress=varFuncNullUB
        --suppress=internalAstError --suppress=*:*/uthash.h --include=/usr/include/uthash.h
        -D__linux__ -D_GNU_SOURCE -DSAGAD_VERSION="check"
        -I ${CMAKE_SOURCE_DIR}/orchestrator -I ${CMAKE_SOURCE_DIR}/workers/c
        -I ${CMAKE_SOURCE_DIR}/tests ${CHECKED_UNITS} VERBATIM)
