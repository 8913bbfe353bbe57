// How much attention each pixel of the middle block gets: what self-attention guidance looks at (Hong et al.,
// "Improving Sample Quality of Diffusion Models Using Self-Attention Guidance", 2022).
#include <algorithm>

#include "models/controlnet.hpp"
#include "models/unet.hpp"

namespace rocm_sd {
namespace {

struct BandCount {
  int64_t keys, head_dim, bands;
};

BandCount bands_of(int64_t width, int64_t heads, int64_t keys) {
  const int64_t head_dim = width / heads;
  return {keys, head_dim, (keys + head_dim - 1) / head_dim};
}

}  // namespace

std::optional<size_t> UNet::middle_self_attention() const {
  const auto found = std::ranges::find(middle_layers_, true);
  if (found == middle_layers_.end()) return std::nullopt;
  return static_cast<size_t>(found - middle_layers_.begin());
}

int64_t UNet::middle_level() const {
  return std::ranges::count_if(config_.down, &UNetBlockConfig::resamples);
}

AttentionReceived UNet::make_received(Device& device, int64_t images, int64_t height, int64_t width) const {
  require<UsageError>(middle_self_attention().has_value(),
                      "sag-scale: this model's UNet has no self attention in a middle block");
  const int64_t keys = halved(height, middle_level()) * halved(width, middle_level());
  const int64_t channels = config_.down.back().channels, heads = config_.mid->heads;
  const BandCount count = bands_of(channels, heads, keys);
  AttentionReceived out;
  out.images = images;
  out.row_of_ones = (count.bands - 1) * count.head_dim;
  const int64_t rows = out.row_of_ones + std::max(keys, count.head_dim);
  std::vector<float> values(static_cast<size_t>(rows * channels), 0.0f);
  for (int64_t d = 0; d < count.head_dim; ++d)
    for (int64_t head = 0; head < heads; ++head)
      values[static_cast<size_t>((out.row_of_ones + d) * channels + head * count.head_dim + d)] = 1;
  out.selector = tensor_from(device, {1, rows, channels}, values.data());
  out.means = make_tensor(device, {images * count.bands, channels}, DType::kF32);
  return out;
}

std::vector<std::vector<float>> UNet::attention_sums(Device& device, const AttentionReceived& received,
                                                     int64_t height, int64_t width) const {
  const int64_t keys = halved(height, middle_level()) * halved(width, middle_level());
  const int64_t channels = config_.down.back().channels, heads = config_.mid->heads;
  const BandCount count = bands_of(channels, heads, keys);
  const std::vector<float> means = to_floats(device, received.means);  // [images,bands,heads,head_dim]
  std::vector<std::vector<float>> out;
  for (int64_t image = 0; image < received.images; ++image) {
    std::vector<float>& sums = out.emplace_back();
    for (int64_t key = 0; key < keys; ++key) {
      const int64_t row = image * count.bands + key / count.head_dim;
      double sum = 0;
      for (int64_t head = 0; head < heads; ++head)
        sum += means[static_cast<size_t>(row * channels + head * count.head_dim + key % count.head_dim)];
      sums.push_back(static_cast<float>(sum / static_cast<double>(heads) * static_cast<double>(keys)));
    }
  }
  return out;
}

}  // namespace rocm_sd
