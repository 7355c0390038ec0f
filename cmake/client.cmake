# libpermit (static and shared, for other programs) and permitctl.
permit_library(client SEES core base LIBRARIES CURL::libcurl PkgConfig::JSON Threads::Threads)
permit_library(cli SEES client core base LIBRARIES PkgConfig::JSON Threads::Threads)
add_executable(permitctl src/permitctl.c)
target_link_libraries(permitctl PRIVATE permit_cli permit_flags)
