# Third-party libraries, all from the system's packages (Debian names in INSTALL.md).
find_package(Threads REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(nlohmann_json 3.10 REQUIRED)

# oneDNN 2.6 (Debian 12) and 3.x both serve; src/kernels/onednn.hpp is the one file that knows the difference.
# ROCM_SD_DNNL_ROOT points at an unpacked oneDNN (include/, lib/) other than the system's.
set(ROCM_SD_DNNL_ROOT "" CACHE PATH "oneDNN installation to prefer over the system's")
if(ROCM_SD_DNNL_ROOT)
  find_path(ROCM_SD_DNNL_INCLUDE dnnl.hpp PATHS ${ROCM_SD_DNNL_ROOT}/include NO_DEFAULT_PATH REQUIRED)
  find_library(ROCM_SD_DNNL_LIBRARY dnnl PATHS ${ROCM_SD_DNNL_ROOT} PATH_SUFFIXES lib lib64 NO_DEFAULT_PATH REQUIRED)
  add_library(rocm_sd_dnnl INTERFACE)
  target_include_directories(rocm_sd_dnnl SYSTEM INTERFACE ${ROCM_SD_DNNL_INCLUDE})
  target_link_libraries(rocm_sd_dnnl INTERFACE ${ROCM_SD_DNNL_LIBRARY})
else()
  find_path(ROCM_SD_DNNL_INCLUDE dnnl.hpp REQUIRED)
  find_library(ROCM_SD_DNNL_LIBRARY dnnl REQUIRED)
  add_library(rocm_sd_dnnl INTERFACE)
  target_include_directories(rocm_sd_dnnl SYSTEM INTERFACE ${ROCM_SD_DNNL_INCLUDE})
  target_link_libraries(rocm_sd_dnnl INTERFACE ${ROCM_SD_DNNL_LIBRARY})
endif()

# LLVM's C interface, for the disassembler of the emulated AMD GPU, which opens the library when it first runs
# (src/emulator/llvm.cpp): 130 MB that nothing else should wait for. ON asks for it wherever it is installed.
option(ROCM_SD_EMULATOR "Build the emulated AMD GPU (needs LLVM 19 with the AMDGPU target)" ON)
if(ROCM_SD_EMULATOR)
  find_path(ROCM_SD_LLVM_INCLUDE llvm-c/Disassembler.h PATHS /usr/lib/llvm-19/include NO_DEFAULT_PATH)
  find_library(ROCM_SD_LLVM_LIBRARY NAMES LLVM-19 LLVM PATHS /usr/lib/llvm-19/lib NO_DEFAULT_PATH)
  if(ROCM_SD_LLVM_INCLUDE AND ROCM_SD_LLVM_LIBRARY)
    add_library(rocm_sd_llvm INTERFACE)
    target_include_directories(rocm_sd_llvm SYSTEM INTERFACE ${ROCM_SD_LLVM_INCLUDE})
  else()
    message(STATUS "LLVM 19 not found (llvm-19-dev): no emulated AMD GPU")
    set(ROCM_SD_EMULATOR OFF)
  endif()
endif()
