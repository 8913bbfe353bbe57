// Whole pictures on a GPU in f16 and bf16 against the same engine's f32 on the CPU, which is tested against
// Diffusers: 40 dB or better. The demo model, and every model folder or file below ROCM_SD_TEST_MODELS (made
// by tools/checkpoints/make_random_checkpoint.py --tiny).
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/dtype.hpp"
#include "base/error.hpp"
#include "base/format.hpp"
#include "gpu_tests/gpu_test.hpp"
#include "kernels/select.hpp"
#include "pipeline/load.hpp"
#include "runtime/memory_budget.hpp"

namespace rocm_sd {
namespace {

namespace fs = std::filesystem;

const std::string kDemo = std::string(ROCM_SD_SOURCE_DIR) + "/models/demo";

double psnr(const Image& a, const Image& b) {
  EXPECT_EQ(a.rgb.size(), b.rgb.size());
  double squares = 0;
  for (size_t i = 0; i < a.rgb.size(); ++i) squares += std::pow(double{1} * a.rgb[i] - b.rgb[i], 2);
  if (squares == 0) return HUGE_VAL;
  return 10 * std::log10(255.0 * 255.0 * static_cast<double>(a.rgb.size()) / squares);
}

// A picture without contrast would make every comparison pass.
double contrast(const Image& image) {
  double sum = 0, squares = 0;
  for (const uint8_t v : image.rgb) sum += v, squares += double{1} * v * v;
  const auto n = static_cast<double>(image.rgb.size());
  return std::sqrt(squares / n - sum / n * sum / n);
}

std::vector<std::string> models() {
  std::vector<std::string> out = {kDemo};
  if (const char* folder = std::getenv("ROCM_SD_TEST_MODELS"))
    for (const auto& entry : fs::directory_iterator(folder)) out.push_back(entry.path().string());
  std::sort(out.begin() + 1, out.end());
  return out;
}

// In a quarter of the pixels and half the steps on an emulated GPU, for which each counts.
GenerateRequest apple() {
  GenerateRequest request;
  const bool emulated = test_gpu_is_emulated();
  if (emulated) request.width = request.height = 64;
  request.prompt = "a red apple";
  request.negative_prompt = "a car";
  request.steps = emulated ? 3 : 6;
  request.cfg_scale = 5;
  request.seed = 7;
  return request;
}

Pipeline load(const std::string& model, const std::string& dtype, Device& device) {
  return load_pipeline({.model = model, .dtype = dtype}, device);
}

class PipelineOnGpu : public testing::TestWithParam<std::string> {};

TEST_P(PipelineOnGpu, EveryModelDrawsTheHostsPicture) {
  for (const std::string& model : models()) {
    Pipeline gpu = load(model, GetParam(), test_gpu()), host = load(model, "f32", host_device());
    GenerateRequest request = apple();
    request.sampler = "euler";
    if (model != kDemo) request.width = request.height = 64;
    const Image want = host.generate(request).pictures[0].image;
    ASSERT_GT(contrast(want), 5) << model;
    Image first;
    for (int round = 0; round < 3; ++round) {  // run live, recorded, replayed
      const Image got = gpu.generate(request).pictures[0].image;
      EXPECT_GE(psnr(got, want), 40) << model << " round " << round;
      if (round == 0) first = got;
      EXPECT_EQ(got.rgb, first.rgb) << model << ": the same request gives the same bits";
    }
  }
}

// Every stage of a picture in little work, for emulators.
TEST_P(PipelineOnGpu, DrawsASmallPicture) {
  GenerateRequest request = apple();
  request.width = request.height = 64;
  request.steps = 2;
  const Image want = load(kDemo, "f32", host_device()).generate(request).pictures[0].image;
  ASSERT_GT(contrast(want), 5);
  EXPECT_GE(psnr(load(kDemo, GetParam(), test_gpu()).generate(request).pictures[0].image, want), 40);
}

// The same weights in 8 bits on the host, dequantized there: where the GPU dequantizes too, its own rounding
// is all that differs. Where it multiplies 8 bits, so are the activations: the distance is that of the
// format.
TEST_P(PipelineOnGpu, DrawsASmallPictureFromWeightsInEightBits) {
  if (GetParam() != "f16") GTEST_SKIP() << "once is enough: the formats are the same";
  GenerateRequest request = apple();
  request.width = request.height = 64;
  request.steps = 2;
  const Image plain = load(kDemo, "f32", host_device()).generate(request).pictures[0].image;
  for (const auto& [format, floor] :
       {std::pair{"int8", 40.0}, {"fp8", 32.0}, {"int8-products", 30.0}, {"fp8-products", 22.0}}) {
    const auto draw = [&, format = format](const std::string& dtype, Device& device) {
      return load_pipeline({.model = kDemo, .dtype = dtype, .weights = format}, device)
          .generate(request)
          .pictures[0];
    };
    const Picture chosen = draw("f16", test_gpu());
    EXPECT_GE(psnr(chosen.image, plain), floor) << format;
    EXPECT_NE(chosen.parameters.find(concat("unet weights ", format)), std::string::npos);
    RecordProperty(concat("psnr_", format), fmt::format("{:.1f}", psnr(chosen.image, plain)));
    if (std::string(format) == "int8") {  // the host's picture of the same weights
      EXPECT_GE(psnr(chosen.image, draw("f32", host_device()).image), 40) << format;
    }
  }
}

// The VAE's filters in 8 bits: the host's picture of the same bytes, and less memory.
TEST_P(PipelineOnGpu, DrawsASmallPictureFromAVaeInEightBits) {
  GenerateRequest request = apple();
  request.width = request.height = 64;
  request.steps = 2;
  const auto load = [](const char* format, const std::string& dtype, Device& device) {
    return load_pipeline({.model = kDemo, .dtype = dtype, .vae_weights = format}, device);
  };
  const Image plain = load("auto", "f32", host_device()).generate(request).pictures[0].image;
  const uint64_t bytes = load("auto", GetParam(), test_gpu()).plan(request).weights;
  for (const auto& [format, floor] : {std::pair{"int8", 38.0}, {"fp8", 30.0}}) {
    Pipeline gpu = load(format, GetParam(), test_gpu());
    const Picture chosen = gpu.generate(request).pictures[0];
    RecordProperty(concat("psnr_", format), fmt::format("{:.1f}", psnr(chosen.image, plain)));
    EXPECT_GE(psnr(chosen.image, plain), floor) << format;
    EXPECT_GE(psnr(chosen.image, load(format, "f32", host_device()).generate(request).pictures[0].image), 40);
    EXPECT_NE(chosen.parameters.find(concat("vae weights ", format)), std::string::npos);
    EXPECT_LT(gpu.plan(request).weights, bytes) << format;
  }
}

// Windows are cut, predicted and averaged on the device: the host's picture, and one window is the whole.
TEST_P(PipelineOnGpu, DrawsInTiles) {
  Pipeline gpu = load(kDemo, GetParam(), test_gpu()), host = load(kDemo, "f32", host_device());
  GenerateRequest request = apple();
  request.width = 104;
  request.height = 72;
  request.steps = 2;
  const Image whole = gpu.generate(request).pictures[0].image;
  request.tile_size = 512;
  EXPECT_EQ(gpu.generate(request).pictures[0].image.rgb, whole.rgb);
  request.tile_size = 64;
  request.tile_overlap = 24;
  request.tile_batch = 2;
  request.tile_weights = "gaussian";
  const Image got = gpu.generate(request).pictures[0].image;
  EXPECT_GE(psnr(got, host.generate(request).pictures[0].image), 40);
  EXPECT_LT(psnr(got, whole), 40) << "tiles drew the plain picture";
}

TEST_P(PipelineOnGpu, WeightsInEightBitsTakeHalf) {
  GenerateRequest request = apple();
  request.width = request.height = 64;
  const auto plan = [&](const std::string& format, bool offload) {
    return load_pipeline({.model = kDemo, .dtype = "f16", .weights = format, .offload = offload}, test_gpu())
        .plan(request);
  };
  const MemoryPlan full = plan("auto", false), eight = plan("int8", false);
  EXPECT_LT(eight.weights, full.weights);
  EXPECT_EQ(plan("fp8", false).weights, eight.weights);
  EXPECT_LE(plan("int8", true).weights, eight.weights);
}

TEST_P(PipelineOnGpu, SamplersBatchesSizesAndMasks) {
  Pipeline gpu = load(kDemo, GetParam(), test_gpu()), host = load(kDemo, "f32", host_device());
  const auto compare = [&](const GenerateRequest& request, const std::string& what) {
    const GenerateResult got = gpu.generate(request), want = host.generate(request);
    ASSERT_EQ(got.pictures.size(), want.pictures.size());
    for (size_t i = 0; i < want.pictures.size(); ++i)
      EXPECT_GE(psnr(got.pictures[i].image, want.pictures[i].image), 40) << what << " picture " << i;
  };
  for (const char* sampler : {"DPM++ 2M Karras", "Euler a", "DPM++ SDE", "UniPC", "DDIM", "LCM"}) {
    GenerateRequest request = apple();
    request.sampler = sampler;
    compare(request, sampler);
  }
  GenerateRequest batch = apple();
  batch.batch = 3;
  batch.width = 72;
  batch.height = 136;
  batch.guidance_rescale = 0.6;
  compare(batch, "batch of an odd size");
  GenerateRequest long_prompt = apple();
  for (int i = 0; i < 90; ++i) long_prompt.prompt += " apple";
  compare(long_prompt, "two chunks of text");
  GenerateRequest plain = apple();
  plain.cfg_scale = 1;
  compare(plain, "without guidance");
  GenerateRequest masked = apple();
  masked.width = masked.height = 128;
  masked.init_image = Image{128, 128, std::vector<uint8_t>(128 * 128 * 3), {}};
  masked.mask = masked.init_image;
  for (size_t i = 0; i < masked.mask->rgb.size(); ++i) {
    masked.init_image->rgb[i] = static_cast<uint8_t>(i / 384 + i % 3 * 60);
    masked.mask->rgb[i] = i % 384 < 192 ? 255 : 0;
  }
  compare(masked, "image to image with a mask");
}

TEST_P(PipelineOnGpu, SavingMemoryChangesNothing) {
  GenerateRequest request = apple();
  request.width = request.height = test_gpu_is_emulated() ? 128 : 256;
  request.steps = 2;
  Pipeline plain = load(kDemo, GetParam(), test_gpu());
  const MemoryPlan plan = plain.plan(request);
  const GenerateResult want = plain.generate(request);
  EXPECT_LE(want.device_peak, plan.total() + plan.total() / 20 + (8u << 20)) << "the plan is kept";
  EXPECT_GE(want.arena_used, plan.arena / 10 * 9);

  LoadOptions options{.model = kDemo, .dtype = GetParam(), .offload = true};
  Pipeline offloaded = load_pipeline(options, test_gpu());
  EXPECT_LT(offloaded.plan(request).weights, plan.weights);
  for (int round = 0; round < 2; ++round)
    EXPECT_EQ(offloaded.generate(request).pictures[0].image.rgb, want.pictures[0].image.rgb);

  options.offload = false;
  options.vram_budget = plan.total() - (plan.vae - std::max(plan.unet, plan.text)) / 2;
  Pipeline banded = load_pipeline(options, test_gpu());
  EXPECT_GT(banded.plan(request).vae_bands, 1);
  EXPECT_GE(psnr(banded.generate(request).pictures[0].image, want.pictures[0].image), 50);

  options.vram_budget = 1 << 20;
  try {
    load_pipeline(options, test_gpu()).generate(request);
    ADD_FAILURE() << "a budget of 1 MB was kept";
  } catch (const OutOfMemoryError& e) {
    EXPECT_NE(std::string(e.what()).find("other programs and the driver hold"), std::string::npos)
        << e.what();
  }
}

// Where the UNet's stage is what does not fit, its weights are streamed by themselves, and the image stays
// the same to the bit; so it does where they are asked to be, within every budget.
TEST_P(PipelineOnGpu, StreamedWeightsDrawTheSamePicture) {
  GenerateRequest request = apple();
  request.steps = 3;
  LoadOptions options{.model = kDemo, .dtype = GetParam(), .offload = true};
  Pipeline offloaded = load_pipeline(options, test_gpu());
  const MemoryPlan whole = offloaded.plan(request);
  const Image want = offloaded.generate(request).pictures[0].image;
  options.stream_weights = true;
  Pipeline streamed = load_pipeline(options, test_gpu());
  const MemoryPlan least = streamed.plan(request);
  EXPECT_LT(least.total(), whole.total());
  EXPECT_GT(least.stream_copied, least.streamed / 2);
  for (int round = 0; round < 2; ++round)
    EXPECT_EQ(streamed.generate(request).pictures[0].image.rgb, want.rgb) << round;
  options.offload = options.stream_weights = false;
  options.vram_budget = (least.total() + whole.total()) / 2;
  Pipeline pipeline = load_pipeline(options, test_gpu());
  const GenerateResult got = pipeline.generate(request);
  EXPECT_GT(got.plan.stream_copied, 0u);
  EXPECT_LE(got.plan.total(), options.vram_budget);
  // The VAE may work in bands, another order of sums.
  EXPECT_GE(psnr(got.pictures[0].image, want), 50);
  EXPECT_EQ(pipeline.info().dtype.find("int8"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Types, PipelineOnGpu, testing::Values("f16", "bf16", "f32"));

// At any time, from loading on: what the device has handed out. Emulated, the plan is what is made: weights
// are loaded, moved, laid out and measured by then.
TEST(PipelineMemory, KeepsTheBudgetFromLoadingOn) {
  constexpr uint64_t kRounding = 1 << 17;  // of some thousand blocks
  GenerateRequest request = apple();
  request.width = request.height = 64;
  request.steps = 2;
  LoadOptions options{.model = kDemo, .dtype = "f16", .offload = true};
  const MemoryPlan offloaded = load_pipeline(options, test_gpu()).plan(request);
  options.stream_weights = true;
  const MemoryPlan least = load_pipeline(options, test_gpu()).plan(request);
  options.offload = options.stream_weights = false;
  options.vram_budget = (least.total() + offloaded.total()) / 2;
  MemoryBudget* const counts = memory_budget(test_gpu());
  ASSERT_NE(counts, nullptr);
  const uint64_t most = test_gpu().allocated() + options.vram_budget;
  counts->reset_peak();
  Pipeline pipeline = load_pipeline(options, test_gpu());
  EXPECT_LE(counts->peak_allocated(), most) << "loading";
  EXPECT_GT(pipeline.plan(request).streamed, 0u);
  EXPECT_LE(counts->peak_allocated(), most + kRounding) << "planning";
  if (test_gpu_is_emulated()) return;
  for (int round = 0; round < 2; ++round)
    EXPECT_LE(pipeline.generate(request).device_peak, most + kRounding) << round;
}

// Streaming leaves the memory that the weights take turns in. Where the UNet's stage is still what does not
// fit, as with many small images, weights in 8 bits take less of it; they are taken by themselves, unless
// their form was asked for. Emulated, drawing so many images takes too long: the plan is what is compared.
TEST(PipelineMemory, TheUnetsWeightsShrinkWhereStreamingIsNotEnough) {
  GenerateRequest request = apple();
  request.width = request.height = 64;
  request.batch = 32;
  request.steps = 2;
  LoadOptions options{.model = kDemo, .dtype = "f16", .offload = true, .stream_weights = true};
  const MemoryPlan wide = load_pipeline(options, test_gpu()).plan(request);
  options.weights = "int8";
  Pipeline narrow = load_pipeline(options, test_gpu());
  const MemoryPlan least = narrow.plan(request);
  ASSERT_LT(least.total(), wide.total());
  ASSERT_LT(least.stream_ring, wide.stream_ring);
  options.vram_budget = (least.total() + wide.total()) / 2;
  options.weights = "auto";
  for (const bool asked :
       {true, false}) {  // for host memory and streaming; else they come by themselves, too
    options.offload = options.stream_weights = asked;
    Pipeline pipeline = load_pipeline(options, test_gpu());
    const MemoryPlan plan = pipeline.plan(request);
    EXPECT_LE(plan.total(), options.vram_budget) << asked;
    EXPECT_GT(plan.stream_copied, 0u) << asked;
    EXPECT_NE(pipeline.info().dtype.find("int8"), std::string::npos) << asked;
    if (test_gpu_is_emulated()) continue;
    // The VAE may work in bands, another order of sums.
    EXPECT_GE(psnr(pipeline.generate(request).pictures[0].image, narrow.generate(request).pictures[0].image),
              50)
        << asked;
  }
  options.weights = "f16";
  EXPECT_THROW(load_pipeline(options, test_gpu()).plan(request), OutOfMemoryError);
}

// Multiplies a tensor of an f16 safetensors file.
void scale_tensor(const fs::path& file, const std::string& name, float factor) {
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  uint64_t length = 0;
  stream.read(reinterpret_cast<char*>(&length), 8);
  std::string header(length, '\0');
  stream.read(header.data(), static_cast<std::streamsize>(length));
  const auto entry = nlohmann::json::parse(header).at(name);
  ASSERT_EQ(entry.at("dtype"), "F16");
  const auto begin = entry.at("data_offsets")[0].get<uint64_t>(),
             end = entry.at("data_offsets")[1].get<uint64_t>();
  std::vector<uint16_t> values((end - begin) / 2);
  const auto place = static_cast<std::streamoff>(8 + length + begin);
  stream.seekg(place);
  stream.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(end - begin));
  for (uint16_t& v : values) {
    v = float_to_f16(f16_to_float(v) * factor);
    ASSERT_TRUE(std::isfinite(f16_to_float(v))) << "the file itself must not overflow";
  }
  stream.seekp(place);
  stream.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(end - begin));
  ASSERT_TRUE(stream.good());
}

TEST(PipelineOverflow, AVaeThatOverflowsIsRunInAWiderType) {
  const fs::path model = fs::path(testing::TempDir()) / "rocm_sd_overflowing_model";
  fs::remove_all(model);
  fs::copy(kDemo, model, fs::copy_options::recursive);
  scale_tensor(model / "vae" / "diffusion_pytorch_model.safetensors", "decoder.conv_in.weight", 3e4f);
  Pipeline gpu = load(model.string(), "f16", test_gpu()), host = load(model.string(), "f32", host_device());
  const Image want = host.generate(apple()).pictures[0].image;
  for (int round = 0; round < 2; ++round) {
    const GenerateResult got = gpu.generate(apple());
    EXPECT_GE(psnr(got.pictures[0].image, want), 40);
    EXPECT_NE(got.pictures[0].parameters.find("vae bf16"), std::string::npos) << "the receipt says so";
  }
  EXPECT_EQ(gpu.info().dtype, "f16, vae bf16");
  fs::remove_all(model);
}

TEST(PipelineRefusals, WhatTheGpuCannotDoIsSaid) {
  try {
    load(kDemo, "f64", test_gpu());
    FAIL() << "f64 was taken";
  } catch (const UsageError& e) {
    EXPECT_NE(std::string(e.what()).find("dtype"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace rocm_sd
