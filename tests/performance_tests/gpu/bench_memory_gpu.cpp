// Times the ops that memory bounds on a GPU over the shapes of SD1.5, SDXL and the VAE: the time of one call
// in a replayed graph, GB/s (inputs once, outputs once), the same as a share of the bandwidth that a copy of
// 256 MiB reaches in this run, and the largest error of sampled outputs against double precision.
//
//   bench_memory_gpu [device] [f16|bf16|f32] [all]      all: prints every plan of group norm
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>

#include "kernels/elementwise/elementwise.hpp"
#include "kernels/gpu_launch.hpp"
#include "kernels/norm/norm_plan.hpp"
#include "kernels/resample/resample.hpp"
#include "kernels/step/step.hpp"
#include "performance_tests/gpu/graph_time.hpp"
#include "performance_tests/gpu/norm_shapes.hpp"
#include "runtime/devices.hpp"

namespace {

using namespace rocm_sd;
using bench::median_us;
using bench::random_on;

int launches_for(double bytes) { return static_cast<int>(std::clamp(2e9 / bytes, 4.0, 40.0)); }

double silu(double x) { return x / (1 + std::exp(-x)); }

// The operands of a norm, x twice so that one call does not find what the last one left.
struct Norm {
  NormShape shape;
  DType dtype;
  Tensor x[2], second[2], y;
  NormWeight w;
  std::vector<float> host_x, host_second, gain, bias;

