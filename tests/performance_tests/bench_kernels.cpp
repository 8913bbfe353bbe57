// Times linear and conv2d on the shapes of real models, implementation by implementation, in interleaved
// rounds. GFLOP/s count the formula's work (2 per multiply-add of the full filter), whatever an
// implementation saves; the ratio is to oneDNN's rate on a large matrix product in the same rounds.
// "chosen" stands for the implementation that the op itself picks.
//   bench_kernels [--model NAME] [--filter TEXT] [--impls a,b] [--dtype f32|bf16] [--top N] [--rounds N]
//                 [--budget SECONDS per shape] [--shapes FILE]
// Time is the smaller of wall time and CPU time per thread: other processes on the machine count against
// neither implementation. The error is relative to the root mean square, on a sample of outputs in double
// precision.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/conv/conv2d.hpp"
#include "kernels/gemm/linear.hpp"
#include "kernels/onednn.hpp"
#include "kernels/select.hpp"

using namespace rocm_sd;

namespace {

struct Options {
  std::string model, filter, impls = "chosen", shapes = ROCM_SD_SHAPES_DIR "/products.txt";
  DType dtype = DType::kF32;
  int top = 12, rounds = 3;
  double budget = 3;
};

struct Shapes {
  std::string model, op, text;
  std::vector<int64_t> dims;
  int count = 0;
  bool is_conv() const { return op == "conv" || op == "upconv"; }
  int64_t out_scale() const { return op == "upconv" ? 2 : 1; }
  double flops() const {
    const auto& d = dims;
    if (!is_conv()) return 2.0 * d[0] * d[1] * d[2];
    const double pixels = double(d[0]) * (out_scale() * d[1] / d[6]) * (out_scale() * d[2] / d[6]);
    return 2.0 * pixels * d[3] * d[4] * d[5] * d[5];
  }
};

std::vector<Shapes> read_shapes(const std::string& path) {
  std::ifstream file(path);
  require<FileError>(file.good(), "cannot read ", path);
  std::vector<Shapes> out;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line);
    Shapes s;
    words >> s.model >> s.op;
    for (int64_t v; words >> v;) s.dims.push_back(v);
    s.count = static_cast<int>(s.dims.back());
    s.dims.pop_back();
    s.text = s.op;
    for (const int64_t v : s.dims) s.text += concat(" ", v);
    out.push_back(s);
  }
  return out;
}

Tensor random_values(const Shape& shape, DType dtype, float scale, unsigned seed) {
  std::vector<float> values(static_cast<size_t>(shape.numel()));
  std::mt19937 random(seed);
  for (float& v : values) v = scale * (static_cast<float>(random() % 65536) / 32768.0f - 1.0f);
  return tensor_from(host_device(), shape, values.data(), dtype);
}

