// Tensors as a fuzzer writes them: lines of "name dim dim ...", of f16 zeros.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

#include "weights/safetensors.hpp"

namespace rocm_sd {

inline std::vector<MemoryTensor> tensors_of_lines(const uint8_t* data, size_t size) {
  static const std::vector<char> zeros(1 << 16);
  std::vector<MemoryTensor> tensors;
  std::istringstream lines(std::string(reinterpret_cast<const char*>(data), std::min<size_t>(size, 1 << 14)));
  for (std::string line; std::getline(lines, line) && tensors.size() < 400;) {
    std::istringstream words(line);
    MemoryTensor tensor{.dtype = DType::kF16, .data = zeros.data()};
    words >> tensor.name;
    std::vector<int64_t> dims;
    int64_t elements = 1;
    for (int64_t dim; dims.size() < 4 && words >> dim && dim > 0 && dim <= 4096 / elements;) {
      dims.push_back(dim);
      elements *= dim;
    }
    tensor.shape = Shape(std::span<const int64_t>(dims));
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

}  // namespace rocm_sd
