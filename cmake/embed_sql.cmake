# sql/*.sql as strings in the store library: schema_migrations[] of src/store/schema.c.
file(GLOB migrations CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/sql/[0-9]*.sql)
list(SORT migrations)
set(embedded ${CMAKE_BINARY_DIR}/embedded_sql.c)
add_custom_command(
  OUTPUT ${embedded}
  COMMAND ${CMAKE_COMMAND} -DOUT=${embedded} "-DFILES=${migrations}" -P ${CMAKE_SOURCE_DIR}/cmake/write_embedded_sql.cmake
  DEPENDS ${migrations} ${CMAKE_SOURCE_DIR}/cmake/write_embedded_sql.cmake
  VERBATIM)
target_sources(permit_store PRIVATE ${embedded})
