// Times the GPU's convolution on the shapes of real models: every configuration with its likeliest splits,
// against the choice made without timing. No argument is needed.
//   bench_conv2d_gpu [--device cuda] [--model TEXT] [--dtype f16|bf16|f32] [--splits N per configuration]
//                    [--units wave|group|tma|all] [--peak TFLOP/s] [--all]
// Each time is the median of event times over a graph of launches on rotating buffers (cold in the last cache
// where they fit in memory), the reduction of splits included. TFLOP/s count the formula's work. The error is
// the largest, relative to the root mean square, on sampled outputs in double precision. --all prints every
// candidate. Below a shape that Winograd's kernel takes: its time and its error.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "kernels/conv/conv2d_gpu.hpp"
#include "kernels/conv/conv2d_winograd_gpu.hpp"
#include "kernels/gpu_launch.hpp"
#include "performance_tests/gpu/conv_shapes.hpp"
#include "performance_tests/gpu/graph_time.hpp"
#include "runtime/devices.hpp"

using namespace rocm_sd;

namespace {

struct Options {
  std::string device = "auto", model, units = "all";
  DType dtype = DType::kF16;
  int splits = 3;
  double peak = 989;
  bool all = false;
};

// Random values that repeat with a prime period: any element is known on the host without keeping the tensor.
class Values {
 public:
  explicit Values(DType dtype) : dtype_(dtype), bytes_(kPeriod * dtype_size(dtype)), rounded_(kPeriod) {
    std::vector<float> values(kPeriod);
    std::mt19937 random(5);
    for (float& v : values) v = static_cast<float>(random() % 65536) / 32768.0f - 1.0f;
    convert_elements(values.data(), DType::kF32, bytes_.data(), dtype, kPeriod);
    convert_elements(bytes_.data(), dtype, rounded_.data(), DType::kF32, kPeriod);
  }
  double at(int64_t i) const { return rounded_[static_cast<size_t>(i % kPeriod)]; }

  Tensor make(Device& device, const Shape& shape) const {
    const Tensor t = make_tensor(device, shape, dtype_);
    char* data = static_cast<char*>(t.data());
    size_t done = std::min(bytes_.size(), t.bytes());
    device.copy_to_device(data, bytes_.data(), done);
    while (done < t.bytes()) {  // whole periods, so that the copies continue the sequence
      const size_t more = std::min(done / bytes_.size() * bytes_.size(), t.bytes() - done);
      device.copy_on_device(data + done, data, more);
      done += more;
    }
    return t;
  }

 private:
  static constexpr size_t kPeriod = 1048573;
  DType dtype_;
  std::vector<char> bytes_;
  std::vector<float> rounded_;
};

// One shape with its operands, several times over.
class Bench {
 public:
  Bench(GpuDevice& device, const ConvShape& s, const Values& values, DType dtype)
      : device_(device), s_(s), values_(values), dtype_(dtype), arena_(device) {
    const int scale = s.doubled ? 2 : 1, pad = s.filter / 2;
    args_.stride = s.stride;
    args_.pad = Padding::same(pad);
    args_.upsample2x = s.doubled != 0;
    p_ = (scale * s.height + 2 * pad - s.filter) / s.stride + 1;
    q_ = (scale * s.width + 2 * pad - s.filter) / s.stride + 1;
    residual_ = s.filter == 3 && s.stride == 1 && s.channels == s.outputs && !s.doubled && !s.second;
    const Shape x{s.batch, s.height, s.width, s.channels}, second{s.batch, s.height, s.width, s.second};
    const Shape y{s.batch, p_, q_, s.outputs};
    const double bytes = static_cast<double>(
        (x.numel() + (s.second ? second.numel() : 0) + y.numel() * (residual_ ? 2 : 1) + filter().numel()) *
        static_cast<int64_t>(dtype_size(dtype)));
    const int sets = std::clamp(static_cast<int>(150e6 / bytes) + 1, 2, 12);
    std::vector<float> bias(static_cast<size_t>(s.outputs));
    for (size_t i = 0; i < bias.size(); ++i) bias[i] = static_cast<float>(i % 7) - 3.0f;
    bias_ = tensor_from(device, {s.outputs}, bias.data());
    sets_.resize(static_cast<size_t>(sets));
    for (Set& set : sets_) {
      set.x = values.make(device, x);
      if (s.second) set.second = values.make(device, second);
      set.w = {Weight(values.make(device, filter())), bias_};
      if (residual_) set.residual = values.make(device, y);
      set.y = make_tensor(device, y, dtype);
    }
  }
  double flops() const {
    return 2.0 * s_.batch * p_ * q_ * s_.outputs * (s_.channels + s_.second) * s_.filter * s_.filter;
  }
  ConvExtent extent() { return conv_extent(problem(sets_[0])); }

