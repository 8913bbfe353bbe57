// Memory and LDS: what gaps between neighbouring lanes cost, and what a bank costs that many lanes want.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "params.hpp"
#include "performance_tests/gpu/analysis/lab.hpp"

namespace rocm_sd::analysis {

// Small integers, so that sums of thousands are exact, in no order that a stride repeats.
inline float pattern(int64_t i) { return static_cast<float>(static_cast<uint32_t>(i) * 2654435761u >> 22); }

class MemoryCases {
 public:
  explicit MemoryCases(Lab& lab)
      : lab_(lab), count_(int64_t{1} << (lab.emulated() ? 19 : 27)), x_(make_pattern(lab.demo, count_)) {}

  void run() {
    for (const int stride : {1, 2, 4, 8, 16, 32}) read("analysis_read_4", 1, stride, 0);
    read("analysis_read_4", 1, 1, 1);
    read("analysis_read_8", 2, 1, 0);
    read("analysis_read_16", 4, 1, 0);
    rows("analysis_rows_by_lane", "a row per lane", kThreads);
    rows("analysis_rows_by_wave", "a row per wave", kThreads / lab_.demo.traits().lanes);
    transpose("analysis_transpose_direct", "direct", 0);
    transpose("analysis_transpose_lds", "through LDS", kTile * kTile * 4);
    transpose("analysis_transpose_padded", "through padded LDS", kTile * (kTile + 1) * 4);
    if (!lab_.emulated()) copy();
    for (const int stride : {0, 1, 2, 4, 8, 16, 32, 33}) lds(stride);
  }

 private:
  static Tensor make_pattern(Device& device, int64_t count) {
    std::vector<float> values(static_cast<size_t>(count));
    for (size_t i = 0; i < values.size(); ++i) values[i] = pattern(static_cast<int64_t>(i));
    return tensor_from(device, {count}, values.data());
  }
  static int launches_for(double bytes) { return static_cast<int>(std::clamp(4e9 / bytes, 2.0, 20.0)); }

  // The largest difference of a few elements of y from want(i).
  template <class Want>
  double sampled(const Tensor& y, const Want& want) {
    const std::vector<float> got = to_floats(lab_.demo, y);
    double worst = 0;
    const auto count = static_cast<int64_t>(got.size());
    for (int64_t s = 0; s < 64; ++s) {
      const int64_t i = s * (count - 1) / 63;
      const double off = std::fabs(static_cast<double>(got[static_cast<size_t>(i)]) - want(i));
      if (!(off <= worst)) worst = off;
    }
    return worst;
  }

  void read(const char* kernel, int width, int64_t stride, int64_t offset) {
    const int32_t rounds = std::max(kAhead, static_cast<int>(64 / stride / width));
    const int64_t per_group = rounds * kThreads * stride * width, groups = (count_ - offset) / per_group;
    const Tensor y = make_tensor(lab_.demo, {groups * kThreads}, DType::kF32);
    const ReadParams p{x_.as<float>() + offset, y.as<float>(), stride, rounds};
    const double bytes = 4.0 * static_cast<double>(groups * kThreads) * rounds * width;
    const ordered_json measured = lab_.measure(launches_for(bytes * static_cast<double>(stride)), [&](int) {
      lab_.launch(kernel, {static_cast<uint32_t>(groups)}, kThreads, 0, p);
    });
    const double error = sampled(y, [&](int64_t thread) {
      double sum = 0;
      for (int64_t r = 0; r < rounds; ++r)
        for (int64_t i = 0; i < width; ++i)
          sum += static_cast<double>(pattern(
              offset +
              (thread / kThreads * rounds * kThreads + r * kThreads + thread % kThreads) * stride * width +
              i));
      return sum;
    });
    lab_.add("read", concat(4 * width, " bytes, stride ", stride, offset ? ", not aligned" : ""),
             {{"width", 4 * width}, {"stride", stride}, {"offset", 4 * offset}, {"bytes", bytes}}, measured,
             error);
  }

