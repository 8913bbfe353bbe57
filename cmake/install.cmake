# What `cmake --install` puts in place: the program, one shared library with the C and C++ interfaces, the public headers,
# a CMake package and a pkg-config file, the kernel archives (archs.cmake), the shipped files. A prefix may be moved: nothing
# installed holds a path of the machine that built it (tests/integration_tests/test_install.py).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

if(TARGET rocm_sd_pipeline)
  # The objects of the pipeline and of scaling hold every public symbol; what they call comes from the static modules below.
  # Only public names leave the library, so that a program may link another version of anything inside.
  add_library(rocm_sd SHARED $<TARGET_OBJECTS:rocm_sd_pipeline> $<TARGET_OBJECTS:rocm_sd_scaling>)
  add_library(rocm_sd::rocm_sd ALIAS rocm_sd)
  target_link_libraries(rocm_sd PRIVATE rocm_sd_scaling)
  target_include_directories(rocm_sd INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                                               $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_compile_features(rocm_sd INTERFACE cxx_std_17)
  target_link_options(rocm_sd PRIVATE "LINKER:--version-script=${PROJECT_SOURCE_DIR}/cmake/rocm_sd.map")
  set_target_properties(rocm_sd PROPERTIES VERSION ${PROJECT_VERSION} LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/rocm_sd.map
                                           SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  install(TARGETS rocm_sd EXPORT rocm_sd_targets
          LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime NAMELINK_COMPONENT dev)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/rocm_sd DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT dev)

  set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/rocm_sd)
  install(EXPORT rocm_sd_targets NAMESPACE rocm_sd:: FILE rocm_sdConfig.cmake DESTINATION ${package_dir} COMPONENT dev)
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/rocm_sdConfigVersion.cmake COMPATIBILITY SameMinorVersion)
  install(FILES ${PROJECT_BINARY_DIR}/rocm_sdConfigVersion.cmake DESTINATION ${package_dir} COMPONENT dev)

  configure_file(${PROJECT_SOURCE_DIR}/cmake/rocm_sd.pc.in ${PROJECT_BINARY_DIR}/rocm_sd.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/rocm_sd.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT dev)
endif()

# The Python package has the engine beside its operators, under one name: a wheel holds no symbolic links; and the program.
if(SKBUILD AND TARGET rocm_sd AND TARGET rocm_sd_python)
  add_dependencies(rocm_sd_python rocm_sd rocm-sd)
  install(TARGETS rocm-sd RUNTIME DESTINATION rocm_sd_ops/bin COMPONENT python)
  install(FILES $<TARGET_FILE:rocm_sd> DESTINATION rocm_sd_ops/lib RENAME librocm_sd.so COMPONENT python)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/share/ DESTINATION rocm_sd_ops/share COMPONENT python)
endif()

# The templates for a user's own .hip files: -I<prefix>/include/rocm_sd, docs/reference/templates.md.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/src/composable_kernels DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/rocm_sd COMPONENT dev
        FILES_MATCHING PATTERN "*.hpp")

# Everything that the programs read when they run, found relative to themselves (src/base/paths.hpp): vocabularies, the
# font of labels, tables of tuned choices, what the emulator counted in the kernels. And what they owe to others.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/share/ DESTINATION ${CMAKE_INSTALL_DATADIR}/rocm-sd COMPONENT runtime
        PATTERN published EXCLUDE)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/NOTICE ${PROJECT_SOURCE_DIR}/CHANGELOG.md
        DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/rocm-sd COMPONENT runtime)

# The kernels without the engine: a C interface alone (include/rocm_sd/kernels.h).
if(TARGET rocm_sd_kernel_library)
  add_library(rocm_sd_kernels_shared SHARED $<TARGET_OBJECTS:rocm_sd_kernel_library>)
  add_library(rocm_sd::kernels ALIAS rocm_sd_kernels_shared)
  target_link_libraries(rocm_sd_kernels_shared PRIVATE rocm_sd_kernel_library)
  target_include_directories(rocm_sd_kernels_shared INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                                                              $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_options(rocm_sd_kernels_shared PRIVATE
                      "LINKER:--version-script=${PROJECT_SOURCE_DIR}/cmake/rocm_sd_kernels.map")
  set_target_properties(rocm_sd_kernels_shared PROPERTIES OUTPUT_NAME rocm_sd_kernels EXPORT_NAME kernels
                        LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/rocm_sd_kernels.map VERSION ${PROJECT_VERSION}
                        SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  install(TARGETS rocm_sd_kernels_shared EXPORT rocm_sd_kernels_targets
          LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime NAMELINK_COMPONENT dev)
  install(FILES ${PROJECT_SOURCE_DIR}/include/rocm_sd/kernels.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/rocm_sd COMPONENT dev)

  set(kernels_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/rocm_sd_kernels)
  install(EXPORT rocm_sd_kernels_targets NAMESPACE rocm_sd:: FILE rocm_sd_kernelsConfig.cmake
          DESTINATION ${kernels_package_dir} COMPONENT dev)
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/rocm_sd_kernelsConfigVersion.cmake
                                   COMPATIBILITY SameMinorVersion)
  install(FILES ${PROJECT_BINARY_DIR}/rocm_sd_kernelsConfigVersion.cmake DESTINATION ${kernels_package_dir} COMPONENT dev)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/rocm_sd_kernels.pc.in ${PROJECT_BINARY_DIR}/rocm_sd_kernels.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/rocm_sd_kernels.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT dev)
endif()

if(TARGET rocm-sd)
  install(TARGETS rocm-sd RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT runtime)
endif()

if(NOT SKBUILD)
  include(packages)
endif()
