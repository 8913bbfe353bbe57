// Fuzzes .npy files: what is accepted has the bytes that its shape says.
#include <cstddef>
#include <cstdint>

#include "base/error.hpp"
#include "base/npy.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const rocm_sd::NpyArray array = rocm_sd::parse_npy(std::as_bytes(std::span(data, size)), "fuzz");
    uint64_t bytes = array.type.bytes;
    for (const uint64_t n : array.shape) bytes *= n;
    if (bytes != array.data.size()) __builtin_trap();
  } catch (const rocm_sd::Error&) {
  }
  return 0;
}
