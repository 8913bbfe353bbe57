// Times every configuration of attention on a GPU over the shapes of SD1.5, SDXL, the VAE and CLIP (guidance:
// batch 2): the time of one call in a replayed graph, TFLOP/s (without padding), % of a given peak, and the
// largest error of sampled rows against double precision.
//
//   bench_attention_gpu [device] [peak TFLOP/s] [f16|bf16] [part of a shape, or all]
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>

#include "base/format.hpp"
#include "kernels/attention/flash_plan.hpp"
#include "kernels/gpu_launch.hpp"
#include "performance_tests/gpu/graph_time.hpp"
#include "runtime/devices.hpp"

namespace {

using namespace rocm_sd;
using bench::median_us;
using bench::random_on;

struct ShapeRow {
  const char* model;
  int64_t batch, heads, queries, keys, head_dim;
  int count;  // calls per forward
  bool causal = false;
};
constexpr ShapeRow kShapes[] = {
    {"sd15", 2, 8, 4096, 4096, 40, 5},       {"sd15", 2, 8, 4096, 77, 40, 5},
    {"sd15", 2, 8, 1024, 1024, 80, 5},       {"sd15", 2, 8, 1024, 77, 80, 5},
    {"sd15", 2, 8, 256, 256, 160, 5},        {"sd15", 2, 8, 256, 77, 160, 5},
    {"sd15", 2, 8, 64, 64, 160, 1},          {"sd15", 2, 8, 64, 77, 160, 1},
    {"sdxl", 2, 10, 4096, 4096, 64, 10},     {"sdxl", 2, 10, 4096, 77, 64, 10},
    {"sdxl", 2, 20, 1024, 1024, 64, 60},     {"sdxl", 2, 20, 1024, 77, 64, 60},
    {"sdxl", 2, 20, 1024, 231, 64, 0},       {"vae512", 1, 1, 4096, 4096, 512, 1},
    {"vae1024", 1, 1, 16384, 16384, 512, 1}, {"other", 1, 16, 4096, 4096, 128, 1},
    {"clip_l", 2, 12, 77, 77, 64, 12, true}, {"clip_g", 2, 20, 77, 77, 64, 32, true},
};
constexpr float kSpread = 1.7320508f;  // of the operands: their variance is 1

// Two sets of operands, so that one call does not find all of its own in the cache.
struct AttentionOperands {
  Tensor q[2], k[2], v[2], y;
  std::vector<float> host_q, host_k, host_v;  // of set 0

