# Writes OUT: FILE as bytes, so that nothing in it needs quoting.
file(READ ${FILE} hex HEX)
string(REGEX REPLACE "(..)" "0x\\1," bytes "${hex}")
file(WRITE ${OUT} "/* Made from docs/openapi.json by cmake/write_embedded_openapi.cmake. */\n#include \"http/openapi.h\"\n\n"
  "const char openapi_text[] = {${bytes}0};\nconst size_t openapi_length = sizeof openapi_text - 1;\n")