double cpu_seconds() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_utime.tv_sec + usage.ru_stime.tv_sec +
         1e-6 * (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

// One implementation of one shape, planned and packed.
class Runner {
 public:
  Runner(const Shapes& s, const std::string& impl, DType dtype, const Tensor& x, const Tensor& weight)
      : impl_(impl), x_(x) {
    const auto bias = random_values({weight.dim(0)}, DType::kF32, 1, 3);
    const std::vector<float> copy = to_floats(host_device(), weight);
    const Weight w(tensor_from(host_device(), weight.shape(), copy.data(), dtype));
    linear_ = {w, bias};
    conv_ = {w, bias};
    program_ = std::make_unique<Program>(impl, arena_, [this, s](Exec& ex) {
      const std::string forced = impl_ == "chosen" ? "" : impl_;  // empty: nothing is forced
      const ForcedImpl conv_only("conv2d", forced), linear_only("linear", forced);
      const int pad = s.is_conv() ? static_cast<int>(s.dims[5] / 2) : 0;
      const Tensor y = s.op == "linear"  ? linear(ex, x_, linear_)
                       : s.op == "geglu" ? linear_geglu(ex, x_, linear_)
                                         : conv2d(ex, x_, conv_,
                                                  {.stride = static_cast<int>(s.dims[6]),
                                                   .pad = Padding::same(pad),
                                                   .upsample2x = s.op == "upconv"});
      y_ = y.data();
      shape_ = y.shape();
      dtype_ = y.dtype();
    });
    program_->plan();
    program_->run();
  }
  double run() {
    const double cpu = cpu_seconds();
    const auto begin = std::chrono::steady_clock::now();
    program_->run();
    const double wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    const double seconds = std::min(wall, (cpu_seconds() - cpu) / host_threads());
    best_ = std::min(best_, seconds);
    return wall;
  }
  double best() const { return best_; }
  float output(int64_t i) const {
    float v;
    convert_elements(static_cast<const char*>(y_) + i * static_cast<int64_t>(dtype_size(dtype_)), dtype_, &v,
                     DType::kF32, 1);
    return v;
  }
  const Shape& shape() const { return shape_; }
  const Tensor& bias() const { return *linear_.bias; }
  size_t arena_bytes() const { return program_->arena_bytes(); }
  size_t weight_bytes() const { return conv_.weight.stored_bytes(); }

 private:
  std::string impl_;
  Tensor x_;
  LinearWeight linear_;
  ConvWeight conv_;
  Arena arena_{host_device()};
  std::unique_ptr<Program> program_;
  void* y_ = nullptr;
  Shape shape_;
  DType dtype_ = DType::kF32;
  double best_ = 1e30;
};

// The output numbered i in double precision, from the operands.
double exact_output(const Shapes& s, const std::vector<float>& x, const std::vector<float>& w,
                    const std::vector<float>& bias, int64_t i) {
  const auto& d = s.dims;
  if (!s.is_conv()) {
    const int64_t outputs = s.op == "geglu" ? d[1] / 2 : d[1], row = i / outputs, column = i % outputs;
    const auto dot = [&](int64_t c) {
      double sum = bias[c];
      for (int64_t k = 0; k < d[2]; ++k) sum += double(x[row * d[2] + k]) * w[c * d[2] + k];
      return sum;
    };
    if (s.op == "linear") return dot(column);
    const double gate = dot(column + outputs);
    return dot(column) * gate * 0.5 * std::erfc(-gate / std::sqrt(2.0));
  }
  const int64_t scale = s.out_scale(), h = d[1], width = d[2], c = d[3], k = d[4], r = d[5], stride = d[6];
  const int64_t out_w = (scale * width + 2 * (r / 2) - r) / stride + 1;
  const int64_t out_h = (scale * h + 2 * (r / 2) - r) / stride + 1;
  const int64_t ko = i % k, q = i / k % out_w, p = i / k / out_w % out_h, n = i / k / out_w / out_h;
  double sum = bias[ko];
  for (int64_t a = 0; a < r; ++a)
    for (int64_t b = 0; b < r; ++b) {
      const int64_t iy = p * stride + a - r / 2, ix = q * stride + b - r / 2;
      if (iy < 0 || ix < 0 || iy >= scale * h || ix >= scale * width) continue;
      const float* pixel = &x[((n * h + iy / scale) * width + ix / scale) * c];
      for (int64_t ch = 0; ch < c; ++ch) sum += double(pixel[ch]) * w[((ko * c + ch) * r + a) * r + b];
    }
  return sum;
}

double sampled_error(const Shapes& s, const Runner& runner, const Tensor& x, const Tensor& weight) {
  const std::vector<float> xs = to_floats(host_device(), x), ws = to_floats(host_device(), weight),
                           bias = to_floats(host_device(), runner.bias());
  std::mt19937_64 random(3);
  double worst = 0, square = 0;
  constexpr int kSamples = 200;
  for (int i = 0; i < kSamples; ++i) {
    const auto at = static_cast<int64_t>(random() % static_cast<uint64_t>(runner.shape().numel()));
    const double want = exact_output(s, xs, ws, bias, at);
    worst = std::max(worst, std::fabs(runner.output(at) - want));
    square += want * want;
  }
  return worst / std::sqrt(square / kSamples);
}

Options parse(int argc, char** argv) {
  Options o;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i], value = argv[i + 1];
    if (name == "--model") o.model = value;
    if (name == "--filter") o.filter = value;
    if (name == "--shapes") o.shapes = value;
    if (name == "--impls") o.impls = value;
    if (name == "--dtype") o.dtype = value == "bf16" ? DType::kBF16 : DType::kF32;
    if (name == "--top") o.top = std::stoi(value);
    if (name == "--rounds") o.rounds = std::stoi(value);
    if (name == "--budget") o.budget = std::stod(value);
  }
  return o;
}

