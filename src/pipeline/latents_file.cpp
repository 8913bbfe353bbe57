#include "pipeline/latents_file.hpp"

#include <cstring>

#include "base/error.hpp"
#include "weights/safetensors.hpp"

namespace rocm_sd {
namespace {

constexpr const char* kName = "latents";
constexpr int64_t kChannels = 4, kMaxSide = 4096, kMaxImages = 64;

}  // namespace

Latents load_latents(const std::string& path) {
  const auto file = SafetensorsFile::open(path);
  const TensorEntry* entry = file->find(kName);
  require<FormatError>(entry != nullptr, printable(path), ": no tensor \"", kName, "\"");
  const Shape& shape = entry->shape;
  const bool fits = entry->dtype == DType::kF32 && shape.rank() == 4 && shape[1] == kChannels &&
                    shape[0] > 0 && shape[0] <= kMaxImages && shape[2] > 0 && shape[2] <= kMaxSide &&
                    shape[3] > 0 && shape[3] <= kMaxSide;
  require<FormatError>(fits, printable(path), ": ", kName,
                       ": expected [N,4,height/8,width/8] f32 of at most ", kMaxImages, " images, got ",
                       shape, " ", entry->dtype);
  Latents out{shape[0], shape[2], shape[3], std::vector<float>(static_cast<size_t>(shape.numel()))};
  file->read(*entry, 0, entry->bytes, out.values.data());
  return out;
}

void save_latents(const std::string& path, const Latents& latents) {
  const auto fill = [&](uint64_t offset, uint64_t bytes, void* to) {
    std::memcpy(to, reinterpret_cast<const char*>(latents.values.data()) + offset, bytes);
  };
  write_safetensors(
      path, {{kName, DType::kF32, Shape{latents.images, kChannels, latents.height, latents.width}, fill}},
      {});
}

}  // namespace rocm_sd
