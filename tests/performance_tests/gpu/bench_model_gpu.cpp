// Times whole models on a GPU with random weights: the captured forward's median time by events over replays,
// the first run and the recording apart, weights, arena and the most memory held, and where the time goes, op
// by op. Sustained: when replays follow each other for a second, and the card's clocks have settled at what
// its power limit allows.
//
//   bench_model_gpu [device] [f16|bf16] [--json FILE] [model[:WIDTHxHEIGHT[:IMAGES]]...]
//
// Models: sd15-unet, sd21-unet, sdxl-unet (with guidance: a batch of two an image), sd15-control,
// sd21-control, sdxl-control (a step of the UNet, then one with a ControlNet beside it in the same captured
// graph, and what the second takes of the first in time and in operations), vae (decoder), vae-bands (decoder
// in 8 bands), vae-encoder, taesd, clip-l, clip-bigg, and upscalers of published sizes: rrdb (Real-ESRGAN
// x4plus), compact (realesr-general-x4v3), span (x4, 48 features), swinir (classical x4); a size is in
// pixels. The first ones in their usual sizes by default. FILE is written anew after each model, in the
// schema of src/measurement/record.hpp.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/format.hpp"
#include "kernels/elementwise/elementwise.hpp"
#include "measurement/clocks.hpp"
#include "measurement/record.hpp"
#include "models/clip.hpp"
#include "models/controlnet.hpp"
#include "models/taesd.hpp"
#include "models/unet.hpp"
#include "models/upscaler.hpp"
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

// "sd15-unet:512x512:4"
struct Work {
  std::string text, model;
  int64_t width = 512, height = 512, images = 1;  // pixels
};

struct Bench {
  GpuDevice& device;
  DType dtype;
  PoolSource source;
  nlohmann::ordered_json report;
  std::string file;  // "": no report is written

  void write_report() const {
    if (file.empty()) return;
    AtomicFile out(file);
    out.write(report.dump(1) + "\n");
    out.commit();
  }

  struct Cost {
    double ms = 0, sustained_ms = 0, flops = 0;
  };