  // Microseconds of one convolution.
  double time(const ConvChoice& choice) {
    return time_of([&](Exec& ex, const ConvProblem& p) { conv2d_gpu_by(ex, p, choice); });
  }
  std::optional<double> winograd_time() {
    Exec ex(arena_);
    if (conv2d_refuses_winograd(ex, problem(sets_[0]))) return std::nullopt;
    return time_of(conv2d_winograd_gpu);
  }
  template <class Run>
  double time_of(const Run& run) {
    const int launches = std::clamp(static_cast<int>(2e-3 / (flops() / 200e12)), 4, 48);
    Program program("conv2d", arena_, [&](Exec& ex) {
      for (int i = 0; i < launches; ++i) run(ex, problem(sets_[i % sets_.size()]));
    });
    program.run();  // lays out the filters; the next makes the device's graph
    return bench::median_us(device_, launches, [&] { program.run(); });
  }

  // The largest error on sampled outputs, relative to their root mean square.
  double error() {
    std::vector<char> y(sets_[0].y.bytes());
    device_.copy_to_host(y.data(), sets_[0].y.data(), y.size());
    std::mt19937 random(9);
    double worst = 0, square = 0;
    constexpr int kSamples = 48;
    const int64_t count = sets_[0].y.numel();
    for (int i = 0; i < kSamples; ++i) {
      const int64_t at = i == 0 ? 0 : i == 1 ? count - 1 : static_cast<int64_t>(random() % count);
      float got = 0;
      const size_t element = dtype_size(dtype_);
      convert_elements(y.data() + static_cast<size_t>(at) * element, dtype_, &got, DType::kF32, 1);
      const double want = expected(at);
      worst = std::max(worst, std::isfinite(got) ? std::fabs(got - want) : HUGE_VAL);
      square += want * want;
    }
    return worst / std::sqrt(square / kSamples);
  }
  void poison() {
    const std::vector<char> nans(sets_[0].y.bytes(), static_cast<char>(0xff));
    device_.copy_to_device(sets_[0].y.data(), nans.data(), nans.size());
  }

 private:
  struct Set {
    Tensor x, second, residual, y;
    ConvWeight w;
  };
  Shape filter() const { return {s_.outputs, s_.channels + s_.second, s_.filter, s_.filter}; }
  ConvProblem problem(const Set& set) {
    args_.second = s_.second ? &set.second : nullptr;
    args_.epilogue.residual = residual_ ? &set.residual : nullptr;
    return {set.x, set.w, args_, set.y};
  }
  double expected(int64_t at) const {
    const int64_t k = at % s_.outputs, q = at / s_.outputs % q_, p = at / s_.outputs / q_ % p_;
    const int64_t n = at / s_.outputs / q_ / p_, all = s_.channels + s_.second, up = s_.doubled ? 1 : 0;
    double sum = static_cast<double>(k % 7) - 3.0 + (residual_ ? values_.at(at) : 0.0);
    for (int64_t r = 0; r < s_.filter; ++r)
      for (int64_t t = 0; t < s_.filter; ++t) {
        const int64_t y = p * s_.stride + r - s_.filter / 2, x = q * s_.stride + t - s_.filter / 2;
        if (y < 0 || x < 0 || y >= s_.height << up || x >= s_.width << up) continue;
        const int64_t pixel = (n * s_.height + (y >> up)) * s_.width + (x >> up);
        for (int64_t c = 0; c < all; ++c) {
          const double v =
              values_.at(c < s_.channels ? pixel * s_.channels + c : pixel * s_.second + c - s_.channels);
          sum += v * values_.at(((k * all + c) * s_.filter + r) * s_.filter + t);
        }
      }
    return sum;
  }

