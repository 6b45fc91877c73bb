# `strict` is linked by every target of ours; generated code is not held to it.
# Not -Wmaybe-uninitialized: gcc cannot know that what err_set returns is never 0, so it doubts every
# `ret_*` that is untouched on failure; clang-tidy follows the paths.
# Not -Wformat-truncation: texts are cut on purpose, into buffers of a stated size.
add_library(strict INTERFACE)
target_compile_options(strict INTERFACE
    -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wno-format-truncation -Wno-maybe-uninitialized -Werror
    -fno-omit-frame-pointer
    -UNDEBUG) # assert stays on, whatever the build type: it means a fault of ours
# gcc's flags above are new to clang; its -Wconversion minds an enum that becomes an int, too.
target_compile_options(strict INTERFACE
    $<$<C_COMPILER_ID:Clang>:-Wno-unknown-warning-option;-Wno-sign-conversion>)
target_compile_definitions(strict INTERFACE _GNU_SOURCE SAGAD_VERSION="${PROJECT_VERSION}")
target_include_directories(strict INTERFACE ${CMAKE_SOURCE_DIR}/orchestrator)

if(SAGAD_SANITIZE)
    string(REPLACE ";" "," sanitize_list "${SAGAD_SANITIZE}")
    add_compile_options(-fsanitize=${sanitize_list} -fno-sanitize-recover=all)
    add_link_options(-fsanitize=${sanitize_list})
    if("thread" IN_LIST SAGAD_SANITIZE) # with librdkafka only: others make threads that it knows
        target_sources(PkgConfig::RDKAFKA INTERFACE ${CMAKE_SOURCE_DIR}/cmake/tsan_threads.c)
    endif()
endif()

# sagad_library(name SOURCES a.c ... LINKS base ...): one static library for a folder.
function(sagad_library name)
    cmake_parse_arguments(ARG "" "" "SOURCES;LINKS" ${ARGN})
    add_library(${name} STATIC ${ARG_SOURCES})
    target_link_libraries(${name} PUBLIC strict ${ARG_LINKS})
endfunction()
