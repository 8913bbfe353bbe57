// Images that share the UNet's calls are those that are drawn alone, whenever they join and whoever leaves.
#include "pipeline/step_batch.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>

#include "base/error.hpp"
#include "pipeline/row_stage.hpp"

namespace rocm_sd {
namespace {

using ::testing::HasSubstr;

const std::string kSource = ROCM_SD_SOURCE_DIR;
const std::string kLora = kSource + "/models/demo_examples/dusk_lora.safetensors";

Pipeline load_demo() {
  return Pipeline::load({.model = kSource + "/models/demo", .device = "cpu", .dtype = "f32"});
}

GenerateRequest small(const std::string& prompt, int64_t seed, int steps = 4) {
  GenerateRequest request;
  request.prompt = prompt;
  request.seed = seed;
  request.steps = steps;
  request.width = request.height = 64;
  request.keep_latents = true;
  return request;
}

// Of the latents, whose largest value counts as the signal's peak.
double psnr(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double squares = 0, peak = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    squares += std::pow(double{a[i]} - b[i], 2);
    peak = std::max(peak, std::abs(double{b[i]}));
  }
  return squares == 0 ? 200 : 10 * std::log10(peak * peak * static_cast<double>(a.size()) / squares);
}

void expect_same(const GenerateResult& got, const GenerateResult& want) {
  ASSERT_EQ(got.pictures.size(), want.pictures.size());
  for (size_t i = 0; i < got.pictures.size(); ++i) {
    EXPECT_GE(psnr(got.pictures[i].latents, want.pictures[i].latents), 60) << "image " << i;
    EXPECT_EQ(got.pictures[i].seed, want.pictures[i].seed);
    EXPECT_EQ(got.pictures[i].parameters, want.pictures[i].parameters);
  }
}

struct Joining {
  GenerateRequest request;
  int at = 0;  // the step of the batch before which it joins
  Callbacks callbacks = {};
};

// By their places in the list.
std::map<uint64_t, StepBatch::Result> draw(StepBatch& batch, std::vector<Joining> list) {
  std::map<uint64_t, StepBatch::Result> out;
  std::vector<bool> added(list.size(), false);
  for (int step = 0; step < 1000; ++step) {
    for (size_t i = 0; i < list.size(); ++i) {
      if (added[i] || list[i].at > step || !batch.fits(list[i].request)) continue;
      EXPECT_EQ(batch.refusal(list[i].request), "");
      batch.add(i, list[i].request, list[i].callbacks);
      added[i] = true;
    }
    for (StepBatch::Result& result : batch.step()) out.emplace(result.id, std::move(result));
    if (batch.empty() && std::ranges::all_of(added, [](bool a) { return a; })) return out;
  }
  ADD_FAILURE() << "the batch does not end";
  return out;
}

std::string what(const StepBatch::Result& result) {
  if (!result.error) return result.drawn ? "was drawn" : "alone: " + result.alone;
  try {
    std::rethrow_exception(result.error);
  } catch (const std::exception& e) {
    return e.what();
  }
}

void expect_as_alone(Pipeline& pipeline, const std::vector<Joining>& list, int most = 8) {
  StepBatch batch(pipeline, most);
  std::map<uint64_t, StepBatch::Result> results = draw(batch, list);
  ASSERT_EQ(results.size(), list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    SCOPED_TRACE(list[i].request.prompt + ", " + list[i].request.sampler);
    ASSERT_TRUE(results.at(i).drawn.has_value()) << what(results.at(i));
    expect_same(*results.at(i).drawn, pipeline.generate(list[i].request));
  }
}

TEST(StepBatch, RoundsRowsUp) {
  const std::vector<std::pair<int64_t, int64_t>> want = {{1, 1},   {2, 2},   {3, 3},   {4, 4},
                                                         {5, 6},   {6, 6},   {7, 8},   {9, 12},
                                                         {12, 12}, {13, 16}, {17, 24}, {25, 32}};
  for (const auto& [rows, padded] : want) EXPECT_EQ(padded_rows(rows), padded) << rows;
}

TEST(StepBatch, DrawsWhatEachIsAloneWhereTheyJoinAtRandom) {
  Pipeline pipeline = load_demo();
  const std::vector<std::string> names = {
      "euler",        "euler_a",   "heun",         "dpm2",          "dpm2_a",     "dpmpp_2m",
      "dpmpp_2m_sde", "dpmpp_sde", "dpmpp_3m_sde", "lms",           "uni_pc",     "ddim",
      "ddpm",         "plms",      "lcm",          "tcd",           "deis",       "ipndm",
      "restart",      "sa_solver", "dpm_fast",     "res_multistep", "dpmpp_2s_a", "euler_cfg_pp"};
  const std::vector<std::string> prompts = {"a red apple", "", "a blue circle", "(a fox:1.3) in [snow]"};
  std::mt19937 random(20240917);
  const auto pick = [&](int least, int most) {
    return std::uniform_int_distribution<int>(least, most)(random);
  };
  std::vector<Joining> list;
  for (size_t i = 0; i < names.size(); ++i) {
    GenerateRequest r = small(prompts[static_cast<size_t>(pick(0, 3))], pick(0, 1 << 20), pick(2, 7));
    r.sampler = names[i];
    r.cfg_scale = std::vector<double>{1, 3.5, 7.5}[static_cast<size_t>(pick(0, 2))];
    if (pick(0, 1)) r.negative_prompt = "blurry";
    if (pick(0, 3) == 0) r.batch = 2;
    list.push_back({r, pick(0, 20)});
  }
  expect_as_alone(pipeline, list);
}

TEST(StepBatch, TakesWhatARequestHasOfItsOwn) {
  Pipeline pipeline = load_demo();
  std::vector<Joining> list;
  const auto add = [&](const std::string& prompt, const auto& change) {
    GenerateRequest r = small(prompt, 7 + static_cast<int64_t>(list.size()), 5);
    change(r);
    list.push_back({r, static_cast<int>(list.size()) / 2});
  };
  add("[a red apple:a blue circle:0.5]", [](auto& r) { r.sampler = "dpmpp_2m"; });
  add("a [red|blue] apple", [](auto& r) { r.schedule = "karras"; });
  add("an apple AND a fox :0.5", [](auto& r) { r.sampler = "euler"; });
  add("a tree", [](auto& r) { r.guidance_start = 0.3, r.guidance_end = 0.8; });
  add("a tree", [](auto& r) { r.guidance_rescale = 0.7, r.rng = "cpu"; });
  add("a tree", [](auto& r) { r.dynamic_threshold = 0.99, r.dynamic_threshold_max = 3; });
  add("a tree", [](auto& r) { r.mimic_scale = 4, r.mimic_percentile = 0.98; });
  add("a tree", [](auto& r) { r.clip_skip = 2, r.variation_seed = 3, r.variation_strength = 0.3; });
  add("a tree", [](auto& r) {
    r.init_image = Image{64, 64, std::vector<uint8_t>(64 * 64 * 3, 90), {}};
    r.strength = 0.6;
  });
  add("", [](auto& r) { r.prompts = {"a", "b", "c"}, r.seeds = {5, 6, 1}; });
  expect_as_alone(pipeline, list);
}

std::vector<GenerateRequest> lone_requests() {
  std::vector<GenerateRequest> out(6, small("a red apple", 3, 6));
  out[1].sampler = "dpmpp_2m_sde", out[1].batch = 2;
  out[2].guidance_start = 0.3, out[2].guidance_end = 0.7;  // steps without the negative prompt's rows
  out[3].loras = {{kLora, 0.8, 0.8}}, out[3].lora_mode = "runtime";
  out[4].prompt = "[a fox:a tree:0.5]",
  out[4].init_image = Image{64, 64, std::vector<uint8_t>(64 * 64 * 3, 90), {}};
  out[5].loras = {{kLora, 0.8, 0.8}};
  return out;
}

TEST(StepBatch, WhoHasNoCompanyIsDrawnToTheBit) {
  Pipeline pipeline = load_demo(), plain = load_demo();
  StepBatch batch(pipeline, 8);
  for (const GenerateRequest& request : lone_requests()) {
    const GenerateResult want = plain.generate(request);
    for (const bool after_others : {false, true}) {
      if (after_others) draw(batch, {{small("x", 1, 3)}, {small("y", 2, 4), 1}, {small("z", 3, 2), 1}});
      auto results = draw(batch, {{request}});
      ASSERT_TRUE(results.at(0).drawn.has_value()) << what(results.at(0));
      const GenerateResult& got = *results.at(0).drawn;
      ASSERT_EQ(got.pictures.size(), want.pictures.size());
      for (size_t i = 0; i < want.pictures.size(); ++i) {
        EXPECT_EQ(got.pictures[i].latents, want.pictures[i].latents) << request.prompt;
        EXPECT_EQ(got.pictures[i].image.rgb, want.pictures[i].image.rgb);
        EXPECT_EQ(got.pictures[i].parameters, want.pictures[i].parameters);
      }
    }
  }
}

// What its own stage knows and the shared one has to take over: at every step.
TEST(StepBatch, GoesOnWithOthersWhereItBeganAlone) {
  Pipeline pipeline = load_demo();
  GenerateRequest other = small("a blue circle", 8, 3), with_lora = other;
  with_lora.loras = {{kLora, 0.5, 0.5}}, with_lora.lora_mode = "runtime";
  for (const GenerateRequest& request : lone_requests()) {
    if (!request.loras.empty() && request.lora_mode == "merge") continue;  // joined by its like alone
    for (const int at : {1, 4}) expect_as_alone(pipeline, {{request}, {at == 1 ? other : with_lora, at}});
  }
}

TEST(StepBatch, ABadOneDoesNotStopWhoWasAlone) {
  Pipeline pipeline = load_demo();
  GenerateRequest bad = small("a fox", 2, 4), lora = small("b", 3), first = small("an apple", 1, 6);
  bad.sampler = "eulr";
  lora.loras = {{kLora, 0.5, 0.5}}, lora.lora_mode = "runtime", lora.schedule = "none of them";
  StepBatch batch(pipeline, 8);
  const auto results = draw(batch, {{first}, {bad, 1}, {lora, 2}});
  ASSERT_TRUE(results.at(0).drawn.has_value()) << what(results.at(0));
  expect_same(*results.at(0).drawn, pipeline.generate(first));
  EXPECT_TRUE(results.at(1).error && results.at(2).error);
}

TEST(StepBatch, RepeatsTheChunksOfShorterTexts) {
  Pipeline pipeline = load_demo();
  std::string words;
  for (int i = 0; i < 90; ++i) words += "tree ";
  // The long one joins, and is there when the last one joins that is short again.
  expect_as_alone(pipeline, {{small("an apple", 1, 8)}, {small(words, 2, 4), 2}, {small("a fox", 3, 4), 3}});
}

TEST(StepBatch, DrawsTextsOfVeryDifferentLengthsApart) {
  Pipeline pipeline = load_demo();
  std::string three, four;
  for (int i = 0; i < 160; ++i) three += "tree ";
  for (int i = 0; i < 240; ++i) four += "tree ";
  StepBatch batch(pipeline, 8);
  const auto results = draw(batch, {{small(three, 1, 3)}, {small(four, 2, 3)}, {small("a fox", 3, 3)}});
  EXPECT_TRUE(results.at(0).drawn && results.at(2).drawn);
  EXPECT_THAT(results.at(1).alone, HasSubstr("another length"));
}

TEST(StepBatch, SharesCalls) {
  Pipeline pipeline = load_demo();
  StepBatch batch(pipeline, 3);
  for (uint64_t i = 0; i < 3; ++i) batch.add(i, small("a", static_cast<int64_t>(i), 4), {});
  EXPECT_FALSE(batch.fits(small("a", 9))) << "three at once";
  int calls = 0;
  std::vector<size_t> ended;
  while (!batch.empty()) {
    ++calls;
    ended.push_back(batch.step().size());
  }
  EXPECT_EQ(calls, 4);
  EXPECT_EQ(ended, (std::vector<size_t>{0, 0, 0, 3}));
  EXPECT_TRUE(batch.fits(small("a", 9)));
}

TEST(StepBatch, ACancelledOneLeavesTheOthers) {
  Pipeline pipeline = load_demo();
  StepBatch batch(pipeline, 8);
  int steps = 0;
  Joining cancelled{small("a fox", 2, 20)};
  cancelled.callbacks.progress = [&](const Progress& p) {
    if (p.stage == "sample") steps = p.step;
    return true;
  };
  cancelled.callbacks.cancelled = [&] { return steps >= 2; };
  const std::vector<Joining> list = {{small("an apple", 1, 6)}, cancelled, {small("a tree", 3, 6)}};
  const auto results = draw(batch, list);
  EXPECT_EQ(steps, 2) << "it ends with the step in which it is cancelled";
  ASSERT_TRUE(results.at(1).error);
  EXPECT_THROW(std::rethrow_exception(results.at(1).error), CancelledError);
  for (const uint64_t i : {0, 2}) expect_same(*results.at(i).drawn, pipeline.generate(list[i].request));
}

TEST(StepBatch, CancelsTheCallWhereAllAreCancelled) {
  Pipeline pipeline = load_demo();
  StepBatch batch(pipeline, 8);
  bool stop = false;
  Callbacks callbacks;
  callbacks.cancelled = [&] { return stop; };
  batch.add(1, small("a", 1, 500), callbacks);
  batch.add(2, small("b", 2, 500), callbacks);
  EXPECT_EQ(batch.step().size(), 0u);
  stop = true;
  const auto results = batch.step();
  ASSERT_EQ(results.size(), 2u);
  for (const auto& result : results) EXPECT_THROW(std::rethrow_exception(result.error), CancelledError);
}

TEST(StepBatch, WhatIsNotFiniteIsDrawnAlone) {
  Pipeline pipeline = load_demo();
  StepBatch batch(pipeline, 8);
  GenerateRequest bad = small("a fox", 2, 4);
  bad.initial_noise.assign(size_t{4} * 8 * 8, 0.5f);
  bad.initial_noise[17] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<Joining> list = {{small("an apple", 1, 4)}, {bad, 1}, {small("a tree", 3, 4), 1}};
  const auto results = draw(batch, list);
  EXPECT_THAT(results.at(1).alone, HasSubstr("the UNet gave values that are not finite"));
  EXPECT_THROW(pipeline.generate(bad), GenerationError) << "as it does there";
  for (const uint64_t i : {0, 2}) expect_same(*results.at(i).drawn, pipeline.generate(list[i].request));
}

TEST(StepBatch, ABadRequestFailsByItself) {
  Pipeline pipeline = load_demo();
  StepBatch batch(pipeline, 8);
  GenerateRequest sampler = small("a", 1), lora = small("a <lora:none:1>", 2);
  sampler.sampler = "eulr";
  const auto results = draw(batch, {{small("an apple", 1)}, {sampler, 1}, {lora, 2}});
  EXPECT_TRUE(results.at(0).drawn);
  EXPECT_THAT(what(results.at(1)), HasSubstr("eulr"));
  EXPECT_THAT(what(results.at(2)), HasSubstr("lora: none"));
}

TEST(StepBatch, RunTimeLorasHaveStrengthsOfTheirOwn) {
  Pipeline pipeline = load_demo();
  const auto with = [](GenerateRequest r, double weight) {
    r.lora_mode = "runtime";
    if (weight != 0) r.loras = {{kLora, weight, weight}};
    return r;
  };
  // The second one brings the LoRA into a batch that has none.
  const std::vector<Joining> list = {{small("a red apple", 1, 6)},
                                     {with(small("a red apple", 1, 5), 1), 1},
                                     {with(small("a red apple", 1, 5), 0.4), 2},
                                     {with(small("a red apple", 1, 5), 0), 2}};
  expect_as_alone(pipeline, list);
  EXPECT_LT(psnr(pipeline.generate(list[1].request).pictures[0].latents,
                 pipeline.generate(list[3].request).pictures[0].latents),
            40)
      << "the LoRA acts";
}

TEST(StepBatch, MergedLorasMustBeTheSame) {
  Pipeline pipeline = load_demo();
  GenerateRequest plain = small("a red apple", 1, 3), merged = plain, other = plain;
  merged.loras = {{kLora, 1, 1}};
  other.loras = {{kLora, 0.5, 0.5}};
  StepBatch batch(pipeline, 8);
  batch.add(1, merged, {});
  EXPECT_TRUE(batch.fits(merged)) << "before the first step, too";
  EXPECT_FALSE(batch.fits(plain));
  EXPECT_FALSE(batch.fits(other));
  batch.step();
  EXPECT_TRUE(batch.fits(merged));
  EXPECT_FALSE(batch.fits(plain));
  expect_as_alone(pipeline, {{merged}, {merged, 1}, {plain, 1}, {other, 2}});
}

TEST(StepBatch, SaysWhatIsDrawnAlone) {
  Pipeline pipeline = load_demo();
  StepBatch batch(pipeline, 4);
  const auto refusal = [&](const auto& change) {
    GenerateRequest r = small("a", 1);
    change(r);
    return batch.refusal(r);
  };
  EXPECT_EQ(refusal([](auto&) {}), "");
  EXPECT_EQ(refusal([](auto& r) { r.mask = Image{}; }), "a mask");
  EXPECT_EQ(refusal([](auto& r) { r.controls.resize(1); }), "ControlNets");
  EXPECT_EQ(refusal([](auto& r) { r.ip_adapters.resize(1); }), "IP-Adapters");
  EXPECT_EQ(refusal([](auto& r) { r.hires.scale = 2; }), "several passes");
  EXPECT_EQ(refusal([](auto& r) { r.loopback.loops = 2; }), "several passes");
  EXPECT_EQ(refusal([](auto& r) { r.tile_size = 64; }), "tile-size");
  EXPECT_EQ(refusal([](auto& r) { r.tiling_x = true; }), "tiling");
  EXPECT_EQ(refusal([](auto& r) { r.sag_scale = 1; }), "pag-scale, sag-scale");
  EXPECT_EQ(refusal([](auto& r) { r.freeu = {1, 1, 1, 1}; }), "freeu");
  EXPECT_EQ(refusal([](auto& r) { r.savings.sada = true; }), "savings");
  EXPECT_EQ(refusal([](auto& r) { r.denoising_end = 0.5; }), "one image by two models");
  EXPECT_EQ(refusal([](auto& r) { r.batch = 5; }), "more images than a batch has");
  batch.add(1, small("a", 1), {});
  GenerateRequest large = small("a", 1);
  large.width = 72;
  EXPECT_FALSE(batch.fits(large));
  EXPECT_TRUE(batch.fits(small("b", 2)));
}

TEST(StepBatch, ItsEndDropsWhatIsUnfinished) {
  Pipeline pipeline = load_demo();
  {
    StepBatch batch(pipeline, 4);
    batch.add(1, small("a", 1), {});
    batch.add(2, small("b", 2), {});
    batch.step();
    batch.add(3, small("c", 3), {});
  }
  EXPECT_EQ(pipeline.generate(small("a", 1)).pictures.size(), 1u);
}

}  // namespace
}  // namespace rocm_sd
