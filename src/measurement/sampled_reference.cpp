#include "measurement/sampled_reference.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

namespace rocm_sd::measurement {
namespace {

using library::Slot;

constexpr double kFloatUnit = 0x1p-24;  // half a unit in the last place
constexpr double kSumUnits = 64;

double unit_of(DType type) {
  return type == DType::kF32 ? kFloatUnit : type == DType::kF16 ? 0x1p-11 : 0x1p-8;
}

double gelu(double v) { return 0.5 * v * std::erfc(-v / std::numbers::sqrt2); }

double activated(double v, rocm_sd_kernels_activation act) {
  switch (act) {
    case ROCM_SD_KERNELS_NO_ACTIVATION: return v;
    case ROCM_SD_KERNELS_SILU: return v / (1 + std::exp(-v));
    case ROCM_SD_KERNELS_GELU: return gelu(v);
    case ROCM_SD_KERNELS_QUICK_GELU: return v / (1 + std::exp(-1.702 * v));
    case ROCM_SD_KERNELS_RELU: return std::max(v, 0.0);
  }
  return v;
}

// A sum and the magnitude of what was added.
struct Sum {
  double value = 0, magnitude = 0;
  void add(double term) {
    value += term;
    magnitude += std::fabs(term);
  }
};

// No activation is steeper than 1.2.
ExactValue finished(const Sum& sum, rocm_sd_kernels_activation act, DType dtype) {
  const double value = activated(sum.value, act);
  return {value, 2 * unit_of(dtype) * std::fabs(value) + 1.2 * kSumUnits * kFloatUnit * sum.magnitude + 1e-7};
}

// What rounding x to 8 bits, a row at a time, may do to a sum of products, at 6 deviations: an integer's
// rounding is evenly spread over a step, of a float with 3 bits of mantissa over at most 2^-3 of it.
double quantised_error(const rocm_sd_kernels_linear& p, const Inputs& in, int64_t row, int64_t column) {
  if (!in.rounded_to()) return 0;
  const int64_t stride = p.x_stride ? p.x_stride : p.in;
  double most = 0, square = 0, weighted = 0;
  for (int64_t k = 0; k < p.in; ++k) {
    const double x = in.value(Slot::kX, row * stride + k), w = in.value(Slot::kWeight, column * p.in + k);
    most = std::max(most, std::fabs(x));
    square += w * w;
    weighted += w * w * x * x;
  }
  const double variance =
      *in.rounded_to() == DType::kI8 ? square * most * most / (127.0 * 127.0) : weighted * 0x1p-3 * 0x1p-3;
  return 6 * std::sqrt(variance / 12);
}

ExactValue exact(const rocm_sd_kernels_linear& p, const Inputs& in, DType dtype, int64_t i) {
  const int64_t row = i / p.out, column = i % p.out, stride = p.x_stride ? p.x_stride : p.in;
  const auto dot = [&](int64_t c) {
    Sum sum;
    for (int64_t k = 0; k < p.in; ++k)
      sum.add(in.value(Slot::kX, row * stride + k) * in.value(Slot::kWeight, c * p.in + k));
    if (p.has_bias) sum.add(in.value(Slot::kBias, c));
    return sum;
  };
  Sum sum = dot(column);
  if (p.gated) {
    const Sum gate = dot(p.out + column);
    const double g = gelu(gate.value);
    const double value = sum.value * g;
    return {value, 2 * unit_of(dtype) * std::fabs(value) +
                       kSumUnits * kFloatUnit *
                           (std::fabs(g) * sum.magnitude + 1.2 * std::fabs(sum.value) * gate.magnitude) +
                       std::fabs(g) * quantised_error(p, in, row, column) +
                       1.2 * std::fabs(sum.value) * quantised_error(p, in, row, p.out + column) + 1e-7};
  }
  if (p.has_residual) sum.add(in.value(Slot::kResidual, i));
  ExactValue out = finished(sum, p.activation, dtype);
  out.tolerance += 1.2 * quantised_error(p, in, row, column);
  return out;
}

int64_t conv_extent(int64_t size, int scale, int before, int after, int64_t filter, int stride) {
  return (size * scale + before + after - filter) / stride + 1;
}

ExactValue exact(const rocm_sd_kernels_conv2d& p, const Inputs& in, DType dtype, int64_t i) {
  const int scale = p.upsample2x ? 2 : 1, stride = std::max(p.stride, 1);
  const int64_t out_w = conv_extent(p.width, scale, p.pad_left, p.pad_right, p.filter_w, stride);
  const int64_t out_h = conv_extent(p.height, scale, p.pad_top, p.pad_bottom, p.filter_h, stride);
  const int64_t k = i % p.out_channels, x = i / p.out_channels % out_w;
  const int64_t y = i / p.out_channels / out_w % out_h, image = i / p.out_channels / out_w / out_h;
  const int64_t all = p.channels + p.second_channels;
  Sum sum;
  const auto add_pixel = [&](Slot slot, int64_t channels, int64_t first, int64_t pixel, int64_t tap) {
    for (int64_t c = 0; c < channels; ++c)
      sum.add(in.value(slot, pixel * channels + c) *
              in.value(Slot::kWeight, (k * all + first + c) * p.filter_h * p.filter_w + tap));
  };
  for (int64_t r = 0; r < p.filter_h; ++r)
    for (int64_t s = 0; s < p.filter_w; ++s) {
      const int64_t iy = y * stride + r - p.pad_top, ix = x * stride + s - p.pad_left;
      if (iy < 0 || ix < 0 || iy >= scale * p.height || ix >= scale * p.width) continue;
      const int64_t pixel = (image * p.height + iy / scale) * p.width + ix / scale, tap = r * p.filter_w + s;
      add_pixel(Slot::kX, p.channels, 0, pixel, tap);
      if (p.second_channels) add_pixel(Slot::kSecond, p.second_channels, p.channels, pixel, tap);
    }
  const double product = std::fabs(sum.value);
  if (p.has_bias) sum.add(in.value(Slot::kBias, k));
  if (p.has_channel_shift) sum.add(in.value(Slot::kShift, image * p.out_channels + k));
  if (p.has_residual) sum.add(in.value(Slot::kResidual, i));
  ExactValue out = finished(sum, p.activation, dtype);
  out.stored_sum = 1.2 * unit_of(dtype) * product;
  // A doubled image's filter may be summed to four of 2x2 and stored in its type.
  const DType stored = in.operands().at(Slot::kWeight).dtype();
  if (p.upsample2x)
    out.tolerance += 2 * unit_of(stored) * sum.magnitude / std::sqrt(static_cast<double>(all));
  return out;
}

// Dense operands [batch,rows,heads,head_dim].
ExactValue exact(const rocm_sd_kernels_attention& p, const Inputs& in, DType dtype, int64_t i) {
  const int64_t channel = i % p.head_dim, head = i / p.head_dim % p.heads;
  const int64_t query = i / p.head_dim / p.heads % p.queries, image = i / p.head_dim / p.heads / p.queries;
  const auto at = [&](int64_t rows, int64_t row, int64_t c) {
    return ((image * rows + row) * p.heads + head) * p.head_dim + c;
  };
  const double scale = p.scale != 0 ? p.scale : 1 / std::sqrt(static_cast<double>(p.head_dim));
  const int64_t seen = p.causal ? std::min(query + 1, p.keys) : p.keys;
  std::vector<double> scores(static_cast<size_t>(seen));
  double most = -1e300;
  for (int64_t key = 0; key < seen; ++key) {
    double score = 0;
    for (int64_t c = 0; c < p.head_dim; ++c)
      score += in.value(Slot::kQ, at(p.queries, query, c)) * in.value(Slot::kK, at(p.keys, key, c));
    score *= scale;
    if (p.masked)
      score += in.value(Slot::kMask, image * p.mask_strides[0] + head * p.mask_strides[1] +
                                         query * p.mask_strides[2] + key);
    most = std::max(most, scores[static_cast<size_t>(key)] = score);
  }
  Sum sum;
  double weights = 0;
  for (int64_t key = 0; key < seen; ++key) {
    const double weight = std::exp(scores[static_cast<size_t>(key)] - most);
    weights += weight;
    sum.add(weight * in.value(Slot::kV, at(p.keys, key, channel)));
  }
  if (seen == 0) return {0, 1e-7};
  const double value = sum.value / weights, magnitude = sum.magnitude / weights;
  return {value, 2 * unit_of(dtype) * std::fabs(value) +
                     (2 * unit_of(dtype) + kSumUnits * kFloatUnit) * magnitude + 1e-7};
}

ExactValue exact(const rocm_sd_kernels_group_norm& p, const Inputs& in, DType dtype, int64_t i) {
  const int64_t all = p.channels + p.second_channels, width = all / p.groups;
  const int64_t channel = i % all, pixel = i / all % p.pixels, image = i / all / p.pixels;
  const int64_t first = channel / width * width;
  const auto at = [&](int64_t where, int64_t c) {
    return c < p.channels
               ? in.value(Slot::kX, (image * p.pixels + where) * p.channels + c)
               : in.value(Slot::kSecond, (image * p.pixels + where) * p.second_channels + c - p.channels);
  };
  double mean = 0, square = 0;
  const double count = static_cast<double>(p.pixels * width);
  for (int64_t where = 0; where < p.pixels; ++where)
    for (int64_t c = first; c < first + width; ++c) mean += at(where, c) / count;
  for (int64_t where = 0; where < p.pixels; ++where)
    for (int64_t c = first; c < first + width; ++c) square += std::pow(at(where, c) - mean, 2) / count;
  Sum sum;
  sum.add((at(pixel, channel) - mean) / std::sqrt(square + p.eps) * in.value(Slot::kWeight, channel));
  sum.add(in.value(Slot::kBias, channel));
  return finished(sum, p.activation, dtype);
}

ExactValue exact(const rocm_sd_kernels_layer_norm& p, const Inputs& in, DType dtype, int64_t i) {
  const int64_t row = i / p.channels, column = i % p.channels;
  double mean = 0, square = 0;
  const auto count = static_cast<double>(p.channels);
  const auto at = [&](int64_t c) { return in.value(Slot::kX, row * p.channels + c); };
  for (int64_t c = 0; c < p.channels; ++c) mean += at(c) / count;
  for (int64_t c = 0; c < p.channels; ++c) square += std::pow(at(c) - mean, 2) / count;
  Sum sum;
  sum.add((at(column) - mean) / std::sqrt(square + p.eps) * in.value(Slot::kWeight, column));
  sum.add(in.value(Slot::kBias, column));
  return finished(sum, ROCM_SD_KERNELS_NO_ACTIVATION, dtype);
}

}  // namespace

ExactValue exact_output(const Workload& workload, const Inputs& inputs, int64_t i) {
  return std::visit([&](const auto& p) { return exact(p, inputs, workload.result(), i); }, workload.args);
}

int64_t output_count(const Workload& workload) {
  for (const library::Operand& operand : workload.problem().operands)
    if (operand.slot == Slot::kY) return operand.shape.numel();
  return 0;
}

}  // namespace rocm_sd::measurement
