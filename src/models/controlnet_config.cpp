// A ControlNet's configuration: a UNet's way down, and what is its own.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "models/config_fields.hpp"
#include "models/controlnet.hpp"

namespace rocm_sd {
namespace {

constexpr int64_t kMaxChannels = 16384;
constexpr size_t kMaxHintWidths = 8;
constexpr int64_t kMaxTypes = 64, kMaxMixerLayers = 64;

// The way up that a UNet with these down blocks has, so that the rules of UNets apply.
nlohmann::json mirrored(const nlohmann::json& down) {
  nlohmann::json up = nlohmann::json::array();
  if (!down.is_array()) return up;
  for (auto it = down.rbegin(); it != down.rend(); ++it)
    up.push_back(it->is_string() && it->get<std::string>().find("CrossAttn") != std::string::npos
                     ? "CrossAttnUpBlock2D"
                     : "UpBlock2D");
  return up;
}

// Of a union ControlNet; an ordinary one has none of these fields.
std::optional<ControlMixerConfig> mixer_config(ConfigFields& f) {
  const int64_t types = f.integer("num_control_type", 0, 0, kMaxTypes);
  if (types == 0) return std::nullopt;
  ControlMixerConfig mixer;
  mixer.types = types;
  mixer.channels = f.integer("num_trans_channel", 320, 1, kMaxChannels);
  mixer.layers = f.integer("num_trans_layer", 1, 0, kMaxMixerLayers);
  mixer.type_width = f.integer("addition_time_embed_dim", 256, 1, kMaxChannels);
  const int64_t out = f.integer("num_proj_channel", mixer.channels, 1, kMaxChannels);
  f.check(out == mixer.channels, "num_proj_channel", "expected num_trans_channel (", mixer.channels,
          "), got ", out);
  return mixer;
}

}  // namespace

ControlNetConfig controlnet_config(const nlohmann::json& json, std::string_view what) {
  ConfigFields f(json, what);
  f.require_class({"ControlNetModel", "ControlNetUnionModel", "ControlNetModel_Union"});
  ControlNetConfig config;
  config.mixer = mixer_config(f);
  if (config.mixer) config.hint_widths = {48, 96, 192, 384};
  config.hint_channels = f.integer("conditioning_channels", 3, 3, 3);
  config.hint_widths = f.integers("conditioning_embedding_out_channels", config.hint_widths, 1, kMaxChannels);
  f.check(config.hint_widths.size() <= kMaxHintWidths, "conditioning_embedding_out_channels",
          "expected at most ", kMaxHintWidths, " widths, got ", config.hint_widths.size());
  const std::string order = f.text("controlnet_conditioning_channel_order", "rgb");
  if (order != "rgb" && order != "bgr") f.fail("controlnet_conditioning_channel_order", "rgb or bgr", order);
  config.bgr = order == "bgr";
  config.pools = f.boolean("global_pool_conditions", false);
  nlohmann::json trunk = json;
  for (const char* own :
       {"conditioning_channels", "conditioning_embedding_out_channels",
        "controlnet_conditioning_channel_order", "global_pool_conditions", "num_control_type",
        "num_trans_channel", "num_trans_head", "num_trans_layer", "num_proj_channel"})
    trunk.erase(own);
  trunk["_class_name"] = "UNet2DConditionModel";
  if (const auto down = trunk.find("down_block_types"); down != trunk.end() && !down->is_null())
    trunk["up_block_types"] = mirrored(*down);
  trunk["reverse_transformer_layers_per_block"] = 1;  // of the way up, which goes again
  if (config.mixer && !trunk.contains("addition_embed_type")) trunk.erase("addition_time_embed_dim");
  config.trunk = unet_config(trunk, what);
  if (config.mixer) {
    config.mixer->time_width = config.trunk.time_width;
    config.mixer->timestep = config.trunk.timestep;
    f.check(config.mixer->channels == config.trunk.down.front().channels, "num_trans_channel",
            "expected the first level's ", config.trunk.down.front().channels, " channels, got ",
            config.mixer->channels);
  }
  config.trunk.up.clear();
  return config;
}

}  // namespace rocm_sd
