// profile_main: times a full-size model with random weights and prints where the time goes.
//   profile_main MODEL [f32|bf16] [batch] [height] [width] [rounds]
// MODEL: unet-sd1, unet-sd2, unet-sdxl, vae-decoder, vae-encoder, taesd, clip-l, clip-bigg. Sizes are in
// pixels.
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <cstdio>

#include "kernels/elementwise/elementwise.hpp"
#include "models/clip.hpp"
#include "models/taesd.hpp"
#include "models/unet.hpp"
#include "models/vae.hpp"

namespace rocm_sd {
namespace {

// Uniform values of unit gain over the fan-in, from a multiplicative congruential generator: fast enough for
// 2.6 billion of them.
class UniformSource final : public ParameterSource {
 public:
  std::string title() const override { return "random weights"; }
  bool has(const std::string&) const override { return true; }
  void read(const std::string& name, const Shape& shape, DType dtype, void* dst) const override {
    const bool vector = shape.rank() == 1;
    const double offset = vector && name.ends_with("weight") ? 1 : 0;
    const double fan_in = vector ? 300 : static_cast<double>(shape.numel()) / static_cast<double>(shape[0]);
    const double scale = std::sqrt(3 / fan_in);
    std::vector<float> values(static_cast<size_t>(shape.numel()));
    uint64_t state = 0x9e3779b97f4a7c15u ^ std::hash<std::string>()(name);
    for (float& value : values) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      value = static_cast<float>(offset + scale * (static_cast<double>(state >> 40) * 0x1p-23 - 1));
    }
    convert_elements(values.data(), DType::kF32, dst, dtype, shape.numel());
  }
  void ignore(const std::string&) const override {}
};

Tensor ramp(const Shape& shape, DType dtype) {
  std::vector<float> values(static_cast<size_t>(shape.numel()));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(std::sin(0.7 * static_cast<double>(i)));
  return tensor_from(host_device(), shape, values.data(), dtype);
}

struct Size {
  DType dtype = DType::kF32;
  int64_t batch = 2, height = 512, width = 512;
};
using Forward = std::function<Tensor(Exec&)>;

Forward unet_forward(const UNetConfig& config, const Size& size) {
  auto model = std::make_shared<UNet>(UNet::load(host_device(), config, UniformSource(), size.dtype));
  const Tensor latents = ramp({size.batch, size.height / 8, size.width / 8, config.in_channels}, size.dtype);
  const TextCache cache = model->make_text_cache(host_device(), size.batch, 77);
  const Tensor states = ramp({size.batch, 77, config.context_width()}, size.dtype);
  Arena arena(host_device());
  Exec ex(arena);
  model->prepare_text(ex, states, cache);
  TimeInputs time{ramp({size.batch}, DType::kF32)};
  if (config.has_added_conditions()) {
    time.text_embeds = ramp({size.batch, 1280}, size.dtype);
    time.time_ids = ramp({size.batch, (config.added_width - 1280) / config.added_time_width}, DType::kF32);
  }
  return [=](Exec& exec) { return (*model)(exec, latents, time, cache); };
}

Forward clip_forward(const ClipConfig& config, const Size& size) {
  auto model = std::make_shared<ClipTextModel>(
      ClipTextModel::load(host_device(), config, UniformSource(), size.dtype));
  const Tensor ids = make_tensor(host_device(), {size.batch, 77}, DType::kI32);
  for (int64_t i = 0; i < ids.numel(); ++i) ids.as<int32_t>()[i] = static_cast<int32_t>(i * 97 % 49000);
  return [=](Exec& ex) { return (*model)(ex, ids).states; };
}

template <class Model, class Config>
Forward picture_forward(const Config& config, const Size& size, bool decoder) {
  auto model = std::make_shared<Model>(Model::load(host_device(), config, UniformSource(), size.dtype));
  const Tensor input = decoder ? ramp({size.batch, size.height / 8, size.width / 8, 4}, DType::kF32)
                               : ramp({size.batch, size.height, size.width, 3}, DType::kF32);
  return [=](Exec& ex) { return (*model)(ex, input); };
}

Forward forward_of(const std::string& name, const Size& size) {
  if (name == "unet-sd1") return unet_forward(configs::unet_sd1(), size);
  if (name == "unet-sd2") return unet_forward(configs::unet_sd2(), size);
  if (name == "unet-sdxl") return unet_forward(configs::unet_sdxl(), size);
  if (name == "clip-l") return clip_forward(configs::clip_l(), size);
  if (name == "clip-bigg") return clip_forward(configs::openclip_bigg(), size);
  if (name == "vae-decoder") return picture_forward<VaeDecoder>(configs::vae_sd(), size, true);
  if (name == "vae-encoder") return picture_forward<VaeEncoder>(configs::vae_sd(), size, false);
  if (name == "taesd") return picture_forward<TaesdDecoder>(configs::taesd(), size, true);
  throw UsageError(concat("profile_main: unknown model ", name));
}

void run(int argc, char** argv) {
  require<UsageError>(argc >= 2, "usage: profile_main MODEL [f32|bf16] [batch] [height] [width] [rounds]");
  const auto argument = [&](int i, int64_t fallback) { return argc > i ? std::stoll(argv[i]) : fallback; };
  const Size size{argc > 2 && std::string(argv[2]) == "bf16" ? DType::kBF16 : DType::kF32, argument(3, 2),
                  argument(4, 512), argument(5, 512)};
  const Forward forward = forward_of(argv[1], size);
  Arena arena(host_device());
  Tensor result;
  Program program(argv[1], arena, [&](Exec& ex) {
    const Tensor out = forward(ex);
    if (!result) result = make_tensor(host_device(), out.shape(), DType::kF32);
    copy_into(ex, out, result);
  });
  program.plan();
  fmt::print("arena {:.1f} MB (lower bound {:.1f}), {:.1f} GFLOP\n",
             static_cast<double>(program.arena_bytes()) / 1e6,
             static_cast<double>(program.arena_lower_bound()) / 1e6, program.flops() / 1e9);
  for (int64_t round = 0; round < argument(6, 2); ++round) {
    Profiler profiler;
    const auto begin = std::chrono::steady_clock::now();
    program.run(&profiler);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    fmt::print("round {}: {:.3f} s, {:.0f} GFLOP/s\n", round, seconds.count(),
               program.flops() / 1e9 / seconds.count());
    if (round + 1 == argument(6, 2)) fmt::print("{}", profiler.table());
  }
}

}  // namespace
}  // namespace rocm_sd

int main(int argc, char** argv) {
  try {
    rocm_sd::run(argc, argv);
    return 0;
  } catch (const rocm_sd::Error& e) {
    fmt::print(stderr, "profile_main: {}\n", e.what());
    return static_cast<int>(e.exit_code());
  }
}
