#include "models/configs.hpp"

#include <algorithm>

namespace rocm_sd {

int64_t UNetConfig::context_width() const {
  if (mid && !mid->transformer_layers.empty()) return mid->context_width;
  for (const auto* blocks : {&down, &up})
    for (const UNetBlockConfig& block : *blocks)
      if (!block.transformer_layers.empty()) return block.context_width;
  return 0;
}

namespace configs {
namespace {

// A UNet whose way up mirrors its way down. transformers[i]: blocks after each resnet of resolution i, 0
// where there is no attention.
struct SymmetricUNet {
  std::vector<int64_t> channels;
  std::vector<int> transformers;
  int mid_transformers = 1;
  std::vector<int64_t> heads;
  int64_t context_width = 768;
  int resnets = 2;
};

UNetConfig symmetric(const SymmetricUNet& row, int64_t in_channels) {
  UNetConfig config;
  config.in_channels = in_channels;
  config.time_width = 4 * row.channels.front();
  const size_t count = row.channels.size();
  for (size_t i = 0; i < count; ++i) {
    UNetBlockConfig block{.channels = row.channels[i],
                          .resnets = row.resnets,
                          .heads = row.heads[i],
                          .context_width = row.context_width,
                          .resamples = i + 1 < count};
    const auto transformers = [&](int resnets) {
      return row.transformers[i] ? std::vector<int>(static_cast<size_t>(resnets), row.transformers[i])
                                 : std::vector<int>();
    };
    block.transformer_layers = transformers(row.resnets);
    config.down.push_back(block);
    block.resnets = row.resnets + 1;
    block.transformer_layers = transformers(block.resnets);
    block.resamples = i > 0;
    config.up.insert(config.up.begin(), block);
  }
  config.mid = UNetMidConfig{{row.mid_transformers}, row.heads.back(), row.context_width};
  return config;
}

}  // namespace

ClipConfig clip_l() { return {}; }

ClipConfig openclip_h() {
  return {.width = 1024, .heads = 16, .mlp_width = 4096, .layers = 23, .activation = Activation::kGelu};
}

ClipConfig openclip_bigg() {
  return {.width = 1280,
          .heads = 20,
          .mlp_width = 5120,
          .layers = 32,
          .activation = Activation::kGelu,
          .projection = 1280};
}

ClipVisionConfig vision_h() { return {}; }

ClipVisionConfig vision_bigg() {
  return {.width = 1664, .heads = 16, .mlp_width = 8192, .layers = 48, .projection = 1280};
}

UNetConfig unet_sd1(int64_t in_channels) {
  return symmetric({.channels = {320, 640, 1280, 1280},
                    .transformers = {1, 1, 1, 0},
                    .heads = {8, 8, 8, 8},
                    .context_width = 768},
                   in_channels);
}

UNetConfig unet_sd2(int64_t in_channels) {
  return symmetric({.channels = {320, 640, 1280, 1280},
                    .transformers = {1, 1, 1, 0},
                    .heads = {5, 10, 20, 20},
                    .context_width = 1024},
                   in_channels);
}

UNetConfig unet_sdxl(int64_t in_channels) {
  UNetConfig config = symmetric({.channels = {320, 640, 1280},
                                 .transformers = {0, 2, 10},
                                 .mid_transformers = 10,
                                 .heads = {5, 10, 20},
                                 .context_width = 2048},
                                in_channels);
  config.added_time_width = 256;
  config.added_width = 1280 + 6 * 256;
  return config;
}

UNetConfig unet_sdxl_refiner() {
  UNetConfig config = symmetric({.channels = {384, 768, 1536, 1536},
                                 .transformers = {0, 4, 4, 0},
                                 .mid_transformers = 4,
                                 .heads = {6, 12, 24, 24},
                                 .context_width = 1280},
                                4);
  config.added_time_width = 256;
  config.added_width = 1280 + 5 * 256;
  return config;
}

VaeConfig vae_sd() { return {}; }

VaeConfig vae_sdxl() { return {.scaling_factor = 0.13025}; }

TaesdConfig taesd() { return {}; }

}  // namespace configs
}  // namespace rocm_sd
