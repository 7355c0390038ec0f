# Writes OUT: one row {version, name, text} per file of FILES, as bytes, so that nothing in the SQL needs quoting.
set(arrays "")
set(rows "")
foreach(path ${FILES})
  get_filename_component(name ${path} NAME)
  string(REGEX MATCH "^[0-9]+" digits ${name})
  math(EXPR version "${digits}" OUTPUT_FORMAT DECIMAL)
  file(READ ${path} hex HEX)
  string(REGEX REPLACE "(..)" "0x\\1," bytes "${hex}")
  string(APPEND arrays "static const char text_${version}[] = {${bytes}0};\n")
  string(APPEND rows "    {${version}, \"${name}\", text_${version}},\n")
endforeach()
file(WRITE ${OUT} "/* Made from sql/ by cmake/write_embedded_sql.cmake. */\n#include \"store/migrations.h\"\n\n${arrays}\n"
  "const struct migration schema_migrations[] = {\n${rows}    {0, 0, 0},\n};\n")
