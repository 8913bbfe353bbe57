// UNet: the caches of text and time, operands that do not fit, planning. Parity with Diffusers is tested by
// tests/integration_tests/test_models.py.
#include "models/unet.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.hpp"
#include "kernels/elementwise/elementwise.hpp"
#include "kernels/onednn.hpp"
#include "support/random_source.hpp"
#include "support/tensor_testing.hpp"

namespace rocm_sd {
namespace {

using testing_support::random_tensor;
using testing_support::RandomSource;
using testing_support::to_doubles;

UNetConfig small() {
  UNetConfig config;
  config.norm_groups = 4;
  config.time_width = 32;
  config.down = {{.channels = 8, .resnets = 1, .transformer_layers = {1}, .heads = 2, .context_width = 12},
                 {.channels = 16, .resnets = 1, .heads = 2, .resamples = false}};
  config.up = {{.channels = 16, .resnets = 2, .heads = 2},
               {.channels = 8,
                .resnets = 2,
                .transformer_layers = {1, 1},
                .heads = 2,
                .context_width = 12,
                .resamples = false}};
  config.mid = UNetMidConfig{{2}, 4, 12};
  return config;
}

struct UNetTest : testing::Test {
  RandomSource source;
  UNet unet = UNet::load(host_device(), small(), source, DType::kF32);
  testing_support::TestExec test;
  Tensor latents = random_tensor({2, 6, 4, 4}, DType::kF32, 1);
  Tensor states = random_tensor({2, 5, 12}, DType::kF32, 2);
  Tensor timestep = random_tensor({2}, DType::kF32, 3, 300);
  TextCache cache = unet.make_text_cache(host_device(), 2, 5);
};

TEST_F(UNetTest, NumbersItsLayers) {
  EXPECT_EQ(cache.keys_values.size(), 5u);
  EXPECT_EQ(cache.keys_values[1].shape(), (Shape{2, 5, 32}));
  EXPECT_EQ(unet.time_channels(), 8 + 16 + 16 + 16 + 16 + 16 + 8 + 8);
  EXPECT_EQ(unet.config().context_width(), 12);
}

TEST_F(UNetTest, ShiftsMayBeMadeBeforehand) {
  unet.prepare_text(test.ex, states, cache);
  const Tensor shifts = unet.time_shifts(test.ex, {timestep});
  const auto apart = to_doubles(unet(test.ex, latents, shifts, cache));
  EXPECT_EQ(apart, to_doubles(unet(test.ex, latents, TimeInputs{timestep}, cache)));
  const Tensor other = random_tensor({2, 5, 12}, DType::kF32, 9);
  unet.prepare_text(test.ex, other, cache);
  EXPECT_NE(apart, to_doubles(unet(test.ex, latents, shifts, cache)));
}

TEST_F(UNetTest, PicturesOfABatchAreIndependent) {
  unet.prepare_text(test.ex, states, cache);
  const auto both = to_doubles(unet(test.ex, latents, TimeInputs{timestep}, cache));
  const TextCache one = unet.make_text_cache(host_device(), 1, 5);
  unet.prepare_text(test.ex, states.narrow(0, 1, 1), one);
  const Tensor single =
      unet(test.ex, latents.narrow(0, 1, 1), TimeInputs{timestep.narrow(0, 1, 1)}, one);  // [1,6,4,4]
  testing_support::expect_tensor_near(single, {both.begin() + 96, both.end()}, 1e-4);
}

TEST_F(UNetTest, ReplaysWhatItPlanned) {
  const Tensor out = make_tensor(host_device(), latents.shape(), DType::kF32);
  Arena arena(host_device());
  Program text("text", arena, [&](Exec& ex) { unet.prepare_text(ex, states, cache); });
  Program step("step", arena,
               [&](Exec& ex) { copy_into(ex, unet(ex, latents, TimeInputs{timestep}, cache), out); });
  text.run();
  step.run();
  const auto first = to_doubles(out);
  unet.prepare_text(test.ex, states, cache);
  EXPECT_EQ(first, to_doubles(unet(test.ex, latents, TimeInputs{timestep}, cache)));
  const float later[2] = {1, 2};
  upload(host_device(), timestep, later, 2);
  step.run();
  EXPECT_EQ(to_doubles(out), to_doubles(unet(test.ex, latents, TimeInputs{timestep}, cache)));
  EXPECT_NE(first, to_doubles(out));
}

TEST_F(UNetTest, RefusesWhatDoesNotFit) {
  unet.prepare_text(test.ex, states, cache);
  const TimeInputs time{timestep};
  EXPECT_THROW(unet(test.ex, random_tensor({2, 6, 4, 9}, DType::kF32, 1), time, cache), ShapeError);
  EXPECT_THROW(unet(test.ex, random_tensor({2, 6, 4, 4}, DType::kBF16, 1), time, cache), ShapeError);
  EXPECT_THROW(unet(test.ex, random_tensor({1, 6, 4, 4}, DType::kF32, 1), time, cache), ShapeError);
  EXPECT_THROW(unet(test.ex, latents, TimeInputs{}, cache), ShapeError);
  EXPECT_THROW(unet(test.ex, latents, time, unet.make_text_cache(host_device(), 1, 5)), ShapeError);
  EXPECT_THROW(unet.time_shifts(test.ex, {.timestep = timestep, .guidance_cond = states}), ShapeError);
  EXPECT_THROW(unet.prepare_text(test.ex, random_tensor({2, 5, 13}, DType::kF32, 2), cache), ShapeError);
}

// A model's prediction from random weights as `dtype`; its type of products is checked.
std::vector<double> predicted(const UNetConfig& config, DType dtype, DType products) {
  const RandomSource source;
  const UNet unet = UNet::load(host_device(), config, source, dtype);
  EXPECT_EQ(unet.dtype(), dtype);
  EXPECT_EQ(unet.compute_dtype(), products);
  testing_support::TestExec test;
  const TextCache cache = unet.make_text_cache(host_device(), 2, 5);
  unet.prepare_text(test.ex, random_tensor({2, 5, 12}, DType::kF32, 2), cache);
  return to_doubles(unet(test.ex, random_tensor({2, 6, 4, 4}, DType::kF32, 1),
                         TimeInputs{random_tensor({2}, DType::kF32, 3, 300)}, cache));
}

// Narrow ones always, others where the CPU's products of bf16 do not pay.
TEST(UNetInBf16, MultipliesFloatWhereBf16DoesNotPay) {
  UNetConfig wide = small();
  wide.down[1].channels = wide.up[0].channels = 256;
  const DType products = onednn::bf16_pays() ? DType::kBF16 : DType::kF32;
  // 40 layers one after the other round two operands each, evenly within a unit: 4 deviations of their sum.
  const double tolerance = 4 * std::sqrt(2 * 40 / 3.0) * testing_support::unit_roundoff(DType::kBF16);
  for (const auto& [config, type] : {std::pair{small(), DType::kF32}, {wide, products}}) {
    const auto want = predicted(config, DType::kF32, DType::kF32),
               got = predicted(config, DType::kBF16, type);
    EXPECT_NE(got, want);
    testing_support::expect_near(got, want, tolerance);
  }
}

// Whatever the host multiplies in: its memory only holds the weights until the GPU takes them.
TEST(UNetInBf16, IsForTheDeviceThatMultiplies) {
  const RandomSource source;
  const testing_support::PoisonedDevice gpu(DeviceKind::kEmulator);
  const UNet unet = UNet::load({host_device(), gpu}, small(), source, DType::kBF16);
  EXPECT_EQ(unet.compute_dtype(), DType::kBF16);
  EXPECT_EQ(UNet::load(host_device(), small(), source, DType::kBF16).compute_dtype(), DType::kF32);
}

TEST(UNetSdxl, NeedsItsConditions) {
  UNetConfig config = small();
  config.added_time_width = 4;
  config.added_width = 10 + 6 * 4;
  const RandomSource source;
  const UNet unet = UNet::load(host_device(), config, source, DType::kF32);
  testing_support::TestExec test;
  const Tensor timestep = random_tensor({1}, DType::kF32, 3, 300);
  const Tensor text = random_tensor({1, 10}, DType::kF32, 4),
               ids = random_tensor({1, 6}, DType::kF32, 5, 500);
  EXPECT_NO_THROW(unet.time_shifts(test.ex, {timestep, text, ids}));
  EXPECT_THROW(unet.time_shifts(test.ex, {timestep}), ShapeError);
  EXPECT_THROW(unet.time_shifts(test.ex, {timestep, text, random_tensor({1, 5}, DType::kF32, 5)}),
               ShapeError);
}

}  // namespace
}  // namespace rocm_sd
