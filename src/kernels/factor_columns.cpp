#include "kernels/factor_columns.hpp"

#include <vector>

namespace rocm_sd {
namespace {

// That of a matrix [r,in]: its columns one after the other.
FilterLayout matrix_layout(const Shape& shape) {
  const auto in = static_cast<int32_t>(shape[1]);
  return {.outputs = shape[0], .channels = {in, 0}, .padded = {in, 0}, .block = {in, 1}, .taps = 1};
}

}  // namespace

FactorColumns::FactorColumns(Device& device, const Tensor& plain)
    : FactorColumns(device, plain, matrix_layout(plain.shape())) {}

FactorColumns::FactorColumns(Device& device, const Tensor& plain, const FilterLayout& layout)
    : device_(device), shape_(plain.shape()), layout_(layout) {
  const std::vector<float> from = to_floats(device, plain);
  const int64_t rank = shape_[0], depth = layout_.depth(), width = layout_.plain_depth();
  std::vector<float> to(static_cast<size_t>(depth * rank), 0.0f);
#pragma omp parallel for
  for (int64_t k = 0; k < depth; ++k)
    if (const int64_t at = plain_at(k); at >= 0)
      for (int64_t r = 0; r < rank; ++r)
        to[static_cast<size_t>(k * rank + r)] = from[static_cast<size_t>(r * width + at)];
  columns_ = Weight(tensor_from(device, {depth, rank}, to.data(), plain.dtype()));
}

int64_t FactorColumns::plain_at(int64_t k) const {
  const int64_t of_first = static_cast<int64_t>(layout_.taps) * layout_.padded[0];
  const int input = k >= of_first ? 1 : 0;
  int64_t tap, channel;
  layout_.unpacked_at(input, k - input * of_first, layout_.taps, tap, channel);
  if (channel >= layout_.channels[input]) return -1;
  return (input * static_cast<int64_t>(layout_.channels[0]) + channel) * layout_.taps + tap;
}

Tensor FactorColumns::unpack() const {
  const Tensor columns = columns_.stored().values;
  const std::vector<float> from = to_floats(device_, columns);
  const int64_t rank = shape_[0], depth = layout_.depth(), width = layout_.plain_depth();
  std::vector<float> to(static_cast<size_t>(rank * width));
  for (int64_t k = 0; k < depth; ++k)
    if (const int64_t at = plain_at(k); at >= 0)
      for (int64_t r = 0; r < rank; ++r)
        to[static_cast<size_t>(r * width + at)] = from[static_cast<size_t>(k * rank + r)];
  return tensor_from(device_, shape_, to.data(), columns.dtype());
}

}  // namespace rocm_sd
