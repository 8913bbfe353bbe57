// Fuzzes the safetensors header: the first two bytes give the size of the data section, the rest is the
// header's text.
#include <cstddef>
#include <cstdint>

#include "base/error.hpp"
#include "weights/safetensors.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const uint64_t data_bytes = data[0] | static_cast<uint64_t>(data[1]) << 8;
  try {
    const rocm_sd::SafetensorsHeader header = rocm_sd::parse_safetensors_header(
        {reinterpret_cast<const char*>(data) + 2, size - 2}, data_bytes, "fuzz");
    // What was accepted must cover the data section exactly, in order.
    uint64_t position = 0;
    for (const rocm_sd::TensorEntry& entry : header.entries) {
      const auto elements = static_cast<uint64_t>(entry.numel());
      if (entry.begin != position || entry.bytes != elements * rocm_sd::dtype_size(entry.dtype))
        __builtin_trap();
      position += entry.bytes;
    }
    if (position != data_bytes) __builtin_trap();
  } catch (const rocm_sd::Error&) {
  }
  return 0;
}