  AttentionOperands(Device& device, const ShapeRow& s, DType dtype) {
    const int64_t width = s.heads * s.head_dim;
    for (uint32_t i = 0; i < 2; ++i) {
      q[i] = random_on(device, {s.batch, s.queries, width}, dtype, 3 * i, kSpread);
      k[i] = random_on(device, {s.batch, s.keys, width}, dtype, 3 * i + 1, kSpread);
      v[i] = random_on(device, {s.batch, s.keys, width}, dtype, 3 * i + 2, kSpread);
    }
    y = make_tensor(device, {s.batch, s.queries, width}, dtype);
    host_q = to_floats(device, q[0]);
    host_k = to_floats(device, k[0]);
    host_v = to_floats(device, v[0]);
  }
  AttentionProblem problem(const ShapeRow& s, int i) const {
    const int64_t width = s.heads * s.head_dim;
    AttentionProblem p{.q = {q[i].data(), s.queries * width, width},
                       .k = {k[i].data(), s.keys * width, width},
                       .v = {v[i].data(), s.keys * width, width},
                       .y = y.data()};
    p.causal = s.causal;
    p.pdl_keys_ready = s.keys != s.queries;  // as cross attention's
    p.dtype = y.dtype();
    p.batch = s.batch;
    p.heads = s.heads;
    p.queries = s.queries;
    p.keys = s.keys;
    p.head_dim = s.head_dim;
    p.scale = 1 / std::sqrt(static_cast<float>(s.head_dim));
    return p;
  }
};

// The largest error of y over a few rows, as the operands of set 0 left it.
double sampled_error(Device& device, const AttentionOperands& o, const ShapeRow& s) {
  const int64_t width = s.heads * s.head_dim;
  double worst = 0;
  std::mt19937 random(7);
  for (int sample = 0; sample < 6; ++sample) {
    const int64_t b = sample == 0 ? s.batch - 1 : static_cast<int64_t>(random() % s.batch);
    const int64_t h = sample == 0 ? s.heads - 1 : static_cast<int64_t>(random() % s.heads);
    const int64_t i = sample == 0 ? s.queries - 1 : static_cast<int64_t>(random() % s.queries);
    const int64_t keys = s.causal ? i + 1 : s.keys;
    const float* query = o.host_q.data() + (b * s.queries + i) * width + h * s.head_dim;
    std::vector<double> weights(static_cast<size_t>(keys)), want(static_cast<size_t>(s.head_dim));
    double highest = -INFINITY, total = 0;
    for (int64_t j = 0; j < keys; ++j) {
      const float* key = o.host_k.data() + (b * s.keys + j) * width + h * s.head_dim;
      double dot = 0;
      for (int64_t d = 0; d < s.head_dim; ++d)
        dot += static_cast<double>(query[d]) * static_cast<double>(key[d]);
      weights[j] = dot / std::sqrt(static_cast<double>(s.head_dim));
      highest = std::max(highest, weights[j]);
    }
    for (double& w : weights) total += w = std::exp(w - highest);
    for (int64_t j = 0; j < keys; ++j)
      for (int64_t d = 0; d < s.head_dim; ++d)
        want[d] +=
            weights[j] / total * static_cast<double>(o.host_v[(b * s.keys + j) * width + h * s.head_dim + d]);
    const std::vector<float> got = to_floats(device, o.y.narrow(0, b, 1).narrow(1, i, 1));
    for (int64_t d = 0; d < s.head_dim; ++d) {
      const double error = std::fabs(static_cast<double>(got[h * s.head_dim + d]) - want[d]);
      if (std::isnan(error)) return error;
      worst = std::max(worst, error);
    }
  }
  return worst;
}

struct Timed {
  FlashPlan plan;
  double us = 0, error = 0;
  bool chosen = false;
};

bool same(const FlashPlan& a, const FlashPlan& b) {
  return a.kernel.name == b.kernel.name && a.splits == b.splits;
}

std::vector<Timed> time_all(GpuDevice& device, const AttentionOperands& o, const ShapeRow& s) {
  const AttentionProblem problem = o.problem(s, 0);
  const FlashPlan chosen = default_config(problem, device.traits());
  std::vector<Timed> timed;
  for (const FlashKernel& kernel : flash_candidates(problem, device.traits()))
    for (const int splits : {1, 2, 3, 4, 8}) {
      const FlashPlan plan = plan_flash(kernel, splits, problem, device.traits());
      const bool is_chosen = same(plan, chosen);
      // Splits only where one workgroup per tile leaves compute units idle.
      const int64_t groups = plan.tiles * s.batch * s.heads;
      if (plan.splits != splits || (splits > 1 && groups > 3 * device.traits().compute_units && !is_chosen))
        continue;
      Timed t{plan};
      t.chosen = is_chosen;
      device.fill_zero(o.y.data(), o.y.bytes());
      const int launches = static_cast<int>(std::clamp(4e11 / problem.flops(), 2.0, 20.0)) / 2 * 2;
      t.us = median_us(device, launches, [&](Exec& ex, int i) { run_flash(ex, o.problem(s, i % 2), plan); });
      // What is judged: one more call, of set 0.
      median_us(device, 1, [&](Exec& ex, int) { run_flash(ex, problem, plan); });
      t.error = sampled_error(device, o, s);
      timed.push_back(t);
    }
  std::sort(timed.begin(), timed.end(), [](const Timed& a, const Timed& b) { return a.us < b.us; });
  return timed;
}

struct Sum {
  const char* model;
  double default_us = 0, best_us = 0;
};

}  // namespace

int main(int argc, char** argv) {
  GpuDevice& device = static_cast<GpuDevice&>(device_named(argc > 1 ? argv[1] : "cuda"));
  const double peak = argc > 2 ? std::atof(argv[2]) : 989;
  const DType dtype = argc > 3 && std::strcmp(argv[3], "bf16") == 0 ? DType::kBF16 : DType::kF16;
  const std::string part = argc > 4 ? argv[4] : "all";
  std::printf("%s, attention in %s; peak %.0f TFLOP/s\n", device.name().c_str(),
              fmt::format("{}", dtype).c_str(), peak);
  std::vector<Sum> sums;
  for (const ShapeRow& s : kShapes) {
    const std::string shape = fmt::format("{} {}x{}x{}x{}x{}{}", s.model, s.batch, s.heads, s.queries, s.keys,
                                          s.head_dim, s.causal ? " causal" : "");
    if (part != "all" && shape.find(part) == std::string::npos) continue;
    if (sums.empty() || std::strcmp(sums.back().model, s.model) != 0) sums.push_back({s.model});
    const AttentionOperands o(device, s, dtype);
    const double flops = o.problem(s, 0).flops();
    std::printf("\n%s x%d\n", shape.c_str(), s.count);
    const std::vector<Timed> timed = time_all(device, o, s);
    for (const Timed& t : timed) {
      std::printf("  %-44s /%d %9.2f us %7.1f TFLOP/s %5.1f%%  error %.2g%s\n", t.plan.kernel.name.c_str(),
                  t.plan.splits, t.us, flops / t.us * 1e-6, flops / t.us * 1e-4 / peak, t.error,
                  t.chosen ? "  <- default" : "");
      if (t.chosen) sums.back().default_us += s.count * t.us;
    }
    if (!timed.empty()) sums.back().best_us += s.count * timed[0].us;
    std::fflush(stdout);
  }
  std::printf("\n");
  for (const Sum& sum : sums)
    std::printf("%s: %.3f ms with the defaults, %.3f ms with the best\n", sum.model, sum.default_us / 1000,
                sum.best_us / 1000);
  return 0;
}
