// Fuzzes what is told from the names and shapes of a checkpoint's tensors: lines of "name dim dim ..." as a
// single file. Whatever stands there, the file opens and is whole, or an error says what is wrong.
#include <cstddef>
#include <cstdint>
#include <sstream>

#include "base/error.hpp"
#include "models/completeness.hpp"
#include "weights/checkpoint.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::vector<char> zeros(1 << 16);
  std::vector<rocm_sd::MemoryTensor> tensors;
  std::istringstream lines(std::string(reinterpret_cast<const char*>(data), std::min<size_t>(size, 1 << 14)));
  for (std::string line; std::getline(lines, line) && tensors.size() < 400;) {
    std::istringstream words(line);
    rocm_sd::MemoryTensor tensor{.dtype = rocm_sd::DType::kF16, .data = zeros.data()};
    words >> tensor.name;
    std::vector<int64_t> dims;
    int64_t elements = 1;
    for (int64_t dim; dims.size() < 4 && words >> dim && dim > 0 && dim <= 4096 / elements;) {
      dims.push_back(dim);
      elements *= dim;
    }
    tensor.shape = rocm_sd::Shape(std::span<const int64_t>(dims));
    tensors.push_back(std::move(tensor));
  }
  try {
    const auto file = rocm_sd::SafetensorsFile::of_memory("fuzz", tensors);
    rocm_sd::require_complete(rocm_sd::Checkpoint::open(rocm_sd::TensorSet::of(file)));
  } catch (const rocm_sd::Error&) {
  }
  return 0;
}
