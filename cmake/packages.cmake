# Debian packages of the installed tree: `cpack -G DEB` in the build folder, or `make packages` (docs/howto/packages.md).
# One package for each component of install.cmake. Dependencies are those of the libraries that the programs name.
set(packaging ${PROJECT_SOURCE_DIR}/packaging)
# Only in packages: a unit of the system's service manager has no place below a prefix of one's own.
install(FILES ${packaging}/systemd/rocm-sd.service DESTINATION lib/systemd/system COMPONENT runtime EXCLUDE_FROM_ALL)
install(FILES ${packaging}/systemd/rocm-sd.default DESTINATION /etc/default RENAME rocm-sd COMPONENT runtime EXCLUDE_FROM_ALL)
install(FILES ${PROJECT_SOURCE_DIR}/docs/howto/server.md ${PROJECT_SOURCE_DIR}/docs/reference/command-line.md
        DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/rocm-sd COMPONENT runtime EXCLUDE_FROM_ALL)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/rocm-sd RENAME copyright
        COMPONENT runtime EXCLUDE_FROM_ALL)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/models/demo ${PROJECT_SOURCE_DIR}/models/demo_examples
        DESTINATION ${CMAKE_INSTALL_DATADIR}/rocm-sd/models COMPONENT demo EXCLUDE_FROM_ALL)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME rocm-sd)
set(CPACK_PACKAGE_VENDOR "The rocm-sd authors")
set(CPACK_PACKAGE_CONTACT "The rocm-sd authors")
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Stable Diffusion engine for AMD GPUs, NVIDIA GPUs and CPUs")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_OUTPUT_FILE_PREFIX ${PROJECT_BINARY_DIR}/packages)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL runtime dev demo)
if(ROCM_SD_TARGETS)
  list(APPEND CPACK_COMPONENTS_ALL kernels)
endif()

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_SECTION graphics)
set(CPACK_DEBIAN_ENABLE_COMPONENT_DEPENDS OFF)

set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME rocm-sd)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_DEPENDS passwd)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_RECOMMENDS rocm-sd-kernels)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SUGGESTS "rocm-sd-demo, libllvm19")
set(CPACK_COMPONENT_RUNTIME_DESCRIPTION "The program rocm-sd, the library librocm_sd and the service rocm-sd.
Draws images from texts with Stable Diffusion 1.x, 2.x and XL, on the command line and over HTTP.")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_CONTROL_EXTRA ${packaging}/debian/postinst ${packaging}/debian/prerm
                                               ${packaging}/debian/postrm ${packaging}/debian/conffiles
                                               ${packaging}/debian/triggers)

set(CPACK_DEBIAN_KERNELS_PACKAGE_NAME rocm-sd-kernels)
set(CPACK_DEBIAN_KERNELS_PACKAGE_DEPENDS "rocm-sd (= ${PROJECT_VERSION})")
string(REPLACE ";" ", " targets "${ROCM_SD_TARGETS}")
set(CPACK_COMPONENT_KERNELS_DESCRIPTION "GPU kernels of rocm-sd for ${targets}.
Without them rocm-sd draws on the CPU.")

set(CPACK_DEBIAN_DEV_PACKAGE_NAME rocm-sd-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "rocm-sd (= ${PROJECT_VERSION})")
set(CPACK_COMPONENT_DEV_DESCRIPTION "Headers, CMake packages and pkg-config files of librocm_sd.
The interfaces of the engine in C and C++, and the templates of its GPU kernels.")

set(CPACK_DEBIAN_DEMO_PACKAGE_NAME rocm-sd-demo)
set(CPACK_DEBIAN_DEMO_PACKAGE_ARCHITECTURE all)
set(CPACK_COMPONENT_DEMO_DESCRIPTION "A small model to try rocm-sd with.
Also a LoRA, an embedding and a T2I-Adapter for it, below /usr/share/rocm-sd/models.")
include(CPack)
