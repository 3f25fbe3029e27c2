# cmake -DOUTPUT=FILE -DTOOLKIT=VERSION -P embed.cmake -- CUBIN...: the cubins as C arrays, with the table that
# cuda/images.h declares. TOOLKIT is "13.0", or empty when there are none.
set(arrays "")
set(table "")
set(started FALSE)
math(EXPR last "${CMAKE_ARGC} - 1")
foreach(i RANGE ${last})
  set(file ${CMAKE_ARGV${i}})
  if(started)
    get_filename_component(name ${file} NAME_WE)
    file(READ ${file} bytes HEX)
    string(REGEX REPLACE "(................................)" "\\1\n" bytes ${bytes})
    string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes ${bytes})
    string(APPEND arrays "_Alignas(16) static const unsigned char ${name}[] = {\n${bytes}};\n")
    string(APPEND table "    {\"${name}\", ${name}},\n")
  elseif(file STREQUAL "--")
    set(started TRUE)
  endif()
endforeach()

set(toolkit 0)
if(TOOLKIT MATCHES "^([0-9]+)\\.([0-9]+)$")
  math(EXPR toolkit "1000 * ${CMAKE_MATCH_1} + 10 * ${CMAKE_MATCH_2}")
endif()
file(WRITE ${OUTPUT} "/* Made by embed.cmake. */
#include \"cuda/images.h\"

${arrays}
const struct mm_image mm_images[] = {
${table}    {NULL, NULL},
};

const int mm_images_toolkit = ${toolkit};
")
