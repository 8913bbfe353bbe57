// Fuzzes GGUF files, whole: metadata, the tensors' list and their places, and blocks of every type.
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "weights/safetensors.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string path = "/dev/shm/fuzz_gguf." + std::to_string(getpid());
  FILE* file = std::fopen(path.c_str(), "wb");
  if (!file || std::fwrite(data, 1, size, file) != size || std::fclose(file) != 0) std::abort();
  try {
    const auto opened = rocm_sd::SafetensorsFile::open(path);
    std::vector<char> values;
    for (const rocm_sd::TensorEntry& entry : opened->entries()) {
      if (entry.bytes != static_cast<uint64_t>(entry.numel()) * rocm_sd::dtype_size(entry.dtype) ||
          entry.stored_bytes() > size)
        __builtin_trap();
      values.resize(entry.bytes);
      opened->read(entry, 0, entry.bytes, values.data());
      // Any part of it is that part of the whole.
      const uint64_t begin = entry.bytes / 3, count = entry.bytes - begin - entry.bytes / 7;
      std::vector<char> part(count);
      opened->read(entry, begin, count, part.data());
      if (std::string_view(part.data(), count) != std::string_view(values.data() + begin, count))
        __builtin_trap();
    }
  } catch (const rocm_sd::Error&) {
  }
  return 0;
}
