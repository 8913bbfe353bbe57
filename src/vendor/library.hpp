// What the vendors' libraries share: how their functions are found, and the error of one that fails.
#pragma once

#include <string>

#include "base/error.hpp"
#include "base/vendor_libraries.hpp"

namespace rocm_sd::vendor {

// A library that is not there, is too old, refuses a problem or fails: names the library, the call and its
// reason.
class LibraryError : public Error {
 public:
  explicit LibraryError(const std::string& message) : Error(ExitCode::kGenerationFailed, message) {}
};

// The library of that product, opened. Throws LibraryError where the loader finds none.
DynamicLibrary open_library(const char* product);
// Its function of that name. Throws LibraryError where it has none.
void* find_function(const DynamicLibrary& library, const char* name);

// "cuBLASLt: cublasLtMatmul: not supported (15)".
[[noreturn]] void throw_failed(const char* product, const char* call, const std::string& reason);

}  // namespace rocm_sd::vendor
