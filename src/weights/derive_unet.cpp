#include "weights/derive_unet.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/format.hpp"
#include "weights/name_extent.hpp"

namespace rocm_sd {
namespace {

using nlohmann::json;
using Depths = std::vector<int64_t>;  // transformer layers of each attention of a block; empty: no attention

struct Level {
  int64_t channels = 0;
  int resnets = 0;    // on the way down; one more on the way up
  Depths down, up;    // in the order of running
  int64_t depth = 0;  // the deepest of all
};

// Distilled models whose depths differ within a level, or that keep one residual block of the middle
// (comfy/supported_models.py, SSD1B and Segmind_Vega): finest level first.
struct Irregular {
  std::vector<Depths> down, up;
};
const Irregular kIrregular[] = {
    {{{}, {2, 2}, {4, 4}}, {{}, {2, 1, 1}, {4, 4, 10}}},  // SSD-1B
    {{{}, {1, 1}, {2, 2}}, {{}, {1, 1, 1}, {2, 2, 2}}},   // Vega
};

Depths depths_of(const WeightStore& store, const std::string& block) {
  Depths depths;
  const int attentions = extent(store, block + "attentions.");
  for (int a = 0; a < attentions; ++a)
    depths.push_back(extent(store, fmt::format("{}attentions.{}.transformer_blocks.", block, a)));
  return depths;
}

std::vector<Level> levels_of(const WeightStore& store) {
  const int count = std::max(extent(store, "down_blocks."), extent(store, "up_blocks."));
  require<FormatError>(count >= 1 && count <= 16, store.title(), ": expected 1 to 16 down blocks, found ",
                       count);
  std::vector<Level> levels;
  for (int i = 0; i < count; ++i) {
    const std::string down = fmt::format("down_blocks.{}.", i),
                      up = fmt::format("up_blocks.{}.", count - 1 - i);
    Level level;
    level.down = depths_of(store, down);
    level.up = depths_of(store, up);
    level.resnets = std::max({1, extent(store, down + "resnets."), extent(store, up + "resnets.") - 1,
                              static_cast<int>(level.down.size()), static_cast<int>(level.up.size()) - 1});
    for (const Depths* depths : {&level.down, &level.up})
      for (const int64_t depth : *depths) level.depth = std::max({int64_t{1}, level.depth, depth});
    level.channels = dim_of(store,
                            {down + "resnets.0.conv1.weight", down + "resnets.0.conv2.weight",
                             down + "resnets.0.norm2.weight", up + "resnets.0.conv1.weight"},
                            0, 0);
    require<FormatError>(level.channels > 0, store.title(), ": tensor \"", down,
                         "resnets.0.conv1.weight\" is missing");
    levels.push_back(level);
  }
  return levels;
}

bool is_irregular(const std::vector<Level>& levels) {
  return std::any_of(std::begin(kIrregular), std::end(kIrregular), [&](const Irregular& known) {
    bool same = known.down.size() == levels.size();
    for (size_t i = 0; same && i < levels.size(); ++i)
      same = levels[i].down == known.down[i] && levels[i].up == known.up[i];
    return same;
  });
}

// One number where all are the same, else the list: as the configs on the hub have it.
json uniform(const std::vector<json>& values) {
  for (const json& value : values)
    if (value != values.front()) return values;
  return values.front();
}
json entry(const Depths& depths) {
  return depths.empty() ? json(1) : uniform(std::vector<json>(depths.begin(), depths.end()));
}

json heads_of(const std::vector<Level>& levels, ModelKind kind) {
  if (kind == ModelKind::kSd1) return 8;
  Depths heads;
  for (const Level& level : levels) heads.push_back(std::max<int64_t>(1, level.channels / 64));
  return heads;
}

void add_levels(const WeightStore& store, const std::vector<Level>& levels, json& config) {
  const bool irregular = is_irregular(levels);
  std::vector<std::string> down, up;
  std::vector<json> depths, reversed, resnets;
  Depths channels;
  int64_t deepest_attending = 0;  // of the coarsest level with attention
  for (const Level& level : levels) {
    channels.push_back(level.channels);
    resnets.emplace_back(level.resnets);
    down.push_back(level.depth > 0 ? "CrossAttnDownBlock2D" : "DownBlock2D");
    up.insert(up.begin(), level.depth > 0 ? "CrossAttnUpBlock2D" : "UpBlock2D");
    depths.push_back(irregular ? entry(level.down) : json(std::max<int64_t>(1, level.depth)));
    reversed.insert(reversed.begin(), entry(level.up));
    if (level.depth > 0) deepest_attending = level.depth;
  }
  config["block_out_channels"] = channels;
  config["layers_per_block"] = uniform(resnets);
  config["down_block_types"] = down;
  config["up_block_types"] = up;
  if (irregular && !std::equal(reversed.rbegin(), reversed.rend(), depths.begin()))
    config["reverse_transformer_layers_per_block"] = reversed;

  // A middle block of one residual block, or none, is what some distilled models have.
  const bool attends = has_any(store, "mid_block.attentions."), there = has_any(store, "mid_block.");
  const bool thin = std::all_of(levels.begin(), levels.end(), [](const Level& l) { return l.resnets == 1; });
  if (!there && (thin || irregular))
    config["mid_block_type"] = nullptr;
  else if (there && !attends && irregular && !has_any(store, "mid_block.resnets.1."))
    config["mid_block_type"] = "UNetMidBlock2D";
  // The middle takes its depth from the last entry, so a last level without attention carries the middle's.
  const int64_t middle =
      std::max<int64_t>(extent(store, "mid_block.attentions.0.transformer_blocks."), deepest_attending);
  if (levels.back().depth == 0) depths.back() = std::max<int64_t>(1, middle);
  config["transformer_layers_per_block"] = uniform(depths);
}

}  // namespace

json derive_unet(const WeightStore& store, const DeriveHints& hints) {
  const std::vector<Level> levels = levels_of(store);
  const int64_t sizes[] = {64, hints.upcast_attention ? 96 : 64, 128, 128};
  json config = {{"_class_name", "UNet2DConditionModel"},
                 {"act_fn", "silu"},
                 {"attention_head_dim", heads_of(levels, hints.kind)},
                 {"center_input_sample", false},
                 {"downsample_padding", 1},
                 {"flip_sin_to_cos", true},
                 {"freq_shift", 0},
                 {"in_channels", dim_of(store, {"conv_in.weight"}, 1, 4)},
                 {"mid_block_scale_factor", 1},
                 {"norm_eps", 1e-5},
                 {"norm_num_groups", std::gcd(int64_t{32}, levels.front().channels)},
                 {"out_channels", dim_of(store, {"conv_out.weight"}, 0, 4)},
                 {"sample_size", sizes[static_cast<int>(hints.kind)]}};
  add_levels(store, levels, config);
  if (const int64_t width = cross_attention_width(store)) config["cross_attention_dim"] = width;
  for (const auto& [name, weight] : store.weights())
    if (name.ends_with(".proj_in.weight")) {
      config["use_linear_projection"] = weight.shape.rank() == 2;
      break;
    }
  if (hints.upcast_attention) config["upcast_attention"] = true;
  const bool xl = hints.kind == ModelKind::kSdxl || hints.kind == ModelKind::kSdxlRefiner;
  if (xl || has_any(store, "add_embedding.")) {
    // Sizes and crops, or sizes and a score.
    const int64_t numbers = hints.kind == ModelKind::kSdxlRefiner ? 5 : 6;
    const int64_t inputs =
        dim_of(store, {"add_embedding.linear_1.weight"}, 1, hints.pooled_width + numbers * 256);
    const int64_t rest = inputs - hints.pooled_width;
    const bool divides = hints.pooled_width > 0 && rest > 0 && rest % numbers == 0;
    config["addition_embed_type"] = "text_time";
    config["addition_time_embed_dim"] = divides ? rest / numbers : 256;
    config["projection_class_embeddings_input_dim"] = inputs;
  }
  return config;
}

}  // namespace rocm_sd
