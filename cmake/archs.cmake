# GPU code, compiled ahead of time: every src/kernels/**/*.hip once per target, and one archive per target,
# lib/kernels_<target>.rsk, that devices load when the program runs (src/runtime/kernel_archive.hpp).
#
#   ROCM_SD_ARCHS   targets (gfx1100;sm_90), families (rdna3, rdna4, cdna3, nvidia), amd or all;
#                   auto: one target per family for which a compiler is found, and this machine's own GPUs;
#                   native: this machine's own GPUs alone (what `pip install .` takes); none.
#   ROCM_SD_WITH_CK also compile ck_*.hip, instances of AMD's Composable Kernel, for AMD targets; ROCM_SD_CK_ROOT holds
#                   include/ck and include/hip of one ROCm version (tools/fetch/fetch_rocm_packages.sh; else ROCm's own folder).
#   x.<name>.hip    is for one family or target only (gemm.rdna3.hip, gemm_wgmma.sm_90a.hip): an "a" after the number
#                   of an sm_ target compiles that file with the instructions that only this generation has.
#
# Targets: `kernels` (part of all), `kernels_<target>`.

# The targets are those of src/base/gpu_family.hpp; the first of each family is the one of "auto". A line there: target, family,
# and the file of composable_kernels/families that lists its kernels.
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/base/gpu_family.hpp)
file(STRINGS ${PROJECT_SOURCE_DIR}/src/base/gpu_family.hpp target_lines REGEX "^ +GpuTarget{\"")
set(ROCM_SD_AMD_FAMILIES "")
foreach(line IN LISTS target_lines)
  if(NOT line MATCHES "GpuTarget{\"([a-z0-9_]+)\", GpuFamily::k([A-Za-z0-9]+), \"([a-z0-9]+)\"}")
    message(FATAL_ERROR "src/base/gpu_family.hpp: expected GpuTarget{\"target\", GpuFamily::kName, \"kernels\"}, got${line}")
  endif()
  string(TOLOWER ${CMAKE_MATCH_2} family)
  list(APPEND ROCM_SD_TARGETS_${family} ${CMAKE_MATCH_1})
  set(ROCM_SD_KERNELS_${CMAKE_MATCH_1} ${CMAKE_MATCH_3})
  if(CMAKE_MATCH_1 MATCHES "^gfx" AND NOT family IN_LIST ROCM_SD_AMD_FAMILIES)
    list(APPEND ROCM_SD_AMD_FAMILIES ${family})
  endif()
endforeach()

set(ROCM_SD_ARCHS auto CACHE STRING "GPU targets or families to compile kernels for (auto, native, all, amd, none)")
set(ROCM_SD_AMD_FLAGS "" CACHE STRING "More flags for clang when it compiles kernels")
set(ROCM_SD_NVCC_FLAGS "" CACHE STRING "More flags for nvcc when it compiles kernels (-lineinfo for profilers)")
option(ROCM_SD_WITH_CK "Compile instances of Composable Kernel as candidates for AMD GPUs" OFF)

# ---- compilers ----
if(DEFINED ENV{ROCM_PATH})
  set(rocm_root $ENV{ROCM_PATH})
else()
  set(rocm_root /opt/rocm)
endif()
set(ROCM_SD_CK_ROOT ${rocm_root} CACHE PATH "Where include/ck and include/hip are, for ROCM_SD_WITH_CK")
if(ROCM_SD_WITH_CK AND NOT (EXISTS ${ROCM_SD_CK_ROOT}/include/ck/ck.hpp AND EXISTS ${ROCM_SD_CK_ROOT}/include/hip/hip_runtime.h))
  message(FATAL_ERROR "ROCM_SD_WITH_CK: no include/ck/ck.hpp and include/hip/hip_runtime.h in ROCM_SD_CK_ROOT (${ROCM_SD_CK_ROOT})")
endif()
find_program(ROCM_SD_AMD_CLANG NAMES clang++ PATHS ${rocm_root}/llvm/bin ${rocm_root}/lib/llvm/bin NO_DEFAULT_PATH
             DOC "clang++ that compiles kernels for AMD")
find_program(ROCM_SD_AMD_CLANG NAMES clang++-22 clang++-21 clang++-20 clang++-19)
find_program(ROCM_SD_NVCC NAMES nvcc PATHS $ENV{CUDA_HOME}/bin /usr/local/cuda/bin DOC "nvcc that compiles kernels")

