function(rocm_sd_compile_options target)
  # -Wrestrict: GCC 12 warns of std::string's own operator+ (GCC bug 105651).
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wno-missing-field-initializers
                                           $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
  if(ROCM_SD_BUILD_FUZZ AND target MATCHES "^rocm_sd_kernels")
    # The fuzzers read files and texts; kernels are only linked, and clang's sanitizers take minutes for one of them.
    target_compile_options(${target} PRIVATE -O0)
  elseif(ROCM_SD_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${ROCM_SD_SANITIZE} -fno-omit-frame-pointer -g)
    if(ROCM_SD_BUILD_FUZZ)
      # A fuzzer's build takes half as long, and a finding's stack still has its lines.
      target_compile_options(${target} PRIVATE -O1 -gline-tables-only)
    endif()
    target_link_options(${target} PUBLIC -fsanitize=${ROCM_SD_SANITIZE})
  endif()
endfunction()

# Code that no loop over pixels or weights spends its time in: -O1 compiles a third faster than -O3 (docs/howto/building.md).
# Kernels, the emulator, samplers and the runtime keep -O3.
function(rocm_sd_host_code target)
  if(CMAKE_BUILD_TYPE STREQUAL "Release")
    target_compile_options(${target} PRIVATE -O1)
  endif()
endfunction()

# rocm_sd_module(NAME [HOST_CODE] [DEPENDS modules...] [LIBRARIES libs...]): the target of one folder of src/.
# Every .cpp below the folder belongs to it, so that adding a file touches no build file.
function(rocm_sd_module name)
  cmake_parse_arguments(arg "HOST_CODE" "" "DEPENDS;LIBRARIES" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  list(FILTER sources EXCLUDE REGEX "_isa\\.cpp$")  # compiled several times, see rocm_sd_isa_sources
  set(target rocm_sd_${name})
  add_library(${target} STATIC ${sources})
  target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
  list(TRANSFORM arg_DEPENDS PREPEND rocm_sd_)
  target_link_libraries(${target} PUBLIC ${arg_DEPENDS} ${arg_LIBRARIES})
  rocm_sd_compile_options(${target})
  if(arg_HOST_CODE)
    rocm_sd_host_code(${target})
  endif()
endfunction()

# rocm_sd_isa_sources(TARGET files...): compiles each *_isa.cpp three times, for the x86-64 levels baseline, v3 (AVX2)
# and v4 (AVX-512), with ROCM_SD_ISA naming the namespace. Such a file may include only headers whose inline functions
# live in that namespace, so that no AVX-512 copy of a shared inline function can reach a CPU without it.
# Elsewhere than x86-64 the baseline alone is built.
function(rocm_sd_isa_sources target)
  set(levels baseline)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    list(APPEND levels v3 v4)
  endif()
  set(flags_baseline "")
  set(flags_v3 -march=x86-64-v3)
  set(flags_v4 -march=x86-64-v4 -mprefer-vector-width=512)
  foreach(level IN LISTS levels)
    add_library(${target}_${level} OBJECT ${ARGN})
    target_include_directories(${target}_${level} PRIVATE ${PROJECT_SOURCE_DIR}/src)
    target_compile_definitions(${target}_${level} PRIVATE ROCM_SD_ISA=isa_${level})
    target_compile_options(${target}_${level} PRIVATE -O3 -ffp-contract=fast ${flags_${level}})
    target_link_libraries(${target}_${level} PRIVATE OpenMP::OpenMP_CXX)
    rocm_sd_compile_options(${target}_${level})
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:${target}_${level}>)
  endforeach()
endfunction()
