// config.json of Diffusers and transformers: known models give their rows, unusual ones their structure, and
// hostile ones an error that names the field.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "models/clip.hpp"
#include "models/configs.hpp"
#include "models/taesd.hpp"
#include "models/unet.hpp"
#include "models/vae.hpp"

namespace rocm_sd {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

json sd15_unet() {
  return json::parse(
      R"({"_class_name": "UNet2DConditionModel", "_diffusers_version": "0.6.0", "act_fn": "silu",
    "attention_head_dim": 8, "block_out_channels": [320, 640, 1280, 1280], "center_input_sample": false,
    "cross_attention_dim": 768, "down_block_types": ["CrossAttnDownBlock2D", "CrossAttnDownBlock2D",
    "CrossAttnDownBlock2D", "DownBlock2D"], "downsample_padding": 1, "flip_sin_to_cos": true, "freq_shift": 0,
    "in_channels": 4, "layers_per_block": 2, "mid_block_scale_factor": 1, "norm_eps": 1e-05,
    "norm_num_groups": 32, "out_channels": 4, "sample_size": 64, "up_block_types": ["UpBlock2D",
    "CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"]})");
}

json sdxl_unet() {
  json j = sd15_unet();
  j.update(json::parse(R"({"addition_embed_type": "text_time", "addition_time_embed_dim": 256,
    "attention_head_dim": [5, 10, 20], "block_out_channels": [320, 640, 1280], "cross_attention_dim": 2048,
    "down_block_types": ["DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"],
    "mid_block_type": "UNetMidBlock2DCrossAttn", "projection_class_embeddings_input_dim": 2816,
    "transformer_layers_per_block": [1, 2, 10], "up_block_types": ["CrossAttnUpBlock2D", "CrossAttnUpBlock2D",
    "UpBlock2D"], "upcast_attention": null, "use_linear_projection": true, "num_attention_heads": null,
    "class_embed_type": null, "dual_cross_attention": false, "time_embedding_type": "positional"})"));
  return j;
}

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const FormatError& e) {
    return e.what();
  }
  return "no FormatError";
}
std::string unet_error(const json& j) {
  return error_of([&] { unet_config(j, "unet/config.json"); });
}

