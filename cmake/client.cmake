# libpermit (static and shared, for other programs) and permitctl.
permit_library(client SEES core base LIBRARIES CURL::libcurl PkgConfig::JSON Threads::Threads)
permit_library(cli SEES client core base LIBRARIES PkgConfig::JSON Threads::Threads)
add_executable(permitctl src/permitctl.c)
target_link_libraries(permitctl PRIVATE permit_cli permit_flags)

# What of base and core the client calls, compiled once more for use inside other people's programs.
file(GLOB client_sources CONFIGURE_DEPENDS src/client/*.c)
set(client_needs src/base/buf.c src/base/clock.c src/base/escape.c src/base/utf8.c src/base/uuid.c src/core/status.c)
set(client_libraries CURL::libcurl PkgConfig::JSON PkgConfig::UUID Threads::Threads)

add_library(permit_objects OBJECT ${client_sources} ${client_needs})
set_target_properties(permit_objects PROPERTIES POSITION_INDEPENDENT_CODE ON)
target_include_directories(permit_objects PRIVATE include src)
target_link_libraries(permit_objects PRIVATE permit_flags ${client_libraries})

# The soname stays 0 until 1.0; from then on it rises when a program built before would break.
set(exported ${CMAKE_SOURCE_DIR}/src/client/libpermit.map)
add_library(permit_shared SHARED $<TARGET_OBJECTS:permit_objects>)
set_target_properties(permit_shared PROPERTIES OUTPUT_NAME permit VERSION ${PERMIT_VERSION}
                                               SOVERSION ${PROJECT_VERSION_MAJOR} LINK_DEPENDS ${exported})
target_link_libraries(permit_shared PRIVATE permit_flags ${client_libraries})
target_link_options(permit_shared PRIVATE LINKER:--version-script=${exported} LINKER:--as-needed)

# The static library is one object in which only permit_* can be seen, so that no name of ours meets one of the program's.
set(archive ${CMAKE_BINARY_DIR}/libpermit.a)
set(joined ${CMAKE_BINARY_DIR}/libpermit.o)
add_custom_command(
  OUTPUT ${archive}
  COMMAND ${CMAKE_LINKER} -r -o ${joined} $<TARGET_OBJECTS:permit_objects>
  COMMAND ${CMAKE_OBJCOPY} --wildcard --keep-global-symbol=permit_* ${joined}
  COMMAND ${CMAKE_COMMAND} -E rm -f ${archive}
  COMMAND ${CMAKE_AR} rcs ${archive} ${joined}
  DEPENDS permit_objects $<TARGET_OBJECTS:permit_objects>
  COMMAND_EXPAND_LISTS VERBATIM)
add_custom_target(permit_static ALL DEPENDS ${archive})

# Relative, so that `cmake --install --prefix` needs no other file.
file(RELATIVE_PATH pc_to_prefix /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
configure_file(cmake/permit.pc.in ${CMAKE_BINARY_DIR}/permit.pc @ONLY)

install(TARGETS permit_shared LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES ${archive} DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/permit DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(FILES ${CMAKE_BINARY_DIR}/permit.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES docs/man/permitctl.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES docs/man/permitd.8 DESTINATION ${CMAKE_INSTALL_MANDIR}/man8)
