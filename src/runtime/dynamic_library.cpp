#include "runtime/dynamic_library.hpp"

#include <dlfcn.h>

namespace rocm_sd {

DynamicLibrary::DynamicLibrary(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    handle_ = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (handle_) {
      name_ = name;
      problem_.clear();
      return;
    }
    const char* reason = dlerror();
    if (problem_.empty()) problem_ = reason ? reason : "cannot be opened";
  }
}

void* DynamicLibrary::symbol(const char* name) const { return handle_ ? dlsym(handle_, name) : nullptr; }

}  // namespace rocm_sd
