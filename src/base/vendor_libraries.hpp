// The GPU vendors' libraries that the engine knows: what they are called, and where they are looked for.
#pragma once

#include <initializer_list>
#include <span>
#include <string_view>

#include "base/dynamic_library.hpp"

namespace rocm_sd {

struct VendorLibrary {
  const char* product;                       // "hipBLASLt"
  const char* variable;                      // "ROCM_SD_HIPBLASLT": a file to open in place of those below
  const char* function;                      // that every version of it has
  std::initializer_list<const char*> names;  // newest first: the loader takes the first that is there
};

// HIP runtime, rocBLAS, hipBLASLt, MIOpen, RCCL, CUDA driver, cuBLASLt, cuDNN, NCCL.
std::span<const VendorLibrary> vendor_libraries();
// Throws InternalError where there is no such product.
const VendorLibrary& vendor_library(std::string_view product);

// Opens what the variable names, else the first of the names that the loader finds.
DynamicLibrary open_vendor_library(const VendorLibrary& library);

}  // namespace rocm_sd
