#include "base/dynamic_library.hpp"

#include <dlfcn.h>

#include <cstdlib>

namespace rocm_sd {

DynamicLibrary::DynamicLibrary(std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (open(name)) return;
}

DynamicLibrary DynamicLibrary::chosen_by(const char* variable, std::initializer_list<const char*> names) {
  const char* set = std::getenv(variable);
  return set && *set ? DynamicLibrary({set}) : DynamicLibrary(names);
}

bool DynamicLibrary::open(const char* name) {
  handle_ = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (handle_) {
    name_ = name;
    problem_.clear();
    return true;
  }
  const char* reason = dlerror();
  if (problem_.empty()) problem_ = reason ? reason : "cannot be opened";
  return false;
}

void DynamicLibrary::make_global() const {
  if (handle_) dlopen(name_.c_str(), RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL);
}

void* DynamicLibrary::symbol(const char* name) const { return handle_ ? dlsym(handle_, name) : nullptr; }

}  // namespace rocm_sd
