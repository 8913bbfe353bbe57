// Times every configuration of linear on a GPU over the shapes of SD1.5 and SDXL (guidance: batch 2): the
// time of one launch in a replayed graph over rotating weights, TFLOP/s, % of a given peak, and the largest
// error of sampled outputs against double precision.
//
//   bench_linear_gpu [device] [peak TFLOP/s] [f16|bf16|f32] [best|all|table|sustained] [wave|group|tma|any]
//   [model]
//                    all: prints every candidate; table: a line per shape, "choice microseconds" each;
//                    sustained: of the five best, time, energy and power when one alone is repeated for 0.5 s
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>

#include "kernels/gemm/linear_gpu.hpp"
#include "kernels/gpu_launch.hpp"
#include "performance_tests/gpu/graph_time.hpp"
#include "runtime/devices.hpp"

namespace {

using namespace rocm_sd;
using bench::random_on;

struct ShapeRow {
  const char* model;
  int64_t rows, columns, in;  // columns: of the weight
  int count;                  // calls per forward
  bool gated = false;
  bool plain = false;  // without bias and residual
};
constexpr ShapeRow kShapes[] = {
    {"sd15", 8192, 320, 320, 20},
    {"sd15", 8192, 320, 320, 5, false, true},
    {"sd15", 8192, 960, 320, 5, false, true},
    {"sd15", 8192, 2560, 320, 5, true},
    {"sd15", 8192, 320, 1280, 5},
    {"sd15", 2048, 640, 640, 20},
    {"sd15", 2048, 640, 640, 5, false, true},
    {"sd15", 2048, 1920, 640, 5, false, true},
    {"sd15", 2048, 5120, 640, 5, true},
    {"sd15", 2048, 640, 2560, 5},
    {"sd15", 512, 1280, 1280, 20},
    {"sd15", 512, 1280, 1280, 5, false, true},
    {"sd15", 512, 3840, 1280, 5, false, true},
    {"sd15", 512, 10240, 1280, 5, true},
    {"sd15", 512, 1280, 5120, 5},
    {"sd15", 128, 1280, 1280, 6},
    {"sd15", 128, 10240, 1280, 1, true},
    {"sd15", 128, 1280, 5120, 1},
    {"sd15", 154, 320, 768, 10},
    {"sd15", 154, 640, 768, 10},
    {"sd15", 154, 1280, 768, 12},
    {"sd15", 2, 1280, 1280, 13},
    {"sd15", 2, 1280, 320, 1},
    {"sd15", 2, 320, 1280, 5},
    {"sdxl", 8192, 640, 640, 25},
    {"sdxl", 8192, 640, 640, 10, false, true},
    {"sdxl", 8192, 1920, 640, 10, false, true},
    {"sdxl", 8192, 5120, 640, 10, true},
    {"sdxl", 8192, 640, 2560, 10},
    {"sdxl", 2048, 1280, 1280, 126},
    {"sdxl", 2048, 1280, 1280, 60, false, true},
    {"sdxl", 2048, 3840, 1280, 60, false, true},
    {"sdxl", 2048, 10240, 1280, 60, true},
    {"sdxl", 2048, 1280, 5120, 60},
    {"sdxl", 154, 640, 2048, 20},
    {"sdxl", 154, 1280, 2048, 120},
    {"sdxl", 2, 1280, 2816, 1},
    {"vae512", 4096, 512, 512, 4},
    {"vae1024", 16384, 512, 512, 4},
    // The first factors of a run-time LoRA of rank 32 on SDXL's transformers: to q, k and v together, to the
    // feed-forward's first layer and to what takes 640 or 1280 channels, to the feed-forward's second layer.
    {"lora", 8192, 96, 640, 10, false, true},
    {"lora", 8192, 32, 640, 45, false, true},
    {"lora", 8192, 32, 2560, 10, false, true},
    {"lora", 2048, 96, 1280, 60, false, true},
    {"lora", 2048, 32, 1280, 246, false, true},
    {"lora", 2048, 32, 5120, 60, false, true},
    {"clip_l", 154, 768, 768, 48},
    {"clip_l", 154, 3072, 768, 12},
    {"clip_l", 154, 768, 3072, 12},
    {"clip_g", 154, 1280, 1280, 128},
    {"clip_g", 154, 5120, 1280, 32},
    {"clip_g", 154, 1280, 5120, 32},
};
constexpr int kLaunches = 20;                       // in a graph
constexpr size_t kRotatedBytes = size_t{96} << 20;  // of weights: more than the last cache
constexpr int kMaxCopies = 16;

struct LayerOperands {
  std::vector<Tensor> x;
  std::vector<LinearWeight> w;
  Tensor y, residual;
  std::vector<float> host_x, host_w, host_bias, host_residual;  // of copy 0, as rounded
};

LayerOperands make_operands(Device& device, const ShapeRow& s, DType dtype) {
  LayerOperands o;
  const float scale = 1.7f / std::sqrt(static_cast<float>(s.in));
  const size_t weight_bytes = static_cast<size_t>(s.columns * s.in) * dtype_size(dtype);
  const auto copies = static_cast<int>(std::clamp<size_t>(kRotatedBytes / weight_bytes, 2, kMaxCopies));
  const Tensor w = random_on(device, {s.columns, s.in}, dtype, 1, scale);
  const Tensor bias = random_on(device, {s.columns}, DType::kF32, 2, 1);
  for (int i = 0; i < copies; ++i) {
    Tensor copy = make_tensor(device, w.shape(), dtype);
    device.copy_on_device(copy.data(), w.data(), w.bytes());
    o.w.push_back({Weight(copy), s.plain ? Tensor() : bias});
  }
  for (int i = 0; i < 2; ++i) o.x.push_back(random_on(device, {s.rows, s.in}, dtype, 3, 1));
  const int64_t out = s.gated ? s.columns / 2 : s.columns;
  o.y = make_tensor(device, {s.rows, out}, dtype);
  o.residual = random_on(device, {s.rows, out}, dtype, 4, 1);
  o.host_x = to_floats(device, o.x[0]);
  o.host_w = to_floats(device, w);
  o.host_bias = to_floats(device, bias);
  o.host_residual = to_floats(device, o.residual);
  return o;
}

double expected(const LayerOperands& o, const ShapeRow& s, int64_t row, int64_t column) {
  const auto product = [&](int64_t c) {
    double sum = s.plain ? 0 : o.host_bias[c];
    for (int64_t k = 0; k < s.in; ++k)
      sum += static_cast<double>(o.host_x[row * s.in + k]) * static_cast<double>(o.host_w[c * s.in + k]);
    return sum;
  };
  if (s.plain) return product(column);
  if (!s.gated) return product(column) + static_cast<double>(o.host_residual[row * s.columns + column]);
  const double gate = product(s.columns / 2 + column);
  return product(column) * gate * 0.5 * std::erfc(-gate / std::sqrt(2.0));
}

double sampled_error(Device& device, const LayerOperands& o, const ShapeRow& s) {
  const int64_t out = o.y.dim(1);
  double worst = 0;
  std::mt19937 random(7);
  for (int i = 0; i < 4; ++i) {
    const int64_t row = i == 0 ? s.rows - 1 : static_cast<int64_t>(random() % s.rows);
    const Tensor line = o.y.narrow(0, row, 1);
    const std::vector<float> got = to_floats(device, line);
    for (int j = 0; j < 16; ++j) {
      const int64_t column = j == 0 ? out - 1 : static_cast<int64_t>(random() % out);
      const double error = std::fabs(static_cast<double>(got[column]) - expected(o, s, row, column));
      worst = error <= worst ? worst : error;
      if (std::isnan(error)) return error;
    }
  }
  return worst;
}

std::function<void(Exec&, int)> launch_of(const LayerOperands& o, const ShapeRow& s,
                                          const GemmChoice& choice) {
  return [&o, &s, choice](Exec& ex, int i) {
    const Epilogue epilogue{.residual = s.gated || s.plain ? nullptr : &o.residual};
    const LinearProblem p{
        o.x[i % o.x.size()], o.w[i % o.w.size()], epilogue, s.gated, o.y, s.rows, s.in, o.y.dim(1), s.in};
    linear_gpu_as(ex, p, choice);
  };
}

struct Timed {
  GemmChoice choice;
  double us = 0, error = 0;
};

struct Sum {
  const char* model;
  double default_us = 0, best_us = 0;
};

}  // namespace