  void rows(const char* kernel, const char* name, int rows_per_group) {
    const int32_t columns = 1024;
    const int64_t rows = count_ / columns;
    const Tensor y = make_tensor(lab_.demo, {rows}, DType::kF32);
    const RowParams p{x_.as<float>(), y.as<float>(), columns};
    const double bytes = 4.0 * static_cast<double>(rows * columns);
    const ordered_json measured = lab_.measure(launches_for(bytes), [&](int) {
      lab_.launch(kernel, {static_cast<uint32_t>(rows / rows_per_group)}, kThreads, 0, p);
    });
    const double error = sampled(y, [&](int64_t row) {
      double sum = 0;
      for (int64_t c = 0; c < columns; ++c) sum += static_cast<double>(pattern(row * columns + c));
      return sum;
    });
    lab_.add("row sums", name, {{"rows", rows}, {"columns", columns}, {"bytes", bytes}}, measured, error);
  }

  void transpose(const char* kernel, const char* name, uint32_t lds) {
    const int32_t side = lab_.emulated() ? 256 : 8192;
    const int64_t elements = static_cast<int64_t>(side) * side;
    const Tensor y = make_tensor(lab_.demo, {elements}, DType::kF32);
    const TransposeParams p{x_.as<float>(), y.as<float>(), side, side};
    const double bytes = 8.0 * static_cast<double>(elements);
    const auto groups = static_cast<uint32_t>(elements / (kTile * kTile));
    const ordered_json measured =
        lab_.measure(launches_for(bytes), [&](int) { lab_.launch(kernel, {groups}, kThreads, lds, p); });
    const double error =
        sampled(y, [&](int64_t i) { return static_cast<double>(pattern(i % side * side + i / side)); });
    lab_.add("transpose", name, {{"side", side}, {"bytes", bytes}}, measured, error);
  }

  // What the driver's own copy reaches: the practical peak of the card.
  void copy() {
    const Tensor y = make_tensor(lab_.demo, {count_}, DType::kF32);
    const double bytes = 2.0 * static_cast<double>(x_.bytes());
    const ordered_json measured = lab_.measure(
        launches_for(bytes), [&](int) { lab_.demo.copy_on_device(y.data(), x_.data(), x_.bytes()); });
    lab_.add("copy", "by the driver", {{"bytes", bytes}}, measured,
             sampled(y, [](int64_t i) { return static_cast<double>(pattern(i)); }));
  }

  void lds(int32_t stride) {
    const int32_t rounds = lab_.emulated() ? 16 : 256;
    const uint32_t groups =
        lab_.emulated() ? 2 : static_cast<uint32_t>(lab_.demo.traits().compute_units) * 16;
    const Tensor y = make_tensor(lab_.demo, {groups * kThreads}, DType::kF32);
    const LdsParams p{y.as<float>(), stride, rounds};
    constexpr uint32_t kBytes = (kLdsWords + kAhead * kLdsStep) * 4;
    const ordered_json measured =
        lab_.measure(4, [&](int) { lab_.launch("analysis_lds", {groups}, kThreads, kBytes, p); });
    const int lanes = lab_.demo.traits().lanes;
    const double error = sampled(y, [&](int64_t thread) {
      double sum = 0;
      int64_t at = thread % kThreads % lanes * stride % kLdsWords;
      for (int r = 0; r < rounds; ++r) {
        for (int j = 0; j < kAhead; ++j) sum += static_cast<double>(at + j * kLdsStep);
        at = (at + kAhead * kLdsStep) % kLdsWords;
      }
      return sum;
    });
    lab_.add("lds", stride == 0 ? "one word for all" : concat("stride ", stride),
             {{"stride", stride}, {"lds_bytes", 4.0 * groups * kThreads * rounds * kAhead}}, measured, error);
  }

  Lab& lab_;
  int64_t count_;
  Tensor x_;
};

}  // namespace rocm_sd::analysis
