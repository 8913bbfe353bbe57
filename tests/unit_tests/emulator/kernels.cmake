# The emulator's test kernels: each .hip of this folder at -O1 and -O3 for every AMD target that kernels are built
# for, and for the other targets whose instructions differ.
set(emulator_targets ${ROCM_SD_TARGETS})
list(FILTER emulator_targets INCLUDE REGEX "^gfx")
if(emulator_targets)
  foreach(target gfx90a gfx1151 gfx1200)
    rocm_sd_can_compile(${target} possible)
    if(possible)
      list(APPEND emulator_targets ${target})
    endif()
  endforeach()
  list(REMOVE_DUPLICATES emulator_targets)
  rocm_sd_device_libraries("${emulator_targets}" ROCM_SD_DEVICE_LIBRARIES)
endif()
set(objects "")
file(GLOB kernels CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/kernels/*.hip)
set(common_flags ${ROCM_SD_AMD_FLAGS})
foreach(target IN LISTS emulator_targets)
  set(folder ${PROJECT_BINARY_DIR}/emulator/${target})
  file(MAKE_DIRECTORY ${folder})
  foreach(kernel IN LISTS kernels)
    get_filename_component(name ${kernel} NAME_WE)
    set(wave "")
    if(name STREQUAL wide AND NOT target MATCHES "^gfx9")
      set(wave -mwavefrontsize64)
    endif()
    # -O3 behind archs.cmake's -fno-vectorize turns the loop vectoriser on again, on purpose: the emulator must run what
    # other people's compilers make, and its forms of instructions are more.
    foreach(level O1 O3)
      set(ROCM_SD_AMD_FLAGS ${common_flags} -${level} ${wave} -gline-tables-only -I${CMAKE_CURRENT_LIST_DIR}/kernels)
      rocm_sd_compile_kernel(${kernel} ${target} ${folder}/${name}.${level}.co)
      list(APPEND objects ${folder}/${name}.${level}.co)
    endforeach()
  endforeach()
  foreach(name operations pitfalls sparse)
    set(source ${CMAKE_CURRENT_LIST_DIR}/kernels/${name}.s)
    set(object ${folder}/${name}.s.co)
    add_custom_command(OUTPUT ${object} COMMAND ${ROCM_SD_AMD_CLANG} -x assembler --target=amdgcn-amd-amdhsa
                       -mcpu=${target} -I${CMAKE_CURRENT_LIST_DIR}/kernels ${source} -o ${object}
                       DEPENDS ${source} ${CMAKE_CURRENT_LIST_DIR}/kernels/one_operation.inc
                       COMMENT "Assembling ${name}.s for ${target}" VERBATIM)
    list(APPEND objects ${object})
  endforeach()
endforeach()
set(ROCM_SD_AMD_FLAGS ${common_flags})
add_custom_target(emulator_test_kernels DEPENDS ${objects})
add_dependencies(test_emulator emulator_test_kernels)
list(JOIN emulator_targets "," emulator_targets)
target_compile_definitions(test_emulator PRIVATE ROCM_SD_EMULATOR_TARGETS="${emulator_targets}"
                                                 ROCM_SD_EMULATOR_OBJECTS="${PROJECT_BINARY_DIR}/emulator")
# Tests that assemble kernels while they run.
file(GLOB assembling CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/modifiers_test.cpp ${CMAKE_CURRENT_LIST_DIR}/modes_test.cpp
     ${CMAKE_CURRENT_LIST_DIR}/others_test.cpp)
set_source_files_properties(${assembling} PROPERTIES COMPILE_DEFINITIONS "ROCM_SD_AMD_CLANG=\"${ROCM_SD_AMD_CLANG}\"")
