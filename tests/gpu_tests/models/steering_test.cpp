// What steers a UNet, on a GPU in 16 bits against the same weights on the host in f32: FreeU, perturbed
// layers, ControlNets (union ones too) and T2I-Adapters, everywhere or under a mask. Small enough for
// emulated GPUs. A ControlNet-LoRA is an ordinary ControlNet once its file is read.
#include "gpu_tests/gpu_test.hpp"
#include "gpu_tests/models/run_forward.hpp"
#include "models/controlnet.hpp"
#include "models/t2i_adapter.hpp"
#include "support/random_source.hpp"

namespace rocm_sd {
namespace {

using testing_support::Forward;
using testing_support::random_tensor;
using testing_support::RandomSource;
using testing_support::run_on;
using testing_support::signal_to_noise;
using testing_support::Upload;

constexpr int64_t kRows = 2, kSide = 8, kTokens = 77;

// Three levels of 8 x 8, 4 x 4 and 2 x 2 pixels.
UNetConfig small() {
  UNetConfig config;
  config.norm_groups = 8;
  config.time_width = 64;
  config.down = {{.channels = 40, .resnets = 1, .transformer_layers = {1}, .heads = 1, .context_width = 32},
                 {.channels = 80, .resnets = 1, .transformer_layers = {1}, .heads = 1, .context_width = 32},
                 {.channels = 160, .resnets = 1, .heads = 2, .resamples = false}};
  config.up = {{.channels = 160, .resnets = 2, .heads = 2},
               {.channels = 80, .resnets = 2, .transformer_layers = {1, 1}, .heads = 1, .context_width = 32},
               {.channels = 40, .resnets = 2, .heads = 1, .resamples = false}};
  config.mid = UNetMidConfig{{1}, 2, 32};
  return config;
}

class SteeringOnGpu : public testing::TestWithParam<DType> {
 protected:
  double least() const { return GetParam() == DType::kF16 ? 46 : 30; }  // as models_test.cpp
  int replays() const { return test_gpu_is_emulated() ? 1 : 3; }

  // made(device, dtype): the forward of a UNet there.
  template <class Make>
  std::vector<float> compare(const Make& make, const char* what) {
    const std::vector<float> want = make(host_device(), DType::kF32);
    EXPECT_GE(signal_to_noise(make(test_gpu(), GetParam()), want), least()) << what;
    return want;
  }

  RandomSource source;
};

struct Inputs {
  Tensor latents = random_tensor({kRows, kSide, kSide, 4}, DType::kF32, 1);
  Tensor states = random_tensor({kRows, kTokens, 32}, DType::kF32, 2);
  Tensor timestep = random_tensor({kRows}, DType::kF32, 3, 300);
};

using Steer = std::function<Tensor(Exec&, const Upload&, const UNet&, const TextCache&, const Tensor& latents,
                                   const Tensor& shifts)>;

std::vector<float> run_unet(Device& device, DType dtype, const RandomSource& source, int replays,
                            const Steer& steer) {
  const Inputs in;
  const UNet unet = UNet::load(device, small(), source, dtype);
  const TextCache cache = unet.make_text_cache(device, kRows, kTokens);
  return run_on(
      device,
      [&](Exec& ex, const Upload& upload) {
        unet.prepare_text(ex, upload(in.states, dtype), cache);
        const Tensor shifts = unet.time_shifts(ex, {.timestep = upload(in.timestep, DType::kF32)});
        return steer(ex, upload, unet, cache, upload(in.latents, dtype), shifts);
      },
      replays);
}

TEST_P(SteeringOnGpu, FreeUInBothVersions) {
  const auto run = [&](double backbone, double skip, bool second) {
    return [&, backbone, skip, second](Device& device, DType dtype) {
      const FreeU freeu =
          make_freeu(device, small(), kRows, kSide, kSide, {backbone, backbone, skip, skip}, second);
      return run_unet(
          device, dtype, source, replays(),
          [&](Exec& ex, const Upload&, const UNet& unet, const TextCache& cache, const Tensor& latents,
              const Tensor& shifts) { return unet(ex, latents, shifts, cache, {.freeu = &freeu}); });
    };
  };
  const auto first = compare(run(1.5, 0.2, false), "FreeU"),
             second = compare(run(1.5, 0.2, true), "FreeU v2");
  EXPECT_LT(signal_to_noise(run(1, 1, false)(host_device(), DType::kF32), first), 25);
  EXPECT_LT(signal_to_noise(first, second), 25);
}

// Their sum is the number of pixels; the map is [2,2], and a head has 80 channels.
TEST_P(SteeringOnGpu, AttentionThatPixelsOfTheMiddleBlockGet) {
  const auto run = [&](Device& device, DType dtype) {
    const Inputs in;
    const UNet unet = UNet::load(device, small(), source, dtype);
    const AttentionReceived received = unet.make_received(device, kRows, kSide, kSide);
    const TextCache cache = unet.make_text_cache(device, kRows, kTokens);
    run_on(
        device,
        [&](Exec& ex, const Upload& upload) {
          unet.prepare_text(ex, upload(in.states, dtype), cache);
          const Tensor shifts = unet.time_shifts(ex, {.timestep = upload(in.timestep, DType::kF32)});
          return unet(ex, upload(in.latents, dtype), shifts, cache, {.received = &received});
        },
        replays());
    std::vector<float> all;
    for (const std::vector<float>& sums : unet.attention_sums(device, received, kSide, kSide))
      all.insert(all.end(), sums.begin(), sums.end());
    return all;
  };
  const std::vector<float> got = run(test_gpu(), GetParam()), want = run(host_device(), DType::kF32);
  ASSERT_EQ(got.size(), static_cast<size_t>(kRows) * 4);
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 0.05) << i;
  for (size_t row = 0; row < static_cast<size_t>(kRows); ++row)
    EXPECT_NEAR(got[4 * row] + got[4 * row + 1] + got[4 * row + 2] + got[4 * row + 3], 4, 0.02);
}

TEST_P(SteeringOnGpu, PerturbedLayersByName) {
  const auto run = [&](bool perturbed) {
    return [&, perturbed](Device& device, DType dtype) {
      return run_unet(device, dtype, source, replays(),
                      [&](Exec& ex, const Upload&, const UNet& unet, const TextCache& cache,
                          const Tensor& latents, const Tensor& shifts) {
                        std::vector<bool> layers(unet.self_attentions().size());
                        layers.front() = layers.back() = perturbed;  // neither is the middle block's
                        return unet(ex, latents, shifts, cache,
                                    {.perturbed = 1, .perturbed_layers = &layers});
                      });
    };
  };
  const auto want = compare(run(true), "perturbed");
  EXPECT_LT(signal_to_noise(run(false)(host_device(), DType::kF32), want), 40);
}

// Every pixel's factor, as a mask makes them, or one for each image.
Tensor factors_of(Device& device, int64_t side, bool masked) {
  std::vector<float> values(static_cast<size_t>(kRows * (masked ? side * side : 1)));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] =
        masked ? static_cast<float>(i % static_cast<size_t>(side) * 2 < static_cast<size_t>(side)) : 0.7f;
  return tensor_from(device, {static_cast<int64_t>(values.size())}, values.data());
}