  Norm(Device& device, const NormShape& s, DType type) : shape(s), dtype(type) {
    const int64_t first = s.channels - s.second;
    x[0] = random_on(device, {s.images, s.pixels, first}, dtype, 1, 2, 0.5f);
    host_x = to_floats(device, x[0]);
    second[0] = random_on(device, {s.images, s.pixels, s.second}, dtype, 2);
    host_second = to_floats(device, second[0]);
    for (Tensor* pair : {x, second}) {
      pair[1] = make_tensor(device, pair[0].shape(), dtype);
      if (pair[0].bytes()) device.copy_on_device(pair[1].data(), pair[0].data(), pair[0].bytes());
    }
    y = make_tensor(device, {s.images, s.pixels, s.channels}, dtype);
    w = {random_on(device, {s.channels}, DType::kF32, 3), random_on(device, {s.channels}, DType::kF32, 4)};
    gain = to_floats(device, w.gain);
    bias = to_floats(device, w.bias);
  }
  GroupNormProblem problem(int i) const {
    return {.x = x[i % 2].data(),
            .second = shape.second ? second[i % 2].data() : nullptr,
            .gain = w.gain.as<float>(),
            .bias = w.bias.as<float>(),
            .y = y.data(),
            .images = shape.images,
            .pixels = shape.pixels,
            .channels = shape.channels,
            .second_channels = shape.second,
            .groups = 32,
            .eps = 1e-5f,
            .silu = true,
            .dtype = dtype};
  }
  double value(int64_t pixel, int64_t c) const {
    const int64_t first = shape.channels - shape.second;
    return c < first ? static_cast<double>(host_x[pixel * first + c])
                     : static_cast<double>(host_second[pixel * shape.second + c - first]);
  }
  // The largest error over channels [begin, begin + width) of pixels [from, to), normalised together.
  double error(const std::vector<float>& got, int64_t from, int64_t to, int64_t begin, int64_t width,
               bool with_silu) const {
    double sum = 0, squares = 0, worst = 0;
    const auto for_all = [&](const auto& body) {
      for (int64_t i = from; i < to; ++i)
        for (int64_t c = begin; c < begin + width; ++c) body(i, c, value(i, c));
    };
    for_all([&](int64_t, int64_t, double v) { sum += v; });
    const double count = static_cast<double>((to - from) * width), mean = sum / count;
    for_all([&](int64_t, int64_t, double v) { squares += (v - mean) * (v - mean); });
    const double scale = 1 / std::sqrt(squares / count + 1e-5);
    for_all([&](int64_t i, int64_t c, double v) {
      const double plain = (v - mean) * scale * static_cast<double>(gain[c]) + static_cast<double>(bias[c]);
      const double want = with_silu ? silu(plain) : plain;
      const double off = std::fabs(static_cast<double>(got[i * shape.channels + c]) - want);
      if (!(off <= worst)) worst = off;
    });
    return worst;
  }
  double sampled_error(Device& device) const {
    const std::vector<float> got = to_floats(device, y);
    const int64_t rows = shape.images * shape.pixels, width = shape.channels / 32;
    if (!shape.group) {
      double worst = 0;
      for (const int64_t row : {int64_t{0}, rows / 2 + 1, rows - 1})
        worst = std::max(worst, error(got, row, row + 1, 0, shape.channels, false));
      return worst;
    }
    const int64_t last = (shape.images - 1) * shape.pixels;
    return std::max(error(got, 0, shape.pixels, 0, width, true),
                    error(got, last, last + shape.pixels, 31 * width, width, true));
  }
};

struct Sums {
  const char* model;
  double default_us = 0, best_us = 0;
};

void print_line(const char* what, double us, double bytes, double copy_rate, double error,
                const char* mark = "") {
  const double rate = bytes / us * 1e-3;
  std::printf("  %-44s %9.2f us %7.0f GB/s %5.1f%% of copy  error %.2g%s\n", what, us, rate,
              100 * rate / copy_rate, error, mark);
}

void time_group_norm(GpuDevice& device, const Norm& norm, double copy_rate, bool all, Sums& sums) {
  const double bytes = norm.problem(0).bytes();
  double best = INFINITY, chosen = std::nan("");
  const auto plans = group_norm_candidates(norm.problem(0), device.traits());
  for (size_t i = 0; i < plans.size(); ++i) {
    if (i && plans[i].describe() == plans[0].describe()) continue;
    device.fill_zero(norm.y.data(), norm.y.bytes());
    const double us = median_us(device, launches_for(bytes), [&](Exec& ex, int call) {
      run_group_norm_plan(ex, norm.problem(call), plans[i]);
    });
    const double error = i == 0 || all ? norm.sampled_error(device) : 0;
    if (i == 0) chosen = us;
    best = std::min(best, us);
    if (i == 0 || all)
      print_line(plans[i].describe().c_str(), us, bytes, copy_rate, error, i ? "" : "  <- default");
  }
  sums.default_us += norm.shape.count * chosen;
  sums.best_us += norm.shape.count * best;
}

void time_layer_norm(GpuDevice& device, const Norm& norm, double copy_rate, Sums& sums) {
  const double bytes = 2.0 * static_cast<double>(norm.y.bytes());
  const auto problem = [&](int i) {
    return LayerNormProblem{.x = norm.x[i % 2].data(),
                            .gain = norm.w.gain.as<float>(),
                            .bias = norm.w.bias.as<float>(),
                            .y = norm.y.data(),
                            .rows = norm.shape.images * norm.shape.pixels,
                            .cols = norm.shape.channels,
                            .eps = 1e-5f,
                            .dtype = norm.dtype};
  };
  const double us = median_us(device, launches_for(bytes),
                              [&](Exec& ex, int call) { run_layer_norm_gpu(ex, problem(call)); });
  print_line("one wave per row", us, bytes, copy_rate, norm.sampled_error(device));
  sums.default_us += norm.shape.count * us;
  sums.best_us += norm.shape.count * us;
}

// An op of x whose result's element i should be want(x[i], i).
void time_op(GpuDevice& device, const char* what, double bytes, double copy_rate,
             const std::function<Tensor(Exec&)>& op, const std::function<double(int64_t)>& want) {
  Arena arena(device);
  Exec ex(arena);
  const Tensor y = op(ex);
  double worst = 0;
  if (y.dtype() == DType::kU8) {
    std::vector<uint8_t> got(y.bytes());
    device.copy_to_host(got.data(), y.data(), got.size());
    for (size_t i = 0; i < got.size(); i += 97) worst = std::max(worst, std::fabs(got[i] - want(i)));
  } else {
    const std::vector<float> got = to_floats(device, y);
    for (size_t i = 0; i < got.size(); i += 97)
      worst = std::max(worst, std::fabs(static_cast<double>(got[i]) - want(static_cast<int64_t>(i))));
  }
  const double us = median_us(device, launches_for(bytes), [&](Exec& planned, int) { op(planned); });
  print_line(what, us, bytes, copy_rate, worst);
}

void time_ops(GpuDevice& device, DType dtype, double copy_rate) {
  const Shape shape = {2, 128, 128, 1280};
  const Tensor x = random_on(device, shape, dtype, 5), z = random_on(device, shape, dtype, 6);
  const std::vector<float> a = to_floats(device, x), b = to_floats(device, z);
  const double size = static_cast<double>(x.bytes());
  const auto at = [](const std::vector<float>& v, int64_t i) { return static_cast<double>(v[i]); };
  const auto gelu = [](double v) { return v / 2 * std::erfc(-v * std::sqrt(0.5)); };
  std::printf("\nops on [2,128,128,1280]\n");
  time_op(
      device, "silu", 2 * size, copy_rate, [&](Exec& ex) { return activate(ex, x, Activation::kSilu); },
      [&](int64_t i) { return silu(at(a, i)); });
  time_op(
      device, "gelu", 2 * size, copy_rate, [&](Exec& ex) { return activate(ex, x, Activation::kGelu); },
      [&](int64_t i) { return gelu(at(a, i)); });
  time_op(
      device, "add", 3 * size, copy_rate, [&](Exec& ex) { return add(ex, x, z); },
      [&](int64_t i) { return at(a, i) + at(b, i); });
  time_op(
      device, "geglu", 1.5 * size, copy_rate, [&](Exec& ex) { return geglu(ex, x); },
      [&](int64_t i) {
        const int64_t row = i / 640 * 1280, c = i % 640;
        return at(a, row + c) * gelu(at(a, row + 640 + c));
      });
  time_op(
      device, "concat_channels", 4 * size, copy_rate, [&](Exec& ex) { return concat_channels(ex, x, z); },
      [&](int64_t i) {
        const int64_t row = i / 2560 * 1280, c = i % 2560;
        return c < 1280 ? at(a, row + c) : at(b, row + c - 1280);
      });
  const double elements = static_cast<double>(x.numel());
  time_op(
      device, "cast to f32", size + 4 * elements, copy_rate,
      [&](Exec& ex) { return cast(ex, x, DType::kF32); }, [&](int64_t i) { return at(a, i); });
  time_op(
      device, "resample nearest 2x of [2,128,128,320]", 1.25 * size, copy_rate,
      [&](Exec& ex) {
        return resample(ex, x.reshape({8, 128, 128, 320}).narrow(0, 0, 2), 256, 256, ResampleMode::kNearest);
      },
      [&](int64_t i) {
        const int64_t c = i % 320, col = i / 320 % 256, row = i / 320 / 256 % 256, n = i / 320 / 65536;
        return at(a, ((n * 128 + row / 2) * 128 + col / 2) * 320 + c);
      });
  const Tensor picture = random_on(device, {1, 1024, 1024, 3}, dtype, 7);
  const std::vector<float> rgb = to_floats(device, picture);
  time_op(
      device, "to_rgb8 of [1,1024,1024,3]", static_cast<double>(picture.bytes()) + 3145728, copy_rate,
      [&](Exec& ex) { return to_rgb8(ex, picture); },
      [&](int64_t i) { return std::nearbyint(std::clamp(at(rgb, i) / 2 + 0.5, 0.0, 1.0) * 255); });
  const Tensor latents = random_on(device, {1, 128, 128, 4}, DType::kF32, 8),
               output = random_on(device, {2, 128, 128, 4}, dtype, 9);
  const std::vector<float> l = to_floats(device, latents), o = to_floats(device, output);
  time_op(
      device, "linear_combination, 3 terms of [1,128,128,4]", 16.0 * 65536, copy_rate,
      [&](Exec& ex) { return linear_combination(ex, {{0.5, latents}, {-2, latents}, {3, latents}}); },
      [&](int64_t i) { return 1.5 * at(l, i); });
  time_op(
      device, "apply_guidance of [2,128,128,4]", 2.0 * 65536 * static_cast<double>(dtype_size(dtype)),
      copy_rate, [&](Exec& ex) { return apply_guidance(ex, output, {.scale = 7.5}); },
      [&](int64_t i) { return at(o, i) + 7.5 * (at(o, 65536 + i) - at(o, i)); });
  time_op(
      device, "apply_guidance rescaled of [2,128,128,4]",
      2.0 * 65536 * static_cast<double>(dtype_size(dtype)), copy_rate,
      [&](Exec& ex) { return apply_guidance(ex, output, {.scale = 1, .rescale = 0.7}); },
      [&](int64_t i) { return at(o, 65536 + i); });
}

double copy_bandwidth(GpuDevice& device) {
  constexpr size_t kBytes = size_t{256} << 20;
  const Tensor from = make_tensor(device, {kBytes}, DType::kU8),
               to = make_tensor(device, {kBytes}, DType::kU8);
  device.fill_zero(from.data(), kBytes);
  const double us = median_us(device, 4, [&](int) { device.copy_on_device(to.data(), from.data(), kBytes); });
  return 2.0 * kBytes / us * 1e-3;
}

}  // namespace

