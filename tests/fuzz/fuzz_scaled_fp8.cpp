// Fuzzes what stands beside ComfyUI's weights in fp8. The input: four bytes (the weight's type, the factor's,
// the mark's shape, what is left out), a factor of four bytes, then the JSON of a layer's format, or, behind
// a NUL byte, of the metadata. It is an error, or the weight has a factor that is finite and above 0.
#include <unistd.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "weights/name_map.hpp"
#include "weights/tensor_set.hpp"

namespace {

using rocm_sd::DType;

std::vector<rocm_sd::NamedTensor> named(const rocm_sd::TensorSet& set, std::string_view prefix) {
  std::vector<rocm_sd::NamedTensor> out;
  for (const rocm_sd::TensorRef& ref : set.tensors())
    if (ref.entry->name.starts_with(prefix))
      out.push_back({std::string_view(ref.entry->name).substr(prefix.size()), ref});
  return out;
}

// Through a file: that is where metadata comes from.
rocm_sd::TensorSet with_metadata(const std::vector<rocm_sd::MemoryTensor>& tensors,
                                 const std::string& metadata) {
  static const std::string path =
      (std::filesystem::temp_directory_path() / ("rocm_sd_fuzz_fp8_" + std::to_string(getpid()))).string();
  std::vector<rocm_sd::TensorToWrite> written;
  for (const rocm_sd::MemoryTensor& tensor : tensors)
    written.push_back(
        {tensor.name, tensor.dtype, tensor.shape, [&](uint64_t offset, uint64_t bytes, void* to) {
           std::memcpy(to, static_cast<const char*>(tensor.data) + offset, bytes);
         }});
  rocm_sd::write_safetensors(path, std::move(written), {{"_quantization_metadata", metadata}});
  return rocm_sd::TensorSet::open(path);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 8) return 0;
  constexpr DType kTypes[] = {DType::kF8E4M3, DType::kF8E5M2, DType::kF16,
                              DType::kU8,     DType::kI8,     DType::kF32};
  const std::string text(reinterpret_cast<const char*>(data) + 8, size - 8);
  const size_t cut = std::min(text.find('\0'), text.size());
  const std::string format = text.substr(0, cut), metadata = cut < text.size() ? text.substr(cut + 1) : "";
  float factor[2] = {};  // of the largest shape
  std::memcpy(factor, data + 4, 4);
  std::vector<rocm_sd::MemoryTensor> tensors;
  const auto add = [&](std::string name, DType type, const rocm_sd::Shape& shape, const void* from) {
    tensors.push_back({std::move(name), type, shape, from});
  };
  static const std::vector<char> zeros(64);
  const int left_out = data[3];
  const bool newer = left_out & 1;
  add("p.l.weight", kTypes[data[0] % std::size(kTypes)], {2, 3}, zeros.data());
  if ((left_out & 2) == 0)
    add(newer ? "p.l.weight_scale" : "p.l.scale_weight", kTypes[data[1] % std::size(kTypes)],
        data[1] & 64   ? rocm_sd::Shape{1}
        : data[1] & 32 ? rocm_sd::Shape{}
                       : rocm_sd::Shape{2},
        data[1] & 16 ? static_cast<const void*>(zeros.data()) : static_cast<const void*>(factor));
  if ((left_out & 4) == 0 && !format.empty())
    add("p.l.comfy_quant", data[2] & 32 ? DType::kI8 : DType::kU8, {static_cast<int64_t>(format.size())},
        format.data());
  if ((left_out & 8) == 0)
    add(left_out & 16 ? "p.scaled_fp8" : "p.l.scale_input", kTypes[data[2] % std::size(kTypes)],
        {data[2] % 4}, zeros.data());
  if (left_out & 32) add("p.l.weight_scale_2", DType::kF32, {1}, zeros.data());
  try {
    const rocm_sd::TensorSet set =
        metadata.empty() ? rocm_sd::TensorSet::of(rocm_sd::SafetensorsFile::of_memory("fuzz", tensors))
                         : with_metadata(tensors, metadata);
    const auto mapped =
        rocm_sd::map_names(rocm_sd::Component::kUnet, rocm_sd::NameStyle::kDiffusers, named(set, "p."));
    for (const auto& [name, weight] : mapped.weights)
      if (!(std::isfinite(weight.scale) && weight.scale > 0)) std::abort();
  } catch (const rocm_sd::Error&) {
  } catch (const nlohmann::json::exception&) {  // write_safetensors refuses metadata that is no UTF-8 so
  }
  return 0;
}
