# Sanitizer and fuzz builds: the flags go to every target, so that no part is left out.
#
# Of debug information, lines are enough for a report. With -O1 a build with gcc takes a third of the time that -O3
# takes, and its tests a tenth more.
if(MMOE_FUZZ)
  if(NOT CMAKE_C_COMPILER_ID MATCHES Clang)
    message(FATAL_ERROR "MMOE_FUZZ needs clang (-DCMAKE_C_COMPILER=clang), not ${CMAKE_C_COMPILER_ID}")
  endif()
  set(MMOE_SANITIZE address,undefined)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
if(MMOE_SANITIZE)
  set(sanitize -fsanitize=${MMOE_SANITIZE} -fno-sanitize-recover=all)
  add_compile_options(${sanitize} -fno-omit-frame-pointer -g1)
  if(NOT MMOE_FUZZ)
    add_compile_options(-O1)
  endif()
  add_link_options(${sanitize})
endif()
