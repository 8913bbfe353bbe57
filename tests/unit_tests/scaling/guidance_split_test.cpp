// Guidance split: two and three ranks draw the image that one draws, by every way that a step takes.
#include "pipeline/guidance_split.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "rocm_sd/multi.hpp"
#include "scaling/load_multi.hpp"
#include "support/failing_device.hpp"
#include "support/random_control.hpp"
#include "support/random_ip_adapter.hpp"
#include "support/split_testing.hpp"

namespace rocm_sd {
namespace {

using testing::HasSubstr;
using testing_support::expect_alike;
using testing_support::FailingDevice;
using testing_support::picture;

const std::string kModel = std::string(ROCM_SD_SOURCE_DIR) + "/models/demo";
const std::string kExamples = std::string(ROCM_SD_SOURCE_DIR) + "/models/demo_examples";

LoadOptions split_demo() {
  return {.model = kModel, .devices = "cpu,cpu", .split = "guidance", .dtype = "f32"};
}

GenerateRequest request() {
  GenerateRequest request;
  request.prompt = "a red apple";
  request.negative_prompt = "a car";
  request.width = request.height = 64;
  request.steps = 3;
  request.seed = 3;
  return request;
}

class GuidanceSplit : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("rocm_sd_split_" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::filesystem::path folder_;
};

TEST(ConditionShares, CoverAllConditionsOnce) {
  for (int ranks = 1; ranks <= 8; ++ranks)
    for (int64_t conditions = 1; conditions <= 12; ++conditions) {
      if (conditions < ranks) {
        EXPECT_THROW(share_conditions(conditions, 0, ranks), UsageError);
        continue;
      }
      int64_t next = 0, least = conditions, most = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const ConditionShare share = share_conditions(conditions, rank, ranks);
        EXPECT_EQ(share.first, next);
        EXPECT_EQ(share.has_last(), rank + 1 == ranks);
        next += share.count;
        least = std::min(least, share.count);
        most = std::max(most, share.count);
      }
      EXPECT_EQ(next, conditions);
      EXPECT_LE(most - least, 1);
    }
}

TEST_F(GuidanceSplit, DrawsWhatOneDeviceDraws) {
  Pipeline alone = Pipeline::load({.model = kModel, .dtype = "f32"});
  MultiPipeline pair = MultiPipeline::load(split_demo());
  ASSERT_EQ(pair.drawers().size(), 1u);
  EXPECT_EQ(pair.drawers()[0].devices, "cpu+cpu");
  std::vector<std::pair<std::string, GenerateRequest>> cases;
  const auto add = [&](const std::string& what, const std::function<void(GenerateRequest&)>& change) {
    GenerateRequest r = request();
    change(r);
    cases.emplace_back(what, r);
  };
  add("plain", [](GenerateRequest&) {});
  for (const char* sampler : {"Euler a", "DPM++ SDE", "DPM fast", "UniPC", "LCM", "PLMS"})
    add(sampler, [&](GenerateRequest& r) { r.sampler = sampler; });
  add("batch", [](GenerateRequest& r) { r.batch = 3; });
  add("several prompts", [](GenerateRequest& r) {
    r.prompts = {"a red apple", "a blue car"};
    r.batch = 2;
  });
  add("rescaled", [](GenerateRequest& r) { r.guidance_rescale = 0.7; });
  add("limited", [](GenerateRequest& r) { r.guidance_start = 0.4; });
  add("mimic", [](GenerateRequest& r) { r.mimic_scale = 5; });
  add("perturbed", [](GenerateRequest& r) { r.pag_scale = 3; });
  add("perturbed without a negative prompt", [](GenerateRequest& r) { r.pag_scale = 3, r.cfg_scale = 1; });
  add("parts", [](GenerateRequest& r) { r.prompt = "a red apple AND a cat :0.5 AND a car"; });
  add("edited", [](GenerateRequest& r) { r.prompt = "a [red apple:blue car:0.5]", r.steps = 4; });
  add("freeu", [](GenerateRequest& r) { r.freeu = {1.2, 1.3, 0.9, 0.8}; });
  add("tiles", [](GenerateRequest& r) { r.width = 96, r.tile_size = 64, r.tile_batch = 2; });
  add("from an image", [](GenerateRequest& r) { r.init_image = picture(64, 64), r.steps = 5; });
  add("inpainting", [](GenerateRequest& r) {
    r.init_image = picture(64, 64);
    r.mask = picture(64, 64);
    r.steps = 4;
  });
  add("latents", [](GenerateRequest& r) { r.keep_latents = true; });
  add("lora", [](GenerateRequest& r) { r.loras = {{.file = kExamples + "/dusk_lora.safetensors"}}; });
  add("lora at run time", [](GenerateRequest& r) {
    r.loras = {{.file = kExamples + "/dusk_lora.safetensors", .weight = 0.6}};
    r.lora_mode = "runtime";
  });
  for (const auto& [what, r] : cases) expect_alike(pair.generate(r), alone.generate(r), what);
}

// Each rank keeps maps of its own conditions; which calls are whole, shallow or foretold is the same on all.
TEST_F(GuidanceSplit, DrawsWithSavingsWhatOneDeviceDrawsWithThem) {
  Pipeline alone = Pipeline::load({.model = kModel, .dtype = "f32"});
  MultiPipeline pair = MultiPipeline::load(split_demo());
  const auto check = [&](const std::string& what, const std::function<void(GenerateRequest&)>& change) {
    GenerateRequest r = request();
    change(r);
    expect_alike(pair.generate(r), alone.generate(r), what);
  };
  check("deep cache", [](GenerateRequest& r) { r.savings.deep_cache = 2, r.steps = 5; });
  check("deep cache of a deeper branch",
        [](GenerateRequest& r) { r.savings.deep_cache = 3, r.savings.deep_cache_branch = 2, r.steps = 7; });
  check("sada", [](GenerateRequest& r) { r.savings.sada = true, r.sampler = "DPM++ 2M", r.steps = 20; });
  check("sada and deep cache", [](GenerateRequest& r) {
    r.savings.sada = true, r.savings.deep_cache = 2, r.sampler = "Euler", r.steps = 16;
  });
  check("token merging", [](GenerateRequest& r) { r.savings.token_merge = 0.5; });
  check("merged tokens of smaller maps", [](GenerateRequest& r) {
    r.savings.token_merge = 0.3, r.savings.token_merge_downsample = 2, r.batch = 2;
  });
  check("guidance in an interval", [](GenerateRequest& r) {
    r.guidance_start = 0.2, r.guidance_end = 0.7, r.savings.deep_cache = 3, r.steps = 9;
  });
  check("without the negative prompt of low noise",
        [](GenerateRequest& r) { r.negative_min_sigma = 4, r.sampler = "Euler", r.steps = 6; });
  check("all savings", [](GenerateRequest& r) {
    r.savings = {.deep_cache = 2, .sada = true, .token_merge = 0.5};
    r.guidance_end = 0.8, r.sampler = "DPM++ 2M", r.steps = 20;
  });
}

TEST_F(GuidanceSplit, WithControlsAndImages) {
  Pipeline alone = Pipeline::load({.model = kModel, .dtype = "f32"});
  MultiPipeline pair = MultiPipeline::load(split_demo());
  const std::string net = testing_support::write_random_control(folder_ / "net.safetensors", kModel, 0.2f);
  GenerateRequest controlled = request();
  for (const char* mode : {"balanced", "prompt", "control", "guess"}) {
    controlled.controls = {{.model = net, .image = picture(64, 64), .strength = 0.8, .mode = mode}};
    expect_alike(pair.generate(controlled), alone.generate(controlled), mode);
  }
  controlled.controls = {{.model = net, .image = picture(64, 64), .end = 0.5},
                         {.model = kExamples + "/canny_adapter", .image = picture(64, 64)}};
  expect_alike(pair.generate(controlled), alone.generate(controlled), "two controls");

  const std::string adapter =
      testing_support::write_random_ip_adapter(folder_, kModel, ImageProjectionKind::kResampler);
  GenerateRequest seen = request();
  seen.ip_adapters = {{.model = adapter, .images = {picture(7, 5)}, .weight = 0.7}};
  expect_alike(pair.generate(seen), alone.generate(seen), "image prompt");
  seen.ip_adapters[0].masks = {picture(16, 16)};
  seen.pag_scale = 2;
  expect_alike(pair.generate(seen), alone.generate(seen), "masked image prompt, perturbed");
}

TEST_F(GuidanceSplit, PairsShareAQueue) {
  Pipeline alone = Pipeline::load({.model = kModel, .dtype = "f32"});
  LoadOptions options = split_demo();
  options.devices = "cpu,cpu,cpu,cpu";
  MultiPipeline pairs = MultiPipeline::load(options);
  ASSERT_EQ(pairs.drawers().size(), 2u);
  pairs.generate_each(
      [](size_t i) {
        GenerateRequest r = request();
        r.seed = static_cast<int64_t>(i);
        return i < 5 ? std::optional(r) : std::nullopt;
      },
      [&](size_t i, const GenerateResult& got) {
        GenerateRequest r = request();
        r.seed = static_cast<int64_t>(i);
        expect_alike(got, alone.generate(r), "pairs");
        EXPECT_EQ(got.device, "cpu+cpu");
      });
}

TEST_F(GuidanceSplit, RefusesWhatCannotBeDivided) {
  LoadOptions options = split_demo();
  options.devices = "cpu,cpu,cpu";
  try {
    MultiPipeline::load(options);
    ADD_FAILURE();
  } catch (const UsageError& e) {
    EXPECT_THAT(e.what(), HasSubstr("expected pairs of devices"));
  }
  MultiPipeline pair = MultiPipeline::load(split_demo());
  GenerateRequest unguided = request();
  unguided.cfg_scale = 1;
  try {
    pair.generate(unguided);
    ADD_FAILURE();
  } catch (const UsageError& e) {
    EXPECT_THAT(e.what(), HasSubstr("--split images"));
  }
  GenerateRequest gated = request();
  gated.savings.t_gate = 2;
  try {
    pair.generate(gated);
    ADD_FAILURE();
  } catch (const UsageError& e) {
    EXPECT_THAT(e.what(), HasSubstr("t-gate: not with a picture that several devices draw together"));
  }
  EXPECT_EQ(pair.generate(request()).pictures.size(), 1u) << "usable after a bad request";
  GenerateRequest random = request();
  random.seed = -1;
  EXPECT_EQ(pair.generate(random).pictures.size(), 1u) << "both ranks draw from the same seed";
}

TEST_F(GuidanceSplit, CancelsOnBothRanks) {
  MultiPipeline pair = MultiPipeline::load(split_demo());
  Callbacks callbacks;
  callbacks.progress = [](const Progress& p) { return p.stage != "sample" || p.step < 2; };
  EXPECT_THROW(pair.generate(request(), callbacks), CancelledError);
  EXPECT_EQ(pair.drawers()[0].taken_out, "");
  EXPECT_EQ(pair.generate(request()).pictures.size(), 1u);
}

TEST_F(GuidanceSplit, ARankThatFailsIsNamed) {
  for (const int rank : {0, 1})
    for (const int copy : {1, 6}) {
      FailingDevice devices[] = {FailingDevice("left"), FailingDevice("right")};
      MultiPipeline pair =
          load_multi_pipeline(split_demo(), {{"left", &devices[0], 1}, {"right", &devices[1], 1}});
      devices[rank].fail_copy(copy);
      try {
        pair.generate(request());
        ADD_FAILURE();
      } catch (const DeviceError& e) {
        EXPECT_THAT(e.what(), HasSubstr(rank ? "rank 1 (right): right: lost" : "rank 0 (left): left: lost"));
      }
    }
}

TEST_F(GuidanceSplit, ARankThatHangsIsNamedAndLeft) {
  for (const int rank : {0, 1}) {
    auto* left = new FailingDevice("left");  // a thread that hung keeps its pipeline
    auto* right = new FailingDevice("right");
    MultiPipeline pair = load_multi_pipeline(split_demo(), {{"left", left, 1}, {"right", right, 1}},
                                             {.first = 30, .later = 1});
    (rank ? right : left)->hang(5);
    const auto begin = std::chrono::steady_clock::now();
    try {
      pair.generate(request());
      ADD_FAILURE();
    } catch (const DeviceError& e) {
      EXPECT_THAT(e.what(), HasSubstr(rank ? "rank 1 (right): no sign of life for 1 s"
                                           : "rank 0 (left): no sign of life for 1 s"));
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
    (rank ? right : left)->let_go();
  }
}

TEST_F(GuidanceSplit, ARankThatRunsOutOfMemoryBeginsAnewWithTheOthers) {
  Pipeline alone = Pipeline::load({.model = kModel, .dtype = "f32"});
  const GenerateResult want = alone.generate(request());
  for (const int rank : {0, 1})
    for (const int copy : {2, 5}) {
      FailingDevice devices[] = {FailingDevice("left"), FailingDevice("right")};
      MultiPipeline pair =
          load_multi_pipeline(split_demo(), {{"left", &devices[0], 1}, {"right", &devices[1], 1}});
      pair.generate(request());  // leaves something to save
      devices[rank].run_out_of_memory(copy);
      expect_alike(pair.generate(request()), want, "rank " + std::to_string(rank));
    }
}

}  // namespace
}  // namespace rocm_sd
