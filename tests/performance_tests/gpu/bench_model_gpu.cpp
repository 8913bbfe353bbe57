// Times whole models on a GPU with random weights: the captured forward's median time by events over replays,
// the first run and the recording apart, weights, arena and the most memory held, and where the time goes, op
// by op. Sustained: when replays follow each other for a second, and the card's clocks have settled at what
// its power limit allows.
//
//   bench_model_gpu [device] [f16|bf16] [model...]
//
// Models: sd15-unet (512x512, guidance), sdxl-unet (1024x1024, guidance), vae-512, vae-1024, vae-1024-bands
// (8 bands), vae-encoder-1024, taesd-1024, clip-l, clip-bigg; all of them by default.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <string>

#include "base/error.hpp"
#include "base/format.hpp"
#include "kernels/elementwise/elementwise.hpp"
#include "models/clip.hpp"
#include "models/taesd.hpp"
#include "models/unet.hpp"
#include "models/vae.hpp"
#include "performance_tests/gpu/graph_time.hpp"
#include "performance_tests/gpu/pool_source.hpp"
#include "runtime/devices.hpp"
#include "runtime/gpu.hpp"

namespace {

using namespace rocm_sd;
using bench::PoolSource;
using bench::waves;
using Clock = std::chrono::steady_clock;

double milliseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

struct Bench {
  GpuDevice& device;
  DType dtype;
  PoolSource source;

  // forward leaves its result in a persistent tensor.
  void run(const std::string& name, uint64_t weights, const Program::Forward& forward, const Tensor& result) {
    Arena arena(device);
    Program program(name, arena, forward);
    auto begin = Clock::now();
    program.plan();
    const double planning = milliseconds_since(begin);
    begin = Clock::now();
    program.run();
    device.synchronize();
    const double first = milliseconds_since(begin);
    begin = Clock::now();
    program.run();
    device.synchronize();
    const double second = milliseconds_since(begin);
    const uint64_t most = device.allocated();
    const auto start = device.make_event(), end = device.make_event();
    std::vector<double> times;
    const auto until = Clock::now() + std::chrono::milliseconds(1500);
    while (times.size() < 5 || (times.size() < 100 && Clock::now() < until)) {
      start->record();
      program.run();
      end->record();
      times.push_back(end->milliseconds_since(*start));
    }
    std::sort(times.begin(), times.end());
    int64_t bad = 0;
    for (const float v : to_floats(device, result)) bad += !std::isfinite(v);
    fmt::print(
        "\n== {} {}: {:.3f} ms (min {:.3f}, max {:.3f}, {} replays), {:.1f} TFLOP/s; plan {:.0f} ms, first "
        "run "
        "{:.1f} ms, recording {:.1f} ms; weights {:.0f} MB, arena {:.0f} MB, held {:.0f} MB{}\n",
        name, dtype, times[times.size() / 2], times.front(), times.back(), times.size(),
        program.flops() / times[times.size() / 2] / 1e9, planning, first, second,
        static_cast<double>(weights) / 1e6, static_cast<double>(program.arena_bytes()) / 1e6,
        static_cast<double>(most) / 1e6, bad ? fmt::format("; {} VALUES ARE NOT FINITE", bad) : "");
    const auto counters = measurement::energy_counters(device);
    const bench::Sustained load =
        bench::sustained(device, 1, [&] { program.run(); }, counters.empty() ? nullptr : counters[0].get());
    fmt::print("sustained {:.3f} ms, {:.3g} J, {:.0f} W\n", load.us * 1e-3, load.joules, load.watts);
    Profiler profiler;
    program.run(&profiler);
    fmt::print("{}", profiler.table());
    std::fflush(stdout);
  }

  template <class Model>
  static uint64_t bytes_of(Model& model) {
    return bytes_held([&](Visitor& v) { model.visit(v); });
  }

  void unet(const std::string& name, const UNetConfig& config, int64_t side) {
    UNet model = UNet::load(device, config, source, dtype);
    const TextCache cache = model.make_text_cache(device, 2, 77);
    const Tensor latents = waves(device, {2, side, side, config.in_channels}, dtype);
    const Tensor states = waves(device, {2, 77, config.context_width()}, dtype);
    TimeInputs time{.timestep = waves(device, {2}, DType::kF32)};
    if (config.has_added_conditions()) {
      time.time_ids = waves(device, {2, 6}, DType::kF32);
      time.text_embeds = waves(device, {2, config.added_width - 6 * config.added_time_width}, dtype);
    }
    const Tensor shifts = make_tensor(device, {2, model.time_channels()}, dtype);
    const Tensor out = make_tensor(device, {2, side, side, config.out_channels}, DType::kF32);
    Arena arena(device);
    Program prepare("text and time", arena, [&](Exec& ex) {
      model.prepare_text(ex, states, cache);
      copy_into(ex, model.time_shifts(ex, time), shifts);
    });
    prepare.run();
    run(name, bytes_of(model), [&](Exec& ex) { copy_into(ex, model(ex, latents, shifts, cache), out); }, out);
  }

