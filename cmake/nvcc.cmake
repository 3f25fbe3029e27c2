# nvcc, if there is one: MMOE_NVCC, MMOE_NVCC_VERSION ("13.0"; empty without it), and mm_compile_kernels.
option(MMOE_KERNELS "compile the GPU kernels and embed them in the library, when nvcc is found" ON)
set(MMOE_NVCC_VERSION "")
if(MMOE_KERNELS)
  find_program(MMOE_NVCC nvcc PATHS /usr/local/cuda/bin)
endif()
if(MMOE_KERNELS AND MMOE_NVCC)
  execute_process(COMMAND ${MMOE_NVCC} --version OUTPUT_VARIABLE said ERROR_QUIET)
  if(said MATCHES "release ([0-9]+\\.[0-9]+)")
    set(MMOE_NVCC_VERSION ${CMAKE_MATCH_1})
  endif()
endif()

# mm_compile_kernels(VARIABLE SOURCE...): a cubin for sm_90a of each source in the current build folder, and beside it
# what the compiler said of registers and spills, NAME.report. The cubins' paths go to VARIABLE.
function(mm_compile_kernels variable)
  set(cubins "")
  foreach(source ${ARGN})
    get_filename_component(name ${source} NAME_WE)
    set(base ${CMAKE_CURRENT_BINARY_DIR}/${name})
    add_custom_command(
      OUTPUT ${base}.cubin
      BYPRODUCTS ${base}.report
      COMMAND ${CMAKE_COMMAND} -DREPORT=${base}.report -P ${PROJECT_SOURCE_DIR}/cmake/compile_kernel.cmake --
              ${MMOE_NVCC} -std=c++17 -cubin -gencode=arch=compute_90a,code=sm_90a -I${PROJECT_SOURCE_DIR}/src
              -Xptxas -v -MD -MF ${base}.d -MT ${base}.cubin -o ${base}.cubin ${source}
      DEPENDS ${source} ${PROJECT_SOURCE_DIR}/cmake/compile_kernel.cmake
      DEPFILE ${base}.d
      COMMENT "Compiling kernel ${name} for sm_90a"
      VERBATIM)
    list(APPEND cubins ${base}.cubin)
  endforeach()
  set(${variable} ${cubins} PARENT_SCOPE)
endfunction()
