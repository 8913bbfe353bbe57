// What a code object (ELF made by clang for AMD, by nvcc for NVIDIA) says about its kernels.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace rocm_sd {

struct CodeObjectKernel {
  std::string name;
  uint32_t params = 0;     // bytes of arguments; AMD: those the compiler added included
  uint32_t lds = 0;        // bytes of LDS that the kernel declares
  uint32_t scratch = 0;    // bytes of scratch per lane (spills and arrays in memory)
  uint32_t registers = 0;  // vector registers per lane; 0 where the object does not say it plainly
};

// The kernels of one object, sorted by name. Throws std::runtime_error, naming `what`, where the bytes are no
// such object, lie about their own sizes, or hold no kernel.
std::vector<CodeObjectKernel> kernels_of_code_object(std::string_view bytes, const std::string& what);

}  // namespace rocm_sd
