// Plans of ranks: the bytes and messages of every rank are those that its view of the hub counts while the
// ranks draw, in every split, of even and uneven rows.
#include "analysis/rank_plan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/json.hpp"
#include "kernels/select.hpp"
#include "rocm_sd/multi.hpp"

namespace rocm_sd {
namespace {

const std::string kModel = std::string(ROCM_SD_SOURCE_DIR) + "/models/demo";

KnownModel demo() {
  return {.name = "demo",
          .unet = unet_config(parse_json_file(kModel + "/unet/config.json"), "unet"),
          .vae = vae_config(parse_json_file(kModel + "/vae/config.json"), "vae"),
          .encoders = {}};
}

std::vector<RankPlan> plans(const PictureShape& shape, int steps, Division division, int ranks) {
  // The references lay no weight out.
  const ForcedImpl linear("linear", "ref"), conv("conv2d", "ref"), attention("attention", "ref");
  return plan_ranks(host_device(), host_device(), demo(), shape, steps, DType::kF32, division, ranks);
}

struct Case {
  std::string split;
  Division division;
  int ranks, width, height, batch, steps;
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.split << ' ' << c.ranks << ' ' << c.width << 'x' << c.height << " batch " << c.batch;
}

class RankPlanBytes : public testing::TestWithParam<Case> {};

TEST_P(RankPlanBytes, AreThoseThatTheHubCounts) {
  const Case& c = GetParam();
  LoadOptions options{.model = kModel, .devices = "cpu", .split = c.split, .dtype = "f32"};
  for (int i = 1; i < c.ranks; ++i) options.devices += ",cpu";
  MultiPipeline together = MultiPipeline::load(options);
  GenerateRequest request;
  request.prompt = "a red apple";
  request.width = c.width;
  request.height = c.height;
  request.batch = c.batch;
  request.steps = c.steps;
  request.sampler = "Euler";  // one call of the UNet a step
  request.seed = 3;
  together.generate(request);
  request.seed = 4;
  together.generate(request);  // of the last image alone
  const std::vector<RankTraffic> counted = together.drawers().at(0).traffic;

  const PictureShape shape{.height = c.height, .width = c.width, .batch = c.batch};
  const std::vector<RankPlan> planned = plans(shape, c.steps, c.division, c.ranks);
  ASSERT_EQ(counted.size(), planned.size());
  uint64_t sent = 0, received = 0;
  for (size_t rank = 0; rank < planned.size(); ++rank) {
    EXPECT_EQ(counted[rank].bytes, planned[rank].bytes(c.steps, c.batch)) << "rank " << rank;
    EXPECT_EQ(counted[rank].messages, planned[rank].messages(c.steps, c.batch)) << "rank " << rank;
    EXPECT_GT(counted[rank].bytes, 0u);
    sent += counted[rank].bytes;
    received += counted[rank].received_bytes;
  }
  EXPECT_GE(sent, received);
  EXPECT_EQ(sent == received, c.split.find("displaced") == std::string::npos)
      << "what the last call sent nobody reads";
}

INSTANTIATE_TEST_SUITE_P(Splits, RankPlanBytes,
                         testing::Values(Case{"guidance", Division::kConditions, 2, 72, 136, 1, 2},
                                         Case{"guidance", Division::kConditions, 2, 64, 64, 2, 1},
                                         Case{"rows", Division::kRows, 2, 64, 64, 1, 2},
                                         Case{"rows", Division::kRows, 3, 72, 136, 1, 2},
                                         Case{"rows", Division::kRows, 4, 96, 200, 2, 1},
                                         Case{"guidance-rows", Division::kBoth, 4, 72, 136, 2, 2},
                                         Case{"guidance-rows", Division::kBoth, 6, 64, 104, 1, 1},
                                         Case{"tensor", Division::kTensors, 2, 72, 136, 1, 2},
                                         Case{"tensor", Division::kTensors, 4, 64, 64, 2, 1},
                                         Case{"displaced:1", Division::kRows, 3, 64, 104, 1, 3},
                                         Case{"rows", Division::kRows, 8, 64, 280, 1, 1},
                                         Case{"guidance-rows", Division::kBoth, 8, 72, 136, 1, 1},
                                         Case{"tensor", Division::kTensors, 8, 64, 64, 1, 1},
                                         Case{"guidance-displaced:1", Division::kBoth, 4, 64, 104, 1, 3},
                                         Case{"displaced:1", Division::kRows, 8, 64, 264, 1, 2}));

// What no rank of its own can see: a row of one rank is a row of no other, and every message has a receiver
// that takes part in the same exchange.
TEST(RankPlans, CoverTheRowsInTheSameOrder) {
  for (const int ranks : {2, 3, 5, 8}) {
    const std::vector<RankPlan> planned =
        plans({.height = 8 * 4 * 9, .width = 64}, 1, Division::kRows, ranks);
    int64_t rows = 0;
    for (const RankPlan& plan : planned) {
      rows += plan.rows;
      EXPECT_EQ(plan.step.size(), planned[0].step.size());
      EXPECT_EQ(plan.decode.size(), planned[0].decode.size());
      for (const Exchange& e : plan.step) ASSERT_EQ(e.sent.size(), planned.size());
    }
    EXPECT_EQ(rows, 4 * 9);
  }
  EXPECT_THROW(plans({.height = 8, .width = 64}, 1, Division::kRows, 2), UsageError);
  EXPECT_THROW(plans({.guidance = false}, 1, Division::kConditions, 2), UsageError);
  EXPECT_THROW(plans({}, 1, Division::kConditions, 3), UsageError);
  EXPECT_THROW(plans({}, 1, Division::kBoth, 2), UsageError);
  EXPECT_THROW(plans({}, 1, Division::kLayers, 2), UsageError);
}

}  // namespace
}  // namespace rocm_sd