// oneDNN's matrix product 2048^3: the rate that ratios are to.
class Floor {
 public:
  explicit Floor(DType dtype) {
    const onednn::ProductSpec spec{
        .height = 2048, .channels = 2048, .out_channels = 2048, .dtype = dtype, .dst_dtype = dtype};
    product_ = onednn::product(spec);
    x_ = random_values({2048, 2048}, dtype, 1, 4);
    y_ = make_tensor(host_device(), {2048, 2048}, dtype);
    pack_ = product_->pack(x_);
    scratch_ =
        make_tensor(host_device(), {static_cast<int64_t>(product_->scratchpad_bytes() + 64)}, DType::kU8);
  }
  void run() {
    const double cpu = cpu_seconds();
    const auto begin = std::chrono::steady_clock::now();
    product_->execute({.src = x_.data(),
                       .weights = onednn::packed_data(*pack_),
                       .dst = y_.data(),
                       .scratchpad = scratch_.data()});
    const double wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    best_ = std::min({best_, wall, (cpu_seconds() - cpu) / host_threads()});
  }
  double rate() const { return 2 * std::pow(2048.0, 3) / best_; }

 private:
  std::shared_ptr<const onednn::Product> product_;
  std::shared_ptr<const Weight::Pack> pack_;
  Tensor x_, y_, scratch_;
  double best_ = 1e30;
};

// Times and prints one shape; adds the first implementation's time and work, as often as the model has it.
void bench(const Shapes& s, const Options& o, Floor& floor, double* seconds, double* flops) {
  const auto& d = s.dims;
  const Shape x_shape = s.is_conv() ? Shape{d[0], d[1], d[2], d[3]} : Shape{d[0], d[2]};
  const Shape w_shape = s.is_conv() ? Shape{d[4], d[3], d[5], d[5]} : Shape{d[1], d[2]};
  const float scale = std::sqrt(static_cast<float>(w_shape[0]) / static_cast<float>(w_shape.numel()));
  const Tensor x = random_values(x_shape, o.dtype, 1, 1), weight = random_values(w_shape, o.dtype, scale, 2);
  std::vector<std::pair<std::string, std::unique_ptr<Runner>>> runners;
  std::istringstream names(o.impls);
  for (std::string impl; std::getline(names, impl, ',');) try {
      runners.emplace_back(impl, std::make_unique<Runner>(s, impl, o.dtype, x, weight));
    } catch (const UsageError&) {  // it refuses this shape
    }
  double spent = 0;
  for (int round = 0; round < o.rounds || (round < 30 && spent < o.budget / 3); ++round) {
    floor.run();
    for (auto& [impl, runner] : runners) spent += runner->run();
    if (round > 0 && spent > o.budget) break;
  }
  for (const auto& [impl, runner] : runners)
    std::printf(
        "%-34s x%-3d %-9s %8.2f ms %7.1f GFLOP/s  %5.2f of the floor  arena %6.1f MB  weights %6.1f MB  "
        "error %.1e\n",
        s.text.c_str(), s.count, impl.c_str(), runner->best() * 1e3, s.flops() / runner->best() * 1e-9,
        s.flops() / runner->best() / floor.rate(), runner->arena_bytes() * 1e-6,
        runner->weight_bytes() * 1e-6, sampled_error(s, *runner, x, weight));
  std::fflush(stdout);
  if (runners.empty()) return;
  *seconds += s.count * runners.front().second->best();
  *flops += s.count * s.flops();
}

}  // namespace

int main(int argc, char** argv) try {
  const Options o = parse(argc, argv);
  std::vector<Shapes> shapes;
  for (const Shapes& s : read_shapes(o.shapes))
    if ((o.model.empty() || s.model.find(o.model) != std::string::npos) &&
        (o.filter.empty() || s.text.find(o.filter) != std::string::npos))
      shapes.push_back(s);
  std::stable_sort(shapes.begin(), shapes.end(), [](const Shapes& a, const Shapes& b) {
    return a.flops() * a.count > b.flops() * b.count;
  });
  if (static_cast<int>(shapes.size()) > o.top) shapes.resize(static_cast<size_t>(o.top));
  std::printf("%s, oneDNN %s\n", host_device().name().c_str(), onednn::version().c_str());
  Floor floor(onednn::refuses(o.dtype) ? DType::kF32 : o.dtype);
  floor.run();
  double seconds = 0, flops = 0;
  for (const Shapes& s : shapes) bench(s, o, floor, &seconds, &flops);
  std::printf("all of these, with their counts: %.3f s, %.1f GFLOP, %.2f of the floor's time\n", seconds,
              flops * 1e-9, seconds * floor.rate() / flops);
  std::printf("floor: %.1f GFLOP/s\n", floor.rate() * 1e-9);
  return 0;
} catch (const Error& e) {
  std::fprintf(stderr, "bench_kernels: %s\n", e.what());
  return static_cast<int>(e.exit_code());
}