  GpuDevice& device_;
  const ConvShape& s_;
  const Values& values_;
  DType dtype_;
  Arena arena_;
  ConvArgs args_;
  int64_t p_, q_;
  bool residual_;
  Tensor bias_;
  std::vector<Set> sets_;
};

Options parse(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--all") {
      o.all = true;
      continue;
    }
    const std::string value = i + 1 < argc ? argv[++i] : "";
    if (name == "--device")
      o.device = value;
    else if (name == "--model")
      o.model = value;
    else if (name == "--dtype")
      o.dtype = value == "f32" ? DType::kF32 : value == "bf16" ? DType::kBF16 : DType::kF16;
    else if (name == "--units")
      o.units = value;
    else if (name == "--splits")
      o.splits = std::stoi(value);
    else if (name == "--peak")
      o.peak = std::stod(value);
    else
      throw UsageError(concat("no option ", name));
  }
  return o;
}

struct Timed {
  double us;
  ConvChoice choice;
  std::string text() const { return describe(choice); }
};

void run(const Options& o) {
  auto& device = static_cast<GpuDevice&>(device_named(o.device));
  require<UsageError>(device.kind() != DeviceKind::kHost, "bench_conv2d_gpu needs a GPU");
  std::printf("%s, %d compute_units, %s\n", device.name().c_str(), device.traits().compute_units,
              std::string(dtype_name(o.dtype)).c_str());
  std::printf("%-12s %5s %-36s %9s %6s %5s %8s | %9s %s\n", "model", "count", "shape", "best us", "TF",
              "peak", "error", "default", "best; default");
  const Values values(o.dtype);
  struct Sum {
    double best = 0, chosen = 0, flops = 0;
  };
  std::map<std::string, Sum> sums;
  for (const ConvShape& s : kConvShapes) {
    if (std::string(s.model).find(o.model) == std::string::npos) continue;
    Bench bench(device, s, values, o.dtype);
    std::map<std::string, int> taken;
    std::vector<Timed> timed;
    double worst = 0;
    for (const ConvChoice& choice : conv_candidates(device.traits(), bench.extent())) {
      const char* units = to_text(choice.config.algorithm);
      if (o.units != "all" && o.units != units) continue;
      if (taken[describe(choice.config)]++ >= o.splits) continue;
      bench.poison();
      timed.push_back({bench.time(choice), choice});
      worst = std::max(worst, bench.error());
    }
    bench.poison();
    const std::optional<double> winograd = bench.winograd_time();
    const double winograd_error = winograd ? bench.error() : 0;
    if (timed.empty()) continue;
    const Timed chosen = timed.front();
    std::stable_sort(timed.begin(), timed.end(), [](const Timed& a, const Timed& b) { return a.us < b.us; });
    const Timed& best = timed.front();
    const std::string shape = concat(s.batch, "x", s.height, "x", s.width, "x", s.channels,
                                     s.second ? concat("+", s.second) : std::string(), "->", s.outputs, " ",
                                     s.filter, "x", s.filter, "/", s.stride, s.doubled ? " up" : "");
    const double rate = bench.flops() / best.us * 1e-6;
    std::printf("%-12s %5d %-36s %9.2f %6.1f %4.0f%% %8.1e | %9.2f %s; %s\n", s.model, s.count, shape.c_str(),
                best.us, rate, 100 * rate / o.peak, worst, chosen.us, best.text().c_str(),
                chosen.text().c_str());
    if (winograd)
      std::printf("%-12s %5s %-36s %9.2f %6.1f %4.0f%% %8.1e | %8.2fx as fast as the best\n", "", "",
                  "  winograd", *winograd, bench.flops() / *winograd * 1e-6,
                  100 * bench.flops() / *winograd * 1e-6 / o.peak, winograd_error, best.us / *winograd);
    if (o.all) {
      for (const Timed& t : timed) std::printf("   %s %.2f", t.text().c_str(), t.us);
      std::printf("\n");
    }
    std::fflush(stdout);
    Sum& sum = sums[s.model];
    sum.best += s.count * best.us;
    sum.chosen += s.count * chosen.us;
    sum.flops += s.count * bench.flops();
  }
  for (const auto& [model, sum] : sums)
    std::printf("%s in all: best %.3f ms (%.0f TFLOP/s), default %.3f ms (%.0f TFLOP/s)\n", model.c_str(),
                sum.best * 1e-3, sum.flops / sum.best * 1e-6, sum.chosen * 1e-3,
                sum.flops / sum.chosen * 1e-6);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(parse(argc, argv));
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