  void decoder(const std::string& name, int64_t side, int64_t bands) {
    VaeDecoder model = VaeDecoder::load(device, configs::vae_sd(), source, dtype);
    const Tensor latents = waves(device, {1, side, side, 4}, DType::kF32);
    const Tensor out = make_tensor(device, {1, 8 * side, 8 * side, 3}, dtype);
    run(
        name, bytes_of(model),
        [&](Exec& ex) {
          if (bands == 1) return copy_into(ex, model(ex, latents), out);
          model.decode_in_bands(ex, latents, bands, [&](const Tensor& band, int64_t row) {
            copy_into(ex, band, out.narrow(1, row, band.dim(1)));
          });
        },
        out);
  }

  void encoder(const std::string& name, int64_t side) {
    VaeEncoder model = VaeEncoder::load(device, configs::vae_sd(), source, dtype);
    const Tensor picture = waves(device, {1, 8 * side, 8 * side, 3}, DType::kF32);
    const Tensor out = make_tensor(device, {1, side, side, 4}, DType::kF32);
    run(name, bytes_of(model), [&](Exec& ex) { copy_into(ex, model(ex, picture), out); }, out);
  }

  void taesd(const std::string& name, int64_t side) {
    TaesdDecoder model = TaesdDecoder::load(device, configs::taesd(), source, dtype);
    const Tensor latents = waves(device, {1, side, side, 4}, DType::kF32);
    const Tensor out = make_tensor(device, {1, 8 * side, 8 * side, 3}, dtype);
    run(name, bytes_of(model), [&](Exec& ex) { copy_into(ex, model(ex, latents), out); }, out);
  }

  void clip(const std::string& name, const ClipConfig& config) {
    ClipTextModel model = ClipTextModel::load(device, config, source, dtype);
    std::vector<int32_t> numbers(2 * 77);
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<int32_t>(i * 317 % 49000);
    const Tensor ids = make_tensor(device, {2, 77}, DType::kI32);
    device.copy_to_device(ids.data(), numbers.data(), ids.bytes());
    const Tensor out = make_tensor(device, {2, 77, config.width}, DType::kF32);
    run(name, bytes_of(model), [&](Exec& ex) { copy_into(ex, model(ex, ids).states, out); }, out);
  }
};

int run_models(const std::string& device_name, const std::string& type,
               const std::vector<std::string>& wanted) {
  Device& device = device_named(device_name);
  require<DeviceError>(device.kind() != DeviceKind::kHost, "bench_model_gpu: needs a GPU, got ",
                       device.name());
  Bench b{static_cast<GpuDevice&>(device), type == "bf16" ? DType::kBF16 : DType::kF16, {}};
  fmt::print("{}, {}\n", device.name(), b.dtype);
  const std::vector<std::pair<std::string, std::function<void(const std::string&)>>> all = {
      {"sd15-unet", [&](const std::string& n) { b.unet(n, configs::unet_sd1(), 64); }},
      {"vae-512", [&](const std::string& n) { b.decoder(n, 64, 1); }},
      {"vae-1024", [&](const std::string& n) { b.decoder(n, 128, 1); }},
      {"vae-1024-bands", [&](const std::string& n) { b.decoder(n, 128, 8); }},
      {"vae-encoder-1024", [&](const std::string& n) { b.encoder(n, 128); }},
      {"taesd-1024", [&](const std::string& n) { b.taesd(n, 128); }},
      {"clip-l", [&](const std::string& n) { b.clip(n, configs::clip_l()); }},
      {"clip-bigg", [&](const std::string& n) { b.clip(n, configs::openclip_bigg()); }},
      {"sdxl-unet", [&](const std::string& n) { b.unet(n, configs::unet_sdxl(), 128); }},
  };
  int failed = 0;
  for (const auto& [name, body] : all) {
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), name) == wanted.end()) continue;
    try {
      body(name);
    } catch (const Error& e) {  // the others are still worth their time
      fmt::print("\n== {}: {}\n", name, e.what());
      ++failed;
    }
  }
  return failed > 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run_models(argc > 1 ? argv[1] : "auto", argc > 2 ? argv[2] : "f16",
                      std::vector<std::string>(argv + std::min(argc, 3), argv + argc));
  } catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
  }
}