int main(int argc, char** argv) {
  GpuDevice& device = static_cast<GpuDevice&>(device_named(argc > 1 ? argv[1] : "cuda"));
  const std::string type = argc > 2 ? argv[2] : "f16";
  const bool all = argc > 3;
  const DType dtype = type == "bf16" ? DType::kBF16 : type == "f32" ? DType::kF32 : DType::kF16;
  const double copy_rate = copy_bandwidth(device);
  std::printf("%s, %d compute_units, in %s; a copy of 256 MiB: %.0f GB/s\n", device.name().c_str(),
              device.traits().compute_units, type.c_str(), copy_rate);
  std::vector<Sums> sums;
  for (const NormShape& s : kNormShapes) {
    if (sums.empty() || std::string(sums.back().model) != s.model) sums.push_back({s.model});
    const Norm norm(device, s, dtype);
    std::printf("\n%s %s [%lld,%lld,%lld%s] x%d\n", s.model, s.group ? "group_norm + silu" : "layer_norm",
                static_cast<long long>(s.images), static_cast<long long>(s.pixels),
                static_cast<long long>(s.channels), s.second ? " of two" : "", s.count);
    if (s.group)
      time_group_norm(device, norm, copy_rate, all, sums.back());
    else
      time_layer_norm(device, norm, copy_rate, sums.back());
    std::fflush(stdout);
  }
  std::printf("\n");
  for (const Sums& sum : sums)
    std::printf("%s: all norms of a forward %.3f ms with the defaults, %.3f ms with the best\n", sum.model,
                sum.default_us / 1000, sum.best_us / 1000);
  time_ops(device, dtype, copy_rate);
  return 0;
}
