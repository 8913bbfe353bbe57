// The speed that oneDNN sustains on this machine: large products without anything else, per type. What a
// model's multiplications alone would take at this speed is the floor that `make bench-cpu` compares with.
//   bench_product_floor [SECONDS_PER_SHAPE]   ->   one line of JSON
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <random>
#include <vector>

#include "kernels/onednn.hpp"

namespace {

using namespace rocm_sd;
using Clock = std::chrono::steady_clock;

struct Named {
  const char* name;
  onednn::ProductSpec spec;
};

// Products of a UNet at 512 x 512 with guidance, in the sizes where oneDNN does best: [tokens,in] x [in,out]
// and 3x3.
std::vector<Named> shapes() {
  onednn::ProductSpec matmul{.height = 8192, .channels = 1280, .out_channels = 1280};
  onednn::ProductSpec conv{.batch = 2,
                           .height = 64,
                           .width = 64,
                           .channels = 320,
                           .out_channels = 320,
                           .filter_h = 3,
                           .filter_w = 3,
                           .pad_top = 1,
                           .pad_left = 1,
                           .pad_bottom = 1,
                           .pad_right = 1};
  return {{"matmul 8192x1280x1280", matmul}, {"conv3x3 2x64x64x320", conv}};
}

double flops(const onednn::ProductSpec& s) {
  const double taps = s.is_conv() ? static_cast<double>(s.filter_h * s.filter_w) : 1;
  return 2.0 * static_cast<double>(s.batch * s.height * s.width * s.channels * s.out_channels) * taps;
}

Tensor random_tensor(const Shape& shape, DType dtype) {
  std::mt19937 generator(1);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(shape.numel()));
  std::generate(values.begin(), values.end(), [&] { return normal(generator); });
  return tensor_from(host_device(), shape, values.data(), dtype);
}

// GFLOP/s, the median over calls that fill `seconds`.
double measure(onednn::ProductSpec spec, DType dtype, double seconds) {
  spec.dtype = spec.dst_dtype = dtype;
  const auto product = onednn::product(spec);
  const Tensor src = random_tensor({spec.batch, spec.height, spec.width, spec.channels}, dtype);
  const Tensor dst = random_tensor({spec.batch, spec.height, spec.width, spec.out_channels}, dtype);
  const Shape filter = spec.is_conv() ? Shape{spec.out_channels, spec.channels, spec.filter_h, spec.filter_w}
                                      : Shape{spec.out_channels, spec.channels};
  const auto pack = product->pack(random_tensor(filter, dtype));
  const Tensor scratchpad =
      make_tensor(host_device(), {static_cast<int64_t>(product->scratchpad_bytes()) + 1}, DType::kU8);
  const onednn::ProductArgs args{.src = src.data(),
                                 .weights = onednn::packed_data(*pack),
                                 .dst = dst.data(),
                                 .scratchpad = scratchpad.data()};
  product->execute(args);
  std::vector<double> times;
  for (double spent = 0; spent < seconds || times.size() < 5;) {
    const auto begin = Clock::now();
    product->execute(args);
    times.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
    spent += times.back();
  }
  std::nth_element(times.begin(), times.begin() + static_cast<int64_t>(times.size() / 2), times.end());
  return flops(spec) / times[times.size() / 2] * 1e-9;
}

}  // namespace

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 2;
  std::string out = fmt::format(R"({{"onednn": "{}", "device": "{}", "threads": {})", onednn::version(),
                                host_device().name(), host_threads());
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    if (onednn::refuses(dtype)) continue;
    double best = 0;
    std::string each;
    for (const Named& shape : shapes()) {
      const double speed = measure(shape.spec, dtype, seconds);
      each += fmt::format(R"({}"{}": {:.1f})", each.empty() ? "" : ", ", shape.name, speed);
      best = std::max(best, speed);
    }
    out += fmt::format(R"(, "{}": {{"gflops": {:.1f}, {}}})", dtype_name(dtype), best, each);
  }
  fmt::print("{}}}\n", out);
  return 0;
}