TEST(UNetConfigJson, KnownModelsGiveTheirRows) {
  EXPECT_EQ(count_parameters(UNet(unet_config(sd15_unet(), "x"))), 859'520'964);
  EXPECT_EQ(count_parameters(UNet(unet_config(sdxl_unet(), "x"))), 2'567'463'684);
  const UNetConfig sdxl = unet_config(sdxl_unet(), "x");
  EXPECT_EQ(sdxl.up[0].heads, 20);
  EXPECT_EQ(sdxl.up[2].transformer_layers.size(), 0u);
  EXPECT_EQ(sdxl.down[0].heads, 5);
  EXPECT_EQ(sdxl.added_width, 2816);
}

TEST(UNetConfigJson, DistilledModels) {
  json j = sdxl_unet();  // as SSD-1B: lists per resnet, and no attention in the middle
  j["transformer_layers_per_block"] = json::parse("[0, [2, 2], [4, 4]]");
  j["reverse_transformer_layers_per_block"] = json::parse("[[4, 4, 10], [2, 1, 1], 1]");
  j["mid_block_type"] = "UNetMidBlock2D";
  const UNetConfig ssd = unet_config(j, "x");
  EXPECT_EQ(ssd.down[2].transformer_layers, (std::vector<int>{4, 4}));
  EXPECT_EQ(ssd.up[0].transformer_layers, (std::vector<int>{4, 4, 10}));
  EXPECT_EQ(ssd.up[1].transformer_layers, (std::vector<int>{2, 1, 1}));
  ASSERT_TRUE(ssd.mid.has_value());
  EXPECT_TRUE(ssd.mid->transformer_layers.empty());
  EXPECT_EQ(count_parameters(UNet(ssd)), 1'331'334'404);  // as Diffusers counts it

  j = sd15_unet();  // as tiny-sd: no middle block
  j["mid_block_type"] = nullptr;
  EXPECT_FALSE(unet_config(j, "x").mid.has_value());
  j.erase("mid_block_type");
  EXPECT_EQ(unet_config(j, "x").mid->transformer_layers, (std::vector<int>{1}));

  j["layers_per_block"] = json::parse("[1, 2, 1, 3]");
  j["num_attention_heads"] = 4;  // wins over attention_head_dim
  j["only_cross_attention"] = json::parse("[true, false, false, true]");
  j["time_cond_proj_dim"] = 256;
  const UNetConfig odd = unet_config(j, "x");
  EXPECT_EQ(odd.up[0].resnets, 4);
  EXPECT_EQ(odd.up[3].resnets, 2);
  EXPECT_EQ(odd.down[1].heads, 4);
  EXPECT_TRUE(odd.up[3].only_cross_attention);
  EXPECT_EQ(odd.time_cond_width, 256);
}

TEST(UNetConfigJson, HostileValuesAreNamed) {
  const auto with = [](const char* field, const json& value) {
    json j = sd15_unet();
    j[field] = value;
    return unet_error(j);
  };
  EXPECT_THAT(with("attention_head_dim", 0),
              AllOf(HasSubstr("unet/config.json: attention_head_dim: expected"), HasSubstr("got 0")));
  EXPECT_THAT(with("attention_head_dim", 7), HasSubstr("attention_head_dim: expected a number of heads"));
  EXPECT_THAT(with("layers_per_block", 1000000), HasSubstr("layers_per_block: expected an integer 1..16"));
  EXPECT_THAT(with("layers_per_block", -1), HasSubstr("layers_per_block"));
  EXPECT_THAT(
      with("block_out_channels", json::parse("[320, 640, 1280, 1281]")),
      AllOf(HasSubstr("block_out_channels: expected multiples of norm_num_groups (32)"), HasSubstr("1281")));
  EXPECT_THAT(with("block_out_channels", json::array()), HasSubstr("block_out_channels"));
  EXPECT_THAT(with("block_out_channels", json(std::vector<int>(1000000, 32))),
              HasSubstr("block_out_channels"));
  EXPECT_THAT(with("block_out_channels", json(std::vector<int>(9, 32))), HasSubstr("at most 8"));
  EXPECT_THAT(with("cross_attention_dim", "768"),
              AllOf(HasSubstr("cross_attention_dim"), HasSubstr("\"768\"")));
  EXPECT_THAT(with("cross_attention_dim", 768.5), HasSubstr("cross_attention_dim"));
  EXPECT_THAT(with("in_channels", true), HasSubstr("in_channels: expected an integer"));
  EXPECT_THAT(with("in_channels", 18446744073709551615ull), HasSubstr("in_channels"));
  EXPECT_THAT(with("norm_num_groups", nullptr), HasSubstr("norm_num_groups"));
  EXPECT_THAT(with("norm_num_groups", 0), HasSubstr("norm_num_groups"));
  EXPECT_THAT(with("norm_eps", "x"), HasSubstr("norm_eps: expected a number"));
  EXPECT_THAT(with("transformer_layers_per_block", 1000000), HasSubstr("transformer_layers_per_block"));
  for (const char* field : {"transformer_layers_per_block", "reverse_transformer_layers_per_block"})
    EXPECT_THAT(with(field, 0), HasSubstr(concat(field, ": expected an integer 1..64")));
  EXPECT_THAT(with("transformer_layers_per_block", json::parse("[[1], 1, 1, 1]")),
              HasSubstr("transformer_layers_per_block: expected an integer 1..64, or a list of 2"));
  json deep = sd15_unet();
  deep["layers_per_block"] = 16;
  deep["transformer_layers_per_block"] = 64;
  EXPECT_THAT(unet_error(deep), HasSubstr("at most 1024 transformer blocks in all"));
  EXPECT_THAT(with("transformer_layers_per_block", json::parse("[1, 1]")), HasSubstr("or a list of 4"));
  EXPECT_THAT(with("transformer_layers_per_block", json::parse("[[[1], 1], 1, 1, 1]")),
              HasSubstr("transformer_layers_per_block"));
  EXPECT_THAT(with("down_block_types", json::parse(R"(["A\u001b[2J"])")),
              AllOf(HasSubstr("down_block_types"), testing::Not(HasSubstr("\x1b"))));
  EXPECT_THAT(with("down_block_types", 3), HasSubstr("down_block_types"));
  EXPECT_THAT(with("flip_sin_to_cos", 1), HasSubstr("flip_sin_to_cos: expected true or false"));
  EXPECT_THAT(with("_class_name", "FluxTransformer2DModel"), HasSubstr("UNet2DConditionModel"));
  EXPECT_THAT(unet_error(json::array()), HasSubstr("expected a JSON object"));
  EXPECT_THAT(unet_error(json("text")), HasSubstr("expected a JSON object"));
}

TEST(UNetConfigJson, RefusesWhatIsNotImplemented) {
  const std::vector<std::pair<const char*, json>> options = {
      {"class_embed_type", "timestep"},
      {"num_class_embeds", 10},
      {"encoder_hid_dim", 1024},
      {"addition_embed_type", "image"},
      {"dual_cross_attention", true},
      {"resnet_time_scale_shift", "scale_shift"},
      {"time_embedding_type", "fourier"},
      {"act_fn", "mish"},
      {"mid_block_scale_factor", 1.41},
      {"mid_block_type", "UNetMidBlock2DSimpleCrossAttn"},
      {"downsample_padding", 0},
      {"attention_type", "gated"},
      {"cross_attention_norm", "layer_norm"},
      {"class_embeddings_concat", true},
      {"an_option_of_the_future", 1},
  };
  for (const auto& [field, value] : options) {
    json j = sd15_unet();
    j[field] = value;
    EXPECT_THAT(unet_error(j), AllOf(HasSubstr(field), HasSubstr("implemented"))) << field;
  }
  json j = sd15_unet();
  j["an_option_of_the_future"] = false;  // switched off
  EXPECT_EQ(unet_error(j), "no FormatError");
}

TEST(VaeConfigJson, ReadsAndRefuses) {
  const json sd =
      json::parse(R"({"_class_name": "AutoencoderKL", "act_fn": "silu", "block_out_channels": [128,
    256, 512, 512], "down_block_types": ["DownEncoderBlock2D", "DownEncoderBlock2D", "DownEncoderBlock2D",
    "DownEncoderBlock2D"], "in_channels": 3, "latent_channels": 4, "layers_per_block": 2, "norm_num_groups": 32,
    "out_channels": 3, "sample_size": 512, "scaling_factor": 0.13025, "up_block_types": ["UpDecoderBlock2D",
    "UpDecoderBlock2D", "UpDecoderBlock2D", "UpDecoderBlock2D"]})");
  const VaeConfig config = vae_config(sd, "vae");
  EXPECT_EQ(count_parameters(VaeDecoder(config)), 49'490'199);
  EXPECT_DOUBLE_EQ(config.scaling_factor, 0.13025);
  EXPECT_EQ(config.downscale(), 8);
  const auto with = [&](const char* field, const json& value) {
    json j = sd;
    j[field] = value;
    return error_of([&] { vae_config(j, "vae/config.json"); });
  };
  EXPECT_THAT(with("latents_mean", json::parse("[0, 0, 0]")), HasSubstr("latents_mean"));
  EXPECT_THAT(with("latents_std", json::parse("[1, 0, 1, 1]")), HasSubstr("latents_std"));
  EXPECT_THAT(with("scaling_factor", 0), HasSubstr("scaling_factor"));
  EXPECT_THAT(with("scaling_factor", "0.1"), HasSubstr("scaling_factor"));
  EXPECT_THAT(with("in_channels", 4), HasSubstr("in_channels"));
  EXPECT_THAT(with("up_block_types", json::parse(R"(["AttnUpDecoderBlock2D"])")),
              HasSubstr("up_block_types"));
  EXPECT_THAT(with("layers_per_block", json::parse("[2, 2]")), HasSubstr("layers_per_block"));
  EXPECT_EQ(with("use_quant_conv", false), "no FormatError");
}

TEST(TaesdConfigJson, ReadsAndRefuses) {
  const json defaults = json::parse(R"({"_class_name": "AutoencoderTiny"})");
  EXPECT_EQ(count_parameters(TaesdDecoder(taesd_config(defaults, "x"))), 1'222'531);
  const auto with = [&](const char* field, const json& value) {
    json j = defaults;
    j[field] = value;
    return error_of([&] { taesd_config(j, "taesd"); });
  };
  EXPECT_THAT(with("decoder_block_out_channels", json::parse("[64, 32, 64, 64]")), HasSubstr("one width"));
  EXPECT_THAT(with("num_decoder_blocks", json::parse("[1]")), HasSubstr("num_decoder_blocks"));
  EXPECT_THAT(with("upsampling_scaling_factor", 4), HasSubstr("upsampling_scaling_factor"));
  EXPECT_THAT(with("act_fn", "gelu"), HasSubstr("act_fn"));
}

TEST(ClipConfigJson, ReadsAndRefuses) {
  const json l =
      json::parse(R"({"architectures": ["CLIPTextModel"], "eos_token_id": 2, "hidden_act": "quick_gelu",
    "hidden_size": 768, "intermediate_size": 3072, "layer_norm_eps": 1e-05, "max_position_embeddings": 77,
    "num_attention_heads": 12, "num_hidden_layers": 12, "projection_dim": 768, "vocab_size": 49408,
    "torch_dtype": "float32"})");
  EXPECT_EQ(count_parameters(ClipTextModel(clip_config(l, "x"))), 123'060'480);
  json projected = l;
  projected["architectures"] = {"CLIPTextModelWithProjection"};
  EXPECT_EQ(clip_config(projected, "x").projection, 768);
  const auto with = [&](const char* field, const json& value) {
    json j = l;
    j[field] = value;
    return error_of([&] { clip_config(j, "text_encoder/config.json"); });
  };
  EXPECT_THAT(with("num_attention_heads", 0), HasSubstr("num_attention_heads"));
  EXPECT_THAT(with("num_attention_heads", 7), HasSubstr("divides hidden_size"));
  EXPECT_THAT(with("num_hidden_layers", 1000000), HasSubstr("num_hidden_layers"));
  EXPECT_THAT(with("hidden_act", "relu"), HasSubstr("hidden_act"));
  EXPECT_THAT(with("hidden_act", 5), HasSubstr("hidden_act"));
  EXPECT_THAT(with("architectures", json::parse(R"(["T5EncoderModel"])")), HasSubstr("architectures"));
  EXPECT_THAT(with("vocab_size", "49408"), HasSubstr("vocab_size"));
}

}  // namespace
}  // namespace rocm_sd
