// The model of scaling on links whose cost is known, and the files of links.
#include "analysis/predict_scaling.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "analysis/rank_plan.hpp"
#include "base/error.hpp"
#include "runtime/kernel_archive.hpp"

namespace rocm_sd {
namespace {

using testing::HasSubstr;

TEST(Links, AreReadWithTheirSources) {
  for (const char* name : {"pcie3", "pcie4", "pcie5", "xgmi", "nvlink"}) {
    const Link link = known_link(name);
    EXPECT_EQ(link.name, name);
    EXPECT_EQ(link.each_pair, std::string(name) == "xgmi");
    EXPECT_EQ(link.figures.size(), 7u);
    for (const LinkFigure& f : link.figures) EXPECT_GT(f.source.size(), 10u) << f.name;
  }
  EXPECT_LT(known_link("pcie3").gb_per_s, known_link("pcie4").gb_per_s);
  EXPECT_LT(known_link("pcie4").gb_per_s, known_link("pcie5").gb_per_s);
  EXPECT_THROW(known_link("../links/pcie4"), UsageError);
}

TEST(Links, BadFilesAreNamed) {
  const auto path =
      std::filesystem::temp_directory_path() / ("rocm_sd_link_" + std::to_string(::getpid()) + ".json");
  const auto said = [&](const std::string& text) {
    std::ofstream(path) << text;
    try {
      read_link(path);
    } catch (const FormatError& e) {
      return std::string(e.what());
    }
    return std::string("nothing");
  };
  EXPECT_THAT(said("[]"), HasSubstr("\"name\" must be a text"));
  EXPECT_THAT(said(R"({"name": "a", "about": "b", "paths": "one"})"), HasSubstr("\"paths\""));
  const std::string head = R"({"name": "a", "about": "b", "paths": "each", "figures": )";
  EXPECT_THAT(said(head + "{}}"), HasSubstr("has no \"gb_per_s\""));
  EXPECT_THAT(said(head + R"({"gb_per_s": {"value": 0, "kind": "assumed", "source": "x"}}})"),
              HasSubstr("gb_per_s: \"value\""));
  EXPECT_THAT(said(head + R"({"gb_per_s": {"value": 1, "kind": "guessed", "source": "x"}}})"),
              HasSubstr("\"kind\""));
  EXPECT_THAT(said(head + R"({"gb_per_s": {"value": 1, "kind": "assumed"}}})"), HasSubstr("\"source\""));
  std::filesystem::remove(path);
}

// A card of this build's kernels; null where there are none.
const GpuProduct* card() {
  for (const auto& [name, target] : {std::pair("RX 7900 XTX", "gfx1100"),
                                     {"MI300X", "gfx942"},
                                     {"RX 9070 XT", "gfx1201"},
                                     {"H200 SXM", "sm_90"}})
    if (find_kernel_archive(target)) return find_gpu_product(name);
  return nullptr;
}

class PredictScaling : public testing::Test {
 protected:
  void SetUp() override {
    gpu_ = card();
    if (!gpu_) GTEST_SKIP() << "this build has no kernel archive (ROCM_SD_ARCHS)";
  }
  ScalingPrediction of(const ScalingSetup& setup, PictureShape shape = {}, int steps = 5) const {
    return predict_scaling(*gpu_, known_model("sd15"), shape, steps, DType::kF16, setup);
  }
  static Link free_link() {
    return {.name = "free",
            .about = "costs nothing",
            .gb_per_s = 1e30,
            .host_gb_per_s = 1e30,
            .host_memory_gb_per_s = 1e30};
  }
  ScalingSetup setup(int gpus, std::optional<Division> division, Link link = free_link()) const {
    return {.gpus = gpus, .link = std::move(link), .way = MessageWay::kPeer, .division = division};
  }
  const GpuProduct* gpu_ = nullptr;
};

TEST_F(PredictScaling, OneGpuAndManyPicturesPassNothing) {
  const ScalingPrediction one = of(setup(1, Division::kRows));
  EXPECT_EQ(one.speedup, 1);
  EXPECT_EQ(one.bytes, 0u);
  const ScalingPrediction many = of(setup(4, std::nullopt));
  EXPECT_EQ(many.one_ms, one.one_ms);
  EXPECT_EQ(many.request_ms, one.one_ms);
  EXPECT_EQ(many.scaling, 4);
  EXPECT_EQ(many.efficiency, 1);
  const ModelBound bound = rocm_sd::predict(*gpu_, known_model("sd15"), {}, 5, DType::kF16);
  EXPECT_NEAR(one.one_ms, bound.modelled_picture_ms > 0 ? bound.modelled_picture_ms : bound.picture_ms,
              0.05 * one.one_ms)
      << "what predict says of one";
}

TEST_F(PredictScaling, AFreeLinkLeavesTheWork) {
  const ScalingPrediction rows = of(setup(2, Division::kRows));
  EXPECT_LT(rows.transfer_ms, 1e-6 * rows.request_ms);
  EXPECT_GT(rows.speedup, 1.2);
  EXPECT_LT(rows.speedup, 2);
  ASSERT_EQ(rows.each.size(), 2u);
  EXPECT_LT(rows.each[0].arena_bytes, rows.one_peak_bytes - rows.each[0].weight_bytes);
  EXPECT_EQ(rows.each[0].rows + rows.each[1].rows, 64);
  // Three ranks of eight units: the one with most rows sets the pace.
  const ScalingPrediction uneven = of(setup(3, Division::kRows));
  EXPECT_EQ(uneven.each[0].rows, 16);
  EXPECT_EQ(uneven.each[2].rows, 24);
  EXPECT_GT(uneven.each[2].step_ms, uneven.each[0].step_ms);
  // Two pairs draw two requests at once.
  const ScalingPrediction pairs = of(setup(4, Division::kConditions));
  EXPECT_EQ(pairs.ranks, 2);
  EXPECT_DOUBLE_EQ(pairs.scaling, 2 * pairs.speedup);
}

// A latency alone, and a bandwidth alone, against the exchanges counted by hand.
TEST_F(PredictScaling, MessagesCostWhatTheLinkSays) {
  const int steps = 5;
  Link slow = free_link();
  slow.message_us = 100;
  ScalingSetup late = setup(2, Division::kConditions, slow);
  const ScalingPrediction free = of(setup(2, Division::kConditions)), found = of(late);
  const auto messages_of_one = static_cast<double>(found.each[0].messages);
  EXPECT_NEAR(found.request_ms - free.request_ms, (messages_of_one - 1) * 0.1, 1e-6 * free.request_ms)
      << "each of a pair's exchanges has one message each way; the VAE's attention hides one";
  late.link.message_us = 1e6;
  const double all = messages_of_one * 1000, passed = of(late).request_ms - free.request_ms;
  EXPECT_LT(passed, all - 0.1) << "its own keys are attended to meanwhile";
  EXPECT_GT(passed, all - 1000) << "and no longer";
  slow = free_link();
  slow.gb_per_s = 1;
  const ScalingPrediction thin = of(setup(2, Division::kConditions, slow));
  EXPECT_NEAR(thin.transfer_ms, static_cast<double>(thin.each[0].bytes) / 1e6, 0.02 * thin.transfer_ms);
  EXPECT_EQ(thin.step_bytes, uint64_t{2} * 64 * 64 * 4 * 4) << "a prediction each way";
  EXPECT_EQ(thin.steps, steps);
}

TEST_F(PredictScaling, DisplacedRowsHideWhatPasses) {
  Link slow = free_link();
  slow.gb_per_s = 5;
  ScalingSetup rows = setup(2, Division::kRows, slow), displaced = rows;
  displaced.exact_calls = 2;
  const ScalingPrediction exact = of(rows), stale = of(displaced);
  EXPECT_EQ(exact.bytes, stale.bytes);
  EXPECT_LT(stale.request_ms, exact.request_ms);
  displaced.exact_calls = 5;
  EXPECT_DOUBLE_EQ(of(displaced).request_ms, exact.request_ms) << "no call is stale";
  rows.way = displaced.way = MessageWay::kHost;
  rows.link.host_copy_us = displaced.link.host_copy_us = 50;
  displaced.exact_calls = 0;
  EXPECT_LE(of(displaced).request_ms, of(rows).request_ms);
  EXPECT_GT(of(displaced).transfer_ms, 0) << "copies through the host are the rank's own time";
}

TEST_F(PredictScaling, MeasuredTimesAreKept) {
  ScalingSetup measured = setup(2, Division::kRows);
  measured.measured = {.step_ms = 100, .decode_ms = 300};
  const ScalingPrediction found = of(measured);
  EXPECT_EQ(found.basis, "measured");
  EXPECT_NEAR(found.one_ms, 5 * 100 + 300, 0.1 * found.one_ms);
  EXPECT_THAT(scaling_text(found), HasSubstr("MODELLED"));
  EXPECT_EQ(scaling_json(found)["each_rank"].size(), 2u);
}

// A half of the work takes what was measured, a quarter loses as much again, and more work than the measured
// step's loses nothing.
TEST_F(PredictScaling, LessWorkLosesWhatWasMeasured) {
  const auto step_of = [&](Division division, int gpus, double half, PictureShape shape = {}) {
    ScalingSetup s = setup(gpus, division);
    s.measured = {.step_ms = 100, .decode_ms = 300, .half_step_ms = half};
    return of(s, shape).each[0].step_ms;
  };
  const double even = step_of(Division::kConditions, 2, 0);
  EXPECT_GT(even, 50);
  EXPECT_LT(even, 65) << "weights are read for half of the work, too";
  EXPECT_NEAR(step_of(Division::kConditions, 2, 70), 70, 0.01);
  EXPECT_NEAR(step_of(Division::kConditions, 2, even), even, 0.01) << "a half that loses nothing";
  const double quarter = step_of(Division::kBoth, 4, 0), lossy = step_of(Division::kBoth, 4, 70);
  EXPECT_GT(lossy / quarter, 70 / even);
  EXPECT_LT(lossy / quarter, std::pow(70 / even, 2.2));
  const PictureShape large{.height = 1024, .width = 1024};  // each half has twice the measured work and more
  EXPECT_DOUBLE_EQ(step_of(Division::kConditions, 2, 70, large), step_of(Division::kConditions, 2, 0, large));
}

TEST_F(PredictScaling, WhatCannotBeDividedIsRefused) {
  EXPECT_THROW(of(setup(2, Division::kConditions), {.guidance = false}), UsageError);
  EXPECT_THROW(of(setup(9, Division::kRows)), UsageError);
}

}  // namespace
}  // namespace rocm_sd
