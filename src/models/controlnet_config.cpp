// A ControlNet's configuration: a UNet's way down, and what is its own.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "models/config_fields.hpp"
#include "models/controlnet.hpp"

namespace rocm_sd {
namespace {

constexpr int64_t kMaxChannels = 16384;
constexpr size_t kMaxHintWidths = 8;

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

}  // namespace

ControlNetConfig controlnet_config(const nlohmann::json& json, std::string_view what) {
  ConfigFields f(json, what);
  f.require_class({"ControlNetModel"});
  ControlNetConfig config;
  config.hint_channels = f.integer("conditioning_channels", 3, 3, 3);
  config.hint_widths = f.integers("conditioning_embedding_out_channels", config.hint_widths, 1, kMaxChannels);
  f.check(config.hint_widths.size() <= kMaxHintWidths, "conditioning_embedding_out_channels",
          "expected at most ", kMaxHintWidths, " widths, got ", config.hint_widths.size());
  const std::string order = f.text("controlnet_conditioning_channel_order", "rgb");
  if (order != "rgb" && order != "bgr") f.fail("controlnet_conditioning_channel_order", "rgb or bgr", order);
  config.bgr = order == "bgr";
  config.pools = f.boolean("global_pool_conditions", false);
  nlohmann::json trunk = json;
  for (const char* own : {"conditioning_channels", "conditioning_embedding_out_channels",
                          "controlnet_conditioning_channel_order", "global_pool_conditions"})
    trunk.erase(own);
  trunk["_class_name"] = "UNet2DConditionModel";
  if (const auto down = trunk.find("down_block_types"); down != trunk.end() && !down->is_null())
    trunk["up_block_types"] = mirrored(*down);
  trunk["reverse_transformer_layers_per_block"] = 1;  // of the way up, which goes again
  config.trunk = unet_config(trunk, what);
  config.trunk.up.clear();
  return config;
}

}  // namespace rocm_sd
