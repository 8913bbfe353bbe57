// Fuzzes what is told from the names and shapes of a checkpoint's tensors: lines of "name dim dim ..." as a
// single file. Whatever stands there, the file opens and is whole, or an error says what is wrong.
#include <cstddef>
#include <cstdint>

#include "base/error.hpp"
#include "models/completeness.hpp"
#include "tensor_lines.hpp"
#include "weights/checkpoint.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto tensors = rocm_sd::tensors_of_lines(data, size);
  try {
    const auto file = rocm_sd::SafetensorsFile::of_memory("fuzz", tensors);
    rocm_sd::require_complete(rocm_sd::Checkpoint::open(rocm_sd::TensorSet::of(file)));
  } catch (const rocm_sd::Error&) {
  }
  return 0;
}
