// What the names and shapes of a SwinIR tell of it.
#include "base/error.hpp"
#include "models/swinir.hpp"
#include "weights/name_extent.hpp"
#include "weights/swinir_weights.hpp"

namespace rocm_sd {
namespace {

constexpr int kMaxLayers = 32, kMaxDepth = 64;
constexpr int64_t kMaxWindow = 16;  // masks take its fourth power

// Groups of layers and the blocks of each.
std::vector<int> depths_of(const WeightStore& store) {
  const int layers = extent(store, "layers.");
  require<FormatError>(layers >= 1 && layers <= kMaxLayers, store.title(), ": expected a SwinIR of 1 to ",
                       kMaxLayers, " groups of layers, found ", layers);
  std::vector<int> depths;
  for (int i = 0; i < layers; ++i) {
    const int depth = extent(store, concat("layers.", i, ".blocks."));
    require<FormatError>(depth >= 1 && depth <= kMaxDepth, store.title(), ": layers.", i, ": expected 1 to ",
                         kMaxDepth, " blocks, found ", depth);
    depths.push_back(depth);
  }
  return depths;
}

// The convolutions of "upsample.", each of which makes squares of 2 x 2 pixels, or one of 3 x 3.
void check_shuffles(const WeightStore& store, SwinConfig& config) {
  const int convs = (extent(store, "upsample.") + 1) / 2;
  for (int i = 0; i < convs; ++i) {
    const std::string name = concat("upsample.", 2 * i, ".weight");
    const int64_t out = dim_of(store, {name}, 0, 0), in = dim_of(store, {name}, 1, 0);
    if (convs == 1 && in > 0 && out == 9 * in) config.tripled = 3;
    require<FormatError>(in > 0 && (out == 4 * in || config.tripled == 3), store.title(), ": ", name,
                         ": expected 4 times as many outputs as inputs (or 9 times, in a single one), got ",
                         out, " and ", in);
  }
}

}  // namespace

SwinConfig swin_config(const WeightStore& store) {
  const std::string first = "layers.0.blocks.0.", table = first + "attn.positions.weight";
  SwinConfig config{.depths = depths_of(store)};
  const int64_t width = dim_of(store, {"conv_first.weight"}, 0, 0),
                in = dim_of(store, {"conv_first.weight"}, 1, 0);
  config.heads = dim_of(store, {table}, 1, 0);
  config.window = window_side(dim_of(store, {table}, 0, 0));
  config.hidden = dim_of(store, {first + "mlp.fc1.weight"}, 0, 0);
  require<FormatError>(in == 3, store.title(), ": conv_first.weight: expected 3 input channels, got ", in);
  require<FormatError>(config.window >= 2 && config.window <= kMaxWindow, store.title(), ": ", table,
                       ": expected (2 w - 1)^2 rows for windows of 2 to ", kMaxWindow, " pixels, got ",
                       store.shape(table));
  require<FormatError>(
      config.heads > 0 && width > 0 && width % config.heads == 0 && width % 4 == 0 && config.hidden > 0,
      store.title(), ": expected a SwinIR, found ", width, " features, ", config.heads, " heads and ",
      config.hidden, " hidden features");
  config.three_convs = has_any(store, "conv_after_body.2.");
  config.embed_norm = has_any(store, "patch_embed.norm.");
  config.features = dim_of(store, {"conv_before_upsample.0.weight"}, 0, 0);
  if (has_any(store, "conv_up1.")) {
    config.upsampler = SwinUpsampler::kNearest;
  } else if (config.features > 0) {
    config.upsampler = SwinUpsampler::kShuffle;
    check_shuffles(store, config);
  } else {
    config.upsampler = has_any(store, "upsample.") ? SwinUpsampler::kDirectShuffle : SwinUpsampler::kNone;
  }
  return config;
}

}  // namespace rocm_sd
