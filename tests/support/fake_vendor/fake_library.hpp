// The stand-in as tests hold it: opened in place of the libraries, asked what it saw.
#pragma once

#include <dlfcn.h>

#include <cstdlib>

#include "support/fake_vendor/fake_vendor.hpp"

namespace rocm_sd::testing_support {

class FakeVendor {
 public:
  // Every vendor's library is this one from here on, in a process that has asked for none yet.
  explicit FakeVendor(const char* file) : handle_(dlopen(file, RTLD_NOW | RTLD_LOCAL)) {
    for (const char* variable :
         {"ROCM_SD_CUBLASLT", "ROCM_SD_HIPBLASLT", "ROCM_SD_ROCBLAS", "ROCM_SD_CUDNN", "ROCM_SD_MIOPEN"})
      setenv(variable, file, 1);
  }
  const char* complaints() const {
    return function<decltype(fake_vendor_complaints)>("fake_vendor_complaints")();
  }
  size_t live() const { return function<decltype(fake_vendor_live)>("fake_vendor_live")(); }
  size_t calls(const char* name) const {
    return function<decltype(fake_vendor_calls)>("fake_vendor_calls")(name);
  }
  void fail(const char* name, int status) const {
    function<decltype(fake_vendor_fail)>("fake_vendor_fail")(name, status);
  }
  void workspace(size_t bytes) const {
    function<decltype(fake_vendor_workspace)>("fake_vendor_workspace")(bytes);
  }
  void queue(void (*queue)(void*, void (*)(void*), void*)) const {
    function<decltype(fake_vendor_queue)>("fake_vendor_queue")(queue);
  }

 private:
  template <class Function>
  Function* function(const char* name) const {
    return reinterpret_cast<Function*>(dlsym(handle_, name));
  }
  void* handle_;
};

}  // namespace rocm_sd::testing_support
