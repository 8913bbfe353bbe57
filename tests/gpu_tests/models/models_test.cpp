// The models on a GPU in 16 bits against the same weights on the host in f32: UNets in the structure of
// SD 1.5 (heads of 40 and 80), SD 2.1 and SDXL (heads of 64), text encoders, VAE whole and in bands, TAESD.
// The host's models are themselves tested against Diffusers.
#include <cmath>

#include "gpu_tests/gpu_test.hpp"
#include "gpu_tests/models/run_forward.hpp"
#include "kernels/elementwise/elementwise.hpp"
#include "models/clip.hpp"
#include "models/offloaded_model.hpp"
#include "models/taesd.hpp"
#include "models/unet.hpp"
#include "models/vae.hpp"
#include "support/random_source.hpp"
#include "support/tensor_testing.hpp"

namespace rocm_sd {
namespace {

using testing_support::Forward;
using testing_support::random_tensor;
using testing_support::RandomSource;
using testing_support::run_on;
using testing_support::signal_to_noise;
using testing_support::Upload;

class ModelsOnGpu : public testing::TestWithParam<DType> {
 protected:
  // 16-bit rounding grows through some 50 layers; bf16 has 3 bits less, 18 dB.
  double least() const { return GetParam() == DType::kF16 ? 46 : 30; }
  RandomSource source;
};

UNetConfig sd1_shaped() {
  UNetConfig config;
  config.norm_groups = 16;
  config.time_width = 128;
  config.down = {{.channels = 80, .resnets = 1, .transformer_layers = {1}, .heads = 2, .context_width = 96},
                 {.channels = 160, .resnets = 1, .transformer_layers = {1}, .heads = 2, .context_width = 96},
                 {.channels = 160, .resnets = 1, .heads = 2, .resamples = false}};
  config.up = {{.channels = 160, .resnets = 2, .heads = 2},
               {.channels = 160, .resnets = 2, .transformer_layers = {1, 1}, .heads = 2, .context_width = 96},
               {.channels = 80,
                .resnets = 2,
                .transformer_layers = {1, 1},
                .heads = 2,
                .context_width = 96,
                .resamples = false}};
  config.mid = UNetMidConfig{{1}, 2, 96};
  return config;
}

UNetConfig sdxl_shaped() {
  UNetConfig config;
  config.norm_groups = 32;
  config.time_width = 128;
  config.down = {{.channels = 64, .resnets = 2, .heads = 1},
                 {.channels = 128,
                  .resnets = 2,
                  .transformer_layers = {2, 2},
                  .heads = 2,
                  .context_width = 128,
                  .resamples = false}};
  config.up = {
      {.channels = 128, .resnets = 3, .transformer_layers = {2, 2, 2}, .heads = 2, .context_width = 128},
      {.channels = 64, .resnets = 3, .heads = 1, .resamples = false}};
  config.mid = UNetMidConfig{{2}, 2, 128};
  config.added_time_width = 16;
  config.added_width = 64 + 6 * 16;
  return config;
}

std::vector<float> run_unet(Device& device, const UNetConfig& config, DType dtype, const RandomSource& source,
                            int64_t height, int64_t width, int replays = 3) {
  const UNet unet = UNet::load(device, config, source, dtype);
  const TextCache cache = unet.make_text_cache(device, 2, 77);
  const Tensor latents = random_tensor({2, height, width, 4}, DType::kF32, 1);
  const Tensor states = random_tensor({2, 77, config.context_width()}, DType::kF32, 2);
  const Tensor timestep = random_tensor({2}, DType::kF32, 3, 300),
               ids = random_tensor({2, 6}, DType::kF32, 5, 500);
  const Tensor pooled = random_tensor({2, 64}, DType::kF32, 4);
  const Forward forward = [&](Exec& ex, const Upload& upload) {
    unet.prepare_text(ex, upload(states, dtype), cache);
    TimeInputs time{.timestep = upload(timestep, DType::kF32)};
    if (config.has_added_conditions()) {
      time.text_embeds = upload(pooled, dtype);
      time.time_ids = upload(ids, DType::kF32);
    }
    return unet(ex, upload(latents, dtype), time, cache);
  };
  return run_on(device, forward, replays);
}

TEST_P(ModelsOnGpu, UNets) {
  for (const auto& [name, config] : {std::pair{"SD 1.5", sd1_shaped()}, std::pair{"SDXL", sdxl_shaped()}})
    for (const auto& [height, width] : {std::pair{16, 16}, std::pair{10, 22}}) {
      const auto want = run_unet(host_device(), config, DType::kF32, source, height, width);
      const auto got = run_unet(test_gpu(), config, GetParam(), source, height, width);
      EXPECT_GE(signal_to_noise(got, want), least()) << name << " " << height << "x" << width;
    }
}

// The lowest level of SD 1.5's UNet in its own size, 1280 channels on 8 x 8 pixels and 8 heads of 160 with
// guidance's batch of 2: a residual block and a transformer, then two residual blocks with their skips.
TEST_P(ModelsOnGpu, ABlockOfSd15Full) {
  UNetConfig config;
  config.down = {{.channels = 1280,
                  .resnets = 1,
                  .transformer_layers = {1},
                  .heads = 8,
                  .context_width = 768,
                  .resamples = false}};
  config.up = {{.channels = 1280, .resnets = 2, .heads = 8, .resamples = false}};
  const auto want = run_unet(host_device(), config, DType::kF32, source, 8, 8, 0);
  const auto got = run_unet(test_gpu(), config, GetParam(), source, 8, 8, test_gpu_is_emulated() ? 0 : 1);
  EXPECT_GE(signal_to_noise(got, want), least());
}

TEST_P(ModelsOnGpu, TextEncoders) {
  for (const bool open_clip : {false, true}) {
    ClipConfig config{.vocabulary = 300, .width = 128, .heads = 2, .mlp_width = 256, .layers = 4};
    if (open_clip) config.activation = Activation::kGelu, config.projection = 96;
    std::vector<int32_t> ids(2 * 77);
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i * 37 % 299);
    const std::vector<int32_t> rows = pooled_rows(config, ids, 77);
    const auto ints = [](const Shape& shape, const std::vector<int32_t>& values) {
      const Tensor t = make_tensor(host_device(), shape, DType::kI32);
      std::copy(values.begin(), values.end(), t.as<int32_t>());
      return t;
    };
    const Tensor id_tensor = ints({2, 77}, ids), row_tensor = ints({2, 1}, rows);
    for (const bool pooled : {false, true}) {
      const auto run = [&](Device& device, DType dtype) {
        const ClipTextModel model = ClipTextModel::load(device, config, source, dtype);
        return run_on(device, [&](Exec& ex, const Upload& upload) {
          const Tensor at = upload(row_tensor, DType::kI32);
          const ClipOutput out = model(ex, upload(id_tensor, DType::kI32), {.skip = 1, .pooled_rows = &at});
          return pooled ? out.pooled : out.states;
        });
      };
      EXPECT_GE(signal_to_noise(run(test_gpu(), GetParam()), run(host_device(), DType::kF32)), least());
    }
  }
}

const VaeConfig kVae = {.channels = {64, 64, 128}, .resnets = 1, .norm_groups = 32};

TEST_P(ModelsOnGpu, VaeDecoderWholeAndInBands) {
  const Tensor latents = random_tensor({1, 14, 10, 4}, DType::kF32, 1);
  const auto run = [&](Device& device, DType dtype, int64_t bands) {
    const VaeDecoder model = VaeDecoder::load(device, kVae, source, dtype);
    return run_on(device, [&](Exec& ex, const Upload& upload) {
      const Tensor z = upload(latents, DType::kF32);
      if (bands == 1) return model(ex, z);
      const Tensor whole = ex.alloc({1, 56, 40, 3}, dtype);
      model.decode_in_bands(ex, z, bands, [&](const Tensor& band, int64_t row) {
        copy_into(ex, band, whole.narrow(1, row, band.dim(1)));
      });
      return whole;
    });
  };
  const auto want = run(host_device(), DType::kF32, 1);
  const auto whole = run(test_gpu(), GetParam(), 1);
  EXPECT_GE(signal_to_noise(whole, want), least());
  for (const int64_t bands : {2, 5, 14}) {
    const auto banded = run(test_gpu(), GetParam(), bands);
    EXPECT_GE(signal_to_noise(banded, want), least()) << bands;
    EXPECT_GE(signal_to_noise(banded, whole), least() + 3) << bands << ": the same but for rounding";
  }
}

TEST_P(ModelsOnGpu, EncodersAndTaesd) {
  const Tensor picture = random_tensor({1, 32, 40, 3}, DType::kF32, 1, 0.5f);
  const auto encode = [&](Device& device, DType dtype) {
    const VaeEncoder model = VaeEncoder::load(device, kVae, source, dtype);
    return run_on(device,
                  [&](Exec& ex, const Upload& upload) { return model(ex, upload(picture, DType::kF32)); });
  };
  EXPECT_GE(signal_to_noise(encode(test_gpu(), GetParam()), encode(host_device(), DType::kF32)), least());
  const TaesdConfig tiny = {.encoder_channels = {64, 64, 64, 64}, .decoder_channels = {64, 64, 64, 64}};
  const Tensor latents = random_tensor({1, 6, 5, 4}, DType::kF32, 2);
  const auto decode = [&](Device& device, DType dtype) {
    const TaesdDecoder model = TaesdDecoder::load(device, tiny, source, dtype);
    return run_on(device,
                  [&](Exec& ex, const Upload& upload) { return model(ex, upload(latents, DType::kF32)); });
  };
  EXPECT_GE(signal_to_noise(decode(test_gpu(), GetParam()), decode(host_device(), DType::kF32)), least());
}

TEST_P(ModelsOnGpu, OffloadedWeightsComeBack) {
  VaeDecoder model = VaeDecoder::load(test_gpu(), kVae, source, GetParam());
  const Tensor latents = random_tensor({1, 6, 6, 4}, DType::kF32, 1);
  const auto run = [&] {
    return run_on(test_gpu(),
                  [&](Exec& ex, const Upload& upload) { return model(ex, upload(latents, DType::kF32)); });
  };
  const auto before = run();
  const uint64_t loaded = test_gpu().allocated();
  OffloadedModel waiting([&](Visitor& v) { model.visit(v); }, test_gpu());
  const uint64_t bytes = waiting.bytes();
  waiting.offload();
  EXPECT_LE(test_gpu().allocated() + bytes, loaded);
  waiting.restore();
  EXPECT_EQ(run(), before);
}

INSTANTIATE_TEST_SUITE_P(HalfTypes, ModelsOnGpu, testing::Values(DType::kF16, DType::kBF16),
                         [](const auto& info) { return std::string(dtype_name(info.param)); });

}  // namespace
}  // namespace rocm_sd
