# docs/openapi.json as a string in the http library: openapi_text[] of src/http/openapi.h. "{}" while there is none.
set(openapi ${CMAKE_SOURCE_DIR}/docs/openapi.json)
set(embedded_openapi ${CMAKE_BINARY_DIR}/embedded_openapi.c)
if(NOT EXISTS ${openapi})
  file(WRITE ${CMAKE_BINARY_DIR}/openapi.json "{}\n")
  set(openapi ${CMAKE_BINARY_DIR}/openapi.json)
endif()
add_custom_command(
  OUTPUT ${embedded_openapi}
  COMMAND ${CMAKE_COMMAND} -DOUT=${embedded_openapi} -DFILE=${openapi} -P ${CMAKE_SOURCE_DIR}/cmake/write_embedded_openapi.cmake
  DEPENDS ${openapi} ${CMAKE_SOURCE_DIR}/cmake/write_embedded_openapi.cmake
  VERBATIM)
target_sources(permit_http PRIVATE ${embedded_openapi})
