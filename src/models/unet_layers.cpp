#include "models/unet_layers.hpp"

#include <algorithm>
#include <limits>

#include "models/unet.hpp"

namespace rocm_sd {
namespace {

using Kind = UNetLayer::Kind;

bool starts_with_any(const std::string& name, const std::vector<std::string>& prefixes) {
  return std::ranges::any_of(prefixes, [&](const std::string& p) { return name.starts_with(p); });
}

bool is_shared(const std::string& name) { return name.find(".time_emb_proj.") != name.npos; }

std::vector<int64_t> parameters_by_layer(const UNetConfig& config, const std::vector<UNetLayer>& layers) {
  std::vector<int64_t> out(layers.size());
  for (const ParameterSlot::Part& part : list_parameters(UNet(config)))
    for (size_t i = 0; i < layers.size() && !is_shared(part.name); ++i)
      if (starts_with_any(part.name, layers[i].prefixes)) out[i] += part.shape.numel();
  return out;
}

}  // namespace

std::vector<UNetLayer> unet_layers(const UNetConfig& config) {
  std::vector<UNetLayer> out = {{.kind = Kind::kConvIn, .gives = 0, .prefixes = {"conv_in."}}};
  size_t skips = 1;
  const auto add_resnets = [&](Kind kind, size_t block, const std::string& name, int count) {
    for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
      UNetLayer layer{.kind = kind, .block = block, .index = i};
      layer.prefixes = {concat(name, ".resnets.", i, "."), concat(name, ".attentions.", i, ".")};
      if (kind == Kind::kDown) layer.gives = skips++;
      if (kind == Kind::kUp) layer.takes = --skips;
      out.push_back(std::move(layer));
    }
  };
  for (size_t b = 0; b < config.down.size(); ++b) {
    const std::string name = concat("down_blocks.", b);
    add_resnets(Kind::kDown, b, name, config.down[b].resnets);
    if (config.down[b].resamples)
      out.push_back(
          {.kind = Kind::kDownsample, .block = b, .gives = skips++, .prefixes = {name + ".downsamplers."}});
  }
  if (config.mid) out.push_back({.kind = Kind::kMid, .prefixes = {"mid_block."}});
  for (size_t b = 0; b < config.up.size(); ++b) {
    const std::string name = concat("up_blocks.", b);
    add_resnets(Kind::kUp, b, name, config.up[b].resnets);
    if (config.up[b].resamples)
      out.push_back({.kind = Kind::kUpsample, .block = b, .prefixes = {name + ".upsamplers."}});
  }
  out.push_back({.kind = Kind::kConvOut, .prefixes = {"conv_norm_out.", "conv_out."}});
  return out;
}

std::vector<LayerRange> divide_layers(const UNetConfig& config, int ranks) {
  const std::vector<UNetLayer> layers = unet_layers(config);
  const size_t count = layers.size(), parts = static_cast<size_t>(ranks);
  require<UsageError>(count >= parts, "split: pipeline: the UNet has ", count, " layers, which ", ranks,
                      " devices cannot divide");
  std::vector<int64_t> before(count + 1);  // parameters of the layers before
  const std::vector<int64_t> own = parameters_by_layer(config, layers);
  for (size_t i = 0; i < count; ++i) before[i + 1] = before[i] + own[i];
  // least[p][i]: of the first i layers in p ranges the largest range; from[p][i]: where the last one begins.
  constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  std::vector<std::vector<int64_t>> least(parts + 1, std::vector<int64_t>(count + 1, kNone));
  std::vector<std::vector<size_t>> from(parts + 1, std::vector<size_t>(count + 1));
  least[0][0] = 0;
  for (size_t p = 1; p <= parts; ++p)
    for (size_t i = p; i <= count; ++i)
      for (size_t j = p - 1; j < i; ++j) {
        const int64_t largest = std::max(least[p - 1][j], before[i] - before[j]);
        if (largest >= least[p][i]) continue;
        least[p][i] = largest;
        from[p][i] = j;
      }
  std::vector<LayerRange> out(parts);
  for (size_t p = parts, end = count; p > 0; --p) {
    out[p - 1] = {from[p][end], end};
    end = out[p - 1].begin;
  }
  return out;
}

SlotFilter parameters_of(const std::vector<UNetLayer>& layers, const LayerRange& range) {
  std::vector<std::string> others;
  for (size_t i = 0; i < layers.size(); ++i)
    if (!range.has(i)) others.insert(others.end(), layers[i].prefixes.begin(), layers[i].prefixes.end());
  return [others = std::move(others)](const ParameterSlot& slot) {
    const std::string& name = slot.parts.front().name;
    return is_shared(name) || !starts_with_any(name, others);
  };
}

UNetMaps unet_maps(const UNetConfig& config, const std::vector<UNetLayer>& layers, int64_t height,
                   int64_t width) {
  UNetMaps out;
  MapSize map{height, width, config.in_channels};
  size_t skips_left = 0;
  for (const UNetLayer& layer : layers) {
    out.read.push_back(map);
    switch (layer.kind) {
      case Kind::kConvIn: map.channels = config.down.front().channels; break;
      case Kind::kDown: map.channels = config.down[layer.block].channels; break;
      case Kind::kDownsample: map = {(map.height + 1) / 2, (map.width + 1) / 2, map.channels}; break;
      case Kind::kMid: break;
      case Kind::kUp: map.channels = config.up[layer.block].channels; break;
      case Kind::kUpsample:  // to the size of the skip that comes next
        map = {out.skips[skips_left - 1].height, out.skips[skips_left - 1].width, map.channels};
        break;
      case Kind::kConvOut: map.channels = config.out_channels; break;
    }
    if (layer.gives) out.skips.push_back(map), skips_left = out.skips.size();
    if (layer.takes) skips_left = *layer.takes;
  }
  return out;
}

}  // namespace rocm_sd
