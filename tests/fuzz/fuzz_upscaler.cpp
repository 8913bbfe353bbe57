// Fuzzes what is told from the names and shapes of an upscaler's tensors, and the merging of SPAN's
// convolutions: lines of "name dim dim ..." as a file. It is refused with an error, or describes a
// network, which is made and compared with the tensors without a fault.
#include <cstddef>
#include <cstdint>

#include "base/error.hpp"
#include "models/parameters.hpp"
#include "models/upscaler.hpp"
#include "tensor_lines.hpp"
#include "weights/upscaler_weights.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto tensors = rocm_sd::tensors_of_lines(data, size);
  try {
    const auto store =
        rocm_sd::upscaler_of(rocm_sd::TensorSet::of(rocm_sd::SafetensorsFile::of_memory("fuzz", tensors)));
    const rocm_sd::UpscalerConfig config = rocm_sd::upscaler_config(store);
    // A network of the shapes that the names tell; its own size is bounded by what the file names.
    if (config.features > 64 || config.growth > 64 || config.blocks > 64 || config.swin.hidden > 512)
      return 0;
    rocm_sd::UpscalerNet net(config);
    for (const auto& part : rocm_sd::list_parameters(net))
      if (const auto* tensor = store.find(part.name))
        (void)rocm_sd::shapes_compatible(tensor->shape, part.shape);
  } catch (const rocm_sd::Error&) {
  }
  return 0;
}