ControlNetConfig control_config(bool is_union) {
  ControlNetConfig config;
  config.trunk = small();
  config.trunk.up.clear();
  config.hint_widths = {8, 8, 16, 16};
  if (is_union)
    config.mixer =
        ControlMixerConfig{.types = 8, .channels = 40, .layers = 1, .type_width = 16, .time_width = 64};
  return config;
}

TEST_P(SteeringOnGpu, ControlNetsWithMasksAndUnions) {
  const Tensor image = random_tensor({kRows, 8 * kSide, 8 * kSide, 3}, DType::kF32, 5);
  const auto run = [&](bool is_union, bool masked) {
    return [&, is_union, masked](Device& device, DType dtype) {
      const ControlNet net = ControlNet::load(device, control_config(is_union), source, dtype);
      const TextCache own = net.trunk().make_text_cache(device, kRows, kTokens);
      std::vector<Tensor> factors;
      for (const int64_t level : net.residual_levels())
        factors.push_back(factors_of(device, halved(kSide, level), masked));
      const std::vector<float> ones(kRows, 1), kinds = {0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0};
      const std::vector<int32_t> canny(kRows, 3);
      const Tensor scales = tensor_from(device, {kRows}, ones.data()),
                   types = tensor_from(device, {kRows, 8}, kinds.data());
      const Tensor type = make_tensor(device, {kRows, 1}, DType::kI32);
      device.copy_to_device(type.data(), canny.data(), type.bytes());
      const Inputs in;
      return run_unet(device, dtype, source, replays(),
                      [&](Exec& ex, const Upload& upload, const UNet& unet, const TextCache& cache,
                          const Tensor& latents, const Tensor& shifts) {
                        net.trunk().prepare_text(ex, upload(in.states, dtype), own);
                        TimeInputs time{.timestep = upload(in.timestep, DType::kF32)};
                        if (is_union) time.added = net.type_embedding(ex, types);
                        Tensor hint = net.hint(ex, upload(image, DType::kF32));
                        if (is_union) hint = net.weigh(ex, hint, type, scales);
                        UNetSkips skips = unet.encode(ex, latents, shifts, cache);
                        net(ex, latents, hint, net.trunk().time_shifts(ex, time), own, factors, skips);
                        return unet.decode(ex, std::move(skips), shifts, cache);
                      });
    };
  };
  const auto plain = compare(run(false, false), "plain"), masked = compare(run(false, true), "masked"),
             together = compare(run(true, true), "union, masked");
  EXPECT_LT(signal_to_noise(masked, plain), 25);
  EXPECT_LT(signal_to_noise(together, masked), 25);
}

TEST_P(SteeringOnGpu, T2iAdaptersWithMasks) {
  T2iConfig config;
  config.channels = {40, 80};
  config.blocks = 1;
  const Tensor squares = random_tensor({kRows, kSide, kSide, 192}, DType::kF32, 6);
  const auto run = [&](bool masked) {
    return [&, masked](Device& device, DType dtype) {
      const T2iAdapter adapter = T2iAdapter::load(device, config, source, dtype);
      const std::vector<Tensor> factors = {factors_of(device, kSide, masked),
                                           factors_of(device, kSide / 2, masked)};
      return run_unet(device, dtype, source, replays(),
                      [&](Exec& ex, const Upload& upload, const UNet& unet, const TextCache& cache,
                          const Tensor& latents, const Tensor& shifts) {
                        const std::vector<Tensor> maps =
                            adapter(ex, upload(squares, DType::kF32), unet.input_dtype());
                        std::vector<std::vector<ScaledMap>> additions(4);  // three down blocks and the middle
                        for (size_t i = 0; i < maps.size(); ++i)
                          additions[i].push_back({maps[i], factors[i]});
                        return unet(ex, latents, shifts, cache, {.additions = &additions});
                      });
    };
  };
  const auto plain = compare(run(false), "plain"), masked = compare(run(true), "masked");
  EXPECT_LT(signal_to_noise(masked, plain), 25);
}

INSTANTIATE_TEST_SUITE_P(Types, SteeringOnGpu, testing::Values(DType::kF16, DType::kBF16),
                         [](const auto& info) { return std::string(dtype_name(info.param)); });

}  // namespace
}  // namespace rocm_sd
