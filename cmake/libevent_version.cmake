# libevent before Debian's 2.1.12-stable-8+deb12u1 (or upstream 2.1.13) has known request smuggling (CVE fixes in evhttp).
# The library's own version number does not tell the two apart, so ask the package where there is one.
find_program(DPKG_QUERY dpkg-query)
if(DPKG_QUERY AND EVENT_VERSION VERSION_LESS 2.1.13)
  execute_process(COMMAND ${DPKG_QUERY} -W -f "\${Version}" libevent-2.1-7 OUTPUT_VARIABLE event_package ERROR_QUIET)
  execute_process(COMMAND dpkg --compare-versions "${event_package}" ge 2.1.12-stable-8+deb12u1 RESULT_VARIABLE event_old)
  if(event_package AND event_old)
    message(WARNING "libevent ${event_package} has known HTTP request smuggling; install 2.1.12-stable-8+deb12u1 or newer")
  endif()
elseif(EVENT_VERSION VERSION_LESS 2.1.13)
  message(WARNING "libevent ${EVENT_VERSION} has known HTTP request smuggling unless your distribution mended it; 2.1.13 is safe")
endif()