  // forward leaves its result in a persistent tensor.
  Cost run(const std::string& name, uint64_t weights, const Program::Forward& forward, const Tensor& result) {
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
    measurement::ClockLog clocks(measurement::clock_meter(device));
    const auto until = Clock::now() + std::chrono::milliseconds(1500);
    while (times.size() < 5 || (times.size() < 100 && Clock::now() < until)) {
      start->record();
      program.run();
      end->record();
      times.push_back(end->milliseconds_since(*start));
      clocks.read_due();
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
    const bench::Sustained load = bench::sustained(
        device, 1,
        [&] {
          program.run();
          clocks.read_due();
        },
        counters.empty() ? nullptr : counters[0].get());
    fmt::print("sustained {:.3f} ms, {:.3g} J, {:.0f} W; {}\n", load.us * 1e-3, load.joules, load.watts,
               clocks.text());
    report["rows"].push_back({{"work", name},
                              {"dtype", dtype_name(dtype)},
                              {"ms", times[times.size() / 2]},
                              {"min_ms", times.front()},
                              {"max_ms", times.back()},
                              {"replays", times.size()},
                              {"sustained_ms", load.us * 1e-3},
                              {"joules", load.joules},
                              {"watts", load.watts},
                              {"tflops", program.flops() / times[times.size() / 2] / 1e9},
                              {"weight_bytes", weights},
                              {"arena_bytes", program.arena_bytes()},
                              {"held_bytes", most},
                              {"not_finite", bad},
                              {"clocks", clocks.json()}});
    write_report();
    Profiler profiler;
    program.run(&profiler);
    fmt::print("{}", profiler.table());
    std::fflush(stdout);
    return {times[times.size() / 2], load.us * 1e-3, program.flops()};
  }

  template <class Model>
  static uint64_t bytes_of(Model& model) {
    return resident_bytes([&](Visitor& v) { model.visit(v); });
  }

  static TimeInputs time_inputs(Device& device, const UNetConfig& config, int64_t rows, DType dtype) {
    TimeInputs time{.timestep = waves(device, {rows}, DType::kF32)};
    if (config.has_added_conditions()) {
      time.time_ids = waves(device, {rows, 6}, DType::kF32);
      time.text_embeds = waves(device, {rows, config.added_width - 6 * config.added_time_width}, dtype);
    }
    return time;
  }

  // controlled: once more with a ControlNet, as UnetStage runs it.
  void unet(const Work& work, const UNetConfig& config, bool controlled = false) {
    const int64_t rows = 2 * work.images, h = work.height / 8, w = work.width / 8;
    UNet model = UNet::load(device, config, source, dtype);
    const TextCache cache = model.make_text_cache(device, rows, 77);
    const Tensor latents = waves(device, {rows, h, w, config.in_channels}, dtype);
    const Tensor states = waves(device, {rows, 77, config.context_width()}, dtype);
    const TimeInputs time = time_inputs(device, config, rows, dtype);
    const Tensor shifts = make_tensor(device, {rows, model.time_channels()}, dtype);
    const Tensor out = make_tensor(device, {rows, h, w, config.out_channels}, DType::kF32);
    Arena arena(device);
    Program prepare("text and time", arena, [&](Exec& ex) {
      model.prepare_text(ex, states, cache);
      copy_into(ex, model.time_shifts(ex, time), shifts);
    });
    prepare.run();
    const Cost plain = run(
        controlled ? work.text + " plain" : work.text, bytes_of(model),
        [&](Exec& ex) { copy_into(ex, model(ex, latents, shifts, cache), out); }, out);
    if (!controlled) return;
    ControlNetConfig control_config;
    control_config.trunk = config;
    control_config.trunk.up.clear();
    ControlNet control = ControlNet::load(device, control_config, source, dtype);
    const TextCache own = control.trunk().make_text_cache(device, rows, 77);
    const Tensor own_shifts = make_tensor(device, {rows, control.trunk().time_channels()}, dtype);
    const Tensor hint = waves(device, {rows, h, w, config.down.front().channels}, dtype);
    std::vector<Tensor> factors;
    for (int64_t i = 0; i < control.residuals(); ++i) factors.push_back(waves(device, {rows}, DType::kF32));
    Program prepare_control("text and time of the ControlNet", arena, [&](Exec& ex) {
      control.trunk().prepare_text(ex, states, own);
      copy_into(ex, control.trunk().time_shifts(ex, time), own_shifts);
    });
    prepare_control.run();
    const Cost both = run(
        work.text, bytes_of(model) + bytes_of(control),
        [&](Exec& ex) {
          UNetSkips skips = model.encode(ex, latents, shifts, cache);
          control(ex, latents, hint, own_shifts, own, factors, skips);
          copy_into(ex, model.decode(ex, std::move(skips), shifts, cache), out);
        },
        out);
    const double by_time = both.ms / plain.ms, by_load = both.sustained_ms / plain.sustained_ms,
                 by_work = both.flops / plain.flops;
    fmt::print("{}: {:.3f} times the plain step, sustained {:.3f} times, by operations {:.3f} times\n",
               work.text, by_time, by_load, by_work);
    report["rows"].back()["of_plain"] = {{"ms", by_time}, {"sustained_ms", by_load}, {"operations", by_work}};
    write_report();
  }

  void decoder(const Work& work, int64_t bands) {
    VaeDecoder model = VaeDecoder::load(device, configs::vae_sd(), source, dtype);
    const Tensor latents = waves(device, {work.images, work.height / 8, work.width / 8, 4}, DType::kF32);
    const Tensor out = make_tensor(device, {work.images, work.height, work.width, 3}, dtype);
    run(
        work.text, bytes_of(model),
        [&](Exec& ex) {
          if (bands == 1) return copy_into(ex, model(ex, latents), out);
          model.decode_in_bands(ex, latents, bands, [&](const Tensor& band, int64_t row) {
            copy_into(ex, band, out.narrow(1, row, band.dim(1)));
          });
        },
        out);
  }

  void encoder(const Work& work) {
    VaeEncoder model = VaeEncoder::load(device, configs::vae_sd(), source, dtype);
    const Tensor picture = waves(device, {work.images, work.height, work.width, 3}, DType::kF32);
    const Tensor out = make_tensor(device, {work.images, work.height / 8, work.width / 8, 4}, DType::kF32);
    run(work.text, bytes_of(model), [&](Exec& ex) { copy_into(ex, model(ex, picture), out); }, out);
  }

  void taesd(const Work& work) {
    TaesdDecoder model = TaesdDecoder::load(device, configs::taesd(), source, dtype);
    const Tensor latents = waves(device, {work.images, work.height / 8, work.width / 8, 4}, DType::kF32);
    const Tensor out = make_tensor(device, {work.images, work.height, work.width, 3}, dtype);
    run(work.text, bytes_of(model), [&](Exec& ex) { copy_into(ex, model(ex, latents), out); }, out);
  }

  void upscaler(const Work& work, const UpscalerConfig& config) {
    UpscalerNet model(config);
    model.load(device, source, dtype);
    model.prepare(device, work.height * work.width);
    const Tensor picture = waves(device, {1, work.height, work.width, 3}, dtype);
    const int64_t grown = config.growth_of_map();
    const Tensor out =
        make_tensor(device, {1, work.height * grown, work.width * grown, config.out_channels()}, dtype);
    run(work.text, bytes_of(model), [&](Exec& ex) { copy_into(ex, model(ex, picture), out); }, out);
  }

  void clip(const Work& work, const ClipConfig& config) {
    const int64_t rows = 2 * work.images;
    ClipTextModel model = ClipTextModel::load(device, config, source, dtype);
    std::vector<int32_t> numbers(static_cast<size_t>(rows) * 77);
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<int32_t>(i * 317 % 49000);
    const Tensor ids = make_tensor(device, {rows, 77}, DType::kI32);
    device.copy_to_device(ids.data(), numbers.data(), ids.bytes());
    const Tensor out = make_tensor(device, {rows, 77, config.width}, DType::kF32);
    run(work.text, bytes_of(model), [&](Exec& ex) { copy_into(ex, model(ex, ids).states, out); }, out);
  }
};

using Body = std::function<void(Bench&, const Work&)>;
const std::vector<std::pair<std::string, Body>>& models() {
  static const std::vector<std::pair<std::string, Body>> all = {
      {"sd15-unet", [](Bench& b, const Work& w) { b.unet(w, configs::unet_sd1()); }},
      {"sd21-unet", [](Bench& b, const Work& w) { b.unet(w, configs::unet_sd2()); }},
      {"sdxl-unet", [](Bench& b, const Work& w) { b.unet(w, configs::unet_sdxl()); }},
      {"sd15-control", [](Bench& b, const Work& w) { b.unet(w, configs::unet_sd1(), true); }},
      {"sd21-control", [](Bench& b, const Work& w) { b.unet(w, configs::unet_sd2(), true); }},
      {"sdxl-control", [](Bench& b, const Work& w) { b.unet(w, configs::unet_sdxl(), true); }},
      {"vae", [](Bench& b, const Work& w) { b.decoder(w, 1); }},
      {"vae-bands", [](Bench& b, const Work& w) { b.decoder(w, 8); }},
      {"vae-encoder", [](Bench& b, const Work& w) { b.encoder(w); }},
      {"taesd", [](Bench& b, const Work& w) { b.taesd(w); }},
      {"clip-l", [](Bench& b, const Work& w) { b.clip(w, configs::clip_l()); }},
      {"clip-bigg", [](Bench& b, const Work& w) { b.clip(w, configs::openclip_bigg()); }},
      {"rrdb", [](Bench& b, const Work& w) { b.upscaler(w, {}); }},
      {"compact",
       [](Bench& b, const Work& w) {
         b.upscaler(w, {.kind = UpscalerKind::kCompact, .blocks = 32, .doublings = 0, .shuffle = 4});
       }},
      {"span",
       [](Bench& b, const Work& w) {
         b.upscaler(w, {.kind = UpscalerKind::kSpan,
                        .features = 48,
                        .blocks = 6,
                        .doublings = 0,
                        .shuffle = 4,
                        .normalised = true});
       }},
      {"swinir",
       [](Bench& b, const Work& w) {
         b.upscaler(w, {.kind = UpscalerKind::kSwin,
                        .features = 180,
                        .doublings = 2,
                        .swin = {.depths = {6, 6, 6, 6, 6, 6}}});
       }},
  };
  return all;
}

Work parse(const std::string& text) {
  Work work{.text = text, .model = text.substr(0, text.find(':'))};
  const bool known = std::ranges::any_of(models(), [&](const auto& m) { return m.first == work.model; });
  int used = 0;
  long long width = 512, height = 512, images = 1;
  const char* rest = text.c_str() + work.model.size();
  const bool sized =
      *rest == 0 || (std::sscanf(rest, ":%lldx%lld%n", &width, &height, &used) == 2 && used > 0);
  const char* after = rest + used;
  const bool counted =
      *after == 0 || (std::sscanf(after, ":%lld%n", &images, &used) == 1 && after[used] == 0);
  require<UsageError>(
      known && sized && counted && width > 0 && height > 0 && width % 8 == 0 && height % 8 == 0 && images > 0,
      "bench_model_gpu: expected MODEL[:WIDTHxHEIGHT[:IMAGES]], sides in multiples of 8 pixels, got ", text);
  work.width = width, work.height = height, work.images = images;
  return work;
}

int run_models(const std::string& device_name, const std::string& type, const std::string& file,
               std::vector<std::string> wanted) {
  if (wanted.empty())
    wanted = {
        "sd15-unet",       "vae:512x512", "vae:1024x1024", "vae-bands:1024x1024", "vae-encoder:1024x1024",
        "taesd:1024x1024", "clip-l",      "clip-bigg",     "sdxl-unet:1024x1024"};
  std::vector<Work> works;
  for (const std::string& text : wanted) works.push_back(parse(text));
  Device& device = device_named(device_name);
  require<DeviceError>(device.kind() != DeviceKind::kHost, "bench_model_gpu: needs a GPU, got ",
                       device.name());
  Bench b{static_cast<GpuDevice&>(device), type == "bf16" ? DType::kBF16 : DType::kF16, {}};
  b.file = file;
  b.report = measurement::record_head("models", device);
  b.report["rows"] = nlohmann::ordered_json::array();
  fmt::print("{}, {}\n", device.name(), b.dtype);
  int failed = 0;
  for (const Work& work : works) {
    try {
      for (const auto& [name, body] : models())
        if (name == work.model) body(b, work);
    } catch (const Error& e) {  // the others are still worth their time
      fmt::print("\n== {}: {}\n", work.text, e.what());
      b.report["rows"].push_back({{"work", work.text}, {"failure", e.what()}});
      ++failed;
    }
  }
  b.write_report();
  return failed > 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    std::vector<std::string> words(argv + 1, argv + argc);
    std::string file;
    if (const auto option = std::ranges::find(words, "--json"); option != words.end()) {
      require<UsageError>(option + 1 != words.end(), "bench_model_gpu: --json: expected a file");
      file = option[1];
      words.erase(option, option + 2);
    }
    const auto word = [&](size_t i, const char* otherwise) {
      return i < words.size() ? words[i] : otherwise;
    };
    return run_models(
        word(0, "auto"), word(1, "f16"), file,
        {words.begin() + static_cast<std::ptrdiff_t>(std::min<size_t>(words.size(), 2)), words.end()});
  } catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
  }
}
