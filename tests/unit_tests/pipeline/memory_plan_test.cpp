// The memory plan against what a run of the demo model took, in bytes.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "rocm_sd/pipeline.hpp"

namespace rocm_sd {
namespace {

TEST(MemoryPlans, HoldWithinTwoPercent) {
  for (const char* dtype : {"f32", "bf16"}) {
    LoadOptions options;
    options.model = std::string(ROCM_SD_SOURCE_DIR) + "/models/demo";
    options.dtype = dtype;
    for (const auto& [width, height, batch] : {std::tuple{128, 128, 1}, {64, 200, 1}, {128, 64, 3}}) {
      Pipeline pipeline = Pipeline::load(options);  // arena_used is the most of a pipeline's life
      GenerateRequest request;
      request.prompt = "a red apple";
      request.steps = 1;
      request.width = width;
      request.height = height;
      request.batch = batch;
      const MemoryPlan plan = pipeline.plan(request);
      EXPECT_EQ(plan.arena, std::max({plan.text, plan.unet, plan.vae}));
      EXPECT_GT(plan.arena, 1'000'000u);
      const uint64_t used = pipeline.generate(request).arena_used;
      EXPECT_LE(used, plan.arena) << dtype << ' ' << width << 'x' << height << " batch " << batch;
      EXPECT_GE(static_cast<double>(used), 0.98 * static_cast<double>(plan.arena))
          << dtype << ' ' << width << 'x' << height << " batch " << batch;
    }
  }
}

// Nobody has to ask for the plan beforehand.
TEST(MemoryPlans, AreToldOnceBeforeTheFirstStage) {
  LoadOptions options;
  options.model = std::string(ROCM_SD_SOURCE_DIR) + "/models/demo";
  GenerateRequest request;
  request.prompt = "a red apple";
  request.steps = 1;
  request.width = request.height = 64;
  std::vector<std::string> events;
  MemoryPlan told;
  Callbacks callbacks;
  callbacks.planned = [&](const MemoryPlan& plan) {
    events.emplace_back("plan");
    told = plan;
  };
  callbacks.progress = [&](const Progress& p) {
    if (events.empty() || events.back() != p.stage) events.push_back(p.stage);
    return true;
  };
  Pipeline pipeline = Pipeline::load(options);
  const MemoryPlan asked = pipeline.plan(request);
  const GenerateResult result = pipeline.generate(request, callbacks);
  EXPECT_EQ(events, (std::vector<std::string>{"plan", "text", "sample", "decode"}));
  for (const MemoryPlan& plan : {told, result.plan}) {
    EXPECT_EQ(plan.total(), asked.total());
    EXPECT_EQ(plan.arena, asked.arena);
    EXPECT_EQ(plan.weights, asked.weights);
  }
}

}  // namespace
}  // namespace rocm_sd