int main(int argc, char** argv) {
  GpuDevice& device = static_cast<GpuDevice&>(device_named(argc > 1 ? argv[1] : "cuda"));
  const double peak = argc > 2 ? std::atof(argv[2]) : 989;
  const std::string type = argc > 3 ? argv[3] : "f16";
  const std::string print = argc > 4 ? argv[4] : "best", units = argc > 5 ? argv[5] : "any";
  const std::string only = argc > 6 ? argv[6] : "";
  const bool all = print == "all";
  const DType dtype = type == "bf16" ? DType::kBF16 : type == "f32" ? DType::kF32 : DType::kF16;
  std::printf("%s, %d compute_units, linear in %s; peak %.0f TFLOP/s\n", device.name().c_str(),
              device.traits().compute_units, type.c_str(), peak);
  std::vector<Sum> sums;
  const auto counters = measurement::energy_counters(device);
  const auto wanted = [&](const GemmChoice& choice) {
    if (units == "any" || !choice.config) return true;
    return units == to_text(choice.config->algorithm);
  };
  for (const ShapeRow& s : kShapes) {
    if (std::string(s.model).find(only) == std::string::npos) continue;
    if (sums.empty() || std::string(sums.back().model) != s.model) sums.push_back({s.model});
    const LayerOperands o = make_operands(device, s, dtype);
    const Epilogue none;
    const LinearProblem p{o.x[0], o.w[0], none, s.gated, o.y, s.rows, s.in, o.y.dim(1), s.in};
    std::vector<Timed> timed;
    for (const GemmChoice& choice : linear_candidates(device.traits(), p)) {
      if (!wanted(choice)) continue;
      Timed t{choice};
      device.fill_zero(o.y.data(), o.y.bytes());
      t.us = bench::median_us(device, kLaunches, launch_of(o, s, choice));
      t.error = sampled_error(device, o, s);
      timed.push_back(t);
    }
    std::sort(timed.begin(), timed.end(), [](const Timed& a, const Timed& b) { return a.us < b.us; });
    const std::string chosen = describe(linear_default_config(device.traits(), p));
    const double flops = 2.0 * static_cast<double>(s.rows * s.columns * s.in);
    std::printf("\n%s %lldx%lldx%lld%s x%d: default %s\n", s.model, static_cast<long long>(s.rows),
                static_cast<long long>(s.columns), static_cast<long long>(s.in),
                s.gated   ? " geglu"
                : s.plain ? " plain"
                          : "",
                s.count, chosen.c_str());
    double default_us = std::nan("");
    if (print == "table") {
      double worst = 0;
      for (const Timed& t : timed) {
        std::printf(" %s %.2f", describe(t.choice).c_str(), t.us);
        if (!(t.error < 0.05)) std::printf(" WRONG(%.2g)", t.error);
        worst = std::max(worst, t.error);
      }
      std::printf("\n  largest error %.2g\n", worst);
    }
    for (size_t i = 0; i < timed.size(); ++i) {
      const Timed& t = timed[i];
      const bool is_default = describe(t.choice) == chosen;
      if (is_default) default_us = t.us;
      if (print == "table") continue;
      if (print == "sustained") {
        if (i >= 5 && !is_default) continue;
        const bench::Sustained load = bench::sustained(device, kLaunches, launch_of(o, s, t.choice),
                                                       counters.empty() ? nullptr : counters[0].get());
        std::printf("  %-16s %8.2f us, sustained %8.2f us %8.3f mJ %5.0f W%s\n", describe(t.choice).c_str(),
                    t.us, load.us, load.joules * 1e3, load.watts, is_default ? "  <- default" : "");
        continue;
      }
      if (!all && i >= 5 && !is_default && t.error < 0.05) continue;
      const double rate = flops / t.us * 1e-6;
      std::printf("  %-16s %8.2f us %7.1f TFLOP/s %5.1f%%  error %.2g%s\n", describe(t.choice).c_str(), t.us,
                  rate, 100 * rate / peak, t.error, is_default ? "  <- default" : "");
    }
    sums.back().default_us += s.count * default_us;
    sums.back().best_us += s.count * timed[0].us;
    std::fflush(stdout);
  }
  std::printf("\n");
  for (const Sum& sum : sums)
    std::printf("%s: %.3f ms with the defaults, %.3f ms with the best\n", sum.model, sum.default_us / 1000,
                sum.best_us / 1000);
  return 0;
}
