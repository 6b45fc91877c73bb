# C code of the protos, generated into build/proto. protoc-gen-c 1.4.1 does not announce that it
# can do proto3 `optional`, although it can: the wrapper says so (field 2, supported_features = 1).
set(PROTO_OUT ${CMAKE_BINARY_DIR}/proto)
file(MAKE_DIRECTORY ${PROTO_OUT})
find_program(PROTOC protoc REQUIRED)
find_program(PROTOC_GEN_C protoc-gen-c REQUIRED)
file(CONFIGURE OUTPUT ${PROTO_OUT}/protoc-gen-c-optional CONTENT
"#!/bin/sh
@PROTOC_GEN_C@ && printf '\\020\\001'
" @ONLY NEWLINE_STYLE UNIX)
file(CHMOD ${PROTO_OUT}/protoc-gen-c-optional
    PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE)
find_path(PROTO_WELL_KNOWN google/protobuf/timestamp.proto REQUIRED)

set(PROTO_FILES
    google/protobuf/timestamp.proto google/protobuf/duration.proto google/protobuf/any.proto
    google/protobuf/descriptor.proto google/protobuf/empty.proto
    google/rpc/status.proto google/rpc/error_details.proto
    grpc/health/v1/health.proto grpc/reflection/v1/reflection.proto
    saga/v1/definition.proto saga/v1/options.proto saga/v1/saga.proto saga/v1/operator.proto
    saga/v1/worker.proto saga/v1/kafka.proto saga/v1/event.proto)
set(PROTO_SOURCES)
foreach(proto IN LISTS PROTO_FILES)
    string(REGEX REPLACE "\\.proto$" "" stem ${proto})
    set(source ${CMAKE_SOURCE_DIR}/proto/${proto})
    if(NOT EXISTS ${source})
        set(source ${PROTO_WELL_KNOWN}/${proto})
    endif()
    add_custom_command(
        OUTPUT ${PROTO_OUT}/${stem}.pb-c.c ${PROTO_OUT}/${stem}.pb-c.h
        COMMAND ${PROTOC} --plugin=protoc-gen-c=${PROTO_OUT}/protoc-gen-c-optional
            --c_out=${PROTO_OUT} -I ${CMAKE_SOURCE_DIR}/proto -I ${PROTO_WELL_KNOWN} ${source}
        DEPENDS ${source} VERBATIM)
    list(APPEND PROTO_SOURCES ${PROTO_OUT}/${stem}.pb-c.c)
endforeach()
add_library(saga_proto STATIC ${PROTO_SOURCES})
target_include_directories(saga_proto SYSTEM PUBLIC ${PROTO_OUT})
target_link_libraries(saga_proto PUBLIC PkgConfig::PROTOBUF_C)
