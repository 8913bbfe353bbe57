#include "vendor/library.hpp"

namespace rocm_sd::vendor {

DynamicLibrary open_library(const char* product) {
  DynamicLibrary library = open_vendor_library(vendor_library(product));
  require<LibraryError>(static_cast<bool>(library), product, ": ", library.problem());
  return library;
}

void* find_function(const DynamicLibrary& library, const char* name) {
  void* const function = library.symbol(name);
  require<LibraryError>(function != nullptr, library.name(), " has no function ", name);
  return function;
}

void throw_failed(const char* product, const char* call, const std::string& reason) {
  throw LibraryError(concat(product, ": ", call, ": ", reason));
}

}  // namespace rocm_sd::vendor
