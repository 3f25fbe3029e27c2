# Kernels in the simulator: MMOE_SIMULATOR says whether this build has it, mm_simulate_kernels compiles kernels for it.
#
# The thread sanitizer knows nothing of the simulator's stacks.
if(MMOE_TESTS AND NOT MMOE_FUZZ AND NOT MMOE_SANITIZE MATCHES thread)
  set(MMOE_SIMULATOR TRUE)
else()
  set(MMOE_SIMULATOR FALSE)
  return()
endif()

enable_language(CXX)
add_library(mm_cxx_options INTERFACE)
target_compile_options(mm_cxx_options INTERFACE -Wall -Wextra -Wshadow -ffp-contract=off)
if(MMOE_WERROR)
  target_compile_options(mm_cxx_options INTERFACE -Werror)
endif()

# mm_simulate_kernels(TARGET SOURCE...): the target runs these CUDA sources in the simulator. Debug information is for
# the source lines in its reports; equal calls at different lines must stay different ones.
function(mm_simulate_kernels target)
  set(options -xc++ -g1 -fno-optimize-sibling-calls -Wno-unknown-pragmas)
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    list(APPEND options -fno-crossjumping -fno-tree-tail-merge)
  endif()
  foreach(source ${ARGN})
    get_filename_component(path ${source} ABSOLUTE)
    target_sources(${target} PRIVATE ${path})
    set_source_files_properties(${path} PROPERTIES LANGUAGE CXX
      COMPILE_OPTIONS "${options}")
  endforeach()
  target_link_libraries(${target} PRIVATE mm_cxx_options megamoe_sim)
endfunction()
