// The layers of a UNet in the order of running, for ranks of which each has some of them (pipeline
// parallelism): which parameters are whose, how they are divided, and the sizes of the maps between them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/configs.hpp"
#include "models/parameters.hpp"

namespace rocm_sd {

struct UNetLayer {
  enum class Kind { kConvIn, kDown, kDownsample, kMid, kUp, kUpsample, kConvOut };
  Kind kind = Kind::kConvIn;
  size_t block = 0, index = 0;         // index: of a resnet, whose attention goes with it
  std::optional<size_t> takes, gives;  // numbers of skip connections; conv_in gives number 0
  std::vector<std::string> prefixes;   // of its parameters' names
};
std::vector<UNetLayer> unet_layers(const UNetConfig& config);

// Layers [begin, end).
struct LayerRange {
  size_t begin = 0, end = SIZE_MAX;
  bool has(size_t layer) const { return layer >= begin && layer < end; }
  bool all() const { return begin == 0 && end == SIZE_MAX; }
  friend bool operator==(const LayerRange&, const LayerRange&) = default;
};

// A range for each rank, in their order: those whose largest has the fewest parameters. Throws UsageError for
// more ranks than layers.
std::vector<LayerRange> divide_layers(const UNetConfig& config, int ranks);

// The parameters of these layers. Time embedding and time projections are everybody's.
SlotFilter parameters_of(const std::vector<UNetLayer>& layers, const LayerRange& range);

struct MapSize {
  int64_t height = 0, width = 0, channels = 0;
};
// What each layer reads (the first: latents), and every skip, for latents of that size.
struct UNetMaps {
  std::vector<MapSize> read, skips;
};
UNetMaps unet_maps(const UNetConfig& config, const std::vector<UNetLayer>& layers, int64_t height,
                   int64_t width);

}  // namespace rocm_sd
