// Layers of the UNet over ranks: two, three and four draw the image that one draws, each with its share of
// the weights.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <functional>

#include "models/unet_layers.hpp"
#include "rocm_sd/multi.hpp"
#include "support/random_ip_adapter.hpp"
#include "support/split_testing.hpp"

namespace rocm_sd {
namespace {

using testing::HasSubstr;
using testing_support::expect_alike;
using testing_support::picture;

const std::string kModel = std::string(ROCM_SD_SOURCE_DIR) + "/models/demo";
const std::string kExamples = std::string(ROCM_SD_SOURCE_DIR) + "/models/demo_examples";

LoadOptions on_ranks(int ranks) { return testing_support::demo_on_ranks(ranks, "pipeline"); }
GenerateRequest request() { return testing_support::odd_request(); }

TEST(LayerSplit, DrawsWhatOneDeviceDraws) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("rocm_sd_layers_" + std::to_string(::getpid()));
  std::vector<std::pair<std::string, GenerateRequest>> cases;
  const auto add = [&](const std::string& what, const std::function<void(GenerateRequest&)>& change) {
    cases.emplace_back(what, request());
    change(cases.back().second);
  };
  add("plain", [](GenerateRequest&) {});
  add("without guidance, a batch", [](GenerateRequest& r) { r.cfg_scale = 1, r.batch = 3; });
  add("a batch", [](GenerateRequest& r) { r.batch = 2, r.sampler = "DPM++ SDE"; });
  add("perturbed", [](GenerateRequest& r) { r.pag_scale = 3, r.batch = 2; });
  add("freeu", [](GenerateRequest& r) { r.freeu = {1.2, 1.3, 0.9, 0.8}; });
  add("edited", [](GenerateRequest& r) { r.prompt = "a [red apple:blue car:0.5]"; });
  add("tiles", [](GenerateRequest& r) { r.width = 96, r.tile_size = 64, r.tile_batch = 2; });
  add("inpainting", [](GenerateRequest& r) { r.init_image = picture(72, 64), r.mask = picture(72, 64); });
  add("lora", [](GenerateRequest& r) { r.loras = {{.file = kExamples + "/dusk_lora.safetensors"}}; });
  add("image prompt", [&](GenerateRequest& r) {
    r.ip_adapters = {
        {.model = testing_support::write_random_ip_adapter(folder, kModel, ImageProjectionKind::kResampler),
         .images = {picture(7, 5)},
         .weight = 0.7}};
  });
  Pipeline alone = Pipeline::load({.model = kModel, .dtype = "f32"});
  std::vector<GenerateResult> want;
  for (const auto& [what, r] : cases) want.push_back(alone.generate(r));
  for (const int ranks : {2, 3}) {
    MultiPipeline together = MultiPipeline::load(on_ranks(ranks));
    for (size_t i = 0; i < cases.size(); ++i)
      expect_alike(together.generate(cases[i].second), want[i],
                   std::to_string(ranks) + " ranks, " + cases[i].first);
  }
  std::filesystem::remove_all(folder);
}

TEST(LayerSplit, EachRankHasItsShareOfTheWeights) {
  Pipeline alone = Pipeline::load({.model = kModel, .dtype = "f32"});
  const MemoryPlan whole = alone.plan(request());
  MultiPipeline together = MultiPipeline::load(on_ranks(4));
  const MemoryPlan plan = together.plans(request()).at(0).plan;
  ASSERT_EQ(plan.devices.size(), 4u);
  for (const DeviceMemory& rank : plan.devices) {
    EXPECT_LT(rank.weights, whole.weights);
    EXPECT_LE(rank.total(), plan.total());
    EXPECT_THAT(rank.parts, HasSubstr("of the UNet"));
  }
}

TEST(LayerSplit, RefusesControlsAndPlaces) {
  MultiPipeline together = MultiPipeline::load(on_ranks(2));
  GenerateRequest controlled = request();
  controlled.controls = {{.model = kExamples + "/canny_adapter", .image = picture(64, 64)}};
  try {
    together.generate(controlled);
    ADD_FAILURE();
  } catch (const UsageError& e) {
    EXPECT_THAT(e.what(), HasSubstr("split: pipeline: does not go with ControlNets"));
  }
  EXPECT_EQ(together.generate(request()).pictures.size(), 1u) << "usable after a bad request";
  LoadOptions placed = on_ranks(2);
  placed.place = "vae=cpu";
  try {
    MultiPipeline::load(placed);
    ADD_FAILURE();
  } catch (const UsageError& e) {
    EXPECT_THAT(e.what(), HasSubstr("devices, place: expected one of them"));
  }
}

}  // namespace
}  // namespace rocm_sd
