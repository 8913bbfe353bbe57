// Fuzzes what is told from the names and shapes of an upscaler's tensors, and the merging of SPAN's
// convolutions: lines of "name dim dim ..." as a file. It is refused with an error, or is a network whose
// every tensor is there.
#include <cstddef>
#include <cstdint>
#include <sstream>

#include "base/error.hpp"
#include "models/parameters.hpp"
#include "models/upscaler.hpp"
#include "weights/upscaler_weights.hpp"

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
    const auto store =
        rocm_sd::upscaler_of(rocm_sd::TensorSet::of(rocm_sd::SafetensorsFile::of_memory("fuzz", tensors)));
    const rocm_sd::UpscalerConfig config = rocm_sd::upscaler_config(store);
    // A network of the shapes that the names tell; its own size is bounded by what the file names.
    if (config.features > 64 || config.growth > 64 || config.blocks > 64) return 0;
    rocm_sd::UpscalerNet net(config);
    for (const auto& part : rocm_sd::list_parameters(net))
      if (const auto* tensor = store.find(part.name))
        (void)rocm_sd::shapes_compatible(tensor->shape, part.shape);
  } catch (const rocm_sd::Error&) {
  }
  return 0;
}
