// Config rows: parameter counts against the published ones, by the visitor alone, without memory for weights.
#include "models/configs.hpp"

#include <gtest/gtest.h>

#include "models/clip.hpp"
#include "models/taesd.hpp"
#include "models/unet.hpp"
#include "models/vae.hpp"

namespace rocm_sd {
namespace {

TEST(ConfigRows, UNetParameterCounts) {
  EXPECT_EQ(count_parameters(UNet(configs::unet_sd1())), 859'520'964);
  EXPECT_EQ(count_parameters(UNet(configs::unet_sd1(9))), 859'520'964 + 5 * 9 * 320);
  EXPECT_EQ(count_parameters(UNet(configs::unet_sd1(8))), 859'520'964 + 4 * 9 * 320);
  EXPECT_EQ(count_parameters(UNet(configs::unet_sd2())), 865'910'724);
  EXPECT_EQ(count_parameters(UNet(configs::unet_sdxl())), 2'567'463'684);
  EXPECT_EQ(count_parameters(UNet(configs::unet_sdxl_refiner())), 2'259'526'660);
}

TEST(ConfigRows, TextEncoderParameterCounts) {
  EXPECT_EQ(count_parameters(ClipTextModel(configs::clip_l())), 123'060'480);
  EXPECT_EQ(count_parameters(ClipTextModel(configs::openclip_h())), 340'387'840);
  EXPECT_EQ(count_parameters(ClipTextModel(configs::openclip_bigg())), 694'659'840);
}

TEST(ConfigRows, VaeParameterCounts) {
  EXPECT_EQ(count_parameters(VaeDecoder(configs::vae_sd())), 49'490'199);
  EXPECT_EQ(
      count_parameters(VaeDecoder(configs::vae_sdxl())) + count_parameters(VaeEncoder(configs::vae_sdxl())),
      83'653'863);
  EXPECT_EQ(count_parameters(TaesdDecoder(configs::taesd())), 1'222'531);
  EXPECT_EQ(count_parameters(TaesdEncoder(configs::taesd())), 1'222'532);
}

TEST(ConfigRows, NamesAndShapesOfTheCheckpoint) {
  std::map<std::string, Shape> shapes;
  for (const ParameterSlot::Part& part : list_parameters(UNet(configs::unet_sd1())))
    EXPECT_TRUE(shapes.emplace(part.name, part.shape).second) << part.name << " twice";
  EXPECT_EQ(shapes.size(), 686u);  // tensors of unet/diffusion_pytorch_model.safetensors
  EXPECT_EQ(shapes.at("up_blocks.3.resnets.2.conv_shortcut.weight"), (Shape{320, 640, 1, 1}));
  EXPECT_EQ(shapes.at("down_blocks.1.resnets.0.time_emb_proj.weight"), (Shape{640, 1280}));
  EXPECT_EQ(shapes.at("mid_block.attentions.0.transformer_blocks.0.attn2.to_k.weight"), (Shape{1280, 768}));
  EXPECT_EQ(shapes.at("down_blocks.0.attentions.1.transformer_blocks.0.ff.net.0.proj.bias"), (Shape{2560}));
  EXPECT_EQ(shapes.at("time_embedding.linear_1.weight"), (Shape{1280, 320}));
}

TEST(ConfigRows, WidthsOfTheText) {
  EXPECT_EQ(configs::unet_sd1().context_width(), 768);
  EXPECT_EQ(configs::unet_sd2().context_width(), 1024);
  EXPECT_EQ(configs::unet_sdxl().context_width(), 2048);
  EXPECT_EQ(configs::unet_sdxl_refiner().context_width(), 1280);
}

}  // namespace
}  // namespace rocm_sd