function(rocm_sd_compiler_version compiler out)
  execute_process(COMMAND ${compiler} --version OUTPUT_VARIABLE text ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  string(REGEX MATCH "[^\n]*(clang version|release)[^\n]*" line "${text}")
  string(REGEX REPLACE "[^-+A-Za-z0-9.,() ]" "" line "${line}")
  set(${out} "${line}" PARENT_SCOPE)
endfunction()

# gfx90a -> 90a and 9010: the names that device libraries give a target.
function(rocm_sd_isa_number target suffix number)
  string(REGEX MATCH "^gfx([0-9]+)([0-9a-f])([0-9a-f])$" ok ${target})
  math(EXPR value "${CMAKE_MATCH_1} * 1000 + 0x${CMAKE_MATCH_2} * 100 + 0x${CMAKE_MATCH_3}")
  set(${suffix} ${CMAKE_MATCH_1}${CMAKE_MATCH_2}${CMAKE_MATCH_3} PARENT_SCOPE)
  set(${number} ${value} PARENT_SCOPE)
endfunction()

# Distributions' device libraries are older than their clang: a folder of links to the stock bitcode, and the
# description of each target that the stock lacks (two lines of OpenCL).
function(rocm_sd_device_libraries targets out)
  string(REGEX MATCH "[0-9]+$" clang_number ${ROCM_SD_AMD_CLANG})
  file(GLOB stock ${rocm_root}/amdgcn/bitcode/ocml.bc ${rocm_root}/lib/llvm/lib/clang/*/lib/amdgcn/bitcode/ocml.bc
       /usr/lib/llvm-${clang_number}/lib/clang/*/*/amdgcn/bitcode/ocml.bc /usr/lib/clang/${clang_number}/*/amdgcn/bitcode/ocml.bc
       /usr/lib/*/amdgcn/bitcode/ocml.bc /usr/amdgcn/bitcode/ocml.bc
       /usr/lib/llvm-*/lib/clang/*/amdgcn/bitcode/ocml.bc)  # Debian 13 has them below an older clang than the one used
  if(NOT stock)
    set(${out} "" PARENT_SCOPE)
    return()
  endif()
  list(GET stock 0 stock)
  get_filename_component(stock ${stock} DIRECTORY)
  set(folder ${PROJECT_BINARY_DIR}/amdgcn)
  file(MAKE_DIRECTORY ${folder})
  file(GLOB files ${stock}/*.bc)
  foreach(file IN LISTS files)
    get_filename_component(name ${file} NAME)
    file(CREATE_LINK ${file} ${folder}/${name} SYMBOLIC)
  endforeach()
  foreach(target IN LISTS targets)
    rocm_sd_isa_number(${target} suffix number)
    set(bitcode ${folder}/oclc_isa_version_${suffix}.bc)
    if(EXISTS ${stock}/oclc_isa_version_${suffix}.bc)
      continue()
    endif()
    file(WRITE ${folder}/isa_${suffix}.cl "extern const __constant int __oclc_ISA_version;\n"
                                          "const __constant int __oclc_ISA_version = ${number};\n")
    execute_process(COMMAND ${ROCM_SD_AMD_CLANG} -x cl -Xclang -finclude-default-header --target=amdgcn-amd-amdhsa -nogpulib
                            -O3 -emit-llvm -c ${folder}/isa_${suffix}.cl -o ${bitcode} RESULT_VARIABLE failed
                            ERROR_VARIABLE message)
    if(failed)
      message(FATAL_ERROR "cannot make ${bitcode}: ${message}")
    endif()
  endforeach()
  set(${out} ${folder} PARENT_SCOPE)
endfunction()

# ---- which targets ----
function(rocm_sd_can_compile target out)
  set(${out} FALSE PARENT_SCOPE)
  if(target MATCHES "^sm_" AND ROCM_SD_NVCC)
    set(${out} TRUE PARENT_SCOPE)
  elseif(target MATCHES "^gfx" AND ROCM_SD_AMD_CLANG)
    execute_process(COMMAND ${ROCM_SD_AMD_CLANG} --target=amdgcn-amd-amdhsa -mcpu=${target} -nogpulib -x c -fsyntax-only /dev/null
                    RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
    if(NOT failed)
      set(${out} TRUE PARENT_SCOPE)
    endif()
  endif()
endfunction()

# The GPUs of this machine, as the AMD kernel driver and nvidia-smi name them.
function(rocm_sd_native_targets out)
  set(found "")
  file(GLOB nodes /sys/class/kfd/kfd/topology/nodes/*/properties)
  foreach(node IN LISTS nodes)
    file(STRINGS ${node} line REGEX "^gfx_target_version")
    if(line MATCHES " ([1-9][0-9]?)([0-9][0-9])([0-9][0-9])$")
      set(major ${CMAKE_MATCH_1})
      math(EXPR minor "${CMAKE_MATCH_2}" OUTPUT_FORMAT DECIMAL)
      math(EXPR step "${CMAKE_MATCH_3}" OUTPUT_FORMAT HEXADECIMAL)
      string(SUBSTRING ${step} 2 -1 step)
      list(APPEND found gfx${major}${minor}${step})
    endif()
  endforeach()
  find_program(ROCM_SD_NVIDIA_SMI nvidia-smi)
  mark_as_advanced(ROCM_SD_NVIDIA_SMI)
  if(ROCM_SD_NVIDIA_SMI)
    execute_process(COMMAND ${ROCM_SD_NVIDIA_SMI} --query-gpu=compute_cap --format=csv,noheader OUTPUT_VARIABLE caps
                    ERROR_QUIET)
    string(REGEX MATCHALL "[0-9]+\\.[0-9]" caps "${caps}")
    foreach(cap IN LISTS caps)
      string(REPLACE "." "" cap ${cap})
      list(APPEND found sm_${cap})
    endforeach()
  endif()
  list(REMOVE_DUPLICATES found)
  set(${out} ${found} PARENT_SCOPE)
endfunction()

# ROCM_SD_ARCHS spelt out. What a keyword stands for is left out where no compiler knows it; a target that was named is not.
set(all_targets "")
foreach(family IN LISTS ROCM_SD_AMD_FAMILIES ITEMS nvidia)
  list(APPEND all_targets ${ROCM_SD_TARGETS_${family}})
  foreach(target IN LISTS ROCM_SD_TARGETS_${family})
    set(ROCM_SD_FAMILY_${target} ${family})
  endforeach()
endforeach()
set(ROCM_SD_TARGETS "")
foreach(word IN LISTS ROCM_SD_ARCHS)
  set(choice "")
  if(word STREQUAL "none")
    continue()
  elseif(word MATCHES "^(auto|native)$")
    if(word STREQUAL "auto")
      foreach(family IN LISTS ROCM_SD_AMD_FAMILIES ITEMS nvidia)
        list(GET ROCM_SD_TARGETS_${family} 0 first)
        list(APPEND choice ${first})
      endforeach()
    endif()
    rocm_sd_native_targets(native)
    foreach(target IN LISTS native)
      if(target IN_LIST all_targets)
        list(APPEND choice ${target})
      endif()
    endforeach()
  elseif(word STREQUAL "all")
    set(choice ${all_targets})
  elseif(word STREQUAL "amd")
    foreach(family IN LISTS ROCM_SD_AMD_FAMILIES)
      list(APPEND choice ${ROCM_SD_TARGETS_${family}})
    endforeach()
  elseif(DEFINED ROCM_SD_TARGETS_${word})
    set(choice ${ROCM_SD_TARGETS_${word}})
  elseif(word IN_LIST all_targets)
    rocm_sd_can_compile(${word} possible)
    if(NOT possible)
      message(FATAL_ERROR "ROCM_SD_ARCHS: no compiler here builds ${word} (clang: ${ROCM_SD_AMD_CLANG}, nvcc: ${ROCM_SD_NVCC})")
    endif()
    list(APPEND ROCM_SD_TARGETS ${word})
  else()
    message(FATAL_ERROR "ROCM_SD_ARCHS: \"${word}\" is no target or family; known: auto native none all amd ${ROCM_SD_AMD_FAMILIES} nvidia ${all_targets}")
  endif()
  foreach(target IN LISTS choice)
    rocm_sd_can_compile(${target} possible)
    if(possible)
      list(APPEND ROCM_SD_TARGETS ${target})
    else()
      message(STATUS "GPU kernels: no compiler for ${target}, left out")
    endif()
  endforeach()
endforeach()
list(REMOVE_DUPLICATES ROCM_SD_TARGETS)
if(ROCM_SD_TARGETS)
  message(STATUS "GPU kernels for: ${ROCM_SD_TARGETS} (about 3 minutes of 2 cores for each; ROCM_SD_ARCHS=none leaves them out)")
else()
  message(STATUS "GPU kernels for: no target (ROCM_SD_ARCHS=${ROCM_SD_ARCHS}); programs of this build compute on the CPU")
endif()

# ---- compiling and packing ----
set(amd_targets ${ROCM_SD_TARGETS})
list(FILTER amd_targets INCLUDE REGEX "^gfx")
if(amd_targets)
  rocm_sd_device_libraries("${amd_targets}" ROCM_SD_DEVICE_LIBRARIES)
  if(NOT ROCM_SD_DEVICE_LIBRARIES)
    message(FATAL_ERROR "GPU kernels: ROCm's device libraries (ocml.bc) not found below ${rocm_root} and /usr/lib; "
                        "install rocm-device-libs, or set ROCM_SD_ARCHS=none")
  endif()
  rocm_sd_compiler_version(${ROCM_SD_AMD_CLANG} ROCM_SD_AMD_CLANG_VERSION)
endif()
if(ROCM_SD_NVCC)
  rocm_sd_compiler_version(${ROCM_SD_NVCC} ROCM_SD_NVCC_VERSION)
endif()

# The command that compiles `source` for `target` into `object`, after what else is given.
function(rocm_sd_compile_kernel source target object)
  set(flags -O3 -std=c++20 -DNDEBUG -I${PROJECT_SOURCE_DIR}/src 
            -I${PROJECT_BINARY_DIR}/gpu/families/${ROCM_SD_KERNELS_${target}} -MD -MF ${object}.d -MT ${object} -c ${source} -o ${object})
  if(target MATCHES "^sm_([0-9]+)")
    set(number ${CMAKE_MATCH_1})
    if(source MATCHES "\\.${target}a\\.hip$")
      string(APPEND number a)
    endif()
    set(command ${ROCM_SD_NVCC} -x cu -cubin -gencode=arch=compute_${number},code=sm_${number} --expt-relaxed-constexpr
                ${flags} ${ROCM_SD_NVCC_FLAGS})
  else()
    # A lane is a loop's iteration already. What is more, LLVM before 21 exchanges the operands of v_cmpx_le_u32 without
    # turning it into v_cmpx_ge_u32 (llvm/llvm-project pull request 146398), and the loop vectoriser's masks are such
    # comparisons: spare rows of flash attention stayed unwritten. Behind -O3, which would turn it on again.
    set(headers -nogpuinc --rocm-path=${rocm_root})
    if(source MATCHES "/ck_[^/]*\\.hip$")
      # CK's loops tell the scheduler by __builtin_amdgcn_sched_group_barrier how to mix loads, LDS and matrix
      # instructions. LLVM 19's scheduler after register allocation takes a block that the first one has ordered so, drops
      # the hints' edges, and with them those through which a store to LDS came before the next s_barrier: the stores sank
      # below it, and other waves read the tile before (the emulator's check of LDS found it). So there is one round only.
      set(headers --rocm-path=${ROCM_SD_CK_ROOT} -isystem ${ROCM_SD_CK_ROOT}/include -mllvm -enable-post-misched=0)
    endif()
    set(command ${ROCM_SD_AMD_CLANG} -x hip --offload-arch=${target} --offload-device-only --no-gpu-bundle-output ${headers}
                -fuse-cuid=none --rocm-device-lib-path=${ROCM_SD_DEVICE_LIBRARIES} -Wall -Wextra
                -Wno-unused-command-line-argument ${flags} -fno-vectorize ${ROCM_SD_AMD_FLAGS})
  endif()
  set(launcher "")
  if(ROCM_SD_CCACHE)
    set(launcher ${ROCM_SD_CCACHE})
  endif()
  file(RELATIVE_PATH name ${PROJECT_SOURCE_DIR} ${source})
  add_custom_command(OUTPUT ${object} COMMAND ${launcher} ${command} DEPENDS ${source} ${ARGN} DEPFILE ${object}.d
                     COMMENT "Compiling ${name} for ${target}" VERBATIM)
endfunction()

# The names of a family's kernels, from the tables of composable_kernels/families, as its .hip files include them.
add_executable(kernel_entries ${PROJECT_SOURCE_DIR}/tools/pack/kernel_entries/main.cpp)
target_include_directories(kernel_entries PRIVATE ${PROJECT_SOURCE_DIR}/src)
rocm_sd_compile_options(kernel_entries)
function(rocm_sd_kernel_entries kernels out)
  set(folder ${PROJECT_BINARY_DIR}/gpu/families/${kernels}/entries)
  set(${out} ${folder}/written PARENT_SCOPE)
  if(NOT TARGET kernel_entries_${kernels})
    add_custom_command(OUTPUT ${folder}/written COMMAND kernel_entries ${kernels} ${folder}
                       COMMAND ${CMAKE_COMMAND} -E touch ${folder}/written DEPENDS kernel_entries
                       COMMENT "Naming the kernels of ${kernels}" VERBATIM)
    add_custom_target(kernel_entries_${kernels} DEPENDS ${folder}/written)
  endif()
endfunction()

function(rocm_sd_kernel_archive target)
  set(family ${ROCM_SD_FAMILY_${target}})
  rocm_sd_kernel_entries(${ROCM_SD_KERNELS_${target}} entries)
  set(objects "")
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/kernels/*.hip)
  foreach(source IN LISTS sources)
    if(source MATCHES "\\.([a-z0-9_]+)\\.hip$" AND NOT CMAKE_MATCH_1 MATCHES "^(${family}|${target}|${target}a)$")
      continue()
    endif()
    if(source MATCHES "/ck_[^/]*\\.hip$" AND NOT (ROCM_SD_WITH_CK AND target MATCHES "^gfx"))
      continue()
    endif()
    file(RELATIVE_PATH object ${PROJECT_SOURCE_DIR}/src/kernels ${source})
    string(REGEX REPLACE "/" "." object ${object})
    string(REGEX REPLACE "\\.hip$" "" object ${object})
    set(object ${PROJECT_BINARY_DIR}/gpu/${target}/${object}.co)
    rocm_sd_compile_kernel(${source} ${target} ${object} ${entries})
    list(APPEND objects ${object})
  endforeach()
  file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/gpu/${target} ${PROJECT_BINARY_DIR}/lib)
  if(target MATCHES "^sm_")
    set(compiler "${ROCM_SD_NVCC_VERSION}")
  else()
    set(compiler "${ROCM_SD_AMD_CLANG_VERSION}")
  endif()
  # The list of objects is part of the command line: a file that is gone must leave the archive.
  set(archive ${PROJECT_BINARY_DIR}/lib/kernels_${target}.rsk)
  add_custom_command(OUTPUT ${archive} COMMAND pack_kernels ${archive} ${target} ${compiler} ${objects}
                     DEPENDS pack_kernels ${objects} COMMENT "Packing lib/kernels_${target}.rsk" VERBATIM)
  add_custom_target(kernels_${target} DEPENDS ${archive})
  add_dependencies(kernels kernels_${target})
  include(GNUInstallDirs)
  install(FILES ${archive} DESTINATION ${CMAKE_INSTALL_LIBDIR}/rocm-sd COMPONENT kernels)
endfunction()

# Also the unit tests of the archives link the packer.
add_library(rocm_sd_pack_kernels STATIC ${PROJECT_SOURCE_DIR}/tools/pack/pack_kernels/pack.cpp
                                        ${PROJECT_SOURCE_DIR}/tools/pack/pack_kernels/code_object.cpp)
rocm_sd_compile_options(rocm_sd_pack_kernels)
add_executable(pack_kernels ${PROJECT_SOURCE_DIR}/tools/pack/pack_kernels/main.cpp)
target_link_libraries(pack_kernels PRIVATE rocm_sd_pack_kernels)
rocm_sd_compile_options(pack_kernels)

# Archives beside the library's, build/<name>/kernels_<target>.rsk: examples/kernels, which use the templates of
# ck_sd_templates.hpp as a user's own .hip file does, and the kernels that only a benchmark launches.
function(rocm_sd_side_archive name folder target)
  set(objects "")
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/*.hip)
  foreach(source IN LISTS sources)
    get_filename_component(stem ${source} NAME_WE)
    set(object ${PROJECT_BINARY_DIR}/gpu/${name}/${target}/${stem}.co)
    rocm_sd_compile_kernel(${source} ${target} ${object})
    list(APPEND objects ${object})
  endforeach()
  file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/gpu/${name}/${target} ${PROJECT_BINARY_DIR}/${name})
  set(archive ${PROJECT_BINARY_DIR}/${name}/kernels_${target}.rsk)
  add_custom_command(OUTPUT ${archive} COMMAND pack_kernels ${archive} ${target} ${name} ${objects}
                     DEPENDS pack_kernels ${objects} COMMENT "Packing ${name}/kernels_${target}.rsk" VERBATIM)
  add_custom_target(${name}_kernels_${target} DEPENDS ${archive})
  add_dependencies(${name}_kernels ${name}_kernels_${target})
endfunction()

add_custom_target(kernels ALL)
add_custom_target(examples_kernels ALL)
add_custom_target(analysis_kernels)
foreach(target IN LISTS ROCM_SD_TARGETS)
  rocm_sd_kernel_archive(${target})
  rocm_sd_side_archive(examples examples/kernels ${target})
  rocm_sd_side_archive(analysis tests/performance_tests/gpu/analysis ${target})
endforeach()
